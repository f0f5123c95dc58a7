//! Logs on the path against logs at its ends: who acknowledges an update before its server has applied it.
//!
//! Invariant: in every arm the log is memory that outlives the client's process, as many hosts have the update
//! before its caller goes on, and it comes to its server in the end. The loggers compute no MACs, and their
//! caller and application speak plain sockets: what is left out is to their advantage.

use super::bare_services::BareServices;
use super::settings::{settings_of, shared_by_arms};
use super::worker::logging::application::ApplicationSpec;
use super::worker::logging::caller::{CallerReport, CallerSpec, LogSpec};
use super::worker::logging::logger::LoggerSpec;
use super::worker::logging::Door;
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::{difference, Logs, Site};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::net::{Ipv4Addr, SocketAddr};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    design: Design,
    /// How many hosts have an update when its caller goes on.
    copies: u32,
    calls: u64,
    payload_bytes: usize,
    /// How long the caller computes between two calls.
    think_us: u64,
}

/// Where updates are logged first (thesis Figure 3.17).
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Design {
    /// By a process on the client's host, and with copies on those of two other clients.
    Client,
    /// By devices on the path.
    Device,
    /// By a process on the server's host, and with copies on those of two other servers.
    Server,
}

const LOGGER_PORT: u16 = 51_010;
const APPLICATION_PORT: u16 = 51_011;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let copies = shared_by_arms(context.experiment, |arm: &Settings| arm.copies)?;
    let site = context.site()?;
    let logs = vec![Logs::Ram; site.devices().len()];
    let _switches = site.start_chain(&logs, &["--plane", "xdp"])?;
    let _server = site.start_noop(false)?;
    let loggers = Loggers::start(&site, copies)?;
    context.measure_in_turns(|arm, _| {
        let settings: Settings = settings_of(arm)?;
        match settings.design {
            Design::Client => call_logger(&site, &loggers.of_client, &settings),
            Design::Server => call_logger(&site, &loggers.of_server, &settings),
            Design::Device => call_devices(&site, &settings),
        }
    })
}

/// The loggers at both ends, with what they need.
struct Loggers {
    of_client: Door,
    of_server: Door,
    _processes: Vec<Process>,
}

impl Loggers {
    fn start(site: &Site<'_>, copies: u32) -> Result<Loggers, Trouble> {
        let of_client = Door::Unix(site.folder().join("logger"));
        let of_server = Door::Udp(SocketAddr::new(site.address("server"), LOGGER_PORT));
        let near = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), APPLICATION_PORT);
        let far = SocketAddr::new(site.address("server"), APPLICATION_PORT);
        let mut processes = Vec::new();
        for (role, door, application) in [("client", &of_client, far), ("server", &of_server, near)] {
            let spec = ApplicationSpec { listen: application };
            processes.push(site.start_worker("server", "application", &WorkerSpec::Application(spec))?);
            let peers: Vec<String> = ["b", "c"]
                .map(|peer| format!("{role}-{peer}"))
                .into_iter()
                .take(copies as usize - 1)
                .collect();
            let mut addresses = Vec::new();
            for peer in &peers {
                let address = SocketAddr::new(site.address(peer), LOGGER_PORT);
                processes.push(start_logger(site, peer, Door::Udp(address), vec![], None)?);
                addresses.push(address);
            }
            processes.push(start_logger(site, role, door.clone(), addresses, Some(application))?);
        }
        Ok(Loggers { of_client, of_server, _processes: processes })
    }
}

fn start_logger(
    site: &Site<'_>,
    role: &str,
    door: Door,
    peers: Vec<SocketAddr>,
    application: Option<SocketAddr>,
) -> Result<Process, Trouble> {
    let log = site.memory_folder().join(format!("{role}.logger"));
    // The client's logger shares the processor of its client, which is the best place for it.
    let beside_caller = role == "client";
    let spec = LoggerSpec { door, log, peers, application, beside_caller };
    site.start_worker(role, "logger", &WorkerSpec::Logger(spec))
}

fn call_logger(site: &Site<'_>, door: &Door, settings: &Settings) -> Result<Measured, Trouble> {
    let report = call(site, LogSpec::Logger(door.clone()), settings)?;
    let mut measured = Measured::default();
    measured.latency(&report.latency);
    measured.counter("logged", report.done.logged + report.done.copied);
    measured.counter("applied", report.done.applied);
    Ok(measured)
}

fn call_devices(site: &Site<'_>, settings: &Settings) -> Result<Measured, Trouble> {
    let tier = if settings.copies == 1 { Tier::RAM } else { "ram:3".parse().expect("it is a tier") };
    let log = LogSpec::Devices { server: site.server(), cluster_key: site.cluster_key(), tier };
    let before = site.counts_of_devices()?;
    let report = call(site, log, settings)?;
    let after = site.counts_of_devices()?;
    let logged = |(id, now)| difference(&before[id], now, "scotfree_device_logged_total");
    let mut measured = Measured::default();
    measured.latency(&report.latency);
    measured.counter("logged", after.iter().map(logged).sum());
    measured.counter("completed_early", report.completed_early);
    measured.counter("refused", report.refused);
    Ok(measured)
}

fn call(site: &Site<'_>, log: LogSpec, settings: &Settings) -> Result<CallerReport, Trouble> {
    let spec = CallerSpec {
        log,
        payload_bytes: settings.payload_bytes,
        think_us: settings.think_us,
        calls: settings.calls,
        warmup_calls: settings.calls / 10,
    };
    site.run_worker("client", "caller", &WorkerSpec::CallLogged(spec))
}
