//! A fast path before persist: it admits, logs and acknowledges the most frequent packets by the same
//! rules, and persist and its base take over what it has done before they decide anything themselves.
//!
//! Invariant: machine and fast path never change the same session at once: its shell holds the session
//! while the machine has it, and tells the fast path afterwards what was touched.

use crate::log::Persist;
use scotfree_core::{BootEpoch, Durability, Epoch, Nanos, SeqNum, ServerIndex};
use scotfree_device::{Base, DeviceEffects, OrderCounter, PortNumber, Region, SessionName, Touched};
use scotfree_wire::{Flags, Key, Nonce, Packet, SessionKeys, Stamp, WireError};
use std::net::SocketAddr;

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

/// Persist and its base, as a fast path sees them.
#[derive(Debug)]
pub struct FastSide<'a> {
    base: &'a mut Base,
    persist: &'a mut Persist,
}

impl<'a> FastSide<'a> {
    /// Of a device's base and its persist.
    pub fn new(base: &'a mut Base, persist: &'a mut Persist) -> FastSide<'a> {
        FastSide { base, persist }
    }

    /// Puts a fast path before them, which counts the order of `server` with `order`.
    pub fn share(&mut self, server: ServerIndex, order: Box<dyn OrderCounter>) {
        self.base.share_order(server, order);
        self.base.note_touched();
    }

    /// Goes on as the incarnation that the fast path has kept alive.
    pub fn resume(&mut self, server: ServerIndex, accepted: bool, lease_until: Nanos) {
        self.base.resume(server, accepted, lease_until);
    }

    /// What they share with every function.
    pub fn base(&self) -> &Base {
        self.base
    }

    fn region(&self, name: SessionName) -> Option<Region> {
        self.base.sessions().find(name)
    }

    /// What the fast path has logged of a session was verified under this key of its client's: of a session
    /// whose epoch was taken away nothing else can tell whether an entry is whole.
    pub fn keep_log_key(&mut self, name: SessionName, client_to_server: Key) {
        if let Some(region) = self.region(name) {
            self.base.keep_log_key(region, client_to_server);
        }
    }

    /// What was changed since the last call; nothing without a fast path.
    pub fn take_touched(&mut self) -> Touched {
        self.base.take_touched()
    }

    /// Marks everything as changed, for a fast path that has just begun.
    pub fn touch_all(&mut self) {
        self.base.touch_all();
    }

    /// Takes over how far the fast path has come with a session.
    pub fn absorb_session(&mut self, name: SessionName, reached: &FastSession, effects: &mut DeviceEffects) {
        let Some(region) = self.region(name) else { return };
        self.base.advance(region, reached.next, reached.last_write);
        self.base.absorb_heard(region, reached.heard_at, reached.confirmed);
        // What is freed here the fast path knows and has counted.
        if self.base.note_stable(region, reached.stable) {
            self.persist.release(self.base, region, reached.stable, effects);
        }
    }

    /// Takes over an entry that the fast path has logged. What is kept on disk the machine sees to.
    pub fn absorb_entry(
        &mut self,
        server: ServerIndex,
        entry: &FastEntry<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        let packet = Packet::parse(entry.packet)?;
        let (seq, asked) = (packet.seq_num(), packet.header().asked);
        let Some(region) = self.base.find(server, packet.session()) else { return Ok(()) };
        let Some(session) = self.base.session(region) else { return Ok(()) };
        packet.verify(&session.keys.client_to_server)?;
        let place = session.place(seq);
        if seq <= session.stable || session.noted_at(place).held {
            return Ok(());
        }
        let writing = asked.without(Durability::Ram);
        let due = entry.logged_at.plus(self.persist.config.reforward_after);
        let Some(slot) = self.persist.slot_mut(region, place) else { return Ok(()) };
        slot.fast = Some(seq);
        slot.asked = asked;
        slot.persisted = asked.without(Durability::Disk);
        slot.writing = writing;
        slot.acknowledged = entry.acknowledged;
        slot.early = packet.flags().has(Flags::EARLY);
        slot.key_hash = packet.header().key_hash;
        slot.logged_at = entry.logged_at;
        slot.reforward_tries = 0;
        slot.payload.clear();
        slot.payload.extend_from_slice(packet.payload());
        self.persist.put_entry(self.base, region, (seq, entry.stamp), due);
        self.persist.write_entry(self.base, region, seq, writing, effects);
        Ok(())
    }

    /// Takes over the stamp of a request that the fast path has let pass unlogged.
    pub fn absorb_stamp(&mut self, name: SessionName, seq: SeqNum, stamp: Stamp) {
        let Some(region) = self.region(name) else { return };
        self.base.absorb_stamp(region, seq, stamp);
    }

    /// Takes over that the fast path has acknowledged an entry.
    pub fn absorb_acknowledged(&mut self, name: SessionName, seq: SeqNum) {
        let Some(region) = self.region(name) else { return };
        let place = self.base.session(region).filter(|session| session.noted(seq).is_some());
        let Some(place) = place.map(|session| session.place(seq)) else { return };
        if let Some(slot) = self.persist.slot_mut(region, place) {
            slot.acknowledged = true;
        }
    }

    /// The entries of a session that the fast path holds and that, for all the machine knows, are not
    /// acknowledged.
    pub fn unacknowledged(&self, name: SessionName) -> impl Iterator<Item = SeqNum> + '_ {
        let session = self.region(name).and_then(|region| Some((region, self.base.session(region)?)));
        session.into_iter().flat_map(move |(region, session)| {
            session.held().filter(move |seq| {
                let slot = self.persist.slot(region, session.place(*seq));
                slot.is_some_and(|slot| slot.fast == Some(*seq) && !slot.acknowledged)
            })
        })
    }

    /// Takes over by which port a session's requests come in.
    pub fn absorb_port(&mut self, name: SessionName, port: PortNumber) {
        if let Some(region) = self.region(name) {
            self.base.absorb_port(region, port);
        }
    }

    /// A session, as a fast path has to know it.
    pub fn session_view(&self, name: SessionName) -> Option<SessionView> {
        let region = self.region(name)?;
        let session = self.base.session(region)?;
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
            port: session.port.filter(|_| !session.revoked),
            client_nonce: session.client_nonce,
            server_nonce: session.server_nonce,
            window: session.window,
            region: region.0,
            closing: session.closing,
            entry_count: session.held_count() as u64,
        })
    }

    /// A request that the machine has seen, as a fast path has to know it.
    pub fn slot_view(&self, name: SessionName, seq: SeqNum) -> Option<SlotView> {
        let region = self.region(name)?;
        let session = self.base.session(region)?;
        let noted = session.noted(seq)?;
        let slot = self.persist.slot(region, session.place(seq))?;
        Some(SlotView {
            stamp: noted.stamp,
            logged: noted.held,
            fast: slot.fast == Some(seq),
            asked: slot.asked,
            persisted: slot.persisted,
            writing: slot.writing,
            acknowledged: slot.acknowledged,
            logged_at: slot.logged_at,
        })
    }

    /// Its incarnation.
    pub fn boot_epoch(&self) -> BootEpoch {
        self.base.boot_epoch()
    }

    /// The largest boot epoch that it has seen in a stamp.
    pub fn boot_seen(&self) -> BootEpoch {
        self.base.boot_seen()
    }

    /// What the persistence domains can give.
    pub fn media(&self) -> Durability {
        self.persist.media()
    }

    /// The key of the stamps that it makes.
    pub fn stamp_key(&self) -> Key {
        self.base.stamp_key()
    }

    /// Whether it gives order numbers.
    pub fn is_head(&self) -> bool {
        self.base.is_head()
    }

    /// Whether a new session finds a place.
    pub fn has_room(&self) -> bool {
        self.base.sessions().has_room()
    }

    /// Whether the next timer looks for sessions to forget.
    pub fn forgets_at(&self, now: Nanos) -> bool {
        self.base.forgets_at(now)
    }

    /// Whether a server has accepted this incarnation.
    pub fn is_accepted(&self, server: ServerIndex) -> bool {
        self.base.is_accepted(server)
    }

    /// Until when it may acknowledge for a server.
    pub fn lease_until(&self, server: ServerIndex) -> Nanos {
        self.base.lease_until(server)
    }

    /// The largest epoch under which a server has said anything to the device.
    pub fn heard_epoch(&self, server: ServerIndex) -> Epoch {
        self.base.heard_epoch(server)
    }

    /// The largest epoch of a server that has polled it.
    pub fn server_epoch(&self, server: ServerIndex) -> Epoch {
        self.base.server_epoch(server)
    }
}
