//! The command `scot NAME …` for a NAME that is not known here: the program `scot-NAME`.
//!
//! Invariant: the program takes this process's place, so signals and exit code are its own.

use crate::failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub fn run(words: &[OsString]) -> Result<(), Failure> {
    let (name, args) = words.split_first().expect("an external command has a name");
    let mut program = OsString::from("scot-");
    program.push(name);
    let error = Command::new(&program).args(args).exec();
    let (name, program) = (name.to_string_lossy(), program.to_string_lossy());
    if error.kind() == std::io::ErrorKind::NotFound {
        let problem = format!("there is no command `{name}` and no program `{program}` in the path");
        return Err(Failure::usage(format!("{problem}; see: scot --help")));
    }
    Err(Failure::environment(format!("run {program}: {error}; see: command -v {program}")))
}
