//! `scot sidecar client`: listens for Redis clients and speaks the protocol to the server's sidecar.
//!
//! Invariant: a client's commands are executed in its order, and no client waits for another but as the total order
//! wants it. What a connection cannot be answered any more ends it with an error.

mod begin;
mod connections;
mod coverage;
mod drain;
mod early_rules;
mod ended;
mod fronts;
pub mod in_process;
mod input;
mod learn;
mod mask;
pub mod proxy;
mod sessions;
pub(crate) mod silence;
mod tunnels;

use crate::notices::Notices;
use crate::redis::RedisServer;
use crate::server::SidecarError;
use crate::tls::TlsAcceptor;
use begin::{begin, Control};
use connections::Connections;
use drain::Drain;
pub use early_rules::EarlyRules;
use scotfree_core::Nanos;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{now_monotonic, now_realtime, Crowd, Interest, Poller, Spin};
use scotfree_resp::front::{EarlyRule, FrontConfig, FrontCounters};
use scotfree_rpc::metrics::{Health, MetricsBoard, MetricsText};
use scotfree_rpc::{
    write_refused, write_udp_metrics, ClientRuntime, ProbeOptions, SessionHandle, SessionOptions, SharedKey,
    Stop,
};
use scotfree_session::{Mode, Request, RequestKind};
use scotfree_trace::CallRecord;
use scotfree_wire::REQUEST_BYTES_MAX;
use silence::{Hearing, Silence, Whose};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How often metrics are published.
const PUBLISH_INTERVAL: Nanos = Nanos::from_millis(250);
/// How often it is looked whether the server answers.
const LOOK_INTERVAL: Nanos = Nanos::from_millis(500);
/// With more requests under way the loop sleeps at once. Measured beside a Redis and its sidecar on two processors: at
/// 16 looking gives a tenth more, at 64 it takes as much, and a third of the loop's processor time.
const FEW: u64 = 16;
/// The poller's keys: connections have larger ones.
const RUNTIME_KEY: u64 = 0;
const STOP_KEY: u64 = 1;
const LISTENER_KEY: u64 = 2;
const LISTENERS_MAX: usize = 64;
/// How many connections may wait to be accepted.
const BACKLOG: i32 = 4_096;

/// One address that clients connect to.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// The TCP address.
    pub address: SocketAddr,
    /// Which commands are answered early there.
    pub early: EarlyRule,
    /// By what TLS is begun, if it is spoken there.
    pub tls: Option<TlsAcceptor>,
}

/// What is sent when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pacing {
    /// Whether commands that wait together share a request.
    pub packs: bool,
    /// How many departures of a shared session may be under way, of early requests and of all others.
    pub departures_max: usize,
    /// How many reads of a shared session may be under way: each may be answered by 1 MiB, and what the server keeps of
    /// replies that were lost on the way is bounded.
    pub reads_max: usize,
}

impl Pacing {
    /// Where a request is a datagram.
    pub const DATAGRAMS: Pacing = Pacing { packs: true, departures_max: 4, reads_max: 4 };
}

/// What the sidecar is told at its start.
#[derive(Debug, Clone)]
pub struct ClientSidecarConfig {
    /// Where clients connect.
    pub listeners: Vec<ListenerConfig>,
    /// Our own UDP address.
    pub bind: SocketAddr,
    /// The server's.
    pub server: SocketAddr,
    /// Where the server's sidecar accepts tunnels; its address of the protocol if not given.
    pub tunnel: Option<SocketAddr>,
    /// The server, if it is on this host, so that tunnels lead there and to no sidecar.
    pub tunnels_to: Option<RedisServer>,
    /// Our socket.
    pub udp: UdpConfig,
    /// The secret that the cluster shares.
    pub cluster_key: SharedKey,
    /// What each session asks for.
    pub session: SessionOptions,
    /// Stamps and records.
    pub probes: ProbeOptions,
    /// What a connection may do; its early rule is the listener's.
    pub front: FrontConfig,
    /// How many client connections there can be; a further one gets Redis' own error.
    pub connections_max: usize,
    /// How many bytes of requests all connections together may hold; behind that, those that hold much are not
    /// read until there is room, and one of them is refused if none can come.
    pub input_bytes_max: usize,
    /// How many of them can be tunnels.
    pub tunnels_max: usize,
    /// How many sessions that were a connection's own, and have none now, are kept for the next ones that need one.
    pub idle_sessions_max: usize,
    /// How many sessions connections share, at most.
    pub sessions_max: usize,
    /// With how many connections in each a further session is opened.
    pub connections_per_session: usize,
    /// What is sent when.
    pub pacing: Pacing,
    /// Where lines for the operator go.
    pub notices: Notices,
    /// How long the start waits for the server's sidecar.
    pub start_time_max: Duration,
    /// How long a stop waits for what is on its way; what has no answer then is given up.
    pub drain_ns_max: Nanos,
    /// Whether to look for events before sleeping.
    pub spin: Spin,
}

impl ClientSidecarConfig {
    /// Defaults, with one listener.
    pub fn new(
        listen: SocketAddr,
        bind: SocketAddr,
        server: SocketAddr,
        cluster_key: impl Into<SharedKey>,
    ) -> Self {
        ClientSidecarConfig {
            listeners: vec![ListenerConfig { address: listen, early: EarlyRule::Never, tls: None }],
            bind,
            server,
            tunnel: None,
            tunnels_to: None,
            udp: UdpConfig::default(),
            cluster_key: cluster_key.into(),
            // Many connections share one.
            session: SessionOptions {
                window_asked: 4_096,
                early_overtakes: true,
                ..SessionOptions::default()
            },
            probes: ProbeOptions::default(),
            front: FrontConfig { request_bytes_max: REQUEST_BYTES_MAX, ..FrontConfig::default() },
            connections_max: 10_000,
            input_bytes_max: 512 << 20,
            tunnels_max: 2_048,
            idle_sessions_max: 64,
            sessions_max: 4,
            connections_per_session: 256,
            pacing: Pacing::DATAGRAMS,
            notices: Notices::default(),
            start_time_max: Duration::from_secs(30),
            drain_ns_max: Nanos::from_secs(3),
            spin: Spin::Never,
        }
    }
}

/// The loop and what it owns.
pub struct ClientSidecar {
    runtime: ClientRuntime<UdpTransport>,
    connections: Connections,
    listeners: Vec<TcpListener>,
    poller: Poller,
    crowd: Crowd,
    control: Control,
    runtime_writes: bool,
    notices: Notices,
    silence: Silence,
    look_at: Nanos,
    drain_ns_max: Nanos,
    drain: Option<Drain>,
}

impl ClientSidecar {
    /// Listens, and learns from the server's sidecar what the server is.
    pub fn start(config: &ClientSidecarConfig) -> Result<ClientSidecar, SidecarError> {
        assert!(config.listeners.len() <= LISTENERS_MAX, "there are at most {LISTENERS_MAX} listeners");
        let listeners = config.listeners.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
        let (runtime, control, fronts) = begin(config)?;
        let mut poller = Poller::new(256)?;
        poller.spin(config.spin);
        if let Some(fd) = runtime.poll_fd() {
            poller.add(fd, RUNTIME_KEY, Interest::Read)?;
        }
        for (index, listener) in listeners.iter().enumerate() {
            poller.add(listener.as_raw_fd(), LISTENER_KEY + index as u64, Interest::Read)?;
        }
        let connections = Connections::new(config, fronts, LISTENER_KEY + LISTENERS_MAX as u64)?;
        Ok(ClientSidecar {
            runtime,
            connections,
            listeners,
            poller,
            crowd: Crowd::above(FEW),
            control,
            runtime_writes: false,
            notices: config.notices.clone(),
            silence: Silence::of(Whose::Sidecar),
            look_at: Nanos(0),
            drain_ns_max: config.drain_ns_max,
            drain: None,
        })
    }

    /// Where clients connect, in the order of the configuration.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// By which the rules of early answers are changed while it runs.
    pub fn early_rules(&self) -> EarlyRules {
        self.connections.fronts.early_rules.clone()
    }

    /// What all connections have counted, closed ones included.
    pub fn counters(&self) -> FrontCounters {
        self.connections.fronts.counters()
    }

    /// Serves until somebody asks to stop. Records of calls go to `on_record`.
    pub fn run(
        &mut self,
        stop: &Stop,
        board: Option<&MetricsBoard>,
        on_record: &mut dyn FnMut(CallRecord),
    ) -> Result<(), SidecarError> {
        self.poller.add(stop.poll_fd(), STOP_KEY, Interest::Read)?;
        let mut text = MetricsText::new();
        let mut publish_at = if board.is_some() { Nanos(0) } else { Nanos::MAX };
        loop {
            self.turn(on_record)?;
            let now = now_monotonic();
            self.look_around(now);
            if let Some(board) = board.filter(|_| now >= publish_at) {
                publish_at = now.plus(PUBLISH_INTERVAL);
                self.publish(board, &mut text);
            }
            if stop.is_stopped() && self.drain.is_none() {
                self.poller.remove(stop.poll_fd())?;
                self.begin_drain(now)?;
            }
            if self.is_drained(now) {
                break;
            }
            self.wait(now, publish_at)?;
        }
        self.finish(on_record)
    }

    /// How many requests have no answer yet.
    fn waiting(&self) -> u64 {
        self.connections.fronts.outstanding() + self.runtime.outstanding(self.control.session) as u64
    }

    /// Says what an operator should know, seldom.
    fn look_around(&mut self, now: Nanos) {
        if now < self.look_at {
            return;
        }
        self.look_at = now.plus(LOOK_INTERVAL);
        let waiting = self.waiting();
        let received = self.runtime.counters().received;
        let silence = self.silence.look(now, Hearing { received, is_expected: waiting > 0, waiting });
        let coverage = self.connections.fronts.coverage.look(now, self.runtime.totals());
        if let Some(text) = silence {
            self.notices.alarm(&text);
        }
        while let Some(refusal) = self.runtime.next_refusal() {
            self.notices.say(&refusal);
        }
        for text in [coverage, self.connections.say_refusals(now)].into_iter().flatten() {
            self.notices.say(&text);
        }
    }

    /// Receives, answers and sends, without blocking.
    fn turn(&mut self, on_record: &mut dyn FnMut(CallRecord)) -> Result<(), SidecarError> {
        self.runtime.turn()?;
        let fronts = &mut self.connections.fronts;
        fronts.hear(now_realtime(), self.control.session, &mut self.runtime);
        if self.drain.is_none() {
            self.control.ask_if_due(&mut self.runtime, fronts);
        }
        loop {
            self.connections.fronts.submit(now_realtime(), &mut self.runtime);
            self.runtime.flush()?;
            if !self.connections.send(&self.poller) {
                break;
            }
        }
        while let Some(record) = self.runtime.next_record() {
            on_record(record);
        }
        Ok(())
    }

    fn wait(&mut self, now: Nanos, publish_at: Nanos) -> Result<(), SidecarError> {
        self.watch_runtime()?;
        let timer = self.runtime.next_timer().unwrap_or(Nanos::MAX).min(publish_at);
        // While it drains nothing more is asked.
        let timer = if self.drain.is_none() { timer.min(self.control.ask_at) } else { timer };
        let drain = self.drain.as_ref().map_or(Nanos::MAX, Drain::until);
        let timer = timer.min(self.look_at).min(drain);
        let mut ready = [None; 64];
        let time = if self.runtime.may_sleep() { timer.since(now) } else { Nanos(0) };
        let time = Some(Duration::from_nanos(time.0));
        let looks = self.crowd.are_few(self.connections.fronts.under_way());
        let events = self.poller.wait_looking(time, looks)?;
        // The rest is reported again by the next wait.
        for (slot, event) in ready.iter_mut().zip(events) {
            *slot = Some(*event);
        }
        for event in ready.into_iter().flatten() {
            if (LISTENER_KEY..LISTENER_KEY + self.listeners.len() as u64).contains(&event.key) {
                let index = (event.key - LISTENER_KEY) as usize;
                self.connections.accept(&self.listeners[index], index, &mut self.runtime, &self.poller);
            } else if event.key > STOP_KEY {
                self.connections.on_ready(event);
            }
        }
        self.connections.fronts.submit(now_realtime(), &mut self.runtime);
        Ok(())
    }

    fn watch_runtime(&mut self) -> Result<(), SidecarError> {
        let writes = self.runtime.wants_write();
        if let Some(fd) = self.runtime.poll_fd().filter(|_| writes != self.runtime_writes) {
            let interest = if writes { Interest::ReadWrite } else { Interest::Read };
            self.poller.modify(fd, RUNTIME_KEY, interest)?;
            self.runtime_writes = writes;
        }
        Ok(())
    }

    fn publish(&self, board: &MetricsBoard, text: &mut MetricsText) {
        text.clear();
        self.connections.write_metrics(text);
        let totals = self.runtime.totals();
        self.connections.fronts.coverage.write_metrics(totals, text);
        text.counter("scotfree_client_submitted_total", "Requests sent", totals.submitted);
        text.counter("scotfree_client_completed_total", "Requests completed", totals.completed);
        text.counter("scotfree_client_completed_early_total", "Completed by devices", totals.completed_early);
        text.counter("scotfree_client_retransmitted_total", "Requests sent again", totals.retransmitted);
        let counters = self.runtime.counters();
        text.counter("scotfree_client_unclaimed_total", "Packets of no session", counters.unclaimed);
        write_refused(text, "client", &counters.refused);
        write_udp_metrics(text, "client", &self.runtime.transport().counters());
        let silent = Health::NotServing("the server does not answer");
        board.publish(text, if self.silence.lasts() { silent } else { Health::Serving });
    }
}

fn listen(config: &ListenerConfig) -> Result<TcpListener, SidecarError> {
    let address = config.address;
    let wrap = |error| SidecarError::Listen { address, what: "Redis clients", error };
    let listener = TcpListener::bind(address).map_err(wrap)?;
    listener.set_nonblocking(true).map_err(wrap)?;
    // Who finds no place tries again a second later; the system has a limit of its own (net.core.somaxconn).
    rustix::net::listen(&listener, BACKLOG).map_err(|error| wrap(error.into()))?;
    Ok(listener)
}

fn as_read(payload: &[u8]) -> Request<'_> {
    Request {
        kind: RequestKind::Read,
        mode: Mode::Covered,
        fixed_reply: false,
        relaxed: false,
        traced: false,
        key_hash: scotfree_core::KeyHash(0),
        payload,
    }
}
