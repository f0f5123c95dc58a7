//! Commands and arms of experiments under the limits of small machines, on this machine's control groups.
#![cfg(feature = "lab")]

use scotfree_stage::confined::{disks_of, Bytes, Disk, Group, Limits, Profile};
use scotfree_stage::netns::{access, Access};
use scotfree_stage::process::wait_until;
use scotfree_stage::scratch::Scratch;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const SCOT: &str = env!("CARGO_BIN_EXE_scot");
const PATIENCE: Duration = Duration::from_secs(60);
/// Touches all of its 100 MB.
const HUNGRY: [&str; 5] = ["dd", "if=/dev/zero", "of=/dev/null", "bs=100000000", "count=1"];

/// A folder on the disk that builds lie on: where temporary files lie there may be none.
fn folder(name: &str) -> Scratch {
    Scratch::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")), name).expect("it can be made")
}

fn scot(folder: &Scratch, words: &[&str]) -> Output {
    let mut command = Command::new(SCOT);
    command.args(words).current_dir(folder.path()).env_remove("SCOT_CONFIG");
    command.output().expect("the command runs")
}

fn device(folder: &Scratch, words: &[&str], command: &[&str]) -> Output {
    scot(folder, &[&["lab", "device"], words, &["--"], command].concat())
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_refused(output: &Output, code: i32, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{}{}", out(output), err(output));
    for part in parts {
        assert!(err(output).contains(part), "`{part}` is not in: {}", err(output));
    }
}

/// Whether memory can be limited here; says so if not.
fn can_limit() -> bool {
    can(&Limits { memory: Some(Bytes(100 << 20)), ..Limits::default() }, &[])
}

/// The same of all that devices limit, and of the disk of a folder.
fn can_be_a_device(folder: &Scratch) -> bool {
    let profile = Profile::read(&repository().join("lab/devices/board-1gb.toml")).expect("it is right");
    match disks_of([folder.path()]) {
        Ok(disks) => can(&profile.limits, &disks),
        Err(trouble) => {
            eprintln!("SKIP: {trouble}");
            false
        }
    }
}

fn can(limits: &Limits, disks: &[Disk]) -> bool {
    let made = Group::new("can", limits, disks);
    if let Err(trouble) = &made {
        eprintln!("SKIP: {trouble}");
    }
    made.is_ok()
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_made() {
    let folder = folder("device-refused");
    symlink(repository().join("lab"), folder.path().join("lab")).expect("it can be made");
    for (words, part) in [
        (&[][..], "name a profile (scot lab list) or a limit"),
        (&["nowhere"], "in lab/devices: board-1gb, jetson-8gb-sd, laptop"),
        (&["--memory", "400"], "no program `no-such-program`"),
        (&["--memory", "1 page"], "for instance 400MB"),
        (&["--read-rate", "25MB"], "for instance 25MB/s"),
        (&["--cpus", "0"], "0.01 to 1024"),
        (&["--read-iops", "0"], "--read-iops"),
    ] {
        assert_refused(&device(&folder, words, &["no-such-program"]), 2, &[part]);
    }
    assert_refused(
        &device(&folder, &["--memory", "1GB", "--disk", "."], &["true"]),
        2,
        &["no rate of a disk"],
    );
    assert_refused(&scot(&folder, &["lab", "device", "board-1gb"]), 2, &["<COMMAND>"]);
    let nowhere = ["--memory", "1GB", "--report", "no/where.json"];
    assert_refused(&device(&folder, &nowhere, &["true"]), 3, &["--report no/where.json", "you may write"]);
    let on_proc = ["--read-iops", "9", "--disk", "/proc"];
    assert_refused(
        &device(&folder, &on_proc, &["true"]),
        3,
        &["lies on proc", "leave the limits on disks out"],
    );
    let shown = out(&scot(&folder, &["lab", "list"]));
    assert!(shown.contains("devices: board-1gb, jetson-8gb-sd, laptop"), "{shown}");
}

#[test]
fn without_the_right_to_it_nothing_starts_and_the_way_to_it_is_named() {
    let folder = folder("device-user");
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let as_other = ["--reuid", "64323", "--regid", "64323", "--clear-groups", SCOT];
    let run = |words: &[&str]| {
        Command::new("setpriv").args(as_other).args(words).current_dir(folder.path()).output()
    };
    if !run(&["--version"]).is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIP: this user cannot become another, or others may not run {SCOT}");
    }
    let output = run(&["lab", "device", "--memory", "1GB", "--", "echo", "ran"]).expect("it has just run");
    assert_refused(&output, 3, &["scot: ", "; "]);
    assert!(["as root", "scot doctor"].iter().any(|next| err(&output).contains(next)), "{}", err(&output));
    assert_eq!(out(&output), "");
}

#[test]
fn a_command_ends_with_its_own_code_and_its_output_is_its_own() {
    if !can_limit() {
        return;
    }
    let folder = folder("device-code");
    let output = device(&folder, &["--memory", "1GB"], &["sh", "-c", "echo \"$1\"; exit 125", "sh", "a  b"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(125), "a  b\n"), "{}", err(&output));
    assert!(err(&output).contains("scot: limits: exit status: 125 after"), "{}", err(&output));
    let mut command = Command::new(SCOT);
    command
        .args(["lab", "device", "--memory", "1GB", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut input = child.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut input, b"read\n").expect("it reads");
    drop(input);
    assert_eq!(out(&child.wait_with_output().expect("it ends")), "read\n");
}

#[test]
fn a_command_that_the_memory_limit_has_ended_is_told_from_one_that_it_has_not() {
    if !can_limit() {
        return;
    }
    let folder = folder("device-memory");
    let run = |memory: &str| {
        let output = device(&folder, &["--memory", memory, "--report", "used.json"], &HUNGRY);
        let text = fs::read_to_string(folder.path().join("used.json")).expect("it was written");
        (output, serde_json::from_str::<Value>(&text).expect("it is JSON"))
    };
    let (output, used) = run("32MiB");
    assert_eq!(output.status.code(), Some(137), "{}", err(&output));
    assert!(
        err(&output).contains("killed by the memory limit of 33.6 MB: 1 of its processes"),
        "{}",
        err(&output)
    );
    assert_eq!(
        (&used["killed_by_limit"], &used["signal"], &used["limits"]["memory"]),
        (&true.into(), &9.into(), &(32 << 20).into())
    );
    assert!(used["used"]["memory_kills"] == 1 && used["wall_s"].as_f64() > Some(0.0), "{used}");
    let (output, used) = run("400MiB");
    assert!(output.status.success() && !err(&output).contains("killed by"), "{}", err(&output));
    assert_eq!((&used["killed_by_limit"], &used["exit_code"]), (&false.into(), &0.into()));
}

/// A command under limits that has said that it is up.
/// A command that says who it is when it is ready: after `first`.
fn start(folder: &Scratch, first: &str, script: &str) -> Child {
    let script = format!("{first}; echo $$ >pid.new; mv pid.new pid; {script}");
    let mut command = Command::new(SCOT);
    command.args(["lab", "device", "--memory", "1GB", "--", "sh", "-c", &script]).current_dir(folder.path());
    let child = command.stderr(Stdio::piped()).spawn().expect("it runs");
    assert!(wait_until(PATIENCE, || folder.path().join("pid").exists()), "it is up");
    child
}

fn pid_in(folder: &Scratch) -> u32 {
    let text = fs::read_to_string(folder.path().join("pid")).expect("it is up");
    text.trim().parse().expect("a number")
}

/// The folders of a process's control groups that were made for it.
fn groups_of(pid: u32) -> Vec<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
    let names: Vec<&str> = text.lines().filter_map(|line| line.rsplit('/').next()).collect();
    let mounts = fs::read_to_string("/proc/self/mounts").expect("they are listed");
    let mounts =
        mounts.lines().filter(|line| line.contains(" cgroup")).filter_map(|line| line.split(' ').nth(1));
    mounts.flat_map(|mount| find(Path::new(mount), &names)).collect()
}

fn find(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders =
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    let is_meant = |path: &Path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("scot-") && names.contains(&name))
    };
    folders.flat_map(|path| if is_meant(&path) { vec![path] } else { find(&path, names) }).collect()
}

fn signal(name: &str, pid: u32) {
    let words = ["-c", "kill -s \"$1\" \"$2\"", "sh", name, &pid.to_string()];
    assert!(Command::new("sh").args(words).status().expect("sh runs").success());
}

#[test]
fn a_signal_reaches_the_command_and_its_group_goes_with_it() {
    if !can_limit() {
        return;
    }
    let folder = folder("device-signal");
    let child = start(&folder, "trap 'exit 7' TERM", "while :; do sleep 0.02; done");
    let groups = groups_of(pid_in(&folder));
    assert!(!groups.is_empty());
    signal("TERM", child.id());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(7), "{}", err(&output));
    assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
}

#[test]
fn who_does_not_heed_the_first_signal_is_ended_by_the_second() {
    if !can_limit() {
        return;
    }
    let folder = folder("device-deaf");
    let child = start(&folder, "trap 'touch heard' TERM HUP", "while :; do sleep 0.02; done");
    signal("TERM", child.id());
    assert!(wait_until(PATIENCE, || folder.path().join("heard").exists()), "the first reaches it");
    signal("HUP", child.id());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(137), "{}", err(&output));
}

#[test]
fn what_a_killed_run_leaves_is_swept() {
    if !can_limit() {
        return;
    }
    let folder = folder("device-killed");
    let mut child = start(&folder, ":", "sleep 1000 & wait");
    let pid = pid_in(&folder);
    let groups = groups_of(pid);
    child.kill().and_then(|()| child.wait()).expect("it is ours");
    assert!(
        wait_until(PATIENCE, || !Path::new(&format!("/proc/{pid}/exe")).exists()),
        "the command ends with it"
    );
    assert!(!groups.is_empty() && groups.iter().all(|group| group.exists()), "or there is nothing to sweep");
    let name = groups[0].file_name().expect("it has one").to_string_lossy().into_owned();
    let output = scot(&folder, &["lab", "down"]);
    // Another test's run may have swept it before.
    assert!(groups.iter().all(|group| !group.exists()), "{}{}", out(&output), err(&output));
    assert!(!out(&output).contains("control group") || out(&output).contains(&name), "{}", out(&output));
}

#[test]
fn what_the_page_tells_a_reader_to_type_runs() {
    let page = include_str!("../../../docs/edge-emulation.md");
    let blocks = page.split("```").skip(1).step_by(2).flat_map(str::lines);
    let lines: Vec<&str> = blocks.filter(|line| line.starts_with("scot lab device")).collect();
    assert!(lines.len() >= 3, "{lines:?}");
    let folder = folder("device-page");
    if !can_be_a_device(&folder) {
        return;
    }
    symlink(repository().join("lab"), folder.path().join("lab")).expect("it can be made");
    fs::write(folder.path().join("words.txt"), "violin\ncello\n").expect("it can be written");
    let beside = Path::new(SCOT).parent().expect("it is in a folder").display();
    let path = format!("{beside}:{}", std::env::var("PATH").expect("it is set"));
    for line in lines {
        let (line, code) = line.split_once("  # ends with ").unwrap_or((line, "0"));
        // Everybody on this machine would read his files anew.
        let line = line.replace(" --cold", "");
        let mut command = Command::new("sh");
        command.args(["-c", &line]).env("PATH", &path).current_dir(folder.path());
        let output = command.output().expect("sh runs");
        assert_eq!(output.status.code(), code.parse().ok(), "{line}: {}", err(&output));
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

const PROGRAM: &str = "#!/bin/sh
# $4 is the arm, $5 its settings.
case \"$5\" in *device*|*32MiB*) echo \"a program must not hear of its device: $5\" >&2; exit 1;; esac
case \"$4\" in
  waits) echo $$ >../pid.new; mv ../pid.new ../pid; exec sleep 1000 ;;
  flat) exec dd if=/dev/zero of=/dev/null bs=100000000 count=1 ;;
  *) echo '{\"recall\": 0.5, \"calls\": 3}' ;;
esac
";

const EXPERIMENT: &str = "name = 'study-trees'
title = 'Arms on a small machine'
runner = 'study'
repetitions = 2
covers = ['lab']
[[arm]]
name = 'codes'
settings = { passages = 7, device = { memory = '32MiB' } }
[[arm]]
name = 'flat'
settings = { passages = 7, device = { memory = '32MiB', may_be_killed = true } }
[[arm]]
name = 'elsewhere'
settings = { passages = 7 }
[[counter]]
arm = 'codes'
name = 'device_killed'
equals = 0
[[counter]]
arm = 'codes'
name = 'device_memory_limit_bytes'
equals = 33554432
[[counter]]
arm = 'flat'
name = 'device_killed'
equals = 1
[[counter]]
arm = 'elsewhere'
name = 'calls'
equals = 3
[[claim]]
claim = 'flat is killed'
unit = 'times'
required = 2.0
better = 'higher'
formula = { kind = 'sum', metric = 'device_killed', arm = 'flat' }
";

/// A repository whose experiment runs PROGRAM instead of Python.
fn fake_repository(name: &str, experiment: &str) -> Scratch {
    let folder = folder(name);
    for inner in ["lab/experiments", "lab/devices", "python", "target/python/bin"] {
        fs::create_dir_all(folder.path().join(inner)).expect("it can be made");
    }
    let program = folder.path().join("target/python/bin/python");
    fs::write(&program, PROGRAM).expect("it can be written");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it is ours");
    fs::write(folder.path().join("lab/experiments/study-trees.toml"), experiment).expect("it can be written");
    folder
}

#[test]
fn an_arm_runs_under_the_limits_of_its_device_and_its_end_by_them_is_measured() {
    if access() != Access::Direct || !can_limit() {
        return eprintln!("SKIP: experiments under limits take root");
    }
    let run = |folder: &Scratch| scot(folder, &["lab", "run", "study-trees", "--no-results"]);
    let output = run(&fake_repository("device-arm", EXPERIMENT));
    assert!(output.status.success(), "{}{}", out(&output), err(&output));
    assert!(out(&output).contains("flat is killed") && out(&output).contains('2'), "{}", out(&output));
    // Where no arm says that this may be, it is an error that says what happened.
    let strict = EXPERIMENT.replace(", may_be_killed = true", "");
    let parts = ["measure the arm `flat`", "more memory than 33.6 MB", "the kernel ended it"];
    assert_refused(&run(&fake_repository("device-strict", &strict)), 3, &parts);
    // Without the limit nothing is killed: the counters find it out.
    let without = EXPERIMENT.replace("device = { memory = '32MiB', may_be_killed = true }", "other = 1");
    let output = run(&fake_repository("device-without", &without));
    assert!(!output.status.success(), "{}{}", out(&output), err(&output));
    // A device that cannot be understood ends the run before anything is measured.
    let wrong = EXPERIMENT.replace("device = { memory = '32MiB' }", "device = 'nowhere'");
    let parts = ["the setting `device` of the arm `codes`", "nowhere.toml"];
    assert_refused(&run(&fake_repository("device-wrong", &wrong)), 3, &parts);
}

#[test]
fn an_interrupted_experiment_takes_the_group_of_its_arm_with_it() {
    if access() != Access::Direct || !can_limit() {
        return eprintln!("SKIP: experiments under limits take root");
    }
    let folder = fake_repository("device-interrupt", &EXPERIMENT.replace("'codes'", "'waits'"));
    let mut command = Command::new(SCOT);
    command.args(["lab", "run", "study-trees", "--no-results"]).current_dir(folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    assert!(wait_until(PATIENCE, || folder.path().join("pid").exists()), "it measures");
    let pid = pid_in(&folder);
    let groups = groups_of(pid);
    assert!(!groups.is_empty());
    signal("INT", child.id());
    assert_refused(&child.wait_with_output().expect("it ends"), 130, &["interrupted"]);
    assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it was reaped");
}
