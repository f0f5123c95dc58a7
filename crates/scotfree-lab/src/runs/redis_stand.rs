//! Two Redis on one host: one is called directly through the device's bridge, the other behind sidecars and
//! the device, whose plane lies in the kernel.
//!
//! Invariant: all that is compared is up at the same time and goes over the same cables; what is not
//! measured sleeps. What the device counted during a load belongs to that load.

use super::{Context, Measured};
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::{
    difference, require_redis, AppendFsync, ClientSidecar, Logs, Redis, Site, REDIS_PORT, WITH_METRICS,
};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::net::SocketAddr;

/// How clients reach a Redis, and who has an update when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Access {
    /// Through the device, which bridges it like any foreign traffic; Redis has synced.
    Direct,
    /// Behind the sidecars: the device has it in memory.
    Memory,
    /// Behind the sidecars: the device has it on its disk.
    Disk,
}

/// What the arms of an experiment agree on, since they share the processes that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct StandSettings {
    /// When the Redis behind the sidecars syncs; the one that is called directly does before it answers.
    pub behind: AppendFsync,
    /// How long device and sidecars look for events before they sleep.
    pub spin_us: u64,
}

/// What is compared, up.
pub(super) struct Stand<'a> {
    pub site: Site<'a>,
    memory: ClientSidecar,
    disk: ClientSidecar,
    _processes: Vec<Process>,
}

const DIRECT_ADDRESS: &str = "10.77.0.2";
const DIRECT: Redis =
    Redis { name: "redis-direct", appendfsync: AppendFsync::Always, listen: &[DIRECT_ADDRESS] };

impl<'a> Stand<'a> {
    pub fn up(context: &Context<'a>, settings: StandSettings) -> Result<Stand<'a>, Trouble> {
        require_redis()?;
        let spin_us = settings.spin_us.to_string();
        let spin = ["--spin-us", &spin_us];
        let behind = Redis { name: "redis", appendfsync: settings.behind, listen: &[] };
        let sidecar =
            |name, port, durability| ClientSidecar { name, port, early: true, durability, trace: None };
        let memory = sidecar("sidecar-memory", REDIS_PORT, Tier::RAM);
        let disk = sidecar("sidecar-disk", REDIS_PORT + 1, "disk".parse().expect("it is a tier"));
        let site = context.site()?;
        let processes = vec![
            site.start_redis(&DIRECT)?,
            site.start_redis(&behind)?,
            site.start_switch_with(Logs::RamAndDisk, &[&["--plane", "xdp"], &spin[..]].concat())?,
            site.start_server_sidecar(&behind, &spin)?,
            site.start_client_sidecar_with(&memory, &[&WITH_METRICS[..], &spin].concat())?,
            site.start_client_sidecar_with(&disk, &spin)?,
        ];
        Ok(Stand { site, memory, disk, _processes: processes })
    }

    /// Where clients find the Redis.
    pub fn address(&self, access: Access) -> SocketAddr {
        match access {
            Access::Direct => SocketAddr::new(DIRECT_ADDRESS.parse().expect("it is an address"), REDIS_PORT),
            Access::Memory => self.site.client_sidecar_address(&self.memory),
            Access::Disk => self.site.client_sidecar_address(&self.disk),
        }
    }

    /// Measures, and adds what the device and the sidecar that asks for memory counted meanwhile.
    pub fn with_counts(
        &self,
        measure: impl FnOnce() -> Result<Measured, Trouble>,
    ) -> Result<Measured, Trouble> {
        let counts = || Ok((self.site.device_counts()?, self.site.counts("client")?));
        let (device_before, client_before) = counts()?;
        let mut measured = measure()?;
        let (device, client) = counts()?;
        for name in ["persist_acks", "logged"] {
            let of_daemon = format!("scotfree_device_{name}_total");
            measured.counter(name, difference(&device_before, &device, &of_daemon));
        }
        for name in ["commands", "updates", "early", "reads", "bypasses"] {
            let of_daemon = format!("scotfree_front_{name}_total");
            measured.counter(&format!("front_{name}"), difference(&client_before, &client, &of_daemon));
        }
        Ok(measured)
    }
}
