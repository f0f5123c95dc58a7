//! Sends a workload to a service that speaks RESP over TCP, and measures each reply.
//!
//! Invariant: in an open loop a latency runs from the time at which the request was due, not from when it
//! could be sent, so that a service that stalls is charged for all who would have waited (no coordinated
//! omission). Every request sent is counted as answered, refused or unanswered.
//!
//! Each connection has a thread, an open loop's two: one sends, one receives. They sleep in the kernel
//! while there is nothing to do. Connections that are asked in turns share one, as only one of them waits for a reply.

use crate::resp::{Connection, Receiver, Reply, ReplyError, Sender};
use crate::stats::{Latencies, Summary};
use crate::trouble::Trouble;
use crate::workload::{Arrivals, Command, Commands, Pace, Random, Workload, OUTSTANDING_MAX};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{getrlimit, setrlimit, Resource};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver as Queue, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

/// How long a reply may take before its connection is given up.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

// Files that a load has open beside its connections.
const FILES_BESIDE: u64 = 32;

/// What a load measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// The workload's name.
    pub workload: String,
    /// Requests that were measured, warm-up left out.
    pub measured_count: u64,
    /// Requests sent, warm-up included.
    pub sent_count: u64,
    /// Error replies, and writes that too few replicas had.
    pub refused_count: u64,
    /// Requests whose connection broke before the reply came.
    pub unanswered_count: u64,
    /// Connections that broke.
    pub broken_count: u64,
    /// What broke the first of them.
    pub first_error: Option<String>,
    /// The time over which the measured requests were sent, in seconds.
    pub elapsed_s: f64,
    /// Measured requests per second.
    pub requests_per_s: f64,
    /// The longest that an open loop's request was sent after it was due.
    pub late_ns_max: u64,
    /// Latencies of all measured requests.
    pub all: Option<Summary>,
    /// Latencies by command.
    pub commands: BTreeMap<Command, Summary>,
}

/// Runs a workload to its end or until `stop` is set.
pub fn run(address: SocketAddr, workload: &Workload, stop: &AtomicBool) -> Result<LoadReport, Trouble> {
    allow_open_files(workload.connections)?;
    let mut connections = Vec::new();
    for _ in 0..workload.connections {
        connections.push(connect(address)?);
    }
    if let Pace::Turns { rate } = workload.pace {
        connections.iter_mut().try_for_each(|connection| greet(connection, address))?;
        let run = Run::new(workload, stop);
        return Ok(run.report(&[run.drive_in_turns(connections, rate)]));
    }
    let run = Run::new(workload, stop);
    let bar = progress_bar(workload);
    let measured: Vec<Measured> = thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = connections
            .into_iter()
            .zip(0..)
            .map(|(connection, number)| scope.spawn(move || run.drive(connection, number)))
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            bar.set_position(run.position());
            // Only the bar waits here; the threads are joined below.
            thread::sleep(Duration::from_millis(20));
        }
        threads.into_iter().map(|thread| thread.join().expect("a load thread does not panic")).collect()
    });
    bar.finish_and_clear();
    Ok(run.report(&measured))
}

/// Lets this process open as many files as it may at all, if so many connections need that.
fn allow_open_files(connections: u32) -> Result<(), Trouble> {
    let needed = u64::from(connections) + FILES_BESIDE;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let tried = format!("open {connections} connections");
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        let problem = format!("this process may open {maximum} files, and needs {needed}");
        let next = format!("raise the limit where it is started, as root: ulimit -Hn {needed}");
        return Err(Trouble::new(tried, problem, next));
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| Trouble::new(tried, error, "see ulimit -Hn"))
}

/// Waits until a connection is not only taken by the kernel but served.
fn greet(connection: &mut Connection, address: SocketAddr) -> Result<(), Trouble> {
    let problem = match connection.call(&["PING"]) {
        Ok(Reply::Simple(_)) => return Ok(()),
        Ok(reply) => format!("it answers {reply:?} to a PING"),
        Err(error) => error.to_string(),
    };
    let next = "see how many connections the service allows, and its log";
    Err(Trouble::new(format!("have all connections to {address} served"), problem, next))
}

fn connect(address: SocketAddr) -> Result<Connection, Trouble> {
    Connection::open(address, REPLY_TIMEOUT).map_err(|error| {
        let next = "see whether the service runs and listens there";
        Trouble::new(format!("connect to {address}"), error, next)
    })
}

fn progress_bar(workload: &Workload) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {elapsed}").expect("the template is right");
    // Counted in requests or in milliseconds, whichever ends the load.
    let length =
        if workload.requests_max == u64::MAX { workload.duration_ms_max } else { workload.requests_max };
    ProgressBar::new(length).with_style(style).with_message(workload.name.clone())
}

/// What all connections share.
struct Run<'a> {
    workload: &'a Workload,
    stop: &'a AtomicBool,
    begin: Instant,
    // Requests that may still be sent.
    quota: AtomicU64,
}

/// What one connection measured.
#[derive(Default)]
struct Measured {
    latencies: BTreeMap<Command, Latencies>,
    sent_count: u64,
    warmup_count: u64,
    refused_count: u64,
    unanswered_count: u64,
    error: Option<String>,
    late_ns_max: u64,
    last_reply: Option<Instant>,
}

/// A request that waits for its reply.
#[derive(Clone, Copy)]
struct Pending {
    command: Command,
    due: Instant,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Given,
    /// With an error, or before as many replicas had it as were asked for.
    Refused,
}

impl<'a> Run<'a> {
    fn new(workload: &'a Workload, stop: &'a AtomicBool) -> Run<'a> {
        Run { workload, stop, begin: Instant::now(), quota: AtomicU64::new(workload.requests_max) }
    }

    fn drive(&self, connection: Connection, number: u32) -> Measured {
        match self.workload.pace {
            Pace::Closed { outstanding } => self.drive_closed(connection, number, outstanding as usize),
            Pace::Open { rate, arrivals } => {
                let schedule = Schedule::new(self.begin, self.workload, number, rate, arrivals);
                self.drive_open(connection, number, schedule)
            }
            Pace::Turns { rate } => self.drive_in_turns(vec![connection], rate),
        }
    }

    /// Asks one connection at a time, at most so often in a second. Each latency runs from when its request was sent:
    /// nothing waits behind it, and what it delays is not sent later.
    fn drive_in_turns(&self, mut connections: Vec<Connection>, rate: f64) -> Measured {
        let mut measured = Measured::default();
        let mut commands = Commands::new(self.workload, 0);
        let mut random = Random::new(!self.workload.seed, 0);
        let gap = Duration::from_secs_f64(1.0 / rate);
        let mut next = self.begin;
        loop {
            next = (next + gap).max(Instant::now());
            self.sleep_until(next);
            if !self.may_send() {
                break;
            }
            let place = random.below(connections.len() as u64) as usize;
            let connection = &mut connections[place];
            let due = Instant::now();
            let command = commands.next(|words| connection.push(words));
            measured.sent_count += 1;
            let sent = connection.flush().map_err(ReplyError::from);
            let answer = sent.and_then(|()| self.read_answer(command, || connection.read()));
            match answer {
                Ok(answer) => self.measure(&mut measured, Pending { command, due }, answer),
                Err(error) => {
                    measured = measured.broken(&error, 1);
                    break;
                }
            }
        }
        connections.into_iter().for_each(Connection::reset);
        measured
    }

    /// Takes one request from the quota, unless the load is over.
    fn may_send(&self) -> bool {
        let is_over = self.stop.load(Ordering::Relaxed)
            || self.begin.elapsed() >= Duration::from_millis(self.workload.duration_ms_max);
        // The quota is a plain count; nothing else is ordered by it.
        let take = |left: u64| left.checked_sub(1);
        !is_over && self.quota.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Sleeps until a request is due, or until the load is over.
    fn sleep_until(&self, due: Instant) {
        let end = due.min(self.begin + Duration::from_millis(self.workload.duration_ms_max));
        while let Some(rest) = end.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(rest.min(Duration::from_millis(50)));
        }
    }

    fn drive_closed(&self, mut connection: Connection, number: u32, outstanding: usize) -> Measured {
        let mut measured = Measured::default();
        let mut commands = Commands::new(self.workload, number);
        let mut pending = VecDeque::with_capacity(outstanding);
        loop {
            while pending.len() < outstanding && self.may_send() {
                let due = Instant::now();
                let command = commands.next(|words| connection.push(words));
                pending.push_back(Pending { command, due });
                measured.sent_count += 1;
            }
            if let Err(error) = connection.flush() {
                return measured.broken(&error, pending.len());
            }
            // All replies that came together are answered by new requests that go together.
            loop {
                let Some(request) = pending.pop_front() else { return measured };
                match self.read_answer(request.command, || connection.read()) {
                    Ok(answer) => self.measure(&mut measured, request, answer),
                    Err(error) => return measured.broken(&error, pending.len() + 1),
                }
                if pending.is_empty() || !connection.has_buffered() {
                    break;
                }
            }
        }
    }

    fn drive_open(&self, connection: Connection, number: u32, schedule: Schedule) -> Measured {
        let (sender, receiver) = connection.split();
        // When as many wait as fit, sending waits too; the latencies still run from the due times.
        let (queue_in, queue_out) = sync_channel(OUTSTANDING_MAX as usize);
        thread::scope(|scope| {
            let sending = scope.spawn(move || self.send_open(sender, number, schedule, &queue_in));
            let mut measured = self.receive_open(receiver, queue_out);
            let (sent_count, late_ns_max, error) = sending.join().expect("a sender does not panic");
            measured.sent_count = sent_count;
            measured.late_ns_max = late_ns_max;
            let answered = measured.answered_count();
            measured.unanswered_count = sent_count - answered;
            measured.error = measured.error.or(error);
            measured
        })
    }

    /// Sends each request when it is due; returns how many, the longest delay, and what broke it.
    fn send_open(
        &self,
        mut sender: Sender,
        number: u32,
        mut schedule: Schedule,
        queue: &SyncSender<Pending>,
    ) -> (u64, u64, Option<String>) {
        let mut commands = Commands::new(self.workload, number);
        let (mut sent_count, mut late_ns_max) = (0, 0);
        loop {
            let due = schedule.next();
            self.sleep_until(due);
            if !self.may_send() {
                // The receiver reads what is pending and then finds the queue closed.
                return (sent_count, late_ns_max, None);
            }
            late_ns_max = late_ns_max.max(due.elapsed().as_nanos() as u64);
            let command = commands.next(|words| sender.push(words));
            // Counted before the receiver can know of it: what is in the queue has been sent or is lost.
            sent_count += 1;
            if queue.send(Pending { command, due }).is_err() {
                return (sent_count, late_ns_max, None);
            }
            if let Err(error) = sender.flush() {
                sender.close();
                return (sent_count, late_ns_max, Some(error.to_string()));
            }
        }
    }

    fn receive_open(&self, mut receiver: Receiver, queue: Queue<Pending>) -> Measured {
        let mut measured = Measured::default();
        for request in queue {
            match self.read_answer(request.command, || receiver.read()) {
                Ok(answer) => self.measure(&mut measured, request, answer),
                Err(error) => {
                    measured.error = Some(error.to_string());
                    break;
                }
            }
        }
        measured
    }

    /// Reads the reply to a command, and that to the WAIT behind it.
    fn read_answer(
        &self,
        command: Command,
        mut read: impl FnMut() -> Result<Reply, ReplyError>,
    ) -> Result<Answer, ReplyError> {
        let is_refused = matches!(read()?, Reply::Error(_));
        let has_reached = !self.workload.waits_for_replicas(command)
            || matches!(read()?, Reply::Integer(count) if count >= i64::from(self.workload.replicas));
        Ok(if is_refused || !has_reached { Answer::Refused } else { Answer::Given })
    }

    fn measure(&self, measured: &mut Measured, request: Pending, answer: Answer) {
        let now = Instant::now();
        let is_warm = request.due >= self.measured_begin();
        if answer == Answer::Refused {
            measured.refused_count += 1;
        } else if is_warm {
            measured.last_reply = Some(now);
            measured.latencies.entry(request.command).or_default().record(now - request.due);
        } else {
            measured.warmup_count += 1;
        }
    }

    fn measured_begin(&self) -> Instant {
        self.begin + Duration::from_millis(self.workload.warmup_ms)
    }

    fn position(&self) -> u64 {
        if self.workload.requests_max == u64::MAX {
            self.begin.elapsed().as_millis() as u64
        } else {
            self.workload.requests_max - self.quota.load(Ordering::Relaxed)
        }
    }

    fn report(&self, all_measured: &[Measured]) -> LoadReport {
        let mut all = Latencies::new();
        let mut commands: BTreeMap<Command, Latencies> = BTreeMap::new();
        for (command, latencies) in all_measured.iter().flat_map(|measured| &measured.latencies) {
            all.add(latencies);
            commands.entry(*command).or_default().add(latencies);
        }
        let end = all_measured.iter().filter_map(|measured| measured.last_reply).max();
        let elapsed_s = end.map_or(0.0, |end| (end - self.measured_begin()).as_secs_f64());
        let sum = |count: fn(&Measured) -> u64| all_measured.iter().map(count).sum();
        LoadReport {
            workload: self.workload.name.clone(),
            measured_count: all.count(),
            sent_count: sum(|measured| measured.sent_count),
            refused_count: sum(|measured| measured.refused_count),
            unanswered_count: sum(|measured| measured.unanswered_count),
            broken_count: sum(|measured| u64::from(measured.error.is_some())),
            first_error: all_measured.iter().find_map(|measured| measured.error.clone()),
            elapsed_s,
            requests_per_s: if elapsed_s > 0.0 { all.count() as f64 / elapsed_s } else { 0.0 },
            late_ns_max: all_measured.iter().map(|measured| measured.late_ns_max).max().unwrap_or(0),
            all: all.summary(),
            commands: commands
                .into_iter()
                .filter_map(|(command, latencies)| Some((command, latencies.summary()?)))
                .collect(),
        }
    }
}

impl Measured {
    fn answered_count(&self) -> u64 {
        let measured: u64 = self.latencies.values().map(Latencies::count).sum();
        measured + self.refused_count + self.warmup_count
    }

    fn broken(mut self, error: &dyn std::fmt::Display, unanswered: usize) -> Measured {
        self.error = Some(error.to_string());
        self.unanswered_count = unanswered as u64;
        self
    }
}

/// The due times of one connection of an open loop.
struct Schedule {
    due: Instant,
    gap: Duration,
    arrivals: Arrivals,
    random: Random,
}

impl Schedule {
    fn new(begin: Instant, workload: &Workload, number: u32, rate: f64, arrivals: Arrivals) -> Schedule {
        let gap = Duration::from_secs_f64(f64::from(workload.connections) / rate);
        // The connections' first requests are spread over one gap.
        let due = begin + gap.mul_f64(f64::from(number) / f64::from(workload.connections));
        Schedule { due, gap, arrivals, random: Random::new(!workload.seed, u64::from(number)) }
    }

    fn next(&mut self) -> Instant {
        let due = self.due;
        self.due += match self.arrivals {
            Arrivals::Uniform => self.gap,
            Arrivals::Poisson => self.gap.mul_f64(-self.random.unit().ln()),
        };
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_redis::FakeRedis;
    use crate::fakes::example_workload;

    #[test]
    fn a_closed_loop_counts_every_request() {
        let service = FakeRedis::start();
        for outstanding in [1, 16] {
            let workload = Workload { pace: Pace::Closed { outstanding }, ..example_workload() };
            let report = run(service.address(), &workload, &AtomicBool::new(false)).expect("it runs");
            assert_eq!((report.sent_count, report.measured_count), (1_000, 1_000));
            assert_eq!((report.refused_count, report.unanswered_count, report.broken_count), (0, 0, 0));
            let counts: u64 = report.commands.values().map(|summary| summary.count).sum();
            assert_eq!(counts, 1_000);
            assert!(report.requests_per_s > 0.0 && report.all.is_some());
        }
    }

    #[test]
    fn connections_in_turns_are_asked_one_at_a_time() {
        let service = FakeRedis::start();
        let pace = Pace::Turns { rate: 1e6 };
        let workload = Workload { connections: 40, requests_max: 1_000, pace, ..example_workload() };
        let report = run(service.address(), &workload, &AtomicBool::new(false)).expect("it runs");
        assert_eq!((report.sent_count, report.measured_count), (1_000, 1_000));
        assert_eq!((report.refused_count, report.unanswered_count, report.broken_count), (0, 0, 0));
    }

    #[test]
    fn more_connections_than_files_may_be_open_are_refused_with_what_is_needed() {
        let error = allow_open_files(u32::MAX);
        if getrlimit(Resource::Nofile).maximum.is_none_or(|maximum| maximum > u64::from(u32::MAX)) {
            eprintln!("SKIP: there is no limit of open files here");
            return;
        }
        let error = error.expect_err("nobody may open so many").to_string();
        assert!(error.contains("ulimit -Hn 4294967327") && error.contains("may open"), "{error}");
    }

    #[test]
    fn an_open_loop_charges_a_stall_to_all_who_would_have_waited() {
        // The service needs 2 ms for each request and 1 ms would be due: the delay grows to half of the
        // whole time, whereas a closed loop would see 2 ms throughout.
        let service = FakeRedis::start();
        service.delay(Duration::from_millis(2));
        let open = Workload {
            connections: 1,
            requests_max: 200,
            pace: pace(1_000.0, Arrivals::Uniform),
            ..example_workload()
        };
        let report = run(service.address(), &open, &AtomicBool::new(false)).expect("it runs");
        assert_eq!(report.measured_count, 200);
        let worst_ms = report.all.expect("it measured").max_ns / 1_000_000;
        assert!(worst_ms >= 190, "the last request waited for 200 ms of others' work: {worst_ms} ms");
        let closed = Workload { requests_max: 50, pace: Pace::Closed { outstanding: 1 }, ..open };
        let report = run(service.address(), &closed, &AtomicBool::new(false)).expect("it runs");
        assert!(report.all.expect("it measured").p50_ns < worst_ms * 1_000_000 / 4);
    }

    #[test]
    fn an_open_loop_keeps_its_rate() {
        let service = FakeRedis::start();
        for arrivals in [Arrivals::Uniform, Arrivals::Poisson] {
            let workload =
                Workload { requests_max: 400, pace: pace(2_000.0, arrivals), ..example_workload() };
            let report = run(service.address(), &workload, &AtomicBool::new(false)).expect("it runs");
            assert_eq!(report.measured_count, 400);
            // Never faster than asked for; how much slower is the machine's affair.
            assert!(
                report.elapsed_s > 0.12,
                "{arrivals:?}: 400 requests at 2,000/s took {} s",
                report.elapsed_s
            );
        }
    }

    #[test]
    fn a_broken_connection_is_counted_and_named() {
        let service = FakeRedis::start();
        service.delay(Duration::from_millis(1));
        for pace in [Pace::Closed { outstanding: 4 }, pace(1_000.0, Arrivals::Uniform)] {
            let workload = Workload { requests_max: u64::MAX, pace, ..example_workload() };
            let stop = AtomicBool::new(false);
            let report = thread::scope(|scope| {
                let load = scope.spawn(|| run(service.address(), &workload, &stop));
                // Broken again and again, since the load may just be connecting.
                while !load.is_finished() {
                    service.break_connections();
                    thread::yield_now();
                }
                load.join().expect("no panic")
            });
            // A connection that broke before the load began is the other honest outcome.
            let Ok(report) = report else { continue };
            assert_eq!(report.broken_count, 2);
            let answered = report.measured_count + report.refused_count;
            assert_eq!(report.sent_count, answered + report.unanswered_count);
            assert!(report.first_error.is_some());
        }
    }

    #[test]
    fn refusals_and_warm_up_are_not_measured() {
        let service = FakeRedis::start();
        service.refuse(5);
        let workload = Workload { requests_max: 100, ..example_workload() };
        let report = run(service.address(), &workload, &AtomicBool::new(false)).expect("it runs");
        assert_eq!((report.refused_count, report.measured_count), (5, 95));
        let workload = Workload { requests_max: 100, warmup_ms: 60_000, ..example_workload() };
        let report = run(service.address(), &workload, &AtomicBool::new(false)).expect("it runs");
        assert_eq!((report.measured_count, report.all), (0, None));
    }

    #[test]
    fn a_write_that_waits_for_replicas_is_answered_when_they_have_it() {
        let service = FakeRedis::start();
        for (reached, measured_count, refused_count) in [(2, 100, 0), (1, 0, 100)] {
            service.replicate(reached);
            let mix = vec![(Command::Set, 1)];
            let workload = Workload { requests_max: 100, mix, replicas: 2, ..example_workload() };
            let in_turns = Pace::Turns { rate: 10_000.0 };
            for pace in [Pace::Closed { outstanding: 4 }, pace(10_000.0, Arrivals::Uniform), in_turns] {
                let workload = Workload { pace, ..workload.clone() };
                let report = run(service.address(), &workload, &AtomicBool::new(false)).expect("it runs");
                assert_eq!((report.measured_count, report.refused_count), (measured_count, refused_count));
            }
        }
        // A read waits for none.
        let reads = Workload { mix: vec![(Command::Get, 1)], replicas: 2, ..example_workload() };
        let report = run(service.address(), &reads, &AtomicBool::new(false)).expect("it runs");
        assert_eq!((report.measured_count, report.refused_count), (1_000, 0));
    }

    #[test]
    fn a_load_ends_when_it_is_told() {
        let service = FakeRedis::start();
        let workload = Workload { requests_max: u64::MAX, duration_ms_max: 600_000, ..example_workload() };
        let report = run(service.address(), &workload, &AtomicBool::new(true)).expect("it runs");
        assert_eq!(report.sent_count, 0);
        let workload = Workload { duration_ms_max: 30, requests_max: u64::MAX, ..example_workload() };
        let report = run(service.address(), &workload, &AtomicBool::new(false)).expect("it runs");
        assert!(report.sent_count > 0);
    }

    #[test]
    fn a_service_that_is_not_there_is_named() {
        let service = FakeRedis::start();
        let address = service.address();
        drop(service);
        let error = run(address, &example_workload(), &AtomicBool::new(false))
            .expect_err("nobody listens")
            .to_string();
        assert!(error.contains(&address.to_string()), "{error}");
    }

    fn pace(rate: f64, arrivals: Arrivals) -> Pace {
        Pace::Open { rate, arrivals }
    }
}
