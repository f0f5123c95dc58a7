//! Reads that a device before the server may answer again, and what changes a value though it counts as a read.
//!
//! Invariant: while the key of one is there, nothing changes its whole reply that a device does not see. So none of
//! lists, sorted sets or keys of any type is among them: commands that block take elements away, the last with its key,
//! and go around the device (docs/design/cache.md).

use super::Row;
use crate::codec::Args;

/// A read that a device may answer again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadAgain {
    /// It tells of a hash, whose fields may have times to live of their own.
    pub tells_of_hash: bool,
    /// It shows the value of a string or that there is none, and no more.
    pub is_get: bool,
}

/// By name.
const READS: [(&str, bool); 24] = [
    ("BITCOUNT", false),
    ("BITFIELD_RO", false),
    ("BITPOS", false),
    ("GET", false),
    ("GETBIT", false),
    ("GETRANGE", false),
    ("HEXISTS", true),
    ("HGET", true),
    ("HGETALL", true),
    ("HKEYS", true),
    ("HLEN", true),
    ("HMGET", true),
    ("HSTRLEN", true),
    ("HVALS", true),
    ("MGET", false),
    ("SCARD", false),
    ("SISMEMBER", false),
    ("SMEMBERS", false),
    ("SMISMEMBER", false),
    ("STRLEN", false),
    ("SUBSTR", false),
    ("XLEN", false),
    ("XRANGE", false),
    ("XREVRANGE", false),
];

/// Whether a command of this row is a read of one key that a device may answer again.
pub fn read_again(row: &Row, args: Args<'_>) -> Option<ReadAgain> {
    let at = READS.binary_search_by(|(name, _)| (*name).cmp(&row.command)).ok()?;
    let (name, tells_of_hash) = READS[at];
    let is_of_one = row.admits(args.len()) && (row.last_key == 1 || args.len() == 2);
    is_of_one.then_some(ReadAgain { tells_of_hash, is_get: name == "GET" })
}

/// Whether a command that counts as a read may change what other reads of its keys show: PFCOUNT keeps what it has
/// counted in the value.
pub fn keeps_in_value(args: Args<'_>) -> bool {
    args.is(0, "PFCOUNT")
}

#[cfg(test)]
mod tests {
    use super::super::{lookup, rows, Class, Flags};
    use super::*;
    use crate::codec::Command;

    fn of(line: &str) -> Option<ReadAgain> {
        let command = Command::new(line.split(' '));
        let args = command.args();
        lookup(args).and_then(|row| read_again(row, args))
    }

    #[test]
    fn a_read_of_one_key_is_told_from_others() {
        assert!(READS.is_sorted_by(|(one, _), (next, _)| one < next));
        assert_eq!(of("get k"), Some(ReadAgain { tells_of_hash: false, is_get: true }));
        assert_eq!(of("HGET k f"), Some(ReadAgain { tells_of_hash: true, is_get: false }));
        assert_eq!(of("MGET k"), Some(ReadAgain { tells_of_hash: false, is_get: false }));
        for other in ["MGET k l", "GET", "GET k l", "HGET k", "EXISTS k", "LLEN k", "ZSCORE k m", "SET k v"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn what_they_tell_of_nothing_changes_that_blocks() {
        let is_unseen = |row: &&Row| row.class == Class::Tunnel && row.flags.has(Flags::WRITE);
        let mut unseen: Vec<_> = rows().iter().filter(is_unseen).collect();
        // What it changes is what a group has read.
        unseen.retain(|row| row.command != "XREADGROUP");
        assert!(unseen.len() >= 8, "{unseen:?}");
        for (name, tells_of_hash) in READS {
            let row = rows().iter().find(|row| row.command == name).expect(name);
            assert_eq!((row.class, row.first_key), (Class::Read, 1), "{name}");
            assert!(unseen.iter().all(|unseen| unseen.group != row.group), "{name}");
            assert_ne!(row.group, "generic", "{name}");
            assert_eq!(row.group == "hash", tells_of_hash, "{name}");
        }
    }
}
