//! A client that makes updates, as many at a time as it is told, and measures each.
//!
//! Invariant: a latency runs from before a request is handed to the runtime until its completion has been
//! taken from it; requests of the warm-up are made but not measured.

use crate::experiment::run_interleaved;
use scotfree_core::Tier;
use scotfree_rpc::{start_session, ProbeOptions, Session, SessionConfig, SessionError, SessionOptions};
use scotfree_stage::process::{cpu_time_of, wait_until};
use scotfree_stage::stats::{Latencies, Summary};
use scotfree_stage::trouble::Trouble;
use scotfree_trace::{Resource, TraceCounts, TraceWriter, WriterOptions};
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long one reply may take before the measurement is given up.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Which calls to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallsSpec {
    /// The server.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// What devices must give before an update is complete; where nothing is asked, the server's reply
    /// completes it.
    #[serde(with = "crate::tier_text")]
    pub tier: Tier,
    /// Updates that wait for their completion at any time.
    pub outstanding: usize,
    /// The shortest time between the beginnings of two calls; 0 for none. A call that begins late is
    /// measured from when it was due.
    pub interval_us: u64,
    /// The size of an update.
    pub payload_bytes: usize,
    /// How many are measured.
    pub calls: u64,
    /// How many are made before.
    pub warmup_calls: u64,
    /// Which calls are stamped, and what becomes of that; none without.
    pub trace: Option<TraceSpec>,
}

/// Where records of calls go.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TraceSpec {
    /// The file.
    pub file: PathBuf,
    /// One in so many calls is stamped and recorded.
    pub every: u32,
}

/// What calls measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallsReport {
    /// Latencies of the calls measured.
    pub latency: Summary,
    /// The time over which they were made, in seconds.
    pub elapsed_s: f64,
    /// Calls per second.
    pub requests_per_s: f64,
    /// Of all calls, those that a device's acknowledgement completed.
    pub completed_early: u64,
    /// Of all calls, those that too few devices had acknowledged: complete because they were stable.
    pub completed_stable: u64,
    /// Acknowledgements of devices.
    pub device_acks: u64,
    /// Requests that were sent again.
    pub retransmitted: u64,
    /// Packets that were refused.
    pub refused: u64,
    /// The processor time of this process per call, in microseconds.
    pub cpu_us_per_request: f64,
    /// Records of calls that were written.
    pub records_written: u64,
    /// Records that were dropped or could not be written.
    pub records_lost: u64,
}

/// Calls by several callers in slices, which take turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SlicesSpec {
    /// What each caller does; its `calls` are those of one slice.
    pub callers: Vec<CallsSpec>,
    /// The process of each caller's server.
    pub servers: Vec<u32>,
    /// How many slices each caller has.
    pub slices: u32,
}

/// One slice of one caller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// The caller, from 0.
    pub caller: usize,
    /// The slice, from 0.
    pub number: u32,
    /// What it measured; of what is counted, what came up in this slice.
    pub report: CallsReport,
    /// The processor time of its server per call, in microseconds.
    pub server_cpu_us_per_request: f64,
}

pub(super) fn measure(spec: &CallsSpec) -> Result<CallsReport, Trouble> {
    measure_within(spec, REPLY_TIMEOUT)
}

/// All callers are there from the beginning to the end, so that the slices of one differ from those of
/// another in nothing else.
pub(super) fn measure_slices(spec: &SlicesSpec) -> Result<Vec<Slice>, Trouble> {
    let started = spec.callers.iter().map(|caller| Caller::start(caller, REPLY_TIMEOUT));
    let mut callers = started.collect::<Result<Vec<_>, _>>()?;
    let order: Vec<usize> = (0..callers.len()).collect();
    let slices = run_interleaved(&order, spec.slices, |&caller, number| {
        let cpu_before = cpu_time_of_server(spec, caller)?;
        let report = callers[caller].slice(&spec.callers[caller])?;
        let cpu = cpu_time_of_server(spec, caller)?.saturating_sub(cpu_before);
        let server_cpu_us_per_request = cpu.as_secs_f64() * 1e6 / spec.callers[caller].calls as f64;
        Ok(Slice { caller, number, report, server_cpu_us_per_request })
    })?;
    for (caller, spec) in callers.into_iter().zip(&spec.callers) {
        caller.finish().map_err(|error| broke(spec, error))?;
    }
    Ok(slices)
}

fn cpu_time_of_server(spec: &SlicesSpec, caller: usize) -> Result<Duration, Trouble> {
    let pid = spec.servers.get(caller).copied();
    pid.and_then(cpu_time_of).ok_or_else(|| {
        let problem = "its process is not there, or /proc does not say";
        Trouble::new("read the processor time of a server", problem, "see the logs of the server")
    })
}

fn measure_within(spec: &CallsSpec, patience: Duration) -> Result<CallsReport, Trouble> {
    let mut caller = Caller::start(spec, patience)?;
    let report = caller.measure(spec)?;
    let counts = caller.finish().map_err(|error| broke(spec, error))?;
    Ok(CallsReport {
        records_written: counts.written,
        records_lost: counts.recorded - counts.written,
        ..report
    })
}

fn broke(spec: &CallsSpec, error: SessionError) -> Trouble {
    let next = "see the logs of the server and of the device";
    Trouble::new(format!("call the server {}", spec.server), error, next)
}

fn config(spec: &CallsSpec, patience: Duration) -> SessionConfig {
    SessionConfig {
        options: SessionOptions { tier: spec.tier, ..SessionOptions::default() },
        patience,
        probes: spec.trace.as_ref().map_or(ProbeOptions::OFF, |trace| ProbeOptions {
            record_every: trace.every,
            ..ProbeOptions::default()
        }),
        ..SessionConfig::new(spec.server, ClusterKey::from_bytes(spec.cluster_key))
    }
}

fn open_trace(file: &std::path::Path) -> Result<TraceWriter, Trouble> {
    let resource = Resource { service: "scot-lab".into(), instance: None, peer: None };
    TraceWriter::to_file(file, resource, WriterOptions::default())
        .map_err(|error| Trouble::file("write", file, &error))
}

fn cpu_time() -> Duration {
    cpu_time_of(std::process::id()).unwrap_or_default()
}

/// Records that were dropped or could not be written.
fn lost(counts: &TraceCounts) -> u64 {
    counts.dropped_full + counts.dropped_incomplete + counts.failed
}

struct Caller {
    session: Session,
    tier: Tier,
    payload: Vec<u8>,
    // When each call that has no reply was made.
    in_flight: VecDeque<Instant>,
    interval: Duration,
    due: Instant,
    writer: Option<TraceWriter>,
    key: u64,
}

impl Caller {
    /// Opens a session and makes the first calls.
    fn start(spec: &CallsSpec, patience: Duration) -> Result<Caller, Trouble> {
        let writer = spec.trace.as_ref().map(|trace| open_trace(&trace.file)).transpose()?;
        let mut caller = Caller {
            session: start_session(&config(spec, patience)).map_err(|error| broke(spec, error))?,
            tier: spec.tier,
            payload: vec![b'x'; spec.payload_bytes],
            in_flight: VecDeque::with_capacity(spec.outstanding),
            interval: Duration::from_micros(spec.interval_us),
            due: Instant::now(),
            writer,
            key: 0,
        };
        caller.run(spec.warmup_calls, spec.outstanding).map_err(|error| broke(spec, error))?;
        Ok(caller)
    }

    /// Makes and measures the calls of `spec`, and then waits until their records are written, so that the
    /// writer does not work while others are measured.
    fn slice(&mut self, spec: &CallsSpec) -> Result<CallsReport, Trouble> {
        let before = self.counts();
        let report = self.measure(spec)?;
        self.await_writer()?;
        let counts = self.counts();
        Ok(CallsReport {
            records_written: counts.written - before.written,
            records_lost: lost(&counts) - lost(&before),
            ..report
        })
    }

    /// Makes and measures the calls of `spec`; records are the caller's to count.
    fn measure(&mut self, spec: &CallsSpec) -> Result<CallsReport, Trouble> {
        let before = self.session.runtime().totals();
        let cpu_before = cpu_time();
        let begin = Instant::now();
        let latencies = self.run(spec.calls, spec.outstanding).map_err(|error| broke(spec, error))?;
        let elapsed_s = begin.elapsed().as_secs_f64();
        let cpu_s = cpu_time().saturating_sub(cpu_before).as_secs_f64();
        let totals = self.session.runtime().totals();
        Ok(CallsReport {
            latency: latencies.summary().ok_or_else(|| {
                Trouble::new("measure calls", "none were to be made", "ask for at least one call")
            })?,
            elapsed_s,
            requests_per_s: spec.calls as f64 / elapsed_s,
            completed_early: totals.completed_early - before.completed_early,
            completed_stable: totals.completed_stable - before.completed_stable,
            device_acks: totals.device_acks - before.device_acks,
            retransmitted: totals.retransmitted - before.retransmitted,
            refused: totals.refused - before.refused,
            cpu_us_per_request: cpu_s * 1e6 / spec.calls as f64,
            records_written: 0,
            records_lost: 0,
        })
    }

    fn counts(&self) -> TraceCounts {
        self.writer.as_ref().map(TraceWriter::counts).unwrap_or_default()
    }

    /// Waits until the writer has done what it was given.
    fn await_writer(&self) -> Result<(), Trouble> {
        let is_idle = || {
            let counts = self.counts();
            counts.written + lost(&counts) == counts.recorded
        };
        if wait_until(REPLY_TIMEOUT, is_idle) {
            return Ok(());
        }
        Err(Trouble::new(
            "await the writer of records",
            format!("it has not written them within {} s", REPLY_TIMEOUT.as_secs()),
            "see whether the disk works",
        ))
    }

    /// Makes `count` calls to their ends.
    fn run(&mut self, count: u64, outstanding: usize) -> Result<Latencies, SessionError> {
        let mut latencies = Latencies::new();
        let (mut sent, mut done) = (0, 0);
        self.due = Instant::now();
        while done < count {
            while sent < count && self.in_flight.len() < outstanding {
                self.send()?;
                sent += 1;
            }
            self.session.next_reply(REPLY_TIMEOUT)?;
            let begin = self.in_flight.pop_front().expect("replies come one for each request");
            latencies.record(begin.elapsed());
            done += 1;
            self.hand_over_records();
        }
        Ok(latencies)
    }

    fn send(&mut self) -> Result<(), SessionError> {
        // Some thousand keys in turn: neither one hot key nor a table that grows.
        self.key = (self.key + 1) % 4_096;
        let key = self.key.to_le_bytes();
        let begin = self.wait_until_due()?;
        self.in_flight.push_back(begin);
        if self.tier == Tier::NONE {
            self.session.send_update(&key, &self.payload)?;
        } else {
            self.session.send_early_update(&key, &self.payload)?;
        }
        Ok(())
    }

    /// Waits until the next call is due, while the runtime does what it has to; when the call begins.
    fn wait_until_due(&mut self) -> Result<Instant, SessionError> {
        if self.interval.is_zero() {
            return Ok(Instant::now());
        }
        loop {
            let left = self.due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.session.runtime().wait(Some(left))?;
            self.session.runtime().turn()?;
        }
        let begin = self.due;
        // After a pause the calls that were missed are not made up for.
        self.due = (begin + self.interval).max(Instant::now());
        Ok(begin)
    }

    fn hand_over_records(&mut self) {
        if let Some(writer) = &self.writer {
            while let Some(record) = self.session.runtime().next_record() {
                writer.handle().record(record);
            }
        }
    }

    /// Ends the session, so that the server forgets it, and writes the last records.
    fn finish(mut self) -> Result<TraceCounts, SessionError> {
        let mut counts = TraceCounts::default();
        if let Some(writer) = self.writer.take() {
            while let Some(record) = self.session.runtime().last_record() {
                writer.handle().record(record);
            }
            counts = writer.close();
        }
        self.session.end_session()?;
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::worker::noop::{self, NoopSpec};
    use scotfree_io::conformance::ports::free_address;
    use scotfree_stage::scratch::Scratch;
    use std::net::UdpSocket;

    #[test]
    fn calls_to_a_server_that_does_nothing_are_measured() {
        let server = noop_server();
        let folder = Scratch::new("calls").expect("temporary files can be written");
        let traced = |every| Some(TraceSpec { file: folder.path().join("trace.jsonl"), every });
        for (outstanding, interval_us, trace, records) in
            [(1, 0, None, 0), (16, 0, traced(1), 210), (1, 100, traced(10), 21)]
        {
            let spec = CallsSpec { outstanding, interval_us, trace, ..example(server) };
            let report = measure(&spec).expect("the server answers");
            assert_eq!((report.latency.count, report.completed_early), (200, 0));
            assert_eq!((report.records_written, report.records_lost), (records, 0));
            assert!(report.requests_per_s > 0.0 && report.elapsed_s * 1e6 >= 199.0 * interval_us as f64);
        }
    }

    #[test]
    fn slices_take_turns_and_count_each_for_itself() {
        let server = noop_server();
        let folder = Scratch::new("slices").expect("temporary files can be written");
        let trace = Some(TraceSpec { file: folder.path().join("trace.jsonl"), every: 10 });
        let callers = vec![example(server), CallsSpec { trace, ..example(server) }];
        let slices = measure_slices(&SlicesSpec { callers, servers: vec![std::process::id(); 2], slices: 3 })
            .expect("the server answers");
        let turns: Vec<_> = slices.iter().map(|slice| (slice.number, slice.caller)).collect();
        assert_eq!(turns, [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]);
        assert!(slices.iter().all(|slice| slice.report.latency.count == 200));
        let written = |caller| {
            let of_caller = slices.iter().filter(|slice| slice.caller == caller);
            of_caller.map(|slice| slice.report.records_written + slice.report.records_lost).sum::<u64>()
        };
        assert_eq!(written(0), 0);
        // Records of the warm-up may be among them, and some that wait for stamps may not.
        assert!((20..=61).contains(&written(1)), "{}", written(1));
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let server = free_address();
        let spec = CallsSpec { calls: 1, warmup_calls: 0, ..example(server) };
        let error =
            measure_within(&spec, Duration::from_millis(100)).expect_err("nobody listens").to_string();
        assert!(error.contains(&server.to_string()), "{error}");
    }

    /// Serves until the test's process ends.
    fn noop_server() -> SocketAddr {
        let listen = free_address();
        let noop = NoopSpec { probes: true, ..NoopSpec::new(listen, [5; 32]) };
        std::thread::spawn(move || noop::serve(&noop));
        assert!(wait_until(Duration::from_secs(20), || UdpSocket::bind(listen).is_err()), "it is bound");
        listen
    }

    fn example(server: SocketAddr) -> CallsSpec {
        CallsSpec {
            server,
            cluster_key: [5; 32],
            tier: Tier::NONE,
            outstanding: 1,
            interval_us: 0,
            payload_bytes: 64,
            calls: 200,
            warmup_calls: 10,
            trace: None,
        }
    }
}
