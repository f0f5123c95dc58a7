//! `scot lab confirm` on a repository of its own, whose experiment measures what a file says.
#![cfg(feature = "lab")]

use scotfree_stage::netns::{access, Access};
use scotfree_stage::scratch::Scratch;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// It stands in for Python, in the folder python.
const PROGRAM: &str = "#!/bin/sh
cat ../value
";

const EXPERIMENT: &str = "name = 'slow-thing'
title = 'How long it takes'
runner = 'study'
repetitions = 3
covers = ['lab/experiments']
[[arm]]
name = 'it'
[[counter]]
name = 'lost'
equals = 0
[[claim]]
claim = 'how long it takes'
unit = 's'
required = 100.0
better = 'lower'
formula = { kind = 'median', metric = 'wall_s', arm = 'it' }
";

struct Repository(Scratch);

impl Repository {
    fn new() -> Repository {
        let repository = Repository(Scratch::new("confirm").expect("temporary files can be written"));
        repository.write("lab/experiments/slow-thing.toml", EXPERIMENT);
        repository.write("target/python/bin/python", PROGRAM);
        repository.write("python/empty", "");
        repository.measures(10.0, 0);
        let program = repository.path().join("target/python/bin/python");
        fs::set_permissions(program, PermissionsExt::from_mode(0o755)).expect("it is ours");
        repository
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.path().join(file);
        fs::create_dir_all(file.parent().expect("it has one")).expect("it can be made");
        fs::write(file, text).expect("it can be written");
    }

    /// From now on it takes so long and loses so many.
    fn measures(&self, wall_s: f64, lost: u64) {
        self.write("value", &format!("{{\"wall_s\": {wall_s:?}, \"lost\": {lost}}}\n"));
    }

    fn commit(&self) {
        self.git(&["add", "lab/experiments"]);
        let who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
        self.git(&[&who[..], &["commit", "-q", "-m", "x"]].concat());
    }

    fn git(&self, words: &[&str]) {
        let output = Command::new("git").args(words).current_dir(self.path()).output().expect("git is here");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn scot(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scot"));
        command.args(words).current_dir(self.path()).output().expect("the command runs")
    }

    fn result(&self) -> String {
        fs::read_to_string(self.path().join("lab/results/slow-thing.json")).expect("it was measured")
    }
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

#[track_caller]
fn ends(output: &Output, code: i32, parts: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
}

#[test]
fn what_comes_out_as_recorded_is_confirmed_and_what_does_not_is_named() {
    if matches!(access(), Access::None(_)) {
        return eprintln!("SKIP: no network namespaces can be made here");
    }
    let repository = Repository::new();
    repository.git(&["init", "-q"]);
    repository.commit();
    ends(
        &repository.scot(&["lab", "confirm"]),
        3,
        &["not recorded", "never measured", "scot lab run slow-thing"],
    );
    ends(&repository.scot(&["lab", "run", "slow-thing"]), 0, &["met"]);
    let recorded = repository.result();
    assert!(
        recorded.contains("\"priority\": \"normal\"") && recorded.contains("\"processor\": "),
        "{recorded}"
    );

    // Nothing has changed; who names it gets it confirmed all the same.
    ends(&repository.scot(&["lab", "confirm"]), 0, &["the code is that of their results: 1", "0 confirmed"]);
    repository.measures(10.4, 0);
    ends(&repository.scot(&["lab", "confirm", "slow-thing"]), 0, &["slow-thing  confirmed", "1 confirmed"]);
    let confirmed = repository.result();
    assert!(confirmed.starts_with(recorded.trim_end().trim_end_matches("\n}")), "{confirmed}");
    assert!(confirmed.contains("\"how long it takes\": 10.4"), "{confirmed}");

    // A value outside is named, and nothing is written.
    repository.write("lab/experiments/more", "");
    repository.commit();
    ends(&repository.scot(&["claims"]), 0, &["older than the code: 1 commit", "confirmed"]);
    repository.measures(11.0, 0);
    let worse = ["WORSE", "worse: 11 s, expected 9.5 .. 10.5: how long it takes", "scot lab run slow-thing"];
    ends(&repository.scot(&["lab", "confirm"]), 1, &worse);
    repository.measures(9.0, 0);
    ends(&repository.scot(&["lab", "confirm"]), 3, &["better: 9 s", "not all is confirmed"]);
    repository.measures(10.0, 1);
    ends(&repository.scot(&["lab", "confirm"]), 1, &["WORSE", "`lost` is 1"]);
    assert_eq!(repository.result(), confirmed);

    // Code that is in no commit is not confirmed.
    repository.measures(10.0, 0);
    repository.write("lab/experiments/more", "x");
    ends(
        &repository.scot(&["lab", "confirm"]),
        0,
        &["not written: the code has changes that are in no commit"],
    );
    assert_eq!(repository.result(), confirmed);
}

#[test]
fn an_unknown_experiment_and_an_unknown_runner_are_refused_with_those_known() {
    if matches!(access(), Access::None(_)) {
        return eprintln!("SKIP: no network namespaces can be made here");
    }
    let repository = Repository::new();
    let known = ["no experiment `slow-thin`", "slow-thing"];
    ends(&repository.scot(&["lab", "confirm", "slow-thin"]), 2, &known);
    repository.write("lab/experiments/slow-thing.toml", &EXPERIMENT.replace("'study'", "'sturdy'"));
    let known = ["`slow-thing` names the runner `sturdy`", "study", "update-ack"];
    ends(&repository.scot(&["lab", "run", "slow-thing"]), 2, &known);
    ends(&repository.scot(&["lab", "run", "slow-thing", "--priority", "high"]), 2, &["normal, real-time"]);
}
