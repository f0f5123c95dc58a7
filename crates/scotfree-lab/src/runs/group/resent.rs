//! Each request is sent to several members of a group under one identity: how often it is executed.
//!
//! Invariant: what counts is the counters' sum at last, against how many requests there were.

use super::{grown, Group, GroupSettings, HOST};
use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::worker::group_resent::{GroupResentReport, GroupResentSpec};
use crate::runs::worker::WorkerSpec;
use crate::runs::{Context, Measured};
use scotfree_stage::site::Site;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    group: GroupSettings,
    /// How many requests in each repetition.
    requests: u64,
}

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    context.measure_in_turns(|arm, repetition| measure(&site, &settings_of(arm)?, u64::from(repetition)))
}

fn measure(site: &Site<'_>, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
    let group = Group::up(site, &settings.group)?;
    let spec = GroupResentSpec { members: group.members(), requests: settings.requests, seed };
    let report: GroupResentReport = site.run_worker(HOST, "group-resent", &WorkerSpec::GroupResent(spec))?;
    let known = grown(&BTreeMap::new(), &group.counts()?, "writes_known").into_values().sum();
    let mut measured = Measured::default();
    for (name, value) in [
        ("requests", report.requests),
        ("sent", report.sent),
        ("differing", report.differing),
        ("refused", report.refused),
        ("put_off", report.put_off),
        ("lost", report.requests.saturating_sub(report.counted)),
        ("doubled", report.counted.saturating_sub(report.requests)),
        // That members were asked what they knew.
        ("writes_known", known),
    ] {
        measured.value(name, value as f64).counter(name, value);
    }
    Ok(measured)
}
