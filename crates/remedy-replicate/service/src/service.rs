//! The service: requests go into the machine, answers come out of it.
//!
//! Invariant: what is answered is what the machine answered. With a device before this member no write is declined for
//! what is true for a while only, and the device is told that one is stable when its place is stored here, too: what it
//! holds when the member comes back lies behind that place.

use crate::any_life::{refusal, Known};
use crate::kept::Kept;
use crate::owed::{Owed, OwedWrite};
use crate::peers::Peers;
use crate::refused::Refused;
use crate::tickets::{Held, Tickets};
use remedy_replicate::{Decline, Refusal, Replica, ReplicaOwn, Write};
use remedy_replicate_membership::{Membership, MembershipEvent};
use scotfree_core::{Effect, Effects, Nanos, SessionId};
use scotfree_io::{monotonic_at, now_boottime, now_monotonic};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{DeadLetter, Execution, Handler, Replies, Report, Say, Service, StatefulService, Watch};
use scotfree_session::{RecoveredSession, RequestKind};
use scotfree_state::State;
use scotfree_wire::Identity;
use std::collections::{BTreeMap, VecDeque};

/// Bursts of datagrams between members that are taken before others have their turn.
const BURSTS_PER_POLL_MAX: usize = 8;
/// When a write that is owed is submitted again at the latest.
const SUBMIT_AGAIN: Nanos = Nanos::from_millis(20);

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
    pub(crate) is_behind_device: bool,
    /// Sessions of an earlier life, which go on.
    pub(crate) sessions: Vec<RecoveredSession>,
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
    owed: Owed,
    /// So many writes have to be stored before all up to this ticket is told to be stable.
    settled: VecDeque<(u64, u64)>,
    /// By what the sessions here are known to the group.
    names: BTreeMap<SessionId, [u8; 16]>,
    inner_replies: Replies,
    refused: Refused,
    events: Vec<MembershipEvent>,
    /// Datagrams of members, or news of the membership, may have come.
    may_have_come: bool,
    /// Answers have left, and what the turn has for members and for storage has not.
    has_answered: bool,
    /// The membership was told what it may have an answer to.
    has_asked: bool,
    /// The request that is being executed at this moment.
    executing: Option<u64>,
    broken: Option<String>,
    lease_until: Nanos,
}

impl ReplicatedService {
    pub(crate) fn new(parts: Parts) -> ReplicatedService {
        ReplicatedService {
            epoch_before: parts.kept.epoch(),
            names: parts.sessions.iter().map(|record| (record.session, name_of(record))).collect(),
            parts,
            effects: Effects::new(),
            processed: 0,
            tickets: Tickets::default(),
            owed: Owed::default(),
            settled: VecDeque::new(),
            inner_replies: Replies::new(),
            refused: Refused::default(),
            events: Vec::new(),
            may_have_come: true,
            has_answered: false,
            has_asked: false,
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

    /// A request without an identity has that of its session, which is the same in all lives of this member.
    fn identity_of(&self, request: &Execution<'_>) -> Identity {
        request.identity.unwrap_or_else(|| {
            let client = self.names.get(&request.session).copied().unwrap_or_default();
            let home = u64::from(self.parts.id) << 56 | u64::from(self.parts.boot as u16) << 40;
            Identity { client, number: home | request.seq.0 }
        })
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
                self.tickets.answer(ticket, self.effects.bytes(reply), is_refused);
                self.release(now, ticket);
            }
            ReplicaOwn::Decline { ticket, why } => self.decline(now, ticket, why, replies),
            ReplicaOwn::Stable { ticket } => self.tickets.settle(ticket),
            ReplicaOwn::Lost { ticket } => self.lose(now, ticket, replies),
            ReplicaOwn::Promote { member, epoch } => {
                self.parts.membership.promote(member, epoch);
                self.has_asked = true;
            }
        }
    }

    /// A request is not executed. A write that had been taken already may be executed still: its session ends without
    /// an answer, and whoever sends it again elsewhere says the same identity.
    fn decline(&mut self, now: Nanos, ticket: u64, why: Decline, replies: &mut Replies) {
        let is_owed = self.owed.has(ticket);
        if is_owed && is_for_a_while(why) {
            return self.owed.turn_away(ticket);
        }
        let is_write = self.tickets.get(ticket).is_some_and(|ticket| ticket.seq.is_some());
        if is_write && !is_owed && self.executing != Some(ticket) {
            return self.lose(now, ticket, replies);
        }
        let bytes = (self.parts.decline)(&format!("{} {why}", code_of(why)));
        self.tickets.answer(ticket, &bytes, true);
        self.tickets.settle(ticket);
        self.release(now, ticket);
    }

    fn lose(&mut self, now: Nanos, ticket: u64, replies: &mut Replies) {
        if self.owed.has(ticket) {
            return self.owed.turn_away(ticket);
        }
        self.release(now, ticket);
        if let Some(lost) = self.tickets.forget(ticket) {
            replies.fail_session(lost.session);
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
        let Parts { peers, machine, say, .. } = &mut self.parts;
        let (effects, refused) = (&mut self.effects, &mut self.refused);
        let mut take = |from, bytes: &[u8]| {
            // The clock is read behind the arrival: a lease that ended before is over.
            let now = now_boottime();
            machine.on_message(now, bytes, effects);
            if refused.look(now, from, machine.counters()) {
                machine.greet(from);
            }
        };
        for _ in 0..BURSTS_PER_POLL_MAX {
            if !peers.receive(&mut take)? {
                break;
            }
        }
        for line in refused.take_lines() {
            say(&line);
        }
        Ok(())
    }

    fn take_news(&mut self, now: Nanos) {
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

    /// What is not kept is not acted upon: one that cannot write it says nothing more to anybody.
    fn keep(&mut self) -> Result<(), String> {
        let Parts { machine, kept, .. } = &mut self.parts;
        kept.keep(machine.lineage(), machine.epoch())
    }

    fn send(&mut self, now: Nanos) -> Result<(), String> {
        self.parts.machine.flush(now, &mut self.effects);
        self.keep()?;
        self.parts.peers.send(&self.effects).map_err(|error| of_socket(&error))?;
        self.effects.clear();
        self.processed = 0;
        Ok(())
    }

    fn turn(&mut self, now: Nanos, wants_stable: bool, replies: &mut Replies) -> Result<(), String> {
        let may_have_come = std::mem::replace(&mut self.may_have_come, true);
        if may_have_come || std::mem::take(&mut self.has_asked) {
            self.take_news(now);
            // What a new view replaces is not to be found again as if it were of the group.
            self.keep()?;
            self.receive().map_err(|error| of_socket(&error))?;
        }
        if self.parts.machine.next_timer().is_some_and(|at| at <= now) {
            self.parts.machine.on_timer(now, &mut self.effects);
        }
        self.absorb(now, replies);
        if !self.has_answered && self.tickets.has_due_writes() {
            // Nobody waits longer than these clients: the rest of the turn is for what others wait for.
            self.keep()?;
            self.tell(wants_stable, replies);
            self.has_answered = true;
            return Ok(());
        }
        self.has_answered = false;
        // Other members go on while this one stores.
        self.send(now)?;
        self.store(now, wants_stable, replies);
        self.submit_owed(now, replies);
        self.send(now)?;
        self.tell(wants_stable, replies);
        self.parts.membership.tell_progress(self.inner().progress());
        Ok(())
    }

    /// What was written goes into storage, and what is in it by now counts.
    fn store(&mut self, now: Nanos, wants_stable: bool, replies: &mut Replies) {
        self.poll_inner(wants_stable, replies);
        self.parts.machine.on_stored(now, &mut self.effects);
        self.absorb(now, replies);
    }

    /// Answers leave when they are stable everywhere; that they are is told when their places are stored here.
    fn tell(&mut self, wants_stable: bool, replies: &mut Replies) {
        if let Some(through) = self.tickets.tell(replies) {
            let after = self.take_places(through, wants_stable, replies);
            self.settled.push_back((after, through));
        }
        let stored = self.inner().stable();
        while let Some((_, through)) = self.settled.front().copied().filter(|(after, _)| *after <= stored) {
            self.settled.pop_front();
            replies.stable(through);
        }
    }

    /// The places of owed writes up to this ticket go into storage at once: nothing else may come that would take them
    /// along. So many writes have to be stored for that.
    fn take_places(&mut self, through: u64, wants_stable: bool, replies: &mut Replies) -> u64 {
        let mut after = 0;
        for (session, seq) in self.owed.settle(through) {
            after = self.inner_mut().take_place(session, seq).number;
        }
        if after > 0 {
            self.poll_inner(wants_stable, replies);
        }
        after
    }

    // ---- writes that are owed

    /// Submits what waits, while this member serves and takes it.
    fn submit_owed(&mut self, now: Nanos, replies: &mut Replies) {
        while self.parts.machine.is_serving(now).is_ok() {
            let Some((ticket, owed)) = self.owed.next() else { return };
            let write = Write { ticket, identity: owed.identity, session: Some(owed.place), op: &owed.op };
            self.parts.machine.write(now, &write, &mut self.effects);
            self.owed.note_submitted(ticket);
            self.absorb(now, replies);
            if self.owed.next().is_some_and(|(next, _)| next == ticket) {
                return;
            }
        }
    }

    fn begin_write(&mut self, now: Nanos, request: &Execution<'_>, replies: &mut Replies) {
        let (ticket, identity) = (request.ticket, self.identity_of(request));
        let place = (request.session, request.seq);
        self.tickets.begin(ticket, request.session, Some(request.seq));
        if self.parts.is_behind_device {
            self.owed.begin(ticket, OwedWrite { identity, place, op: request.payload.into() });
            return self.submit_owed(now, replies);
        }
        let write = Write { ticket, identity, session: Some(place), op: request.payload };
        self.parts.machine.write(now, &write, &mut self.effects);
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

fn of_socket(error: &std::io::Error) -> String {
    format!("the socket between members: {error}")
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

/// Whether the same request may be taken later.
fn is_for_a_while(why: Decline) -> bool {
    match why {
        Decline::NoView | Decline::NoLease | Decline::Busy | Decline::NoRoom | Decline::Contended => true,
        Decline::Forgotten | Decline::SeveralKeys | Decline::TooLarge => false,
    }
}

/// By what a session is known to the group: what its server drew for it, which no other life of a member, and no member
/// with an empty log, draws again; and its number.
fn name_of(record: &RecoveredSession) -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&record.server_nonce[8..]);
    name[8..].copy_from_slice(&record.session.0.to_le_bytes());
    name
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
            self.begin_write(now, request, replies);
        }
        self.executing = Some(request.ticket);
        self.absorb(now, replies);
        self.executing = None;
    }

    fn hear(&mut self, is_ready: bool) {
        self.may_have_come = is_ready;
    }

    fn poll(&mut self, wants_stable: bool, replies: &mut Replies) {
        if self.broken.is_some() {
            return;
        }
        if let Err(error) = self.turn(now_boottime(), wants_stable, replies) {
            self.broken.get_or_insert(error);
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
        let owed = self.owed.is_waiting().then(|| now_monotonic().plus(SUBMIT_AGAIN));
        let rest = self.has_answered.then_some(Nanos(0));
        [self.inner().next_poll(), timer, owed, rest].into_iter().flatten().min()
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
            (
                "scotfree_group_not_authentic_total",
                "Of these, not made under this group's key.",
                counters.refused.get(&Refusal::BadMac).copied().unwrap_or(0),
            ),
            ("scotfree_group_dropped_total", "Datagrams that could not be sent.", self.parts.peers.dropped()),
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
        let now = now_boottime();
        match self.parts.machine.is_serving(now) {
            // One that has the state may yet be heard by nobody.
            Ok(()) => self.refused.hears_nobody(now, self.parts.machine.counters()),
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
        self.names.insert(record.session, name_of(record));
        self.inner_mut().record_session(record, replies);
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        self.names.remove(&session);
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
