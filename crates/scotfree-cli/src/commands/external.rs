//! The command `scot NAME …` for a NAME that is not known here: the program `scot-NAME` in the path, or else beside
//! this one.
//!
//! Invariant: the program takes this process's place, so signals and exit code are its own.

use crate::commands::described;
use crate::failure::Failure;
use crate::variables::PROGRAM;
use scotfree_stage::process::find_tool;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to do where the Python package is not there that brings a command's program.
pub const STUDY_ADVICE: &str =
    "make it: scripts/python.sh --study, or install the Python package with its extra, scotfree[study]";
const RETRIEVAL_ADVICE: &str =
    "make it: scripts/python.sh --rag, or install the Python package with its extra, scotfree[rag]";
const LAB_ADVICE: &str =
    "it judges the results of the repository; one that is built there has it: cargo build --release";

pub fn run(words: &[OsString]) -> Result<(), Failure> {
    let (name, args) = words.split_first().expect("an external command has a name");
    let program = program_of(name);
    let mut error = command(&program).args(args).exec();
    if let Some(beside) = beside(&program).filter(|_| error.kind() == ErrorKind::NotFound) {
        error = command(&beside).args(args).exec();
    }
    // A folder in the path that may not be searched gives the same error as a program that may not be run.
    let is_missing = match error.kind() {
        ErrorKind::NotFound => true,
        ErrorKind::PermissionDenied => !is_in_path(&program),
        _ => false,
    };
    let (name, program) = (name.to_string_lossy(), program.to_string_lossy());
    if is_missing {
        let problem = format!("there is no command `{name}` and no program `{program}` in the path");
        return Err(Failure::usage(format!("{problem}; {}", advice(&name))));
    }
    Err(Failure::environment(format!("run {program}: {error}; see: command -v {program}")))
}

/// What to do where there is no such command.
fn advice(name: &str) -> String {
    match name {
        "plan" | "study" => STUDY_ADVICE.to_owned(),
        "rag" => RETRIEVAL_ADVICE.to_owned(),
        "claims" => LAB_ADVICE.to_owned(),
        _ => match described::named(name).join(" or ") {
            none if none.is_empty() => "see: scot --help".to_owned(),
            others => format!("you may mean: {others}"),
        },
    }
}

/// A program that is told where this one is, if that is known: it may have to start it.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Ok(scot) = std::env::current_exe() {
        command.env(PROGRAM, scot);
    }
    command
}

fn program_of(name: impl AsRef<OsStr>) -> OsString {
    let mut program = OsString::from("scot-");
    program.push(name);
    program
}

/// The program of a command, in the path or else beside this one.
pub fn find(name: &str) -> Option<PathBuf> {
    let program = program_of(name);
    find_tool(program.to_str()?).or_else(|| beside(&program))
}

/// The program in the folder of this one.
fn beside(program: &OsStr) -> Option<PathBuf> {
    let scot = std::env::current_exe().ok()?;
    Some(scot.with_file_name(program)).filter(|path| path.is_file())
}

/// Whether there is such a file, where a program of that name is looked for.
fn is_in_path(program: &OsStr) -> bool {
    if Path::new(program).components().count() > 1 {
        return Path::new(program).is_file();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_a_program_is_named_in_full() {
        assert_eq!(advice("compare"), "you may mean: scot study compare");
        assert_eq!(advice("serve"), "you may mean: scot study serve or scot rag serve");
        assert_eq!(advice("gret"), "see: scot --help");
        assert_eq!(advice("study"), STUDY_ADVICE);
    }
}
