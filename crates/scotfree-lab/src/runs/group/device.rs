//! Acknowledgements over time of a device before the first member of a group, which is killed and comes back.
//!
//! Invariant: writers of keys take the device's acknowledgement, writers of lists wait for the group's; what was
//! acknowledged is read back at the end and judged.

use super::failing::Keeper;
use super::phases::{Clock, Moments, Phases, INTERVAL_MS};
use super::{Ground, Group, GroupSettings};
use crate::experiment::Measurement;
use crate::runs::kill_rounds::device::SIDECAR;
use crate::runs::settings::settings_of;
use crate::runs::{Context, Measured};
use scotfree_stage::history::{HistoryOptions, Verdict};
use scotfree_stage::process::Process;
use scotfree_stage::site::{await_condition, Logs, Site, PATIENCE};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::history::{HistoryControl, HistorySpec};
use scotfree_stage::worker::WorkerSpec;
use serde::Deserialize;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// By whom a plot tells its lines; as the group says it.
    protocol: String,
    members: u8,
    answer_when: String,
    lease_ms: u64,
    /// When the first member is killed, and when it is started again on its files.
    kill_ms: u64,
    start_ms: u64,
    time_ms: u64,
}

/// The member behind the device.
const VICTIM: u8 = 1;
/// How many of each kind; each has one command under way.
const WRITERS: u32 = 4;
/// How long writers rest between two commands, so that the window of a session outlasts the device's lease.
const PAUSE: Duration = Duration::from_millis(4);
/// How long behind the kill acknowledgements are compared with those before: within the device's lease, of two seconds.
const DEAD_MS: u64 = 1_000;
const NOT_STABLE: &str = "scotfree_unsafe_entries";

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    // Each measurement has a device with an empty log.
    context.measure_in_turns(|arm, _| measure(&context.site()?, &settings_of(arm)?))
}

fn measure(site: &Site<'_>, settings: &Settings) -> Result<Measured, Trouble> {
    let _switch = site.start_switch_with(Logs::Ram, &[])?;
    let mut keeper = Keeper::up(site, Ground::BehindDevice)?;
    let mut group = keeper.group(&settings.group(), settings.lease_ms)?;
    group.await_ready(VICTIM)?;
    let _sidecar = site.start_client_sidecar(&SIDECAR)?;
    let (_writers, mut history) = start_writers(site)?;
    let mut measured = Measured::default();
    let seen = Play { site, settings, group: &mut group, history: &mut history }.run(&mut measured)?;
    history.rest()?;
    await_condition("the device holds nothing more", || held(site).is_ok_and(|held| held == 0))?;
    note_verdict(&history.verify_all(PATIENCE)?, &mut measured);
    let phases = Phases::of(&seen.moments, settings.lease_ms, settings.time_ms);
    let keys = grown(&seen.keys);
    phases.note_rates("early", &keys, &mut measured);
    let dead = seen.moments.kill..seen.moments.kill + DEAD_MS;
    measured.value("early_dead_over_before", phases.over_before(&keys, &dead));
    phases.note_rates("covered", &grown(&seen.lists), &mut measured);
    seen.moments.note(&mut measured);
    Ok(measured)
}

impl Settings {
    fn group(&self) -> GroupSettings {
        GroupSettings::of(&self.protocol, self.members, &self.answer_when)
    }
}

fn start_writers(site: &Site<'_>) -> Result<(Process, HistoryControl), Trouble> {
    let socket = site.folder().join("history");
    let options = HistoryOptions {
        writers: WRITERS,
        key_writers: WRITERS,
        pause: PAUSE,
        // They wait for the dead.
        timeout: PATIENCE,
        ..HistoryOptions::new(site.client_sidecar_address(&SIDECAR))
    };
    let spec = HistorySpec { socket: socket.clone(), options, server: None };
    let writers = site.start_worker("client", "writers", &WorkerSpec::History(spec))?;
    let history = HistoryControl::connect(&socket, &writers)?;
    Ok((writers, history))
}

/// How many entries the device keeps that are not stable.
fn held(site: &Site<'_>) -> Result<u64, Trouble> {
    Ok(site.device_counts()?.get(NOT_STABLE).copied().unwrap_or(0))
}

/// How much was acknowledged by the end of each interval, and when what happened.
#[derive(Default)]
struct Seen {
    lists: Vec<u64>,
    keys: Vec<u64>,
    moments: Moments,
}

struct Play<'p, 's, 'a> {
    site: &'s Site<'a>,
    settings: &'p Settings,
    group: &'p mut Group<'s, 'a>,
    history: &'p mut HistoryControl,
}

impl Play<'_, '_, '_> {
    /// Looks at the end of each interval, and kills and starts the member when that is due.
    fn run(self, measured: &mut Measured) -> Result<Seen, Trouble> {
        let (mut seen, clock) = (Seen::default(), Clock::start());
        let Play { site, settings, group, history } = self;
        history.write()?;
        for end_ms in (INTERVAL_MS..=settings.time_ms).step_by(INTERVAL_MS as usize) {
            clock.sleep_until(end_ms);
            let counts = history.counts()?;
            let (lists, keys) = counts.split_at(WRITERS as usize);
            seen.lists.push(lists.iter().sum());
            seen.keys.push(keys.iter().sum());
            let moments = &mut seen.moments;
            if end_ms == settings.kill_ms {
                moments.kill = clock.ms();
                group.kill(VICTIM);
            } else if end_ms == settings.start_ms {
                let held = held(site)?;
                measured.value("held", held as f64).counter("held", held);
                moments.start = clock.ms();
                group.start(VICTIM)?;
            } else if moments.start > 0 && moments.full == 0 && group.is_full(VICTIM) {
                moments.full = clock.ms();
            }
        }
        Ok(seen)
    }
}

/// What each interval has more than the one before.
fn grown(counts: &[u64]) -> Vec<u64> {
    let before = [0].into_iter().chain(counts.iter().copied());
    counts.iter().zip(before).map(|(count, before)| count - before).collect()
}

fn note_verdict(verdict: &Verdict, measured: &mut Measured) {
    let Verdict { acked, unknown, lost, doubled, out_of_order, foreign, .. } = *verdict;
    for (name, count) in [
        ("acknowledged", acked),
        ("unknown", unknown),
        ("lost", lost),
        ("doubled", doubled),
        ("out_of_order", out_of_order),
        ("foreign", foreign),
    ] {
        measured.value(name, count as f64).counter(name, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_what_came_since_the_one_before() {
        assert_eq!(grown(&[3, 3, 10]), [3, 0, 7]);
        assert!(grown(&[]).is_empty());
    }
}
