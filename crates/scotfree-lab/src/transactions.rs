//! Clients of an application that run its transactions on a Redis, one behind the other, and measure each.
//!
//! Invariant: a transaction is measured whole, from before its first request until its last reply. A request
//! that is refused or not answered ends the run, so that what the clients noted has happened, all of it and
//! once; at the end the application says what of it the store does not show.

use scotfree_stage::resp::{Connection, Reply, ReplyError};
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::workload::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests that are sent together where nobody waits for each.
const TOGETHER_MAX: usize = 256;

/// How the transactions are run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopSpec {
    /// The Redis, or a sidecar in front of it.
    pub address: SocketAddr,
    /// Clients, each with a connection and a thread.
    pub clients: u32,
    /// How many of a hundred transactions update something.
    pub updates_percent: u32,
    /// Whether requests that need nothing of each other's replies are sent together; otherwise each waits
    /// for the reply to the one before it.
    pub pipelined: bool,
    /// How long transactions are begun.
    pub duration_ms: u64,
    /// For how much of that they are not measured.
    pub warmup_ms: u64,
    /// Where randomness begins.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopReport {
    /// Latencies of the transactions measured.
    pub latency: Option<Summary>,
    /// Transactions measured per second.
    pub transactions_per_s: f64,
    /// Transactions that updated something, warm-up included.
    pub updates: u64,
    /// Requests that the clients sent, without what came before and behind the load.
    pub requests: u64,
    /// What the application's clients counted.
    pub counts: BTreeMap<String, u64>,
    /// What the store should show and does not.
    pub findings: Findings,
}

/// An application whose state lies in a Redis.
pub trait Application: Sync {
    /// One of those who use it.
    type Client: Client;

    /// Writes what must be there before the first transaction.
    fn set_up(&self, store: &mut Store) -> Result<(), Failure>;

    /// One of `count` clients.
    fn client(&self, number: u32, count: u32, random: Random) -> Self::Client;

    /// Compares what the store holds with what the clients were told.
    fn check(&self, clients: &[Self::Client], store: &mut Store) -> Result<Findings, Failure>;
}

/// A client, which notes what it was told.
pub trait Client: Send {
    /// Runs a transaction that changes something.
    fn update(&mut self, store: &mut Store) -> Result<(), Failure>;

    /// Runs one that only reads.
    fn read(&mut self, store: &mut Store) -> Result<(), Failure>;

    /// What it counted.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A reply did not come.
    #[error(transparent)]
    Broken(#[from] ReplyError),
    /// The store refused a request.
    #[error("the store refused a request: {0}")]
    Refused(String),
    /// The reply is of another kind than the command's.
    #[error("the store answered {0:?}")]
    Unexpected(Reply),
}

/// What should be and is not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Findings {
    /// How many.
    pub count: u64,
    /// The first.
    pub first: Option<String>,
}

impl Findings {
    /// Compares what was seen with what was wanted.
    pub fn compare<Value: PartialEq + Debug>(&mut self, what: &str, seen: &Value, wanted: &Value) {
        if seen != wanted {
            self.count += 1;
            self.first.get_or_insert_with(|| format!("{what} is {seen:?} and not {wanted:?}"));
        }
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Findings) {
        self.count += other.count;
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
    }
}

/// A client's connection to the Redis.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    pipelined: bool,
    waiting: usize,
    replies: Vec<Reply>,
    requests: u64,
}

impl Store {
    /// Connects. `pipelined` as in [`LoopSpec`].
    pub fn open(address: SocketAddr, pipelined: bool) -> Result<Store, Failure> {
        let connection = Connection::open(address, REPLY_TIMEOUT).map_err(ReplyError::from)?;
        Ok(Store { connection, pipelined, waiting: 0, replies: Vec::new(), requests: 0 })
    }

    /// Makes a request whose reply is among those that [`Store::replies`] returns.
    pub fn push(&mut self, words: &[&str]) -> Result<(), Failure> {
        self.connection.push(words);
        self.waiting += 1;
        self.requests += 1;
        let is_enough = !self.pipelined || self.waiting >= TOGETHER_MAX;
        if is_enough {
            self.collect()
        } else {
            Ok(())
        }
    }

    /// The replies to all that was pushed.
    pub fn replies(&mut self) -> Result<Vec<Reply>, Failure> {
        self.collect()?;
        Ok(std::mem::take(&mut self.replies))
    }

    /// Makes a request and waits for its reply.
    pub fn call(&mut self, words: &[&str]) -> Result<Reply, Failure> {
        self.push(words)?;
        self.collect()?;
        Ok(self.replies.pop().expect("each request has a reply"))
    }

    /// The values of many keys.
    pub fn values(&mut self, keys: &[String]) -> Result<Vec<Option<String>>, Failure> {
        let mut values = Vec::with_capacity(keys.len());
        for part in keys.chunks(TOGETHER_MAX) {
            let words: Vec<&str> = ["MGET"].into_iter().chain(part.iter().map(String::as_str)).collect();
            values.append(&mut texts(self.call(&words)?)?);
        }
        Ok(values)
    }

    /// The values of many keys that hold numbers; 0 where there is none.
    pub fn numbers(&mut self, keys: &[String]) -> Result<Vec<i64>, Failure> {
        let number = |value: Option<String>| value.and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(self.values(keys)?.into_iter().map(number).collect())
    }

    /// The number that a key holds; 0 if there is none.
    pub fn number(&mut self, key: &str) -> Result<i64, Failure> {
        Ok(self.numbers(&[key.to_owned()])?[0])
    }

    fn collect(&mut self) -> Result<(), Failure> {
        self.connection.flush().map_err(ReplyError::from)?;
        for _ in 0..std::mem::take(&mut self.waiting) {
            match self.connection.read()? {
                Reply::Error(text) => return Err(Failure::Refused(text)),
                reply => self.replies.push(reply),
            }
        }
        Ok(())
    }
}

/// The number in a reply.
pub fn number(reply: &Reply) -> Result<i64, Failure> {
    match reply {
        Reply::Integer(number) => Ok(*number),
        other => Err(Failure::Unexpected(other.clone())),
    }
}

/// The strings in a reply that is a list of them.
pub fn texts(reply: Reply) -> Result<Vec<Option<String>>, Failure> {
    let Reply::Array(elements) = reply else { return Err(Failure::Unexpected(reply)) };
    let text = |element| match element {
        Reply::Bulk(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Reply::Null => Ok(None),
        other => Err(Failure::Unexpected(other)),
    };
    elements.into_iter().map(text).collect()
}

/// Sets the application up, lets the clients run their transactions, and compares what they were told with
/// what the store then shows to another.
pub fn run<App: Application>(application: &App, spec: &LoopSpec) -> Result<LoopReport, Failure> {
    let mut store = Store::open(spec.address, true)?;
    application.set_up(&mut store)?;
    store.replies()?;
    let open = |number| {
        let random = Random::new(spec.seed, u64::from(number));
        let client = application.client(number, spec.clients, random);
        let store = Store::open(spec.address, spec.pipelined)?;
        let random = Random::new(!spec.seed, u64::from(number));
        Ok((client, Worker { store, random, measured: Latencies::new(), updates: 0, last_end: None }))
    };
    let opened: Vec<(App::Client, Worker)> = (0..spec.clients).map(open).collect::<Result<_, Failure>>()?;
    let begin = Instant::now();
    let done: Vec<Result<(App::Client, Worker), Failure>> = thread::scope(|scope| {
        let run =
            |(client, worker): (App::Client, Worker)| scope.spawn(move || worker.run(client, spec, begin));
        let threads: Vec<_> = opened.into_iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    let (clients, workers): (Vec<App::Client>, Vec<Worker>) =
        done.into_iter().collect::<Result<Vec<_>, Failure>>()?.into_iter().unzip();
    let findings = application.check(&clients, &mut store)?;
    Ok(report(&clients, &workers, begin + Duration::from_millis(spec.warmup_ms), findings))
}

/// What makes a client's transactions.
struct Worker {
    store: Store,
    random: Random,
    measured: Latencies,
    updates: u64,
    last_end: Option<Instant>,
}

impl Worker {
    fn run<C: Client>(
        mut self,
        mut client: C,
        spec: &LoopSpec,
        begin: Instant,
    ) -> Result<(C, Worker), Failure> {
        let measured_from = begin + Duration::from_millis(spec.warmup_ms);
        let end = begin + Duration::from_millis(spec.duration_ms);
        loop {
            let called = Instant::now();
            if called >= end {
                return Ok((client, self));
            }
            if self.random.below(100) < u64::from(spec.updates_percent) {
                client.update(&mut self.store)?;
                self.updates += 1;
            } else {
                client.read(&mut self.store)?;
            }
            if called >= measured_from {
                let done = Instant::now();
                self.measured.record(done - called);
                self.last_end = Some(done);
            }
        }
    }
}

fn report<C: Client>(
    clients: &[C],
    workers: &[Worker],
    measured_from: Instant,
    findings: Findings,
) -> LoopReport {
    let mut all = Latencies::new();
    for worker in workers {
        all.add(&worker.measured);
    }
    let mut counts = BTreeMap::new();
    for (name, count) in clients.iter().flat_map(Client::counts) {
        *counts.entry(name.to_owned()).or_default() += count;
    }
    let end = workers.iter().filter_map(|worker| worker.last_end).max();
    let elapsed_s = end.map_or(0.0, |end| (end - measured_from).as_secs_f64());
    LoopReport {
        latency: all.summary(),
        transactions_per_s: if elapsed_s > 0.0 { all.count() as f64 / elapsed_s } else { 0.0 },
        updates: workers.iter().map(|worker| worker.updates).sum(),
        requests: workers.iter().map(|worker| worker.store.requests).sum(),
        counts,
        findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::fake_redis::FakeRedis;

    /// Counts up a number that all clients share.
    struct Counting;

    struct Counter {
        counted: i64,
    }

    impl Application for Counting {
        type Client = Counter;

        fn set_up(&self, _store: &mut Store) -> Result<(), Failure> {
            Ok(())
        }

        fn client(&self, _number: u32, _count: u32, _random: Random) -> Counter {
            Counter { counted: 0 }
        }

        fn check(&self, clients: &[Counter], store: &mut Store) -> Result<Findings, Failure> {
            let mut findings = Findings::default();
            let counted: i64 = clients.iter().map(|client| client.counted).sum();
            findings.compare("the number", &number(&store.call(&["INCR", "n"])?)?, &(counted + 1));
            Ok(findings)
        }
    }

    impl Client for Counter {
        fn update(&mut self, store: &mut Store) -> Result<(), Failure> {
            number(&store.call(&["INCR", "n"])?)?;
            self.counted += 1;
            Ok(())
        }

        fn read(&mut self, store: &mut Store) -> Result<(), Failure> {
            store.values(&["n".to_owned()]).map(drop)
        }

        fn counts(&self) -> Vec<(&'static str, u64)> {
            vec![("counted", self.counted as u64)]
        }
    }

    fn spec(service: &FakeRedis, updates_percent: u32) -> LoopSpec {
        let address = service.address();
        LoopSpec {
            address,
            clients: 3,
            updates_percent,
            pipelined: false,
            duration_ms: 50,
            warmup_ms: 0,
            seed: 1,
        }
    }

    #[test]
    fn every_transaction_is_measured_and_counted() {
        for (updates_percent, are_updates) in [(100, true), (0, false)] {
            let service = FakeRedis::start();
            let report = run(&Counting, &spec(&service, updates_percent)).expect("it runs");
            let measured = report.latency.expect("some were measured").count;
            assert_eq!((report.requests, report.findings.count), (measured, 0));
            assert_eq!(report.updates, if are_updates { measured } else { 0 });
            assert_eq!(report.counts["counted"], report.updates);
        }
    }

    #[test]
    fn a_mix_has_both_and_the_warm_up_is_not_measured() {
        let service = FakeRedis::start();
        let report = run(&Counting, &spec(&service, 50)).expect("it runs");
        assert!(report.updates > 0 && report.updates < report.requests, "{report:?}");
        let warm = LoopSpec { warmup_ms: 60_000, ..spec(&service, 0) };
        let report = run(&Counting, &warm).expect("it runs").latency;
        assert_eq!(report, None);
    }

    #[test]
    fn what_the_store_does_not_show_is_found() {
        let service = FakeRedis::start();
        service.change_list("n", |list| list.push(Vec::new()));
        let findings = run(&Counting, &spec(&service, 100)).expect("it runs").findings;
        assert_eq!(findings.count, 1);
        assert!(findings.first.expect("it is told").starts_with("the number is "));
    }

    #[test]
    fn a_refusal_ends_the_run() {
        let service = FakeRedis::start();
        service.refuse(1);
        let failure = run(&Counting, &spec(&service, 100)).expect_err("it is refused").to_string();
        assert!(failure.contains("LOADING"), "{failure}");
    }

    #[test]
    fn only_pipelined_requests_are_sent_together() {
        let service = FakeRedis::start();
        for (pipelined, waiting) in [(true, 2), (false, 0)] {
            let mut store = Store::open(service.address(), pipelined).expect("it is there");
            store.push(&["SET", "k", "1"]).expect("it is taken");
            store.push(&["GET", "k"]).expect("it is taken");
            assert_eq!(store.waiting, waiting);
            let replies = store.replies().expect("they are answered");
            assert_eq!(replies, [Reply::Simple("OK".into()), Reply::Bulk(b"1".to_vec())]);
        }
    }
}
