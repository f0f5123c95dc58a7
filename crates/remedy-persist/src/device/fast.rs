//! A fast path before the machine: it admits, logs and acknowledges the most frequent packets by the same
//! rules, and the machine takes over what it has done before it decides anything itself.
//!
//! Invariant: machine and fast path never change the same session at once: its shell holds the session
//! while the machine has it, and tells the fast path afterwards what was touched.

use super::slots::{authentic, Keeper, Slot};
use super::{Device, DeviceOwn, PortNumber};
use scotfree_core::{BootEpoch, Durability, Effects, Epoch, Nanos, OrderNumber, SeqNum, SessionId};
use scotfree_wire::{Flags, Key, Nonce, Packet, SessionKeys, Stamp, WireError};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::SocketAddr;

/// Where order numbers come from: with a fast path, from a counter that it shares.
pub trait OrderCounter: Debug + Send {
    /// The last number given.
    fn current(&self) -> OrderNumber;
    /// Gives the next.
    fn next(&mut self) -> OrderNumber;
    /// Begins anew, with a new boot epoch.
    fn restart(&mut self);
}

/// A counter of the machine's own.
#[derive(Debug, Default)]
pub(super) struct OwnCounter(OrderNumber);

impl OrderCounter for OwnCounter {
    fn current(&self) -> OrderNumber {
        self.0
    }

    fn next(&mut self) -> OrderNumber {
        self.0 = self.0.next();
        self.0
    }

    fn restart(&mut self) {
        self.0 = OrderNumber(0);
    }
}

/// How far a fast path has come with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastSession {
    /// The only `seq_num` that it admits.
    pub next: SeqNum,
    /// The last write that it admitted.
    pub last_write: SeqNum,
    /// Everything up to here is stable.
    pub stable: SeqNum,
    /// When its client last spoke.
    pub heard_at: Nanos,
    /// Its client has spoken under the session's keys.
    pub confirmed: bool,
}

/// An entry that a fast path has logged.
#[derive(Debug, Clone, Copy)]
pub struct FastEntry<'a> {
    /// Its stamp.
    pub stamp: Stamp,
    /// Whether it has been acknowledged.
    pub acknowledged: bool,
    /// When it was logged.
    pub logged_at: Nanos,
    /// The request, as its client sent it.
    pub packet: &'a [u8],
}

/// What went wrong between the machine and its fast path; all of it should stay 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mishaps {
    /// Entries whose MAC did not fit: they are in nobody's log.
    pub damaged: u64,
    /// Entries that stayed in writing.
    pub stuck: u64,
    /// Sessions for which the fast path's log had no slots left: the machine handles their packets.
    pub without_slots: u64,
}

/// What a fast path has to know of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionView {
    /// How far it has come.
    pub reached: FastSession,
    /// The epoch in which it was opened.
    pub epoch: Epoch,
    /// Its keys.
    pub keys: SessionKeys,
    /// Its client.
    pub client: SocketAddr,
    /// The port that its requests come in by, once that is known.
    pub port: Option<PortNumber>,
    /// Its client's nonce.
    pub client_nonce: Nonce,
    /// The server's nonce.
    pub server_nonce: Nonce,
    /// Its credit.
    pub window: u32,
    /// Its place among the sessions of the device.
    pub region: u32,
    /// Nothing new is logged or acknowledged.
    pub closing: bool,
    /// How many entries it has.
    pub entry_count: u64,
}

/// What a fast path has to know of a request that the machine has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotView {
    /// Its stamp.
    pub stamp: Stamp,
    /// Whether it is an entry that is not stable.
    pub logged: bool,
    /// Whether the fast path holds the entry.
    pub fast: bool,
    /// The durability that was asked for.
    pub asked: Durability,
    /// The domains that have it.
    pub persisted: Durability,
    /// The domains that have not completed the slot's last write.
    pub writing: Durability,
    /// Whether it has been acknowledged.
    pub acknowledged: bool,
    /// When it was logged.
    pub logged_at: Nanos,
}

/// What the machine has changed since it was last asked.
#[derive(Debug, Default)]
pub struct Touched {
    /// Sessions, also such as are gone.
    pub sessions: BTreeSet<SessionId>,
    /// Slots of sessions.
    pub slots: BTreeSet<(SessionId, SeqNum)>,
}

impl Device {
    /// Puts a fast path before the machine, which shares `order` with it.
    pub fn share_with_fast_path(&mut self, order: Box<dyn OrderCounter>) {
        self.order = order;
        self.touched = Some(Touched::default());
    }

    /// Goes on as the incarnation that the fast path has kept alive.
    pub fn resume(&mut self, accepted: bool, lease_until: Nanos) {
        self.accepted = accepted;
        self.lease_until = lease_until;
    }

    /// What the fast path has logged of a session was verified under this key of its client's: of a session
    /// whose epoch was taken away nothing else can tell whether an entry is whole.
    pub fn keep_log_key(&mut self, id: SessionId, client_to_server: Key) {
        let revoked = self.sessions.get(&id).is_some_and(|session| self.is_revoked(session));
        if let Some(session) = self.sessions.get_mut(&id).filter(|_| revoked) {
            session.keys.client_to_server = client_to_server;
        }
    }

    /// What was changed since the last call; nothing without a fast path.
    pub fn take_touched(&mut self) -> Touched {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn touch_session(&mut self, id: SessionId) {
        if let Some(touched) = &mut self.touched {
            touched.sessions.insert(id);
        }
    }

    pub(super) fn touch_slot(&mut self, id: SessionId, seq: SeqNum) {
        if let Some(touched) = &mut self.touched {
            touched.slots.insert((id, seq));
        }
    }

    /// Takes over how far the fast path has come with a session.
    pub fn absorb_session(&mut self, id: SessionId, reached: &FastSession, effects: &mut Effects<DeviceOwn>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.next = session.next.max(reached.next);
        session.last_write = session.last_write.max(reached.last_write);
        session.heard_at = session.heard_at.max(reached.heard_at);
        session.confirmed |= reached.confirmed;
        session.passing = session.passing.split_off(&session.next);
        // What is freed here the fast path knows and has counted.
        self.release(id, reached.stable, effects);
    }

    /// Takes over an entry that the fast path has logged. What is kept on disk the machine sees to.
    pub fn absorb_entry(
        &mut self,
        entry: &FastEntry<'_>,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), WireError> {
        let packet = Packet::parse(entry.packet)?;
        let (id, seq, asked) = (packet.session(), packet.seq_num(), packet.header().asked);
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        if !authentic(&packet, session) {
            return Err(WireError::BadMac);
        }
        let place = session.place(seq);
        if seq <= session.stable || session.slots[place].logged {
            return Ok(());
        }
        let writing = asked.without(Durability::Ram);
        let logged = Slot {
            seq,
            stamp: entry.stamp,
            logged: true,
            keeper: Keeper::FastPath,
            asked,
            persisted: asked.without(Durability::Disk),
            writing,
            acknowledged: entry.acknowledged,
            early: packet.flags().has(Flags::EARLY),
            key_hash: packet.header().key_hash,
            logged_at: entry.logged_at,
            reforward_at: entry.logged_at.plus(self.config.reforward_after),
            reforward_tries: 0,
            payload: packet.payload().to_vec(),
        };
        self.put_entry(id, logged);
        self.boot_seen = self.boot_seen.max(entry.stamp.boot_epoch);
        self.write_entry(id, seq, writing, effects);
        Ok(())
    }

    /// Takes over the stamp of a request that the fast path has let pass unlogged.
    pub fn absorb_stamp(&mut self, id: SessionId, seq: SeqNum, stamp: Stamp) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let place = session.place(seq);
        let slot = &mut session.slots[place];
        if !slot.logged {
            slot.seq = seq;
            slot.stamp = stamp;
            slot.keeper = Keeper::Machine;
        }
    }

    /// Takes over that the fast path has acknowledged an entry.
    pub fn absorb_acknowledged(&mut self, id: SessionId, seq: SeqNum) {
        if let Some(slot) = self.sessions.get_mut(&id).and_then(|session| session.slot_mut(seq)) {
            slot.acknowledged = true;
        }
    }

    /// The entries of a session that the fast path holds and that, for all the machine knows, are not
    /// acknowledged.
    pub fn unacknowledged(&self, id: SessionId) -> impl Iterator<Item = SeqNum> + '_ {
        let is_open = |slot: &Slot| slot.keeper == Keeper::FastPath && !slot.acknowledged;
        self.sessions.get(&id).into_iter().flat_map(move |session| {
            session.live.iter().copied().filter(move |seq| session.slot(*seq).is_some_and(is_open))
        })
    }

    /// Takes over by which port a session's requests come in.
    pub fn absorb_port(&mut self, id: SessionId, port: PortNumber) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.port = Some(port);
        }
    }

    /// Marks everything as changed, for a fast path that has just begun.
    pub fn touch_all(&mut self) {
        let Some(touched) = &mut self.touched else { return };
        for (id, session) in &self.sessions {
            touched.sessions.insert(*id);
            touched.slots.extend(session.live.iter().map(|seq| (*id, *seq)));
        }
    }

    /// A session, as a fast path has to know it.
    pub fn session_view(&self, id: SessionId) -> Option<SessionView> {
        let session = self.sessions.get(&id)?;
        Some(SessionView {
            reached: FastSession {
                next: session.next,
                last_write: session.last_write,
                stable: session.stable,
                heard_at: session.heard_at,
                confirmed: session.confirmed,
            },
            epoch: session.epoch,
            keys: session.keys,
            client: session.client,
            // Without a port its packets are passed up, to be refused.
            port: session.port.filter(|_| !self.is_revoked(session)),
            client_nonce: session.client_nonce,
            server_nonce: session.server_nonce,
            window: session.window,
            region: session.region,
            closing: session.closing,
            entry_count: session.live.len() as u64,
        })
    }

    /// A request that the machine has seen, as a fast path has to know it.
    pub fn slot_view(&self, id: SessionId, seq: SeqNum) -> Option<SlotView> {
        let slot = self.sessions.get(&id)?.slot(seq)?;
        Some(SlotView {
            stamp: slot.stamp,
            logged: slot.logged,
            fast: slot.keeper == Keeper::FastPath,
            asked: slot.asked,
            persisted: slot.persisted,
            writing: slot.writing,
            acknowledged: slot.acknowledged,
            logged_at: slot.logged_at,
        })
    }

    /// Whether the server has accepted this incarnation.
    pub fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// The largest boot epoch that it has seen in a stamp.
    pub fn boot_seen(&self) -> BootEpoch {
        self.boot_seen
    }

    /// Until when it may acknowledge.
    pub fn lease_until(&self) -> Nanos {
        self.lease_until
    }

    /// What its persistence domains can give.
    pub fn media(&self) -> Durability {
        self.config.media
    }

    /// Whether it gives order numbers.
    pub fn is_head(&self) -> bool {
        self.config.head
    }

    /// Whether a new session finds a place.
    pub fn has_room(&self) -> bool {
        !self.regions_free.is_empty()
    }

    /// Whether its next timer looks for sessions to forget.
    pub fn forgets_at(&self, now: Nanos) -> bool {
        self.idle_check_at <= now
    }
}
