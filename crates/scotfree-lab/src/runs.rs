//! Runs the experiments of `lab/experiments`: brings up what they compare, measures the arms in turns, and
//! writes what was measured.
//!
//! Invariant: a result is written only if every repetition was measured and every counter says that what
//! was measured is what the arms' names promise; whatever ends a run, all that it made is removed.

#[cfg(feature = "xdp")]
mod bare_calls;
mod chain;
mod daemon_deaths;
pub mod demo;
#[cfg(feature = "xdp")]
mod disk_acks;
mod disk_domain;
#[cfg(feature = "xdp")]
mod endpoints;
mod hostile_packets;
mod idle;
mod interrupt;
mod kill_rounds;
mod linearizability;
mod logging_designs;
mod on_device;
mod placement;
mod places;
#[cfg(feature = "xdp")]
mod playback;
mod probes;
mod ram3_replication;
mod recovery_time;
mod redis_always;
mod redis_load;
mod redis_stand;
#[cfg(feature = "xdp")]
mod reflection;
mod settings;
mod sidecar_overhead;
mod site;
mod stolen;
mod stores;
mod study;
mod study_faults;
mod study_forecast;
mod transactions;
mod update_ack;
pub mod worker;

use crate::environment::Environment;
use crate::experiment::{run_interleaved, Arm, Experiment, Measurement};
use crate::netns::RUN_FOLDER;
use crate::plot;
use crate::results::{judge, ExperimentResult, Verdict};
use crate::sweep::sweep_before_run;
use crate::topology::Topology;
use crate::trouble::{ConfigError, Trouble};
use crate::workload::Workload;
use idle::HaltPoll;
use indicatif::{ProgressBar, ProgressStyle};
use interrupt::Interrupt;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// What measures an experiment.
type Runner = fn(&Context<'_>) -> Result<Vec<Measurement>, Trouble>;

/// The experiments, the quick ones first.
const EXPERIMENTS: &[(&str, Runner)] = &[
    ("update-ack", update_ack::run),
    ("kernel-ack", update_ack::run),
    ("kernel-ack-awake", update_ack::run),
    ("kernel-ack-spinning", update_ack::run),
    ("kernel-ack-sizes", update_ack::run),
    ("kernel-ram3-cost", update_ack::run),
    #[cfg(feature = "xdp")]
    ("kernel-reflection", reflection::run),
    #[cfg(feature = "xdp")]
    ("kernel-reflection-awake", reflection::run),
    #[cfg(feature = "xdp")]
    ("kernel-throughput", playback::run),
    #[cfg(feature = "xdp")]
    ("kernel-disk", disk_acks::run),
    #[cfg(feature = "xdp")]
    ("af-xdp-endpoints", endpoints::run),
    ("ram3-cost", update_ack::run),
    ("bandwidth-latency", update_ack::run),
    ("placement", placement::run),
    ("logging-designs", logging_designs::run),
    ("logging-designs-replicated", logging_designs::run),
    ("disk-domain", disk_domain::run),
    ("hostile-packets", hostile_packets::run),
    ("probes", probes::run),
    ("records", probes::run),
    ("redis-always", redis_always::run),
    ("kernel-redis-always", redis_load::run),
    ("kernel-redis-disk", redis_load::run),
    ("redis-mixes", redis_load::run),
    ("redis-mixes-always", redis_load::run),
    ("twitter", transactions::run),
    ("tpcc", transactions::run),
    ("ram3-replication", ram3_replication::run),
    ("kernel-ram3-replication", ram3_replication::run),
    ("stores", stores::run),
    ("chain-failures", chain::run),
    ("kernel-deaths", daemon_deaths::run),
    ("recovery-time", recovery_time::run),
    ("sidecar-overhead", sidecar_overhead::run),
    ("sidecar-overhead-asleep", sidecar_overhead::run),
    ("linearizability", linearizability::run),
    ("kernel-linearizability", linearizability::run),
    ("study-ingest", study::run),
    ("study-quantiles", study::run),
    ("study-sketch", study::run),
    ("study-trees", study::run),
    ("study-what-if", study::run),
    ("study-cycles", study::run),
    ("study-report", study::run),
    ("study-faults", study_faults::run),
    ("study-forecast", study_forecast::run),
    ("study-whole", study::run),
    ("rag-churn", study::run),
    ("rag-four-bits", study::run),
    ("rag-codes", study::run),
    ("rag-edge", study::run),
    ("rag-first-token", study::run),
    ("rag-planner", study::run),
    ("rag-million", study::run),
    ("rag-kills", study::run),
    ("kill-rounds", kill_rounds::run),
    ("kill-rounds-cut", kill_rounds::run),
    ("kill-rounds-control", kill_rounds::run_control),
];
/// Those of them that take so long that they are run by name only.
const LONG: [&str; 6] =
    ["study-whole", "rag-million", "rag-kills", "kill-rounds", "kill-rounds-cut", "kill-rounds-control"];

/// How experiments are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// The command scot, of which the daemons are started.
    pub scot: PathBuf,
    /// The folder with `topologies`, `workloads`, `experiments` and `results`.
    pub lab_folder: PathBuf,
    /// Where the state of labs that are up is kept.
    pub run_folder: PathBuf,
    /// How often each arm is measured, if not as often as the experiment says.
    pub repetitions: Option<u32>,
    /// How many rounds of killing, if not as many as the experiment says.
    pub rounds: Option<u64>,
    /// Where randomness begins; a new place each time if none is given.
    pub seed: Option<u64>,
    /// Whether results are written to the lab's folder.
    pub write_results: bool,
    /// Where what the daemons print is kept; removed with everything else if none is given.
    pub log_folder: Option<PathBuf>,
}

impl RunOptions {
    /// All as the experiments say, in the lab of the current folder.
    pub fn new(scot: impl Into<PathBuf>) -> RunOptions {
        RunOptions {
            scot: scot.into(),
            lab_folder: "lab".into(),
            run_folder: RUN_FOLDER.into(),
            repetitions: None,
            rounds: None,
            seed: None,
            write_results: true,
            log_folder: None,
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// The results, in the order of running.
    pub results: Vec<ExperimentResult>,
    /// Claims whose required value was missed.
    pub missed_count: usize,
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no such experiment.
    #[error("there is no experiment `{name}`; there are {}", names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A file of the lab cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The environment could not do it.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// Somebody ended it.
    #[error("interrupted; what was made has been removed")]
    Interrupted,
}

/// The names of the experiments.
pub fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|(name, _)| *name).collect()
}

/// Runs experiments by name; without names, all but those that take very long. Progress goes to standard
/// error, claims with their verdicts to standard output. SIGINT and SIGTERM end it.
pub fn run(wanted: &[String], options: &RunOptions) -> Result<RunReport, RunError> {
    let chosen = choose(wanted)?;
    let interrupt = Interrupt::watch()?;
    sweep_before_run(&options.run_folder, &options.lab_folder);
    let mut report = RunReport { results: Vec::new(), missed_count: 0 };
    for (name, runner) in chosen {
        let result = run_one(name, runner, options, &interrupt);
        let result = if interrupt.has_come() { Err(RunError::Interrupted) } else { result }?;
        report.missed_count +=
            result.claims.iter().filter(|claim| claim.verdict() == Verdict::Missed).count();
        report.results.push(result);
    }
    if wanted.is_empty() {
        say(&format!("not run, since they take long: scot lab run {}", LONG.join(" ")));
    }
    Ok(report)
}

fn choose(wanted: &[String]) -> Result<Vec<(&'static str, Runner)>, RunError> {
    let find = |name: &String| {
        let found = EXPERIMENTS.iter().find(|(known, _)| known == name);
        found.copied().ok_or_else(|| RunError::Unknown { name: name.clone() })
    };
    if wanted.is_empty() {
        return Ok(EXPERIMENTS.iter().copied().filter(|(name, _)| !LONG.contains(name)).collect());
    }
    wanted.iter().map(find).collect()
}

fn run_one(
    name: &str,
    runner: Runner,
    options: &RunOptions,
    interrupt: &Interrupt,
) -> Result<ExperimentResult, RunError> {
    let mut experiment = Experiment::read(&lab_file(options, "experiments", name))?;
    if let Some(repetitions) = options.repetitions {
        experiment.repetitions = repetitions.max(1);
    }
    let repository = options.lab_folder.parent().filter(|path| !path.as_os_str().is_empty());
    let repository = repository.unwrap_or(Path::new("."));
    let halt_poll = experiment.halt_poll_ns.map(HaltPoll::set).transpose()?;
    let environment = Environment::observe(repository, &experiment.covers);
    let context = Context::new(&experiment, options, interrupt, halt_poll)?;
    eprintln!("{name}: {}", experiment.title);
    let series = runner(&context);
    context.bar.finish_and_clear();
    let series = series?;
    // A run of killing has as many repetitions as it has blocks of rounds.
    experiment.repetitions = series.iter().map(|one| one.repetition + 1).max().unwrap_or(0);
    let result = ExperimentResult::of(&experiment, environment, series)?;
    say(judge(std::slice::from_ref(&result), repository).text.trim_end());
    if options.write_results {
        let file = result.write(&options.lab_folder.join("results"))?;
        say(&format!("written: {}", file.display()));
        // What was measured is kept whatever its plot is: a plot can be made again.
        match plot::write(&experiment, &result, &options.lab_folder.join("results")) {
            Ok(file) => say(&format!("written: {}", file.display())),
            Err(trouble) => eprintln!("warning: {trouble}"),
        }
    }
    Ok(result)
}

fn lab_file(options: &RunOptions, kind: &str, name: &str) -> PathBuf {
    options.lab_folder.join(kind).join(format!("{name}.toml"))
}

/// What a runner works with.
struct Context<'a> {
    experiment: &'a Experiment,
    options: &'a RunOptions,
    interrupt: &'a Interrupt,
    topology: Topology,
    workload: Option<Workload>,
    bar: ProgressBar,
    /// Ends with the experiment.
    halt_poll: Option<HaltPoll>,
}

impl<'a> Context<'a> {
    fn new(
        experiment: &'a Experiment,
        options: &'a RunOptions,
        interrupt: &'a Interrupt,
        halt_poll: Option<HaltPoll>,
    ) -> Result<Context<'a>, ConfigError> {
        let read = |name: &String| Topology::read(&lab_file(options, "topologies", name));
        let topology = experiment.topology.as_ref().map(read).transpose()?.unwrap_or_default();
        let workload = experiment.workload.as_deref();
        let workload =
            workload.map(|name| Workload::read(&lab_file(options, "workloads", name))).transpose()?;
        // A lab of its own, so that another experiment or a demonstration may run meanwhile.
        let topology = Topology { name: experiment.name.clone(), ..topology };
        let bar = progress_bar(&experiment.name);
        Ok(Context { experiment, options, interrupt, topology, workload, bar, halt_poll })
    }

    /// Measures all arms in turns, as often as the experiment says.
    fn measure_in_turns(
        &self,
        mut measure: impl FnMut(&Arm, u32) -> Result<Measured, Trouble>,
    ) -> Result<Vec<Measurement>, Trouble> {
        let Experiment { arms, repetitions, .. } = self.experiment;
        self.bar.set_length(arms.len() as u64 * u64::from(*repetitions));
        run_interleaved(arms, *repetitions, |arm, repetition| {
            self.interrupt.check()?;
            self.bar.set_message(arm.name.clone());
            let mut measured = measure(arm, repetition)?;
            if let Some(halt_poll) = &self.halt_poll {
                measured.counter("halt_poll_ns", halt_poll.nanos());
            }
            self.bar.inc(1);
            Ok(measured.into_measurement(&arm.name, repetition))
        })
    }

    /// The experiment's workload; experiments that need one name one.
    fn workload(&self) -> Result<&Workload, Trouble> {
        self.workload.as_ref().ok_or_else(|| {
            let tried = format!("load the service of `{}`", self.experiment.name);
            Trouble::new(tried, "its file names no workload", "add `workload = \"set-one\"` to it")
        })
    }
}

/// What one repetition of one arm measured, under construction.
#[derive(Debug, Default)]
struct Measured {
    values: std::collections::BTreeMap<String, f64>,
    counters: std::collections::BTreeMap<String, u64>,
}

impl Measured {
    fn value(&mut self, metric: &str, value: f64) -> &mut Measured {
        self.values.insert(metric.to_owned(), value);
        self
    }

    fn counter(&mut self, name: &str, value: u64) -> &mut Measured {
        self.counters.insert(name.to_owned(), value);
        self
    }

    /// The percentiles of latencies.
    fn latency(&mut self, summary: &crate::stats::Summary) -> &mut Measured {
        let us = |ns: u64| ns as f64 / 1_000.0;
        for (decile, ns) in (1..).zip(summary.deciles_ns) {
            self.value(&format!("p{decile}0_us"), us(ns));
        }
        self.value("p99_us", us(summary.p99_ns)).value("mean_us", summary.mean_ns / 1_000.0)
    }

    fn into_measurement(self, arm: &str, repetition: u32) -> Measurement {
        Measurement { arm: arm.to_owned(), repetition, values: self.values, counters: self.counters }
    }
}

/// Prints a line. That nobody reads it is no reason to end a run: its results go to files.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn progress_bar(name: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {pos}/{len} {elapsed} {msg}")
        .expect("the template is right");
    ProgressBar::new(0).with_style(style).with_prefix(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_has_a_file_and_each_file_a_runner() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/experiments");
        let files = std::fs::read_dir(folder).expect("it is there").flatten();
        let mut in_files: Vec<String> = files
            .map(|file| file.path().file_stem().expect("a name").to_string_lossy().into_owned())
            .collect();
        in_files.sort();
        let mut known = names();
        known.sort_unstable();
        assert_eq!(in_files, known);
        assert!(LONG.iter().all(|name| known.contains(name)));
    }

    #[test]
    fn an_unknown_experiment_is_named_with_the_known_ones() {
        let error = run(&["speed".into()], &RunOptions::new("scot")).expect_err("there is none").to_string();
        assert!(error.contains("`speed`") && error.contains("update-ack"), "{error}");
    }

    #[test]
    fn without_names_the_long_ones_are_left_out() {
        let chosen = choose(&[]).expect("all are known");
        assert_eq!(chosen.len(), EXPERIMENTS.len() - LONG.len());
        assert_eq!(choose(&["kill-rounds".into()]).expect("it is known").len(), 1);
    }
}
