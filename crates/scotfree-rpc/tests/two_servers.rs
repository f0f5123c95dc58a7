//! One client, a session with each of two servers, over loopback UDP: each request goes where its session is, though
//! both servers give their sessions the same name.

mod common;

use common::{end, socket, update, TestServer, KEY, PATIENCE};
use scotfree_core::SessionId;
use scotfree_io::udp::UdpTransport;
use scotfree_rpc::{
    CallLabel, ClientEvent, ClientOptions, ClientRuntime, Execution, Handler, ProbeOptions, Replies,
    ServerOptions, SessionHandle, SessionOptions, Volatile,
};
use scotfree_session::{ClosedReason, SubmitError};
use scotfree_wire::ClusterKey;
use std::collections::HashMap;
use std::time::Instant;

const LABEL: CallLabel = CallLabel::new("SET");

/// Answers with its own letter and what it was asked.
#[derive(Debug)]
struct Letter {
    letter: u8,
    asked: Vec<Vec<u8>>,
}

impl Handler for Letter {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        self.asked.push(request.payload.to_vec());
        replies.reply(request.ticket, false, |out| {
            out.push(self.letter);
            out.extend_from_slice(request.payload);
        });
    }
}

fn server(letter: u8) -> TestServer<Volatile<Letter>> {
    TestServer::start(Volatile(Letter { letter, asked: Vec::new() }), ServerOptions::default())
}

/// A client whose own server is the first, and its sessions with both.
fn client_of(
    first: &TestServer<Volatile<Letter>>,
    second: &TestServer<Volatile<Letter>>,
) -> (ClientRuntime<UdpTransport>, [SessionHandle; 2]) {
    let key = ClusterKey::from_bytes(KEY);
    let options = ClientOptions { probes: ProbeOptions::default(), ..ClientOptions::new(first.address, key) };
    let mut client = ClientRuntime::new(socket(), options);
    let named = SessionOptions { server: Some(second.address), ..SessionOptions::default() };
    let sessions = [SessionOptions::default(), named]
        .map(|options| client.start_session(options).expect("room for a session"));
    (client, sessions)
}

/// Waits until both are open; their names.
fn names(client: &mut ClientRuntime<UdpTransport>) -> HashMap<SessionHandle, SessionId> {
    let mut names = HashMap::new();
    let deadline = Instant::now() + PATIENCE;
    while names.len() < 2 {
        assert!(Instant::now() < deadline, "{names:?}");
        client.turn().expect("the socket works");
        while let Some(event) = client.next_event() {
            let ClientEvent::Opened { session, id, .. } = event else { panic!("{event:?}") };
            names.insert(session, id);
        }
        if names.len() < 2 {
            client.wait(Some(PATIENCE)).expect("the socket works");
        }
    }
    names
}

#[test]
fn requests_go_to_the_server_that_their_session_is_with() {
    const CALLS: u32 = 300;
    let servers = [server(b'a'), server(b'b')];
    let (mut client, sessions) = client_of(&servers[0], &servers[1]);
    let names = names(&mut client);
    assert_eq!(names[&sessions[0]], names[&sessions[1]], "what is tried are two sessions of one name");

    let (mut submitted, mut completed) = ([0; 2], [0; 2]);
    let deadline = Instant::now() + PATIENCE;
    while completed != [CALLS; 2] {
        assert!(Instant::now() < deadline, "{completed:?} of {submitted:?}");
        for at in 0..2 {
            while submitted[at] < CALLS {
                match client.submit(sessions[at], update(&submitted[at].to_le_bytes()), LABEL) {
                    Ok(_) => submitted[at] += 1,
                    Err(SubmitError::WindowFull) => break,
                    Err(error) => panic!("{error:?}"),
                }
            }
        }
        client.flush().expect("the socket works");
        client.turn().expect("the socket works");
        while let Some(event) = client.next_event() {
            let ClientEvent::Completed { session, reply } = event else { panic!("{event:?}") };
            let at = usize::from(session == sessions[1]);
            let expected = [&[b"ab"[at]][..], &u32::to_le_bytes(completed[at])].concat();
            assert_eq!(reply.bytes, Some(&expected[..]), "server {at}");
            completed[at] += 1;
        }
        if completed != [CALLS; 2] {
            client.wait(Some(PATIENCE)).expect("the socket works");
        }
    }
    let asked: Vec<Vec<u8>> = (0..CALLS).map(|call| call.to_le_bytes().to_vec()).collect();
    for server in servers {
        assert_eq!(server.finish().0.asked, asked);
    }
}

#[test]
fn the_end_of_one_session_is_not_the_others() {
    let servers = [server(b'a'), server(b'b')];
    let (mut client, [first, second]) = client_of(&servers[0], &servers[1]);
    names(&mut client);
    assert_eq!(end(&mut client, first), ClosedReason::Finished);
    let [gone, stays] = servers;
    gone.finish();
    let reply = client.call(second, update(b"x"), LABEL, PATIENCE).expect("the other is there");
    assert_eq!(reply.bytes, Some(&b"bx"[..]));
    assert_eq!(end(&mut client, second), ClosedReason::Finished);
    assert_eq!(stays.finish().0.asked, [b"x".to_vec()]);
}
