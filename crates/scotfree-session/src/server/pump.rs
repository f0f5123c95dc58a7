//! From arrival to execution: a request waits until its session and the order let it through (rule
//! 2), and what it waits for is asked for.

use super::session::{Pending, Question, Reply, Wanted};
use super::{InFlight, Server, ServerOwn};
use crate::client::RequestKind;
use crate::fault::Fault;
use scotfree_core::{Durability, Effects, Nanos, OrderKey, OrderNumber, SeqNum, SessionId};
use scotfree_wire::{
    emit, BusyTail, CloseReason, Flags, Header, Kind, Packet, RangeTail, ResponseTail, Stamp, StampKind,
    Tail, WireError,
};
use std::net::SocketAddr;

/// Order numbers that something waits for and that are not here.
#[derive(Debug, Clone, Copy)]
pub(super) struct OrderQuestion {
    first: OrderKey,
    last: OrderNumber,
    ask_at: Nanos,
}

/// The next update in order is here, and its session misses a request before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocked {
    key: OrderKey,
    since: Nanos,
}

/// When a request may be executed.
enum Turn {
    Now,
    /// After everything up to this key.
    Barrier(OrderKey),
    /// When its key is the next.
    Order,
    /// When the head has said what its place is.
    Unknown,
}

impl Server {
    pub(super) fn on_request(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        let id = packet.session();
        if !self.hear_client(now, from, packet, effects)? {
            return Ok(());
        }
        if !self.config.extensions.has(packet.extensions().set()) {
            return Err(WireError::ExtensionNotOffered);
        }
        let stamp = self.keys.stamp.verified_stamp(packet)?;
        let stamp = self.current_stamp(now, stamp, effects);
        self.take(id, packet, stamp, false, effects)
    }

    /// A stamp counts if it is of the head and of its present incarnation; a newer incarnation must
    /// say first what it holds.
    fn current_stamp(&mut self, now: Nanos, stamp: Stamp, effects: &mut Effects<ServerOwn>) -> Stamp {
        let Some((head, _)) = self.head().filter(|_| stamp.kind != StampKind::None) else {
            return Stamp::default();
        };
        if stamp.device != head {
            return Stamp::default();
        }
        if self.order.view.is_none() && self.planted(Fault::ServeBeforeReplay) {
            let before = OrderNumber(stamp.number.0.saturating_sub(1));
            self.order.settle((stamp.boot_epoch, head), (stamp.boot_epoch, before));
        }
        match self.order.view {
            Some((boot_epoch, _)) if stamp.boot_epoch < boot_epoch => Stamp::default(),
            Some((boot_epoch, device)) if stamp.boot_epoch == boot_epoch && device == head => stamp,
            Some(_) | None => {
                self.poll_for_view(now, head, effects);
                stamp
            }
        }
    }

    /// Takes a request whose sender is known to be authentic; completes it from its fragments.
    pub(super) fn take(
        &mut self,
        id: SessionId,
        packet: &Packet<'_>,
        stamp: Stamp,
        replayed: bool,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        let seq = packet.seq_num();
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        if seq < session.next {
            if packet.header().fragment_index == 0 {
                self.on_duplicate(id, packet, stamp, replayed, effects);
            }
            return Ok(());
        }
        if session.dead {
            return if replayed { self.bury_late(id, packet, effects) } else { Ok(()) };
        }
        if !replayed && session.is_beyond(seq, self.config.window) {
            self.counters.beyond_window += 1;
            return Ok(());
        }
        session.highest = session.highest.max(seq);
        self.dirty.insert(id);
        if packet.flags().has(Flags::SKIP) {
            self.skip(id, packet.header().skip_first(), seq);
            return Ok(());
        }
        if self.enrich(id, seq, stamp, replayed) {
            self.learn_identity(id, seq, packet);
            return Ok(());
        }
        if let Some(whole) = self.fragments.offer(packet)? {
            self.keep(id, packet, stamp, replayed, &whole.payload, effects);
        }
        Ok(())
    }

    /// The client has forgotten these requests: they were reads that are complete, or stable.
    fn skip(&mut self, id: SessionId, first: SeqNum, last: SeqNum) {
        if self.sessions.get(&id).is_some_and(|session| first <= session.next) {
            self.pass_over(id, last);
        }
    }

    /// Goes on behind `last`, or at what is here and was not executed.
    pub(super) fn pass_over(&mut self, id: SessionId, last: SeqNum) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let held = session.buffer.keys().next().copied().unwrap_or(last.next());
        session.next = session.next.max(last.next().min(held));
    }

    /// A request that is here already may learn its place from another copy: its first, or the one
    /// in the log of a newer incarnation of the head, which is the log that would be replayed.
    fn enrich(&mut self, id: SessionId, seq: SeqNum, stamp: Stamp, replayed: bool) -> bool {
        let Some(pending) = self.sessions.get_mut(&id).and_then(|session| session.buffer.get_mut(&seq))
        else {
            return false;
        };
        pending.may_be_told |= replayed && !self.serving;
        let older = stamp.boot_epoch < pending.stamp.boot_epoch;
        let newer = stamp.boot_epoch > pending.stamp.boot_epoch;
        // Of two places that are both in a log the earlier one counts.
        let better = match (pending.stamp.kind, pending.replayed, replayed) {
            (StampKind::None, _, _) => true,
            // A device that did not know the session named a place, learnt the session and logged the
            // request when it came again: the order has that number, and nobody else will fill it.
            (StampKind::Barrier, _, _) if stamp.kind == StampKind::Order && !older => true,
            (_, true, true) => older,
            (_, true, false) => false,
            (_, false, true) => older || newer,
            (_, false, false) => newer,
        };
        if stamp.kind == StampKind::Order && !better && newer {
            self.order.done((stamp.boot_epoch, stamp.number));
        }
        if stamp.kind != StampKind::None && better {
            pending.replayed |= replayed;
            if pending.stamp.kind == StampKind::Order {
                self.order.done((pending.stamp.boot_epoch, pending.stamp.number));
            }
            pending.stamp = stamp;
            if stamp.kind == StampKind::Order {
                self.order.hold((stamp.boot_epoch, stamp.number), id, seq);
            }
        }
        true
    }

    /// A device's log keeps no identity: whichever copy of the request has one says it.
    fn learn_identity(&mut self, id: SessionId, seq: SeqNum, packet: &Packet<'_>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(pending) = session.buffer.get_mut(&seq) else { return };
        pending.identity = pending.identity.or(packet.extensions().identity());
    }

    fn keep(
        &mut self,
        id: SessionId,
        packet: &Packet<'_>,
        stamp: Stamp,
        replayed: bool,
        payload: &[u8],
        effects: &mut Effects<ServerOwn>,
    ) {
        let seq = packet.seq_num();
        let next = self.sessions.get(&id).map(|session| session.next);
        // What a device replays is bounded by its log, and must not be lost here while it is fetched.
        let full = self.buffer_bytes + payload.len() > self.config.buffer_bytes_max;
        if full && !replayed && next != Some(seq) {
            return self.send_busy(id, effects);
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let pending = Pending {
            // What a device replays is an update.
            kind: RequestKind::of(packet.kind()).unwrap_or(RequestKind::Update),
            flags: packet.flags(),
            asked: packet.header().asked,
            key_hash: packet.header().key_hash,
            stamp,
            replayed,
            may_be_told: replayed && !self.serving,
            identity: packet.extensions().identity(),
            payload: payload.to_vec(),
        };
        self.buffer_bytes += payload.len();
        session.buffer.insert(seq, pending);
        if stamp.kind == StampKind::Order {
            self.order.hold((stamp.boot_epoch, stamp.number), id, seq);
        }
    }

    fn send_busy(&mut self, id: SessionId, effects: &mut Effects<ServerOwn>) {
        self.counters.busy += 1;
        let Some(session) = self.sessions.get(&id) else { return };
        let Some(client) = session.client else { return };
        let header = Header::new(Kind::Busy, id, self.config.epoch);
        let tail = Tail::Busy(BusyTail { backoff: self.config.busy_backoff });
        let key = session.keys.server_to_client;
        effects.send(self.config.local, client, |out| emit(&header, &tail, &[], &key, out));
    }

    /// A request that has been executed: its answer again, or the word that it is gone (rule 9).
    fn on_duplicate(
        &mut self,
        id: SessionId,
        packet: &Packet<'_>,
        stamp: Stamp,
        replayed: bool,
        effects: &mut Effects<ServerOwn>,
    ) {
        let seq = packet.seq_num();
        self.counters.duplicates += 1;
        if stamp.kind == StampKind::Order {
            self.order.done((stamp.boot_epoch, stamp.number));
        }
        let Some(session) = self.sessions.get(&id) else { return };
        if session.stable() >= seq {
            // What goes to the client need not pass the device that sends its log.
            if replayed {
                self.send_stable_to_devices(id, effects);
            } else {
                self.send_server_ack(id, effects);
            }
        }
        if replayed || packet.flags().has(Flags::SKIP) || self.sessions[&id].completed >= seq {
            return;
        }
        match self.sessions[&id].replies.get(&seq) {
            Some(reply) if reply.sent => {
                self.counters.replies_resent += 1;
                self.respond(id, seq, effects);
            }
            Some(_) => {}
            None if self.planted(Fault::ExecuteAgain) => self.execute_again(id, packet, effects),
            None => {
                self.counters.replies_gone += 1;
                self.send_close(id, seq, CloseReason::ReplyGone, effects);
            }
        }
    }

    /// Only the planted fault of rule 9 does this.
    fn execute_again(&mut self, id: SessionId, packet: &Packet<'_>, effects: &mut Effects<ServerOwn>) {
        let pending = Pending {
            kind: if packet.kind() == Kind::Read { RequestKind::Read } else { RequestKind::Update },
            flags: packet.flags(),
            asked: packet.header().asked,
            key_hash: packet.header().key_hash,
            stamp: Stamp::default(),
            replayed: false,
            may_be_told: false,
            identity: packet.extensions().identity(),
            payload: packet.payload().to_vec(),
        };
        self.buffer_bytes += pending.payload.len();
        self.execute(id, packet.seq_num(), &pending, effects);
    }

    // ---- executing

    /// Executes whatever may be executed, then notes what is missing.
    pub(super) fn pump(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) {
        if !self.serving {
            return;
        }
        while !self.is_saturated() {
            let in_order = self.execute_in_order(now, effects);
            while let Some(id) = self.order.released() {
                self.dirty.insert(id);
            }
            match self.dirty.pop_first() {
                Some(id) => self.execute_session(now, id, effects),
                None if in_order => {}
                None => break,
            }
        }
        self.note_missing_order(now);
    }

    /// Whether so much has been executed and is not answered or not stable that the rest waits:
    /// it goes on when the application has answered or storage has caught up.
    pub(super) fn is_saturated(&self) -> bool {
        self.in_flight.len() + self.unstable.len() >= self.config.unfinished_max
    }

    /// Executes the next update in order, if its session has come to it.
    fn execute_in_order(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) -> bool {
        let Some((key, id, seq)) = self.order.next() else {
            self.blocked = None;
            return false;
        };
        let Some(session) = self.sessions.get_mut(&id) else {
            self.order.pass(key);
            return true;
        };
        if session.next > seq {
            self.order.pass(key);
            return true;
        }
        if session.next < seq {
            let head = session.next;
            let place = session.buffer.get(&head).map(|head| head.stamp);
            if place
                .is_some_and(|place| place.kind == StampKind::Order && (place.boot_epoch, place.number) > key)
            {
                // Its own predecessor was logged anew behind it: it was not complete then, and takes
                // the key over from that.
                self.order.pass(key);
                return true;
            }
            let waits_for_client = session.buffer.get(&head).is_some_and(Pending::is_relaxed);
            if waits_for_client || place.is_some_and(|place| place.kind == StampKind::Barrier) {
                let pending = session.buffer.remove(&head).expect("it was looked at just now");
                // Either it waits for its client only, and others are not to; or its barrier lies behind
                // its own successor: a newer incarnation of the head gave it.
                self.execute(id, head, &pending, effects);
                self.dirty.insert(id);
                return true;
            }
            if self.blocked.is_none_or(|blocked| blocked.key != key) {
                self.blocked = Some(Blocked { key, since: now });
                self.dirty.insert(id);
            }
            return false;
        }
        let Some(pending) = session.buffer.remove(&seq) else {
            // Held without a request cannot be: what is held is in the buffer.
            self.order.pass(key);
            return true;
        };
        self.blocked = None;
        self.execute(id, seq, &pending, effects);
        self.hand_on(key, id);
        self.dirty.insert(id);
        true
    }

    /// An update that follows in the session and was logged before `key`, which has been executed,
    /// belongs to the same place: once it is complete, whatever comes behind `key` must see it.
    fn hand_on(&mut self, key: OrderKey, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let follower = session.buffer.iter().find(|(_, pending)| pending.stamp.kind == StampKind::Order);
        let Some((seq, Pending { stamp, .. })) = follower else { return };
        if (stamp.boot_epoch, stamp.number) < key {
            self.order.hand_on(key, id, *seq);
        }
    }

    /// Executes what the session has at its head, as far as it may.
    fn execute_session(&mut self, now: Nanos, id: SessionId, effects: &mut Effects<ServerOwn>) {
        loop {
            if self.is_saturated() {
                self.dirty.insert(id);
                return;
            }
            let Some(session) = self.sessions.get(&id) else { return };
            let seq = session.next;
            let Some(pending) = session.buffer.get(&seq) else {
                if self.pass_completed_reads(id) {
                    continue;
                }
                let gap = self.sessions.get(&id).is_some_and(super::session::ServedSession::has_gap);
                return self.note_question(now, id, gap.then_some(Wanted::Request), effects);
            };
            match self.turn(pending) {
                // Writes go on all the same: their replies are small, and others may wait for them.
                Turn::Now
                    if pending.kind == RequestKind::Read
                        && session.is_ahead(self.config.replies_bytes_max) =>
                {
                    return self.note_question(now, id, None, effects);
                }
                Turn::Now => {
                    let Some(session) = self.sessions.get_mut(&id) else { return };
                    let Some(pending) = session.buffer.remove(&seq) else { return };
                    self.execute(id, seq, &pending, effects);
                }
                Turn::Barrier(key) => {
                    self.order.wait(key, id);
                    return self.note_question(now, id, None, effects);
                }
                Turn::Order => return self.note_question(now, id, None, effects),
                Turn::Unknown => return self.note_question(now, id, Some(Wanted::Place), effects),
            }
        }
    }

    /// Passes over a gap of reads that are complete at the client, as the next request's stamp and
    /// the client's own word tell.
    fn pass_completed_reads(&mut self, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let Some((seq, pending)) = session.buffer.first_key_value() else { return false };
        let reads = pending.stamp.kind != StampKind::None && pending.stamp.previous_write < session.next;
        let passed = reads && *seq <= session.completed.next();
        if passed {
            session.next = *seq;
        }
        passed
    }

    fn turn(&self, pending: &Pending) -> Turn {
        let free = pending.is_relaxed() || self.head().is_none();
        let key = (pending.stamp.boot_epoch, pending.stamp.number);
        match pending.stamp.kind {
            _ if free => Turn::Now,
            StampKind::None if self.planted(Fault::SkipDrain) => Turn::Now,
            StampKind::None => Turn::Unknown,
            StampKind::Order if self.planted(Fault::IgnoreOrder) => Turn::Now,
            StampKind::Order if self.order.is_given_up(key) => Turn::Now,
            StampKind::Order => Turn::Order,
            StampKind::Barrier if self.planted(Fault::IgnoreBarrier) => Turn::Now,
            // What was executed behind an unlogged request before a crash had its reply held: it may
            // come behind all that the logs held.
            StampKind::Barrier if self.order.is_passed(self.order.behind_recovered(key)) => Turn::Now,
            StampKind::Barrier => Turn::Barrier(self.order.behind_recovered(key)),
        }
    }

    /// Hands the session's next request to the application.
    fn execute(&mut self, id: SessionId, seq: SeqNum, pending: &Pending, effects: &mut Effects<ServerOwn>) {
        self.buffer_bytes -= pending.payload.len();
        let logged = pending.stamp.kind == StampKind::Order;
        if logged {
            self.order.pass((pending.stamp.boot_epoch, pending.stamp.number));
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.next = session.next.max(seq.next());
        self.ticket_last += 1;
        let ticket = self.ticket_last;
        let alone = self.config.devices.is_empty();
        let before = self.ticket_unlogged;
        if pending.kind.writes() && !logged && !alone {
            self.ticket_unlogged = ticket;
        }
        // What asks for no durability need not wait for its own.
        let hold_until = if pending.asked == Durability::None && pending.kind == RequestKind::Update {
            before
        } else {
            self.ticket_unlogged
        };
        session.executing += 1;
        session.replies.insert(
            seq,
            Reply {
                bytes: None,
                key_hash: pending.key_hash,
                failed: false,
                times: ResponseTail::default(),
                ready_at: Nanos(0),
                lives_ms: None,
                sent: false,
            },
        );
        if pending.kind.writes() {
            session.last_write = session.last_write.max(seq);
            session.unstable.push_back(seq);
            self.unstable.insert(ticket, (id, seq));
        }
        self.in_flight.insert(ticket, InFlight { session: id, seq, kind: pending.kind, hold_until });
        self.counters.executed += 1;
        self.counters.replayed += u64::from(pending.replayed);
        let payload = effects.append(|out| out.extend_from_slice(&pending.payload));
        let is_replayed = pending.may_be_told && !self.planted(Fault::ReplayAsFresh);
        let Pending { kind, identity, .. } = *pending;
        effects.own(ServerOwn::Execute { ticket, session: id, seq, kind, is_replayed, identity, payload });
    }

    // ---- asking for what is missing

    /// Begins or ends a session's question: a missing request, or an unknown place.
    fn note_question(
        &mut self,
        now: Nanos,
        id: SessionId,
        wanted: Option<Wanted>,
        effects: &mut Effects<ServerOwn>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let seq = session.next;
        let open = |question: &Question| question.seq == seq && Some(question.wanted) == wanted;
        if let Some(question) = session.question.filter(|question| !open(question)) {
            self.questions.remove(&(question.ask_at, id));
            session.question = None;
        }
        let Some(wanted) = wanted.filter(|_| session.question.is_none()) else { return };
        let wait = if wanted == Wanted::Place { Nanos(0) } else { self.config.gap_ask_after };
        let ask_at = now.plus(wait);
        session.question = Some(Question { seq, wanted, ask_at });
        self.questions.insert((ask_at, id));
        if wanted == Wanted::Place {
            self.ask_for_session(now, id, effects);
        }
    }

    fn note_missing_order(&mut self, now: Nanos) {
        let asked = self.order_question;
        self.order_question = self.order.missing().map(|(boot_epoch, first, last)| {
            let first = (boot_epoch, first);
            let ask_at = match asked {
                Some(asked) if asked.first == first => asked.ask_at,
                _ => now.plus(self.config.gap_ask_after),
            };
            OrderQuestion { first, last, ask_at }
        });
    }

    pub(super) fn ask_again(&mut self, now: Nanos, effects: &mut Effects<ServerOwn>) {
        if !self.serving {
            return;
        }
        while let Some((_, id)) = self.questions.first().copied().filter(|(ask_at, _)| *ask_at <= now) {
            self.ask_for_session(now, id, effects);
        }
        if let Some(question) = self.order_question.filter(|question| question.ask_at <= now) {
            self.ask_for_order(now, question, effects);
        }
        if let Some(blocked) = self.blocked.filter(|blocked| self.gap_ends_at(*blocked) <= now) {
            self.pass_gap(now, blocked, effects);
        }
    }

    fn ask_for_session(&mut self, now: Nanos, id: SessionId, effects: &mut Effects<ServerOwn>) {
        let again = now.plus(self.config.retry_interval);
        let Some(session) = self.sessions.get_mut(&id) else {
            self.questions.retain(|(_, waiting)| *waiting != id);
            return;
        };
        let Some(question) = session.question.as_mut() else { return };
        self.questions.remove(&(question.ask_at, id));
        question.ask_at = again;
        self.questions.insert((again, id));
        let seq = session.next;
        match question.wanted {
            Wanted::Place => self.ask_for_place(id, seq, effects),
            Wanted::Request => self.ask_client(id, effects),
        }
    }

    /// Asks for the place of the next request, and of all that follow it here without one.
    fn ask_for_place(&mut self, id: SessionId, first: SeqNum, effects: &mut Effects<ServerOwn>) {
        let Some((device, head)) = self.head() else { return };
        let Some(session) = self.sessions.get(&id) else { return };
        let (mut last, mut last_write) = (first, session.last_write);
        for (seq, pending) in session.buffer.range(first..) {
            if seq.0 > last.0 + 1 || pending.stamp.kind != StampKind::None {
                break;
            }
            last = *seq;
            last_write = if pending.kind.writes() { *seq } else { last_write };
        }
        self.counters.drains_asked += 1;
        let mut header = Header::new(Kind::Drain, id, self.config.epoch);
        header.seq_num = first;
        header.set_run_last(last);
        header.set_run_last_write(last_write);
        let key = self.to_device(device);
        let tail = Tail::Stamp(Stamp::default());
        effects.send(self.config.local, head, |out| emit(&header, &tail, &[], &key, out));
    }

    fn ask_client(&mut self, id: SessionId, effects: &mut Effects<ServerOwn>) {
        let Some(session) = self.sessions.get(&id) else { return };
        let Some(client) = session.client else { return };
        let last = session.buffer.keys().next().map_or(session.highest.0, |first| first.0 - 1);
        let range = RangeTail { first: session.next.0, last, boot_epoch: scotfree_core::BootEpoch(0) };
        let header = Header::new(Kind::Retransmit, id, self.config.epoch);
        let key = session.keys.server_to_client;
        self.counters.gaps_asked += 1;
        effects.send(self.config.local, client, |out| emit(&header, &Tail::Range(range), &[], &key, out));
    }

    fn ask_for_order(&mut self, now: Nanos, question: OrderQuestion, effects: &mut Effects<ServerOwn>) {
        self.order_question =
            Some(OrderQuestion { ask_at: now.plus(self.config.retry_interval), ..question });
        let Some((device, head)) = self.head() else { return };
        self.counters.orders_asked += 1;
        let header = Header::new(Kind::Retransmit, SessionId(0), self.config.epoch);
        let (boot_epoch, first) = question.first;
        let range = RangeTail { first: first.0, last: question.last.0, boot_epoch };
        let key = self.to_device(device);
        effects.send(self.config.local, head, |out| emit(&header, &Tail::Range(range), &[], &key, out));
    }

    /// When the order waits no longer for a client: after `gap_grace` of silence, or after the
    /// time in which a session expires if it speaks but does not send what is missing.
    fn gap_ends_at(&self, blocked: Blocked) -> Nanos {
        let session = self.order.peek().and_then(|(id, _)| self.sessions.get(&id));
        let heard_at = session.map_or(Nanos(0), |session| session.heard_at);
        let silent =
            heard_at.plus(self.config.gap_grace).max(blocked.since.plus(Nanos(self.config.gap_grace.0 / 8)));
        silent.min(blocked.since.plus(self.config.expiry))
    }

    /// The client did not send what is missing: a gap of reads is passed over, since the update may
    /// have been completed; behind a write it cannot have been, and its key is given up.
    fn pass_gap(&mut self, now: Nanos, blocked: Blocked, effects: &mut Effects<ServerOwn>) {
        self.blocked = None;
        let Some((key, id, _)) = self.order.next().filter(|(key, _, _)| *key == blocked.key) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        // Not only the update that is next in order may say so: another that was logged anew may come
        // before it in the session.
        if let Some(first) = session.behind_reads() {
            session.next = first;
            self.counters.gaps_passed += 1;
        } else {
            // And with it all that the session holds behind the gap.
            for stamp in session.buffer.values().map(|pending| pending.stamp) {
                if stamp.kind == StampKind::Order {
                    self.order.done((stamp.boot_epoch, stamp.number));
                    self.counters.orders_given_up += 1;
                }
            }
            self.order.pass(key);
        }
        self.note_question(now, id, None, effects);
        self.dirty.insert(id);
    }

    pub(super) fn on_drain_answer(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        effects: &mut Effects<ServerOwn>,
    ) -> Result<(), WireError> {
        self.keys.from_device.verify(packet)?;
        let (id, seq) = (packet.session(), packet.seq_num());
        // The head looked into its log: a stamp of its past incarnations counts as well.
        let stamp = packet.stamp();
        let past = self.order.view.is_some_and(|view| stamp.device == view.1 && stamp.boot_epoch < view.0);
        let stamp = if past { stamp } else { self.current_stamp(now, stamp, effects) };
        let last =
            packet.header().completed.0.clamp(seq.0, seq.0.saturating_add(u64::from(self.config.window)));
        for seq in seq.0..=last {
            self.enrich(id, SeqNum(seq), stamp, false);
        }
        self.dirty.insert(id);
        if packet.flags().has(Flags::VOID) {
            // The device does not know the session: the acceptance teaches it.
            self.send_accept(id, effects);
        }
        Ok(())
    }

    pub(super) fn questions_timer(&self) -> Nanos {
        if !self.serving {
            return Nanos::MAX;
        }
        let session = self.questions.first().map_or(Nanos::MAX, |(ask_at, _)| *ask_at);
        let order = self.order_question.map_or(Nanos::MAX, |question| question.ask_at);
        let blocked = self.blocked.map_or(Nanos::MAX, |blocked| self.gap_ends_at(blocked));
        session.min(order).min(blocked)
    }
}
