//! The repository's own tools: generated files and checks that no compiler makes.
//!
//! Invariant: with `--check`, and in `tidy`, nothing is changed.
#![forbid(unsafe_code)]

mod generated;
mod golden;
mod header;
mod tidy;

use anyhow::{bail, Result};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- COMMAND
  header [--check]   make (or compare) the C header bpf/include/scotfree_wire.h
  golden [--check]   make (or compare) the golden vectors of scotfree-wire
  tidy [--verbose]   check what no compiler checks, and that generated files are up to date; name the long files";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["header"] => generated::write(&root(), &header::files()),
        ["header", "--check"] => generated::check(&root(), &header::files(), "header"),
        ["golden"] => generated::write(&root(), &golden::files()),
        ["golden", "--check"] => generated::check(&root(), &golden::files(), "golden"),
        ["tidy"] => tidy(false),
        ["tidy", "--verbose"] => tidy(true),
        _ => bail!("{USAGE}"),
    }
}

fn tidy(is_verbose: bool) -> Result<()> {
    generated::check(&root(), &header::files(), "header")?;
    generated::check(&root(), &golden::files(), "golden")?;
    tidy::run(&root(), is_verbose)
}

/// The repository's root: two folders above this crate.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
