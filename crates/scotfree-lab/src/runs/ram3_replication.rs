//! A SET that three machines hold before it is answered: three devices on the path, or a Redis and two
//! replicas.
//!
//! Invariant: in every arm the same client makes the same SETs at one connection, and what answers has the SET
//! in the memory of three. Of the replicated Redis there is nothing to be had from a disk: its replicas keep no
//! file, and both of its copies are asked for in the packet that sets.

use super::chain::{set_keys, Sets, VALUE_BYTES};
use super::settings::{settings_of, shared_by_arms};
use super::worker::sets::{SetsReport, SetsSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::resp::Reply;
use scotfree_stage::site::{
    ask_redis, await_condition, require_redis, AppendFsync, ClientSidecar, Logs, Redis, Site, REDIS_PORT,
    WITH_METRICS,
};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    copies: Copies,
    sets: u64,
    /// How long devices and sidecars look for events before they sleep.
    spin_us: u64,
    /// What moves the frames.
    plane: String,
}

/// Who has copies of a SET when it is answered.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Copies {
    /// Three devices.
    Devices,
    /// Redis and two replicas, reached through the same devices, which bridge it like any foreign traffic.
    Replicas,
    /// The same, over a cable without devices.
    ReplicasByCable,
}

const BEHIND: Redis = Redis { name: "redis", appendfsync: AppendFsync::EverySec, listen: &[] };
// The addresses behind the devices, on the cable, and towards the replicas.
pub(super) const BRIDGE_ADDRESS: &str = "10.77.0.2";
pub(super) const CABLE_ADDRESS: &str = "10.78.0.2";
const PRIMARY: Redis = Redis {
    name: "redis-primary",
    appendfsync: AppendFsync::EverySec,
    listen: &[BRIDGE_ADDRESS, CABLE_ADDRESS, "10.79.0.1", "10.80.0.1"],
};
pub(super) const REPLICAS: [(&str, Redis, &str); 2] = [
    ("replica-a", replica("redis-replica-a", &["10.79.0.2"]), "10.79.0.1"),
    ("replica-b", replica("redis-replica-b", &["10.80.0.2"]), "10.80.0.1"),
];

const fn replica(name: &'static str, listen: &'static [&'static str]) -> Redis {
    Redis { name, appendfsync: AppendFsync::EverySec, listen }
}

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    let spin_us = shared_by_arms(context.experiment, |arm: &Settings| arm.spin_us)?.to_string();
    let plane = shared_by_arms(context.experiment, |arm: &Settings| arm.plane.clone())?;
    let spin = ["--spin-us", &spin_us];
    let site = context.site()?;
    let _redis = site.start_redis(&BEHIND)?;
    let _replicated = start_replicated(&site)?;
    let _switches = site.start_chain(&[Logs::Ram; 3], &[&["--plane", &plane], &spin[..]].concat())?;
    let _server = site.start_server_sidecar(&BEHIND, &spin)?;
    let sidecar = ClientSidecar {
        name: "sidecar-client",
        port: REDIS_PORT,
        early: true,
        durability: "ram:3".parse::<Tier>().expect("it is a tier"),
        trace: None,
    };
    let _client = site.start_client_sidecar_with(&sidecar, &[&WITH_METRICS[..], &spin].concat())?;
    context.measure_in_turns(|arm, _| {
        let Settings { copies, sets: count, .. } = settings_of(arm)?;
        let warmup_count = count / 10;
        match copies {
            Copies::Devices => {
                let sets = Sets { count, warmup_count, read_every: 0 };
                let mut measured = Measured::default();
                set_keys(&site, &sidecar, &sets, "", &mut measured)?;
                Ok(measured)
            }
            Copies::Replicas => set_with_replicas(&site, BRIDGE_ADDRESS, count, warmup_count),
            Copies::ReplicasByCable => set_with_replicas(&site, CABLE_ADDRESS, count, warmup_count),
        }
    })
}

/// A Redis and two replicas that follow it.
pub(super) fn start_replicated(site: &Site<'_>) -> Result<Vec<Process>, Trouble> {
    // It does not wait for further replicas before it sends the first one its data.
    let mut processes =
        vec![site.start_redis_on("server", &PRIMARY, &["--repl-diskless-sync-delay", "0"])?];
    for (role, redis, primary) in &REPLICAS {
        let more = ["--replicaof", primary, &REDIS_PORT.to_string(), "--appendonly", "no"];
        processes.push(site.start_redis_on(role, redis, &more)?);
    }
    let socket = site.redis_socket(&PRIMARY);
    let has_copies = || {
        let info = ask_redis(&socket, &["INFO", "replication"]);
        matches!(info, Ok(Reply::Bulk(text)) if online_count(&text) == REPLICAS.len())
    };
    await_condition("two replicas follow the Redis", has_copies)?;
    Ok(processes)
}

fn online_count(info: &[u8]) -> usize {
    String::from_utf8_lossy(info).matches("state=online").count()
}

fn set_with_replicas(
    site: &Site<'_>,
    address: &str,
    sets: u64,
    warmup_sets: u64,
) -> Result<Measured, Trouble> {
    let spec = SetsSpec {
        address: SocketAddr::new(address.parse().expect("it is an address"), REDIS_PORT),
        connections: 1,
        sets,
        warmup_sets,
        value_bytes: VALUE_BYTES,
        replicas: REPLICAS.len() as u32,
        read_every: 0,
    };
    let report: SetsReport = site.run_worker("client", "sets", &WorkerSpec::Sets(spec))?;
    let mut measured = Measured::default();
    measured.latency(&report.latency);
    // A SET that fewer than two replicas have is refused.
    measured.counter("refused", report.refused);
    Ok(measured)
}
