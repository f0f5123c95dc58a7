//! Clients of a service that speaks RESP, which set and read its keys, a batch of commands behind the other.
//!
//! Invariant: a latency runs from before a batch is sent until the command's own reply has been read; batches of the
//! warm-up are sent and not measured. Each connection has a thread of its own.

use super::stores::{StoreShape, PERCENTS};
use crate::keys::{KeyDraw, Popularity};
use scotfree_stage::resp::{Connection, Reply, ReplyError};
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Keys set at once where nothing is measured. A read that is sent with others is none that a device's cache learns from.
const AT_ONCE: u64 = 64;
/// Seconds that keys live that live at all: longer than any run.
const LIFE_S: &str = "86400";

/// How to fill a service, or to have all its keys read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FillRedisSpec {
    /// The service.
    pub address: SocketAddr,
    /// What it has.
    pub shape: StoreShape,
    /// Whether keys are set; if not, each is read.
    pub sets: bool,
    /// Whether they are keys that have a time to live; these have names of their own.
    pub expire: bool,
    /// How often that is done.
    pub rounds: u32,
}

/// How to use a service.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UseRedisSpec {
    /// The service.
    pub address: SocketAddr,
    /// What it has.
    pub shape: StoreShape,
    /// Whether they are keys that have a time to live; these are only read.
    pub expire: bool,
    /// Which keys are asked for.
    pub popularity: Popularity,
    /// How many of a hundred commands are SETs; the others are GETs.
    pub updates_percent: u32,
    /// How many connections there are.
    pub connections: u32,
    /// How many commands each sends at once.
    pub pipeline: u32,
    /// Whether clients look for replies instead of sleeping.
    pub looks: bool,
    /// How long it is measured.
    pub time_ms: u64,
    /// How long commands are sent before.
    pub warmup_ms: u64,
    /// What is drawn.
    pub seed: u64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UseRedisReport {
    /// Commands per second.
    pub requests_per_s: f64,
    /// Latencies of all commands.
    pub calls: Summary,
    /// The same at [`PERCENTS`], in nanoseconds.
    pub calls_ns: BTreeMap<u32, u64>,
    /// Of the SETs and of the GETs alone, if there were any.
    pub updates: Option<Summary>,
    /// See above.
    pub reads: Option<Summary>,
    /// GETs that were sent, the warm-up's with them.
    pub reads_sent: u64,
    /// SETs that were sent, the warm-up's with them.
    pub updates_sent: u64,
    /// Replies that are no value of the right size, or no OK.
    pub wrong_replies: u64,
}

/// Sets or reads every key.
pub(super) fn fill(spec: &FillRedisSpec) -> Result<(), Trouble> {
    let broke = |error| broke(spec.address, error);
    let mut connection = open(spec.address, false).map_err(broke)?;
    let at_once = if spec.sets { AT_ONCE } else { 1 };
    for _ in 0..spec.rounds {
        let mut wrong = 0;
        for first in (0..spec.shape.keys).step_by(at_once as usize) {
            let keys = first..spec.shape.keys.min(first + at_once);
            wrong += pass(&mut connection, spec, keys).map_err(broke)?;
        }
        if wrong > 0 {
            let next = "see whether the service has all keys, and its log";
            let problem = format!("{wrong} replies were others than expected");
            return Err(Trouble::new(format!("pass over the keys at {}", spec.address), problem, next));
        }
    }
    Ok(())
}

fn pass(
    connection: &mut Connection,
    spec: &FillRedisSpec,
    keys: std::ops::Range<u64>,
) -> Result<u64, ReplyError> {
    let value = value(spec.shape.value_bytes);
    for key in keys.clone().map(|key| key_name(key, spec.expire)) {
        match (spec.sets, spec.expire) {
            (true, true) => connection.push(&["SET", &key, &value, "EX", LIFE_S]),
            (true, false) => connection.push(&["SET", &key, &value]),
            (false, _) => connection.push(&["GET", &key]),
        }
    }
    connection.flush()?;
    let mut wrong = 0;
    for _ in keys {
        wrong += u64::from(!is_right(&connection.read()?, spec.sets, spec.shape.value_bytes));
    }
    Ok(wrong)
}

/// Uses the service and measures it.
pub(super) fn measure(spec: &UseRedisSpec) -> Result<UseRedisReport, Trouble> {
    let broke = |error| broke(spec.address, error);
    let open = |number| User::start(spec, number);
    let mut users = (0..spec.connections).map(open).collect::<Result<Vec<_>, _>>().map_err(broke)?;
    let begin = Barrier::new(users.len());
    let run = |user: &mut User<'_>| -> Result<Tally, ReplyError> {
        let before = user.run(Duration::from_millis(spec.warmup_ms));
        // All are measured at the same time; who has failed lets nobody wait.
        begin.wait();
        let before = before?;
        Ok(user.run(Duration::from_millis(spec.time_ms))?.behind(&before))
    };
    let tallies: Result<Vec<Tally>, ReplyError> = thread::scope(|scope| {
        let threads: Vec<_> = users.iter_mut().map(|user| scope.spawn(move || run(user))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a user does not panic")).collect()
    });
    let tallies = tallies.map_err(broke)?;
    report(&tallies).ok_or_else(|| {
        Trouble::new("measure commands", "none were answered", "give it more than a millisecond")
    })
}

fn report(tallies: &[Tally]) -> Option<UseRedisReport> {
    let mut all = Tally::default();
    for tally in tallies {
        all.add(tally);
    }
    let mut calls = all.updates.clone();
    calls.add(&all.reads);
    Some(UseRedisReport {
        requests_per_s: tallies.iter().map(Tally::per_second).sum(),
        calls: calls.summary()?,
        calls_ns: calls.percentiles(&PERCENTS)?,
        updates: all.updates.summary(),
        reads: all.reads.summary(),
        reads_sent: all.reads_sent,
        updates_sent: all.updates_sent,
        wrong_replies: all.wrong_replies,
    })
}

fn broke(address: SocketAddr, error: ReplyError) -> Trouble {
    Trouble::new(format!("use the service at {address}"), error, "see whether it listens there, and its log")
}

fn open(address: SocketAddr, looks: bool) -> Result<Connection, ReplyError> {
    let open = if looks { Connection::open_looking } else { Connection::open };
    Ok(open(address, REPLY_TIMEOUT)?)
}

fn key_name(key: u64, expires: bool) -> String {
    let kind = if expires { "live" } else { "user" };
    format!("{kind}{key:012}")
}

fn value(bytes: usize) -> String {
    "v".repeat(bytes)
}

fn is_right(reply: &Reply, is_set: bool, value_bytes: usize) -> bool {
    match reply {
        Reply::Simple(text) => is_set && text == "OK",
        Reply::Bulk(value) => !is_set && value.len() == value_bytes,
        _ => false,
    }
}

struct User<'a> {
    spec: &'a UseRedisSpec,
    connection: Connection,
    keys: KeyDraw,
    random: Random,
    value: String,
    /// Whether each command of a batch is a SET.
    batch: Vec<bool>,
}

#[derive(Debug, Default)]
struct Tally {
    elapsed: Duration,
    updates: Latencies,
    reads: Latencies,
    updates_sent: u64,
    reads_sent: u64,
    wrong_replies: u64,
}

impl Tally {
    /// What was sent before is counted, and not measured.
    fn behind(mut self, before: &Tally) -> Tally {
        self.updates_sent += before.updates_sent;
        self.reads_sent += before.reads_sent;
        self.wrong_replies += before.wrong_replies;
        self
    }

    fn add(&mut self, other: &Tally) {
        self.updates.add(&other.updates);
        self.reads.add(&other.reads);
        self.updates_sent += other.updates_sent;
        self.reads_sent += other.reads_sent;
        self.wrong_replies += other.wrong_replies;
    }

    fn per_second(&self) -> f64 {
        (self.updates.count() + self.reads.count()) as f64 / self.elapsed.as_secs_f64()
    }
}

impl<'a> User<'a> {
    fn start(spec: &'a UseRedisSpec, number: u32) -> Result<User<'a>, ReplyError> {
        Ok(User {
            spec,
            connection: open(spec.address, spec.looks)?,
            keys: KeyDraw::new(spec.shape.keys, spec.popularity),
            random: Random::new(spec.seed, u64::from(number)),
            value: value(spec.shape.value_bytes),
            batch: Vec::new(),
        })
    }

    fn run(&mut self, time: Duration) -> Result<Tally, ReplyError> {
        let mut tally = Tally::default();
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.push_batch();
            let begin = Instant::now();
            self.connection.flush()?;
            self.read_batch(begin, &mut tally)?;
        }
        tally.elapsed = begin.elapsed();
        Ok(tally)
    }

    fn push_batch(&mut self) {
        self.batch.clear();
        for _ in 0..self.spec.pipeline {
            let key = key_name(self.keys.draw(&mut self.random), self.spec.expire);
            let is_set = self.random.below(100) < u64::from(self.spec.updates_percent);
            if is_set {
                self.connection.push(&["SET", &key, &self.value]);
            } else {
                self.connection.push(&["GET", &key]);
            }
            self.batch.push(is_set);
        }
    }

    fn read_batch(&mut self, begin: Instant, tally: &mut Tally) -> Result<(), ReplyError> {
        for is_set in &self.batch {
            let reply = self.connection.read()?;
            let (latencies, sent) = if *is_set {
                (&mut tally.updates, &mut tally.updates_sent)
            } else {
                (&mut tally.reads, &mut tally.reads_sent)
            };
            latencies.record(begin.elapsed());
            *sent += 1;
            let is_right = is_right(&reply, *is_set, self.spec.shape.value_bytes);
            tally.wrong_replies += u64::from(!is_right);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::fake_redis::FakeRedis;

    fn spec(service: &FakeRedis) -> UseRedisSpec {
        UseRedisSpec {
            address: service.address(),
            shape: StoreShape { keys: 100, value_bytes: 20 },
            expire: false,
            popularity: Popularity::Zipf,
            updates_percent: 50,
            connections: 2,
            pipeline: 4,
            looks: false,
            time_ms: 20,
            warmup_ms: 5,
            seed: 1,
        }
    }

    fn fill_of(service: &FakeRedis, sets: bool) -> FillRedisSpec {
        let shape = StoreShape { keys: 100, value_bytes: 20 };
        FillRedisSpec { address: service.address(), shape, sets, expire: false, rounds: 2 }
    }

    #[test]
    fn what_was_filled_is_set_and_read_by_all_connections() {
        let service = FakeRedis::start();
        fill(&fill_of(&service, true)).expect("it takes all keys");
        fill(&fill_of(&service, false)).expect("it has all keys");
        for looks in [false, true] {
            let spec = UseRedisSpec { looks, ..spec(&service) };
            let report = measure(&spec).expect("it answers");
            let count = |summary: &Option<Summary>| summary.as_ref().map_or(0, |summary| summary.count);
            let (updates, reads) = (count(&report.updates), count(&report.reads));
            assert_eq!(updates + reads, report.calls.count);
            assert!(updates > 0 && reads > 0 && report.wrong_replies == 0, "{report:?}");
            assert!(report.updates_sent > updates && report.reads_sent > reads, "the warm-up is counted");
        }
    }

    #[test]
    fn a_service_without_the_keys_is_named_and_its_replies_are_wrong() {
        let service = FakeRedis::start();
        let error = fill(&fill_of(&service, false)).expect_err("it has none").to_string();
        assert!(error.contains("100 replies") && error.contains(&service.address().to_string()), "{error}");
        let spec = UseRedisSpec { updates_percent: 0, ..spec(&service) };
        let report = measure(&spec).expect("it answers");
        assert_eq!(report.wrong_replies, report.reads_sent);
    }
}
