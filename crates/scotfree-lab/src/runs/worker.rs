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
pub mod etcd_puts;
pub mod fill;
pub mod gets;
pub mod group_history;
pub mod group_resent;
pub mod group_use;
pub mod hostile;
pub mod in_process;
pub mod logging;
pub mod noop;
pub mod operations;
#[cfg(feature = "xdp")]
pub mod playback;
pub mod redis_use;
pub mod sets;
pub mod stores;
#[cfg(feature = "xdp")]
pub mod take;
pub mod transactions;

use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::{self, print_report, read_spec};
use serde::{Deserialize, Serialize};
use std::path::Path;

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
    /// Set keys of such a service one behind the other.
    Sets(sets::SetsSpec),
    /// The same from within this process, without a client's sidecar.
    InProcess(in_process::InProcessSpec),
    /// Run an application's transactions on it.
    Transactions(transactions::TransactionsSpec),
    /// Read keys of a server, and say who has answered.
    Gets(gets::GetsSpec),
    /// Read and write keys of a group, and measure each request.
    GroupUse(group_use::GroupUseSpec),
    /// Count and set keys of a group, and judge what was seen.
    GroupHistory(group_history::GroupHistorySpec),
    /// Send requests to several members of a group each.
    GroupResent(group_resent::GroupResentSpec),
    /// Put keys into an etcd, and measure each put.
    EtcdPuts(etcd_puts::EtcdPutsSpec),
    /// Fill the logs of devices.
    Fill(fill::FillSpec),
    /// Read and write what others read and write too, and note what was seen.
    Operations(operations::OperationsSpec),
    /// Send packets that nobody may accept, beside honest ones.
    Hostile(hostile::HostileSpec),
    /// Fill the embedded server with keys.
    FillStore(stores::FillSpec),
    /// Have all of them read, so that a cache knows them.
    ReadStore(stores::ReadAllSpec),
    /// Update and read them, and measure each call.
    UseStore(stores::UseSpec),
    /// Set or read all keys of a service that speaks RESP.
    FillRedis(redis_use::FillRedisSpec),
    /// Set and read some of them, and measure each command.
    UseRedis(redis_use::UseRedisSpec),
    /// Log requests before their server has them, and hand them on.
    Logger(logging::logger::LoggerSpec),
    /// Apply the requests that a logger hands on.
    Application(logging::application::ApplicationSpec),
    /// Make requests that are logged on their way, and measure them.
    CallLogged(logging::caller::CallerSpec),
    /// What others than experiments want, too.
    #[serde(untagged)]
    Usual(worker::WorkerSpec),
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
        WorkerSpec::InProcess(spec) => in_process::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::Transactions(spec) => transactions::run(&spec).map(|report| print_report(&report)),
        WorkerSpec::Gets(spec) => gets::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::GroupUse(spec) => group_use::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::GroupHistory(spec) => group_history::run(&spec).map(|report| print_report(&report)),
        WorkerSpec::GroupResent(spec) => group_resent::run(&spec).map(|report| print_report(&report)),
        WorkerSpec::EtcdPuts(spec) => etcd_puts::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::Fill(spec) => fill::fill(&spec).map(|report| print_report(&report)),
        WorkerSpec::Operations(spec) => operations::run(&spec).map(|report| print_report(&report)),
        WorkerSpec::Hostile(spec) => hostile::send(&spec).map(|report| print_report(&report)),
        WorkerSpec::FillStore(spec) => stores::fill(&spec).map(|()| print_report(&())),
        WorkerSpec::ReadStore(spec) => stores::read_all(&spec).map(|()| print_report(&())),
        WorkerSpec::UseStore(spec) => stores::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::FillRedis(spec) => redis_use::fill(&spec).map(|()| print_report(&())),
        WorkerSpec::UseRedis(spec) => redis_use::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::Logger(spec) => logging::logger::serve(&spec),
        WorkerSpec::Application(spec) => logging::application::serve(&spec),
        WorkerSpec::CallLogged(spec) => logging::caller::measure(&spec).map(|report| print_report(&report)),
        WorkerSpec::Usual(spec) => worker::run(&spec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_stage::fakes::example_workload;
    use scotfree_stage::scratch::Scratch;
    use std::fs;

    #[test]
    fn what_others_want_too_is_read_as_theirs() {
        let folder = Scratch::new("worker").expect("temporary files can be written");
        let file = folder.path().join("load.json");
        let address = "127.0.0.1:1".parse().expect("it is an address");
        let spec = worker::WorkerSpec::Load(worker::LoadSpec { address, workload: example_workload() });
        fs::write(&file, serde_json::to_vec(&spec).expect("a spec is JSON")).expect("it can be written");
        let read = read_spec(&file).expect("it can be read");
        let WorkerSpec::Usual(worker::WorkerSpec::Load(read)) = read else { panic!("{read:?}") };
        assert_eq!(read.workload, example_workload());
    }

    #[test]
    fn a_file_that_is_no_spec_is_named() {
        let folder = Scratch::new("worker-bad").expect("temporary files can be written");
        let file = folder.path().join("bad.json");
        fs::write(&file, "{}").expect("it can be written");
        assert!(main(&file).expect_err("it is no spec").to_string().contains("bad.json"));
    }
}
