//! The client connections of a sidecar: sockets, fronts and the requests between them and the sessions.
//!
//! Invariant: a connection that does not read its replies, or whose session has no credit, is not read
//! either; memory per connection stays bounded.

use super::coverage::Coverage;
use super::ended::{not_sent, outcome_unknown};
use super::input::{InputBudget, LITTLE_BYTES_MAX};
use super::learn::Told;
use super::sessions::{ConnectionKey, Flight, Sessions};
use super::{as_read, ClientSidecarConfig};
use crate::notices::Notices;
use crate::seldom::Seldom;
use crate::tunnel::TunnelStart;
use scotfree_core::Nanos;
use scotfree_io::udp::UdpTransport;
use scotfree_io::{now_realtime, Event, Interest, Poller};
use scotfree_resp::front::{
    ClientFront, EarlyRule, FrontAction, FrontConfig, FrontCounters, FrontRequest, Identity,
};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{CallLabel, ClientEvent, ClientRuntime, SessionHandle, SharedKey};
use scotfree_session::{ClosedReason, Mode, Request, SubmitError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const READ_BYTES: usize = 64 << 10;
/// How many connections one turn accepts.
const ACCEPTS_MAX: usize = 64;
/// Waits for nothing.
const NOBODY: ConnectionKey = ConnectionKey(0);

struct Connection {
    stream: TcpStream,
    front: ClientFront,
    session: SessionHandle,
    /// Requests for which the session has no credit yet.
    waiting: VecDeque<FrontRequest>,
    watched: Option<Interest>,
    /// What it holds of its client's requests, as counted last.
    held: usize,
    /// The client sends nothing more.
    input_ended: bool,
    closing: bool,
    /// What its commands are answered since its session has ended.
    refusal: Option<String>,
    called: Nanos,
}

/// The rules of early answers, which may be changed while the sidecar runs; clones share them.
#[derive(Debug, Clone, Default)]
pub struct EarlyRules(Arc<Mutex<Option<EarlyRule>>>);

impl EarlyRules {
    /// Connections accepted from now on, at every listener, follow `rule`. Those that are open keep theirs.
    pub fn set(&self, rule: EarlyRule) {
        // A thread that panicked left a whole rule.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rule);
    }

    fn take(&self) -> Option<EarlyRule> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// All client connections.
pub(super) struct Fronts {
    pub early_rules: EarlyRules,
    pub coverage: Coverage,
    connections: BTreeMap<ConnectionKey, Connection>,
    sessions: Sessions,
    configs: Vec<Arc<FrontConfig>>,
    told: Told,
    pub description_asked_at: Nanos,
    next_key: u64,
    /// What connections' IDs begin at.
    id_base: u64,
    touched: BTreeSet<ConnectionKey>,
    buffer: Vec<u8>,
    closed: FrontCounters,
    connections_total: u64,
    connections_refused: u64,
    refusals: Seldom,
    last_refusal: String,
    tunnels: Arc<TunnelCounts>,
    tunnels_refused: u64,
    /// Connections that have become tunnels in this turn.
    tunnelled: Vec<ConnectionKey>,
    /// Sessions whose connections are gone, and what is still to be said in them.
    released: Vec<(SessionHandle, Option<FrontRequest>)>,
    input: InputBudget,
    limits: Limits,
    notices: Notices,
    reading: bool,
}

struct Limits {
    connections_max: usize,
    tunnels_max: usize,
    idle_sessions_max: usize,
    tunnel: SocketAddr,
    cluster_key: SharedKey,
}

#[derive(Default)]
struct TunnelCounts {
    open: AtomicUsize,
    stopped: AtomicBool,
}

impl Fronts {
    pub fn new(config: &ClientSidecarConfig, told: Told, coverage: Coverage, first_key: u64) -> Fronts {
        let front = |early| Arc::new(FrontConfig { early, ..config.front.clone() });
        Fronts {
            early_rules: EarlyRules::default(),
            coverage,
            connections: BTreeMap::new(),
            sessions: Sessions::default(),
            configs: config.listeners.iter().map(|listener| front(listener.early.clone())).collect(),
            told,
            description_asked_at: Nanos(0),
            next_key: first_key,
            id_base: id_base(),
            touched: BTreeSet::new(),
            buffer: vec![0; READ_BYTES],
            closed: FrontCounters::default(),
            connections_total: 0,
            connections_refused: 0,
            refusals: Seldom::default(),
            last_refusal: String::new(),
            tunnels: Arc::new(TunnelCounts::default()),
            tunnels_refused: 0,
            tunnelled: Vec::new(),
            released: Vec::new(),
            input: InputBudget::new(config.input_bytes_max),
            limits: Limits {
                connections_max: config.connections_max,
                tunnels_max: config.tunnels_max,
                idle_sessions_max: config.idle_sessions_max,
                tunnel: config.tunnel.unwrap_or(config.server),
                cluster_key: config.cluster_key.clone(),
            },
            notices: config.notices.clone(),
            reading: true,
        }
    }

    /// Takes new connections of a listener.
    pub fn accept(
        &mut self,
        listener: &TcpListener,
        index: usize,
        runtime: &mut ClientRuntime<UdpTransport>,
        poller: &Poller,
    ) {
        self.take_over_rules();
        for _ in 0..ACCEPTS_MAX {
            let Ok((stream, _)) = listener.accept() else { return };
            self.connections_total += 1;
            if let Err(text) = self.add(stream, index, runtime, poller) {
                self.connections_refused += 1;
                self.refusals.happened(1);
                self.last_refusal = text;
            }
        }
    }

    /// How many clients were turned away, if it is time to say so.
    pub fn say_refusals(&mut self, now: Nanos) -> Option<String> {
        let count = self.refusals.due(now)?;
        Some(format!("clients turned away: {count}, the last one with: {}", self.last_refusal))
    }

    fn take_over_rules(&mut self) {
        if let Some(early) = self.early_rules.take() {
            for config in &mut self.configs {
                *config = Arc::new(FrontConfig { early: early.clone(), ..(**config).clone() });
            }
        }
    }

    fn add(
        &mut self,
        mut stream: TcpStream,
        index: usize,
        runtime: &mut ClientRuntime<UdpTransport>,
        poller: &Poller,
    ) -> Result<(), String> {
        let refuse = |stream: &mut TcpStream, text: &str| {
            // The client may not read it; it is told nevertheless.
            let _ = stream.write_all(format!("-ERR {text}\r\n").as_bytes());
            text.to_owned()
        };
        if self.connections.len() >= self.limits.connections_max {
            return Err(refuse(&mut stream, "max number of clients reached"));
        }
        stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
            .map_err(|error| error.to_string())?;
        let key = ConnectionKey(self.next_key);
        let (session, number) = if let Some(found) = self.sessions.take_idle(key) {
            found
        } else {
            let started = runtime.start_session(self.coverage.options());
            let session = started.map_err(|error| refuse(&mut stream, &format!("scotfree: {error}")))?;
            self.sessions.insert(session, key);
            (session, 1)
        };
        self.next_key += 1;
        poller.add(stream.as_raw_fd(), key.0, Interest::Read).map_err(|error| error.to_string())?;
        let address = |address: std::io::Result<SocketAddr>| {
            address.map_or_else(|_| String::new(), |address| address.to_string())
        };
        let mut identity = Identity::new(number, self.id_base + self.connections_total);
        identity.address = address(stream.peer_addr());
        identity.listener = address(stream.local_addr());
        let front = ClientFront::new(self.configs[index].clone(), self.told.description.clone(), identity);
        let connection = Connection {
            stream,
            front,
            session,
            waiting: VecDeque::new(),
            watched: Some(Interest::Read),
            held: 0,
            input_ended: false,
            closing: false,
            refusal: None,
            called: Nanos(0),
        };
        self.connections.insert(key, connection);
        Ok(())
    }

    /// A connection's socket is ready.
    pub fn on_ready(&mut self, event: Event, runtime: &mut ClientRuntime<UdpTransport>) {
        let key = ConnectionKey(event.key);
        self.touched.insert(key);
        if event.readable || event.error {
            self.read(key, runtime);
        }
    }

    fn read(&mut self, key: ConnectionKey, runtime: &mut ClientRuntime<UdpTransport>) {
        let now_ms = self.server_time_ms();
        let mut actions = Vec::new();
        let Some(connection) = self.connections.get_mut(&key) else { return };
        if !self.input.admits(connection.held) {
            // It was ready before the others took the room; it is watched no more from the end of this turn.
            return;
        }
        connection.called = now_realtime();
        match connection.stream.read(&mut self.buffer) {
            Ok(0) => connection.input_ended = true,
            Ok(count) => connection.front.on_bytes(now_ms, &self.buffer[..count], &mut actions),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return self.drop_connection(key),
        }
        self.act(key, actions);
        self.submit_one(key, runtime);
        self.count_input(key);
    }

    /// Something happened in a session.
    pub fn on_event(&mut self, event: ClientEvent<'_>, control: SessionHandle) {
        let now_ms = self.server_time_ms();
        match event {
            ClientEvent::Opened { session, .. } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.open = true;
                    self.touched.extend(session.owner);
                }
            }
            ClientEvent::Completed { session, reply } if session == control => {
                if let Ok(told) = Told::parse(reply.bytes.unwrap_or_default(), self.description_asked_at) {
                    self.learn(told);
                }
            }
            ClientEvent::Completed { session, reply } => {
                let flight = self.sessions.get_mut(session).and_then(|session| session.flights.pop_front());
                let Some(flight) = flight else { return };
                let mut actions = Vec::new();
                if let Some(connection) = self.connections.get_mut(&flight.connection) {
                    let front = &mut connection.front;
                    match (reply.bytes, flight.early) {
                        (Some(bytes), _) => front.on_response(now_ms, flight.id, bytes, &mut actions),
                        (None, Some(early)) => front.on_early(now_ms, flight.id, early, &mut actions),
                        (None, None) => {
                            let text = "the reply is gone; whether the command ran can be seen in the data";
                            front.on_failure(now_ms, flight.id, text, &mut actions);
                        }
                    }
                }
                self.act(flight.connection, actions);
            }
            ClientEvent::Closed { session, reason, .. } => {
                self.on_session_closed(session, reason);
            }
        }
    }

    /// The server is another one than before. Sessions in use go on as they began.
    fn learn(&mut self, told: Told) {
        if self.coverage.learn(told.description.devices) {
            self.sessions.outdate();
            let rules = self.configs.iter().map(|config| &config.early);
            self.notices.say(&format!("for connections from now on: {}", self.coverage.text(rules)));
        }
        for connection in self.connections.values_mut() {
            connection.front.allow_early(told.description.early_allowed);
        }
        self.told = told;
    }

    /// Whatever was on its way in the session has an unknown outcome.
    fn on_session_closed(&mut self, session: SessionHandle, reason: ClosedReason) {
        let Some(session) = self.sessions.remove(session) else { return };
        let now_ms = self.server_time_ms();
        let text = outcome_unknown(reason);
        for flight in session.flights {
            let mut actions = Vec::new();
            if let Some(connection) = self.connections.get_mut(&flight.connection) {
                connection.front.on_failure(now_ms, flight.id, &text, &mut actions);
            }
            self.act(flight.connection, actions);
        }
        let mut actions = Vec::new();
        if let Some(connection) = session.owner.and_then(|key| self.connections.get_mut(&key)) {
            let error = not_sent(reason);
            // A client that was never let in and has not asked yet is told when it asks.
            connection.closing = session.open || !connection.waiting.is_empty();
            connection.refusal = Some(error.clone());
            for request in std::mem::take(&mut connection.waiting) {
                connection.front.on_refusal(now_ms, request.id, &error, &mut actions);
            }
        }
        self.touched.extend(session.owner);
    }

    fn act(&mut self, key: ConnectionKey, actions: Vec<FrontAction>) {
        self.touched.insert(key);
        for action in actions {
            let Some(connection) = self.connections.get_mut(&key) else { return };
            match action {
                FrontAction::Request(request) => connection.waiting.push_back(request),
                FrontAction::Close => connection.closing = true,
                FrontAction::Tunnel { setup, setup_replies, bytes } => {
                    self.start_tunnel(key, setup, setup_replies, bytes);
                }
            }
        }
    }

    /// Sends the requests for which there is credit.
    pub fn submit(&mut self, runtime: &mut ClientRuntime<UdpTransport>) {
        let keys: Vec<ConnectionKey> = self.touched.iter().copied().collect();
        for key in keys {
            self.submit_one(key, runtime);
        }
        self.release(runtime);
    }

    fn submit_one(&mut self, key: ConnectionKey, runtime: &mut ClientRuntime<UdpTransport>) {
        let now_ms = self.server_time_ms();
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let mut failed = Vec::new();
        while let Some(request) = connection.waiting.front() {
            let label = CallLabel { called: connection.called, ..CallLabel::new(request.method) };
            let asked = Request {
                kind: request.kind,
                mode: if request.early.is_some() { Mode::Early } else { Mode::Covered },
                fixed_reply: request.early.is_some(),
                relaxed: false,
                traced: false,
                key_hash: request.key_hash,
                payload: &request.payload,
            };
            match runtime.submit(connection.session, asked, label) {
                Ok(_) => {
                    let flight = Flight { connection: key, id: request.id, early: request.early };
                    if let Some(session) = self.sessions.get_mut(connection.session) {
                        session.flights.push_back(flight);
                    }
                }
                Err(SubmitError::NotOpen | SubmitError::WindowFull) => break,
                Err(SubmitError::TooLarge) => {
                    failed.push((request.id, "ERR scotfree: the request is too large".to_owned()));
                }
                Err(SubmitError::Closed) => {
                    let ended = || "ERR scotfree: the session with the server has ended".to_owned();
                    failed.push((request.id, connection.refusal.clone().unwrap_or_else(ended)));
                }
            }
            connection.waiting.pop_front();
        }
        let mut actions = Vec::new();
        for (id, error) in failed {
            connection.front.on_refusal(now_ms, id, &error, &mut actions);
        }
        if !actions.is_empty() {
            self.act(key, actions);
        }
    }

    /// Sends what the clients are to be told, and says what to watch. True if that made room for commands
    /// which had arrived: their requests are to be submitted.
    pub fn send(&mut self, poller: &Poller) -> bool {
        self.leave_tunnelled(poller);
        let mut resumed = false;
        for key in std::mem::take(&mut self.touched) {
            self.count_input(key);
            let Some(connection) = self.connections.get_mut(&key) else { continue };
            let was_full = !connection.front.wants_input();
            if !write(connection) {
                self.drop_connection(key);
                continue;
            }
            if was_full && connection.front.wants_input() {
                self.resume(key);
                resumed = true;
                continue;
            }
            if is_over(connection) || !self.reading && is_idle(connection) {
                self.drop_connection(key);
                continue;
            }
            let admits = self.input.admits(connection.held);
            if !admits {
                self.input.pause(key);
            }
            let reads = self.reading && admits && !connection.input_ended && !connection.closing;
            // Credit comes back with stability, which completes nothing: who waits for it asks every turn.
            if !connection.waiting.is_empty() {
                self.touched.insert(key);
            }
            if watch(poller, key, connection, reads).is_err() {
                self.drop_connection(key);
            }
        }
        resumed | self.make_room()
    }

    fn count_input(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let held = input_bytes(connection);
        self.input.change(std::mem::replace(&mut connection.held, held), held);
    }

    /// Lets those go on that waited for room. If none can come by itself, who holds the most is refused. True
    /// if somebody was touched.
    fn make_room(&mut self) -> bool {
        let refused = self.input.is_short() && self.refuse_largest();
        let resumed = self.input.take_resumed();
        let any = !resumed.is_empty();
        self.touched.extend(resumed);
        refused || any
    }

    /// False if one of those that hold much waits for the server, and will hold less.
    fn refuse_largest(&mut self) -> bool {
        let large = self.connections.iter().filter(|(_, connection)| connection.held > LITTLE_BYTES_MAX);
        let mut largest = None;
        for (key, connection) in large {
            if !is_up_to_client(connection) {
                return false;
            }
            largest = largest.max(Some((connection.held, *key)));
        }
        let Some((held, key)) = largest else { return false };
        let text = self.input.refuse(held);
        let now_ms = self.server_time_ms();
        let mut actions = Vec::new();
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.front.refuse(now_ms, &text, &mut actions);
        }
        self.act(key, actions);
        self.count_input(key);
        true
    }

    /// Commands that had arrived when there was no room for their replies go on: nothing else wakes them.
    fn resume(&mut self, key: ConnectionKey) {
        let now_ms = self.server_time_ms();
        let mut actions = Vec::new();
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.front.on_bytes(now_ms, &[], &mut actions);
        }
        self.act(key, actions);
    }

    /// The connection is gone; what it has asked for is executed nevertheless.
    fn drop_connection(&mut self, key: ConnectionKey) {
        let Some(mut connection) = self.connections.remove(&key) else { return };
        self.input.forget(key, connection.held);
        self.closed.add(connection.front.counters());
        self.released.push((connection.session, connection.front.farewell()));
    }

    /// Gives the sessions of gone connections to the next ones.
    fn release(&mut self, runtime: &mut ClientRuntime<UdpTransport>) {
        for session in self.sessions.take_outdated() {
            runtime.end_session(session);
        }
        for (handle, farewell) in std::mem::take(&mut self.released) {
            let Some(session) = self.sessions.get_mut(handle) else { continue };
            if let Some(request) = farewell {
                let taken = runtime.submit(handle, as_read(&request.payload), CallLabel::new(request.method));
                match taken {
                    Ok(_) => session.flights.push_back(Flight { connection: NOBODY, id: 0, early: None }),
                    Err(SubmitError::WindowFull) => {
                        self.released.push((handle, Some(request)));
                        continue;
                    }
                    // It has nothing to forget.
                    Err(SubmitError::NotOpen | SubmitError::TooLarge | SubmitError::Closed) => {}
                }
            }
            if !self.sessions.give_back(handle, self.limits.idle_sessions_max) {
                runtime.end_session(handle);
            }
        }
    }

    fn start_tunnel(&mut self, key: ConnectionKey, setup: Vec<u8>, setup_replies: usize, bytes: Vec<u8>) {
        // Relaxed: only this thread adds, so the limit holds.
        let open = self.tunnels.open.load(Ordering::Relaxed);
        let Some(connection) = self.connections.get_mut(&key) else { return };
        if open >= self.limits.tunnels_max {
            self.tunnels_refused += 1;
            let text =
                format!("-ERR scotfree: {open} connections are tunnels already, which is tunnels_max\r\n");
            let said = [connection.front.output(), text.as_bytes()].concat();
            let _ = connection.stream.write(&said);
            return self.drop_connection(key);
        }
        let Ok(client) = connection.stream.try_clone() else { return self.drop_connection(key) };
        let (server, cluster_key) = (self.limits.tunnel, self.limits.cluster_key.get());
        let replies = connection.front.output().to_vec();
        let start = TunnelStart { client, server, cluster_key, setup, setup_replies, bytes, replies };
        let (counts, notices) = (Arc::clone(&self.tunnels), self.notices.clone());
        counts.open.fetch_add(1, Ordering::Relaxed);
        let spawned = std::thread::Builder::new().name("scotfree-tunnel".to_owned()).spawn(move || {
            if let Err(error) = start.run(&counts.stopped) {
                notices.say(&format!("a tunnel ended: {error}"));
            }
            counts.open.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.tunnels.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.tunnelled.push(key);
    }

    /// The poller must not report a connection that a tunnel's thread has taken over.
    fn leave_tunnelled(&mut self, poller: &Poller) {
        for key in std::mem::take(&mut self.tunnelled) {
            if let Some(connection) =
                self.connections.get(&key).filter(|connection| connection.watched.is_some())
            {
                let _ = poller.remove(connection.stream.as_raw_fd());
            }
            self.drop_connection(key);
        }
    }

    /// No connection is read any more, and those that wait for nothing are closed.
    pub fn stop_reading(&mut self) {
        self.reading = false;
        self.touched.extend(self.connections.keys().copied());
    }

    /// Whether nothing is on its way.
    pub fn is_drained(&self) -> bool {
        self.sessions.in_flight() == 0 && self.connections.is_empty()
    }

    /// How many requests are on their way, or wait for credit.
    pub fn outstanding(&self) -> u64 {
        let waiting: usize = self.connections.values().map(|connection| connection.waiting.len()).sum();
        (self.sessions.in_flight() + waiting) as u64
    }

    /// Closes all connections and tunnels.
    pub fn close_all(&mut self) {
        // Release: whoever sees the flag sees everything before it.
        self.tunnels.stopped.store(true, Ordering::Release);
        for key in self.connections.keys().copied().collect::<Vec<_>>() {
            self.drop_connection(key);
        }
        self.released.clear();
    }

    /// The sessions that live.
    pub fn sessions(&self) -> impl Iterator<Item = SessionHandle> + '_ {
        self.sessions.handles()
    }

    /// What all connections have counted.
    pub fn counters(&self) -> FrontCounters {
        let mut all = self.closed;
        for connection in self.connections.values() {
            all.add(connection.front.counters());
        }
        all
    }

    pub fn write_metrics(&self, text: &mut MetricsText) {
        let counters = self.counters();
        text.gauge("scotfree_front_connections", "Client connections open", self.connections.len());
        text.gauge("scotfree_front_sessions", "Sessions for clients", self.sessions.len());
        let help = "Bytes held of clients' requests, complete or not";
        text.gauge("scotfree_front_input_bytes", help, self.input.held());
        // Relaxed: a gauge.
        text.gauge("scotfree_tunnels_open", "Tunnels open now", self.tunnels.open.load(Ordering::Relaxed));
        for (name, help, value) in [
            ("connections_total", "Client connections accepted", self.connections_total),
            ("connections_refused_total", "Client connections turned away", self.connections_refused),
            ("commands_total", "Commands read", counters.commands),
            ("updates_total", "Commands sent as updates", counters.updates),
            ("early_total", "Of these, to be answered early", counters.early),
            ("reads_total", "Commands sent as reads", counters.reads),
            ("bypasses_total", "Commands sent as bypass requests", counters.bypasses),
            ("tunnels_total", "Connections that became tunnels", counters.tunnels),
            ("tunnels_refused_total", "Tunnels refused at their limit", self.tunnels_refused),
            ("large_total", "Requests sent in parts", counters.large),
            ("over_limit_total", "Requests refused at a limit", counters.over_limit),
            (
                "input_refused_total",
                "Connections refused since all together held too much",
                self.input.refused(),
            ),
            ("not_durable_total", "Replies that came with durability none", counters.not_durable),
        ] {
            text.counter(&format!("scotfree_front_{name}"), help, value);
        }
    }

    fn server_time_ms(&self) -> i64 {
        (now_realtime().0 / 1_000_000) as i64 + self.told.ahead_ms
    }
}

/// IDs begin where neither the server's nor those of other sidecars are likely to be, and stay below 2^53,
/// beyond which some clients' numbers are not exact.
fn id_base() -> u64 {
    let random = getrandom::u32().unwrap_or_else(|_| now_realtime().0 as u32);
    (1 << 52) + (u64::from(random >> 12) << 32)
}

/// Sends what it takes; false if the connection is broken.
fn write(connection: &mut Connection) -> bool {
    while !connection.front.output().is_empty() {
        match connection.stream.write(connection.front.output()) {
            Ok(count) => connection.front.sent(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// Whether the connection has nothing more to do.
fn is_over(connection: &Connection) -> bool {
    let said_all = connection.front.output().is_empty();
    said_all && connection.closing || connection.input_ended && is_idle(connection)
}

/// What the connection holds of its client's requests.
fn input_bytes(connection: &Connection) -> usize {
    let waiting = connection.waiting.iter().map(|request| request.payload.len()).sum::<usize>();
    connection.front.input_bytes() + waiting
}

/// Whether nothing but its client can make the connection hold less.
fn is_up_to_client(connection: &Connection) -> bool {
    connection.waiting.is_empty() && connection.front.pending_count() == 0
}

/// Whether every command is answered and every answer sent.
fn is_idle(connection: &Connection) -> bool {
    is_up_to_client(connection) && connection.front.output().is_empty()
}

fn watch(
    poller: &Poller,
    key: ConnectionKey,
    connection: &mut Connection,
    reads: bool,
) -> std::io::Result<()> {
    let reads = reads && connection.front.wants_input() && connection.waiting.is_empty();
    let wanted = match (reads, !connection.front.output().is_empty()) {
        (true, false) => Some(Interest::Read),
        (false, true) => Some(Interest::Write),
        (true, true) => Some(Interest::ReadWrite),
        (false, false) => None,
    };
    if wanted == connection.watched {
        return Ok(());
    }
    let fd = connection.stream.as_raw_fd();
    match (connection.watched, wanted) {
        (None, Some(interest)) => poller.add(fd, key.0, interest)?,
        (Some(_), Some(interest)) => poller.modify(fd, key.0, interest)?,
        (_, None) => poller.remove(fd)?,
    }
    connection.watched = wanted;
    Ok(())
}
