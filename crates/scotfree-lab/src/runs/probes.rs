//! What the stamps of the nine stages and the records made of them cost in throughput.
//!
//! Invariant: the arms differ in nothing but the stamps, at the client and at the server. Each has a server
//! and a session of its own, which live side by side while the arms' slices take turns; after some slices
//! all are started anew.

use super::settings::settings_of;
use super::site::{Calls, Site};
use super::update_ack::measured;
use super::worker::calls::{Slice, TraceSpec};
use super::Context;
use crate::experiment::Measurement;
use crate::process::Process;
use crate::trouble::Trouble;
use scotfree_core::Tier;
use serde::Deserialize;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    probes: bool,
    /// One in so many calls is stamped and recorded; 0 for none.
    #[serde(default)]
    record_every: u32,
    /// How many calls make a slice.
    calls: u64,
    outstanding: usize,
}

const PAYLOAD_BYTES: usize = 64;
/// After so many slices of each arm, processes are started anew: the place that one gets in memory and on
/// the cores is part of the noise.
const SLICES_PER_START: u32 = 25;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let arms = &context.experiment.arms;
    let settings = arms.iter().map(settings_of).collect::<Result<Vec<Settings>, _>>()?;
    let site = Site::up(context)?;
    let repetitions = context.experiment.repetitions;
    context.bar.set_length(u64::from(repetitions));
    let mut all = Vec::new();
    for first in (0..repetitions).step_by(SLICES_PER_START as usize) {
        context.interrupt.check()?;
        let count = SLICES_PER_START.min(repetitions - first);
        let slices = slices(&site, &settings, count)?;
        all.extend(slices.into_iter().map(|Slice { caller, number, report }| {
            measured(&report).into_measurement(&arms[caller].name, first + number)
        }));
        context.bar.inc(u64::from(count));
    }
    Ok(all)
}

/// Slices of all arms, with servers and sessions of their own.
fn slices(site: &Site, settings: &[Settings], count: u32) -> Result<Vec<Slice>, Trouble> {
    let addresses = (0..).map(|index| {
        let server = site.server();
        SocketAddr::new(server.ip(), server.port() + index)
    });
    let arms: Vec<_> = addresses.zip(settings).collect();
    let start = |(address, arm): &(SocketAddr, &Settings)| site.start_noop_at(*address, arm.probes);
    let _servers = arms.iter().map(start).collect::<Result<Vec<Process>, _>>()?;
    let trace = site.folder().join("trace.jsonl");
    let callers: Vec<_> = arms.iter().map(|(address, arm)| (*address, calls(arm, &trace))).collect();
    let slices = site.slices(&callers, count);
    // Each start writes to an empty file. Without probes there is none.
    let _ = fs::remove_file(&trace);
    slices
}

fn calls(arm: &Settings, trace: &Path) -> Calls {
    Calls {
        tier: Tier::NONE,
        outstanding: arm.outstanding,
        interval_us: 0,
        payload_bytes: PAYLOAD_BYTES,
        count: arm.calls,
        trace: arm.probes.then(|| TraceSpec { file: trace.to_owned(), every: arm.record_every }),
    }
}
