//! What servers say: leases, polls and the ends of sessions (rules 4, 10, 11 and 12).
//!
//! Invariant: a server of a past epoch commands nothing, and each server commands its own sessions alone.

use crate::base::{Base, ENDED_MAX};
use crate::effects::{DeviceEffects, DeviceOwn};
use crate::sessions::{Beginning, Region, SessionBase, SessionName};
use scotfree_core::{BootEpoch, Epoch, Nanos, SeqNum, ServerIndex, SessionId};
use scotfree_session::Fault;
use scotfree_wire::{
    AcceptTail, CloseReason, CloseTail, Flags, Header, Kind, LeaseTail, ManifestRecord, ManifestTail, Packet,
    Tail, WireError, HEADER_BYTES, MANIFEST_RECORD_BYTES, PACKET_BYTES_MAX,
};
use std::net::SocketAddr;

/// How many records one page of a manifest holds.
pub const PAGE_RECORDS_MAX: usize =
    (PACKET_BYTES_MAX - HEADER_BYTES - Kind::Manifest.tail_bytes()) / MANIFEST_RECORD_BYTES;

/// What an acceptance on its way to a client has taught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Learnt {
    /// A session.
    Opened(Region),
    /// Nothing, and there is no room for what it could have taught.
    NoRoom,
    /// Nothing.
    Nothing,
}

impl Base {
    /// Whether a server of `epoch` may still command (rule 12).
    pub(crate) fn obeys(&mut self, server: ServerIndex, epoch: Epoch) -> bool {
        let current = epoch >= self.server_epoch(server) || self.planted(Fault::ObeyPastEpoch);
        self.counters.past_epoch += u64::from(!current);
        current
    }

    /// A server has said something to this device that was obeyed. Of words to clients programs in the kernel may be
    /// the only ones who see them, so that they count for nothing here.
    pub(crate) fn hear(&mut self, server: ServerIndex, epoch: Epoch) {
        let authority = self.authority_mut(server);
        authority.heard = authority.heard.max(epoch);
    }

    // ---- sessions

    pub(crate) fn learn_session(
        &mut self,
        now: Nanos,
        server: ServerIndex,
        client: SocketAddr,
        packet: &Packet<'_>,
        accept: &AcceptTail,
    ) -> Learnt {
        let name = SessionName { server, id: packet.session() };
        if let Some(region) = self.sessions.find(name) {
            if let Some(session) = self.sessions.get_mut(region) {
                session.heard_at = now;
            }
            return Learnt::Nothing;
        }
        if self.ended.contains(&name) {
            return Learnt::Nothing;
        }
        let beginning = Beginning {
            name,
            epoch: packet.epoch(),
            client_nonce: accept.client_nonce,
            server_nonce: accept.server_nonce,
            client,
            window: accept.window,
        };
        let fits = accept.window > 0 && accept.window <= self.config.window_max;
        let Some(region) = self.sessions.free_region().filter(|_| fits) else {
            self.counters.sessions_refused += 1;
            self.refused_window = (!fits).then_some(accept.window);
            if accept.window > 0 {
                self.roomless.note(&beginning, &self.config.cluster_key);
            }
            return if fits { Learnt::NoRoom } else { Learnt::Nothing };
        };
        self.begin_session(now, region, &beginning);
        self.touch_session(name);
        Learnt::Opened(region)
    }

    /// The oldest session whose client has not spoken: it gives way when there is no room for a new one, for an
    /// acceptance of the past may have brought it. The new one finds room when it is taught again.
    pub(crate) fn silent_session(&self) -> Option<SessionName> {
        if !self.flushing.is_empty() {
            return None;
        }
        let silent =
            |session: &SessionBase| !session.confirmed && !session.closing && session.held.is_empty();
        self.sessions.iter().find(|(_, session)| silent(session)).map(|(_, session)| session.name)
    }

    /// Sessions that have neither entries nor traffic.
    pub(crate) fn idle_sessions(&self, now: Nanos) -> Vec<SessionName> {
        let idle_max = self.config.idle_max;
        let idle = |session: &SessionBase| {
            session.held.is_empty() && !session.closing && now.since(session.heard_at) > idle_max
        };
        let idle = self.sessions.iter().filter(|(_, session)| idle(session));
        idle.map(|(_, session)| session.name).collect()
    }

    /// The word of a server that passes or comes here: everything of a session up to `stable` is stable.
    pub(crate) fn verify_stable(
        &mut self,
        server: ServerIndex,
        packet: &Packet<'_>,
    ) -> Result<Option<Region>, WireError> {
        let name = SessionName { server, id: packet.session() };
        let Some(region) = self.sessions.find(name) else { return Ok(None) };
        let Some(session) = self.sessions.get(region) else { return Ok(None) };
        let authentic = packet.verify(&session.keys.server_to_client);
        if !self.planted(Fault::TrustAnyone) {
            authentic?;
        }
        Ok(self.obeys(server, packet.epoch()).then_some(region))
    }

    // ---- leases (rule 4)

    pub(crate) fn ask_for_leases(&mut self, now: Nanos, effects: &mut DeviceEffects) {
        for index in 0..self.authorities.len() {
            let server = ServerIndex(index as u8);
            if self.authority(server).lease_ask_at <= now {
                self.ask_for_lease(now, server, effects);
            }
        }
    }

    fn ask_for_lease(&mut self, now: Nanos, server: ServerIndex, effects: &mut DeviceEffects) {
        // Without a lease nothing is acknowledged: the question is repeated soon.
        let interval = self.config.lease_interval;
        let interval = if self.has_lease(server, now) { interval } else { Nanos(interval.0 / 16 + 1) };
        self.authority_mut(server).lease_ask_at = now.plus(interval);
        let mut header = Header::new(Kind::Lease, SessionId(0), self.server_epoch(server));
        header.set_window_max(self.config.window_max);
        let tail = LeaseTail {
            asked_at: now,
            duration: Nanos(0),
            device: self.config.device,
            boot_epoch: self.config.boot_epoch,
        };
        self.send_to_server(server, &header, &Tail::Lease(tail), &[], effects);
    }

    pub(crate) fn on_lease(
        &mut self,
        now: Nanos,
        server: ServerIndex,
        tail: LeaseTail,
        effects: &mut DeviceEffects,
    ) {
        if tail.device != self.config.device || tail.asked_at > now {
            return;
        }
        if tail.boot_epoch > self.config.boot_epoch {
            return self.raise_boot_epoch(server, tail.boot_epoch, effects);
        }
        if tail.boot_epoch == self.config.boot_epoch {
            let authority = self.authority_mut(server);
            authority.accepted |= tail.duration > Nanos(0);
            authority.lease_until = authority.lease_until.max(tail.asked_at.plus(tail.duration));
        }
    }

    /// Begins a new incarnation, for every server: its numbers start anew in each order.
    pub(crate) fn raise_boot_epoch(
        &mut self,
        server: ServerIndex,
        boot_epoch: BootEpoch,
        effects: &mut DeviceEffects,
    ) {
        self.config.boot_epoch = boot_epoch;
        self.boot_seen = self.boot_seen.max(boot_epoch);
        self.sequencer.restart();
        for authority in &mut self.authorities {
            authority.accepted = false;
            authority.lease_until = Nanos(0);
            authority.lease_ask_at = Nanos(0);
        }
        self.set_meta(server, effects);
    }

    fn set_meta(&self, server: ServerIndex, effects: &mut DeviceEffects) {
        let (boot_epoch, server_epoch) = (self.config.boot_epoch, self.server_epoch(server));
        effects.own(DeviceOwn::SetMeta { boot_epoch, server, server_epoch });
    }

    // ---- recovery (rules 10 and 12)

    pub(crate) fn on_poll(&mut self, server: ServerIndex, packet: &Packet<'_>, effects: &mut DeviceEffects) {
        if packet.epoch() > self.server_epoch(server) {
            let authority = self.authority_mut(server);
            authority.epoch = packet.epoch();
            // What the predecessor granted ends with it.
            authority.lease_until = Nanos(0);
            authority.lease_ask_at = Nanos(0);
            self.set_meta(server, effects);
        }
        let records: Vec<ManifestRecord> =
            self.sessions.of(server).map(|(_, session)| manifest_record(session)).collect();
        let page_count = records.len().div_ceil(PAGE_RECORDS_MAX).max(1);
        let tail = Tail::Manifest(ManifestTail {
            device: self.config.device,
            boot_epoch: self.config.boot_epoch,
            order_current: self.sequencer.current(server),
            session_count: records.len() as u32,
        });
        for index in 0..page_count {
            let page = &records[index * PAGE_RECORDS_MAX..records.len().min((index + 1) * PAGE_RECORDS_MAX)];
            let mut header = Header::new(Kind::Manifest, SessionId(0), self.server_epoch(server));
            header.seq_num = packet.seq_num();
            header.fragment_index = index as u16;
            header.fragment_count = page_count as u16;
            let mut payload = Vec::with_capacity(page.len() * MANIFEST_RECORD_BYTES);
            for record in page {
                record.write(&mut payload);
            }
            self.send_to_server(server, &header, &tail, &payload, effects);
        }
    }

    // ---- ends (rule 11)

    pub(crate) fn remember_ended(&mut self, name: SessionName) {
        if !self.ended.contains(&name) {
            if self.ended.len() == ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back(name);
        }
    }

    pub(crate) fn send_confirmation(&self, name: SessionName, effects: &mut DeviceEffects) {
        let mut header = Header::new(Kind::SessionClose, name.id, self.server_epoch(name.server));
        header.flags = Flags::CONFIRMED;
        header.set_confirming_device(self.config.device);
        let tail = Tail::Close(CloseTail { reason: CloseReason::Expire });
        self.send_to_server(name.server, &header, &tail, &[], effects);
    }
}

fn manifest_record(session: &SessionBase) -> ManifestRecord {
    let end = |seq: Option<&SeqNum>| seq.copied().unwrap_or_default();
    ManifestRecord {
        session: session.name.id,
        epoch: session.epoch,
        window: session.window,
        client_nonce: session.client_nonce,
        server_nonce: session.server_nonce,
        first: end(session.held.front()),
        last: end(session.held.back()),
        entry_count: session.held.len() as u32,
    }
}
