//! Sessions at the server: opening, heartbeats, closing, expiry (rules 9 and 11).

use super::{RecoveredSession, Server, ServerOwn, SEQ_MAX};
use crate::fault::Fault;
use crate::server::DeadLetterReason;
use scotfree_core::{Durability, Effects, Epoch, KeyHash, Nanos, SeqNum, SessionId};
use scotfree_wire::{
    emit, key_epoch, nonce_under, AcceptTail, CloseReason, CloseTail, Flags, Header, HeartbeatTail, Identity,
    Kind, LateStamp, Nonce, OpenTail, Packet, ResponseTail, SessionKeys, Stamp, StampKind, Tail, WireError,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use crate::client::RequestKind;

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Independent properties of one session.
pub(super) struct ServedSession {
    pub(super) epoch: Epoch,
    pub(super) client_nonce: Nonce,
    pub(super) server_nonce: Nonce,
    pub(super) keys: SessionKeys,
    /// What its client may have outstanding.
    pub(super) window: u32,
    /// Where its client last spoke from.
    pub(super) client: Option<SocketAddr>,
    /// Whether storage has the record.
    pub(super) recorded: bool,
    /// Its client has spoken under the session's keys, or the session is older than this server.
    pub(super) confirmed: bool,
    /// The next request to execute.
    pub(super) next: SeqNum,
    /// The last write executed.
    pub(super) last_write: SeqNum,
    /// The highest request that the client or a device has spoken of.
    pub(super) highest: SeqNum,
    /// Requests that wait for their turn.
    pub(super) buffer: BTreeMap<SeqNum, Pending>,
    /// Writes executed and not stable.
    pub(super) unstable: VecDeque<SeqNum>,
    pub(super) replies: BTreeMap<SeqNum, Reply>,
    pub(super) replies_bytes: usize,
    /// What one reply to a read takes, as far as is known: a large one is remembered for a while.
    pub(super) reply_bytes_usual: usize,
    /// Everything up to here is complete at the client.
    pub(super) completed: SeqNum,
    pub(super) heard_at: Nanos,
    /// How many requests the application has and has not answered.
    pub(super) executing: u32,
    /// When the two phases of expiry began.
    pub(super) closing_since: Option<Nanos>,
    /// The application broke for it: its client is told so and nothing else.
    pub(super) failed: bool,
    /// Closing, and a write is missing: whatever lies behind it becomes dead letters.
    pub(super) dead: bool,
    /// Of a dead session: the dead letters.
    pub(super) buried: BTreeSet<SeqNum>,
    /// Storage has been asked to forget the record.
    pub(super) deleting: bool,
    pub(super) question: Option<Question>,
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) kind: RequestKind,
    pub(super) flags: Flags,
    pub(super) asked: Durability,
    pub(super) key_hash: KeyHash,
    pub(super) stamp: Stamp,
    pub(super) replayed: bool,
    /// A device has sent it again before this server began to serve: see [`super::ServerOwn::Execute`]. What is sent
    /// again later, since it was lost on its way, no predecessor has executed.
    pub(super) may_be_told: bool,
    /// As any copy of it has said. Only what one packet holds bears one.
    pub(super) identity: Option<Identity>,
    pub(super) payload: Vec<u8>,
}

impl Pending {
    /// A read that may be executed at any place.
    pub(super) fn is_relaxed(&self) -> bool {
        self.kind == RequestKind::Read && self.flags.has(Flags::RELAXED)
    }
}

#[derive(Debug)]
pub(super) struct Reply {
    /// `None` while the application has the request.
    pub(super) bytes: Option<Vec<u8>>,
    /// Of the request, so that whoever sees the reply pass knows what it is of.
    pub(super) key_hash: KeyHash,
    pub(super) failed: bool,
    pub(super) times: ResponseTail,
    /// When the application had answered.
    pub(super) ready_at: Nanos,
    /// How long it is true from when it was made, in milliseconds, if the application vouches for it.
    pub(super) lives_ms: Option<u64>,
    pub(super) sent: bool,
}

/// What is wanted of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The request itself: of the client, after a while, since it may be on its way.
    Request,
    /// Its place: of the head, at once.
    Place,
}

/// What a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Question {
    /// The request it is about.
    pub(super) seq: SeqNum,
    pub(super) wanted: Wanted,
    pub(super) ask_at: Nanos,
}

impl ServedSession {
    fn new(
        record: &RecoveredSession,
        keys: SessionKeys,
        window: u32,
        replies_bytes_max: usize,
    ) -> ServedSession {
        ServedSession {
            epoch: record.epoch,
            client_nonce: record.client_nonce,
            server_nonce: record.server_nonce,
            keys,
            window,
            client: None,
            recorded: false,
            confirmed: false,
            next: record.position.next(),
            last_write: record.position,
            highest: record.position,
            buffer: BTreeMap::new(),
            unstable: VecDeque::new(),
            replies: BTreeMap::new(),
            replies_bytes: 0,
            reply_bytes_usual: replies_bytes_max / 8,
            completed: SeqNum(0),
            heard_at: Nanos(0),
            executing: 0,
            closing_since: None,
            failed: false,
            dead: false,
            buried: BTreeSet::new(),
            deleting: false,
            question: None,
        }
    }

    /// Whether its client has so many replies to take, or will have, that further ones would push out
    /// some that it lacks: a lost one could not be sent again.
    pub(super) fn is_ahead(&self, replies_bytes_max: usize) -> bool {
        let on_the_way = (self.executing as usize + 1).saturating_mul(self.reply_bytes_usual);
        !self.replies.is_empty() && self.replies_bytes.saturating_add(on_the_way) > replies_bytes_max / 2
    }

    /// Forgets the replies of what is complete at the client.
    pub(super) fn forget_taken_replies(&mut self) {
        while let Some(entry) = self.replies.first_entry().filter(|entry| *entry.key() <= self.completed) {
            if !entry.get().sent {
                break;
            }
            self.replies_bytes -= entry.remove().bytes.map_or(0, |bytes| bytes.len());
        }
    }

    /// A reply was made: a larger one counts at once, smaller ones of reads lower the expectation by an eighth
    /// each. Those of writes are small whatever the reads' are.
    pub(super) fn note_reply(&mut self, kind: RequestKind, bytes: usize) {
        self.replies_bytes += bytes;
        let lowered = if kind == RequestKind::Read { self.reply_bytes_usual / 8 } else { 0 };
        self.reply_bytes_usual = bytes.max(self.reply_bytes_usual - lowered);
    }

    /// Every request up to this one is stable.
    pub(super) fn stable(&self) -> SeqNum {
        SeqNum(self.unstable.front().copied().unwrap_or(self.next).0 - 1)
    }

    /// Every request up to this one is stable, or a dead letter up to `buried`.
    pub(super) fn dealt_with(&self, buried: SeqNum) -> SeqNum {
        if self.dead && self.unstable.is_empty() && self.executing == 0 {
            self.stable().max(buried)
        } else {
            self.stable()
        }
    }

    /// The first request that is here, if nothing but reads is missing before it. Any stamp of what
    /// waits may say so: one that names a write before itself as the last one, which was executed,
    /// says that all between the two are reads.
    pub(super) fn behind_reads(&self) -> Option<SeqNum> {
        let says_so = |pending: &Pending| {
            pending.stamp.kind != StampKind::None && pending.stamp.previous_write < self.next
        };
        let first = *self.buffer.keys().next()?;
        self.buffer.values().any(says_so).then_some(first)
    }

    /// Whether a request is beyond its client's credit. That is counted from what is complete at the
    /// client, as this very request says; twice the window, since an earlier incarnation may have
    /// granted more. What waits here is bounded too, whatever the client says.
    pub(super) fn is_beyond(&self, seq: SeqNum, window: u32) -> bool {
        let credit = 2 * u64::from(window);
        let crowded = self.buffer.len() as u64 >= credit && !self.buffer.contains_key(&seq);
        seq.0 > self.completed.0.saturating_add(credit) || (crowded && seq != self.next)
    }

    /// Whether the next request is not here, though later ones are known of.
    pub(super) fn has_gap(&self) -> bool {
        self.next <= self.highest && !self.buffer.contains_key(&self.next)
    }
}

impl Server {
    /// Takes over a session that storage knows.
    pub(super) fn adopt(&mut self, record: &RecoveredSession) {
        let keys = self.config.cluster_key.session(
            &record.client_nonce,
            &record.server_nonce,
            record.session,
            record.epoch,
        );
        // What it was granted is not recorded; of more, its client makes no use.
        let window = self.config.window;
        let mut session = ServedSession::new(record, keys, window, self.config.replies_bytes_max);
        if self.planted(Fault::ForgetPosition) {
            session.next = SeqNum(1);
        }
        session.recorded = true;
        session.confirmed = true;
        self.by_nonce.insert(record.client_nonce, record.session);
        self.sessions.insert(record.session, session);
    }

    pub(super) fn on_open(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        let Tail::Open(open) = *packet.tail() else { return Err(WireError::InvalidField) };
        packet.verify(&self.keys.handshake.of(open.key_epoch)?)?;
        if !self.serving {
            // The client tries again.
            return Ok(());
        }
        if let Some(id) = self.by_nonce.get(&open.client_nonce).copied() {
            if self.sessions.get(&id).is_some_and(|session| self.is_revoked(session)) {
                // It is nobody's any more, and heard of it would stay: the client tries again, and finds its nonce free.
                self.expire(now, id, effects);
            } else {
                self.open_again(now, from, id, effects);
            }
            return Ok(());
        }
        let is_full = self.sessions.len() >= self.config.sessions_max;
        let gives_way = !self.draining && self.make_room(now, effects);
        if !is_full && !self.draining {
            self.open_session(now, from, &open, effects);
        } else if !gives_way {
            let (reason, nonce) = (CloseReason::NoRoom, &open.client_nonce);
            self.send_close_without_keys(from, SessionId(0), reason, nonce, effects);
        }
        // Otherwise the client tries again, and finds the room that is being made.
        Ok(())
    }

    /// The same nonce is the same session. What it says anew may be a recording: once the client
    /// has proved that it has the keys, it moves no address and keeps nothing alive.
    fn open_again(&mut self, now: Nanos, from: SocketAddr, id: SessionId, effects: &mut Effects<ServerOwn>) {
        if let Some(session) = self.sessions.get_mut(&id) {
            if !session.confirmed {
                session.heard_at = now;
            }
            if !session.confirmed || session.client.is_none() {
                session.client = Some(from);
            }
        }
        self.send_accept(id, effects);
    }

    /// Lets the oldest session whose client has not spoken give way, if there are too many of them
    /// or of all; whether one does.
    fn make_room(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) -> bool {
        let unconfirmed = self.sessions.iter().filter(|(_, session)| !session.confirmed);
        let gives_way = unconfirmed.clone().any(|(_, session)| session.closing_since.is_some());
        let mut waiting = unconfirmed.filter(|(_, session)| session.closing_since.is_none());
        let is_full = self.sessions.len() >= self.config.sessions_max && !gives_way;
        let oldest = waiting.clone().find(|(_, session)| session.recorded).map(|(id, _)| *id);
        if !is_full && waiting.nth(self.config.unconfirmed_max.saturating_sub(1)).is_none() {
            return gives_way;
        }
        let Some(oldest) = oldest else { return gives_way };
        self.counters.gave_way += 1;
        self.expire(now, oldest, effects);
        true
    }

    fn open_session(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        open: &OpenTail,
        effects: &mut Effects<ServerOwn>,
    ) {
        let client_nonce = open.client_nonce;
        self.session_count += 1;
        let id = SessionId(u64::from(self.config.epoch.0) << 32 | u64::from(self.session_count));
        let server_nonce =
            nonce_under(open.key_epoch, self.keys.nonces.mac(&[&id.0.to_le_bytes()]).to_le_bytes());
        let record = RecoveredSession {
            session: id,
            epoch: self.config.epoch,
            client_nonce,
            server_nonce,
            position: SeqNum(0),
        };
        let keys = self.config.cluster_key.session(&client_nonce, &server_nonce, id, self.config.epoch);
        let window = self.window_for(open.window_asked);
        let mut session = ServedSession::new(&record, keys, window, self.config.replies_bytes_max);
        session.client = Some(from);
        session.heard_at = now;
        self.by_nonce.insert(client_nonce, id);
        self.sessions.insert(id, session);
        effects.own(ServerOwn::RecordSession { record });
    }

    /// The window of a session whose client asks for so much: no larger than any of the devices has slots for, as far
    /// as they have said.
    fn window_for(&self, asked: u32) -> u32 {
        let devices = self.devices().filter_map(|(device, _)| self.device_windows.get(&device));
        let least = devices.copied().filter(|window| *window > 0).min().unwrap_or(u32::MAX);
        asked.min(self.config.window).min(least).max(1)
    }

    /// Storage has the session's record: its client may use it.
    pub fn on_session_recorded(&mut self, _now: Nanos, id: SessionId, effects: &mut Effects<ServerOwn>) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.recorded = true;
            self.send_accept(id, effects);
        }
    }

    /// Storage has forgotten the session's record.
    pub fn on_session_deleted(&mut self, _now: Nanos, id: SessionId, _effects: &mut Effects<ServerOwn>) {
        self.remove_session(id);
    }

    fn remove_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.by_nonce.remove(&session.client_nonce);
        self.buffer_bytes -= session.buffer.values().map(|pending| pending.payload.len()).sum::<usize>();
        self.order.forget_session(id);
        self.dirty.remove(&id);
        self.questions.retain(|(_, waiting)| *waiting != id);
        self.fragments.forget_session(id);
    }

    /// The application broke for this session: its client is told, whatever it asks and whatever
    /// the application has answered before, and the session is expired.
    pub fn fail_session(&mut self, now: Nanos, id: SessionId, effects: &mut Effects<ServerOwn>) {
        self.end_failed(now, id, CloseReason::ServerFailed, effects);
    }

    /// The application has no memory for this session's record: whoever wants to open it is told.
    pub fn refuse_session(&mut self, now: Nanos, id: SessionId, effects: &mut Effects<ServerOwn>) {
        self.end_failed(now, id, CloseReason::NoMemory, effects);
    }

    fn end_failed(
        &mut self,
        now: Nanos,
        id: SessionId,
        reason: CloseReason,
        effects: &mut Effects<ServerOwn>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.failed = true;
        match session.client.filter(|_| !session.recorded) {
            // It was never accepted, so its client has no keys yet.
            Some(client) => {
                let nonce = session.client_nonce;
                self.send_close_without_keys(client, SessionId(0), reason, &nonce, effects);
            }
            None => self.send_close(id, SeqNum(0), reason, effects),
        }
        self.expire(now, id, effects);
        self.pump(now, effects);
    }

    /// Also teaches the devices on the way.
    pub(super) fn send_accept(&self, id: SessionId, effects: &mut Effects<ServerOwn>) {
        let ready = |session: &&ServedSession| session.recorded && session.closing_since.is_none();
        let Some(session) = self.sessions.get(&id).filter(ready) else { return };
        let Some(client) = session.client else { return };
        let mut header = Header::new(Kind::SessionAccept, id, session.epoch);
        header.set_offered(self.config.extensions);
        let tail = Tail::Accept(AcceptTail {
            client_nonce: session.client_nonce,
            server_nonce: session.server_nonce,
            window: self.window_for(session.window),
            expiry_ms: (self.config.expiry.0 / 1_000_000) as u32,
        });
        let Ok(key) = self.keys.handshake.of(key_epoch(&session.server_nonce)) else { return };
        effects.send(self.config.local, client, |out| emit(&header, &tail, &[], &key, out));
    }

    pub(super) fn send_close(
        &self,
        id: SessionId,
        seq: SeqNum,
        reason: CloseReason,
        effects: &mut Effects<ServerOwn>,
    ) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Some(client) = session.client else { return };
        let mut header = Header::new(Kind::SessionClose, id, self.config.epoch);
        header.seq_num = seq;
        let key = session.keys.server_to_client;
        effects.send(self.config.local, client, |out| {
            emit(&header, &Tail::Close(CloseTail { reason }), &[], &key, out);
        });
    }

    pub(super) fn send_close_without_keys(
        &self,
        client: SocketAddr,
        id: SessionId,
        reason: CloseReason,
        payload: &[u8],
        effects: &mut Effects<ServerOwn>,
    ) {
        let header = Header::new(Kind::SessionClose, id, self.config.epoch);
        // Nobody knows under which of them the client would understand it.
        for key in self.keys.handshake.all() {
            effects.send(self.config.local, client, |out| {
                emit(&header, &Tail::Close(CloseTail { reason }), payload, &key, out);
            });
        }
    }

    /// Whether the packet is from the client of a session known here; otherwise its sender is told.
    pub(super) fn hear_client(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<bool, WireError> {
        let revoked = self.sessions.get(&packet.session()).is_some_and(|session| self.is_revoked(session));
        let Some(session) = self.sessions.get_mut(&packet.session()) else {
            self.counters.unknown_session += 1;
            if self.serving {
                let reason = CloseReason::UnknownSession;
                self.send_close_without_keys(from, packet.session(), reason, &[], effects);
            }
            return Ok(false);
        };
        if revoked {
            let reason = CloseReason::UnknownSession;
            self.send_close_without_keys(from, packet.session(), reason, &[], effects);
            return Err(WireError::UnknownKeyEpoch);
        }
        packet.verify(&session.keys.client_to_server)?;
        if packet.seq_num().0.max(packet.header().completed.0) > SEQ_MAX {
            return Err(WireError::InvalidField);
        }
        session.client = Some(from);
        session.confirmed = true;
        session.heard_at = session.heard_at.max(now);
        let completed = packet.header().completed;
        if completed > session.completed {
            // What waited for it to take replies may go on.
            self.dirty.insert(packet.session());
            session.completed = completed;
            session.forget_taken_replies();
        }
        let (open, failed) = (session.closing_since.is_none(), session.failed);
        if failed {
            self.send_close(packet.session(), SeqNum(0), CloseReason::ServerFailed, effects);
        }
        Ok(open)
    }

    pub(super) fn on_heartbeat(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        if !self.hear_client(now, from, packet, effects)? {
            return Ok(());
        }
        let Tail::Heartbeat(tail) = *packet.tail() else { return Err(WireError::InvalidField) };
        let window = u64::from(self.config.window);
        let Some(session) = self.sessions.get_mut(&packet.session()) else { return Ok(()) };
        session.highest = session.highest.max(SeqNum(tail.highest.0.min(session.next.0 + window)));
        self.dirty.insert(packet.session());
        self.send_heartbeat(packet.session(), &[], effects);
        Ok(())
    }

    /// When the responses to sampled requests of a session left this host, by the kernel's stamps. They have
    /// to fit a packet.
    pub fn late_stamps(
        &mut self,
        id: SessionId,
        stamps: &mut dyn Iterator<Item = LateStamp>,
        effects: &mut Effects<ServerOwn>,
    ) {
        let mut payload = Vec::new();
        for stamp in stamps {
            stamp.write(&mut payload);
        }
        self.send_heartbeat(id, &payload, effects);
    }

    fn send_heartbeat(&mut self, id: SessionId, payload: &[u8], effects: &mut Effects<ServerOwn>) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Some(client) = session.client else { return };
        let header = Header::new(Kind::Heartbeat, id, self.config.epoch);
        let tail = HeartbeatTail { highest: SeqNum(0), stable: session.stable() };
        let key = session.keys.server_to_client;
        effects.send(self.config.local, client, |out| {
            emit(&header, &Tail::Heartbeat(tail), payload, &key, out);
        });
    }

    pub(super) fn on_client_close(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        let known = self.hear_client(now, from, packet, effects)?;
        let (id, last) = (packet.session(), packet.seq_num());
        if known && packet.header().completed >= last {
            // A client closes when it keeps nothing any more: what is not here were reads that a device has answered.
            self.pass_over(id, last);
        }
        let Some(session) = self.sessions.get(&id) else { return Ok(()) };
        let stable = session.unstable.is_empty() && session.next > last;
        if !known || stable {
            self.send_close(id, SeqNum(0), CloseReason::ByClient, effects);
        }
        if known && stable {
            self.expire(now, id, effects);
        }
        Ok(())
    }

    // ---- expiry

    pub(super) fn expire_silent(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) {
        let expiry = self.config.expiry;
        self.expiry_check_at = now.plus(Nanos(expiry.0 / 8 + 1));
        if !self.serving {
            return;
        }
        let silent: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.closing_since.is_none() && session.recorded)
            .filter(|(_, session)| now.since(session.heard_at) > expiry)
            .map(|(id, _)| *id)
            .collect();
        for id in silent {
            self.counters.expired += 1;
            self.expire(now, id, effects);
        }
    }

    /// Begins the first phase: the devices are asked to acknowledge nothing more and to empty
    /// themselves of the session; what they still send is applied (rule 11).
    pub(super) fn expire(&mut self, now: Nanos, id: SessionId, effects: &mut Effects<ServerOwn>) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.closing_since.is_none())
        else {
            return;
        };
        session.closing_since = Some(now);
        if self.planted(Fault::DeleteBeforeEmpty) {
            effects.own(ServerOwn::DeleteSession { session: id });
            return;
        }
        let devices: Vec<_> = self.devices().map(|(device, _)| device).collect();
        for device in devices {
            self.ask_to_empty(now, id, device);
        }
        self.delete_if_empty(id, effects);
    }

    /// What a closing session still has waiting behind a gap that its client will not fill: behind
    /// reads it is applied, behind a write it was never completed and becomes a dead letter.
    pub(super) fn settle_rest(&mut self, now: Nanos, id: SessionId, effects: &mut Effects<ServerOwn>) {
        let grace = self.config.gap_grace;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.closing_since.is_none_or(|since| now.since(since) < grace)
            || !session.has_gap()
            || session.dead
        {
            return;
        }
        if session.buffer.is_empty() {
            session.highest = SeqNum(session.next.0 - 1);
            return;
        }
        if let Some(first) = session.behind_reads() {
            session.next = first;
            self.dirty.insert(id);
            return;
        }
        session.dead = true;
        for (seq, pending) in std::mem::take(&mut session.buffer) {
            self.buffer_bytes -= pending.payload.len();
            self.bury(id, seq, pending.stamp, &pending.payload, effects);
        }
    }

    /// What a device still has of a session that is dead.
    pub(super) fn bury_late(
        &mut self,
        id: SessionId,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        if let Some(whole) = self.fragments.offer(packet)? {
            self.bury(id, packet.seq_num(), packet.stamp(), &whole.payload, effects);
        }
        Ok(())
    }

    fn bury(
        &mut self,
        id: SessionId,
        seq: SeqNum,
        stamp: Stamp,
        payload: &[u8],
        effects: &mut Effects<ServerOwn>,
    ) {
        if stamp.kind != StampKind::Order {
            return;
        }
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.next <= seq) else { return };
        if !session.buried.insert(seq) {
            return;
        }
        self.order.done((stamp.boot_epoch, stamp.number));
        self.counters.dead_letters += 1;
        let payload = effects.append(|out| out.extend_from_slice(payload));
        effects.own(ServerOwn::DeadLetter { session: id, seq, reason: DeadLetterReason::BehindGap, payload });
    }

    /// The second phase: every device is empty and everything executed is stable.
    pub(super) fn delete_if_empty(&mut self, id: SessionId, effects: &mut Effects<ServerOwn>) {
        let confirmed = !self.expiring.keys().any(|(waiting, _)| *waiting == id);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let idle = session.unstable.is_empty() && session.executing == 0;
        if session.closing_since.is_some() && !session.deleting && confirmed && idle {
            session.deleting = true;
            effects.own(ServerOwn::DeleteSession { session: id });
        }
    }
}
