//! The demonstration from end to end, with real processes in real namespaces.

use scotfree_stage::kernel_plane::try_programs;
use scotfree_stage::netns::{access, Access};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn demo(words: &[&str]) -> Option<Output> {
    if let Access::None(trouble) = access() {
        eprintln!("SKIP: {trouble}");
        return None;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_scot")).arg("demo").args(words).output();
    Some(output.expect("the command runs"))
}

fn assert_shown(output: &Output, plane: &str) -> serde_json::Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((shown["plane"].as_str(), shown["durability"].as_str()), (Some(plane), Some("ram:1")));
    let count = |key: &str| shown[key].as_u64().unwrap_or_else(|| panic!("no {key} in {shown}"));
    assert!(count("acked") > 100, "{shown}");
    assert_eq!((count("found"), count("lost"), count("doubled")), (count("acked"), 0, 0), "{said}");
    for arm in ["baseline", "remedy"] {
        for method in ["SET", "GET"] {
            let row = &shown["stages"][arm][method];
            assert!(row["total_ns"].as_f64().is_some_and(|total| total > 0.0), "{arm} {method}: {row}");
        }
    }
    let app = |arm: &str| shown["stages"][arm]["SET"]["stages_ns"]["server_app"].as_f64();
    assert!(app("baseline") > Some(0.0), "the server alone answers a SET without the remedy");
    let of_remedy = shown["stages"]["remedy"]["SET"]["stages_ns"].as_object().expect("nine stages");
    for stage in ["request_wire", "server_recv_queue", "server_app", "server_send_queue", "response_stack"] {
        assert!(
            of_remedy[stage].is_null(),
            "the device answers it with the remedy, without {stage}: {shown}"
        );
    }
    for way in ["without_remedy", "covered", "persist"] {
        assert_seen(&shown, way);
    }
    for way in ["covered", "persist"] {
        assert_rates(&shown, way);
    }
    assert!(said.contains(" acknowledged, ") && said.contains(" 0 lost, 0 applied twice"), "{said}");
    shown
}

#[test]
fn gets_that_the_device_answers_are_shown_beside_redis_alone() {
    if Command::new("redis-server").arg("--version").output().is_err() {
        return eprintln!("SKIP: redis-server is not installed: apt-get install redis-server");
    }
    let Some(output) = demo(&["--cache", "--json", "--seconds", "2"]) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    let count = |key: &str| shown[key].as_u64().unwrap_or_else(|| panic!("no {key} in {shown}"));
    assert!(count("reads") > 100 && count("hits") <= count("reads"), "{shown}");
    for way in ["redis_alone", "without_cache", "with_cache"] {
        assert!(shown[way]["p50_ns"].as_f64() > Some(0.0), "{way}: {shown}");
    }
    let stages =
        |arm: &str| shown["stages"][arm]["GET"]["stages_ns"].as_object().expect("nine stages").clone();
    assert!(stages("baseline")["server_app"].as_f64() > Some(0.0), "the Redis answers: {shown}");
    assert!(stages("remedy")["server_app"].is_null(), "the device answers: {shown}");
    assert!(said.contains("the Redis saw none of these"), "{said}");
}

/// A client has measured a way.
fn assert_seen(shown: &serde_json::Value, way: &str) {
    for method in ["SET", "GET"] {
        let latency = &shown["seen"][way][method];
        let time = |key: &str| latency[key].as_f64().unwrap_or_else(|| panic!("no {key}: {latency}"));
        assert!(time("p50_ns") > 0.0 && time("p99_ns") >= time("p50_ns"), "{way} {method}: {latency}");
        assert!(latency["count"].as_u64() > Some(0), "{way} {method}: {latency}");
    }
}

/// One connection and many have measured a way.
fn assert_rates(shown: &serde_json::Value, way: &str) {
    for (sets, connections) in [("one", 1), ("many", 16)] {
        assert_eq!(shown["seen"][sets]["connections"], connections);
        let rate = &shown["seen"][sets]["ways"][way];
        let number = |key: &str| rate[key].as_f64().unwrap_or_else(|| panic!("no {key}: {rate}"));
        assert!(number("per_s") > 0.0 && number("p99_ns") >= number("p50_ns"), "{sets} {way}: {rate}");
    }
}

/// Without a Redis nothing is compared with one, and nothing is cut.
fn assert_no_redis(shown: &serde_json::Value) {
    assert!(shown.get("power_failure").is_none(), "{shown}");
    let seen: Vec<&String> = shown["seen"].as_object().expect("ways").keys().collect();
    assert_eq!(seen, ["covered", "many", "one", "persist", "without_remedy"]);
    for sets in ["one", "many"] {
        let ways: Vec<&String> = shown["seen"][sets]["ways"].as_object().expect("ways").keys().collect();
        assert_eq!(ways, ["covered", "persist"]);
    }
}

/// What `--plane auto` comes to here.
fn best_plane() -> &'static str {
    match try_programs() {
        Ok(()) => "xdp",
        Err(trouble) => {
            eprintln!("SKIP: the plane in the kernel: {trouble}");
            "user"
        }
    }
}

#[test]
fn the_embedded_server_loses_nothing() {
    if let Some(output) = demo(&["--json", "--seconds", "3", "--service", "kv"]) {
        assert_no_redis(&assert_shown(&output, best_plane()));
    }
}

#[test]
fn a_power_failure_takes_from_redis_alone_and_nothing_behind_the_device() {
    if scotfree_stage::process::find_tool("redis-server").is_none() {
        eprintln!("SKIP: redis-server is not installed (apt-get install redis-server)");
    } else if let Some(output) = demo(&["--json", "--seconds", "3", "--service", "redis"]) {
        let shown = assert_shown(&output, best_plane());
        for way in ["redis_everysec", "redis_always", "redis_wait2", "proxy"] {
            assert_seen(&shown, way);
            assert_rates(&shown, way);
        }
        let control = &shown["power_failure"]["redis_everysec"];
        let count = |key: &str| control[key].as_u64().unwrap_or_else(|| panic!("no {key} in {shown}"));
        // On a busy disk Redis has not even written it, and nothing is cut.
        assert!(count("acked") > 100, "{shown}");
        assert!(count("acked") > count("found"), "the control loses what was cut or not written: {shown}");
        assert_eq!(count("lost"), count("acked") - count("found"));
        let said = String::from_utf8_lossy(&output.stderr);
        let rows = said.lines().filter(|line| line.starts_with(" Redis alone, ")).count();
        assert_eq!(rows, 6, "{said}");
        let place = |words: &str| said.find(words).unwrap_or_else(|| panic!("no `{words}` in {said}"));
        assert!(place("slower than Redis alone:") > place("16 connections"), "{said}");
    }
}

#[test]
fn the_plane_in_user_space_is_had_when_asked_for() {
    let Some(output) = demo(&["--json", "--seconds", "2", "--service", "kv", "--plane", "user"]) else {
        return;
    };
    assert_shown(&output, "user");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--plane user, as asked"), "{said}");
}

#[test]
fn a_report_is_drawn_of_the_calls_that_were_shown() {
    if scotfree_stage::process::find_tool("scot-study").is_none() {
        eprintln!("SKIP: there is no scot-study in the path (scripts/python.sh; target/python/bin)");
        return;
    }
    let folder = scotfree_stage::scratch::Scratch::new("picture").expect("a folder");
    let page = folder.path().join("demo.html");
    let words = ["--json", "--seconds", "2", "--service", "kv", "--plane", "user", "--report"];
    let words: Vec<&str> = words.into_iter().chain(page.to_str()).collect();
    let Some(output) = demo(&words) else { return };
    assert_shown(&output, "user");
    let page = std::fs::read_to_string(page).expect("a page");
    for name in ["store-without-remedy", "store-with-persist"] {
        assert!(page.contains(name), "the page names {name}");
    }
    assert!(folder.path().join("demo.traces/baseline.jsonl").is_file());
    assert!(folder.path().join("demo.fits/persist.json").is_file());
    // The plan is of the calls without the remedy; beside it stand what came, and the comparison.
    let said = String::from_utf8_lossy(&output.stderr);
    let place = |words: &str| said.find(words).unwrap_or_else(|| panic!("no `{words}` in {said}"));
    assert!(place("SET: a device of a process before") < place("persist was applied:"), "{said}");
    assert!(place("the forecast is") < place("compared by method"), "{said}");
    assert!(!said.contains("co-locate"), "only persist is asked for: {said}");
}

#[test]
fn the_calls_of_a_fit_are_recorded_on_both_sides() {
    if let Access::None(trouble) = access() {
        eprintln!("SKIP: {trouble}");
        return;
    }
    let folder = scotfree_stage::scratch::Scratch::new("fit").expect("a folder");
    let calls = folder.path().join("calls");
    let words = ["lab", "fit-calls", "--json", "--plane", "user", "--service", "kv"];
    let output = Command::new(env!("CARGO_BIN_EXE_scot")).args(words).arg(&calls).output();
    let output = output.expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((made["plane"].as_str(), made["service"].as_str()), (Some("user"), Some("kv")));
    for (side, file) in ["baseline.jsonl", "remedy.jsonl"].iter().enumerate() {
        let records = std::fs::read_to_string(calls.join(file)).expect("the records");
        let sets = records.matches("\"SET\"").count() as u64;
        assert!(sets > 0 && Some(sets) >= made["calls"][side].as_u64(), "{sets} of {made}");
    }
    assert!(!said.contains("progress") && std::fs::read_dir(&calls).expect("a folder").count() == 2);
}

/// A report in a folder that is not there is refused before anything runs, and makes none.
#[test]
fn a_report_in_a_folder_that_is_not_there_is_refused() {
    let folder = scotfree_stage::scratch::Scratch::new("no-folder").expect("a folder");
    let page = folder.path().join("mistyped/demo.html");
    let output = Command::new(env!("CARGO_BIN_EXE_scot")).args(["demo", "--report"]).arg(&page).output();
    let output = output.expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no folder") && said.contains("mistyped"), "{said}");
    assert!(output.stdout.is_empty() && !folder.path().join("mistyped").exists());
}

#[test]
fn an_interrupted_demo_ends_as_shells_have_it() {
    if let Access::None(trouble) = access() {
        eprintln!("SKIP: {trouble}");
        return;
    }
    interrupt("kv");
    if scotfree_stage::process::find_tool("redis-server").is_none() {
        eprintln!("SKIP: redis-server is not installed (apt-get install redis-server)");
    } else {
        interrupt("redis");
    }
}

fn interrupt(service: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scot"));
    command.args(["demo", "--service", service, "--plane", "user", "--seconds", "60"]);
    let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut lines = BufReader::new(demo.stdout.take().expect("it is piped")).lines();
    let is_up = lines.any(|line| line.is_ok_and(|line| line.contains("measuring SET and GET")));
    assert!(is_up, "it gets as far as measuring");
    let id = demo.id().to_string();
    let sent = Command::new("sh").args(["-c", "kill -s INT \"$1\"", "sh", &id]).status();
    assert!(sent.expect("every system has a shell").success());
    // What it says further is read, so that it does not wait for a reader.
    lines.for_each(drop);
    let output = demo.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{service}: {said}");
    assert!(said.contains("interrupted; what was made has been removed"), "{service}: {said}");
    assert_eq!(left_of(&id), Vec::<String>::new(), "{service}");
}

/// The namespaces of a demo, and the processes that have its folders.
fn left_of(id: &str) -> Vec<String> {
    let name = format!("demo-{id}-");
    let names = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let namespaces = names("/run/netns").map(|entry| entry.file_name().to_string_lossy().into_owned());
    let words = names("/proc").filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    namespaces.chain(words).filter(|text| text.contains(&name)).collect()
}

/// Who is not root has a user namespace of his own, where the kernel takes no programs.
#[test]
fn without_rights_the_plane_is_the_other_one_and_says_why() {
    let Some(output) = demo_as_nobody(&["--json", "--seconds", "2", "--service", "kv"]) else { return };
    assert_shown(&output, "user");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert!(
        shown["plane_reason"].as_str().is_some_and(|reason| reason.contains("user namespace")),
        "{shown}"
    );
    let Some(refused) = demo_as_nobody(&["--service", "kv", "--plane", "xdp"]) else { return };
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("user namespace") && said.contains("--plane user"), "{said}");
}

fn demo_as_nobody(words: &[&str]) -> Option<Output> {
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_scot")]);
        command.args(words).current_dir("/").output()
    };
    // Only root becomes nobody, and nobody must be able to reach the command and to have a user namespace.
    let is_possible = as_nobody(&["--version"]).is_ok_and(|output| output.status.success())
        && Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "unshare", "-Urnm", "true"])
            .output()
            .is_ok_and(|output| output.status.success());
    if !is_possible {
        eprintln!("SKIP: this process cannot run the demo as another user (setpriv, as root)");
        return None;
    }
    Some(as_nobody(&[&["demo"], words].concat()).expect("it has just run"))
}
