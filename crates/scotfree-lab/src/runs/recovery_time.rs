//! How long a server takes to have again what devices have acknowledged and it has not seen (thesis 3.6.2).
//!
//! Invariant: the server is stopped before the first of these updates and dies before it runs again, and their
//! clients are gone before its next start: it can have them from the device only.

use super::settings::settings_of;
use super::worker::fill::{FillReport, FillSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_stage::kernel_plane::try_programs;
use scotfree_stage::site::{
    await_condition, await_ready, difference, report_of, Logs, Site, PATIENCE, WITH_METRICS,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use scotfree_stage::worker::READY;
use serde::Deserialize;
use std::os::unix::net::UnixStream;
use std::time::Instant;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    sessions: u32,
    /// How many updates of each session the device holds.
    updates: u32,
}

const LOGGED: &str = "scotfree_device_logged_total";
const NOT_STABLE: &str = "scotfree_unsafe_entries";

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    try_programs()?;
    // Each measurement has processes and files of its own.
    context.measure_in_turns(|arm, _| measure(&context.site()?, &settings_of(arm)?))
}

fn measure(site: &Site<'_>, settings: &Settings) -> Result<Measured, Trouble> {
    let slots = (settings.sessions * settings.updates).to_string();
    let _switch = site.start_switch_with(Logs::Ram, &["--plane", "xdp", "--slots", &slots])?;
    let server = site.spawn_kv(&WITH_METRICS)?;
    await_ready(&server)?;
    let go = site.folder().join("go");
    let spec = FillSpec {
        server: site.server(),
        cluster_key: site.cluster_key(),
        sessions: settings.sessions,
        updates: settings.updates,
        go: go.clone(),
    };
    let clients = site.start_worker("client", "fill", &WorkerSpec::Fill(spec))?;

    server.signal("STOP");
    let before = site.device_counts()?;
    UnixStream::connect(&go).map_err(|error| Trouble::file("connect to", &go, &error))?;
    let filled: FillReport = report_of(&clients)?;
    server.kill();
    let held = site.device_counts()?;

    let begin = Instant::now();
    let server = site.spawn_kv(&WITH_METRICS)?;
    server.wait_for_output(READY, PATIENCE)?;
    let back = begin.elapsed();
    let recovered = site.counts("server")?;
    await_condition("the device holds nothing more", || {
        site.device_counts().is_ok_and(|counts| count(&counts, NOT_STABLE) == 0)
    })?;

    let replayed = count(&recovered, "scotfree_server_replayed_total");
    let recovery_us = count(&recovered, "scotfree_server_recovery_us");
    let mut measured = Measured::default();
    measured.value("recovery_us_per_request", recovery_us as f64 / replayed as f64);
    measured.value("recovery_s", recovery_us as f64 / 1e6);
    measured.value("back_s", back.as_secs_f64());
    measured.counter("acknowledged", filled.acknowledged);
    measured.counter("logged", difference(&before, &held, LOGGED));
    measured.counter("held", count(&held, NOT_STABLE));
    measured.counter("replayed", replayed);
    measured.counter("keys", count(&recovered, "scotfree_kv_keys"));
    measured.counter("dead_letters", count(&recovered, "scotfree_server_dead_letters_total"));
    Ok(measured)
}

fn count(counts: &Counts, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}
