//! The calls that the planner's fit of persist rests on: SETs at a few steady rates, without and with the remedy.
//!
//! Invariant: both sides take turns and speak to one server, the one by a sidecar that asks for no durability; and
//! nothing is left in the folder unless every turn was made and the device has logged.

use super::plane;
use super::stages::load;
use super::{
    bar, named_topology, DemoError, PlaneWish, Server, Service, Tools, FLUSH_TIME_MAX, TOPOLOGY_OF_KV,
};
use scotfree_core::Tier;
use scotfree_stage::interrupt::Interrupt;
use scotfree_stage::site::{difference, ClientSidecar, Ground, Site};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::{Command, Pace, Workload};
use serde::Serialize;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// So many turns, so that what the machine does meanwhile falls on both sides alike. All of a rate come one behind the
/// other, for how processors are shared out depends on what came before, for longer than a turn takes.
const TURNS: u64 = 8;
/// One call behind the other, and rates at which processors rest between two and go to sleep, the deeper the longer; of
/// each so long that the calls of none are less than a hundredth of all.
const PACES: [Paced; 7] = [
    Paced { name: "set", pace: Pace::Closed { outstanding: 1 }, milliseconds: 100, with_baseline: true },
    Paced { name: "set-150us", pace: every(6_667.0), milliseconds: 120, with_baseline: false },
    Paced { name: "set-300us", pace: every(3_333.0), milliseconds: 150, with_baseline: false },
    Paced { name: "set-700us", pace: every(1_429.0), milliseconds: 300, with_baseline: true },
    Paced { name: "set-1500us", pace: every(667.0), milliseconds: 400, with_baseline: false },
    Paced { name: "set-4ms", pace: every(250.0), milliseconds: 500, with_baseline: true },
    Paced { name: "set-20ms", pace: every(50.0), milliseconds: 1_000, with_baseline: false },
];
const VALUE_BYTES: u32 = 100;
const LOGGED: &str = "scotfree_device_logged_total";
/// What the namespaces' names begin with; the process's number follows.
const NAME: &str = "fit-";
/// What without and with the remedy are called, in file names and records.
const SIDES: [&str; 2] = ["baseline", "remedy"];
const PORTS: [u16; 2] = [6_379, 6_380];

/// One of the paces.
#[derive(Clone, Copy)]
struct Paced {
    name: &'static str,
    pace: Pace,
    milliseconds: u64,
    /// Whether the server alone is called so as well. A rate that it may not keep up with says nothing of it.
    with_baseline: bool,
}

impl Paced {
    fn sides(self) -> Range<usize> {
        usize::from(!self.with_baseline)..SIDES.len()
    }
}

/// At most so many per second, and never two at a time: what comes late is not made up for.
const fn every(rate: f64) -> Pace {
    Pace::Turns { rate }
}

/// How the calls of a fit are made.
#[derive(Debug, Clone)]
pub struct FitCallsOptions {
    /// The command scot, of which the daemons are started.
    pub scot: PathBuf,
    /// Where the state of labs that are up is kept.
    pub run_folder: PathBuf,
    /// What serves.
    pub service: Service,
    /// What moves the device's frames.
    pub plane: PlaneWish,
    /// Where what the processes print is kept; removed with everything else if none is given.
    pub log_folder: Option<PathBuf>,
    /// Where `baseline.jsonl` and `remedy.jsonl` are written, as OTLP JSON lines: a folder that is there. Earlier
    /// ones are replaced.
    pub folder: PathBuf,
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FitCalls {
    /// What moved the device's frames.
    pub plane: &'static str,
    /// What served: redis or kv.
    pub service: &'static str,
    /// SETs made, without and with the remedy.
    pub calls: [u64; 2],
    /// The records, without and with the remedy.
    pub files: [PathBuf; 2],
}

/// Makes the calls and records each. `say` is given lines for the reader. SIGINT and SIGTERM end it.
///
/// # Errors
/// No namespaces, no device, a load that got no answers, or a folder that cannot be written.
pub fn record_fit_calls(options: &FitCallsOptions, say: &mut dyn FnMut(&str)) -> Result<FitCalls, DemoError> {
    let FitCallsOptions { scot, run_folder, log_folder, .. } = options;
    let tools = Tools { scot, run_folder, log_folder: log_folder.as_deref() };
    tools.on_ground(&named_topology(TOPOLOGY_OF_KV, NAME)?, |ground| record(options, ground, say))
}

fn record(
    options: &FitCallsOptions,
    ground: &Ground<'_, '_>,
    say: &mut dyn FnMut(&str),
) -> Result<FitCalls, DemoError> {
    let site = Site::up(ground)?;
    let (_switch, plane) = plane::start(&site, options.plane)?;
    say(&plane.describe());
    let mut server = Server::start(&site, options.service, &[])?;
    server.await_ready()?;
    let recorded = load_both(&site, ground.interrupt, say);
    server.kill();
    let (calls, traces) = recorded?;
    Ok(FitCalls {
        plane: plane.name,
        service: options.service.name(),
        calls,
        files: keep(&traces, &options.folder)?,
    })
}

/// Loads both sides; the calls of each and where their records are.
fn load_both(
    site: &Site<'_>,
    interrupt: &Interrupt,
    say: &mut dyn FnMut(&str),
) -> Result<([u64; 2], [PathBuf; 2]), Trouble> {
    let traces = SIDES.map(|side| site.folder().join(format!("{side}.jsonl")));
    let sidecars = [Tier::NONE, Tier::RAM].map(|durability| {
        let side = usize::from(durability == Tier::RAM);
        ClientSidecar {
            name: SIDES[side],
            port: PORTS[side],
            early: durability == Tier::RAM,
            durability,
            trace: Some(traces[side].clone()),
        }
    });
    let running = sidecars
        .iter()
        .map(|sidecar| site.start_client_sidecar(sidecar))
        .collect::<Result<Vec<_>, Trouble>>()?;
    let before = site.device_counts()?;
    let milliseconds: u64 = PACES.iter().map(|paced| paced.milliseconds * paced.sides().len() as u64).sum();
    let seconds = milliseconds * TURNS / 1_000;
    say(&format!("SETs at {} rates, without and with persist in turns: {seconds} s", PACES.len()));
    let progress = bar(TURNS * PACES.len() as u64, "turns");
    let mut calls = [0; SIDES.len()];
    for paced in PACES {
        for turn in 0..TURNS {
            for side in paced.sides() {
                interrupt.check()?;
                let address = site.client_sidecar_address(&sidecars[side]);
                calls[side] += load(site, address, workload(paced, turn))?.measured_count;
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    if difference(&before, &site.device_counts()?, LOGGED) == 0 {
        let next =
            "run it again, with --log-folder to see the device's words; if it comes again, see: scot doctor";
        return Err(Trouble::new("let the device log the SETs", "it logged none", next));
    }
    for sidecar in running {
        sidecar.stop(FLUSH_TIME_MAX);
    }
    Ok((calls, traces))
}

fn workload(paced: Paced, turn: u64) -> Workload {
    Workload {
        name: paced.name.into(),
        connections: 1,
        pace: paced.pace,
        mix: vec![(Command::Set, 1)],
        value_bytes: VALUE_BYTES,
        keys: 10_000,
        requests_max: u64::MAX,
        duration_ms_max: paced.milliseconds,
        warmup_ms: 0,
        seed: turn,
        replicas: 0,
    }
}

/// Puts the records where they were asked for, each whole or not at all.
fn keep(traces: &[PathBuf; 2], folder: &Path) -> Result<[PathBuf; 2], Trouble> {
    let kept = SIDES.map(|side| folder.join(format!("{side}.jsonl")));
    for (trace, kept) in traces.iter().zip(&kept) {
        let half = kept.with_extension("half");
        let copied = fs::copy(trace, &half).and_then(|_| fs::rename(&half, kept));
        if let Err(error) = copied {
            // What a full disk has left takes room that is wanted; that it was not there is no matter.
            let _ = fs::remove_file(&half);
            return Err(Trouble::file("write", kept, &error));
        }
    }
    Ok(kept)
}
