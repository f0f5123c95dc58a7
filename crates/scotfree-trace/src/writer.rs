//! Takes calls off the request path and writes them elsewhere: a bounded queue to a thread of its own.
//!
//! Invariant: [`TraceHandle::record`] never waits. Of the calls recorded, each is written, dropped
//! because the queue was full, or failed to be written; the counters say how many of each.

use crate::complaint::Complaints;
use crate::endpoint::{Endpoint, EndpointSink};
use crate::otlp::{encode_line, Resource};
use crate::record::CallRecord;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

// How long the writer sleeps when there is nothing to write. It polls so that a recording thread never
// has to wake it, which would cost a system call on the request path.
const IDLE_POLL: Duration = Duration::from_millis(20);

/// The limits of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterOptions {
    /// Calls that may wait to be written; what comes on top is dropped and counted.
    pub records_max: usize,
    /// Calls handed to the file or endpoint at once.
    pub batch_records_max: usize,
    /// How long a batch for an endpoint may wait to fill up.
    pub linger: Duration,
    /// Attempts to deliver one batch to an endpoint before it is given up.
    pub attempts_max: u32,
    /// The pause after the first failed attempt; it doubles with each further one.
    pub backoff: Duration,
    /// The longest pause between attempts, also when the endpoint asks for a longer one.
    pub backoff_max: Duration,
    /// How long connecting, sending and receiving may each take.
    pub timeout: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            records_max: 16_384,
            batch_records_max: 512,
            linger: Duration::from_secs(1),
            attempts_max: 5,
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
        }
    }
}

/// What became of the calls recorded so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceCounts {
    /// Calls recorded.
    pub recorded: u64,
    /// Calls written to the file or accepted by the endpoint.
    pub written: u64,
    /// Calls dropped because the queue was full.
    pub dropped_full: u64,
    /// Calls dropped because they had no beginning or no end.
    pub dropped_incomplete: u64,
    /// Calls that could not be written or were refused.
    pub failed: u64,
    /// Attempts to deliver that were repeated.
    pub retries: u64,
}

/// The recording side; clone one for each thread.
#[derive(Debug, Clone)]
pub struct TraceHandle {
    sender: SyncSender<CallRecord>,
    shared: Arc<Shared>,
}

impl TraceHandle {
    /// Hands a call to the writer, or drops and counts it.
    pub fn record(&self, record: CallRecord) {
        let counters = &self.shared.counters;
        counters.recorded.fetch_add(1, Ordering::Relaxed);
        if !record.is_complete() {
            counters.dropped_incomplete.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.sender.try_send(record) {
            Ok(()) => (),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                counters.dropped_full.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What became of the calls so far.
    pub fn counts(&self) -> TraceCounts {
        self.shared.counters.read()
    }
}

/// The writing side: owns the thread, and flushes when it is dropped.
#[derive(Debug)]
pub struct TraceWriter {
    handle: TraceHandle,
    thread: Option<JoinHandle<()>>,
}

impl TraceWriter {
    /// Writes to a file, behind what it already holds; creates it, for its user alone, if it is not there.
    pub fn to_file(path: &Path, resource: Resource, options: WriterOptions) -> io::Result<TraceWriter> {
        let sink = FileSink::open(path, resource)?;
        Ok(TraceWriter::start(Box::new(sink), options, Duration::ZERO))
    }

    /// Sends to an OTLP endpoint by HTTP.
    pub fn to_endpoint(endpoint: Endpoint, resource: Resource, options: WriterOptions) -> TraceWriter {
        let sink = EndpointSink::new(endpoint, resource, options);
        TraceWriter::start(Box::new(sink), options, options.linger)
    }

    fn start(sink: Box<dyn Sink>, options: WriterOptions, linger: Duration) -> TraceWriter {
        let (sender, receiver) = sync_channel(options.records_max);
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            receiver,
            sink,
            shared: Arc::clone(&shared),
            batch: Vec::with_capacity(options.batch_records_max),
            batch_records_max: options.batch_records_max,
            linger,
        };
        let thread = thread::Builder::new()
            .name("scot-trace".into())
            .spawn(move || worker.run())
            .expect("a process that cannot start one thread cannot run");
        TraceWriter { handle: TraceHandle { sender, shared }, thread: Some(thread) }
    }

    /// The recording side for another thread.
    pub fn handle(&self) -> TraceHandle {
        self.handle.clone()
    }

    /// What became of the calls so far.
    pub fn counts(&self) -> TraceCounts {
        self.handle.counts()
    }

    /// From now on `tell` is told, by the writer's thread, when calls cannot be written: at once, then now
    /// and then while it lasts, and once when it is over.
    pub fn on_trouble(&self, tell: impl FnMut(&str) + Send + 'static) {
        self.handle.shared.complaints().tell(Box::new(tell));
    }

    /// The first error met while writing, in words.
    pub fn first_error(&self) -> Option<String> {
        self.handle.shared.first_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes what is queued and ends the thread; calls recorded from now on are dropped and counted.
    /// An endpoint that does not answer gets one more attempt for each batch.
    pub fn close(mut self) -> TraceCounts {
        self.finish();
        self.counts()
    }

    fn finish(&mut self) {
        self.handle.shared.closing.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the writer has already been printed; the calls count as not written.
            let _ = thread.join();
        }
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Where batches go.
pub(crate) trait Sink: Send {
    /// Writes the calls and counts what became of each.
    fn write(&mut self, batch: &[CallRecord], shared: &Shared);
}

/// What the recording and the writing side share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    closing: AtomicBool,
    first_error: Mutex<Option<String>>,
    complaints: Mutex<Complaints>,
}

impl Shared {
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn written(&self, count: u64) {
        self.counters.written.fetch_add(count, Ordering::Relaxed);
        self.complaints().written(self.counters.failed.load(Ordering::Relaxed));
    }

    /// Nothing is lost yet, but somebody should know.
    pub(crate) fn complain(&self, problem: &dyn std::fmt::Display) {
        let failed_count = self.counters.failed.load(Ordering::Relaxed);
        self.complaints().failed(Instant::now(), failed_count, problem);
    }

    fn complaints(&self) -> MutexGuard<'_, Complaints> {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fail(&self, count: usize, problem: &dyn std::fmt::Display) {
        // Before it is counted: who sees the count may ask for the error.
        let mut first = self.first_error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| problem.to_string());
        drop(first);
        self.counters.failed.fetch_add(count as u64, Ordering::Release);
        self.complain(problem);
    }
}

// Counters are statistics: each is exact, but they are not read at one instant, so Relaxed is enough but
// where an error stands behind a count.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    recorded: AtomicU64,
    written: AtomicU64,
    dropped_full: AtomicU64,
    dropped_incomplete: AtomicU64,
    failed: AtomicU64,
    pub(crate) retries: AtomicU64,
}

impl Counters {
    fn read(&self) -> TraceCounts {
        TraceCounts {
            recorded: self.recorded.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            dropped_full: self.dropped_full.load(Ordering::Relaxed),
            dropped_incomplete: self.dropped_incomplete.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Acquire),
            retries: self.retries.load(Ordering::Relaxed),
        }
    }
}

struct Worker {
    receiver: Receiver<CallRecord>,
    sink: Box<dyn Sink>,
    shared: Arc<Shared>,
    batch: Vec<CallRecord>,
    batch_records_max: usize,
    linger: Duration,
}

impl Worker {
    fn run(mut self) {
        let mut batch_since = None;
        loop {
            // Read before draining: what was recorded before the writer was closed is then seen.
            let closing = self.shared.is_closing();
            let room = self.batch_records_max - self.batch.len();
            self.batch.extend(self.receiver.try_iter().take(room));
            if self.batch.is_empty() {
                if closing {
                    return;
                }
                thread::park_timeout(IDLE_POLL);
                continue;
            }
            let since = *batch_since.get_or_insert_with(Instant::now);
            let is_due = self.batch.len() == self.batch_records_max || since.elapsed() >= self.linger;
            if is_due || closing {
                self.sink.write(&self.batch, &self.shared);
                self.batch.clear();
                batch_since = None;
            } else {
                thread::park_timeout(IDLE_POLL);
            }
        }
    }
}

struct FileSink {
    file: File,
    resource: Resource,
    lines: Vec<u8>,
    needs_newline: bool,
}

impl FileSink {
    fn open(path: &Path, resource: Resource) -> io::Result<FileSink> {
        // Who calls what when is its user's alone; a file that is there keeps the mode that somebody gave it.
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let needs_newline = ends_within_a_line(&mut file)?;
        Ok(FileSink { file, resource, lines: Vec::new(), needs_newline })
    }
}

/// A writer that was killed may have left half a line; ours must not be appended to it.
fn ends_within_a_line(file: &mut File) -> io::Result<bool> {
    if !file.metadata()?.is_file() || file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

impl Sink for FileSink {
    fn write(&mut self, batch: &[CallRecord], shared: &Shared) {
        self.lines.clear();
        if self.needs_newline {
            self.lines.push(b'\n');
        }
        for record in batch {
            encode_line(&self.resource, record, &mut self.lines);
        }
        let result = self.file.write_all(&self.lines);
        self.needs_newline = result.is_err();
        if let Err(error) = result {
            shared.fail(batch.len(), &error);
        } else {
            shared.written(batch.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::read_file;
    use crate::record::{AnsweredBy, Ids, Sources};
    use scotfree_core::{Boundaries, Boundary, Nanos};
    use std::path::PathBuf;
    use std::sync::mpsc::{channel, Sender};

    #[test]
    fn all_that_was_recorded_is_in_the_file_after_close() {
        let file = Scratch::new("all");
        let writer = TraceWriter::to_file(&file.0, resource(), WriterOptions::default()).expect("it opens");
        let handles: Vec<_> = (0..4)
            .map(|_| writer.handle())
            .map(|handle| thread::spawn(move || (0..1_000).for_each(|at| handle.record(call(at)))))
            .collect();
        for handle in handles {
            handle.join().expect("recording does not panic");
        }
        let counts = writer.close();
        assert_eq!((counts.recorded, counts.written), (4_000, 4_000));
        let mut right = 0;
        let summary = read_file(&file.0, |call| right += u64::from(call.sum_is_right())).expect("it reads");
        assert_eq!((summary.call_count, summary.damaged_count, right), (4_000, 0, 4_000));
    }

    #[test]
    fn a_new_file_is_its_users_alone_and_another_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let file = Scratch::new("mode");
        let mode_after = || {
            let writer = TraceWriter::to_file(&file.0, resource(), WriterOptions::default());
            drop(writer.expect("it opens"));
            std::fs::metadata(&file.0).expect("it is there").permissions().mode() & 0o777
        };
        assert_eq!(mode_after(), 0o600);
        std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o640)).expect("it is ours");
        assert_eq!(mode_after(), 0o640);
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_does_not_wait() {
        let (release, blocked) = channel();
        let options = WriterOptions { records_max: 8, batch_records_max: 1, ..WriterOptions::default() };
        let writer = TraceWriter::start(Box::new(Stuck(blocked)), options, Duration::ZERO);
        let handle = writer.handle();
        (0..100).for_each(|at| handle.record(call(at)));
        let dropped = handle.counts().dropped_full;
        // One call may already be in the stuck sink, eight wait.
        assert!((91..=92).contains(&dropped), "{dropped} of 100 were dropped");
        drop::<Sender<()>>(release);
        let counts = writer.close();
        assert_eq!(counts.recorded, counts.written + counts.dropped_full);
        handle.record(call(1));
        assert_eq!(handle.counts().dropped_full, counts.dropped_full + 1);
    }

    #[test]
    fn a_call_without_an_end_is_no_span() {
        let file = Scratch::new("incomplete");
        let writer = TraceWriter::to_file(&file.0, resource(), WriterOptions::default()).expect("it opens");
        writer.handle().record(CallRecord { boundaries: Boundaries::default(), ..call(1) });
        assert_eq!(writer.close().dropped_incomplete, 1);
    }

    #[test]
    fn a_line_that_a_dead_writer_left_half_written_spoils_only_itself() {
        let file = Scratch::new("torn");
        std::fs::write(&file.0, "{\"resourceSpans\":[").expect("it writes");
        let writer = TraceWriter::to_file(&file.0, resource(), WriterOptions::default()).expect("it opens");
        writer.handle().record(call(1));
        drop(writer);
        let summary = read_file(&file.0, |_| ()).expect("it reads");
        assert_eq!((summary.call_count, summary.damaged_count), (1, 1));
    }

    #[test]
    fn a_full_disk_is_counted_and_named() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let writer = TraceWriter::to_file(full, resource(), WriterOptions::default()).expect("it opens");
        let handle = writer.handle();
        handle.record(call(1));
        let deadline = Instant::now() + Duration::from_secs(10);
        while handle.counts().failed == 0 && Instant::now() < deadline {
            thread::yield_now();
        }
        assert_eq!(handle.counts().failed, 1);
        assert!(writer.first_error().is_some_and(|error| error.contains("space")));
    }

    struct Stuck(Receiver<()>);

    impl Sink for Stuck {
        fn write(&mut self, batch: &[CallRecord], shared: &Shared) {
            // Waits until the test lets go of the other end.
            let _ = self.0.recv();
            shared.written(batch.len() as u64);
        }
    }

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("scot-trace-{}-{name}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn resource() -> Resource {
        Resource { service: "test".into(), instance: None, peer: None }
    }

    fn call(at: u64) -> CallRecord {
        let mut boundaries = Boundaries::default();
        boundaries.stamp(Boundary::Called, Nanos(1_000 + at));
        boundaries.stamp(Boundary::HandlerEnded, Nanos(5_000 + at));
        boundaries.stamp(Boundary::Resumed, Nanos(9_000 + at));
        let mut ids = Ids::from_seed(at);
        CallRecord {
            trace_id: ids.trace_id(),
            span_id: ids.span_id(),
            parent_span_id: None,
            method: "SET".into(),
            start_unix_ns: at,
            boundaries,
            sources: Sources::default(),
            clock_bound_ns: None,
            answered_by: AnsweredBy::Server,
            key: None,
            request_bytes: 1,
            response_bytes: 1,
            cpu_ns: None,
            error: None,
        }
    }
}
