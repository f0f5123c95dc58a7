//! Reads back what writers wrote.
//!
//! Invariant: no reply is larger than about `PART_BYTES` and no question longer than about as many bytes as
//! `KEYS_MAX` keys take, which any service on the way must pass.

use super::writer::{token_of, Target};
use super::{HistoryOptions, Token};
use crate::process::wait_until;
use crate::resp::{Connection, Reply};
use crate::trouble::Trouble;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

// Values are read in parts of about so many bytes.
const PART_BYTES: usize = 256 << 10;
// Keys asked for at once.
const KEYS_MAX: usize = 500;
// What a value takes beyond its padding: its token and the protocol's frame.
const VALUE_BYTES: usize = 48;

/// Reads, trying again whatever fails until `deadline`: the service may still be recovering.
pub(super) fn patiently<T>(
    what: &str,
    options: &HistoryOptions,
    deadline: Instant,
    mut read: impl FnMut(&mut Connection) -> Result<T, String>,
) -> Result<T, Trouble> {
    let place = options.reading_place();
    let mut problem = String::new();
    let mut found = None;
    let patience = deadline.saturating_duration_since(Instant::now());
    wait_until(patience, || {
        let connection = Connection::open_at(&place, options.timeout);
        match connection.map_err(|error| error.to_string()).and_then(|mut connection| read(&mut connection)) {
            Ok(value) => found = Some(value),
            Err(error) => {
                problem = error;
                // A service that refuses is not asked again at once.
                std::thread::sleep(Duration::from_millis(3));
            }
        }
        found.is_some()
    });
    found.ok_or_else(|| {
        let tried = format!("read {what} back from {place}");
        Trouble::new(tried, problem, "see whether the service has recovered and what it logged")
    })
}

/// The values of a list from the index `first` on.
pub(super) fn list_from(
    connection: &mut Connection,
    key: &str,
    first: u64,
    padding_bytes: usize,
) -> Result<Vec<Option<Token>>, String> {
    let part_count = part_count(padding_bytes);
    let mut list = Vec::new();
    loop {
        let begin = first + list.len() as u64;
        let (begin, end) = (begin.to_string(), (begin + part_count as u64 - 1).to_string());
        let items = array(connection.call(&["LRANGE", key, &begin, &end]))?;
        let count = items.len();
        list.extend(items.into_iter().map(|item| match item {
            Reply::Bulk(value) => token_of(&value),
            _ => None,
        }));
        if count < part_count {
            return Ok(list);
        }
    }
}

/// Of the tokens that have keys of their own, those that are there.
pub(super) fn keys_of(
    connection: &mut Connection,
    prefix: &str,
    tokens: &BTreeSet<Token>,
    padding_bytes: usize,
) -> Result<BTreeSet<Token>, String> {
    let mut found = BTreeSet::new();
    let tokens: Vec<Token> = tokens.iter().copied().collect();
    for part in tokens.chunks(part_count(padding_bytes).min(KEYS_MAX)) {
        let mut words = vec!["MGET".to_owned()];
        words.extend(part.iter().map(|token| Target::key_of(prefix, *token)));
        let items = array(connection.call(&words))?;
        let right = |(token, item): &(&Token, Reply)| match item {
            Reply::Bulk(value) => token_of(value) == Some(**token),
            _ => false,
        };
        found.extend(part.iter().zip(items).filter(right).map(|(token, _)| *token));
    }
    Ok(found)
}

fn part_count(padding_bytes: usize) -> usize {
    (PART_BYTES / (VALUE_BYTES + padding_bytes)).max(1)
}

fn array(answer: Result<Reply, crate::resp::ReplyError>) -> Result<Vec<Reply>, String> {
    match answer {
        Ok(Reply::Array(items)) => Ok(items),
        Ok(other) => Err(format!("it answered {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}
