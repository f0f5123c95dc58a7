//! What the programs have done with a session, taken over by the machine.
//!
//! Invariant: a slot that a program is still writing is not taken over, nor anything behind it.

use super::{name_of, Known, Mirror};
use crate::room::Room;
use crate::slots::{SlotHead, SlotState};
use remedy_persist::{FastEntry, FastSession, FastSide};
use scotfree_core::{SeqNum, ServerIndex};
use scotfree_device::DeviceEffects;
use scotfree_xdp::SessionEntry;

/// How often a slot that is being written is looked at again: a program leaves it within microseconds.
const LOOKS_MAX: u32 = 10_000_000;

impl Mirror {
    /// Takes over what stands in a session's entry and in its slots.
    pub(super) fn absorb(
        &mut self,
        state: &SessionEntry,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) {
        self.absorb_new(state, device, effects);
        let Some(known) = self.known.get(&name_of(state)) else { return };
        self.seqs.extend(device.unacknowledged(name_of(state)));
        for seq in self.seqs.drain(..) {
            let head = known.place(seq).map(|place| self.slots.head(place));
            if head.is_some_and(|head| head.seq == seq && head.acknowledged) {
                device.absorb_acknowledged(name_of(state), seq);
            }
        }
    }

    /// Takes over how far a session has come and the requests that passed since the last time.
    pub(super) fn absorb_new(
        &mut self,
        state: &SessionEntry,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) {
        let Some(mut known) = self.known.get(&name_of(state)).copied() else { return };
        let mut seqs = std::mem::take(&mut self.seqs);
        let room = Room::of(state);
        let reached = FastSession {
            next: state.next,
            last_write: state.last_write,
            stable: room.stable,
            heard_at: state.heard_at,
            confirmed: state.confirmed,
        };
        device.absorb_session(name_of(state), &reached, effects);
        self.list_passed(state, &known, &mut seqs);
        let unfinished = seqs.drain(..).find(|seq| !self.absorb_slot(state, &known, *seq, device, effects));
        known.absorbed = unfinished.unwrap_or(state.next);
        self.seqs = seqs;
        known.logged = room.logged;
        known.disorder_until = room.disorder_until;
        self.known.insert(name_of(state), known);
    }

    /// Lists in order the requests that passed since the last time and that slots may hold.
    fn list_passed(&mut self, state: &SessionEntry, known: &Known, seqs: &mut Vec<SeqNum>) {
        // A late entry lies among those that were taken over before.
        let room = Room::of(state);
        let disorder = room.disorder_until > room.stable;
        let first = if disorder { known.absorbed.min(room.stable.next()) } else { known.absorbed };
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
        state: &SessionEntry,
        known: &Known,
        seq: SeqNum,
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) -> bool {
        let Some(place) = known.place(seq) else { return true };
        let head = self.settled(place, known.held);
        if head.seq != seq {
            return true;
        }
        match head.state {
            SlotState::Writing => return false,
            SlotState::Stamped => device.absorb_stamp(name_of(state), seq, head.stamp),
            // Stable: no entry any more, but its stamp is still its request's.
            SlotState::Valid if seq <= Room::of(state).stable => {
                device.absorb_stamp(name_of(state), seq, head.stamp);
            }
            SlotState::Valid => self.absorb_entry(place, (name_of(state).server, seq), device, effects),
            SlotState::Empty | SlotState::Daemon => {}
        }
        true
    }

    /// A slot's head; of a session that is held, after a program that is writing it has ended.
    fn settled(&mut self, place: u32, wait: bool) -> SlotHead {
        let mut head = self.slots.head(place);
        let mut looks = 0;
        while wait && head.state == SlotState::Writing && looks < LOOKS_MAX {
            std::hint::spin_loop();
            looks += 1;
            head = self.slots.head(place);
        }
        if looks == LOOKS_MAX {
            self.mishaps.stuck += 1;
        }
        head
    }

    fn absorb_entry(
        &mut self,
        place: u32,
        (server, seq): (ServerIndex, SeqNum),
        device: &mut FastSide<'_>,
        effects: &mut DeviceEffects,
    ) {
        let Some(head) = self.slots.read(place, seq, &mut self.packet) else { return };
        let entry = FastEntry {
            stamp: head.stamp,
            acknowledged: head.acknowledged,
            logged_at: head.logged_at,
            packet: &self.packet,
        };
        if device.absorb_entry(server, &entry, effects).is_err() {
            self.mishaps.damaged += 1;
        }
    }
}
