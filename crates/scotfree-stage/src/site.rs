//! The hosts of an experiment with what runs on them: the device, servers, sidecars and workers.
//!
//! Invariant: whatever is started here serves when the function that starts it returns, and is ended and
//! its files removed when the site is dropped.

mod clients;
mod devices;
mod servers;

pub use clients::ClientSidecar;
pub use devices::{Device, Logs};
pub use servers::{ask_redis, has_redis, require_redis, AppendFsync, Medium, Redis, REDIS_PORT};

use crate::history::HistoryOptions;
use crate::interrupt::Interrupt;
use crate::netns::Lab;
use crate::places;
use crate::priority::Priority;
use crate::process::{wait_until, Process, ProcessSpec};
use crate::scratch::Scratch;
use crate::topology::{Host, Topology};
use crate::trouble::Trouble;
use crate::worker::history::{HistoryControl, HistorySpec};
use crate::worker::metrics::{Counts, MetricsSpec};
use crate::worker::{parse_report, WorkerSpec, READY};
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long something may take to come up. Only what fails takes so long: under load daemons are late, not dead.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long one measurement may take.
const MEASUREMENT_TIME_MAX: Duration = Duration::from_secs(120);
const DEVICE_PORT: u16 = 51_000;
const SERVER_PORT: u16 = 51_001;
const PEER_PORT: u16 = 7_399;
/// Where a daemon says what it has counted, inside its own namespace. Of several daemons of one role only
/// the first gets the address.
pub const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9_100);

/// Where a site is brought up, and of what.
#[derive(Clone, Copy)]
pub struct Ground<'a, 'b> {
    /// Its hosts, under the name that its namespaces get.
    pub topology: &'b Topology,
    /// The command scot, of which daemons and workers are started.
    pub scot: &'a Path,
    /// Where the state of labs that are up is kept.
    pub run_folder: &'b Path,
    /// A folder on a disk, for where the one for temporary files is in memory.
    pub disk_folder: &'b Path,
    /// Where what processes print is kept; removed with everything else if none is given.
    pub log_folder: Option<&'b Path>,
    /// At which priority what is measured runs.
    pub priority: Priority,
    /// What ends the run early.
    pub interrupt: &'b Interrupt,
}

/// The hosts of one experiment.
pub struct Site<'a> {
    /// Its namespaces.
    pub lab: Lab,
    scot: &'a Path,
    priority: Priority,
    key: [u8; 32],
    key_file: PathBuf,
    log_folder: PathBuf,
    // Numbers the workers, each of which has a file of its own.
    workers_count: Cell<u32>,
    // Behind the lab: processes end before their files go.
    folder: Scratch,
    disk: Scratch,
    memory: Scratch,
}

/// The flags by which a daemon answers [`Site::counts`].
pub const WITH_METRICS: [&str; 2] = ["--metrics", "127.0.0.1:9100"];

impl<'a> Site<'a> {
    /// Brings the hosts up. The caller starts what runs on them.
    pub fn up(ground: &Ground<'a, '_>) -> Result<Site<'a>, Trouble> {
        let Ground { topology, .. } = ground;
        let lab = Lab::up(topology, ground.run_folder)?;
        ground.interrupt.removes(lab.cleanup_handle());
        let folder = Scratch::new(&topology.name)?;
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| {
            Trouble::new("make a cluster key", error, "see whether the system gives random numbers")
        })?;
        let key_file = folder.path().join("key");
        write_secret(&key_file, hexadecimal(&key).as_bytes())
            .map_err(|error| Trouble::file("write", &key_file, &error))?;
        let log_folder = ground.log_folder.map_or_else(|| folder.path().join("logs"), Path::to_owned);
        let site = Site {
            lab,
            scot: ground.scot,
            priority: ground.priority,
            key,
            key_file,
            log_folder,
            workers_count: Cell::new(0),
            disk: places::on_disk(&topology.name, ground.disk_folder)?,
            memory: places::in_memory(&topology.name)?,
            folder,
        };
        site.say_excluded(&[])?;
        Ok(site)
    }

    /// Where files of the run may lie that nobody measures.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where logs in memory lie.
    pub fn memory_folder(&self) -> &Path {
        self.memory.path()
    }

    /// At which priority what is measured runs.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Where what processes print is kept.
    pub fn log_folder(&self) -> &Path {
        &self.log_folder
    }

    /// Where files lie that are to be on a disk.
    pub fn disk_folder(&self) -> &Path {
        self.disk.path()
    }

    /// A host's first address.
    pub fn address(&self, role: &str) -> IpAddr {
        let host = self.lab.topology().host(role);
        let port = host.and_then(|host| host.ports.iter().find_map(|port| port.address));
        port.expect("the topology of this experiment has this host, with an address").address
    }

    /// Where the server is found.
    pub fn server(&self) -> SocketAddr {
        SocketAddr::new(self.address("server"), SERVER_PORT)
    }

    /// The devices in the order of the path.
    pub fn devices(&self) -> Vec<Device> {
        let control = |host: &Host| host.address.map(|address| SocketAddr::new(address, DEVICE_PORT));
        let hosts = self.lab.topology().devices().filter_map(|host| Some((host, control(host)?)));
        let device = |(id, (host, control)): (u16, (&Host, SocketAddr))| Device {
            role: host.role.clone(),
            id,
            control,
            is_first: id == 1,
        };
        (1..).zip(hosts).map(device).collect()
    }

    /// The first device; the topologies of most experiments have one.
    pub fn device(&self) -> Device {
        self.devices().into_iter().next().expect("this experiment's topology has a device")
    }

    // ---- settings

    /// The secret that the cluster shares.
    pub fn cluster_key(&self) -> [u8; 32] {
        self.key
    }

    /// Writes down which devices the server is to go on without: it reads that at its start and on SIGHUP.
    pub fn say_excluded(&self, devices: &[u16]) -> Result<(), Trouble> {
        self.write_config(
            "server",
            &format!("[kv]\nexclude = {devices:?}\n[server]\nexclude = {devices:?}\n"),
        )
    }

    fn write_config(&self, role: &str, text: &str) -> Result<(), Trouble> {
        let file = self.config_file(role);
        fs::write(&file, text).map_err(|error| Trouble::file("write", &file, &error))
    }

    fn config_file(&self, role: &str) -> PathBuf {
        self.folder.path().join(format!("{role}.toml"))
    }

    // ---- workers

    /// What the daemon of a role has counted, if it was told to say so.
    pub fn counts(&self, role: &str) -> Result<Counts, Trouble> {
        self.counts_at(role, METRICS)
    }

    /// What one of several programs of a role has counted, which says so at this address.
    pub fn counts_at(&self, role: &str, address: SocketAddr) -> Result<Counts, Trouble> {
        self.run_worker(role, "metrics", &WorkerSpec::Metrics(MetricsSpec { address }))
    }

    /// Starts writers behind a sidecar, to be judged by what is read back: two of lists, covered, and one
    /// whose SETs are answered early. `server` is a socket of the server itself, for the last word.
    pub fn start_writers(
        &self,
        sidecar: &ClientSidecar,
        server: Option<PathBuf>,
    ) -> Result<(Process, HistoryControl), Trouble> {
        self.start_writers_at(self.client_sidecar_address(sidecar), server)
    }

    /// The same, writing at an address.
    pub fn start_writers_at(
        &self,
        address: SocketAddr,
        server: Option<PathBuf>,
    ) -> Result<(Process, HistoryControl), Trouble> {
        let socket = self.folder().join("history");
        let options = HistoryOptions {
            writers: 2,
            key_writers: 1,
            outstanding_max: 8,
            // A thousand rounds must fit into memory and be loaded in a fraction of a second.
            pause: Duration::from_millis(10),
            timeout: Duration::from_secs(5),
            ..HistoryOptions::new(address)
        };
        let spec = HistorySpec { socket: socket.clone(), options, server };
        let writers = self.start_worker("client", "writers", &WorkerSpec::History(spec))?;
        let history = HistoryControl::connect(&socket, &writers)?;
        Ok((writers, history))
    }

    /// Starts a worker that serves.
    pub fn start_worker(&self, role: &str, name: &str, spec: &impl Serialize) -> Result<Process, Trouble> {
        let process = self.spawn_worker(role, name, spec)?;
        await_ready(&process)?;
        Ok(process)
    }

    /// Runs a worker to its end and returns its report.
    pub fn run_worker<Report: DeserializeOwned>(
        &self,
        role: &str,
        name: &str,
        spec: &impl Serialize,
    ) -> Result<Report, Trouble> {
        report_of(&self.spawn_worker(role, name, spec)?)
    }

    /// Starts a worker that ends by itself.
    pub fn spawn_worker(&self, role: &str, name: &str, spec: &impl Serialize) -> Result<Process, Trouble> {
        let number = self.workers_count.replace(self.workers_count.get() + 1);
        let file = self.folder.path().join(format!("worker-{number}.json"));
        let text = serde_json::to_vec(spec).expect("a spec is JSON");
        write_secret(&file, &text).map_err(|error| Trouble::file("write", &file, &error))?;
        let spec = ProcessSpec::new(name, self.scot, &self.log_folder)
            .args([OsString::from("lab-worker"), file.into_os_string()]);
        self.lab.spawn(role, &spec.at(self.priority))
    }

    // ---- processes of scot

    /// Starts a daemon with the cluster's key, or starts it again on the files that it left; whether it serves yet is
    /// not waited for.
    pub fn spawn_daemon(&self, role: &str, name: &str, words: &[&str]) -> Result<Process, Trouble> {
        self.spawn_scot(role, name, self.words(words))
    }

    /// Runs a command of scot to its end, which must be a good one.
    pub fn run_scot(&self, role: &str, name: &str, words: &[&str]) -> Result<(), Trouble> {
        let process = self.spawn_scot(role, name, words.iter().map(OsString::from).collect())?;
        match process.wait(PATIENCE) {
            Some(status) if status.success() => Ok(()),
            status => {
                let problem = status.map_or("it does not end".to_owned(), |status| status.to_string());
                let said = process.error_output();
                Err(Trouble::new(format!("run scot {}", words.join(" ")), problem, said.trim()))
            }
        }
    }

    fn words(&self, words: &[&str]) -> Vec<OsString> {
        let words = words.iter().map(OsString::from);
        words.chain(["--key-file".into(), self.key_file.clone().into_os_string()]).collect()
    }

    fn start_scot(&self, role: &str, name: &str, words: Vec<OsString>) -> Result<Process, Trouble> {
        let process = self.spawn_scot(role, name, words)?;
        await_ready(&process)?;
        Ok(process)
    }

    fn spawn_scot(&self, role: &str, name: &str, words: Vec<OsString>) -> Result<Process, Trouble> {
        let mut spec = ProcessSpec::new(name, self.scot, &self.log_folder).args(words).env("SCOT_TEST", "1");
        // No `scot.toml` of the caller's folder.
        spec.working_folder = Some(self.folder.path().to_owned());
        self.lab.spawn(role, &spec.at(self.priority))
    }
}

/// By how much a counter has grown.
pub fn difference(before: &Counts, after: &Counts, name: &str) -> u64 {
    let count = |counts: &Counts| counts.get(name).copied().unwrap_or(0);
    count(after).saturating_sub(count(before))
}

/// Waits until a process says that it serves.
pub fn await_ready(process: &Process) -> Result<(), Trouble> {
    process.wait_for_output(READY, PATIENCE)
}

/// Waits for the end of a worker and returns its report.
pub fn report_of<Report: DeserializeOwned>(worker: &Process) -> Result<Report, Trouble> {
    let fault = |problem: String| {
        let said = worker.error_output();
        Trouble::new(format!("run {}", worker.name()), problem, format!("it printed: {}", said.trim()))
    };
    match worker.wait(MEASUREMENT_TIME_MAX) {
        None => Err(fault(format!("not over within {} s", MEASUREMENT_TIME_MAX.as_secs()))),
        Some(status) if !status.success() => Err(fault(status.to_string())),
        Some(_) => parse_report(&worker.output()).map_err(fault),
    }
}

/// Waits until a condition holds, or says what did not come.
pub fn await_condition(what: &str, is_so: impl FnMut() -> bool) -> Result<(), Trouble> {
    if wait_until(PATIENCE, is_so) {
        return Ok(());
    }
    let problem = format!("not within {} s", PATIENCE.as_secs());
    Err(Trouble::new(format!("wait until {what}"), problem, "see the logs of the run"))
}

fn log_word(kind: &str, path: &Path) -> OsString {
    join(&format!("{kind}:"), path)
}

fn join(prefix: &str, path: &Path) -> OsString {
    let mut word = OsString::from(prefix);
    word.push(path);
    word
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Secrets are for their owner alone.
fn write_secret(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(file)?.write_all(bytes)
}
