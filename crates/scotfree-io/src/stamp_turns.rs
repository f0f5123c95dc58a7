//! When the kernel is to stamp what arrives: always under little load, in turns under much.
//!
//! Stamping and handing the stamp over takes about 0.1 us of each datagram, several percent of a busy
//! service. What a caller misses between two turns it can derive from the last one.
//!
//! Invariant: under little load every datagram is stamped; under any load the last turn began less than
//! [`TURN`] and [`PAUSE`] ago, if anything came since.

use scotfree_core::Nanos;

/// How long everything is stamped.
const TURN: Nanos = Nanos::from_millis(16);
/// How long nothing is stamped then: one datagram in 32 has a stamp.
const PAUSE: Nanos = Nanos::from_millis(496);
/// Much load is when more than this arrives in a turn: 25 000 datagrams a second.
const BUSY_TURN_PACKETS: u64 = 400;

/// Decides from what has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StampTurns {
    is_on: bool,
    since: Nanos,
    packets: u64,
}

impl StampTurns {
    /// Begins with a turn.
    pub fn new(now: Nanos) -> StampTurns {
        StampTurns { is_on: true, since: now, packets: 0 }
    }

    /// Whether arrivals are stamped at present.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// So many datagrams have arrived; true if that ends a turn or a pause.
    pub fn note(&mut self, now: Nanos, packets: usize) -> bool {
        self.packets += packets as u64;
        if now.since(self.since) < if self.is_on { TURN } else { PAUSE } {
            return false;
        }
        let changes = !self.is_on || self.packets > BUSY_TURN_PACKETS;
        *self = StampTurns { is_on: self.is_on != changes, since: now, packets: 0 };
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In how many of two thousand milliseconds arrivals are stamped when so many come in each.
    fn stamped_ms(packets_per_ms: usize) -> usize {
        let mut turns = StampTurns::new(Nanos(0));
        let stamped = (0..2_000).filter(|ms| {
            let is_on = turns.is_on();
            turns.note(Nanos::from_millis(*ms), packets_per_ms);
            is_on
        });
        stamped.count()
    }

    #[test]
    fn little_load_is_stamped_without_gap() {
        assert_eq!(stamped_ms(20), 2_000);
    }

    #[test]
    fn of_much_load_one_in_32_is_stamped() {
        let stamped = stamped_ms(100);
        assert!((60..90).contains(&stamped), "{stamped}");
    }

    #[test]
    fn when_load_is_gone_stamps_come_back() {
        let mut turns = StampTurns::new(Nanos(0));
        assert!(turns.note(Nanos::from_millis(16), 1_000) && !turns.is_on());
        assert!(!turns.note(Nanos::from_millis(511), 1));
        assert!(turns.note(Nanos::from_millis(512), 1) && turns.is_on());
        assert!(!turns.note(Nanos::from_millis(600), 1) && turns.is_on());
    }
}
