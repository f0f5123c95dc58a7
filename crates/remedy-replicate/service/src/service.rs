//! The service: requests go into the machine, answers come out of it.
//!
//! Invariant: what is answered is what the machine answered; a write that is answered has its place stored with it.

use crate::any_life::{refusal, Known};
use crate::kept::Kept;
use crate::peers::Peers;
use crate::tickets::{Held, Tickets};
use remedy_replicate::{Decline, Replica, ReplicaOwn, Write};
use remedy_replicate_membership::{Membership, MembershipEvent};
use scotfree_core::{Effect, Effects, Nanos, SeqNum, SessionId};
use scotfree_io::{monotonic_at, now_boottime};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{DeadLetter, Execution, Handler, Replies, Report, Say, Service, StatefulService, Watch};
use scotfree_session::{RecoveredSession, RequestKind};
use scotfree_state::State;
use scotfree_wire::Identity;

/// Bursts of datagrams between members that are taken before others have their turn.
const BURSTS_PER_POLL_MAX: usize = 8;

/// What is replicated.
pub type Inner = Box<dyn StatefulService>;

/// What a [`ReplicatedService`] is made of.
pub(crate) struct Parts {
    pub(crate) machine: Box<dyn Replica<State = Inner>>,
    pub(crate) membership: Box<dyn Membership>,
    pub(crate) peers: Peers,
    pub(crate) kept: Kept,
    pub(crate) id: u8,
    pub(crate) boot: u32,
    pub(crate) is_stored_first: bool,
    pub(crate) decline: fn(&str) -> Vec<u8>,
    pub(crate) say: Say,
}

/// A member of a group.
pub struct ReplicatedService {
    parts: Parts,
    /// The epoch of the last view before this life.
    epoch_before: u64,
    effects: Effects<ReplicaOwn>,
    processed: usize,
    tickets: Tickets,
    inner_replies: Replies,
    /// How many places were noted since storage was last given what was written.
    places_taken: usize,
    events: Vec<MembershipEvent>,
    /// The request that is being executed at this moment.
    executing: Option<u64>,
    broken: Option<String>,
    lease_until: Nanos,
}

impl ReplicatedService {
    pub(crate) fn new(parts: Parts) -> ReplicatedService {
        ReplicatedService {
            epoch_before: parts.kept.epoch(),
            parts,
            effects: Effects::new(),
            processed: 0,
            tickets: Tickets::default(),
            inner_replies: Replies::new(),
            places_taken: 0,
            events: Vec::new(),
            executing: None,
            broken: None,
            lease_until: Nanos(0),
        }
    }

    fn inner(&self) -> &Inner {
        self.parts.machine.state()
    }

    fn inner_mut(&mut self) -> &mut Inner {
        self.parts.machine.state_mut()
    }

    /// A request without an identity has that of its session here: sessions belong to one member.
    fn identity_of(&self, request: &Execution<'_>) -> Identity {
        let Parts { id, boot, .. } = self.parts;
        request.identity.unwrap_or_else(|| of_session(id, boot, request.session, request.seq))
    }

    fn begin_read(&mut self, now: Nanos, ticket: u64, op: &[u8]) {
        self.parts.machine.read(now, ticket, op, &mut self.effects);
    }

    // ---- what comes out

    fn absorb(&mut self, now: Nanos, replies: &mut Replies) {
        loop {
            let next = self.effects.iter().nth(self.processed);
            let Some(effect) = next else { break };
            self.processed += 1;
            if let Effect::Own(own) = effect {
                let own = *own;
                self.on_own(now, own, replies);
            }
        }
    }

    fn on_own(&mut self, now: Nanos, own: ReplicaOwn, replies: &mut Replies) {
        match own {
            ReplicaOwn::Answer { ticket, reply, is_refused } => {
                let after = self.take_place(ticket);
                self.tickets.answer(ticket, self.effects.bytes(reply), is_refused, after);
                self.release(now, ticket);
            }
            ReplicaOwn::Decline { ticket, why } => self.decline(now, ticket, why, replies),
            ReplicaOwn::Stable { ticket } => self.tickets.settle(ticket),
            ReplicaOwn::Lost { ticket } => self.lose(now, ticket, replies),
            ReplicaOwn::Promote { member, epoch } => self.parts.membership.promote(member, epoch),
        }
    }

    /// A request is not executed. A write that had been taken already may be executed still: its session ends without
    /// an answer, and whoever sends it again elsewhere says the same identity.
    fn decline(&mut self, now: Nanos, ticket: u64, why: Decline, replies: &mut Replies) {
        let is_write = self.tickets.get(ticket).is_some_and(|ticket| ticket.seq.is_some());
        if is_write && self.executing != Some(ticket) {
            return self.lose(now, ticket, replies);
        }
        let bytes = (self.parts.decline)(&format!("{} {why}", code_of(why)));
        let after = self.take_place(ticket);
        self.tickets.answer(ticket, &bytes, true, after);
        self.tickets.settle(ticket);
        self.release(now, ticket);
    }

    fn lose(&mut self, now: Nanos, ticket: u64, replies: &mut Replies) {
        self.release(now, ticket);
        if let Some(lost) = self.tickets.forget(ticket) {
            replies.fail_session(lost.session);
        }
    }

    /// Stores the place of a write that has its answer; so many writes have to be stored for that.
    fn take_place(&mut self, ticket: u64) -> u64 {
        let write = self.tickets.get(ticket).and_then(|ticket| Some((ticket.session, ticket.seq?)));
        self.places_taken += usize::from(write.is_some());
        let number = write.map_or(0, |(session, seq)| self.inner_mut().take_place(session, seq).number);
        if self.parts.is_stored_first {
            number
        } else {
            0
        }
    }

    /// The reads behind a write that is over go on.
    fn release(&mut self, now: Nanos, ticket: u64) {
        let Some(session) =
            self.tickets.get(ticket).filter(|ticket| ticket.seq.is_some()).map(|ticket| ticket.session)
        else {
            return;
        };
        for Held { ticket, op } in self.tickets.release(ticket, session) {
            self.begin_read(now, ticket, &op);
        }
    }

    // ---- what comes in

    fn receive(&mut self) -> std::io::Result<()> {
        let Parts { peers, machine, .. } = &mut self.parts;
        let effects = &mut self.effects;
        for _ in 0..BURSTS_PER_POLL_MAX {
            // The clock is read behind the arrival: a lease that ended before is over.
            if !peers.receive(|bytes| machine.on_message(now_boottime(), bytes, effects))? {
                break;
            }
        }
        Ok(())
    }

    fn hear(&mut self, now: Nanos) {
        let mut events = std::mem::take(&mut self.events);
        self.parts.membership.poll(&mut events);
        for event in events.drain(..) {
            match event {
                MembershipEvent::View(view) => self.take_view(now, &view),
                MembershipEvent::Lease { until } => {
                    self.lease_until = until;
                    self.parts.machine.on_lease(until);
                }
                MembershipEvent::Trouble(text) => (self.parts.say)(&format!("ALARM: {text}")),
                MembershipEvent::Well(text) => (self.parts.say)(&text),
                MembershipEvent::Refused(text) => self.broken = Some(text),
            }
        }
        self.events = events;
    }

    fn take_view(&mut self, now: Nanos, view: &remedy_replicate::View) {
        let me = view.members.iter().find(|member| member.id.0 == self.parts.id);
        let (epoch, lineage) = (self.parts.machine.epoch(), self.parts.machine.lineage());
        let known = Known { epoch_before: self.epoch_before, epoch, lineage };
        if let Some(reason) = me.and_then(|me| refusal(known, me, view)) {
            return (self.parts.say)(&format!("ALARM: {reason}"));
        }
        self.parts.machine.on_view(now, view, &mut self.effects);
        let standing = me.map_or("not in it", |me| me.standing.name());
        let ids: Vec<String> = view.members.iter().map(|member| member.id.to_string()).collect();
        (self.parts.say)(&format!(
            "view {} of members {}: this one is {standing}",
            view.epoch,
            ids.join(", ")
        ));
    }

    fn keep(&mut self) {
        let Parts { machine, kept, .. } = &mut self.parts;
        if let Err(error) = kept.keep(machine.lineage(), machine.epoch()) {
            self.broken.get_or_insert(error);
        }
    }

    fn send(&mut self, now: Nanos) -> std::io::Result<()> {
        self.parts.machine.flush(now, &mut self.effects);
        self.keep();
        self.parts.peers.send(&self.effects)?;
        self.effects.clear();
        self.processed = 0;
        Ok(())
    }

    fn turn(&mut self, now: Nanos, wants_stable: bool, replies: &mut Replies) -> std::io::Result<()> {
        self.hear(now);
        // What a new view replaces is not to be found again as if it were of the group.
        self.keep();
        self.receive()?;
        if self.parts.machine.next_timer().is_some_and(|at| at <= now) {
            self.parts.machine.on_timer(now, &mut self.effects);
        }
        self.absorb(now, replies);
        // Other members go on while this one stores.
        self.send(now)?;
        self.store(now, wants_stable, replies);
        self.send(now)?;
        let stored = self.inner().stable();
        self.tickets.tell(stored, replies);
        self.parts.membership.tell_progress(self.inner().mark().0);
        Ok(())
    }

    /// What was written goes into storage, and what is in it by now counts; the places of writes that are answered
    /// thereby go with it: nothing else may come that would take them along.
    fn store(&mut self, now: Nanos, wants_stable: bool, replies: &mut Replies) {
        self.poll_inner(wants_stable, replies);
        self.parts.machine.on_stored(now, &mut self.effects);
        self.places_taken = 0;
        self.absorb(now, replies);
        if self.places_taken > 0 {
            self.poll_inner(wants_stable, replies);
        }
    }

    /// The service within stores; of what it reports only sessions are for the server.
    fn poll_inner(&mut self, wants_stable: bool, replies: &mut Replies) {
        let mut inner = std::mem::take(&mut self.inner_replies);
        self.inner_mut().poll(wants_stable, &mut inner);
        pass_on_sessions(&inner, replies);
        inner.clear();
        self.inner_replies = inner;
    }
}

/// A session's name repeats when a member begins with a new log, so its life is part of the client: what the group
/// remembers of the earlier session must not answer the later one.
fn of_session(id: u8, boot: u32, session: SessionId, seq: SeqNum) -> Identity {
    let mut client = *b"ses.BOOTSESSION.";
    client[3] = id;
    client[4..8].copy_from_slice(&boot.to_le_bytes());
    client[8..].copy_from_slice(&session.0.to_le_bytes());
    Identity { client, number: u64::from(id) << 56 | u64::from(boot as u16) << 40 | seq.0 }
}

fn pass_on_sessions(inner: &Replies, replies: &mut Replies) {
    let mut index = 0;
    while let Some(report) = inner.report(index) {
        index += 1;
        match report {
            Report::SessionRecorded(session) => replies.session_recorded(session),
            Report::SessionDeleted(session) => replies.session_deleted(session),
            Report::SessionFailed(session) => replies.fail_session(session),
            Report::SessionRefused(session) => replies.refuse_session(session),
            Report::Reply { .. }
            | Report::Independent { .. }
            | Report::Lives { .. }
            | Report::Stable { .. }
            | Report::StableAsAnswered => {}
        }
    }
}

/// The word by which a client knows what to do: go elsewhere, wait, or give up.
fn code_of(why: Decline) -> &'static str {
    match why {
        Decline::NoView | Decline::NoLease => "NOTSERVING",
        Decline::Busy | Decline::Contended | Decline::NoRoom => "BUSY",
        Decline::Forgotten | Decline::SeveralKeys | Decline::TooLarge => "ERR",
    }
}

impl Handler for ReplicatedService {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        let (now, session) = (now_boottime(), request.session);
        if request.kind == RequestKind::Read {
            self.tickets.begin(request.ticket, session, None);
            if self.tickets.must_wait(session) {
                self.tickets.hold(session, Held { ticket: request.ticket, op: request.payload.to_vec() });
            } else {
                self.begin_read(now, request.ticket, request.payload);
            }
        } else {
            self.tickets.begin(request.ticket, session, Some(request.seq));
            let identity = self.identity_of(request);
            let place: Option<(SessionId, SeqNum)> = Some((session, request.seq));
            let write = Write { ticket: request.ticket, identity, session: place, op: request.payload };
            self.parts.machine.write(now, &write, &mut self.effects);
        }
        self.executing = Some(request.ticket);
        self.absorb(now, replies);
        self.executing = None;
    }

    fn poll(&mut self, wants_stable: bool, replies: &mut Replies) {
        if self.broken.is_some() {
            return;
        }
        if let Err(error) = self.turn(now_boottime(), wants_stable, replies) {
            self.broken = Some(format!("the socket between members: {error}"));
        }
    }

    fn watches(&self, out: &mut Vec<Watch>) {
        self.inner().watches(out);
        let fds = [self.parts.peers.poll_fd(), self.parts.membership.poll_fd()];
        out.extend(fds.into_iter().flatten().map(|fd| Watch {
            fd,
            generation: 0,
            readable: true,
            writable: false,
        }));
    }

    fn next_poll(&self) -> Option<Nanos> {
        let timer = self.parts.machine.next_timer().map(monotonic_at);
        [self.inner().next_poll(), timer].into_iter().flatten().min()
    }

    fn write_metrics(&self, text: &mut MetricsText) {
        self.inner().write_metrics(text);
        let counters = self.parts.machine.counters();
        text.gauge("scotfree_group_epoch", "The epoch of this member's view.", self.parts.machine.epoch());
        let lease = self.lease_until.since(now_boottime()).0 / 1_000_000;
        text.gauge(
            "scotfree_group_lease_left_ms",
            "How long this member may still answer.",
            lease.min(1 << 40),
        );
        for (name, help, value) in [
            ("scotfree_group_writes_total", "Writes of this member's clients.", counters.writes),
            (
                "scotfree_group_writes_known_total",
                "Of these, known by their identity.",
                counters.writes_known,
            ),
            ("scotfree_group_applied_total", "Writes applied.", counters.applied),
            (
                "scotfree_group_reads_here_total",
                "Reads answered from this member's state.",
                counters.reads_here,
            ),
            ("scotfree_group_reads_asked_total", "Reads that asked another member.", counters.reads_asked),
            ("scotfree_group_declined_total", "Requests declined.", counters.declined),
            ("scotfree_group_resent_total", "Messages to members sent again.", counters.resent),
            ("scotfree_group_datagrams_sent_total", "Datagrams to members.", counters.sent),
            ("scotfree_group_datagrams_received_total", "Datagrams of members.", counters.received),
            (
                "scotfree_group_other_epoch_total",
                "Datagrams of another epoch, not looked at.",
                counters.other_epoch,
            ),
            ("scotfree_group_refused_total", "Datagrams refused.", counters.refused.values().sum()),
            ("scotfree_group_dropped_total", "Datagrams that found no room.", self.parts.peers.dropped()),
            ("scotfree_group_views_total", "Views taken.", counters.views),
            (
                "scotfree_group_snapshots_given_total",
                "States given to members that join.",
                counters.snapshots_given,
            ),
            ("scotfree_group_snapshots_taken_total", "States taken.", counters.snapshots_taken),
        ] {
            text.counter(name, help, value);
        }
    }

    fn not_serving(&self) -> Option<&'static str> {
        match self.parts.machine.is_serving(now_boottime()) {
            Ok(()) => None,
            Err(Decline::NoLease) => Some("this member's lease is over, or it has none yet"),
            Err(_) => Some("this member is in no view of its group"),
        }
    }

    fn broken(&self) -> Option<String> {
        self.broken.clone().or_else(|| self.inner().broken())
    }
}

impl Service for ReplicatedService {
    fn record_session(&mut self, record: &RecoveredSession, replies: &mut Replies) {
        self.inner_mut().record_session(record, replies);
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        self.inner_mut().delete_session(session, replies);
    }

    fn dead_letter(&mut self, letter: &DeadLetter<'_>) {
        self.inner_mut().dead_letter(letter);
    }
}

/// One that is stopped leaves its group: the others go on at once.
impl Drop for ReplicatedService {
    fn drop(&mut self) {
        self.parts.membership.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_state::request_of;

    #[test]
    fn a_session_of_one_life_is_not_that_of_another_whose_log_was_replaced() {
        let request =
            |id, boot, session, seq| request_of(&of_session(id, boot, SessionId(session), SeqNum(seq)));
        let (first, later) = (0x0001_0007, 0x0002_0007);
        assert_eq!(request(3, first, 1 << 32 | 1, 5), request(3, first, 1 << 32 | 1, 5));
        for other in [
            request(3, later, 1 << 32 | 1, 5),
            request(2, first, 1 << 32 | 1, 5),
            request(3, first, 1 << 32 | 2, 5),
            request(3, first, 1 << 32 | 1, 6),
        ] {
            assert_ne!(request(3, first, 1 << 32 | 1, 5), other);
        }
    }
}
