//! Rounds of `kill -9` of a member of a group while clients count and set keys of it, and what they saw.
//!
//! Invariant: nobody is told of a kill; what was killed is started again on the files that it left, and a round is over
//! when it serves again and every operation has ended. What each round saw is judged by itself.

use super::failing::{Keeper, Pace};
use super::{grown, Ground, Group, GroupSettings, HOST};
use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::worker::group_history::{GroupHistoryReport, GroupHistorySpec};
use crate::runs::worker::WorkerSpec;
use crate::runs::{Context, Measured};
use scotfree_stage::site::{report_of, Site};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    group: GroupSettings,
    lease_ms: u64,
    /// How many rounds, over all repetitions of this arm.
    rounds: u64,
}

const CLIENTS: u64 = 4;
const OPERATIONS_MAX: u64 = 2_500;
/// Clients go on until the group has, and the victim is back.
const PACE: Pace = Pace { calm_ms: 0, calm_more_ms_max: 300, after_ms: 1_700 };
/// How long what was killed stays dead: one half of the kills so long at most,
const SHORT_MS_MAX: u64 = 50;
/// the others until the group has gone on without it, and so long more at most.
const LONG_MS_MAX: u64 = 500;

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let seed = crate::runs::kill_rounds::seed(context)?;
    let site = context.site()?;
    let mut keeper = Keeper::up(&site, Ground::OneHost)?;
    let arms = context.experiment.arms.len() as u64;
    let repetitions = u64::from(context.experiment.repetitions);
    context.measure_in_turns(|arm, _| {
        let settings: Settings = settings_of(arm)?;
        let rounds = context.options.rounds.map_or(settings.rounds, |rounds| rounds.div_ceil(arms));
        let mut play = Play {
            site: &site,
            group: keeper.group(&settings.group, settings.lease_ms)?,
            settings,
            random: keeper.random(seed),
            tally: Tally::default(),
        };
        for round in 0..rounds.div_ceil(repetitions) {
            context.interrupt.check()?;
            play.round(round)?;
        }
        Ok(play.measured())
    })
}

struct Play<'s, 'a> {
    site: &'s Site<'a>,
    group: Group<'s, 'a>,
    settings: Settings,
    random: Random,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    rounds: u64,
    seen: GroupHistoryReport,
    states_taken: u64,
}

impl Play<'_, '_> {
    fn round(&mut self, round: u64) -> Result<(), Trouble> {
        let spec = GroupHistorySpec {
            members: self.group.members(),
            prefix: format!("round{round}:"),
            clients: CLIENTS,
            operations_max: OPERATIONS_MAX,
            time_ms: PACE.time_ms(self.settings.lease_ms),
            seed: self.random.next(),
        };
        let clients = self.site.spawn_worker(HOST, "group-history", &WorkerSpec::GroupHistory(spec))?;
        PACE.calm(&mut self.random);
        let victim = 1 + self.random.below(u64::from(self.settings.group.members)) as u8;
        self.group.kill(victim);
        if self.random.below(2) == 0 {
            self.sleep_up_to(SHORT_MS_MAX);
        } else {
            thread::sleep(Duration::from_millis(self.settings.lease_ms));
            self.sleep_up_to(LONG_MS_MAX);
        }
        self.group.start(victim)?;
        self.group.await_full(victim)?;
        self.tally.add(&report_of(&clients)?);
        // It began with nothing counted.
        let taken = grown(&BTreeMap::new(), &self.group.counts()?, "snapshots_taken");
        self.tally.states_taken += taken.get(&victim).copied().unwrap_or(0);
        Ok(())
    }

    fn sleep_up_to(&mut self, ms_max: u64) {
        thread::sleep(Duration::from_millis(self.random.below(ms_max + 1)));
    }

    fn measured(self) -> Measured {
        let Tally { rounds, seen, states_taken } = self.tally;
        let mut measured = Measured::default();
        for (name, value) in [
            ("rounds", rounds),
            ("operations", seen.operations),
            ("unanswered", seen.unanswered),
            ("sent_again", seen.sent_again),
            ("lost", seen.lost),
            ("doubled", seen.doubled),
            ("unexplained", seen.unexplained),
            ("undecided", seen.undecided),
            ("states_taken", states_taken),
        ] {
            measured.value(name, value as f64).counter(name, value);
        }
        measured
    }
}

impl Tally {
    fn add(&mut self, seen: &GroupHistoryReport) {
        self.rounds += 1;
        let all = &mut self.seen;
        all.operations += seen.operations;
        all.unanswered += seen.unanswered;
        all.sent_again += seen.sent_again;
        all.lost += seen.lost;
        all.doubled += seen.doubled;
        all.unexplained += seen.unexplained;
        all.undecided += seen.undecided;
    }
}
