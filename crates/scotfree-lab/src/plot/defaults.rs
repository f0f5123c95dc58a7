//! What is drawn where an experiment's file says nothing of plots: the metrics that its claims speak of.
//!
//! Invariant: every metric of a claim is drawn, or named as one that was 0 throughout, up to a limit.

use super::rule::{At, Axis, Entry, Kind, Plot};
use crate::results::ExperimentResult;

/// Panels of a default plot.
const PANELS_MAX: usize = 4;

/// The plots, and the metrics that were 0 in every repetition and need none.
pub(super) fn plots(result: &ExperimentResult) -> (Vec<Plot>, Vec<String>) {
    let metrics = metrics(result);
    let is_zero = |metric: &&String| {
        result.series.iter().filter_map(|one| one.values.get(*metric)).all(|value| *value == 0.0)
    };
    let zeros: Vec<String> = metrics.iter().filter(is_zero).cloned().collect();
    let drawn = metrics.iter().filter(|metric| zeros.len() == metrics.len() || !zeros.contains(metric));
    (drawn.take(PANELS_MAX).map(|metric| points(result, metric)).collect(), zeros)
}

/// The metrics of the claims, those of claims with bounds first.
fn metrics(result: &ExperimentResult) -> Vec<String> {
    let (bounded, other): (Vec<_>, Vec<_>) =
        result.claims.iter().partition(|claim| claim.required.or(claim.goal).is_some());
    let mut metrics: Vec<String> = Vec::new();
    for claim in bounded.into_iter().chain(other) {
        let metric = claim.formula.metric();
        if !metrics.iter().any(|known| known == metric) {
            metrics.push(metric.to_owned());
        }
    }
    metrics
}

/// A row for every arm of which the metric was measured, in the order of measuring.
fn points(result: &ExperimentResult, metric: &str) -> Plot {
    let mut arms: Vec<&str> = Vec::new();
    for one in result.series.iter().filter(|one| one.values.contains_key(metric)) {
        if !arms.contains(&one.arm.as_str()) {
            arms.push(&one.arm);
        }
    }
    let entry =
        |arm: &str| Entry { arm: arm.into(), over: None, x: At::Name(arm.into()), by: None, panel: None };
    Plot {
        kind: Kind::Points,
        title: None,
        metrics: vec![metric.to_owned()],
        events: Vec::new(),
        x: Axis::Arm,
        by: None,
        panels: None,
        quotient: None,
        entries: arms.into_iter().map(entry).collect(),
        references: Vec::new(),
    }
}
