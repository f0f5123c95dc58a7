//! The client's sidecar between real sockets: what it counts on, and how it begins and ends.

mod support;

use remedy_persist::PersistConfig;
use scotfree_core::{BootEpoch, DeviceId, Effect, Effects, Machine, Nanos, SessionId};
use scotfree_device::{DeviceConfig, Pipeline};
use scotfree_io::conformance::ports::free_address;
use scotfree_io::now_monotonic;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_rpc::{
    DeadLetter, Execution, Handler, Replies, ServerConfig, ServerOptions, ServerRuntime, Service, Stop,
};
use scotfree_session::RecoveredSession;
use scotfree_sidecar::client::{ClientSidecar, ClientSidecarConfig};
use scotfree_wire::ClusterKey;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::pair::{talk, Pair, KEY};
use support::RedisServer;

const EVERYSEC: &[&str] = &["--appendonly yes", "--appendfsync everysec"];

#[test]
fn a_refused_description_is_asked_for_again_in_the_same_session_and_with_pauses() {
    let address = free_address();
    let stop = Stop::new().expect("a waker");
    let for_thread = stop.clone();
    let server = std::thread::spawn(move || {
        let transport = UdpTransport::bind(address, &UdpConfig::default()).expect("the port is free");
        let key = ClusterKey::from_bytes(KEY);
        let config = ServerConfig::new(address, key, scotfree_core::Epoch(1), [3; 16], Vec::new());
        let service = Nonsense::default();
        let mut server = ServerRuntime::new(transport, service, config, &[], ServerOptions::default());
        server.run(&for_thread, None).expect("the loop runs");
        server.into_service()
    });
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut config = ClientSidecarConfig::new(any, any, address, ClusterKey::from_bytes(KEY));
    config.start_time_max = Duration::from_millis(800);
    let error = ClientSidecar::start(&config).err().expect("it cannot know the server").to_string();
    assert!(error.contains("tried for"), "{error}");
    stop.stop();
    let service = server.join().expect("no panic");
    assert_eq!(service.sessions, 1);
    // 50, 100, 200 and 400 ms, each with its jitter, and what is left.
    assert!((2..=6).contains(&service.asked), "asked {} times in 0.8 s", service.asked);
}

#[test]
fn without_a_device_replies_are_the_servers_own_and_it_is_said_that_nothing_more_is_durable() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let pair = Pair::start(&redis);
    let mut stream = pair.connect();
    talk(&mut stream, b"SET a 1\r\nINCR a\r\n", b"+OK\r\n:2\r\n");
    pair.until_metric("scotfree_front_updates_total", |value| value == 2);
    assert_eq!(pair.metric("scotfree_client_completed_stable_total"), Some(0), "nobody waited for the disk");
    assert_eq!(pair.metric("scotfree_client_devices"), Some(0));
    assert_eq!(pair.metric("scotfree_client_durability_none"), Some(1));
    drop(stream);
    pair.end();
}

#[test]
fn with_a_device_that_does_not_acknowledge_updates_are_answered_when_they_are_stable() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let server = free_address();
    let device = Bystander::start(server);
    let pair = Pair::start_at(server, &redis, &[(DeviceId(1), device.address)], |_| ());
    let mut stream = pair.connect();
    talk(&mut stream, b"SET a 1\r\nINCR a\r\n", b"+OK\r\n:2\r\n");
    pair.until_metric("scotfree_client_completed_stable_total", |value| value == 1);
    assert_eq!(pair.metric("scotfree_front_packed_total"), Some(2), "both in one request");
    pair.until_metric("scotfree_client_devices_silent", |value| value == 1);
    assert_eq!(pair.metric("scotfree_client_devices"), Some(1));
    assert_eq!(pair.metric("scotfree_client_durability_none"), Some(0));
    drop(stream);
    pair.end();
    device.end();
}

#[test]
fn a_stop_closes_idle_connections_at_once() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut pair = Pair::start_with(&redis, |config| config.drain_ns_max = Nanos::from_secs(600));
    let mut streams: Vec<_> = (0..5).map(|_| pair.connect()).collect();
    for stream in &mut streams {
        talk(stream, b"SET a 1\r\nMULTI\r\n", b"+OK\r\n+OK\r\n");
    }
    let began = Instant::now();
    assert_eq!(pair.end_client().given_up, 0);
    assert!(began.elapsed() < Duration::from_secs(60), "a stop waited for its bound: {:?}", began.elapsed());
    for stream in &mut streams {
        assert_eq!(stream.read(&mut [0; 8]).expect("the connection was closed"), 0);
    }
    pair.end_server();
}

#[test]
fn a_stop_waits_for_a_reply_that_comes() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let mut pair = Pair::start_with(&redis, |config| config.drain_ns_max = Nanos::from_secs(600));
    let mut stream = pair.connect();
    talk(&mut stream, b"SET a 1\r\n", b"+OK\r\n");
    redis.pause();
    stream.write_all(b"INCR a\r\n").expect("it reads");
    pair.until_metric("scotfree_front_updates_total", |value| value == 2);
    let waiting = std::thread::spawn(move || {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the connection is closed behind the reply");
        answer
    });
    pair.stop_client();
    redis.go_on();
    assert_eq!(pair.end_client().given_up, 0);
    assert_eq!(waiting.join().expect("no panic"), b":2\r\n");
    pair.end_server();
}

#[test]
fn a_stop_does_not_wait_for_a_silent_server_beyond_its_bound() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let bound = Duration::from_millis(500);
    let mut pair = Pair::start_with(&redis, |config| config.drain_ns_max = Nanos(bound.as_nanos() as u64));
    let mut stream = pair.connect();
    talk(&mut stream, b"SET a 1\r\n", b"+OK\r\n");
    pair.end_server();
    stream.write_all(b"SET a 2\r\nGET a\r\n").expect("it reads");
    pair.until_metric("scotfree_front_commands_total", |value| value == 3);
    let began = Instant::now();
    assert_eq!(pair.end_client().given_up, 2);
    let took = began.elapsed();
    assert!(took >= bound && took < 10 * bound, "{took:?}"); // Wide, for a machine that is busy.
}

#[test]
fn commands_that_waited_for_room_go_on_when_their_client_has_read() {
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let pair = Pair::start_with(&redis, |config| config.front.output_bytes_max = 10);
    let mut stream = pair.connect();
    // These are answered here, so no reply of the server's wakes the connection.
    talk(&mut stream, &b"CLIENT GETNAME\r\n".repeat(1_000), &b"$-1\r\n".repeat(1_000));
    stream.write_all(&b"CLIENT GETNAME\r\n".repeat(1_000)).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the connection ends behind the last reply");
    assert_eq!(answer.len(), 5_000);
    pair.end();
}

#[test]
fn clients_that_hold_too_much_together_are_not_read_and_the_largest_is_refused() {
    const VALUE: usize = 4 << 20;
    let Some(redis) = RedisServer::start(EVERYSEC) else { return };
    let pair = Pair::start_with(&redis, |config| config.input_bytes_max = 5 << 20);
    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${VALUE}\r\n");
    let part = |bytes: usize| [head.as_bytes(), &vec![b'x'; bytes]].concat();
    let mut first = pair.connect();
    first.write_all(&part(2 << 20)).expect("there is room");
    pair.until_metric("scotfree_front_input_bytes", |value| value > 2 << 20);
    let mut second = pair.connect();
    let answer = std::thread::spawn({
        let mut second = second.try_clone().expect("a second handle");
        move || {
            let mut answer = Vec::new();
            // The end may be a reset, since not all that was sent is read.
            let _ = second.read_to_end(&mut answer);
            answer
        }
    });
    // It may be refused before all is written.
    let _ = second.write_all(&part(VALUE - 1));
    pair.until_metric("scotfree_front_input_refused_total", |value| value == 1);
    let said = String::from_utf8(answer.join().expect("no panic")).expect("text");
    assert!(said.is_empty() || said.contains("input_bytes_max = 5242880"), "{said}");
    pair.until_metric("scotfree_front_input_bytes", |value| (2 << 20..3 << 20).contains(&value));
    // Who held less goes on, and small requests do in any case.
    talk(&mut pair.connect(), b"SET small 1\r\n", b"+OK\r\n");
    talk(&mut first, &[&vec![b'x'; VALUE - (2 << 20)][..], b"\r\n"].concat(), b"+OK\r\n");
    pair.until_metric("scotfree_front_input_bytes", |value| value == 0);
    drop((first, second));
    pair.end();
}

/// Answers every request with nonsense.
#[derive(Default)]
struct Nonsense {
    sessions: u32,
    asked: u32,
}

impl Handler for Nonsense {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        self.asked += 1;
        replies.reply(request.ticket, false, |out| out.extend_from_slice(b"what?"));
        replies.stable(request.ticket);
    }
}

impl Service for Nonsense {
    fn record_session(&mut self, record: &RecoveredSession, replies: &mut Replies) {
        self.sessions += 1;
        replies.session_recorded(record.session);
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        replies.session_deleted(session);
    }

    fn dead_letter(&mut self, _letter: &DeadLetter<'_>) {}
}

/// A device that answers the server, and past which no request comes: it acknowledges nothing.
struct Bystander {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Bystander {
    fn start(server: SocketAddr) -> Bystander {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a timeout is possible");
        let address = socket.local_addr().expect("bound");
        let key = ClusterKey::from_bytes(KEY);
        let config = DeviceConfig::new(DeviceId(1), BootEpoch(1), address, server, key);
        let device = remedy_persist::device(config, PersistConfig::default());
        let stopped = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stopped = Arc::clone(&stopped);
            move || stand_by(&socket, device, &stopped)
        });
        Bystander { address, stopped, thread }
    }

    fn end(self) {
        self.stopped.store(true, Ordering::Release);
        self.thread.join().expect("no panic");
    }
}

fn stand_by(socket: &UdpSocket, mut device: Pipeline, stopped: &AtomicBool) {
    let address = socket.local_addr().expect("bound");
    let mut effects = Effects::new();
    let mut buffer = [0; 2_048];
    while !stopped.load(Ordering::Acquire) {
        match socket.recv_from(&mut buffer) {
            Ok((count, from)) => {
                device.on_message(now_monotonic(), from, address, &buffer[..count], &mut effects);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
            Err(error) => panic!("{error}"),
        }
        if device.next_timer().is_some_and(|at| at <= now_monotonic()) {
            device.on_timer(now_monotonic(), &mut effects);
        }
        for effect in effects.iter() {
            if let Effect::Send { to, bytes, .. } = effect {
                // The server may not be there yet.
                let _ = socket.send_to(effects.bytes(*bytes), to);
            }
        }
        effects.clear();
    }
}
