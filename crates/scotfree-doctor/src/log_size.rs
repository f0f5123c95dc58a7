//! Whether a device's log holds what is acknowledged before it is stable.
//!
//! Invariant: the log must hold what arrives within the 99th percentile of the time to stability, or
//! updates of that time are forwarded without acknowledgement.

use super::{Finding, State};

/// What a record takes beside its payload: header, stamp, MAC and the log's own bytes.
const RECORD_OVERHEAD_BYTES: u64 = 256;

/// How much a log can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRoom {
    /// As in the configuration: `disk:PATH`.
    pub name: String,
    /// Live bytes; none if entries are its only bound.
    pub bytes_max: Option<u64>,
    /// Live entries.
    pub entries_max: u64,
}

/// How much has to be held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogDemand {
    /// Updates per second.
    pub rate_per_s: f64,
    /// The payload of one.
    pub update_bytes: u64,
    /// The 99th percentile of the time from acknowledgement to stability.
    pub time_to_stable_p99_ms: u64,
}

impl Default for LogDemand {
    /// A busy connection before a server that syncs once a second.
    fn default() -> Self {
        LogDemand { rate_per_s: 5_000.0, update_bytes: 128, time_to_stable_p99_ms: 2_000 }
    }
}

impl LogDemand {
    fn entries(&self) -> u64 {
        (self.rate_per_s * self.time_to_stable_p99_ms as f64 / 1_000.0).ceil() as u64
    }

    fn bytes(&self) -> u64 {
        self.entries().saturating_mul(self.update_bytes.saturating_add(RECORD_OVERHEAD_BYTES))
    }

    /// Half of a disk log may be live.
    fn disk_mib(&self) -> u64 {
        self.bytes().saturating_mul(2).div_ceil(1 << 20)
    }

    fn wanted(&self) -> String {
        let LogDemand { rate_per_s, update_bytes, time_to_stable_p99_ms } = self;
        format!(
            "{rate_per_s}/s x {update_bytes} bytes x {time_to_stable_p99_ms} ms to stable (p99) are {} entries, {}",
            self.entries(),
            mib(self.bytes())
        )
    }
}

pub(super) fn check(logs: &[LogRoom], demand: &LogDemand, is_asked: bool) -> Vec<Finding> {
    if logs.is_empty() && is_asked {
        return vec![needed(demand)];
    }
    logs.iter().map(|log| check_one(log, demand)).collect()
}

/// What a log would need, where there is none to compare with.
fn needed(demand: &LogDemand) -> Finding {
    let found = format!(
        "{}; that needs --log disk:PATH:{}M or --log ram:PATH, with window_max x sessions_max of at least {}",
        demand.wanted(),
        demand.disk_mib(),
        demand.entries()
    );
    Finding::ok("size of a log (none is configured)", found)
}

fn check_one(log: &LogRoom, demand: &LogDemand) -> Finding {
    let check = format!("size of log {}", log.name);
    let wanted = demand.wanted();
    if log.entries_max < demand.entries() {
        let found = format!("holds {} entries; {wanted}", log.entries_max);
        let mend = format!(
            "raise [switch] window_max or sessions_max: their product must be at least {}",
            demand.entries()
        );
        return Finding::lacks(check, State::Should, found, mend);
    }
    match log.bytes_max {
        Some(bytes) if bytes < demand.bytes() => {
            let size = demand.disk_mib();
            let found = format!("holds {}; {wanted}", mib(bytes));
            let mend = format!(
                "make a larger one: --log {}:{size}M (a new file, or remove the old one when it is empty)",
                log.name
            );
            Finding::lacks(check, State::Should, found, mend)
        }
        _ => Finding::ok(check, format!("is enough: {wanted}")),
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
