//! How many bytes of large replies all connections together are on the way to.
//!
//! Invariant: whoever asks for little finds at most [`LARGE_BYTES_MAX`] of large replies, or a single one, before its
//! own at the server, as far as sizes can be told beforehand, and as much again of connections that have read nothing
//! before. Those wait for each other only: they may be about to ask for little. Large replies are asked for in the
//! order in which they were wanted, so each connection has its turn. Writes that are answered at length have lines of
//! their own: they wait for storage, and reads do not.

use super::{ConnectionKey, REPLY_BYTES_ASSUMED};
use std::collections::BTreeMap;

/// How many bytes of large replies are asked for at once: twice that is less than what a server's sidecar keeps for a
/// session until it is fetched, so that they do not wait for room there, where all would wait with them.
pub(super) const LARGE_BYTES_MAX: usize = 24 << 20;

/// What a connection's first read is taken to be answered with while nobody's was answered.
const FIRST_BYTES_UNKNOWN: usize = LARGE_BYTES_MAX / 4;

/// What a connection is counted for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// So many bytes; 0 for what is taken for small.
    pub bytes: usize,
    /// It has read nothing before.
    pub is_first: bool,
    /// It writes.
    pub is_write: bool,
}

impl Counted {
    /// With whom it waits.
    pub fn line(self) -> Line {
        Line { is_first: self.is_first, is_write: self.is_write }
    }
}

/// Who waits for each other: connections that have read before, or have not, and by themselves those that write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    is_first: bool,
    is_write: bool,
}

impl Line {
    const ALL: [Line; 4] = [
        Line { is_first: false, is_write: false },
        Line { is_first: true, is_write: false },
        Line { is_first: false, is_write: true },
        Line { is_first: true, is_write: true },
    ];
}

/// Who waits, and what is under way.
#[derive(Debug, Default)]
struct Turns {
    bytes: usize,
    /// Who waits, in order, and the place of each.
    waiting: BTreeMap<u64, ConnectionKey>,
    places: BTreeMap<ConnectionKey, u64>,
    next_place: u64,
}

impl Turns {
    fn admits(&mut self, key: ConnectionKey, bytes: usize, bytes_max: usize) -> bool {
        if !self.places.contains_key(&key) {
            self.places.insert(key, self.next_place);
            self.waiting.insert(self.next_place, key);
            self.next_place += 1;
        }
        let has_room = self.bytes == 0 || self.bytes + bytes <= bytes_max;
        let admits = has_room && self.first() == Some(key);
        if admits {
            self.leave(key);
        }
        admits
    }

    fn first(&self) -> Option<ConnectionKey> {
        self.waiting.first_key_value().map(|(_, key)| *key)
    }

    fn leave(&mut self, key: ConnectionKey) {
        if let Some(place) = self.places.remove(&key) {
            self.waiting.remove(&place);
        }
    }
}

/// What large replies are under way, and who waits to ask for one.
#[derive(Debug)]
pub(super) struct LargeReplies {
    /// Of reads and of writes: of connections that have read before, and of those that have not.
    turns: [[Turns; 2]; 2],
    /// What connections' first reads were answered with of late, and their first writes.
    first_bytes: [usize; 2],
}

impl Default for LargeReplies {
    fn default() -> Self {
        LargeReplies { turns: Default::default(), first_bytes: [FIRST_BYTES_UNKNOWN; 2] }
    }
}

impl LargeReplies {
    /// What to count for a request that may be answered at length; `usual` is what its connection's are answered with,
    /// if one was.
    pub fn counted(&self, usual: Option<usize>, is_write: bool) -> Counted {
        let bytes = usual.unwrap_or(self.first_bytes[usize::from(is_write)]);
        let bytes = if bytes > REPLY_BYTES_ASSUMED { bytes } else { 0 };
        Counted { bytes, is_first: usual.is_none(), is_write }
    }

    /// Learns from what a connection's first one was answered with how large those of others may be.
    pub fn note_first(&mut self, bytes: usize, is_write: bool) {
        let first = &mut self.first_bytes[usize::from(is_write)];
        *first = bytes.max(*first / 2);
    }

    fn turns(&mut self, line: Line) -> &mut Turns {
        &mut self.turns[usize::from(line.is_write)][usize::from(line.is_first)]
    }

    /// Whether so much may be asked for now; who may not waits.
    pub fn admits(&mut self, key: ConnectionKey, counted: Counted) -> bool {
        let [known, new] = &mut self.turns[usize::from(counted.is_write)];
        match counted {
            Counted { bytes: 0, .. } => true,
            Counted { bytes, is_first: true, .. } => new.admits(key, bytes, LARGE_BYTES_MAX),
            // One at a time while others wait who may be about to ask for little.
            Counted { bytes, .. } if new.first().is_some() => known.admits(key, bytes, 0),
            Counted { bytes, .. } => known.admits(key, bytes, LARGE_BYTES_MAX),
        }
    }

    /// Those whose turns are next in each line.
    pub fn next(&self) -> impl Iterator<Item = (ConnectionKey, Line)> {
        let first = |line: Line| self.turns[usize::from(line.is_write)][usize::from(line.is_first)].first();
        let next = Line::ALL.map(|line| (first(line), line));
        next.into_iter().filter_map(|(key, line)| Some((key?, line)))
    }

    /// A connection waits no longer.
    pub fn leave(&mut self, key: ConnectionKey) {
        self.turns.iter_mut().flatten().for_each(|turns| turns.leave(key));
    }

    /// It is under way from now on.
    pub fn begin(&mut self, counted: Counted) {
        self.turns(counted.line()).bytes += counted.bytes;
    }

    /// It is over.
    pub fn end(&mut self, counted: Counted) {
        let bytes = &mut self.turns(counted.line()).bytes;
        debug_assert!(*bytes >= counted.bytes, "{counted:?} of {bytes}");
        *bytes = bytes.saturating_sub(counted.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: Counted = Counted { bytes: LARGE_BYTES_MAX / 2, is_first: false, is_write: false };
    const TOO_MANY: Counted = Counted { bytes: 2 * LARGE_BYTES_MAX, is_first: false, is_write: false };
    const NONE: Counted = Counted { bytes: 0, is_first: false, is_write: false };

    #[test]
    fn large_ones_are_asked_for_in_turn_up_to_the_bound_and_one_in_any_case() {
        let keys = [1, 2, 3].map(ConnectionKey);
        let mut large = LargeReplies::default();
        assert!(large.admits(keys[0], TOO_MANY));
        large.begin(TOO_MANY);
        assert!(!large.admits(keys[1], MANY) && !large.admits(keys[2], MANY));
        assert!(large.admits(keys[2], NONE), "small ones never wait");
        let first = Counted { is_first: true, ..TOO_MANY };
        assert!(large.admits(ConnectionKey(4), first), "nobody else has read nothing yet");
        large.begin(first);
        large.end(TOO_MANY);
        assert!(!large.admits(keys[2], MANY), "another one was first");
        for key in [keys[1], keys[2]] {
            assert!(large.admits(key, MANY));
            large.begin(MANY);
        }
        assert!(!large.admits(keys[0], MANY));
        assert_eq!(large.next().collect::<Vec<_>>(), [(keys[0], MANY.line())]);
        large.leave(keys[0]);
        assert_eq!(large.next().count(), 0);
        // While one waits that has read nothing yet, others go one at a time.
        let new = ConnectionKey(5);
        assert!(!large.admits(new, first));
        large.end(MANY);
        assert!(!large.admits(keys[0], MANY));
        large.leave(new);
        assert!(large.admits(keys[0], MANY));
    }

    #[test]
    fn first_reads_are_taken_for_large_until_some_were_small() {
        let mut large = LargeReplies::default();
        let bytes = |large: &LargeReplies, usual| large.counted(usual, false).bytes;
        assert_eq!(large.counted(None, false).bytes, FIRST_BYTES_UNKNOWN);
        (0..8).for_each(|_| large.note_first(10, false));
        assert_eq!(large.counted(None, true).bytes, FIRST_BYTES_UNKNOWN, "of writes nothing is known yet");
        assert_eq!((bytes(&large, None), bytes(&large, Some(REPLY_BYTES_ASSUMED))), (0, 0));
        large.note_first(MANY.bytes, false);
        assert_eq!((bytes(&large, None), large.counted(Some(MANY.bytes), false)), (MANY.bytes, MANY));
    }
}
