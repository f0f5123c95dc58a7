//! How long the disk domain takes to acknowledge, beside a bare synchronous write of the same size, and
//! what group commit gains.
//!
//! Invariant: what is compared is interleaved in one run on one file system; the medians of five
//! repetitions and their spread are printed as one JSON object. Expected: an acknowledgement is one
//! write and two wake-ups, so at most twice the write; 64 outstanding share writes, so at least eight
//! times the throughput of one.
//!
//! Usage: `domain_bench [FOLDER [RECORD_BYTES]]`, the folder on the medium to be measured.
//! Without optimisation, or under a test runner's load, the figures mean nothing.

use scotfree_core::{Nanos, Token};
use scotfree_io::disk::{DiskConfig, DiskDomain};
use scotfree_io::{now_monotonic, Interest, PersistenceDomain, Poller};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const REPETITIONS: usize = 5;
const LATENCY_SAMPLES: usize = 1_000;
/// Throughputs are taken in slices by turns, so that a slow moment of the medium hits both.
const SLICES: usize = 20;
const SLICE_SPAN: Nanos = Nanos::from_millis(25);
const RAW_FILE_BYTES: u64 = 16 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let record_bytes = arguments.next().map_or(Ok(1_024), |text| text.parse())?;
    let folder = parent.join(format!("scot-io-bench-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let result = measure(&folder, record_bytes);
    std::fs::remove_dir_all(&folder)?;
    println!("{}", result?);
    Ok(())
}

fn measure(folder: &Path, record_bytes: usize) -> Result<String, Box<dyn Error>> {
    let mut bench = Bench {
        raw: raw_file(&folder.join("raw"))?,
        raw_offset: 0,
        domain: DiskDomain::open(&folder.join("log"), &DiskConfig::default())?,
        poller: Poller::new(1)?,
        record: vec![7; record_bytes],
        next_token: 0,
        done: Vec::new(),
    };
    let fd = bench.domain.completion_fd().ok_or("the disk domain can be polled")?;
    bench.poller.add(fd, 0, Interest::Read)?;
    bench.latencies()?; // Warms the page cache up.

    let mut rows = [const { Vec::new() }; 6];
    for _ in 0..REPETITIONS {
        let (raw_ns, ack_ns) = bench.latencies()?;
        let (one, many) = bench.throughputs(1, 64)?;
        let row = [raw_ns, ack_ns, ack_ns / raw_ns, one, many, many / one];
        rows.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    Ok(report(record_bytes, &mut rows))
}

struct Bench {
    raw: File,
    raw_offset: u64,
    domain: DiskDomain,
    poller: Poller,
    record: Vec<u8>,
    next_token: u64,
    done: Vec<Token>,
}

impl Bench {
    /// The median of bare writes and of acknowledgements, taken in turn.
    fn latencies(&mut self) -> Result<(f64, f64), Box<dyn Error>> {
        let (mut raw, mut ack) = (Vec::new(), Vec::new());
        for _ in 0..LATENCY_SAMPLES {
            let start = now_monotonic();
            self.write_raw()?;
            raw.push(now_monotonic().since(start).0 as f64);
            let start = now_monotonic();
            self.submit()?;
            self.collect()?;
            ack.push(now_monotonic().since(start).0 as f64);
        }
        Ok((median(&mut raw), median(&mut ack)))
    }

    /// Records per second with `few` and with `many` always submitted.
    fn throughputs(&mut self, few: usize, many: usize) -> Result<(f64, f64), Box<dyn Error>> {
        let (mut few_sum, mut many_sum) = (0.0, 0.0);
        for _ in 0..SLICES {
            few_sum += self.throughput(few)?;
            many_sum += self.throughput(many)?;
        }
        Ok((few_sum / SLICES as f64, many_sum / SLICES as f64))
    }

    fn throughput(&mut self, outstanding: usize) -> Result<f64, Box<dyn Error>> {
        let start = now_monotonic();
        let mut waiting = 0;
        let mut count = 0;
        while now_monotonic().since(start) < SLICE_SPAN {
            while waiting < outstanding {
                self.submit()?;
                waiting += 1;
            }
            let collected = self.collect()?;
            waiting -= collected;
            count += collected;
        }
        let seconds = now_monotonic().since(start).0 as f64 / 1e9;
        while waiting > 0 {
            waiting -= self.collect()?;
        }
        Ok(count as f64 / seconds)
    }

    fn write_raw(&mut self) -> Result<(), Box<dyn Error>> {
        self.raw.write_all_at(&self.record, self.raw_offset)?;
        self.raw_offset = (self.raw_offset + self.record.len() as u64) % (RAW_FILE_BYTES / 2);
        Ok(())
    }

    fn submit(&mut self) -> Result<(), Box<dyn Error>> {
        self.domain.submit(Token(self.next_token), &self.record)?;
        self.next_token += 1;
        Ok(())
    }

    /// Sleeps until something is completed; erases it, as a device does when the server has it.
    fn collect(&mut self) -> Result<usize, Box<dyn Error>> {
        self.done.clear();
        while self.done.is_empty() {
            self.poller.wait(None)?;
            self.domain.completions(&mut self.done)?;
        }
        for token in &self.done {
            self.domain.erase(*token)?;
        }
        Ok(self.done.len())
    }
}

/// A file whose blocks are all written, like those of the log.
fn raw_file(path: &Path) -> Result<File, Box<dyn Error>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).custom_flags(libc::O_DSYNC).open(path)?;
    file.write_all_at(&vec![0; RAW_FILE_BYTES as usize], 0)?;
    Ok(file)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(record_bytes: usize, rows: &mut [Vec<f64>; 6]) -> String {
    let names = ["raw_p50_ns", "ack_p50_ns", "ratio", "throughput_1", "throughput_64", "ratio_64"];
    let (mut values, mut spread) = (Vec::new(), Vec::new());
    for (name, row) in names.iter().zip(rows) {
        values.push(format!("\"{name}\": {:.2}", median(row)));
        spread.push(format!("\"{name}\": [{:.2}, {:.2}]", row[0], row[row.len() - 1]));
    }
    let (values, spread) = (values.join(", "), spread.join(", "));
    format!("{{\"record_bytes\": {record_bytes}, {values}, \"spread\": {{{spread}}}}}")
}
