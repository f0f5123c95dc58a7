//! A Redis in a folder of its own, and a proxy before it.
#![allow(dead_code)] // Each test file uses its own part.

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{wait_until, Process, ProcessSpec, Supervisor};
use scotfree_stage::resp::{Connection, Place, Reply};
use scotfree_stage::scratch::Scratch;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

pub const SCOT: &str = env!("CARGO_BIN_EXE_scot");
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a client waits for a reply: a restart of the server takes less.
pub const CLIENT_PATIENCE: Duration = Duration::from_secs(30);

/// A Redis in a folder of its own, and a proxy before it.
pub struct Site {
    folder: Scratch,
    supervisor: Supervisor,
    /// Where the proxy listens.
    pub listen: SocketAddr,
}

impl Site {
    /// None where there is no Redis.
    pub fn new(name: &str) -> Option<Site> {
        let is_there = std::process::Command::new("redis-server").arg("--version").output().is_ok();
        if !is_there {
            eprintln!("SKIP: redis-server is not installed: apt-get install redis-server");
            return None;
        }
        Some(Site::without_redis(name))
    }

    /// A folder for what needs none.
    pub fn without_redis(name: &str) -> Site {
        let folder = Scratch::new(name).expect("temporary files can be written");
        Site { folder, supervisor: Supervisor::new(), listen: free_address() }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn spawn(&self, name: &str, program: &str, words: &[&str]) -> Process {
        let mut spec = ProcessSpec::new(name, program, self.folder.path()).args(words);
        spec.working_folder = Some(self.folder.path().to_owned());
        // What one before has said is not this one's.
        let _ = fs::remove_file(self.file(&format!("{name}.out")));
        let _ = fs::remove_file(self.file(&format!("{name}.err")));
        self.supervisor.spawn(&spec).expect("it starts")
    }

    pub fn redis(&self, more: &[&str]) -> Process {
        let socket = self.file("redis.sock");
        let _ = fs::remove_file(&socket);
        let words = ["--port", "0", "--unixsocket", "redis.sock", "--save", ""];
        let aof = ["--appendonly", "yes", "--appendfsync", "everysec"];
        let redis = self.spawn("redis", "redis-server", &[&words[..], &aof, more].concat());
        let answers = || {
            let asked = Connection::open_at(&Place::Unix(socket.clone()), PATIENCE);
            asked.is_ok_and(|mut asked| match asked.call(&["PING"]) {
                Ok(Reply::Simple(_)) => true,
                // It wants to know who asks.
                Ok(Reply::Error(text)) => text.starts_with("NOAUTH"),
                _ => false,
            })
        };
        assert!(wait_until(PATIENCE, answers), "{}", redis.output());
        redis
    }

    pub fn start_proxy(&self, more: &[&str]) -> Process {
        self.start_proxy_before("unix:redis.sock", more)
    }

    /// Before a Redis elsewhere than at the socket.
    pub fn start_proxy_before(&self, redis: &str, more: &[&str]) -> Process {
        let listen = self.listen.to_string();
        let words = ["proxy", "--listen", &listen, "--redis", redis, "--log", "proxy.log"];
        self.spawn(
            "proxy",
            SCOT,
            &[&words[..], &["--log-size", "32M", "--synced-sizes", "sizes"], more].concat(),
        )
    }

    pub fn proxy(&self, more: &[&str]) -> Process {
        let proxy = self.start_proxy(more);
        ready(proxy)
    }

    /// What a proxy says that must not start.
    pub fn refused(&self, more: &[&str]) -> (Option<i32>, String) {
        end_of(&self.start_proxy(more))
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.listen, CLIENT_PATIENCE).expect("the proxy listens")
    }

    /// To the Redis itself.
    pub fn direct(&self) -> Connection {
        Connection::open_at(&Place::Unix(self.file("redis.sock")), PATIENCE).expect("it listens")
    }
}

/// The words by which a proxy is a user of the Redis whose password is in a file of the site.
pub fn as_user<'a>(site: &Site, name: &'a str, password: &str) -> [&'a str; 4] {
    let file = site.file("password");
    fs::write(&file, password).expect("it can be written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    ["--redis-user", name, "--redis-password-file", "password"]
}

/// What a daemon answers at its address of metrics; nothing if it is not there.
pub fn get(metrics: SocketAddr, path: &str) -> String {
    get_as(metrics, path, "HTTP/1.1")
}

/// The same in this version of HTTP, and with these lines of its head.
pub fn get_as(metrics: SocketAddr, path: &str, version: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(metrics) {
        let _ = stream.write_all(format!("GET {path} {version}\r\n\r\n").as_bytes());
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

/// Waits until it says there of its health what is expected.
pub fn await_health(metrics: SocketAddr, expected: &str) {
    let mut last = String::new();
    let found = wait_until(PATIENCE, || {
        last = get(metrics, "/healthz");
        last.contains(expected)
    });
    assert!(found, "{expected}: {last}");
}

/// Waits until a proxy serves.
pub fn ready(proxy: Process) -> Process {
    proxy.wait_for_output("scot: ready", PATIENCE).unwrap_or_else(|trouble| {
        panic!("{trouble}: {}", proxy.error_output());
    });
    proxy
}

/// The exit code of a proxy that ends by itself, and what it said.
pub fn end_of(proxy: &Process) -> (Option<i32>, String) {
    let status = proxy.wait(PATIENCE).expect("it ends");
    (status.code(), proxy.error_output())
}

pub fn text(reply: &Reply) -> String {
    match reply {
        Reply::Simple(text) | Reply::Error(text) => text.clone(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Integer(number) => number.to_string(),
        Reply::Null => "nil".to_owned(),
        array @ Reply::Array(_) => format!("{array:?}"),
    }
}

pub fn call(client: &mut Connection, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    text(&client.call(&words).unwrap_or_else(|error| panic!("{line}: {error}")))
}
