//! Replies and stability: a reply leaves when nothing it depends on can be lost, and `ServerAck`
//! says what storage itself holds (rules 6, 8 and 9).

use super::session::ServedSession;
use super::{Server, ServerOwn};
use crate::fault::Fault;
use crate::packets::{send_whole, Route};
use scotfree_core::{Effects, Nanos, SeqNum, SessionId};
use scotfree_wire::{
    emit, emit_extended, Extensions, Flags, Header, Kind, ObjectNote, ResponseTail, Tail, RESPONSE_BYTES_MAX,
};
use std::collections::BTreeSet;

impl Server {
    /// The reply to come of a read depends on nothing that was written: it says nothing of any data. Of a write this
    /// is not believed.
    pub fn on_independent(&mut self, ticket: u64) {
        if let Some(flight) = self.in_flight.get_mut(&ticket).filter(|flight| !flight.kind.writes()) {
            flight.hold_until = 0;
        }
    }

    /// The reply to come of a read shows one value, which lives so many milliseconds on if nobody writes it; for ever
    /// if that is `u64::MAX`. It is said to whoever sees the reply pass, so the application knows that its client takes
    /// such a note: all do that it has told of it. Of a write this is not believed, nor of a reply that one packet does
    /// not hold.
    pub fn on_lives(&mut self, ticket: u64, remaining_ms: u64) {
        let Some(flight) = self.in_flight.get(&ticket).filter(|flight| !flight.kind.writes()) else { return };
        let session = self.sessions.get_mut(&flight.session);
        if let Some(reply) = session.and_then(|session| session.replies.get_mut(&flight.seq)) {
            reply.lives_ms = Some(remaining_ms);
        }
    }

    /// The application has executed a request.
    pub fn on_executed(
        &mut self,
        now: Nanos,
        ticket: u64,
        reply: &[u8],
        failed: bool,
        times: ResponseTail,
        effects: &mut Effects<ServerOwn>,
    ) {
        let mut more_may_run = self.is_saturated();
        let Some(flight) = self.in_flight.remove(&ticket) else { return };
        let (id, seq) = (flight.session, flight.seq);
        // A reply that no response can carry becomes an empty failure; the shell knows how to say it.
        let (reply, failed) =
            if reply.len() > RESPONSE_BYTES_MAX { (&[][..], true) } else { (reply, failed) };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.executing -= 1;
            session.note_reply(flight.kind, reply.len());
            if !session.buffer.is_empty() {
                // It may have waited for the size of this reply.
                self.dirty.insert(id);
                more_may_run = true;
            }
            if let Some(kept) = session.replies.get_mut(&seq) {
                kept.bytes = Some(reply.to_vec());
                kept.failed = failed;
                kept.times = times;
                kept.ready_at = now;
            }
            if flight.hold_until <= self.ticket_stable || self.planted(Fault::ReplyBeforeStable) {
                self.release(now, id, seq, effects);
            } else {
                self.counters.replies_held += 1;
                self.held.insert((flight.hold_until, id, seq));
            }
            self.drop_old_replies(id);
            self.delete_if_empty(id, effects);
        }
        if self.planted(Fault::StableWhenApplied) {
            self.on_stable(now, ticket, effects);
        }
        if more_may_run {
            self.pump(now, effects);
        }
    }

    fn release(&mut self, now: Nanos, id: SessionId, seq: SeqNum, effects: &mut Effects<ServerOwn>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(reply) = session.replies.get_mut(&seq) {
            reply.sent = true;
            // The time that a reply was held belongs to the queue, not to the stack behind it.
            if reply.times.dequeued != Nanos(0) {
                reply.times.dequeued = reply.times.dequeued.plus(now.since(reply.ready_at));
            }
            self.respond(id, seq, effects);
        }
        // What completed early was taken before it was made.
        if let Some(session) = self.sessions.get_mut(&id) {
            session.forget_taken_replies();
        }
    }

    pub(super) fn respond(&self, id: SessionId, seq: SeqNum, effects: &mut Effects<ServerOwn>) {
        let answers = |session: &&ServedSession| !session.failed || self.planted(Fault::AnswerFailed);
        let Some(session) = self.sessions.get(&id).filter(answers) else { return };
        let (Some(client), Some(reply)) = (session.client, session.replies.get(&seq)) else { return };
        let Some(bytes) = &reply.bytes else { return };
        let mut header = Header::new(Kind::Response, id, self.config.epoch);
        header.seq_num = seq;
        header.key_hash = reply.key_hash;
        header.flags = if reply.failed { Flags::FAILED } else { Flags::NONE };
        let tail = Tail::Response(reply.times);
        let key = &session.keys.server_to_client;
        let note = reply
            .lives_ms
            .filter(|_| !reply.failed)
            .map(|remaining_ms| ObjectNote { value_bytes: bytes.len() as u64, remaining_ms });
        let extensions = Extensions { object: note, ..Extensions::NONE };
        if note.is_some() && bytes.len() + extensions.bytes() <= Kind::Response.payload_bytes_max() {
            return effects.send(self.config.local, client, |out| {
                emit_extended(&header, &tail, &extensions, bytes, key, out);
            });
        }
        let route = Route { from: self.config.local, to: client };
        send_whole(effects, route, &header, &tail, bytes, key)
            .expect("the size was checked when the application replied");
    }

    /// Replies that were sent long ago give way to new ones.
    fn drop_old_replies(&mut self, id: SessionId) {
        let most = self.config.replies_bytes_max;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        while session.replies_bytes > most {
            let Some(oldest) = session.replies.first_entry().filter(|oldest| oldest.get().sent) else {
                return;
            };
            session.replies_bytes -= oldest.remove().bytes.map_or(0, |bytes| bytes.len());
        }
    }

    /// Storage holds everything executed through `ticket`.
    pub(super) fn on_stable(&mut self, now: Nanos, ticket: u64, effects: &mut Effects<ServerOwn>) {
        self.ticket_stable = self.ticket_stable.max(ticket.min(self.ticket_last));
        let mut changed = BTreeSet::new();
        while let Some(entry) = self.unstable.first_entry().filter(|entry| *entry.key() <= ticket) {
            let (id, seq) = entry.remove();
            if let Some(session) = self.sessions.get_mut(&id) {
                // A session's writes are executed in its order, so what is stable is at the front.
                while session.unstable.front().is_some_and(|unstable| *unstable <= seq) {
                    session.unstable.pop_front();
                }
                changed.insert(id);
            }
        }
        while let Some((hold_until, id, seq)) =
            self.held.first().copied().filter(|(held, _, _)| *held <= ticket)
        {
            self.held.remove(&(hold_until, id, seq));
            self.release(now, id, seq, effects);
        }
        for id in changed {
            self.send_server_ack(id, effects);
            self.delete_if_empty(id, effects);
        }
    }

    /// Says what is stable, to the client past the devices; of a session that is closing, to the
    /// devices only, since dead letters count as dealt with there.
    pub(super) fn send_server_ack(&mut self, id: SessionId, effects: &mut Effects<ServerOwn>) {
        let Some(session) = self.sessions.get(&id) else { return };
        self.counters.server_acks += 1;
        let mut header = Header::new(Kind::ServerAck, id, self.config.epoch);
        header.seq_num = session.stable();
        match session.client.filter(|_| session.closing_since.is_none()) {
            Some(client) => {
                let key = session.keys.server_to_client;
                effects.send(self.config.local, client, |out| emit(&header, &Tail::Empty, &[], &key, out));
            }
            None => self.send_to_devices(&header, effects),
        }
    }

    pub(super) fn send_to_devices(&self, header: &Header, effects: &mut Effects<ServerOwn>) {
        let devices = self.config.devices.iter();
        for (device, address) in devices.filter(|(device, _)| !self.excluded.contains(device)) {
            let key = self.to_device(*device);
            effects.send(self.config.local, *address, |out| emit(header, &Tail::Empty, &[], &key, out));
        }
    }
}
