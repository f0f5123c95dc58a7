//! Services that misbehave: who suffers, and who does not.

mod common;

use common::{client, server_config, socket, update, TestServer, KEY, PATIENCE};
use scotfree_core::{Nanos, SessionId};
use scotfree_io::Transport;
use scotfree_rpc::metrics::Health;
use scotfree_rpc::{
    CallError, CallLabel, ClientEvent, ClientOptions, ClientRuntime, DeadLetter, Execution, Handler,
    ProbeOptions, Replies, ServerOptions, ServerRuntime, Service, SessionOptions, Stop,
};
use scotfree_session::{ClosedReason, RecoveredSession};
use scotfree_wire::{CloseReason, ClusterKey};
use std::sync::mpsc;

const LABEL: CallLabel = CallLabel::new("SET");

#[test]
fn a_session_whose_application_breaks_ends_and_others_go_on() {
    let server = TestServer::start(Moody::default(), ServerOptions::default());
    let (mut unlucky, broken) = client(server.address, ProbeOptions::default());
    let (mut other, session) = client(server.address, ProbeOptions::default());
    other.call(session, update(b"x"), LABEL, PATIENCE).expect("a reply");
    let error = unlucky.call(broken, update(b"fail"), LABEL, PATIENCE).expect_err("the application broke");
    let expected = ClosedReason::Server(CloseReason::ServerFailed);
    assert!(matches!(error, CallError::Closed(Some(reason)) if reason == expected), "{error}");
    while let Some(event) = unlucky.next_event() {
        if let ClientEvent::Closed { unknown_count, .. } = event {
            assert_eq!(unknown_count, 1, "whether the request was applied is not known");
        }
    }
    let reply = other.call(session, update(b"y"), LABEL, PATIENCE).expect("a reply");
    assert_eq!(reply.bytes, Some(&b"ok"[..]));
    assert_eq!(server.finish().deleted, 1, "the failed session is forgotten");
}

#[test]
fn a_refused_request_is_a_reply_that_says_so() {
    let server = TestServer::start(Moody::default(), ServerOptions::default());
    let (mut client, session) = client(server.address, ProbeOptions::default());
    let reply = client.call(session, update(b"refuse"), LABEL, PATIENCE).expect("a reply");
    assert!(reply.failed);
    let record = client.next_record().expect("calls are recorded");
    assert!(record.error.is_some());
}

#[test]
fn a_report_about_nothing_is_counted_and_ignored() {
    let server = TestServer::start(Moody::default(), ServerOptions::default());
    let (mut client, session) = client(server.address, ProbeOptions::default());
    client.call(session, update(b"twice"), LABEL, PATIENCE).expect("a reply");
    client.call(session, update(b"x"), LABEL, PATIENCE).expect("a reply");
}

#[test]
fn a_broken_service_ends_the_loop_with_its_reason() {
    let transport = socket();
    let address = transport.local_address();
    let stop = Stop::new().expect("an eventfd");
    let thread = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let options = ServerOptions::default();
            ServerRuntime::new(transport, Moody::default(), server_config(address), &[], options)
                .run(&stop, None)
        }
    });
    let (mut client, session) = client(address, ProbeOptions::default());
    client.submit(session, update(b"break"), LABEL).expect("within the window");
    client.turn().expect("the socket works");
    let error = thread.join().expect("the thread ends").expect_err("the service broke");
    assert!(error.to_string().contains("the disk is gone"), "{error}");
}

#[test]
fn a_stop_waits_for_stability_only_so_long() {
    let transport = socket();
    let options = ServerOptions { drain_time_max: Nanos::from_millis(50), ..ServerOptions::default() };
    let config = server_config(transport.local_address());
    let (told, executed) = mpsc::channel();
    let address = transport.local_address();
    let stop = Stop::new().expect("an eventfd");
    let thread = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let moody = Moody { executed: Some(told), ..Moody::default() };
            let mut server = ServerRuntime::new(transport, moody, config, &[], options);
            let drained = server.run(&stop, None).expect("the loop runs");
            (drained, server.health())
        }
    });
    let (mut client, session) = client(address, ProbeOptions::default());
    client.submit(session, update(b"unstable"), LABEL).expect("within the window");
    client.turn().expect("the socket works");
    executed.recv_timeout(PATIENCE).expect("it is executed");
    stop.stop();
    let (drained, health) = thread.join().expect("the thread ends");
    assert!(!drained, "what never becomes stable cannot be drained");
    assert_eq!(health, Health::NotServing("draining"));
}

#[test]
fn a_drain_waits_without_turning_although_the_stop_stays_readable() {
    let transport = socket();
    let options = ServerOptions { drain_time_max: Nanos::from_millis(300), ..ServerOptions::default() };
    let address = transport.local_address();
    let mut server = ServerRuntime::new(transport, Moody::default(), server_config(address), &[], options);
    let mut client = ClientRuntime::new(socket(), ClientOptions::new(address, ClusterKey::from_bytes(KEY)));
    let session = client.start_session(SessionOptions::default()).expect("room for a session");
    while client.session_id(session).is_none() {
        client.turn().expect("the socket works");
        server.turn().expect("the socket works");
    }
    client.submit(session, update(b"unstable"), LABEL).expect("within the window");
    client.turn().expect("the socket works");
    while server.service().last.is_none() {
        server.turn().expect("the socket works");
    }
    let stop = Stop::new().expect("an eventfd");
    server.wake_on(stop.poll_fd()).expect("it can be watched");
    stop.stop();
    let turns = server.service().polls;
    assert!(!server.drain().expect("the loop runs"), "what never becomes stable cannot be drained");
    let turns = server.service().polls - turns;
    assert!(turns < 100, "{turns} turns of the loop in 0.3 s");
}

/// A service that does what the request says.
#[derive(Debug, Default)]
struct Moody {
    last: Option<u64>,
    is_stable: bool,
    deleted: u32,
    broken: Option<String>,
    polls: u32,
    /// Who is told of each execution.
    executed: Option<mpsc::Sender<()>>,
}

impl Handler for Moody {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        match request.payload {
            b"fail" => {
                (self.last, self.is_stable) = (Some(request.ticket), true);
                return replies.fail_session(request.session);
            }
            b"break" => self.broken = Some("the disk is gone".to_owned()),
            b"twice" => replies.reply(request.ticket, false, |out| out.extend_from_slice(b"ok")),
            _ => {}
        }
        if request.payload == b"unstable" {
            self.is_stable = false;
        } else if self.last.is_none() {
            self.is_stable = true;
        }
        self.last = Some(request.ticket);
        if let Some(told) = &self.executed {
            told.send(()).expect("the test waits for it");
        }
        replies.reply(request.ticket, request.payload == b"refuse", |out| out.extend_from_slice(b"ok"));
    }

    fn poll(&mut self, _wants_stable: bool, replies: &mut Replies) {
        self.polls += 1;
        if let Some(ticket) = self.last.filter(|_| self.is_stable) {
            self.last = None;
            replies.stable(ticket);
        }
    }

    fn broken(&self) -> Option<String> {
        self.broken.clone()
    }
}

impl Service for Moody {
    fn record_session(&mut self, record: &RecoveredSession, replies: &mut Replies) {
        replies.session_recorded(record.session);
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        self.deleted += 1;
        replies.session_deleted(session);
    }

    fn dead_letter(&mut self, _letter: &DeadLetter<'_>) {}
}
