//! What share of reads the rules of the cache answer, by how many of the keys it has room for and how skewed reads are.
//!
//! Invariant: nothing but the rules runs: reads are drawn from a seed, a miss is answered at once. The same seed gives
//! the same shares.

use super::settings::settings_of;
use super::{Context, Measured};
use crate::experiment::Measurement;
use crate::keys::KeyDraw;
use scotfree_cache::{Cache, Kept, Limits, Look, Planted, Read, Reply};
use scotfree_core::{BootEpoch, KeyHash, Nanos, OrderNumber, SeqNum, ServerIndex, SessionId, SessionName};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    keys: u64,
    /// How many of a hundred keys there is room for.
    size_percent: u64,
    /// The n-th most popular key is read as often as 1 / n^skew; 0 where all are as popular.
    skew: f64,
    /// Reads before the shares are counted, and while they are.
    warmup_reads: u64,
    reads: u64,
}

const VALUE: [u8; 100] = [b'v'; 100];

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    context.measure_in_turns(|arm, repetition| Ok(measure(&settings_of(arm)?, u64::from(repetition))))
}

fn measure(settings: &Settings, seed: u64) -> Measured {
    let room = (settings.keys * settings.size_percent / 100).max(1);
    let mut reader = Reader::new(settings, room, seed);
    (0..settings.warmup_reads).for_each(|_| reader.read());
    let before = *reader.cache.counters();
    (0..settings.reads).for_each(|_| reader.read());
    let after = reader.cache.counters();
    let share = (after.hits - before.hits) as f64 / settings.reads as f64;
    // What a cache would answer that knew which keys are most popular, and kept them.
    let best = reader.keys.share_of_top(room);
    let mut measured = Measured::default();
    measured.value("hit_share", share).value("best_share", best).value("of_best", share / best);
    measured.counter("hits", after.hits - before.hits);
    measured.counter("entries_beyond_room", (reader.cache.len() as u64).saturating_sub(room));
    measured.counter("evicted", after.evicted);
    measured
}

struct Reader {
    cache: Cache,
    keys: KeyDraw,
    random: Random,
    seq: u64,
}

impl Reader {
    fn new(settings: &Settings, room: u64, seed: u64) -> Reader {
        let limits = Limits { entries_max: room as usize, needs_word: false, ..Limits::default() };
        Reader {
            cache: Cache::new(limits, Planted::NONE),
            keys: KeyDraw::skewed(settings.keys, settings.skew),
            random: Random::new(seed, 0),
            seq: 0,
        }
    }

    /// A read that the cache answers, or else the server, at once.
    fn read(&mut self) {
        self.seq += 1;
        let key = format!("user{:012}", self.keys.draw(&mut self.random)).into_bytes();
        let name = (SessionName { server: ServerIndex(0), id: SessionId(1) }, SeqNum(self.seq));
        let read = Read {
            name,
            key_hash: KeyHash::of(0, &key),
            key: &key,
            barrier: Some((BootEpoch(1), OrderNumber(0))),
            answerable: true,
            has_elders: false,
        };
        let now = Nanos(self.seq);
        if let Look::Hit(_) = self.cache.on_read(now, &read) {
            return;
        }
        self.cache.on_read_passed(now, &read, SeqNum(self.seq));
        let kept = Kept { value: &VALUE, lives: Nanos::MAX };
        self.cache.on_reply(now, name, &Reply::Kept(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(size_percent: u64, skew: f64, seed: u64) -> Measured {
        let settings = Settings { keys: 1_000, size_percent, skew, warmup_reads: 30_000, reads: 10_000 };
        measure(&settings, seed)
    }

    #[test]
    fn the_same_seed_gives_the_same_share_and_room_for_all_keys_answers_all() {
        let share = |size_percent, skew, seed| shares(size_percent, skew, seed).values["hit_share"];
        assert_eq!(share(10, 0.99, 1).to_bits(), share(10, 0.99, 1).to_bits());
        assert_ne!(share(10, 0.99, 1).to_bits(), share(10, 0.99, 2).to_bits());
        assert!(share(100, 0.0, 1) > 0.999, "{}", share(100, 0.0, 1));
        assert!(share(10, 0.99, 1) > 2.0 * share(10, 0.0, 1));
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let measured = shares(5, 0.9, 1);
        assert_eq!(measured.counters["entries_beyond_room"], 0);
        assert!(measured.counters["evicted"] > 0);
        let of_best = measured.values["of_best"];
        assert!((0.3..=1.05).contains(&of_best), "{of_best}");
    }
}
