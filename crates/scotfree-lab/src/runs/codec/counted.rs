//! What is counted and not timed: instructions, calls of the heap, bytes of code; and how long code is compiled.
//!
//! Invariant: what a program takes to begin is not counted: it is run with the work done once and several times, and
//! the difference is the work's.

use super::super::Measured;
use super::{Codec, Measure, Settings};
use crate::experiment::Arm;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The work is done once, and so often more.
const MORE: u64 = 2;

impl Codec<'_> {
    pub(super) fn counted(
        &self,
        arm: &Arm,
        repetition: u32,
        settings: &Settings,
    ) -> Result<Measured, Trouble> {
        let name = format!("{}-{repetition}", arm.name);
        match settings.measure {
            Measure::Instructions => self.instructions(&name, settings),
            Measure::Heap => self.heap(&name, settings),
            Measure::Size => self.size(&name, settings),
            Measure::Compile => self.compile(repetition, settings),
            Measure::Time | Measure::Spans | Measure::Threads => unreachable!("these are timed"),
        }
    }

    /// By cachegrind, whose branch predictor is its own and the same everywhere.
    fn instructions(&self, name: &str, settings: &Settings) -> Result<Measured, Trouble> {
        let valgrind = on_path("valgrind").ok_or_else(|| {
            Trouble::new("count instructions", "there is no valgrind", "install it: apt-get install valgrind")
        })?;
        let mut measured = Measured::default();
        for work in ["encode", "decode"] {
            let mut sum = Count::default();
            for (index, shape) in settings.shapes.iter().enumerate() {
                let run = |times: u64| {
                    let name = format!("{name}-{work}-{index}-{times}");
                    let words = self.cachegrind_words(shape, work, &settings.codecs[0], times);
                    self.output(&name, &valgrind, &words)
                };
                let (few, many) = (counts(&run(1)?)?, counts(&run(1 + MORE)?)?);
                sum.instructions += (many.instructions - few.instructions) / (MORE as f64 * few.messages);
                sum.mispredicted += (many.mispredicted - few.mispredicted) / (MORE as f64 * few.messages);
                sum.bytes += few.bytes / few.messages;
            }
            measured.value(&format!("{work}_instructions_per_byte"), sum.instructions / sum.bytes);
            measured.value(&format!("{work}_mispredicted"), sum.mispredicted);
        }
        Ok(measured)
    }

    fn cachegrind_words(&self, shape: &str, work: &str, codec: &str, times: u64) -> Vec<String> {
        let program = self.program.path().display().to_string();
        let options =
            ["--tool=cachegrind", "--cache-sim=no", "--branch-sim=yes", "--cachegrind-out-file=/dev/null"];
        let words = options.into_iter().map(str::to_owned);
        words
            .chain([program, "once".into(), shape.into(), work.into(), codec.into(), times.to_string()])
            .collect()
    }

    fn heap(&self, name: &str, settings: &Settings) -> Result<Measured, Trouble> {
        let (out, _) = self.output(name, &self.program.folder.join("codec-heap"), &settings.shapes)?;
        let mut measured = Measured::default();
        for work in ["encode", "decode"] {
            let lines = out.lines().filter_map(|line| serde_json::from_str::<Asked>(line).ok());
            let of_codec = lines.filter(|line| line.work == work && settings.codecs.contains(&line.arm));
            let most = of_codec.map(|line| line.allocations).reduce(f64::max).ok_or_else(|| {
                Trouble::new(
                    format!("measure `{name}`"),
                    "no line is of its codec",
                    "see its file's settings",
                )
            })?;
            measured.value(&format!("{work}_allocations"), most);
        }
        Ok(measured)
    }

    /// Bytes of code beyond those of a program that does nothing.
    fn size(&self, name: &str, settings: &Settings) -> Result<Measured, Trouble> {
        let size = on_path("size").ok_or_else(|| {
            Trouble::new(
                "measure the size of code",
                "there is no `size`",
                "install it: apt-get install binutils",
            )
        })?;
        let text = |program: &str| {
            let words = ["-A".to_owned(), self.program.folder.join(program).display().to_string()];
            let (out, _) = self.output(&format!("{name}-{program}"), &size, &words)?;
            text_bytes(&out)
                .ok_or_else(|| Trouble::new(format!("read the size of {program}"), out, "send it to us"))
        };
        let own = text(&format!("codec-size-{}", settings.codecs[0]))? - text("codec-size-none")?;
        let mut measured = Measured::default();
        measured.value("text_bytes", own);
        Ok(measured)
    }

    /// Compiles generated code and a program around it again, after what it rests on was.
    fn compile(&self, repetition: u32, settings: &Settings) -> Result<Measured, Trouble> {
        let program = format!("codec-size-{}", settings.codecs[0]);
        let tried = format!("compile {program}");
        let build = |stamp: String| {
            let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args(["build", "-q", "--release", "--locked", "--features", "peers", "--bin", &program])
                .arg("--manifest-path")
                .arg(self.repository.join("lab/peers/codec/Cargo.toml"))
                .arg("--target-dir")
                .arg(self.program.folder.parent().unwrap_or(&self.program.folder))
                // The program asks for it, so that another one has it compiled again.
                .env("CODEC_SIZE_STAMP", stamp)
                .stdin(Stdio::null())
                .status();
            match status {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => {
                    Err(Trouble::new(&tried, format!("cargo ended with {status}"), "it has said why above"))
                }
                Err(error) => Err(Trouble::new(&tried, error, "install Rust: https://rustup.rs")),
            }
        };
        let begun = Instant::now();
        build(format!("{}-{repetition}", std::process::id()))?;
        let mut measured = Measured::default();
        measured.value("compile_s", begun.elapsed().as_secs_f64());
        Ok(measured)
    }
}

/// A line of codec-heap.
#[derive(Debug, Deserialize)]
struct Asked {
    work: String,
    arm: String,
    allocations: f64,
}

/// What cachegrind counted, and of how many messages.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Count {
    instructions: f64,
    mispredicted: f64,
    messages: f64,
    bytes: f64,
}

#[derive(Debug, Deserialize)]
struct Done {
    bytes: f64,
    messages: f64,
}

fn counts((out, error): &(String, String)) -> Result<Count, Trouble> {
    let count = |name: &str| {
        let line = error.lines().find(|line| line.contains(name))?;
        let number: String = line.split_once(':')?.1.trim_start().chars().take_while(|c| *c != ' ').collect();
        number.replace(',', "").parse::<f64>().ok()
    };
    let done: Option<Done> = out.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let all = (|| {
        let Done { bytes, messages } = done?;
        Some(Count { instructions: count("refs:")?, mispredicted: count("Mispredicts")?, messages, bytes })
    })();
    all.ok_or_else(|| {
        Trouble::new("read what cachegrind counted", error, "its words may be another version's")
    })
}

/// The size of `.text` as `size -A` prints it.
fn text_bytes(printed: &str) -> Option<f64> {
    let line = printed.lines().find(|line| line.starts_with(".text"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn on_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cachegrinds_words_are_read() {
        let said =
            "==7== I   refs:      12,345,678\n==7== \n==7== Branches:  1,234  (1,000 cond + 234 ind)\n\
                    ==7== Mispredicts:  99  (90 cond + 9 ind)\n==7== Mispred rate:  2.0% (1.0% + 3.0%)";
        let printed = ("{\"bytes\":1000,\"messages\":10}\n".to_owned(), said.to_owned());
        let expected =
            Count { instructions: 12_345_678.0, mispredicted: 99.0, messages: 10.0, bytes: 1000.0 };
        assert_eq!(counts(&printed), Ok(expected));
        assert!(counts(&(String::new(), said.to_owned())).is_err(), "of how many messages?");
    }

    #[test]
    fn the_section_of_code_is_found() {
        assert_eq!(
            text_bytes("a  :\nsection  size  addr\n.init  23  4096\n.text  4567  8192\n"),
            Some(4567.0)
        );
        assert_eq!(text_bytes(""), None);
    }
}
