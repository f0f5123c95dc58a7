//! What the cache counts, and how the metrics name it.

use scotfree_core::Count;
use std::hash::{Hash, Hasher};

/// Why a read was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// Nothing is known of its key.
    Absent,
    /// What was known has expired.
    Expired,
    /// A write of its key is under way.
    UnderWay,
    /// What is known can still be lost.
    NotDurable,
    /// It is not at its place, or the device may not speak for the server.
    NotAnswerable,
    /// The cache is off.
    Off,
    /// The server has vouched for nothing yet.
    NoWord,
    /// Its caller waits for something that it asked before.
    Elders,
    /// What is known lives for a while, and a logged write may wait to be executed.
    Unexecuted,
    /// It is known, and who answers in the cache's place had not been shown it.
    NotShown,
}

impl Missed {
    /// As it is told to an operator.
    pub fn in_words(self) -> &'static str {
        match self {
            Missed::Absent => "nothing is known of it",
            Missed::Expired => "it has expired",
            Missed::UnderWay => "a write of it is under way",
            Missed::NotDurable => "the write that it shows can still be lost",
            Missed::NotAnswerable => "the device may not speak for the server at present",
            Missed::Off => "the cache is off until the device starts again; its messages say why",
            Missed::NoWord => "the server's sidecar has vouched for no reply yet (cache_device)",
            Missed::Unexecuted => {
                "its value has an end, and the server may let it go before it executes what has passed"
            }
            Missed::NotShown => "the programs in the kernel have not been shown it",
            Missed::Elders => "its caller waits for something that it asked before",
        }
    }
}

/// Why a reply was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is nothing that is kept, or its server does not vouch for it.
    NotKept,
    /// A write of its key is under way.
    UnderWay,
    /// Its read passed before a write had been answered.
    Floor,
    /// Its read may have been executed before a logged write.
    Version,
    /// It is too large.
    Size,
    /// It has expired already.
    Expired,
    /// Too many reads wait for their replies.
    ManyReads,
}

impl Refused {
    /// As it is told to an operator.
    pub fn in_words(self) -> &'static str {
        match self {
            Refused::NotKept => "the server did not vouch for it, or it is nothing that is kept",
            Refused::UnderWay => "a write of its key was under way",
            Refused::Floor => "its read passed before a write had been answered",
            Refused::Version => "its read may have been executed before a logged write",
            Refused::Size => "it is too large",
            Refused::Expired => "it had expired",
            Refused::ManyReads => "too many reads waited for their replies",
        }
    }
}

/// What a reason is in words, by its label, of a read that was passed on or, if not, of a reply that was not kept.
pub fn reason_in_words(label: &str, of_read: bool) -> Option<&'static str> {
    let quoted = format!("reason=\"{label}\"");
    let place = |labels: &[&str]| labels.iter().position(|known| *known == quoted);
    if of_read {
        place(&MISSED_LABELS).map(|at| MISSED[at].in_words())
    } else {
        place(&REFUSED_LABELS).map(|at| REFUSED[at].in_words())
    }
}

const MISSED: [Missed; MISSED_COUNT] = [
    Missed::Absent,
    Missed::Expired,
    Missed::UnderWay,
    Missed::NotDurable,
    Missed::NotAnswerable,
    Missed::Off,
    Missed::NoWord,
    Missed::Elders,
    Missed::Unexecuted,
    Missed::NotShown,
];
const REFUSED: [Refused; REFUSED_COUNT] = [
    Refused::NotKept,
    Refused::UnderWay,
    Refused::Floor,
    Refused::Version,
    Refused::Size,
    Refused::Expired,
    Refused::ManyReads,
];
const MISSED_COUNT: usize = 10;
const REFUSED_COUNT: usize = 7;
const MISSED_LABELS: [&str; MISSED_COUNT] = [
    "reason=\"absent\"",
    "reason=\"expired\"",
    "reason=\"under_way\"",
    "reason=\"not_durable\"",
    "reason=\"not_answerable\"",
    "reason=\"off\"",
    "reason=\"no_word\"",
    "reason=\"elders\"",
    "reason=\"unexecuted\"",
    "reason=\"not_shown\"",
];
const REFUSED_LABELS: [&str; REFUSED_COUNT] = [
    "reason=\"not_kept\"",
    "reason=\"under_way\"",
    "reason=\"floor\"",
    "reason=\"version\"",
    "reason=\"size\"",
    "reason=\"expired\"",
    "reason=\"many_reads\"",
];

const UNOFFERED: &str = "Packets with reads that no cache answers: several commands in one, of a caller that waits for something, \
                         or of another command.";

/// What a cache has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounters {
    /// Reads answered.
    pub hits: u64,
    /// Reads not answered, by [`Missed`].
    pub misses: [u64; MISSED_COUNT],
    /// Packets with reads that no cache answers.
    pub unoffered: u64,
    /// Replies kept.
    pub fills: u64,
    /// Replies not kept, by [`Refused`].
    pub refused: [u64; REFUSED_COUNT],
    /// Values taken from logged writes.
    pub overwrites: u64,
    /// Values dropped because of a write.
    pub made_stale: u64,
    /// Values that gave way to others.
    pub evicted: u64,
    /// How often everything was forgotten.
    pub resets: u64,
}

/// What was counted decides nothing: an exploration takes two caches for one that differ in it alone.
impl Hash for CacheCounters {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl CacheCounters {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &CacheCounters) -> CacheCounters {
        CacheCounters {
            hits: self.hits + other.hits,
            misses: std::array::from_fn(|at| self.misses[at] + other.misses[at]),
            unoffered: self.unoffered + other.unoffered,
            fills: self.fills + other.fills,
            refused: std::array::from_fn(|at| self.refused[at] + other.refused[at]),
            overwrites: self.overwrites + other.overwrites,
            made_stale: self.made_stale + other.made_stale,
            evicted: self.evicted + other.evicted,
            resets: self.resets + other.resets,
        }
    }

    /// Each of them, as the metrics name it.
    pub fn each(&self, out: &mut dyn FnMut(Count)) {
        let CacheCounters { hits, misses, unoffered, fills, refused, .. } = self;
        let CacheCounters { overwrites, made_stale, evicted, resets, .. } = self;
        let plain = [
            ("scotfree_cache_hits_total", "Reads answered.", *hits),
            ("scotfree_cache_unoffered_total", UNOFFERED, *unoffered),
            ("scotfree_cache_fills_total", "Replies kept.", *fills),
            ("scotfree_cache_overwrites_total", "Values taken from logged writes.", *overwrites),
            ("scotfree_cache_stale_total", "Values dropped because of a write.", *made_stale),
            ("scotfree_cache_evicted_total", "Values that gave way to others.", *evicted),
            ("scotfree_cache_resets_total", "How often everything was forgotten.", *resets),
        ];
        for (name, help, value) in plain {
            out(Count { name, help, labels: "", value });
        }
        for (labels, value) in MISSED_LABELS.into_iter().zip(*misses) {
            out(Count { name: "scotfree_cache_misses_total", help: "Reads not answered.", labels, value });
        }
        for (labels, value) in REFUSED_LABELS.into_iter().zip(*refused) {
            out(Count { name: "scotfree_cache_refused_total", help: "Replies not kept.", labels, value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_label_of_its_own() {
        let counters = CacheCounters {
            misses: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            refused: [1, 2, 3, 4, 5, 6, 7],
            ..CacheCounters::default()
        };
        let mut seen = Vec::new();
        counters.each(&mut |count| seen.push((count.name, count.labels)));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
        assert_eq!(
            (Missed::NotShown as usize + 1, Refused::ManyReads as usize + 1),
            (MISSED_COUNT, REFUSED_COUNT)
        );
        assert_eq!(counters.plus(&counters).misses[5], 12);
        for (at, missed) in MISSED.into_iter().enumerate() {
            assert_eq!(missed as usize, at);
        }
        for (at, refused) in REFUSED.into_iter().enumerate() {
            assert_eq!(refused as usize, at);
        }
        assert_eq!(reason_in_words("absent", true), Some("nothing is known of it"));
        assert_eq!(reason_in_words("size", false), Some("it is too large"));
        assert_eq!(reason_in_words("size", true), None);
    }
}
