//! The embedded server with each of its structures: updates and reads by one client, answered by the server
//! or, where they are updates, by the device.
//!
//! Invariant: all arms call the same server process, on the same keys and over the same cables; of two arms
//! of one structure and mix only what completes an update differs. The server makes every update durable in
//! one write-ahead log, which all structures share: a server that ends hands it to the next.

use super::settings::{settings_of, shared_by_arms};
use super::worker::stores::{FillSpec, StoreShape, UseReport, UseSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use crate::keys::Popularity;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::{await_ready, difference, Logs, Medium, Site, PATIENCE, WITH_METRICS};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// The structure, as `scot kv --index` has it.
    index: String,
    updates_percent: u32,
    #[serde(with = "crate::tier_text")]
    durability: Tier,
    stand: Stand,
}

/// What all arms share.
#[derive(Deserialize, Clone, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Stand {
    keys: u64,
    value_bytes: usize,
    popularity: Popularity,
    /// Where the server's log lies.
    log: Medium,
    /// What moves the device's frames.
    plane: String,
    time_ms: u64,
    warmup_ms: u64,
}

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let stand = shared_by_arms(context.experiment, |arm: &Settings| arm.stand.clone())?;
    let mut world = World::up(context, stand)?;
    context.measure_in_turns(|arm, repetition| world.measure(&settings_of(arm)?, u64::from(repetition)))
}

struct World<'a> {
    site: Site<'a>,
    stand: Stand,
    server: Option<Server>,
    _switch: Process,
}

/// The server with one of its structures.
struct Server {
    index: String,
    process: Process,
    keys_found: u64,
}

impl<'a> World<'a> {
    fn up(context: &Context<'a>, stand: Stand) -> Result<World<'a>, Trouble> {
        let site = context.site()?;
        let switch = site.start_switch_with(Logs::Ram, &["--plane", &stand.plane])?;
        let mut world = World { site, stand, server: None, _switch: switch };
        world.serve("hash")?;
        let spec = FillSpec {
            server: world.site.server(),
            cluster_key: world.site.cluster_key(),
            shape: world.shape(),
        };
        world.site.run_worker::<()>("client", "fill", &WorkerSpec::FillStore(spec))?;
        // Whoever measures first starts a server that has to find the keys.
        world.stop()?;
        Ok(world)
    }

    fn shape(&self) -> StoreShape {
        StoreShape { keys: self.stand.keys, value_bytes: self.stand.value_bytes }
    }

    fn measure(&mut self, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
        self.serve(&settings.index)?;
        let keys_found = self.server.as_ref().map_or(0, |server| server.keys_found);
        let Stand { popularity, time_ms, warmup_ms, .. } = self.stand;
        let spec = UseSpec {
            server: self.site.server(),
            cluster_key: self.site.cluster_key(),
            tier: settings.durability,
            shape: self.shape(),
            popularity,
            updates_percent: settings.updates_percent,
            is_noted: false,
            time_ms,
            warmup_ms,
            seed,
        };
        let before = self.site.device_counts()?;
        let report: UseReport = self.site.run_worker("client", "use", &WorkerSpec::UseStore(spec))?;
        let after = self.site.device_counts()?;
        let mut measured = measured(&report);
        measured.counter("keys_found", keys_found);
        let acks = difference(&before, &after, "scotfree_device_persist_acks_total");
        measured.counter("persist_acks", acks);
        Ok(measured)
    }

    /// Has a server with this structure, on the log of the one before.
    fn serve(&mut self, index: &str) -> Result<(), Trouble> {
        if self.server.as_ref().is_some_and(|server| server.index == index) {
            return Ok(());
        }
        self.stop()?;
        let more = [&WITH_METRICS[..], &["--index", index]].concat();
        let process = self.site.spawn_kv_on(self.stand.log, &more)?;
        await_ready(&process)?;
        let keys_found = self.site.counts("server")?.get("scotfree_kv_keys").copied().unwrap_or(0);
        self.server = Some(Server { index: index.to_owned(), process, keys_found });
        Ok(())
    }

    /// Ends the server, which writes out what it has executed.
    fn stop(&mut self) -> Result<(), Trouble> {
        let Some(Server { index, process, .. }) = self.server.take() else { return Ok(()) };
        match process.stop(PATIENCE) {
            Some(status) if status.success() => Ok(()),
            status => {
                let problem = status.map_or("it does not end".to_owned(), |status| status.to_string());
                let tried = format!("end the server with `{index}`");
                Err(Trouble::new(tried, problem, format!("it printed: {}", process.error_output().trim())))
            }
        }
    }
}

/// What the calls measured, as metrics and counters.
pub(super) fn measured(report: &UseReport) -> Measured {
    let mut measured = Measured::default();
    measured.value("requests_per_s", report.requests_per_s);
    let mut percentiles = |prefix: &str, of: &BTreeMap<u32, u64>| {
        for (percent, ns) in of {
            measured.value(&format!("{prefix}p{percent}_us"), *ns as f64 / 1_000.0);
        }
    };
    percentiles("", &report.calls_ns);
    report.updates_ns.iter().for_each(|updates| percentiles("update_", updates));
    report.reads_ns.iter().for_each(|reads| percentiles("read_", reads));
    measured.counter("updates", report.updates);
    measured.counter("updates_early", report.updates_early);
    measured.counter("updates_by_server", report.updates - report.updates_early);
    measured.counter("reads", report.reads);
    measured.counter("wrong_replies", report.wrong_replies);
    measured.counter("stale_reads", report.stale_reads);
    measured.counter("retransmitted", report.retransmitted);
    measured.counter("refused", report.refused);
    measured
}
