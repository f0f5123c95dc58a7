//! How long the disk domain takes to say that a record is stable, beside a bare synchronous write of the
//! same size; and what group commit gains.
//!
//! Invariant: writes and records alternate on one file system in one run. A record is erased when it is
//! stable, as the device does when the server has it, so the log is measured at work, not filling up.

use super::settings::settings_of;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Token;
use scotfree_io::disk::{DiskConfig, DiskDomain};
use scotfree_io::{DomainError, Interest, PersistenceDomain, Poller};
use scotfree_stage::places;
use scotfree_stage::stats::Latencies;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    what: What,
    record_bytes: usize,
    #[serde(default = "one")]
    outstanding: usize,
    span_ms: u64,
}

fn one() -> usize {
    1
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum What {
    /// Bare synchronous writes.
    Write,
    /// Records given to the domain.
    Record,
}

// The bare writes go round in a file of this size, whose blocks are all written before.
const FILE_BYTES: u64 = 16 << 20;
// What is written at first brings the machinery up.
const WARMUP: Duration = Duration::from_millis(100);

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let folder = places::on_disk(&context.experiment.name, &context.options.lab_folder)?;
    let trouble =
        |error: DomainError| Trouble::new("write to a log on disk", error, "see whether the disk is full");
    let mut writer = Writer::new(&folder.path().join("writes"))
        .map_err(|error| Trouble::file("write", folder.path(), &error))?;
    let mut log = Log::open(&folder.path().join("log")).map_err(trouble)?;
    context.measure_in_turns(|arm, _| {
        let settings: Settings = settings_of(arm)?;
        let record = vec![7; settings.record_bytes];
        let (outstanding, span) = (settings.outstanding, Duration::from_millis(settings.span_ms));
        match settings.what {
            What::Write => writer
                .measure(settings.record_bytes, span)
                .map_err(|error| Trouble::file("write", folder.path(), &error)),
            What::Record => log
                .write_for(&record, outstanding, WARMUP)
                .and_then(|_| log.write_for(&record, outstanding, span))
                .map(|(latencies, elapsed)| measured(&latencies, elapsed))
                .map_err(trouble),
        }
    })
}

fn measured(latencies: &Latencies, elapsed: Duration) -> Measured {
    let mut measured = Measured::default();
    if let Some(summary) = latencies.summary() {
        measured.latency(&summary);
    }
    measured.value("requests_per_s", latencies.count() as f64 / elapsed.as_secs_f64());
    measured.counter("writes", latencies.count());
    measured
}

/// A file that is written synchronously.
pub(super) struct Writer {
    file: File,
    offset: u64,
}

impl Writer {
    pub(super) fn new(path: &Path) -> io::Result<Writer> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).custom_flags(libc::O_DSYNC).open(path)?;
        file.write_all_at(&vec![0; FILE_BYTES as usize], 0)?;
        Ok(Writer { file, offset: 0 })
    }

    /// Writes for a span, one record behind the other.
    pub(super) fn measure(&mut self, record_bytes: usize, span: Duration) -> io::Result<Measured> {
        let record = vec![7; record_bytes];
        self.write_for(&record, WARMUP)?;
        let (latencies, elapsed) = self.write_for(&record, span)?;
        Ok(measured(&latencies, elapsed))
    }

    fn write_for(&mut self, record: &[u8], span: Duration) -> io::Result<(Latencies, Duration)> {
        let mut latencies = Latencies::new();
        let begin = Instant::now();
        while begin.elapsed() < span {
            let written = Instant::now();
            self.file.write_all_at(record, self.offset)?;
            latencies.record(written.elapsed());
            self.offset += record.len() as u64;
            if self.offset + record.len() as u64 > FILE_BYTES {
                self.offset = 0;
            }
        }
        Ok((latencies, begin.elapsed()))
    }
}

/// A disk domain and the thread that waits for it, as the device's loop does.
struct Log {
    domain: DiskDomain,
    poller: Poller,
    next_token: u64,
    // When each record that is not stable was given; records become stable in order.
    given: VecDeque<Instant>,
    done: Vec<Token>,
}

impl Log {
    fn open(path: &Path) -> Result<Log, DomainError> {
        let domain = DiskDomain::open(path, &DiskConfig::default())?;
        let poller = Poller::new(1).map_err(system)?;
        let fd = domain.completion_fd().ok_or_else(|| system(io::ErrorKind::Unsupported.into()))?;
        poller.add(fd, 0, Interest::Read).map_err(system)?;
        Ok(Log { domain, poller, next_token: 0, given: VecDeque::new(), done: Vec::new() })
    }

    fn write_for(
        &mut self,
        record: &[u8],
        outstanding: usize,
        span: Duration,
    ) -> Result<(Latencies, Duration), DomainError> {
        let mut latencies = Latencies::new();
        let begin = Instant::now();
        while begin.elapsed() < span {
            while self.given.len() < outstanding {
                self.given.push_back(Instant::now());
                self.domain.submit(Token(self.next_token), record)?;
                self.next_token += 1;
            }
            self.collect(&mut latencies)?;
        }
        let elapsed = begin.elapsed();
        let counted = latencies.clone();
        while !self.given.is_empty() {
            self.collect(&mut latencies)?;
        }
        Ok((counted, elapsed))
    }

    /// Sleeps until something is stable, and erases it.
    fn collect(&mut self, latencies: &mut Latencies) -> Result<(), DomainError> {
        self.done.clear();
        while self.done.is_empty() {
            self.poller.wait(None).map_err(system)?;
            self.domain.completions(&mut self.done)?;
        }
        for token in &self.done {
            let given = self.given.pop_front().expect("a record is stable once, after it was given");
            latencies.record(given.elapsed());
            self.domain.erase(*token)?;
        }
        Ok(())
    }
}

fn system(source: io::Error) -> DomainError {
    DomainError::Io { doing: "waiting for the log".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::scratch::Scratch;

    #[test]
    fn every_record_counted_became_stable_and_none_is_left_behind() {
        let folder = Scratch::new("disk").expect("temporary files can be written");
        let mut log = Log::open(&folder.path().join("log")).expect("a log");
        for outstanding in [1, 16] {
            let span = Duration::from_millis(20);
            let (latencies, elapsed) = log.write_for(&[7; 100], outstanding, span).expect("it writes");
            assert!(latencies.count() > 0 && elapsed >= span);
            assert!(log.given.is_empty());
        }
        let mut writer = Writer::new(&folder.path().join("writes")).expect("a file");
        let (latencies, _) = writer.write_for(&[7; 4_096], Duration::from_millis(20)).expect("it writes");
        assert!(latencies.count() > 0);
    }
}
