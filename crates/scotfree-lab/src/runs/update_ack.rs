//! A device's acknowledgement of an update against the whole path to a server that does nothing.
//!
//! Invariant: both arms pass the same device on the same two cables; they differ in what completes the
//! call. The server sleeps until something arrives.

use super::settings::settings_of;
use super::site::{Calls, Logs, Site};
use super::worker::calls::{CallsReport, Completion};
use super::{Context, Measured};
use crate::experiment::Measurement;
use crate::trouble::Trouble;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    completion: Completion,
    calls: u64,
    /// The time between two calls; 0 for one behind the other.
    #[serde(default)]
    interval_us: u64,
}

const PAYLOAD_BYTES: usize = 64;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = Site::up(context)?;
    let _switch = site.start_switch(Logs::RamAndDisk)?;
    let _server = site.start_noop(false)?;
    context.measure_in_turns(|arm, _| {
        let Settings { completion, calls, interval_us } = settings_of(arm)?;
        let calls = Calls {
            completion,
            outstanding: 1,
            interval_us,
            payload_bytes: PAYLOAD_BYTES,
            count: calls,
            trace: None,
        };
        Ok(measured(&site.calls(&calls)?))
    })
}

/// What calls measured, as metrics and counters.
pub(super) fn measured(report: &CallsReport) -> Measured {
    let mut measured = Measured::default();
    measured.latency(&report.latency);
    measured.value("requests_per_s", report.requests_per_s);
    measured.value("client_cpu_us_per_request", report.cpu_us_per_request);
    measured.counter("completed_early", report.completed_early);
    measured.counter("retransmitted", report.retransmitted);
    measured.counter("refused", report.refused);
    measured.counter("records_written", report.records_written);
    measured.counter("records_lost", report.records_lost);
    measured
}
