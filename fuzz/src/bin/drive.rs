//! Fuzzes with stable Rust: seeded, bounded in time, over the same targets as libFuzzer.
//!
//! Invariant: the exit status is 0 only if every target took every input.

use scotfree_fuzz::driver::{drive, holds, Finding, Plan};
use scotfree_fuzz::{target, Target, TARGETS};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage: drive [OPTION]...
  --list               name the targets
  --target NAME        fuzz this one only
  --seconds N          for so long, each target (10)
  --seed N             determines every input (1)
  --first N --inputs N run only these places
  --input FILE         run one target on a file
  --write-corpus DIR   write the seeds of every target and end";

/// What the command line asks for.
struct Options {
    list: bool,
    targets: Vec<&'static Target>,
    plan: Plan,
    input: Option<PathBuf>,
    corpus: Option<PathBuf>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let plan = Plan { seed: 1, first: 0, inputs_max: u64::MAX, time_max: Duration::from_secs(10) };
    let mut options =
        Options { list: false, targets: TARGETS.iter().collect(), plan, input: None, corpus: None };
    while let Some(word) = words.next() {
        if word == "--list" {
            options.list = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("`{word}` stands alone\n{USAGE}"))?;
        let number = || value.parse().map_err(|_| format!("`{value}` is no number\n{USAGE}"));
        match word.as_str() {
            "--target" => {
                options.targets =
                    vec![target(&value).ok_or_else(|| format!("there is no target `{value}`"))?];
            }
            "--seconds" => options.plan.time_max = Duration::from_secs(number()?),
            "--seed" => options.plan.seed = number()?,
            "--first" => options.plan.first = number()?,
            "--inputs" => options.plan.inputs_max = number()?,
            "--input" => options.input = Some(value.into()),
            "--write-corpus" => options.corpus = Some(value.into()),
            _ => return Err(format!("`{word}` is not understood\n{USAGE}")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<(), String> {
    if options.list {
        options.targets.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    }
    for target in &options.targets {
        match (&options.corpus, &options.input) {
            (Some(folder), _) => write_corpus(target, folder)?,
            (None, Some(file)) => run_file(target, file)?,
            (None, None) => fuzz(target, &options.plan)?,
        }
    }
    Ok(())
}

fn fuzz(target: &Target, plan: &Plan) -> Result<(), String> {
    match drive(target, plan) {
        Ok(count) => {
            println!("{}: {count} inputs, seed {}, nothing found", target.name, plan.seed);
            Ok(())
        }
        Err(finding) => Err(report(target, plan, &finding)),
    }
}

fn report(target: &Target, plan: &Plan, finding: &Finding) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(target.name);
    let file = folder.join(format!("seed-{}-place-{}", plan.seed, finding.place));
    let kept = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, &finding.input));
    let kept = match kept {
        Ok(()) => format!("the input is in {}", file.display()),
        Err(error) => format!("the input could not be written to {}: {error}", file.display()),
    };
    format!(
        "{} panicked; {kept}; again: drive --target {} --seed {} --first {} --inputs 1",
        target.name, target.name, plan.seed, finding.place
    )
}

fn run_file(target: &Target, file: &Path) -> Result<(), String> {
    let input = std::fs::read(file).map_err(|error| format!("reading {}: {error}", file.display()))?;
    if holds(target, &input) {
        println!("{}: {} is taken", target.name, file.display());
        Ok(())
    } else {
        Err(format!("{} panics on {}", target.name, file.display()))
    }
}

fn write_corpus(target: &Target, folder: &Path) -> Result<(), String> {
    let folder = folder.join(target.name);
    let written = std::fs::create_dir_all(&folder).and_then(|()| {
        let mut seeds = (target.seeds)().into_iter().enumerate();
        seeds.try_for_each(|(index, seed)| std::fs::write(folder.join(format!("seed-{index}")), seed))
    });
    written.map_err(|error| format!("writing the seeds to {}: {error}", folder.display()))
}
