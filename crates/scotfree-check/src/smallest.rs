//! The smallest part of a history that shows why no order explains it.
//!
//! Invariant: what is left out is proven not to matter. Cutting a history off at a moment keeps every
//! order that explained it, and so does leaving out a read; a write is never left out but set free: it
//! may have happened at any time after its call, or never, and still no order explains the rest.

use crate::model::{Model, OperationOf};
use crate::parts::leaves_trace;
use crate::search::{find_order, Found};

/// How many steps one try may take.
const STEPS_PER_OPERATION: u64 = 100;

/// The operations, as indices of the history, that show a violation in `part`. After `steps_max` steps
/// it is no longer made smaller.
pub(crate) fn smallest_part<M: Model>(
    model: &M,
    history: &[OperationOf<M>],
    part: &[usize],
    steps_max: u64,
) -> Vec<usize> {
    let operations = part.iter().map(|index| history[*index].clone()).collect();
    let whole = Draft { model, indices: part.to_vec(), operations };
    let mut steps_left = steps_max;
    let short = whole.cut_short(&mut steps_left);
    let thin = short.thin_out(&mut steps_left);
    let shown = (0..thin.indices.len()).filter(|at| thin.matters(*at));
    shown.map(|at| thin.indices[at]).collect()
}

/// A part of a history with less and less in it.
#[derive(Clone)]
struct Draft<'h, M: Model> {
    model: &'h M,
    /// Where the operations stand in the history.
    indices: Vec<usize>,
    /// The operations; those without answers are free.
    operations: Vec<OperationOf<M>>,
}

impl<M: Model> Draft<'_, M> {
    /// Whether it constrains the order, or says where a value that was read came from.
    fn matters(&self, at: usize) -> bool {
        self.operations[at].answer.is_some() || leaves_trace(self.model, &self.operations, at)
    }

    /// "No" also where the steps do not suffice to tell.
    fn is_violation(&self, steps_left: &mut u64) -> bool {
        let part = (0..self.operations.len()).filter(|at| self.matters(*at));
        // One try that leads nowhere must not use up the steps of all others.
        let share = (STEPS_PER_OPERATION * self.operations.len() as u64).min(*steps_left);
        let mut share_left = share;
        let found = find_order(self.model, part.map(|at| &self.operations[at]), &mut share_left);
        *steps_left -= share - share_left;
        found == Found::NoOrder
    }

    /// What had happened when the violation was complete.
    fn cut_short(self, steps_left: &mut u64) -> Self {
        let answers = self.operations.iter().filter_map(|operation| operation.answer.as_ref());
        let mut moments: Vec<u64> = answers.map(|answer| answer.at).collect();
        moments.sort_unstable();
        let (mut short, mut first, mut end) = (self, 0, moments.len());
        while first < end {
            let middle = usize::midpoint(first, end);
            let shorter = short.until(moments[middle]);
            if shorter.is_violation(steps_left) {
                (short, end) = (shorter, middle);
            } else {
                first = middle + 1;
            }
        }
        short
    }

    fn until(&self, moment: u64) -> Self {
        self.retain(|operation| {
            operation.answer = operation.answer.take().filter(|answer| answer.at <= moment);
            operation.called <= moment
        })
    }

    /// The same without what `keep` does not want, after it has changed the rest.
    fn retain(&self, mut keep: impl FnMut(&mut OperationOf<M>) -> bool) -> Self {
        let members = self.indices.iter().copied().zip(self.operations.iter().cloned());
        let kept =
            members.filter_map(|(index, mut operation)| keep(&mut operation).then_some((index, operation)));
        let (indices, operations) = kept.unzip();
        Draft { model: self.model, indices, operations }
    }

    /// Leaves out what can be: reads first, since what nobody has read any more leaves no trace.
    fn thin_out(self, steps_left: &mut u64) -> Self {
        self.without_most(false, steps_left).without_most(true, steps_left)
    }

    /// Leaves reads out or sets writes free, many at a time first.
    fn without_most(mut self, writes: bool, steps_left: &mut u64) -> Self {
        let mut count = self.operations.len().div_ceil(2);
        while count > 0 {
            // From the back: what was left out does not move what is still to be tried.
            for begin in (0..self.operations.len()).step_by(count).rev() {
                let range = begin..(begin + count).min(self.operations.len());
                let is_concerned =
                    |one: &OperationOf<M>| one.answer.is_some() && self.model.writes(&one.op) == writes;
                if !self.operations[range.clone()].iter().any(is_concerned) {
                    continue;
                }
                let thinner = self.without(range, writes);
                if thinner.is_violation(steps_left) {
                    self = thinner;
                }
            }
            count /= 2;
        }
        self
    }

    fn without(&self, range: std::ops::Range<usize>, writes: bool) -> Self {
        let mut at = 0;
        self.retain(|operation| {
            let is_concerned = range.contains(&at) && self.model.writes(&operation.op) == writes;
            at += 1;
            if is_concerned {
                operation.answer = None;
            }
            !is_concerned || writes
        })
    }
}
