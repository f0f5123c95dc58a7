//! Forecasts against the truth: calls of one shape of service without and with the remedy, beside those of
//! the shape that the forecast is fitted on.
//!
//! Invariant: without and with the remedy take turns, as do the shape and what the forecast is fitted on; a turn
//! in which the host takes processors away is made again; and a shape is never fitted on its own calls.

use super::bare_services::{BareServices, Calls};
use super::settings::settings_of;
use super::stolen::{undisturbed, Undisturbed};
use super::study::Bench;
use super::worker::calls::TraceSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::scratch::Scratch;
use scotfree_stage::site::{Logs, Site};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A service and how it is called.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Shape {
    plane: String,
    calls: u64,
    #[serde(default = "payload_bytes")]
    payload_bytes: usize,
    #[serde(default = "outstanding")]
    outstanding: usize,
    /// The time between two calls; 0 for one behind the other.
    #[serde(default)]
    interval_us: u64,
    /// How long the server works on each.
    #[serde(default)]
    work_us: u64,
}

const fn payload_bytes() -> usize {
    64
}

const fn outstanding() -> usize {
    1
}

/// In so many turns the four kinds of calls are made: what the machine does meanwhile falls on all alike.
const TURNS: u64 = 16;
/// So often a turn is made again at most.
const AGAIN_MAX: u64 = 8;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let bench = Bench::new(context)?;
    context.measure_in_turns(|arm, repetition| {
        let shape: Shape = settings_of(arm)?;
        let traces = Scratch::new("forecast")?;
        let turns = record(context, &shape, traces.path())?;
        let mut measured = bench.measure(arm, repetition, Some(traces.path()))?;
        count(&mut measured, &turns);
        Ok(measured)
    })
}

/// What forecasts are fitted on: calls of one rate to one server.
#[derive(Clone, Copy)]
struct Fitted {
    calls: u64,
    interval_us: u64,
    work_us: u64,
    /// Whether they are made without the remedy as well, which tells what the way and a wake-up take, and the work.
    with_baseline: bool,
}

const fn fitted(calls: u64, interval_us: u64, work_us: u64, with_baseline: bool) -> Fitted {
    Fitted { calls, interval_us, work_us, with_baseline }
}

/// A device answers a caller that rests otherwise than one that does not; of two calls that are nearer than the server
/// needs for one, one is in the other's way; and how processors are shared out depends on what came before, for longer
/// than a turn takes. So each rate has a service of its own, and those of calls one behind the other one that works as
/// well.
const FITTED: [Fitted; 9] = [
    fitted(4_000, 0, 0, true),
    fitted(4_000, 150, 0, false),
    fitted(4_000, 300, 0, false),
    fitted(3_200, 700, 0, true),
    fitted(1_600, 1_500, 0, false),
    fitted(960, 4_000, 0, true),
    fitted(320, 20_000, 0, false),
    fitted(4_000, 0, 30, true),
    fitted(4_000, 300, 30, false),
];

impl Shape {
    /// One of those; no arm has it.
    fn fitted(plane: &str, fitted: Fitted) -> Shape {
        Shape {
            plane: plane.to_owned(),
            calls: fitted.calls,
            payload_bytes: payload_bytes(),
            outstanding: outstanding(),
            interval_us: fitted.interval_us,
            work_us: fitted.work_us,
        }
    }

    fn calls(&self, tier: Tier, file: PathBuf) -> Calls {
        Calls {
            tier,
            outstanding: self.outstanding,
            interval_us: self.interval_us,
            payload_bytes: self.payload_bytes,
            count: self.calls / TURNS,
            trace: Some(TraceSpec { file, every: 1 }),
        }
    }
}

/// Calls the service of the shape and those that the forecast is fitted on, each without and with the remedy, and writes
/// `baseline-N-K.jsonl` and `remedy-N-K.jsonl` of each turn N and service K to `shape`, or to `fitted-W` of services
/// that work for W us; how often the device acknowledged calls of the shape in each turn.
fn record(context: &Context<'_>, shape: &Shape, folder: &Path) -> Result<Vec<Undisturbed<u64>>, Trouble> {
    let mut fitted = Vec::new();
    for (number, of) in FITTED.into_iter().enumerate() {
        let traces = folder.join(format!("fitted-{}", of.work_us));
        let fit = Shape::fitted(&shape.plane, of);
        fitted.push((Stand::up(context, number, &fit, traces)?, fit, of.with_baseline));
    }
    let stand = Stand::up(context, FITTED.len(), shape, folder.join("shape"))?;
    let turn = |turn| {
        for (stand, fit, with_baseline) in &fitted {
            stand.record(fit, turn, *with_baseline)?;
        }
        stand.record(shape, turn, true)
    };
    (0..TURNS).map(|number| undisturbed(AGAIN_MAX, || turn(number))).collect()
}

fn count(measured: &mut Measured, turns: &[Undisturbed<u64>]) {
    measured.counter("device_acks", turns.iter().map(|turn| turn.found).sum());
    measured.counter("turns_repeated", turns.iter().map(|turn| turn.repeated).sum());
    measured.counter("turns_disturbed", turns.iter().filter(|turn| turn.is_disturbed).count() as u64);
}

/// A service behind a device of its own, for a device's log has one server. It idles while another is called.
struct Stand<'a> {
    number: usize,
    traces: PathBuf,
    _processes: Vec<Process>,
    // Behind the processes, which end before it goes.
    site: Site<'a>,
}

impl<'a> Stand<'a> {
    fn up(
        context: &'a Context<'a>,
        number: usize,
        shape: &Shape,
        traces: PathBuf,
    ) -> Result<Stand<'a>, Trouble> {
        std::fs::create_dir_all(&traces)
            .map_err(|error| Trouble::file("make the folder", &traces, &error))?;
        let site = context.site_named(&format!("{}-{number}", context.topology.name))?;
        let logs = vec![Logs::RamAndDisk; site.devices().len()];
        let mut processes = site.start_chain(&logs, &["--plane", &shape.plane])?;
        processes.push(site.start_working_noop(shape.work_us)?);
        Ok(Stand { number, traces, _processes: processes, site })
    }

    /// Calls it without and with the remedy; how often the device acknowledged. What an earlier try of the turn
    /// recorded is forgotten.
    fn record(&self, shape: &Shape, turn: u64, with_baseline: bool) -> Result<u64, Trouble> {
        let file = |arm: &str| fresh(self.traces.join(format!("{arm}-{turn}-{}.jsonl", self.number)));
        if with_baseline {
            self.site.calls(&shape.calls(Tier::NONE, file("baseline")?))?;
        }
        Ok(self.site.calls(&shape.calls(Tier::RAM, file("remedy")?))?.completed_early)
    }
}

/// A file that is not there yet: records are appended.
fn fresh(file: PathBuf) -> Result<PathBuf, Trouble> {
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Trouble::file("remove", &file, &error)),
        _ => Ok(file),
    }
}
