//! The cache's programs and its rules, packet by packet: whatever the programs answer, the rules alone would have
//! answered with the same bytes at that moment; and they do answer. It has two remedies, of which none names the other,
//! so it stands here.

mod play;
mod script;
mod server;
mod sides;

use play::{Play, Trouble};
use scotfree_wire::Kind;
use scotfree_xdp::{Functions, Kernel, KernelConfig, KernelError};
use sides::{Head, Step};
use std::sync::{Arc, Mutex, OnceLock};

/// How many packets one run of the comparison sees; `EQUIVALENCE_PACKETS` names another number.
const PACKETS_DEFAULT: u64 = 20_000;
/// How many packets one device lives.
const LIFE: u64 = 600;
/// A rule that is switched off is found within so many packets.
const FAULT_PACKETS_MAX: u64 = 120_000;

/// The rules of the programs that can be switched off (`enum cache_fault`).
const FAULTS: [(&str, u32); 15] = [
    ("IGNORE_WRITES", 1),
    ("ONE_KEY_ALWAYS", 1 << 1),
    ("HASH_ONLY", 1 << 2),
    ("IGNORE_EPOCH", 1 << 3),
    ("PIPELINED", 1 << 4),
    ("IGNORE_UNSEEN", 1 << 5),
    ("SILENT", 1 << 6),
    ("SAY_NOTHING_DOUBTFUL", 1 << 7),
    ("PENDING_FROM_NOTHING", 1 << 8),
    ("PENDING_OVER_NEWER", PENDING_OVER_NEWER),
    ("PENDING_UNSAFE", 1 << 10),
    ("PENDING_REFUSED", PENDING_REFUSED),
    ("PENDING_OPTIONS", 1 << 12),
    ("PENDING_LATE", 1 << 13),
    ("PENDING_AGAIN", 1 << 14),
];
/// What only a device shows whose daemon sleeps.
const IGNORE_EPOCH: u32 = 1 << 3;
/// What only two processors show.
const PENDING_OVER_NEWER: u32 = 1 << 9;
/// What only a server shows that refuses what was logged: the rules then know less than the programs, which have let a read
/// pass meanwhile.
const PENDING_REFUSED: u32 = 1 << 11;

/// Aligned as their reader wants it.
#[repr(align(16))]
struct Aligned<const N: usize>([u8; N]);

static WITH_FAULTS: &[u8] = &Aligned(*include_bytes!(env!("SCOT_OBJECT_WITH_FIXTURES"))).0;

/// Programs, loaded once; `None` where that is not possible, and then the reason has been printed.
fn kernel() -> Option<&'static Mutex<Arc<Kernel>>> {
    static KERNEL: OnceLock<Option<Mutex<Arc<Kernel>>>> = OnceLock::new();
    KERNEL.get_or_init(load).as_ref()
}

fn load() -> Option<Mutex<Arc<Kernel>>> {
    load_with(&["cache", "persist"])
}

fn load_with(names: &[&str]) -> Option<Mutex<Arc<Kernel>>> {
    let known: Vec<&str> = env!("SCOT_FUNCTIONS_WITH_FIXTURES").split(',').collect();
    let functions = Functions::named_among(names, &known).expect("its programs are built in");
    let config = KernelConfig { slot_count: sides::SLOTS, pin: None, functions };
    match Kernel::load_object_for_tests(WITH_FAULTS, &config) {
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
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_first = map.split_whitespace().eq(["0", "0", "4294967295"]);
    bits & (CAP_NET_ADMIN | CAP_BPF) == CAP_NET_ADMIN | CAP_BPF && is_first
}

/// Gives this thread a network namespace with the interface by which frames seem to come in.
fn enter_namespace() {
    // SAFETY: it changes what this thread alone sees.
    let entered = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
}

fn packets_wanted() -> u64 {
    let named = std::env::var("EQUIVALENCE_PACKETS").ok();
    named.map_or(PACKETS_DEFAULT, |text| text.parse().expect("EQUIVALENCE_PACKETS is a number"))
}

/// What so many packets came to.
#[derive(Debug, Default)]
struct Tally {
    packets: u64,
    reads: u64,
    /// Of them, answered by the rules, and by the programs.
    by_rules: u64,
    by_programs: u64,
}

/// Lives of devices, one after the other, until so many packets were seen or the sides differ.
fn lives(kernel: &Arc<Kernel>, planted: u32, packets: u64) -> (Tally, Result<(), Trouble>) {
    let mut tally = Tally::default();
    for seed in 0.. {
        if tally.packets >= packets {
            break;
        }
        let mut play = Play::new(kernel, planted);
        let outcome = script::life(seed, LIFE, &mut play);
        tally.packets += play.packets;
        tally.reads += play.reads;
        tally.by_rules += play.by_rules;
        tally.by_programs += play.by_programs;
        if let Err(trouble) = outcome {
            return (tally, Err(trouble.in_life(seed)));
        }
    }
    (tally, Ok(()))
}

#[test]
fn whatever_the_programs_answer_the_rules_would_have_answered() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let (tally, outcome) = lives(&kernel, 0, packets_wanted());
    let counted = kernel.counted_in("cache_counted").expect("the tables can be read");
    println!("{tally:?} {counted:?}");
    outcome.unwrap_or_else(|trouble| panic!("{trouble}"));
    assert!(tally.by_programs * 15 > tally.reads, "the programs pass nearly everything on: {tally:?}");
    assert!(tally.by_programs * 3 > tally.by_rules, "the rules answer far more: {tally:?}");
}

/// With a doorkeeper of the programs' own, and one of the rules' behind it.
#[test]
fn programs_that_keep_only_what_comes_again_answer_nothing_else() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = Play::of_reads(&kernel, 0, 2);
    let outcome = script::life(1, packets_wanted() / 10, &mut play);
    outcome.unwrap_or_else(|trouble| panic!("{trouble}"));
    assert!(play.by_programs > 0, "{} of {} packets", play.by_programs, play.packets);
}

#[test]
fn the_reply_to_what_is_read_once_is_no_concern_of_the_daemons() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = Play::of_reads(&kernel, 0, 2);
    play.settle().expect("the sides agree");
    // Keys of its own: what programs have seen other tests read they know.
    for key in ["once", "twice"] {
        play.set(1, key, "new").expect("the sides agree");
    }
    play.settle().expect("the sides agree");
    let mut goes_up = |key: &str| play.reply_goes_up(key, |_| ()).expect("the sides agree");
    assert!(!goes_up("once") && !goes_up("twice"), "they were not read before");
    // One reply in seven says nothing that could be kept.
    assert!(goes_up("twice") || goes_up("twice"), "it was read before");
    assert!(play.programs_answer("twice"), "its reply was kept");
    assert!(!play.programs_answer("once"));
}

#[test]
fn a_reply_with_anything_else_goes_up_whoever_waits() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let extension = scotfree_wire::HEADER_BYTES + Kind::Response.tail_bytes();
    // A byte of the extension's head, and what it is.
    let changes = [
        ("an extension that nobody knows", 0, 77),
        ("one of another size", 1, 1),
        ("what has to be zero", 5, 1),
    ];
    for (what, at, byte) in changes {
        let mut play = Play::of_reads(&kernel, 0, 2);
        play.settle().expect("the sides agree");
        play.set(1, "changed", "new").expect("the sides agree");
        play.settle().expect("the sides agree");
        let goes_up = play
            .reply_goes_up("changed", |bytes| bytes[extension + at] = byte)
            .unwrap_or_else(|trouble| panic!("{what}: {trouble}"));
        assert!(goes_up, "{what}");
    }
}

/// The toy answers reads of one key, which no client asks for here.
#[test]
fn a_third_function_finds_its_room_beside_them() {
    let Some(kernel) = load_with(&["toy", "cache", "persist"]) else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("it is this test's");
    let (tally, outcome) = lives(&kernel, 0, packets_wanted() / 10);
    outcome.unwrap_or_else(|trouble| panic!("{trouble}"));
    assert!(tally.by_programs > 0, "{tally:?}");
}

#[test]
fn each_rule_that_is_switched_off_is_found() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let in_lives = |planted: &u32| ![IGNORE_EPOCH, PENDING_OVER_NEWER, PENDING_REFUSED].contains(planted);
    for (name, planted) in FAULTS.into_iter().filter(|(_, planted)| in_lives(planted)) {
        let (tally, outcome) = lives(&kernel, planted, FAULT_PACKETS_MAX);
        let trouble = outcome.expect_err(name);
        println!("{name}: after {} packets: {trouble}", tally.packets);
    }
}

/// A device whose daemon sleeps: what was shown, and what its programs then let pass.
fn asleep(planted: u32) -> Option<bool> {
    let kernel = kernel()?;
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = Play::new(&kernel, planted);
    play.warm("k", 3).expect("the sides agree");
    assert!(play.programs_answer("k"), "it was shown");
    play.kernel().shared().server(0).set_heard_epoch(scotfree_core::Epoch(7));
    Some(play.programs_answer("k"))
}

#[test]
fn in_another_epoch_of_the_server_programs_answer_nothing_whether_or_not_the_daemon_looks() {
    assert_ne!(asleep(0), Some(true));
    assert_ne!(asleep(IGNORE_EPOCH), Some(false), "the rule that is off is not noticed");
}

#[test]
fn what_is_being_told_is_not_shown_until_it_is() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = Play::new(&kernel, 0);
    play.warm("k", 3).expect("the sides agree");
    assert!(play.programs_answer("k"));
    // A program on another processor has made it doubtful, and not yet told.
    let bucket = sides::bucket(&kernel, "k");
    bucket.begin();
    play.warm("k", 3).expect("the sides agree");
    assert!(!play.programs_answer("k"), "it is not known what has passed");
    bucket.tell();
    play.warm("k", 3).expect("the sides agree");
    assert!(play.programs_answer("k"));
}

#[test]
fn notes_that_nobody_took_make_everything_doubtful_until_it_is_stable() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = Play::new(&kernel, 0);
    play.warm("k", 3).expect("the sides agree");
    assert!(play.programs_answer("k"));
    // Nobody looks meanwhile.
    let head = Head::of(&kernel);
    head.lose_notes();
    play.step(&Step::Tick).expect("the sides agree");
    assert!(!play.programs_answer("k"), "a write may have been lost");
    play.settle().expect("the sides agree");
    play.warm("k", 4).expect("the sides agree");
    assert!(play.programs_answer("k"), "what was under way is over");
}

/// A device that shows what a logged SET has said.
fn with_a_set(kernel: &Arc<Kernel>, planted: u32) -> Play {
    let mut play = Play::new(kernel, planted);
    play.settle().expect("the sides agree");
    play.warm("k", 3).expect("the sides agree");
    play.set(1, "k", "newer").expect("the sides agree");
    assert!(play.programs_answer("k"), "what was logged is shown");
    play
}

/// A SET whose place is before one that is shown, as if another processor had taken it and been slow; whether programs
/// answer what it said.
fn overtaken(planted: u32) -> Option<bool> {
    let kernel = kernel()?;
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = with_a_set(&kernel, planted);
    sides::cell(&kernel, "k").set_order(u64::MAX);
    play.set(1, "k", "older").expect("the sides agree");
    Some(play.programs_answer("k"))
}

#[test]
fn a_set_is_not_shown_over_one_that_stands_behind_it() {
    assert_ne!(overtaken(0), Some(true));
    assert_ne!(overtaken(PENDING_OVER_NEWER), Some(false), "the rule that is off is not noticed");
}

/// A SET that the server refuses after all; whether programs answer on what it said.
fn refused(planted: u32) -> Option<bool> {
    let kernel = kernel()?;
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = with_a_set(&kernel, planted);
    // Behind the SET stands the read of it.
    let seq = play.next(1) - 2;
    play.send(&server::Reply::refusal(1, seq).sent()).expect("the sides agree");
    Some(play.programs_answer("k"))
}

#[test]
fn what_the_server_refuses_is_shown_no_more() {
    assert_ne!(refused(0), Some(true));
    assert_ne!(refused(PENDING_REFUSED), Some(false), "the rule that is off is not noticed");
}

#[test]
fn behind_a_write_that_may_be_given_up_nothing_is_shown_until_it_is_stable() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = with_a_set(&kernel, 0);
    play.ask(1, Kind::Bypass, "SET l 1", sides::key_hash("l")).expect("the sides agree");
    play.set(1, "k", "newest").expect("the sides agree");
    assert!(!play.programs_answer("k"), "the one before may be given up");
    play.settle().expect("the sides agree");
    play.warm("k", 2).expect("the sides agree");
    play.set(1, "k", "last").expect("the sides agree");
    assert!(play.programs_answer("k"), "it was executed");
}

/// The last session that finds room, and one that finds none.
const LAST: u64 = 4;
const ROOMLESS: u64 = 5;

#[test]
fn a_write_of_a_session_without_room_is_over_with_its_reply_and_its_reads_change_nothing() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    let mut play = Play::new(&kernel, 0);
    for session in [LAST, ROOMLESS] {
        play.send(&server::accept(session, server::EPOCH)).expect("the sides agree");
        play.ask(session, Kind::Read, "GET l", sides::key_hash("l")).expect("the sides agree");
    }
    play.settle().expect("the sides agree");
    play.warm("k", 3).expect("the sides agree");
    assert!(play.programs_answer("k"));
    play.send(&server::Reply::of(ROOMLESS, 1).sent()).expect("the sides agree");
    assert!(play.programs_answer("k"), "that was to a read");
    play.ask_at(ROOMLESS, 2, Kind::Bypass, "SET k roomless", sides::key_hash("k")).expect("the sides agree");
    play.warm("k", 3).expect("the sides agree");
    assert!(!play.programs_answer("k"), "it is under way");
    play.send(&server::Reply::of(ROOMLESS, 2).sent()).expect("the sides agree");
    play.warm("k", 3).expect("the sides agree");
    assert!(play.programs_answer("k"), "it is over");
}

#[test]
fn a_set_whose_lines_do_not_end_is_not_shown() {
    let Some(kernel) = kernel() else { return };
    enter_namespace();
    let kernel = kernel.lock().expect("no other test has failed with it");
    for (from, to) in [(b"$3\r\nnew\r\n", b"$3xxnew\r\n"), (b"$3\r\nnew\r\n", b"$3\r\nnewxx")] {
        let mut play = with_a_set(&kernel, 0);
        let mut payload = play::payload(play::CALLER, "SET k new");
        let at = payload.len() - from.len();
        assert_eq!(payload[at..], from[..]);
        payload[at..].copy_from_slice(to);
        play.set_as(1, "k", &payload).expect("the sides agree");
        assert!(!play.programs_answer("k"), "it is no SET: {to:?}");
    }
}
