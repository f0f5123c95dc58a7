//! A server that does nothing but wait for requests and answer them: everything but the application.
//!
//! Invariant: it sleeps in the kernel while there is nothing to do, so what is measured is the wake-up of
//! a real server, unless it is told to look for a while before.

use scotfree_core::{DeviceId, Epoch, Nanos, SessionId};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{now_monotonic, Transport};
use scotfree_resp::codec::write_bulk;
use scotfree_resp::payload::{write_response, RequestFlags, RequestHead, ResponseFlags};
use scotfree_rpc::metrics::{Health, MetricsBoard, MetricsListener};
use scotfree_rpc::{
    DeadLetter, Execution, Handler, NoopHandler, ProbeOptions, RecoveredSession, Replies, RequestKind,
    ServerConfig, ServerOptions, ServerRuntime, Service, Stop,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::READY;
use scotfree_wire::{ClusterKey, Nonce};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// How a server that does nothing is set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NoopSpec {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// The devices on the path by number and control address; the first is the head.
    pub devices: Vec<(u16, SocketAddr)>,
    /// Whether it stamps requests.
    pub probes: bool,
    /// How long it keeps its processor busy with each request.
    pub work_ns: u64,
    /// Its incarnation: no two on the same devices' logs are of the same.
    pub epoch: u32,
    /// Where it says what it has counted.
    pub metrics: Option<SocketAddr>,
    /// How long after its execution a request is said to be stable, as with storage that is synced now and then;
    /// 0 for at once.
    pub stable_after_ms: u64,
    /// How long it looks for the next request before it sleeps, at most; 0 for never.
    pub spin_us: u64,
    /// If not 0, reads are answered with one value of so many bytes, and its server vouches for it, so that a cache may
    /// answer them again; else all requests are sent back.
    #[serde(default)]
    pub value_bytes: usize,
}

impl NoopSpec {
    /// A server in its first incarnation, without devices, that does nothing but answer at once.
    pub fn new(listen: SocketAddr, cluster_key: [u8; 32]) -> NoopSpec {
        NoopSpec {
            listen,
            cluster_key,
            devices: Vec::new(),
            probes: false,
            work_ns: 0,
            epoch: 1,
            metrics: None,
            stable_after_ms: 0,
            spin_us: 0,
            value_bytes: 0,
        }
    }
}

pub(super) fn serve(spec: &NoopSpec) -> Result<(), Trouble> {
    let broke = |error: io::Error| {
        let next = "see whether the address is this host's and free (ss -ulpn)";
        Trouble::new(format!("serve at {}", spec.listen), error, next)
    };
    let udp = UdpConfig { stamps: spec.probes, ..UdpConfig::default() };
    let transport = UdpTransport::bind(spec.listen, &udp).map_err(broke)?;
    let mut server = recovered(spec, transport).map_err(broke)?;
    println!("{READY}");
    let stop = Stop::new().map_err(broke)?;
    let board = MetricsBoard::new();
    let listen = |address| MetricsListener::listen(address, board.clone());
    let _listener = spec.metrics.map(listen).transpose().map_err(|error| {
        Trouble::new("say what is counted", error, "see whether the address is free (ss -tlpn)")
    })?;
    server.run(&stop, Some(&board).filter(|_| spec.metrics.is_some())).map(drop).map_err(broke)
}

/// The server behind a transport, as soon as it has what devices hold for it.
pub(super) fn recovered<T: Transport>(spec: &NoopSpec, transport: T) -> io::Result<ServerRuntime<T, Late>> {
    let mut nonce_seed = Nonce::default();
    getrandom::fill(&mut nonce_seed).map_err(|error| io::Error::other(error.to_string()))?;
    let devices = spec.devices.iter().map(|(device, address)| (DeviceId(*device), *address)).collect();
    let key = ClusterKey::from_bytes(spec.cluster_key);
    let config = ServerConfig::new(spec.listen, key, Epoch(spec.epoch), nonce_seed, devices);
    let probes = if spec.probes { ProbeOptions::default() } else { ProbeOptions::OFF };
    let spin = Nanos::from_micros(spec.spin_us);
    let options = ServerOptions { probes, spin: scotfree_io::Spin::UpTo(spin), ..ServerOptions::default() };
    let service = Late {
        handler: NoopHandler::working(Nanos(spec.work_ns)),
        value: (spec.value_bytes > 0).then(|| value_of(spec.value_bytes)),
        delay: Nanos::from_millis(spec.stable_after_ms),
        unstable: VecDeque::new(),
    };
    let mut server = ServerRuntime::new(transport, service, config, &[], options);
    while server.health() != Health::Serving {
        server.turn()?;
        server.wait(Some(Duration::from_millis(10)))?;
    }
    Ok(server)
}

/// The reply to a read, as a Redis behind a sidecar would give it.
fn value_of(bytes: usize) -> Vec<u8> {
    let (mut bulk, mut reply) = (Vec::new(), Vec::new());
    write_bulk(&mut bulk, &vec![b'v'; bytes]);
    write_response(&mut reply, ResponseFlags::EARLY_ALLOWED, &bulk);
    reply
}

/// Answers a read, and whoever takes a note that nobody will ever write it.
fn give(value: &[u8], request: &Execution<'_>, replies: &mut Replies) {
    let head = RequestHead::parse(request.payload);
    if head.is_ok_and(|head| head.flags.has(RequestFlags::NOTED)) {
        replies.lives(request.ticket, u64::MAX);
    }
    replies.reply(request.ticket, false, |out| out.extend_from_slice(value));
}

/// A service whose executions become stable some time later.
pub(super) struct Late {
    handler: NoopHandler,
    // What reads are answered with.
    value: Option<Vec<u8>>,
    delay: Nanos,
    // When the executions up to a ticket will be stable, in order.
    unstable: VecDeque<(Nanos, u64)>,
}

impl Handler for Late {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        match &self.value {
            Some(value) if request.kind == RequestKind::Read => give(value, request, replies),
            _ => self.handler.execute(request, replies),
        }
        if self.delay > Nanos(0) {
            self.unstable.push_back((now_monotonic().plus(self.delay), request.ticket));
        }
    }

    fn poll(&mut self, _wants_stable: bool, replies: &mut Replies) {
        if self.delay == Nanos(0) {
            return replies.stable_as_answered();
        }
        let now = now_monotonic();
        let due = self.unstable.iter().take_while(|(due, _)| *due <= now).count();
        if let Some((_, ticket)) = self.unstable.drain(..due).next_back() {
            replies.stable(ticket);
        }
    }

    fn next_poll(&self) -> Option<Nanos> {
        self.unstable.front().map(|(due, _)| *due)
    }
}

impl Service for Late {
    fn record_session(&mut self, record: &RecoveredSession, replies: &mut Replies) {
        replies.session_recorded(record.session);
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        replies.session_deleted(session);
    }

    fn dead_letter(&mut self, _letter: &DeadLetter<'_>) {}
}
