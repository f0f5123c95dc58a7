//! Which requests of a session a caller may still wait for when it asks for the next.
//!
//! Invariant: a read is answered here only if what its caller asked before has its answer already. Else that could be
//! executed later, and show what is newer than the answer that comes behind it.

use scotfree_core::SeqNum;
use std::collections::BTreeMap;

/// So many callers are kept before those are dropped that wait for nothing.
const CALLERS_MIN: usize = 64;

/// The requests of one session that have passed, by their callers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Elders {
    begun: bool,
    /// The last of which it is not known whose it is.
    anybodys: SeqNum,
    highest: SeqNum,
    of_caller: BTreeMap<u32, SeqNum>,
    prune_beyond: usize,
}

impl Elders {
    /// A request passes. Everything up to `completed` has its answer.
    pub(crate) fn note(&mut self, seq: SeqNum, caller: Option<u32>, completed: SeqNum) {
        if !std::mem::replace(&mut self.begun, true) {
            // What passed before this device began is not known.
            self.anybodys = SeqNum(seq.0.saturating_sub(1));
        }
        self.highest = self.highest.max(seq).max(self.anybodys);
        match caller {
            Some(caller) => {
                let last = self.of_caller.entry(caller).or_default();
                *last = seq.max(*last);
                self.forget(completed);
            }
            None => self.anybodys = self.anybodys.max(seq),
        }
    }

    fn forget(&mut self, completed: SeqNum) {
        if self.of_caller.len() > self.prune_beyond.max(CALLERS_MIN) {
            self.of_caller.retain(|_, last| *last > completed);
            self.prune_beyond = 2 * self.of_caller.len();
        }
    }

    /// Whether its caller may wait for something that was asked before; nobody knows of a session of which nothing has
    /// passed.
    pub(crate) fn are_waited_for(&self, caller: Option<u32>, completed: SeqNum, seq: SeqNum) -> bool {
        if !self.begun {
            return completed.next() < seq;
        }
        let own =
            caller.map_or(self.highest, |caller| self.of_caller.get(&caller).copied().unwrap_or_default());
        own.max(self.anybodys) > completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<u32> = Some(1);
    const B: Option<u32> = Some(2);

    #[test]
    fn who_waits_for_its_own_is_told_from_who_waits_for_others() {
        let mut elders = Elders::default();
        let waits =
            |elders: &Elders, caller, completed| elders.are_waited_for(caller, SeqNum(completed), SeqNum(99));
        elders.note(SeqNum(1), A, SeqNum(0));
        assert!(waits(&elders, A, 0) && !waits(&elders, B, 0) && waits(&elders, None, 0));
        assert!(!waits(&elders, A, 1) && !waits(&elders, None, 1));
        elders.note(SeqNum(2), None, SeqNum(1));
        assert!(waits(&elders, A, 1) && waits(&elders, B, 1), "it may be anybody's");
        assert!(!waits(&elders, B, 2));
    }

    #[test]
    fn of_what_passed_before_it_is_not_known_whose_it_was() {
        let mut elders = Elders::default();
        assert!(
            elders.are_waited_for(A, SeqNum(3), SeqNum(5)) && !elders.are_waited_for(A, SeqNum(4), SeqNum(5))
        );
        elders.note(SeqNum(5), B, SeqNum(2));
        assert!(
            elders.are_waited_for(A, SeqNum(3), SeqNum(6)) && !elders.are_waited_for(A, SeqNum(4), SeqNum(6))
        );
    }

    #[test]
    fn callers_that_wait_for_nothing_take_no_room() {
        let mut elders = Elders::default();
        for seq in 1..=10_000 {
            elders.note(SeqNum(seq), Some(seq as u32), SeqNum(seq.saturating_sub(3)));
        }
        assert!(elders.of_caller.len() <= 2 * CALLERS_MIN, "{}", elders.of_caller.len());
        assert!(elders.are_waited_for(Some(10_000), SeqNum(9_999), SeqNum(10_001)));
    }
}
