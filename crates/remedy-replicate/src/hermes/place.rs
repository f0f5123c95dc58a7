//! The place of a write among all writes of its key.
//!
//! Blind writes are numbered, with the member's name to break ties; a write that reads its key first stands directly
//! behind what it has read, one step further. So nothing can come between the two, and no such write has to be given
//! up when others write the key meanwhile (G4, G12).
//!
//! Invariant: a place is a version and back; versions are ordered as places are.

use crate::view::MemberId;
use scotfree_state::Version;

const COUNT_BITS: u32 = 36;
const STEP_BITS: u32 = 36;
/// The lower bits of a step lie in the version's second field.
const LOW_BITS: u32 = 16;

/// A place: so many blind writes, whose the last is, and how many others have followed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place {
    pub count: u64,
    pub member: u8,
    pub step: u64,
}

impl Place {
    pub(crate) fn of(version: Version) -> Place {
        let high = version.counter & ((1 << (STEP_BITS - LOW_BITS)) - 1);
        Place {
            count: version.counter >> (64 - COUNT_BITS),
            member: (version.counter >> (STEP_BITS - LOW_BITS)) as u8,
            step: high << LOW_BITS | u64::from(version.member),
        }
    }

    pub(crate) fn version(self) -> Version {
        let named = self.count << 8 | u64::from(self.member);
        Version { counter: named << (STEP_BITS - LOW_BITS) | self.step >> LOW_BITS, member: self.step as u16 }
    }

    /// The place of a blind write behind this one; none if there are no more.
    pub(crate) fn next(self, member: MemberId) -> Option<Place> {
        let count = self.count + 1;
        (count < 1 << COUNT_BITS).then_some(Place { count, member: member.0, step: 0 })
    }

    /// The place directly behind this one.
    pub(crate) fn step(self) -> Option<Place> {
        let step = self.step + 1;
        (step < 1 << STEP_BITS).then_some(Place { step, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_places_are() {
        let numbers = [0, 1, 0xffff, 0x1_0000, 0xf_ffff, (1 << 36) - 1];
        let mut places = Vec::new();
        for count in numbers {
            for member in [0, 1, 255] {
                places.extend(numbers.map(|step| Place { count, member, step }));
            }
        }
        assert!(places.is_sorted());
        for pair in places.windows(2) {
            assert!(pair[0].version() < pair[1].version(), "{pair:?}");
        }
        for place in &places {
            assert_eq!(Place::of(place.version()), *place);
        }
        assert_eq!(Place::default().version(), Version::default());
    }

    #[test]
    fn nothing_comes_between_a_place_and_its_step() {
        let (first, step) = (Place { count: 3, member: 2, step: 7 }, Place { count: 3, member: 2, step: 8 });
        assert_eq!(first.step(), Some(step));
        let next = first.next(MemberId(1)).expect("there are more");
        assert!(step < next && next.step == 0);
        assert_eq!(Place { count: (1 << 36) - 1, ..first }.next(MemberId(1)), None);
        assert_eq!(Place { step: (1 << 36) - 1, ..first }.step(), None);
    }
}
