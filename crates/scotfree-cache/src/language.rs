//! What payloads say to the cache: which read, which overwrite, which reply may be kept.
//!
//! Invariant: what a language does not know for certain it does not say. Then a read is passed on, a reply is not kept,
//! and a write is one to all keys.

mod redis;

pub use redis::{ReadCommand, Redis, WholeRead, READS};

use scotfree_core::{KeyHash, Nanos};
use scotfree_wire::ObjectNote;
use std::fmt::Debug;

/// Whether a write's keys are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// They are those that the packet names.
    All,
    /// There may be others.
    Some,
}

/// What payloads mean. A payload is that of a whole request or response.
pub trait Language: Debug + Send {
    /// Whose request it is, among those that share its session: answers come to each of them in the order in which it has
    /// asked. None if it may be of several, or if that is not known.
    fn caller(&self, payload: &[u8]) -> Option<u32>;

    /// Whether this is a read of one key whose answer depends on nothing else; then what tells it from all other reads
    /// is appended.
    fn read(&self, payload: &[u8], key: &mut Vec<u8>) -> bool;

    /// Whether this write makes whatever was there indifferent and cannot but succeed; then what tells its key's read
    /// is appended to `key`, and what that read is answered from then on to `value`.
    fn overwrite(&self, payload: &[u8], key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool;

    /// Whether a write touches the key of its header alone.
    fn names(&self, payload: &[u8]) -> Names;

    /// How an operator names a key: what tells its plain read from all others is appended to `read`; the hash by which
    /// requests name it. Of a language that says nothing here nothing is asked.
    fn named(&self, _database: u16, key: &[u8], read: &mut Vec<u8>) -> KeyHash {
        read.extend_from_slice(key);
        KeyHash(0)
    }

    /// Database and key of what tells a read from all others, and the command's name unless it is the plain read.
    fn shown<'r>(&self, _read: &'r [u8]) -> Option<(u16, &'r [u8], &'r str)> {
        None
    }

    /// How long the reply to a read that may be answered is true if nobody writes; none if it is not to be kept. The
    /// note is what its server says of it. What the read is answered from then on is appended to `value`.
    fn lives(&self, reply: &[u8], note: Option<ObjectNote>, value: &mut Vec<u8>) -> Option<Nanos>;
}
