//! A load of a Redis: called directly, which then syncs before it answers, or behind sidecars and a device.
//!
//! Invariant: all arms send the same commands by the same generator; they differ in how they reach a Redis
//! and in how many of the commands are updates.

use super::redis_always::measured;
use super::redis_stand::{Access, Stand, StandSettings};
use super::settings::{settings_of, shared_by_arms};
use super::Context;
use crate::experiment::Measurement;
use scotfree_stage::load::LoadReport;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::{LoadSpec, WorkerSpec};
use scotfree_stage::workload::{Command, Workload};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    access: Access,
    stand: StandSettings,
    /// How many of a hundred commands are SETs, the others being GETs; as the workload has it if not given.
    updates_percent: Option<u32>,
}

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let workload = context.workload()?;
    let stand = Stand::up(context, shared_by_arms(context.experiment, |arm: &Settings| arm.stand)?)?;
    context.measure_in_turns(|arm, _| {
        let Settings { access, updates_percent, .. } = settings_of(arm)?;
        let workload = with_updates(workload, updates_percent);
        let load = LoadSpec { address: stand.address(access), workload };
        stand.with_counts(|| {
            let report: LoadReport = stand.site.run_worker("client", "load", &WorkerSpec::Load(load))?;
            Ok(measured(&report))
        })
    })
}

fn with_updates(workload: &Workload, percent: Option<u32>) -> Workload {
    let mix = percent.map(|percent| vec![(Command::Set, percent), (Command::Get, 100 - percent)]);
    Workload { mix: mix.unwrap_or_else(|| workload.mix.clone()), ..workload.clone() }
}
