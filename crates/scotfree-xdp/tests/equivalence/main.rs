//! The kernel's programs and the device machine, packet by packet: what leaves and what is counted must be
//! the same whether the machine alone sees a packet, or the programs see it first and pass up what they
//! leave to the machine.

mod packets;
mod sides;

use packets::{script, Step};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use scotfree_xdp::{Kernel, KernelConfig, KernelError};
use sides::{KernelSide, MachineSide};
use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock};

/// How many packets one run of the comparison sees; `EQUIVALENCE_PACKETS` names another number.
const PACKETS_DEFAULT: u32 = 20_000;
const SCRIPT_STEPS_MAX: usize = 200;

/// The programs, loaded once; `None` where that is not possible, and then the reason has been printed.
fn kernel() -> Option<&'static Mutex<Arc<Kernel>>> {
    static KERNEL: OnceLock<Option<Mutex<Arc<Kernel>>>> = OnceLock::new();
    KERNEL.get_or_init(load).as_ref()
}

fn load() -> Option<Mutex<Arc<Kernel>>> {
    match Kernel::load_for_tests(&KernelConfig { slot_count: sides::SLOTS, pin: None }) {
        Ok(kernel) => Some(Mutex::new(Arc::new(kernel))),
        Err(error @ KernelError::Load { .. }) if !may_load() => {
            println!("SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether this process has what loading needs.
fn may_load() -> bool {
    const CAP_NET_ADMIN: u64 = 1 << 12;
    const CAP_BPF: u64 = 1 << 39;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    bits & (CAP_NET_ADMIN | CAP_BPF) == CAP_NET_ADMIN | CAP_BPF && !in_user_namespace()
}

fn in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]
}

fn packets_wanted() -> u32 {
    let named = std::env::var("EQUIVALENCE_PACKETS").ok();
    named.map_or(PACKETS_DEFAULT, |text| text.parse().expect("EQUIVALENCE_PACKETS is a number"))
}

/// Plays a script on both sides: how many packets it had, and how many the programs kept to themselves; or
/// where the sides differ.
fn play(kernel: &Arc<Kernel>, head: bool, script: &[Step]) -> Result<(u32, u32), String> {
    let mut machine = MachineSide::new(head);
    let mut programs = KernelSide::new(kernel, head);
    let mut seen = 0;
    for (at, step) in script.iter().enumerate() {
        for packet in step.packets(&machine) {
            let expected = machine.receive(&packet);
            let (found, passed_up) = programs.receive(&packet);
            let way = if passed_up { "passed up" } else { "kept" };
            if found != expected {
                return Err(format!(
                    "step {at} ({way}): the machine says {expected:x?}, the programs {found:x?}"
                ));
            }
            let (expected, found) = (machine.counters(), programs.counters());
            if found != expected {
                return Err(format!(
                    "step {at} ({way}): the machine counts {expected:?}, the programs {found:?}"
                ));
            }
            seen += 1;
        }
    }
    Ok((seen, programs.kept()))
}

#[test]
fn programs_and_machine_say_the_same_at_the_head() {
    compare(true);
}

#[test]
fn programs_and_machine_say_the_same_behind_the_head() {
    compare(false);
}

/// Gives this thread a network namespace with two interfaces of known numbers, in which programs can be run as
/// if frames came in by them.
fn enter_namespace() {
    // SAFETY: it changes what this thread alone sees.
    let entered = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
    let words = ["link", "add", "name", "p0", "index", "1000", "type", "veth", "peer", "name", "p1"];
    let made = std::process::Command::new("ip").args(words).status().expect("there is `ip`");
    assert!(made.success(), "{made}");
}

fn compare(head: bool) {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let (seen, kept) = (Cell::new(0), Cell::new(0));
    let config = Config { cases: 50, max_shrink_iters: 500, failure_persistence: None, ..Config::default() };
    while seen.get() < packets_wanted() {
        // A runner runs once.
        let outcome = TestRunner::new(config.clone()).run(&script(SCRIPT_STEPS_MAX), |script| {
            let (more, more_kept) = play(&kernel, head, &script).map_err(TestCaseError::fail)?;
            seen.set(seen.get() + more);
            kept.set(kept.get() + more_kept);
            Ok(())
        });
        outcome.unwrap_or_else(|difference| panic!("{difference}"));
    }
    let (seen, kept) = (seen.get(), kept.get());
    println!("{seen} packets compared; the programs dealt with {kept} of them by themselves");
    assert!(kept > seen / 3, "the programs passed nearly everything up: {kept} of {seen}");
}
