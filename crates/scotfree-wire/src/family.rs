//! Families of packet kinds: each remedy has its own, with its own tails, so that no remedy has to know another's.
//!
//! Invariant: a code belongs to at most one family, and a `match` is exhaustive over one family only.

use crate::error::WireError;
use core::fmt::Debug;
use core::ops::RangeInclusive;

/// Whose packets they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Family {
    /// Sessions and what devices say for the log: [`crate::Kind`].
    #[default]
    Session,
    /// The read cache.
    Cache,
    /// Large objects.
    Objects,
    /// Replication.
    Replicate,
    /// Functions that exist for tests.
    Trial,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 5] =
        [Family::Session, Family::Cache, Family::Objects, Family::Replicate, Family::Trial];

    /// The codes of its kinds.
    pub const fn codes(self) -> RangeInclusive<u8> {
        match self {
            Family::Session => 1..=31,
            Family::Cache => 32..=47,
            Family::Objects => 48..=63,
            Family::Replicate => 64..=79,
            Family::Trial => 240..=255,
        }
    }

    /// The family of a kind's code.
    pub fn of(code: u8) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.codes().contains(&code))
    }

    /// The family of a packet, by its bytes alone; nothing else is looked at.
    pub fn of_packet(bytes: &[u8]) -> Option<Family> {
        bytes.get(5).and_then(|code| Family::of(*code))
    }

    /// How a response names it as the one who answered: the first of its codes, 0 for the server.
    pub const fn code(self) -> u8 {
        match self {
            Family::Session => 0,
            Family::Cache | Family::Objects | Family::Replicate | Family::Trial => *self.codes().start(),
        }
    }

    /// The family of such a name.
    pub fn from_code(code: u8) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.code() == code)
    }

    /// Its name in metrics and in records of calls.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Session => "session",
            Family::Cache => "cache",
            Family::Objects => "objects",
            Family::Replicate => "replicate",
            Family::Trial => "trial",
        }
    }
}

/// The kinds of one family, with their tails.
pub trait Kinds: Copy + Eq + Debug {
    /// What follows the core header.
    type Tail: Copy + Debug;

    /// Whose they are.
    const FAMILY: Family;

    /// The kind of a code; none if the family has no such kind.
    fn from_code(code: u8) -> Option<Self>;

    /// The code on the wire, one of the family's.
    fn code(self) -> u8;

    /// The size of its tail.
    fn tail_bytes(self) -> usize;

    /// Whether the packet is a request of a session: it has a place, and room for a stamp that its MAC leaves out.
    fn is_request(self) -> bool {
        false
    }

    /// Whether it may bear extensions.
    fn takes_extensions(self) -> bool {
        false
    }

    /// Appends a tail.
    fn write_tail(tail: &Self::Tail, out: &mut Vec<u8>);

    /// Reads the tail from exactly its bytes. What [`Kinds::write_tail`] would not have written is refused.
    fn read_tail(self, bytes: &[u8]) -> Result<Self::Tail, WireError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_belongs_to_two_families() {
        for code in 0..=u8::MAX {
            let families = Family::ALL.into_iter().filter(|family| family.codes().contains(&code));
            assert!(families.count() <= 1, "code {code}");
        }
        assert_eq!(
            (Family::of(0), Family::of(31), Family::of(32)),
            (None, Some(Family::Session), Some(Family::Cache))
        );
        assert_eq!((Family::of(80), Family::of(239)), (None, None));
    }

    #[test]
    fn who_answered_has_one_name_each() {
        for family in Family::ALL {
            assert_eq!(Family::from_code(family.code()), Some(family));
        }
        assert_eq!(Family::from_code(33), None);
    }
}
