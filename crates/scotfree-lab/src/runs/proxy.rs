//! A Redis behind a proxy with a log of its own, beside one that syncs before it answers and one that does each second.
//!
//! Invariant: all that is compared is up at the same time on one host and one disk, and is called over the same cable;
//! what is not measured sleeps.

use super::redis_always::measured;
use super::settings::settings_of;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_stage::load::LoadReport;
use scotfree_stage::site::{difference, require_redis, AppendFsync, Redis, REDIS_PORT, WITH_METRICS};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::{LoadSpec, WorkerSpec};
use scotfree_stage::workload::{Command, Pace, Workload};
use serde::Deserialize;
use std::net::SocketAddr;

/// What clients call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    /// A Redis that syncs before it answers.
    Always,
    /// One that syncs each second.
    EverySec,
    /// A proxy, which gives the Redis' own reply.
    Covered,
    /// One that answers when its log holds an update.
    Early,
}

impl Access {
    const fn port(self) -> u16 {
        REDIS_PORT
            + match self {
                Access::Always => 0,
                Access::EverySec => 1,
                Access::Covered => 2,
                Access::Early => 3,
            }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    access: Access,
    connections: u32,
    /// Requests of each connection that wait for their replies.
    outstanding: u32,
    /// How many of a hundred commands are SETs, the others being GETs.
    updates_percent: u32,
}

const ADDRESS: &str = "10.77.0.2";
const ALWAYS: Redis = Redis { name: "redis-always", appendfsync: AppendFsync::Always, listen: &[ADDRESS] };
const EVERY_SEC: Redis =
    Redis { name: "redis-everysec", appendfsync: AppendFsync::EverySec, listen: &[ADDRESS] };
const BEHIND_COVERED: Redis =
    Redis { name: "redis-covered", appendfsync: AppendFsync::EverySec, listen: &[] };
const BEHIND_EARLY: Redis = Redis { name: "redis-early", appendfsync: AppendFsync::EverySec, listen: &[] };

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    let workload = context.workload()?;
    let site = context.site()?;
    let every_sec_port = Access::EverySec.port().to_string();
    let _processes = [
        site.start_redis(&ALWAYS)?,
        site.start_redis_on("server", &EVERY_SEC, &["--port", &every_sec_port])?,
        site.start_redis(&BEHIND_COVERED)?,
        site.start_redis(&BEHIND_EARLY)?,
        site.start_proxy("proxy-covered", &BEHIND_COVERED, Access::Covered.port(), &WITH_METRICS)?,
        site.start_proxy("proxy-early", &BEHIND_EARLY, Access::Early.port(), &["--mode", "early"])?,
    ];
    context.measure_in_turns(|arm, _| {
        let settings: Settings = settings_of(arm)?;
        let address = SocketAddr::new(ADDRESS.parse().expect("it is an address"), settings.access.port());
        let load = LoadSpec { address, workload: workload_of(workload, &settings) };
        let before = site.counts("server")?;
        let report: LoadReport = site.run_worker("client", "load", &WorkerSpec::Load(load))?;
        let mut measured = with_reads(&report);
        // Of the proxy whose answers are covered; what it counted within the last 250 ms it tells the next one.
        let logged = difference(&before, &site.counts("server")?, "scotfree_proxy_logged_total");
        measured.counter("logged", logged);
        Ok(measured)
    })
}

fn workload_of(workload: &Workload, settings: &Settings) -> Workload {
    let updates = settings.updates_percent.min(100);
    let mix = [(Command::Set, updates), (Command::Get, 100 - updates)];
    Workload {
        connections: settings.connections,
        pace: Pace::Closed { outstanding: settings.outstanding },
        mix: mix.into_iter().filter(|(_, weight)| *weight > 0).collect(),
        ..workload.clone()
    }
}

fn with_reads(report: &LoadReport) -> Measured {
    let mut measured = measured(report);
    if let Some(reads) = report.commands.get(&Command::Get) {
        measured.value("get_p50_us", reads.p50_ns as f64 / 1_000.0);
    }
    measured
}
