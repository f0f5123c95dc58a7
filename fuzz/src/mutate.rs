//! Inputs out of seeds: what a driver without coverage can do.
//!
//! Invariant: the input of a place in a run depends on the run's seed, the place and the corpus only,
//! so that any input can be made again without those before it.

/// The longest input.
pub const INPUT_BYTES_MAX: usize = 4096;
/// How many changes one input gets at most.
const CHANGES_MAX: u64 = 8;
/// Values at which sizes, counts and codes are likely to be handled wrongly.
const EDGES: [u64; 12] =
    [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX - 1, u64::MAX];

/// A small generator of numbers that look random (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of one place in one run.
    pub fn at(seed: u64, place: u64) -> Random {
        let mut random = Random(seed ^ place.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // It has no end, so it is no iterator.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, 0 if there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % (bound as u64).max(1)) as usize
    }
}

/// The input of one place in a run.
pub fn input(seed: u64, place: u64, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut random = Random::at(seed, place);
    // One in sixteen has nothing to do with the corpus.
    let mut bytes = match random.below(16) {
        0 => noise(&mut random),
        _ => pick(&mut random, corpus),
    };
    for _ in 0..=random.next() % CHANGES_MAX {
        change(&mut random, &mut bytes, corpus);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn noise(random: &mut Random) -> Vec<u8> {
    (0..random.below(256)).map(|_| random.next() as u8).collect()
}

fn pick(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    corpus.get(random.below(corpus.len())).cloned().unwrap_or_default()
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = random.below(bytes.len());
    match random.below(8) {
        0 => flip(random, bytes, at),
        1 => overwrite(bytes, at, &[random.next() as u8]),
        2 => overwrite_number(random, bytes, at),
        3 => drop(bytes.drain(at..at + random.below(bytes.len() - at + 1))),
        4 => insert(bytes, at, &noise(random)),
        5 => repeat(random, bytes, at),
        6 => bytes.truncate(at),
        _ => splice(bytes, at, &pick(random, corpus)),
    }
}

fn flip(random: &mut Random, bytes: &mut [u8], at: usize) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << random.below(8);
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (byte, new) in bytes[at..].iter_mut().zip(with) {
        *byte = *new;
    }
}

/// A number of one, two, four or eight bytes, in either order, often at a multiple of its size.
fn overwrite_number(random: &mut Random, bytes: &mut [u8], at: usize) {
    let size = 1 << random.below(4);
    let number = EDGES[random.below(EDGES.len())].wrapping_add(random.next() % 3);
    let mut number = number.to_le_bytes();
    number[..size].rotate_left(random.below(2) * (size - 1));
    overwrite(bytes, at / size * size, &number[..size]);
}

fn insert(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.splice(at..at, what.iter().copied());
}

fn repeat(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    let end = at + random.below(bytes.len() - at + 1);
    bytes.extend_from_within(at..end);
}

fn splice(bytes: &mut Vec<u8>, at: usize, other: &[u8]) {
    bytes.truncate(at);
    bytes.extend_from_slice(other.get(at..).unwrap_or(other));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_input_can_be_made_again_and_inputs_differ() {
        let corpus = [b"one seed of some length".to_vec(), vec![0; 300]];
        let inputs: BTreeSet<Vec<u8>> = (0..1_000).map(|place| input(7, place, &corpus)).collect();
        assert!(inputs.len() > 900, "only {} of 1000 differ", inputs.len());
        assert!((0..1_000).all(|place| input(7, place, &corpus) == input(7, place, &corpus)));
        assert!(inputs.iter().all(|input| input.len() <= INPUT_BYTES_MAX));
    }

    #[test]
    fn an_empty_corpus_is_enough() {
        assert!((0..1_000).any(|place| !input(1, place, &[]).is_empty()));
    }
}
