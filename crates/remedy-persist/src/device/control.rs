//! What the server says: leases, recovery, drains, expiry, and the `ServerAck`s that pass by
//! (rules 4, 6, 10, 11 and 12).

use super::slots::{Session, Slot};
use super::{forward, Device, DeviceOwn, ENDED_MAX};
use scotfree_core::{BootEpoch, Effects, Epoch, Nanos, OrderNumber, SeqNum, SessionId, Token};
use scotfree_session::Fault;
use scotfree_wire::{
    emit, key_epoch, AcceptTail, CloseReason, CloseTail, Flags, Header, Kind, LeaseTail, ManifestRecord,
    ManifestTail, Packet, RangeTail, Stamp, StampKind, Tail, WireError, HEADER_BYTES, MANIFEST_RECORD_BYTES,
    PACKET_BYTES_MAX,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// How many records one page of a manifest holds.
pub(crate) const PAGE_RECORDS_MAX: usize =
    (PACKET_BYTES_MAX - HEADER_BYTES - Kind::Manifest.tail_bytes()) / MANIFEST_RECORD_BYTES;
/// Tokens of flushes: far from those of slots and sessions.
const FLUSH_TOKEN_FIRST: u64 = 1 << 48;

impl Device {
    /// A message of the server's that passes on its way to a client.
    pub(super) fn on_server_passing(
        &mut self,
        now: Nanos,
        to: SocketAddr,
        packet: &Packet<'_>,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), WireError> {
        match (packet.kind(), packet.tail()) {
            (Kind::SessionAccept, Tail::Accept(accept)) => {
                packet.verify(&self.keys.handshake.of(key_epoch(&accept.server_nonce))?)?;
                if self.obeys(packet.epoch().max(self.server_epoch)) {
                    self.learn_session(now, to, packet, accept, effects);
                }
            }
            (Kind::ServerAck, _) => self.on_stable(packet, packet.seq_num(), effects)?,
            (Kind::Heartbeat, Tail::Heartbeat(tail)) => self.on_stable(packet, tail.stable, effects)?,
            (Kind::SessionAccept | Kind::Heartbeat, _) => return Err(WireError::InvalidField),
            // For the client alone.
            (
                Kind::SessionOpen
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
                | Kind::Lease
                | Kind::Busy
                | Kind::Drain,
                _,
            ) => {}
        }
        forward(effects, packet.bytes());
        Ok(())
    }

    fn learn_session(
        &mut self,
        now: Nanos,
        client: SocketAddr,
        packet: &Packet<'_>,
        accept: &AcceptTail,
        effects: &mut Effects<DeviceOwn>,
    ) {
        let id = packet.session();
        if let Some(session) = self.sessions.get_mut(&id) {
            session.heard_at = now;
            return;
        }
        if self.ended.contains(&id) {
            return;
        }
        let fits = accept.window > 0 && accept.window <= self.config.window_max;
        let Some(region) = self.regions_free.last().copied().filter(|_| fits) else {
            self.counters.sessions_refused += 1;
            if fits {
                self.make_room(effects);
            }
            return;
        };
        self.regions_free.pop();
        let (client_nonce, server_nonce) = (accept.client_nonce, accept.server_nonce);
        let session = Session {
            epoch: packet.epoch(),
            keys: self.config.cluster_key.session(&client_nonce, &server_nonce, id, packet.epoch()),
            client_nonce,
            server_nonce,
            client,
            port: None,
            window: accept.window,
            region,
            record_domain: self.session_domain(),
            next: SeqNum(1),
            passing: BTreeMap::new(),
            last_write: SeqNum(0),
            stable: SeqNum(0),
            closing: false,
            live: BTreeSet::new(),
            heard_at: now,
            confirmed: false,
            slots: vec![Slot::default(); accept.window as usize],
        };
        self.sessions.insert(id, session);
        self.touch_session(id);
        self.keep_session(id, effects);
    }

    fn on_stable(
        &mut self,
        packet: &Packet<'_>,
        stable: SeqNum,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), WireError> {
        let Some(session) = self.sessions.get(&packet.session()) else { return Ok(()) };
        let authentic = packet.verify(&session.keys.server_to_client);
        if !self.planted(Fault::TrustAnyone) {
            authentic?;
        }
        if self.obeys(packet.epoch()) {
            self.free(packet.session(), stable, effects);
        }
        Ok(())
    }

    /// Whether a server of `epoch` may still command (rule 12).
    fn obeys(&mut self, epoch: Epoch) -> bool {
        let current = epoch >= self.server_epoch || self.planted(Fault::ObeyPastEpoch);
        self.counters.past_epoch += u64::from(!current);
        current
    }

    /// A message of the server's for this device.
    pub(super) fn on_control(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), WireError> {
        self.keys.from_server.verify(packet)?;
        if !self.obeys(packet.epoch()) {
            return Ok(());
        }
        match (packet.kind(), packet.tail()) {
            (Kind::Lease, Tail::Lease(tail)) => self.on_lease(now, *tail, effects),
            (Kind::RecoveryPoll, _) => self.on_poll(packet, effects),
            (Kind::ServerAck, _) => self.free(packet.session(), packet.seq_num(), effects),
            (Kind::Retransmit, Tail::Range(range)) if packet.session() == SessionId(0) => {
                self.replay_orders(*range, effects);
            }
            (Kind::Retransmit, Tail::Range(range)) => self.replay_range(packet.session(), *range, effects),
            (Kind::Drain, _) => self.on_drain(packet, effects),
            (Kind::SessionClose, Tail::Close(CloseTail { reason: CloseReason::Expire })) => {
                self.remember_ended(packet.session());
                self.on_expire(packet.session(), effects);
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
                | Kind::Manifest
                | Kind::Replay
                | Kind::Heartbeat
                | Kind::Lease
                | Kind::Busy,
                _,
            ) => return Err(WireError::InvalidField),
        }
        Ok(())
    }

    // ---- leases (rule 4)

    pub(super) fn ask_for_lease(&mut self, now: Nanos, effects: &mut Effects<DeviceOwn>) {
        // Without a lease nothing is acknowledged: the question is repeated soon.
        let interval = self.config.lease_interval;
        let interval = if self.has_lease(now) { interval } else { Nanos(interval.0 / 16 + 1) };
        self.lease_ask_at = now.plus(interval);
        let header = Header::new(Kind::Lease, SessionId(0), self.server_epoch);
        let tail = LeaseTail {
            asked_at: now,
            duration: Nanos(0),
            device: self.config.device,
            boot_epoch: self.config.boot_epoch,
        };
        self.send_to_server(&header, &Tail::Lease(tail), &[], effects);
    }

    fn on_lease(&mut self, now: Nanos, tail: LeaseTail, effects: &mut Effects<DeviceOwn>) {
        if tail.device != self.config.device || tail.asked_at > now {
            return;
        }
        if tail.boot_epoch > self.config.boot_epoch {
            return self.raise_boot_epoch(tail.boot_epoch, effects);
        }
        if tail.boot_epoch == self.config.boot_epoch {
            self.accepted |= tail.duration > Nanos(0);
            self.lease_until = self.lease_until.max(tail.asked_at.plus(tail.duration));
        }
    }

    pub(super) fn raise_boot_epoch(&mut self, boot_epoch: BootEpoch, effects: &mut Effects<DeviceOwn>) {
        self.config.boot_epoch = boot_epoch;
        self.boot_seen = self.boot_seen.max(boot_epoch);
        self.order.restart();
        self.accepted = false;
        self.lease_until = Nanos(0);
        self.lease_ask_at = Nanos(0);
        self.set_meta(effects);
    }

    fn set_meta(&self, effects: &mut Effects<DeviceOwn>) {
        let (boot_epoch, server_epoch) = (self.config.boot_epoch, self.server_epoch);
        effects.own(DeviceOwn::SetMeta { boot_epoch, server_epoch });
    }

    // ---- recovery (rules 10 and 12)

    fn on_poll(&mut self, packet: &Packet<'_>, effects: &mut Effects<DeviceOwn>) {
        if packet.epoch() > self.server_epoch {
            self.server_epoch = packet.epoch();
            // What the predecessor granted ends with it.
            self.lease_until = Nanos(0);
            self.lease_ask_at = Nanos(0);
            self.set_meta(effects);
        }
        let records: Vec<ManifestRecord> =
            self.sessions.iter().map(|(id, session)| manifest_record(*id, session)).collect();
        let page_count = records.len().div_ceil(PAGE_RECORDS_MAX).max(1);
        let tail = Tail::Manifest(ManifestTail {
            device: self.config.device,
            boot_epoch: self.config.boot_epoch,
            order_current: self.order.current(),
            session_count: records.len() as u32,
        });
        for index in 0..page_count {
            let page = &records[index * PAGE_RECORDS_MAX..records.len().min((index + 1) * PAGE_RECORDS_MAX)];
            let mut header = Header::new(Kind::Manifest, SessionId(0), self.server_epoch);
            header.seq_num = packet.seq_num();
            header.fragment_index = index as u16;
            header.fragment_count = page_count as u16;
            let mut payload = Vec::with_capacity(page.len() * MANIFEST_RECORD_BYTES);
            for record in page {
                record.write(&mut payload);
            }
            self.send_to_server(&header, &tail, &payload, effects);
        }
    }

    /// Replays a session's entries in a range and says how far it came and how many there were.
    fn replay_range(&mut self, id: SessionId, range: RangeTail, effects: &mut Effects<DeviceOwn>) {
        let most = self.config.replay_burst_max.max(1) as usize;
        // Among the entries themselves: reads, which no log keeps, can part them by any distance.
        let held = self.sessions.get(&id).into_iter().flat_map(|session| {
            let from_first = session.live.range(SeqNum(range.first)..);
            from_first.take_while(|seq| seq.0 <= range.last).take(most)
        });
        let held: Vec<SeqNum> = held.copied().collect();
        for seq in &held {
            self.replay(id, *seq, effects);
        }
        let covered = held.last().filter(|_| held.len() == most).map_or(range.last, |last| last.0);
        // The range answered begins at `previous_write`; `number` counts the entries in it.
        let stamp = Stamp {
            kind: StampKind::Barrier,
            device: self.config.device,
            boot_epoch: self.config.boot_epoch,
            number: OrderNumber(held.len() as u64),
            previous_write: SeqNum(range.first),
        };
        self.send_void(id, SeqNum(covered), stamp, effects);
    }

    /// Replays entries by order number; says of each that is not there that it never will be.
    fn replay_orders(&mut self, range: RangeTail, effects: &mut Effects<DeviceOwn>) {
        let last =
            range.last.min(range.first.saturating_add(u64::from(self.config.replay_burst_max.max(1)) - 1));
        for number in range.first..=last {
            match self.live.get(&(range.boot_epoch, OrderNumber(number))).copied() {
                Some((id, seq)) => {
                    self.replay(id, seq, effects);
                }
                // Of an older incarnation's numbers other devices may hold what this one lost.
                None if range.boot_epoch == self.config.boot_epoch && number <= self.order.current().0 => {
                    let stamp = Stamp {
                        kind: StampKind::Order,
                        device: self.config.device,
                        boot_epoch: range.boot_epoch,
                        number: OrderNumber(number),
                        previous_write: SeqNum(0),
                    };
                    self.send_void(SessionId(0), SeqNum(0), stamp, effects);
                }
                None => {}
            }
        }
    }

    // ---- drains (rule 2)

    /// Answers with the stamp of a request that reached the server unstamped. If it never passed
    /// here, the question is its passage: it will not be logged later under another place.
    fn on_drain(&mut self, packet: &Packet<'_>, effects: &mut Effects<DeviceOwn>) {
        if !self.config.head {
            return;
        }
        let (id, first) = (packet.session(), packet.seq_num());
        let noted = self.sessions.get(&id).and_then(|session| session.slot(first)).map(|slot| slot.stamp);
        let (stamp, last) = match noted {
            Some(stamp) => (stamp, first),
            None => self.place_run(id, first, packet.header().run_last(), packet.header().run_last_write()),
        };
        let mut header = Header::new(Kind::Drain, id, self.server_epoch);
        header.seq_num = first;
        header.set_run_last(last);
        let known = self.sessions.contains_key(&id);
        header.flags = if known { Flags::NONE } else { Flags::VOID };
        self.send_to_server(&header, &Tail::Stamp(stamp), &[], effects);
    }

    /// Gives a run of requests that reached the server unstamped their common place; the second
    /// value says how far the run goes. `last_write` is the session's last write up to its end.
    fn place_run(
        &mut self,
        id: SessionId,
        first: SeqNum,
        last: SeqNum,
        last_write: SeqNum,
    ) -> (Stamp, SeqNum) {
        let Some(session) = self.sessions.get(&id) else {
            // A session that is not known here: its requests pass unlogged, after all that is logged.
            let last = last.max(first);
            return (Stamp { previous_write: last, ..self.pass(id, first, false, false) }, last);
        };
        let last = last.0.clamp(first.0, first.0.saturating_add(u64::from(session.window)));
        let stamped = (first.0 + 1..=last).find(|seq| session.slot(SeqNum(*seq)).is_some());
        let last = SeqNum(stamped.map_or(last, |stamped| stamped - 1));
        if last < session.next {
            return (self.barrier_of_past(id, first..=last), last);
        }
        // What passed here unstamped before this question goes the same way: else the next request
        // would always be one that has passed already.
        let (mut reached, mut last_write) = (last, last_write.min(last));
        while let Some(writes) = session.passing.get(&reached.next()) {
            reached = reached.next();
            last_write = if *writes { reached } else { last_write };
        }
        // None of the run may be executed over a gap before it.
        let stamp = Stamp { previous_write: last, ..self.pass(id, reached, false, false) };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.last_write = session.last_write.max(last_write);
            session.passing = session.passing.split_off(&session.next);
        }
        for seq in first.0..=last.0 {
            self.note_stamp(id, SeqNum(seq), stamp);
            self.fragments.forget(id, SeqNum(seq));
        }
        (stamp, last)
    }

    // ---- expiry (rule 11)

    fn remember_ended(&mut self, id: SessionId) {
        if !self.ended.contains(&id) {
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back(id);
        }
    }

    pub(super) fn on_expire(&mut self, id: SessionId, effects: &mut Effects<DeviceOwn>) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return self.send_confirmation(id, effects);
        };
        session.closing = true;
        let empty = session.live.is_empty();
        self.touch_session(id);
        if !empty || self.flushing.values().any(|flushing| *flushing == id) {
            return;
        }
        self.erase_session_record(id, effects);
        let token = Token(FLUSH_TOKEN_FIRST + self.flush_next);
        self.flush_next += 1;
        self.flushing.insert(token, id);
        effects.own(DeviceOwn::FlushErasures { token });
    }

    pub(super) fn confirm_empty(&mut self, id: SessionId, effects: &mut Effects<DeviceOwn>) {
        self.forget_session(id);
        self.send_confirmation(id, effects);
    }

    fn send_confirmation(&self, id: SessionId, effects: &mut Effects<DeviceOwn>) {
        let mut header = Header::new(Kind::SessionClose, id, self.server_epoch);
        header.flags = Flags::CONFIRMED;
        header.set_confirming_device(self.config.device);
        self.send_to_server(&header, &Tail::Close(CloseTail { reason: CloseReason::Expire }), &[], effects);
    }

    fn send_to_server(&self, header: &Header, tail: &Tail, payload: &[u8], effects: &mut Effects<DeviceOwn>) {
        let key = self.keys.to_server;
        effects.send(self.config.address, self.config.server, |out| emit(header, tail, payload, &key, out));
    }
}

fn manifest_record(id: SessionId, session: &Session) -> ManifestRecord {
    ManifestRecord {
        session: id,
        epoch: session.epoch,
        window: session.window,
        client_nonce: session.client_nonce,
        server_nonce: session.server_nonce,
        first: session.live.first().copied().unwrap_or_default(),
        last: session.live.last().copied().unwrap_or_default(),
        entry_count: session.live.len() as u32,
    }
}
