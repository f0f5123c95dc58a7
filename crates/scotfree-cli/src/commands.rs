//! Which command does what.
//!
//! Invariant: nothing is decided here; each module calls the crate that does the work.

#[cfg(feature = "lab")]
mod bench;
mod cache;
mod daemons;
mod demo;
mod described;
mod doctor;
#[cfg(feature = "lab")]
mod evidence;
mod external;
mod group;
mod lab;
mod logs;
mod manual;
mod remedies;
mod reports;
mod setup;
mod sim;

use crate::cli::{Cli, Command, ConfigCommand, Key, Sidecar, Tax};
use crate::config::Sources;
use crate::failure::Failure;
use crate::key_file;
use crate::out;
use crate::settings::{Config, Proxies};
use scotfree_wire::{ClusterKey, KeyEpoch};
use std::path::Path;

/// Runs what the command line says.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let sources = || Sources::find(cli.config.as_deref());
    match cli.command {
        Command::Demo(flags) => demo::run(&flags),
        Command::Doctor(flags) => doctor::run(&sources().flags("doctor", &flags.settings), &flags),
        Command::Setup(flags) => setup::run(&flags),
        Command::Switch(flags) => {
            daemons::switch::run(sources().flags("cluster", &flags.cluster).flags("switch", &flags.settings))
        }
        Command::Kv(flags) => {
            daemons::kv::run(sources().flags("cluster", &flags.cluster).flags("kv", &flags.settings))
        }
        Command::Sidecar(Sidecar::Client(flags)) => {
            daemons::client::run(sources().flags("cluster", &flags.cluster).flags("client", &flags.settings))
        }
        Command::Sidecar(Sidecar::Server(flags)) => {
            daemons::server::run(sources().flags("cluster", &flags.cluster).flags("server", &flags.settings))
        }
        Command::Proxy(flags) => {
            daemons::proxy::run(sources().flags("cluster", &flags.cluster).flags("proxy", &flags.settings))
        }
        Command::Peer(flags) => {
            daemons::peer::run(sources().flags("cluster", &flags.cluster).flags("peer", &flags.settings))
        }
        Command::Group(verb) => group::run(&verb),
        Command::Lab(command) => lab::run(command),
        #[cfg(feature = "lab")]
        Command::Bench(command) => bench::run(&command),
        Command::Tax(Tax::Report(flags)) => reports::tax(&flags),
        #[cfg(feature = "lab")]
        Command::Claims(flags) => evidence::claims(&flags),
        Command::Remedies(flags) => {
            remedies::run(&flags);
            Ok(())
        }
        Command::Sim(flags) => sim::run(&flags),
        Command::Classify(flags) => {
            reports::classify(&flags.words);
            Ok(())
        }
        Command::Cache(command) => cache::run(&command, &sources()),
        Command::Log(command) => logs::run(&command, sources()),
        Command::Config(ConfigCommand::Check { file }) => {
            check_config(&Sources::find(file.as_deref().or(cli.config.as_deref())))
        }
        Command::Key(Key::New { file }) => new_key(&file),
        Command::Key(Key::Rotate { file, epoch }) => {
            say_epochs(&file, &key_file::rotate(&file, epoch.map(KeyEpoch))?);
            Ok(())
        }
        Command::Key(Key::Retire { file }) => {
            say_epochs(&file, &key_file::retire(&file)?);
            Ok(())
        }
        Command::Completions { shell } => {
            manual::completions(shell);
            Ok(())
        }
        Command::Man { folder } => manual::pages(&folder),
        Command::LabWorker { spec } => lab::worker(&spec),
        Command::External(words) => external::run(&words),
    }
}

fn new_key(file: &Path) -> Result<(), Failure> {
    key_file::create(file)?;
    out::line(format_args!("{} made; give it to the device, the server and the clients", file.display()));
    Ok(())
}

fn say_epochs(file: &Path, key: &ClusterKey) {
    out::line(format_args!("{}: {}", file.display(), daemons::epochs_text(key)));
}

fn check_config(sources: &Sources) -> Result<(), Failure> {
    let config = sources.read()?;
    let place =
        sources.file().map_or("no scot.toml; variables only".to_owned(), |file| file.display().to_string());
    daemons::check(&config, sources)?;
    out::line(format_args!("{place}: can be used; sections set: {}", set_sections(&config)));
    Ok(())
}

fn set_sections(config: &Config) -> String {
    let default = Config::default();
    let proxy = match &config.proxy {
        Proxies::One(_) => "proxy".to_owned(),
        Proxies::Several(proxies) => format!("{} of proxy", proxies.len()),
    };
    let sections = [
        ("cluster", config.cluster != default.cluster),
        ("switch", config.switch != default.switch),
        ("kv", config.kv != default.kv),
        ("server", config.server != default.server),
        ("client", config.client != default.client),
        (&proxy, config.proxy != default.proxy),
        ("peer", config.peer != default.peer),
        ("doctor", config.doctor != default.doctor),
    ];
    let set: Vec<&str> = sections.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    if set.is_empty() {
        "none".to_owned()
    } else {
        set.join(", ")
    }
}
