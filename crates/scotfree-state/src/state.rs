//! The trait of a state that can be kept at several members.
//!
//! Invariant: a state never decides what is agreed on; it executes, stores, and answers for what it has stored.

use crate::results::Results;
use scotfree_core::{SeqNum, SessionId};
use scotfree_wire::Identity;

/// The place of an operation in its group's one order, from 1; 0 before the first. Of protocols that have such an
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mark(pub u64);

/// The version of one key, totally ordered over all members: a counter, and whose write it is. 0 before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version {
    /// Grows with every write.
    pub counter: u64,
    /// The member whose write it is: it breaks ties.
    pub member: u16,
}

/// Which keys an operation reads or writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Touches {
    /// None: its answer does not depend on what is kept.
    Nothing,
    /// One, by its name (the database before it).
    One(Vec<u8>),
    /// Several, or nobody knows which.
    Several,
}

/// What is known of an operation before it is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Which keys.
    pub touches: Touches,
    /// It sets its key, whatever that holds, to a value that it names, and its answer is fixed. Others read before
    /// they write.
    pub is_blind: bool,
}

/// A write in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Its place in the order of the group.
    pub mark: Mark,
    /// Who made it.
    pub identity: Identity,
    /// When it was ordered, in milliseconds of real time, as whoever ordered it says: the same at all members.
    pub at_ms: u64,
    /// The session and place of the client's request, at the member that got it.
    pub session: Option<(SessionId, SeqNum)>,
    /// The operation.
    pub op: &'a [u8],
}

/// A value of one key that a write elsewhere has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installed<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its version from now on.
    pub version: Version,
    /// What it holds, as [`State::value`] gave it; `None` if it is gone.
    pub value: Option<&'a [u8]>,
    /// Who made the write.
    pub identity: Identity,
    /// When, see [`Placed::at_ms`].
    pub at_ms: u64,
    /// What the write was answered.
    pub reply: &'a [u8],
    /// The session and place of the client's request, at the member that got it.
    pub session: Option<(SessionId, SeqNum)>,
}

/// What came of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// How many writes this state has taken since it was opened, this one included: see [`State::stable`].
    pub number: u64,
    /// Whether the application refused it. It has taken its place all the same, but for [`State::install`].
    pub is_refused: bool,
}

/// Bytes that are no snapshot of such a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot cannot be read: {0}")]
pub struct DamagedSnapshot(pub String);

/// A state that is kept at several members. One thread calls it; no call waits for storage.
///
/// Protocols with one order use [`State::apply`]; those that order each key by itself use [`State::install`].
pub trait State {
    /// What is known of an operation. It need not be well-formed: what it is refused with is an answer.
    fn facts(&mut self, op: &[u8]) -> Facts;

    /// Executes an operation that changes nothing, and appends its answer. Whether the application refused it.
    fn query(&mut self, op: &[u8], reply: &mut Vec<u8>) -> bool;

    /// Executes a write in its place, notes its answer under its identity, and stores all of that together; appends
    /// the answer. Marks grow by one.
    fn apply(&mut self, placed: &Placed<'_>, reply: &mut Vec<u8>) -> Applied;

    /// All requests of a session up to this place are stable in the group, or were no writes. The session's position is
    /// stored, which nothing else moves; a place that it has left behind, or a session that is gone, changes nothing.
    fn take_place(&mut self, session: SessionId, seq: SeqNum) -> Applied;

    /// The last place that was applied, as storage had it when the state was opened or since.
    fn mark(&self) -> Mark;

    /// How many writes of its group this state was made by: 0 if there was none. It grows with every write, by
    /// [`State::apply`] or [`State::install`]; storage and snapshots keep it.
    fn progress(&self) -> u64;

    /// So many writes of [`Applied::number`] are stored.
    fn stable(&self) -> u64;

    /// Whether storage keeps up: if not, nothing new should be begun.
    fn has_room(&self) -> bool;

    /// What writes were answered, by their identities.
    fn results(&self) -> &Results;

    /// The version of a key.
    fn version(&self, key: &[u8]) -> Version;

    /// Executes a write of one key without storing it: appends what it would be answered to `reply`, and what the key
    /// would hold to `value`. Whether there would be a value, and whether the application refuses it: what is refused
    /// changes nothing.
    fn try_write(&mut self, op: &[u8], reply: &mut Vec<u8>, value: &mut Vec<u8>) -> (bool, bool);

    /// Appends what a key holds; false if there is nothing.
    fn value(&self, key: &[u8], out: &mut Vec<u8>) -> bool;

    /// Sets a key to a value made elsewhere if its version is newer than the one here, notes the answer under the
    /// identity, and stores all of that together. A value whose bytes are none is refused: nothing is changed or
    /// noted, and no number is taken.
    fn install(&mut self, installed: &Installed<'_>) -> Applied;

    /// Appends all of it: values with their versions, the mark, the results.
    fn write_snapshot(&self, out: &mut Vec<u8>);

    /// Puts a snapshot in the place of all that is here, and stores it, which counts as one write; the sessions of
    /// this member's clients stay. A crash before it is stable finds what was here before.
    fn read_snapshot(&mut self, bytes: &[u8]) -> Result<Applied, DamagedSnapshot>;

    /// What must be equal at all members, since answers depend on it (how much the data may take).
    fn fingerprint(&self) -> u64;
}

impl<S: State + ?Sized> State for Box<S> {
    fn facts(&mut self, op: &[u8]) -> Facts {
        (**self).facts(op)
    }

    fn query(&mut self, op: &[u8], reply: &mut Vec<u8>) -> bool {
        (**self).query(op, reply)
    }

    fn apply(&mut self, placed: &Placed<'_>, reply: &mut Vec<u8>) -> Applied {
        (**self).apply(placed, reply)
    }

    fn take_place(&mut self, session: SessionId, seq: SeqNum) -> Applied {
        (**self).take_place(session, seq)
    }

    fn mark(&self) -> Mark {
        (**self).mark()
    }

    fn progress(&self) -> u64 {
        (**self).progress()
    }

    fn stable(&self) -> u64 {
        (**self).stable()
    }

    fn has_room(&self) -> bool {
        (**self).has_room()
    }

    fn results(&self) -> &Results {
        (**self).results()
    }

    fn version(&self, key: &[u8]) -> Version {
        (**self).version(key)
    }

    fn try_write(&mut self, op: &[u8], reply: &mut Vec<u8>, value: &mut Vec<u8>) -> (bool, bool) {
        (**self).try_write(op, reply, value)
    }

    fn value(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        (**self).value(key, out)
    }

    fn install(&mut self, installed: &Installed<'_>) -> Applied {
        (**self).install(installed)
    }

    fn write_snapshot(&self, out: &mut Vec<u8>) {
        (**self).write_snapshot(out);
    }

    fn read_snapshot(&mut self, bytes: &[u8]) -> Result<Applied, DamagedSnapshot> {
        (**self).read_snapshot(bytes)
    }

    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}
