//! What `make kernels` runs: in a guest the trial of its kernel, and on the host the table of all trials.
#![forbid(unsafe_code)]

mod report;
mod table;
mod trial;

use anyhow::{bail, Context, Result};
use report::{Report, Tried};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: kernels trial OBJECT EQUIVALENCE
           in a guest: try the programs on this kernel (OBJECT: the same programs as a file, EQUIVALENCE: the
           program that compares them with the machine) and print a report
       kernels read CONSOLE PACKAGE RELEASE REASON
           take the report from what a guest printed and print it with its package; REASON is reported where
           there is none
       kernels table REPORTS DATE COMMIT
           make the document of what `read` has printed";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("kernels: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<String> {
    match *words {
        ["trial", object, equivalence] => {
            Ok(format!("\n{}", trial::run(Path::new(object), Path::new(equivalence))?))
        }
        ["read", console, package, release, reason] => {
            let text = std::fs::read(console).with_context(|| format!("reading {console}"))?;
            let report = report::find(&String::from_utf8_lossy(&text));
            let report = report.unwrap_or_else(|| Report::of_silence(release, reason));
            Ok(Tried { package: package.to_owned(), report }.to_string())
        }
        ["table", reports, date, commit] => {
            let text = std::fs::read_to_string(reports).with_context(|| format!("reading {reports}"))?;
            let tried = text.lines().map(str::parse).collect::<Result<Vec<Tried>>>()?;
            Ok(table::document(&tried, date, commit))
        }
        _ => bail!("{USAGE}"),
    }
}
