//! A set of passages by their numbers: in pages of bits, of which those without any take eight bytes.
//!
//! A search asks of most of its rows whether they are in one, so that a look must cost next to nothing.

const WORD_BITS: usize = 64;
const PAGE_WORDS: usize = 1_024;

type Page = Box<[u64; PAGE_WORDS]>;

/// The set; of numbers up to `n` it takes at most n / 8 bytes.
#[derive(Debug, Clone, Default)]
pub struct PassageSet {
    pages: Vec<Option<Page>>,
}

impl PassageSet {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let words = self.pages.iter().flatten().flat_map(|page| page.iter());
        words.map(|word| word.count_ones() as usize).sum()
    }

    /// Whether a passage is one of them.
    #[inline]
    pub fn contains(&self, passage: u32) -> bool {
        let (page, word, bit) = place(passage);
        self.pages.get(page).and_then(Option::as_ref).is_some_and(|page| page[word] & bit != 0)
    }

    /// Adds a passage.
    pub fn insert(&mut self, passage: u32) {
        let (page, word, bit) = place(passage);
        self.page(page)[word] |= bit;
    }

    /// Of documents, each with the runs of its passages, as JSON: `[[1,2],[7,1]],[[3,4]]` are 1, 2, 3 to 7.
    ///
    /// Nothing, if these are none, or one is beyond `most`: so great a set would be of a damaged text.
    pub fn of_runs(documents: &str, most: u32) -> Option<Self> {
        let (mut set, mut said) = (Self::default(), Said(documents.as_bytes()));
        while !said.0.is_empty() {
            said.take(b'[')?;
            while said.take(b']').is_none() {
                let [first, count] = said.run()?;
                let last = first.checked_add(count.checked_sub(1)?).filter(|last| *last <= most)?;
                (first..=last).for_each(|passage| set.insert(passage));
                said.comma(b']')?;
            }
            said.end_document()?;
        }
        Some(set)
    }

    /// Adds those of another.
    pub fn insert_all(&mut self, other: &Self) {
        for (at, page) in other.pages.iter().enumerate() {
            if let Some(page) = page {
                self.page(at).iter_mut().zip(page.iter()).for_each(|(word, more)| *word |= more);
            }
        }
    }

    fn page(&mut self, at: usize) -> &mut Page {
        if at >= self.pages.len() {
            self.pages.resize(at + 1, None);
        }
        self.pages[at].get_or_insert_with(|| Box::new([0; PAGE_WORDS]))
    }
}

impl FromIterator<u32> for PassageSet {
    fn from_iter<I: IntoIterator<Item = u32>>(passages: I) -> Self {
        let mut found = Self::default();
        passages.into_iter().for_each(|passage| found.insert(passage));
        found
    }
}

/// What of a text is not read yet.
struct Said<'a>(&'a [u8]);

impl Said<'_> {
    fn take(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    fn run(&mut self) -> Option<[u32; 2]> {
        self.take(b'[')?;
        let first = self.number()?;
        self.take(b',')?;
        let count = self.number()?;
        self.take(b']')?;
        Some([first, count])
    }

    fn number(&mut self) -> Option<u32> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    /// A comma with something behind it, unless an end is next.
    fn comma(&mut self, end: u8) -> Option<()> {
        if self.0.first() == Some(&end) {
            return Some(());
        }
        self.take(b',')?;
        (self.0.first() != Some(&end)).then_some(())
    }

    /// The end of all, or a comma with another document behind it.
    fn end_document(&mut self) -> Option<()> {
        if self.0.is_empty() {
            return Some(());
        }
        self.take(b',')?;
        (!self.0.is_empty()).then_some(())
    }
}

/// The page, the word in it, and the bit in that.
fn place(passage: u32) -> (usize, usize, u64) {
    let (at, bit) = (passage as usize / WORD_BITS, passage as usize % WORD_BITS);
    (at / PAGE_WORDS, at % PAGE_WORDS, 1 << bit)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const PAGE_BITS: usize = PAGE_WORDS * WORD_BITS;

    /// Numbers around the ends of words and pages, and some far away: others each time.
    fn drawn(seed: u32, count: usize) -> Vec<u32> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        let ends = [0, WORD_BITS as u32, PAGE_BITS as u32, 3 * PAGE_BITS as u32, u32::MAX];
        let mut one = || match next() % 3 {
            0 => next(),
            1 => ends[next() as usize % ends.len()].wrapping_add(next() % 5).wrapping_sub(2),
            _ => next() % 200_000,
        };
        (0..count).map(|_| one()).collect()
    }

    #[test]
    fn it_has_what_a_hash_set_has() {
        for seed in 0..40 {
            let (numbers, others) = (drawn(seed, 3 * seed as usize), drawn(seed + 1_000, 50));
            let plain: HashSet<u32> = numbers.iter().copied().collect();
            let set: PassageSet = numbers.iter().copied().collect();
            assert_eq!((set.len(), set.is_empty()), (plain.len(), plain.is_empty()));
            for number in numbers.iter().chain(&others) {
                for near in [number.wrapping_sub(1), *number, number.wrapping_add(1)] {
                    assert_eq!(set.contains(near), plain.contains(&near), "{near} of seed {seed}");
                }
            }
        }
    }

    #[test]
    fn two_together_have_what_either_has() {
        for seed in 0..40 {
            let (left, right) = (drawn(seed, 30), drawn(seed + 500, seed as usize));
            let mut both: PassageSet = left.iter().copied().collect();
            both.insert_all(&right.iter().copied().collect());
            let plain: HashSet<u32> = left.iter().chain(&right).copied().collect();
            assert_eq!(both.len(), plain.len());
            assert!(plain.iter().all(|number| both.contains(*number)));
        }
    }

    #[test]
    fn runs_are_their_numbers() {
        let set =
            PassageSet::of_runs("[[65530,10]],[],[[4294967294,2],[7,1]]", u32::MAX).expect("these are some");
        assert_eq!(set.len(), 13);
        assert!((65_530..65_540).chain([7, u32::MAX - 1, u32::MAX]).all(|number| set.contains(number)));
        assert!(!set.contains(65_529) && !set.contains(65_540) && !set.contains(0) && !set.contains(8));
        assert!(PassageSet::of_runs("[[3,5]]", 7).is_some() && PassageSet::of_runs("[[3,5]]", 6).is_none());
        assert!(PassageSet::of_runs("", 0).is_some_and(|none| none.is_empty()));
    }

    #[test]
    fn what_are_no_runs_is_refused() {
        for said in [
            "[",
            "]",
            "[]]",
            "[],",
            ",[]",
            "[][]",
            "[1,2]",
            "[[1,2]",
            "[[1,2],]",
            "[[1]]",
            "[[1,2,3]]",
            "[[1,0]]",
            "[[-1,2]]",
            "[[1,2]][[3,4]]",
            "[[1.5,2]]",
            "[[,2]]",
            "[[4294967295,2]]",
            "[[4294967296,1]]",
            "[[1,\"2\"]]",
            "null",
            "{}",
        ] {
            assert!(PassageSet::of_runs(said, u32::MAX).is_none(), "{said}");
        }
    }
}
