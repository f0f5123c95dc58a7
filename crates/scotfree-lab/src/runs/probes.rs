//! What the stamps of the nine stages and the records made of them cost in throughput.
//!
//! Invariant: the arms differ in nothing but the stamps, at the client and at the server; each repetition has
//! a new server and a new client.

use super::settings::settings_of;
use super::site::{Calls, Site};
use super::update_ack::measured;
use super::worker::calls::{Completion, TraceSpec};
use super::Context;
use crate::experiment::Measurement;
use crate::trouble::Trouble;
use serde::Deserialize;
use std::fs;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    probes: bool,
    /// Every so manieth call is recorded; all are stamped.
    #[serde(default)]
    record_every: u32,
    calls: u64,
    outstanding: usize,
}

const PAYLOAD_BYTES: usize = 64;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = Site::up(context)?;
    let trace = site.folder().join("trace.jsonl");
    context.measure_in_turns(|arm, _| {
        let Settings { probes, record_every, calls, outstanding } = settings_of(arm)?;
        // One server at a time has the address; it is new in both arms.
        let _server = site.start_noop(probes)?;
        let calls = Calls {
            completion: Completion::Server,
            outstanding,
            interval_us: 0,
            payload_bytes: PAYLOAD_BYTES,
            count: calls,
            trace: probes.then(|| TraceSpec { file: trace.clone(), every: record_every }),
        };
        let report = site.calls(&calls);
        // Each repetition writes to an empty file. Without probes there is none.
        let _ = fs::remove_file(&trace);
        Ok(measured(&report?))
    })
}
