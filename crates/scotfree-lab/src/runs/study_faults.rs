//! Faults put into the stages of calls, each of which the study must find where it is.
//!
//! Invariant: calls without and with the fault take turns between the same hosts; the fault is removed before
//! the next turn begins.

use super::bare_services::{BareServices, Calls};
use super::settings::settings_of;
use super::study::Bench;
use super::worker::calls::TraceSpec;
use super::Context;
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::process::{Process, ProcessSpec};
use scotfree_stage::scratch::Scratch;
use scotfree_stage::site::{Logs, Site};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    fault: Fault,
    calls: u64,
    /// The stages in which it may be found, for the study.
    #[serde(rename = "stages")]
    _stages: Vec<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Fault {
    /// The server works on each request.
    Handler,
    /// Requests come faster than the server works, in turns with ones that do not.
    Queue,
    /// The cable to the server is slow.
    Wire,
    /// The server's processor has much else to do.
    Processor,
}

/// In so many turns the calls are made.
const TURNS: u64 = 3;
const WORK_US: u64 = 1_000;
/// Requests that wait for each other.
const CROWD: usize = 16;
const PAYLOAD_BYTES: usize = 1_000;
const INTERVAL_US: u64 = 2_000;
/// A cable that takes a byte in a microsecond, and one of our largest frames at once.
const SLOW: [&str; 7] = ["tbf", "rate", "8mbit", "burst", "1600", "latency", "1s"];
/// Programs that take the server's processor.
const HOGS: usize = 3;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let bench = Bench::new(context)?;
    context.measure_in_turns(|arm, repetition| {
        let settings: Settings = settings_of(arm)?;
        let traces = Scratch::new("faults")?;
        Stand::up(context)?.record(&settings, traces.path())?;
        bench.measure(arm, repetition, Some(traces.path()))
    })
}

/// Two servers behind one device: one that does nothing, and one that works.
struct Stand<'a> {
    _processes: Vec<Process>,
    // Behind the processes, which end before it goes.
    site: Site<'a>,
}

impl<'a> Stand<'a> {
    fn up(context: &'a Context<'a>) -> Result<Stand<'a>, Trouble> {
        let site = context.site()?;
        let mut processes = site.start_chain(&[Logs::None], &["--plane", "user"])?;
        processes.push(site.start_working_noop(0)?);
        processes.push(site.start_working_noop_at(busy(&site), &[], WORK_US)?);
        Ok(Stand { _processes: processes, site })
    }

    /// Writes `without-N.jsonl` and `with-N.jsonl` of each turn.
    fn record(&self, settings: &Settings, folder: &Path) -> Result<(), Trouble> {
        // Between two calls a slow cable would be free again.
        let interval_us = if settings.fault == Fault::Wire { 0 } else { INTERVAL_US };
        for turn in 0..TURNS {
            let file = |arm: &str| folder.join(format!("{arm}-{turn}.jsonl"));
            let plain = calls(settings, interval_us, &file("without"));
            let server = if settings.fault == Fault::Queue { busy(&self.site) } else { self.site.server() };
            self.site.calls_to(server, &plain)?;
            self.record_fault(settings.fault, &Calls { trace: Some(trace(&file("with"))), ..plain })?;
        }
        Ok(())
    }

    fn record_fault(&self, fault: Fault, calls: &Calls) -> Result<(), Trouble> {
        match fault {
            Fault::Handler => self.site.calls_to(busy(&self.site), calls).map(drop),
            Fault::Queue => {
                let crowd = Calls { outstanding: CROWD, interval_us: 0, ..calls.clone() };
                self.site.calls_to(busy(&self.site), &crowd).map(drop)
            }
            Fault::Wire => {
                self.queueing("add", &SLOW)?;
                let called = self.site.calls(calls);
                self.queueing("del", &[]).and(called).map(drop)
            }
            Fault::Processor => {
                let hog = |index| self.hog(index);
                let _hogs = (0..HOGS).map(hog).collect::<Result<Vec<Process>, _>>()?;
                self.site.calls(calls).map(drop)
            }
        }
    }

    /// How the device's port to the server queues.
    fn queueing(&self, verb: &str, rule: &[&str]) -> Result<(), Trouble> {
        let words = ["qdisc", verb, "dev", "server0", "root"].into_iter().chain(rule.iter().copied());
        self.site.lab.run("device", "tc", words).map(drop)
    }

    fn hog(&self, index: usize) -> Result<Process, Trouble> {
        let spec = ProcessSpec::new(&format!("hog-{index}"), "sh", self.site.log_folder());
        self.site.lab.spawn("server", &spec.args(["-c", "while :; do :; done"]))
    }
}

/// Where the server is that works.
fn busy(site: &Site<'_>) -> SocketAddr {
    SocketAddr::new(site.server().ip(), site.server().port() + 1)
}

fn calls(settings: &Settings, interval_us: u64, file: &Path) -> Calls {
    Calls {
        tier: Tier::NONE,
        outstanding: 1,
        interval_us,
        payload_bytes: PAYLOAD_BYTES,
        count: settings.calls / TURNS,
        trace: Some(trace(file)),
    }
}

fn trace(file: &Path) -> TraceSpec {
    TraceSpec { file: file.to_owned(), every: 1 }
}
