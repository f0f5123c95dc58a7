//! The client's role: one machine is one session.
//!
//! Invariant: requests complete in session order, but that, where it is wished for, an early update waits for its
//! elders' writes only to be safe; and no update is forgotten before it is stable (rules 8 and 9).

use crate::fault::{Fault, Planted};
use crate::packets::{send_whole, Route};
use crate::retry::{backoff, Jitter, RoundTrip};
use scotfree_core::{
    BootEpoch, ByteRange, DeviceId, Durability, Effects, Epoch, KeyHash, Machine, Nanos, SeqNum, SessionId,
    Token, TIER_DEVICES_MAX,
};
use scotfree_wire::{
    emit, emit_extended, key_epoch, Answerer, CloseReason, CloseTail, ClusterKey, ControlKeys, Direction,
    ExtensionSet, Extensions, Flags, Header, HeartbeatTail, Identity, KeyEpoch, Kind, LateStamp, Nonce,
    ObjectNote, OpenTail, Packet, RangeTail, Reassembly, ResponseTail, SessionKeys, Stamp, Tail, WireError,
    FURTHER_KEYS_MAX, LATE_STAMP_BYTES, PAYLOAD_BYTES_MAX, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX,
    WIRE_ERROR_COUNT,
};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The extensions that a client takes in responses.
const EXTENSIONS_TAKEN: ExtensionSet = ExtensionSet::OBJECT;
/// How many devices a request can ask to acknowledge it.
pub(crate) const DEVICES_MAX: usize = TIER_DEVICES_MAX as usize;
/// How many incomplete fragmented responses are kept.
pub(crate) const RESPONSE_SETS_MAX: usize = 8;
/// Larger buffers are given back: as many as requests may be outstanding are kept.
pub(crate) const SPARE_BYTES_MAX: usize = 4 << 10;
/// How many bytes of replies are taken before the server is told at once: it waits with further ones.
pub(crate) const UNTOLD_BYTES_MAX: usize = 1 << 20;

/// What a client is told at its start.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Its own address.
    pub local: SocketAddr,
    /// The server's.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// A number never used before.
    pub client_nonce: Nonce,
    /// The seed of the jitter.
    pub seed: u64,
    /// How many requests it would like to have outstanding.
    pub window_asked: u32,
    /// The durability asked for updates.
    pub asked: Durability,
    /// How many distinct devices must acknowledge an update.
    pub device_acks_asked: u8,
    /// Whether an early update completes before its elders, as soon as none of their writes can be lost.
    pub early_overtakes: bool,
    /// The shortest wait before a retransmission.
    pub rto_min: Nanos,
    /// The longest.
    pub rto_max: Nanos,
    /// The wait before a completed update that is not stable is sent again; doubled each time.
    pub stable_retry: Nanos,
    /// How often an open session with anything outstanding or unstable says its highest `seq_num`.
    pub heartbeat_interval: Nanos,
    /// How often an idle session says that it lives.
    pub idle_interval: Nanos,
    /// How often the opening is tried before the session is given up.
    pub open_tries_max: u32,
    /// How many packets one timer tick sends again at most.
    pub burst_max: usize,
    /// A safety rule switched off, for tests.
    pub planted: Planted,
}

impl ClientConfig {
    /// Defaults for a cluster on one site.
    pub fn new(
        local: SocketAddr,
        server: SocketAddr,
        cluster_key: ClusterKey,
        client_nonce: Nonce,
        seed: u64,
    ) -> ClientConfig {
        ClientConfig {
            local,
            server,
            cluster_key,
            client_nonce,
            seed,
            window_asked: 4096,
            asked: Durability::Ram,
            device_acks_asked: 1,
            early_overtakes: false,
            rto_min: Nanos::from_millis(4),
            rto_max: Nanos::from_millis(500),
            stable_retry: Nanos::from_secs(1),
            heartbeat_interval: Nanos::from_millis(50),
            idle_interval: Nanos::from_secs(2),
            open_tries_max: 40,
            burst_max: 32,
            planted: Planted::NONE,
        }
    }
}

/// What kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKind {
    /// A deterministic write: a device may log it.
    Update,
    /// Changes nothing.
    Read,
    /// Any other write: answered when it is stable.
    Bypass,
}

impl RequestKind {
    pub(crate) fn kind(self) -> Kind {
        match self {
            RequestKind::Update => Kind::Update,
            RequestKind::Read => Kind::Read,
            RequestKind::Bypass => Kind::Bypass,
        }
    }

    /// What a packet of this kind carries, if it carries a request.
    pub(crate) fn of(kind: Kind) -> Option<RequestKind> {
        [RequestKind::Update, RequestKind::Read, RequestKind::Bypass]
            .into_iter()
            .find(|request| request.kind() == kind)
    }

    /// Whether the request may change the server's state.
    pub fn writes(self) -> bool {
        self != RequestKind::Read
    }
}

/// What completes an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The server's response, once the log holds the update.
    Covered,
    /// The devices' acknowledgements. Only for requests whose reply is known in advance.
    Early,
}

/// A request to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What kind.
    pub kind: RequestKind,
    /// What completes it; only meaningful for updates.
    pub mode: Mode,
    /// The caller knows the reply, so stability completes the request even if the response is lost.
    pub fixed_reply: bool,
    /// A read that need not see other sessions' latest updates.
    pub relaxed: bool,
    /// The server shall stamp the call and send the stamps back. A client's runtime decides this for its
    /// callers.
    pub traced: bool,
    /// The hash over database and key.
    pub key_hash: KeyHash,
    /// At most [`REQUEST_BYTES_MAX`] bytes.
    pub payload: &'a [u8],
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// The session is not open yet.
    NotOpen,
    /// As many requests are outstanding or unstable as the server has granted: wait for a completion.
    WindowFull,
    /// The payload is larger than any request may be, or than one packet that bears extensions.
    TooLarge,
    /// The session is closed or closing.
    Closed,
}

/// Why a request with extensions was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendedError {
    /// The server has not offered to take such an extension.
    NotOffered,
    /// As for any request.
    Submit(SubmitError),
}

/// Who completed a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletedBy {
    /// The server's response.
    Server,
    /// A device's acknowledgement, the last one needed.
    Device(DeviceId),
    /// A function of a device, in the server's place.
    Function(Answerer),
    /// The server's word that the update is stable.
    ServerAck,
}

/// A request is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub seq: SeqNum,
    /// Who completed it.
    pub answered_by: CompletedBy,
    /// The server's reply; `None` where the caller knows it.
    pub reply: Option<ByteRange>,
    /// The application refused the request.
    pub failed: bool,
    /// The server's stamps of this call; zero where it was not asked.
    pub times: ResponseTail,
}

/// Why a session ended. What had not completed has an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedReason {
    /// The client asked for it, and every update was stable.
    Finished,
    /// The server did not answer the opening, or was so long silent that the session was abandoned.
    Unreachable,
    /// The server said so.
    Server(CloseReason),
    /// The epoch of its keys was taken out of the cluster's key.
    KeyRemoved,
}

/// What only the client's shell can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOwn {
    /// The session is open.
    Opened {
        /// Its name.
        session: SessionId,
        /// Its credit.
        window: u32,
    },
    /// A request is complete. Completions come in session order; with `early_overtakes` early updates come as soon as
    /// every write before them is acknowledged or stable, even if it, or a read, has no answer yet.
    Complete(Completion),
    /// The session has ended; nothing more will complete.
    Closed {
        /// Why.
        reason: ClosedReason,
    },
    /// When the response to a sampled request left the server host, by the kernel's stamp.
    LateStamp(LateStamp),
}

/// What a client has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCounters {
    /// Requests taken.
    pub submitted: u64,
    /// Requests completed.
    pub completed: u64,
    /// Of these, by a device's acknowledgement alone.
    pub completed_early: u64,
    /// Of these, updates that the devices asked had not acknowledged: complete because they were stable.
    pub completed_stable: u64,
    /// Acknowledgements of devices for updates of ours.
    pub device_acks: u64,
    /// Requests sent again.
    pub retransmitted: u64,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Times the server said Busy.
    pub busy: u64,
    /// Packets refused, by reason.
    pub refused: [u64; WIRE_ERROR_COUNT],
    /// Authentic packets that are not for this session or not for a client.
    pub foreign: u64,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum State {
    New,
    Opening {
        tries: u32,
    },
    Open,
    /// Everything submitted, then `SessionClose` until it is answered.
    Closing {
        tries: u32,
    },
    Closed,
}

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Independent properties of one request.
struct Entry {
    kind: RequestKind,
    early: bool,
    fixed_reply: bool,
    relaxed: bool,
    traced: bool,
    key_hash: KeyHash,
    identity: Option<Identity>,
    further: Option<Box<Further>>,
    payload: Vec<u8>,
    /// The first of `tries` sendings; samples the round trip when there was one only.
    sent_at: Nanos,
    tries: u32,
    retry_at: Nanos,
    acks: [Option<(DeviceId, BootEpoch)>; DEVICES_MAX],
    reply: Option<Reply>,
    done: bool,
}

impl Entry {
    /// Whether its answer needs nobody any more: it is complete, or a device has answered it, and it waits for its
    /// elders. The server passes over such a read, and has no reply.
    fn has_answer(&self) -> bool {
        let by_device = |reply: &Reply| reply.times.answered_by != Answerer::SERVER;
        self.done || self.reply.as_ref().is_some_and(by_device)
    }

    fn extensions(&self) -> Extensions<'_> {
        let further_keys = self.further.as_ref().map_or(&[][..], |further| &further.keys);
        let object = self.further.as_ref().and_then(|further| further.object);
        Extensions { further_keys, identity: self.identity, object }
    }
}

/// The rarer extensions of a request, kept as long as it is.
#[derive(Debug)]
struct Further {
    keys: Vec<KeyHash>,
    object: Option<ObjectNote>,
}

impl Further {
    fn of(extensions: &Extensions<'_>) -> Option<Box<Further>> {
        let Extensions { further_keys, identity: _, object } = *extensions;
        let is_empty = further_keys.is_empty() && object.is_none();
        (!is_empty).then(|| Box::new(Further { keys: further_keys.to_vec(), object }))
    }
}

#[derive(Debug)]
struct Reply {
    epoch: Epoch,
    bytes: Vec<u8>,
    failed: bool,
    times: ResponseTail,
}

/// One session, from the client's side.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    state: State,
    handshake: ControlKeys,
    key_epoch: KeyEpoch,
    keys: Option<SessionKeys>,
    session: SessionId,
    epoch: Epoch,
    window: u32,
    /// The extensions that the server takes.
    offered: ExtensionSet,
    /// Everything up to here is stable, or a read that is complete.
    base: SeqNum,
    /// The requests after `base`, in order.
    entries: VecDeque<Entry>,
    /// Every request up to this one is complete.
    completed: SeqNum,
    /// No write up to this one can be lost: an early update up to here waits for no elder.
    safe: SeqNum,
    /// The replies completed since the server was last told of `completed`.
    untold_bytes: usize,
    stable: SeqNum,
    /// The epoch that answered the last completed read.
    read_epoch: Epoch,
    boots: Vec<(DeviceId, BootEpoch)>,
    pub(crate) responses: Reassembly,
    trip: RoundTrip,
    jitter: Jitter,
    /// Nothing is sent before, at the server's wish.
    busy_until: Nanos,
    state_timer: Nanos,
    heartbeat_at: Nanos,
    retry_at: Nanos,
    pub(crate) spare: Vec<Vec<u8>>,
    counters: ClientCounters,
}

impl Client {
    /// A session that is not open yet.
    pub fn new(config: ClientConfig) -> Client {
        let trip = RoundTrip::new(Nanos(config.rto_min.0.saturating_mul(5)));
        Client {
            state: State::New,
            handshake: config.cluster_key.controls(Direction::Handshake),
            key_epoch: KeyEpoch(0),
            keys: None,
            session: SessionId(0),
            epoch: Epoch(0),
            window: 0,
            offered: ExtensionSet::NONE,
            base: SeqNum(0),
            entries: VecDeque::new(),
            completed: SeqNum(0),
            safe: SeqNum(0),
            untold_bytes: 0,
            stable: SeqNum(0),
            read_epoch: Epoch(0),
            boots: Vec::new(),
            responses: Reassembly::new(RESPONSE_SETS_MAX, RESPONSE_SETS_MAX * RESPONSE_BYTES_MAX),
            trip,
            jitter: Jitter::new(config.seed),
            busy_until: Nanos(0),
            state_timer: Nanos::MAX,
            heartbeat_at: Nanos::MAX,
            retry_at: Nanos::MAX,
            spare: Vec::new(),
            counters: ClientCounters::default(),
            config,
        }
    }

    /// Starts opening the session.
    pub fn open(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        if self.state == State::New {
            self.state = State::Opening { tries: 0 };
            self.send_open(now, effects);
        }
    }

    /// Takes a request and sends it.
    pub fn submit(
        &mut self,
        now: Nanos,
        request: Request<'_>,
        effects: &mut Effects<ClientOwn>,
    ) -> Result<SeqNum, SubmitError> {
        self.take(now, request, &Extensions::NONE, effects)
    }

    /// Whether the server takes these extensions, and one packet holds them with so many bytes.
    pub fn takes(&self, payload_bytes: usize, extensions: &Extensions<'_>) -> bool {
        self.offered.has(extensions.set())
            && extensions.further_keys.len() <= FURTHER_KEYS_MAX
            && payload_bytes + extensions.bytes() <= PAYLOAD_BYTES_MAX
    }

    /// As [`Client::submit`], with extensions; the request must fit one packet with them.
    pub fn submit_extended(
        &mut self,
        now: Nanos,
        request: Request<'_>,
        extensions: &Extensions<'_>,
        effects: &mut Effects<ClientOwn>,
    ) -> Result<SeqNum, ExtendedError> {
        if self.state == State::Open && !self.offered.has(extensions.set()) {
            return Err(ExtendedError::NotOffered);
        }
        self.take(now, request, extensions, effects).map_err(ExtendedError::Submit)
    }

    fn take(
        &mut self,
        now: Nanos,
        request: Request<'_>,
        extensions: &Extensions<'_>,
        effects: &mut Effects<ClientOwn>,
    ) -> Result<SeqNum, SubmitError> {
        match self.state {
            State::New | State::Opening { .. } => return Err(SubmitError::NotOpen),
            State::Closing { .. } | State::Closed => return Err(SubmitError::Closed),
            State::Open => {}
        }
        let room = match extensions.bytes() {
            0 => REQUEST_BYTES_MAX,
            bytes => PAYLOAD_BYTES_MAX - bytes,
        };
        if request.payload.len() > room || extensions.further_keys.len() > FURTHER_KEYS_MAX {
            return Err(SubmitError::TooLarge);
        }
        if self.credit() == 0 {
            return Err(SubmitError::WindowFull);
        }
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.extend_from_slice(request.payload);
        self.entries.push_back(Entry {
            kind: request.kind,
            early: request.kind == RequestKind::Update && request.mode == Mode::Early,
            fixed_reply: request.fixed_reply,
            relaxed: request.relaxed,
            traced: request.traced,
            key_hash: request.key_hash,
            identity: extensions.identity,
            further: Further::of(extensions),
            payload,
            sent_at: now,
            tries: 0,
            retry_at: Nanos::MAX,
            acks: [None; DEVICES_MAX],
            reply: None,
            done: false,
        });
        self.counters.submitted += 1;
        let seq = self.highest();
        if self.entries.len() == 1 {
            self.heartbeat_at = now.plus(self.config.heartbeat_interval);
        }
        if now >= self.busy_until {
            self.send_entry(now, self.entries.len() - 1, effects);
        } else {
            self.schedule(self.entries.len() - 1, self.busy_until);
        }
        Ok(seq)
    }

    /// Takes the cluster's key anew, after a rotation. The session goes on under its epoch, or ends if that
    /// has been taken away: what is not complete then has an unknown outcome.
    pub fn set_cluster_key(&mut self, key: ClusterKey, effects: &mut Effects<ClientOwn>) {
        self.handshake = key.controls(Direction::Handshake);
        let ends = self.keys.is_some() && !key.has(self.key_epoch) && self.state != State::Closed;
        self.config.cluster_key = key;
        if ends {
            self.end(ClosedReason::KeyRemoved, effects);
        }
    }

    /// Ends the session once every update is stable; takes no more requests.
    pub fn close(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        match self.state {
            State::New | State::Opening { .. } => self.end(ClosedReason::Finished, effects),
            State::Open => {
                self.state = State::Closing { tries: 0 };
                self.state_timer = now;
                self.heartbeat_at = self.heartbeat_at.min(now.plus(self.config.heartbeat_interval));
                self.continue_closing(now, effects);
            }
            State::Closing { .. } | State::Closed => {}
        }
    }

    /// Ends the session at once, as [`ClosedReason::Unreachable`]: nothing of it is sent any more. What is not complete
    /// has an unknown outcome, and updates that are not stable are sent by nobody again.
    pub fn abandon(&mut self, effects: &mut Effects<ClientOwn>) {
        if self.state != State::Closed {
            self.end(ClosedReason::Unreachable, effects);
        }
    }

    /// Whether requests are taken.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether the session has ended.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The session's name, once it is open.
    pub fn session(&self) -> Option<SessionId> {
        self.keys.map(|_| self.session)
    }

    /// The server's epoch when the session was opened, once it is open.
    pub fn server_epoch(&self) -> Option<Epoch> {
        self.keys.map(|_| self.epoch)
    }

    /// The nonce by which an answer to the opening is recognised.
    pub fn client_nonce(&self) -> &Nonce {
        &self.config.client_nonce
    }

    /// How many more requests would be taken now.
    pub fn credit(&self) -> u32 {
        self.window.saturating_sub(self.entries.len() as u32)
    }

    /// How many requests are not complete.
    pub fn outstanding(&self) -> usize {
        self.highest().0.saturating_sub(self.completed.0) as usize
    }

    /// How many requests are kept: not complete, or complete and not known to be stable.
    pub fn kept(&self) -> usize {
        self.entries.len()
    }

    /// What was counted.
    pub fn counters(&self) -> &ClientCounters {
        &self.counters
    }

    fn highest(&self) -> SeqNum {
        SeqNum(self.base.0 + self.entries.len() as u64)
    }

    fn index(&self, seq: SeqNum) -> Option<usize> {
        let index = seq.0.checked_sub(self.base.0 + 1)? as usize;
        (index < self.entries.len()).then_some(index)
    }

    // ---- sending

    fn send_open(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        let State::Opening { tries } = self.state else { return };
        if tries >= self.config.open_tries_max {
            return self.end(ClosedReason::Unreachable, effects);
        }
        self.state = State::Opening { tries: tries + 1 };
        let wait = backoff(self.config.rto_min, self.config.rto_max, tries);
        self.state_timer = now.plus(self.jitter.around(wait));
        let mut header = Header::new(Kind::SessionOpen, SessionId(0), Epoch(0));
        header.set_offered(EXTENSIONS_TAKEN);
        let tail = Tail::Open(OpenTail {
            client_nonce: self.config.client_nonce,
            window_asked: self.config.window_asked,
            key_epoch: self.config.cluster_key.newest(),
        });
        let key = self.handshake.newest();
        effects.send(self.config.local, self.config.server, |out| emit(&header, &tail, &[], &key, out));
    }

    fn send_entry(&mut self, now: Nanos, index: usize, effects: &mut Effects<ClientOwn>) {
        let Some(keys) = self.keys else { return };
        let header = self.request_header(index);
        let entry = &mut self.entries[index];
        if entry.tries == 0 {
            entry.sent_at = now;
        } else {
            self.counters.retransmitted += 1;
        }
        let first_wait = if entry.done {
            self.config.stable_retry
        } else {
            self.trip.timeout(self.config.rto_min, self.config.rto_max)
        };
        let most = self.config.rto_max.max(self.config.stable_retry);
        let wait = self.jitter.around(backoff(first_wait, most, entry.tries));
        entry.tries += 1;
        self.untold_bytes = 0;
        let route = Route { from: self.config.local, to: self.config.server };
        let tail = Tail::Stamp(Stamp::default());
        let extensions = if header.flags.has(Flags::SKIP) { Extensions::NONE } else { entry.extensions() };
        let (payload, key) = (&entry.payload, &keys.client_to_server);
        if extensions == Extensions::NONE {
            send_whole(effects, route, &header, &tail, payload, key)
                .expect("the size was checked when the request was taken");
        } else {
            effects.send(route.from, route.to, |out| {
                emit_extended(&header, &tail, &extensions, payload, key, out);
            });
        }
        self.schedule(index, now.plus(wait));
    }

    fn request_header(&self, index: usize) -> Header {
        let entry = &self.entries[index];
        let mut header = Header::new(entry.kind.kind(), self.session, self.epoch);
        header.seq_num = SeqNum(self.base.0 + 1 + index as u64);
        header.key_hash = entry.key_hash;
        header.completed = self.completed;
        if entry.kind == RequestKind::Update {
            header.asked = self.config.asked;
            header.device_acks_asked = self.config.device_acks_asked;
        }
        let set = |flags: Flags, on: bool, flag: Flags| if on { flags.with(flag) } else { flags };
        header.flags = set(header.flags, entry.early, Flags::EARLY);
        header.flags = set(header.flags, entry.relaxed && entry.kind == RequestKind::Read, Flags::RELAXED);
        header.flags = set(header.flags, entry.traced, Flags::TRACED);
        header.flags = set(header.flags, entry.tries > 0, Flags::AGAIN);
        // A read whose answer we have is not executed again; a filler takes its place.
        let skip = entry.kind != RequestKind::Update && entry.has_answer();
        header.flags = set(header.flags, skip, Flags::SKIP);
        if skip {
            header.kind = Kind::Read;
            header.set_skip_first(header.seq_num);
        }
        header
    }

    fn schedule(&mut self, index: usize, at: Nanos) {
        self.entries[index].retry_at = at;
        self.retry_at = self.retry_at.min(at);
    }

    fn send_heartbeat(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        let Some(keys) = self.keys else { return };
        let mut header = Header::new(Kind::Heartbeat, self.session, self.epoch);
        header.completed = self.completed;
        let tail = Tail::Heartbeat(HeartbeatTail { highest: self.highest(), ..HeartbeatTail::default() });
        self.untold_bytes = 0;
        self.counters.heartbeats += 1;
        effects.send(self.config.local, self.config.server, |out| {
            emit(&header, &tail, &[], &keys.client_to_server, out);
        });
        let idle = self.entries.is_empty();
        let interval = if idle { self.config.idle_interval } else { self.config.heartbeat_interval };
        self.heartbeat_at = now.plus(interval);
    }

    fn continue_closing(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        let State::Closing { tries } = self.state else { return };
        if !self.entries.is_empty() {
            self.state_timer = Nanos::MAX;
            return;
        }
        let Some(keys) = self.keys else { return };
        if tries >= self.config.open_tries_max {
            // Everything is stable: the server will let the session expire.
            return self.end(ClosedReason::Finished, effects);
        }
        self.state = State::Closing { tries: tries + 1 };
        self.state_timer =
            now.plus(self.jitter.around(backoff(self.config.rto_min, self.config.rto_max, tries)));
        let mut header = Header::new(Kind::SessionClose, self.session, self.epoch);
        header.seq_num = self.base;
        header.completed = self.completed;
        let tail = Tail::Close(CloseTail { reason: CloseReason::ByClient });
        effects.send(self.config.local, self.config.server, |out| {
            emit(&header, &tail, &[], &keys.client_to_server, out);
        });
    }

    fn end(&mut self, reason: ClosedReason, effects: &mut Effects<ClientOwn>) {
        self.state = State::Closed;
        self.state_timer = Nanos::MAX;
        self.heartbeat_at = Nanos::MAX;
        self.retry_at = Nanos::MAX;
        self.entries.clear();
        effects.own(ClientOwn::Closed { reason });
    }

    // ---- receiving

    fn receive(
        &mut self,
        now: Nanos,
        message: &[u8],
        effects: &mut Effects<ClientOwn>,
    ) -> Result<(), WireError> {
        let packet = Packet::parse(message)?;
        if let Tail::Accept(accept) = packet.tail() {
            packet.verify(&self.handshake.of(key_epoch(&accept.server_nonce))?)?;
            self.on_accept(now, &packet, *accept, effects);
            return Ok(());
        }
        if packet.kind() == Kind::SessionClose && self.handshake.verify(&packet).is_ok() {
            return self.on_close_without_keys(now, &packet, effects);
        }
        let Some(keys) = self.keys.filter(|_| packet.session() == self.session) else {
            self.counters.foreign += 1;
            return Ok(());
        };
        self.receive_in_session(now, &packet, keys, effects)
    }

    fn receive_in_session(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        keys: SessionKeys,
        effects: &mut Effects<ClientOwn>,
    ) -> Result<(), WireError> {
        match (packet.kind(), packet.tail()) {
            (Kind::PersistAck, Tail::Stamp(stamp)) => {
                packet.verify(&keys.device_to_client)?;
                self.on_persist_ack(now, packet, *stamp);
            }
            (Kind::Response, Tail::Response(times)) => {
                let by_server = times.answered_by == Answerer::SERVER;
                packet.verify(if by_server { &keys.server_to_client } else { &keys.device_to_client })?;
                self.on_response(now, packet, *times)?;
            }
            (Kind::ServerAck, _) => {
                packet.verify(&keys.server_to_client)?;
                self.stable = self.stable.max(packet.seq_num());
            }
            (Kind::Heartbeat, Tail::Heartbeat(tail)) => {
                packet.verify(&keys.server_to_client)?;
                self.stable = self.stable.max(tail.stable);
                for record in packet.payload().chunks(LATE_STAMP_BYTES) {
                    effects.own(ClientOwn::LateStamp(LateStamp::read(record)?));
                }
            }
            (Kind::Retransmit, Tail::Range(range)) => {
                packet.verify(&keys.server_to_client)?;
                self.on_retransmit(now, *range, effects);
            }
            (Kind::Busy, Tail::Busy(tail)) => {
                packet.verify(&keys.server_to_client)?;
                self.counters.busy += 1;
                let most = self.config.rto_max;
                self.busy_until = self.busy_until.max(now.plus(Nanos(tail.backoff.0.min(most.0))));
            }
            (Kind::SessionClose, Tail::Close(tail)) => {
                packet.verify(&keys.server_to_client)?;
                self.on_close(now, packet.seq_num(), tail.reason, effects);
                return Ok(());
            }
            (
                Kind::SessionOpen
                | Kind::SessionAccept
                | Kind::SessionClose
                | Kind::Update
                | Kind::Read
                | Kind::Bypass
                | Kind::PersistAck
                | Kind::Response
                | Kind::Retransmit
                | Kind::RecoveryPoll
                | Kind::Manifest
                | Kind::Replay
                | Kind::Heartbeat
                | Kind::Lease
                | Kind::Busy
                | Kind::Drain,
                _,
            ) => self.counters.foreign += 1,
        }
        self.settle(now, effects);
        Ok(())
    }

    fn on_accept(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        accept: scotfree_wire::AcceptTail,
        effects: &mut Effects<ClientOwn>,
    ) {
        if accept.client_nonce != self.config.client_nonce || accept.window == 0 {
            self.counters.foreign += 1;
            return;
        }
        // A repeated acceptance is for a device that lost the session.
        let State::Opening { .. } = self.state else { return };
        let nonces = (&self.config.client_nonce, &accept.server_nonce);
        self.session = packet.session();
        self.epoch = packet.epoch();
        self.keys = Some(self.config.cluster_key.session(nonces.0, nonces.1, self.session, self.epoch));
        self.key_epoch = key_epoch(&accept.server_nonce);
        self.window = accept.window.min(self.config.window_asked);
        self.offered = packet.header().offered();
        self.state = State::Open;
        self.state_timer = Nanos::MAX;
        effects.own(ClientOwn::Opened { session: self.session, window: self.window });
        // Proves that we have the keys: openings whose client never speaks give way to others.
        self.send_heartbeat(now, effects);
    }

    fn on_persist_ack(&mut self, now: Nanos, packet: &Packet<'_>, stamp: Stamp) {
        self.notice_boot(now, stamp.device, stamp.boot_epoch);
        let Some(index) = self.index(packet.seq_num()) else { return };
        let asked = self.config.asked;
        let twice = self.config.planted.is(Fault::CountDeviceTwice);
        let entry = &mut self.entries[index];
        if !packet.header().granted.satisfies(asked) || entry.kind != RequestKind::Update {
            return;
        }
        self.counters.device_acks += 1;
        if entry.tries == 1 && entry.early {
            self.trip.measure(now.since(entry.sent_at));
        }
        let known = entry.acks.iter().flatten().position(|(device, _)| *device == stamp.device && !twice);
        let place = known.or_else(|| entry.acks.iter().position(Option::is_none));
        if let Some(place) = place {
            entry.acks[place] = Some((stamp.device, stamp.boot_epoch));
        }
    }

    /// A device that comes back with a new boot epoch may have lost its memory: what is not stable
    /// is sent again (rule 12).
    fn notice_boot(&mut self, now: Nanos, device: DeviceId, boot_epoch: BootEpoch) {
        let known = self.boots.iter().position(|(known, _)| *known == device);
        match known {
            Some(place) if self.boots[place].1 < boot_epoch => {
                self.boots[place].1 = boot_epoch;
                for index in 0..self.entries.len() {
                    if self.entries[index].kind == RequestKind::Update {
                        self.schedule(index, now);
                    }
                }
            }
            Some(_) => {}
            None if self.boots.len() < DEVICES_MAX => self.boots.push((device, boot_epoch)),
            None => self.counters.foreign += 1,
        }
    }

    fn on_response(&mut self, now: Nanos, packet: &Packet<'_>, times: ResponseTail) -> Result<(), WireError> {
        let Some(index) = self.index(packet.seq_num()) else { return Ok(()) };
        if self.entries[index].reply.is_some() || self.entries[index].done {
            return Ok(());
        }
        if !EXTENSIONS_TAKEN.has(packet.extensions().set()) {
            return Err(WireError::ExtensionNotOffered);
        }
        // Of writes devices say nothing but what they have logged.
        if times.answered_by != Answerer::SERVER && self.entries[index].kind != RequestKind::Read {
            return Err(WireError::InvalidField);
        }
        let Some(whole) = self.responses.offer(packet)? else { return Ok(()) };
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(&whole.payload);
        let entry = &mut self.entries[index];
        if entry.tries == 1 && !entry.early && entry.kind != RequestKind::Bypass {
            self.trip.measure(now.since(entry.sent_at));
        }
        entry.reply = Some(Reply {
            epoch: whole.header.epoch,
            bytes,
            failed: packet.flags().has(Flags::FAILED),
            times,
        });
        Ok(())
    }

    /// The server misses requests; whatever we still know of them is sent at once.
    fn on_retransmit(&mut self, now: Nanos, range: RangeTail, effects: &mut Effects<ClientOwn>) {
        if range.first >= 1 && range.first <= self.base.0 {
            self.send_filler(SeqNum(range.first), SeqNum(range.last.min(self.base.0)), effects);
        }
        let first = range.first.max(self.base.0 + 1);
        let last = range.last.min(first.saturating_add(self.config.burst_max as u64 - 1));
        for seq in first..=last {
            if let Some(index) = self.index(SeqNum(seq)) {
                self.send_entry(now, index, effects);
            }
        }
    }

    /// Takes the place of requests that are forgotten: reads that are complete, or stable writes.
    fn send_filler(&self, first: SeqNum, last: SeqNum, effects: &mut Effects<ClientOwn>) {
        let Some(keys) = self.keys else { return };
        let mut header = Header::new(Kind::Read, self.session, self.epoch);
        header.seq_num = last;
        header.set_skip_first(first);
        header.flags = Flags::SKIP.with(Flags::AGAIN);
        header.completed = self.completed;
        let tail = Tail::Stamp(Stamp::default());
        effects.send(self.config.local, self.config.server, |out| {
            emit(&header, &tail, &[], &keys.client_to_server, out);
        });
    }

    /// A server that does not hold the session's keys speaks under the cluster's: it has no room
    /// for the session, or does not know it (any more).
    fn on_close_without_keys(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        effects: &mut Effects<ClientOwn>,
    ) -> Result<(), WireError> {
        let Tail::Close(CloseTail { reason }) = *packet.tail() else { return Err(WireError::InvalidField) };
        let opening =
            matches!(self.state, State::Opening { .. }) && packet.payload() == self.config.client_nonce;
        let unknown =
            reason == CloseReason::UnknownSession && self.keys.is_some() && packet.session() == self.session;
        if opening || unknown {
            self.on_close(now, packet.seq_num(), reason, effects);
        } else {
            self.counters.foreign += 1;
        }
        Ok(())
    }

    fn on_close(&mut self, now: Nanos, seq: SeqNum, reason: CloseReason, effects: &mut Effects<ClientOwn>) {
        self.settle(now, effects);
        match reason {
            // Only of interest while we still want that reply.
            CloseReason::ReplyGone => {
                let wanted = self.index(seq).is_some_and(|index| !self.entries[index].has_answer());
                if wanted {
                    self.end(ClosedReason::Server(reason), effects);
                }
            }
            CloseReason::ByClient | CloseReason::UnknownSession
                if matches!(self.state, State::Closing { .. }) && self.entries.is_empty() =>
            {
                self.end(ClosedReason::Finished, effects);
            }
            CloseReason::ByClient => {}
            CloseReason::UnknownSession
            | CloseReason::ServerFailed
            | CloseReason::Expire
            | CloseReason::NoRoom
            | CloseReason::NoMemory => self.end(ClosedReason::Server(reason), effects),
        }
    }

    // ---- completing

    /// Completes what is ready, in session order, and forgets what is stable.
    fn settle(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        self.complete_ready(now, effects);
        self.forget_stable();
        if matches!(self.state, State::Closing { .. })
            && self.entries.is_empty()
            && self.state_timer == Nanos::MAX
        {
            self.continue_closing(now, effects);
        }
    }

    fn complete_ready(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        while let Some(index) = self.index(self.completed.next()) {
            if !self.entries[index].done {
                self.drop_outdated(now, index);
                let Some(answered_by) = self.ready(index) else { break };
                self.complete(now, index, answered_by, effects);
            }
            self.completed = self.completed.next();
            if self.untold_bytes >= UNTOLD_BYTES_MAX {
                self.send_heartbeat(now, effects);
            }
        }
        self.complete_early(now, effects);
    }

    /// Completes the early updates that devices hold and that wait for the answers of their elders only. If the
    /// client dies now, the server passes over the reads among these, and has every write from a log.
    fn complete_early(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        if self.config.asked == Durability::None || !self.config.early_overtakes {
            return;
        }
        self.safe = self.safe.max(self.completed);
        while let Some(index) = self.index(self.safe.next()) {
            let answered_by = self.ready(index).filter(|_| self.entries[index].early);
            if !self.is_safe(index) {
                return;
            }
            self.safe = self.safe.next();
            if let Some(answered_by) = answered_by.filter(|_| !self.entries[index].done) {
                self.complete(now, index, answered_by, effects);
            }
        }
    }

    /// Whether nothing that the request at `index` writes can be lost any more, should this client be lost.
    fn is_safe(&self, index: usize) -> bool {
        let stable = self.stable.0 > self.base.0 + index as u64;
        match self.entries[index].kind {
            RequestKind::Read => true,
            _ if self.config.planted.is(Fault::OvertakeUnsafe) && !self.entries[index].early => true,
            // Its answer was sent when it was stable.
            RequestKind::Bypass => stable || self.entries[index].reply.is_some(),
            RequestKind::Update => stable || !self.lacks_acks(index),
        }
    }

    fn complete(
        &mut self,
        now: Nanos,
        index: usize,
        answered_by: CompletedBy,
        effects: &mut Effects<ClientOwn>,
    ) {
        self.counters.completed_stable += u64::from(self.lacks_acks(index));
        let stable_retry = self.config.stable_retry;
        let seq = SeqNum(self.base.0 + 1 + index as u64);
        let entry = &mut self.entries[index];
        entry.done = true;
        let reply = entry.reply.take();
        let range = reply.as_ref().map(|reply| effects.append(|out| out.extend_from_slice(&reply.bytes)));
        effects.own(ClientOwn::Complete(Completion {
            seq,
            answered_by,
            reply: range,
            failed: reply.as_ref().is_some_and(|reply| reply.failed),
            times: reply.as_ref().map(|reply| reply.times).unwrap_or_default(),
        }));
        entry.tries = 1;
        let keep = entry.kind == RequestKind::Update;
        if let Some(reply) = reply {
            self.untold_bytes += reply.bytes.len();
            self.recycle(reply.bytes);
        }
        self.counters.completed += 1;
        self.counters.completed_early += u64::from(matches!(answered_by, CompletedBy::Device(_)));
        if keep {
            let wait = self.jitter.around(stable_retry);
            self.schedule(index, now.plus(wait));
        } else {
            let payload = std::mem::take(&mut self.entries[index].payload);
            self.recycle(payload);
            self.entries[index].retry_at = Nanos::MAX;
        }
    }

    /// A read that an older incarnation of the server answered, behind a read that a newer one did,
    /// may show an older state: it is asked again.
    fn drop_outdated(&mut self, now: Nanos, index: usize) {
        let entry = &mut self.entries[index];
        let reply = entry.reply.as_ref().filter(|_| entry.kind == RequestKind::Read);
        let Some((epoch, by)) = reply.map(|reply| (reply.epoch, reply.times.answered_by)) else { return };
        if epoch < self.read_epoch {
            entry.reply = None;
            // A device that has not heard of the newer one yet would say the same again at once.
            let wait = match by {
                Answerer::SERVER => Nanos(0),
                _ => self.trip.timeout(self.config.rto_min, self.config.rto_max),
            };
            self.schedule(index, now.plus(wait));
        }
        self.read_epoch = self.read_epoch.max(epoch);
    }

    /// Who completes the request at `index`, if it is complete (rule 8).
    fn ready(&self, index: usize) -> Option<CompletedBy> {
        let entry = &self.entries[index];
        let stable = self.stable.0 > self.base.0 + index as u64;
        if entry.kind != RequestKind::Update || self.config.asked == Durability::None {
            return entry.reply.as_ref().map(|reply| match reply.times.answered_by {
                Answerer::SERVER => CompletedBy::Server,
                function => CompletedBy::Function(function),
            });
        }
        let acknowledged = !self.lacks_acks(index);
        let last = entry.acks.iter().flatten().last().map(|(device, _)| CompletedBy::Device(*device));
        match (entry.early, &entry.reply) {
            (true, _) if acknowledged => last,
            (true, Some(_)) if stable => Some(CompletedBy::Server),
            (true, _) if stable => Some(CompletedBy::ServerAck),
            (false, Some(_)) if acknowledged || stable => Some(CompletedBy::Server),
            (false, Some(_)) if self.config.planted.is(Fault::CompleteWithoutAck) => {
                Some(CompletedBy::Server)
            }
            (false, None) if entry.fixed_reply && stable => Some(CompletedBy::ServerAck),
            (true | false, Some(_) | None) => None,
        }
    }

    /// Whether the request at `index` is an update that fewer devices have acknowledged than were asked.
    fn lacks_acks(&self, index: usize) -> bool {
        let entry = &self.entries[index];
        let asks = entry.kind == RequestKind::Update && self.config.asked != Durability::None;
        let acks = entry.acks.iter().flatten().count();
        asks && acks < usize::from(self.config.device_acks_asked.max(1))
    }

    fn forget_stable(&mut self) {
        let careless = self.config.planted.is(Fault::ForgetBeforeStable);
        while let Some(entry) = self.entries.front() {
            // The answer to anything but an update was sent when nothing of it could be lost any more.
            let kept = entry.kind == RequestKind::Update && self.config.asked != Durability::None;
            if !entry.done || (kept && self.stable <= self.base && !careless) {
                return;
            }
            self.base = self.base.next();
            self.responses.forget(self.session, self.base);
            if let Some(entry) = self.entries.pop_front() {
                self.recycle(entry.payload);
            }
        }
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        let is_buffer = (1..=SPARE_BYTES_MAX).contains(&bytes.capacity());
        if self.spare.len() < self.window as usize && is_buffer {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    fn retry_due(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        if now < self.busy_until {
            self.retry_at = self.busy_until;
            return;
        }
        let mut sent = 0;
        self.retry_at = Nanos::MAX;
        for index in 0..self.entries.len() {
            let due = self.entries[index].retry_at;
            if due > now || due == Nanos::MAX {
                self.retry_at = self.retry_at.min(due);
            } else if sent < self.config.burst_max {
                sent += 1;
                self.send_entry(now, index, effects);
            } else {
                // The rest goes with the next tick.
                self.schedule(index, now.plus(self.config.rto_min));
            }
        }
    }
}

impl Machine for Client {
    type Own = ClientOwn;

    fn on_message(
        &mut self,
        now: Nanos,
        _from: SocketAddr,
        _to: SocketAddr,
        message: &[u8],
        effects: &mut Effects<ClientOwn>,
    ) {
        if self.state == State::Closed {
            return;
        }
        if let Err(error) = self.receive(now, message, effects) {
            self.counters.refused[error as usize] += 1;
        }
    }

    fn on_persisted(&mut self, _now: Nanos, _token: Token, _effects: &mut Effects<ClientOwn>) {
        // A client persists nothing.
    }

    fn on_timer(&mut self, now: Nanos, effects: &mut Effects<ClientOwn>) {
        if self.state_timer <= now {
            match self.state {
                State::Opening { .. } => self.send_open(now, effects),
                State::Closing { .. } => self.continue_closing(now, effects),
                State::New | State::Open | State::Closed => self.state_timer = Nanos::MAX,
            }
        }
        if self.heartbeat_at <= now {
            self.send_heartbeat(now, effects);
        }
        if self.retry_at <= now {
            self.retry_due(now, effects);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let next = self.state_timer.min(self.heartbeat_at).min(self.retry_at);
        (next != Nanos::MAX).then_some(next)
    }
}
