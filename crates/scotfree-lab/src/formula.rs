//! How the value of a claim follows from what was measured.
//!
//! Invariant: a value is a function of the series of measurements alone, and what was not measured has none.

use scotfree_stage::stats::Spread;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a claim's value follows from the measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Formula {
    /// The median over the repetitions of an arm.
    Median {
        /// What was measured.
        metric: String,
        /// Of which arm.
        arm: String,
    },
    /// The sum over the repetitions of an arm.
    Sum {
        /// What was measured.
        metric: String,
        /// Of which arm.
        arm: String,
    },
    /// The smallest of the repetitions of an arm.
    Min {
        /// What was measured.
        metric: String,
        /// Of which arm.
        arm: String,
    },
    /// The largest of the repetitions of an arm.
    Max {
        /// What was measured.
        metric: String,
        /// Of which arm.
        arm: String,
    },
    /// The median of the quotients of two arms, repetition by repetition.
    Ratio {
        /// What was measured.
        metric: String,
        /// The arm above the line.
        arm: String,
        /// The arm below it.
        over: String,
    },
    /// The median of the geometric means of several quotients, repetition by repetition.
    #[serde(rename = "geometric-mean")]
    GeometricMean {
        /// What was measured.
        metric: String,
        /// The arms of each quotient.
        ratios: Vec<Quotient>,
    },
    /// The median of the differences of two arms, repetition by repetition.
    Difference {
        /// What was measured.
        metric: String,
        /// The arm from which is taken.
        arm: String,
        /// The arm that is taken away.
        minus: String,
    },
}

/// One of several quotients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quotient {
    /// The arm above the line.
    pub arm: String,
    /// The arm below it.
    pub over: String,
}

/// What one repetition of one arm measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The arm.
    pub arm: String,
    /// The repetition, from 0.
    pub repetition: u32,
    /// What was measured, by metric; units are in the metrics' names.
    pub values: BTreeMap<String, f64>,
    /// What was counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

/// What was computed for a claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Computed {
    /// The value.
    pub value: f64,
    /// How far the repetitions lie apart.
    pub spread: Spread,
}

impl Formula {
    /// The arms that it speaks of.
    pub fn arms(&self) -> Vec<&str> {
        match self {
            Formula::Median { arm, .. }
            | Formula::Sum { arm, .. }
            | Formula::Min { arm, .. }
            | Formula::Max { arm, .. } => vec![arm],
            Formula::Ratio { arm, over, .. } => vec![arm, over],
            Formula::GeometricMean { ratios, .. } => {
                ratios.iter().flat_map(|Quotient { arm, over }| [arm.as_str(), over]).collect()
            }
            Formula::Difference { arm, minus, .. } => vec![arm, minus],
        }
    }

    /// What was measured.
    pub fn metric(&self) -> &str {
        match self {
            Formula::Median { metric, .. }
            | Formula::Sum { metric, .. }
            | Formula::Min { metric, .. }
            | Formula::Max { metric, .. }
            | Formula::Ratio { metric, .. }
            | Formula::GeometricMean { metric, .. }
            | Formula::Difference { metric, .. } => metric,
        }
    }

    /// The value that follows from the measurements, or what is missing.
    pub fn compute(&self, series: &[Measurement]) -> Result<Computed, String> {
        let values = match self {
            Formula::Median { metric, arm }
            | Formula::Sum { metric, arm }
            | Formula::Min { metric, arm }
            | Formula::Max { metric, arm } => values_of(series, metric, arm)?.into_values().collect(),
            Formula::Ratio { metric, arm, over } => pairwise(series, metric, arm, over, |a, b| a / b)?,
            Formula::GeometricMean { metric, ratios } => geometric_means(series, metric, ratios)?,
            Formula::Difference { metric, arm, minus } => pairwise(series, metric, arm, minus, |a, b| a - b)?,
        };
        let spread = Spread::of(&values).ok_or("a value is not a number, or there are none")?;
        let value = match self {
            Formula::Median { .. }
            | Formula::Ratio { .. }
            | Formula::GeometricMean { .. }
            | Formula::Difference { .. } => spread.median,
            Formula::Sum { .. } => values.iter().sum(),
            Formula::Min { .. } => spread.min,
            Formula::Max { .. } => spread.max,
        };
        Ok(Computed { value, spread })
    }
}

/// The values of one arm by repetition.
pub(crate) fn values_of(
    series: &[Measurement],
    metric: &str,
    arm: &str,
) -> Result<BTreeMap<u32, f64>, String> {
    let of_arm: Vec<&Measurement> = series.iter().filter(|measurement| measurement.arm == arm).collect();
    if of_arm.is_empty() {
        return Err(format!("the arm `{arm}` was not measured"));
    }
    let value = |measurement: &&Measurement| match measurement.values.get(metric) {
        Some(value) => Ok((measurement.repetition, *value)),
        None => Err(format!("`{metric}` of the arm `{arm}` was not measured")),
    };
    of_arm.iter().map(value).collect()
}

pub(crate) fn pairwise(
    series: &[Measurement],
    metric: &str,
    arm: &str,
    other: &str,
    combine: fn(f64, f64) -> f64,
) -> Result<Vec<f64>, String> {
    let (values, others) = (values_of(series, metric, arm)?, values_of(series, metric, other)?);
    if values.len() != others.len() {
        return Err(format!("the arms `{arm}` and `{other}` were not measured equally often"));
    }
    let pair =
        |(repetition, value): (&u32, &f64)| others.get(repetition).map(|other| combine(*value, *other));
    Ok(values.iter().filter_map(pair).collect())
}

/// Of each repetition, the geometric mean of the quotients.
fn geometric_means(series: &[Measurement], metric: &str, ratios: &[Quotient]) -> Result<Vec<f64>, String> {
    let quotients = |Quotient { arm, over }: &Quotient| pairwise(series, metric, arm, over, |a, b| a / b);
    let all = ratios.iter().map(quotients).collect::<Result<Vec<Vec<f64>>, String>>()?;
    let repetitions = all.first().map_or(0, Vec::len);
    if all.iter().any(|quotients| quotients.len() != repetitions) {
        return Err(format!("the arms of a geometric mean of `{metric}` were not measured equally often"));
    }
    let mean = |repetition: usize| {
        let logarithms = all.iter().map(|quotients| quotients[repetition].ln());
        (logarithms.sum::<f64>() / all.len() as f64).exp()
    };
    Ok((0..repetitions).map(mean).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn formulas_follow_the_measurements() {
        let series = series();
        for (formula, value, min, max) in [
            ("kind = \"median\"\nmetric = \"p50_us\"\narm = \"slow\"", 40.0, 30.0, 60.0),
            ("kind = \"sum\"\nmetric = \"p50_us\"\narm = \"slow\"", 130.0, 30.0, 60.0),
            ("kind = \"min\"\nmetric = \"p50_us\"\narm = \"slow\"", 30.0, 30.0, 60.0),
            ("kind = \"max\"\nmetric = \"p50_us\"\narm = \"fast\"", 20.0, 10.0, 20.0),
            ("kind = \"ratio\"\nmetric = \"p50_us\"\narm = \"slow\"\nover = \"fast\"", 3.0, 3.0, 4.0),
            (
                "kind = \"difference\"\nmetric = \"p50_us\"\narm = \"slow\"\nminus = \"fast\"",
                30.0,
                20.0,
                40.0,
            ),
        ] {
            let formula: Formula = toml::from_str(formula).expect("it is a formula");
            let computed = formula.compute(&series).expect("all was measured");
            assert_eq!(
                (computed.value, computed.spread.min, computed.spread.max),
                (value, min, max),
                "{formula:?}"
            );
        }
    }

    #[test]
    fn a_geometric_mean_is_of_quotients_in_each_repetition() {
        // 3, 3 and 4 over the repetitions, and their inverses of which the mean with them is 1.
        let mean = |ratios: &[(&str, &str)]| {
            let ratio = |(arm, over): &(&str, &str)| format!("{{ arm = \"{arm}\", over = \"{over}\" }}");
            let ratios = ratios.iter().map(ratio).collect::<Vec<_>>().join(", ");
            let text = format!("kind = \"geometric-mean\"\nmetric = \"p50_us\"\nratios = [{ratios}]");
            let formula: Formula = toml::from_str(&text).expect("it is a formula");
            formula.compute(&series()).map(|computed| computed.spread)
        };
        let (up, down, same) = (("slow", "fast"), ("fast", "slow"), ("slow", "slow"));
        for (ratios, min, median, max) in [
            (&[up][..], 3.0, 3.0, 4.0),
            (&[up, same][..], 3_f64.sqrt(), 3_f64.sqrt(), 2.0),
            (&[up, down][..], 1.0, 1.0, 1.0),
            (&[up, up, down][..], 3_f64.cbrt(), 3_f64.cbrt(), 4_f64.cbrt()),
        ] {
            let found = mean(ratios).expect("all was measured");
            for (found, wanted) in [(found.min, min), (found.median, median), (found.max, max)] {
                assert!((found - wanted).abs() < 1e-9, "{ratios:?}: {found} for {wanted}");
            }
        }
        assert!(mean(&[up, ("slow", "none")]).expect_err("one is missing").contains("`none`"));
        assert!(mean(&[]).is_err());
    }

    #[test]
    fn what_was_not_measured_has_no_value() {
        let ratio = Formula::Ratio { metric: "p50_us".into(), arm: "slow".into(), over: "fast".into() };
        let mut short = series();
        short.pop();
        assert!(ratio.compute(&short).expect_err("one is missing").contains("equally often"));
        assert!(ratio.compute(&[]).expect_err("all are missing").contains("`slow` was not measured"));
        let mut zero = series();
        for measurement in &mut zero {
            measurement.values.insert("p50_us".into(), 0.0);
        }
        assert!(ratio.compute(&zero).expect_err("0 / 0").contains("not a number"));
        let other = Formula::Median { metric: "p51_us".into(), arm: "slow".into() };
        assert!(other.compute(&series()).expect_err("another metric").contains("`p51_us`"));
    }

    pub(crate) fn series() -> Vec<Measurement> {
        let rows = [
            ("slow", 0, 30.0),
            ("fast", 0, 10.0),
            ("fast", 1, 20.0),
            ("slow", 1, 60.0),
            ("slow", 2, 40.0),
            ("fast", 2, 10.0),
        ];
        let measurement = |(arm, repetition, p50_us): (&str, u32, f64)| Measurement {
            arm: arm.to_owned(),
            repetition,
            values: BTreeMap::from([("p50_us".to_owned(), p50_us)]),
            counters: BTreeMap::from([("acks".to_owned(), 7)]),
        };
        rows.map(measurement).to_vec()
    }
}
