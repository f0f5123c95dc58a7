//! Servers, and the sidecars in front of them.
//!
//! Invariant: a server that is started again under the same name has the files that it left.

use super::{await_ready, join, Device, Site, METRICS, PATIENCE};
use crate::process::{find_tool, Process, ProcessSpec};
use crate::resp::{Connection, Place, Reply};
#[cfg(feature = "xdp")]
use crate::runs::worker::endpoints::{server::EndpointServerSpec, Access, Endpoint, Waits};
use crate::runs::worker::noop::NoopSpec;
use crate::runs::worker::WorkerSpec;
use crate::trouble::Trouble;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where clients find the sidecar in front of them, and Redis itself where it is reached directly.
pub(in super::super) const REDIS_PORT: u16 = 6_379;

/// Where a server's log lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum Medium {
    Disk,
    /// A file system in memory, which stands in for persistent memory: it outlives processes.
    Memory,
}

/// When Redis syncs its append-only file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in super::super) enum AppendFsync {
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

/// A Redis of the lab's own.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Redis {
    /// Its name, by which its files are found again.
    pub name: &'static str,
    pub appendfsync: AppendFsync,
    /// Where it is reached without sidecars, at [`REDIS_PORT`]; otherwise by its socket only.
    pub listen: &'static [&'static str],
}

impl Site<'_> {
    /// Starts a server that does nothing.
    pub fn start_noop(&self, probes: bool) -> Result<Process, Trouble> {
        self.start_noop_at(self.server(), probes)
    }

    /// Starts one of several servers that do nothing.
    pub fn start_noop_at(&self, listen: SocketAddr, probes: bool) -> Result<Process, Trouble> {
        self.start_noop_with(&NoopSpec { probes, ..self.noop_spec(listen, &self.devices()) })
    }

    /// Starts a server that does nothing and looks for requests for up to so long before it sleeps.
    pub fn start_looking_noop(&self, spin_us: u64) -> Result<Process, Trouble> {
        let spec = self.noop_spec(self.server(), &self.devices());
        self.start_noop_with(&NoopSpec { spin_us, ..spec })
    }

    /// Starts a server that works so long on each request, and stamps it.
    pub fn start_working_noop(&self, work_us: u64) -> Result<Process, Trouble> {
        self.start_working_noop_at(self.server(), &self.devices(), work_us)
    }

    /// The same at an address of its own, with devices or none.
    pub fn start_working_noop_at(
        &self,
        listen: SocketAddr,
        devices: &[Device],
        work_us: u64,
    ) -> Result<Process, Trouble> {
        let spec = self.noop_spec(listen, devices);
        self.start_noop_with(&NoopSpec { probes: true, work_ns: work_us * 1_000, ..spec })
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

    #[cfg(feature = "xdp")]
    /// Starts a server that does nothing, on a chosen way, as an incarnation of its own.
    pub fn start_endpoint_server(
        &self,
        epoch: u32,
        access: Access,
        waits: Waits,
    ) -> Result<Process, Trouble> {
        let address = self.server();
        let noop = NoopSpec { epoch, ..self.noop_spec(address, &self.devices()) };
        let endpoint = Endpoint { address, access, waits };
        let spec = WorkerSpec::EndpointServer(EndpointServerSpec { noop, endpoint });
        self.start_worker("server", "endpoint-server", &spec)
    }

    fn noop_spec(&self, listen: SocketAddr, devices: &[Device]) -> NoopSpec {
        NoopSpec {
            devices: devices.iter().map(|device| (device.id, device.control)).collect(),
            ..NoopSpec::new(listen, self.key)
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
        let mut spec = ProcessSpec::new(redis.name, "redis-server", &self.log_folder)
            .at(self.priority)
            .args(["--port", &port, "--protected-mode", "no", "--save", "", "--bind"])
            .args(bind.iter().copied())
            .args(["--appendonly", "yes", "--appendfsync", redis.appendfsync.name()])
            // The append-only file is rewritten when the experiment says so, not in the middle of it.
            .args(["--auto-aof-rewrite-percentage", "0", "--maxmemory-policy", "noeviction"])
            .args(["--unixsocketperm", "700", "--unixsocket"])
            .args([self.redis_socket(redis).into_os_string(), "--dir".into(), folder.into_os_string()])
            .args(more);
        // What syncs and rewrites its file beside it is no part of an answer, and would take processors from those
        // that are.
        spec.gives_priority_on = false;
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
}

/// Whether there is a Redis to be started; says so if there is none.
pub(in super::super) fn has_redis() -> bool {
    find_tool("redis-server").is_some()
}

/// An error that says what to install.
pub(in super::super) fn require_redis() -> Result<(), Trouble> {
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
pub(in super::super) fn ask_redis(socket: &Path, words: &[&str]) -> Result<Reply, String> {
    let mut connection = Connection::open_at(&Place::Unix(socket.to_owned()), PATIENCE)
        .map_err(|error| format!("{}: {error}", socket.display()))?;
    connection.call(words).map_err(|error| error.to_string())
}
