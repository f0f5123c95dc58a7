//! Completions and manual pages, made from the flags themselves, also of those commands whose programs are in Python.
//!
//! Invariant: they say what the command says.

use super::described::with_python_programs;
use crate::cli::Cli;
use crate::failure::Failure;
use crate::out;
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut with_python_programs(Cli::command()), "scot", &mut bytes);
    out::text(String::from_utf8_lossy(&bytes));
}

/// Writes a page for each command.
pub fn pages(folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(with_python_programs(Cli::command()), folder))
        .map_err(|error| {
            Failure::tried(format!("write manual pages to {shown}"), &error, "name a folder that is yours")
        })?;
    out::line(format_args!("wrote the pages to {shown}; read them: man {shown}/scot.1"));
    Ok(())
}
