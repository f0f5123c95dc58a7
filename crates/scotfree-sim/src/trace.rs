//! What happened, kept as small values and put into words only when somebody asks.
//!
//! Invariant: recording allocates nothing once the ring is full, and never changes the run.

use scotfree_core::{Fnv1a, Nanos};
use std::collections::VecDeque;
use std::fmt::{self, Display, Write};
use std::net::SocketAddr;

/// How many happenings are kept when not all are wanted.
const KEPT_MAX: usize = 250;

/// How much of a run is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// The last few hundred happenings.
    #[default]
    Last,
    /// All of them.
    All,
    /// The last few hundred, and a hash over all.
    Hashed,
}

/// Why a packet went no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The network lost it.
    Lost,
    /// The link is cut.
    Cut,
    /// Nobody is there.
    Down,
    /// Whoever got it kept it to himself.
    Absorbed,
}

/// Something that happened; what roles do beside sending and waking is the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening<Sight, Deed> {
    /// A packet was sent.
    Sent {
        /// To whom.
        to: SocketAddr,
        /// What.
        sight: Sight,
    },
    /// A packet went no further.
    Ended {
        /// Why.
        why: Loss,
        /// What.
        sight: Sight,
    },
    /// A packet arrived.
    Arrived {
        /// What.
        sight: Sight,
    },
    /// A timer went off.
    Woke,
    /// A role did something.
    Did(Deed),
    /// Something else, with a number that says more.
    Note(&'static str, u64),
}

impl<Sight: Display, Deed: Display> Display for Happening<Sight, Deed> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Sent { to, sight } => write!(f, "sends to {to}: {sight}"),
            Happening::Ended { why, sight } => write!(f, "{why:?}: {sight}"),
            Happening::Arrived { sight } => write!(f, "gets {sight}"),
            Happening::Woke => f.write_str("wakes"),
            Happening::Did(deed) => write!(f, "{deed}"),
            Happening::Note(what, number) => write!(f, "{what} ({number})"),
        }
    }
}

/// A happening with its time and place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<Place, What> {
    /// When, by the world's clock.
    pub at: Nanos,
    /// In which step.
    pub step: u64,
    /// Where.
    pub place: Place,
    /// What.
    pub what: What,
}

impl<Place: Display, What: Display> Display for Entry<Place, What> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { at, step, place, what } = self;
        write!(f, "{:>12.3} us  step {step:<6} {:<10} {what}", at.0 as f64 / 1e3, place.to_string())
    }
}

/// What happened.
#[derive(Debug)]
pub struct Trace<Entry> {
    depth: Depth,
    entries: VecDeque<Entry>,
    hash: TextHash,
}

/// FNV-1a over what would be shown: words outlive types, so that a run can be compared with one of another build.
#[derive(Debug)]
struct TextHash(Fnv1a);

impl TextHash {
    const EMPTY: TextHash = TextHash(Fnv1a::EMPTY);
}

impl Write for TextHash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.and(text.as_bytes());
        Ok(())
    }
}

impl<Entry: Display> Trace<Entry> {
    /// Nothing yet.
    pub fn new(depth: Depth) -> Trace<Entry> {
        Trace { depth, entries: VecDeque::with_capacity(KEPT_MAX), hash: TextHash::EMPTY }
    }

    /// Adds a happening.
    pub fn note(&mut self, entry: Entry) {
        if self.depth == Depth::Hashed {
            // Writing to a hash cannot fail.
            let _ = writeln!(self.hash, "{entry}");
        }
        if self.depth != Depth::All && self.entries.len() == KEPT_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// The hash over all that happened; 0 unless it was wanted.
    pub fn hash(&self) -> u64 {
        if self.depth == Depth::Hashed {
            self.hash.0.value()
        } else {
            0
        }
    }

    /// All that is kept.
    pub fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WOKE: Happening<char, char> = Happening::Woke;

    #[test]
    fn only_the_last_happenings_are_kept_unless_all_are_wanted() {
        for (depth, kept) in [(Depth::Last, KEPT_MAX), (Depth::All, 2 * KEPT_MAX)] {
            let mut trace = Trace::new(depth);
            for step in 0..2 * KEPT_MAX as u64 {
                trace.note(Entry { at: Nanos(step), step, place: 'a', what: WOKE });
            }
            let entries = trace.take();
            assert_eq!(entries.len(), kept);
            assert_eq!(entries.last().map(|entry| entry.step), Some(2 * KEPT_MAX as u64 - 1));
        }
    }

    #[test]
    fn the_hash_sees_every_happening_and_their_order() {
        let hash_of = |steps: &[u64]| {
            let mut trace = Trace::new(Depth::Hashed);
            for step in steps {
                let (at, place) = (Nanos(*step), 'a');
                trace.note(Entry { at, step: *step, place, what: WOKE });
            }
            trace.hash()
        };
        assert_eq!(hash_of(&[1, 2]), hash_of(&[1, 2]));
        assert_ne!(hash_of(&[1, 2]), hash_of(&[2, 1]));
        assert_ne!(hash_of(&[1, 2]), hash_of(&[1, 2, 2]));
    }
}
