//! The keys among a command's arguments.
//!
//! Invariant: a key is only ever an argument that is there; a command whose keys cannot be found has none.

use super::table::{lookup, streams, Row};
use crate::codec::{parse_integer, Args};
use scotfree_core::KeyHash;
use std::iter::StepBy;
use std::ops::RangeInclusive;

/// All keys of a command.
pub fn keys(args: Args<'_>) -> impl Iterator<Item = &[u8]> {
    positions(args).filter(move |index| *index < args.len()).map(move |index| args.get(index))
}

/// The first key of a command whose row this is, by which it is steered.
pub fn first_key<'a>(row: Option<&Row>, args: Args<'a>) -> Option<&'a [u8]> {
    match row {
        None => None,
        Some(row) if row.first_key > 0 => {
            let index = regular(row, args.len()).next()?;
            (index < args.len()).then(|| args.get(index))
        }
        Some(_) => keys(args).next(),
    }
}

/// What of the data a command touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touches<'a> {
    /// Nothing.
    Nothing,
    /// One key and no other.
    Key(&'a [u8]),
    /// Several keys, or nobody knows which.
    Anything,
}

/// What of the data a command touches, by reading or by writing.
pub fn touches(args: Args<'_>) -> Touches<'_> {
    let Some(row) = lookup(args) else { return Touches::Anything };
    // SORT reads by patterns; SORT and GEORADIUS write behind STORE.
    let names_more = |name: &str| name.starts_with("SORT") || name.starts_with("GEORADIUS");
    match row.command.as_str() {
        "PING" | "ECHO" => Touches::Nothing,
        name if row.first_key > 0 && row.last_key == row.first_key as i32 && !names_more(name) => {
            Touches::Key(args.get(row.first_key))
        }
        name if row.first_key > 0 && !names_more(name) => {
            let mut keys = keys(args);
            keys.next().filter(|_| keys.next().is_none()).map_or(Touches::Anything, Touches::Key)
        }
        _ => Touches::Anything,
    }
}

/// All keys that a command may write, each of the connection's database; none if that cannot be told.
pub fn written_keys(args: Args<'_>) -> Vec<&[u8]> {
    // They reach another database, or another server.
    const ELSEWHERE: [&str; 3] = ["MOVE", "COPY", "MIGRATE"];
    let Some(row) = lookup(args) else { return Vec::new() };
    // SORT and GEORADIUS write behind STORE.
    let names_more = |name: &str| name.starts_with("SORT") || name.starts_with("GEORADIUS");
    let is_known =
        row.first_key > 0 && !names_more(&row.command) && !ELSEWHERE.contains(&row.command.as_str());
    if is_known {
        keys(args).collect()
    } else {
        Vec::new()
    }
}

/// The hash over database and key that goes on the wire; 0 for a command without a key.
pub fn key_hash(db: u16, key: Option<&[u8]>) -> KeyHash {
    key.map_or(KeyHash(0), |key| KeyHash::of(db, key))
}

fn positions(args: Args<'_>) -> Box<dyn Iterator<Item = usize>> {
    let Some(row) = lookup(args) else { return Box::new(std::iter::empty()) };
    if row.first_key > 0 {
        return Box::new(regular(row, args.len()));
    }
    match row.command.as_str() {
        "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO" | "FCALL" | "FCALL_RO" | "BLMPOP" | "BZMPOP" => {
            counted(args, 2)
        }
        "LMPOP" | "ZMPOP" | "SINTERCARD" | "ZDIFF" | "ZINTER" | "ZINTERCARD" | "ZUNION" => counted(args, 1),
        "XREAD" | "XREADGROUP" => {
            let first = streams(args) + 1;
            let count = args.len().saturating_sub(first) / 2;
            Box::new(first..first + count)
        }
        _ => Box::new(std::iter::empty()),
    }
}

/// Keys at the same places in all commands of a row; SORT and GEORADIUS have a second one behind STORE, which a hash of
/// the first covers.
fn regular(row: &Row, argument_count: usize) -> StepBy<RangeInclusive<usize>> {
    let last = match row.last_key {
        from_end if from_end < 0 => argument_count as i64 + i64::from(from_end),
        last => last.into(),
    };
    (row.first_key..=usize::try_from(last).unwrap_or(0)).step_by(row.key_step.max(1))
}

/// Keys that stand behind their number.
fn counted(args: Args<'_>, number: usize) -> Box<dyn Iterator<Item = usize>> {
    let count = parse_integer(args.get(number)).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let first = number + 1;
    Box::new(first..first + count.min(args.len().saturating_sub(first)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Command;

    fn keys_of(line: &str) -> Vec<String> {
        let command = Command::new(line.split(' '));
        keys(command.args()).map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    #[test]
    fn keys_are_found_wherever_they_stand() {
        let cases: [(&str, &[&str]); 14] = [
            ("SET k v", &["k"]),
            ("MSET a 1 b 2", &["a", "b"]),
            ("DEL a b c", &["a", "b", "c"]),
            ("BLPOP a b 0", &["a", "b"]),
            ("RENAME a b", &["a", "b"]),
            ("EVAL s 2 a b c", &["a", "b"]),
            ("EVAL s 0", &[]),
            ("EVAL s 99 a", &["a"]),
            ("EVAL s x a", &[]),
            ("ZUNION 2 a b", &["a", "b"]),
            ("XREAD COUNT 1 STREAMS a b 0 0", &["a", "b"]),
            ("OBJECT ENCODING k", &["k"]),
            ("PING", &[]),
            ("GET", &[]),
        ];
        for (line, expected) in cases {
            assert_eq!(keys_of(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_written_is_known_where_no_other_key_can_be() {
        let written = |line: &str| {
            let command = Command::new(line.split(' '));
            let keys = written_keys(command.args());
            keys.into_iter()
                .map(|key| String::from_utf8_lossy(key).into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (line, keys) in [
            ("SET k v", "k"),
            ("MSET k 1 l 2", "k l"),
            ("RENAME k l", "k l"),
            ("ZUNIONSTORE k 2 l m", "k"),
            ("XGROUP CREATE k g 0", "k"),
        ] {
            assert_eq!(written(line), keys, "{line}");
        }
        for line in [
            "FLUSHALL",
            "SWAPDB 0 1",
            "EVAL s 1 k",
            "FCALL f 1 k",
            "SORT k STORE l",
            "GEORADIUS k 0 0 1 m STORE l",
            "MOVE k 3",
            "COPY k l DB 3",
            "MIGRATE h 1 k 0 9",
            "LMPOP 1 k LEFT",
            "NEW.COMMAND k",
        ] {
            assert_eq!(written(line), "", "{line}");
        }
    }

    #[test]
    fn one_key_is_known_only_where_there_can_be_no_other() {
        let touched = |line: &str| {
            let command = Command::new(line.split(' '));
            match touches(command.args()) {
                Touches::Nothing => "nothing".to_owned(),
                Touches::Key(key) => String::from_utf8_lossy(key).into_owned(),
                Touches::Anything => "anything".to_owned(),
            }
        };
        for line in [
            "SET k v",
            "GET k",
            "HSET k a b",
            "OBJECT ENCODING k",
            "XADD k * a b",
            "EXPIRE k 9",
            "DEL k",
            "MSET k 1",
        ] {
            assert_eq!(touched(line), "k", "{line}");
        }
        for line in [
            "MSET k 1 l 2",
            "DEL k l",
            "SORT k BY w_*",
            "SORT_RO k GET l_*",
            "GEORADIUS k 0 0 1 m STORE l",
            "RENAME k l",
            "EVAL s 1 k",
            "FLUSHALL",
            "KEYS *",
            "DBSIZE",
            "NOSUCH k",
            "LMPOP 1 k LEFT",
            "XREAD STREAMS k 0",
            "BITOP AND k l",
        ] {
            assert_eq!(touched(line), "anything", "{line}");
        }
        assert_eq!(touched("PING"), "nothing");
    }

    #[test]
    fn the_hash_is_over_database_and_key() {
        assert_eq!(key_hash(0, Some(b"k")), key_hash(0, Some(b"k")));
        assert_ne!(key_hash(0, Some(b"k")), key_hash(1, Some(b"k")));
        assert_ne!(key_hash(0, Some(b"k")), key_hash(0, Some(b"l")));
        assert_eq!(key_hash(3, None), KeyHash(0));
    }
}
