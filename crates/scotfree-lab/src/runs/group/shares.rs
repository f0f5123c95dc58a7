//! Reads and writes of a group, by how many members it has, how they agree, and how many of the requests are writes.
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
}

const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 100;

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    context.measure_in_turns(|arm, repetition| {
        let Settings { protocol, members, updates_percent, answer_when, outstanding, time_ms, spin_us } =
            settings_of(arm)?;
        let group = GroupSettings { protocol, members, answer_when, spin_us };
        let requests = Requests {
            updates_percent,
            outstanding,
            keys: KEYS,
            value_bytes: VALUE_BYTES,
            fills: true,
            warmup_ms: time_ms / 5,
            time_ms,
            seed: u64::from(repetition),
            ..Requests::default()
        };
        use_group(&site, &group, requests)
    })
}
