//! The stamps: a delay is found in the stage in which it was made, and the nine stages are the call.

mod common;

use common::{client, client_on, socket, update, TestServer, PATIENCE};
use scotfree_core::{Boundary, Nanos, Stage, StageTimes, StampSource};
use scotfree_io::{now_realtime, RxBurst, Spin, Stamps, Transport, TxPacket};
use scotfree_rpc::{
    CallLabel, ClientRuntime, Execution, Handler, NoopHandler, ProbeOptions, Replies, ServerOptions, Volatile,
};
use scotfree_session::ClosedReason;
use scotfree_trace::CallRecord;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(60);
const LABEL: CallLabel = CallLabel::new("SET");
/// Every transmit stamp is asked of the kernel.
const ALL_STAMPS: ProbeOptions = ProbeOptions {
    stamps: true,
    record_every: 1,
    record_keys_every: 0,
    transmit_stamp_every: 1,
    records_max: 4_096,
    late_stamp_wait: Nanos::from_secs(30),
};
const SERVER: ServerOptions =
    ServerOptions { probes: ALL_STAMPS, drain_time_max: Nanos::from_secs(5), spin: Spin::Never };

#[test]
fn a_delay_in_the_client_s_queue_is_found_there() {
    let server = TestServer::start(Volatile(NoopHandler::new()), SERVER);
    let (mut client, session) = client(server.address, ALL_STAMPS);
    finds(Stage::ClientSendQueue, || {
        client.submit(session, update(b"x"), LABEL).expect("within the window");
        let slept = sleep();
        (one_record(&mut client), slept)
    });
}

#[test]
fn a_delay_in_the_client_s_send_path_is_found_there() {
    let server = TestServer::start(Volatile(NoopHandler::new()), SERVER);
    let armed = Arc::new(AtomicBool::new(false));
    let (mut client, session) = client_on(SlowSending::new(&armed), server.address, ALL_STAMPS);
    finds(Stage::RequestStack, || {
        armed.store(true, Ordering::SeqCst);
        client.submit(session, update(&[0; 1_000]), LABEL).expect("within the window");
        let record = one_record(&mut client);
        (record, client.transport().slept)
    });
}

#[test]
fn a_delay_in_the_server_s_receive_queue_is_found_there() {
    // The second request waits for the first one's handler.
    let server = TestServer::start(Volatile(Sleepy::in_handler()), SERVER);
    let (mut client, session) = client(server.address, ALL_STAMPS);
    finds(Stage::ServerRecvQueue, || {
        client.submit(session, update(b"sleep"), LABEL).expect("within the window");
        client.submit(session, update(b"x"), LABEL).expect("within the window");
        let [first, second] = records(&mut client);
        (second, first.boundaries.stages().0.get(Stage::ServerApp))
    });
}

#[test]
fn a_delay_in_the_handler_is_found_there() {
    let server = TestServer::start(Volatile(Sleepy::in_handler()), SERVER);
    let (mut client, session) = client(server.address, ALL_STAMPS);
    finds(Stage::ServerApp, || {
        client.submit(session, update(b"sleep"), LABEL).expect("within the window");
        slept_as_told(&mut client)
    });
}

#[test]
fn a_delay_in_the_server_s_send_queue_is_found_there() {
    let server = TestServer::start(Volatile(Sleepy::before_reply()), SERVER);
    let (mut client, session) = client(server.address, ALL_STAMPS);
    finds(Stage::ServerSendQueue, || {
        client.submit(session, update(b"sleep"), LABEL).expect("within the window");
        slept_as_told(&mut client)
    });
}

#[test]
fn a_delay_in_the_server_s_send_path_is_found_there() {
    let armed = Arc::new(AtomicBool::new(false));
    let server = TestServer::start_on(SlowSending::new(&armed), Volatile(NoopHandler::new()), SERVER);
    let (mut client, session) = client(server.address, ALL_STAMPS);
    finds(Stage::ResponseStack, || {
        armed.store(true, Ordering::SeqCst);
        client.submit(session, update(&[0; 1_000]), LABEL).expect("within the window");
        // The transport sleeps as long as it is told to, give or take what the tolerance is for.
        (one_record(&mut client), Nanos(DELAY.as_nanos() as u64))
    });
}

#[test]
fn a_delay_in_the_client_s_receive_queue_is_found_there() {
    let server = TestServer::start(Volatile(NoopHandler::new()), SERVER);
    let (mut client, session) = client(server.address, ALL_STAMPS);
    finds(Stage::ClientRecvQueue, || {
        client.submit(session, update(b"x"), LABEL).expect("within the window");
        client.flush().expect("the socket works");
        client.wait(Some(PATIENCE)).expect("the socket works");
        let slept = sleep();
        (one_record(&mut client), slept)
    });
}

#[test]
fn nine_stages_sum_to_the_call_and_know_their_sources() {
    const CALLS: usize = 3_000;
    let server = TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    let (mut client, session) = client(server.address, ProbeOptions::default());
    let mut call = || {
        client.call(session, update(b"x"), LABEL, PATIENCE).expect("a reply");
        std::iter::from_fn(|| client.next_record()).collect::<Vec<_>>()
    };
    await_usual_delay(&mut call);
    let mut records = Vec::new();
    while records.len() < CALLS {
        records.extend(call());
    }
    assert_eq!(common::end(&mut client, session), ClosedReason::Finished);
    records.extend(std::iter::from_fn(|| client.last_record()));
    let wrong = records.iter().filter(|record| !sums_up(record)).count();
    assert!(wrong * 1_000 <= records.len(), "{wrong} of {} records do not sum up", records.len());
    let kernel = |boundary| {
        let of_kernel = |record: &&CallRecord| record.sources.get(boundary) == StampSource::Kernel;
        records.iter().filter(of_kernel).count() as f64 / records.len() as f64
    };
    assert!(kernel(Boundary::RequestReceived) > 0.999, "every request is stamped when it arrives");
    assert!(kernel(Boundary::ResponseReceived) > 0.999, "every response is stamped when it arrives");
    for sampled in [Boundary::RequestSent, Boundary::ResponseSent] {
        let share = kernel(sampled);
        assert!((0.010..0.025).contains(&share), "one in 64 is sampled, not {share} ({sampled:?})");
    }
    let with_all = records.iter().filter(|record| !record.source_letters().contains(&b'-')).count();
    assert!(with_all * 1_000 > records.len() * 999, "{with_all} of {} have all stamps", records.len());
}

/// Calls until the time between a response's dequeuing and its leaving is known. The first stamp of it travels
/// behind its call, and nothing can be derived for the calls that end before it comes, however many they are.
fn await_usual_delay(mut call: impl FnMut() -> Vec<CallRecord>) {
    let deadline = std::time::Instant::now() + PATIENCE;
    let derived = |record: &CallRecord| record.sources.get(Boundary::ResponseSent) == StampSource::Derived;
    while !call().iter().any(derived) {
        assert!(std::time::Instant::now() < deadline, "no transmit stamp came back from the server");
    }
}

fn sums_up(record: &CallRecord) -> bool {
    let (times, moved) = record.boundaries.stages();
    let tolerance = (record.duration().0 / 1_000).max(1_000);
    times.total().0.abs_diff(record.duration().0) <= tolerance && moved.0 <= tolerance
}

/// Makes calls with a delay in one stage until in three of them that stage is the delay within 5 % and the
/// other stages have nothing of it. A busy machine interrupts some calls; a stamp in the wrong place spoils
/// all.
fn finds(stage: Stage, mut call: impl FnMut() -> (CallRecord, Nanos)) {
    const CALLS_MAX: usize = 25;
    let mut misses: Vec<(f64, Nanos, StageTimes)> = Vec::new();
    for made in 0..CALLS_MAX {
        if made - misses.len() == 3 {
            return;
        }
        let (record, slept) = call();
        let (times, _) = record.boundaries.stages();
        let others = times.total().0 - times.get(stage).0;
        let misplaced = times.get(stage).0.abs_diff(slept.0).max(others);
        let error = misplaced as f64 / slept.0 as f64;
        if error > 0.05 {
            misses.push((error, slept, times));
        }
    }
    panic!("{stage} is off in {} of {CALLS_MAX} calls (by, slept, found): {misses:?}", misses.len());
}

fn sleep() -> Nanos {
    let before = now_realtime();
    std::thread::sleep(DELAY);
    now_realtime().since(before)
}

fn one_record<T: Transport>(client: &mut ClientRuntime<T>) -> CallRecord {
    let [record] = records(client);
    record
}

/// The records of the calls in flight, with all their stamps.
fn records<T: Transport, const COUNT: usize>(client: &mut ClientRuntime<T>) -> [CallRecord; COUNT] {
    let deadline = std::time::Instant::now() + PATIENCE;
    let mut records = Vec::new();
    while records.len() < COUNT {
        assert!(std::time::Instant::now() < deadline, "the stamps did not come");
        client.turn().expect("the socket works");
        while client.next_event().is_some() {}
        // The server's transmit stamp travels behind the response.
        records.extend(std::iter::from_fn(|| client.next_record()));
        client.wait(Some(Duration::from_millis(1))).expect("the socket works");
    }
    records.try_into().expect("no more calls than records")
}

fn slept_as_told<T: Transport>(client: &mut ClientRuntime<T>) -> (CallRecord, Nanos) {
    (one_record(client), Nanos(DELAY.as_nanos() as u64))
}

/// A handler that sleeps when the request says so, in the handler or behind it.
struct Sleepy {
    in_handler: bool,
    waiting: Option<(u64, Nanos)>,
}

impl Sleepy {
    fn in_handler() -> Sleepy {
        Sleepy { in_handler: true, waiting: None }
    }

    fn before_reply() -> Sleepy {
        Sleepy { in_handler: false, waiting: None }
    }
}

impl Handler for Sleepy {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        if request.payload == b"sleep" && !self.in_handler {
            self.waiting = Some((request.ticket, now_realtime()));
            return;
        }
        if request.payload == b"sleep" {
            sleep();
        }
        replies.reply(request.ticket, false, |out| out.push(b'x'));
    }

    fn poll(&mut self, _wants_stable: bool, replies: &mut Replies) {
        if let Some((ticket, ended)) = self.waiting.take() {
            sleep();
            replies.reply_ended(ticket, false, ended, |out| out.push(b'x'));
        }
    }
}

/// A socket that, when it is armed, sleeps once before it sends a large packet.
struct SlowSending {
    socket: scotfree_io::udp::UdpTransport,
    armed: Arc<AtomicBool>,
    slept: Nanos,
}

impl SlowSending {
    fn new(armed: &Arc<AtomicBool>) -> SlowSending {
        SlowSending { socket: socket(), armed: Arc::clone(armed), slept: Nanos(0) }
    }
}

impl Transport for SlowSending {
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        self.socket.rx_burst(out)
    }

    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let is_large = packets.iter().any(|packet| packet.bytes.len() >= 1_000);
        if is_large && self.armed.swap(false, Ordering::SeqCst) {
            self.slept = sleep();
        }
        self.socket.tx_burst(packets)
    }

    fn tx_stamps(&mut self, out: &mut Vec<(u32, Nanos)>) {
        self.socket.tx_stamps(out);
    }

    fn mtu(&self) -> usize {
        self.socket.mtu()
    }

    fn stamps(&self) -> Stamps {
        self.socket.stamps()
    }

    fn local_address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        self.socket.poll_fd()
    }
}
