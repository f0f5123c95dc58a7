//! What the stamps of the nine stages and the records made of them cost: in processor time of both ends, and in
//! throughput.
//!
//! Invariant: the arms differ in nothing but the stamps, at the client and at the server. Each has a server
//! and a session of its own, which live side by side while the arms' slices take turns; after some slices
//! all are started anew.

use super::bare_services::{BareServices, Calls};
use super::settings::settings_of;
use super::update_ack::measured;
use super::worker::calls::{Slice, TraceSpec};
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::Site;
use scotfree_stage::trouble::Trouble;
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
    let site = context.site()?;
    let repetitions = context.experiment.repetitions;
    context.bar.set_length(u64::from(repetitions));
    let mut all = Vec::new();
    for first in (0..repetitions).step_by(SLICES_PER_START as usize) {
        context.interrupt.check()?;
        let count = SLICES_PER_START.min(repetitions - first);
        let slices = slices(&site, &settings, count)?;
        all.extend(slices.into_iter().map(|slice| {
            let (arm, repetition) = (&arms[slice.caller].name, first + slice.number);
            of_both_ends(&slice).into_measurement(arm, repetition)
        }));
        context.bar.inc(u64::from(count));
    }
    Ok(all)
}

fn of_both_ends(slice: &Slice) -> Measured {
    let mut measured = measured(&slice.report);
    let (client, server) = (slice.report.cpu_us_per_request, slice.server_cpu_us_per_request);
    measured.value("server_cpu_us_per_request", server);
    measured.value("cpu_us_per_request", client + server);
    measured
}

/// Slices of all arms, with servers and sessions of their own.
fn slices(site: &Site, settings: &[Settings], count: u32) -> Result<Vec<Slice>, Trouble> {
    let addresses = (0..).map(|index| {
        let server = site.server();
        SocketAddr::new(server.ip(), server.port() + index)
    });
    let arms: Vec<_> = addresses.zip(settings).collect();
    let start = |(address, arm): &(SocketAddr, &Settings)| site.start_noop_at(*address, arm.probes);
    let servers = arms.iter().map(start).collect::<Result<Vec<Process>, _>>()?;
    let trace = site.folder().join("trace.jsonl");
    let callers: Vec<_> = arms.iter().map(|(address, arm)| (*address, calls(arm, &trace))).collect();
    let slices = site.slices(&callers, &servers, count);
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
