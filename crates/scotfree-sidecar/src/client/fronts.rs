//! The client connections of a sidecar without their sockets: their fronts, and the requests between these and
//! the sessions of an [`Upstream`].
//!
//! Invariant: a connection that does not read its replies, or whose session has no credit, is not read
//! either; memory per connection stays bounded.

#[cfg(test)]
mod tests;

use super::coverage::Coverage;
use super::early_rules::EarlyRules;
use super::ended::{not_sent, outcome_unknown};
use super::input::{InputBudget, LITTLE_BYTES_MAX};
use super::learn::Told;
use super::sessions::{ConnectionKey, Flight, Sessions};
use super::{as_read, ClientSidecarConfig};
use crate::notices::Notices;
use scotfree_core::Nanos;
use scotfree_resp::front::{ClientFront, FrontAction, FrontConfig, FrontCounters, FrontRequest, Identity};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{CallLabel, ClientEvent, SessionHandle, StartError, Upstream};
use scotfree_session::{ClosedReason, Mode, Request, SubmitError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Waits for nothing.
const NOBODY: ConnectionKey = ConnectionKey(0);

/// One client's connection.
struct Connection {
    front: ClientFront,
    session: SessionHandle,
    /// Requests for which the session has no credit yet.
    waiting: VecDeque<FrontRequest>,
    /// What it holds of its client's requests, as counted last.
    held: usize,
    /// The client sends nothing more.
    input_ended: bool,
    closing: bool,
    /// What its commands are answered since its session has ended.
    refusal: Option<String>,
    called: Nanos,
}

/// What is known of a new connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Peer {
    /// Which listener it came to.
    pub listener: usize,
    /// What it is told as its ID.
    pub id: u64,
    /// Its address.
    pub address: String,
    /// The address it has connected to.
    pub local: String,
}

/// A connection that is to become a tunnel.
#[derive(Debug)]
pub(super) struct TunnelAsked {
    pub key: ConnectionKey,
    /// What brings a new connection to the server into the state of this one.
    pub setup: Vec<u8>,
    /// How many of the replies to that are dropped.
    pub setup_replies: usize,
    /// The client's bytes that have arrived already.
    pub bytes: Vec<u8>,
}

/// What a connection's socket is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing is to be said or heard any more.
    Close,
    /// To be called again when it can be read, or written.
    Wait { to_read: bool, to_write: bool },
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
    touched: BTreeSet<ConnectionKey>,
    closed: FrontCounters,
    tunnels_asked: Vec<TunnelAsked>,
    /// Sessions whose connections are gone, and what is still to be said in them.
    released: Vec<(SessionHandle, Option<FrontRequest>)>,
    input: InputBudget,
    idle_sessions_max: usize,
    notices: Notices,
    reading: bool,
}

impl Fronts {
    pub fn new(config: &ClientSidecarConfig, told: Told, coverage: Coverage) -> Fronts {
        let front = |early| Arc::new(FrontConfig { early, ..config.front.clone() });
        Fronts {
            early_rules: EarlyRules::default(),
            coverage,
            connections: BTreeMap::new(),
            sessions: Sessions::default(),
            configs: config.listeners.iter().map(|listener| front(listener.early.clone())).collect(),
            told,
            description_asked_at: Nanos(0),
            touched: BTreeSet::new(),
            closed: FrontCounters::default(),
            tunnels_asked: Vec::new(),
            released: Vec::new(),
            input: InputBudget::new(config.input_bytes_max),
            idle_sessions_max: config.idle_sessions_max,
            notices: config.notices.clone(),
            reading: true,
        }
    }

    // ---- connections come, say something and go

    /// From now on new connections follow the rules that were set last.
    pub fn take_over_rules(&mut self) {
        if let Some(early) = self.early_rules.take() {
            for config in &mut self.configs {
                *config = Arc::new(FrontConfig { early: early.clone(), ..(**config).clone() });
            }
        }
    }

    /// A client has connected.
    pub fn open(
        &mut self,
        key: ConnectionKey,
        peer: Peer,
        upstream: &mut impl Upstream,
    ) -> Result<(), StartError> {
        let (session, number) = if let Some(found) = self.sessions.take_idle(key) {
            found
        } else {
            let session = upstream.start_session(self.coverage.options())?;
            self.sessions.insert(session, key);
            (session, 1)
        };
        let mut identity = Identity::new(number, peer.id);
        identity.address = peer.address;
        identity.listener = peer.local;
        let config = self.configs[peer.listener].clone();
        let connection = Connection {
            front: ClientFront::new(config, self.told.description.clone(), identity),
            session,
            waiting: VecDeque::new(),
            held: 0,
            input_ended: false,
            closing: false,
            refusal: None,
            called: Nanos(0),
        };
        self.connections.insert(key, connection);
        Ok(())
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether a connection may be read now: others may have taken the room since it was called ready.
    pub fn admits(&self, key: ConnectionKey) -> bool {
        self.connections.get(&key).is_some_and(|connection| self.input.admits(connection.held))
    }

    /// A client has sent bytes; `called` is when its call began, in real time.
    pub fn on_bytes(
        &mut self,
        called: Nanos,
        key: ConnectionKey,
        bytes: &[u8],
        upstream: &mut impl Upstream,
    ) {
        let now_ms = self.server_time_ms(called);
        let mut actions = Vec::new();
        let Some(connection) = self.connections.get_mut(&key) else { return };
        connection.called = called;
        connection.front.on_bytes(now_ms, bytes, &mut actions);
        self.act(key, actions);
        self.submit_one(called, key, upstream);
        self.count_input(key);
    }

    /// A client sends nothing more; it may still read.
    pub fn on_input_end(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.input_ended = true;
            self.touched.insert(key);
        }
    }

    /// The connection is gone; what it has asked for is executed nevertheless.
    pub fn close(&mut self, key: ConnectionKey) {
        let Some(mut connection) = self.connections.remove(&key) else { return };
        self.input.forget(key, connection.held);
        self.closed.add(connection.front.counters());
        self.released.push((connection.session, connection.front.farewell()));
    }

    // ---- sessions

    /// Takes what has happened in the sessions; `now` in real time.
    pub fn hear(&mut self, now: Nanos, control: SessionHandle, upstream: &mut impl Upstream) {
        while let Some(event) = upstream.next_event() {
            self.on_event(now, event, control);
        }
    }

    fn on_event(&mut self, now: Nanos, event: ClientEvent<'_>, control: SessionHandle) {
        let now_ms = self.server_time_ms(now);
        match event {
            ClientEvent::Opened { session, .. } => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.open = true;
                    self.touched.extend(session.owner);
                }
            }
            ClientEvent::Completed { session, reply } if session == control => {
                let asked_at = self.description_asked_at;
                if let Ok(told) = Told::parse(reply.bytes.unwrap_or_default(), asked_at, now) {
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
                self.on_session_closed(now_ms, session, reason);
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
    fn on_session_closed(&mut self, now_ms: i64, session: SessionHandle, reason: ClosedReason) {
        let Some(session) = self.sessions.remove(session) else { return };
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
        let Some(connection) = self.connections.get_mut(&key) else { return };
        for action in actions {
            match action {
                FrontAction::Request(request) => connection.waiting.push_back(request),
                FrontAction::Close => connection.closing = true,
                FrontAction::Tunnel { setup, setup_replies, bytes } => {
                    self.tunnels_asked.push(TunnelAsked { key, setup, setup_replies, bytes });
                }
            }
        }
    }

    /// Sends the requests for which there is credit; `now` in real time.
    pub fn submit(&mut self, now: Nanos, upstream: &mut impl Upstream) {
        let keys: Vec<ConnectionKey> = self.touched.iter().copied().collect();
        for key in keys {
            self.submit_one(now, key, upstream);
        }
        self.release(upstream);
    }

    fn submit_one(&mut self, now: Nanos, key: ConnectionKey, upstream: &mut impl Upstream) {
        let now_ms = self.server_time_ms(now);
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
            match upstream.submit(connection.session, asked, label) {
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

    /// Gives the sessions of gone connections to the next ones.
    fn release(&mut self, upstream: &mut impl Upstream) {
        for session in self.sessions.take_outdated() {
            upstream.end_session(session);
        }
        for (handle, farewell) in std::mem::take(&mut self.released) {
            let Some(session) = self.sessions.get_mut(handle) else { continue };
            if let Some(request) = farewell {
                let label = CallLabel::new(request.method);
                match upstream.submit(handle, as_read(&request.payload), label) {
                    Ok(_) => session.flights.push_back(Flight { connection: NOBODY, id: 0, early: None }),
                    Err(SubmitError::WindowFull) => {
                        self.released.push((handle, Some(request)));
                        continue;
                    }
                    // It has nothing to forget.
                    Err(SubmitError::NotOpen | SubmitError::TooLarge | SubmitError::Closed) => {}
                }
            }
            if !self.sessions.give_back(handle, self.idle_sessions_max) {
                upstream.end_session(handle);
            }
        }
    }

    // ---- what the sockets are to do

    /// A connection's socket is ready.
    pub fn touch(&mut self, key: ConnectionKey) {
        self.touched.insert(key);
    }

    /// The connections to which something has happened.
    pub fn take_touched(&mut self) -> BTreeSet<ConnectionKey> {
        std::mem::take(&mut self.touched)
    }

    /// The connections that are to become tunnels; nothing is pending in them.
    pub fn take_tunnels(&mut self) -> Vec<TunnelAsked> {
        std::mem::take(&mut self.tunnels_asked)
    }

    /// The front of a connection, for the socket that it writes to.
    pub fn front_mut(&mut self, key: ConnectionKey) -> Option<&mut ClientFront> {
        self.connections.get_mut(&key).map(|connection| &mut connection.front)
    }

    /// What the socket of a connection is to wait for.
    pub fn wish(&mut self, key: ConnectionKey) -> Wish {
        let Some(connection) = self.connections.get(&key) else { return Wish::Close };
        if is_over(connection) || !self.reading && is_idle(connection) {
            return Wish::Close;
        }
        let admits = self.input.admits(connection.held);
        if !admits {
            self.input.pause(key);
        }
        let is_heard = self.reading && admits && !connection.input_ended && !connection.closing;
        // Credit comes back with stability, which completes nothing: who waits for it asks every turn.
        if !connection.waiting.is_empty() {
            self.touched.insert(key);
        }
        let to_read = is_heard && connection.front.wants_input() && connection.waiting.is_empty();
        Wish::Wait { to_read, to_write: !connection.front.output().is_empty() }
    }

    /// Counts what a connection holds of its client's requests.
    pub fn count_input(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let held = input_bytes(connection);
        self.input.change(std::mem::replace(&mut connection.held, held), held);
    }

    /// Lets those go on that waited for room. If none can come by itself, who holds the most is refused. True
    /// if somebody was touched.
    pub fn make_room(&mut self, now: Nanos) -> bool {
        let refused = self.input.is_short() && self.refuse_largest(now);
        let resumed = self.input.take_resumed();
        let any = !resumed.is_empty();
        self.touched.extend(resumed);
        refused || any
    }

    /// False if one of those that hold much waits for the server, and will hold less.
    fn refuse_largest(&mut self, now: Nanos) -> bool {
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
        let now_ms = self.server_time_ms(now);
        let mut actions = Vec::new();
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.front.refuse(now_ms, &text, &mut actions);
        }
        self.act(key, actions);
        self.count_input(key);
        true
    }

    /// Commands that had arrived when there was no room for their replies go on: nothing else wakes them.
    pub fn resume(&mut self, now: Nanos, key: ConnectionKey) {
        let now_ms = self.server_time_ms(now);
        let mut actions = Vec::new();
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.front.on_bytes(now_ms, &[], &mut actions);
        }
        self.act(key, actions);
    }

    // ---- the end, and what an operator sees

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

    /// Closes all connections; nothing more is said in their sessions.
    pub fn close_all(&mut self) {
        for key in self.connections.keys().copied().collect::<Vec<_>>() {
            self.close(key);
        }
        self.released.clear();
        self.tunnels_asked.clear();
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
        for (name, help, value) in [
            ("commands_total", "Commands read", counters.commands),
            ("updates_total", "Commands sent as updates", counters.updates),
            ("early_total", "Of these, to be answered early", counters.early),
            ("reads_total", "Commands sent as reads", counters.reads),
            ("bypasses_total", "Commands sent as bypass requests", counters.bypasses),
            ("tunnels_total", "Connections that became tunnels", counters.tunnels),
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

    fn server_time_ms(&self, now: Nanos) -> i64 {
        (now.0 / 1_000_000) as i64 + self.told.ahead_ms
    }
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
