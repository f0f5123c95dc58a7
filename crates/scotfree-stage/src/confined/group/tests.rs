//! Groups of this machine's kernel wherever it has any, and the texts for both versions everywhere.

use super::*;
use crate::confined::disks_of;
use crate::confined::quantity::{Bytes, Processors};
use crate::process::{Process, ProcessSpec, Supervisor};
use crate::scratch::Scratch;
use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::os::unix::process::ExitStatusExt;

const PATIENCE: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;
// Larger than any number that the kernel gives.
const NOBODY: u32 = 1 << 30;

fn limits() -> Limits {
    Limits {
        memory: Some(Bytes(400_000_000)),
        cpus: Processors::try_from(0.5).ok(),
        read_iops: NonZeroU32::new(1_500),
        ..Limits::default()
    }
}

#[test]
fn only_limits_need_controllers() {
    use Controller::{Cpu, Disk, Memory};
    assert_eq!(needed_by(&limits()), [Memory, Cpu, Disk]);
    assert_eq!(needed_by(&Limits { cpus: None, memory: None, ..limits() }), [Disk]);
    assert_eq!(needed_by(&Limits::default()), []);
}

#[test]
fn without_a_controller_or_the_right_to_it_nothing_starts_and_the_reason_is_said() {
    let folder = Scratch::new("edge-none").expect("temporary files can be written");
    let error = Group::new_in(&[], "x", &limits(), &[]).expect_err("there are none").to_string();
    assert!(error.contains("`memory`, `cpu`, `blkio` or `io`") && error.contains("scot doctor"), "{error}");
    let own = folder.path().join("missing");
    let memory = |version| Hierarchy {
        version,
        mount: folder.path().to_owned(),
        own: own.clone(),
        controllers: vec![Controller::Memory],
    };
    let only_memory = Limits { memory: limits().memory, ..Limits::default() };
    for (version, said) in
        [(Version::One, "make the control group"), (Version::Two, "hand the controllers +memory on")]
    {
        let error = Group::new_in(&[memory(version)], "x", &only_memory, &[]).expect_err(said).to_string();
        assert!(error.contains(said) && error.contains("as root"), "{error}");
    }
    // What would only have counted is left out, and nothing is left.
    let group =
        Group::new_in(&[memory(Version::One)], "x", &Limits::default(), &[]).expect("nothing is needed");
    assert_eq!(group.usage(), Usage::default());
    // A folder that is no group has no files for limits: what was begun is taken back.
    fs::create_dir(&own).expect("it can be made");
    let error = Group::new_in(&[memory(Version::One)], "x", &only_memory, &[]).expect_err("no such file");
    assert!(error.to_string().contains("memory.limit_in_bytes"), "{error}");
    assert_eq!(folders_in(&own), Vec::<PathBuf>::new());
}

/// Folders that stand for groups of version 2, with what each hands on and has.
fn tree(folder: &Path, groups: &[(&str, &str)]) -> Hierarchy {
    for (group, handed_on) in groups {
        let group = folder.join(group);
        fs::create_dir_all(&group).expect("it can be made");
        fs::write(group.join("cgroup.subtree_control"), handed_on).expect("it can be written");
    }
    let own = folder.join(groups.last().expect("there are some").0);
    Hierarchy { version: Version::Two, mount: folder.to_owned(), own, controllers: Controller::ALL.into() }
}

#[test]
fn a_group_of_version_two_lies_below_the_nearest_that_hands_the_controllers_on() {
    let folder = Scratch::new("edge-two").expect("temporary files can be written");
    let needed = [Controller::Memory, Controller::Disk];
    let groups = [("", "cpu io memory"), ("a", "memory io pids"), ("a/b", "memory"), ("a/b/c", "")];
    let hierarchy = tree(folder.path(), &groups);
    assert_eq!(parent_with(&needed, &hierarchy), Ok(folder.path().join("a")));
    assert_eq!(parent_with(&[Controller::Cpu], &hierarchy), Ok(folder.path().to_owned()));
    // None does: the nearest that can be told to is told.
    let other = tree(&folder.path().join("x"), &[("", ""), ("a", "")]);
    fs::remove_file(other.own.join("cgroup.subtree_control")).expect("it is there");
    assert_eq!(parent_with(&needed, &other), Ok(other.mount.clone()));
    let told = fs::read_to_string(other.mount.join("cgroup.subtree_control")).expect("it is there");
    assert_eq!(told, "+memory +io");
}

#[test]
fn the_page_cache_is_emptied_by_a_file_that_must_be_there() {
    let folder = Scratch::new("edge-forget").expect("temporary files can be written");
    let file = folder.path().join("drop_caches");
    let error = forget_files_by(&file).expect_err("it is not there").to_string();
    assert!(error.contains("drop_caches") && error.contains("as root"), "{error}");
    assert!(!file.exists(), "it is not made");
    fs::write(&file, "").expect("it can be written");
    forget_files_by(&file).expect("it is there");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "1\n");
}

// ---- on this machine's kernel

/// A group, if this machine can make one; says so if it cannot.
fn group(limits: &Limits, disks: &[Disk]) -> Option<Group> {
    Group::new("test", limits, disks).map_err(|trouble| eprintln!("SKIP: {trouble}")).ok()
}

fn start(group: &Group, folder: &Scratch, script: &str) -> Process {
    let prefix = group.prefix();
    let prefix: Vec<&OsStr> = prefix.iter().map(OsString::as_os_str).collect();
    let spec = ProcessSpec::new("child", "sh", folder.path()).args(["-c", script]);
    Supervisor::new().spawn_behind(&prefix, &spec).expect("sh starts")
}

fn folders_of(group: &Group) -> Vec<PathBuf> {
    group.parts.iter().map(|part| part.folder.clone()).collect()
}

#[test]
fn a_child_that_wants_more_memory_than_allowed_is_killed_and_counted() {
    let folder = Scratch::new("edge-memory").expect("temporary files can be written");
    let script = "exec dd if=/dev/zero of=/dev/null bs=100000000 count=1";
    let run = |memory: u64| {
        let group = group(&Limits { memory: Some(Bytes(memory)), ..Limits::default() }, &[])?;
        let status = start(&group, &folder, script).wait(PATIENCE).expect("it ends");
        Some((status, group.usage()))
    };
    let Some((status, usage)) = run(32 << 20) else { return };
    assert_eq!((status.signal(), usage.memory_kills), (Some(SIGKILL), Some(1)), "{usage:?}");
    let peak = usage.memory_peak_bytes.unwrap_or(32 << 20);
    assert!((16 << 20..=32 << 20).contains(&peak), "{usage:?}");
    // The same child where there is room: the limit it was, nothing else.
    let (status, usage) = run(400 << 20).expect("it was made just now");
    assert!(status.success() && usage.memory_kills == Some(0), "{status} {usage:?}");
    assert!(usage.memory_peak_bytes.is_none_or(|peak| peak > 100_000_000), "{usage:?}");
}

#[test]
fn a_quota_of_half_a_processor_halves_what_two_busy_children_get() {
    const PERIODS: u64 = 30;
    const PERIOD_US: u64 = 10_000;
    let folder = Scratch::new("edge-cpu").expect("temporary files can be written");
    let cpus = Processors::try_from(0.5).ok();
    let Some(group) = group(&Limits { cpus, ..Limits::default() }, &[]) else { return };
    let child = start(&group, &folder, "while :; do :; done & while :; do :; done");
    let done = |usage: &Usage| usage.throttled_periods >= Some(PERIODS) && usage.cpu_us.is_some();
    child.wait_until("was held back", PATIENCE, || done(&group.usage())).expect("the quota is in force");
    group.end_processes();
    let usage = group.usage();
    let (used, periods) = (usage.cpu_us.expect("just seen"), usage.periods.expect("just seen"));
    assert!(usage.throttled_us > Some(0), "{usage:?}");
    // Each processor may have begun a slice of 5 ms in the first period, and may be in one now.
    let slices = 2 * std::thread::available_parallelism().map_or(1, usize::from) as u64 * 5_000;
    assert!(used <= (periods + 1) * PERIOD_US / 2 + slices, "{usage:?}");
}

#[test]
fn without_a_quota_nothing_is_held_back() {
    let folder = Scratch::new("edge-free").expect("temporary files can be written");
    let Some(group) = group(&Limits::default(), &[]) else { return };
    let child = start(&group, &folder, "while :; do :; done");
    if group.usage().cpu_us.is_none() {
        eprintln!("SKIP: no control group of this machine counts processor time");
        return;
    }
    child.wait_until("works", PATIENCE, || group.usage().cpu_us > Some(50_000)).expect("it does");
    let usage = group.usage();
    assert!(usage.throttled_periods.unwrap_or(0) == 0 && usage.throttled_us.unwrap_or(0) == 0, "{usage:?}");
}

const BLOCKS: u64 = 300;

/// A file of so many blocks on a disk; says so if it cannot be read past the page cache here.
fn file_of_blocks(folder: &Scratch) -> bool {
    let out = format!("of={}", folder.path().join("blocks").display());
    let count = format!("count={BLOCKS}");
    let made = run("dd", ["if=/dev/zero", &out, "bs=4096", &count, "oflag=direct"]);
    if let Err(trouble) = &made {
        eprintln!("SKIP: {trouble}");
    }
    made.is_ok()
}

#[test]
fn reads_are_limited_and_counted() {
    // Where builds lie there is a disk; where temporary files lie there may be none.
    let target = std::env::current_exe().expect("it runs");
    let folder = Scratch::new_in(target.parent().expect("it has one"), "edge-disk").expect("it can be made");
    let disks = match disks_of([folder.path()]) {
        Ok(disks) => disks,
        Err(trouble) => return eprintln!("SKIP: {trouble}"),
    };
    let of_reads = |count| Limits { read_iops: NonZeroU32::new(count), ..Limits::default() };
    let (Some(slow), Some(fast)) = (group(&of_reads(2), &disks), group(&of_reads(1_000_000), &disks)) else {
        return;
    };
    if !file_of_blocks(&folder) {
        return;
    }
    let script = "exec dd if=blocks of=/dev/null bs=4096 iflag=direct";
    let script = format!("cd '{}'; {script}", folder.path().display());
    let child = start(&slow, &folder, &script);
    child.wait_until("reads", PATIENCE, || slow.usage().reads > Some(0)).expect("it does");
    let status = start(&fast, &folder, &script).wait(PATIENCE).expect("it ends");
    let read = fast.usage();
    assert!(status.success() && read.reads >= Some(BLOCKS), "{read:?}");
    assert!(read.read_bytes >= Some(BLOCKS * 4_096), "{read:?}");
    // At two reads a second it goes on for minutes.
    assert!(child.is_running() && slow.usage().reads < Some(BLOCKS), "{:?}", slow.usage());
    let folders = folders_of(&slow);
    slow.remove().expect("a read that waits for its turn does not keep it");
    assert!(folders.iter().all(|folder| !folder.exists()));
}

#[test]
fn a_group_goes_with_all_that_runs_in_it() {
    let folder = Scratch::new("edge-drop").expect("temporary files can be written");
    let memory = Some(Bytes(100 << 20));
    let Some(group) = group(&Limits { memory, ..Limits::default() }, &[]) else { return };
    // A grandchild that its parent has left behind.
    let child = start(&group, &folder, "sleep 1000 & echo $!");
    assert!(child.wait(PATIENCE).expect("it ends").success());
    let grandchild = child.output().trim().to_owned();
    let is_there = || Path::new("/proc").join(&grandchild).exists();
    assert!(is_there());
    let folders = folders_of(&group);
    assert!(!folders.is_empty() && folders.iter().all(|folder| folder.exists()));
    drop(group);
    assert!(folders.iter().all(|folder| !folder.exists()));
    assert!(wait_until(PATIENCE, || !is_there()), "{grandchild}");
}

#[test]
fn a_sweep_removes_what_a_killed_lab_left_with_what_runs_in_it_and_nothing_else() {
    let folder = Scratch::new("edge-sweep").expect("temporary files can be written");
    let memory = Some(Bytes(100 << 20));
    let Some(alive) = group(&Limits { memory, ..Limits::default() }, &[]) else { return };
    let sibling = |name: &str| folders_of(&alive)[0].with_file_name(name);
    let left = sibling(&format!("scot-{NOBODY}-0-left"));
    let inner = left.join("inner");
    let others = [sibling(&format!("scot-{NOBODY}")), sibling(&format!("other-{NOBODY}-0-x"))];
    let held = sibling(&format!("scot-{NOBODY}-1-held"));
    for group in [&left, &inner, &others[0], &others[1], &held] {
        fs::create_dir(group).expect("a group was made here just now");
    }
    let lock = File::open(&held).expect("it is there");
    assert!(try_lock(&lock).expect("it can be locked"));
    let inside = Group { parts: Vec::new(), limits: Limits::default(), disks: Vec::new() };
    let script = format!("echo $$ >'{}' && exec sleep 1000", inner.join("cgroup.procs").display());
    let child = start(&inside, &folder, &script);
    child
        .wait_until("is inside", PATIENCE, || {
            let inside = fs::read_to_string(inner.join("cgroup.procs")).unwrap_or_default();
            inside.lines().any(|pid| pid == child.pid().to_string())
        })
        .expect("it enters");
    let (removed, troubles) = sweep();
    assert!(
        removed.contains(&format!("scot-{NOBODY}-0-left")) && troubles.is_empty(),
        "{removed:?} {troubles:?}"
    );
    assert!(!left.exists() && child.wait(PATIENCE).is_some_and(|status| status.signal() == Some(SIGKILL)));
    assert!(others.iter().chain([&held]).chain(&folders_of(&alive)).all(|folder| folder.exists()));
    for group in others.iter().chain([&held]) {
        fs::remove_dir(group).expect("it is empty");
    }
}
