//! Which requests of a session have passed since the device began.
//!
//! Invariant: a request that could still be under way is called seen only if it has been; one that is more than a window
//! behind the highest is stable.

use scotfree_core::SeqNum;

/// The requests of one session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    highest: u64,
    /// By place in the window.
    bits: Vec<u64>,
}

impl Seen {
    pub(crate) fn note(&mut self, seq: SeqNum, window: u32) {
        let window = u64::from(window);
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
