//! To which member a request is sent.
//!
//! Invariant: only a member that takes requests now is chosen, and what is chosen follows from the seed and from what
//! was told: there is no other randomness.

use scotfree_core::Nanos;
use scotfree_session::Jitter;

/// Of so many choices the nearest policy makes one at random, to learn how far the others are by now.
const EXPLORE_EVERY: u64 = 64;

/// How the members are chosen to which requests of one kind, reads or writes, are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Any of them, each as likely as another.
    Random,
    /// The one with fewer unanswered requests of this client, of two at random.
    TwoChoices,
    /// The one that has answered soonest of late; now and then another.
    Nearest,
    /// Always the same one, until it fails.
    Sticky,
    /// This one as long as it serves, otherwise any.
    Member(u8),
}

/// A member that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) id: u8,
    /// How many requests it has and has not answered.
    pub(super) unanswered: usize,
    /// How long it usually takes to answer, if that is known.
    pub(super) trip: Option<Nanos>,
    /// Whether it takes another request now.
    pub(super) has_room: bool,
}

/// Chooses by one policy.
#[derive(Debug)]
pub(super) struct Chooser {
    policy: Policy,
    random: Jitter,
    /// Of the sticky policy.
    last: Option<u8>,
}

impl Chooser {
    pub(super) fn new(policy: Policy, seed: u64) -> Chooser {
        Chooser { policy, random: Jitter::new(seed), last: None }
    }

    /// One of these that has room; none if the request has to wait.
    pub(super) fn choose(&mut self, serving: &[Candidate]) -> Option<u8> {
        match self.policy {
            Policy::Random => self.any(serving),
            Policy::TwoChoices => self.less_busy(serving),
            Policy::Nearest if self.random.below(EXPLORE_EVERY) == 0 => self.any(serving),
            Policy::Nearest => nearest(serving),
            Policy::Sticky => self.same(serving),
            Policy::Member(id) => self.preferred(id, serving),
        }
    }

    fn any(&mut self, serving: &[Candidate]) -> Option<u8> {
        let with_room = || serving.iter().filter(|candidate| candidate.has_room);
        let count = with_room().count() as u64;
        if count == 0 {
            return None;
        }
        with_room().nth(self.random.below(count) as usize).map(|candidate| candidate.id)
    }

    fn less_busy(&mut self, serving: &[Candidate]) -> Option<u8> {
        let drawn = [self.any(serving)?, self.any(serving)?];
        let of = |id| serving.iter().find(|candidate| candidate.id == id);
        drawn.into_iter().filter_map(of).min_by_key(|candidate| candidate.unanswered).map(|less| less.id)
    }

    fn same(&mut self, serving: &[Candidate]) -> Option<u8> {
        let serves = self.last.is_some_and(|last| serving.iter().any(|candidate| candidate.id == last));
        if !serves {
            self.last = self.any(serving);
        }
        self.last.filter(|last| serving.iter().any(|candidate| candidate.id == *last && candidate.has_room))
    }

    fn preferred(&mut self, id: u8, serving: &[Candidate]) -> Option<u8> {
        match serving.iter().find(|candidate| candidate.id == id) {
            Some(candidate) => candidate.has_room.then_some(id),
            None => self.any(serving),
        }
    }
}

/// One that was never measured counts as near: so it is measured.
fn nearest(serving: &[Candidate]) -> Option<u8> {
    let with_room = serving.iter().filter(|candidate| candidate.has_room);
    with_room.min_by_key(|candidate| candidate.trip.unwrap_or_default()).map(|nearest| nearest.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> [Candidate; 3] {
        let one = |id, unanswered, micros| Candidate {
            id,
            unanswered,
            trip: Some(Nanos::from_micros(micros)),
            has_room: true,
        };
        [one(1, 5, 300), one(2, 0, 200), one(3, 9, 100)]
    }

    /// How often each of the three is chosen in a thousand choices.
    fn counts(policy: Policy, serving: &[Candidate]) -> [usize; 3] {
        let mut chooser = Chooser::new(policy, 11);
        let mut counts = [0; 3];
        for _ in 0..1_000 {
            let id = chooser.choose(serving).expect("one of them has room");
            counts[usize::from(id) - 1] += 1;
        }
        counts
    }

    #[test]
    fn each_is_as_likely_at_random() {
        assert!(counts(Policy::Random, &three()).iter().all(|count| (280..390).contains(count)));
    }

    #[test]
    fn the_busiest_of_three_is_chosen_only_when_it_was_drawn_twice() {
        let [five, none, nine] = counts(Policy::TwoChoices, &three());
        assert!(nine < 150 && none > 500 && (280..390).contains(&five), "{none} {five} {nine}");
    }

    #[test]
    fn the_nearest_is_chosen_but_for_a_few_looks_at_the_others() {
        let [far, middle, near] = counts(Policy::Nearest, &three());
        assert!(near > 970 && far > 0 && middle > 0, "{far} {middle} {near}");
        let mut unmeasured = three();
        unmeasured[0].trip = None;
        assert!(counts(Policy::Nearest, &unmeasured)[0] > 970);
    }

    #[test]
    fn the_sticky_policy_stays_until_its_member_fails() {
        let mut chooser = Chooser::new(Policy::Sticky, 1);
        let first = chooser.choose(&three()).expect("all serve");
        assert!((0..100).all(|_| chooser.choose(&three()) == Some(first)));
        let mut full = three();
        full[usize::from(first) - 1].has_room = false;
        assert_eq!(chooser.choose(&full), None, "it has not failed");
        let others: Vec<Candidate> = three().into_iter().filter(|candidate| candidate.id != first).collect();
        let second = chooser.choose(&others).expect("two serve");
        assert_ne!(second, first);
        assert_eq!(chooser.choose(&three()), Some(second), "it does not go back");
    }

    #[test]
    fn a_member_that_is_named_is_chosen_while_it_serves() {
        assert_eq!(counts(Policy::Member(3), &three()), [0, 0, 1_000]);
        let mut chooser = Chooser::new(Policy::Member(3), 1);
        let mut full = three();
        full[2].has_room = false;
        assert_eq!(chooser.choose(&full), None);
        assert!(chooser.choose(&three()[..2]).is_some_and(|id| id < 3));
    }

    #[test]
    fn nobody_is_chosen_where_nobody_has_room() {
        let full = three().map(|candidate| Candidate { has_room: false, ..candidate });
        for policy in [Policy::Random, Policy::TwoChoices, Policy::Nearest, Policy::Sticky, Policy::Member(1)]
        {
            let mut chooser = Chooser::new(policy, 5);
            assert!((0..100).all(|_| chooser.choose(&full).is_none() && chooser.choose(&[]).is_none()));
        }
    }
}
