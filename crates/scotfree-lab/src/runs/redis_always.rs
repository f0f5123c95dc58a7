//! A SET to a Redis that syncs before it answers, behind the sidecars: completed by the server, or by the
//! device's acknowledgement.
//!
//! Invariant: both arms go through the same server, the same device and sidecars of the same program; they
//! differ in what the sidecar in front of the client asks for and waits for.

use super::settings::{settings_of, shared_by_arms};
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::load::LoadReport;
use scotfree_stage::site::{require_redis, AppendFsync, ClientSidecar, Logs, Redis, REDIS_PORT};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::{LoadSpec, WorkerSpec};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    remedy: bool,
    /// How long device and sidecars look for events before they sleep.
    spin_us: u64,
}

const REDIS: Redis = Redis { name: "redis", appendfsync: AppendFsync::Always, listen: &[] };

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    let workload = context.workload()?;
    let spin_us = shared_by_arms(context.experiment, |arm: &Settings| arm.spin_us)?.to_string();
    let spin = ["--spin-us", &spin_us];
    let site = context.site()?;
    let _redis = site.start_redis(&REDIS)?;
    let _switch = site.start_switch_with(Logs::Ram, &spin)?;
    let _server = site.start_server_sidecar(&REDIS, &spin)?;
    let sidecar =
        |name, port, early, durability| ClientSidecar { name, port, early, durability, trace: None };
    let without = sidecar("sidecar-without", REDIS_PORT, false, Tier::NONE);
    let with = sidecar("sidecar-with", REDIS_PORT + 1, true, Tier::RAM);
    let _clients =
        [site.start_client_sidecar_with(&without, &spin)?, site.start_client_sidecar_with(&with, &spin)?];
    context.measure_in_turns(|arm, _| {
        let Settings { remedy, .. } = settings_of(arm)?;
        let address = site.client_sidecar_address(if remedy { &with } else { &without });
        let before = site.device_counts()?;
        let load = LoadSpec { address, workload: workload.clone() };
        let report: LoadReport = site.run_worker("client", "load", &WorkerSpec::Load(load))?;
        let after = site.device_counts()?;
        let mut measured = measured(&report);
        for (counter, name) in [
            ("persist_acks", "scotfree_device_persist_acks_total"),
            ("logged", "scotfree_device_logged_total"),
        ] {
            measured.counter(counter, scotfree_stage::site::difference(&before, &after, name));
        }
        Ok(measured)
    })
}

/// What a load measured, as metrics and counters.
pub(super) fn measured(report: &LoadReport) -> Measured {
    let mut measured = Measured::default();
    if let Some(summary) = &report.all {
        measured.latency(summary);
    }
    measured.value("requests_per_s", report.requests_per_s);
    measured.counter("requests", report.measured_count);
    measured.counter("refused", report.refused_count);
    measured.counter("unanswered", report.unanswered_count);
    measured
}
