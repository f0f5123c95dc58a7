//! Answers of a group over time, while one of its members is killed and another, or the same, is started.
//!
//! Invariant: reads and writes have a client each, as a client whose writes wait for the group would soon have nothing
//! but writes under way; neither is told of anything.

use super::failing::Keeper;
use super::phases::{Clock, Moments, Phases, INTERVAL_MS};
use super::{grown, Ground, Group, GroupSettings};
use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::worker::group_use::{GroupUseReport, Interval, Intervals, Requests};
use crate::runs::{Context, Measured};
use scotfree_stage::site::report_of;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// By whom a plot tells its lines; as the group says it.
    protocol: String,
    members: u8,
    answer_when: String,
    lease_ms: u64,
    /// The member that is killed, and when.
    victim: u8,
    kill_ms: u64,
    /// The member that is started, and when: the victim, on its files, or one that the group has not had.
    starts: u8,
    start_ms: u64,
    time_ms: u64,
}

const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 100;
/// A fifth of what is under way are writes.
const READS_OUTSTANDING: usize = 32;
const WRITES_OUTSTANDING: usize = 8;
const FILL_MS: u64 = 100;
/// How long clients go on behind what is measured, since they begin a little later.
const MORE_MS: u64 = 1_000;

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    let mut keeper = Keeper::up(&site, Ground::OneHost)?;
    context
        .measure_in_turns(|arm, repetition| measure(&mut keeper, &settings_of(arm)?, u64::from(repetition)))
}

fn measure(keeper: &mut Keeper<'_, '_>, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
    let mut group = keeper.group(&settings.group(), settings.lease_ms)?;
    group.last_member = settings.members.max(settings.starts);
    group.ask(Requests { fills: true, time_ms: FILL_MS, ..settings.requests(0, None, seed) })?;
    let clock = Clock::start();
    let writer = group.begin_to_ask("writer", settings.requests(100, Some(clock), seed))?;
    let reader = group.begin_to_ask("reader", settings.requests(0, Some(clock), seed))?;
    let moments = play(&mut group, settings, clock)?;
    let (writes, reads): (GroupUseReport, GroupUseReport) = (report_of(&writer)?, report_of(&reader)?);
    let mut measured = Measured::default();
    moments.note(&mut measured);
    let phases = Phases::of(&moments, settings.lease_ms, settings.time_ms);
    settings.note("writes", &writes.update_intervals, writes.update_gap_max_ms, &phases, &mut measured);
    settings.note("reads", &reads.read_intervals, reads.read_gap_max_ms, &phases, &mut measured);
    measured.counter("given_up", writes.given_up + reads.given_up);
    measured.counter("wrong_replies", writes.wrong_replies + reads.wrong_replies);
    measured.counter("sent_again", writes.sent_again + reads.sent_again);
    // That the group has gone on without the victim and with who was started, which counts from its start.
    let counts = group.counts()?;
    let grown = |name| grown(&BTreeMap::new(), &counts, name);
    measured.counter("views", grown("views").values().sum());
    measured.counter("applied_by_started", grown("applied").get(&settings.starts).copied().unwrap_or(0));
    Ok(measured)
}

impl Settings {
    fn group(&self) -> GroupSettings {
        GroupSettings::of(&self.protocol, self.members, &self.answer_when)
    }

    /// Reads or writes, told by intervals of a clock if one is given.
    fn requests(&self, updates_percent: u32, clock: Option<Clock>, seed: u64) -> Requests {
        // What is answered later counts in one interval more, which is not told.
        let count = self.intervals_count() + 1;
        let by = |clock: Clock| Intervals { since_ns: clock.begin.0, each_ms: INTERVAL_MS, count };
        Requests {
            updates_percent,
            outstanding: if updates_percent == 0 { READS_OUTSTANDING } else { WRITES_OUTSTANDING },
            keys: KEYS,
            value_bytes: VALUE_BYTES,
            time_ms: self.time_ms + MORE_MS,
            seed,
            intervals: clock.map(by),
            ..Requests::default()
        }
    }

    const fn intervals_count(&self) -> usize {
        (self.time_ms / INTERVAL_MS) as usize
    }

    /// Rates over time, and the longest times without an answer.
    fn note(&self, kind: &str, all: &[Interval], gap_max_ms: f64, phases: &Phases, measured: &mut Measured) {
        let told = all.iter().take(self.intervals_count());
        let answered: Vec<u64> = told.map(|interval| interval.answered).collect();
        phases.note_rates(kind, &answered, measured);
        measured.value(&format!("{kind}_gap_over_lease_ms"), gap_max_ms - self.lease_ms as f64);
        measured.value(&format!("{kind}_gap_started_ms"), gap_max_ms_in(all, &phases.started));
        measured.counter(&format!("{kind}_gap_ms"), gap_max_ms as u64);
    }
}

/// Kills the one and starts the other, in the order of their moments.
fn play(group: &mut Group<'_, '_>, settings: &Settings, clock: Clock) -> Result<Moments, Trouble> {
    let mut moments = Moments::default();
    if settings.kill_ms < settings.start_ms {
        kill(group, settings, clock, &mut moments);
        start(group, settings, clock, &mut moments)?;
    } else {
        start(group, settings, clock, &mut moments)?;
        kill(group, settings, clock, &mut moments);
    }
    Ok(moments)
}

fn kill(group: &mut Group<'_, '_>, settings: &Settings, clock: Clock, moments: &mut Moments) {
    clock.sleep_until(settings.kill_ms);
    moments.kill = clock.ms();
    group.kill(settings.victim);
}

fn start(
    group: &mut Group<'_, '_>,
    settings: &Settings,
    clock: Clock,
    moments: &mut Moments,
) -> Result<(), Trouble> {
    clock.sleep_until(settings.start_ms);
    moments.start = clock.ms();
    group.start(settings.starts)?;
    group.await_full(settings.starts)?;
    moments.full = clock.ms();
    Ok(())
}

/// The longest time without an answer that ended in a phase, or in an interval that it shares.
fn gap_max_ms_in(all: &[Interval], phase: &Range<u64>) -> f64 {
    let end = (phase.end.div_ceil(INTERVAL_MS) as usize).min(all.len());
    let there = all.get((phase.start / INTERVAL_MS) as usize..end).unwrap_or_default();
    there.iter().map(|interval| interval.gap_max_ms).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One long gap behind the kill, and a short one behind the start.
    fn seen() -> Vec<Interval> {
        let gap_max_ms = |index: u64| match index * INTERVAL_MS {
            7_000 => 2_100.0,
            12_250 => 40.0,
            _ => 1.0,
        };
        (0..81).map(|index| Interval { answered: 10, gap_max_ms: gap_max_ms(index) }).collect()
    }

    #[test]
    fn gaps_are_told_with_what_was_answered_within_the_time() {
        let settings = Settings {
            protocol: "craq".into(),
            members: 3,
            answer_when: "stored".into(),
            lease_ms: 2_000,
            victim: 3,
            kill_ms: 5_000,
            starts: 3,
            start_ms: 12_000,
            time_ms: 20_000,
        };
        let moments = Moments { kill: 5_000, start: 12_000, full: 12_500 };
        let phases = Phases::of(&moments, settings.lease_ms, settings.time_ms);
        let mut measured = Measured::default();
        settings.note("reads", &seen(), 2_100.0, &phases, &mut measured);
        for (metric, value) in [
            ("reads_per_s_at_19750_ms", 40.0),
            ("reads_gap_over_lease_ms", 100.0),
            ("reads_gap_started_ms", 40.0),
        ] {
            assert!(
                (measured.values[metric] - value).abs() < 1e-9,
                "{metric} is {}",
                measured.values[metric]
            );
        }
        assert!(!measured.values.contains_key("reads_per_s_at_20000_ms"), "what came later is not told");
        assert_eq!(measured.counters["reads_gap_ms"], 2_100);
    }
}
