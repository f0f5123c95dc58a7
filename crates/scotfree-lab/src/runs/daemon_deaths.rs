//! The daemon of a device whose plane is in the kernel, killed again and again under load: its programs go on
//! without it, and the next daemon takes over what they have.
//!
//! Invariant: nothing but the daemon dies; what the programs did while there was none is read from what they
//! keep, not from what a daemon says of it.

use super::kill_rounds::device::SIDECAR;
use super::settings::settings_of;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::{BootEpoch, Nanos, OrderNumber};
use scotfree_stage::history::Verdict;
use scotfree_stage::kernel_plane::{kept, try_programs, Kept};
use scotfree_stage::process::{wait_until, Process};
use scotfree_stage::site::{await_ready, Logs, Site, PATIENCE};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::history::HistoryControl;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// How many deaths, unless the command line says.
    rounds: u64,
    /// Whether what the programs keep is removed while there is no daemon, to see that this is found.
    #[serde(default)]
    forget: bool,
    /// Whether each daemon is told to end, as for an upgrade, instead of killed.
    #[serde(default)]
    orderly: bool,
}

const SWITCH: [&str; 2] = ["--plane", "xdp"];
/// Each writer has a session of its own: one that the daemon holds when it dies waits for the next daemon, and shows
/// nothing of what the programs do for the others.
const ONE_EACH: [&str; 4] = ["--connections-per-session", "1", "--sessions-max", "64"];
/// How many acknowledgements must come while there is no daemon.
const ACKS_MIN: u64 = 20;
/// How long they are waited for. The lease of 2 s, which nobody renews meanwhile, runs longer: a daemon is killed when
/// it has just got one. Where it has taken an update with it, callers have nothing to send but what they have sent
/// before, each time after twice the wait, up to half a second: then the last acknowledgements come late.
const ACKS_PATIENCE: Duration = Duration::from_millis(1_500);

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    try_programs()?;
    let arm = &context.experiment.arms[0];
    let mut settings: Settings = settings_of(arm)?;
    settings.rounds = context.options.rounds.unwrap_or(settings.rounds).max(1);
    context.measure_in_turns(|_, _| World::up(context, settings)?.measure())
}

/// What the programs keep, at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    boot_epoch: BootEpoch,
    order: OrderNumber,
    lease_until: Nanos,
    persist_acks: u64,
}

/// What was seen of them over all deaths.
#[derive(Debug, Default)]
struct Tally {
    boot_epochs: BTreeSet<BootEpoch>,
    acks_while_dead: u64,
    deaths_with_acks: u64,
    deaths_with_order: u64,
    order_steps_back: u64,
}

/// All processes, and the history that they must keep.
struct World<'a> {
    context: &'a Context<'a>,
    settings: Settings,
    switch: Process,
    _server: Process,
    _client: Process,
    writers: Process,
    history: HistoryControl,
    kept_folder: PathBuf,
    tally: Tally,
    // Behind the processes, which end before it goes.
    site: Site<'a>,
}

impl<'a> World<'a> {
    fn up(context: &'a Context<'a>, settings: Settings) -> Result<World<'a>, Trouble> {
        let site = context.site()?;
        let switch = site.start_switch_with(Logs::Ram, &SWITCH)?;
        let server = site.spawn_kv(&[])?;
        await_ready(&server)?;
        let client = site.start_client_sidecar_with(&SIDECAR, &ONE_EACH)?;
        let (writers, history) = site.start_writers(&SIDECAR, None)?;
        Ok(World {
            context,
            settings,
            switch,
            _server: server,
            _client: client,
            writers,
            history,
            kept_folder: site.kept_folder(&site.device().role),
            tally: Tally::default(),
            site,
        })
    }

    fn measure(&mut self) -> Result<Measured, Trouble> {
        self.history.write()?;
        let mut started = self.look()?;
        for round in 0..self.settings.rounds {
            self.await_replies(round)?;
            self.await_lease(&started)?;
            started = self.kill_and_restart()?;
        }
        self.await_replies(self.settings.rounds)?;
        self.history.rest()?;
        let verdict = self.history.verify_all(PATIENCE)?;
        self.context.interrupt.check()?;
        Ok(self.measured(verdict))
    }

    /// Waits until the daemon has got a lease of its own.
    fn await_lease(&self, started: &Moment) -> Result<(), Trouble> {
        let mut looked = Ok(());
        let has_come = wait_until(PATIENCE, || match self.look() {
            Ok(now) => now.lease_until > started.lease_until || self.context.interrupt.has_come(),
            Err(trouble) => {
                looked = Err(trouble);
                true
            }
        });
        looked?;
        self.context.interrupt.check()?;
        if has_come {
            return Ok(());
        }
        let problem = format!("the daemon got no lease within {} s", PATIENCE.as_secs());
        Err(Trouble::new("kill a daemon that has a lease", problem, "see what the server says of the device"))
    }

    /// One death: what the programs do meanwhile, and what the next daemon makes of it. What they keep when it
    /// has begun.
    fn kill_and_restart(&mut self) -> Result<Moment, Trouble> {
        self.context.interrupt.check()?;
        if self.settings.orderly {
            self.switch.stop(PATIENCE);
        } else {
            self.switch.kill();
        }
        let killed = self.look()?;
        if self.settings.forget {
            fs::remove_dir_all(&self.kept_folder)
                .map_err(|error| Trouble::file("remove", &self.kept_folder, &error))?;
        }
        let acks = self.await_acks(&killed);
        self.tally.acks_while_dead += acks;
        self.tally.deaths_with_acks += u64::from(acks >= ACKS_MIN);
        let last = if self.settings.forget { killed } else { self.look()? };
        self.switch = self.site.start_switch_with(Logs::Ram, &SWITCH)?;
        let revived = self.look()?;
        self.tally.boot_epochs.extend([killed.boot_epoch, revived.boot_epoch]);
        self.tally.order_steps_back += u64::from(revived.order < last.order);
        self.tally.deaths_with_order += u64::from(last.order > killed.order);
        Ok(revived)
    }

    /// How many acknowledgements the programs send by themselves, until there are enough and not all of them are of
    /// updates that were admitted before.
    fn await_acks(&self, killed: &Moment) -> u64 {
        let mut grown = 0;
        wait_until(ACKS_PATIENCE, || {
            let now = self.look().unwrap_or(*killed);
            grown = now.persist_acks.saturating_sub(killed.persist_acks);
            (grown >= ACKS_MIN && now.order > killed.order) || self.context.interrupt.has_come()
        });
        grown
    }

    fn look(&self) -> Result<Moment, Trouble> {
        let failed = |error| {
            Trouble::new(
                format!("read what is kept in {}", self.kept_folder.display()),
                error,
                "see: scot doctor",
            )
        };
        let Kept { boot_epoch, order, lease_until, persist_acks, .. } =
            kept(&self.kept_folder).map_err(failed)?;
        Ok(Moment { boot_epoch, order, lease_until, persist_acks })
    }

    /// Waits until every writer has further replies.
    fn await_replies(&mut self, round: u64) -> Result<(), Trouble> {
        let before = self.history.counts()?;
        let mut asked = Ok(Vec::new());
        let come = wait_until(PATIENCE, || {
            asked = self.history.counts();
            let have_all = |counts: &Vec<u64>| counts.iter().zip(&before).all(|(now, then)| now > then);
            asked.as_ref().map_or(true, have_all) || self.context.interrupt.has_come()
        });
        asked?;
        self.context.interrupt.check()?;
        if come {
            return Ok(());
        }
        let problem = format!("not every writer had a reply within {} s", PATIENCE.as_secs());
        let said = self.switch.error_output();
        let next = format!("the device said last: {}", said.lines().last().unwrap_or("nothing"));
        Err(Trouble::new(format!("go on after {round} deaths"), problem, next))
    }

    fn measured(&self, verdict: Verdict) -> Measured {
        let Verdict { acked, unknown, lost, doubled, out_of_order, foreign, .. } = verdict;
        let mut measured = Measured::default();
        for (name, count) in [
            ("acknowledged", acked),
            ("unknown", unknown),
            ("lost", lost),
            ("doubled", doubled),
            ("out_of_order", out_of_order),
            ("foreign", foreign),
            ("deaths", self.settings.rounds),
            ("acks_while_dead", self.tally.acks_while_dead),
        ] {
            measured.value(name, count as f64);
        }
        measured.counter("acknowledged", acked);
        measured.counter("deaths_with_acks", self.tally.deaths_with_acks);
        measured.counter("boot_epochs", self.tally.boot_epochs.len() as u64);
        measured.counter("order_steps_back", self.tally.order_steps_back);
        measured.counter("deaths_with_order", self.tally.deaths_with_order);
        measured
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.writers.kill();
    }
}
