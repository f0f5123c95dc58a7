//! A client that reads keys of a server, one call behind the other, in the words of a client's sidecar.
//!
//! Invariant: a latency runs from before a read is handed to the runtime until its reply has been taken from it; reads
//! of the warm-up are made but not measured. Whether a cache has answered stands in the reply itself.

use super::embedded::{is_again, parse_reply, write_get};
use scotfree_core::Tier;
use scotfree_rpc::{start_session, Session, SessionConfig, SessionError, SessionOptions};
use scotfree_stage::resp::Reply;
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::trouble::Trouble;
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long one reply may take before the measurement is given up, and how long a cache may take to know all keys.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// Some, in turns. A cache gets to know them all before anything is measured.
    Known,
    /// Those, and no cache is waited for.
    Some,
    /// No key twice.
    Fresh,
}

/// Which reads to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetsSpec {
    /// The server.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// Which keys.
    pub keys: Keys,
    /// How many they are, if they are asked for in turns.
    pub keys_count: u64,
    /// Whether the client takes a note, without which no device answers.
    pub is_marked: bool,
    /// The size of each value.
    pub value_bytes: usize,
    /// How many reads are measured.
    pub gets: u64,
    /// How many are made before, at least.
    pub warmup_gets: u64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GetsReport {
    /// Latencies of the reads measured.
    pub latency: Summary,
    /// Reads per second.
    pub gets_per_s: f64,
    /// Of those measured, what a cache has answered, and what the server has.
    pub by_cache: u64,
    /// See above.
    pub by_server: u64,
    /// The same of those before.
    pub warmup_by_cache: u64,
    /// See above.
    pub warmup_by_server: u64,
    /// Replies that are no value of the right size.
    pub wrong_replies: u64,
    /// Requests that were sent again.
    pub retransmitted: u64,
    /// Packets that were refused.
    pub refused: u64,
}

pub(super) fn measure(spec: &GetsSpec) -> Result<GetsReport, Trouble> {
    measure_session(spec).map_err(|error| {
        let tried = format!("read keys of the server {}", spec.server);
        Trouble::new(tried, error, "see the logs of the server and of the device")
    })
}

fn measure_session(spec: &GetsSpec) -> Result<GetsReport, SessionError> {
    let mut reader = Reader::start(spec)?;
    let before = reader.warm_up()?;
    let totals_before = reader.session.runtime().totals();
    let begin = Instant::now();
    let tally = reader.run(spec.gets.max(1))?;
    let elapsed_s = begin.elapsed().as_secs_f64();
    let totals = reader.session.runtime().totals();
    reader.session.end_session()?;
    Ok(GetsReport {
        latency: tally.latencies.summary().expect("one at least was made"),
        gets_per_s: tally.latencies.count() as f64 / elapsed_s,
        by_cache: tally.by_cache,
        by_server: tally.latencies.count() - tally.by_cache,
        warmup_by_cache: before.by_cache,
        warmup_by_server: before.latencies.count() - before.by_cache,
        wrong_replies: tally.wrong_replies + before.wrong_replies,
        retransmitted: totals.retransmitted - totals_before.retransmitted,
        refused: totals.refused - totals_before.refused,
    })
}

struct Reader<'a> {
    spec: &'a GetsSpec,
    session: Session,
    next: u64,
    payload: Vec<u8>,
}

#[derive(Debug, Default)]
struct Tally {
    latencies: Latencies,
    by_cache: u64,
    wrong_replies: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.latencies.add(&other.latencies);
        self.by_cache += other.by_cache;
        self.wrong_replies += other.wrong_replies;
    }
}

impl<'a> Reader<'a> {
    fn start(spec: &'a GetsSpec) -> Result<Reader<'a>, SessionError> {
        let config = SessionConfig::new(spec.server, ClusterKey::from_bytes(spec.cluster_key));
        let options = SessionOptions { tier: Tier::NONE, ..SessionOptions::default() };
        let session = start_session(&SessionConfig { options, ..config })?;
        Ok(Reader { spec, session, next: 0, payload: Vec::new() })
    }

    /// Until the cache has answered a whole round, where one is waited for; else so many reads as were asked for.
    fn warm_up(&mut self) -> Result<Tally, SessionError> {
        let mut tally = self.run(self.spec.warmup_gets)?;
        let begin = Instant::now();
        while self.spec.keys == Keys::Known && begin.elapsed() < PATIENCE {
            let round = self.run(self.spec.keys_count)?;
            tally.add(&round);
            if round.by_cache == self.spec.keys_count {
                break;
            }
        }
        Ok(tally)
    }

    fn run(&mut self, gets: u64) -> Result<Tally, SessionError> {
        let mut tally = Tally::default();
        for _ in 0..gets {
            self.get(&mut tally)?;
        }
        Ok(tally)
    }

    fn get(&mut self, tally: &mut Tally) -> Result<(), SessionError> {
        let key = self.next_key();
        write_get(&key, self.spec.is_marked, &mut self.payload);
        let begin = Instant::now();
        self.session.read(key.as_bytes(), &self.payload)?;
        let reply = self.session.next_reply(PATIENCE)?;
        tally.latencies.record(begin.elapsed());
        let bytes = reply.bytes.unwrap_or_default();
        tally.by_cache += u64::from(is_again(bytes));
        let is_value =
            matches!(parse_reply(bytes), Ok(Reply::Bulk(value)) if value.len() == self.spec.value_bytes);
        tally.wrong_replies += u64::from(!is_value);
        Ok(())
    }

    fn next_key(&mut self) -> String {
        let number = match self.spec.keys {
            Keys::Known | Keys::Some => self.next % self.spec.keys_count.max(1),
            Keys::Fresh => self.next,
        };
        self.next += 1;
        format!("user{number:016}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::worker::noop::{self, NoopSpec};
    use scotfree_io::conformance::ports::free_address;
    use scotfree_stage::process::wait_until;
    use std::net::UdpSocket;

    fn report(value_bytes: usize) -> GetsReport {
        let server = free_address();
        let noop = NoopSpec { value_bytes: 100, ..NoopSpec::new(server, [5; 32]) };
        std::thread::spawn(move || noop::serve(&noop));
        assert!(wait_until(PATIENCE, || UdpSocket::bind(server).is_err()), "it is bound");
        let spec = GetsSpec {
            server,
            cluster_key: [5; 32],
            keys: Keys::Some,
            keys_count: 3,
            is_marked: true,
            value_bytes,
            gets: 50,
            warmup_gets: 7,
        };
        measure(&spec).expect("the server answers")
    }

    #[test]
    fn without_a_device_the_server_answers_every_read_with_its_value() {
        let report = report(100);
        assert_eq!((report.by_server, report.warmup_by_server, report.wrong_replies), (50, 7, 0));
        assert_eq!((report.by_cache, report.warmup_by_cache, report.latency.count), (0, 0, 50));
    }

    #[test]
    fn values_of_another_size_are_counted_as_wrong() {
        assert_eq!(report(99).wrong_replies, 57);
    }
}
