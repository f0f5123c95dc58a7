//! The codec beside its peers: builds the program that measures them (lab/peers/codec), runs it, and says who is faster.
//!
//! All arms of a shape are in one process on one processor, in turns, since a process' code and memory lie elsewhere each
//! time it starts and that alone moves results.
//!
//! Invariant: what is said is computed from the program's lines, and where we lose stands first.

mod table;

pub use table::{render, rows, Row};

use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace of the peers, from the repository's root.
const WORKSPACE: &str = "lab/peers/codec";
/// The share of absent fields, in percent, at which each of the three classes is measured.
const ABSENT: [u32; 3] = [10, 60, 95];
const CLASSES: [&str; 3] = ["flat", "mixed", "nested"];
const SHAPES: [&str; 8] =
    ["packed", "maps", "bytes", "shuffled", "unknown", "otlp", "thrift-binary", "thrift-compact"];

/// A line of the program: what one arm took in one round.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Of which messages.
    pub shape: String,
    /// Of a hundred fields, so many are absent; of the three classes alone.
    pub absent: u32,
    /// `encode` or `decode`.
    pub work: String,
    /// The codec, and what of it.
    pub arm: String,
    /// From 0.
    pub round: u32,
    /// Nanoseconds a message, of the thread's processor time.
    pub ns: f64,
    /// Bytes a message.
    pub bytes: f64,
    /// Things in a message that are counted, such as spans.
    pub items: f64,
}

/// All that can be measured: shapes, the classes with their share of absent fields.
pub fn all_shapes() -> Vec<String> {
    let classes = ABSENT.iter().flat_map(|absent| CLASSES.map(|class| format!("{class}:{absent}")));
    classes.chain(SHAPES.map(str::to_owned)).collect()
}

/// Whether it is the name of a shape, with or without a share of absent fields.
pub fn is_shape(word: &str) -> bool {
    match word.split_once(':') {
        Some((class, absent)) => {
            CLASSES.contains(&class) && absent.parse().is_ok_and(|absent: u32| absent <= 100)
        }
        None => CLASSES.contains(&word) || SHAPES.contains(&word),
    }
}

/// The built program.
#[derive(Debug, Clone)]
pub struct Program {
    /// Where its workspace's programs are.
    pub folder: PathBuf,
}

impl Program {
    /// Builds it, which takes minutes the first time: the peers' generators are large. Cargo says how far it is.
    pub fn build(repository: &Path) -> Result<Program, Trouble> {
        let tried = "build the codec's peers";
        let manifest = repository.join(WORKSPACE).join("Cargo.toml");
        if !manifest.is_file() {
            let problem = format!("there is no {}", manifest.display());
            return Err(Trouble::new(tried, problem, "go to the root of a clone of the repository"));
        }
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from);
        let target = target.join("codec-peers");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(&cargo)
            .args(["build", "--release", "--locked", "--features", "peers", "--bins", "--manifest-path"])
            .arg(&manifest)
            .arg("--target-dir")
            .arg(&target)
            .status()
            .map_err(|error| Trouble::new(tried, error, "install Rust: https://rustup.rs"))?;
        if !status.success() {
            let next = "cargo has said why; it needs a registry of crates the first time (cargo fetch, with a network)";
            return Err(Trouble::new(tried, format!("cargo ended with {status}"), next));
        }
        Ok(Program { folder: target.join("release") })
    }

    /// The program that measures time.
    pub fn path(&self) -> PathBuf {
        self.folder.join("codec-peers")
    }

    /// The words that have it measure these shapes.
    pub fn words(shapes: &[String], rounds: u32) -> Vec<String> {
        let head = std::iter::once("time".to_owned());
        head.chain(shapes.iter().cloned()).chain(["--rounds".to_owned(), rounds.to_string()]).collect()
    }

    /// Measures; `each` is told of each shape that is begun.
    pub fn measure(
        &self,
        shapes: &[String],
        rounds: u32,
        mut each: impl FnMut(&str),
    ) -> Result<Vec<Line>, Trouble> {
        let tried = "measure the codec beside its peers";
        let failed = |problem: String| Trouble::new(tried, problem, "what it said stands above");
        let mut child = Command::new(self.path())
            .args(Program::words(shapes, rounds))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Trouble::file("run", &self.path(), &error))?;
        let mut lines: Vec<Line> = Vec::new();
        for text in BufReader::new(child.stdout.take().expect("it is piped")).lines() {
            let line = parse(&text.map_err(|error| failed(error.to_string()))?)?;
            if lines.last().is_none_or(|last| (&last.shape, last.absent) != (&line.shape, line.absent)) {
                each(&line.shape);
            }
            lines.push(line);
        }
        let status = child.wait().map_err(|error| failed(error.to_string()))?;
        if !status.success() {
            return Err(failed(format!("its program ended with {status}")));
        }
        Ok(lines)
    }
}

/// A line that the program printed.
pub fn parse(text: &str) -> Result<Line, Trouble> {
    serde_json::from_str(text).map_err(|error| {
        let problem = format!("{error} in `{text}`");
        Trouble::new("read what the codec's peers printed", problem, "build both from the same commit")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_known_with_and_without_a_share() {
        assert!(all_shapes().iter().all(|shape| is_shape(shape)));
        assert!(is_shape("flat") && is_shape("mixed:0") && is_shape("otlp"));
        for word in ["flat:101", "flat:", "otlp:10", "round"] {
            assert!(!is_shape(word), "{word}");
        }
    }

    #[test]
    fn a_line_is_read_and_another_is_refused_with_its_text() {
        let text = r#"{"shape":"flat","absent":10,"work":"encode","arm":"prost","round":0,"ns":1.5,"bytes":480.0,"items":1.0}"#;
        assert_eq!(parse(text).map(|line| line.ns), Ok(1.5));
        let error = parse("{}").expect_err("it says nothing").to_string();
        assert!(error.contains("missing field") && error.contains("`{}`"), "{error}");
    }
}
