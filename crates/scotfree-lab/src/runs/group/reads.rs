//! Reads of a group of three, by who answers them: the tail alone, or every member.
//!
//! Invariant: each member that is asked has as many reads under way at a time, so that none is idle while it is
//! measured; what is counted is the members' processor time, whatever else the machine does meanwhile.

use super::{grown, measured, Group, GroupSettings};
use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::worker::group_use::Requests;
use crate::runs::{Context, Measured};
use scotfree_stage::site::Site;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    group: GroupSettings,
    /// The member to which clients go; any if none is said.
    reads_to: Option<u8>,
    outstanding: usize,
    time_ms: u64,
}

const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 100;
/// A member reads if it has answered at least so many of a hundred.
const SHARE_PERCENT_MIN: u64 = 10;

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    context.measure_in_turns(|arm, repetition| measure(&site, &settings_of(arm)?, u64::from(repetition)))
}

fn measure(site: &Site<'_>, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
    let group = Group::up(site, &settings.group)?;
    let requests = Requests {
        updates_percent: 0,
        outstanding: settings.outstanding,
        reads_to: settings.reads_to,
        keys: KEYS,
        value_bytes: VALUE_BYTES,
        warmup_ms: settings.time_ms / 10,
        time_ms: settings.time_ms,
        seed,
        ..Requests::default()
    };
    group.ask(Requests { fills: true, ..requests.clone() })?;
    let (counts_before, before) = (group.counts()?, group.cpu_times());
    let report = group.ask(requests)?;
    let (after, counts) = (group.cpu_times(), group.counts()?);
    let mut measured = measured(&report);
    note_processor_time(&spent(&before, &after), report.answered, &mut measured);
    let here = grown(&counts_before, &counts, "reads_here");
    let is_reading = |count: &&u64| **count * 100 >= report.answered * SHARE_PERCENT_MIN;
    measured.counter("members_reading", here.values().filter(is_reading).count() as u64);
    measured.counter("reads_here", here.values().sum());
    measured.counter("reads_asked", grown(&counts_before, &counts, "reads_asked").values().sum());
    Ok(measured)
}

fn spent(before: &BTreeMap<u8, Duration>, after: &BTreeMap<u8, Duration>) -> Vec<Duration> {
    after.iter().map(|(id, time)| time.saturating_sub(before.get(id).copied().unwrap_or_default())).collect()
}

/// With a processor for each member the group gives as many reads as the busiest of them allows.
fn note_processor_time(spent: &[Duration], reads: u64, measured: &mut Measured) {
    let busiest = spent.iter().max().copied().unwrap_or_default().as_secs_f64();
    let all: f64 = spent.iter().map(Duration::as_secs_f64).sum();
    measured.value("reads_per_s_with_own_processors", reads as f64 / busiest);
    measured.value("busiest_us_per_read", busiest * 1e6 / reads as f64);
    measured.value("all_us_per_read", all * 1e6 / reads as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_member_says_how_many_reads_there_could_be() {
        let at = |ms: [u64; 3]| (1..).zip(ms.map(Duration::from_millis)).collect();
        let spent = spent(&at([10, 10, 10]), &at([110, 60, 510]));
        let mut measured = Measured::default();
        note_processor_time(&spent, 1_000, &mut measured);
        assert!((measured.values["reads_per_s_with_own_processors"] - 2_000.0).abs() < 1.0);
        assert!((measured.values["all_us_per_read"] - 650.0).abs() < 1.0);
    }
}
