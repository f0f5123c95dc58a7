//! The demonstration from end to end, with real processes in real namespaces.

use scotfree_lab::netns::{access, Access};
use std::process::{Command, Output};

fn demo(words: &[&str]) -> Option<Output> {
    if let Access::None(trouble) = access() {
        eprintln!("SKIP: {trouble}");
        return None;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_scot")).arg("demo").args(words).output();
    Some(output.expect("the command runs"))
}

fn assert_shown(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((shown["plane"].as_str(), shown["durability"].as_str()), (Some("user"), Some("ram:1")));
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
    assert_eq!(app("remedy"), Some(0.0), "the device answers it with the remedy");
    assert!(said.contains(" acknowledged, ") && said.contains(" 0 lost, 0 applied twice"), "{said}");
}

#[test]
fn the_embedded_server_loses_nothing() {
    if let Some(output) = demo(&["--json", "--seconds", "3", "--service", "kv"]) {
        assert_shown(&output);
    }
}

#[test]
fn a_real_redis_loses_nothing() {
    if scotfree_lab::process::find_tool("redis-server").is_none() {
        eprintln!("SKIP: redis-server is not installed (apt-get install redis-server)");
    } else if let Some(output) = demo(&["--json", "--seconds", "3", "--service", "redis"]) {
        assert_shown(&output);
    }
}
