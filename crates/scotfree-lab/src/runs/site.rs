//! The hosts of an experiment with what runs on them: the device, servers, sidecars and workers.
//!
//! Invariant: whatever is started here serves when the function that starts it returns, and is ended and
//! its files removed when the site is dropped.

use super::worker::calls::{CallsReport, CallsSpec, Slice, SlicesSpec, TraceSpec};
use super::worker::history::{HistoryControl, HistorySpec};
use super::worker::metrics::{Counts, MetricsSpec};
use super::worker::noop::NoopSpec;
use super::worker::{parse_report, WorkerSpec, READY};
use super::{places, Context};
use crate::history::HistoryOptions;
use crate::netns::Lab;
use crate::process::{find_tool, run, wait_until, Process, ProcessSpec};
use crate::resp::{Connection, Place, Reply};
use crate::scratch::Scratch;
use crate::topology::Host;
use crate::trouble::Trouble;
use scotfree_core::Tier;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long something may take to come up. Only what fails takes so long: under load daemons are late, not dead.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long one measurement may take.
const MEASUREMENT_TIME_MAX: Duration = Duration::from_secs(120);
/// A bad wire has an address only because its daemon wants one; as a host with one it would be a device.
const WIRE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// Below the site's folder.
const BPF_FOLDER: &str = "bpf";
const DEVICE_PORT: u16 = 51_000;
const SERVER_PORT: u16 = 51_001;
/// Where clients find the sidecar in front of them, and Redis itself where it is reached directly.
pub(super) const REDIS_PORT: u16 = 6_379;
/// Where a daemon says what it has counted, inside its own namespace. Of several daemons of one role only
/// the first gets the address.
const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9_100);

/// The hosts of one experiment.
pub(super) struct Site<'a> {
    pub lab: Lab,
    scot: &'a Path,
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
pub(super) const WITH_METRICS: [&str; 2] = ["--metrics", "127.0.0.1:9100"];

/// The logs of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Logs {
    /// It bridges, and acknowledges nothing.
    None,
    Ram,
    RamAndDisk,
}

/// Where a server's log lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Medium {
    Disk,
    /// A file system in memory, which stands in for persistent memory: it outlives processes.
    Memory,
}

/// A device of the topology, as its cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    /// Its host.
    pub role: String,
    pub id: u16,
    /// Where it answers control messages.
    pub control: SocketAddr,
    /// Whether it is the first on the path.
    pub is_first: bool,
}

/// When Redis syncs its append-only file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AppendFsync {
    Always,
    EverySec,
}

impl AppendFsync {
    const fn name(self) -> &'static str {
        match self {
            AppendFsync::Always => "always",
            AppendFsync::EverySec => "everysec",
        }
    }
}

/// A sidecar in front of clients.
#[derive(Debug, Clone)]
pub(super) struct ClientSidecar {
    pub name: &'static str,
    /// The port at which clients find it.
    pub port: u16,
    pub early: bool,
    /// What is asked of the devices: `none`, `ram:3`, `disk`.
    pub durability: Tier,
    pub trace: Option<PathBuf>,
}

impl<'a> Site<'a> {
    /// Brings the hosts up. The caller starts what runs on them.
    pub fn up(context: &Context<'a>) -> Result<Site<'a>, Trouble> {
        let name = &context.experiment.name;
        let lab = Lab::up(&context.topology, &context.options.run_folder)?;
        context.interrupt.removes(lab.cleanup_handle());
        for warning in lab.warnings() {
            eprintln!("warning: {warning}");
        }
        let folder = Scratch::new(name)?;
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| {
            Trouble::new("make a cluster key", error, "see whether the system gives random numbers")
        })?;
        let key_file = folder.path().join("key");
        write_secret(&key_file, hexadecimal(&key).as_bytes())
            .map_err(|error| Trouble::file("write", &key_file, &error))?;
        let log_folder = context.options.log_folder.clone().unwrap_or_else(|| folder.path().join("logs"));
        let site = Site {
            lab,
            scot: &context.options.scot,
            key,
            key_file,
            log_folder,
            workers_count: Cell::new(0),
            disk: places::on_disk(name, &context.options.lab_folder)?,
            memory: places::in_memory(name)?,
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

    /// Where what processes print is kept.
    pub fn log_folder(&self) -> &Path {
        &self.log_folder
    }

    #[cfg(feature = "xdp")]
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

    // ---- the devices

    /// Starts the only device's daemon with further flags, or starts it again on the logs that it left.
    pub fn start_switch_with(&self, logs: Logs, more: &[&str]) -> Result<Process, Trouble> {
        let device = self.device();
        self.say_head(&device, device.is_first)?;
        self.start_device(&device, logs, more)
    }

    /// Starts the daemons of all devices; the first on the path is the head.
    pub fn start_chain(&self, logs: &[Logs], more: &[&str]) -> Result<Vec<Process>, Trouble> {
        let start = |(device, logs): (Device, &Logs)| {
            self.say_head(&device, device.is_first)?;
            self.start_device(&device, *logs, more)
        };
        self.devices().into_iter().zip(logs).map(start).collect()
    }

    /// Starts a device's daemon, or starts it again on the logs that it left and in the part that was last
    /// said to be its.
    pub fn start_device(&self, device: &Device, logs: Logs, more: &[&str]) -> Result<Process, Trouble> {
        let Device { role, id, control, .. } = device;
        let mut words = self.words(&["switch", "--device-id", &id.to_string()]);
        words.extend(["--config".into(), self.config_file(role).into()]);
        let host = self.lab.topology().host(role).expect("the device is of this topology");
        for port in &host.ports {
            words.extend(["--port".into(), port.name.clone().into()]);
        }
        words.extend(["--address".into(), control.to_string().into()]);
        words.extend(["--server".into(), self.server().to_string().into()]);
        words.extend(["--metrics".into(), METRICS.to_string().into()]);
        if logs != Logs::None {
            let file = self.memory.path().join(format!("{role}.ram"));
            words.extend(["--log".into(), log_word("ram", &file)]);
        }
        if logs == Logs::RamAndDisk {
            let file = self.disk.path().join(format!("{role}.disk"));
            words.extend(["--log".into(), log_word("disk", &file)]);
        }
        words.extend(more.iter().map(OsString::from));
        if more.contains(&"xdp") {
            words.extend(["--pin".into(), self.bpf_folder()?.join(role).into()]);
        }
        self.start_scot(role, "switch", words)
    }

    /// Where planes in the kernel keep their logs: a BPF file system of this site's own, since the usual one is
    /// not seen from inside a network namespace.
    fn bpf_folder(&self) -> Result<PathBuf, Trouble> {
        let folder = self.folder.path().join(BPF_FOLDER);
        if !folder.exists() {
            fs::create_dir(&folder).map_err(|error| Trouble::file("create the folder", &folder, &error))?;
            run("mount", ["-t".as_ref(), "bpf".as_ref(), "bpf".as_ref(), folder.as_os_str()])?;
        }
        Ok(folder)
    }

    /// Where a device's plane in the kernel keeps its log.
    pub fn kept_folder(&self, role: &str) -> PathBuf {
        self.folder.path().join(BPF_FOLDER).join(role)
    }

    /// Removes what planes in the kernel have kept: logs and attachments.
    pub fn remove_kept(&self) -> Result<(), Trouble> {
        self.devices().iter().map(|device| self.kept_folder(&device.role)).try_for_each(|folder| {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Trouble::file("remove", &folder, &error))
                }
                _ => Ok(()),
            }
        })
    }

    /// Writes down whether a device is the head: it reads that at its start and on SIGHUP.
    pub fn say_head(&self, device: &Device, is_head: bool) -> Result<(), Trouble> {
        self.write_config(&device.role, &format!("[switch]\nhead = {is_head}\n"))
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

    /// Starts a bridge that is no device of this cluster but a bad wire: it loses and reorders so many
    /// percent of the frames.
    pub fn start_bad_wire(&self, percent: &str) -> Result<Process, Trouble> {
        let mut words = self.words_of_stranger("wire");
        words.extend(["--loss", percent, "--reorder", percent].map(OsString::from));
        words.extend(["--log".into(), log_word("ram", &self.memory.path().join("wire.ram"))]);
        self.start_scot("wire", "wire", words)
    }

    /// Starts a bridge in the kernel that is no device of this cluster: it logs and stamps nothing.
    pub fn start_plain_bridge(&self, role: &str) -> Result<Process, Trouble> {
        self.write_config(role, "[switch]\nhead = false\n")?;
        let mut words = self.words_of_stranger(role);
        words.extend(["--config".into(), self.config_file(role).into()]);
        words.extend(["--metrics".into(), METRICS.to_string().into()]);
        words.extend(["--plane".into(), "xdp".into(), "--pin".into()]);
        words.push(self.bpf_folder()?.join(role).into());
        self.start_scot(role, "bridge", words)
    }

    /// The words that start a bridge that serves nobody's server.
    fn words_of_stranger(&self, role: &str) -> Vec<OsString> {
        let host = self.lab.topology().host(role).expect("the bridge is of this topology");
        let control = SocketAddr::new(WIRE_ADDRESS, DEVICE_PORT).to_string();
        // An address for documents: nothing that passes is for a server there.
        let nobody = format!("192.0.2.1:{SERVER_PORT}");
        let mut words = self.words(&["switch", "--device-id", "999", "--address", &control]);
        words.extend(["--server".into(), nobody.into()]);
        for port in &host.ports {
            words.extend(["--port".into(), port.name.clone().into()]);
        }
        words
    }

    /// The secret that the cluster shares.
    pub fn cluster_key(&self) -> [u8; 32] {
        self.key
    }

    /// What the first device's daemon has counted.
    pub fn device_counts(&self) -> Result<Counts, Trouble> {
        self.counts(&self.device().role)
    }

    /// What the daemon of each device has counted, by its number.
    pub fn counts_of_devices(&self) -> Result<BTreeMap<u16, Counts>, Trouble> {
        let counts = |device: Device| Ok((device.id, self.counts(&device.role)?));
        self.devices().into_iter().map(counts).collect()
    }

    /// What the daemon of a role has counted, if it was told to say so.
    pub fn counts(&self, role: &str) -> Result<Counts, Trouble> {
        self.run_worker(role, "metrics", &WorkerSpec::Metrics(MetricsSpec { address: METRICS }))
    }

    fn device_words(&self) -> Vec<OsString> {
        let word = |Device { id, control, .. }| ["--device".into(), format!("{id}={control}").into()];
        self.devices().into_iter().flat_map(word).collect()
    }

    // ---- servers

    /// Starts a server that does nothing.
    pub fn start_noop(&self, probes: bool) -> Result<Process, Trouble> {
        self.start_noop_at(self.server(), probes)
    }

    /// Starts one of several servers that do nothing.
    pub fn start_noop_at(&self, listen: SocketAddr, probes: bool) -> Result<Process, Trouble> {
        self.start_noop_with(&NoopSpec { probes, ..self.noop_spec(listen, &self.devices()) })
    }

    /// Starts a server that does nothing, and knows these devices only.
    pub fn start_noop_behind(&self, devices: &[Device]) -> Result<Process, Trouble> {
        self.start_noop_with(&self.noop_spec(self.server(), devices))
    }

    /// Starts a server that does nothing but count, as an incarnation of its own.
    pub fn start_counting_noop(&self, epoch: u32) -> Result<Process, Trouble> {
        let spec = self.noop_spec(self.server(), &self.devices());
        self.start_noop_with(&NoopSpec { epoch, metrics: Some(METRICS), ..spec })
    }

    #[cfg(feature = "xdp")]
    /// Starts a server that does nothing, whose executions are stable some time later.
    pub fn start_late_noop(&self, stable_after_ms: u64) -> Result<Process, Trouble> {
        let spec = self.noop_spec(self.server(), &self.devices());
        self.start_noop_with(&NoopSpec { stable_after_ms, ..spec })
    }

    fn noop_spec(&self, listen: SocketAddr, devices: &[Device]) -> NoopSpec {
        NoopSpec {
            listen,
            cluster_key: self.key,
            devices: devices.iter().map(|device| (device.id, device.control)).collect(),
            probes: false,
            work_ns: 0,
            epoch: 1,
            metrics: None,
            stable_after_ms: 0,
        }
    }

    fn start_noop_with(&self, spec: &NoopSpec) -> Result<Process, Trouble> {
        self.start_worker("server", "noop", &WorkerSpec::Noop(spec.clone()))
    }

    /// Starts a Redis with files of its own, or starts it again on the files that it left.
    pub fn start_redis(&self, redis: &Redis) -> Result<Process, Trouble> {
        self.start_redis_on("server", redis, &[])
    }

    /// The same on another host, with further flags, which win.
    pub fn start_redis_on(&self, role: &str, redis: &Redis, more: &[&str]) -> Result<Process, Trouble> {
        let folder = self.redis_folder(redis);
        fs::create_dir_all(&folder).map_err(|error| Trouble::file("create the folder", &folder, &error))?;
        // Port 0 is none.
        let port = if redis.listen.is_empty() { 0 } else { REDIS_PORT }.to_string();
        let bind = if redis.listen.is_empty() { &["127.0.0.1"][..] } else { redis.listen };
        let spec = ProcessSpec::new(redis.name, "redis-server", &self.log_folder)
            .args(["--port", &port, "--protected-mode", "no", "--save", "", "--bind"])
            .args(bind.iter().copied())
            .args(["--appendonly", "yes", "--appendfsync", redis.appendfsync.name()])
            // The append-only file is rewritten when the experiment says so, not in the middle of it.
            .args(["--auto-aof-rewrite-percentage", "0", "--maxmemory-policy", "noeviction"])
            .args(["--unixsocketperm", "700", "--unixsocket"])
            .args([self.redis_socket(redis).into_os_string(), "--dir".into(), folder.into_os_string()])
            .args(more);
        let process = self.lab.spawn(role, &spec)?;
        let socket = self.redis_socket(redis);
        // It listens before it has loaded its file, and says LOADING until then.
        process.wait_until(
            "answers",
            PATIENCE,
            || matches!(ask_redis(&socket, &["PING"]), Ok(Reply::Simple(text)) if text == "PONG"),
        )?;
        Ok(process)
    }

    /// The folder of a Redis's files.
    pub fn redis_folder(&self, redis: &Redis) -> PathBuf {
        self.disk.path().join(redis.name)
    }

    /// The socket by which a Redis is reached from everywhere.
    pub fn redis_socket(&self, redis: &Redis) -> PathBuf {
        self.folder.path().join(format!("{}.sock", redis.name))
    }

    /// Starts the sidecar behind which a Redis serves, and waits until it does.
    pub fn start_server_sidecar(&self, redis: &Redis, more: &[&str]) -> Result<Process, Trouble> {
        let process = self.spawn_server_sidecar(redis, more)?;
        await_ready(&process)?;
        Ok(process)
    }

    /// Starts the sidecar behind which a Redis serves; whether it serves yet is not waited for.
    pub fn spawn_server_sidecar(&self, redis: &Redis, more: &[&str]) -> Result<Process, Trouble> {
        let mut words = self.words(&["sidecar", "server", "--listen", &self.server().to_string()]);
        words.extend(["--redis".into(), join("unix:", &self.redis_socket(redis))]);
        words.extend(["--dead-letters".into(), self.folder.path().join("dead-letters").into()]);
        words.extend(["--config".into(), self.config_file("server").into()]);
        words.extend(self.device_words());
        words.extend(more.iter().map(OsString::from));
        self.spawn_scot("server", "sidecar-server", words)
    }

    /// Starts the embedded server, or starts it again on the file that it left; whether it serves yet is
    /// not waited for.
    pub fn spawn_kv(&self, more: &[&str]) -> Result<Process, Trouble> {
        self.spawn_kv_on(Medium::Disk, more)
    }

    /// The same with its file on a medium.
    pub fn spawn_kv_on(&self, medium: Medium, more: &[&str]) -> Result<Process, Trouble> {
        let mut words = self.words(&["kv", "--listen", &self.server().to_string()]);
        // An eighth of it is for data: on the disk, room for a million keys.
        let (folder, size) = match medium {
            Medium::Disk => (&self.disk, "1G"),
            Medium::Memory => (&self.memory, "256M"),
        };
        words.extend(["--log".into(), folder.path().join("kv.log").into()]);
        words.extend(["--log-size".into(), size.into()]);
        words.extend(["--config".into(), self.config_file("server").into()]);
        words.extend(self.device_words());
        words.extend(more.iter().map(OsString::from));
        self.spawn_scot("server", "kv", words)
    }

    // ---- clients

    /// Starts a sidecar in front of clients.
    pub fn start_client_sidecar(&self, sidecar: &ClientSidecar) -> Result<Process, Trouble> {
        self.start_client_sidecar_with(sidecar, &[])
    }

    /// The same with further flags.
    pub fn start_client_sidecar_with(
        &self,
        sidecar: &ClientSidecar,
        more: &[&str],
    ) -> Result<Process, Trouble> {
        let listen = self.client_sidecar_address(sidecar).to_string();
        let mut words = self.words(&["sidecar", "client", "--listen", &listen]);
        words.extend(["--server".into(), self.server().to_string().into()]);
        words.extend(["--mode".into(), if sidecar.early { "early" } else { "covered" }.into()]);
        words.extend(["--durability".into(), sidecar.durability.to_string().into()]);
        if let Some(trace) = &sidecar.trace {
            words.extend(["--trace".into(), trace.into()]);
        }
        words.extend(more.iter().map(OsString::from));
        self.start_scot("client", sidecar.name, words)
    }

    /// Where clients find a sidecar.
    pub fn client_sidecar_address(&self, sidecar: &ClientSidecar) -> SocketAddr {
        SocketAddr::new(self.address("client"), sidecar.port)
    }

    /// Makes calls from the client's host and measures them.
    pub fn calls(&self, calls: &Calls) -> Result<CallsReport, Trouble> {
        self.run_worker("client", "calls", &WorkerSpec::Calls(self.calls_spec(self.server(), calls)))
    }

    /// Makes calls to several servers, in slices that take turns.
    pub fn slices(&self, callers: &[(SocketAddr, Calls)], slices: u32) -> Result<Vec<Slice>, Trouble> {
        let callers = callers.iter().map(|(server, calls)| self.calls_spec(*server, calls)).collect();
        self.run_worker("client", "slices", &WorkerSpec::Slices(SlicesSpec { callers, slices }))
    }

    fn calls_spec(&self, server: SocketAddr, calls: &Calls) -> CallsSpec {
        CallsSpec {
            server,
            cluster_key: self.key,
            tier: calls.tier,
            outstanding: calls.outstanding,
            interval_us: calls.interval_us,
            payload_bytes: calls.payload_bytes,
            calls: calls.count,
            warmup_calls: calls.count / 10,
            trace: calls.trace.clone(),
        }
    }

    // ---- workers

    /// Starts writers behind a sidecar, to be judged by what is read back: two of lists, covered, and one
    /// whose SETs are answered early. `server` is a socket of the server itself, for the last word.
    pub fn start_writers(
        &self,
        sidecar: &ClientSidecar,
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
            ..HistoryOptions::new(self.client_sidecar_address(sidecar))
        };
        let spec = HistorySpec { socket: socket.clone(), options, server };
        let writers = self.start_worker("client", "writers", &WorkerSpec::History(spec))?;
        let history = HistoryControl::connect(&socket, &writers)?;
        Ok((writers, history))
    }

    /// Starts a worker that serves.
    pub fn start_worker(&self, role: &str, name: &str, spec: &WorkerSpec) -> Result<Process, Trouble> {
        let process = self.spawn_worker(role, name, spec)?;
        await_ready(&process)?;
        Ok(process)
    }

    /// Runs a worker to its end and returns its report.
    pub fn run_worker<Report: DeserializeOwned>(
        &self,
        role: &str,
        name: &str,
        spec: &WorkerSpec,
    ) -> Result<Report, Trouble> {
        report_of(&self.spawn_worker(role, name, spec)?)
    }

    /// Starts a worker that ends by itself.
    pub fn spawn_worker(&self, role: &str, name: &str, spec: &WorkerSpec) -> Result<Process, Trouble> {
        let number = self.workers_count.replace(self.workers_count.get() + 1);
        let file = self.folder.path().join(format!("worker-{number}.json"));
        let text = serde_json::to_vec(spec).expect("a spec is JSON");
        write_secret(&file, &text).map_err(|error| Trouble::file("write", &file, &error))?;
        let spec = ProcessSpec::new(name, self.scot, &self.log_folder)
            .args([OsString::from("lab-worker"), file.into_os_string()]);
        self.lab.spawn(role, &spec)
    }

    // ---- processes of scot

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
        self.lab.spawn(role, &spec)
    }
}

/// A Redis of the lab's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Redis {
    /// Its name, by which its files are found again.
    pub name: &'static str,
    pub appendfsync: AppendFsync,
    /// Where it is reached without sidecars, at [`REDIS_PORT`]; otherwise by its socket only.
    pub listen: &'static [&'static str],
}

/// Calls to be made from the client's host.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    pub tier: Tier,
    pub outstanding: usize,
    pub interval_us: u64,
    pub payload_bytes: usize,
    pub count: u64,
    pub trace: Option<TraceSpec>,
}

/// By how much a counter has grown.
pub(super) fn difference(before: &Counts, after: &Counts, name: &str) -> u64 {
    let count = |counts: &Counts| counts.get(name).copied().unwrap_or(0);
    count(after).saturating_sub(count(before))
}

/// Whether there is a Redis to be started; says so if there is none.
pub(super) fn has_redis() -> bool {
    find_tool("redis-server").is_some()
}

/// An error that says what to install.
pub(super) fn require_redis() -> Result<(), Trouble> {
    if has_redis() {
        return Ok(());
    }
    Err(Trouble::new(
        "start a Redis",
        "redis-server is not installed",
        "install it: apt-get install redis-server",
    ))
}

/// Asks a Redis something by its socket.
pub(super) fn ask_redis(socket: &Path, words: &[&str]) -> Result<Reply, String> {
    let mut connection = Connection::open_at(&Place::Unix(socket.to_owned()), PATIENCE)
        .map_err(|error| format!("{}: {error}", socket.display()))?;
    connection.call(words).map_err(|error| error.to_string())
}

/// Waits until a process says that it serves.
pub(super) fn await_ready(process: &Process) -> Result<(), Trouble> {
    process.wait_for_output(READY, PATIENCE)
}

/// Waits for the end of a worker and returns its report.
pub(super) fn report_of<Report: DeserializeOwned>(worker: &Process) -> Result<Report, Trouble> {
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
pub(super) fn await_condition(what: &str, is_so: impl FnMut() -> bool) -> Result<(), Trouble> {
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
