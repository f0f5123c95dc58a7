//! Acknowledgements of updates that are on the device's disk, as their client sees them, beside bare synchronous
//! writes to the same disk.
//!
//! Invariant: only an acknowledgement at durability `disk` ends a call, though the server answers at once; the
//! server says later that an update is stable, so the device needs its entry until then.

use super::bare_calls::{bare_calls, BareCalls};
use super::bare_services::BareServices;
use super::disk_domain::Writer;
use super::settings::{settings_of, shared_by_arms};
use super::worker::bare_calls::Answerer;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::{Durability, Tier};
use scotfree_stage::site::{difference, Logs, Site};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::io;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// How long the device looks for events before it sleeps.
    spin_us: u64,
    what: What,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum What {
    /// Bare synchronous writes.
    #[serde(rename_all = "kebab-case")]
    Write { bytes: usize, span_ms: u64 },
    /// Updates, acknowledged by the device.
    #[serde(rename_all = "kebab-case")]
    Updates {
        outstanding: usize,
        calls: u64,
        payload_bytes: usize,
        /// How long the client looks for an acknowledgement before it sleeps.
        #[serde(default)]
        client_spin_us: u64,
    },
}

/// Like storage that is synced now and then: later than the slowest of the device's writes that count.
const STABLE_AFTER_MS: u64 = 50;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    let spin_us = shared_by_arms(context.experiment, |arm: &Settings| arm.spin_us)?.to_string();
    let _switch = site.start_switch_with(Logs::RamAndDisk, &["--plane", "xdp", "--spin-us", &spin_us])?;
    let _server = site.start_late_noop(STABLE_AFTER_MS)?;
    let file = site.disk_folder().join("writes");
    let broke = |error: io::Error| Trouble::file("write", &file, &error);
    let mut writer = Writer::new(&file).map_err(broke)?;
    context.measure_in_turns(|arm, _| match settings_of::<Settings>(arm)?.what {
        What::Write { bytes, span_ms } => {
            writer.measure(bytes, Duration::from_millis(span_ms)).map_err(broke)
        }
        What::Updates { outstanding, calls, payload_bytes, client_spin_us } => {
            let calls = BareCalls {
                pass_at: None,
                tier: Tier::new(Durability::Disk, 1).expect("one device has a disk"),
                answerer: Answerer::Device,
                outstanding,
                interval_us: 0,
                spin_us: client_spin_us,
                payload_bytes,
                count: calls,
            };
            updates(&site, &calls)
        }
    })
}

fn updates(site: &Site<'_>, calls: &BareCalls) -> Result<Measured, Trouble> {
    let before = site.device_counts()?;
    let report = bare_calls(site, calls)?;
    let after = site.device_counts()?;
    let mut measured = Measured::default();
    measured.latency(&report.latency);
    measured.value("requests_per_s", report.requests_per_s);
    measured.counter("answered", report.answered);
    measured.counter("ended_stable", report.ended_stable);
    measured.counter("sent_again", report.sent_again);
    measured.counter("refused", report.refused);
    for (counter, name) in [
        ("logged", "scotfree_device_logged_total"),
        ("device_acks", "scotfree_device_persist_acks_total"),
        ("records_completed", "scotfree_log_completed_total"),
        ("written_here", "scotfree_log_written_here_total"),
    ] {
        measured.counter(counter, difference(&before, &after, name));
    }
    Ok(measured)
}
