//! An application's transactions on a Redis: called directly, which then syncs before it answers, or behind
//! sidecars and a device.
//!
//! Invariant: all arms run the same application on a Redis that holds nothing of it before, and whatever its
//! clients were told must be found at the end.

use super::redis_stand::{Access, Stand, StandSettings};
use super::settings::{settings_of, shared_by_arms};
use super::worker::transactions::{ApplicationSpec, TransactionsSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use crate::tpcc::{Release, Tpcc};
use crate::transactions::{LoopReport, LoopSpec};
use crate::twitter::Users;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    access: Access,
    stand: StandSettings,
    application: Application,
    clients: u32,
    updates_percent: u32,
    #[serde(default)]
    pipelined: bool,
    duration_ms: u64,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Application {
    TwitterPush,
    TwitterPull,
    Tpcc,
    /// Locks are given back by a script.
    TpccScript,
}

const WARMUP_MS: u64 = 100;
const USERS: u32 = 200;
const WAREHOUSES: u32 = 8;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let stand = Stand::up(context, shared_by_arms(context.experiment, |arm: &Settings| arm.stand)?)?;
    context.measure_in_turns(|arm, repetition| {
        let settings: Settings = settings_of(arm)?;
        let prefix = format!("{}:{repetition}:", arm.name);
        let spec = TransactionsSpec {
            application: application(settings.application, prefix),
            how: LoopSpec {
                address: stand.address(settings.access),
                clients: settings.clients,
                updates_percent: settings.updates_percent,
                pipelined: settings.pipelined,
                duration_ms: WARMUP_MS + settings.duration_ms,
                warmup_ms: WARMUP_MS,
                seed: u64::from(repetition),
            },
        };
        let mut requests = 0;
        let mut measured = stand.with_counts(|| {
            let spec = WorkerSpec::Transactions(spec);
            let report: LoopReport = stand.site.run_worker("client", "transactions", &spec)?;
            requests = report.requests;
            Ok(measured(&report))
        })?;
        share(&mut measured, "bypass_percent", "front_bypasses", requests);
        share(&mut measured, "lock_percent", "lock_requests", requests);
        Ok(measured)
    })
}

fn application(application: Application, prefix: String) -> ApplicationSpec {
    let tpcc = |prefix, release| ApplicationSpec::Tpcc(Tpcc { prefix, warehouses: WAREHOUSES, release });
    match application {
        Application::TwitterPush => ApplicationSpec::TwitterPush(Users { prefix, count: USERS }),
        Application::TwitterPull => ApplicationSpec::TwitterPull(Users { prefix, count: USERS }),
        Application::Tpcc => tpcc(prefix, Release::Delete),
        Application::TpccScript => tpcc(prefix, Release::Script),
    }
}

fn measured(report: &LoopReport) -> Measured {
    let mut measured = Measured::default();
    if let Some(summary) = &report.latency {
        measured.latency(summary);
        measured.counter("transactions", summary.count);
    }
    if let Some(finding) = &report.findings.first {
        eprintln!("not as it should be: {finding}");
    }
    measured.value("transactions_per_s", report.transactions_per_s);
    measured.counter("findings", report.findings.count);
    for (name, count) in &report.counts {
        measured.counter(name, *count);
    }
    measured
}

/// How many of a hundred requests of the load a counter has counted.
fn share(measured: &mut Measured, metric: &str, counter: &str, requests: u64) {
    let count = measured.counters.get(counter).copied().unwrap_or(0);
    measured.value(metric, 100.0 * count as f64 / requests as f64);
}
