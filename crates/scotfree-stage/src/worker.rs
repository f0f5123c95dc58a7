//! What runs inside a host's namespace: a program of its own, told what to do by a file.
//!
//! Invariant: a worker ends with exactly one report or with an error; what it prints as a report is what
//! it measured. A worker that serves says `scot: ready` when it does, not before.

pub mod history;
pub mod metrics;

use crate::load::{self, LoadReport};
use crate::trouble::Trouble;
use crate::workload::Workload;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What a line of output begins with when a worker serves.
pub const READY: &str = "scot: ready";
/// What the line of a worker's report begins with.
const REPORT: &str = "scot: report ";

/// What a worker is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum WorkerSpec {
    /// Load a service that speaks RESP.
    Load(LoadSpec),
    /// Append tokens through crashes, and read them back when told.
    History(history::HistorySpec),
    /// Read what a daemon has counted.
    Metrics(metrics::MetricsSpec),
}

/// A load of a service that speaks RESP.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadSpec {
    /// The service.
    pub address: SocketAddr,
    /// What to send.
    pub workload: Workload,
}

/// Does what the file says. This is the whole of `scot lab-worker FILE` where there are no experiments.
pub fn main(spec: &Path) -> Result<(), Trouble> {
    run(&read_spec(spec)?)
}

/// Does what is to be done.
pub fn run(spec: &WorkerSpec) -> Result<(), Trouble> {
    match spec {
        WorkerSpec::Load(spec) => load_service(spec).map(|report| print_report(&report)),
        WorkerSpec::History(spec) => history::serve(spec),
        WorkerSpec::Metrics(spec) => metrics::read(spec).map(|counts| print_report(&counts)),
    }
}

/// A worker's file.
pub fn read_spec<Spec: DeserializeOwned>(file: &Path) -> Result<Spec, Trouble> {
    let text = fs::read(file).map_err(|error| Trouble::file("read", file, &error))?;
    serde_json::from_slice(&text).map_err(|error| {
        let next = "workers are started by `scot demo` and `scot lab run`, which write their files";
        Trouble::new(format!("read the worker's file {}", file.display()), error, next)
    })
}

fn load_service(spec: &LoadSpec) -> Result<LoadReport, Trouble> {
    load::run(spec.address, &spec.workload, &AtomicBool::new(false))
}

/// Prints a worker's report.
pub fn print_report(report: &impl Serialize) {
    println!("{REPORT}{}", serde_json::to_string(report).expect("a report is JSON"));
}

/// The report in what a worker printed.
pub fn parse_report<Report: DeserializeOwned>(output: &str) -> Result<Report, String> {
    let line = output.lines().find_map(|line| line.strip_prefix(REPORT)).ok_or("it printed no report")?;
    serde_json::from_str(line).map_err(|error| format!("its report cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_redis::FakeRedis;
    use crate::fakes::example_workload;
    use crate::scratch::Scratch;

    #[test]
    fn a_spec_travels_through_its_file() {
        let folder = Scratch::new("worker").expect("temporary files can be written");
        let file = folder.path().join("load.json");
        let service = FakeRedis::start();
        let spec = WorkerSpec::Load(LoadSpec { address: service.address(), workload: example_workload() });
        fs::write(&file, serde_json::to_vec(&spec).expect("a spec is JSON")).expect("it can be written");
        let WorkerSpec::Load(read) = read_spec(&file).expect("it can be read") else {
            panic!("it is another kind");
        };
        assert_eq!(read.workload, example_workload());
        assert_eq!(load_service(&read).expect("it runs").measured_count, 1_000);
    }

    #[test]
    fn a_report_is_found_among_other_lines() {
        assert_eq!(parse_report::<u32>("scot: ready\nscot: report 7\n"), Ok(7));
        assert!(parse_report::<u32>("scot: ready\n").expect_err("there is none").contains("no report"));
        assert!(parse_report::<u32>("scot: report x\n").expect_err("no number").contains("cannot be read"));
    }

    #[test]
    fn a_file_that_is_no_spec_is_named() {
        let folder = Scratch::new("worker-bad").expect("temporary files can be written");
        let file = folder.path().join("bad.json");
        fs::write(&file, "{}").expect("it can be written");
        assert!(main(&file).expect_err("it is no spec").to_string().contains("bad.json"));
    }
}
