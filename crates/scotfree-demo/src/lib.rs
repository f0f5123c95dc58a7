//! The demonstration: a client, a device and a server in three namespaces; SETs and GETs of Redis alone, with two
//! replicas in namespaces of their own among others, behind `scot proxy`, and behind the sidecars without and with the
//! persist remedy; then a power failure of the server's host, and a count.
//!
//! Invariant: every number shown was measured or counted in this run, and an error is shown instead of a
//! number where something else happened than the words beside it say.
#![forbid(unsafe_code)]

mod alone;
mod baseline;
mod cached;
mod control;
mod crash;
mod fit_calls;
mod plane;
mod proxied;
mod seen;
mod stages;
mod sync_watch;

use alone::Alone;
use indicatif::{ProgressBar, ProgressStyle};
use plane::Plane;
use proxied::Proxied;
use scotfree_stage::config::Source;
use scotfree_stage::interrupt::Interrupt;
use scotfree_stage::power_cut::PowerCut;
use scotfree_stage::priority::Priority;
use scotfree_stage::process::Process;
use scotfree_stage::site::{await_ready, has_redis, AppendFsync, Ground, Redis, Site};
use scotfree_stage::sweep::sweep_before_run;
use scotfree_stage::topology::Topology;
use scotfree_stage::trouble::{ConfigError, Trouble};
use scotfree_trace::{Row, Style};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// With hosts for the replicas of a Redis alone, and without.
const TOPOLOGY_OF_REDIS: &str = include_str!("../../../lab/topologies/one-device-and-replicas.toml");
const TOPOLOGY_OF_KV: &str = include_str!("../../../lab/topologies/one-device.toml");
/// What the namespaces' names begin with; the process's number follows.
const NAME: &str = "demo-";
const REDIS: Redis = Redis { name: "redis", appendfsync: AppendFsync::EverySec, listen: &[] };
/// Where the folder for temporary files is in memory, this one is not.
const NOT_IN_MEMORY: &str = "/var/tmp";
/// What is written at least on either side of the failure.
const TOKENS_MIN: u64 = 50;
/// What it is all compared with.
const ALONE: &str =
    "beside it, on the same host and disk and behind the same device, which bridges them: Redis alone with \
     appendfsync everysec, with always, and with everysec and two replicas, in the memory of two more hosts, that each \
     SET waits for (WAIT 2 0); and one behind scot proxy, covered";
/// How long a sidecar may take to write its last records.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(10);

/// What serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// redis-server, behind a sidecar.
    Redis,
    /// The embedded server.
    Kv,
}

impl Service {
    /// A Redis where there is one.
    pub fn installed() -> Service {
        if has_redis() {
            Service::Redis
        } else {
            Service::Kv
        }
    }

    /// As `--service` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Service::Redis => "redis",
            Service::Kv => "kv",
        }
    }
}

pub use cached::{run_cached, CachedReport};
pub use control::{PowerFailure, Tally};
pub use fit_calls::{record_fit_calls, FitCalls, FitCallsOptions};
pub use plane::PlaneWish;
pub use seen::{Latency, Methods, Rate, Seen, Sets};

/// How the demonstration is run.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The command scot, of which the daemons are started.
    pub scot: PathBuf,
    /// Where the state of labs that are up is kept.
    pub run_folder: PathBuf,
    /// How long tokens are written; requests are measured about four times as long in all, without a Redis one and a
    /// half times.
    pub span: Duration,
    /// What serves.
    pub service: Service,
    /// What moves the device's frames.
    pub plane: PlaneWish,
    /// How bars are drawn.
    pub style: Style,
    /// Where what the processes print is kept; removed with everything else if none is given.
    pub log_folder: Option<PathBuf>,
    /// Where the records of calls are copied, as OTLP JSON lines: a folder that is there. Nowhere if none is given.
    pub trace_folder: Option<PathBuf>,
}

/// What the demonstration has shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DemoReport {
    /// What moved the device's frames.
    pub plane: &'static str,
    /// Why that was not the kernel, if nobody asked for it to be another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plane_reason: Option<String>,
    /// What acknowledged updates had when they were acknowledged.
    pub durability: &'static str,
    /// Tokens that were acknowledged.
    pub acked: u64,
    /// Of these, found after the recovery.
    pub found: u64,
    /// Of these, not found.
    pub lost: u64,
    /// Tokens found more than once.
    pub doubled: u64,
    /// What the power failure took, and what it took of Redis alone; absent where the server was only killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_failure: Option<PowerFailure>,
    /// What a client saw of each way.
    pub seen: Seen,
    /// Where the time of calls went.
    pub stages: Stages,
}

/// The median call of each method, without and with the remedy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stages {
    /// Answered by the server alone.
    pub baseline: BTreeMap<String, Row>,
    /// With a device on the path that acknowledges.
    pub remedy: BTreeMap<String, Row>,
}

/// Why the demonstration ended early.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Its topology cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The environment could not do it.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// Somebody ended it.
    #[error("interrupted; what was made has been removed")]
    Interrupted,
}

/// What the demonstration came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// The numbers.
    pub report: DemoReport,
    /// Whether nothing was lost, doubled, reordered or invented.
    pub is_good: bool,
}

/// Runs the demonstration. `say` is given lines for the reader. SIGINT and SIGTERM end it.
pub fn run(options: &DemoOptions, say: &mut dyn FnMut(&str)) -> Result<Shown, DemoError> {
    let mut teller = Teller { begin: Instant::now(), say };
    teller.say("a client, a device and a server, each in a network namespace of its own");
    let DemoOptions { scot, run_folder, log_folder, .. } = options;
    let tools = Tools { scot, run_folder, log_folder: log_folder.as_deref() };
    tools.on_ground(&topology(options.service)?, |ground| show(options, ground, &mut teller))
}

/// Of what the daemons are started, and where files lie.
struct Tools<'a> {
    scot: &'a Path,
    run_folder: &'a Path,
    log_folder: Option<&'a Path>,
}

impl Tools<'_> {
    /// Does `work` where a topology can be brought up; what runs before have left is removed first.
    fn on_ground<T>(
        &self,
        topology: &Topology,
        work: impl FnOnce(&Ground<'_, '_>) -> Result<T, DemoError>,
    ) -> Result<T, DemoError> {
        let interrupt = Interrupt::watch()?;
        sweep_before_run(self.run_folder, Path::new(NOT_IN_MEMORY));
        let done = work(&Ground {
            topology,
            scot: self.scot,
            run_folder: self.run_folder,
            disk_folder: Path::new(NOT_IN_MEMORY),
            log_folder: self.log_folder,
            priority: Priority::Normal,
            interrupt: &interrupt,
        });
        if interrupt.has_come() {
            return Err(DemoError::Interrupted);
        }
        done
    }
}

/// Says lines with the time since the beginning.
struct Teller<'a> {
    begin: Instant,
    say: &'a mut dyn FnMut(&str),
}

impl Teller<'_> {
    fn say(&mut self, line: &str) {
        let seconds = self.begin.elapsed().as_secs_f64();
        (self.say)(&format!("[{seconds:5.1} s] {line}"));
    }

    fn show(&mut self, text: &str) {
        (self.say)(text);
    }
}

fn show(options: &DemoOptions, ground: &Ground<'_, '_>, teller: &mut Teller<'_>) -> Result<Shown, DemoError> {
    let mut stage = Stage::up(ground, options, teller)?;
    let (seen, stages) = stage.measure(teller)?;
    ground.interrupt.check()?;
    let (verdict, power_failure) = stage.fail_and_count(ground.interrupt, teller)?;
    let report = DemoReport {
        plane: stage.plane.name,
        plane_reason: stage.plane.reason.clone(),
        durability: "ram:1",
        acked: verdict.acked,
        found: verdict.acked - verdict.lost,
        lost: verdict.lost,
        doubled: verdict.doubled,
        power_failure,
        seen,
        stages,
    };
    Ok(Shown { report, is_good: verdict.is_good() })
}

/// The topology under a name of this process.
fn topology(service: Service) -> Result<Topology, DemoError> {
    let text = match service {
        Service::Redis => TOPOLOGY_OF_REDIS,
        Service::Kv => TOPOLOGY_OF_KV,
    };
    named_topology(text, NAME)
}

fn named_topology(text: &str, name: &str) -> Result<Topology, DemoError> {
    let mut topology = Topology::parse(&Source::from_text("topology.toml", text))?;
    topology.name = format!("{name}{}", std::process::id());
    Ok(topology)
}

/// Everything that is up.
struct Stage<'a> {
    options: &'a DemoOptions,
    site: Site<'a>,
    server: Server,
    // Where a Redis serves.
    alone: Option<Alone>,
    proxied: Option<Proxied>,
    plane: Plane,
    _switch: Process,
}

/// What serves: a Redis and its sidecar, or the embedded server.
struct Server {
    service: Service,
    // The last one is what clients are answered by.
    processes: Vec<Process>,
}

impl Server {
    /// `more` is said to the sidecar of a Redis.
    fn start(site: &Site<'_>, service: Service, more: &[&str]) -> Result<Server, Trouble> {
        let processes = match service {
            Service::Redis => {
                let power = PowerCut::new(site);
                let sizes = power.sizes_file().to_string_lossy();
                let redis = site.start_redis(&REDIS)?;
                let words = [&["--synced-sizes", &*sizes], more].concat();
                vec![redis, site.spawn_server_sidecar(&REDIS, &words)?]
            }
            Service::Kv => vec![site.spawn_kv(&[])?],
        };
        Ok(Server { service, processes })
    }

    fn await_ready(&self) -> Result<(), Trouble> {
        self.processes.last().map_or(Ok(()), await_ready)
    }

    /// SIGKILL for all of it; for the sidecar before the Redis that it speaks to.
    fn kill(&mut self) {
        self.processes.iter().rev().for_each(Process::kill);
    }
}

impl<'a> Stage<'a> {
    fn up(
        ground: &Ground<'a, '_>,
        options: &'a DemoOptions,
        teller: &mut Teller<'_>,
    ) -> Result<Stage<'a>, Trouble> {
        let site = Site::up(ground)?;
        let (client, server) = (site.address("client"), site.address("server"));
        let device = site.device().control.ip();
        teller.say(&format!("client {client} --- device {device} --- server {server}"));
        // The server asks the device what it holds before it serves, so the device comes first.
        let (switch, plane) = plane::start(&site, options.plane)?;
        teller.say(&plane.describe());
        let running = Server::start(&site, options.service, &[])?;
        running.await_ready()?;
        teller.say(&describe(options.service));
        let (mut alone, mut proxied) = (None, None);
        if options.service == Service::Redis {
            alone = Some(Alone::start(&site)?);
            proxied = Some(Proxied::start(&site)?);
            teller.say(ALONE);
        }
        Ok(Stage { options, site, server: running, alone, proxied, plane, _switch: switch })
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.server.kill();
        if let Some(alone) = &self.alone {
            alone.kill();
        }
    }
}

fn describe(service: Service) -> String {
    match service {
        Service::Redis => {
            let version = scotfree_stage::process::run("redis-server", ["--version"]).unwrap_or_default();
            let version =
                version.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("").to_owned();
            format!(
                "server: unmodified redis-server {version}, appendfsync everysec, behind scot sidecar server"
            )
        }
        Service::Kv if has_redis() => "server: the embedded scot kv, as asked".into(),
        Service::Kv => {
            "server: the embedded scot kv, since redis-server is not installed (apt-get install redis-server)"
                .into()
        }
    }
}

/// How a client's sidecar is told who calls and who is called, for its records.
const fn named<'a>(caller: &'a str, callee: &'a str) -> [&'a str; 4] {
    ["--trace-service", caller, "--trace-peer", callee]
}

fn bar(length: u64, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {elapsed}").expect("the template is right");
    ProgressBar::new(length).with_style(style).with_message(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topology_has_a_name_of_its_own() {
        for (service, hosts) in [(Service::Redis, 5), (Service::Kv, 3)] {
            let topology = topology(service).expect("it is a topology");
            assert_eq!(topology.name, format!("demo-{}", std::process::id()));
            assert!(topology.host("device").is_some() && topology.hosts.len() == hosts);
        }
    }
}
