//! `scot sidecar client`: listens for Redis clients and speaks the protocol to the server's sidecar.
//!
//! Invariant: one session serves one client connection at a time, so a client waits only for itself and
//! for the total order. What a connection cannot be answered any more ends it with an error.

mod connections;
mod sessions;
mod silence;

use crate::description::Description;
use crate::front::{describe_request, EarlyRule, FrontConfig, FrontCounters};
use crate::payload::parse_response;
use crate::resp::text_of;
use crate::server::SidecarError;
pub use connections::EarlyRules;
use connections::Fronts;
use remedy_persist::{Mode, Request, RequestKind};
use scotfree_core::Nanos;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{now_monotonic, now_realtime, Interest, Poller};
use scotfree_rpc::metrics::{Health, MetricsBoard, MetricsText};
use scotfree_rpc::{
    write_udp_metrics, CallError, CallLabel, ClientOptions, ClientRuntime, ProbeOptions, SessionHandle,
    SessionOptions, Stop,
};
use scotfree_trace::CallRecord;
use scotfree_wire::{ClusterKey, REQUEST_BYTES_MAX};
use silence::Silence;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// How often metrics are published.
const PUBLISH_INTERVAL: Nanos = Nanos::from_millis(250);
/// How often the server's description and time are asked for again.
const DESCRIBE_INTERVAL: Nanos = Nanos::from_secs(10);
/// How often it is looked whether the server answers.
const LOOK_INTERVAL: Nanos = Nanos::from_millis(500);
/// How long a stop waits for what is on its way.
const DRAIN_TIME_MAX: Nanos = Nanos::from_secs(5);
/// The poller's keys: connections have larger ones.
const RUNTIME_KEY: u64 = 0;
const STOP_KEY: u64 = 1;
const LISTENER_KEY: u64 = 2;
const LISTENERS_MAX: usize = 64;

/// One address that clients connect to.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// The TCP address.
    pub address: SocketAddr,
    /// Which commands are answered early there.
    pub early: EarlyRule,
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
    /// Our socket.
    pub udp: UdpConfig,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// What each session asks for.
    pub session: SessionOptions,
    /// Stamps and records.
    pub probes: ProbeOptions,
    /// What a connection may do; its early rule is the listener's.
    pub front: FrontConfig,
    /// How many client connections there can be; a further one gets Redis' own error.
    pub connections_max: usize,
    /// How many of them can be tunnels.
    pub tunnels_max: usize,
    /// How many sessions without a client are kept for the next ones.
    pub idle_sessions_max: usize,
    /// How long the start waits for the server's sidecar.
    pub start_time_max: Duration,
}

impl ClientSidecarConfig {
    /// Defaults, with one listener.
    pub fn new(listen: SocketAddr, bind: SocketAddr, server: SocketAddr, cluster_key: ClusterKey) -> Self {
        ClientSidecarConfig {
            listeners: vec![ListenerConfig { address: listen, early: EarlyRule::Never }],
            bind,
            server,
            tunnel: None,
            udp: UdpConfig::default(),
            cluster_key,
            session: SessionOptions::default(),
            probes: ProbeOptions::default(),
            front: FrontConfig { request_bytes_max: REQUEST_BYTES_MAX, ..FrontConfig::default() },
            connections_max: 1_000,
            tunnels_max: 64,
            idle_sessions_max: 64,
            start_time_max: Duration::from_secs(30),
        }
    }
}

/// The loop and what it owns.
pub struct ClientSidecar {
    runtime: ClientRuntime<UdpTransport>,
    fronts: Fronts,
    listeners: Vec<TcpListener>,
    poller: Poller,
    control: SessionHandle,
    describe_at: Nanos,
    runtime_writes: bool,
    silence: Silence,
    look_at: Nanos,
}

impl ClientSidecar {
    /// Listens, and learns from the server's sidecar what the server is.
    pub fn start(config: &ClientSidecarConfig) -> Result<ClientSidecar, SidecarError> {
        assert!(config.listeners.len() <= LISTENERS_MAX, "there are at most {LISTENERS_MAX} listeners");
        let listeners = config.listeners.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
        let transport = UdpTransport::bind(config.bind, &config.udp)
            .map_err(|error| SidecarError::Listen { address: config.bind, what: "the protocol", error })?;
        let mut options = ClientOptions::new(config.server, config.cluster_key.clone());
        options.probes = config.probes;
        let mut runtime = ClientRuntime::new(transport, options);
        let (control, description) = learn(&mut runtime, config)?;
        let poller = Poller::new(256)?;
        if let Some(fd) = runtime.poll_fd() {
            poller.add(fd, RUNTIME_KEY, Interest::Read)?;
        }
        for (index, listener) in listeners.iter().enumerate() {
            poller.add(listener.as_raw_fd(), LISTENER_KEY + index as u64, Interest::Read)?;
        }
        let fronts = Fronts::new(config, description, LISTENER_KEY + LISTENERS_MAX as u64);
        let describe_at = now_monotonic().plus(DESCRIBE_INTERVAL);
        Ok(ClientSidecar {
            runtime,
            fronts,
            listeners,
            poller,
            control,
            describe_at,
            runtime_writes: false,
            silence: Silence::default(),
            look_at: Nanos(0),
        })
    }

    /// Where clients connect, in the order of the configuration.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// By which the rules of early answers are changed while it runs.
    pub fn early_rules(&self) -> EarlyRules {
        self.fronts.early_rules.clone()
    }

    /// What all connections have counted, closed ones included.
    pub fn counters(&self) -> FrontCounters {
        self.fronts.counters()
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
        let mut drain_until = None;
        loop {
            self.turn(on_record)?;
            let now = now_monotonic();
            self.listen_for_silence(now);
            if let Some(board) = board.filter(|_| now >= publish_at) {
                publish_at = now.plus(PUBLISH_INTERVAL);
                self.publish(board, &mut text);
            }
            if stop.is_stopped() && drain_until.is_none() {
                drain_until = Some(now.plus(DRAIN_TIME_MAX));
                let waiting = self.waiting();
                if waiting > 0 {
                    let most = DRAIN_TIME_MAX.0 / 1_000_000_000;
                    eprintln!("sidecar: stopping; {waiting} requests have up to {most} s to be answered");
                }
                self.poller.remove(stop.poll_fd())?;
                self.stop_listening()?;
            }
            if let Some(until) = drain_until {
                if now >= until || self.fronts.is_drained() {
                    break;
                }
            }
            self.wait(now, publish_at.min(drain_until.unwrap_or(Nanos::MAX)))?;
        }
        self.finish(on_record)
    }

    /// How many requests have no answer yet.
    fn waiting(&self) -> u64 {
        let totals = self.runtime.totals();
        totals.submitted.saturating_sub(totals.completed)
    }

    fn listen_for_silence(&mut self, now: Nanos) {
        if now < self.look_at {
            return;
        }
        self.look_at = now.plus(LOOK_INTERVAL);
        let received = self.runtime.counters().received;
        let waiting = self.waiting();
        if let Some(text) = self.silence.look(now, received, waiting) {
            eprintln!("sidecar: {text}");
        }
    }

    /// Receives, answers and sends, without blocking.
    fn turn(&mut self, on_record: &mut dyn FnMut(CallRecord)) -> Result<(), SidecarError> {
        self.runtime.turn()?;
        while let Some(event) = self.runtime.next_event() {
            self.fronts.on_event(event, self.control);
        }
        self.describe_if_due();
        self.fronts.submit(&mut self.runtime);
        self.runtime.flush()?;
        self.fronts.send(&self.poller);
        while let Some(record) = self.runtime.next_record() {
            on_record(record);
        }
        Ok(())
    }

    fn wait(&mut self, now: Nanos, publish_at: Nanos) -> Result<(), SidecarError> {
        self.watch_runtime()?;
        let timer = self.runtime.next_timer().unwrap_or(Nanos::MAX).min(publish_at).min(self.describe_at);
        let timer = timer.min(self.look_at);
        let mut ready = [None; 64];
        let events = self.poller.wait(Some(Duration::from_nanos(timer.since(now).0)))?;
        // The rest is reported again by the next wait.
        for (slot, event) in ready.iter_mut().zip(events) {
            *slot = Some(*event);
        }
        for event in ready.into_iter().flatten() {
            if (LISTENER_KEY..LISTENER_KEY + self.listeners.len() as u64).contains(&event.key) {
                let index = (event.key - LISTENER_KEY) as usize;
                self.fronts.accept(&self.listeners[index], index, &mut self.runtime, &self.poller);
            } else if event.key > STOP_KEY {
                self.fronts.on_ready(event, &mut self.runtime);
            }
        }
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

    fn describe_if_due(&mut self) {
        let now = now_monotonic();
        if now < self.describe_at {
            return;
        }
        self.describe_at = now.plus(DESCRIBE_INTERVAL);
        if self.runtime.session_id(self.control).is_none() {
            // The server has forgotten the session: another one takes its place.
            if let Ok(session) = self.runtime.start_session(control_options()) {
                self.control = session;
            }
            return;
        }
        let request = describe_request();
        self.fronts.description_asked_at = now_realtime();
        let _ = self.runtime.submit(self.control, as_read(&request.payload), CallLabel::new("describe"));
    }

    fn publish(&self, board: &MetricsBoard, text: &mut MetricsText) {
        text.clear();
        self.fronts.write_metrics(text);
        let totals = self.runtime.totals();
        text.counter("scotfree_client_submitted_total", "Requests sent", totals.submitted);
        text.counter("scotfree_client_completed_total", "Requests completed", totals.completed);
        text.counter("scotfree_client_completed_early_total", "Completed by devices", totals.completed_early);
        text.counter("scotfree_client_retransmitted_total", "Requests sent again", totals.retransmitted);
        text.counter("scotfree_client_packets_refused_total", "Packets refused", totals.refused);
        write_udp_metrics(text, "client", &self.runtime.transport().counters());
        let silent = Health::NotServing("the server does not answer");
        board.publish(text, if self.silence.lasts() { silent } else { Health::Serving });
    }

    fn stop_listening(&mut self) -> Result<(), SidecarError> {
        for listener in self.listeners.drain(..) {
            self.poller.remove(listener.as_raw_fd())?;
        }
        self.fronts.stop_reading();
        Ok(())
    }

    /// Ends the sessions, so that the server need not wait for their expiry.
    fn finish(&mut self, on_record: &mut dyn FnMut(CallRecord)) -> Result<(), SidecarError> {
        self.fronts.close_all();
        let deadline = now_monotonic().plus(DRAIN_TIME_MAX);
        for session in self.fronts.sessions().chain([self.control]).collect::<Vec<_>>() {
            self.runtime.end_session(session);
        }
        while self.fronts.sessions().next().is_some() && now_monotonic() < deadline {
            self.turn(on_record)?;
            self.runtime.wait(Some(Duration::from_millis(20)))?;
        }
        while let Some(record) = self.runtime.last_record() {
            on_record(record);
        }
        Ok(())
    }
}

fn listen(config: &ListenerConfig) -> Result<TcpListener, SidecarError> {
    let address = config.address;
    let wrap = |error| SidecarError::Listen { address, what: "Redis clients", error };
    let listener = TcpListener::bind(address).map_err(wrap)?;
    listener.set_nonblocking(true).map_err(wrap)?;
    Ok(listener)
}

/// A session for what the sidecar wants to know itself.
fn control_options() -> SessionOptions {
    SessionOptions { window_asked: 4, ..SessionOptions::default() }
}

fn as_read(payload: &[u8]) -> Request<'_> {
    Request {
        kind: RequestKind::Read,
        mode: Mode::Covered,
        fixed_reply: false,
        relaxed: false,
        key_hash: scotfree_core::KeyHash(0),
        payload,
    }
}

/// Opens the control session and asks for the description, until it comes or the time is over.
fn learn(
    runtime: &mut ClientRuntime<UdpTransport>,
    config: &ClientSidecarConfig,
) -> Result<(SessionHandle, Told), SidecarError> {
    let deadline = now_monotonic().plus(Nanos(config.start_time_max.as_nanos() as u64));
    loop {
        let left = Duration::from_nanos(deadline.since(now_monotonic()).0);
        let reason = match learn_once(runtime, left) {
            Ok(learned) => return Ok(learned),
            Err(reason) => reason,
        };
        if now_monotonic() >= deadline {
            let seconds = config.start_time_max.as_secs();
            let reason = format!("{reason} (tried for {seconds} s; is `scot sidecar server` running there?)");
            return Err(SidecarError::Peer { server: config.server, reason });
        }
    }
}

fn learn_once(
    runtime: &mut ClientRuntime<UdpTransport>,
    left: Duration,
) -> Result<(SessionHandle, Told), String> {
    let session = runtime.start_session(control_options()).map_err(|error| error.to_string())?;
    runtime.wait_open(session, left).map_err(|error| error.to_string())?;
    let asked_at = now_realtime();
    let request = describe_request();
    let label = CallLabel::new("describe");
    let (_, told) = runtime
        .call(session, as_read(&request.payload), label, left)
        .map_err(|error: CallError| error.to_string())
        .map(|reply| (reply.seq, reply.bytes.map(<[u8]>::to_vec)))?;
    let told = Told::parse(&told.unwrap_or_default(), asked_at)?;
    Ok((session, told))
}

/// A description, and how far the server's clock is ahead of ours.
#[derive(Debug, Clone)]
struct Told {
    description: Arc<Description>,
    ahead_ms: i64,
}

impl Told {
    fn parse(payload: &[u8], asked_at: Nanos) -> Result<Told, String> {
        let (_, reply) = parse_response(payload).map_err(|error| error.to_string())?;
        let text = text_of(reply)
            .and_then(|text| std::str::from_utf8(text).ok())
            .ok_or("its description is no text")?;
        let description = Description::parse(text).map_err(|error| error.to_string())?;
        // The server looked at its clock somewhere between the question and now: take the middle.
        let middle_ms = ((asked_at.0 / 2 + now_realtime().0 / 2) / 1_000_000) as i64;
        let ahead_ms = description.time_ms - middle_ms;
        Ok(Told { description: Arc::new(description), ahead_ms })
    }
}
