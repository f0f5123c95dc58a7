//! The device's role: a sequencer on the path that logs, forwards and acknowledges.
//!
//! Invariant: an update is acknowledged only after its record is durable at the level asked for
//! (rule 4), and its record is erased only after the server has said that it is stable (rule 6).

mod admit;
mod control;
mod fast;
mod origin;
mod record;
mod slots;

use scotfree_core::{
    BootEpoch, ByteRange, DeviceId, Durability, Effects, Epoch, KeyHash, Machine, Nanos, OrderKey, SeqNum,
    SessionId, Token,
};
use scotfree_session::{Fault, Planted};
use scotfree_wire::{
    key_epoch, ClusterKey, ControlKeys, Direction, Key, Packet, Reassembly, SessionKeys, WireError,
    WIRE_ERROR_COUNT,
};
use slots::{Session, Slot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

#[cfg(test)]
pub(crate) use control::PAGE_RECORDS_MAX;
pub use fast::{FastEntry, FastSession, Mishaps, OrderCounter, SessionView, SlotView, Touched};
pub use origin::{Origin, PortNumber};
pub use record::RestoreError;
pub use slots::DISK_TOKEN_BIT;

/// What a device is told at its start.
#[derive(Debug, Clone)]
pub struct DeviceConfig {
    /// Its name in the cluster.
    pub device: DeviceId,
    /// Its incarnation: larger than that of any earlier start, and durable already.
    pub boot_epoch: BootEpoch,
    /// The largest server epoch that polled an earlier incarnation.
    pub server_epoch: Epoch,
    /// The address of its control messages.
    pub address: SocketAddr,
    /// The server that it serves.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// Whether it is the first on the path, which gives order numbers.
    pub head: bool,
    /// What its persistence domains can give.
    pub media: Durability,
    /// The largest window it grants.
    pub window_max: u32,
    /// How many sessions it grants slots.
    pub sessions_max: u32,
    /// How long an entry may stay without `ServerAck` before it is sent to the server again.
    pub reforward_after: Nanos,
    /// The longest wait between two such sendings.
    pub reforward_wait_max: Nanos,
    /// How often it asks for a lease.
    pub lease_interval: Nanos,
    /// How many replays one message or one timer tick sends at most.
    pub replay_burst_max: u32,
    /// How long a session without entries and without traffic is remembered.
    pub idle_max: Nanos,
    /// A safety rule switched off, for tests.
    pub planted: Planted,
}

impl DeviceConfig {
    /// Defaults for a device with memory only, at the head of its chain.
    pub fn new(
        device: DeviceId,
        boot_epoch: BootEpoch,
        address: SocketAddr,
        server: SocketAddr,
        cluster_key: ClusterKey,
    ) -> DeviceConfig {
        DeviceConfig {
            device,
            boot_epoch,
            server_epoch: Epoch(0),
            address,
            server,
            cluster_key,
            head: true,
            media: Durability::Ram,
            window_max: 4096,
            sessions_max: 64,
            reforward_after: Nanos::from_millis(400),
            reforward_wait_max: Nanos::from_secs(10),
            lease_interval: Nanos::from_millis(300),
            replay_burst_max: 64,
            idle_max: Nanos::from_secs(600),
            planted: Planted::NONE,
        }
    }
}

/// What only the device's shell can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceOwn {
    /// Pass the message just received on along its way, with these bytes instead of its own. A
    /// message for which this is not said goes no further.
    Forward {
        /// The packet.
        bytes: ByteRange,
    },
    /// Make these durable before carrying out anything that was wished for later.
    SetMeta {
        /// The incarnation of this device.
        boot_epoch: BootEpoch,
        /// The largest server epoch that has polled it.
        server_epoch: Epoch,
    },
    /// Report `token` to `on_persisted` once all erasures wished for so far are durable.
    FlushErasures {
        /// What to report.
        token: Token,
    },
}

/// What a device has counted. Rule 15: `requests = admitted + unadmitted + duplicate + bad` and
/// `admitted_updates = logged + ungranted`.
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
    /// Of the admitted, updates.
    pub admitted_updates: u64,
    /// Of these, logged.
    pub logged: u64,
    /// Of these, not logged: no slot free, a durability that is not there, or a closing session.
    pub ungranted: u64,
    /// `PersistAck`s sent.
    pub persist_acks: u64,
    /// Entries freed by a `ServerAck`.
    pub freed: u64,
    /// Replays sent, on request or because of age.
    pub replays: u64,
    /// Of these, because of age.
    pub reforwarded: u64,
    /// Messages of past server epochs refused.
    pub past_epoch: u64,
    /// Acknowledgements withheld for want of a lease.
    pub without_lease: u64,
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
            admitted_updates: self.admitted_updates + other.admitted_updates,
            logged: self.logged + other.logged,
            ungranted: self.ungranted + other.ungranted,
            persist_acks: self.persist_acks + other.persist_acks,
            freed: self.freed + other.freed,
            replays: self.replays + other.replays,
            reforwarded: self.reforwarded + other.reforwarded,
            past_epoch: self.past_epoch + other.past_epoch,
            without_lease: self.without_lease + other.without_lease,
            refused: core::array::from_fn(|reason| self.refused[reason] + other.refused[reason]),
            sessions_refused: self.sessions_refused + other.sessions_refused,
        }
    }
}

/// What is acknowledged and not yet stable: what a loss of this device would endanger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnsafeNow {
    /// How many entries.
    pub entries: u64,
    /// How many bytes of payload.
    pub bytes: u64,
    /// When the oldest was logged.
    pub oldest_since: Option<Nanos>,
}

/// One log entry, for tools and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntryView<'a> {
    /// Its session.
    pub session: SessionId,
    /// Its place in the session.
    pub seq: SeqNum,
    /// Its stamp.
    pub stamp: scotfree_wire::Stamp,
    /// The durability that was asked for.
    pub asked: Durability,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// Whether it has been acknowledged.
    pub acknowledged: bool,
    /// The request.
    pub payload: &'a [u8],
}

/// The device on the path.
#[derive(Debug)]
pub struct Device {
    config: DeviceConfig,
    keys: DeviceKeys,
    sessions: BTreeMap<SessionId, Session>,
    regions_free: Vec<u32>,
    /// Live entries by order.
    live: BTreeMap<OrderKey, (SessionId, SeqNum)>,
    /// When to send a live entry to the server again.
    aged: BTreeSet<(Nanos, SessionId, SeqNum)>,
    pub(crate) fragments: Reassembly,
    order: Box<dyn OrderCounter>,
    /// What a fast path must be told, if there is one.
    touched: Option<Touched>,
    /// The largest boot epoch seen in a stamp.
    boot_seen: BootEpoch,
    server_epoch: Epoch,
    lease_until: Nanos,
    /// Whether the server has accepted this boot epoch: before, nothing is stamped under it.
    accepted: bool,
    lease_ask_at: Nanos,
    flushing: BTreeMap<Token, SessionId>,
    /// Sessions that the server has ended: an old acceptance does not bring them back.
    ended: VecDeque<SessionId>,
    flush_next: u64,
    idle_check_at: Nanos,
    counters: DeviceCounters,
}

#[derive(Debug)]
struct DeviceKeys {
    handshake: ControlKeys,
    stamp: ControlKeys,
    from_server: ControlKeys,
    to_server: Key,
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

/// How many ended sessions are remembered; beyond, the server's next poll ends them again.
pub(crate) const ENDED_MAX: usize = 4096;
/// How many fragmented updates can be incomplete at once.
pub(crate) const FRAGMENT_SETS_MAX: usize = 256;
/// How many bytes their fragments can hold at once.
pub(crate) const FRAGMENT_BYTES_MAX: usize = 4 << 20;

impl Device {
    /// A device with an empty log. [`Device::restore`] fills it before the first packet.
    pub fn new(config: DeviceConfig) -> Device {
        Device {
            keys: DeviceKeys::of(&config.cluster_key),
            sessions: BTreeMap::new(),
            regions_free: (0..config.sessions_max).rev().collect(),
            live: BTreeMap::new(),
            aged: BTreeSet::new(),
            fragments: Reassembly::new(FRAGMENT_SETS_MAX, FRAGMENT_BYTES_MAX),
            order: Box::new(fast::OwnCounter::default()),
            touched: None,
            boot_seen: config.boot_epoch,
            server_epoch: config.server_epoch,
            lease_until: Nanos(0),
            accepted: false,
            lease_ask_at: Nanos(0),
            flushing: BTreeMap::new(),
            ended: VecDeque::new(),
            flush_next: 0,
            idle_check_at: Nanos(0),
            counters: DeviceCounters::default(),
            config,
        }
    }

    /// Makes this device the head of its chain, after the operator has excluded the former one.
    pub fn promote(&mut self, effects: &mut Effects<DeviceOwn>) {
        if !self.config.head {
            self.config.head = true;
            self.raise_boot_epoch(BootEpoch(self.boot_seen.0 + 1), effects);
        }
    }

    /// Takes the cluster's key anew, after a rotation. The entries of a session whose epoch has been taken
    /// away stay until they are stable; its client is not heard any more, nor is what was made for it (rule 14).
    pub fn set_cluster_key(&mut self, key: ClusterKey) {
        self.keys = DeviceKeys::of(&key);
        for (id, session) in &mut self.sessions {
            let keys = key.session(&session.client_nonce, &session.server_nonce, *id, session.epoch);
            // What a fast path has logged shows by the client's own key that it is whole.
            let client_to_server = session.keys.client_to_server;
            let revoked = !key.has(key_epoch(&session.server_nonce));
            session.keys = if revoked { SessionKeys { client_to_server, ..keys } } else { keys };
        }
        for id in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.touch_session(id);
        }
        self.config.cluster_key = key;
    }

    /// Whether the epoch of the session's keys has been taken away.
    fn is_revoked(&self, session: &Session) -> bool {
        !self.config.cluster_key.has(key_epoch(&session.server_nonce)) && !self.planted(Fault::HearRemovedKey)
    }

    /// The key of the stamps that it makes.
    pub fn stamp_key(&self) -> Key {
        self.keys.stamp.newest()
    }

    /// Says what the domains can still give, after one of them has failed.
    pub fn set_media(&mut self, media: Durability) {
        self.config.media = media;
        // A domain that has failed completes nothing any more.
        let mut ended = Vec::new();
        for (id, session) in &mut self.sessions {
            for slot in &mut session.slots {
                let before = slot.writing;
                for failed in [Durability::Ram, Durability::Disk] {
                    if !media.satisfies(failed) {
                        slot.writing = slot.writing.without(failed);
                    }
                }
                if slot.writing != before {
                    ended.push((*id, slot.seq));
                }
            }
        }
        for (id, seq) in ended {
            self.touch_slot(id, seq);
        }
    }

    /// A domain had no room for what was wished for under `token`: it will not be acknowledged, and
    /// its slot is free for others once the server has it.
    pub fn on_refused(&mut self, token: Token) {
        self.end_write(token);
    }

    /// What was counted.
    pub fn counters(&self) -> &DeviceCounters {
        &self.counters
    }

    /// Whether it may acknowledge at `now`.
    pub fn has_lease(&self, now: Nanos) -> bool {
        now < self.lease_until
    }

    /// Its incarnation.
    pub fn boot_epoch(&self) -> BootEpoch {
        self.config.boot_epoch
    }

    /// The largest server epoch that has polled it.
    pub fn server_epoch(&self) -> Epoch {
        self.server_epoch
    }

    /// How many sessions have slots.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// What is acknowledged and not yet stable.
    pub fn unsafe_now(&self) -> UnsafeNow {
        let mut gauge = UnsafeNow::default();
        for (_, slot) in self.live_slots().filter(|(_, slot)| slot.acknowledged) {
            gauge.entries += 1;
            gauge.bytes += slot.payload.len() as u64;
            gauge.oldest_since =
                Some(gauge.oldest_since.map_or(slot.logged_at, |oldest| oldest.min(slot.logged_at)));
        }
        gauge
    }

    /// The live entries in order.
    pub fn entries(&self) -> impl Iterator<Item = LogEntryView<'_>> {
        self.live_slots().map(|(session, slot)| LogEntryView {
            session,
            seq: slot.seq,
            stamp: slot.stamp,
            asked: slot.asked,
            key_hash: slot.key_hash,
            acknowledged: slot.acknowledged,
            payload: &slot.payload,
        })
    }

    fn live_slots(&self) -> impl Iterator<Item = (SessionId, &Slot)> {
        self.live
            .values()
            .filter_map(|(session, seq)| Some((*session, self.sessions.get(session)?.slot(*seq)?)))
    }

    /// A message has come in by a port of the device. [`Machine::on_message`] is for shells that do not tell
    /// ports apart: then sessions are bound to their clients' addresses alone.
    pub fn on_arrival(
        &mut self,
        now: Nanos,
        origin: Origin,
        to: SocketAddr,
        message: &[u8],
        effects: &mut Effects<DeviceOwn>,
    ) {
        if let Err(error) = self.receive(now, origin, to, message, effects) {
            self.counters.refused[error as usize] += 1;
        }
    }

    fn receive(
        &mut self,
        now: Nanos,
        origin: Origin,
        to: SocketAddr,
        message: &[u8],
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), WireError> {
        let packet = Packet::parse(message)?;
        if to == self.config.address {
            return self.on_control(now, &packet, effects);
        }
        if origin.address == self.config.server {
            return self.on_server_passing(now, to, &packet, effects);
        }
        // Sessions of another server may bear the same names.
        if packet.kind().is_request() && to == self.config.server {
            self.on_request(now, origin, &packet, effects)
        } else {
            forward(effects, message);
            Ok(())
        }
    }
}

/// Passes the message just received on.
fn forward(effects: &mut Effects<DeviceOwn>, bytes: &[u8]) {
    let bytes = effects.append(|out| out.extend_from_slice(bytes));
    effects.own(DeviceOwn::Forward { bytes });
}

impl Machine for Device {
    type Own = DeviceOwn;

    fn on_message(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        to: SocketAddr,
        message: &[u8],
        effects: &mut Effects<DeviceOwn>,
    ) {
        self.on_arrival(now, Origin { address: from, port: None }, to, message, effects);
    }

    fn on_persisted(&mut self, now: Nanos, token: Token, effects: &mut Effects<DeviceOwn>) {
        if let Some(session) = self.flushing.remove(&token) {
            return self.confirm_empty(session, effects);
        }
        self.on_record_persisted(now, token, effects);
    }

    fn on_timer(&mut self, now: Nanos, effects: &mut Effects<DeviceOwn>) {
        if self.lease_ask_at <= now {
            self.ask_for_lease(now, effects);
        }
        self.reforward_aged(now, effects);
        if self.idle_check_at <= now {
            self.forget_idle(now, effects);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let aged = self.aged.first().map_or(Nanos::MAX, |(due, _, _)| *due);
        Some(self.lease_ask_at.min(aged).min(self.idle_check_at))
    }
}

impl Device {
    fn planted(&self, fault: Fault) -> bool {
        self.config.planted.is(fault)
    }
}
