//! What a shard is asked to do.
//!
//! Invariant: an operation names one key; what it does follows from the shard, the operation and the time alone.

use crate::item::Kind;

/// One operation.
#[derive(Clone, Copy)]
pub struct Op<'a> {
    /// The key that it is about.
    pub key: &'a [u8],
    /// What to do.
    pub verb: Verb<'a>,
}

impl<'a> Op<'a> {
    /// An operation on a key.
    pub fn new(key: &'a [u8], verb: Verb<'a>) -> Op<'a> {
        Op { key, verb }
    }

    /// Reads a value.
    pub fn get(key: &'a [u8]) -> Op<'a> {
        Op { key, verb: Verb::Get }
    }

    /// Sets a value, for ever.
    pub fn set(key: &'a [u8], value: &'a [u8]) -> Op<'a> {
        Op { key, verb: Verb::Set(Set::of(value)) }
    }

    /// Removes a key.
    pub fn delete(key: &'a [u8]) -> Op<'a> {
        Op { key, verb: Verb::Delete(Condition::Always) }
    }
}

/// When a value expires after an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// As before.
    Keep,
    /// Never.
    Never,
    /// At that second, since 1970. What lies in the past removes the key.
    At(u32),
    /// So many seconds from now.
    In(u32),
}

/// On what an operation depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// On nothing.
    Always,
    /// There is no such key.
    IfAbsent,
    /// There is such a key.
    IfPresent,
    /// The key has that version (memcached's `cas`), in a shard that keeps versions.
    IfVersion(u64),
}

/// Which times of expiry may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpireIf {
    /// All.
    Always,
    /// Where there is none.
    None,
    /// Where there is one.
    Some,
    /// Where the new one is later; never is the latest.
    Later,
    /// Where the new one is earlier.
    Earlier,
}

/// How to set a value.
#[derive(Clone, Copy)]
pub struct Set<'a> {
    /// The value.
    pub value: &'a [u8],
    /// When it expires.
    pub expiry: Expiry,
    /// On what it depends.
    pub condition: Condition,
    /// Whether the reply is to have the value of before. Then that must be a string.
    pub returns_old: bool,
}

impl<'a> Set<'a> {
    /// For ever, whatever there is.
    pub fn of(value: &'a [u8]) -> Set<'a> {
        Set { value, expiry: Expiry::Never, condition: Condition::Always, returns_old: false }
    }
}

/// A value as [`Verb::Update`] sees it.
#[derive(Debug, Clone, Copy)]
pub struct Old<'a> {
    /// Its bytes.
    pub value: &'a [u8],
    /// What it is.
    pub kind: Kind,
    /// When it expires, since 1970; 0 for never.
    pub expire_s: u32,
    /// Its version; 0 in a shard that keeps none.
    pub version: u64,
}

/// What becomes of a key that is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Keep,
    /// It holds what was written, of that kind, until then.
    Write(Kind, Expiry),
    /// It is removed.
    Delete,
    /// Nothing, and the reply is `Refused` with that number.
    Refuse(i64),
}

/// Makes a new value of the old one, into an empty vector.
pub type Update<'a> = &'a dyn Fn(Option<Old<'_>>, &mut Vec<u8>) -> Change;

/// A field of a hash and its value.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// What to do with a key.
#[derive(Clone, Copy)]
pub enum Verb<'a> {
    /// Reads a string.
    Get,
    /// Reads a string and changes when it expires (GETEX, gat).
    GetExpire(Expiry),
    /// Reads a string and removes it (GETDEL).
    GetDelete,
    /// Reads a part of a string: from and to, inclusive, from the end if negative.
    GetRange(i64, i64),
    /// Whether there is such a key.
    Exists,
    /// How long a string is.
    Length,
    /// What kind of value there is.
    Kind,
    /// Sets a string.
    Set(Set<'a>),
    /// Lengthens a string at its end.
    Append(&'a [u8], Condition),
    /// Lengthens a string at its beginning.
    Prepend(&'a [u8], Condition),
    /// Writes into a string from there on, filled up with zeros.
    SetRange(usize, &'a [u8]),
    /// Adds to a decimal number (INCRBY); what is absent is 0.
    Add(i64),
    /// Adds to a decimal number without sign, which begins again at 0 (memcached's `incr`).
    AddUnsigned(u64),
    /// Takes from a decimal number without sign, which stops at 0 (memcached's `decr`).
    SubtractUnsigned(u64),
    /// Removes a key.
    Delete(Condition),
    /// Changes when a key expires.
    Expire(Expiry, ExpireIf),
    /// In how many seconds it expires; -1 for never.
    Ttl,
    /// Whatever else can be made of a value.
    Update(Update<'a>),
    /// Sets fields of a hash; the number of those that are new.
    HashSet(&'a [Field<'a>]),
    /// Sets a field that is not there.
    HashSetNew(Field<'a>),
    /// Reads a field.
    HashGet(&'a [u8]),
    /// Reads fields: packed, see [`crate::fields`]; what is absent has no value.
    HashGetMany(&'a [&'a [u8]]),
    /// All fields, packed as [`crate::fields`] reads them.
    HashGetAll,
    /// Whether there is such a field.
    HashExists(&'a [u8]),
    /// Removes fields; how many there were.
    HashDelete(&'a [&'a [u8]]),
    /// How many fields there are.
    HashLength,
    /// Adds to a decimal number in a field.
    HashAdd(&'a [u8], i64),
}
