//! `scot log replay`: the log of a device that is gone for good, handed to its server.
//!
//! Invariant: nothing is sent before all settings are understood and the whole log has been read.

use super::failed;
use crate::cli::LogReplay;
use crate::commands::daemons::cluster_key;
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::out;
use crate::registry;
use crate::settings::{Cluster, Config, Switch};
use scotfree_core::{DeviceId, Nanos};
use scotfree_io::stderr;
use scotfree_switch::log_tools::{Replay, ReplayConfig, ReplayError, ReplayProgress};
use scotfree_switch::XdpConfig;
use std::net::SocketAddr;

/// Reads the log and replays it, or says what there is to replay.
pub fn run(sources: Sources, flags: &LogReplay) -> Result<(), Failure> {
    let LogReplay { server, address, device_id, key_file, .. } = flags.clone();
    let cluster = Cluster { key_file, ..Cluster::default() };
    let server = server.into_iter().collect();
    let switch = Switch { address, server, device_id, ..Switch::default() };
    let settings = sources.flags("cluster", &cluster).flags("switch", &switch).read()?;
    let config = config(&settings, flags.patience_s)?;
    refuse_kept(config.device)?;
    let server = config.server;
    let replay = Replay::read(&flags.files, config, &registry::functions()).map_err(not_replayed)?;
    if flags.dry_run {
        out::text(replay.describe());
        return Ok(());
    }
    let mut told = None;
    let done = replay.run(&mut |progress| {
        if told.replace(progress) != Some(progress) {
            stderr::line(format_args!("scot log replay: {}", text(&progress)));
        }
    });
    let done = done.map_err(not_replayed)?;
    out::line(format_args!("{}; {server} holds all of it, or has it in its dead letters", text(&done)));
    Ok(())
}

fn text(progress: &ReplayProgress) -> String {
    let ReplayProgress { sent, resolved, left } = progress;
    format!("{resolved} entries resolved, {left} left, {sent} sent")
}

fn config(settings: &Config, patience_s: u64) -> Result<ReplayConfig, Failure> {
    let Switch { server, address, device_id, .. } = &settings.switch;
    if let [_, second, ..] = server[..] {
        return Err(Failure::usage(format!(
            "a log is replayed to one server, and {second} is named too; name the one with --server"
        )));
    }
    let server: SocketAddr = required(server.first(), "switch", "server")?.0;
    let control: SocketAddr = required(address.as_ref(), "switch", "address")?.0;
    let device = DeviceId(required(device_id.as_ref(), "switch", "device_id")?);
    if control.is_ipv4() != server.is_ipv4() {
        let problem = format!("--address {control} and --server {server} are of different families");
        return Err(Failure::usage(problem));
    }
    let cluster_key = cluster_key(&settings.cluster)?;
    Ok(ReplayConfig { device, control, server, cluster_key, patience: Nanos::from_secs(patience_s) })
}

/// The files of the kernel plane are a part of its log.
fn refuse_kept(device: DeviceId) -> Result<(), Failure> {
    let Some(said) = kept(device) else { return Ok(()) };
    let kept = XdpConfig::new(device).pin;
    Err(Failure::usage(format!("{said}; or give that part up: rm -r {}", kept.display())))
}

/// Where the rest of a log is, if the kernel plane keeps one for a device of this number.
pub fn kept(device: DeviceId) -> Option<String> {
    let kept = XdpConfig::new(device).pin;
    let said = || {
        format!(
            "the kernel plane of device {device} keeps a part of the log in {}: start scot switch --plane xdp, with \
             whatever two ports there are, which hands over all of it",
            kept.display()
        )
    };
    kept.exists().then(said)
}

fn not_replayed(error: ReplayError) -> Failure {
    match error {
        ReplayError::Log(error) => failed(error),
        ReplayError::Refused(problem) => Failure::usage(problem),
        error @ (ReplayError::Address { .. } | ReplayError::Silent(_) | ReplayError::Io { .. }) => {
            Failure::environment(error)
        }
    }
}
