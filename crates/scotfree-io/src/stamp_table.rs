//! Which of our keys the kernel's transmit stamp ids stand for.
//!
//! Invariant: a stamp is reported under the key it was asked for or not at all. The kernel counts the
//! datagrams that ask for a stamp and we count along; whenever the two counts are seen to differ, the
//! table asks for a new start instead of guessing.

use scotfree_core::Nanos;

/// The requests whose stamps have not come yet, at most `tx_stamps_max`; at the limit the oldest is
/// given up as lost.
#[derive(Debug)]
pub struct StampTable {
    waiting: Box<[Option<Waiting>]>,
    id_next: u32,
    lost_count: u64,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    id: u32,
    key: u32,
    requested_at: Nanos,
}

/// What a stamp from the kernel turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// The stamp of this key.
    Key(u32),
    /// The stamp of a request that was given up.
    Forgotten,
    /// Proof that the kernel counts differently: restart both counts at zero.
    OutOfStep,
}

impl StampTable {
    /// A table for `tx_stamps_max` requests.
    pub fn new(tx_stamps_max: usize) -> StampTable {
        StampTable { waiting: vec![None; tx_stamps_max.max(1)].into(), id_next: 0, lost_count: 0 }
    }

    /// Notes that the kernel has taken a datagram with the wish for a stamp under `key`.
    pub fn requested(&mut self, key: u32, requested_at: Nanos) {
        let id = self.id_next;
        self.id_next = id.wrapping_add(1);
        let index = self.index(id);
        if self.waiting[index].replace(Waiting { id, key, requested_at }).is_some() {
            self.lost_count += 1;
        }
    }

    /// Looks up, and forgets, the request that a stamp with the kernel's `id` answers.
    pub fn stamped(&mut self, id: u32, stamp: Nanos) -> Match {
        // Ids wrap: half of the range lies ahead of `id_next`.
        if self.id_next.wrapping_sub(id).wrapping_sub(1) > u32::MAX / 2 {
            return Match::OutOfStep;
        }
        let index = self.index(id);
        match self.waiting[index] {
            Some(waiting) if waiting.id == id && stamp < waiting.requested_at => Match::OutOfStep,
            Some(waiting) if waiting.id == id => {
                self.waiting[index] = None;
                Match::Key(waiting.key)
            }
            Some(_) | None => Match::Forgotten,
        }
    }

    /// Starts anew from id 0; what was waiting is lost.
    pub fn restart(&mut self) {
        self.lost_count += self.waiting.iter_mut().filter_map(Option::take).count() as u64;
        self.id_next = 0;
    }

    /// How many requests were given up.
    pub fn lost_count(&self) -> u64 {
        self.lost_count
    }

    fn index(&self, id: u32) -> usize {
        id as usize % self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_find_their_keys_in_any_order() {
        let mut table = StampTable::new(4);
        for key in [70, 71, 72] {
            table.requested(key, Nanos(10));
        }
        assert_eq!(table.stamped(2, Nanos(11)), Match::Key(72));
        assert_eq!(table.stamped(0, Nanos(11)), Match::Key(70));
        assert_eq!(table.stamped(0, Nanos(11)), Match::Forgotten);
    }

    #[test]
    fn at_the_limit_the_oldest_is_lost() {
        let mut table = StampTable::new(2);
        for key in [70, 71, 72] {
            table.requested(key, Nanos(10));
        }
        assert_eq!(table.lost_count(), 1);
        assert_eq!(table.stamped(0, Nanos(11)), Match::Forgotten);
        assert_eq!(table.stamped(1, Nanos(11)), Match::Key(71));
        assert_eq!(table.stamped(2, Nanos(11)), Match::Key(72));
    }

    #[test]
    fn a_kernel_that_counts_differently_is_found_out() {
        let mut table = StampTable::new(4);
        assert_eq!(table.stamped(0, Nanos(11)), Match::OutOfStep);
        table.requested(70, Nanos(10));
        assert_eq!(table.stamped(0, Nanos(9)), Match::OutOfStep);
        assert_eq!(table.stamped(1, Nanos(11)), Match::OutOfStep);
        table.restart();
        assert_eq!(table.lost_count(), 1);
        table.requested(71, Nanos(12));
        assert_eq!(table.stamped(0, Nanos(13)), Match::Key(71));
    }

    #[test]
    fn ids_wrap() {
        let mut table = StampTable::new(4);
        table.id_next = u32::MAX;
        table.requested(70, Nanos(10));
        table.requested(71, Nanos(10));
        assert_eq!(table.stamped(u32::MAX, Nanos(10)), Match::Key(70));
        assert_eq!(table.stamped(0, Nanos(10)), Match::Key(71));
    }
}
