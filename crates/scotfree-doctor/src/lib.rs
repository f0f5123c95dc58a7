//! Looks whether this machine can do what Scotfree wants of it, and names the command that mends each
//! thing that is missing.
//!
//! Invariant: a check only reads or tries and then takes back; whatever it finds wrong carries its mend.

mod control_groups;
mod elsewhere;
mod interfaces;
mod kernel_plane;
mod log_size;
mod pmem;
mod system;

pub use kernel_plane::{GroupSet, KeptDevice, KernelWish, Runner, KEPT_FOLDER, KEPT_PREFIX, SETS_PREFIX};
pub use log_size::{LogDemand, LogRoom};
pub use system::System;

use scotfree_stage::environment::HALT_POLL_FILE;
use scotfree_stage::kernel_plane::Interface;
use scotfree_stage::process::Socket;
use serde::Serialize;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What the checks ask of the machine; tests bring an environment in which things are missing.
pub trait Environment {
    /// The text of a file of /proc or /sys; none if it cannot be read.
    fn read(&self, file: &str) -> Option<String>;
    /// Whether a tool is installed.
    fn has_tool(&self, name: &str) -> bool;
    /// Runs a tool; its standard output, or why it failed.
    fn run(&self, program: &str, args: &[&str]) -> Result<String, String>;
    /// Binds a socket and closes it again.
    fn bind(&self, socket: Socket, address: SocketAddr) -> io::Result<()>;
    /// Sends a datagram over loopback and waits for the kernel's stamps of it.
    fn try_stamps(&self) -> io::Result<StampTrial>;
    /// Maps a log in persistent memory: the instruction that flushes it, or what is missing.
    fn try_pmem(&self, path: &Path) -> Result<String, String>;
    /// Whether a file is there, also one that cannot be read.
    fn is_there(&self, file: &Path) -> bool;
    /// Whether this build has the plane in the kernel.
    fn has_kernel_plane(&self) -> bool;
    /// Loads the device's programs into the kernel and removes them again, or says why that cannot be.
    fn try_programs(&self) -> Result<(), String>;
    /// What the kernel says of an interface that programs are to be attached to.
    fn look_at_interface(&self, ifindex: u32) -> Result<Interface, String>;
    /// The sets of programs that root has loaded for groups, in `folder`, with `other` if that is one.
    fn group_sets(&self, folder: &Path, other: Option<&Path>) -> Vec<GroupSet>;
    /// What devices have kept in `folder`, under their usual names and under `other`.
    fn kept_devices(&self, folder: &Path, other: Option<&Path>) -> Result<Vec<KeptDevice>, String>;
    /// The folders, in any BPF file system, that hold a log, as far as this process may look.
    fn kept_elsewhere(&self) -> Vec<PathBuf>;
}

/// Which of the kernel's stamps of a datagram came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampTrial {
    /// When it left.
    pub sent: bool,
    /// When it arrived.
    pub received: bool,
}

/// A port that somebody will want to bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortWish {
    /// Who wants it.
    pub purpose: String,
    /// TCP or UDP.
    pub socket: Socket,
    /// Where.
    pub address: SocketAddr,
    /// Whether it was configured, so that nothing else will do.
    pub is_configured: bool,
}

/// What is to be checked beyond what every machine needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Wishes {
    /// Ports to be bound.
    pub ports: Vec<PortWish>,
    /// Interfaces that a device shall bridge.
    pub interfaces: Vec<String>,
    /// What is wanted of the plane in the kernel.
    pub kernel: KernelWish,
    /// The logs of the device.
    pub logs: Vec<LogRoom>,
    /// Those of them that are to lie in persistent memory.
    pub pmem_logs: Vec<PathBuf>,
    /// What they have to hold.
    pub demand: LogDemand,
    /// Whether somebody named the demand, and wants to know what it needs even if there is no log.
    pub is_demand_asked: bool,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All is well.
    Ok,
    /// Something would be better; all works without it.
    Could,
    /// Something works less well, or in a roundabout way.
    Should,
    /// Without it nothing works.
    Must,
}

impl State {
    /// The word shown.
    pub const fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Could => "could",
            State::Should => "should",
            State::Must => "MUST",
        }
    }
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked.
    pub check: String,
    /// How it came out.
    pub state: State,
    /// What was found.
    pub found: String,
    /// The command that mends it, or what else to do. None only if all is well.
    pub mend: Option<String>,
}

/// What all checks found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// Whether nothing is missing that must be there.
    pub ok: bool,
    /// The findings in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Finding {
    fn ok(check: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding { check: check.into(), state: State::Ok, found: found.into(), mend: None }
    }

    fn lacks(
        check: impl Into<String>,
        state: State,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { check: check.into(), state, found: found.into(), mend: Some(mend.into()) }
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        for Finding { check, state, found, mend } in &self.findings {
            writeln!(f, "{:<6} {check:<width$}  {found}", state.word())?;
            if let Some(mend) = mend {
                writeln!(f, "{:<6} {:<width$}  mend: {mend}", "", "")?;
            }
        }
        let count = |state: State| self.findings.iter().filter(|finding| finding.state == state).count();
        let (must, should, could) = (count(State::Must), count(State::Should), count(State::Could));
        write!(f, "{} checks: {must} must be mended, {should} should, {could} could", self.findings.len())
    }
}

/// Makes all checks.
pub fn examine(environment: &dyn Environment, wishes: &Wishes) -> Examination {
    let mut findings = tools(environment);
    findings.extend(rights(environment));
    findings.extend(kernel(environment));
    findings.extend(wishes.ports.iter().map(|wish| port(environment, wish)));
    findings.push(hugepages(environment));
    findings.extend(halting(environment));
    findings.push(control_groups::check(environment));
    findings.extend(wishes.interfaces.iter().flat_map(|interface| interfaces::check(environment, interface)));
    findings.extend(kernel_plane::check(environment, &wishes.kernel, &wishes.interfaces));
    findings.extend(pmem::check(environment, &wishes.pmem_logs));
    findings.extend(log_size::check(&wishes.logs, &wishes.demand, wishes.is_demand_asked));
    let ok = findings.iter().all(|finding| finding.state < State::Must);
    Examination { ok, findings }
}

// ---- tools

/// Tool, package, how badly it is wanted, and what is missing without it.
const TOOLS: [(&str, &str, State, &str); 6] = [
    ("ip", "iproute2", State::Must, "network namespaces cannot be made: no lab, no demo"),
    ("unshare", "util-linux", State::Should, "the demo needs root"),
    ("redis-server", "redis-server", State::Should, "the demo runs on the embedded scot kv"),
    ("redis-cli", "redis-tools", State::Should, "the demo has no real Redis client"),
    ("redis-benchmark", "redis-tools", State::Should, "the demo has no real Redis client"),
    (
        "ethtool",
        "ethtool",
        State::Should,
        "offloads of a device's ports cannot be looked at; a lab needs no ethtool",
    ),
];

fn tools(environment: &dyn Environment) -> Vec<Finding> {
    let find = |(tool, package, state, without): &(&str, &str, State, &str)| {
        if environment.has_tool(tool) {
            return Finding::ok(format!("tool {tool}"), "is installed");
        }
        let found = format!("is not installed: {without}");
        Finding::lacks(format!("tool {tool}"), *state, found, format!("apt-get install {package}"))
    };
    TOOLS.iter().map(find).collect()
}

// ---- rights

const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_NET_RAW: u64 = 1 << 13;
const CAP_SYS_ADMIN: u64 = 1 << 21;

fn rights(environment: &dyn Environment) -> Vec<Finding> {
    let user_namespaces = user_namespaces(environment);
    let without_root = user_namespaces.state == State::Ok;
    let held = capabilities(environment);
    let needed = [
        ("CAP_NET_ADMIN", CAP_NET_ADMIN, "make ports and cables"),
        ("CAP_NET_RAW", CAP_NET_RAW, "bridge ports"),
        ("CAP_SYS_ADMIN", CAP_SYS_ADMIN, "make network namespaces"),
    ];
    let mut findings: Vec<Finding> =
        needed.iter().map(|(name, bit, to)| capability(name, held & bit != 0, to, without_root)).collect();
    // Whoever has the capabilities needs no user namespaces.
    let is_root_enough = findings.iter().all(|finding| finding.state == State::Ok);
    findings.push(if is_root_enough && !without_root {
        Finding { state: State::Could, ..user_namespaces }
    } else {
        user_namespaces
    });
    findings
}

fn capability(name: &str, is_held: bool, to: &str, without_root: bool) -> Finding {
    let check = format!("capability {name}");
    if is_held {
        return Finding::ok(check, format!("is held: may {to}"));
    }
    let mend = "run as root: sudo scot … (a device alone: setcap cap_net_admin,cap_net_raw+ep \"$(command -v scot)\")";
    if without_root {
        let found = format!("is missing: may not {to}; the demo and the lab do it in a user namespace");
        return Finding::lacks(check, State::Should, found, mend);
    }
    Finding::lacks(check, State::Must, format!("is missing: may not {to}"), mend)
}

fn capabilities(environment: &dyn Environment) -> u64 {
    let status = environment.read("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// The settings that forbid user namespaces: file, the value that does, and the one that does not.
const USER_NAMESPACE_SETTINGS: [(&str, &str, &str); 3] = [
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
];

fn user_namespaces(environment: &dyn Environment) -> Finding {
    let check = "user namespaces";
    let state = State::Should;
    if environment.read("/proc/self/uid_map").is_none() {
        let found = "the kernel was built without them (CONFIG_USER_NS)";
        return Finding::lacks(check, state, found, "run as root: sudo scot …");
    }
    for (setting, forbidding, allowing) in USER_NAMESPACE_SETTINGS {
        let file = format!("/proc/sys/{}", setting.replace('.', "/"));
        if environment.read(&file).is_some_and(|value| value.trim() == forbidding) {
            let found = format!("are disabled by {setting} = {forbidding}");
            return Finding::lacks(check, state, found, format!("sysctl -w {setting}={allowing}"));
        }
    }
    match environment.run("unshare", &["-Urnm", "sh", "-c", "mount -t tmpfs tmpfs /run"]) {
        Ok(_) => Finding::ok(check, "can be made: demo and lab work without root"),
        Err(problem) => Finding::lacks(
            check,
            state,
            format!("cannot be made: {}", problem.trim()),
            "run as root: sudo scot …; or see what forbids it: unshare -Urnm true",
        ),
    }
}

// ---- kernel

fn kernel(environment: &dyn Environment) -> Vec<Finding> {
    vec![packet_sockets(environment), network_namespaces(environment), stamps(environment)]
}

fn packet_sockets(environment: &dyn Environment) -> Finding {
    let check = "packet sockets (AF_PACKET)";
    match environment.read("/proc/net/packet") {
        Some(_) => Finding::ok(check, "are there: a device can bridge ports"),
        None => Finding::lacks(
            check,
            State::Must,
            "the kernel does not have them: no device can bridge ports",
            "modprobe af_packet (or a kernel with CONFIG_PACKET)",
        ),
    }
}

fn network_namespaces(environment: &dyn Environment) -> Finding {
    let check = "network namespaces";
    // Listed in the limits of every kernel that has them.
    match environment.read("/proc/sys/user/max_net_namespaces").as_deref().map(str::trim) {
        Some("0") => Finding::lacks(
            check,
            State::Must,
            "are disabled by user.max_net_namespaces = 0",
            "sysctl -w user.max_net_namespaces=15000",
        ),
        Some(_) => Finding::ok(check, "are there"),
        None => Finding::lacks(
            check,
            State::Must,
            "the kernel does not have them: no lab, no demo",
            "a kernel with CONFIG_NET_NS",
        ),
    }
}

fn stamps(environment: &dyn Environment) -> Finding {
    let check = "kernel time stamps (SO_TIMESTAMPING)";
    let mend =
        "a kernel with CONFIG_NETWORK_PHY_TIMESTAMPING and software time stamps, as Debian's and Ubuntu's; \
                without them stages are stamped by the library alone";
    match environment.try_stamps() {
        Ok(StampTrial { sent: true, received: true }) => {
            Finding::ok(check, "came for a datagram over loopback, when it left and when it arrived")
        }
        Ok(StampTrial { sent, received }) => {
            let missing = match (sent, received) {
                (false, false) => "neither stamp",
                (false, true) => "no stamp of when it left",
                _ => "no stamp of when it arrived",
            };
            let found = format!("{missing} came for a datagram over loopback");
            Finding::lacks(check, State::Should, found, mend)
        }
        Err(error) => Finding::lacks(check, State::Should, format!("could not be tried: {error}"), mend),
    }
}

fn hugepages(environment: &dyn Environment) -> Finding {
    let check = "huge pages";
    let text = environment.read("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("HugePages_Total:"));
    match total.and_then(|count| count.trim().parse::<u64>().ok()) {
        Some(count) if count > 0 => Finding::ok(check, format!("{count} are reserved")),
        _ => Finding::lacks(
            check,
            State::Could,
            "none are reserved; large logs in memory cost more address translation",
            "sysctl -w vm.nr_hugepages=64",
        ),
    }
}

/// In a virtual machine: to wake a processor that has halted takes a way through the host, which costs several times
/// what a packet does.
fn halting(environment: &dyn Environment) -> Option<Finding> {
    let check = "idle processors";
    let nanos = environment.read(HALT_POLL_FILE)?.trim().parse::<u64>().ok()?;
    if nanos > 0 {
        return Some(Finding::ok(check, format!("look for up to {nanos} ns for work before they halt")));
    }
    let found = "halt at once: whoever wakes a process there waits for the host";
    Some(Finding::lacks(
        check,
        State::Could,
        found,
        format!("echo 200000 > {HALT_POLL_FILE}, which takes processor time"),
    ))
}

// ---- ports of processes

fn port(environment: &dyn Environment, wish: &PortWish) -> Finding {
    let PortWish { purpose, socket, address, is_configured } = wish;
    let (name, flag) = match socket {
        Socket::Tcp => ("TCP", "t"),
        Socket::Udp => ("UDP", "u"),
    };
    let check = format!("{name} {address} ({purpose})");
    let number = address.port();
    let error = match environment.bind(*socket, *address) {
        Ok(()) => return Finding::ok(check, "is free"),
        Err(error) => error,
    };
    let state = if *is_configured { State::Must } else { State::Should };
    match error.kind() {
        io::ErrorKind::AddrInUse => Finding::lacks(
            check,
            state,
            "is in use",
            format!("see who has it: ss -l{flag}np 'sport = :{number}'; end that, or give another port"),
        ),
        io::ErrorKind::AddrNotAvailable => Finding::lacks(
            check,
            state,
            "this host does not have the address",
            format!("give one of: ip -brief address; or add it: ip address add {}/24 dev …", address.ip()),
        ),
        io::ErrorKind::PermissionDenied => Finding::lacks(
            check,
            state,
            "ports below 1024 are root's",
            "give a port from 1024 on, or run as root",
        ),
        _ => Finding::lacks(check, state, format!("cannot be bound: {error}"), "give another address"),
    }
}

#[cfg(test)]
mod tests;
