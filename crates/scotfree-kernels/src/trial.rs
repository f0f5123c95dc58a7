//! The trial of a kernel, in a guest that has nothing else to do and needs no cleaning up.
//!
//! Invariant: a step counts as done only if its effect was seen: programs in the kernel, attachments in the
//! drivers, an answered ping, a count of compared packets.

use crate::report::{Outcome, Report};
use anyhow::{anyhow, bail, ensure, Context, Result};
use libbpf_rs::{ObjectBuilder, PrintLevel};
use scotfree_xdp::{AttachMode, Functions, Kernel, KernelConfig, Port};
use std::fs::read_to_string;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const SLOTS: u32 = 256;
const PORTS: [&str; 2] = ["left", "right"];
/// The hosts have the ports' names and these addresses.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// How much of the verifier's log is printed.
const LOG_LINES_MAX: usize = 60;

/// Tries the programs on the kernel that runs.
pub fn run(object: &Path, equivalence: &Path) -> Result<Report> {
    let release = read_to_string("/proc/sys/kernel/osrelease").context("asking for the kernel's release")?;
    let mut report = Report::untried(release.trim().to_owned());
    let kernel = match Kernel::load(&KernelConfig { slot_count: SLOTS, pin: None, functions: Functions::ALL })
    {
        Ok(kernel) => kernel,
        Err(error) => {
            let reason = why_refused(object).unwrap_or_else(|| error.to_string());
            report.loads = Outcome::of(Err(anyhow!(reason)));
            return Ok(report);
        }
    };
    report.loads = Outcome::Yes;
    match make_ports().and_then(|ports| attach(&kernel, &ports)) {
        Ok(_attached) => {
            report.native = Outcome::Yes;
            report.bridges = Outcome::of(ping());
        }
        Err(error) => report.native = Outcome::of(Err(error)),
    }
    drop(kernel);
    let compared = compare(equivalence);
    report.packets = *compared.as_ref().unwrap_or(&0);
    report.agrees = Outcome::of(compared.map(|_| ()));
    Ok(report)
}

// ---- loading

static LOG: Mutex<String> = Mutex::new(String::new());

/// What libbpf and the verifier say of the programs if they are loaded once more, from a file.
fn why_refused(object: &Path) -> Option<String> {
    libbpf_rs::set_print(Some((PrintLevel::Info, |_, text| {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    })));
    let loaded = ObjectBuilder::default().open_file(object).and_then(libbpf_rs::OpenObject::load);
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: Vec<&str> = log.lines().collect();
    println!("{}", lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n"));
    loaded.err().and_then(|_| reason_of(&log))
}

/// The last that the verifier said of a program before its statistics; without a verifier's log, the first
/// complaint.
fn reason_of(log: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().collect();
    let Some(end) = lines.iter().rposition(|line| line.contains("END PROG LOAD LOG")) else {
        return lines.iter().find(|line| line.contains("fail")).map(|line| (*line).to_owned());
    };
    let begin = lines[..end].iter().rposition(|line| line.contains("BEGIN PROG LOAD LOG"))?;
    let is_statistics = |line: &&&str| {
        ["processed ", "verification time", "stack depth"].iter().any(|word| line.starts_with(word))
    };
    let said: Vec<&str> = lines[begin + 1..end].iter().filter(|line| !is_statistics(line)).copied().collect();
    let last = said[said.len().saturating_sub(2)..].join("; ");
    let program = lines[begin].split('\'').nth(1).unwrap_or("a program");
    Some(format!("{program}: {last}"))
}

// ---- ports and hosts

fn make_ports() -> Result<Vec<Port>> {
    for (port, address) in PORTS.into_iter().zip(ADDRESSES) {
        tool(&format!("ip netns add {port}"))?;
        tool(&format!("ip link add {port} type veth peer name host netns {port}"))?;
        // An end without a program takes redirected frames only where it gathers.
        tool(&format!("ip netns exec {port} ethtool -K host gro on tx off"))?;
        tool(&format!("ip -n {port} address add {address}/24 dev host"))?;
        tool(&format!("ip -n {port} link set host up"))?;
        tool(&format!("ip link set {port} up"))?;
    }
    PORTS.into_iter().map(port).collect()
}

fn port(name: &str) -> Result<Port> {
    let number = read_to_string(format!("/sys/class/net/{name}/ifindex")).context("looking for a port")?;
    Ok(Port { interface: name.to_owned(), ifindex: number.trim().parse()? })
}

fn attach(kernel: &Kernel, ports: &[Port]) -> Result<Vec<OwnedFd>> {
    let links = kernel.attach(ports, AttachMode::Native)?;
    kernel.set_server_port(ports, 0, ports[1].ifindex)?;
    for port in PORTS {
        let shown = tool(&format!("ip -details link show {port}"))?;
        ensure!(shown.contains(" xdp ") || shown.contains("prog/xdp"), "{port} shows no program: {shown}");
    }
    Ok(links)
}

fn ping() -> Result<()> {
    tool(&format!("ip netns exec {} ping -c 3 -W 5 {}", PORTS[0], ADDRESSES[1])).map(|_| ())
}

/// Runs a command, without quotes, and returns what it prints.
fn tool(line: &str) -> Result<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let output =
        Command::new(words[0]).args(&words[1..]).output().with_context(|| format!("running {line}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line}: {} {}", printed.trim(), complaint.trim());
    Ok(printed)
}

// ---- the comparison

fn compare(equivalence: &Path) -> Result<u32> {
    let output = Command::new(equivalence)
        .args(["--nocapture", "--test-threads=1"])
        .output()
        .context("running the comparison")?;
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        println!("{printed}");
        bail!("{}", complaint_of(&printed));
    }
    packets_of(&printed).with_context(|| format!("it compared nothing: {}", printed.trim()))
}

/// How many packets all its tests compared: `N generated packets compared`, `N captured packets compared`. A test's name
/// may stand before the number in the same line.
fn packets_of(printed: &str) -> Option<u32> {
    let mut parts: Vec<&str> = printed.split(" packets compared").collect();
    parts.pop();
    let count_before = |before: &&str| before.split_whitespace().nth_back(1)?.parse::<u32>().ok();
    let counts = parts.iter().map(count_before);
    counts.sum::<Option<u32>>().filter(|count| *count > 0)
}

/// What stands behind the first panic.
fn complaint_of(printed: &str) -> String {
    let mut lines = printed.lines().skip_while(|line| !line.contains("panicked at"));
    lines.nth(1).unwrap_or("it failed without a word").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_verifiers_last_word() {
        let log = "libbpf: map 'a': created successfully\n\
            libbpf: prog 'scot_ingress': -- BEGIN PROG LOAD LOG --\n\
            0: (85) call 189\ninvalid access\nR3 min value is outside\n\
            verification time 7 usec\nstack depth 144\nprocessed 2 insns (limit 1000000)\n\
            -- END PROG LOAD LOG --\nlibbpf: prog 'scot_ingress': failed to load: -13\n";
        assert_eq!(reason_of(log).as_deref(), Some("scot_ingress: invalid access; R3 min value is outside"));
    }

    #[test]
    fn without_a_verifiers_log_the_reason_is_the_first_complaint() {
        let log =
            "libbpf: loading\nlibbpf: map 'scot_slots': failed to create: -22\nlibbpf: failed to load\n";
        assert_eq!(reason_of(log).as_deref(), Some("libbpf: map 'scot_slots': failed to create: -22"));
        assert_eq!(reason_of("libbpf: loading\n"), None);
    }

    #[test]
    fn a_comparison_that_compared_nothing_has_no_count() {
        assert_eq!(
            packets_of("same ... 4123 generated packets compared; x\n20 captured packets compared"),
            Some(4143)
        );
        assert_eq!(
            packets_of("\nrunning 1 test\n4123 generated packets compared; the programs dealt with 7\n"),
            Some(4123)
        );
        assert_eq!(packets_of("0 generated packets compared"), None);
        assert_eq!(packets_of("SKIP: no privileges\ntest result: ok."), None);
    }

    #[test]
    fn of_a_failed_comparison_the_first_panic_is_told() {
        let printed = "thread 'x' panicked at a.rs:1:2:\nstep 3 (kept): they differ\nnote: run with\n";
        assert_eq!(complaint_of(printed), "step 3 (kept): they differ");
        assert_eq!(complaint_of("killed"), "it failed without a word");
    }
}
