//! Histograms per method whose bins are as wide as their value is large: mergeable, within 1 % of a value.
//!
//! A bin is the sign, the exponent and the first six bits of the fraction of a 64-bit float: 64 bins from a power
//! of two to the next, each at most 1/64 of its lower edge wide. Its middle is beside no value of it by more than
//! 1/128 of that value.
//!
//! Invariant: merging is adding up counts; neither the order of values nor that of merging changes a bin.

use crate::groups::starts;

const BITS_DROPPED: u32 = 46;

/// The bin of a value; bins are ordered as values are, and 0 has its own.
pub fn bin_of(value: f64) -> i32 {
    let bin = (value.abs().to_bits() >> BITS_DROPPED) as i32;
    if value < 0.0 {
        -bin
    } else {
        bin
    }
}

/// The middle of a bin.
pub fn value_of(bin: i32) -> f64 {
    if bin == 0 {
        return 0.0;
    }
    let middle = (u64::from(bin.unsigned_abs()) << BITS_DROPPED) | (1 << (BITS_DROPPED - 1));
    f64::from_bits(middle).copysign(f64::from(bin))
}

/// What fell into one bin of one method.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bin {
    /// Which method.
    pub method: u32,
    /// Which bin, see [`bin_of`].
    pub bin: i32,
    /// How many values.
    pub samples: u64,
    /// Their weights.
    pub weight: f64,
    /// Their weights' squares.
    pub squares: f64,
}

impl Bin {
    fn key(&self) -> (u32, i32) {
        (self.method, self.bin)
    }

    fn add(&mut self, other: &Bin) {
        self.samples += other.samples;
        self.weight += other.weight;
        self.squares += other.squares;
    }
}

/// The calls of a partition by their method; made once, used for each quantity.
#[derive(Debug)]
pub struct ByMethod {
    starts: Vec<usize>,
    rows: Vec<u32>,
}

impl ByMethod {
    /// `is_wanted` says of each method, not 0, whether it is to be counted; a method beyond it is not.
    pub fn new(methods: &[i32], is_wanted: &[u8]) -> Self {
        let wanted = |method: &i32| {
            let index = usize::try_from(*method).ok()?;
            (*is_wanted.get(index)? != 0).then_some(index)
        };
        let starts = starts(methods.iter().filter_map(wanted), is_wanted.len());
        let mut next = starts.clone();
        let mut rows = vec![0; starts[is_wanted.len()]];
        for (row, method) in methods.iter().enumerate() {
            if let Some(method) = wanted(method) {
                rows[next[method]] = row as u32;
                next[method] += 1;
            }
        }
        Self { starts, rows }
    }

    /// The bins of a quantity, by method and bin. A value that is no number is not known, and counts nowhere.
    pub fn bins(&self, values: &[f64], weights: &[f64]) -> Vec<Bin> {
        let mut found = Vec::new();
        let mut scratch = Scratch::default();
        for (method, ends) in self.starts.windows(2).enumerate() {
            for row in &self.rows[ends[0]..ends[1]] {
                scratch.add(values[*row as usize], weights[*row as usize]);
            }
            scratch.drain_into(method as u32, &mut found);
        }
        found
    }
}

/// One method's bins while they are counted: dense, so that a value costs an index.
struct Scratch {
    bins: Vec<Bin>,
    touched: Vec<i32>,
}

const BINS_OF_A_SIGN: i32 = 1 << (63 - BITS_DROPPED);

impl Default for Scratch {
    fn default() -> Self {
        Self { bins: vec![Bin::default(); 2 * BINS_OF_A_SIGN as usize], touched: Vec::new() }
    }
}

impl Scratch {
    fn add(&mut self, value: f64, weight: f64) {
        if value.is_nan() {
            return;
        }
        let bin = bin_of(value);
        let slot = &mut self.bins[(bin + BINS_OF_A_SIGN) as usize];
        if slot.samples == 0 {
            self.touched.push(bin);
        }
        slot.add(&Bin { samples: 1, weight, squares: weight * weight, ..Bin::default() });
    }

    fn drain_into(&mut self, method: u32, found: &mut Vec<Bin>) {
        self.touched.sort_unstable();
        for bin in self.touched.drain(..) {
            let slot = std::mem::take(&mut self.bins[(bin + BINS_OF_A_SIGN) as usize]);
            found.push(Bin { method, bin, ..slot });
        }
    }
}

/// Adds a part to a histogram where it lies; both are in the order of method and bin, and so is the result.
pub fn add(all: &mut Vec<Bin>, part: &[Bin]) {
    let mut left = all.len();
    let fresh = fresh(all, part);
    // Not twice what is there: it may be the most that is in memory.
    all.reserve_exact(fresh);
    all.resize(left + fresh, Bin::default());
    let mut place = all.len();
    // From the end, so that nothing is written over that is still to be read; what is left then is in its place.
    for bin in part.iter().rev() {
        while left > 0 && all[left - 1].key() > bin.key() {
            (left, place) = (left - 1, place - 1);
            all[place] = all[left];
        }
        place -= 1;
        if left > 0 && all[left - 1].key() == bin.key() {
            left -= 1;
            all[place] = all[left];
            all[place].add(bin);
        } else {
            all[place] = *bin;
        }
    }
}

/// How many bins of a part are not in a histogram.
fn fresh(all: &[Bin], part: &[Bin]) -> usize {
    let mut rest = all.iter().map(Bin::key).peekable();
    part.iter()
        .filter(|bin| {
            while rest.next_if(|key| *key < bin.key()).is_some() {}
            rest.peek() != Some(&bin.key())
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Sample = (i32, f64, u8);

    fn bins(samples: &[Sample]) -> Vec<Bin> {
        let methods: Vec<i32> = samples.iter().map(|sample| sample.0).collect();
        let values: Vec<f64> = samples.iter().map(|sample| sample.1).collect();
        let weights: Vec<f64> = samples.iter().map(|sample| f64::from(sample.2)).collect();
        ByMethod::new(&methods, &[1; 4]).bins(&values, &weights)
    }

    fn samples() -> impl Strategy<Value = Vec<Sample>> {
        let value = prop_oneof![any::<f64>(), (-1000_i32..100_000).prop_map(f64::from)];
        proptest::collection::vec((0..4, value, 1_u8..9), 0..200)
    }

    #[test]
    fn a_method_that_is_not_wanted_is_not_counted() {
        let found = ByMethod::new(&[0, 1, 2, -1], &[0, 1]).bins(&[5.0; 4], &[2.0; 4]);
        let expected = Bin { method: 1, bin: bin_of(5.0), samples: 1, weight: 2.0, squares: 4.0 };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn nothing_and_what_is_no_number() {
        assert_eq!((bin_of(0.0), bin_of(-0.0), value_of(0).to_bits()), (0, 0, 0));
        assert_eq!(bins(&[(0, f64::NAN, 1)]), []);
    }

    proptest! {
        #[test]
        fn the_middle_of_a_bin_is_within_one_percent(value in prop_oneof![1e-300..1e300, -1e300..-1e-300, 1.0..1e6]) {
            prop_assert!((value_of(bin_of(value)) - value).abs() <= value.abs() / 128.0);
        }

        #[test]
        fn bins_are_in_the_order_of_values(left: f64, right: f64) {
            prop_assume!(left <= right);
            prop_assert!(bin_of(left) <= bin_of(right));
            prop_assert!(value_of(bin_of(left)) <= value_of(bin_of(right)));
        }

        #[test]
        fn parts_add_up_in_any_order(samples in samples(), cut in 0_usize..200, other in 0_usize..200) {
            let (one, two) = (cut.min(other).min(samples.len()), cut.max(other).min(samples.len()));
            let parts = [bins(&samples[..one]), bins(&samples[one..two]), bins(&samples[two..])];
            let whole = bins(&samples);
            for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
                let mut sum = Vec::new();
                for part in order {
                    add(&mut sum, &parts[part]);
                }
                prop_assert_eq!(&sum, &whole);
            }
            let reversed: Vec<Sample> = samples.into_iter().rev().collect();
            prop_assert_eq!(bins(&reversed), whole);
        }

        #[test]
        fn every_value_is_counted_once(samples in samples()) {
            let known = samples.iter().filter(|sample| !sample.1.is_nan());
            let counted: u64 = bins(&samples).iter().map(|bin| bin.samples).sum();
            prop_assert_eq!(counted, known.count() as u64);
        }
    }
}
