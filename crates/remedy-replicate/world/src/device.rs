//! A device before a member, and what its member makes of that: a model of the rule of the service's owed writes.
//!
//! The device acknowledges each write of its one session at once and keeps it until its member says that it is
//! stable. Every life of the member is given, in the session's order, all that the device keeps.
//!
//! Invariant: a write that is owed is submitted until it is stable, under one identity; what was turned away goes
//! before all that was not submitted yet.

use crate::model::Op;
use scotfree_wire::Identity;
use std::collections::{BTreeSet, VecDeque};

/// How many writes a session may have that are not known to be stable.
const CREDITS: u64 = 8;
/// Tickets from here on are of owed writes: the rest of the number is the write's place in its session.
const FIRST_TICKET: u64 = 1 << 40;
/// The first byte of the name of a session behind a device, the member's index added; clients have lower ones.
const FIRST_NAME: u8 = 0x80;

/// Writes by their places in the session, which count from 1.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// How many it acknowledges in all, and has so far.
    pub(crate) count: u64,
    made: u64,
    /// All up to this one are stable, and that is stored at the member.
    pub(crate) settled: u64,
    /// How far this life of the member was given what the device keeps.
    given: u64,
    /// What the member's machine does not have.
    waiting: BTreeSet<u64>,
    answered: BTreeSet<u64>,
    stable: BTreeSet<u64>,
    /// All up to this one are stable.
    stable_through: u64,
    /// When the member's storage has so many writes, the place behind it is stored.
    storing: VecDeque<(u64, u64)>,
}

impl Device {
    pub(crate) fn new(count: u64) -> Device {
        Device { count, ..Device::default() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.settled == self.count
    }

    /// A client writes, if it may. Whether it does.
    pub(crate) fn acknowledge(&mut self) -> bool {
        let may = self.made < self.count.min(self.settled + CREDITS);
        self.made += u64::from(may);
        may
    }

    /// A new life of the member knows nothing but the place that is stored.
    pub(crate) fn begin_life(&mut self) {
        let Device { count, made, settled, .. } = *self;
        *self = Device { count, made, settled, given: settled, stable_through: settled, ..Device::default() };
    }

    /// The member is given what this life of it was not given yet.
    pub(crate) fn give(&mut self) {
        self.waiting.extend(self.given + 1..=self.made);
        self.given = self.made;
    }

    /// The write that is to be submitted next.
    pub(crate) fn next(&self) -> Option<u64> {
        self.waiting.first().copied()
    }

    pub(crate) fn note_submitted(&mut self, place: u64) {
        self.waiting.remove(&place);
    }

    /// The machine does not have it any more, and it may never be executed.
    pub(crate) fn turn_away(&mut self, place: u64) {
        self.answered.remove(&place);
        self.waiting.insert(place);
    }

    pub(crate) fn answer(&mut self, place: u64) {
        self.answered.insert(place);
    }

    pub(crate) fn settle(&mut self, place: u64) {
        self.stable.insert(place);
    }

    /// How far all are answered and stable, if that is news.
    pub(crate) fn news(&mut self) -> Option<u64> {
        let before = self.stable_through;
        while self.answered.contains(&(self.stable_through + 1))
            && self.stable.contains(&(self.stable_through + 1))
        {
            self.stable_through += 1;
        }
        (self.stable_through > before).then_some(self.stable_through)
    }

    /// The place behind a write goes into the member's storage as its write of this number.
    pub(crate) fn store(&mut self, number: u64, place: u64) {
        self.storing.push_back((number, place));
    }

    /// The member's storage has its writes up to this number: what is settled the device keeps no more.
    pub(crate) fn note_stored(&mut self, number: u64) {
        while let Some((_, place)) = self.storing.front().copied().filter(|(stored, _)| *stored <= number) {
            self.storing.pop_front();
            self.settled = place;
        }
    }
}

/// The ticket of an owed write.
pub(crate) fn ticket_of(place: u64) -> u64 {
    FIRST_TICKET | place
}

/// The owed write of a ticket, if it is one's.
pub(crate) fn place_of(ticket: u64) -> Option<u64> {
    (ticket >= FIRST_TICKET).then_some(ticket & (FIRST_TICKET - 1))
}

/// Under what a write is known to the group: the same in all lives of the member, but for what says where it was sent.
pub(crate) fn identity(index: usize, boot: u32, place: u64) -> Identity {
    let home = (index as u64 + 1) << 56 | u64::from(boot as u16) << 40;
    Identity { client: [FIRST_NAME + index as u8; 16], number: home | place }
}

/// Whether a request is of a session behind a device.
pub(crate) fn is_owed(identity: &Identity) -> bool {
    identity.client[0] >= FIRST_NAME
}

/// What it does: its place is set under a key of its session alone.
pub(crate) fn op(index: usize, place: u64) -> Op {
    Op::Set(FIRST_NAME + index as u8, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_turned_away_goes_first_and_what_is_kept_is_given_to_every_life() {
        let mut device = Device::new(100);
        assert_eq!((0..20).filter(|_| device.acknowledge()).count() as u64, CREDITS);
        device.give();
        (1..=3).for_each(|place| device.note_submitted(place));
        assert_eq!(device.next(), Some(4));
        device.turn_away(2);
        assert_eq!(device.next(), Some(2));
        device.note_submitted(2);
        for place in [1, 3] {
            device.answer(place);
            device.settle(place);
        }
        assert_eq!((device.news(), device.news()), (Some(1), None));
        device.store(9, 1);
        device.note_stored(8);
        assert_eq!(device.settled, 0);
        device.note_stored(9);
        assert_eq!(device.settled, 1);
        device.begin_life();
        device.give();
        assert_eq!(device.next(), Some(2));
        assert!(device.acknowledge() && !device.acknowledge());
    }
}
