//! The codec beside its peers (lab/peers/codec): time, instructions, the heap's calls, the size of code and how long it is
//! compiled. A repetition is one process that has all arms in turns, or for what is counted one of each arm.
//!
//! Invariant: each arm's values come from the program's own lines; an arm of several codecs is the best of them in each
//! round, which is harder on ours than the best of them in all.

mod counted;

use super::settings::settings_of;
use super::{Context, Measured};
use crate::codec::{parse, Line, Program};
use crate::experiment::{Arm, Measurement};
use scotfree_stage::priority::Priority;
use scotfree_stage::process::{wait_until, ProcessSpec, Supervisor};
use scotfree_stage::scratch::Scratch;
use scotfree_stage::stats::median;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest process: one that cachegrind runs.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    measure: Measure,
    /// The codecs, by their arms' names in the program; of several the fastest counts.
    #[serde(default)]
    codecs: Vec<String>,
    /// Messages, as `flat:10`; of several the sum is taken where instructions are counted.
    #[serde(default)]
    shapes: Vec<String>,
    /// Rounds within a process.
    #[serde(default)]
    rounds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Measure {
    /// Processor time, in turns.
    Time,
    /// The same of readers of spans, one of which is by hand.
    Spans,
    /// Of a reply that one thread encodes, and several: as the clock has it, and of all their processors.
    Threads,
    /// Instructions and mispredicted branches, by cachegrind.
    Instructions,
    /// Calls of the heap.
    Heap,
    /// Bytes of code.
    Size,
    /// Seconds of compiling.
    Compile,
}

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let arms: Vec<(&Arm, Settings)> = context
        .experiment
        .arms
        .iter()
        .map(|arm| Ok((arm, settings_of(arm)?)))
        .collect::<Result<_, Trouble>>()?;
    let repository = super::repository(context.options).to_owned();
    let codec = Codec {
        context,
        program: Program::build(&repository)?,
        repository,
        supervisor: Supervisor::new(),
        scratch: Scratch::new_in(&std::env::temp_dir(), &context.experiment.name)?,
    };
    match arms[0].1.measure {
        Measure::Time | Measure::Spans | Measure::Threads => codec.timed(&arms),
        _ => context.measure_in_turns(|arm, repetition| codec.counted(arm, repetition, &settings_of(arm)?)),
    }
}

/// What starts the programs of an experiment.
struct Codec<'a> {
    context: &'a Context<'a>,
    program: Program,
    repository: PathBuf,
    supervisor: Supervisor,
    scratch: Scratch,
}

impl Codec<'_> {
    /// All arms in one process a repetition.
    fn timed(&self, arms: &[(&Arm, Settings)]) -> Result<Vec<Measurement>, Trouble> {
        let repetitions = self.context.experiment.repetitions;
        self.context.bar.set_length(repetitions.into());
        let begun = std::time::Instant::now();
        let mut all = Vec::new();
        for repetition in 0..repetitions {
            if repetition > 0 && self.context.options.time_max.is_some_and(|max| begun.elapsed() >= max) {
                break;
            }
            let lines = self.lines(arms, repetition)?;
            for (arm, settings) in arms {
                let measured = measured(&lines, settings).ok_or_else(|| {
                    let problem =
                        format!("the program has nothing of {:?} on {:?}", settings.codecs, settings.shapes);
                    Trouble::new(
                        format!("measure the arm `{}`", arm.name),
                        problem,
                        "see its file's settings",
                    )
                })?;
                all.push(measured.into_measurement(&arm.name, repetition));
            }
            self.context.bar.inc(1);
        }
        Ok(all)
    }

    fn lines(&self, arms: &[(&Arm, Settings)], repetition: u32) -> Result<Vec<Line>, Trouble> {
        let rounds = arms[0].1.rounds;
        let (program, words) = match arms[0].1.measure {
            Measure::Spans => ("codec-otlp", vec![rounds.to_string(), "--lines".to_owned()]),
            Measure::Threads => ("codec-threads", vec![rounds.to_string()]),
            _ => ("codec-peers", Program::words(&shapes_of(arms), rounds)),
        };
        let path = self.program.folder.join(program);
        let (out, _) =
            self.output_at(self.context.priority, &format!("{program}-{repetition}"), &path, &words)?;
        out.lines().map(parse).collect()
    }

    /// What a program printed that counts, on both outputs.
    fn output(&self, name: &str, program: &Path, words: &[String]) -> Result<(String, String), Trouble> {
        self.output_at(Priority::Normal, name, program, words)
    }

    /// The same of one that is timed.
    fn output_at(
        &self,
        priority: Priority,
        name: &str,
        program: &Path,
        words: &[String],
    ) -> Result<(String, String), Trouble> {
        let logs =
            self.context.options.log_folder.clone().unwrap_or_else(|| self.scratch.path().join("logs"));
        let spec = ProcessSpec::new(name, program.to_owned(), logs).args(words.iter().map(String::as_str));
        let process = self.supervisor.spawn(&spec.at(priority))?;
        wait_until(PATIENCE, || self.context.interrupt.has_come() || !process.is_running());
        self.context.interrupt.check()?;
        if process.exit_status().is_some_and(|status| status.success()) {
            return Ok((process.output(), process.error_output()));
        }
        let said = process.error_output();
        let problem = said.trim_end().lines().last().unwrap_or("it ended without a word").to_owned();
        Err(Trouble::new(
            format!("run {}", program.display()),
            problem,
            "run it by hand; --log-folder keeps what it says",
        ))
    }
}

/// All their shapes, each once.
fn shapes_of(arms: &[(&Arm, Settings)]) -> Vec<String> {
    let mut shapes: Vec<String> = Vec::new();
    for shape in arms.iter().flat_map(|(_, settings)| &settings.shapes) {
        if !shapes.contains(shape) {
            shapes.push(shape.clone());
        }
    }
    shapes
}

/// What an arm took in one process: the median of its rounds, of both works where it has both.
fn measured(lines: &[Line], settings: &Settings) -> Option<Measured> {
    let shape = settings.shapes.first()?;
    let mut measured = Measured::default();
    for work in ["encode", "decode"] {
        let of =
            |line: &&Line| line.work == work && settings.codecs.contains(&line.arm) && is_of(line, shape);
        let lines: Vec<&Line> = lines.iter().filter(of).collect();
        let Some(first) = lines.first() else { continue };
        let rounds = lines.iter().map(|line| line.round).max()?;
        let best =
            |round| lines.iter().filter(move |line| line.round == round).map(|line| line.ns).reduce(f64::min);
        let times: Vec<f64> = (0..=rounds).filter_map(best).collect();
        let ns = median(&times)?;
        measured.value(&format!("{work}_ns"), ns);
        measured.value(&format!("{work}_gbit_per_s"), first.bytes * 8.0 / ns);
        measured.value(&format!("{work}_items_per_s"), first.items * 1e9 / ns);
        measured.value("message_bytes", first.bytes);
    }
    (!measured.values.is_empty()).then_some(measured)
}

/// Whether a line is of this shape, which may have its share of absent fields behind it.
fn is_of(line: &Line, shape: &str) -> bool {
    shape.split_once(':').map_or(line.shape == shape, |(name, absent)| {
        line.shape == name && absent.parse::<u32>() == Ok(line.absent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arm: &str, round: u32, ns: f64) -> Line {
        let (shape, work) = ("flat".to_owned(), "encode".to_owned());
        Line { shape, absent: 10, work, arm: arm.into(), round, ns, bytes: 100.0, items: 2.0 }
    }

    fn settings(codecs: &[&str], shape: &str) -> Settings {
        let codecs = codecs.iter().map(|name| (*name).to_owned()).collect();
        Settings { measure: Measure::Time, codecs, shapes: vec![shape.into()], rounds: 3 }
    }

    #[test]
    fn of_several_codecs_the_best_of_each_round_counts() {
        let lines: Vec<Line> = [("a", [4.0, 1.0, 4.0]), ("b", [3.0, 5.0, 2.0])]
            .iter()
            .flat_map(|(arm, times)| (0..).zip(times).map(move |(round, ns)| line(arm, round, *ns)))
            .collect();
        let values = measured(&lines, &settings(&["a", "b"], "flat:10")).expect("it is there").values;
        assert_eq!(
            (values["encode_ns"], values["encode_gbit_per_s"], values["encode_items_per_s"]),
            (2.0, 400.0, 1e9)
        );
        assert!(!values.contains_key("decode_ns"), "nobody decoded");
        assert_eq!(
            measured(&lines, &settings(&["a"], "flat:10")).map(|it| it.values["encode_ns"]),
            Some(4.0)
        );
        for (codec, shape) in [("c", "flat:10"), ("a", "flat:60"), ("a", "mixed")] {
            assert!(measured(&lines, &settings(&[codec], shape)).is_none(), "{codec} {shape}");
        }
    }
}
