//! What all functions share: the directory of sessions, the sequencer, and what each server has said.
//!
//! Invariant: a session is changed here and nowhere else; functions see it and ask for changes.

use crate::answers::Room;
use crate::config::DeviceConfig;
use crate::effects::DeviceEffects;
use crate::restore::RestoreError;
use crate::roomless::RoomlessSessions;
use crate::sequencer::Sequencer;
use crate::sessions::{Beginning, Noted, Region, SessionBase, SessionName, Sessions};
use crate::touched::Touched;
use scotfree_core::{BootEpoch, DeviceId, Epoch, Nanos, OrderNumber, SeqNum, ServerIndex, SessionId, Token};
use scotfree_session::Fault;
use scotfree_wire::{
    emit, key_epoch, ClusterKey, ControlKeys, Direction, Header, Key, Nonce, Reassembly, SessionKeys, Stamp,
    Tail, WIRE_ERROR_COUNT,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// How many ended sessions are remembered; beyond, the server's next poll ends them again.
pub const ENDED_MAX: usize = 4096;
/// How many fragmented requests to one server can be incomplete at once.
pub const FRAGMENT_SETS_MAX: usize = 256;
/// How many bytes their fragments can hold at once.
pub const FRAGMENT_BYTES_MAX: usize = 4 << 20;

/// What a device has counted. Rule 15: `requests = admitted + unadmitted + duplicate + bad`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceCounters {
    /// Requests seen.
    pub requests: u64,
    /// Requests that were the next of their session.
    pub admitted: u64,
    /// Requests forwarded without a stamp.
    pub unadmitted: u64,
    /// Requests seen before.
    pub duplicate: u64,
    /// Requests dropped because they were not authentic.
    pub bad: u64,
    /// Of the admitted, reads that a function answered.
    pub answered: u64,
    /// Words to the server that it is to pass over what was answered.
    pub passed_over: u64,
    /// Messages of past server epochs refused.
    pub past_epoch: u64,
    /// Packets refused, by reason.
    pub refused: [u64; WIRE_ERROR_COUNT],
    /// Sessions not granted because all regions were taken or the window was too large.
    pub sessions_refused: u64,
}

impl DeviceCounters {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            requests: self.requests + other.requests,
            admitted: self.admitted + other.admitted,
            unadmitted: self.unadmitted + other.unadmitted,
            duplicate: self.duplicate + other.duplicate,
            bad: self.bad + other.bad,
            answered: self.answered + other.answered,
            passed_over: self.passed_over + other.passed_over,
            past_epoch: self.past_epoch + other.past_epoch,
            refused: core::array::from_fn(|reason| self.refused[reason] + other.refused[reason]),
            sessions_refused: self.sessions_refused + other.sessions_refused,
        }
    }
}

/// What a server has said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Authority {
    pub(crate) epoch: Epoch,
    /// The largest epoch under which it has said anything to the device; `epoch` is of its polls.
    pub(crate) heard: Epoch,
    pub(crate) lease_until: Nanos,
    /// Whether it has accepted this boot epoch: before, nothing is stamped under it.
    pub(crate) accepted: bool,
    pub(crate) lease_ask_at: Nanos,
}

/// The keys of what passes between device and servers.
#[derive(Debug)]
pub(crate) struct DeviceKeys {
    pub(crate) handshake: ControlKeys,
    pub(crate) stamp: ControlKeys,
    pub(crate) from_server: ControlKeys,
    pub(crate) to_server: Key,
}

impl DeviceKeys {
    fn of(cluster: &ClusterKey) -> DeviceKeys {
        DeviceKeys {
            handshake: cluster.controls(Direction::Handshake),
            stamp: cluster.controls(Direction::Stamp),
            from_server: cluster.controls(Direction::ServerToDevice),
            to_server: cluster.control(Direction::DeviceToServer),
        }
    }
}

/// What all functions of a device share.
#[derive(Debug)]
pub struct Base {
    pub(crate) config: DeviceConfig,
    pub(crate) keys: DeviceKeys,
    pub(crate) sessions: Sessions,
    pub(crate) roomless: RoomlessSessions,
    pub(crate) sequencer: Sequencer,
    pub(crate) authorities: Vec<Authority>,
    /// Incomplete requests, by server.
    pub(crate) fragments: Vec<Reassembly>,
    /// The largest boot epoch seen in a stamp.
    pub(crate) boot_seen: BootEpoch,
    /// Sessions whose end waits for their erasures.
    pub(crate) flushing: BTreeMap<Token, SessionName>,
    pub(crate) flush_next: u64,
    /// Sessions that the server has ended: an old acceptance does not bring them back.
    pub(crate) ended: VecDeque<SessionName>,
    pub(crate) idle_check_at: Nanos,
    pub(crate) answer_room: Room,
    pub(crate) answers_waiting: usize,
    pub(crate) counters: DeviceCounters,
    /// The window of the session that was refused last, if it was too large.
    pub(crate) refused_window: Option<u32>,
    touched: Option<Touched>,
}

impl Base {
    pub(crate) fn new(config: DeviceConfig) -> Base {
        let authority = |server: &crate::config::Served| Authority {
            epoch: server.epoch,
            heard: server.epoch,
            lease_until: Nanos(0),
            accepted: false,
            lease_ask_at: Nanos(0),
        };
        let reassembly = |_: &crate::config::Served| Reassembly::new(FRAGMENT_SETS_MAX, FRAGMENT_BYTES_MAX);
        Base {
            keys: DeviceKeys::of(&config.cluster_key),
            sessions: Sessions::new(config.sessions_max),
            roomless: RoomlessSessions::default(),
            sequencer: Sequencer::new(config.servers.len()),
            authorities: config.servers.iter().map(authority).collect(),
            fragments: config.servers.iter().map(reassembly).collect(),
            boot_seen: config.boot_epoch,
            flushing: BTreeMap::new(),
            flush_next: 0,
            ended: VecDeque::new(),
            idle_check_at: Nanos(0),
            answer_room: Room::new(config.answers_bytes_max),
            answers_waiting: 0,
            counters: DeviceCounters::default(),
            refused_window: None,
            touched: None,
            config,
        }
    }

    pub(crate) fn planted(&self, fault: Fault) -> bool {
        self.config.planted.is(fault)
    }

    pub(crate) fn authority(&self, server: ServerIndex) -> &Authority {
        &self.authorities[usize::from(server.0)]
    }

    pub(crate) fn authority_mut(&mut self, server: ServerIndex) -> &mut Authority {
        &mut self.authorities[usize::from(server.0)]
    }

    // ---- what functions see

    /// The window of the session that was refused last, if that was the reason; otherwise all places were taken.
    pub fn refused_window(&self) -> Option<u32> {
        self.refused_window
    }

    /// What it was told at its start.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Its name.
    pub fn device(&self) -> DeviceId {
        self.config.device
    }

    /// Its incarnation.
    pub fn boot_epoch(&self) -> BootEpoch {
        self.config.boot_epoch
    }

    /// The largest boot epoch that it has seen in a stamp.
    pub fn boot_seen(&self) -> BootEpoch {
        self.boot_seen
    }

    /// Whether it gives order numbers.
    pub fn is_head(&self) -> bool {
        self.config.head
    }

    /// The directory of sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// The window of a session that there was no room for, whose server's word is believed all the same.
    pub fn roomless_window(&self, name: SessionName) -> Option<u32> {
        self.roomless.window(name)
    }

    /// The session of a region.
    pub fn session(&self, region: Region) -> Option<&SessionBase> {
        self.sessions.get(region)
    }

    /// How many servers it serves.
    pub fn server_count(&self) -> usize {
        self.config.servers.len()
    }

    /// The address of a server.
    pub fn server_address(&self, server: ServerIndex) -> SocketAddr {
        self.config.server(server).address
    }

    /// The largest epoch of a server that has polled it.
    pub fn server_epoch(&self, server: ServerIndex) -> Epoch {
        self.authority(server).epoch
    }

    /// The largest epoch under which a server has said anything to the device: answers bear it.
    pub fn heard_epoch(&self, server: ServerIndex) -> Epoch {
        let authority = self.authority(server);
        authority.epoch.max(authority.heard)
    }

    /// Whether it may acknowledge and answer for a server at `now` (rule 4).
    pub fn has_lease(&self, server: ServerIndex, now: Nanos) -> bool {
        now < self.authority(server).lease_until
    }

    /// Until when it may.
    pub fn lease_until(&self, server: ServerIndex) -> Nanos {
        self.authority(server).lease_until
    }

    /// Whether a server has accepted this incarnation.
    pub fn is_accepted(&self, server: ServerIndex) -> bool {
        self.authority(server).accepted
    }

    /// The last number given in a server's order.
    pub fn order_current(&self, server: ServerIndex) -> OrderNumber {
        self.sequencer.current(server)
    }

    /// The incomplete requests to a server.
    pub fn fragments(&self, server: ServerIndex) -> &Reassembly {
        &self.fragments[usize::from(server.0)]
    }

    /// The key of the stamps that it makes.
    pub fn stamp_key(&self) -> Key {
        self.keys.stamp.newest()
    }

    /// The key of what it tells a server.
    pub fn to_server_key(&self) -> Key {
        self.keys.to_server
    }

    /// What was counted.
    pub fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    /// Tells a server something.
    pub fn send_to_server(
        &self,
        server: ServerIndex,
        header: &Header,
        tail: &Tail,
        payload: &[u8],
        effects: &mut DeviceEffects,
    ) {
        let key = self.keys.to_server;
        let to = self.server_address(server);
        effects.send(self.config.address, to, |out| emit(header, tail, payload, &key, out));
    }

    // ---- what functions ask for

    /// A function's log holds a request from now on. What its place held before, if it held something: that is
    /// held no more.
    pub fn hold(&mut self, region: Region, seq: SeqNum, stamp: Stamp) -> Option<Noted> {
        self.boot_seen = self.boot_seen.max(stamp.boot_epoch);
        self.sessions.get_mut(region)?.hold(seq, stamp)
    }

    /// A function's log has made a request as durable as was asked for: others may show what it wrote.
    pub fn note_durable(&mut self, region: Region, seq: SeqNum) {
        if let Some(session) = self.sessions.get_mut(region) {
            session.note_durable(seq);
        }
    }

    /// A function's log lets a request go; whether one held it.
    pub fn let_go(&mut self, region: Region, seq: SeqNum) -> bool {
        self.sessions.get_mut(region).is_some_and(|session| session.let_go(seq))
    }

    /// A session has come so far, as a log or a fast path tells.
    pub fn advance(&mut self, region: Region, next: SeqNum, last_write: SeqNum) {
        let Some(session) = self.sessions.get_mut(region) else { return };
        session.next = session.next.max(next);
        session.last_write = session.last_write.max(last_write);
        session.forget_passed();
    }

    /// Everything of a session up to `stable` is stable; whether that is news.
    pub fn note_stable(&mut self, region: Region, stable: SeqNum) -> bool {
        let Some(session) = self.sessions.get_mut(region).filter(|session| session.stable < stable) else {
            return false;
        };
        session.stable = stable;
        // A request that was stable before it passed here will not pass any more.
        session.next = session.next.max(stable.next());
        session.forget_passed();
        true
    }

    /// Brings back a session that a log knows, in the region that it had.
    pub fn restore_session(
        &mut self,
        now: Nanos,
        region: Region,
        name: SessionName,
        (epoch, client, window): (Epoch, SocketAddr, u32),
        (client_nonce, server_nonce): (Nonce, Nonce),
    ) -> Result<Restored, RestoreError> {
        if usize::from(name.server.0) >= self.server_count() {
            return Err(RestoreError::Server(name.server.0));
        }
        if let Some(found) = self.sessions.find(name) {
            return if found == region { Ok(Restored::Known) } else { Err(RestoreError::Layout) };
        }
        if !self.sessions.is_free(region) || window == 0 || window > self.config.window_max {
            return Err(RestoreError::Layout);
        }
        let beginning = Beginning { name, epoch, client_nonce, server_nonce, client, window };
        self.begin_session(now, region, &beginning);
        Ok(Restored::New)
    }

    pub(crate) fn begin_session(&mut self, now: Nanos, region: Region, beginning: &Beginning) {
        let Beginning { name, epoch, client_nonce, server_nonce, .. } = beginning;
        let keys = self.config.cluster_key.session(client_nonce, server_nonce, name.id, *epoch);
        let revoked = self.has_lost(server_nonce);
        self.roomless.forget(*name);
        self.sessions.insert(region, SessionBase::new(now, beginning, keys, revoked));
    }

    // ---- keys

    fn has_lost(&self, server_nonce: &Nonce) -> bool {
        !self.config.cluster_key.has(key_epoch(server_nonce)) && !self.planted(Fault::HearRemovedKey)
    }

    /// Takes the cluster's key anew; `each` is told of every session and whether its epoch was taken away.
    pub(crate) fn set_cluster_key(&mut self, key: ClusterKey) {
        self.keys = DeviceKeys::of(&key);
        self.config.cluster_key = key;
        self.roomless.keep(&self.config.cluster_key);
        let regions: Vec<Region> = self.sessions.iter().map(|(region, _)| region).collect();
        for region in regions {
            let Some(session) = self.sessions.get(region) else { continue };
            let (client, server, id) = (&session.client_nonce, &session.server_nonce, session.name.id);
            let keys = self.config.cluster_key.session(client, server, id, session.epoch);
            let (is_gone, revoked) = (!self.config.cluster_key.has(key_epoch(server)), self.has_lost(server));
            let Some(session) = self.sessions.get_mut(region) else { continue };
            // What a fast path has logged shows by the client's own key that it is whole.
            let client_to_server = session.keys.client_to_server;
            session.keys = if is_gone { SessionKeys { client_to_server, ..keys } } else { keys };
            session.revoked = revoked;
            let name = session.name;
            self.touch_session(name);
        }
    }

    // ---- what a fast path must be told

    /// Puts a fast path before the machine: from now on what changes is noted for it.
    pub fn note_touched(&mut self) {
        self.touched = Some(Touched::default());
    }

    /// What was changed since the last call; nothing without a fast path.
    pub fn take_touched(&mut self) -> Touched {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Marks everything as changed, for a fast path that has just begun.
    pub fn touch_all(&mut self) {
        let Some(touched) = &mut self.touched else { return };
        for (_, session) in self.sessions.iter() {
            touched.sessions.insert(session.name);
            touched.slots.extend(session.held().map(|seq| (session.name, seq)));
        }
    }

    /// A session has changed.
    pub fn touch_session(&mut self, name: SessionName) {
        if let Some(touched) = &mut self.touched {
            touched.sessions.insert(name);
        }
    }

    /// Something about a request has changed.
    pub fn touch_slot(&mut self, name: SessionName, seq: SeqNum) {
        if let Some(touched) = &mut self.touched {
            touched.slots.insert((name, seq));
        }
    }

    /// Goes on as the incarnation that a fast path has kept alive.
    pub fn resume(&mut self, server: ServerIndex, accepted: bool, lease_until: Nanos) {
        let authority = self.authority_mut(server);
        authority.accepted = accepted;
        authority.lease_until = lease_until;
    }

    /// Counts a server's order with a counter that a fast path counts with too.
    pub fn share_order(&mut self, server: ServerIndex, counter: Box<dyn crate::OrderCounter>) {
        self.sequencer.share(server, counter);
    }

    /// Takes over what a fast path has heard of a session's client.
    pub fn absorb_heard(&mut self, region: Region, heard_at: Nanos, confirmed: bool) {
        if let Some(session) = self.sessions.get_mut(region) {
            session.heard_at = session.heard_at.max(heard_at);
            session.confirmed |= confirmed;
        }
    }

    /// Takes over by which port a session's requests come in.
    pub fn absorb_port(&mut self, region: Region, port: crate::PortNumber) {
        if let Some(session) = self.sessions.get_mut(region) {
            session.port = Some(port);
        }
    }

    /// Takes over the stamp of a request that a fast path has let pass unlogged.
    pub fn absorb_stamp(&mut self, region: Region, seq: SeqNum, stamp: Stamp) {
        if let Some(session) = self.sessions.get_mut(region) {
            session.note(seq, stamp);
        }
    }

    /// What a fast path has logged of a session was verified under this key of its client's: of a session
    /// whose epoch was taken away nothing else can tell whether an entry is whole.
    pub fn keep_log_key(&mut self, region: Region, client_to_server: Key) {
        if let Some(session) = self.sessions.get_mut(region).filter(|session| session.revoked) {
            session.keys.client_to_server = client_to_server;
        }
    }

    /// Whether the next timer looks for sessions to forget.
    pub fn forgets_at(&self, now: Nanos) -> bool {
        self.idle_check_at <= now
    }

    /// The session of this id with this server.
    pub fn find(&self, server: ServerIndex, id: SessionId) -> Option<Region> {
        self.sessions.find(SessionName { server, id })
    }
}

/// How a session was brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restored {
    /// It is new here.
    New,
    /// It was here already.
    Known,
}
