//! Forecasts against the truth: calls of one shape of service without and with the remedy, beside those of
//! the shape that the forecast is fitted on.
//!
//! Invariant: without and with the remedy take turns, and a shape is never fitted on its own calls.

use super::settings::settings_of;
use super::site::{Calls, Logs, Site};
use super::study::Bench;
use super::worker::calls::TraceSpec;
use super::Context;
use crate::experiment::Measurement;
use crate::scratch::Scratch;
use crate::trouble::Trouble;
use scotfree_core::Tier;
use serde::Deserialize;
use std::path::Path;

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

/// In so many turns the calls are made, without and with the remedy.
const TURNS: u64 = 4;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let bench = Bench::new(context)?;
    context.measure_in_turns(|arm, repetition| {
        let shape: Shape = settings_of(arm)?;
        let traces = Scratch::new("forecast")?;
        let fitted = Shape::fitted(&shape.plane);
        record(context, &fitted, &traces.path().join("fitted"))?;
        let acks = record(context, &shape, &traces.path().join("shape"))?;
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

    fn calls(&self, tier: Tier, file: &Path) -> Calls {
        Calls {
            tier,
            outstanding: self.outstanding,
            interval_us: self.interval_us,
            payload_bytes: self.payload_bytes,
            count: self.calls / TURNS,
            trace: Some(TraceSpec { file: file.to_owned(), every: 1 }),
        }
    }
}

/// Calls a service of a shape, and writes `baseline-N.jsonl` and `remedy-N.jsonl` of each turn to a folder; how
/// often the device acknowledged.
fn record(context: &Context<'_>, shape: &Shape, folder: &Path) -> Result<u64, Trouble> {
    std::fs::create_dir(folder).map_err(|error| Trouble::file("make the folder", folder, &error))?;
    let site = Site::up(context)?;
    let logs = vec![Logs::RamAndDisk; site.devices().len()];
    let _switches = site.start_chain(&logs, &["--plane", &shape.plane])?;
    let _server = site.start_working_noop(shape.work_us)?;
    let mut acks = 0;
    for turn in 0..TURNS {
        let file = |arm: &str| folder.join(format!("{arm}-{turn}.jsonl"));
        site.calls(&shape.calls(Tier::NONE, &file("baseline")))?;
        acks += site.calls(&shape.calls(Tier::RAM, &file("remedy")))?.completed_early;
    }
    Ok(acks)
}
