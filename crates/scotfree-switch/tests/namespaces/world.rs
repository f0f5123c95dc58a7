//! A client, a device and a server, each in a network namespace of its own, inside a private set of
//! namespaces that the kernel takes down when the test's last process is gone.
//!
//! Invariant: nothing outside that private set is touched, so nothing can be left behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

pub const CLIENT: &str = "scot-sw-client";
pub const SERVER: &str = "scot-sw-server";
/// How long anything awaited may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

const SET_UP: &str = "
mount -t tmpfs scot-sw /run
ip link set lo up
ip netns add scot-sw-client
ip netns add scot-sw-server
ip link add p0 type veth peer name c0 netns scot-sw-client
ip link add p1 type veth peer name s0 netns scot-sw-server
ip link set p0 up
ip link set p1 up
for end in 'client c0 1' 'server s0 2'; do
    set -- $end
    ip -n scot-sw-$1 link set lo up
    ip -n scot-sw-$1 addr add 10.77.0.$3/24 dev $2
    ip -n scot-sw-$1 addr add fd77::$3/64 dev $2 nodad
    ip -n scot-sw-$1 link set $2 up
done
# Frames larger than the wire's cannot be bridged; checksums left to the hardware can.
for end in 'client c0' 'server s0'; do
    set -- $end
    ip netns exec scot-sw-$1 ethtool -K $2 gso off tso off gro off
done
";

/// Runs this program again as root of private namespaces. The error says why that is impossible.
pub fn enter_private_namespaces(arguments: &[&str]) -> Result<bool, String> {
    let own = own_program()?;
    for flags in [&["-nm"][..], &["-Urnm"][..]] {
        let probe =
            Command::new("unshare").args(flags).args(["mount", "-t", "tmpfs", "probe", "/run"]).output();
        let probe = probe.map_err(|error| format!("`unshare` of util-linux does not start: {error}"))?;
        if !probe.status.success() {
            continue;
        }
        let mut inside = Command::new("unshare");
        inside.args(flags).args(["--propagation", "private"]).arg(own).arg("role").args(arguments);
        return inside.status().map(|status| status.success()).map_err(|error| error.to_string());
    }
    Err("`unshare -nm` needs root, and `unshare -Urnm` needs user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1)"
        .to_owned())
}

/// Makes the namespaces, from inside the private ones.
pub fn set_up() -> Result<(), String> {
    let output = Command::new("sh").args(["-e", "-c", SET_UP]).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

pub fn own_program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| error.to_string())
}

/// A role of this program in a namespace of its own, which talks in lines.
pub struct Role {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Role {
    /// Starts a role in `namespace`, or beside the test itself.
    pub fn start(namespace: Option<&str>, arguments: &[&str]) -> Role {
        let own = own_program().expect("this program's path");
        let mut command = match namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(own);
                command
            }
            None => Command::new(own),
        };
        command.arg("role").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a role starts");
        let stdout = child.stdout.take().expect("its output is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Role { name: arguments.join(" "), child, stdin, lines, seen: Vec::new() }
    }

    /// Waits for a line that begins with `prefix`; what follows it.
    pub fn wait_for(&mut self, prefix: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("`{}` did not say `{prefix}`; it said {:?}", self.name, self.seen);
            };
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.trim().to_owned();
            }
            self.seen.push(line);
        }
    }

    /// Tells it a line.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("the role listens");
        writeln!(stdin, "{line}").expect("the role listens");
    }

    /// Kills it as a crash would.
    pub fn kill(mut self) {
        self.child.kill().expect("the role lives");
        self.child.wait().expect("the role ends");
    }

    /// Waits for its end; whether it was a good one.
    pub fn finish(mut self) -> bool {
        self.stdin = None;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("the role can be waited for") {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("`{}` did not end; it said {:?}", self.name, self.seen);
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program says in a namespace.
pub fn ask(namespace: &str, command: &str) -> String {
    let output = Command::new("ip")
        .args(["netns", "exec", namespace, "sh", "-c", command])
        .output()
        .expect("the namespace is there");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until `condition` holds.
pub fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not so in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The page at `address` and `path` of a metrics listener in this namespace.
pub fn page(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("the metrics listener");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
