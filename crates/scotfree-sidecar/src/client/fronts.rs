//! The client connections of a sidecar without their sockets: their fronts, and the requests between these and
//! the sessions of an [`Upstream`].
//!
//! Invariant: a connection that does not read its replies, or whose session has no credit, is not read
//! either; memory per connection stays bounded.

mod durations;
mod large;
mod packing;
#[cfg(test)]
mod tests;
mod waiting;

use super::coverage::Coverage;
use super::early_rules::EarlyRules;
use super::ended::{not_sent, outcome_unknown};
use super::input::{InputBudget, LITTLE_BYTES_MAX};
use super::learn::Told;
use super::sessions::{Asker, ConnectionKey, Flight, Sessions};
use super::{ClientSidecarConfig, Pacing};
use crate::notices::Notices;
use durations::Durations;
pub(super) use large::Counted;
use large::{LargeReplies, Line};
use scotfree_core::Nanos;
use scotfree_resp::front::clients::{Facts, Outcome, Question};
use scotfree_resp::front::{
    ClientFront, EarlyRule, FrontAction, FrontConfig, FrontCounters, FrontRequest, Identity, PassedBy,
};
use scotfree_resp::payload::pack::{unpack, PackBuilder};
use scotfree_resp::payload::{parse_response, ResponseFlags};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{ClientEvent, SessionHandle, SharedKey, StartError, Upstream};
use scotfree_session::{ClosedReason, RequestKind};
use scotfree_wire::KeyEpoch;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
pub(super) use waiting::Waiting;
use waiting::{Waited, WaitingNotes};

/// With how many bytes at least a request that may be answered at length is taken to be answered, once one was. Before
/// that nothing is known, so few are asked.
const REPLY_BYTES_ASSUMED: usize = 64 << 10;
const REPLY_BYTES_UNKNOWN: usize = REPLIES_BYTES_MAX / 2;

/// How many bytes of replies a connection may be on the way to at once, as far as can be told.
const REPLIES_BYTES_MAX: usize = 4 << 20;

/// How many reads of a connection may be under way however small their replies are: the next ones may be large.
const READS_AT_ONCE_MAX: usize = 128;

/// How few bytes a request that may be answered at length is taken to be answered with. By that as many of them may be
/// under way as a front lets wait: writes and scripts wait for storage, so fewer would be slower.
const REPLY_BYTES_LEAST: usize = 4 << 10;

/// Waits for nothing.
const NOBODY: ConnectionKey = ConnectionKey(0);

/// One client's connection.
struct Connection {
    front: ClientFront,
    session: SessionHandle,
    /// How many of its requests are on their way.
    under_way: usize,
    /// How many of them may be answered at length.
    lengthy: usize,
    /// How many bytes such are answered with, of late.
    reply_bytes_usual: usize,
    /// One was answered.
    was_answered: bool,
    /// How much has come of a large reply that is being fetched.
    fetched_bytes: usize,
    /// What it was counted for last.
    counted: Counted,
    /// Requests for which the session has no credit yet.
    waiting: VecDeque<FrontRequest>,
    /// What it holds of its client's requests, as counted last.
    held: usize,
    /// How many of its scripts are under way, as counted last.
    scripts: usize,
    /// What it may have changed past the order, as counted last.
    passed_by: PassedBy,
    /// What it waits for that may change data past the order, as noted last.
    waits: Waited,
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

/// What a connection's tunnel is to do.
#[derive(Debug)]
pub(super) enum TunnelAsked {
    /// Begin, or go on after a rest.
    Begin(TunnelBegun),
    /// Send more.
    Pass(ConnectionKey, Vec<u8>),
    /// Nothing for now.
    Rest(ConnectionKey),
    /// End.
    End(ConnectionKey),
}

/// A connection that is to become a tunnel.
#[derive(Debug)]
pub(super) struct TunnelBegun {
    pub key: ConnectionKey,
    /// What brings a new connection to the server into the state of this one.
    pub setup: Vec<u8>,
    /// How many of the replies to that are dropped.
    pub setup_replies: usize,
    /// The client's bytes that have arrived already, or its first command.
    pub bytes: Vec<u8>,
    /// Whether the tunnel takes the client's socket.
    pub is_whole: bool,
}

/// A question about the clients.
pub(super) struct ClientsAsked {
    pub key: ConnectionKey,
    /// The front's name for the command.
    pub id: u64,
    pub question: Question,
    /// The server's own list.
    pub list: Vec<u8>,
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
    /// That writes are refused is said here: nobody else in this process does.
    pub says_writes: bool,
    pub coverage: Coverage,
    connections: BTreeMap<ConnectionKey, Connection>,
    sessions: Sessions,
    key: SharedKey,
    key_epoch: KeyEpoch,
    configs: Vec<Arc<FrontConfig>>,
    told: Told,
    pub description_asked_at: Nanos,
    touched: BTreeSet<ConnectionKey>,
    closed: FrontCounters,
    tunnels_asked: VecDeque<TunnelAsked>,
    questions: Vec<ClientsAsked>,
    /// What is still to be said of connections that are gone, and in which sessions.
    released: Vec<(SessionHandle, FrontRequest)>,
    input: InputBudget,
    large: LargeReplies,
    pacing: Pacing,
    pack: PackBuilder,
    packs: u64,
    packed: u64,
    /// Connections that have something to send and no session any more.
    orphans: BTreeSet<ConnectionKey>,
    notices: Notices,
    reading: bool,
    /// What the server said last of early answers, to whichever connection.
    early_allowed: bool,
    /// How many scripts are under way.
    scripts: usize,
    /// What connections may have changed past the order, and of how much of it those that are gone had no answer.
    passed_by: PassedBy,
    passed_by_orphans: u64,
    waiting: WaitingNotes,
    durations: Durations,
}

impl Fronts {
    pub fn new(config: &ClientSidecarConfig, told: Told, coverage: Coverage) -> Fronts {
        let told_early = told.description.early_allowed;
        let front = |early| Arc::new(FrontConfig { early, ..config.front.clone() });
        Fronts {
            early_rules: EarlyRules::default(),
            says_writes: true,
            coverage,
            connections: BTreeMap::new(),
            sessions: Sessions::new(
                config.sessions_max,
                config.connections_per_session,
                config.idle_sessions_max,
            ),
            key_epoch: config.cluster_key.get().newest(),
            key: config.cluster_key.clone(),
            configs: config.listeners.iter().map(|listener| front(listener.early.clone())).collect(),
            told,
            description_asked_at: Nanos(0),
            touched: BTreeSet::new(),
            closed: FrontCounters::default(),
            tunnels_asked: VecDeque::new(),
            questions: Vec::new(),
            released: Vec::new(),
            input: InputBudget::new(config.input_bytes_max),
            large: LargeReplies::default(),
            pacing: config.pacing,
            pack: PackBuilder::default(),
            packs: 0,
            packed: 0,
            orphans: BTreeSet::new(),
            notices: config.notices.clone(),
            reading: true,
            early_allowed: told_early,
            scripts: 0,
            passed_by: PassedBy::default(),
            passed_by_orphans: 0,
            waiting: WaitingNotes::default(),
            durations: Durations::default(),
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

    /// Whether connections that are accepted now may be answered early.
    pub fn may_answer_early(&self) -> bool {
        self.configs.iter().any(|config| config.early != EarlyRule::Never)
    }

    /// A client has connected.
    pub fn open(
        &mut self,
        key: ConnectionKey,
        peer: Peer,
        upstream: &mut impl Upstream,
    ) -> Result<(), StartError> {
        let config = self.configs[peer.listener].clone();
        self.notice_key();
        let session = self.sessions.find().map_or_else(|| self.begin_shared(upstream), Ok)?;
        self.sessions.join(session, key);
        let number = self.sessions.next_number();
        let mut identity = Identity::new(number, peer.id);
        identity.address = peer.address;
        identity.listener = peer.local;
        let mut front = ClientFront::new(config, self.told.description.clone(), identity);
        front.allow_early(self.early_allowed && self.told.description.early_allowed);
        let connection = Connection {
            front,
            session,
            under_way: 0,
            lengthy: 0,
            reply_bytes_usual: REPLY_BYTES_UNKNOWN,
            was_answered: false,
            fetched_bytes: 0,
            counted: Counted::default(),
            waiting: VecDeque::new(),
            held: 0,
            scripts: 0,
            passed_by: PassedBy::default(),
            waits: Waited::default(),
            input_ended: false,
            closing: false,
            refusal: None,
            called: Nanos(0),
        };
        self.connections.insert(key, connection);
        Ok(())
    }

    /// A session that is open already is there for connections to come.
    pub fn add_shared(&mut self, session: SessionHandle) {
        self.sessions.insert(session, false);
        if let Some(session) = self.sessions.get_mut(session) {
            session.open = true;
        }
    }

    /// Begins the session that the first clients share: while the server is away none can be begun.
    pub fn prepare(&mut self, upstream: &mut impl Upstream) -> Result<(), StartError> {
        self.begin_shared(upstream).map(drop)
    }

    fn begin_shared(&mut self, upstream: &mut impl Upstream) -> Result<SessionHandle, StartError> {
        let begun = upstream.start_session(self.coverage.options())?;
        self.sessions.insert(begun, false);
        Ok(begun)
    }

    /// Sessions that were opened under another key than new ones are take no more connections: they end when their
    /// key is retired.
    fn notice_key(&mut self) {
        let newest = self.key.get().newest();
        if newest != self.key_epoch {
            self.key_epoch = newest;
            self.sessions.outdate();
        }
    }

    /// The database that is closed to clients.
    pub fn reserved_db(&self) -> u16 {
        self.told.description.reserved_db
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
    pub fn on_bytes(&mut self, called: Nanos, key: ConnectionKey, bytes: &[u8]) {
        let now_ms = self.server_time_ms(called);
        let mut actions = Vec::new();
        let Some(connection) = self.connections.get_mut(&key) else { return };
        connection.called = called;
        connection.front.know_scripts(self.scripts > 0);
        connection.front.on_bytes(now_ms, bytes, &mut actions);
        self.act(key, actions);
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
        self.large.leave(key);
        self.large.end(connection.counted);
        self.scripts -= connection.scripts;
        self.passed_by_orphans += connection.passed_by.unanswered();
        self.waiting.end(std::mem::take(&mut connection.waits));
        self.closed.add(connection.front.counters());
        self.sessions.leave(connection.session, key);
        self.released.extend(connection.front.farewell().map(|farewell| (connection.session, farewell)));
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
                    self.touched.extend(&session.users);
                }
            }
            ClientEvent::Completed { session, reply } if session == control => {
                let asked_at = self.description_asked_at;
                if let Ok(told) = Told::parse(reply.bytes.unwrap_or_default(), asked_at, now) {
                    self.learn(told);
                }
            }
            ClientEvent::Completed { session, reply } => {
                let Some(flight) = self.sessions.get_mut(session).and_then(|session| session.land(reply.seq))
                else {
                    return;
                };
                self.durations.note(now, &flight, reply.recorded);
                self.large.end(flight.counted);
                self.on_completed(now_ms, &flight, reply.bytes);
            }
            ClientEvent::Closed { session, reason, .. } => {
                self.on_session_closed(now_ms, session, reason);
            }
        }
    }

    /// What a request was answered, if not by devices alone, goes to those whose commands it carried.
    fn on_completed(&mut self, now_ms: i64, flight: &Flight, bytes: Option<&[u8]>) {
        let count = flight.count();
        let responses = match bytes {
            Some(bytes) if count > 1 => unpack(bytes, count).map(Some),
            Some(bytes) => Ok(Some(vec![bytes])),
            None => Ok(None),
        };
        if let Ok(Some(all)) = &responses {
            let said = all.first().and_then(|response| parse_response(response).ok());
            if let Some((flags, _)) = said {
                self.spread_early(flags.has(ResponseFlags::EARLY_ALLOWED));
            }
        }
        for (at, asker) in flight.askers().enumerate() {
            let mut actions = Vec::new();
            if let Some(connection) = self.connections.get_mut(&asker.connection) {
                connection.under_way -= 1;
                connection.lengthy -= usize::from(asker.lengthy);
                if let Some(next) = connection.waiting.front().filter(|_| connection.under_way == 0) {
                    if let Some(session) = self.sessions.get_mut(connection.session) {
                        session.want(asker.connection, next.early.is_some());
                    }
                }
                let lengthy_bytes = match &responses {
                    Ok(Some(all)) if asker.lengthy => all[at].len(),
                    _ => 0,
                };
                let front = &mut connection.front;
                front.know_scripts(self.scripts > 0);
                match (&responses, asker.early) {
                    (Ok(Some(all)), _) => front.on_response(now_ms, asker.id, all[at], &mut actions),
                    (Ok(None), Some(early)) => front.on_early(now_ms, asker.id, early, &mut actions),
                    (Ok(None), None) => {
                        let text = "the reply is gone; whether the command ran can be seen in the data";
                        front.on_failure(now_ms, asker.id, text, &mut actions);
                    }
                    (Err(error), _) => {
                        let text = format!("the server's sidecar answered {count} commands wrongly: {error}");
                        front.on_failure(now_ms, asker.id, &text, &mut actions);
                    }
                }
                if let Some(first) = note_reply(connection, lengthy_bytes) {
                    self.large.note_first(first, !flight.is_read());
                }
            }
            self.act(asker.connection, actions);
        }
    }

    /// What the server says of early answers to one connection holds for all: also that there may be a reason for
    /// which it would refuse what they are about to ask.
    pub(super) fn spread_early(&mut self, allowed: bool) {
        if std::mem::replace(&mut self.early_allowed, allowed) != allowed {
            for connection in self.connections.values_mut() {
                connection.front.allow_early(allowed);
            }
        }
    }

    /// The server is another one than before. Sessions in use go on as they began.
    pub fn learn(&mut self, told: Told) {
        if self.coverage.learn(told.description.devices) {
            self.sessions.outdate();
            let rules = self.configs.iter().map(|config| &config.early);
            self.notices.say(&format!("for connections from now on: {}", self.coverage.text(rules)));
        }
        let refused: Option<Arc<str>> = told.description.writes_refused.as_deref().map(Arc::from);
        if self.says_writes && told.description.writes_refused != self.told.description.writes_refused {
            self.notices.alarm(&match &refused {
                Some(reason) => format!("writes are refused: {reason}"),
                None => "writes are taken again".to_owned(),
            });
        }
        self.early_allowed = told.description.early_allowed;
        for connection in self.connections.values_mut() {
            connection.front.allow_early(told.description.early_allowed);
            connection.front.refuse_writes(refused.clone());
        }
        self.told = told;
    }

    /// Whatever was on its way in the session has an unknown outcome.
    fn on_session_closed(&mut self, now_ms: i64, session: SessionHandle, reason: ClosedReason) {
        let Some(session) = self.sessions.remove(session) else { return };
        session.flights.iter().for_each(|flight| self.large.end(flight.counted));
        let text = outcome_unknown(reason);
        for asker in session.flights.iter().flat_map(Flight::askers) {
            let mut actions = Vec::new();
            if let Some(connection) = self.connections.get_mut(&asker.connection) {
                connection.front.on_failure(now_ms, asker.id, &text, &mut actions);
            }
            self.act(asker.connection, actions);
        }
        let error = not_sent(reason);
        for key in &session.users {
            let mut actions = Vec::new();
            if let Some(connection) = self.connections.get_mut(key) {
                // A client that was never let in and has not asked yet is told when it asks.
                connection.closing = session.open || !connection.waiting.is_empty();
                connection.refusal = Some(error.clone());
                for request in std::mem::take(&mut connection.waiting) {
                    connection.front.on_refusal(now_ms, request.id, &error, &mut actions);
                }
            }
            self.act(*key, actions);
        }
    }

    /// From now on it is noted what waits past the order.
    pub fn note_waiting(&mut self) {
        self.waiting.is_on = true;
    }

    /// What has become of what waits past the order since this was taken last, in its order.
    pub fn take_waiting(&mut self) -> impl Iterator<Item = Waiting> + '_ {
        self.waiting.take()
    }

    fn act(&mut self, key: ConnectionKey, actions: Vec<FrontAction>) {
        self.touched.insert(key);
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let passed_by = connection.front.passed_by();
        let before = std::mem::replace(&mut connection.passed_by, passed_by);
        self.passed_by.begun += passed_by.begun - before.begun;
        self.passed_by.ended += passed_by.ended - before.ended;
        self.waiting.note(&mut connection.waits, connection.front.waits());
        let scripts = connection.front.scripts();
        self.scripts = self.scripts + scripts - std::mem::replace(&mut connection.scripts, scripts);
        let fetching = fetching(connection);
        self.large.end(std::mem::replace(&mut connection.counted, fetching));
        self.large.begin(fetching);
        for action in actions {
            match action {
                FrontAction::Request(mut request) => {
                    // Parts of a request or of a reply have a whole that is waited for.
                    if request.id != 0 && !request.fetches() {
                        request.called = connection.called;
                    }
                    let fetches = request.fetches();
                    if fetches {
                        connection.waiting.push_front(request);
                    } else {
                        connection.waiting.push_back(request);
                    }
                    let is_early = connection.waiting[0].early.is_some();
                    match self.sessions.get_mut(connection.session) {
                        Some(session) if fetches => session.want_at_once(key),
                        Some(session) => session.want(key, is_early),
                        None => _ = self.orphans.insert(key),
                    }
                }
                FrontAction::Close => connection.closing = true,
                FrontAction::Tunnel { setup, setup_replies, bytes, is_whole } => {
                    let begun = TunnelBegun { key, setup, setup_replies, bytes, is_whole };
                    self.tunnels_asked.push_back(TunnelAsked::Begin(begun));
                }
                FrontAction::Pass(bytes) => self.tunnels_asked.push_back(TunnelAsked::Pass(key, bytes)),
                FrontAction::RestTunnel => self.tunnels_asked.push_back(TunnelAsked::Rest(key)),
                FrontAction::EndTunnel => self.tunnels_asked.push_back(TunnelAsked::End(key)),
                FrontAction::Clients { id, question, list } => {
                    self.questions.push(ClientsAsked { key, id, question, list });
                }
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

    /// A connection's tunnel has heard something of the server; `ended`: it is the last.
    pub fn on_tunnel(&mut self, now: Nanos, key: ConnectionKey, bytes: &[u8], ended: bool) {
        let now_ms = self.server_time_ms(now);
        let mut actions = Vec::new();
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.front.know_scripts(self.scripts > 0);
            connection.front.on_tunnel(now_ms, bytes, ended, &mut actions);
        }
        self.act(key, actions);
        self.count_input(key);
    }

    /// What a tunnel is to do next, in the order in which it was asked.
    pub fn next_tunnel(&mut self) -> Option<TunnelAsked> {
        self.tunnels_asked.pop_front()
    }

    /// The questions about the clients that were asked.
    pub fn take_questions(&mut self) -> Vec<ClientsAsked> {
        std::mem::take(&mut self.questions)
    }

    /// What is known of each client that is no tunnel.
    pub fn facts(&self) -> impl Iterator<Item = (ConnectionKey, Facts)> + '_ {
        self.connections.iter().map(|(key, connection)| (*key, connection.front.facts()))
    }

    /// What came of a question about the clients; `is_end`: its connection is among those that are closed.
    pub fn on_clients(&mut self, now: Nanos, asked: &ClientsAsked, outcome: Outcome, is_end: bool) {
        let now_ms = self.server_time_ms(now);
        let mut actions = Vec::new();
        if let Some(connection) = self.connections.get_mut(&asked.key) {
            connection.front.on_clients(now_ms, asked.id, outcome, is_end, &mut actions);
        }
        self.act(asked.key, actions);
    }

    /// A client that nothing is pending of becomes a tunnel: another one is to name its connection to the server. What
    /// is to be done for that.
    pub fn make_tunnel(&mut self, id: u64) -> VecDeque<TunnelAsked> {
        let before = self.tunnels_asked.len();
        let found = self.connections.iter_mut().find(|(_, connection)| connection.front.facts().id == id);
        if let Some((key, connection)) = found {
            let (key, mut actions) = (*key, Vec::new());
            connection.front.become_tunnel(&mut actions);
            self.act(key, actions);
        }
        self.tunnels_asked.split_off(before)
    }

    /// No tunnel redirects to this connection any more.
    pub fn forget_naming(&mut self, now: Nanos, id: u64) {
        let now_ms = self.server_time_ms(now);
        let found = self.connections.iter_mut().find(|(_, connection)| connection.front.facts().id == id);
        let Some((key, connection)) = found else { return };
        let (key, mut actions) = (*key, Vec::new());
        connection.front.forget_naming(now_ms, &mut actions);
        self.act(key, actions);
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
            connection.front.know_scripts(self.scripts > 0);
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

    /// How many commands are on their way.
    pub fn under_way(&self) -> u64 {
        self.sessions.commands_under_way() as u64
    }

    /// What all connections may have changed past the order, and how much of it has no answer since its connection is
    /// gone.
    pub fn passed_by(&self) -> (PassedBy, u64) {
        (self.passed_by, self.passed_by_orphans)
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
            ("tunnels_total", "Times when connections became tunnels", counters.tunnels),
            ("packs_total", "Requests that carried several commands", self.packs),
            ("packed_total", "Commands that shared a request with others", self.packed),
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
        self.durations.write_metrics(text);
    }

    pub fn server_time_ms(&self, now: Nanos) -> i64 {
        (now.0 / 1_000_000) as i64 + self.told.ahead_ms
    }
}

/// Whether a connection has as many of these under way as their replies allow.
fn has_enough(connection: &Connection, kind: RequestKind) -> bool {
    lengthy_left(connection, kind) == 0
}

/// What to count for large replies that have come in part: as much as the last ones had, or as has come.
fn fetching(connection: &Connection) -> Counted {
    let is_fetching = connection.front.is_fetching();
    let bytes = if is_fetching { connection.fetched_bytes.max(connection.reply_bytes_usual) } else { 0 };
    Counted { bytes, is_first: !connection.was_answered, is_write: false }
}

/// Learns from a reply, or a part of it, how large the next ones may be; the size of the connection's first.
fn note_reply(connection: &mut Connection, bytes: usize) -> Option<usize> {
    if bytes == 0 {
        return None;
    }
    connection.fetched_bytes += bytes;
    if connection.front.is_fetching() {
        return None;
    }
    let whole = std::mem::take(&mut connection.fetched_bytes);
    let is_first = !std::mem::replace(&mut connection.was_answered, true);
    let usual = connection.reply_bytes_usual;
    // At once when they are large, step by step when they are not.
    let before = if is_first { REPLY_BYTES_ASSUMED } else { usual - usual / 8 };
    connection.reply_bytes_usual = before.max(whole);
    is_first.then_some(whole)
}

/// How many more of a connection that may be answered at length may be under way.
fn lengthy_left(connection: &Connection, kind: RequestKind) -> usize {
    if connection.front.is_fetching() || connection.front.is_full() {
        return 0;
    }
    let most = (REPLIES_BYTES_MAX / connection.reply_bytes_usual.max(REPLY_BYTES_LEAST)).max(1);
    let most = if kind == RequestKind::Read { most.min(READS_AT_ONCE_MAX) } else { most };
    most.saturating_sub(connection.lengthy)
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
    connection.waiting.is_empty()
        && connection.front.pending_count() == 0
        && !connection.front.awaits_tunnel()
}

/// Whether every command is answered and every answer sent.
fn is_idle(connection: &Connection) -> bool {
    is_up_to_client(connection) && connection.front.output().is_empty()
}
