//! A server in a thread and clients for it, over loopback UDP; shared by the integration tests.
#![allow(dead_code, reason = "each test file uses its own part")]

use scotfree_core::{Epoch, KeyHash};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::Transport;
use scotfree_rpc::{
    ClientEvent, ClientOptions, ClientRuntime, ProbeOptions, ServerOptions, ServerRuntime, Service,
    SessionHandle, SessionOptions, Stop,
};
use scotfree_session::{ClosedReason, Mode, Request, RequestKind, ServerConfig};
use scotfree_wire::ClusterKey;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

pub const KEY: [u8; 32] = [7; 32];
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn socket() -> UdpTransport {
    let any = "127.0.0.1:0".parse().expect("an address");
    UdpTransport::bind(any, &UdpConfig::default()).expect("a loopback socket")
}

pub fn server_config(address: SocketAddr) -> ServerConfig {
    ServerConfig::new(address, ClusterKey::from_bytes(KEY), Epoch(1), [3; 16], Vec::new())
}

pub struct TestServer<S> {
    pub address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<S>,
}

impl<S: Service + Send + 'static> TestServer<S> {
    pub fn start(service: S, options: ServerOptions) -> TestServer<S> {
        Self::start_on(socket(), service, options)
    }

    pub fn start_on<T: Transport + Send + 'static>(transport: T, service: S, options: ServerOptions) -> Self {
        Self::run_on(transport, service, options, true)
    }

    /// Of a service that does not answer all that it is asked.
    pub fn start_undrained(service: S, options: ServerOptions) -> TestServer<S> {
        Self::run_on(socket(), service, options, false)
    }

    fn run_on<T: Transport + Send + 'static>(
        transport: T,
        service: S,
        options: ServerOptions,
        drains: bool,
    ) -> Self {
        let address = transport.local_address();
        let stop = Stop::new().expect("an eventfd");
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                let config = server_config(address);
                let mut server = ServerRuntime::new(transport, service, config, &[], options);
                let drained = server.run(&stop, None).expect("the loop runs");
                assert!(drained || !drains, "everything was drained");
                server.into_service()
            }
        });
        TestServer { address, stop, thread }
    }

    /// Stops the server and gives its service back.
    pub fn finish(self) -> S {
        self.stop.stop();
        self.thread.join().expect("the server's thread ends")
    }
}

pub fn client_on<T: Transport>(
    transport: T,
    server: SocketAddr,
    probes: ProbeOptions,
) -> (ClientRuntime<T>, SessionHandle) {
    let options = ClientOptions { probes, ..ClientOptions::new(server, ClusterKey::from_bytes(KEY)) };
    let mut client = ClientRuntime::new(transport, options);
    let session = client.start_session(SessionOptions::default()).expect("room for a session");
    client.wait_open(session, PATIENCE).expect("the server accepts");
    (client, session)
}

pub fn client(server: SocketAddr, probes: ProbeOptions) -> (ClientRuntime<UdpTransport>, SessionHandle) {
    client_on(socket(), server, probes)
}

pub fn request(kind: RequestKind, payload: &[u8]) -> Request<'_> {
    Request {
        kind,
        mode: Mode::Covered,
        fixed_reply: false,
        relaxed: false,
        traced: false,
        key_hash: KeyHash(1),
        payload,
    }
}

pub fn update(payload: &[u8]) -> Request<'_> {
    request(RequestKind::Update, payload)
}

/// Ends the session; why it says it ended.
pub fn end<T: Transport>(client: &mut ClientRuntime<T>, session: SessionHandle) -> ClosedReason {
    client.end_session(session);
    let deadline = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < deadline {
        client.turn().expect("the socket works");
        while let Some(event) = client.next_event() {
            if let ClientEvent::Closed { reason, .. } = event {
                return reason;
            }
        }
        client.wait(Some(PATIENCE)).expect("the socket works");
    }
    panic!("the session did not end");
}
