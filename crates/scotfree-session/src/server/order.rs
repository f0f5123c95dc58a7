//! The one total order, as far as this server knows it.
//!
//! Invariant: a key is passed when it and every key before it has been executed or is known never
//! to come.

use scotfree_core::{BootEpoch, DeviceId, OrderKey, OrderNumber, SeqNum, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of an order key that is not passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// Its update is here and waits.
    Held(SessionId, SeqNum),
    /// It was executed under another place, or will never come.
    Done,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    /// The head and its incarnation whose stamps count.
    pub(super) view: Option<(BootEpoch, DeviceId)>,
    /// Keys not passed of which something is known.
    entries: BTreeMap<OrderKey, Entry>,
    /// The last key executed.
    executed: OrderKey,
    /// Keys up to this one that are not held will never come.
    settled: OrderKey,
    /// Sessions whose next request waits for a barrier.
    waiting: BTreeSet<(OrderKey, SessionId)>,
}

impl Order {
    fn reached(&self) -> OrderKey {
        self.executed.max(self.settled)
    }

    /// The next key to execute, if its update is here.
    pub(super) fn next(&mut self) -> Option<(OrderKey, SessionId, SeqNum)> {
        loop {
            let (key, entry) = self.entries.first_key_value()?;
            let key = *key;
            if key > self.reached() && key != self.successor() {
                return None;
            }
            match *entry {
                Entry::Held(session, seq) => return Some((key, session, seq)),
                Entry::Done => self.pass(key),
            }
        }
    }

    /// Whose update is the first that waits.
    pub(super) fn peek(&self) -> Option<(SessionId, SeqNum)> {
        match self.entries.first_key_value()?.1 {
            Entry::Held(session, seq) => Some((*session, *seq)),
            Entry::Done => None,
        }
    }

    /// The key after everything reached, in the same view.
    fn successor(&self) -> OrderKey {
        let (boot_epoch, number) = self.reached();
        (boot_epoch, number.next())
    }

    /// Notes that the update of `key` is here; `false` if the key is passed or known already.
    pub(super) fn hold(&mut self, key: OrderKey, session: SessionId, seq: SeqNum) -> bool {
        if key <= self.executed || self.entries.contains_key(&key) {
            return false;
        }
        self.entries.insert(key, Entry::Held(session, seq));
        true
    }

    /// Notes that nothing is to be executed under `key` (any more).
    pub(super) fn done(&mut self, key: OrderKey) {
        if key > self.reached() || self.entries.contains_key(&key) {
            self.entries.insert(key, Entry::Done);
        }
    }

    /// The key has been executed or given up, as the next one.
    pub(super) fn pass(&mut self, key: OrderKey) {
        self.entries.remove(&key);
        self.executed = self.executed.max(key);
    }

    /// `key` has been executed, and is not passed before `seq` is too: an update of the same session
    /// that was logged before it and stands behind it.
    pub(super) fn hand_on(&mut self, key: OrderKey, session: SessionId, seq: SeqNum) {
        self.entries.insert(key, Entry::Held(session, seq));
    }

    /// Whether everything up to `key` has been executed or will never come.
    pub(super) fn is_passed(&self, key: OrderKey) -> bool {
        key <= self.reached() && self.entries.first_key_value().is_none_or(|(first, _)| *first > key)
    }

    /// `key`, or the end of what recovery found, whichever comes later.
    pub(super) fn behind_recovered(&self, key: OrderKey) -> OrderKey {
        key.max(self.settled)
    }

    /// Whether `key` itself is settled: not held, and not to come.
    pub(super) fn is_given_up(&self, key: OrderKey) -> bool {
        key <= self.reached() && !self.entries.contains_key(&key)
    }

    /// The head has told everything it holds: up to `through`, what is not here will never come.
    pub(super) fn settle(&mut self, view: (BootEpoch, DeviceId), through: OrderKey) {
        self.view = Some(view);
        self.settled = self.settled.max(through);
    }

    /// Notes that `session`'s next request waits for `barrier`.
    pub(super) fn wait(&mut self, barrier: OrderKey, session: SessionId) {
        self.waiting.insert((barrier, session));
    }

    /// A session whose wait is over.
    pub(super) fn released(&mut self) -> Option<SessionId> {
        let (barrier, session) = *self.waiting.first()?;
        if !self.is_passed(barrier) {
            return None;
        }
        self.waiting.remove(&(barrier, session));
        Some(session)
    }

    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.waiting.retain(|(_, waiting)| *waiting != session);
    }

    /// The numbers of the current view that something waits for and that are not here.
    pub(super) fn missing(&self) -> Option<(BootEpoch, OrderNumber, OrderNumber)> {
        let (view, _) = self.view?;
        let (boot_epoch, first) = self.successor();
        if boot_epoch != view || self.entries.contains_key(&(boot_epoch, first)) {
            return None;
        }
        let held =
            self.entries.keys().find(|key| **key > (boot_epoch, first)).map(|key| OrderNumber(key.1 .0 - 1));
        let barrier =
            self.waiting.iter().map(|(key, _)| *key).filter(|key| *key >= (boot_epoch, first)).max();
        let last = held.or_else(|| barrier.filter(|key| key.0 == boot_epoch).map(|key| key.1))?;
        Some((boot_epoch, first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(boot: u32, number: u64) -> OrderKey {
        (BootEpoch(boot), OrderNumber(number))
    }

    fn settled(through: u64) -> Order {
        let mut order = Order::default();
        order.settle((BootEpoch(1), DeviceId(1)), key(1, through));
        order
    }

    #[test]
    fn keys_after_the_settled_ones_come_one_by_one() {
        let mut order = settled(0);
        assert!(order.hold(key(1, 2), SessionId(7), SeqNum(1)));
        assert_eq!(order.next(), None);
        assert_eq!(order.missing(), Some((BootEpoch(1), OrderNumber(1), OrderNumber(1))));
        assert!(order.hold(key(1, 1), SessionId(8), SeqNum(1)));
        assert_eq!(order.next(), Some((key(1, 1), SessionId(8), SeqNum(1))));
        order.pass(key(1, 1));
        assert!(order.is_passed(key(1, 1)) && !order.is_passed(key(1, 2)));
        assert_eq!(order.next(), Some((key(1, 2), SessionId(7), SeqNum(1))));
    }

    #[test]
    fn a_settled_gap_is_no_gap() {
        let mut order = settled(5);
        assert!(order.hold(key(1, 3), SessionId(7), SeqNum(1)));
        assert!(order.is_passed(key(1, 2)) && !order.is_passed(key(1, 5)));
        assert_eq!(order.next(), Some((key(1, 3), SessionId(7), SeqNum(1))));
        order.pass(key(1, 3));
        assert!(order.is_passed(key(1, 5)) && !order.is_passed(key(1, 6)));
    }

    #[test]
    fn what_is_done_is_passed_over() {
        let mut order = settled(0);
        order.done(key(1, 1));
        order.done(key(1, 2));
        assert!(order.hold(key(1, 3), SessionId(7), SeqNum(1)));
        assert_eq!(order.next(), Some((key(1, 3), SessionId(7), SeqNum(1))));
        assert!(!order.hold(key(1, 2), SessionId(7), SeqNum(9)), "a passed key is not held again");
    }

    #[test]
    fn a_key_that_was_handed_on_is_passed_with_the_last_of_them() {
        let mut order = settled(0);
        assert!(order.hold(key(1, 1), SessionId(7), SeqNum(1)));
        order.pass(key(1, 1));
        order.hand_on(key(1, 1), SessionId(7), SeqNum(2));
        assert!(!order.is_passed(key(1, 1)));
        assert_eq!(order.next(), Some((key(1, 1), SessionId(7), SeqNum(2))));
        order.pass(key(1, 1));
        assert!(order.is_passed(key(1, 1)));
    }

    #[test]
    fn a_barrier_is_released_when_it_is_passed() {
        let mut order = settled(0);
        order.wait(key(1, 1), SessionId(9));
        assert_eq!(order.released(), None);
        assert_eq!(order.missing(), Some((BootEpoch(1), OrderNumber(1), OrderNumber(1))));
        order.hold(key(1, 1), SessionId(7), SeqNum(1));
        order.pass(key(1, 1));
        assert_eq!(order.released(), Some(SessionId(9)));
        assert_eq!(order.released(), None);
    }

    #[test]
    fn what_recovery_settled_is_given_up_unless_it_is_here() {
        let mut order = settled(5);
        assert!(order.hold(key(1, 3), SessionId(7), SeqNum(1)));
        let given_up = [2, 3, 5, 6].map(|number| order.is_given_up(key(1, number)));
        assert_eq!(given_up, [true, false, true, false]);
        assert_eq!(order.behind_recovered(key(1, 4)), key(1, 5));
        assert_eq!(order.behind_recovered(key(1, 8)), key(1, 8));
        order.settle((BootEpoch(1), DeviceId(1)), key(1, 4));
        assert!(order.is_given_up(key(1, 5)), "what was settled stays so");
    }

    #[test]
    fn what_waits_first_is_seen_until_it_is_done() {
        let mut order = settled(5);
        assert_eq!(order.peek(), None);
        assert!(order.hold(key(1, 3), SessionId(7), SeqNum(1)));
        assert!(!order.hold(key(1, 3), SessionId(8), SeqNum(1)), "it is known already");
        assert_eq!(order.peek(), Some((SessionId(7), SeqNum(1))));
        order.done(key(1, 3));
        assert_eq!((order.peek(), order.next()), (None, None));
        // What is reached leaves nothing behind when it is done once more.
        order.done(key(1, 5));
        assert!(order.is_passed(key(1, 5)));
        assert!(!order.hold(key(1, 3), SessionId(7), SeqNum(1)), "what was executed is not held again");
    }

    #[test]
    fn a_session_that_is_gone_waits_for_nothing() {
        let mut order = settled(5);
        order.wait(key(1, 2), SessionId(7));
        order.wait(key(1, 3), SessionId(8));
        order.forget_session(SessionId(7));
        assert_eq!((order.released(), order.released()), (Some(SessionId(8)), None));
    }

    #[test]
    fn missing_is_what_stands_between_what_is_reached_and_what_is_here_or_waited_for() {
        let missing = |first, last| Some((BootEpoch(1), OrderNumber(first), OrderNumber(last)));
        assert_eq!(Order::default().missing(), None, "nobody gives numbers yet");
        let mut order = settled(2);
        assert_eq!(order.missing(), None);
        order.wait(key(1, 2), SessionId(9));
        assert_eq!(order.missing(), None, "it is passed");
        order.wait(key(1, 6), SessionId(9));
        assert_eq!(order.missing(), missing(3, 6));
        assert!(order.hold(key(1, 5), SessionId(7), SeqNum(1)));
        assert_eq!(order.missing(), missing(3, 4), "up to the next that is here");
        assert!(order.hold(key(1, 3), SessionId(7), SeqNum(2)));
        assert_eq!(order.missing(), None, "the next is here");
        let mut order = settled(2);
        order.wait(key(2, 9), SessionId(9));
        assert_eq!(order.missing(), None, "numbers of another incarnation are not this one's");
        order.settle((BootEpoch(2), DeviceId(1)), key(1, 2));
        assert_eq!(order.missing(), None, "nothing of the new one is reached");
    }
}
