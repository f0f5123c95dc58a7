//! Both sidecars in threads of their own, between real sockets.
//!
//! Invariant: no device is on the path; what the server is told of devices is the test's affair.
#![allow(dead_code)] // Each test file uses its own part.

use super::{text, RedisServer, PATIENCE};
use scotfree_core::DeviceId;
use scotfree_io::conformance::ports::free_address;
use scotfree_resp::front::FrontCounters;
use scotfree_rpc::metrics::{MetricsBoard, MetricsListener};
use scotfree_rpc::Stop;
use scotfree_sidecar::client::{ClientSidecar, ClientSidecarConfig};
use scotfree_sidecar::redis::RedisAddress;
use scotfree_sidecar::server::{self, RedisServiceConfig, ServerSidecarConfig, SidecarError};
use scotfree_trace::CallRecord;
use scotfree_wire::ClusterKey;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Instant;

/// The secret of the test's cluster.
pub const KEY: [u8; 32] = [7; 32];

/// What a client's sidecar leaves behind.
pub struct Left {
    pub counters: FrontCounters,
    pub records: Vec<CallRecord>,
    /// Requests that its stop gave up.
    pub given_up: u64,
}

/// The pair.
pub struct Pair {
    client_stop: Stop,
    server_stop: Stop,
    server: Option<JoinHandle<Result<(), SidecarError>>>,
    client: Option<JoinHandle<Left>>,
    metrics: MetricsListener,
    /// Where clients connect.
    pub address: SocketAddr,
}

impl Pair {
    pub fn start(redis: &RedisServer) -> Pair {
        Pair::start_with(redis, |_| ())
    }

    pub fn start_with(redis: &RedisServer, change: impl FnOnce(&mut ClientSidecarConfig)) -> Pair {
        Pair::start_at(free_address(), redis, &[], change)
    }

    /// With a server's sidecar at `server_address` that counts on these devices.
    pub fn start_at(
        server_address: SocketAddr,
        redis: &RedisServer,
        devices: &[(DeviceId, SocketAddr)],
        change: impl FnOnce(&mut ClientSidecarConfig),
    ) -> Pair {
        let cluster_key = ClusterKey::from_bytes(KEY);
        let server_stop = Stop::new().expect("a waker");
        let client_stop = Stop::new().expect("a waker");
        let service =
            RedisServiceConfig::new(RedisAddress::Unix(redis.socket()), redis.folder.join("dead-letters"));
        let mut config = ServerSidecarConfig::new(server_address, cluster_key.clone(), service);
        config.devices = devices.to_vec();
        let stop = server_stop.clone();
        let server = std::thread::spawn(move || server::run(&config, &stop, None));
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let mut config = ClientSidecarConfig::new(any, any, server_address, cluster_key);
        change(&mut config);
        let mut sidecar = ClientSidecar::start(&config).expect("the server's sidecar answers");
        let address = sidecar.addresses()[0];
        let stop = client_stop.clone();
        let board = MetricsBoard::new();
        let metrics = MetricsListener::listen(any, board.clone()).expect("a port is free");
        let client = std::thread::spawn(move || {
            let mut records = Vec::new();
            sidecar.run(&stop, Some(&board), &mut |record| records.push(record)).expect("it runs to its end");
            Left { counters: sidecar.counters(), records, given_up: sidecar.given_up() }
        });
        Pair { client_stop, server_stop, server: Some(server), client: Some(client), metrics, address }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is possible");
        stream
    }

    /// The value of one of the client's sidecar's metrics.
    pub fn metric(&self, name: &str) -> Option<u64> {
        let mut stream = TcpStream::connect(self.metrics.address()).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Waits until a metric has come to a value.
    pub fn until_metric(&self, name: &str, is_there: impl Fn(u64) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !self.metric(name).is_some_and(&is_there) {
            assert!(Instant::now() < deadline, "{name} is {:?}", self.metric(name));
            std::thread::yield_now();
        }
    }

    /// Ends the server's sidecar only: from now on it is silent.
    pub fn end_server(&mut self) {
        self.server_stop.stop();
        let server = self.server.take().map(|server| server.join().expect("no panic"));
        assert!(matches!(server, Some(Ok(()))), "{server:?}");
    }

    /// Asks the client's sidecar to end.
    pub fn stop_client(&self) {
        self.client_stop.stop();
    }

    /// Ends the client's sidecar only.
    pub fn end_client(&mut self) -> Left {
        self.stop_client();
        let left = self.client.take().map(|client| client.join().expect("no panic"));
        left.expect("it was started")
    }

    pub fn end(mut self) -> Left {
        // The client first: it says good-bye to the server.
        let left = self.end_client();
        self.end_server();
        left
    }
}

pub fn talk(stream: &mut TcpStream, bytes: &[u8], expected: &[u8]) {
    stream.write_all(bytes).expect("it reads");
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply).expect("a reply in time");
    assert_eq!(text(&reply), text(expected));
}
