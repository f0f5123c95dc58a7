//! The server's role: executes exactly once, in one total order, and says what is stable.
//!
//! Invariants: a request is executed when everything that the order puts before it has been (rule
//! 2); no reply leaves that a crash could contradict (rule 8); nothing is executed before recovery
//! is complete (rule 10).

mod order;
mod pump;
mod recovery;
mod reply;
mod session;

use crate::client::RequestKind;
use crate::fault::{Fault, Planted};
use order::Order;
use pump::{Blocked, OrderQuestion};
use recovery::{Expiring, Poll};
use scotfree_core::{
    BootEpoch, ByteRange, DeviceId, Effects, Epoch, Machine, Nanos, SeqNum, SessionId, Token,
};
use scotfree_wire::{
    key_epoch, ClusterKey, ControlKeys, Direction, ExtensionSet, Identity, Key, KeyEpoch, Kind, Nonce,
    Packet, Reassembly, WireError, REQUEST_BYTES_MAX, WIRE_ERROR_COUNT,
};
use session::ServedSession;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// What a server is told at its start.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Its own address.
    pub local: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// Its incarnation: larger than that of any earlier start, and durable already.
    pub epoch: Epoch,
    /// A number never used before; the sessions' nonces are derived from it.
    pub nonce_seed: Nonce,
    /// The devices on the path with their control addresses; the first is the head.
    pub devices: Vec<(DeviceId, SocketAddr)>,
    /// The credit of a session.
    pub window: u32,
    /// How many sessions there can be.
    pub sessions_max: usize,
    /// How many of them can be such that their client has not spoken under the session's keys: a
    /// recorded opening makes one, and so many are what all recordings of the past can take.
    pub unconfirmed_max: usize,
    /// How long a lease runs; at most `lease_max`.
    pub lease: Nanos,
    /// The longest lease that any earlier incarnation may have granted: so long a restarted server
    /// takes every device for leased that has not spoken to it.
    pub lease_max: Nanos,
    /// After this long without a sign of its client a session expires. Longer than any lease.
    pub expiry: Nanos,
    /// How long a logged update may be blocked by a request that its client does not send again.
    pub gap_grace: Nanos,
    /// How long reordering is tolerated before something is asked for again.
    pub gap_ask_after: Nanos,
    /// How often an unanswered question is repeated.
    pub retry_interval: Nanos,
    /// How many bytes of requests may wait for their turn.
    pub buffer_bytes_max: usize,
    /// How many requests may be executed and not answered, or not stable; the others wait.
    pub unfinished_max: usize,
    /// How many bytes of sent replies one session keeps. From half of it on, what its client has not
    /// taken and what is on its way count, a session's reads wait for its client.
    pub replies_bytes_max: usize,
    /// How long a client is told to wait when the buffer is full.
    pub busy_backoff: Nanos,
    /// Which extensions of requests it takes.
    pub extensions: ExtensionSet,
    /// A safety rule switched off, for tests.
    pub planted: Planted,
}

impl ServerConfig {
    /// Defaults for a cluster on one site.
    pub fn new(
        local: SocketAddr,
        cluster_key: ClusterKey,
        epoch: Epoch,
        nonce_seed: Nonce,
        devices: Vec<(DeviceId, SocketAddr)>,
    ) -> ServerConfig {
        ServerConfig {
            local,
            cluster_key,
            epoch,
            nonce_seed,
            devices,
            window: 4096,
            sessions_max: 1024,
            unconfirmed_max: 256,
            lease: Nanos::from_secs(2),
            lease_max: Nanos::from_secs(2),
            expiry: Nanos::from_secs(60),
            gap_grace: Nanos::from_secs(2),
            gap_ask_after: Nanos::from_millis(2),
            retry_interval: Nanos::from_millis(20),
            buffer_bytes_max: 64 << 20,
            unfinished_max: 1 << 19,
            replies_bytes_max: 8 << 20,
            busy_backoff: Nanos::from_millis(20),
            extensions: ExtensionSet::ALL,
            planted: Planted::NONE,
        }
    }
}

/// What storage knows of a session after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveredSession {
    /// The session.
    pub session: SessionId,
    /// The epoch in which it was opened.
    pub epoch: Epoch,
    /// The client's nonce.
    pub client_nonce: Nonce,
    /// The server's nonce.
    pub server_nonce: Nonce,
    /// The last write applied, as stored atomically with it.
    pub position: SeqNum,
}

/// Why an update was not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeadLetterReason {
    /// Its session is not known (any more).
    UnknownSession,
    /// A write before it never came, so it was never completed.
    BehindGap,
}

/// What only the server's shell can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOwn {
    /// Execute a request. These come in the one total order, and that is the order of execution.
    Execute {
        /// Under which to report with [`Server::on_executed`]; contiguous.
        ticket: u64,
        /// The session.
        session: SessionId,
        /// The place in it, to be stored atomically with the write.
        seq: SeqNum,
        /// What kind of request.
        kind: RequestKind,
        /// A device had it before this server began to serve: it may have been executed by a predecessor that has
        /// lost it since, and acknowledged, so the application must not answer it by what is true for a while only.
        is_replayed: bool,
        /// Who made it, beyond its session, if its client says so: the same wherever it is sent again.
        identity: Option<Identity>,
        /// The request.
        payload: ByteRange,
    },
    /// Make the session durable, then call [`Server::on_session_recorded`].
    RecordSession {
        /// The session, at position 0.
        record: RecoveredSession,
    },
    /// Forget the session's record, then call [`Server::on_session_deleted`].
    DeleteSession {
        /// The session.
        session: SessionId,
    },
    /// Write an update that will not be applied to the dead-letter file, durably, before carrying
    /// out anything wished for later.
    DeadLetter {
        /// Its session.
        session: SessionId,
        /// Its place.
        seq: SeqNum,
        /// Why.
        reason: DeadLetterReason,
        /// The update.
        payload: ByteRange,
    },
}

/// What a server has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerCounters {
    /// Requests handed to the application.
    pub executed: u64,
    /// Of these, from a device's log.
    pub replayed: u64,
    /// Requests seen again after execution.
    pub duplicates: u64,
    /// Replies sent again.
    pub replies_resent: u64,
    /// Replies held until stability.
    pub replies_held: u64,
    /// Retries whose reply was gone.
    pub replies_gone: u64,
    /// Questions to clients for missing requests.
    pub gaps_asked: u64,
    /// Questions to the head for missing order numbers.
    pub orders_asked: u64,
    /// Questions to the head for the place of an unstamped request.
    pub drains_asked: u64,
    /// Gaps of reads passed over.
    pub gaps_passed: u64,
    /// Order numbers given up.
    pub orders_given_up: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Recovery polls sent.
    pub polls: u64,
    /// `ServerAck`s sent.
    pub server_acks: u64,
    /// Times a client was told to wait.
    pub busy: u64,
    /// Messages of unknown sessions.
    pub unknown_session: u64,
    /// Sessions that expired.
    pub expired: u64,
    /// Sessions whose client had not spoken and that gave way to newer ones.
    pub gave_way: u64,
    /// Sessions ended because the epoch of their keys was taken away.
    pub revoked: u64,
    /// Requests beyond their session's credit, dropped.
    pub beyond_window: u64,
    /// Packets refused, by reason.
    pub refused: [u64; WIRE_ERROR_COUNT],
}

/// No session gets so far; a number beyond it is nonsense, and none below overflows when counted on.
pub(crate) const SEQ_MAX: u64 = 1 << 62;
/// How many incomplete fragmented requests are kept.
pub(crate) const FRAGMENT_SETS_MAX: usize = 256;

/// The server.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    keys: ServerKeys,
    /// Under which epoch of the cluster's key each device has asked for its last lease.
    device_epochs: BTreeMap<DeviceId, KeyEpoch>,
    /// The largest window that each device has slots for, as it says with its questions.
    device_windows: BTreeMap<DeviceId, u32>,
    sessions: BTreeMap<SessionId, ServedSession>,
    by_nonce: BTreeMap<Nonce, SessionId>,
    session_count: u32,
    order: Order,
    polls: BTreeMap<DeviceId, Poll>,
    poll_count: u64,
    excluded: BTreeSet<DeviceId>,
    /// The largest boot epoch under which each device has given an order number that is in a log.
    boots_seen: BTreeMap<DeviceId, BootEpoch>,
    /// Until when each device may acknowledge, and whether the operator waits for that to end.
    leases: BTreeMap<DeviceId, Nanos>,
    excluding: BTreeSet<DeviceId>,
    serving: bool,
    draining: bool,
    pub(crate) fragments: Reassembly,
    buffer_bytes: usize,
    ticket_last: u64,
    ticket_stable: u64,
    /// The last unlogged write: replies after it wait until it is stable.
    ticket_unlogged: u64,
    in_flight: BTreeMap<u64, InFlight>,
    /// Writes that are not stable yet.
    unstable: BTreeMap<u64, (SessionId, SeqNum)>,
    /// Replies that wait for a ticket to be stable.
    held: BTreeSet<(u64, SessionId, SeqNum)>,
    dirty: BTreeSet<SessionId>,
    /// When to ask for what a session waits for.
    questions: BTreeSet<(Nanos, SessionId)>,
    order_question: Option<OrderQuestion>,
    blocked: Option<Blocked>,
    expiring: BTreeMap<(SessionId, DeviceId), Expiring>,
    expiry_check_at: Nanos,
    counters: ServerCounters,
}

#[derive(Debug)]
struct ServerKeys {
    handshake: ControlKeys,
    stamp: ControlKeys,
    to_device: ControlKeys,
    from_device: ControlKeys,
    nonces: Key,
}

impl ServerKeys {
    fn of(cluster: &ClusterKey, nonces: Key) -> ServerKeys {
        ServerKeys {
            handshake: cluster.controls(Direction::Handshake),
            stamp: cluster.controls(Direction::Stamp),
            to_device: cluster.controls(Direction::ServerToDevice),
            from_device: cluster.controls(Direction::DeviceToServer),
            nonces,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    session: SessionId,
    seq: SeqNum,
    kind: RequestKind,
    hold_until: u64,
}

impl Server {
    /// A server with what its storage has recovered. It serves nothing before [`Server::start`].
    pub fn new(config: ServerConfig, recovered: &[RecoveredSession]) -> Server {
        let mut server = Server {
            keys: ServerKeys::of(&config.cluster_key, Key::from_bytes(config.nonce_seed)),
            device_epochs: BTreeMap::new(),
            device_windows: BTreeMap::new(),
            sessions: BTreeMap::new(),
            by_nonce: BTreeMap::new(),
            session_count: 0,
            order: Order::default(),
            polls: BTreeMap::new(),
            poll_count: 0,
            excluded: BTreeSet::new(),
            boots_seen: BTreeMap::new(),
            leases: BTreeMap::new(),
            excluding: BTreeSet::new(),
            serving: false,
            draining: false,
            fragments: Reassembly::new(FRAGMENT_SETS_MAX, FRAGMENT_SETS_MAX * REQUEST_BYTES_MAX),
            buffer_bytes: 0,
            ticket_last: 0,
            ticket_stable: 0,
            ticket_unlogged: 0,
            in_flight: BTreeMap::new(),
            unstable: BTreeMap::new(),
            held: BTreeSet::new(),
            dirty: BTreeSet::new(),
            questions: BTreeSet::new(),
            order_question: None,
            blocked: None,
            expiring: BTreeMap::new(),
            expiry_check_at: Nanos::MAX,
            counters: ServerCounters::default(),
            config,
        };
        for record in recovered {
            server.adopt(record);
        }
        server
    }

    /// Begins recovery; serving begins when every device has answered (rule 10).
    pub fn start(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) {
        for session in self.sessions.values_mut() {
            session.heard_at = now;
        }
        self.expiry_check_at = now.plus(Nanos(self.config.expiry.0 / 8 + 1));
        self.inherit_leases(now);
        for index in 0..self.config.devices.len() {
            self.poll(now, self.config.devices[index].0, effects);
        }
        self.serve_if_recovered(now, effects);
        if self.planted(Fault::ServeBeforeReplay) {
            self.serving = true;
        }
    }

    /// The operator's word that a device will not come back. It holds once the device's lease has
    /// ended, this server's or that of an earlier incarnation. After a restart it must be given again.
    pub fn exclude(&mut self, now: Nanos, device: DeviceId, effects: &mut Effects<ServerOwn>) {
        self.excluding.insert(device);
        self.exclude_unleased(now, effects);
    }

    /// Takes the cluster's key anew, after a rotation. A session whose epoch has been taken away ends as one
    /// does whose client is silent: its client is not heard, and what devices hold of it is applied.
    pub fn set_cluster_key(&mut self, now: Nanos, key: ClusterKey, effects: &mut Effects<ServerOwn>) {
        self.keys = ServerKeys::of(&key, self.keys.nonces);
        for (id, session) in &mut self.sessions {
            session.keys = key.session(&session.client_nonce, &session.server_nonce, *id, session.epoch);
        }
        self.config.cluster_key = key;
        let revoked: Vec<SessionId> =
            self.sessions.iter().filter(|(_, session)| self.is_revoked(session)).map(|(id, _)| *id).collect();
        for id in revoked {
            self.counters.revoked += 1;
            self.expire(now, id, effects);
        }
        self.pump(now, effects);
    }

    /// Whether the epoch of the session's keys has been taken away.
    fn is_revoked(&self, session: &ServedSession) -> bool {
        !self.config.cluster_key.has(key_epoch(&session.server_nonce))
    }

    /// A device is spoken to under the epoch under which it speaks: it may learn of a new one later.
    fn to_device(&self, device: DeviceId) -> Key {
        let spoken = self.device_epochs.get(&device).map(|epoch| self.keys.to_device.of(*epoch));
        spoken.and_then(Result::ok).unwrap_or_else(|| self.keys.to_device.newest())
    }

    /// Takes no more sessions.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether everything executed is answered and stable.
    pub fn is_drained(&self) -> bool {
        self.in_flight.is_empty() && self.unstable.is_empty()
    }

    /// How many requests the application has and has not answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether requests are executed.
    pub fn is_serving(&self) -> bool {
        self.serving
    }

    /// Whether replies or requests wait for stability: storage should be asked now.
    pub fn wants_stable(&self) -> bool {
        !self.held.is_empty() || self.is_saturated()
    }

    /// The last ticket given.
    pub fn ticket_last(&self) -> u64 {
        self.ticket_last
    }

    /// The last ticket known to be stable.
    pub fn ticket_stable(&self) -> u64 {
        self.ticket_stable
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// How many bytes of requests wait for their turn.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// The devices that are not excluded, and whether each has answered its last poll.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceId, bool)> + '_ {
        self.config
            .devices
            .iter()
            .map(|(device, _)| *device)
            .filter(|device| !self.excluded.contains(device))
            .map(|device| (device, self.polls.get(&device).is_some_and(Poll::is_done)))
    }

    /// What was counted.
    pub fn counters(&self) -> &ServerCounters {
        &self.counters
    }

    fn planted(&self, fault: Fault) -> bool {
        self.config.planted.is(fault)
    }

    /// The device whose stamps count.
    fn head(&self) -> Option<(DeviceId, SocketAddr)> {
        self.config.devices.iter().copied().find(|(device, _)| !self.excluded.contains(device))
    }

    fn device_address(&self, device: DeviceId) -> Option<SocketAddr> {
        self.config.devices.iter().find(|(known, _)| *known == device).map(|(_, address)| *address)
    }

    fn receive(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        message: &[u8],
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        let packet = Packet::parse(message)?;
        match packet.kind() {
            Kind::SessionOpen => self.on_open(now, from, &packet, effects),
            Kind::Update | Kind::Read | Kind::Bypass => self.on_request(now, from, &packet, effects),
            Kind::Heartbeat => self.on_heartbeat(now, from, &packet, effects),
            Kind::SessionClose if packet.flags().has(scotfree_wire::Flags::CONFIRMED) => {
                self.on_confirmed(&packet, effects)
            }
            Kind::SessionClose => self.on_client_close(now, from, &packet, effects),
            Kind::Replay => self.on_replay(now, from, &packet, effects),
            Kind::Manifest => self.on_manifest(now, &packet, effects),
            Kind::Lease => self.on_lease_question(now, &packet, effects),
            Kind::Drain => self.on_drain_answer(now, &packet, effects),
            Kind::SessionAccept
            | Kind::PersistAck
            | Kind::ServerAck
            | Kind::Response
            | Kind::Retransmit
            | Kind::RecoveryPoll
            | Kind::Busy => Err(WireError::InvalidField),
        }
    }
}

impl Machine for Server {
    type Own = ServerOwn;

    fn on_message(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        _to: SocketAddr,
        message: &[u8],
        effects: &mut Effects<ServerOwn>,
    ) {
        if let Err(error) = self.receive(now, from, message, effects) {
            self.counters.refused[error as usize] += 1;
        }
        self.pump(now, effects);
    }

    /// Everything executed through the ticket is stable (rule 6).
    fn on_persisted(&mut self, now: Nanos, token: Token, effects: &mut Effects<ServerOwn>) {
        self.on_stable(now, token.0, effects);
        self.pump(now, effects);
    }

    fn on_timer(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) {
        self.continue_polls(now, effects);
        self.continue_expiring(now, effects);
        self.exclude_unleased(now, effects);
        if self.expiry_check_at <= now {
            self.expire_silent(now, effects);
        }
        self.ask_again(now, effects);
        self.pump(now, effects);
    }

    fn next_timer(&self) -> Option<Nanos> {
        let next = self
            .expiry_check_at
            .min(self.polls_timer())
            .min(self.expiring_timer())
            .min(self.questions_timer())
            .min(self.excluding_timer());
        (next != Nanos::MAX).then_some(next)
    }
}
