//! What the machine has decided, made known to the programs.
//!
//! Invariant: a session is changed only while it is held, and let go when all of it is written.

use super::{servers, Known, Mirror};
use crate::room::Room;
use crate::slots::{SlotHead, SlotState};
use remedy_persist::{FastSide, SessionView, SlotView};
use scotfree_core::SeqNum;
use scotfree_device::SessionName;
use scotfree_wire::Key;
use scotfree_xdp::{KernelError, KeyWords, SessionEntry};

impl Mirror {
    // ---- after the machine has decided

    /// Makes known what the machine has decided, and lets the sessions go.
    pub fn after(&mut self, device: &mut FastSide<'_>) -> Result<(), KernelError> {
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
        for name in self.held.drain(..) {
            if let Some(known) = self.known.get_mut(&name) {
                known.held = false;
                self.kernel.release(known.index);
            }
        }
        Ok(())
    }

    fn export_device(&self, device: &FastSide<'_>) {
        let shared = self.kernel.shared();
        for index in servers(device) {
            let server = shared.server(usize::from(index.0));
            server.set_lease(device.lease_until(index));
            server.set_epoch(device.server_epoch(index));
            server.set_heard_epoch(device.heard_epoch(index));
            server.set_accepted(device.is_accepted(index));
        }
        shared.set_stamp_key(words(&device.stamp_key()));
        shared.set_boot_epoch(device.boot_epoch());
        shared.set_boot_seen(device.boot_seen());
        shared.set_role(device.is_head(), device.media());
    }

    /// Gives a new session its slots and a place in the tables, still unknown to the programs.
    fn enter(&mut self, name: SessionName, device: &FastSide<'_>) -> Result<(), KernelError> {
        let Some(view) = device.session_view(name) else { return Ok(()) };
        let (slot_first, window) = self.take_slots(view.window).unwrap_or_default();
        if window == 0 {
            self.mishaps.without_slots += 1;
        }
        self.kernel.hold(view.region)?;
        let known = Known {
            index: view.region,
            slot_first,
            window,
            absorbed: view.reached.next,
            logged: 0,
            disorder_until: SeqNum(0),
            held: true,
        };
        self.known.insert(name, known);
        self.held.push(name);
        self.kernel.add_session(&self.session_of(name, &known, &view))
    }

    /// Cleared slots for a session of this window: the first, and how many; none if too few are free.
    fn take_slots(&mut self, window: u32) -> Option<(u32, u32)> {
        let slots = self.free.take(window)?;
        let first = slots.start;
        slots.for_each(|place| self.slots.clear(place));
        Some((first, window))
    }

    /// A session that found no slots when it came has some as soon as others have left, once its log is empty. What its
    /// latest requests were stamped is told with them.
    fn make_up(&mut self, name: SessionName, view: &SessionView, device: &FastSide<'_>) {
        let lacks = |known: &&Known| known.window == 0 && known.held && view.entry_count == 0;
        if !self.known.get(&name).as_ref().is_some_and(lacks) {
            return;
        }
        let Some((slot_first, window)) = self.take_slots(view.window) else { return };
        let next = view.reached.next;
        let Some(known) = self.known.get_mut(&name) else { return };
        *known = Known { slot_first, window, absorbed: next, logged: 0, ..*known };
        let known = *known;
        for seq in next.0.saturating_sub(u64::from(window))..next.0 {
            if let Some(view) = device.slot_view(name, SeqNum(seq)) {
                self.export_slot(name, known, SeqNum(seq), &view);
            }
        }
    }

    fn export_session(&mut self, name: SessionName, device: &FastSide<'_>) -> Result<(), KernelError> {
        let Some(known) = self.known.get_mut(&name) else { return Ok(()) };
        let Some(view) = device.session_view(name) else {
            let known = *known;
            self.known.remove(&name);
            if let Some(state) =
                self.kernel.session(known.index)?.filter(|state| super::name_of(state) == name)
            {
                self.kernel.remove_session(&state)?;
            }
            self.free.give_back(known.slot_first, known.window);
            self.kernel.release(known.index);
            return Ok(());
        };
        assert!(known.held, "a session is changed only while it is held");
        self.make_up(name, &view, device);
        let Some(known) = self.known.get_mut(&name) else { return Ok(()) };
        known.absorbed = known.absorbed.max(view.reached.next);
        let known = *known;
        self.kernel.set_session(&self.session_of(name, &known, &view))
    }

    /// The port that a session's requests come in by, by the kernel's number; 0 if that is not known.
    fn ifindex(&self, view: &SessionView) -> u32 {
        view.port.and_then(|port| self.ports.get(port.0 as usize)).copied().unwrap_or(0)
    }

    fn export_slot(&mut self, name: SessionName, known: Known, seq: SeqNum, view: &SlotView) {
        let Some(place) = known.place(seq) else { return };
        let head = self.slots.head(place);
        if head.seq == seq && matches!(head.state, SlotState::Valid | SlotState::Daemon) {
            let (persisted, writing) = (view.persisted, view.writing);
            return self.slots.set_persisted(place, persisted, writing, view.acknowledged);
        }
        if !known.held || view.fast {
            return;
        }
        let known = self.known.get_mut(&name).expect("it was looked up");
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
        self.slots.note(place, &head);
    }

    fn session_of(&self, name: SessionName, known: &Known, view: &SessionView) -> SessionEntry {
        let client_ifindex = self.ifindex(view);
        let room = Room {
            stable: view.reached.stable,
            logged: known.logged,
            freed: known.logged.saturating_sub(view.entry_count),
            disorder_until: known.disorder_until,
        };
        SessionEntry {
            index: known.index,
            id: name.id,
            next: view.reached.next,
            last_write: view.reached.last_write,
            heard_at: view.reached.heard_at,
            room: room.words(),
            client: view.client,
            window: known.window,
            slot_first: known.slot_first,
            server: u32::from(name.server.0),
            client_ifindex,
            client_port: self.kernel.shared().port_place(client_ifindex).unwrap_or(0),
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
}

/// The two words of a key, as `SipHash` takes them.
fn words(key: &Key) -> KeyWords {
    KeyWords(key.words())
}
