//! The storage of the simulated server: a log of writes and sessions with a synced watermark.
//!
//! Invariant: a crash cuts the log somewhere between what was synced and what was written, so that
//! a session's position and the application's write are kept or lost together.

use scotfree_core::{SeqNum, SessionId};
use scotfree_session::RecoveredSession;
use scotfree_sim::rng::Rng;
use std::collections::BTreeMap;

/// One record of the log.
#[derive(Debug, Clone, Copy)]
pub enum Record {
    /// A session exists.
    Session(RecoveredSession),
    /// A write was applied.
    Write {
        /// Whose.
        session: SessionId,
        /// Its place in the session.
        seq: SeqNum,
        /// Which call it is.
        call: usize,
    },
    /// A session is no more.
    Deleted(SessionId),
}

/// The log and its watermark.
#[derive(Debug, Default)]
pub struct Storage {
    log: Vec<Record>,
    synced: usize,
    /// A crash may not cut before this: see [`Storage::spare`].
    spared: usize,
}

impl Storage {
    /// Adds a record; it is written, not synced.
    pub fn append(&mut self, record: Record) {
        self.log.push(record);
    }

    /// How many records there are.
    pub fn written(&self) -> usize {
        self.log.len()
    }

    /// How many records no crash can take back.
    pub fn synced(&self) -> usize {
        self.synced
    }

    /// The first `written` records are synced.
    pub fn sync(&mut self, written: usize) {
        assert!(written <= self.log.len(), "only what is written can be synced");
        self.synced = self.synced.max(written);
    }

    /// The first `written` records happen to survive the next crash. Nobody is told: this narrows
    /// what the world does, not what the server may rely on.
    pub fn spare(&mut self, written: usize) {
        assert!(written <= self.log.len(), "only what is written can be spared");
        self.spared = self.spared.max(written);
    }

    /// Cuts the log as a crash does; what it lost.
    pub fn crash(&mut self, rng: &mut Rng) -> Vec<Record> {
        let kept = rng.between(self.synced.max(self.spared) as u64, self.log.len() as u64) as usize;
        let lost = self.log.split_off(kept);
        // What a restart reads it syncs first.
        self.synced = kept;
        self.spared = kept;
        lost
    }

    /// The calls of the writes, in order.
    pub fn writes(&self) -> impl Iterator<Item = usize> + '_ {
        self.log.iter().filter_map(|record| match record {
            Record::Write { call, .. } => Some(*call),
            Record::Session(_) | Record::Deleted(_) => None,
        })
    }

    /// The sessions that a restart finds, each with the last write applied.
    pub fn sessions(&self) -> Vec<RecoveredSession> {
        let mut sessions: BTreeMap<SessionId, RecoveredSession> = BTreeMap::new();
        for record in &self.log {
            match record {
                Record::Session(session) => {
                    sessions.insert(session.session, *session);
                }
                Record::Write { session, seq, .. } => {
                    if let Some(found) = sessions.get_mut(session) {
                        found.position = *seq;
                    }
                }
                Record::Deleted(session) => {
                    sessions.remove(session);
                }
            }
        }
        sessions.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(session: u64, seq: u64) -> Record {
        Record::Write { session: SessionId(session), seq: SeqNum(seq), call: seq as usize }
    }

    #[test]
    fn a_crash_keeps_all_that_was_synced_and_some_of_the_rest() {
        let mut kept_counts = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut storage = Storage::default();
            (1..=6).for_each(|seq| storage.append(write(1, seq)));
            storage.sync(2);
            let lost = storage.crash(&mut Rng::new(seed, 0));
            assert_eq!(lost.len() + storage.written(), 6);
            kept_counts.insert(storage.written());
        }
        assert_eq!(kept_counts.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn what_is_spared_is_not_cut() {
        for seed in 0..50 {
            let mut storage = Storage::default();
            storage.append(write(1, 1));
            storage.spare(1);
            storage.append(write(1, 2));
            storage.crash(&mut Rng::new(seed, 0));
            assert!(storage.written() >= 1);
        }
    }
}
