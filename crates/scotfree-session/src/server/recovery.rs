//! What devices hold: polls, manifests, replays, leases, exclusion, and the emptying of expired
//! sessions (rules 4, 10, 11 and 12).

use super::{DeadLetterReason, RecoveredSession, Server, ServerOwn};
use crate::fault::Fault;
use scotfree_core::{BootEpoch, DeviceId, Effects, Nanos, OrderNumber, SeqNum, SessionId};
use scotfree_wire::{
    emit, CloseReason, CloseTail, Flags, Header, Kind, LeaseTail, ManifestRecord, ManifestTail, Packet,
    RangeTail, StampKind, Tail, WireError, MANIFEST_RECORD_BYTES,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// Where the questioning of one device stands.
#[derive(Debug)]
pub(super) struct Poll {
    number: u64,
    ask_at: Nanos,
    state: PollState,
}

#[derive(Debug)]
enum PollState {
    /// Manifest pages received so far.
    Asking {
        pages: BTreeMap<u16, Vec<ManifestRecord>>,
    },
    /// Its entries are being fetched, session by session.
    Fetching {
        manifest: ManifestTail,
        wanted: VecDeque<Fetch>,
    },
    Done {
        manifest: ManifestTail,
    },
}

/// A range of one session's entries that is to be replayed.
#[derive(Debug)]
struct Fetch {
    session: SessionId,
    first: SeqNum,
    last: SeqNum,
    known: bool,
    received: BTreeSet<SeqNum>,
}

/// A device that is asked to empty itself of a session.
#[derive(Debug)]
pub(super) struct Expiring {
    ask_at: Nanos,
    /// Of a session that is not known: its entries up to here are dead letters.
    buried: SeqNum,
}

impl Poll {
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, PollState::Done { .. })
    }
}

impl Server {
    // ---- polls

    /// Asks a device what it holds.
    pub(super) fn poll(&mut self, now: Nanos, device: DeviceId, effects: &mut Effects<ServerOwn>) {
        self.poll_count += 1;
        let state = PollState::Asking { pages: BTreeMap::new() };
        self.polls.insert(device, Poll { number: self.poll_count, ask_at: now, state });
        self.continue_poll(now, device, effects);
    }

    /// The head speaks under a view that is not known yet: before anything is taken for settled,
    /// every device says what it holds, since another may hold what the head has lost.
    pub(super) fn poll_for_view(&mut self, now: Nanos, head: DeviceId, effects: &mut Effects<ServerOwn>) {
        if self.polls.get(&head).is_some_and(|poll| !poll.is_done()) {
            return;
        }
        let devices: Vec<DeviceId> = self.devices().map(|(device, _)| device).collect();
        for device in devices {
            self.poll(now, device, effects);
        }
    }

    pub(super) fn poll_unless_polling(
        &mut self,
        now: Nanos,
        device: DeviceId,
        effects: &mut Effects<ServerOwn>,
    ) {
        if self.polls.get(&device).is_none_or(Poll::is_done) && !self.excluded.contains(&device) {
            self.poll(now, device, effects);
        }
    }

    pub(super) fn continue_polls(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) {
        let due: Vec<DeviceId> = self
            .polls
            .iter()
            .filter(|(_, poll)| !poll.is_done() && poll.ask_at <= now)
            .map(|(device, _)| *device)
            .collect();
        for device in due {
            self.continue_poll(now, device, effects);
        }
    }

    /// Sends the question that is open, and again each `retry_interval`.
    fn continue_poll(&mut self, now: Nanos, device: DeviceId, effects: &mut Effects<ServerOwn>) {
        let Some(address) = self.device_address(device) else { return };
        let Some(poll) = self.polls.get_mut(&device) else { return };
        poll.ask_at = now.plus(self.config.retry_interval);
        let (header, tail) = match &poll.state {
            PollState::Done { .. } => return,
            PollState::Asking { .. } => {
                let mut header = Header::new(Kind::RecoveryPoll, SessionId(0), self.config.epoch);
                header.seq_num = SeqNum(poll.number);
                self.counters.polls += 1;
                (header, Tail::Empty)
            }
            PollState::Fetching { wanted, .. } => {
                let Some(fetch) = wanted.front() else { return };
                let header = Header::new(Kind::Retransmit, fetch.session, self.config.epoch);
                let range = RangeTail { first: fetch.first.0, last: fetch.last.0, boot_epoch: BootEpoch(0) };
                (header, Tail::Range(range))
            }
        };
        let key = self.to_device(device);
        effects.send(self.config.local, address, |out| emit(&header, &tail, &[], &key, out));
    }

    pub(super) fn on_manifest(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        self.keys.from_device.verify(packet)?;
        let Tail::Manifest(manifest) = *packet.tail() else { return Err(WireError::InvalidField) };
        let Some(poll) = self.polls.get_mut(&manifest.device) else { return Ok(()) };
        let PollState::Asking { pages } = &mut poll.state else { return Ok(()) };
        if packet.seq_num() != SeqNum(poll.number) {
            return Ok(());
        }
        let records: Result<Vec<_>, _> =
            packet.payload().chunks(MANIFEST_RECORD_BYTES).map(ManifestRecord::read).collect();
        pages.insert(packet.header().fragment_index, records?);
        let total: usize = pages.values().map(Vec::len).sum();
        if pages.len() < usize::from(packet.header().fragment_count) {
            return Ok(());
        }
        if total != manifest.session_count as usize {
            // Pages of two answers: sessions came or went between them. Ask anew.
            self.poll(now, manifest.device, effects);
            return Ok(());
        }
        let records: Vec<ManifestRecord> = std::mem::take(pages).into_values().flatten().collect();
        self.begin_fetching(now, manifest, &records, effects);
        Ok(())
    }

    fn begin_fetching(
        &mut self,
        now: Nanos,
        manifest: ManifestTail,
        records: &[ManifestRecord],
        effects: &mut Effects<ServerOwn>,
    ) {
        let mut wanted = VecDeque::new();
        for record in records {
            if self.planted(Fault::ApplyUnknownSession) && !self.sessions.contains_key(&record.session) {
                self.adopt(&RecoveredSession {
                    session: record.session,
                    epoch: record.epoch,
                    client_nonce: record.client_nonce,
                    server_nonce: record.server_nonce,
                    position: SeqNum(record.first.0.saturating_sub(1)),
                });
            }
            let next = self.sessions.get(&record.session).map(|session| session.next);
            let first = record.first.max(next.unwrap_or_default());
            if record.entry_count > 0 && first <= record.last {
                let alive = self.sessions.get(&record.session).is_some_and(|session| !session.dead);
                let (session, last, known) = (record.session, record.last, alive);
                wanted.push_back(Fetch { session, first, last, known, received: BTreeSet::new() });
            } else if next.is_some() && record.entry_count > 0 {
                // All of it is executed; if it is stable, the device should know.
                self.send_stable_to_devices(record.session, effects);
            } else if next.is_none() {
                self.ask_to_empty(now, record.session, manifest.device);
            }
        }
        if let Some(poll) = self.polls.get_mut(&manifest.device) {
            poll.state = PollState::Fetching { manifest, wanted };
        }
        self.continue_fetching(now, manifest.device, effects);
    }

    pub(super) fn send_stable_to_devices(&mut self, id: SessionId, effects: &mut Effects<ServerOwn>) {
        let Some(session) = self.sessions.get(&id) else { return };
        let mut header = Header::new(Kind::ServerAck, id, self.config.epoch);
        header.seq_num = session.stable();
        self.counters.server_acks += 1;
        self.send_to_devices(&header, effects);
    }

    fn continue_fetching(&mut self, now: Nanos, device: DeviceId, effects: &mut Effects<ServerOwn>) {
        let Some(Poll { state: PollState::Fetching { manifest, wanted }, .. }) = self.polls.get(&device)
        else {
            return;
        };
        if !wanted.is_empty() {
            return self.continue_poll(now, device, effects);
        }
        let manifest = *manifest;
        if let Some(poll) = self.polls.get_mut(&device) {
            poll.state = PollState::Done { manifest };
        }
        self.settle_if_told();
        self.serve_if_recovered(now, effects);
    }

    /// Every device has said what it holds, and it is here: up to where the head was then, nothing
    /// else will come.
    fn settle_if_told(&mut self) {
        let Some((head, _)) = self.head().filter(|_| self.devices().all(|(_, done)| done)) else { return };
        let Some(Poll { state: PollState::Done { manifest }, .. }) = self.polls.get(&head) else { return };
        if self.boot_of_others(head) >= Some(manifest.boot_epoch) {
            // Entries of a later head are in the logs: this one rises above them first.
            return;
        }
        let through = (manifest.boot_epoch, manifest.order_current);
        self.order.settle((manifest.boot_epoch, head), through);
        self.dirty.extend(self.sessions.keys().copied());
    }

    /// The largest boot epoch under which another device has given order numbers.
    fn boot_of_others(&self, head: DeviceId) -> Option<BootEpoch> {
        self.boots_seen.iter().filter(|(device, _)| **device != head).map(|(_, boot_epoch)| *boot_epoch).max()
    }

    pub(super) fn serve_if_recovered(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) {
        let settled = match self.head() {
            Some((head, _)) => self.order.view.is_some_and(|(_, device)| device == head),
            None => true,
        };
        if !self.serving && settled && self.devices().all(|(_, done)| done) {
            self.serving = true;
            self.dirty.extend(self.sessions.keys().copied());
            self.pump(now, effects);
        }
    }

    // ---- replays

    pub(super) fn on_replay(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        self.keys.from_device.verify(packet)?;
        let stamp = packet.stamp();
        let id = packet.session();
        if packet.flags().has(Flags::VOID) && id == SessionId(0) {
            if stamp.kind == StampKind::Order {
                self.order.done((stamp.boot_epoch, stamp.number));
            }
            return Ok(());
        }
        if packet.flags().has(Flags::VOID) {
            self.on_range_end(now, stamp.device, packet, effects);
            return Ok(());
        }
        let seen = self.boots_seen.entry(stamp.device).or_default();
        *seen = stamp.boot_epoch.max(*seen);
        let Some(session) = self.sessions.get_mut(&id) else {
            return self.on_replay_of_unknown(now, packet, effects);
        };
        session.client = session.client.or(Some(from));
        self.take(id, packet, stamp, true, effects)?;
        let seq = packet.seq_num();
        let here = |session: &super::session::ServedSession| {
            session.next > seq || session.buffer.contains_key(&seq) || session.buried.contains(&seq)
        };
        if self.sessions.get(&id).is_some_and(here) {
            self.note_received(id, seq);
        }
        Ok(())
    }

    /// During a fetch the update goes to the dead letters; otherwise the device is asked what else
    /// it holds of the session.
    fn on_replay_of_unknown(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        let (id, seq) = (packet.session(), packet.seq_num());
        let fetching = self.polls.values().any(|poll| match &poll.state {
            PollState::Fetching { wanted, .. } => wanted.front().is_some_and(|fetch| fetch.session == id),
            PollState::Asking { .. } | PollState::Done { .. } => false,
        });
        if fetching {
            let Some(whole) = self.fragments.offer(packet)? else { return Ok(()) };
            self.note_received(id, seq);
            self.counters.dead_letters += 1;
            let payload = effects.append(|out| out.extend_from_slice(&whole.payload));
            let reason = DeadLetterReason::UnknownSession;
            effects.own(ServerOwn::DeadLetter { session: id, seq, reason, payload });
        } else if !self.expiring.keys().any(|(expiring, _)| *expiring == id) {
            let devices: Vec<DeviceId> = self.devices().map(|(device, _)| device).collect();
            for device in devices {
                self.poll_unless_polling(now, device, effects);
            }
        }
        Ok(())
    }

    fn note_received(&mut self, id: SessionId, seq: SeqNum) {
        for poll in self.polls.values_mut() {
            if let PollState::Fetching { wanted, .. } = &mut poll.state {
                if let Some(fetch) = wanted.front_mut().filter(|fetch| fetch.session == id) {
                    fetch.received.insert(seq);
                }
            }
        }
    }

    /// The device has replayed what it holds of a range: is all of it here?
    fn on_range_end(
        &mut self,
        now: Nanos,
        device: DeviceId,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) {
        let (id, covered, stamp) = (packet.session(), packet.seq_num(), packet.stamp());
        let Some(Poll { state: PollState::Fetching { wanted, .. }, .. }) = self.polls.get_mut(&device) else {
            return;
        };
        let Some(fetch) = wanted.front_mut().filter(|fetch| fetch.session == id) else { return };
        if stamp.previous_write != fetch.first || covered < fetch.first {
            return;
        }
        let received = fetch.received.range(fetch.first..=covered).count() as u64;
        if received < stamp.number.0 {
            // Something was lost; the question is repeated at its time.
            return;
        }
        let (last, known) = (fetch.last, fetch.known);
        if covered >= last {
            wanted.pop_front();
        } else {
            fetch.first = covered.next();
        }
        if covered >= last && !known {
            self.expiring.insert((id, device), Expiring { ask_at: now, buried: last });
        }
        self.continue_fetching(now, device, effects);
    }

    pub(super) fn polls_timer(&self) -> Nanos {
        self.polls.values().filter(|poll| !poll.is_done()).map(|poll| poll.ask_at).min().unwrap_or(Nanos::MAX)
    }

    // ---- leases

    /// What the predecessor granted is not known here: every device may hold a lease from the last
    /// moment before this one.
    pub(super) fn inherit_leases(&mut self, now: Nanos) {
        if self.planted(Fault::ForgetLeases) {
            return;
        }
        let until = lease_end(now, self.config.lease_max);
        self.leases = self.config.devices.iter().map(|(device, _)| (*device, until)).collect();
    }

    pub(super) fn on_lease_question(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        let key_epoch = self.keys.from_device.verify(packet)?;
        let Tail::Lease(question) = *packet.tail() else { return Err(WireError::InvalidField) };
        let device = question.device;
        self.device_epochs.insert(device, key_epoch);
        self.device_windows.insert(device, packet.header().window_max());
        let Some(address) = self.device_address(device) else { return Ok(()) };
        if self.excluded.contains(&device) || self.excluding.contains(&device) {
            return Ok(());
        }
        if let Some(above) = self.must_rise(question) {
            let answer = LeaseTail { boot_epoch: BootEpoch(above.0 + 1), duration: Nanos(0), ..question };
            self.answer_lease(address, answer, effects);
            return Ok(());
        }
        match self.polls.get(&device).map(|poll| &poll.state) {
            Some(PollState::Done { manifest }) if manifest.boot_epoch == question.boot_epoch => {
                let duration = self.config.lease.min(self.config.lease_max);
                let until = self.leases.entry(device).or_default();
                *until = lease_end(now, duration).max(*until);
                let answer = LeaseTail { duration, ..question };
                self.answer_lease(address, answer, effects);
            }
            Some(PollState::Done { manifest }) if manifest.boot_epoch > question.boot_epoch => {}
            Some(PollState::Done { .. }) | None if self.head().is_some_and(|(head, _)| head == device) => {
                self.poll_for_view(now, device, effects);
            }
            Some(PollState::Done { .. }) | None => self.poll(now, device, effects),
            Some(PollState::Asking { .. } | PollState::Fetching { .. }) => {}
        }
        Ok(())
    }

    /// No two heads may stamp under the same boot epoch, and a later one stamps under a larger:
    /// above which one the asking head must rise, if it must.
    fn must_rise(&self, question: LeaseTail) -> Option<BootEpoch> {
        self.head().filter(|(head, _)| *head == question.device)?;
        let view = self.order.view.map(|(boot_epoch, device)| {
            let own = device == question.device;
            BootEpoch(boot_epoch.0.saturating_sub(u32::from(own)))
        });
        let above = view.max(self.boot_of_others(question.device))?;
        (question.boot_epoch <= above).then_some(above)
    }

    fn answer_lease(&self, address: SocketAddr, answer: LeaseTail, effects: &mut Effects<ServerOwn>) {
        let header = Header::new(Kind::Lease, SessionId(0), self.config.epoch);
        let key = self.to_device(answer.device);
        effects.send(self.config.local, address, |out| emit(&header, &Tail::Lease(answer), &[], &key, out));
    }

    // ---- exclusion

    pub(super) fn exclude_unleased(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) {
        let ended: Vec<DeviceId> = self
            .excluding
            .iter()
            .copied()
            .filter(|device| self.leases.get(device).is_none_or(|until| *until <= now))
            .collect();
        for device in ended {
            self.excluding.remove(&device);
            self.excluded.insert(device);
            self.polls.remove(&device);
            self.expiring.retain(|(_, expiring), _| *expiring != device);
            self.dirty.extend(self.sessions.keys().copied());
            let closing: Vec<SessionId> = self.sessions.keys().copied().collect();
            for id in closing {
                self.delete_if_empty(id, effects);
            }
            if let Some((head, _)) = self.head() {
                self.poll_for_view(now, head, effects);
            } else {
                self.order.settle_all();
            }
            self.serve_if_recovered(now, effects);
        }
    }

    pub(super) fn excluding_timer(&self) -> Nanos {
        self.excluding
            .iter()
            .map(|device| self.leases.get(device).copied().unwrap_or(Nanos(0)))
            .min()
            .unwrap_or(Nanos::MAX)
    }

    // ---- emptying

    pub(super) fn ask_to_empty(&mut self, now: Nanos, id: SessionId, device: DeviceId) {
        self.expiring.entry((id, device)).or_insert(Expiring { ask_at: now, buried: SeqNum(0) });
    }

    pub(super) fn continue_expiring(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) {
        let again = now.plus(self.config.retry_interval);
        let due: Vec<(SessionId, DeviceId, SeqNum)> = self
            .expiring
            .iter_mut()
            .filter(|(_, expiring)| expiring.ask_at <= now)
            .map(|((id, device), expiring)| {
                expiring.ask_at = again;
                (*id, *device, expiring.buried)
            })
            .collect();
        for (id, device, buried) in due {
            self.settle_rest(now, id, effects);
            let Some(address) = self.device_address(device) else { continue };
            let key = self.to_device(device);
            let stable = self.sessions.get(&id).map_or(buried, |session| session.dealt_with(buried));
            if buried == SeqNum(0) && self.sessions.get(&id).is_some_and(|session| session.dead) {
                // What the device holds becomes dead letters before it may forget it.
                self.poll_unless_polling(now, device, effects);
            }
            let mut header = Header::new(Kind::ServerAck, id, self.config.epoch);
            header.seq_num = stable;
            effects.send(self.config.local, address, |out| emit(&header, &Tail::Empty, &[], &key, out));
            let header = Header::new(Kind::SessionClose, id, self.config.epoch);
            let tail = Tail::Close(CloseTail { reason: CloseReason::Expire });
            effects.send(self.config.local, address, |out| emit(&header, &tail, &[], &key, out));
        }
    }

    pub(super) fn on_confirmed(
        &mut self,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        self.keys.from_device.verify(packet)?;
        let device = packet.header().confirming_device();
        self.expiring.remove(&(packet.session(), device));
        self.delete_if_empty(packet.session(), effects);
        Ok(())
    }

    pub(super) fn expiring_timer(&self) -> Nanos {
        self.expiring.values().map(|expiring| expiring.ask_at).min().unwrap_or(Nanos::MAX)
    }
}

/// When a lease granted at `now` has ended by any clock that does not run an eighth too slow.
fn lease_end(now: Nanos, duration: Nanos) -> Nanos {
    now.plus(duration).plus(Nanos(duration.0 / 8))
}

impl super::order::Order {
    /// No device is left: nothing will come any more but what is here.
    pub(super) fn settle_all(&mut self) {
        if let Some(view) = self.view {
            self.settle(view, (BootEpoch(u32::MAX), OrderNumber(0)));
        }
    }
}
