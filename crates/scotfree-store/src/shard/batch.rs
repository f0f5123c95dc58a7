//! Batches: the lines that an operation will need are asked for while earlier ones are executed.
//!
//! Invariant: what is seen in advance is a guess that is checked when it is used, so a batch does what its operations
//! would do one by one.

use super::{Found, Shard};
use crate::fault::StoreFault;
use crate::hash::KeyHash;
use crate::index::{Guess, Index, Line, Probe, Spot, Wanted};
use crate::item::{is_expired, Head};
use crate::items::{Items, Place};
use crate::op::{Condition, Expiry, Op, Set, Verb};
use crate::reply::{Outcome, Replies, Reply};

/// How many operations are prepared together at most. Of two groups: one is executed while the next is hashed.
pub const GROUP_MAX: usize = 64;
/// Those worth trying.
pub const GROUPS: [usize; 4] = [8, 16, 32, 64];
/// What did best on the machines that were tried.
pub(super) const GROUP: usize = 32;

/// What is known of operations under way: two groups.
pub(super) type Ring = Box<[Ahead; 2 * GROUP_MAX]>;

pub(super) fn empty_ring() -> Ring {
    Box::new([Ahead::of(0); 2 * GROUP_MAX])
}

/// What is known of an operation before it is executed. A line, so that its address takes no multiplication.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Ahead {
    hash: u64,
    wanted: Wanted,
    /// The entry that was seen; 0 for none.
    word: u64,
    slot: u8,
    /// Nothing was seen in a line, after which the chain goes on: `wanted` names the next one.
    goes_on: bool,
}

impl Ahead {
    fn of(hash: u64) -> Ahead {
        let wanted = Wanted { line: Line::main(0), mark: 0 };
        Ahead { hash, wanted, word: 0, slot: 0, goes_on: false }
    }

    #[inline(always)]
    fn guess(&self) -> Guess {
        Guess { spot: Spot { line: self.wanted.line, slot: self.slot }, word: self.word }
    }
}

impl Shard {
    /// How many operations are prepared together.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Sets how many operations are prepared together: at most [`GROUP_MAX`].
    pub fn set_group(&mut self, count: usize) {
        self.group = count.clamp(1, GROUP_MAX);
    }

    /// Tries how many operations are best prepared together, in batches like those that `run` runs, and keeps that.
    /// `run` says what a trial cost: this crate has no clock.
    pub fn calibrate(&mut self, mut run: impl FnMut(&mut Shard) -> u64) -> usize {
        let mut cost = |count: usize| {
            self.set_group(count);
            run(self)
        };
        // The least of three: what disturbs a trial only ever adds to it.
        let least = |count: &usize| (0..3).map(|_| cost(*count)).min();
        let best = GROUPS.into_iter().min_by_key(least).unwrap_or(GROUP);
        self.set_group(best);
        best
    }

    /// Executes `ops`, in their order, at second `now_s` since 1970, and appends a reply for each to `out`.
    pub fn run_batch(&mut self, now_s: u32, ops: &[Op<'_>], out: &mut Replies) {
        out.reserve(ops.len());
        let mut groups = ops.chunks(self.group).peekable();
        if let Some(first) = groups.peek() {
            self.hash_ahead(first, 0);
        }
        let mut begin = 0;
        while let Some(group) = groups.next() {
            probe_ahead(&self.index, &self.items, &mut self.ahead[begin..begin + group.len()]);
            follow_ahead(&self.index, &self.items, &mut self.ahead[begin..begin + group.len()]);
            let next = GROUP_MAX - begin;
            if let Some(group) = groups.peek() {
                self.hash_ahead(group, next);
            }
            for (at, op) in (begin..).zip(group) {
                self.execute(now_s, op, at, out);
            }
            begin = next;
        }
    }

    fn hash_ahead(&mut self, ops: &[Op<'_>], begin: usize) {
        hash_ahead(&self.hash, &self.index, ops, &mut self.ahead[begin..begin + ops.len()]);
    }

    /// Executes one operation by itself.
    pub fn run(&mut self, now_s: u32, op: &Op<'_>, out: &mut Replies) {
        self.ahead[0] = Ahead::of(self.hash.of(op.key));
        self.execute(now_s, op, 0, out);
    }

    /// Executes an operation, of which `ahead[at]` says what is known.
    #[inline(always)]
    fn execute(&mut self, now_s: u32, op: &Op<'_>, at: usize, out: &mut Replies) {
        let is_done = match &op.verb {
            Verb::Get => self.get_seen(now_s, op.key, at, out),
            Verb::Set(set) => self.set_seen(now_s, op.key, set, at, out),
            _ => false,
        };
        if !is_done {
            self.execute_unseen(now_s, op, at, out);
        }
    }

    /// Replies with a string that was seen; whether it is still there, and has not expired.
    #[inline(always)]
    fn get_seen(&mut self, now_s: u32, key: &[u8], at: usize, out: &mut Replies) -> bool {
        let Some((place, head)) = self.seen(now_s, key, at) else { return false };
        self.touch(place);
        let version = self.items.meta(place);
        out.push_value(Reply { version, ..Reply::of(Outcome::Done) }, self.items.value(place, &head));
        true
    }

    /// Sets a string that was seen to another one of its length, for ever; whether that was all there was to do.
    #[inline(always)]
    fn set_seen(&mut self, now_s: u32, key: &[u8], set: &Set<'_>, at: usize, out: &mut Replies) -> bool {
        let Some((place, head)) = self.seen(now_s, key, at).filter(|(_, head)| is_plain(set, head)) else {
            return false;
        };
        if head.expire_s() != 0 {
            self.items.set_expiry(place, 0);
        }
        self.items.value_mut(place, &head).copy_from_slice(set.value);
        let version = self.note_change(place);
        out.push(Reply { version, ..Reply::of(Outcome::Done) });
        true
    }

    /// The string that was seen, if that is still so. The entry may have gone since, and the slot may hold another key.
    #[inline(always)]
    fn seen(&self, now_s: u32, key: &[u8], at: usize) -> Option<(Place, Head)> {
        let place = self.index.place_of(&self.ahead[at].guess())?;
        let head = self.items.head_of(place, key)?;
        (head.is_string() && !is_expired(head.expire_s(), now_s)).then_some((place, head))
    }

    #[inline(never)]
    fn execute_unseen(&mut self, now_s: u32, op: &Op<'_>, at: usize, out: &mut Replies) {
        let ahead = self.ahead[at];
        let trusted = if self.planted.is(StoreFault::TrustProbe) { self.trusted(&ahead) } else { None };
        let found = trusted.or_else(|| self.find(ahead.hash, op.key));
        let found = self.unless_expired(now_s, ahead.hash, found);
        match (op.verb, found) {
            (Verb::Get, None) => out.push(Reply::of(Outcome::Absent)),
            _ => self.execute_other(now_s, op, ahead.hash, found, out),
        }
    }

    /// What a fault takes for what is there.
    fn trusted(&self, ahead: &Ahead) -> Option<Found> {
        let Guess { spot, .. } = ahead.guess();
        let place = (ahead.word != 0).then(|| ahead.guess().place())?;
        Some(Found { spot, place, head: self.items.head(place) })
    }

    /// Replies with the value of a string.
    pub(super) fn reply_value(&mut self, found: &Found, out: &mut Replies) {
        self.touch(found.place);
        let version = self.items.meta(found.place);
        let value = self.items.value(found.place, &found.head);
        out.push_value(Reply { version, number: 0, ..Reply::of(Outcome::Done) }, value);
    }
}

/// Hashes the keys of `ops`, and asks for their buckets.
#[inline(never)] // what is borrowed apart stays in registers
fn hash_ahead(hash: &KeyHash, index: &Index, ops: &[Op<'_>], all: &mut [Ahead]) {
    for (op, ahead) in ops.iter().zip(all) {
        ahead.hash = hash.of(op.key);
        ahead.wanted = index.prefetch(ahead.hash);
    }
}

/// Looks for entries in buckets, which have come by now, and asks for items.
#[inline(never)]
fn probe_ahead(index: &Index, items: &Items, all: &mut [Ahead]) {
    for ahead in all {
        probe(index, items, ahead);
    }
}

/// One item in twelve is in a second line of its bucket.
#[inline(never)]
fn follow_ahead(index: &Index, items: &Items, all: &mut [Ahead]) {
    for ahead in all.iter_mut().filter(|ahead| ahead.goes_on) {
        probe(index, items, ahead);
    }
}

#[inline(always)]
fn probe(index: &Index, items: &Items, ahead: &mut Ahead) {
    (ahead.word, ahead.goes_on) = (0, false);
    match index.probe(ahead.wanted) {
        Probe::Seen(guess) => {
            (ahead.word, ahead.slot) = (guess.word, guess.spot.slot);
            items.prefetch(guess.place());
        }
        Probe::GoesOn(line) => (ahead.wanted.line, ahead.goes_on) = (line, true),
        Probe::Nothing => (),
    }
}

/// Whether a set does no more than to put other bytes where as many are.
#[inline(always)]
fn is_plain(set: &Set<'_>, head: &Head) -> bool {
    matches!(set, Set { expiry: Expiry::Never, condition: Condition::Always, returns_old: false, .. })
        && head.value_bytes == set.value.len()
}
