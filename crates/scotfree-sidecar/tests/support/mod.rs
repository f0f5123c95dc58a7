//! A real redis-server for a test: started in its own folder on a unix socket, gone with the test.
//!
//! Invariant: nothing outside the folder is touched, and the process is ended by its own handle.
#![allow(dead_code)] // Each test file uses its own part.

pub mod driver;
pub mod pair;
pub mod proxy;

use scotfree_resp::codec::{self, Command, ReplyDecoder};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running redis-server.
pub struct RedisServer {
    child: Child,
    options: Vec<String>,
    /// Its folder: socket, append-only file, log.
    pub folder: PathBuf,
}

impl RedisServer {
    /// Starts one with further options ("--name value"), or says why the test is skipped.
    pub fn start(options: &[&str]) -> Option<RedisServer> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("scot-redis-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let Some(child) = spawn(&folder, &options) else {
            eprintln!("skipped: redis-server does not start; install it with: apt-get install redis-server");
            let _ = std::fs::remove_dir_all(&folder);
            return None;
        };
        let server = RedisServer { child, options, folder };
        server.wait_until_ready();
        Some(server)
    }

    /// Stops the server without ending it: it answers nothing, and its connections stay.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        // Every shell can; a program of that name is not everywhere.
        let command = format!("kill -s {name} {}", self.child.id());
        let status = std::process::Command::new("sh").args(["-c", &command]).status();
        assert!(status.expect("a shell is everywhere").success());
    }

    /// Kills the server as `kill -9` would.
    pub fn kill(&mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("the server ends");
    }

    /// Starts it again on the same folder.
    pub fn restart(&mut self) {
        self.child = spawn(&self.folder, &self.options).expect("it started before");
        self.wait_until_ready();
    }

    /// Starts it again with one more option, and does not wait until it has loaded its files.
    pub fn restart_loading(&mut self, option: &str) {
        self.options.push(option.to_owned());
        self.child = spawn(&self.folder, &self.options).expect("it started before");
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < deadline, "redis-server did not listen");
            std::thread::yield_now();
        }
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("s")
    }

    /// A blocking connection.
    pub fn connect(&self) -> Connection {
        Connection::new(UnixStream::connect(self.socket()).expect("the server listens"))
    }

    fn wait_until_ready(&self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Ok(stream) = UnixStream::connect(self.socket()) {
                let reply = Connection::new(stream).call(&["PING"]);
                if reply.starts_with(b"+PONG") || reply.starts_with(b"-NOAUTH") {
                    return;
                }
            }
            std::thread::yield_now();
        }
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("redis-server did not come up:\n{log}");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A child of the server that was rewriting its file may still write into the folder.
        let deadline = Instant::now() + PATIENCE;
        while std::fs::remove_dir_all(&self.folder).is_err() && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

fn spawn(folder: &Path, options: &[String]) -> Option<Child> {
    let socket = folder.join("s");
    let _ = std::fs::remove_file(&socket);
    std::process::Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--loglevel", "warning"])
        .args(["--unixsocket".as_ref(), socket.as_os_str()])
        .args(["--dir".as_ref(), folder.as_os_str()])
        .args(["--logfile", "log"])
        .args(options.iter().flat_map(|option| option.splitn(2, ' ')))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()
}

/// A blocking connection to a server.
pub struct Connection {
    stream: UnixStream,
    replies: ReplyDecoder,
}

impl Connection {
    /// Over a stream.
    pub fn new(stream: UnixStream) -> Connection {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is possible");
        Connection { stream, replies: ReplyDecoder::default() }
    }

    /// The stream alone.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// Sends one command and waits for its reply.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec::write_command(&mut bytes, Command::new(words).args());
        self.send(&bytes);
        self.reply()
    }

    /// Sends a command given as a line of words.
    pub fn line(&mut self, line: &str) -> Vec<u8> {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Waits for one reply.
    pub fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(reply) = self.replies.pop().expect("the server speaks RESP") {
                return reply.to_vec();
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk).expect("a reply comes in time") {
                0 => return Vec::new(),
                count => self.replies.push(&chunk[..count]),
            }
        }
    }

    /// Everything that comes until the server closes the connection.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        self.stream.read_to_end(&mut all).expect("the server closes in time");
        all
    }

    /// What has arrived and can be had without waiting; none once the connection is closed.
    pub fn try_read(&mut self, chunk: &mut [u8]) -> Option<usize> {
        self.stream.set_nonblocking(true).expect("a socket can be non-blocking");
        let result = self.stream.read(chunk);
        self.stream.set_nonblocking(false).expect("a socket can be blocking");
        match result {
            Ok(0) => None,
            Ok(count) => Some(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
            Err(_) => None,
        }
    }
}

/// A reply or request as text for messages.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}
