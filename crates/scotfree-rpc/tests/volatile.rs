//! A handler without records of sessions, served in this process.

mod common;

use common::{client_on, end, server_config, update, TestServer, KEY, PATIENCE};
use scotfree_io::memory::{pair, MemoryConfig, MemoryTransport};
use scotfree_io::Transport;
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{
    CallLabel, ClientOptions, ClientRuntime, Execution, Handler, ProbeOptions, Replies, ServerOptions,
    ServerRuntime, SessionOptions, Volatile,
};
use scotfree_session::ClosedReason;
use scotfree_wire::ClusterKey;
use std::time::Instant;

const LABEL: CallLabel = CallLabel::new("ADD");

/// Adds up the lengths of what it is sent.
#[derive(Default)]
struct Sum(usize);

impl Handler for Sum {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        self.0 += request.payload.len();
        replies.reply(request.ticket, false, |out| out.extend_from_slice(self.0.to_string().as_bytes()));
    }
}

/// A client's end and a server's of a network in this process.
fn ends() -> (MemoryTransport, MemoryTransport) {
    let address = |text: &str| text.parse().expect("an address");
    pair(address("10.0.0.1:1000"), address("10.0.0.2:2000"), MemoryConfig::default()).expect("eventfds")
}

#[test]
fn a_handler_of_a_few_lines_is_served_and_its_sessions_begin_and_end() {
    let (here, there) = ends();
    let server = TestServer::start_on(there, Volatile(Sum::default()), ServerOptions::default());
    let (mut client, session) = client_on(here, server.address, ProbeOptions::default());
    for (payload, sum) in [(&b"a"[..], &b"1"[..]), (b"bc", b"3"), (b"def", b"6")] {
        let reply = client.call(session, update(payload), LABEL, PATIENCE).expect("a reply");
        assert_eq!(reply.bytes, Some(sum));
    }
    // A session ends in peace only when its updates are stable.
    assert_eq!(end(&mut client, session), ClosedReason::Finished);
    assert_eq!(server.finish().0 .0, 6);
}

/// Answers the first request when it is told to, and all others before.
#[derive(Default)]
struct Crossing {
    first: Option<u64>,
    may_answer_first: bool,
}

impl Handler for Crossing {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        if request.payload == b"first" {
            self.first = Some(request.ticket);
        } else {
            replies.reply(request.ticket, false, |_| ());
        }
    }

    fn poll(&mut self, _wants_stable: bool, replies: &mut Replies) {
        if let Some(ticket) = self.first.take_if(|_| self.may_answer_first) {
            replies.reply(ticket, false, |_| ());
        }
    }
}

/// A client and its server on one thread.
struct Bench {
    client: ClientRuntime<MemoryTransport>,
    server: ServerRuntime<MemoryTransport, Volatile<Crossing>>,
}

impl Bench {
    fn new() -> Bench {
        let (here, there) = ends();
        let options = ClientOptions::new(there.local_address(), ClusterKey::from_bytes(KEY));
        let config = server_config(there.local_address());
        let service = Volatile(Crossing::default());
        let server = ServerRuntime::new(there, service, config, &[], ServerOptions::default());
        Bench { client: ClientRuntime::new(here, options), server }
    }

    fn turn(&mut self) {
        self.client.turn().expect("memory does not break");
        self.server.turn().expect("memory does not break");
    }

    fn turn_until(&mut self, is_so: impl Fn(&Bench) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "it does not come to pass");
            self.turn();
        }
    }

    fn stable(&self) -> u64 {
        self.server.machine().ticket_stable()
    }
}

#[test]
fn nothing_behind_a_request_without_an_answer_is_called_stable() {
    let mut bench = Bench::new();
    let session = bench.client.start_session(SessionOptions::default()).expect("room for a session");
    bench.turn_until(|bench| bench.client.session_id(session).is_some());
    for payload in [&b"first"[..], b"second"] {
        bench.client.submit(session, update(payload), LABEL).expect("within the window");
    }
    bench.turn_until(|bench| bench.server.metrics().runtime.replies == 1);
    for _ in 0..10 {
        bench.turn();
        assert_eq!(bench.stable(), 0, "the first has no answer");
    }
    bench.server.service_mut().0.may_answer_first = true;
    bench.turn_until(|bench| bench.stable() == 2 && bench.client.outstanding(session) == 0);
}

#[test]
fn the_metrics_say_that_nothing_survives() {
    let mut text = MetricsText::new();
    Volatile(Sum::default()).write_metrics(&mut text);
    assert!(text.as_str().contains("scotfree_service_volatile 1\n"), "{}", text.as_str());
    assert!(text.as_str().contains("Nothing survives this process"), "{}", text.as_str());
}
