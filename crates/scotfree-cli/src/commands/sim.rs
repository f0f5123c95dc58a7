//! The command `scot sim`.
//!
//! Invariant: a violated invariant is exit code 1, with the seed that repeats it.

use crate::cli::Sim;
use crate::failure::Failure;
use crate::out;
use remedy_persist_world::{campaign, Depth, Options, Scenario};
use std::io::IsTerminal;
use std::ops::Range;
use std::time::Instant;

pub fn run(flags: &Sim) -> Result<(), Failure> {
    let worlds = Worlds::of(flags);
    match (&flags.seeds, flags.seed) {
        (Some(seeds), _) => many(range(seeds)?, &worlds),
        (None, Some(seed)) => one(seed, if flags.trace { Depth::All } else { Depth::Last }, &worlds),
        (None, None) => Err(Failure::usage("give --seeds FIRST..END or --seed SEED")),
    }
}

fn range(text: &str) -> Result<Range<u64>, Failure> {
    let parsed = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    parsed.filter(|range: &Range<u64>| !range.is_empty()).ok_or_else(|| {
        Failure::usage(format!("`{text}` is no range of seeds; allowed is FIRST..END, such as 0..2000"))
    })
}

/// Which worlds are run, and the flag that says so.
struct Worlds {
    scenario: fn(u64) -> Scenario,
    flag: &'static str,
}

impl Worlds {
    fn of(flags: &Sim) -> Worlds {
        match (flags.storm, flags.several) {
            (true, _) => Worlds { scenario: Scenario::storm, flag: " --storm" },
            (false, true) => Worlds { scenario: Scenario::several, flag: " --several" },
            (false, false) => Worlds { scenario: Scenario::random, flag: "" },
        }
    }
}

fn one(seed: u64, depth: Depth, worlds: &Worlds) -> Result<(), Failure> {
    match remedy_persist_world::run(seed, (worlds.scenario)(seed), depth) {
        Ok(report) => {
            out::text(report);
            Ok(())
        }
        Err(failure) => {
            out::text(failure);
            Err(Failure::Verdict)
        }
    }
}

fn many(seeds: Range<u64>, worlds: &Worlds) -> Result<(), Failure> {
    let begun = Instant::now();
    let options = Options { scenario: &worlds.scenario, ..Options::default() };
    let count = seeds.end - seeds.start;
    let is_terminal = std::io::stderr().is_terminal();
    let mut shown = Instant::now();
    let repeat = worlds.flag;
    let report = campaign(seeds, &options, |progress| {
        if is_terminal && shown.elapsed().as_millis() >= 200 {
            shown = Instant::now();
            eprint!("\r{} of {count} seeds, {} failed ", progress.done_count, progress.failed_count);
        }
    });
    if is_terminal {
        eprint!("\r\x1b[K");
    }
    out::text(report.total);
    out::line(format_args!("{:>20} {:.1} s", "wall clock", begun.elapsed().as_secs_f64()));
    for failure in &report.failures {
        let (seed, violation) = (failure.seed, &failure.violation);
        out::line(format_args!(
            "seed {seed}: {:?}: {}; repeat it: scot sim --seed {seed}{repeat}",
            violation.invariant, violation.detail
        ));
    }
    if report.failures.is_empty() {
        Ok(())
    } else {
        Err(Failure::Verdict)
    }
}
