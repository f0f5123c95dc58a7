//! Keeps the device machine and the programs' tables of one mind.
//!
//! Invariant: before the machine decides about a session it knows all that the programs have done with
//! it, and until the programs know what it has decided they touch nothing of that session.

use crate::error::KernelError;
use crate::kernel::Kernel;
use crate::shared::KeyWords;
use crate::slots::{SlotHead, SlotState};
use crate::tables::Session;
use remedy_persist::{
    Device, DeviceOwn, FastEntry, FastSession, Mishaps, OrderCounter, PortNumber, SessionView, SlotView,
};
use scotfree_core::{Effects, Nanos, OrderNumber, SeqNum, SessionId};
use scotfree_wire::{Key, Kind, Packet, Tail};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// How often the machine takes over what the programs have done, so that entries age in it.
const SYNC_INTERVAL: Nanos = Nanos::from_millis(100);
/// How often a slot that is being written is looked at again: a program leaves it within microseconds.
const LOOKS_MAX: u32 = 10_000_000;

/// The counter of order numbers in the memory that the programs share.
#[derive(Clone)]
struct SharedOrder(Arc<Kernel>);

impl std::fmt::Debug for SharedOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedOrder({:?})", self.0.shared().order_current())
    }
}

impl OrderCounter for SharedOrder {
    fn current(&self) -> OrderNumber {
        self.0.shared().order_current()
    }

    fn next(&mut self) -> OrderNumber {
        self.0.shared().order_next()
    }

    fn restart(&mut self) {
        self.0.shared().order_restart();
    }
}

/// What the mirror knows of a session in the programs' tables.
#[derive(Debug, Clone, Copy)]
struct Known {
    index: u32,
    slot_first: u32,
    window: u32,
    /// Everything before this has been taken over.
    absorbed: SeqNum,
    /// Entries logged so far, the daemon's with them.
    logged: u64,
    /// Up to here entries were logged out of the order of their `seq_num`.
    disorder_until: SeqNum,
    held: bool,
}

impl Known {
    fn place(&self, seq: SeqNum) -> Option<u32> {
        (self.window > 0).then(|| self.slot_first + (seq.0 % u64::from(self.window)) as u32)
    }
}

/// The programs' tables beside the machine.
pub struct Mirror {
    kernel: Arc<Kernel>,
    /// The ports in the order in which the machine counts them, by the kernel's numbers.
    ports: Vec<u32>,
    known: BTreeMap<SessionId, Known>,
    free: FreeSlots,
    held: Vec<SessionId>,
    packet: Vec<u8>,
    seqs: Vec<SeqNum>,
    sync_at: Nanos,
    mishaps: Mishaps,
}

/// The two words of a key, as `SipHash` takes them.
fn words(key: &Key) -> KeyWords {
    KeyWords(key.words())
}

impl Mirror {
    /// Puts the programs before `device`, which has been restored from its own logs: what the programs'
    /// log holds is taken over, and what `device` knows made known to them.
    pub fn start(
        kernel: Arc<Kernel>,
        ports: Vec<u32>,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<Mirror, KernelError> {
        let mut mirror = Mirror {
            free: FreeSlots::new(kernel.slots().count()),
            kernel,
            ports,
            known: BTreeMap::new(),
            held: Vec::new(),
            packet: Vec::new(),
            seqs: Vec::new(),
            sync_at: Nanos(0),
            mishaps: Mishaps::default(),
        };
        device.share_with_fast_path(Box::new(SharedOrder(Arc::clone(&mirror.kernel))));
        if mirror.kernel.adopted() {
            mirror.take_over(device, effects)?;
        }
        if mirror.kernel.shared().boot_epoch() != device.boot_epoch() {
            // Every session is held.
            mirror.kernel.shared().order_restart();
        }
        device.touch_all();
        mirror.after(device)?;
        Ok(mirror)
    }

    /// Takes over the sessions that a daemon before left; such as the machine does not know are removed.
    fn take_over(
        &mut self,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), KernelError> {
        for index in 0..crate::shared::SESSIONS_MAX as u32 {
            let Some(state) = self.kernel.hold(index)? else {
                self.kernel.release(index);
                continue;
            };
            let same = device.session_view(state.id).is_some_and(|view| view.region == index);
            if !same {
                self.kernel.remove_session(&state)?;
                self.kernel.release(index);
                continue;
            }
            let (slot_first, window) = (state.slot_first, state.window);
            self.free.take_at(slot_first, window);
            let known = Known {
                index,
                slot_first,
                window,
                absorbed: SeqNum(1),
                logged: state.logged,
                disorder_until: state.disorder_until,
                held: true,
            };
            self.known.insert(state.id, known);
            self.held.push(state.id);
            if let Some(port) = self.ports.iter().position(|ifindex| *ifindex == state.client_ifindex) {
                device.absorb_port(state.id, PortNumber(port as u32));
            }
            device.keep_log_key(state.id, Key::from_words(state.client_to_server.0));
            self.absorb(&state, device, effects);
        }
        Ok(())
    }

    /// The programs.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// What went wrong.
    pub fn mishaps(&self) -> Mishaps {
        self.mishaps
    }

    // ---- before the machine decides

    /// Before the machine sees a message.
    pub fn before_message(
        &mut self,
        message: &[u8],
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), KernelError> {
        let Ok(packet) = Packet::parse(message) else { return Ok(()) };
        match packet.kind() {
            Kind::Update | Kind::Read | Kind::Bypass | Kind::ServerAck | Kind::Heartbeat | Kind::Drain => {
                self.hold(packet.session(), device, effects)
            }
            Kind::SessionAccept if device.has_room() => self.hold(packet.session(), device, effects),
            Kind::SessionAccept | Kind::RecoveryPoll => self.hold_all(device, effects),
            Kind::SessionClose => self.hold(packet.session(), device, effects),
            Kind::Retransmit if packet.session() == SessionId(0) => self.sync_all(device, effects),
            Kind::Retransmit => self.sync(packet.session(), device, effects),
            Kind::Lease => {
                // A lease that raises the boot epoch begins the order anew.
                let raises =
                    matches!(packet.tail(), Tail::Lease(tail) if tail.boot_epoch > device.boot_epoch());
                if raises {
                    self.hold_all(device, effects)?;
                }
                Ok(())
            }
            Kind::SessionOpen
            | Kind::PersistAck
            | Kind::Response
            | Kind::Manifest
            | Kind::Replay
            | Kind::Busy => Ok(()),
        }
    }

    /// Before the machine's timers run.
    pub fn before_timer(
        &mut self,
        now: Nanos,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), KernelError> {
        if device.forgets_at(now) {
            self.hold_all(device, effects)?;
        } else if self.sync_at <= now {
            self.sync_all(device, effects)?;
        }
        if self.sync_at <= now {
            self.sync_at = now.plus(SYNC_INTERVAL);
        }
        Ok(())
    }

    /// Before the machine does something that concerns every session: it becomes the head of its chain, or
    /// takes the cluster's key anew.
    pub fn before_all(
        &mut self,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), KernelError> {
        self.hold_all(device, effects)
    }

    /// When the machine should take over next what the programs have done.
    pub fn next_timer(&self) -> Nanos {
        self.sync_at
    }

    /// A program has logged an entry that is to go to disk.
    pub fn on_entry(
        &mut self,
        id: SessionId,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), KernelError> {
        self.sync(id, device, effects)
    }

    fn hold_all(&mut self, device: &mut Device, effects: &mut Effects<DeviceOwn>) -> Result<(), KernelError> {
        let ids: Vec<SessionId> = self.known.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.hold(id, device, effects))
    }

    fn hold(
        &mut self,
        id: SessionId,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), KernelError> {
        let Some(known) = self.known.get_mut(&id).filter(|known| !known.held) else { return Ok(()) };
        known.held = true;
        self.held.push(id);
        if let Some(state) = self.kernel.hold(known.index)? {
            self.absorb(&state, device, effects);
        }
        Ok(())
    }

    /// Takes over what the programs have done so far with all sessions, without stopping them.
    pub fn sync_all(
        &mut self,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), KernelError> {
        let ids: Vec<SessionId> = self.known.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.sync(id, device, effects))
    }

    fn sync(
        &mut self,
        id: SessionId,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), KernelError> {
        let Some(known) = self.known.get(&id).filter(|known| !known.held) else { return Ok(()) };
        if let Some(state) = self.kernel.session(known.index)? {
            self.absorb(&state, device, effects);
        }
        Ok(())
    }

    /// Takes over what stands in a session's entry and in its slots.
    fn absorb(&mut self, state: &Session, device: &mut Device, effects: &mut Effects<DeviceOwn>) {
        let Some(mut known) = self.known.get(&state.id).copied() else { return };
        let mut seqs = std::mem::take(&mut self.seqs);
        let reached = FastSession {
            next: state.next,
            last_write: state.last_write,
            stable: state.stable,
            heard_at: state.heard_at,
            confirmed: state.confirmed,
        };
        device.absorb_session(state.id, &reached, effects);
        seqs.extend(device.unacknowledged(state.id));
        for seq in seqs.drain(..) {
            let head = known.place(seq).map(|place| self.kernel.slots().head(place));
            if head.is_some_and(|head| head.seq == seq && head.acknowledged) {
                device.absorb_acknowledged(state.id, seq);
            }
        }
        self.list_passed(state, &known, &mut seqs);
        let unfinished = seqs.drain(..).find(|seq| !self.absorb_slot(state, &known, *seq, device, effects));
        known.absorbed = unfinished.unwrap_or(state.next);
        self.seqs = seqs;
        known.logged = state.logged;
        known.disorder_until = state.disorder_until;
        self.known.insert(state.id, known);
    }

    /// Lists in order the requests that passed since the last time and that slots may hold.
    fn list_passed(&mut self, state: &Session, known: &Known, seqs: &mut Vec<SeqNum>) {
        // A late entry lies among those that were taken over before.
        let disorder = state.disorder_until > state.stable;
        let first = if disorder { known.absorbed.min(state.stable.next()) } else { known.absorbed };
        // Of more requests than slots, only those count that the slots still hold.
        if state.next.0 - first.0 <= u64::from(known.window) {
            return seqs.extend((first.0..state.next.0).map(SeqNum));
        }
        let places = known.slot_first..known.slot_first + known.window;
        let held = places.map(|place| self.settled(place, known.held).seq);
        seqs.extend(held.filter(|seq| (first..state.next).contains(seq)));
        seqs.sort_unstable();
    }

    /// Takes over one slot; `false` if a program is still writing it.
    fn absorb_slot(
        &mut self,
        state: &Session,
        known: &Known,
        seq: SeqNum,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> bool {
        let Some(place) = known.place(seq) else { return true };
        let head = self.settled(place, known.held);
        if head.seq != seq {
            return true;
        }
        match head.state {
            SlotState::Writing => return false,
            SlotState::Stamped => device.absorb_stamp(state.id, seq, head.stamp),
            // Stable: no entry any more, but its stamp is still its request's.
            SlotState::Valid if seq <= state.stable => device.absorb_stamp(state.id, seq, head.stamp),
            SlotState::Valid => self.absorb_entry(place, seq, device, effects),
            SlotState::Empty | SlotState::Daemon => {}
        }
        true
    }

    /// A slot's head; of a session that is held, after a program that is writing it has ended.
    fn settled(&mut self, place: u32, wait: bool) -> SlotHead {
        let mut head = self.kernel.slots().head(place);
        let mut looks = 0;
        while wait && head.state == SlotState::Writing && looks < LOOKS_MAX {
            std::hint::spin_loop();
            looks += 1;
            head = self.kernel.slots().head(place);
        }
        if looks == LOOKS_MAX {
            self.mishaps.stuck += 1;
        }
        head
    }

    fn absorb_entry(
        &mut self,
        place: u32,
        seq: SeqNum,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) {
        let Some(head) = self.kernel.slots().read(place, seq, &mut self.packet) else { return };
        let entry = FastEntry {
            stamp: head.stamp,
            acknowledged: head.acknowledged,
            logged_at: head.logged_at,
            packet: &self.packet,
        };
        if device.absorb_entry(&entry, effects).is_err() {
            self.mishaps.damaged += 1;
        }
    }

    // ---- after the machine has decided

    /// Makes known what the machine has decided, and lets the sessions go.
    pub fn after(&mut self, device: &mut Device) -> Result<(), KernelError> {
        self.export_device(device);
        let touched = device.take_touched();
        for id in &touched.sessions {
            if device.session_view(*id).is_some() && !self.known.contains_key(id) {
                self.enter(*id, device)?;
            }
        }
        for (id, seq) in &touched.slots {
            if let (Some(view), Some(known)) = (device.slot_view(*id, *seq), self.known.get(id).copied()) {
                self.export_slot(*id, known, *seq, &view);
            }
        }
        for id in &touched.sessions {
            self.export_session(*id, device)?;
        }
        for id in self.held.drain(..) {
            if let Some(known) = self.known.get_mut(&id) {
                known.held = false;
                self.kernel.release(known.index);
            }
        }
        Ok(())
    }

    fn export_device(&self, device: &Device) {
        let shared = self.kernel.shared();
        shared.set_lease(device.lease_until());
        shared.set_stamp_key(words(&device.stamp_key()));
        shared.set_boot_epoch(device.boot_epoch());
        shared.set_boot_seen(device.boot_seen());
        shared.set_server_epoch(device.server_epoch());
        shared.set_role(device.is_head(), device.is_accepted(), device.media());
    }

    /// Gives a new session its slots and a place in the tables, still unknown to the programs.
    fn enter(&mut self, id: SessionId, device: &Device) -> Result<(), KernelError> {
        let Some(view) = device.session_view(id) else { return Ok(()) };
        let slots = self.free.take(view.window);
        let (slot_first, window) = slots.as_ref().map_or((0, 0), |slots| (slots.start, view.window));
        if slots.is_none() {
            self.mishaps.without_slots += 1;
        }
        for place in slot_first..slot_first + window {
            self.kernel.slots().clear(place);
        }
        self.kernel.shared().set_held(view.region, true);
        let known = Known {
            index: view.region,
            slot_first,
            window,
            absorbed: view.reached.next,
            logged: 0,
            disorder_until: SeqNum(0),
            held: true,
        };
        self.known.insert(id, known);
        self.held.push(id);
        self.kernel.add_session(&session_of(id, &known, self.ifindex(&view), &view))
    }

    fn export_session(&mut self, id: SessionId, device: &Device) -> Result<(), KernelError> {
        let Some(known) = self.known.get_mut(&id) else { return Ok(()) };
        let Some(view) = device.session_view(id) else {
            let known = *known;
            self.known.remove(&id);
            if let Some(state) = self.kernel.session(known.index)?.filter(|state| state.id == id) {
                self.kernel.remove_session(&state)?;
            }
            self.free.give_back(known.slot_first, known.window);
            self.kernel.release(known.index);
            return Ok(());
        };
        assert!(known.held, "a session is changed only while it is held");
        known.absorbed = known.absorbed.max(view.reached.next);
        let known = *known;
        self.kernel.set_session(&session_of(id, &known, self.ifindex(&view), &view))
    }

    /// The port that a session's requests come in by, by the kernel's number; 0 if that is not known.
    fn ifindex(&self, view: &SessionView) -> u32 {
        view.port.and_then(|port| self.ports.get(port.0 as usize)).copied().unwrap_or(0)
    }

    fn export_slot(&mut self, id: SessionId, known: Known, seq: SeqNum, view: &SlotView) {
        let Some(place) = known.place(seq) else { return };
        let head = self.kernel.slots().head(place);
        if head.seq == seq && matches!(head.state, SlotState::Valid | SlotState::Daemon) {
            let (persisted, writing) = (view.persisted, view.writing);
            return self.kernel.slots().set_persisted(place, persisted, writing, view.acknowledged);
        }
        if !known.held || view.fast {
            return;
        }
        let known = self.known.get_mut(&id).expect("it was looked up");
        known.logged += u64::from(view.logged);
        if view.logged && seq.next() < known.absorbed {
            known.disorder_until = known.disorder_until.max(known.absorbed);
        }
        let head = SlotHead {
            state: if view.logged { SlotState::Daemon } else { SlotState::Stamped },
            seq,
            logged: known.logged,
            logged_at: view.logged_at,
            stamp: view.stamp,
            asked: view.asked,
            persisted: view.persisted,
            writing: view.writing,
            acknowledged: view.acknowledged,
        };
        self.kernel.slots().note(place, &head);
    }
}

fn session_of(id: SessionId, known: &Known, client_ifindex: u32, view: &SessionView) -> Session {
    Session {
        index: known.index,
        id,
        next: view.reached.next,
        last_write: view.reached.last_write,
        stable: view.reached.stable,
        heard_at: view.reached.heard_at,
        logged: known.logged,
        freed: known.logged.saturating_sub(view.entry_count),
        disorder_until: known.disorder_until,
        client: view.client,
        window: known.window,
        slot_first: known.slot_first,
        client_ifindex,
        epoch: view.epoch,
        closing: view.closing,
        confirmed: view.reached.confirmed,
        client_to_server: words(&view.keys.client_to_server),
        server_to_client: words(&view.keys.server_to_client),
        device_to_client: words(&view.keys.device_to_client),
        client_nonce: view.client_nonce,
        server_nonce: view.server_nonce,
    }
}

/// Ranges of slots that are nobody's, by their first.
#[derive(Debug)]
struct FreeSlots(BTreeMap<u32, u32>);

impl FreeSlots {
    fn new(count: u32) -> FreeSlots {
        FreeSlots(BTreeMap::from([(0, count)]))
    }

    /// The first range that is long enough.
    fn take(&mut self, count: u32) -> Option<Range<u32>> {
        let (first, length) = self.0.iter().find(|(_, length)| **length >= count).map(|(a, b)| (*a, *b))?;
        self.take_at(first, count);
        debug_assert!(length >= count);
        Some(first..first + count)
    }

    fn take_at(&mut self, first: u32, count: u32) {
        let Some((start, length)) = self.0.range(..=first).next_back().map(|(a, b)| (*a, *b)) else { return };
        if first + count > start + length || count == 0 {
            return;
        }
        self.0.remove(&start);
        if first > start {
            self.0.insert(start, first - start);
        }
        if start + length > first + count {
            self.0.insert(first + count, start + length - first - count);
        }
    }

    fn give_back(&mut self, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        let (mut first, mut count) = (first, count);
        if let Some(length) = self.0.remove(&(first + count)) {
            count += length;
        }
        if let Some((start, length)) = self.0.range(..first).next_back().map(|(a, b)| (*a, *b)) {
            if start + length == first {
                (first, count) = (start, count + length);
            }
        }
        self.0.insert(first, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_nobodys_twice_and_come_back_whole() {
        let mut free = FreeSlots::new(100);
        assert_eq!(free.take(40), Some(0..40));
        assert_eq!(free.take(40), Some(40..80));
        assert_eq!(free.take(40), None);
        free.give_back(0, 40);
        assert_eq!(free.take(10), Some(0..10));
        free.give_back(40, 40);
        free.give_back(0, 10);
        assert_eq!(free.0, BTreeMap::from([(0, 100)]));
        free.take_at(20, 30);
        assert_eq!(free.0, BTreeMap::from([(0, 20), (50, 50)]));
    }
}
