//! What an operator asks of a cache: why a key is answered or not, what is kept, and that something is forgotten.
//!
//! Invariant: what is said is what the rules decide by, asked of the same code; what is forgotten costs an answer and
//! makes none wrong.

use super::{Cache, Entry, Look, Read, State};
use crate::counters::Missed;
use scotfree_core::{KeyHash, Nanos, SeqNum, SessionName};
use std::fmt;

/// An entry, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What tells its read from all others.
    pub key: Vec<u8>,
    /// Bytes of what it is answered with.
    pub value_bytes: usize,
    /// How long it is served yet; none if it has no end.
    pub left: Option<Nanos>,
    /// Whether it shows a write that the server has not said to be stable.
    pub is_pending: bool,
}

/// Why a read of a key would be answered here, or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// What is kept of it.
    pub kept: Option<Listed>,
    /// Why that is not said; none if it is.
    pub missed: Option<Missed>,
    /// Of late, reads and writes of the keys that share its bucket.
    pub reads: u8,
    /// As above.
    pub writes: u8,
    /// From so many reads on a reply is kept.
    pub reads_min: u8,
    /// Whether the next one would be.
    pub is_admitted: bool,
}

impl Cache {
    /// Why a read that could be answered would be, or would not. A session of its own asks, which waits for nothing.
    pub fn why(&mut self, now: Nanos, asker: SessionName, key_hash: KeyHash, key: &[u8]) -> Why {
        let name = (asker, SeqNum(u64::MAX));
        let read = Read { name, key_hash, key, barrier: None, answerable: true, has_elders: false };
        let missed = match self.look(now, &read) {
            Look::Hit(_) => None,
            Look::Unsure(_) => Some(Missed::NotDurable),
            Look::Miss(missed) => Some(missed),
        };
        let at = self.bucket_of(key_hash);
        let kept = self.find(at, key_hash, key).map(|slot| listed(now, self.shelf.get(slot)));
        let (reads, writes) = self.buckets[at].track.counts();
        Why {
            kept,
            missed,
            reads,
            writes,
            reads_min: self.limits.admit_reads,
            is_admitted: self.admits(at, key_hash),
        }
    }

    /// Forgets what is known of a key, whatever reads it answers; whether anything was.
    pub fn forget(&mut self, key_hash: KeyHash) -> bool {
        let at = self.bucket_of(key_hash);
        let mut was_known = false;
        while let Some(slot) = self.find_where(at, |entry| entry.key_hash == key_hash) {
            self.drop_entry(slot);
            was_known = true;
            self.forgotten += 1;
        }
        was_known
    }

    /// Forgets every value; how many there were. What is under way stays so.
    pub fn forget_all(&mut self) -> usize {
        let count = self.live().count();
        self.forget_entries();
        count
    }

    /// Some of what is kept, the newest first.
    pub fn listed(&self, now: Nanos, count_max: usize) -> Vec<Listed> {
        self.live().take(count_max).map(|entry| listed(now, entry)).collect()
    }

    fn live(&self) -> impl Iterator<Item = &Entry> {
        self.shelf.newest_first().filter(|entry| entry.generation == self.generation)
    }
}

fn listed(now: Nanos, entry: &Entry) -> Listed {
    Listed {
        key: entry.key.to_vec(),
        value_bytes: entry.value.len(),
        left: (entry.deadline != Nanos::MAX).then(|| entry.deadline.since(now)),
        is_pending: matches!(entry.state, State::Pending { .. }),
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.value_bytes)?;
        match self.left {
            Some(left) => write!(f, ", for another {} ms", left.0 / 1_000_000)?,
            None => f.write_str(", for ever unless it is written")?,
        }
        f.write_str(if self.is_pending { ", of a SET that the server has not called stable" } else { "" })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kept, self.missed) {
            (Some(kept), None) => write!(f, "it is answered here: {kept}")?,
            (Some(kept), Some(missed)) => {
                write!(f, "it is kept ({kept}) and not answered: {}", missed.in_words())?;
            }
            (None, missed) => {
                let missed = missed.unwrap_or(Missed::Absent);
                write!(f, "it is not kept: {}", missed.in_words())?;
                if missed == Missed::Absent {
                    f.write_str(" as a GET reads it (`ls` names replies of other commands)")?;
                }
            }
        }
        let Why { reads, writes, reads_min, .. } = self;
        write!(f, "; keys of its bucket were read {reads} times and written {writes} times of late")?;
        if self.kept.is_none() && !self.is_admitted {
            write!(
                f,
                ": a reply is kept from {reads_min} reads of its key on, unless there are far more writes"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Kept, Limits, Logged, Reply, Scope};
    use crate::fault::Planted;
    use scotfree_core::{BootEpoch, OrderNumber, ServerIndex, SessionId};

    const KEY: KeyHash = KeyHash(7);
    const OF: &[u8] = b"\0\0k";

    fn session() -> SessionName {
        SessionName { server: ServerIndex(0), id: SessionId(1) }
    }

    fn read(seq: u64, order: u64) -> Read<'static> {
        let barrier = Some((BootEpoch(1), OrderNumber(order)));
        let name = (session(), SeqNum(seq));
        Read { name, key_hash: KEY, key: OF, barrier, answerable: true, has_elders: false }
    }

    fn cache() -> Cache {
        Cache::new(Limits { admit_reads: 1, needs_word: false, ..Limits::default() }, Planted::NONE)
    }

    fn filled(lives: Nanos) -> Cache {
        let mut cache = cache();
        cache.on_read_passed(Nanos(0), &read(1, 0), SeqNum(1));
        let reply = Reply::Kept(Kept { value: b"$1\r\nx\r\n", lives });
        cache.on_reply(Nanos(0), (session(), SeqNum(1)), &reply);
        cache
    }

    fn why(cache: &mut Cache, now: Nanos) -> String {
        cache.why(now, session(), KEY, OF).to_string()
    }

    #[test]
    fn it_says_what_the_rules_would_do() {
        let mut cache = cache();
        let absent = why(&mut cache, Nanos(0));
        assert!(absent.starts_with("it is not kept: nothing is known of it as a GET reads it"), "{absent}");
        assert!(absent.ends_with("from 1 reads of its key on, unless there are far more writes"), "{absent}");
        let mut cache = filled(Nanos::MAX);
        let kept = why(&mut cache, Nanos(0));
        assert!(
            kept.starts_with("it is answered here: 7 bytes, for ever unless it is written; keys"),
            "{kept}"
        );
        assert_eq!(cache.counters().hits, 0, "nobody has read it");
        let lost = (session(), SeqNum(2));
        cache.on_unlogged(lost, &Scope::Keys(KEY, &[]));
        let under_way = why(&mut cache, Nanos(0));
        assert!(under_way.starts_with("it is not kept: a write of it is under way;"), "{under_way}");
        cache.turn_off();
        assert!(why(&mut cache, Nanos(0)).contains("the cache is off"));
    }

    #[test]
    fn what_has_an_end_says_when() {
        let mut cache = filled(Nanos::from_millis(51));
        assert!(why(&mut cache, Nanos::from_millis(20)).contains("7 bytes, for another 30 ms;"));
        assert!(why(&mut cache, Nanos::from_millis(50)).starts_with("it is not kept: it has expired"));
    }

    #[test]
    fn what_is_forgotten_is_asked_for_again() {
        let mut cache = filled(Nanos::MAX);
        assert_eq!(cache.listed(Nanos(0), 9).len(), 1);
        assert!(cache.forget(KEY) && !cache.forget(KEY));
        assert_eq!(cache.listed(Nanos(0), 9), []);
        let mut cache = filled(Nanos::MAX);
        assert_eq!((cache.forget_all(), cache.forget_all()), (1, 0));
        assert!(why(&mut cache, Nanos(0)).starts_with("it is not kept"));
        // A write that was to be answered from here is no reason to forget what comes later.
        let order = (BootEpoch(1), OrderNumber(3));
        let overwrite = Some((OF, &b"new"[..]));
        let name = (session(), SeqNum(5));
        cache.on_logged(&Logged { name, order, scope: Scope::Keys(KEY, &[]), overwrite });
        let [listed] = &cache.listed(Nanos(0), 9)[..] else { panic!("one") };
        assert!(listed.is_pending && listed.key == OF && listed.value_bytes == 3);
    }
}
