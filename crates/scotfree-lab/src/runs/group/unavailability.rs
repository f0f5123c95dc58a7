//! One of three members is killed: how long nobody is answered.
//!
//! Invariant: one client writes and another reads all the time, of any member; neither is told of the kill. What is
//! measured is the longest time in which none of its requests was answered.

use super::failing::{Keeper, Pace};
use super::{Ground, GroupSettings};
use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::worker::group_use::{GroupUseReport, Requests};
use crate::runs::{Context, Measured};
use scotfree_stage::site::report_of;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    group: GroupSettings,
    lease_ms: u64,
    /// The member that is killed: 1 is the head, the last the tail.
    victim: u8,
}

const KEYS: u64 = 1_000;
const OUTSTANDING: usize = 4;
const PACE: Pace = Pace { calm_ms: 500, calm_more_ms_max: 500, after_ms: 2_500 };

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    let mut keeper = Keeper::up(&site, Ground::OneHost)?;
    context
        .measure_in_turns(|arm, repetition| measure(&mut keeper, &settings_of(arm)?, u64::from(repetition)))
}

fn measure(keeper: &mut Keeper<'_, '_>, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
    let mut group = keeper.group(&settings.group, settings.lease_ms)?;
    let requests = |updates_percent| Requests {
        updates_percent,
        outstanding: OUTSTANDING,
        keys: KEYS,
        time_ms: PACE.time_ms(settings.lease_ms),
        seed,
        ..Requests::default()
    };
    let writer = group.begin_to_ask("writer", requests(100))?;
    let reader = group.begin_to_ask("reader", requests(0))?;
    PACE.calm(&mut keeper.random(seed));
    group.kill(settings.victim);
    let (writes, reads): (GroupUseReport, GroupUseReport) = (report_of(&writer)?, report_of(&reader)?);
    let mut measured = Measured::default();
    let lease_ms = settings.lease_ms as f64;
    measured.value("write_gap_ms", writes.update_gap_max_ms).value("read_gap_ms", reads.read_gap_max_ms);
    measured.value("write_gap_over_lease_ms", writes.update_gap_max_ms - lease_ms);
    measured.value("read_gap_over_lease_ms", reads.read_gap_max_ms - lease_ms);
    measured.counter("given_up", writes.given_up + reads.given_up);
    measured.counter("wrong_replies", writes.wrong_replies + reads.wrong_replies);
    // That the group went on without it.
    measured.counter("views", super::grown(&BTreeMap::new(), &group.counts()?, "views").values().sum());
    Ok(measured)
}
