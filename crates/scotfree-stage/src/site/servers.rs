//! Servers, and the sidecars in front of them.
//!
//! Invariant: a server that is started again under the same name has the files that it left.

use super::{await_ready, join, Site, PATIENCE, PEER_PORT};
use crate::process::{find_tool, Process, ProcessSpec};
use crate::resp::{Connection, Place, Reply};
use crate::trouble::Trouble;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where clients find the sidecar in front of them, and Redis itself where it is reached directly.
pub const REDIS_PORT: u16 = 6_379;

/// Where a server's log lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// A disk.
    Disk,
    /// A file system in memory, which stands in for persistent memory: it outlives processes.
    Memory,
}

/// When Redis syncs its append-only file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppendFsync {
    /// Before each answer.
    Always,
    /// Each second.
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
pub struct Redis {
    /// Its name, by which its files are found again.
    pub name: &'static str,
    /// When it syncs.
    pub appendfsync: AppendFsync,
    /// Where it is reached without sidecars, at [`REDIS_PORT`]; otherwise by its socket only.
    pub listen: &'static [&'static str],
}

impl Site<'_> {
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

    /// Starts a proxy before a Redis, with a log of its own on the disk, and waits until it serves at this port.
    pub fn start_proxy(
        &self,
        name: &str,
        redis: &Redis,
        port: u16,
        more: &[&str],
    ) -> Result<Process, Trouble> {
        let listen = SocketAddr::new(self.address("server"), port);
        let process = self.spawn_proxy(name, redis, listen, more)?;
        await_ready(&process)?;
        Ok(process)
    }

    /// Starts a proxy at any address of the server's host, or starts it again on the log that it left; whether it serves
    /// yet is not waited for.
    pub fn spawn_proxy(
        &self,
        name: &str,
        redis: &Redis,
        listen: SocketAddr,
        more: &[&str],
    ) -> Result<Process, Trouble> {
        let mut words: Vec<OsString> = ["proxy", "--listen", &listen.to_string()].map(OsString::from).into();
        words.extend(["--redis".into(), join("unix:", &self.redis_socket(redis))]);
        words.extend(["--log".into(), self.proxy_log(name).into()]);
        words.extend(more.iter().map(OsString::from));
        self.spawn_scot("server", name, words)
    }

    fn proxy_log(&self, name: &str) -> PathBuf {
        self.disk.path().join(format!("{name}.log"))
    }

    /// Removes the log of a proxy that is dead, with what only it holds.
    pub fn remove_proxy_log(&self, name: &str) -> Result<(), Trouble> {
        let file = self.proxy_log(name);
        fs::remove_file(&file).map_err(|error| Trouble::file("remove", &file, &error))
    }

    /// Starts what keeps a proxy's log in a host's memory; what one before it there held is gone.
    pub fn start_peer(&self, role: &str) -> Result<Process, Trouble> {
        let listen = self.peer_address(role).to_string();
        self.start_scot(role, &format!("peer-{role}"), self.words(&["peer", "--listen", &listen]))
    }

    fn peer_address(&self, role: &str) -> SocketAddr {
        SocketAddr::new(self.address(role), PEER_PORT)
    }

    /// Flags that have a proxy keep its log in the memory of these hosts; none if there are none.
    pub fn peer_words(&self, roles: &[&str]) -> Vec<String> {
        let peer = |role: &&str| ["--peer".to_owned(), self.peer_address(role).to_string()];
        let mut words: Vec<String> = roles.iter().flat_map(peer).collect();
        if !words.is_empty() {
            words.extend(["--key-file".to_owned(), self.key_file.to_string_lossy().into_owned()]);
        }
        words
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
pub fn has_redis() -> bool {
    find_tool("redis-server").is_some()
}

/// An error that says what to install.
pub fn require_redis() -> Result<(), Trouble> {
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
pub fn ask_redis(socket: &Path, words: &[&str]) -> Result<Reply, String> {
    let mut connection = Connection::open_at(&Place::Unix(socket.to_owned()), PATIENCE)
        .map_err(|error| format!("{}: {error}", socket.display()))?;
    connection.call(words).map_err(|error| error.to_string())
}
