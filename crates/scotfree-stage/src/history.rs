//! Checks durability and exactly-once of a real service: unique tokens are appended to lists, the service
//! is killed and restarted by somebody else, and the lists are read back.
//!
//! Invariant: a token counts as acknowledged only if the service's good reply to it was read; whatever
//! else was sent has an unknown outcome. Nothing is ever sent twice, so whatever is found twice was
//! applied twice by the service.

mod judge;
mod reader;
mod writer;

pub use judge::check;

use crate::resp::Place;
use crate::trouble::Trouble;
use judge::Judge;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use writer::{Target, Writer};

/// Tokens that one history holds; writers stop when it is full.
pub const TOKENS_MAX: usize = 4_000_000;

/// One appended value, unique in its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The connection that sent it, counted by its writer from 1.
    pub connection: u32,
    /// Its place among the tokens of its writer, from 1.
    pub index: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.connection, self.index)
    }
}

impl FromStr for Token {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (connection, index) = text.split_once('-').ok_or(())?;
        Ok(Token { connection: connection.parse().map_err(drop)?, index: index.parse().map_err(drop)? })
    }
}

/// What became of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// Tokens that the service acknowledged.
    pub acked: u64,
    /// Tokens sent whose outcome is unknown.
    pub unknown: u64,
    /// Values found in the lists.
    pub found: u64,
    /// Acknowledged tokens that were not found.
    pub lost: u64,
    /// Occurrences of a token beyond its first.
    pub doubled: u64,
    /// Tokens found behind one that was sent after they were acknowledged, or after them on the same
    /// connection.
    pub out_of_order: u64,
    /// Values that nobody sent.
    pub foreign: u64,
}

impl Verdict {
    /// Whether nothing was lost, doubled, reordered or invented.
    pub fn is_good(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.out_of_order == 0 && self.foreign == 0
    }

    /// The sum of two verdicts on different lists.
    #[must_use]
    pub fn plus(self, other: Verdict) -> Verdict {
        Verdict {
            acked: self.acked + other.acked,
            unknown: self.unknown + other.unknown,
            found: self.found + other.found,
            lost: self.lost + other.lost,
            doubled: self.doubled + other.doubled,
            out_of_order: self.out_of_order + other.out_of_order,
            foreign: self.foreign + other.foreign,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { acked, unknown, found, lost, doubled, out_of_order, foreign } = self;
        write!(f, "{acked} acknowledged, {found} found, {lost} lost, {doubled} applied twice")?;
        write!(f, ", {out_of_order} out of order")?;
        if *unknown > 0 {
            write!(f, ", {unknown} with unknown outcome")?;
        }
        if *foreign > 0 {
            write!(f, ", {foreign} that nobody sent")?;
        }
        Ok(())
    }
}

/// How to write a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryOptions {
    /// The service.
    pub address: SocketAddr,
    /// Writers, each with a connection and a list of its own.
    pub writers: u32,
    /// Further writers, each with a connection of its own, that set a key of its own for each token;
    /// such a command may be answered before the server has seen it.
    pub key_writers: u32,
    /// Tokens of one writer that may wait for their replies.
    pub outstanding_max: usize,
    /// How long a writer rests when nothing of it waits for a reply.
    pub pause: Duration,
    /// Bytes that are added to each token, so that values have a size.
    pub padding_bytes: usize,
    /// How long connecting, sending and receiving may each take.
    pub timeout: Duration,
    /// The part of the keys before the writer's number.
    pub key_prefix: String,
    /// Where tokens are read back from, if not from the service itself: a socket of the server behind it.
    pub read_at: Option<PathBuf>,
}

impl HistoryOptions {
    /// Two writers with one token at a time.
    pub fn new(address: SocketAddr) -> HistoryOptions {
        HistoryOptions {
            address,
            writers: 2,
            key_writers: 0,
            outstanding_max: 1,
            pause: Duration::ZERO,
            padding_bytes: 0,
            timeout: Duration::from_secs(2),
            key_prefix: "scot:hist:".into(),
            read_at: None,
        }
    }
}

/// What the writers were told so far; kept over any number of crashes.
#[derive(Debug, Default)]
pub struct History {
    lists: Vec<ListWriter>,
    keys: Vec<KeyWriter>,
}

#[derive(Debug, Default)]
struct ListWriter {
    writer: Writer,
    // What was found by the last reading.
    judge: Judge,
}

#[derive(Debug, Default)]
struct KeyWriter {
    writer: Writer,
    // Tokens whose keys have been found.
    found: BTreeSet<Token>,
}

impl History {
    /// A history in which nothing was sent.
    pub fn new() -> History {
        History::default()
    }

    /// Tokens that were acknowledged so far.
    pub fn acknowledged_count(&self) -> u64 {
        self.writers().map(|writer| writer.told.acknowledged.len() as u64).sum()
    }

    /// Tokens whose outcome is unknown.
    pub fn unknown_count(&self) -> u64 {
        self.writers().map(|writer| writer.told.unknown.len() as u64).sum()
    }

    /// Error replies; what they answered counts as of unknown outcome.
    pub fn refused_count(&self) -> u64 {
        self.writers().map(|writer| writer.refused_count).sum()
    }

    fn writers(&self) -> impl Iterator<Item = &Writer> {
        let lists = self.lists.iter().map(|list| &list.writer);
        lists.chain(self.keys.iter().map(|keys| &keys.writer))
    }

    /// Appends tokens until `stop` is set, reconnecting whenever a connection breaks. `on_ack` is told
    /// each time a reply was read.
    pub fn write(&mut self, options: &HistoryOptions, stop: &AtomicBool, on_ack: impl Fn() + Sync) {
        self.write_telling(options, stop, |_| on_ack());
    }

    /// As [`History::write`], and `on_ack` is told whose reply it was: those who set keys come last.
    pub fn write_telling(
        &mut self,
        options: &HistoryOptions,
        stop: &AtomicBool,
        on_ack: impl Fn(usize) + Sync,
    ) {
        let (lists_count, keys_count) = (options.writers as usize, options.key_writers as usize);
        self.lists.resize_with(self.lists.len().max(lists_count), ListWriter::default);
        self.keys.resize_with(self.keys.len().max(keys_count), KeyWriter::default);
        let tokens_max = TOKENS_MAX / (lists_count + keys_count).max(1);
        let lists = self.lists.iter_mut().take(lists_count).map(|list| &mut list.writer);
        let lists =
            lists.enumerate().map(|(number, writer)| (Target::List(list_of(options, number)), writer));
        let keys = self.keys.iter_mut().take(keys_count).map(|keys| &mut keys.writer);
        let keys =
            keys.enumerate().map(|(number, writer)| (Target::Keys(prefix_of(options, number)), writer));
        thread::scope(|scope| {
            for (number, (target, writer)) in lists.chain(keys).enumerate() {
                let on_ack = &on_ack;
                scope.spawn(move || writer.write(&target, options, stop, tokens_max, &|| on_ack(number)));
            }
        });
    }

    /// Appends tokens for a time.
    pub fn write_for(&mut self, options: &HistoryOptions, span: Duration) {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(span);
                stop.store(true, Ordering::Relaxed);
            });
            self.write(options, &stop, || ());
        });
    }

    /// Reads everything back and judges it. The service may still be recovering: what fails is tried
    /// again for as long as `patience`.
    pub fn verify(&mut self, options: &HistoryOptions, patience: Duration) -> Result<Verdict, Trouble> {
        for list in &mut self.lists {
            list.judge = Judge::default();
        }
        for keys in &mut self.keys {
            keys.found.clear();
        }
        self.verify_new(options, patience)
    }

    /// As [`History::verify`], but reads only what has been added since the last reading. A list that has
    /// changed below that is read and judged anew; a key that was found once is not looked for again.
    pub fn verify_new(&mut self, options: &HistoryOptions, patience: Duration) -> Result<Verdict, Trouble> {
        let deadline = Instant::now() + patience;
        let mut sum = Verdict::default();
        for (number, list) in self.lists.iter_mut().enumerate() {
            sum = sum.plus(list.verify(&list_of(options, number), options, deadline)?);
        }
        for (number, keys) in self.keys.iter_mut().enumerate() {
            sum = sum.plus(keys.verify(&prefix_of(options, number), options, deadline)?);
        }
        Ok(sum)
    }
}

impl HistoryOptions {
    fn reading_place(&self) -> Place {
        self.read_at.clone().map_or(Place::Tcp(self.address), Place::Unix)
    }
}

fn list_of(options: &HistoryOptions, number: usize) -> String {
    format!("{}{number}", options.key_prefix)
}

fn prefix_of(options: &HistoryOptions, number: usize) -> String {
    format!("{}set:{number}:", options.key_prefix)
}

impl ListWriter {
    fn verify(&mut self, key: &str, options: &HistoryOptions, deadline: Instant) -> Result<Verdict, Trouble> {
        let what = format!("the list `{key}`");
        let padding_bytes = options.padding_bytes;
        // One value of the part judged before is read again, to see whether it is still in its place.
        let first = self.judge.found().saturating_sub(1);
        let part = reader::patiently(&what, options, deadline, |connection| {
            reader::list_from(connection, key, first, padding_bytes)
        })?;
        match self.judge.last() {
            None => self.judge.admit(&self.writer.told, &part),
            Some(last) if part.first() == Some(&last) => self.judge.admit(&self.writer.told, &part[1..]),
            Some(_) => {
                self.judge = Judge::default();
                let whole = reader::patiently(&what, options, deadline, |connection| {
                    reader::list_from(connection, key, 0, padding_bytes)
                })?;
                self.judge.admit(&self.writer.told, &whole);
            }
        }
        Ok(self.judge.verdict(&self.writer.told))
    }
}

impl KeyWriter {
    fn verify(
        &mut self,
        prefix: &str,
        options: &HistoryOptions,
        deadline: Instant,
    ) -> Result<Verdict, Trouble> {
        let told = &self.writer.told;
        let wanted: BTreeSet<Token> = told.acknowledged.difference(&self.found).copied().collect();
        let found = reader::patiently(&format!("the keys `{prefix}*`"), options, deadline, |connection| {
            reader::keys_of(connection, prefix, &wanted, options.padding_bytes)
        })?;
        self.found.extend(found);
        // A key that is set twice looks the same, so of these writers only losses can be seen.
        Ok(Verdict {
            acked: told.acknowledged.len() as u64,
            unknown: told.unknown.len() as u64,
            found: self.found.len() as u64,
            lost: (told.acknowledged.len() - self.found.len()) as u64,
            ..Verdict::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_redis::FakeRedis;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_service_that_breaks_connections_but_keeps_all_is_good() {
        let service = FakeRedis::start();
        let options = HistoryOptions { outstanding_max: 4, padding_bytes: 10, ..options(&service) };
        let mut history = History::new();
        write_until(&mut history, &options, 2_000, |count| {
            if count % 300 == 0 {
                service.break_connections();
            }
        });
        let verdict = history.verify(&options, PATIENCE).expect("the service answers");
        assert!(verdict.is_good(), "{verdict}");
        assert!(verdict.acked >= 2_000 && verdict.unknown > 0, "{verdict}");
        assert!(verdict.found >= verdict.acked);
    }

    #[test]
    fn a_service_that_loses_or_doubles_is_found_out() {
        let service = FakeRedis::start();
        let options = one_writer(&service);
        let mut history = History::new();
        write_until(&mut history, &options, 200, |_| ());
        service.change_list("scot:hist:0", |list| {
            list.pop();
            list.push(list[0].clone());
        });
        let verdict = history.verify(&options, PATIENCE).expect("the service answers");
        assert_eq!((verdict.lost, verdict.doubled), (1, 1), "{verdict}");
    }

    #[test]
    fn keys_of_their_own_are_looked_for_too() {
        let service = FakeRedis::start();
        let options = HistoryOptions { writers: 0, key_writers: 1, outstanding_max: 8, ..options(&service) };
        let mut history = History::new();
        write_until(&mut history, &options, 300, |_| ());
        let verdict = history.verify(&options, PATIENCE).expect("the service answers");
        assert!(verdict.is_good() && verdict.found >= 300, "{verdict}");
        service.change_list("scot:hist:set:0:1-3", Vec::clear);
        let verdict = history.verify(&options, PATIENCE).expect("the service answers");
        assert_eq!(verdict.lost, 1, "{verdict}");
        let verdict = history.verify_new(&options, PATIENCE).expect("the service answers");
        assert_eq!(verdict.lost, 1, "it is looked for again: {verdict}");
    }

    #[test]
    fn reading_what_is_new_finds_what_reading_all_finds() {
        let service = FakeRedis::start();
        let options = one_writer(&service);
        let mut history = History::new();
        for round in 1..=4 {
            write_until(&mut history, &options, round * 100, |_| ());
            let verdict = history.verify_new(&options, PATIENCE).expect("the service answers");
            assert!(verdict.is_good(), "{verdict}");
            assert_eq!(verdict, history.verify(&options, PATIENCE).expect("the service answers"));
        }
        // Lost below what was read already, and as many added: the list is no shorter than before.
        service.change_list("scot:hist:0", |list| drop(list.remove(7)));
        write_until(&mut history, &options, 500, |_| ());
        let verdict = history.verify_new(&options, PATIENCE).expect("the service answers");
        assert_eq!((verdict.lost, verdict.doubled, verdict.out_of_order), (1, 0, 0), "{verdict}");
    }

    #[test]
    fn a_history_goes_on_after_it_was_checked() {
        let service = FakeRedis::start();
        let options = options(&service);
        let mut history = History::new();
        for round in 1..=3 {
            write_until(&mut history, &options, round * 100, |_| ());
            assert!(history.verify(&options, PATIENCE).expect("the service answers").is_good());
        }
    }

    #[test]
    fn refusals_are_of_unknown_outcome() {
        let service = FakeRedis::start();
        let options = HistoryOptions { writers: 1, ..options(&service) };
        service.refuse(3);
        let mut history = History::new();
        write_until(&mut history, &options, 10, |_| ());
        assert_eq!((history.refused_count(), history.unknown_count()), (3, 3));
        assert!(history.verify(&options, PATIENCE).expect("the service answers").is_good());
    }

    #[test]
    fn a_service_that_is_gone_is_named() {
        let service = FakeRedis::start();
        let options = options(&service);
        let mut history = History::new();
        write_until(&mut history, &options, 10, |_| ());
        drop(service);
        let error = history.verify(&options, Duration::from_millis(50)).expect_err("it is gone").to_string();
        assert!(error.contains(&options.address.to_string()), "{error}");
    }

    fn options(service: &FakeRedis) -> HistoryOptions {
        HistoryOptions::new(service.address())
    }

    /// One writer, for tests that need many tokens in one list.
    fn one_writer(service: &FakeRedis) -> HistoryOptions {
        HistoryOptions { writers: 1, ..options(service) }
    }

    /// Writes until `count` tokens are acknowledged in all.
    fn write_until(
        history: &mut History,
        options: &HistoryOptions,
        count: u64,
        on_count: impl Fn(u64) + Sync,
    ) {
        let acknowledged = std::sync::atomic::AtomicU64::new(history.acknowledged_count());
        let stop = AtomicBool::new(false);
        history.write(options, &stop, || {
            let now = acknowledged.fetch_add(1, Ordering::Relaxed) + 1;
            on_count(now);
            if now >= count {
                stop.store(true, Ordering::Relaxed);
            }
        });
    }
}
