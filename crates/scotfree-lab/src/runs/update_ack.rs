//! Acknowledgements of an update by devices, against each other or the whole path to a server that does
//! nothing.
//!
//! Invariant: all arms pass the same devices on the same cables; they differ in what completes the call. The
//! server sleeps until something arrives, unless the experiment has it look for a while before; how often it slept
//! is counted.

use super::bare_services::{BareServices, Calls};
use super::settings::{settings_of, shared_by_arms};
use super::worker::calls::CallsReport;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::site::{difference, Logs};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    #[serde(with = "crate::tier_text")]
    durability: Tier,
    calls: u64,
    /// The time between two calls; 0 for one behind the other.
    #[serde(default)]
    interval_us: u64,
    /// What moves the frames.
    plane: String,
    #[serde(default = "payload_bytes")]
    payload_bytes: usize,
    /// Updates that wait for their completion at any time.
    #[serde(default = "outstanding")]
    outstanding: usize,
    /// How long the server looks for a request before it sleeps.
    #[serde(default)]
    spin_us: u64,
}

const fn payload_bytes() -> usize {
    64
}

const fn outstanding() -> usize {
    1
}

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let plane = shared_by_arms(context.experiment, |arm: &Settings| arm.plane.clone())?;
    let site = context.site()?;
    let logs = vec![Logs::RamAndDisk; site.devices().len()];
    let _switches = site.start_chain(&logs, &["--plane", &plane])?;
    let spin_us = shared_by_arms(context.experiment, |arm: &Settings| arm.spin_us)?;
    let server = site.start_looking_noop(spin_us)?;
    context.measure_in_turns(|arm, _| {
        let Settings { durability, calls, interval_us, payload_bytes, outstanding, .. } = settings_of(arm)?;
        let calls =
            Calls { tier: durability, outstanding, interval_us, payload_bytes, count: calls, trace: None };
        let before = site.counts_of_devices()?;
        let sleeps_before = server.sleeps();
        let report = site.calls(&calls)?;
        let mut measured = measured(&report);
        if let (Some(before), Some(after)) = (sleeps_before, server.sleeps()) {
            measured.counter("server_sleeps", after - before);
        }
        measured.value("payload_mbit_per_s", report.requests_per_s * payload_bytes as f64 * 8.0 / 1e6);
        for (id, now) in site.counts_of_devices()? {
            let acks = difference(&before[&id], &now, "scotfree_device_persist_acks_total");
            measured.counter(&format!("acks_{id}"), acks);
        }
        Ok(measured)
    })
}

/// What calls measured, as metrics and counters.
pub(super) fn measured(report: &CallsReport) -> Measured {
    let mut measured = Measured::default();
    measured.latency(&report.latency);
    measured.value("requests_per_s", report.requests_per_s);
    measured.value("client_cpu_us_per_request", report.cpu_us_per_request);
    measured.counter("completed_early", report.completed_early);
    measured.counter("completed_stable", report.completed_stable);
    measured.counter("device_acks", report.device_acks);
    measured.counter("retransmitted", report.retransmitted);
    measured.counter("refused", report.refused);
    measured.counter("records_written", report.records_written);
    measured.counter("records_lost", report.records_lost);
    measured
}
