//! A write of a small value that three servers have stored: a put to an etcd of three members, or a SET to a group.
//!
//! Invariant: in every arm keys and values are of the same size, every server has its files on the same disk and syncs
//! them before the answer, and as many requests are under way. Clients of etcd speak gRPC with its leader, without the
//! gateway; clients of the group ask any member.

use super::etcd::Etcd;
use super::{use_group, GroupSettings, HOST};
use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::worker::etcd_puts::{EtcdPutsReport, EtcdPutsSpec};
use crate::runs::worker::group_use::Requests;
use crate::runs::worker::WorkerSpec;
use crate::runs::{Context, Measured};
use scotfree_stage::site::Site;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// A group of this kind; etcd if none is said.
    group: Option<GroupSettings>,
    outstanding: usize,
    /// Over how many connections; of etcd's clients only.
    #[serde(default = "one")]
    connections: usize,
    time_ms: u64,
}

fn one() -> usize {
    1
}

const KEYS: u64 = 4_096;
const VALUE_BYTES: usize = 100;

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    let etcd = Etcd::up(&site, HOST, 3)?;
    context.measure_in_turns(|arm, repetition| {
        let settings: Settings = settings_of(arm)?;
        match &settings.group {
            Some(group) => use_group(&site, group, sets(&settings, u64::from(repetition))),
            None => put(&site, &etcd, &settings),
        }
    })
}

fn put(site: &Site<'_>, etcd: &Etcd, settings: &Settings) -> Result<Measured, Trouble> {
    let spec = EtcdPutsSpec {
        addresses: etcd.addresses(),
        connections: settings.connections,
        outstanding: settings.outstanding,
        keys: KEYS,
        value_bytes: VALUE_BYTES,
        warmup_ms: settings.time_ms / 5,
        time_ms: settings.time_ms,
    };
    let report: EtcdPutsReport = site.run_worker(HOST, "etcd-puts", &WorkerSpec::EtcdPuts(spec))?;
    let mut measured = Measured::default();
    measured.latency(&report.latency).value("requests_per_s", report.puts_per_s);
    measured.counter("requests", report.latency.count).counter("wrong_replies", report.wrong_replies);
    Ok(measured)
}

fn sets(settings: &Settings, seed: u64) -> Requests {
    Requests {
        updates_percent: 100,
        outstanding: settings.outstanding,
        keys: KEYS,
        value_bytes: VALUE_BYTES,
        warmup_ms: settings.time_ms / 5,
        time_ms: settings.time_ms,
        seed,
        ..Requests::default()
    }
}
