//! A member of a group whose views and leases etcd keeps: what to ask next, and what follows from the answers.
//!
//! Invariant: a lease is told only if etcd said so, counted from before it was asked (so that it is over here before
//! it is over there), and only after a look, made behind etcd's word, that shows this member's key under that lease
//! and a view that names it ([`super::absent`] says why). One question is open at a time.

use super::absent::Absent;
use super::decide::{swap, Decider, Decision};
use super::request::{Answer, Entry, Guard, Request, Swap};
use super::seen::{live_key, LiveKey, Seen};
use super::EtcdSettings;
use crate::form::{json, Group, Live};
use crate::{MembershipEvent, Myself};
use remedy_replicate::{MemberId, Standing};
use scotfree_core::Nanos;
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// Before a group's lease is known, and for what is not counted by it.
const WAIT: Nanos = Nanos::from_secs(1);
const LOOK_EVERY_MIN: Nanos = Nanos::from_millis(25);
const LOOK_EVERY_MAX: Nanos = Nanos::from_millis(250);
/// After the first failure; then twice as long each time, up to a sixth of the lease.
const PAUSE_MIN: Nanos = Nanos::from_millis(10);

/// The machine of one member.
pub(crate) struct Machine {
    myself: Myself,
    protocol: String,
    drift_ppm_max: u64,
    progress_every: Nanos,
    applied: u64,
    founded: Option<u64>,
    promoted: Option<(MemberId, u64)>,

    held: Option<Held>,
    /// A lease to which this member's key moves, of a later term of etcd's.
    next_held: Option<Held>,
    /// The term of etcd's leader at the last look.
    term: u64,
    absent: Absent,
    /// How long the group's lease is, as its key says.
    lease_wish: Nanos,
    /// What was found to be next. It is asked before the next look.
    step: Option<Step>,
    open: Option<(Step, Nanos)>,
    look_due: Nanos,
    paused_until: Nanos,

    /// Since when no member with the state is seen.
    without_state_since: Option<Nanos>,
    /// Since when this member's name is seen in other hands.
    held_by_other_since: Option<Nanos>,
    failures: u32,
    last_answer: Nanos,

    told_epoch: u64,
    told_until: Nanos,
    /// Whether the end of what was told has been said.
    is_end_said: bool,
    said: Option<(Topic, String)>,
    is_over: bool,
    events: Vec<MembershipEvent>,
    #[cfg(test)]
    pub(super) fault: Option<Fault>,
}

/// Rules that a test switches off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The lease is counted from when etcd's answer came.
    LeaseFromAnswer,
    /// Clocks are believed to go alike.
    NoDrift,
    /// Members are left out whose lease lasts.
    RemovesTheLiving,
    /// A lease is told before the view was looked at again.
    LeaseUnlooked,
    /// A prolonged lease is told before its key was looked at again.
    RenewalUnlooked,
    /// Whose key is gone is left out at once.
    AbsentAreGone,
}

/// A lease at etcd.
#[derive(Debug, Clone, Copy)]
struct Held {
    id: i64,
    ttl: Nanos,
    /// When etcd was asked for what it then granted.
    asked: Nanos,
    /// The term that had been seen before that.
    term: u64,
    /// Since when the sign of life is known to be there.
    registered: Option<Registered>,
    /// A look under this lease has shown a view that names this life.
    is_named: bool,
}

#[derive(Debug, Clone, Copy)]
struct Registered {
    since: Nanos,
    made: i64,
    told_applied: u64,
    told_at: Nanos,
}

/// What is asked, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Look,
    Grant,
    KeepAlive,
    Register,
    TellProgress,
    WriteView(Swap),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topic {
    /// Said when it begins, whatever the words.
    Unanswered,
    /// As well.
    LeaseOver,
    /// Said again when the words change.
    Other,
}

impl Machine {
    /// A member that knows nothing of its group yet.
    pub(crate) fn new(myself: Myself, settings: &EtcdSettings, now: Nanos) -> Machine {
        Machine {
            myself,
            protocol: settings.protocol.clone(),
            drift_ppm_max: settings.drift_ppm_max.into(),
            progress_every: settings.progress_every,
            applied: settings.applied,
            founded: settings.founded,
            promoted: None,
            held: None,
            next_held: None,
            term: 0,
            absent: Absent::default(),
            lease_wish: WAIT,
            step: None,
            open: None,
            look_due: now,
            paused_until: now,
            without_state_since: None,
            held_by_other_since: None,
            failures: 0,
            last_answer: now,
            told_epoch: 0,
            told_until: Nanos(0),
            is_end_said: false,
            said: None,
            is_over: false,
            events: Vec::new(),
            #[cfg(test)]
            fault: None,
        }
    }

    /// What was found out since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<MembershipEvent> {
        std::mem::take(&mut self.events)
    }

    /// A joiner has the whole state. It may be said many times.
    pub(crate) fn promote(&mut self, member: MemberId, epoch: u64) {
        if epoch >= self.told_epoch && self.promoted != Some((member, epoch)) {
            self.promoted = Some((member, epoch));
            self.look_due = Nanos(0);
        }
    }

    /// How many writes this member has applied.
    pub(crate) fn tell_progress(&mut self, applied: u64) {
        self.applied = applied;
    }

    /// Nothing is answered here any more: what gives the lease back, if there is one. It ends the machine.
    pub(crate) fn leave(&mut self, now: Nanos) -> Option<Request> {
        self.withdraw(now);
        self.is_over = true;
        self.held.take().map(|held| Request::Revoke { lease: held.id })
    }

    /// How long an answer may take.
    pub(crate) fn time_limit(&self) -> Nanos {
        match &self.held {
            Some(held) => Nanos(held.ttl.0 / 6),
            None => WAIT,
        }
    }

    /// What to ask of etcd now, at most one thing at a time; nothing before [`Machine::next_timer`].
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Request> {
        self.notice_the_end(now);
        if self.is_over || self.open.is_some() || now < self.paused_until {
            return None;
        }
        let step = self.next_step(now)?;
        let request = self.request(&step);
        self.open = Some((step, now));
        Some(request)
    }

    /// When to call [`Machine::next`] again if nothing is open; nothing if never.
    pub(crate) fn next_timer(&self) -> Option<Nanos> {
        if self.is_over {
            return None;
        }
        let due = if self.step.is_some() { Nanos(0) } else { self.look_due };
        let kept_alive = self.held.map_or(Nanos::MAX, |held| held.keep_alive_due());
        let told = self.progress_due().unwrap_or(Nanos::MAX);
        let end = if self.is_end_said || self.told_until == Nanos(0) { Nanos::MAX } else { self.told_until };
        Some(due.min(kept_alive).min(told).max(self.paused_until).min(end))
    }

    fn next_step(&mut self, now: Nanos) -> Option<Step> {
        if self.held.is_some_and(|held| now >= held.keep_alive_due()) {
            return Some(Step::KeepAlive);
        }
        if let Some(step) = self.step.take() {
            return Some(step);
        }
        if self.progress_due().is_some_and(|due| now >= due) {
            return Some(Step::TellProgress);
        }
        (now >= self.look_due).then_some(Step::Look)
    }

    fn request(&self, step: &Step) -> Request {
        match step {
            Step::Look => Request::Look,
            Step::Grant => Request::Grant { ttl_seconds: self.lease_wish.0.div_ceil(1_000_000_000) },
            Step::KeepAlive => Request::KeepAlive { lease: self.lease_id() },
            Step::Register => Request::Swap(self.sign_of_life(self.next_held.or(self.held))),
            Step::TellProgress => Request::Swap(self.sign_of_life(self.held)),
            Step::WriteView(swap) => Request::Swap(swap.clone()),
        }
    }

    /// This member's key under a lease. It is put only where none is, or where this life's own has been without a gap:
    /// that of an earlier life, or of another member of this name, has to be gone first.
    fn sign_of_life(&self, lease: Option<Held>) -> Swap {
        let key = live_key(self.myself.id);
        let revision = self.held.and_then(|held| held.registered).map_or(0, |registered| registered.made);
        let live = Live {
            boot: self.myself.boot,
            peers: self.myself.peers,
            clients: self.myself.clients,
            applied: self.applied,
            fingerprint: self.myself.fingerprint,
            lease_seconds: lease.map_or(0, |held| held.ttl.0 / 1_000_000_000),
            founded: self.founded,
            term: lease.map_or(0, |held| held.term),
        };
        let guards = vec![Guard::Made { key: key.clone(), revision }];
        Swap { guards, key, value: json(&live), lease: Some(lease.map_or(0, |held| held.id)) }
    }

    fn lease_id(&self) -> i64 {
        self.held.map_or(0, |held| held.id)
    }

    /// When a changed progress is told.
    fn progress_due(&self) -> Option<Nanos> {
        let registered = self.held?.registered?;
        (registered.told_applied != self.applied).then(|| registered.told_at.plus(self.progress_every))
    }

    /// etcd's answer to what [`Machine::next`] asked.
    pub(crate) fn on_answer(&mut self, now: Nanos, answer: Answer) {
        let Some((step, asked)) = self.open.take() else { return };
        self.failures = 0;
        self.last_answer = now;
        if self.said.as_ref().is_some_and(|(topic, _)| *topic == Topic::Unanswered) {
            self.well("etcd answers again".to_owned());
        }
        match (step, answer) {
            (Step::Look, Answer::Looked { entries, term }) => self.on_looked(now, &entries, term),
            (Step::Grant, Answer::Granted { lease, ttl_seconds }) => {
                let asked = self.counted_from(asked, now);
                self.on_granted(lease, Nanos::from_secs(ttl_seconds), asked);
            }
            (Step::KeepAlive, Answer::KeptAlive { ttl_seconds }) => {
                self.on_kept_alive(now, asked, ttl_seconds);
            }
            (Step::Register, Answer::Swapped(_)) => self.look_due = now,
            (Step::TellProgress, Answer::Swapped(is_done)) => self.on_progress_told(now, is_done),
            (Step::WriteView(_), Answer::Swapped(is_done)) => {
                // Whoever was quicker has changed what was seen.
                self.look_due = if is_done { now } else { now.plus(PAUSE_MIN) };
            }
            (Step::Register, Answer::LeaseOver) if self.next_held.is_some() => self.next_held = None,
            (_, Answer::LeaseOver) => self.lose_lease(now),
            (step, answer) => self.fail(now, &format!("an answer that does not fit: {step:?}, {answer:?}")),
        }
    }

    /// No answer came, or none that says what was asked.
    pub(crate) fn on_failure(&mut self, now: Nanos, why: &str) {
        if self.open.take().is_some() {
            self.fail(now, why);
        }
    }

    fn fail(&mut self, now: Nanos, why: &str) {
        // Whether a write was done, only a look can tell.
        self.step = None;
        self.look_due = now;
        self.failures = self.failures.saturating_add(1);
        let longest = Nanos(self.held.map_or(WAIT, |held| held.ttl).0 / 6);
        let pause = Nanos(PAUSE_MIN.0 << self.failures.min(16)).min(longest);
        self.paused_until = now.plus(pause);
        if self.failures >= 2 && !self.is_end_said {
            let silent = seconds(now.since(self.last_answer));
            self.trouble(Topic::Unanswered, format!("etcd has not answered for {silent} s: {why}"));
        }
        self.notice_the_end(now);
    }

    /// The first lease, or one of a later term to which the key moves; the one before is kept until that is done.
    fn on_granted(&mut self, id: i64, ttl: Nanos, asked: Nanos) {
        let granted = Held { id, ttl, asked, term: self.term, registered: None, is_named: false };
        if self.held.is_some() {
            self.next_held = Some(granted);
        } else {
            self.held = Some(granted);
            self.tell_lease();
        }
        self.step = Some(Step::Register);
    }

    fn on_kept_alive(&mut self, now: Nanos, asked: Nanos, ttl_seconds: u64) {
        if ttl_seconds == 0 {
            return self.lose_lease(now);
        }
        let asked = self.counted_from(asked, now);
        let was_over = self.held.is_some_and(|held| now >= self.lease_until(&held));
        let Some(held) = &mut self.held else { return };
        if let Some(registered) = held.registered.as_mut().filter(|_| was_over) {
            // etcd was away, maybe from all: the others have a lease of time to come back, too.
            registered.since = now;
        }
        held.ttl = Nanos::from_secs(ttl_seconds);
        held.asked = asked;
        // It counts when a look behind it shows the key.
        self.look_due = now;
        if self.is_planted(Fault::RenewalUnlooked) {
            self.tell_lease();
        }
    }

    fn on_progress_told(&mut self, now: Nanos, is_done: bool) {
        let applied = self.applied;
        if !is_done {
            self.look_due = now;
        }
        if let Some(registered) = self.held.as_mut().and_then(|held| held.registered.as_mut()) {
            registered.told_at = now;
            registered.told_applied = if is_done { applied } else { registered.told_applied };
        }
    }

    /// etcd says that the lease is over: the sign of life is gone, and a view without this member may be written.
    fn lose_lease(&mut self, now: Nanos) {
        if now < self.told_until {
            // It could not be, if all went as it is assumed to go: what of it does not, only an operator finds out.
            let early = seconds(self.told_until.since(now));
            let ppm = self.drift_ppm_max;
            self.trouble(
                Topic::Other,
                format!(
                    "etcd has ended the lease {early} s before its time: its clock or this host's goes wrong by more than \
                     {ppm} ppm, or its leader has changed, or somebody has revoked the lease"
                ),
            );
        }
        self.held = None;
        self.next_held = None;
        self.step = None;
        self.look_due = now;
        self.withdraw(now);
    }

    fn on_looked(&mut self, now: Nanos, entries: &[Entry], term: u64) {
        let seen = match Seen::read(entries, term) {
            Ok(seen) => seen,
            Err(reason) => {
                self.look_due = now.plus(WAIT);
                return self.trouble(Topic::Other, reason);
            }
        };
        self.look_due = now.plus(self.look_every());
        let Some(group) = &seen.group else {
            self.look_due = now.plus(LOOK_EVERY_MAX);
            return self
                .trouble(Topic::Other, "etcd knows no group here: scot group init makes it".to_owned());
        };
        if let Err(reason) = self.check_group(group) {
            return self.refuse(now, reason);
        }
        self.lease_wish = Nanos::from_millis(group.lease_ms);
        self.term = term;
        let ttl = self.held.map_or(self.lease_wish, |held| held.ttl).max(self.lease_wish);
        self.absent.look(now, &seen, ttl);
        if self.is_registered(now, &seen) {
            self.on_looked_alive(now, &seen);
        }
    }

    fn look_every(&self) -> Nanos {
        let ttl = self.held.map_or(self.lease_wish, |held| held.ttl);
        Nanos(ttl.0 / 20).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)
    }

    fn check_group(&self, group: &Group) -> Result<(), String> {
        let differs = |what: &str, here: &dyn std::fmt::Display, there: &dyn std::fmt::Display| {
            Err(format!("the {what} is {here} here and {there} at etcd"))
        };
        if group.name != self.myself.group {
            return differs("group", &self.myself.group, &group.name);
        }
        if group.protocol != self.protocol {
            return differs("protocol", &self.protocol, &group.protocol);
        }
        match group.fingerprint {
            Some(there) if there != self.myself.fingerprint => {
                Err(unlike(self.myself.fingerprint, there, "etcd"))
            }
            _ => Ok(()),
        }
    }

    /// Whether this member's sign of life is there; if not, what leads to it.
    fn is_registered(&mut self, now: Nanos, seen: &Seen) -> bool {
        let key = seen.lives.get(&self.myself.id);
        if self.next_held.zip(key).is_some_and(|(next, key)| next.id == key.lease) {
            self.held = self.next_held.take();
        }
        if let Some((held, key)) = self.held.as_mut().zip(key).filter(|(held, key)| held.id == key.lease) {
            held.register(now, key);
            self.held_by_other_since = None;
            return true;
        }
        if self.held.is_some_and(|held| held.registered.is_some()) {
            // Somebody has taken the key away: this lease says nothing any more.
            self.lose_lease(now);
        }
        if let Some(key) = key {
            self.on_other_of_same_name(now, key);
            return false;
        }
        self.held_by_other_since = None;
        if self.is_like_others(now, seen) {
            self.step = Some(if self.held.is_some() { Step::Register } else { Step::Grant });
        }
        false
    }

    /// An earlier life's sign goes with its lease; one that stays has a member behind it.
    fn on_other_of_same_name(&mut self, now: Nanos, key: &LiveKey) {
        let id = self.myself.id;
        let whose = format!("{} (life {})", key.live.peers, key.live.boot);
        // Its lease may just have been prolonged, and once more by a new leader; etcd looks each half second.
        let span = Nanos::from_secs(2 * key.live.lease_seconds).plus(WAIT);
        let since = *self.held_by_other_since.get_or_insert(now);
        if now.since(since) > span {
            return self.refuse(now, format!("two members are number {id}: another one is alive at {whose}"));
        }
        let text = format!("member {id} is already there, at {whose}: waiting for its lease to end");
        self.trouble(Topic::Other, text);
    }

    /// Members whose states could not be equal do not come together: the later one stays outside.
    fn is_like_others(&mut self, now: Nanos, seen: &Seen) -> bool {
        let here = self.myself.fingerprint;
        let mut others = seen.lives.iter().filter(|(id, _)| **id != self.myself.id);
        let Some((id, key)) = others.find(|(_, key)| key.live.fingerprint != here) else { return true };
        self.refuse(now, unlike(here, key.live.fingerprint, &format!("member {id}")));
        false
    }

    fn on_looked_alive(&mut self, now: Nanos, seen: &Seen) {
        if !self.is_named() && !self.is_like_others(now, seen) {
            return;
        }
        if let Err(reason) = self.tell_view(seen) {
            // What is decided by an old copy would be decided twice.
            self.withdraw(now);
            return self.trouble(Topic::Other, reason);
        }
        self.forget_promotion(seen);
        self.tell_lease();
        let decider = self.decider(now, seen);
        match decider.decide(seen) {
            Decision::Keep => {
                self.say_well(seen);
                self.follow_term(now);
            }
            Decision::Write(view) => self.step = Some(Step::WriteView(swap(&view, seen))),
            Decision::Wait(text) => self.trouble(Topic::Other, text),
            Decision::Refuse(reason) => self.refuse(now, reason),
        }
    }

    /// A lease of an earlier term may be ended before its time: the key moves to one of this term.
    fn follow_term(&mut self, now: Nanos) {
        let is_behind = self.held.is_some_and(|held| held.term != self.term);
        // One that was asked for long ago would be over too soon.
        let is_fresh = |next: &Held| next.term == self.term && now.since(next.asked).0 < next.ttl.0 / 3;
        self.next_held = self.next_held.filter(|next| is_behind && is_fresh(next));
        if is_behind {
            self.step = Some(if self.next_held.is_some() { Step::Register } else { Step::Grant });
        }
    }

    fn forget_promotion(&mut self, seen: &Seen) {
        let epoch = seen.view.as_ref().map_or(0, |view| view.epoch);
        self.promoted = self.promoted.filter(|promoted| promoted.1 >= epoch);
    }

    /// Tells a view that is new, and refuses one that is older than what was seen.
    fn tell_view(&mut self, seen: &Seen) -> Result<(), String> {
        self.set_named(false);
        let (epoch, known) = (seen.view.as_ref().map_or(0, |view| view.epoch), self.told_epoch);
        if epoch < known {
            return Err(format!(
                "etcd says epoch {epoch}, and epoch {known} was seen: does it hold an old copy?"
            ));
        }
        let Some(view) = &seen.view else { return Ok(()) };
        if epoch > known {
            self.told_epoch = epoch;
            self.events.push(MembershipEvent::View(view.clone()));
        }
        let named = view.member(self.myself.id);
        self.set_named(named.is_some_and(|named| named.boot == self.myself.boot));
        Ok(())
    }

    fn set_named(&mut self, is_named: bool) {
        if let Some(held) = &mut self.held {
            held.is_named = is_named;
        }
    }

    fn is_named(&self) -> bool {
        self.held.is_some_and(|held| held.is_named)
    }

    fn decider(&mut self, now: Nanos, seen: &Seen) -> Decider {
        let ttl = self.held.map_or(WAIT, |held| held.ttl);
        let has_state = |view: &remedy_replicate::View| view.full().any(|member| seen.is_alive(member));
        self.without_state_since = match &seen.view {
            Some(view) if !has_state(view) => self.without_state_since.or(Some(now)),
            _ => None,
        };
        let registered = self.held.and_then(|held| held.registered);
        let are_gone = self.is_planted(Fault::AbsentAreGone);
        Decider {
            id: self.myself.id,
            lingering: if are_gone { BTreeSet::new() } else { self.absent.lingering(now) },
            promoted: self.promoted,
            has_waited: self.without_state_since.is_some_and(|since| now.since(since) >= ttl),
            may_remove: registered.is_some_and(|registered| now.since(registered.since) >= ttl),
            forgets_the_living: self.is_planted(Fault::RemovesTheLiving),
        }
    }

    // ---- the lease

    /// Until when reads may be answered: etcd counts the lease from when it got the question, which is later than
    /// when it was asked, and its clock and ours may each go wrong by the drift.
    fn lease_until(&self, held: &Held) -> Nanos {
        let drift_ppm = if self.is_planted(Fault::NoDrift) { 0 } else { 2 * self.drift_ppm_max };
        let drift = held.ttl.0 / 1_000_000 * drift_ppm;
        held.asked.plus(held.ttl.since(Nanos(drift)))
    }

    fn tell_lease(&mut self) {
        let Some(held) = &self.held else { return };
        let is_named = held.is_named || self.is_planted(Fault::LeaseUnlooked);
        let until = self.lease_until(held);
        if is_named && until > self.told_until {
            self.told_until = until;
            self.is_end_said = false;
            self.events.push(MembershipEvent::Lease { until });
        }
    }

    fn withdraw(&mut self, now: Nanos) {
        if now < self.told_until {
            self.told_until = now;
            self.events.push(MembershipEvent::Lease { until: now });
        }
    }

    /// Says that the lease is over, when it is.
    fn notice_the_end(&mut self, now: Nanos) {
        if self.told_until == Nanos(0) || now < self.told_until || self.is_end_said || self.is_over {
            return;
        }
        self.is_end_said = true;
        let silent = seconds(now.since(self.last_answer));
        let why = self.said.as_ref().map_or(String::new(), |(_, text)| format!(" ({text})"));
        self.trouble(
            Topic::LeaseOver,
            format!("the lease is over, and reads are not answered; etcd last answered {silent} s ago{why}"),
        );
    }

    /// From when a lease is counted that was asked for, and answered, at these moments.
    fn counted_from(&self, asked: Nanos, answered: Nanos) -> Nanos {
        if self.is_planted(Fault::LeaseFromAnswer) {
            answered
        } else {
            asked
        }
    }

    #[cfg(test)]
    fn is_planted(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)]
    fn is_planted(&self, _: Fault) -> bool {
        false
    }

    // ---- what is said

    fn trouble(&mut self, topic: Topic, text: String) {
        let is_said = self
            .said
            .as_ref()
            .is_some_and(|(said, words)| *said == topic && (topic != Topic::Other || *words == text));
        if !is_said {
            self.said = Some((topic, text.clone()));
            self.events.push(MembershipEvent::Trouble(text));
        }
    }

    fn well(&mut self, text: String) {
        if self.said.take().is_some() {
            self.events.push(MembershipEvent::Well(text));
        }
    }

    fn say_well(&mut self, seen: &Seen) {
        let Some(view) = seen.view.as_ref().filter(|_| self.is_named()) else { return };
        let id = self.myself.id;
        let joins = view.member(id).is_some_and(|member| member.standing == Standing::Joining);
        let how = if joins { "is being given the state" } else { "has the state" };
        self.well(format!("member {id} {how}, in the view of epoch {}, and its lease is held", view.epoch));
    }

    fn refuse(&mut self, now: Nanos, reason: String) {
        self.withdraw(now);
        self.held = None;
        self.step = None;
        self.is_over = true;
        self.events.push(MembershipEvent::Refused(reason));
    }
}

impl Held {
    fn keep_alive_due(&self) -> Nanos {
        self.asked.plus(Nanos(self.ttl.0 / 3))
    }

    fn register(&mut self, now: Nanos, key: &LiveKey) {
        let (made, told_applied) = (key.made, key.live.applied);
        let (since, told_at) = self.registered.map_or((now, now), |known| (known.since, known.told_at));
        self.registered = Some(Registered { since, made, told_applied, told_at });
    }
}

fn seconds(span: Nanos) -> String {
    format!("{:.1}", span.0 as f64 / 1e9)
}

/// Of all that a fingerprint is made of, an operator can say the size of the log only.
fn unlike(here: u64, there: u64, at: &str) -> String {
    format!(
        "what has to be equal at all members is not equal here and at {at}: is --log-size the same, and that of the log \
         when it was made, and scot of one version? (fingerprints {here:016x} and {there:016x})"
    )
}
