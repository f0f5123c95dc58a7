//! Reads and writes keys of a replicated group by its client, so many at a time, and measures each request.
//!
//! Invariant: a latency runs from before a request is submitted until its answer is taken, also if it was sent to
//! several members.

mod timeline;

pub use timeline::{Interval, Intervals, INTERVALS_MAX};

use super::embedded::{parse_reply, write_get, write_request};
use crate::keys::{KeyDraw, Popularity};
use scotfree_core::Nanos;
use scotfree_io::now_monotonic;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_resp::codec::Reply;
use scotfree_rpc::{
    key_hash, CallLabel, ClientOptions, ClientRuntime, GroupClient, GroupEvent, GroupMember, GroupOptions,
    GroupSubmitError, Policy, RequestKind, RequestNumber,
};
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use timeline::Timeline;

/// How long a request may take before the worker gives up.
const PATIENCE: Duration = Duration::from_secs(30);

impl Default for Requests {
    /// Reads of one key, one behind the other, of any member, for no time.
    fn default() -> Requests {
        Requests {
            updates_percent: 0,
            outstanding: 1,
            reads_to: None,
            writes_to: None,
            keys: 1,
            value_bytes: 100,
            fills: false,
            warmup_ms: 0,
            time_ms: 0,
            seed: 0,
            intervals: None,
        }
    }
}

/// Who belongs to the group.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Members {
    /// Their numbers, and where clients find them.
    pub addresses: Vec<(u8, SocketAddr)>,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
}

/// Which requests to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Requests {
    /// How many of a hundred are SETs, the others being GETs.
    pub updates_percent: u32,
    /// How many are under way at a time.
    pub outstanding: usize,
    /// The member to which reads go; any if none is said.
    pub reads_to: Option<u8>,
    /// The member to which writes go; any if none is said.
    pub writes_to: Option<u8>,
    /// How many keys there are, of which all are as popular.
    pub keys: u64,
    /// The size of a value.
    pub value_bytes: usize,
    /// Whether each key is set once before.
    pub fills: bool,
    /// How long requests are made before they are measured.
    pub warmup_ms: u64,
    /// How long they are measured.
    pub time_ms: u64,
    /// Where choices begin.
    pub seed: u64,
    /// By which intervals those that are measured are told; none if none is said.
    pub intervals: Option<Intervals>,
}

/// Which requests to make, and of whom.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupUseSpec {
    /// The group.
    pub members: Members,
    /// The requests.
    pub requests: Requests,
}

/// What requests measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupUseReport {
    /// All requests.
    pub all: Summary,
    /// Those that were SETs, if there were any.
    pub updates: Option<Summary>,
    /// Those that were GETs, if there were any.
    pub reads: Option<Summary>,
    /// How many were answered in a second.
    pub requests_per_s: f64,
    /// How many were answered at all, before the measurement and after it too.
    pub answered: u64,
    /// How many had an answer that is none to them.
    pub wrong_replies: u64,
    /// How many had none.
    pub given_up: u64,
    /// How often one was sent again.
    pub sent_again: u64,
    /// The longest that no SET was answered while some were under way.
    pub update_gap_max_ms: f64,
    /// The same of GETs.
    pub read_gap_max_ms: f64,
    /// SETs by when they were answered, if intervals were wanted.
    pub update_intervals: Vec<Interval>,
    /// The same of GETs.
    pub read_intervals: Vec<Interval>,
}

/// Makes the requests.
pub(super) fn measure(spec: &GroupUseSpec) -> Result<GroupUseReport, Trouble> {
    let broke =
        |error: io::Error| Trouble::new("make requests of a group", error, "see the logs of its members");
    let client = group_client(&spec.members, &spec.requests).map_err(broke)?;
    let mut user = User::new(client, &spec.requests);
    if spec.requests.fills {
        user.fill().map_err(broke)?;
    }
    user.run(Duration::from_millis(spec.requests.warmup_ms)).map_err(broke)?;
    let (tally, elapsed) = user.run(Duration::from_millis(spec.requests.time_ms)).map_err(broke)?;
    let Tally { updates, reads } = tally;
    let mut all = updates.latencies.clone();
    all.add(&reads.latencies);
    let none = || Trouble::new("measure requests of a group", "none was answered", "give it more time");
    let counters = user.client.counters();
    Ok(GroupUseReport {
        all: all.summary().ok_or_else(none)?,
        updates: updates.latencies.summary(),
        reads: reads.latencies.summary(),
        requests_per_s: all.count() as f64 / elapsed.as_secs_f64(),
        answered: counters.answered,
        wrong_replies: user.wrong_replies,
        given_up: counters.given_up,
        sent_again: counters.sent_again,
        update_gap_max_ms: updates.gaps.max_ms(),
        read_gap_max_ms: reads.gaps.max_ms(),
        update_intervals: updates.timeline.into_intervals(),
        read_intervals: reads.timeline.into_intervals(),
    })
}

/// A client with an identity that no other has.
pub(super) fn group_client(members: &Members, requests: &Requests) -> io::Result<GroupClient<UdpTransport>> {
    let here: SocketAddr = "127.0.0.1:0".parse().expect("it is an address");
    let transport = UdpTransport::bind(here, &UdpConfig::default())?;
    let key = ClusterKey::from_bytes(members.cluster_key);
    let runtime = ClientRuntime::new(transport, ClientOptions::new(members.addresses[0].1, key));
    let mut identity = [0; 16];
    getrandom::fill(&mut identity).map_err(|error| io::Error::other(error.to_string()))?;
    let named = members.addresses.iter().map(|(id, address)| GroupMember { id: *id, address: *address });
    let policy = |member: Option<u8>| member.map_or(Policy::Random, Policy::Member);
    let options = GroupOptions {
        reads: policy(requests.reads_to),
        writes: policy(requests.writes_to),
        give_up_after: Nanos(PATIENCE.as_nanos() as u64),
        is_not_serving: |reply| reply.windows(12).any(|part| part == b"-NOTSERVING "),
        ..GroupOptions::new(named.collect(), identity, requests.seed)
    };
    GroupClient::new(runtime, options).map_err(io::Error::other)
}

/// What came of requests, by kind.
struct Tally {
    updates: Answers,
    reads: Answers,
}

/// What came of requests of one kind.
struct Answers {
    latencies: Latencies,
    gaps: Gaps,
    timeline: Timeline,
}

/// How long nothing was answered, at most.
#[derive(Default)]
struct Gaps {
    last: Option<Nanos>,
    max: Nanos,
}

impl Tally {
    fn new(requests: &Requests) -> Tally {
        let answers = || Answers {
            latencies: Latencies::default(),
            gaps: Gaps::default(),
            timeline: Timeline::new(requests.intervals),
        };
        Tally { updates: answers(), reads: answers() }
    }
}

impl Answers {
    fn add(&mut self, latency: Duration) {
        let now = now_monotonic();
        self.latencies.record(latency);
        let gap = self.gaps.on_answer(now);
        self.timeline.on_answer(now, gap);
    }
}

impl Gaps {
    /// How long there was no answer before this one.
    fn on_answer(&mut self, now: Nanos) -> Nanos {
        let gap = now.since(self.last.unwrap_or(now));
        self.max = self.max.max(gap);
        self.last = Some(now);
        gap
    }

    fn max_ms(&self) -> f64 {
        self.max.0 as f64 / 1e6
    }
}

struct User<'a> {
    client: GroupClient<UdpTransport>,
    requests: &'a Requests,
    keys: KeyDraw,
    random: Random,
    begun: BTreeMap<RequestNumber, Instant>,
    writes: u64,
    wrong_replies: u64,
    payload: Vec<u8>,
}

impl<'a> User<'a> {
    fn new(client: GroupClient<UdpTransport>, requests: &'a Requests) -> User<'a> {
        User {
            client,
            requests,
            keys: KeyDraw::new(requests.keys, Popularity::Uniform),
            random: Random::new(requests.seed, 0),
            begun: BTreeMap::new(),
            writes: 0,
            wrong_replies: 0,
            payload: Vec::new(),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut tally = Tally::new(self.requests);
        for key in 0..self.requests.keys {
            while !self.set(key)? {
                self.take(&mut tally)?;
            }
            while self.begun.len() >= self.requests.outstanding {
                self.take(&mut tally)?;
            }
        }
        self.drain(&mut tally)
    }

    /// Makes requests for so long, and awaits all of them; those that ended later count as well.
    fn run(&mut self, time: Duration) -> io::Result<(Tally, Duration)> {
        let (mut tally, begin) = (Tally::new(self.requests), Instant::now());
        while begin.elapsed() < time {
            while self.begun.len() < self.requests.outstanding && self.submit()? {}
            self.take(&mut tally)?;
        }
        self.drain(&mut tally)?;
        Ok((tally, begin.elapsed()))
    }

    /// Whether it was taken: while one waits for a dead member, others of its kind go only so far ahead.
    fn submit(&mut self) -> io::Result<bool> {
        let key = self.keys.draw(&mut self.random);
        if self.random.below(100) < u64::from(self.requests.updates_percent) {
            self.set(key)
        } else {
            write_get(&key_name(key), false, &mut self.payload);
            self.send(RequestKind::Read, key)
        }
    }

    fn set(&mut self, key: u64) -> io::Result<bool> {
        let value = format!("{:0width$}", self.writes + 1, width = self.requests.value_bytes);
        write_request(&[&["SET", &key_name(key), &value]], false, &mut self.payload);
        let is_taken = self.send(RequestKind::Update, key)?;
        self.writes += u64::from(is_taken);
        Ok(is_taken)
    }

    fn send(&mut self, kind: RequestKind, key: u64) -> io::Result<bool> {
        let (begun, hash) = (Instant::now(), key_hash(key_name(key).as_bytes()));
        match self.client.submit_keyed(kind, hash, &self.payload, CallLabel::new("lab")) {
            Ok(number) => self.begun.insert(number, begun),
            Err(GroupSubmitError::Full) => return Ok(false),
            Err(error) => return Err(io::Error::other(error)),
        };
        Ok(true)
    }

    fn drain(&mut self, tally: &mut Tally) -> io::Result<()> {
        while !self.begun.is_empty() {
            self.take(tally)?;
        }
        Ok(())
    }

    /// Waits until something happens, and takes all answers there are.
    fn take(&mut self, tally: &mut Tally) -> io::Result<()> {
        let User { client, begun, wrong_replies, .. } = self;
        client.turn()?;
        let mut has_come = false;
        while let Some(event) = client.next_event() {
            has_come = true;
            let (GroupEvent::Answered { number, .. } | GroupEvent::GivenUp { number, .. }) = event;
            let Some(since) = begun.remove(&number) else { continue };
            let GroupEvent::Answered { bytes, .. } = event else { continue };
            let reply = parse_reply(bytes);
            let (answers, is_right) = if number.writes {
                let is_right = reply.is_ok_and(|reply| reply == Reply::Simple("OK".into()));
                (&mut tally.updates, is_right)
            } else {
                let is_right = matches!(reply, Ok(Reply::Bulk(_) | Reply::Null));
                (&mut tally.reads, is_right)
            };
            answers.add(since.elapsed());
            *wrong_replies += u64::from(!is_right);
        }
        if begun.values().any(|since| since.elapsed() > PATIENCE) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a request has no answer"));
        }
        if has_come || begun.is_empty() {
            return Ok(());
        }
        client.wait(Some(PATIENCE))
    }
}

fn key_name(key: u64) -> String {
    format!("user{key:012}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_lies_between_two_answers() {
        let mut gaps = Gaps::default();
        let told = [100, 130, 140].map(|ms| gaps.on_answer(Nanos::from_millis(ms)));
        assert_eq!(told, [0, 30, 10].map(Nanos::from_millis));
        assert!((gaps.max_ms() - 30.0).abs() < 1e-9);
    }
}
