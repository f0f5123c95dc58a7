//! The command `scot`: parses, calls, prints.
//!
//! Invariant: what a command does is decided in the crate that it calls; here are its flags, its settings
//! and its exit code.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod config;
mod failure;
mod key_file;
mod out;
mod serve;
mod settings;
mod text;
mod variables;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    scotfree_io::lifetime::outlive_file_limits();
    match commands::run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
