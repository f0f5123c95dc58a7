//! What a SET takes when many connections are open and few are asked: of Redis alone, of the sidecar in front of
//! clients, of the proxy.
//!
//! Invariant: all that is compared is up at the same time and goes over the same cables and the same bridge. One request
//! waits for its reply at any time, so no latency is that of a queue.

use super::redis_always::measured;
use super::settings::{plane_of_this_build, settings_of};
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::load::LoadReport;
use scotfree_stage::site::{
    difference, require_redis, AppendFsync, ClientSidecar, Logs, Redis, Site, REDIS_PORT, WITH_METRICS,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::{LoadSpec, WorkerSpec};
use scotfree_stage::workload::Workload;
use serde::Deserialize;
use std::net::SocketAddr;

/// What clients call.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Access {
    /// A Redis, through the device, which bridges it like any foreign traffic.
    Redis,
    /// The sidecar in front of clients; behind it device, sidecar and Redis.
    Sidecar,
    /// The proxy before a Redis, through the same bridge.
    Proxy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    access: Access,
    connections: u32,
}

const ADDRESS: &str = "10.77.0.2";
const DIRECT: Redis = Redis { name: "redis-direct", appendfsync: AppendFsync::EverySec, listen: &[ADDRESS] };
const BEHIND_SIDECARS: Redis =
    Redis { name: "redis-sidecars", appendfsync: AppendFsync::EverySec, listen: &[] };
const BEHIND_PROXY: Redis = Redis { name: "redis-proxy", appendfsync: AppendFsync::EverySec, listen: &[] };
const PROXY_PORT: u16 = REDIS_PORT + 1;
const SIDECAR: ClientSidecar = ClientSidecar {
    name: "sidecar-client",
    port: REDIS_PORT,
    early: false,
    durability: Tier::RAM,
    trace: None,
};
// More than the 10,000 that are tried: those of an arm may be closed while the next one opens its own.
const CONNECTIONS_MAX: &str = "12000";

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    let workload = context.workload()?;
    let site = context.site()?;
    let plane = plane_of_this_build();
    let many = ["--connections-max", CONNECTIONS_MAX];
    let of_proxy = [&WITH_METRICS[..], &many].concat();
    let _processes = [
        site.start_redis_on("server", &DIRECT, &["--maxclients", CONNECTIONS_MAX])?,
        site.start_redis(&BEHIND_SIDECARS)?,
        site.start_redis(&BEHIND_PROXY)?,
        site.start_switch_with(Logs::Ram, &["--plane", plane])?,
        site.start_server_sidecar(&BEHIND_SIDECARS, &[])?,
        site.start_client_sidecar_with(&SIDECAR, &many)?,
        site.start_proxy("proxy", &BEHIND_PROXY, PROXY_PORT, &of_proxy)?,
    ];
    context.measure_in_turns(|arm, _| {
        let settings: Settings = settings_of(arm)?;
        let mut measured = measure(&site, workload, &settings)?;
        measured.counter("kernel_plane", u64::from(plane == "xdp"));
        Ok(measured)
    })
}

fn measure(site: &Site<'_>, workload: &Workload, settings: &Settings) -> Result<Measured, Trouble> {
    let server = |port| SocketAddr::new(ADDRESS.parse().expect("it is an address"), port);
    let address = match settings.access {
        Access::Redis => server(REDIS_PORT),
        Access::Sidecar => site.client_sidecar_address(&SIDECAR),
        Access::Proxy => server(PROXY_PORT),
    };
    let workload = Workload { connections: settings.connections, ..workload.clone() };
    let counts = || Ok((site.device_counts()?, site.counts("server")?));
    let (device_before, proxy_before) = counts()?;
    let load = LoadSpec { address, workload };
    let report: LoadReport = site.run_worker("client", "load", &WorkerSpec::Load(load))?;
    let (device, proxy) = counts()?;
    let mut measured = measured(&report);
    measured.counter("broken", report.broken_count);
    let logged = difference(&device_before, &device, "scotfree_device_logged_total");
    measured.counter("logged_by_device", logged);
    // What it counted within the last 250 ms it tells the next arm.
    let logged = difference(&proxy_before, &proxy, "scotfree_proxy_logged_total");
    measured.counter("logged_by_proxy", logged);
    Ok(measured)
}
