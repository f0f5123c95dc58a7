//! Reads and writes of a group, by how many members it has, how they agree, how many of the requests are writes, and
//! how large values are.
//!
//! Invariant: arms differ in their settings only; the client asks any member.

use super::{use_group, GroupSettings};
use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::worker::group_use::Requests;
use crate::runs::Context;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// By whom a plot tells its lines; as the group says it.
    protocol: String,
    members: u8,
    updates_percent: u32,
    answer_when: String,
    outstanding: usize,
    time_ms: u64,
    /// How long members look for events before they sleep; as they do by themselves if it is not said.
    spin_us: Option<u64>,
    value_bytes: Option<usize>,
    keys: Option<u64>,
}

/// Unless a setting says otherwise.
const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 100;

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    context.measure_in_turns(|arm, repetition| {
        let settings: Settings = settings_of(arm)?;
        let requests = requests(&settings, u64::from(repetition));
        let Settings { protocol, members, answer_when, spin_us, .. } = settings;
        use_group(&site, &GroupSettings { protocol, members, answer_when, spin_us }, requests)
    })
}

fn requests(settings: &Settings, seed: u64) -> Requests {
    Requests {
        updates_percent: settings.updates_percent,
        outstanding: settings.outstanding,
        keys: settings.keys.unwrap_or(KEYS),
        value_bytes: settings.value_bytes.unwrap_or(VALUE_BYTES),
        fills: true,
        warmup_ms: settings.time_ms / 5,
        time_ms: settings.time_ms,
        seed,
        ..Requests::default()
    }
}
