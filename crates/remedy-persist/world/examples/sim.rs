//! Runs the simulator from the command line: many seeds, or one with everything that happened.
//!
//! `cargo run --release -p remedy-persist-world --example sim -- --seeds 0..2000`
//! `cargo run --release -p remedy-persist-world --example sim -- --seed 7 --trace`
//!
//! `--hash` adds a hash over all that happened, to compare one build's runs with another's;
//! `--plant IgnoreOrder` switches a safety rule off, to see what the simulator says of it; `--storm`,
//! `--several` (servers behind one chain of devices) and `--made NAME` take other scenarios than the random ones.

use remedy_persist_world::{campaign, made, run, Depth, Options, Scenario};
use scotfree_session::Fault;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: sim (--seeds FIRST..END | --seed SEED [--trace]) [--hash] \
    [--storm | --several | --made NAME] [--plant FAULT]";

/// What is to be run.
#[derive(Debug)]
struct Wish {
    seeds: Range<u64>,
    depth: Option<Depth>,
    hashed: bool,
    planted: Option<Fault>,
    maker: fn(u64) -> Scenario,
}

fn main() -> ExitCode {
    let Some(wish) = read_wish(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match wish.depth {
        Some(depth) => run_one(&wish, depth),
        None => run_many(&wish),
    }
}

fn faults() -> impl Iterator<Item = Fault> {
    Fault::ALL.into_iter().chain(Fault::OF_SERVERS)
}

fn read_wish(mut words: impl Iterator<Item = String>) -> Option<Wish> {
    let mut wish = Wish { seeds: 0..0, depth: None, hashed: false, planted: None, maker: Scenario::random };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => {
                let range = words.next()?;
                let (first, end) = range.split_once("..")?;
                wish.seeds = first.parse().ok()?..end.parse().ok()?;
            }
            "--seed" => {
                let seed: u64 = words.next()?.parse().ok()?;
                wish.seeds = seed..seed + 1;
                wish.depth = wish.depth.or(Some(Depth::Last));
            }
            "--trace" => wish.depth = Some(Depth::All),
            "--hash" => wish.hashed = true,
            "--storm" => wish.maker = Scenario::storm,
            "--several" => wish.maker = Scenario::several,
            "--made" => {
                let name = words.next()?;
                wish.maker = made::ALL.into_iter().find(|(known, _)| *known == name)?.1;
            }
            "--plant" => {
                let name = words.next()?;
                wish.planted = Some(faults().find(|fault| format!("{fault:?}") == name)?);
            }
            _ => return None,
        }
    }
    (!wish.seeds.is_empty()).then_some(wish)
}

impl Wish {
    fn scenario(&self, seed: u64) -> Scenario {
        Scenario { planted: self.planted, ..(self.maker)(seed) }
    }
}

fn run_one(wish: &Wish, depth: Depth) -> ExitCode {
    match run(wish.seeds.start, wish.scenario(wish.seeds.start), depth) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            print!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_many(wish: &Wish) -> ExitCode {
    let begun = Instant::now();
    let maker = |seed| wish.scenario(seed);
    let depth = if wish.hashed { Depth::Hashed } else { Depth::Last };
    let options = Options { scenario: &maker, depth, ..Options::default() };
    let report = campaign(wish.seeds.clone(), &options, |_| {});
    print!("{}", report.total);
    println!("{:>20} {:.1} s", "wall clock", begun.elapsed().as_secs_f64());
    for failure in &report.failures {
        println!("seed {}: {:?}: {}", failure.seed, failure.violation.invariant, failure.violation.detail);
    }
    if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
