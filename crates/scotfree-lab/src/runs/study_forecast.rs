//! Forecasts against the truth: calls of one shape of service without and with the remedy, beside those of
//! the shape that the forecast is fitted on.
//!
//! Invariant: without and with the remedy take turns, as do the shape and what the forecast is fitted on; and a
//! shape is never fitted on its own calls.

use super::settings::settings_of;
use super::site::{Calls, Logs, Site};
use super::study::Bench;
use super::worker::calls::TraceSpec;
use super::Context;
use crate::experiment::Measurement;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::trouble::Trouble;
use scotfree_core::Tier;
use serde::Deserialize;
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

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let bench = Bench::new(context)?;
    context.measure_in_turns(|arm, repetition| {
        let shape: Shape = settings_of(arm)?;
        let traces = Scratch::new("forecast")?;
        let acks = record(context, &shape, traces.path())?;
        let mut measured = bench.measure(arm, repetition, Some(traces.path()))?;
        measured.counter("device_acks", acks);
        Ok(measured)
    })
}

impl Shape {
    /// What forecasts are fitted on; no arm has it.
    fn fitted(plane: &str) -> Shape {
        Shape {
            plane: plane.to_owned(),
            calls: 4_000,
            payload_bytes: payload_bytes(),
            outstanding: outstanding(),
            interval_us: 300,
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
/// writes `baseline-N.jsonl` and `remedy-N.jsonl` of each turn to `shape` and `fitted`; how often the device
/// acknowledged calls of the shape.
fn record(context: &Context<'_>, shape: &Shape, folder: &Path) -> Result<u64, Trouble> {
    let fitted = Shape::fitted(&shape.plane);
    let fitted = Stand::up(context, "fitted", &fitted, folder)?;
    let shape = Stand::up(context, "shape", shape, folder)?;
    let mut acks = 0;
    for turn in 0..TURNS {
        fitted.record(turn)?;
        acks += shape.record(turn)?;
    }
    Ok(acks)
}

/// A service behind a device of its own, for a device's log has one server. It idles while another is called.
struct Stand<'a> {
    shape: &'a Shape,
    traces: PathBuf,
    _processes: Vec<Process>,
    // Behind the processes, which end before it goes.
    site: Site<'a>,
}

impl<'a> Stand<'a> {
    fn up(
        context: &'a Context<'a>,
        name: &str,
        shape: &'a Shape,
        folder: &Path,
    ) -> Result<Stand<'a>, Trouble> {
        let traces = folder.join(name);
        std::fs::create_dir(&traces).map_err(|error| Trouble::file("make the folder", &traces, &error))?;
        let site = Site::up_named(context, &format!("{}-{name}", context.topology.name))?;
        let logs = vec![Logs::RamAndDisk; site.devices().len()];
        let mut processes = site.start_chain(&logs, &["--plane", &shape.plane])?;
        processes.push(site.start_working_noop(shape.work_us)?);
        Ok(Stand { shape, traces, _processes: processes, site })
    }

    /// Calls it without and with the remedy; how often the device acknowledged.
    fn record(&self, turn: u64) -> Result<u64, Trouble> {
        let file = |arm: &str| self.traces.join(format!("{arm}-{turn}.jsonl"));
        self.site.calls(&self.shape.calls(Tier::NONE, file("baseline")))?;
        Ok(self.site.calls(&self.shape.calls(Tier::RAM, file("remedy")))?.completed_early)
    }
}
