//! What is left of a demonstration that was killed: nothing that runs, and nothing at all after a sweep.

use scotfree_stage::netns::{access, Access};
use scotfree_stage::process::{find_tool, wait_until};
use scotfree_stage::scratch::Scratch;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_killed_demonstration_takes_its_processes_with_it_and_the_next_run_sweeps_the_rest() {
    let is_direct = match access() {
        Access::Direct => true,
        Access::UserNamespace => false,
        Access::None(trouble) => {
            eprintln!("SKIP: {trouble}");
            return;
        }
    };
    let service = if find_tool("redis-server").is_some() { "redis" } else { "kv" };
    let folder = Scratch::new("killed").expect("temporary files can be written");
    let mut demo = start(service, folder.path());
    let said = folder.path().join("said");
    assert!(wait_until(PATIENCE, || read(&said).contains("behind scot") || read(&said).contains("scot kv")));
    let children = children_of(demo.id());
    assert!(children.len() >= 2, "the device and the server: {children:?}");
    let pid = demo.id();
    demo.kill().and_then(|()| demo.wait()).expect("it is ours");
    assert!(wait_until(PATIENCE, || children.iter().all(|child| !is_running(*child))), "{children:?}");
    assert!(!folders_of(pid).is_empty(), "or there is nothing to sweep");
    sweep(is_direct, folder.path());
    assert_eq!(folders_of(pid), Vec::<String>::new());
    if is_direct {
        assert!(!namespaces().contains(&format!("scot-demo-{pid}-")), "{}", namespaces());
    }
}

fn start(service: &str, folder: &Path) -> Child {
    let said = File::create(folder.join("said")).expect("it can be written");
    let words = ["demo", "--json", "--seconds", "60", "--service", service];
    let mut command = Command::new(env!("CARGO_BIN_EXE_scot"));
    command.args(words).stderr(said).spawn().expect("the command starts")
}

#[test]
fn what_was_kept_up_stays_until_it_is_named() {
    if access() != Access::Direct {
        eprintln!("SKIP: network namespaces that stay need root");
        return;
    }
    let folder = Scratch::new("kept").expect("temporary files can be written");
    let name = lab_up(folder.path());
    let namespace = format!("scot-{name}-client");
    let inside = ["netns", "exec", &namespace, "sleep", "1000"];
    let mut inside =
        Command::new(find_tool("ip").expect("there is access")).args(inside).spawn().expect("ip runs");
    assert!(wait_until(PATIENCE, || !ip(&["netns", "pids", &namespace]).is_empty()), "it is inside");
    let shown = scot(&["lab", "down"]);
    assert!(shown.contains(&format!("scot lab down {name}\n")), "{shown}");
    assert!(namespaces().contains(&namespace) && inside.try_wait().expect("it is ours").is_none());
    let shown = scot(&["lab", "down", &name]);
    assert!(shown.contains(&format!("{name} removed")) && !namespaces().contains(&namespace), "{shown}");
    assert!(!inside.wait().expect("it is ours").success(), "it was ended");
}

/// Sweeps as the next user of the lab does.
fn sweep(is_direct: bool, folder: &Path) {
    if is_direct {
        // Bringing a lab up sweeps before.
        scot(&["lab", "down", &lab_up(folder)]);
    } else {
        scot(&["lab", "down"]);
    }
}

/// Brings up a lab that stays up; its name.
fn lab_up(folder: &Path) -> String {
    let kind = folder.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit('-').next());
    let name = format!("t-{}-{}", kind.expect("a scratch folder"), std::process::id());
    let text = include_str!("../../../lab/topologies/one-device.toml");
    let file = folder.join(format!("{name}.toml"));
    fs::write(&file, text.replace("one-device", &name)).expect("it can be written");
    scot(&["lab", "up", file.to_str().expect("a plain path")]);
    name
}

fn scot(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_scot")).args(words).output().expect("the command starts");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let lists = threads.map(|thread| read(&thread.path().join("children")));
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Whether it does more than wait for a parent to hear of its end.
fn is_running(pid: u32) -> bool {
    let stat = read(Path::new(&format!("/proc/{pid}/stat")));
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn folders_of(pid: u32) -> Vec<String> {
    let temporary = std::env::temp_dir();
    let parents = [temporary.as_path(), Path::new("/dev/shm"), Path::new("/var/tmp")];
    let names = parents.iter().flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten());
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("scot-{pid}-"))).collect()
}

fn namespaces() -> String {
    ip(&["netns", "list"])
}

fn ip(words: &[&str]) -> String {
    let ip = find_tool("ip").expect("there is access to namespaces");
    let output = Command::new(ip).args(words).output().expect("ip runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
