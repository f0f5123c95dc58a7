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

/// What forecasts are fitted on: calls, and us between two of them. A device answers a caller that rests otherwise
/// than one that does not; and of two calls that are nearer than the server needs for one, one is in the other's way.
/// The rates of `scot plan fit --here`.
const FITTED: [(u64, u64); 5] = [(4_000, 0), (4_000, 150), (3_200, 700), (960, 4_000), (320, 20_000)];

impl Shape {
    /// One of those; no arm has it.
    fn fitted(plane: &str, (calls, interval_us): (u64, u64)) -> Shape {
        Shape {
            plane: plane.to_owned(),
            calls,
            payload_bytes: payload_bytes(),
            outstanding: outstanding(),
            interval_us,
            work_us: 0,
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

/// Calls the service of the shape and the one that the forecast is fitted on, each without and with the remedy, and
/// writes `baseline-N-K.jsonl` and `remedy-N-K.jsonl` of each turn N and kind K of calls to `shape` and `fitted`; how
/// often the device acknowledged calls of the shape in each turn.
fn record(context: &Context<'_>, shape: &Shape, folder: &Path) -> Result<Vec<Undisturbed<u64>>, Trouble> {
    let fitted = FITTED.map(|calls| Shape::fitted(&shape.plane, calls));
    let fitted = Stand::up(context, "fitted", &fitted, folder)?;
    let shape = Stand::up(context, "shape", std::slice::from_ref(shape), folder)?;
    let turn = |turn| {
        fitted.record(turn)?;
        shape.record(turn)
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
    shapes: &'a [Shape],
    traces: PathBuf,
    _processes: Vec<Process>,
    // Behind the processes, which end before it goes.
    site: Site<'a>,
}

impl<'a> Stand<'a> {
    fn up(
        context: &'a Context<'a>,
        name: &str,
        shapes: &'a [Shape],
        folder: &Path,
    ) -> Result<Stand<'a>, Trouble> {
        let traces = folder.join(name);
        std::fs::create_dir(&traces).map_err(|error| Trouble::file("make the folder", &traces, &error))?;
        let site = context.site_named(&format!("{}-{name}", context.topology.name))?;
        let logs = vec![Logs::RamAndDisk; site.devices().len()];
        let mut processes = site.start_chain(&logs, &["--plane", &shapes[0].plane])?;
        processes.push(site.start_working_noop(shapes[0].work_us)?);
        Ok(Stand { shapes, traces, _processes: processes, site })
    }

    /// Calls it without and with the remedy; how often the device acknowledged. What an earlier try of the turn
    /// recorded is forgotten.
    fn record(&self, turn: u64) -> Result<u64, Trouble> {
        let mut acks = 0;
        for (kind, shape) in self.shapes.iter().enumerate() {
            let file = |arm: &str| fresh(self.traces.join(format!("{arm}-{turn}-{kind}.jsonl")));
            self.site.calls(&shape.calls(Tier::NONE, file("baseline")?))?;
            acks += self.site.calls(&shape.calls(Tier::RAM, file("remedy")?))?.completed_early;
        }
        Ok(acks)
    }
}

/// A file that is not there yet: records are appended.
fn fresh(file: PathBuf) -> Result<PathBuf, Trouble> {
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Trouble::file("remove", &file, &error)),
        _ => Ok(file),
    }
}
