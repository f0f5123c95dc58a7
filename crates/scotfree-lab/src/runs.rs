//! Runs the experiments of `lab/experiments`: brings up what they compare, measures the arms in turns, and
//! writes what was measured.
//!
//! Invariant: a result is written only if every repetition was measured and every counter says that what
//! was measured is what the arms' names promise; whatever ends a run, all that it made is removed.

#[cfg(feature = "xdp")]
mod bare_calls;
mod bare_services;
mod cache_counts;
mod cache_get;
mod cache_hit_curve;
mod cache_proxy;
mod cache_rate;
mod cache_updates;
mod cached_linearizability;
mod chain;
mod codec;
pub mod confirm;
mod connections;
mod daemon_deaths;
mod device;
#[cfg(feature = "xdp")]
mod disk_acks;
mod disk_domain;
#[cfg(feature = "xdp")]
mod endpoints;
mod group;
mod hash_index;
mod hostile_packets;
mod idle;
mod in_process;
mod kill_rounds;
mod linearizability;
mod logging_designs;
mod on_device;
mod placement;
#[cfg(feature = "xdp")]
mod playback;
mod probes;
mod proxy;
mod ram2_replication;
mod ram3_replication;
mod recovery_time;
mod redis_always;
mod redis_load;
mod redis_stand;
#[cfg(feature = "xdp")]
mod reflection;
mod runners;
mod settings;
mod sidecar_overhead;
mod simulated;
mod stolen;
mod stores;
mod study;
mod study_faults;
mod study_forecast;
mod transactions;
mod update_ack;
pub mod worker;

use crate::experiment::{run_interleaved_while, Arm, Experiment, Measurement};
use crate::plot;
use crate::priority::decide;
use crate::results::{judge, ExperimentResult, Verdict};
use idle::HaltPoll;
use indicatif::{ProgressBar, ProgressStyle};
use runners::{runner_names, runner_of, Runner};
use scotfree_device::Maker;
use scotfree_stage::environment::Environment;
use scotfree_stage::interrupt::Interrupt;
use scotfree_stage::netns::RUN_FOLDER;
use scotfree_stage::priority::Priority;
use scotfree_stage::site::{Ground, Site};
use scotfree_stage::sweep::sweep_before_run;
use scotfree_stage::topology::Topology;
use scotfree_stage::trouble::{ConfigError, Trouble};
use scotfree_stage::workload::Workload;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How experiments are run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// What functions of devices there are, for those that run in this process.
    pub functions: Vec<Maker>,
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
    /// At which priority what is measured runs; real time where that can be if none is given.
    pub priority: Option<Priority>,
    /// After this time no further repetition of an experiment begins; the first is always measured.
    pub time_max: Option<Duration>,
}

impl RunOptions {
    /// All as the experiments say, in the lab of the current folder, with no functions of devices.
    pub fn new(scot: impl Into<PathBuf>) -> RunOptions {
        RunOptions {
            functions: Vec::new(),
            scot: scot.into(),
            lab_folder: "lab".into(),
            run_folder: RUN_FOLDER.into(),
            repetitions: None,
            rounds: None,
            seed: None,
            write_results: true,
            log_folder: None,
            priority: None,
            time_max: None,
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
    #[error("there is no experiment `{name}`; there are {}", .known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// An experiment's file names a runner that there is not.
    #[error("the experiment `{experiment}` names the runner `{runner}`; there are {}", runner_names().join(", "))]
    UnknownRunner {
        /// The experiment.
        experiment: String,
        /// What its file says.
        runner: String,
    },
    /// An experiment needs what this build leaves out.
    #[error(
        "the experiment `{experiment}` needs the runner `{runner}`, and this scot is built without the kernel plane; \
         build it with it: cargo build --release"
    )]
    LeftOut {
        /// The experiment.
        experiment: String,
        /// Its runner.
        runner: String,
    },
    /// What is measured cannot run at the priority asked for.
    #[error("run `{experiment}` at real-time priority: {problem}; leave it to the lab: without --priority")]
    Priority {
        /// The experiment.
        experiment: String,
        /// Why not.
        problem: String,
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

/// The names of the experiments in a lab's folder.
pub fn names(lab_folder: &Path) -> Result<Vec<String>, Trouble> {
    let folder = lab_folder.join("experiments");
    let entries = fs::read_dir(&folder).map_err(|error| Trouble::file("read the folder", &folder, &error))?;
    let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".toml")?.to_owned());
    let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
    names.sort();
    Ok(names)
}

/// Runs experiments by name; without names, all but those that take very long. Progress goes to standard
/// error, claims with their verdicts to standard output. SIGINT and SIGTERM end it.
pub fn run(wanted: &[String], options: &RunOptions) -> Result<RunReport, RunError> {
    let Chosen { experiments, not_run } = choose(wanted, &options.lab_folder)?;
    let interrupt = Interrupt::watch()?;
    sweep_before_run(&options.run_folder, &options.lab_folder);
    let mut report = RunReport { results: Vec::new(), missed_count: 0 };
    for (experiment, runner) in experiments {
        let result = run_one(experiment, runner, options, &interrupt);
        let result = if interrupt.has_come() { Err(RunError::Interrupted) } else { result }?;
        report.missed_count +=
            result.claims.iter().filter(|claim| claim.verdict() == Verdict::Missed).count();
        report.results.push(result);
    }
    if !not_run.is_empty() {
        say(&format!("not run, since they take long: scot lab run {}", not_run.join(" ")));
    }
    Ok(report)
}

/// What is to be run.
struct Chosen {
    experiments: Vec<(Experiment, Runner)>,
    /// Those that are run by name only, if none was named.
    not_run: Vec<String>,
}

fn choose(wanted: &[String], lab_folder: &Path) -> Result<Chosen, RunError> {
    let known = names(lab_folder)?;
    if let Some(name) = wanted.iter().find(|name| !known.contains(name)) {
        return Err(RunError::Unknown { name: name.clone(), known });
    }
    let names = if wanted.is_empty() { &known[..] } else { wanted };
    let mut chosen = Chosen { experiments: Vec::new(), not_run: Vec::new() };
    for name in names {
        let experiment = Experiment::read(&lab_folder.join("experiments").join(format!("{name}.toml")))?;
        match runner_of(&experiment) {
            // Who names none wants what can be run here.
            Err(RunError::LeftOut { .. }) if wanted.is_empty() => {}
            Ok(_) if wanted.is_empty() && experiment.by_name_only => chosen.not_run.push(name.clone()),
            runner => chosen.experiments.push((experiment, runner?)),
        }
    }
    Ok(chosen)
}

fn run_one(
    mut experiment: Experiment,
    runner: Runner,
    options: &RunOptions,
    interrupt: &Interrupt,
) -> Result<ExperimentResult, RunError> {
    if let Some(repetitions) = options.repetitions {
        experiment.repetitions = repetitions.max(1);
    }
    let Measurements { environment, series } = measure(&mut experiment, runner, options, interrupt)?;
    let result = ExperimentResult::of(&experiment, environment, series)?;
    say(judge(std::slice::from_ref(&result), repository(options)).text.trim_end());
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

/// What was measured, and in which circumstances.
struct Measurements {
    environment: Environment,
    series: Vec<Measurement>,
}

/// Measures an experiment, and tells it how many repetitions that were.
fn measure(
    experiment: &mut Experiment,
    runner: Runner,
    options: &RunOptions,
    interrupt: &Interrupt,
) -> Result<Measurements, RunError> {
    let priority = decide(options.priority, runner.is_timed, experiment)
        .map_err(|problem| RunError::Priority { experiment: experiment.name.clone(), problem })?;
    let halt_poll = experiment.halt_poll_ns.map(HaltPoll::set).transpose()?;
    let observed = Environment::observe(repository(options), &experiment.covers);
    let environment = Environment { priority: priority.name().to_owned(), ..observed };
    let context = Context { priority, ..Context::new(experiment, options, interrupt, halt_poll)? };
    eprintln!("{}: {} ({priority} priority)", experiment.name, experiment.title);
    let series = (runner.run)(&context);
    context.bar.finish_and_clear();
    let series = series?;
    // A run of killing has as many repetitions as it has blocks of rounds.
    experiment.repetitions = series.iter().map(|one| one.repetition + 1).max().unwrap_or(0);
    Ok(Measurements { environment, series })
}

/// The folder that the lab's is in.
fn repository(options: &RunOptions) -> &Path {
    let parent = options.lab_folder.parent().filter(|path| !path.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
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
    /// At which priority what is measured runs.
    priority: Priority,
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
        let priority = Priority::Normal;
        Ok(Context { experiment, options, interrupt, topology, workload, priority, bar, halt_poll })
    }

    /// Brings up the hosts of the experiment.
    fn site(&self) -> Result<Site<'a>, Trouble> {
        self.site_of(&self.topology)
    }

    /// The same under a name of its own, beside another one.
    fn site_named(&self, name: &str) -> Result<Site<'a>, Trouble> {
        self.site_of(&Topology { name: name.to_owned(), ..self.topology.clone() })
    }

    fn site_of(&self, topology: &Topology) -> Result<Site<'a>, Trouble> {
        Site::up(&Ground {
            topology,
            scot: &self.options.scot,
            run_folder: &self.options.run_folder,
            disk_folder: &self.options.lab_folder,
            log_folder: self.options.log_folder.as_deref(),
            priority: self.priority,
            interrupt: self.interrupt,
        })
    }

    /// Measures all arms in turns, as often as the experiment says.
    fn measure_in_turns(
        &self,
        mut measure: impl FnMut(&Arm, u32) -> Result<Measured, Trouble>,
    ) -> Result<Vec<Measurement>, Trouble> {
        let Experiment { arms, repetitions, .. } = self.experiment;
        self.bar.set_length(arms.len() as u64 * u64::from(*repetitions));
        let begin = Instant::now();
        let goes_on = |_| self.options.time_max.is_none_or(|time_max| begin.elapsed() < time_max);
        run_interleaved_while(arms, *repetitions, goes_on, |arm, repetition| {
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
    fn latency(&mut self, summary: &scotfree_stage::stats::Summary) -> &mut Measured {
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
    use std::collections::BTreeSet;

    fn lab() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab")
    }

    fn choose(wanted: &[&str]) -> Result<Chosen, RunError> {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        super::choose(&wanted, &lab())
    }

    #[test]
    fn each_experiment_of_the_lab_has_a_runner() {
        let mut used = BTreeSet::new();
        for name in names(&lab()).expect("the folder is there") {
            let experiment = Experiment::read(&lab().join(format!("experiments/{name}.toml")));
            let experiment = experiment.expect("it is an experiment");
            match runner_of(&experiment) {
                Ok(runner) => used.insert(runner.name),
                Err(RunError::LeftOut { .. }) => false,
                Err(error) => panic!("{error}"),
            };
        }
        assert_eq!(used.into_iter().collect::<Vec<_>>(), runner_names(), "in order, and none for nothing");
    }

    #[test]
    fn an_unknown_experiment_is_named_with_the_known_ones() {
        let error = choose(&["speed"]).err().expect("there is none").to_string();
        assert!(error.contains("`speed`") && error.contains("update-ack"), "{error}");
    }

    #[test]
    fn without_names_the_long_ones_are_left_out() {
        let Chosen { experiments, not_run } = choose(&[]).expect("all are known");
        assert!(not_run.contains(&"kill-rounds".to_owned()), "{not_run:?}");
        assert!(experiments.iter().all(|(experiment, _)| !experiment.by_name_only));
        assert!(experiments.iter().any(|(experiment, _)| experiment.name == "update-ack"));
        assert_eq!(choose(&["kill-rounds"]).expect("it is known").experiments.len(), 1);
    }
}
