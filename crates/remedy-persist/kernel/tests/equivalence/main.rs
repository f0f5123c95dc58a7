//! The kernel's programs and the device machine, packet by packet: what leaves and what is counted must be
//! the same whether the machine alone sees a packet, or the programs see it first and pass up what they
//! leave to the machine.

mod captured;
mod packets;
mod sides;

use captured::lives;
use packets::{script, Sent, Step};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use scotfree_device::DeviceConfig;
use scotfree_xdp::{Functions, Kernel, KernelConfig, KernelError};
use sides::{KernelSide, MachineSide};
use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock};

/// How many packets one run of the comparison sees; `EQUIVALENCE_PACKETS` names another number.
const PACKETS_DEFAULT: u32 = 20_000;
const SCRIPT_STEPS_MAX: usize = 200;

/// Programs, loaded once; `None` where that is not possible, and then the reason has been printed.
type Loaded = OnceLock<Option<Mutex<Arc<Kernel>>>>;

fn kernel() -> Option<&'static Mutex<Arc<Kernel>>> {
    static KERNEL: Loaded = OnceLock::new();
    let functions = || Functions::named(&["persist"]).expect("its programs are built in");
    KERNEL.get_or_init(|| load(Kernel::load_for_tests(&config_of(functions())))).as_ref()
}

/// The same with the toy before persist.
fn kernel_with_toy() -> Option<&'static Mutex<Arc<Kernel>>> {
    static KERNEL: Loaded = OnceLock::new();
    KERNEL.get_or_init(|| load(load_with_fixtures(&["toy", "persist"]))).as_ref()
}

/// Aligned as their reader wants it.
#[repr(align(16))]
struct Aligned<const N: usize>([u8; N]);

static WITH_FIXTURES: &[u8] = &Aligned(*include_bytes!(env!("SCOT_OBJECT_WITH_FIXTURES"))).0;

/// The programs that were compiled with all fixtures, of which these functions are on.
fn load_with_fixtures(names: &[&str]) -> Result<Kernel, KernelError> {
    let known: Vec<&str> = env!("SCOT_FUNCTIONS_WITH_FIXTURES").split(',').collect();
    let functions = Functions::named_among(names, &known)?;
    Kernel::load_object_for_tests(WITH_FIXTURES, &config_of(functions))
}

fn config_of(functions: Functions) -> KernelConfig {
    KernelConfig { slot_count: sides::SLOTS, pin: None, functions }
}

/// Persist's programs with fewer slots than the sessions of a script ask for.
fn kernel_with_few_slots() -> Option<Mutex<Arc<Kernel>>> {
    let functions = Functions::named(&["persist"]).expect("its programs are built in");
    load(Kernel::load_for_tests(&KernelConfig { slot_count: 20, pin: None, functions }))
}

fn load(loaded: Result<Kernel, KernelError>) -> Option<Mutex<Arc<Kernel>>> {
    match loaded {
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

/// The two sides, and what they have been sent so far.
struct Play {
    machine: MachineSide,
    programs: KernelSide,
    seen: u32,
}

impl Play {
    fn new(kernel: &Arc<Kernel>, config: &DeviceConfig, with_toy: bool) -> Play {
        let (machine, programs) =
            (MachineSide::new(config, with_toy), KernelSide::new(kernel, config, with_toy));
        Play { machine, programs, seen: 0 }
    }

    /// Sends a packet to both sides; or where they differ.
    fn send(&mut self, packet: &Sent) -> Result<(), String> {
        let at = self.seen;
        self.seen += 1;
        let expected = self.machine.receive(packet);
        let (found, passed_up) = self.programs.receive(packet);
        let way = if passed_up { "passed up" } else { "kept" };
        if found != expected {
            return Err(format!(
                "packet {at} ({way}): the machine says {expected:x?}, the programs {found:x?}"
            ));
        }
        let (expected, found) = (self.machine.counters(), self.programs.counters());
        if found != expected {
            return Err(format!(
                "packet {at} ({way}): the machine counts {expected:?}, the programs {found:?}"
            ));
        }
        let (expected, found) = (self.machine.toy_reads(), self.programs.toy_reads());
        if found != expected {
            return Err(format!("packet {at} ({way}): of {expected} reads the programs' toy saw {found}"));
        }
        Ok(())
    }
}

/// How many packets were compared, and how many of them the programs kept to themselves.
#[derive(Debug, Default)]
struct Tally {
    seen: Cell<u32>,
    kept: Cell<u32>,
    answered: Cell<u32>,
}

impl Tally {
    fn add(&self, play: &Play) {
        self.seen.set(self.seen.get() + play.seen);
        self.kept.set(self.kept.get() + play.programs.kept());
        self.answered.set(self.answered.get() + play.programs.answered());
    }

    /// A comparison in which the programs leave nearly all to the machine compares it with itself.
    fn judge(&self, of: &str, one_in: u32) {
        let (seen, kept) = (self.seen.get(), self.kept.get());
        println!("{seen} {of} packets compared; the programs dealt with {kept} of them by themselves");
        assert!(kept > seen / one_in, "the programs passed nearly everything up: {kept} of {seen}");
    }
}

#[test]
fn programs_and_machine_say_the_same_at_the_head() {
    let Some(kernel) = kernel() else { return };
    compare(kernel, true, false);
}

#[test]
fn programs_and_machine_say_the_same_behind_the_head() {
    let Some(kernel) = kernel() else { return };
    compare(kernel, false, false);
}

#[test]
fn programs_and_machine_say_the_same_with_two_functions_at_the_head() {
    let Some(kernel) = kernel_with_toy() else { return };
    compare(kernel, true, true);
}

#[test]
fn programs_and_machine_say_the_same_with_two_functions_behind_the_head() {
    let Some(kernel) = kernel_with_toy() else { return };
    compare(kernel, false, true);
}

#[test]
fn programs_and_machine_say_the_same_where_slots_are_scarce() {
    let Some(kernel) = kernel_with_few_slots() else { return };
    compare(&kernel, true, false);
}

#[test]
fn a_session_that_found_no_slots_has_some_when_another_has_left() {
    let Some(kernel) = kernel_with_few_slots() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("it is this test's");
    let mut play = Play::new(&kernel, &sides::config(true), false);
    begin(&mut play);
    let lives_by = |play: &mut Play, session: u8| {
        let before = play.programs.kept();
        (0..4).for_each(|_| send_all(play, &Step::update(session)));
        play.programs.kept() - before
    };
    let stable = |session| Step::Stable { session, behind: 1, way: 0, epoch: 1 };
    assert_eq!(lives_by(&mut play, 0), 4);
    send_all(&mut play, &Step::Accept { session: 1, window: 16 });
    assert_eq!(lives_by(&mut play, 1), 0, "8 of the 20 slots are another's");
    send_all(&mut play, &stable(1));
    assert_eq!(lives_by(&mut play, 1), 0, "still");
    send_all(&mut play, &stable(0));
    send_all(&mut play, &Step::Expire { session: 0 });
    assert_eq!(lives_by(&mut play, 1), 0, "some of its entries are not stable");
    send_all(&mut play, &stable(1));
    assert!(lives_by(&mut play, 1) >= 3);
}

#[test]
fn a_function_that_is_off_does_nothing() {
    let Some(kernel) = load(load_with_fixtures(&["persist"])) else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("it is this test's");
    let mut play = Play::new(&kernel, &sides::config(true), false);
    begin(&mut play);
    for at in 0..40 {
        let read = Step::read(0, 4 + 4 * (at % 3));
        send_all(&mut play, &read);
    }
    assert_eq!((play.programs.kept(), play.programs.answered()), (40, 0));
}

/// An entry that is nobody's has the id 0, and keys that everybody knows.
#[test]
fn a_request_of_no_session_is_nobodys() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = Play::new(&kernel, &sides::config(true), false);
    begin(&mut play);
    send_all(&mut play, &Step::Expire { session: 0 });
    // One bit makes the id of the first session 0.
    let flip = (16 - 4) * 8;
    send_all(&mut play, &Step::Damaged { of: Box::new(Step::update(0)), flip, cut: None });
}

#[test]
fn without_a_keeper_of_places_requests_are_the_daemons() {
    let Some(kernel) = load(Kernel::load_for_tests(&config_of(Functions::NONE))) else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("it is this test's");
    let mut play = Play::new(&kernel, &sides::config(true), false);
    begin(&mut play);
    for _ in 0..10 {
        send_all(&mut play, &Step::update(0));
    }
    assert_eq!(play.programs.kept(), 0);
}

/// A lease, and a session whose client's port is known.
fn begin(play: &mut Play) {
    let lease = Step::Lease { raise: false, refused: false };
    for step in [lease, Step::Accept { session: 0, window: 8 }, Step::update(0)] {
        send_all(play, &step);
    }
}

fn send_all(play: &mut Play, step: &Step) {
    for packet in step.packets(&play.machine) {
        play.send(&packet).expect("the sides agree");
    }
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

#[test]
fn a_sampled_packet_is_told_with_what_became_of_it() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = Play::new(&kernel, &sides::config(true), false);
    play.programs.sample_all();
    let lease = Step::Lease { raise: false, refused: false };
    let damaged = Step::Damaged { of: Box::new(Step::update(0)), flip: 8 * 200, cut: None };
    let steps = [lease, Step::Accept { session: 0, window: 8 }, Step::update(0), Step::update(0), damaged];
    for step in &steps {
        send_all(&mut play, step);
    }
    // The first request tells by which port its client lives, and is the daemon's.
    let told = play.programs.told();
    let outcomes: Vec<&str> = told.iter().map(|event| event.outcome).collect();
    assert_eq!(outcomes, ["pass-up", "pass-up", "pass-up-request", "acknowledge", "refuse"]);
    let acknowledged = &told[3];
    assert_eq!((acknowledged.session.0, acknowledged.seq.0, acknowledged.asked), (1, 2, 1));
}

fn compare(kernel: &Mutex<Arc<Kernel>>, head: bool, with_toy: bool) {
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    compare_generated(&kernel, head, with_toy);
    compare_captured(&kernel, head, with_toy);
}

fn compare_generated(kernel: &Arc<Kernel>, head: bool, with_toy: bool) {
    let tally = Tally::default();
    let config = Config { cases: 50, max_shrink_iters: 500, failure_persistence: None, ..Config::default() };
    while tally.seen.get() < packets_wanted() {
        // A runner runs once.
        let outcome = TestRunner::new(config.clone()).run(&script(SCRIPT_STEPS_MAX), |script| {
            let mut play = Play::new(kernel, &sides::config(head), with_toy);
            for step in &script {
                if let Step::Key { retire } = step {
                    play.machine.take_key(packets::rotated(*retire));
                    play.programs.take_key(packets::rotated(*retire));
                }
                for packet in step.packets(&play.machine) {
                    play.send(&packet).map_err(TestCaseError::fail)?;
                }
            }
            tally.add(&play);
            Ok(())
        });
        outcome.unwrap_or_else(|difference| panic!("{difference}"));
    }
    tally.judge("generated", 3);
    assert_eq!(tally.answered.get() > tally.seen.get() / 200, with_toy, "{tally:?}");
}

/// Packets of simulated runs; half as many.
fn compare_captured(kernel: &Arc<Kernel>, head: bool, with_toy: bool) {
    let tally = Tally::default();
    for seed in (0..).take_while(|_| tally.seen.get() < packets_wanted() / 2) {
        for (at, life) in lives(seed, head).iter().enumerate() {
            let mut play = Play::new(kernel, &life.config, with_toy);
            for packet in &life.packets {
                let same = play.send(packet);
                same.unwrap_or_else(|difference| panic!("seed {seed}, life {at}: {difference}"));
            }
            tally.add(&play);
        }
    }
    tally.judge("captured", 6);
}
