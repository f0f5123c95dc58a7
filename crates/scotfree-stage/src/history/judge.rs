//! Judges one writer's list: what it was told, and what was found, in order.
//!
//! Invariant: a list may be judged in parts, and the verdict is the same as if it had been judged whole,
//! as long as the parts judged before have not changed.

use super::{Token, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// What a writer was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Tokens that the service acknowledged.
    pub acknowledged: BTreeSet<Token>,
    /// Tokens whose outcome is unknown.
    pub unknown: BTreeSet<Token>,
}

/// Judges a whole list.
///
/// Every acknowledged token must be there once. A token of unknown outcome may be there once. A writer
/// waits for nothing between tokens of one connection, but the service promises their order; and a
/// connection is opened only after the one before it broke, so its tokens come behind everything that had
/// been acknowledged by then. A token of unknown outcome may come late, behind later connections' tokens.
pub fn check(acknowledged: &BTreeSet<Token>, unknown: &BTreeSet<Token>, found: &[Option<Token>]) -> Verdict {
    let told = Told { acknowledged: acknowledged.clone(), unknown: unknown.clone() };
    let mut judge = Judge::default();
    judge.admit(&told, found);
    judge.verdict(&told)
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Judge {
    seen: BTreeSet<Token>,
    order: Order,
    found: u64,
    doubled: u64,
    out_of_order: u64,
    foreign: u64,
    last: Option<Value>,
}

/// What stands in a list: a token, or something that is none.
pub(super) type Value = Option<Token>;

impl Judge {
    /// How many values were found.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// The last value found, if any was: by it a later reader sees whether the list has changed below.
    #[allow(clippy::option_option, reason = "a value that is no token is not the same as no value")]
    pub fn last(&self) -> Option<Value> {
        self.last
    }

    /// The next values of the list.
    pub fn admit(&mut self, told: &Told, found: &[Option<Token>]) {
        for token in found {
            self.found += 1;
            self.last = Some(*token);
            let was_sent = |token: &&Token| told.acknowledged.contains(token) || told.unknown.contains(token);
            let Some(token) = token.as_ref().filter(was_sent) else {
                self.foreign += 1;
                continue;
            };
            if !self.seen.insert(*token) {
                self.doubled += 1;
            } else if !self.order.admit(*token, told.acknowledged.contains(token)) {
                self.out_of_order += 1;
            }
        }
    }

    /// What is to be said of all values so far.
    pub fn verdict(&self, told: &Told) -> Verdict {
        Verdict {
            acked: told.acknowledged.len() as u64,
            unknown: told.unknown.len() as u64,
            found: self.found,
            lost: told.acknowledged.difference(&self.seen).count() as u64,
            doubled: self.doubled,
            out_of_order: self.out_of_order,
            foreign: self.foreign,
        }
    }
}

/// The last tokens found so far, against which the next one is judged.
#[derive(Debug, Default)]
struct Order {
    last_of_connection: BTreeMap<u32, u64>,
    // The highest index and connection found. Indices grow with connections, so an acknowledged token
    // must be above both.
    last: Option<Token>,
}

impl Order {
    fn admit(&mut self, token: Token, is_acknowledged: bool) -> bool {
        let last = self.last_of_connection.entry(token.connection).or_default();
        let keeps_connection = token.index > *last;
        *last = (*last).max(token.index);
        // A token behind one of a later connection was applied late. If its reply had been read before
        // that connection was opened, that is a fault.
        let keeps_time = !is_acknowledged || self.last.is_none_or(|last| last.connection <= token.connection);
        self.last = self.last.max(Some(token));
        keeps_connection && keeps_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_history_is_good() {
        let verdict = judge("1-1 1-2 1-3", "", "1-1 1-2 1-3");
        assert!(verdict.is_good());
        assert_eq!((verdict.acked, verdict.found), (3, 3));
    }

    #[test]
    fn unknown_outcomes_may_be_there_or_not() {
        for found in ["1-1 2-4", "1-1 1-2 2-4", "1-1 1-2 1-3 2-4", "1-1 1-3 2-4", "1-1 2-4 1-2 1-3"] {
            assert!(judge("1-1 2-4", "1-2 1-3", found).is_good(), "{found}");
        }
    }

    #[test]
    fn every_fault_is_seen_and_counted() {
        let fault = |lost, doubled, out_of_order, foreign| (lost, doubled, out_of_order, foreign);
        for (acknowledged, unknown, found, wanted) in [
            ("1-1 1-2 1-3", "", "1-1 1-3", fault(1, 0, 0, 0)),
            ("1-1 1-2", "", "", fault(2, 0, 0, 0)),
            ("1-1 1-2", "", "1-1 1-2 1-2 1-1", fault(0, 2, 0, 0)),
            ("1-1", "1-2", "1-1 1-2 1-2", fault(0, 1, 0, 0)),
            ("1-1 1-2 1-3", "", "1-2 1-1 1-3", fault(0, 0, 1, 0)),
            ("1-1 2-2", "", "2-2 1-1", fault(0, 0, 1, 0)),
            ("1-1", "1-2 1-3", "1-1 1-3 1-2", fault(0, 0, 1, 0)),
            ("1-1", "", "1-1 1-9 hello", fault(0, 0, 0, 2)),
            ("1-1 1-2 1-3", "", "1-3 1-3 9-9", fault(2, 1, 0, 1)),
        ] {
            let verdict = judge(acknowledged, unknown, found);
            let seen = fault(verdict.lost, verdict.doubled, verdict.out_of_order, verdict.foreign);
            assert_eq!(seen, wanted, "acknowledged {acknowledged}, unknown {unknown}, found {found}");
            assert!(!verdict.is_good());
        }
    }

    #[test]
    fn parts_judged_one_after_the_other_give_the_verdict_of_the_whole() {
        let (acknowledged, unknown) = (tokens("1-1 1-2 2-4"), tokens("1-3 2-5"));
        let told = Told { acknowledged: set(&acknowledged), unknown: set(&unknown) };
        for found in ["1-1 1-2 2-4 1-3 2-5", "1-2 1-1 1-1 x 2-4", "2-4 2-4 1-1", ""] {
            let found = tokens(found);
            let whole = check(&told.acknowledged, &told.unknown, &found);
            for at in 0..=found.len() {
                let mut judge = Judge::default();
                judge.admit(&told, &found[..at]);
                judge.admit(&told, &found[at..]);
                assert_eq!(judge.verdict(&told), whole);
                assert_eq!((judge.found(), judge.last()), (found.len() as u64, found.last().copied()));
            }
        }
    }

    fn judge(acknowledged: &str, unknown: &str, found: &str) -> Verdict {
        check(&set(&tokens(acknowledged)), &set(&tokens(unknown)), &tokens(found))
    }

    fn tokens(text: &str) -> Vec<Option<Token>> {
        text.split_whitespace().map(|word| word.parse().ok()).collect()
    }

    fn set(tokens: &[Option<Token>]) -> BTreeSet<Token> {
        tokens.iter().flatten().copied().collect()
    }
}
