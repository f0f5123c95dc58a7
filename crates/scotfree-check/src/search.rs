//! Whether some order explains one part of a history (after Wing and Gong, with Lowe's memory of where the
//! search has been).
//!
//! Invariant: what is taken next was called before anything that is left had returned, and comes before no
//! earlier call of its client that returned too. An order that is found is therefore allowed, and if
//! there is one, one is found, in at most as many steps as are left.

use crate::model::{Model, OperationOf};
use std::collections::HashMap;

/// What came of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// An order that explains all answers.
    Order,
    /// There is none.
    NoOrder,
    /// The steps did not suffice to tell.
    TooManySteps,
}

/// Looks for an order of the operations of a part, which stand in the order of their calls. Each state
/// that is looked at is a step and is taken off `steps_left`.
pub(crate) fn find_order<'h, M: Model>(
    model: &M,
    part: impl Iterator<Item = &'h OperationOf<M>>,
    steps_left: &mut u64,
) -> Found
where
    M::Op: 'h,
    M::Reply: 'h,
{
    let (answered, unanswered): (Vec<_>, Vec<_>) = part.partition(|operation| operation.answer.is_some());
    let search = Search { model, answered, unanswered };
    let mut visited = Visited::default();
    let mut path = Vec::new();
    let (mut taken, mut state) = (Taken::default(), model.initial());
    loop {
        if taken.first_left == search.answered.len() {
            return Found::Order;
        }
        if visited.is_worth_a_visit(&taken, &state) {
            if *steps_left == 0 {
                return Found::TooManySteps;
            }
            *steps_left -= 1;
            let choices = search.choices(&taken, &state);
            path.push((taken, choices));
        }
        match next_choice(&mut path) {
            Some(next) => (taken, state) = next,
            None => return Found::NoOrder,
        }
    }
}

/// What has been taken so far, and what can be taken next with the state that it leads to.
type Place<State> = (Taken, Vec<(Choice, State)>);

/// The last choice that has not been tried.
fn next_choice<State>(path: &mut Vec<Place<State>>) -> Option<(Taken, State)> {
    loop {
        let (taken, choices) = path.last_mut()?;
        match choices.pop() {
            Some((choice, state)) => return Some((taken.with(choice), state)),
            None => path.pop(),
        };
    }
}

/// An operation that may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Answered(usize),
    Unanswered(usize),
}

/// The operations that have their place in the order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Taken {
    /// Of those with answers all before this one are taken, this one is not.
    first_left: usize,
    /// Those behind it that are taken, ascending. As few as operations overlap.
    ahead: Vec<usize>,
    /// Those without answers, ascending.
    unanswered: Vec<usize>,
}

impl Taken {
    fn with(&self, choice: Choice) -> Taken {
        let mut taken = self.clone();
        match choice {
            Choice::Answered(index) if index == taken.first_left => taken.advance(),
            Choice::Answered(index) => insert(&mut taken.ahead, index),
            Choice::Unanswered(index) => insert(&mut taken.unanswered, index),
        }
        taken
    }

    fn advance(&mut self) {
        self.first_left += 1;
        let joined =
            self.ahead.iter().zip(self.first_left..).take_while(|(index, next)| *index == next).count();
        self.ahead.drain(..joined);
        self.first_left += joined;
    }
}

fn insert(ascending: &mut Vec<usize>, index: usize) {
    let at = ascending.partition_point(|other| *other < index);
    ascending.insert(at, index);
}

struct Search<'h, M: Model> {
    model: &'h M,
    answered: Vec<&'h OperationOf<M>>,
    unanswered: Vec<&'h OperationOf<M>>,
}

impl<M: Model> Search<'_, M> {
    /// What may come next, the most promising last: of those with answers the one that returned first.
    fn choices(&self, taken: &Taken, state: &M::State) -> Vec<(Choice, M::State)> {
        let (mut candidates, deadline) = self.candidates(taken);
        candidates.sort_by_key(|index| std::cmp::Reverse(answered_at::<M>(self.answered[*index])));
        let mut choices = self.unanswered_choices(taken, state, deadline);
        for index in candidates {
            let operation = self.answered[index];
            let mut next = state.clone();
            let reply = self.model.apply(&mut next, &operation.op);
            if operation.answer.as_ref().is_none_or(|answer| answer.reply != reply) {
                continue;
            }
            // A read that fits here changes nothing for what follows: no need to try anything else.
            if !self.model.writes(&operation.op) {
                return vec![(Choice::Answered(index), next)];
            }
            choices.push((Choice::Answered(index), next));
        }
        choices
    }

    /// Those with answers that were called before anything that is left had returned, and when that was.
    fn candidates(&self, taken: &Taken) -> (Vec<usize>, u64) {
        let mut deadline = u64::MAX;
        let (mut candidates, mut clients) = (Vec::new(), Vec::new());
        let mut ahead = taken.ahead.iter().peekable();
        for (index, operation) in self.answered.iter().enumerate().skip(taken.first_left) {
            if operation.called > deadline {
                break;
            }
            if ahead.next_if_eq(&&index).is_some() {
                continue;
            }
            deadline = deadline.min(answered_at::<M>(operation));
            if !clients.contains(&operation.client) {
                clients.push(operation.client);
                candidates.push(index);
            }
        }
        (candidates, deadline)
    }

    fn unanswered_choices(&self, taken: &Taken, state: &M::State, deadline: u64) -> Vec<(Choice, M::State)> {
        let mut choices = Vec::new();
        let mut before = taken.unanswered.iter().peekable();
        for (index, operation) in self.unanswered.iter().enumerate() {
            if operation.called > deadline {
                break;
            }
            if before.next_if_eq(&&index).is_some() {
                continue;
            }
            let mut next = state.clone();
            self.model.apply(&mut next, &operation.op);
            if next != *state {
                choices.push((Choice::Unanswered(index), next));
            }
        }
        choices
    }
}

fn answered_at<M: Model>(operation: &OperationOf<M>) -> u64 {
    operation.answer.as_ref().map_or(u64::MAX, |answer| answer.at)
}

/// Where the search has been: for what was taken of the operations with answers and a state, which of the
/// others had been taken. Whoever has more of these left can do all that one with fewer left can.
struct Visited<State>(HashMap<(usize, Vec<usize>, State), Vec<Vec<usize>>>);

impl<State> Default for Visited<State> {
    fn default() -> Self {
        Visited(HashMap::new())
    }
}

impl<State: Clone + Eq + std::hash::Hash> Visited<State> {
    fn is_worth_a_visit(&mut self, taken: &Taken, state: &State) -> bool {
        let visits = self.0.entry((taken.first_left, taken.ahead.clone(), state.clone())).or_default();
        if visits.iter().any(|visit| is_within(visit, &taken.unanswered)) {
            return false;
        }
        visits.push(taken.unanswered.clone());
        true
    }
}

/// Whether everything in `few` is in `many`; both ascend.
fn is_within(few: &[usize], many: &[usize]) -> bool {
    let mut many = many.iter();
    few.iter().all(|one| many.by_ref().any(|other| other == one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_remembered_in_few_words() {
        let mut taken = Taken::default();
        for index in [2, 1, 4] {
            taken = taken.with(Choice::Answered(index));
        }
        assert_eq!((taken.first_left, &taken.ahead[..]), (0, &[1, 2, 4][..]));
        taken = taken.with(Choice::Answered(0)).with(Choice::Unanswered(7)).with(Choice::Unanswered(3));
        assert_eq!(taken, Taken { first_left: 3, ahead: vec![4], unanswered: vec![3, 7] });
        assert_eq!(taken.with(Choice::Answered(3)).first_left, 5);
    }

    #[test]
    fn a_place_with_less_left_than_an_earlier_one_is_not_visited() {
        let mut visited = Visited::default();
        let taken = |unanswered: &[usize]| Taken { unanswered: unanswered.to_vec(), ..Taken::default() };
        assert!(visited.is_worth_a_visit(&taken(&[2]), &0));
        assert!(!visited.is_worth_a_visit(&taken(&[2, 5]), &0));
        assert!(visited.is_worth_a_visit(&taken(&[5]), &0));
        assert!(visited.is_worth_a_visit(&taken(&[2]), &1));
        assert!(!is_within(&[1, 3], &[1, 2]) && is_within(&[], &[]) && is_within(&[1, 3], &[0, 1, 3]));
    }
}
