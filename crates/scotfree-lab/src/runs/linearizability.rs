//! Histories of several client processes that read and write the same few keys, while processes are
//! killed and the wire between device and server loses and reorders frames: does some order explain them?
//!
//! Invariant: a round has keys of its own, so its history begins with nothing; what it saw is judged by
//! scotfree-check, and a verdict that it cannot give is counted as such.

use super::settings::{settings_of, shared_by_arms};
use super::worker::operations::{lines_count, read_history, OperationsReport, OperationsSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_check::{check, Limits, Op, Operation, Registers, Verdict};
use scotfree_stage::process::Process;
use scotfree_stage::site::{await_condition, await_ready, Logs, Site, PATIENCE};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::parse_report;
use scotfree_stage::workload::Random;
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// Whether reads are relaxed.
    relaxed: bool,
    /// How many processes.
    clients: u64,
    /// How many operations each of them makes.
    operations: u64,
    /// Where the device's plane lies.
    #[serde(default = "user")]
    plane: String,
}

fn user() -> String {
    "user".to_owned()
}

pub(super) const KEYS: u32 = 4;
// How bad the wire is.
pub(super) const BAD_PERCENT: &str = "2";
pub(super) const KILLS_PER_ROUND: usize = 2;
// A round has some thousand operations: a verdict takes so many steps, and one on a violation is not worth
// much more time to make it smaller.
const LIMITS: Limits = Limits { steps_max: 1_000_000, smallest_steps_max: 50_000 };
// A killed client's session stays until it expires.
const SWITCH: [&str; 2] = ["--sessions-max", "1024"];
// In the plane in the kernel every session has its slots from the beginning.
const SWITCH_XDP: [&str; 2] = ["--slots", "262144"];

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let seed = super::kill_rounds::seed(context)?;
    let plane = shared_by_arms(context.experiment, |arm: &Settings| arm.plane.clone())?;
    let mut world = World::up(context, seed, plane)?;
    context.measure_in_turns(|arm, repetition| {
        let prefix = format!("{}-{repetition}-", arm.name);
        world.round(&settings_of(arm)?, &prefix)
    })
}

struct World<'a> {
    site: Site<'a>,
    server: Option<Process>,
    switch: Option<Process>,
    _wire: Process,
    random: Random,
    seed: u64,
    plane: String,
}

impl<'a> World<'a> {
    fn up(context: &'a Context<'a>, seed: u64, plane: String) -> Result<World<'a>, Trouble> {
        let site = context.site()?;
        let wire = site.start_bad_wire(BAD_PERCENT)?;
        let server = site.spawn_kv(&[])?;
        let switch = start_switch(&site, &plane)?;
        await_ready(&server)?;
        let random = Random::new(seed, 1 << 32);
        Ok(World { site, server: Some(server), switch: Some(switch), _wire: wire, random, seed, plane })
    }

    fn round(&mut self, settings: &Settings, prefix: &str) -> Result<Measured, Trouble> {
        let file = |client: u64| self.site.folder().join(format!("{prefix}{client}.jsonl"));
        let files: Vec<PathBuf> = (0..settings.clients).map(file).collect();
        let clients: Vec<Process> = files
            .iter()
            .zip(0..)
            .map(|(file, client)| self.start_client(settings, prefix, client, file))
            .collect::<Result<_, _>>()?;
        for number in 1..=KILLS_PER_ROUND {
            // A line for the call and one for the reply.
            let lines = 2 * settings.operations as usize * number / (KILLS_PER_ROUND + 1);
            // The last client is never killed.
            let (last, process) = (&files[files.len() - 1], &clients[clients.len() - 1]);
            await_condition("the clients have made calls", || {
                lines_count(last) > lines || !process.is_running()
            })?;
            self.kill_something(&clients)?;
        }
        let mut completed_early = 0;
        for client in &clients {
            completed_early += finish(client)?;
        }
        judge(&files, prefix, completed_early)
    }

    fn start_client(
        &self,
        settings: &Settings,
        prefix: &str,
        client: u64,
        history: &Path,
    ) -> Result<Process, Trouble> {
        let spec = OperationsSpec {
            server: self.site.server(),
            sidecar: false,
            cluster_key: self.site.cluster_key(),
            prefix: prefix.to_owned(),
            keys: KEYS,
            client,
            operations: settings.operations,
            relaxed: settings.relaxed,
            seed: self.seed,
            history: history.to_owned(),
        };
        self.site.spawn_worker("client", &format!("{prefix}{client}"), &WorkerSpec::Operations(spec))
    }

    fn kill_something(&mut self, clients: &[Process]) -> Result<(), Trouble> {
        match self.random.below(3) {
            0 => {
                self.server = None;
                self.server = Some(self.site.spawn_kv(&[])?);
            }
            1 => {
                self.switch = None;
                self.switch = Some(start_switch(&self.site, &self.plane)?);
            }
            _ => {
                let victim = self.random.below(clients.len() as u64 - 1) as usize;
                clients[victim].kill();
            }
        }
        Ok(())
    }
}

fn start_switch(site: &Site<'_>, plane: &str) -> Result<Process, Trouble> {
    let slots = if plane == "xdp" { &SWITCH_XDP[..] } else { &[] };
    site.start_switch_with(Logs::Ram, &[&SWITCH[..], &["--plane", plane], slots].concat())
}

/// Waits for the end of a client; how many of its updates a device completed, if it was not killed.
pub(super) fn finish(client: &Process) -> Result<u64, Trouble> {
    let fault = |problem: String| {
        Trouble::new(format!("run the client {}", client.name()), problem, client.error_output())
    };
    match client.wait(3 * PATIENCE) {
        None => Err(fault(format!("not over within {} s", 3 * PATIENCE.as_secs()))),
        Some(status) if status.success() => {
            let report: OperationsReport = parse_report(&client.output()).map_err(fault)?;
            Ok(report.completed_early)
        }
        // Killed.
        Some(status) if status.code().is_none() => Ok(0),
        Some(status) => Err(fault(status.to_string())),
    }
}

/// What a round's files tell.
pub(super) fn judge(files: &[PathBuf], name: &str, completed_early: u64) -> Result<Measured, Trouble> {
    let (mut history, mut client_next) = (Vec::new(), 0);
    for file in files {
        history.extend(read_history(file, &mut client_next)?);
    }
    let verdict = check(&Registers, &history, LIMITS);
    let mut measured = Measured::default();
    let mut is = |metric: &str, is_so: bool| {
        measured.value(metric, f64::from(u8::from(is_so)));
    };
    is("histories", true);
    is("undecided", matches!(verdict, Verdict::Unknown { .. }));
    is("unexplained", matches!(verdict, Verdict::Violation(_)));
    if let Verdict::Violation(violation) = verdict {
        eprintln!("{name}: {}", violation.describe(&Registers, &history));
    }
    let is_read = |operation: &&Operation<Op, _>| matches!(operation.op, Op::Get { .. } | Op::MGet { .. });
    measured.value("reads", history.iter().filter(is_read).count() as f64);
    let unanswered = history.iter().filter(|operation| operation.answer.is_none()).count();
    measured.value("operations", history.len() as f64).value("unanswered", unanswered as f64);
    measured.value("kills", KILLS_PER_ROUND as f64);
    measured.counter("operations", history.len() as u64);
    measured.counter("completed_early", completed_early);
    Ok(measured)
}
