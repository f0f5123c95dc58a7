//! An operator's questions: `ls COUNT`, `why DATABASE KEY`, `drop DATABASE KEY` and `drop all`, keys in hexadecimal.
//!
//! Invariant: a key is said to whoever holds the cluster's secret alone; the daemon sees to that.

use crate::cache::{Cache, Listed};
use crate::language::Language;
use scotfree_core::{from_hex, to_hex, Nanos, ServerIndex, SessionId, SessionName};
use std::fmt::Write as _;

/// An answer is made while packets wait.
const LISTED_MAX: usize = 10_000;

/// A question that is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// What is kept, at most so many.
    List(usize),
    /// Why a key is answered, or not.
    Why(u16, Vec<u8>),
    /// That a key is forgotten.
    Drop(u16, Vec<u8>),
    /// That all are.
    DropAll,
}

impl Asked {
    /// The question.
    ///
    /// # Errors
    /// What is wrong with it, in words for who asks.
    pub fn parse(text: &str) -> Result<Asked, String> {
        let wrong = || {
            format!(
                "`{text}` is no question to a cache: ls COUNT, why DATABASE KEY, drop DATABASE KEY, drop all"
            )
        };
        let words: Vec<&str> = text.split(' ').collect();
        let key = |database: &str, key: &str| Some((database.parse().ok()?, from_hex(key)?));
        let asked = match words[..] {
            ["ls", count] => count.parse().ok().map(|count: usize| Asked::List(count.min(LISTED_MAX))),
            ["drop", "all"] => Some(Asked::DropAll),
            ["why", database, of] => key(database, of).map(|(database, key)| Asked::Why(database, key)),
            ["drop", database, of] => key(database, of).map(|(database, key)| Asked::Drop(database, key)),
            _ => None,
        };
        asked.ok_or_else(wrong)
    }

    /// The answer of the caches of all servers, a line for each thing.
    pub fn of_all<'c>(
        &self,
        now: Nanos,
        language: &dyn Language,
        caches: impl Iterator<Item = (ServerIndex, &'c mut Cache)>,
    ) -> String {
        let mut text = String::new();
        for (server, cache) in caches {
            match self {
                Asked::List(count) => {
                    for listed in cache.listed(now, *count) {
                        line(&mut text, server, language, &listed);
                    }
                }
                Asked::Why(database, key) => {
                    let mut read = Vec::new();
                    let hash = language.named(*database, key, &mut read);
                    let asker = SessionName { server, id: SessionId(0) };
                    let _ = writeln!(text, "server {}: {}", server.0, cache.why(now, asker, hash, &read));
                }
                Asked::Drop(database, key) => {
                    let mut read = Vec::new();
                    let hash = language.named(*database, key, &mut read);
                    let said = if cache.forget(hash) { "forgotten" } else { "nothing was known of it" };
                    let _ = writeln!(text, "server {}: {said}", server.0);
                }
                Asked::DropAll => {
                    let _ = writeln!(text, "server {}: {} values forgotten", server.0, cache.forget_all());
                }
            }
        }
        text
    }
}

/// Server, database, key in hexadecimal, bytes, milliseconds left or `-`, whether it is pending, and the command if it is
/// not the plain one.
fn line(text: &mut String, server: ServerIndex, language: &dyn Language, listed: &Listed) {
    let Some((database, key, command)) = language.shown(&listed.key) else { return };
    let left = listed.left.map_or_else(|| "-".to_owned(), |left| (left.0 / 1_000_000).to_string());
    let state = if listed.is_pending { "pending" } else { "persisted" };
    let _ = write!(text, "{} {database} {} {} {left} {state}", server.0, to_hex(key), listed.value_bytes);
    let space = if command.is_empty() { "" } else { " " };
    let _ = writeln!(text, "{space}{command}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::Redis;
    use scotfree_core::KeyHash;

    #[test]
    fn whole_reads_are_shown_with_their_command_and_named_as_gets() {
        let (mut named, mut form) = (Vec::new(), Vec::new());
        let hash = Redis.named(3, b"k", &mut named);
        assert_eq!((hash, Redis.shown(&named)), (KeyHash::of(3, b"k"), Some((3, &b"k"[..], ""))));
        let payload = b"\x01\0\0\0\x03\0\0\0\0\0*3\r\n$4\r\nHGET\r\n$1\r\nk\r\n$1\r\nf\r\n";
        assert!(Redis.whole_read(payload, &mut form).is_some());
        assert_eq!(Redis.shown(&form), Some((3, &b"k"[..], "HGET")));
        for wrong in [&b""[..], b"\x02", b"\x02\0\0\x04\0\0\0HG", b"\x02\0\0\xff\xff\xff\xffHGET"] {
            assert_eq!(Redis.shown(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn questions_are_read_and_others_are_told_what_is_one() {
        assert_eq!(Asked::parse("ls 20"), Ok(Asked::List(20)));
        assert_eq!(Asked::parse("ls 4000000000"), Ok(Asked::List(LISTED_MAX)));
        assert_eq!(Asked::parse("why 3 6b0a"), Ok(Asked::Why(3, b"k\n".to_vec())));
        assert_eq!(Asked::parse("drop 0 "), Ok(Asked::Drop(0, Vec::new())));
        assert_eq!(Asked::parse("drop all"), Ok(Asked::DropAll));
        for wrong in
            ["", "ls", "ls -1", "why 3", "why 70000 6b", "why 0 6", "why 0 +b", "drop", "get 0 6b", "ls 1 2"]
        {
            let said = Asked::parse(wrong).expect_err("it is none");
            assert!(said.contains("ls COUNT, why DATABASE KEY"), "{said}");
        }
    }
}
