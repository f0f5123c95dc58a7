//! What an experiment runs inside a host's namespace: a program of its own, told what to do by a file.
//!
//! Invariant: a worker ends with exactly one report or with an error; what it prints as a report is what
//! it measured. A worker that serves says `scot: ready` when it does, not before.

#[cfg(feature = "xdp")]
pub mod bare_calls;
pub mod calls;
mod embedded;
#[cfg(feature = "xdp")]
pub mod endpoints;
pub mod fill;
pub mod history;
pub mod hostile;
pub mod logging;
pub mod metrics;
pub mod noop;
pub mod operations;
#[cfg(feature = "xdp")]
pub mod playback;
pub mod sets;
pub mod stores;
#[cfg(feature = "xdp")]
pub mod take;
pub mod transactions;

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
    /// Serve calls that do nothing.
    Noop(noop::NoopSpec),
    /// Make calls and measure them.
    Calls(calls::CallsSpec),
    #[cfg(feature = "xdp")]
    /// Make calls without the runtime and measure them.
    BareCalls(bare_calls::BareCallsSpec),
    #[cfg(feature = "xdp")]
    /// Keep a device's updates from a server.
    Take(take::TakeSpec),
    #[cfg(feature = "xdp")]
    /// Play frames into a device's programs and measure them.
    Playback(playback::PlaybackSpec),
    #[cfg(feature = "xdp")]
    /// Serve calls that do nothing, by a chosen way, and say at the end what took it.
    EndpointServer(endpoints::server::EndpointServerSpec),
    #[cfg(feature = "xdp")]
    /// Make calls by a chosen way and measure them.
    EndpointCalls(endpoints::client::EndpointCallsSpec),
    /// Make calls in slices that take turns, and measure each.
    Slices(calls::SlicesSpec),
    /// Load a service that speaks RESP.
    Load(LoadSpec),
    /// Set keys of such a service one behind the other.
    Sets(sets::SetsSpec),
    /// Run an application's transactions on it.
    Transactions(transactions::TransactionsSpec),
    /// Append tokens through crashes, and read them back when told.
    History(history::HistorySpec),
    /// Fill the logs of devices.
    Fill(fill::FillSpec),
    /// Read and write what others read and write too, and note what was seen.
    Operations(operations::OperationsSpec),
    /// Send packets that nobody may accept, beside honest ones.
    Hostile(hostile::HostileSpec),
    /// Fill the embedded server with keys.
    FillStore(stores::FillSpec),
    /// Update and read them, and measure each call.
    UseStore(stores::UseSpec),
    /// Log requests before their server has them, and hand them on.
    Logger(logging::logger::LoggerSpec),
    /// Apply the requests that a logger hands on.
    Application(logging::application::ApplicationSpec),
    /// Make requests that are logged on their way, and measure them.
    CallLogged(logging::caller::CallerSpec),
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

/// Does what the file says. This is the whole of `scot lab-worker FILE`.
pub fn main(spec: &Path) -> Result<(), Trouble> {
    match read_spec(spec)? {
        WorkerSpec::Noop(spec) => noop::serve(&spec),
        WorkerSpec::Calls(spec) => calls::measure(&spec).map(|report| print_report(&report)),
        #[cfg(feature = "xdp")]
        WorkerSpec::BareCalls(spec) => bare_calls::measure(&spec).map(|report| print_report(&report)),
        #[cfg(feature = "xdp")]
        WorkerSpec::Take(spec) => take::serve(&spec),
        #[cfg(feature = "xdp")]
        WorkerSpec::Playback(spec) => playback::measure(&spec).map(|report| print_report(&report)),
        #[cfg(feature = "xdp")]
        WorkerSpec::EndpointServer(spec) => endpoints::server::serve(&spec),
        #[cfg(feature = "xdp")]
        WorkerSpec::EndpointCalls(spec) => {
            endpoints::client::measure(&spec).map(|report| print_report(&report))
        }
        WorkerSpec::Slices(spec) => calls::measure_slices(&spec).map(|report| print_report(&report)),
        WorkerSpec::Sets(spec) => sets::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::Load(spec) => load_service(&spec).map(|report| print_report(&report)),
        WorkerSpec::Transactions(spec) => transactions::run(&spec).map(|report| print_report(&report)),
        WorkerSpec::History(spec) => history::serve(&spec),
        WorkerSpec::Fill(spec) => fill::fill(&spec).map(|report| print_report(&report)),
        WorkerSpec::Operations(spec) => operations::run(&spec).map(|report| print_report(&report)),
        WorkerSpec::Hostile(spec) => hostile::send(&spec).map(|report| print_report(&report)),
        WorkerSpec::FillStore(spec) => stores::fill(&spec).map(|()| print_report(&())),
        WorkerSpec::UseStore(spec) => stores::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::Logger(spec) => logging::logger::serve(&spec),
        WorkerSpec::Application(spec) => logging::application::serve(&spec),
        WorkerSpec::CallLogged(spec) => logging::caller::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::Metrics(spec) => metrics::read(&spec).map(|counts| print_report(&counts)),
    }
}

fn read_spec(file: &Path) -> Result<WorkerSpec, Trouble> {
    let text = fs::read(file).map_err(|error| Trouble::file("read", file, &error))?;
    serde_json::from_slice(&text).map_err(|error| {
        let next = "workers are started by `scot lab run`, which writes their files";
        Trouble::new(format!("read the worker's file {}", file.display()), error, next)
    })
}

fn load_service(spec: &LoadSpec) -> Result<LoadReport, Trouble> {
    load::run(spec.address, &spec.workload, &AtomicBool::new(false))
}

fn print_report(report: &impl Serialize) {
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
    use crate::scratch::Scratch;
    use crate::workload::tests::example;

    #[test]
    fn a_spec_travels_through_its_file() {
        let folder = Scratch::new("worker").expect("temporary files can be written");
        let file = folder.path().join("load.json");
        let service = FakeRedis::start();
        let spec = WorkerSpec::Load(LoadSpec { address: service.address(), workload: example() });
        fs::write(&file, serde_json::to_vec(&spec).expect("a spec is JSON")).expect("it can be written");
        let WorkerSpec::Load(read) = read_spec(&file).expect("it can be read") else {
            panic!("it is another kind");
        };
        assert_eq!(read.workload, example());
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
