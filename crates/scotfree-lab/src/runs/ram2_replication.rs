//! A SET that two hosts beside the Redis' own have in memory when the Redis' reply is given: two devices on the path, two
//! peers of a proxy, or two replicas.
//!
//! Invariant: in every arm the same client makes the same SETs, and gets the reply of a Redis that has executed them. The
//! peers run on the replicas' hosts. Of the replicated Redis there is nothing to be had from a disk: its replicas keep no
//! file, and both of its copies are asked for in the packet that sets.

use super::chain::VALUE_BYTES;
use super::ram3_replication::{start_replicated, BRIDGE_ADDRESS, CABLE_ADDRESS, REPLICAS};
use super::settings::{plane_of_this_build, settings_of, shared_by_arms};
use super::worker::sets::{SetsReport, SetsSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_stage::process::Process;
use scotfree_stage::site::{
    await_condition, await_ready, difference, require_redis, AppendFsync, ClientSidecar, Logs, Redis, Site,
    REDIS_PORT, WITH_METRICS,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    copies: Copies,
    connections: u32,
    /// SETs of each connection.
    sets: u64,
    /// How long devices, sidecars and proxy look for events before they sleep.
    spin_us: u64,
}

/// Who has copies of a SET when it is answered.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Copies {
    /// Two devices.
    Devices,
    /// Two replicas, their Redis being reached through the same devices, which bridge it like any foreign traffic.
    Replicas,
    /// The same, over a cable without devices.
    ReplicasByCable,
    /// Two peers of a proxy, which is reached over that cable.
    PeersByCable,
}

const BEHIND_DEVICES: Redis =
    Redis { name: "redis-devices", appendfsync: AppendFsync::EverySec, listen: &[] };
const BEHIND_PROXY: Redis = Redis { name: "redis-proxy", appendfsync: AppendFsync::EverySec, listen: &[] };
const PROXY_PORT: u16 = REDIS_PORT + 1;

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    let spin_us = shared_by_arms(context.experiment, |arm: &Settings| arm.spin_us)?.to_string();
    let stand = Stand::up(context, &["--spin-us", &spin_us])?;
    context.measure_in_turns(|arm, _| stand.measure(&settings_of(arm)?))
}

/// All that is compared, up.
struct Stand<'a> {
    site: Site<'a>,
    sidecar: ClientSidecar,
    _processes: Vec<Process>,
}

impl<'a> Stand<'a> {
    fn up(context: &Context<'a>, spin: &[&str]) -> Result<Stand<'a>, Trouble> {
        let site = context.site()?;
        let sidecar = ClientSidecar {
            name: "sidecar-client",
            port: REDIS_PORT,
            early: false,
            durability: "ram:2".parse().expect("it is a tier"),
            trace: None,
        };
        let mut processes = vec![site.start_redis(&BEHIND_DEVICES)?, site.start_redis(&BEHIND_PROXY)?];
        processes.extend(start_replicated(&site)?);
        let with_plane = [&["--plane", plane_of_this_build()], spin].concat();
        processes.extend(site.start_chain(&[Logs::Ram; 2], &with_plane)?);
        processes.push(site.start_server_sidecar(&BEHIND_DEVICES, spin)?);
        processes.push(site.start_client_sidecar_with(&sidecar, spin)?);
        processes.extend(start_proxy_with_peers(&site, spin)?);
        Ok(Stand { site, sidecar, _processes: processes })
    }

    fn measure(&self, settings: &Settings) -> Result<Measured, Trouble> {
        let at = |address: &str, port| SocketAddr::new(address.parse().expect("it is an address"), port);
        let (address, replicas) = match settings.copies {
            Copies::Devices => (self.site.client_sidecar_address(&self.sidecar), 0),
            Copies::Replicas => (at(BRIDGE_ADDRESS, REDIS_PORT), REPLICAS.len()),
            Copies::ReplicasByCable => (at(CABLE_ADDRESS, REDIS_PORT), REPLICAS.len()),
            Copies::PeersByCable => (at(CABLE_ADDRESS, PROXY_PORT), 0),
        };
        let spec = SetsSpec {
            address,
            connections: settings.connections,
            sets: settings.sets,
            warmup_sets: settings.sets / 10,
            value_bytes: VALUE_BYTES,
            replicas: replicas as u32,
            read_every: 0,
        };
        let before = AllCounts::of(&self.site)?;
        let report: SetsReport = self.site.run_worker("client", "sets", &WorkerSpec::Sets(spec))?;
        let after = AllCounts::of(&self.site)?;
        let mut measured = Measured::default();
        measured.latency(&report.latency).value("sets_per_s", report.sets_per_s);
        // A SET that fewer than two replicas have is refused.
        measured.counter("refused", report.refused);
        measured.counter("kernel_plane", u64::from(plane_of_this_build() == "xdp"));
        after.since(&before, &mut measured);
        Ok(measured)
    }
}

/// A proxy whose log two peers hold.
fn start_proxy_with_peers(site: &Site<'_>, spin: &[&str]) -> Result<Vec<Process>, Trouble> {
    let roles = REPLICAS.map(|(role, ..)| role);
    let mut processes = roles.iter().map(|role| site.start_peer(role)).collect::<Result<Vec<_>, _>>()?;
    let peers = site.peer_words(&roles);
    let mut words: Vec<&str> = peers.iter().map(String::as_str).collect();
    words.extend(WITH_METRICS.iter().chain(spin));
    let listen = SocketAddr::new(CABLE_ADDRESS.parse().expect("it is an address"), PROXY_PORT);
    let proxy = site.spawn_proxy("proxy", &BEHIND_PROXY, listen, &words)?;
    await_ready(&proxy)?;
    processes.push(proxy);
    await_condition("both peers hold the proxy's log", || {
        site.counts("server").is_ok_and(|counts| count(&counts, "scotfree_proxy_peers_whole") == 2)
    })?;
    Ok(processes)
}

/// What says that the copies were made.
struct AllCounts {
    devices: Vec<Counts>,
    proxy: Counts,
}

impl AllCounts {
    fn of(site: &Site<'_>) -> Result<AllCounts, Trouble> {
        let devices = site.counts_of_devices()?.into_values().collect();
        Ok(AllCounts { devices, proxy: site.counts("server")? })
    }

    /// Of each arm's own; what is counted in the last 250 ms of an arm is told in the next one.
    fn since(&self, before: &AllCounts, measured: &mut Measured) {
        for (number, (then, now)) in (1..).zip(before.devices.iter().zip(&self.devices)) {
            let acks = difference(then, now, "scotfree_device_persist_acks_total");
            measured.counter(&format!("acks_{number}"), acks);
        }
        let logged = difference(&before.proxy, &self.proxy, "scotfree_proxy_logged_total");
        measured.counter("logged_by_peers", logged);
        measured.counter("peers_whole", count(&self.proxy, "scotfree_proxy_peers_whole"));
        measured.counter("peer_losses", count(&self.proxy, "scotfree_proxy_peer_losses_total"));
    }
}

fn count(counts: &Counts, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}
