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
mod registry;
mod serve;
mod settings;
mod text;
mod variables;

use clap::Parser;
use std::process::ExitCode;

/// Requests of pipelines come and go by the hundred thousand a second, a few blocks of memory each.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    scotfree_io::lifetime::outlive_file_limits();
    let code = match cli::Cli::try_parse() {
        Ok(cli) => commands::run(cli).map_or_else(|failure| failure.report(), |()| 0),
        Err(message) => print(&message),
    };
    let loss = out::loss().map_or(0, |failure| failure.report());
    ExitCode::from(if code == 0 { loss } else { code })
}

/// Prints help, the version or what is wrong with the words; the exit code.
fn print(message: &clap::Error) -> u8 {
    let printed = message.print();
    if !message.use_stderr() {
        out::note(printed);
    }
    u8::try_from(message.exit_code()).unwrap_or(1)
}
