//! The identity of a request, over loopback UDP: it reaches the handler as its client says it, and only requests of one
//! packet bear one.

mod common;

use common::{client, end, request, TestServer, PATIENCE};
use scotfree_io::udp::UdpTransport;
use scotfree_rpc::{
    CallLabel, ClientEvent, ClientRuntime, ClosedReason, Execution, Handler, ProbeOptions, Replies,
    RequestKind, ServerOptions, SessionOptions, Volatile,
};
use scotfree_wire::{Identity, PAYLOAD_BYTES_MAX};
use std::time::Instant;

const LABEL: CallLabel = CallLabel::new("SET");
const IDENTITY: Identity = Identity { client: [5; 16], number: 1 << 56 | 9 };
/// What an identity takes of a packet's room.
const IDENTITY_BYTES: usize = 32;

/// Remembers who asked, and how much.
#[derive(Debug, Default)]
struct Asked(Vec<(Option<Identity>, usize)>);

impl Handler for Asked {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        self.0.push((request.identity, request.payload.len()));
        replies.reply(request.ticket, false, |_| {});
    }
}

fn take_completions(client: &mut ClientRuntime<UdpTransport>, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    let mut completed = 0;
    while completed < count {
        assert!(Instant::now() < deadline, "{completed} of {count}");
        client.turn().expect("the socket works");
        while let Some(event) = client.next_event() {
            completed += usize::from(matches!(event, ClientEvent::Completed { .. }));
        }
        if completed < count {
            client.wait(Some(PATIENCE)).expect("the socket works");
        }
    }
}

#[test]
fn an_identity_reaches_the_handler_where_one_packet_has_room_for_it() {
    let server = TestServer::start(Volatile(Asked::default()), ServerOptions::default());
    let (mut client, session) = client(server.address, ProbeOptions::default());
    assert_eq!(client.server_epoch(session).map(|epoch| epoch.0), Some(1));
    let most = PAYLOAD_BYTES_MAX - IDENTITY_BYTES;
    let sizes = [1, most, most + 1, 10_000];
    for bytes in sizes {
        assert_eq!(client.takes_identity(session, bytes), bytes <= most, "{bytes}");
        let payload = vec![b'x'; bytes];
        let update = request(RequestKind::Update, &payload);
        client.submit_identified(session, update, IDENTITY, LABEL).expect("the window is open");
    }
    client.submit(session, request(RequestKind::Read, b"x"), LABEL).expect("the window is open");
    take_completions(&mut client, sizes.len() + 1);
    assert_eq!(end(&mut client, session), ClosedReason::Finished);
    let identities = [Some(IDENTITY), Some(IDENTITY), None, None];
    let mut expected: Vec<_> = identities.into_iter().zip(sizes).collect();
    expected.push((None, 1));
    assert_eq!(server.finish().0 .0, expected);
}

#[test]
fn an_abandoned_session_ends_at_once_and_the_next_is_another() {
    let server = TestServer::start(Volatile(Asked::default()), ServerOptions::default());
    let (mut client, session) = client(server.address, ProbeOptions::default());
    client.submit(session, request(RequestKind::Update, b"x"), LABEL).expect("the window is open");
    client.abandon_session(session);
    assert!(matches!(client.next_event(), Some(ClientEvent::Opened { .. })));
    let closed = ClientEvent::Closed { session, reason: ClosedReason::Unreachable, unknown_count: 1 };
    assert_eq!(client.next_event(), Some(closed));
    assert!(!client.is_alive(session));
    let next = client.start_session(SessionOptions::default()).expect("room for a session");
    client.wait_open(next, PATIENCE).expect("the server accepts");
    assert_ne!(next, session);
    server.finish();
}
