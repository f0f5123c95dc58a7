//! What a remedy tells of its protocol in simulated time, by `scot sim --timed`: the lab knows no remedy.
//!
//! Invariant: an arm's settings are what is asked, but for the remedy's name; a repetition is a seed.

use super::{Context, Measured};
use crate::experiment::{Arm, Measurement};
use scotfree_stage::trouble::Trouble;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let scot = &context.options.scot;
    context.measure_in_turns(|arm, repetition| measure(scot, arm, u64::from(repetition) + 1))
}

fn measure(scot: &Path, arm: &Arm, seed: u64) -> Result<Measured, Trouble> {
    let words = words_of(arm, seed)?;
    let output = Command::new(scot).args(&words).output();
    let tried = || format!("run scot {}", words.join(" "));
    let output = output.map_err(|error| Trouble::new(tried(), error, "build scot"))?;
    let numbers = numbers_of(&output).map_err(|problem| Trouble::new(tried(), problem, "run it by hand"))?;
    Ok(measured(&numbers))
}

/// The words of the command.
fn words_of(arm: &Arm, seed: u64) -> Result<Vec<String>, Trouble> {
    let misses = |problem: String| {
        Trouble::new(format!("ask for the arm `{}`", arm.name), problem, "see the other arms of this file")
    };
    let remedy = arm.settings.get("remedy").and_then(toml::Value::as_str);
    let remedy = remedy.ok_or_else(|| misses("no remedy is named".into()))?;
    let mut pairs = Vec::new();
    for (name, value) in arm.settings.iter().filter(|(name, _)| *name != "remedy") {
        let value = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            other => return Err(misses(format!("{name} = {other} is neither a word nor a whole number"))),
        };
        pairs.push(format!("{name}={value}"));
    }
    let (timed, seed) = (pairs.join(","), seed.to_string());
    Ok(["sim", "--remedy", remedy, "--timed", &timed, "--seed", &seed, "--json"].map(String::from).into())
}

fn numbers_of(output: &Output) -> Result<BTreeMap<String, f64>, String> {
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("what it prints is not understood: {error}"))
}

/// Counts can be ruled on as counters, too.
fn measured(numbers: &BTreeMap<String, f64>) -> Measured {
    let mut measured = Measured::default();
    for (name, number) in numbers {
        measured.value(name, *number);
        if matches!(name.as_str(), "requests" | "resent") {
            measured.counter(name, *number as u64);
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn arm(settings: &[(&str, toml::Value)]) -> Arm {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Arm { name: "a".into(), settings: settings.collect() }
    }

    #[test]
    fn settings_are_what_is_asked() {
        let asked =
            arm(&[("remedy", "replicate".into()), ("protocol", "craq".into()), ("members", 3.into())]);
        let words = words_of(&asked, 7).expect("all are words or numbers");
        let timed = "members=3,protocol=craq";
        assert_eq!(words, ["sim", "--remedy", "replicate", "--timed", timed, "--seed", "7", "--json"]);
        for wrong in [arm(&[]), arm(&[("remedy", "replicate".into()), ("members", 1.5.into())])] {
            assert!(words_of(&wrong, 7).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_are_values_and_counts_are_counters_too() {
        let output = |code: i32, out: &str| Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: out.into(),
            stderr: b"scot: `x` is no setting\n".into(),
        };
        let numbers = numbers_of(&output(0, "{\"p50_us\":1.5,\"resent\":0.0}\n")).expect("they are numbers");
        let measured = measured(&numbers);
        assert!((measured.values["p50_us"] - 1.5).abs() < 1e-9);
        assert_eq!(measured.counters, BTreeMap::from([("resent".to_owned(), 0)]));
        assert!(numbers_of(&output(2, "")).expect_err("it has failed").contains("no setting"));
        assert!(numbers_of(&output(0, "none")).is_err());
    }
}
