//! Stamps that wait to be joined with what they are about.
//!
//! Invariant: the tables have a fixed size, and at the limit the newer stamp wins; a stamp is joined with
//! what it is about or with nothing.

use super::Stamped;
use scotfree_core::{SeqNum, SessionId};

/// What the transmit stamps that were asked for are about.
#[derive(Debug)]
pub(crate) struct TransmitTable<About> {
    waiting: Box<[Option<(u32, About)>]>,
    waiting_count: usize,
    key_next: u32,
}

impl<About: Copy> TransmitTable<About> {
    /// Room for `stamps_max` stamps; at the limit the oldest is given up.
    pub(crate) fn new(stamps_max: usize) -> Self {
        TransmitTable { waiting: vec![None; stamps_max.max(1)].into(), waiting_count: 0, key_next: 0 }
    }

    /// The key under which to ask.
    pub(crate) fn ask(&mut self, about: About) -> u32 {
        let key = self.key_next;
        self.key_next = key.wrapping_add(1);
        let index = self.index(key);
        if self.waiting[index].replace((key, about)).is_none() {
            self.waiting_count += 1;
        }
        key
    }

    /// Whether stamps are awaited, unless they are lost.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting_count > 0
    }

    /// What the stamp of `key` is about, once.
    pub(crate) fn answered(&mut self, key: u32) -> Option<About> {
        let index = self.index(key);
        let (_, about) = self.waiting[index].take_if(|(waiting, _)| *waiting == key)?;
        self.waiting_count -= 1;
        Some(about)
    }

    fn index(&self, key: u32) -> usize {
        key as usize % self.waiting.len()
    }
}

/// When requests reached this server, until they are executed: a table in which a newer request may
/// push an older one out. The requests it is asked about are authentic; those in it need not be.
#[derive(Debug)]
pub(crate) struct Arrivals {
    places: Box<[Arrival]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Arrival {
    session: SessionId,
    seq: SeqNum,
    stamped: Stamped,
}

impl Arrivals {
    pub(crate) fn new(arrivals_max: usize) -> Arrivals {
        Arrivals { places: vec![Arrival::default(); arrivals_max.next_power_of_two()].into() }
    }

    /// Notes an arrival. Of a request in one packet the first counts, of fragments the last.
    pub(crate) fn note(&mut self, session: SessionId, seq: SeqNum, is_fragment: bool, stamped: Stamped) {
        let index = self.index(session, seq);
        let place = &mut self.places[index];
        if (place.session, place.seq) != (session, seq) || is_fragment {
            *place = Arrival { session, seq, stamped };
        }
    }

    /// When a request arrived, once; its place is free afterwards.
    pub(crate) fn take(&mut self, session: SessionId, seq: SeqNum) -> Stamped {
        let index = self.index(session, seq);
        let place = &mut self.places[index];
        if (place.session, place.seq) != (session, seq) {
            return Stamped::default();
        }
        std::mem::take(place).stamped
    }

    fn index(&self, session: SessionId, seq: SeqNum) -> usize {
        // Consecutive requests of one session lie side by side; sessions begin at scattered places.
        let start = session.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (start.wrapping_add(seq.0) & (self.places.len() as u64 - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_core::Nanos;

    #[test]
    fn a_stamp_finds_what_it_was_asked_about_or_nothing() {
        let mut table = TransmitTable::new(2);
        let keys: Vec<u32> = (0..3).map(|about| table.ask(about)).collect();
        assert_eq!(table.answered(keys[0]), None);
        assert_eq!(table.answered(keys[2]), Some(2));
        assert_eq!(table.answered(keys[2]), None);
        assert_eq!(table.answered(keys[1]), Some(1));
    }

    #[test]
    fn the_first_arrival_counts_and_of_fragments_the_last() {
        let mut arrivals = Arrivals::new(8);
        let (session, stamp) = (SessionId(9), |at| Stamped::kernel(Nanos(at)));
        arrivals.note(session, SeqNum(1), false, stamp(5));
        arrivals.note(session, SeqNum(1), false, stamp(6));
        arrivals.note(session, SeqNum(2), true, stamp(5));
        arrivals.note(session, SeqNum(2), true, stamp(6));
        assert_eq!(arrivals.take(session, SeqNum(1)), stamp(5));
        assert_eq!(arrivals.take(session, SeqNum(1)), Stamped::default());
        assert_eq!(arrivals.take(session, SeqNum(2)), stamp(6));
        arrivals.note(session, SeqNum(3), false, stamp(7));
        arrivals.note(session, SeqNum(11), false, stamp(8));
        assert_eq!(arrivals.take(session, SeqNum(3)), Stamped::default());
    }
}
