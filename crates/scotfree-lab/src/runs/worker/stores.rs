//! A client that updates and reads the keys of the embedded server, one call behind the other.
//!
//! Invariant: a latency runs from before a call is handed to the runtime until its completion has been
//! taken from it; calls of the warm-up are made but not measured. What a read returns is compared with what
//! this client last wrote there, be it complete by whoever's word.

use super::embedded::{is_again, parse_reply, write_get, write_request};
use crate::keys::{KeyDraw, Popularity};
use scotfree_core::Tier;
use scotfree_rpc::{start_session, Session, SessionConfig, SessionError, SessionOptions};
use scotfree_stage::resp::Reply;
use scotfree_stage::stats::Latencies;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long one reply may take before the measurement is given up.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The percentiles of which a distribution can be drawn.
pub const PERCENTS: [u32; 12] = [1, 5, 10, 20, 25, 40, 50, 60, 75, 90, 95, 99];
/// What a value begins with: the number of the write that it came by.
const NUMBER_DIGITS: usize = 12;
/// Keys set by one request, and requests on their way, while a store is filled.
const FILLED_AT_ONCE: usize = 8;
const FILLING_OUTSTANDING_MAX: usize = 32;

/// Which keys a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreShape {
    /// How many.
    pub keys: u64,
    /// The size of a value.
    pub value_bytes: usize,
}

/// How to fill a store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FillSpec {
    /// The server.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// What it shall have.
    pub shape: StoreShape,
}

/// How to use a store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UseSpec {
    /// The server.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// What devices must give before an update is complete; where nothing is asked, the server's reply
    /// completes it.
    #[serde(with = "crate::tier_text")]
    pub tier: Tier,
    /// What it has.
    pub shape: StoreShape,
    /// Which keys are asked for.
    pub popularity: Popularity,
    /// How many of a hundred calls are updates.
    pub updates_percent: u32,
    /// Whether reads ask for a note, so that a cache may answer them.
    #[serde(default)]
    pub is_noted: bool,
    /// How long it is measured.
    pub time_ms: u64,
    /// How long calls are made before; until a device completes updates, if one is asked to.
    pub warmup_ms: u64,
    /// What is drawn.
    pub seed: u64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UseReport {
    /// Calls per second.
    pub requests_per_s: f64,
    /// Latencies in nanoseconds at [`PERCENTS`] of all calls.
    pub calls_ns: BTreeMap<u32, u64>,
    /// Their mean.
    pub mean_ns: f64,
    /// The same of the updates alone, and of the reads, if there were any.
    pub updates_ns: Option<BTreeMap<u32, u64>>,
    /// See above.
    pub reads_ns: Option<BTreeMap<u32, u64>>,
    /// How many updates were made, and how many of them a device completed.
    pub updates: u64,
    /// See above.
    pub updates_early: u64,
    /// How many reads were made.
    pub reads: u64,
    /// How many of them a cache has answered.
    pub reads_again: u64,
    /// Replies that are no value of the right size, or no success.
    pub wrong_replies: u64,
    /// Reads that returned another value than this client had last written.
    pub stale_reads: u64,
    /// Requests that were sent again.
    pub retransmitted: u64,
    /// Packets that were refused.
    pub refused: u64,
}

/// Sets every key once.
pub(super) fn fill(spec: &FillSpec) -> Result<(), Trouble> {
    let key = ClusterKey::from_bytes(spec.cluster_key);
    fill_session(spec, &SessionConfig::new(spec.server, key)).map_err(|error| broke(spec.server, error))
}

fn fill_session(spec: &FillSpec, config: &SessionConfig) -> Result<(), SessionError> {
    let config = SessionConfig { options: options(Tier::NONE), ..config.clone() };
    let mut session = start_session(&config)?;
    let (mut payload, mut value) = (Vec::new(), Vec::new());
    for first in (0..spec.shape.keys).step_by(FILLED_AT_ONCE) {
        let mut words = vec![b"MSET".to_vec()];
        for key in first..spec.shape.keys.min(first + FILLED_AT_ONCE as u64) {
            write_value(0, spec.shape.value_bytes, &mut value);
            words.extend([key_name(key).into_bytes(), value.clone()]);
        }
        write_request(&[&words], false, &mut payload);
        session.send_update(b"fill", &payload)?;
        while session.outstanding() >= FILLING_OUTSTANDING_MAX {
            session.next_reply(REPLY_TIMEOUT)?;
        }
    }
    session.end_session()
}

/// How to have every key read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadAllSpec {
    /// Of what.
    pub store: FillSpec,
    /// How often.
    pub rounds: u32,
}

/// Reads every key as often as told, by a client who takes notes, so that a cache knows it afterwards.
pub(super) fn read_all(spec: &ReadAllSpec) -> Result<(), Trouble> {
    let server = spec.store.server;
    let key = ClusterKey::from_bytes(spec.store.cluster_key);
    read_session(spec, &SessionConfig::new(server, key)).map_err(|error| broke(server, error))
}

fn read_session(spec: &ReadAllSpec, config: &SessionConfig) -> Result<(), SessionError> {
    let config = SessionConfig { options: options(Tier::NONE), ..config.clone() };
    let mut session = start_session(&config)?;
    let mut payload = Vec::new();
    for key in (0..spec.rounds).flat_map(|_| 0..spec.store.shape.keys).map(key_name) {
        write_get(&key, true, &mut payload);
        session.read(key.as_bytes(), &payload)?;
        while session.outstanding() >= FILLING_OUTSTANDING_MAX {
            session.next_reply(REPLY_TIMEOUT)?;
        }
    }
    session.end_session()
}

/// Uses the store and measures it.
pub(super) fn measure(spec: &UseSpec) -> Result<UseReport, Trouble> {
    let problem = |error| broke(spec.server, error);
    let mut user = User::start(spec).map_err(problem)?;
    user.warm_up().map_err(problem)?;
    let tally = user.run(Duration::from_millis(spec.time_ms), |_| true).map_err(problem)?;
    user.session.end_session().map_err(problem)?;
    tally.report().ok_or_else(|| {
        Trouble::new("measure calls of a store", "none were made", "give it more than a millisecond")
    })
}

fn broke(server: SocketAddr, error: SessionError) -> Trouble {
    Trouble::new(format!("call the server {server}"), error, "see the logs of the server and of the device")
}

fn options(tier: Tier) -> SessionOptions {
    SessionOptions { tier, ..SessionOptions::default() }
}

fn key_name(key: u64) -> String {
    format!("user{key:012}")
}

/// A value that says by which write it came.
fn write_value(number: u64, bytes: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(format!("{number:0NUMBER_DIGITS$}").as_bytes());
    out.resize(bytes.max(NUMBER_DIGITS), b'.');
}

/// The write by which a value came.
fn number_of(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value.get(..NUMBER_DIGITS)?).ok()?.parse().ok()
}

struct User<'a> {
    spec: &'a UseSpec,
    session: Session,
    keys: KeyDraw,
    random: Random,
    /// The last write of each key, 0 if it was none of this client's.
    written: Vec<u64>,
    writes: u64,
    payload: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> User<'a> {
    fn start(spec: &'a UseSpec) -> Result<User<'a>, SessionError> {
        let config = SessionConfig::new(spec.server, ClusterKey::from_bytes(spec.cluster_key));
        Ok(User {
            spec,
            session: start_session(&SessionConfig { options: options(spec.tier), ..config })?,
            keys: KeyDraw::new(spec.shape.keys, spec.popularity),
            random: Random::new(spec.seed, 0),
            written: vec![0; spec.shape.keys as usize],
            writes: 0,
            payload: Vec::new(),
            value: Vec::new(),
        })
    }

    fn warm_up(&mut self) -> Result<(), SessionError> {
        let needs_device = self.spec.tier != Tier::NONE && self.spec.updates_percent > 0;
        let deadline = Instant::now() + REPLY_TIMEOUT;
        self.run(Duration::from_millis(self.spec.warmup_ms), |tally| {
            !needs_device || tally.updates_early > 0 || Instant::now() > deadline
        })
        .map(drop)
    }

    /// Makes calls for so long, and further until `is_enough`.
    fn run(&mut self, time: Duration, is_enough: impl Fn(&Tally) -> bool) -> Result<Tally, SessionError> {
        let before = self.session.runtime().totals();
        let mut tally = Tally::default();
        let begin = Instant::now();
        while begin.elapsed() < time || !is_enough(&tally) {
            let key = self.keys.draw(&mut self.random);
            if self.random.below(100) < u64::from(self.spec.updates_percent) {
                self.update(key, &mut tally)?;
            } else {
                self.read(key, &mut tally)?;
            }
        }
        tally.elapsed = begin.elapsed();
        let totals = self.session.runtime().totals();
        tally.retransmitted = totals.retransmitted - before.retransmitted;
        tally.refused = totals.refused - before.refused;
        Ok(tally)
    }

    fn update(&mut self, key: u64, tally: &mut Tally) -> Result<(), SessionError> {
        let is_early = self.spec.tier != Tier::NONE;
        let name = key_name(key);
        self.writes += 1;
        write_value(self.writes, self.spec.shape.value_bytes, &mut self.value);
        write_request(&[&[b"SET", name.as_bytes(), &self.value]], is_early, &mut self.payload);
        let begin = Instant::now();
        if is_early {
            self.session.send_early_update(name.as_bytes(), &self.payload)?;
        } else {
            self.session.send_update(name.as_bytes(), &self.payload)?;
        }
        let reply = self.session.next_reply(REPLY_TIMEOUT)?;
        tally.updates.record(begin.elapsed());
        match reply.bytes.map(parse_reply) {
            None => tally.updates_early += 1,
            Some(Ok(Reply::Simple(text))) if text == "OK" => {}
            Some(_) => tally.wrong_replies += 1,
        }
        self.written[key as usize] = self.writes;
        Ok(())
    }

    fn read(&mut self, key: u64, tally: &mut Tally) -> Result<(), SessionError> {
        let name = key_name(key);
        write_get(&name, self.spec.is_noted, &mut self.payload);
        let begin = Instant::now();
        self.session.read(name.as_bytes(), &self.payload)?;
        let reply = self.session.next_reply(REPLY_TIMEOUT)?;
        tally.reads.record(begin.elapsed());
        tally.reads_again += u64::from(reply.bytes.is_some_and(is_again));
        let value = match reply.bytes.map(parse_reply) {
            Some(Ok(Reply::Bulk(value))) if value.len() == self.spec.shape.value_bytes => value,
            _ => {
                tally.wrong_replies += 1;
                return Ok(());
            }
        };
        let wanted = self.written[key as usize];
        // What others wrote before this client is not known.
        tally.stale_reads += u64::from(wanted != 0 && number_of(&value) != Some(wanted));
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Tally {
    elapsed: Duration,
    updates: Latencies,
    reads: Latencies,
    updates_early: u64,
    reads_again: u64,
    wrong_replies: u64,
    stale_reads: u64,
    retransmitted: u64,
    refused: u64,
}

impl Tally {
    fn report(&self) -> Option<UseReport> {
        let mut calls = self.updates.clone();
        calls.add(&self.reads);
        Some(UseReport {
            requests_per_s: calls.count() as f64 / self.elapsed.as_secs_f64(),
            calls_ns: calls.percentiles(&PERCENTS)?,
            mean_ns: calls.summary()?.mean_ns,
            updates_ns: self.updates.percentiles(&PERCENTS),
            reads_ns: self.reads.percentiles(&PERCENTS),
            updates: self.updates.count(),
            updates_early: self.updates_early,
            reads: self.reads.count(),
            reads_again: self.reads_again,
            wrong_replies: self.wrong_replies,
            stale_reads: self.stale_reads,
            retransmitted: self.retransmitted,
            refused: self.refused,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::worker::noop::{self, NoopSpec};
    use scotfree_io::conformance::ports::free_address;
    use scotfree_stage::process::wait_until;
    use std::net::UdpSocket;

    #[test]
    fn a_value_says_by_which_write_it_came() {
        let mut value = Vec::new();
        for number in [0, 1, 999_999_999_999] {
            write_value(number, 100, &mut value);
            assert_eq!((value.len(), number_of(&value)), (100, Some(number)));
        }
        assert_eq!(number_of(b"1"), None);
        assert_eq!(number_of(b"twelve-bytes."), None);
    }

    #[test]
    fn replies_of_a_server_that_is_no_store_are_counted_as_wrong() {
        let listen = free_address();
        let noop = NoopSpec::new(listen, [5; 32]);
        std::thread::spawn(move || noop::serve(&noop));
        assert!(wait_until(REPLY_TIMEOUT, || UdpSocket::bind(listen).is_err()), "it is bound");
        let spec = UseSpec {
            server: listen,
            cluster_key: [5; 32],
            tier: Tier::NONE,
            shape: StoreShape { keys: 10, value_bytes: 100 },
            popularity: Popularity::Uniform,
            updates_percent: 50,
            is_noted: false,
            time_ms: 100,
            warmup_ms: 0,
            seed: 1,
        };
        let report = measure(&spec).expect("it answers");
        assert!(report.updates > 0 && report.reads > 0);
        assert_eq!(report.wrong_replies, report.updates + report.reads);
        assert_eq!(report.updates_early, 0);
        assert!(report.calls_ns[&1] <= report.calls_ns[&99]);
    }
}
