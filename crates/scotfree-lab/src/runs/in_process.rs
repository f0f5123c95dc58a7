//! A SET of one connection: to a Redis that is called directly, through a client's sidecar, and from within the program
//! that makes it.
//!
//! Invariant: all go through the same device, to a Redis with the same settings on the same host; the same values are
//! set one behind the other, by a process of the same kind.

use super::settings::{plane_of_this_build, settings_of};
use super::worker::in_process::InProcessSpec;
use super::worker::sets::{SetsReport, SetsSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::{
    difference, require_redis, AppendFsync, ClientSidecar, Logs, Redis, Site, REDIS_PORT,
};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    access: Access,
    sets: u64,
    /// How long the program looks for a reply before it sleeps, where it can; daemons have their defaults.
    #[serde(default)]
    spin_us: u64,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Access {
    /// Through the device, which bridges it like any foreign traffic.
    Direct,
    /// Through a client's sidecar.
    Sidecar,
    SidecarEarly,
    /// From within the program.
    InProcess,
    InProcessEarly,
}

const VALUE_BYTES: usize = 100;
const DIRECT_ADDRESS: &str = "10.77.0.2";
const BEHIND: Redis = Redis { name: "redis", appendfsync: AppendFsync::EverySec, listen: &[] };
const DIRECT: Redis =
    Redis { name: "redis-direct", appendfsync: AppendFsync::EverySec, listen: &[DIRECT_ADDRESS] };

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    let stand = Stand::up(context)?;
    context.measure_in_turns(|arm, _| stand.measure(&settings_of(arm)?))
}

/// What is compared, up.
struct Stand<'a> {
    site: Site<'a>,
    covered: ClientSidecar,
    early: ClientSidecar,
    _processes: Vec<Process>,
}

impl<'a> Stand<'a> {
    fn up(context: &Context<'a>) -> Result<Stand<'a>, Trouble> {
        let site = context.site()?;
        let sidecar =
            |name, port, early| ClientSidecar { name, port, early, durability: Tier::RAM, trace: None };
        let covered = sidecar("sidecar-client", REDIS_PORT, false);
        let early = sidecar("sidecar-client-early", REDIS_PORT + 1, true);
        let processes = vec![
            site.start_redis(&DIRECT)?,
            site.start_redis(&BEHIND)?,
            site.start_switch_with(Logs::Ram, &["--plane", plane_of_this_build()])?,
            site.start_server_sidecar(&BEHIND, &[])?,
            site.start_client_sidecar_with(&covered, &[])?,
            site.start_client_sidecar_with(&early, &[])?,
        ];
        Ok(Stand { site, covered, early, _processes: processes })
    }

    fn measure(&self, settings: &Settings) -> Result<Measured, Trouble> {
        let spec = match settings.access {
            Access::Direct => {
                let address = DIRECT_ADDRESS.parse().expect("it is an address");
                sets(SocketAddr::new(address, REDIS_PORT), settings)
            }
            Access::Sidecar => sets(self.site.client_sidecar_address(&self.covered), settings),
            Access::SidecarEarly => sets(self.site.client_sidecar_address(&self.early), settings),
            Access::InProcess => self.within(false, settings),
            Access::InProcessEarly => self.within(true, settings),
        };
        let before = self.site.device_counts()?;
        let report: SetsReport = self.site.run_worker("client", "sets", &spec)?;
        let after = self.site.device_counts()?;
        let mut measured = Measured::default();
        measured.latency(&report.latency).value("sets_per_s", report.sets_per_s);
        measured.counter("refused", report.refused);
        let acks = difference(&before, &after, "scotfree_device_persist_acks_total");
        measured.counter("persist_acks", acks);
        Ok(measured)
    }

    fn within(&self, early: bool, settings: &Settings) -> WorkerSpec {
        WorkerSpec::InProcess(InProcessSpec {
            server: self.site.server(),
            cluster_key: self.site.cluster_key(),
            early,
            sets: settings.sets,
            warmup_sets: settings.sets / 10,
            value_bytes: VALUE_BYTES,
            spin_us: settings.spin_us,
        })
    }
}

fn sets(address: SocketAddr, settings: &Settings) -> WorkerSpec {
    WorkerSpec::Sets(SetsSpec {
        address,
        connections: 1,
        sets: settings.sets,
        warmup_sets: settings.sets / 10,
        value_bytes: VALUE_BYTES,
        replicas: 0,
        read_every: 0,
    })
}
