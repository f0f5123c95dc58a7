//! Answers of a group over time, while one of its members is killed and another, or the same, is started.
//!
//! Invariant: reads and writes have a client each, as a client whose writes wait for the group would soon have nothing
//! but writes under way; neither is told of anything. All moments are of one clock, that of the intervals.

use super::failing::Keeper;
use super::{grown, Group, GroupSettings};
use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::worker::group_use::{GroupUseReport, Interval, Intervals, Requests};
use crate::runs::{Context, Measured};
use scotfree_core::Nanos;
use scotfree_io::now_monotonic;
use scotfree_stage::site::report_of;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;
use std::time::Duration;

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
const INTERVAL_MS: u64 = 250;
/// How long clients go on behind what is measured, since they begin a little later.
const MORE_MS: u64 = 1_000;
/// How long nothing is compared after a change: after the group has a view without the victim, at the latest when its
/// lease has ended, or after the member that was started is full.
const SETTLING_MS: u64 = 1_000;

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    let mut keeper = Keeper::up(&site)?;
    context
        .measure_in_turns(|arm, repetition| measure(&mut keeper, &settings_of(arm)?, u64::from(repetition)))
}

fn measure(keeper: &mut Keeper<'_, '_>, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
    let mut group = keeper.group(&settings.group(), settings.lease_ms)?;
    group.last_member = settings.members.max(settings.starts);
    group.ask(Requests {
        fills: true,
        intervals: None,
        time_ms: 1,
        ..settings.requests(0, Nanos(0), seed)
    })?;
    let begin = now_monotonic();
    let writer = group.begin_to_ask("writer", settings.requests(100, begin, seed))?;
    let reader = group.begin_to_ask("reader", settings.requests(0, begin, seed))?;
    let moments = play(&mut group, settings, begin)?;
    let (writes, reads): (GroupUseReport, GroupUseReport) = (report_of(&writer)?, report_of(&reader)?);
    let mut measured = Measured::default();
    moments.note(&mut measured);
    let phases = Phases::of(settings, &moments);
    phases.note("writes", &writes.update_intervals, writes.update_gap_max_ms, settings, &mut measured);
    phases.note("reads", &reads.read_intervals, reads.read_gap_max_ms, settings, &mut measured);
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
        GroupSettings {
            protocol: self.protocol.clone(),
            members: self.members,
            answer_when: self.answer_when.clone(),
            spin_us: None,
        }
    }

    fn requests(&self, updates_percent: u32, begin: Nanos, seed: u64) -> Requests {
        // What is answered later counts in one interval more, which is not told.
        let count = self.intervals_count() + 1;
        Requests {
            updates_percent,
            outstanding: if updates_percent == 0 { READS_OUTSTANDING } else { WRITES_OUTSTANDING },
            keys: KEYS,
            value_bytes: VALUE_BYTES,
            time_ms: self.time_ms + MORE_MS,
            seed,
            intervals: Some(Intervals { since_ns: begin.0, each_ms: INTERVAL_MS, count }),
            ..Requests::default()
        }
    }

    const fn intervals_count(&self) -> usize {
        (self.time_ms / INTERVAL_MS) as usize
    }
}

/// When what happened, in milliseconds.
#[derive(Default)]
struct Moments {
    kill: u64,
    start: u64,
    full: u64,
}

impl Moments {
    fn note(&self, measured: &mut Measured) {
        for (name, ms) in [("kill_ms", self.kill), ("start_ms", self.start), ("full_ms", self.full)] {
            measured.value(name, ms as f64);
        }
    }
}

/// Kills the one and starts the other, in the order of their moments.
fn play(group: &mut Group<'_, '_>, settings: &Settings, begin: Nanos) -> Result<Moments, Trouble> {
    let mut moments = Moments::default();
    if settings.kill_ms < settings.start_ms {
        kill(group, settings, begin, &mut moments);
        start(group, settings, begin, &mut moments)?;
    } else {
        start(group, settings, begin, &mut moments)?;
        kill(group, settings, begin, &mut moments);
    }
    Ok(moments)
}

fn kill(group: &mut Group<'_, '_>, settings: &Settings, begin: Nanos, moments: &mut Moments) {
    sleep_until(begin, settings.kill_ms);
    moments.kill = ms_since(begin);
    group.kill(settings.victim);
}

fn start(
    group: &mut Group<'_, '_>,
    settings: &Settings,
    begin: Nanos,
    moments: &mut Moments,
) -> Result<(), Trouble> {
    sleep_until(begin, settings.start_ms);
    moments.start = ms_since(begin);
    group.start(settings.starts)?;
    group.await_full(settings.starts)?;
    moments.full = ms_since(begin);
    Ok(())
}

fn ms_since(begin: Nanos) -> u64 {
    now_monotonic().since(begin).0 / 1_000_000
}

fn sleep_until(begin: Nanos, ms: u64) {
    thread::sleep(Duration::from_millis(ms.saturating_sub(ms_since(begin))));
}

/// The times between the changes, in milliseconds.
struct Phases {
    before: Range<u64>,
    between: Range<u64>,
    after: Range<u64>,
    /// From the start of a member until the next change.
    started: Range<u64>,
}

impl Phases {
    fn of(settings: &Settings, moments: &Moments) -> Phases {
        let Moments { kill, start, full } = *moments;
        let (killed, full) = (kill + settings.lease_ms + SETTLING_MS, full + SETTLING_MS);
        let end = settings.time_ms;
        if kill < start {
            Phases {
                before: SETTLING_MS..kill,
                between: killed..start,
                after: full..end,
                started: start..end,
            }
        } else {
            Phases {
                before: SETTLING_MS..start,
                between: full..kill,
                after: killed..end,
                started: start..kill,
            }
        }
    }

    /// Rates over time, compared between phases, and the longest times without an answer.
    fn note(
        &self,
        kind: &str,
        all: &[Interval],
        gap_max_ms: f64,
        settings: &Settings,
        measured: &mut Measured,
    ) {
        for (interval, begin_ms) in
            all.iter().zip((0..).step_by(INTERVAL_MS as usize)).take(settings.intervals_count())
        {
            measured.value(&format!("{kind}_per_s_at_{begin_ms}_ms"), per_s(interval.answered, 1));
        }
        let [before, between, after] =
            [&self.before, &self.between, &self.after].map(|phase| rate(all, phase));
        measured.value(&format!("{kind}_per_s_before"), before);
        measured.value(&format!("{kind}_between_over_before"), between / before);
        measured.value(&format!("{kind}_after_over_before"), after / before);
        measured.value(&format!("{kind}_gap_over_lease_ms"), gap_max_ms - settings.lease_ms as f64);
        measured.value(&format!("{kind}_gap_started_ms"), gap_max_ms_in(all, &self.started));
        measured.counter(&format!("{kind}_gap_ms"), gap_max_ms as u64);
    }
}

fn per_s(answered: u64, intervals_count: u64) -> f64 {
    answered as f64 * 1e3 / (intervals_count * INTERVAL_MS) as f64
}

/// How many were answered in a second of the intervals that lie in a phase whole; none if none does.
fn rate(all: &[Interval], phase: &Range<u64>) -> f64 {
    let first = phase.start.div_ceil(INTERVAL_MS) as usize;
    let there = all.get(first..(phase.end / INTERVAL_MS) as usize).unwrap_or_default();
    if there.is_empty() {
        return 0.0;
    }
    per_s(there.iter().map(|interval| interval.answered).sum(), there.len() as u64)
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

    fn settings(kill_ms: u64, start_ms: u64) -> Settings {
        Settings {
            protocol: "craq".into(),
            members: 3,
            answer_when: "stored".into(),
            lease_ms: 2_000,
            victim: 3,
            kill_ms,
            starts: 3,
            start_ms,
            time_ms: 20_000,
        }
    }

    fn phases(kill_ms: u64, start_ms: u64) -> Phases {
        let moments = Moments { kill: kill_ms, start: start_ms, full: start_ms + 500 };
        Phases::of(&settings(kill_ms, start_ms), &moments)
    }

    #[test]
    fn what_is_compared_lies_clear_of_the_changes() {
        let killed_first = phases(5_000, 12_000);
        assert_eq!(killed_first.before, 1_000..5_000);
        assert_eq!((killed_first.between, killed_first.after), (8_000..12_000, 13_500..20_000));
        assert_eq!(killed_first.started, 12_000..20_000);
        let started_first = phases(12_000, 5_000);
        assert_eq!(started_first.before, 1_000..5_000);
        assert_eq!((started_first.between, started_first.after), (6_500..12_000, 15_000..20_000));
        assert_eq!(started_first.started, 5_000..12_000);
    }

    /// Ten answers in each interval, but none for two seconds from the kill on, and then half as many until the start.
    fn seen() -> Vec<Interval> {
        let answered = |index: u64| match index * INTERVAL_MS {
            5_000..7_000 => 0,
            7_000..12_000 => 5,
            _ => 10,
        };
        let gap_max_ms = |index: u64| match index * INTERVAL_MS {
            7_000 => 2_100.0,
            12_250 => 40.0,
            _ => 1.0,
        };
        (0..81).map(|index| Interval { answered: answered(index), gap_max_ms: gap_max_ms(index) }).collect()
    }

    #[test]
    fn rates_and_gaps_are_those_of_their_phases() {
        let mut measured = Measured::default();
        phases(5_000, 12_000).note("reads", &seen(), 2_100.0, &settings(5_000, 12_000), &mut measured);
        for (metric, value) in [
            ("reads_per_s_at_0_ms", 40.0),
            ("reads_per_s_at_5250_ms", 0.0),
            ("reads_per_s_at_19750_ms", 40.0),
            ("reads_per_s_before", 40.0),
            ("reads_between_over_before", 0.5),
            ("reads_after_over_before", 1.0),
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

    #[test]
    fn a_phase_without_a_whole_interval_has_no_rate() {
        for (start, end) in [(8_000, 8_000), (8_100, 8_300), (9_000, 8_000), (30_000, 40_000)] {
            assert!(rate(&seen(), &Range { start, end }).abs() < 1e-9, "{start} to {end}");
        }
    }
}
