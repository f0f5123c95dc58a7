//! Which requests of a session have passed since the device began.
//!
//! Invariant: a request that could still be under way is called seen only if it has been; one that is more than a window
//! behind the highest is stable. One that may have been sent before this device began, and executed since, is not called
//! new: a client is never more than a window ahead of what has passed.

use scotfree_core::SeqNum;

/// The requests of one session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// This device has seen the session begin.
    opened: bool,
    /// Requests from here on have not been sent before this device began; known when one has passed.
    new_from: Option<u64>,
    highest: u64,
    /// By place in the window.
    bits: Vec<u64>,
}

impl Seen {
    /// Of a session that begins.
    pub(crate) fn opened() -> Seen {
        Seen { opened: true, ..Seen::default() }
    }

    pub(crate) fn note(&mut self, seq: SeqNum, window: u32) {
        let window = u64::from(window);
        let is_first = self.opened && seq == SeqNum(1);
        self.new_from.get_or_insert(if is_first { 1 } else { seq.0 + window });
        self.bits.resize(window.div_ceil(64) as usize, 0);
        // What was skipped has not been seen; more than a window of it there is not.
        for skipped in (self.highest + 1).max(seq.0.saturating_sub(window))..seq.0 {
            self.set(skipped % window, false);
        }
        if seq.0 + window > self.highest {
            self.set(seq.0 % window, true);
        }
        self.highest = self.highest.max(seq.0);
    }

    fn set(&mut self, place: u64, is_seen: bool) {
        let word = &mut self.bits[(place / 64) as usize];
        *word = *word & !(1 << (place % 64)) | u64::from(is_seen) << (place % 64);
    }

    /// Whether a request that has just passed was not sent before this device began.
    pub(crate) fn is_new(&self, seq: SeqNum) -> bool {
        self.new_from.is_some_and(|new_from| new_from <= seq.0)
    }

    pub(crate) fn has(&self, seq: SeqNum, window: u32) -> bool {
        let window = u64::from(window);
        if seq.0 + window <= self.highest {
            return true;
        }
        let place = seq.0 % window;
        let word = self.bits.get((place / 64) as usize).copied().unwrap_or(0);
        seq.0 <= self.highest && word & (1 << (place % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_session_that_had_begun_before_only_what_is_a_window_ahead_is_new() {
        let (mut opened, mut restored, mut late) = (Seen::opened(), Seen::default(), Seen::opened());
        let is_new = |seen: &mut Seen, seq| {
            seen.note(SeqNum(seq), 100);
            seen.is_new(SeqNum(seq))
        };
        assert!(is_new(&mut opened, 1) && is_new(&mut opened, 2));
        assert!(!is_new(&mut restored, 1) && !is_new(&mut restored, 100) && is_new(&mut restored, 101));
        assert!(!is_new(&mut late, 7) && !is_new(&mut late, 106) && is_new(&mut late, 107));
    }

    #[test]
    fn what_was_skipped_is_not_seen_until_it_comes_and_what_is_a_window_behind_is_over() {
        let mut seen = Seen::default();
        let has = |seen: &Seen, seq| seen.has(SeqNum(seq), 100);
        assert!(!has(&seen, 1));
        seen.note(SeqNum(150), 100);
        seen.note(SeqNum(153), 100);
        assert!(has(&seen, 150) && has(&seen, 153) && has(&seen, 53));
        assert!(!has(&seen, 54) && !has(&seen, 151) && !has(&seen, 154));
        seen.note(SeqNum(151), 100);
        assert!(has(&seen, 151) && !has(&seen, 152));
        seen.note(SeqNum(1_000), 100);
        assert!(has(&seen, 900) && !has(&seen, 901) && !has(&seen, 951) && has(&seen, 1_000));
    }
}
