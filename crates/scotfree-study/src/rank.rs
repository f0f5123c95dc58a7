//! Exact quantiles per method of values with weights: nearest rank, by one sort of each method's values.
//!
//! Invariant: a quantile is a value that occurred, the smallest whose cumulative weight reaches its part of all.

use std::ops::Range;

use crate::groups::starts;

/// Parts of which all is 10,000: whole numbers, since 0.07 of 100 is more than 7 in binary.
const PARTS: f64 = 10_000.0;
/// Weights that are no sums of powers of two, such as 1 / 0.3, add up to a little more or less.
const ROUNDING: f64 = 1e-12;

/// What is known of one method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// Which method.
    pub method: u32,
    /// How many values.
    pub samples: u64,
    /// Their weights.
    pub weight: f64,
    /// Their weights' squares.
    pub squares: f64,
}

/// One value and how many it stands for.
type Weighed = (f64, f64);

/// Of each method with a value its sums and its quantiles, by method; `asked` quantiles behind each other.
///
/// `parts` has `asked` for each method, in ten-thousandths; of more than all there is no quantile, and no number
/// says so. A value that is no number is not known, and a method without parts is not looked at; both count nowhere.
/// The three columns have one length.
pub fn ranked(
    methods: &[i32],
    values: &[f64],
    weights: &[f64],
    parts: &[u32],
    asked: usize,
) -> (Vec<Ranked>, Vec<f64>) {
    let count = parts.len() / asked.max(1);
    let (starts, mut weighed) = by_method(methods, values, weights, count);
    let (mut found, mut quantiles) = (Vec::new(), Vec::new());
    for method in 0..count {
        let of = &mut weighed[starts[method]..starts[method + 1]];
        if of.is_empty() {
            continue;
        }
        of.sort_unstable_by(|left, right| left.0.total_cmp(&right.0));
        found.push(sums(method, of));
        pick(of, &parts[at(method, asked)], &mut quantiles);
    }
    (found, quantiles)
}

fn at(method: usize, asked: usize) -> Range<usize> {
    method * asked..(method + 1) * asked
}

/// Where each method's values begin, and the values by method.
fn by_method(methods: &[i32], values: &[f64], weights: &[f64], count: usize) -> (Vec<usize>, Vec<Weighed>) {
    let place = |method: i32| usize::try_from(method).ok().filter(|method| *method < count);
    let known = || {
        let rows = methods.iter().zip(values).zip(weights);
        rows.filter(|((_, value), _)| !value.is_nan())
            .filter_map(|((method, value), weight)| Some((place(*method)?, (*value, *weight))))
    };
    let starts = starts(known().map(|(method, _)| method), count);
    let mut next = starts.clone();
    let mut weighed = vec![(0.0, 0.0); starts[count]];
    for (method, row) in known() {
        weighed[next[method]] = row;
        next[method] += 1;
    }
    (starts, weighed)
}

fn sums(method: usize, of: &[Weighed]) -> Ranked {
    Ranked {
        method: method as u32,
        samples: of.len() as u64,
        weight: of.iter().map(|(_, weight)| weight).sum(),
        squares: of.iter().map(|(_, weight)| weight * weight).sum(),
    }
}

/// The quantiles of values in order, in the order of `parts`.
fn pick(of: &[Weighed], parts: &[u32], quantiles: &mut Vec<f64>) {
    let mut sum = 0.0;
    let reached: Vec<f64> = of
        .iter()
        .map(|(_, weight)| {
            sum += weight;
            sum * PARTS
        })
        .collect();
    for part in parts {
        let wanted = sum * f64::from(*part) * (1.0 - ROUNDING);
        let place = reached.partition_point(|reached| *reached < wanted);
        quantiles.push(of.get(place).map_or(f64::NAN, |(value, _)| *value));
    }
}

#[cfg(test)]
// Quantiles are values that occurred, to the last bit.
#[allow(clippy::float_cmp)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(values: &[f64], weights: &[f64], part: u32) -> f64 {
        let (found, quantiles) = ranked(&vec![0; values.len()], values, weights, &[part], 1);
        assert_eq!(found.len(), 1);
        quantiles[0]
    }

    #[test]
    fn a_quantile_is_the_smallest_value_that_reaches_its_part() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let ones = vec![1.0; 100];
        for (part, value) in
            [(100, 1.0), (700, 7.0), (5_000, 50.0), (5_001, 51.0), (9_500, 95.0), (10_000, 100.0)]
        {
            assert_eq!(one(&values, &ones, part), value, "{part}");
        }
        assert_eq!(one(&[3.0, 1.0, 2.0], &[1.0, 1.0, 8.0], 5_000), 2.0, "a weight is so many calls");
        let thirds = vec![1.0 / 0.3; 100];
        assert_eq!(one(&values, &thirds, 9_500), 95.0, "a sum that rounds loses no rank");
        assert!(one(&values, &ones, 10_001).is_nan(), "nothing reaches more than all");
    }

    #[test]
    fn methods_are_apart_and_what_is_not_known_counts_nowhere() {
        let methods = [2, 0, 2, -1, 7, 2];
        let values = [5.0, 1.0, 4.0, 9.0, 9.0, f64::NAN];
        let (found, quantiles) = ranked(&methods, &values, &[2.0; 6], &[5_000, 10_000].repeat(3), 2);
        let sums = |method, samples, weight, squares| Ranked { method, samples, weight, squares };
        assert_eq!(found, [sums(0, 1, 2.0, 4.0), sums(2, 2, 4.0, 8.0)]);
        assert_eq!(quantiles, [1.0, 1.0, 4.0, 5.0]);
    }

    proptest! {
        #[test]
        fn it_is_what_the_definition_says_whatever_the_order(
            rows in prop::collection::vec((-5_i32..5, 1_u8..4), 1..60), part in 1_u32..=10_000
        ) {
            let values: Vec<f64> = rows.iter().map(|(value, _)| f64::from(*value)).collect();
            let weights: Vec<f64> = rows.iter().map(|(_, weight)| f64::from(*weight)).collect();
            let all: f64 = weights.iter().sum();
            let up_to = |limit: f64| -> f64 { (0..rows.len()).filter(|row| values[*row] <= limit).map(|row| weights[row]).sum() };
            let reaches = |value: &&f64| up_to(**value) * PARTS >= all * f64::from(part);
            let wanted = values.iter().filter(reaches).copied().fold(f64::INFINITY, f64::min);
            prop_assert_eq!(one(&values, &weights, part), wanted);
        }
    }
}
