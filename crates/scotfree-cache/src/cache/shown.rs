//! Values that somebody else answers with: programs that see packets first, and are shown what may be said.
//!
//! Invariant: what is shown is an answer until something passes that concerns its key; whoever answers with it sees to
//! that, and tells of it. What has an end, or can still be lost, is not shown.

use super::{Cache, Look, Read, State};
use crate::counters::Missed;
use scotfree_core::{KeyHash, Nanos, SeqNum, SessionName};

impl Cache {
    /// A read was passed on by who answers what was shown to it.
    pub fn on_read_told(&mut self, now: Nanos, read: &Read<'_>, window_first: SeqNum) {
        self.release_orphans(now);
        let missed = match self.look(now, read) {
            Look::Miss(missed) => missed,
            Look::Hit(_) | Look::Unsure(_) => Missed::NotShown,
        };
        self.counters.misses[missed as usize] += 1;
        self.on_read_passed(now, read, window_first);
    }

    /// A read has passed of what was not read of late; who has let it pass keeps no reply.
    pub fn on_unkept_read_told(&mut self, key_hash: KeyHash) {
        self.counters.misses[Missed::Absent as usize] += 1;
        self.count_reads(key_hash, 1);
    }

    /// What reads of a key are answered with as long as nothing passes that concerns it; none if there is nothing such.
    pub fn lasting(
        &mut self,
        now: Nanos,
        asker: SessionName,
        key_hash: KeyHash,
        key: &[u8],
    ) -> Option<&[u8]> {
        let name = (asker, SeqNum(u64::MAX));
        let read = Read { name, key_hash, key, barrier: None, answerable: true, has_elders: false };
        let Look::Hit(slot) = self.look(now, &read) else { return None };
        let entry = self.shelf.get(slot);
        let lasts = entry.deadline == Nanos::MAX && entry.state == State::Persisted;
        lasts.then_some(&entry.value)
    }

    /// A key was answered elsewhere, so often since the last call (SIEVE's mark).
    pub fn mark(&mut self, key_hash: KeyHash, key: &[u8], reads: u64) {
        self.count_reads(key_hash, reads);
        let at = self.bucket_of(key_hash);
        if let Some(slot) = self.find(at, key_hash, key) {
            self.shelf.mark(slot);
        }
    }

    /// A key was answered elsewhere, so often since the last call.
    pub fn count_reads(&mut self, key_hash: KeyHash, reads: u64) {
        let at = self.bucket_of(key_hash);
        // As many as the counts tell apart.
        let reads_min = self.limits.admit_reads;
        (0..reads.min(u8::MAX.into())).for_each(|_| self.buckets[at].track.count_read(key_hash, reads_min));
    }

    /// How often something was forgotten that no passing write has made stale: what was shown is then to be answered no
    /// more.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cause, Kept, Limits, Logged, Reply, Scope};
    use crate::fault::Planted;
    use scotfree_core::{BootEpoch, OrderNumber, ServerIndex, SessionId};

    const KEY: KeyHash = KeyHash(7);
    const OF: &[u8] = b"\0\0k";
    const ASKER: SessionName = SessionName { server: ServerIndex(0), id: SessionId(0) };

    fn read(seq: u64) -> Read<'static> {
        let session = SessionName { server: ServerIndex(0), id: SessionId(1) };
        let barrier = Some((BootEpoch(1), OrderNumber(0)));
        Read {
            name: (session, SeqNum(seq)),
            key_hash: KEY,
            key: OF,
            barrier,
            answerable: true,
            has_elders: false,
        }
    }

    fn filled(lives: Nanos) -> Cache {
        let mut cache = Cache::new(Limits { admit_reads: 1, ..Limits::default() }, Planted::NONE);
        cache.on_read_told(Nanos(0), &read(1), SeqNum(1));
        let reply = Reply::Kept(Kept { value: b"x", lives });
        cache.on_reply(Nanos(0), read(1).name, &reply);
        cache
    }

    fn lasting(cache: &mut Cache) -> Option<Vec<u8>> {
        cache.lasting(Nanos(0), ASKER, KEY, OF).map(<[u8]>::to_vec)
    }

    #[test]
    fn only_what_has_no_end_and_cannot_be_lost_is_shown() {
        assert_eq!(lasting(&mut filled(Nanos::MAX)).as_deref(), Some(&b"x"[..]));
        assert_eq!(lasting(&mut filled(Nanos::from_secs(9))), None);
        let mut cache = filled(Nanos::MAX);
        let order = (BootEpoch(1), OrderNumber(1));
        let overwrite = Some((OF, &b"y"[..]));
        let name = read(2).name;
        cache.on_logged(&Logged { name, order, scope: Scope::Keys(KEY, &[]), overwrite });
        cache.on_durable(name);
        assert_eq!(lasting(&mut cache), None, "it is pending");
        cache.on_stable(name.0, name.1);
        assert_eq!(lasting(&mut cache).as_deref(), Some(&b"y"[..]));
        cache.on_unlogged(read(3).name, &Scope::Keys(KEY, &[]));
        assert_eq!(lasting(&mut cache), None);
    }

    #[test]
    fn a_read_that_was_not_answered_is_counted_as_missed_whatever_is_known() {
        let mut cache = filled(Nanos::MAX);
        cache.on_read_told(Nanos(0), &read(2), SeqNum(1));
        let counters = cache.counters();
        assert_eq!((counters.hits, counters.misses[Missed::NotShown as usize]), (0, 1));
        assert!(cache.awaits(read(2).name), "its reply may fill again");
    }

    #[test]
    fn whatever_is_forgotten_without_a_write_is_counted() {
        for forget in [
            (|cache| assert!(cache.forget(KEY))) as fn(&mut Cache),
            |cache| assert_eq!(cache.forget_all(), 1),
            |cache| cache.reset(Cause::Lapse),
            Cache::turn_off,
        ] {
            let mut cache = filled(Nanos::MAX);
            let before = cache.forgotten();
            forget(&mut cache);
            assert!(cache.forgotten() > before);
        }
    }
}
