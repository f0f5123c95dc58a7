//! Where on a metric's axis the bounds of claims lie.
//!
//! Invariant: a bound of a quotient or a difference lies where the one arm must be, the other being where
//! its median is.

use super::look::is_time;
use crate::experiment::{Better, Formula};
use crate::formula::values_of;
use crate::results::{Claim, ExperimentResult};
use scotfree_stage::stats::median;

/// A bound of an arm.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bound {
    /// `required` or `goal`.
    pub word: &'static str,
    pub value: f64,
}

/// The bounds of one arm on the axis of a metric.
pub(super) fn of_arm(result: &ExperimentResult, metric: &str, arm: &str) -> Vec<Bound> {
    let bounds = result.claims.iter().flat_map(|claim| {
        let bounds = [("required", claim.required), ("goal", claim.goal)];
        bounds.into_iter().filter_map(move |(word, bound)| {
            let value = place(result, claim, metric, arm, bound?)?;
            value.is_finite().then_some(Bound { word, value })
        })
    });
    bounds.collect()
}

/// The bounds of the quotient of two arms.
pub(super) fn of_ratio(result: &ExperimentResult, metric: &str, arm: &str, over: &str) -> Vec<Bound> {
    let wanted = Formula::Ratio { metric: metric.into(), arm: arm.into(), over: over.into() };
    let claims = result.claims.iter().filter(|claim| claim.formula == wanted);
    let bounds = claims.flat_map(|claim| [("required", claim.required), ("goal", claim.goal)]);
    bounds.filter_map(|(word, bound)| Some(Bound { word, value: bound? })).collect()
}

fn place(result: &ExperimentResult, claim: &Claim, metric: &str, arm: &str, bound: f64) -> Option<f64> {
    let median = |arm: &str| {
        let values = values_of(&result.series, metric, arm).ok()?;
        median(&values.into_values().collect::<Vec<f64>>())
    };
    match &claim.formula {
        Formula::Median { metric: of, arm: bounded }
        | Formula::Min { metric: of, arm: bounded }
        | Formula::Max { metric: of, arm: bounded } => (of == metric && bounded == arm).then_some(bound),
        Formula::Ratio { metric: of, arm: above, over } if of == metric => {
            // "How many times as fast" bounds the fast arm, which is below the line where times are compared.
            if claim.better == Better::Higher && is_time(metric) {
                (over == arm).then_some(median(above)? / bound)
            } else {
                (above == arm).then_some(median(over)? * bound)
            }
        }
        Formula::Difference { metric: of, arm: bounded, minus } if of == metric => {
            (bounded == arm).then_some(median(minus)? + bound)
        }
        // A sum of repetitions is on no axis of single ones, a mean of quotients on no axis of one.
        Formula::Sum { .. }
        | Formula::Ratio { .. }
        | Formula::GeometricMean { .. }
        | Formula::Difference { .. } => None,
    }
}
