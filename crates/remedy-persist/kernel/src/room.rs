//! What persist keeps of a session in the room that the programs' table has for that.
//!
//! Invariant: the words stand in the order of `struct persist_session`.

use scotfree_core::SeqNum;
use scotfree_xdp::{SessionEntry, SESSION_ROOM};

/// Persist's part of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Everything up to here is stable.
    pub(crate) stable: SeqNum,
    /// Entries logged so far.
    pub(crate) logged: u64,
    /// Of these, up to `stable`.
    pub(crate) freed: u64,
    /// Up to here entries were logged out of the order of their `seq_num`.
    pub(crate) disorder_until: SeqNum,
}

impl Room {
    pub(crate) fn of(session: &SessionEntry) -> Room {
        let [stable, logged, freed, disorder_until] = session.room;
        Room { stable: SeqNum(stable), logged, freed, disorder_until: SeqNum(disorder_until) }
    }

    pub(crate) fn words(&self) -> [u64; SESSION_ROOM] {
        [self.stable.0, self.logged, self.freed, self.disorder_until.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_programs() {
        let header = include_str!("../../bpf/persist.h");
        let body = header.split_once("struct persist_session {").expect("it is there").1;
        let body = body.split_once('}').expect("it ends").0;
        let fields: Vec<&str> = body
            .lines()
            .filter_map(|line| line.trim().strip_prefix("__u64 ")?.split_once(';'))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(fields, ["stable", "logged", "freed", "disorder_until"]);
    }

    #[test]
    fn what_is_written_is_read() {
        let room = Room { stable: SeqNum(1), logged: 2, freed: 3, disorder_until: SeqNum(4) };
        assert_eq!(room.words(), [1, 2, 3, 4]);
    }
}
