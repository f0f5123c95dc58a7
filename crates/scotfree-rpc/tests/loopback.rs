//! Clients and a server over loopback UDP, without a device.

mod common;

use common::{client, end, request, socket, update, TestServer, KEY, PATIENCE};
use scotfree_core::Nanos;
use scotfree_rpc::{
    CallError, CallLabel, ClientEvent, ClientOptions, ClientRuntime, NoopHandler, ProbeOptions,
    ServerOptions, SessionHandle, SessionOptions, StartError, Volatile,
};
use scotfree_session::{ClosedReason, CompletedBy, RequestKind, SubmitError};
use scotfree_wire::{ClusterKey, REQUEST_BYTES_MAX};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const LABEL: CallLabel = CallLabel::new("SET");

#[test]
fn one_call() {
    let server = TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    let (mut client, session) = client(server.address, ProbeOptions::default());
    let reply = client.call(session, update(b"hello"), LABEL, PATIENCE).expect("a reply");
    assert_eq!(
        (reply.bytes, reply.answered_by, reply.failed),
        (Some(&b"hello"[..]), CompletedBy::Server, false)
    );
    assert_eq!(end(&mut client, session), ClosedReason::Finished);
    assert_eq!(server.finish().0.executed(), 1);
}

#[test]
fn every_kind_and_every_size_comes_back_whole() {
    let server = TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    let (mut client, session) = client(server.address, ProbeOptions::default());
    for (index, bytes) in [0, 1, 1_000, 1_357, 1_358, 5_000, REQUEST_BYTES_MAX].into_iter().enumerate() {
        let payload: Vec<u8> = (0..bytes).map(|at| (at * 7 + index) as u8).collect();
        for kind in [RequestKind::Update, RequestKind::Read, RequestKind::Bypass] {
            let reply = client.call(session, request(kind, &payload), LABEL, PATIENCE).expect("a reply");
            assert_eq!(reply.bytes, Some(&payload[..]), "{kind:?} of {bytes} bytes");
        }
    }
    let large = vec![0; REQUEST_BYTES_MAX + 1];
    let refused = client.call(session, update(&large), LABEL, PATIENCE);
    assert!(matches!(refused, Err(CallError::TooLarge)), "{refused:?}");
    assert_eq!(server.finish().0.executed(), 21);
}

#[test]
fn many_sessions_share_one_socket_and_keep_their_orders() {
    const SESSIONS: usize = 50;
    const CALLS: u32 = 400;
    let server = TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    let options = ClientOptions {
        sessions_max: SESSIONS,
        ..ClientOptions::new(server.address, ClusterKey::from_bytes(KEY))
    };
    let mut client = ClientRuntime::new(socket(), options);
    // The next call to submit and to complete, of each session.
    let mut progress: HashMap<SessionHandle, (u32, u32)> = HashMap::new();
    for _ in 0..SESSIONS {
        let options = SessionOptions { window_asked: 16, ..SessionOptions::default() };
        progress.insert(client.start_session(options).expect("room for a session"), (0, 0));
    }
    let refused = client.start_session(SessionOptions::default());
    assert!(matches!(refused, Err(StartError::TooMany { sessions_max: SESSIONS })));
    let deadline = Instant::now() + PATIENCE;
    while progress.values().any(|(_, completed)| *completed < CALLS) {
        assert!(Instant::now() < deadline, "{:?}", client.totals());
        client.turn().expect("the socket works");
        while let Some(event) = client.next_event() {
            assert!(!matches!(event, ClientEvent::Closed { .. }), "{event:?}");
            if let ClientEvent::Completed { session, reply } = event {
                let (_, completed) = progress.get_mut(&session).expect("one of ours");
                assert_eq!(reply.bytes, Some(&completed.to_le_bytes()[..]));
                *completed += 1;
            }
        }
        submit_all(&mut client, &mut progress, CALLS);
        client.flush().expect("the socket works");
        client.wait(Some(PATIENCE)).expect("the socket works");
    }
    assert_eq!(server.finish().0.executed(), u64::from(CALLS) * SESSIONS as u64);
    assert_eq!(client.totals().completed, u64::from(CALLS) * SESSIONS as u64);
}

/// More sessions than a server keeps whose clients have not spoken, all asked for at once.
#[test]
fn a_thousand_sessions_open_at_once_and_stay_though_idle() {
    const SESSIONS: usize = 1_000;
    let server = TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    let options = ClientOptions::new(server.address, ClusterKey::from_bytes(KEY));
    let mut client = ClientRuntime::new(socket(), options);
    let start = |_| client.start_session(SessionOptions::default()).expect("room for a session");
    let sessions: Vec<SessionHandle> = (0..SESSIONS).map(start).collect();
    // One that is given up before its turn takes nothing from the others.
    client.end_session(sessions[SESSIONS - 1]);
    for session in &sessions[..SESSIONS - 1] {
        client.wait_open(*session, PATIENCE).expect("the server accepts");
    }
    for session in &sessions[..SESSIONS - 1] {
        let reply = client.call(*session, update(b"x"), LABEL, PATIENCE).expect("the session is known");
        assert_eq!(reply.bytes, Some(&b"x"[..]));
    }
    assert_eq!(server.finish().0.executed(), SESSIONS as u64 - 1);
}

fn submit_all(
    client: &mut ClientRuntime<scotfree_io::udp::UdpTransport>,
    progress: &mut HashMap<SessionHandle, (u32, u32)>,
    calls: u32,
) {
    for (session, (submitted, _)) in progress.iter_mut() {
        while *submitted < calls {
            match client.submit(*session, update(&submitted.to_le_bytes()), LABEL) {
                Ok(_) => *submitted += 1,
                Err(SubmitError::NotOpen | SubmitError::WindowFull) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_unreachable() {
    let silent = socket();
    let options =
        ClientOptions::new(scotfree_io::Transport::local_address(&silent), ClusterKey::from_bytes(KEY));
    let mut client = ClientRuntime::new(socket(), options);
    let session = client
        .start_session(SessionOptions { open_tries_max: 3, ..SessionOptions::default() })
        .expect("room for a session");
    let error = client.wait_open(session, PATIENCE).expect_err("nobody answers");
    assert!(matches!(error, CallError::Closed(Some(ClosedReason::Unreachable))), "{error}");
    assert!(matches!(
        client.next_event(),
        Some(ClientEvent::Closed { reason: ClosedReason::Unreachable, unknown_count: 0, .. })
    ));
    assert_eq!(client.submit(session, update(b""), LABEL), Err(SubmitError::Closed));
}

#[test]
fn a_call_that_gets_no_answer_in_time_says_so_and_completes_later() {
    let work = Nanos::from_millis(300);
    let server = TestServer::start(Volatile(NoopHandler::working(work)), ServerOptions::default());
    let (mut client, session) = client(server.address, ProbeOptions::default());
    let error =
        client.call(session, update(b"slow"), LABEL, Duration::from_millis(20)).expect_err("too soon");
    let CallError::TimedOut(Some(seq)) = error else { panic!("{error}") };
    let reply = client.call(session, update(b"next"), LABEL, PATIENCE).expect("a reply");
    assert_eq!(reply.bytes, Some(&b"next"[..]));
    let mut late = None;
    while let Some(event) = client.next_event() {
        if let ClientEvent::Completed { reply, .. } = event {
            late = Some((reply.seq, reply.bytes.map(<[u8]>::to_vec)));
        }
    }
    assert_eq!(late, Some((seq, Some(b"slow".to_vec()))));
}

#[test]
fn events_that_nobody_takes_stop_the_receiving_and_nothing_is_lost() {
    let server = TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    let options =
        ClientOptions { events_max: 8, ..ClientOptions::new(server.address, ClusterKey::from_bytes(KEY)) };
    let mut client = ClientRuntime::new(socket(), options);
    let session = client.start_session(SessionOptions::default()).expect("room for a session");
    client.wait_open(session, PATIENCE).expect("the server accepts");
    for _ in 0..500 {
        client.submit(session, update(b"x"), LABEL).expect("within the window");
    }
    let mut completed = 0;
    let deadline = Instant::now() + PATIENCE;
    while completed < 500 {
        assert!(Instant::now() < deadline);
        client.turn().expect("the socket works");
        for _ in 0..3 {
            completed += u32::from(matches!(client.next_event(), Some(ClientEvent::Completed { .. })));
        }
    }
    assert_eq!(end(&mut client, session), ClosedReason::Finished);
}

#[test]
fn hostile_datagrams_are_counted_and_harm_nobody() {
    let server = TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    let (mut client, session) = client(server.address, ProbeOptions::default());
    let attacker = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let here = scotfree_io::Transport::local_address(client.transport());
    for length in 0..200_usize {
        let mut bytes: Vec<u8> = (0..length).map(|at| (at * 31) as u8).collect();
        if length > 8 {
            bytes[..4].copy_from_slice(b"SCOT");
            bytes[4] = 1;
        }
        attacker.send_to(&bytes, server.address).expect("loopback takes it");
        attacker.send_to(&bytes, here).expect("loopback takes it");
    }
    let reply = client.call(session, update(b"still here"), LABEL, PATIENCE).expect("a reply");
    assert_eq!(reply.bytes, Some(&b"still here"[..]));
    let refused: u64 = client.counters().refused.iter().sum();
    assert!(refused >= 190, "{:?}", client.counters());
    assert!(client.next_refusal().is_some_and(|line| line.contains("dropped a packet")));
    assert_eq!(server.finish().0.executed(), 1);
}
