//! A read of one key by a client of the protocol: answered by its server, past a device with or without a cache, or by
//! the device's cache.
//!
//! Invariant: all arms have the same client, server and cables. Each is measured in hosts of its own, which are gone
//! when the next is, so that nothing looks or beats beside what is measured; who has answered is counted by the client,
//! the device and the server, and they agree.

use super::bare_services::BareServices;
use super::cache_counts;
use super::settings::settings_of;
use super::worker::gets::{GetsReport, GetsSpec, Keys};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_stage::process::Process;
use scotfree_stage::site::{await_condition, Logs, Site};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// Whether the device has a cache.
    cache: bool,
    keys: Keys,
    /// Whether clients ask for a note, as sidecars do where a cache is.
    marked: bool,
    gets: u64,
    /// What moves the device's frames.
    plane: String,
    /// How long the server looks for a request before it sleeps.
    #[serde(default)]
    spin_us: u64,
}

const VALUE_BYTES: usize = 100;
/// Keys that are asked for in turns.
const KEYS_COUNT: u64 = 64;
const EXECUTED: &str = "scotfree_server_executed_total";

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    context.measure_in_turns(|arm, _| {
        let settings: Settings = settings_of(arm)?;
        let site = context.site()?;
        let mut words = vec!["--plane", &settings.plane];
        if settings.cache {
            words.extend(["--function", "cache", "--function", "persist"]);
        }
        let _switch = site.start_switch_with(Logs::Ram, &words)?;
        let server = site.start_values(VALUE_BYTES, settings.spin_us)?;
        measure(&site, &server, &settings)
    })
}

fn measure(site: &Site<'_>, server: &Process, settings: &Settings) -> Result<Measured, Trouble> {
    let spec = GetsSpec {
        server: site.server(),
        cluster_key: site.cluster_key(),
        keys: settings.keys,
        keys_count: KEYS_COUNT,
        is_marked: settings.marked,
        value_bytes: VALUE_BYTES,
        gets: settings.gets,
        warmup_gets: settings.gets / 10,
    };
    let sleeps_before = server.sleeps();
    let report: GetsReport = site.run_worker("client", "gets", &WorkerSpec::Gets(spec))?;
    let sleeps = sleeps_before.zip(server.sleeps()).map(|(before, after)| after - before);
    let mut measured = measured(&report);
    if let Some(sleeps) = sleeps {
        measured.counter("server_sleeps", sleeps);
    }
    let by_cache = report.by_cache + report.warmup_by_cache;
    let by_server = report.by_server + report.warmup_by_server;
    // What a daemon has counted it says a moment later.
    let hits = || -> Result<u64, Trouble> { Ok(cache_counts::hits(&site.device_counts()?)) };
    let executed =
        || -> Result<u64, Trouble> { Ok(site.counts("server")?.get(EXECUTED).copied().unwrap_or(0)) };
    measured.counter("hits_not_counted_alike", counted(by_cache, "the device", hits)?);
    measured.counter("reads_not_counted_alike", counted(by_server, "the server", executed)?);
    Ok(measured)
}

/// By how much a daemon's count differs from what clients have seen, once it has counted all of that.
fn counted(seen: u64, who: &str, count: impl Fn() -> Result<u64, Trouble>) -> Result<u64, Trouble> {
    let is_there = || count().is_ok_and(|count| count >= seen);
    await_condition(&format!("{who} has counted {seen} reads"), is_there)?;
    Ok(count()? - seen)
}

fn measured(report: &GetsReport) -> Measured {
    let mut measured = Measured::default();
    measured.latency(&report.latency).value("gets_per_s", report.gets_per_s);
    measured.counter("by_cache", report.by_cache);
    measured.counter("by_server", report.by_server);
    measured.counter("wrong_replies", report.wrong_replies);
    measured.counter("retransmitted", report.retransmitted);
    measured.counter("refused", report.refused);
    measured
}
