//! Sets keys of a service that speaks RESP, on each connection one SET behind the other, and measures each.
//!
//! Invariant: a latency runs from before the SET is sent until everything it waits for has been answered. What
//! is read back is asked for on the same connection as soon as the SET is answered.

use scotfree_stage::resp::{Connection, Reply, ReplyError};
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many keys a connection sets in turn: neither one hot key nor a table that grows.
const KEYS: u64 = 4_096;

/// Which SETs to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetsSpec {
    /// The service.
    pub address: SocketAddr,
    /// How many connections make them at the same time.
    pub connections: u32,
    /// How many are measured, of each connection.
    pub sets: u64,
    /// How many are made before, of each connection.
    pub warmup_sets: u64,
    /// The size of a value.
    pub value_bytes: usize,
    /// So many replicas must have each SET before it counts as answered (WAIT, sent in the same packet).
    pub replicas: u32,
    /// Every so many SETs the key is read back; 0 for never.
    pub read_every: u64,
}

/// What SETs measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetsReport {
    /// Latencies of the SETs measured.
    pub latency: Summary,
    /// How many of them were answered in a second.
    pub sets_per_s: f64,
    /// Of all SETs, those that were not answered with OK, or that too few replicas had.
    pub refused: u64,
    /// Reads that were made.
    pub reads: u64,
    /// Of these, those that did not show the SET just answered.
    pub stale_reads: u64,
}

pub(super) fn measure(spec: &SetsSpec) -> Result<SetsReport, Trouble> {
    let broke = |error: ReplyError| {
        let next = "see whether the service listens there, and its log";
        Trouble::new(format!("set keys at {}", spec.address), error, next)
    };
    let open = |number| -> Result<Setter<'_>, ReplyError> {
        let connection = Connection::open(spec.address, REPLY_TIMEOUT)?;
        Ok(Setter { spec, number, connection, count: 0, refused: 0, reads: 0, stale_reads: 0 })
    };
    let mut setters =
        (0..spec.connections).map(open).collect::<Result<Vec<Setter<'_>>, _>>().map_err(broke)?;
    run_all(&mut setters, spec.warmup_sets).map_err(broke)?;
    let begin = Instant::now();
    let latencies = run_all(&mut setters, spec.sets).map_err(broke)?;
    let elapsed = begin.elapsed();
    let latency = latencies
        .summary()
        .ok_or_else(|| Trouble::new("measure SETs", "none were to be made", "ask for at least one"))?;
    let sum = |count: fn(&Setter<'_>) -> u64| setters.iter().map(count).sum();
    Ok(SetsReport {
        sets_per_s: latency.count as f64 / elapsed.as_secs_f64(),
        latency,
        refused: sum(|setter| setter.refused),
        reads: sum(|setter| setter.reads),
        stale_reads: sum(|setter| setter.stale_reads),
    })
}

/// Lets every connection make so many SETs, all at the same time.
fn run_all(setters: &mut [Setter<'_>], sets: u64) -> Result<Latencies, ReplyError> {
    let mut all = Latencies::new();
    thread::scope(|scope| {
        let threads: Vec<_> =
            setters.iter_mut().map(|setter| scope.spawn(move || setter.run(sets))).collect();
        for thread in threads {
            all.add(&thread.join().expect("a setter does not panic")?);
        }
        Ok(all)
    })
}

struct Setter<'a> {
    spec: &'a SetsSpec,
    number: u32,
    connection: Connection,
    count: u64,
    refused: u64,
    reads: u64,
    stale_reads: u64,
}

impl Setter<'_> {
    fn run(&mut self, sets: u64) -> Result<Latencies, ReplyError> {
        let mut latencies = Latencies::new();
        for _ in 0..sets {
            self.count += 1;
            let key = format!("key:{}:{}", self.number, self.count % KEYS);
            // No two values are the same, so that an older one is recognised.
            let value = format!("{:0width$}", self.count, width = self.spec.value_bytes);
            let begin = Instant::now();
            let is_good = self.set(&key, &value)?;
            latencies.record(begin.elapsed());
            self.refused += u64::from(!is_good);
            if self.spec.read_every > 0 && self.count.is_multiple_of(self.spec.read_every) {
                self.reads += 1;
                let found = self.connection.call(&["GET", &key])?;
                self.stale_reads += u64::from(found != Reply::Bulk(value.into_bytes()));
            }
        }
        Ok(latencies)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<bool, ReplyError> {
        let replicas = self.spec.replicas;
        self.connection.push(&["SET", key, value]);
        if replicas > 0 {
            self.connection.push(&["WAIT", &replicas.to_string(), "0"]);
        }
        self.connection.flush()?;
        let is_set = matches!(self.connection.read()?, Reply::Simple(text) if text == "OK");
        let has_replicas = replicas == 0
            || matches!(self.connection.read()?, Reply::Integer(count) if count >= i64::from(replicas));
        Ok(is_set && has_replicas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::fake_redis::FakeRedis;

    fn spec(service: &FakeRedis) -> SetsSpec {
        let address = service.address();
        SetsSpec {
            address,
            connections: 1,
            sets: 50,
            warmup_sets: 10,
            value_bytes: 20,
            replicas: 0,
            read_every: 5,
        }
    }

    #[test]
    fn connections_set_keys_of_their_own_at_the_same_time() {
        let service = FakeRedis::start();
        let report = measure(&SetsSpec { connections: 3, ..spec(&service) }).expect("it runs");
        assert_eq!((report.latency.count, report.refused, report.reads, report.stale_reads), (150, 0, 36, 0));
        assert!(report.sets_per_s > 0.0);
    }

    #[test]
    fn what_is_set_is_measured_and_read_back() {
        let service = FakeRedis::start();
        let report = measure(&spec(&service)).expect("it runs");
        assert_eq!((report.latency.count, report.refused, report.reads, report.stale_reads), (50, 0, 12, 0));
    }

    #[test]
    fn a_refusal_and_a_stale_read_are_counted() {
        let service = FakeRedis::start();
        // What is read behind the fifth is what was there before it: nothing.
        service.refuse(5);
        let report = measure(&SetsSpec { sets: 5, warmup_sets: 0, ..spec(&service) }).expect("it runs");
        assert_eq!((report.refused, report.reads, report.stale_reads), (5, 1, 1));
    }

    #[test]
    fn a_set_that_no_replica_has_is_refused() {
        let service = FakeRedis::start();
        // It does not know WAIT.
        let alone = SetsSpec { replicas: 2, sets: 5, warmup_sets: 0, ..spec(&service) };
        assert_eq!(measure(&alone).expect("it runs").refused, 5);
    }
}
