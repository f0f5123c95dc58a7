//! A server behind a device and sidecars, each of which may die.
//!
//! Invariant: Redis and its sidecar die together, as if their host did.

use super::super::Context;
use super::{Cast, Scene};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::{
    await_ready, has_redis, require_redis, AppendFsync, ClientSidecar, Logs, Redis, Site, REDIS_PORT,
    WITH_METRICS,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Settings {
    /// What serves.
    #[serde(default)]
    service: Service,
    /// How many rounds, unless the command line says.
    rounds: u64,
    appendfsync: AppendFsync,
    /// Whether the append-only file is cut back while the server is dead.
    cut: bool,
    /// Whether the server says stable when it means applied.
    #[serde(default)]
    ack_when_applied: bool,
}

/// What serves.
#[derive(Deserialize, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Service {
    /// A Redis where one is installed, else the embedded server.
    #[default]
    Redis,
    /// The embedded server.
    Kv,
}

// Places in the list of victims: Redis and its sidecar; the device's daemon; the sidecar in front of the writers.
const SERVER: usize = 0;
const DEVICE: usize = 1;
const CLIENT: usize = 2;

// A killed client's sessions live on until they expire, a minute: they need more room than a device usually
// has.
const SWITCH: [&str; 2] = ["--sessions-max", "512"];
// Of so many kills one is of the client, for the same reason.
const KILLS_PER_CLIENT: u64 = 5;

/// The sidecar that writers speak to, while processes die.
pub(in super::super) const SIDECAR: ClientSidecar = ClientSidecar {
    name: "sidecar-client",
    port: REDIS_PORT,
    early: true,
    durability: Tier::RAM,
    trace: None,
};

pub(in super::super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    super::run::<BehindDevice>(context)
}

pub(in super::super) fn run_control(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    super::run_control::<BehindDevice>(context)
}

/// All that serves; none of it is missing but between its kill and its start.
pub(super) struct BehindDevice {
    settings: Settings,
    redis: Option<Redis>,
    // Redis and its sidecar, or the embedded server alone.
    store: Option<Process>,
    sidecar: Option<Process>,
    switch: Option<Process>,
    client: Option<Process>,
}

impl<'a> Cast<'a> for BehindDevice {
    type Settings = Settings;
    const VICTIMS: &'static [&'static str] = &["server", "device", "client"];
    const POWER_CUT: usize = SERVER;
    const COUNTERS: &'static [(&'static str, &'static str)] = &[
        ("persist_acks", "scotfree_device_persist_acks_total"),
        ("sessions_refused", "scotfree_device_sessions_refused_total"),
    ];
    const COUNTED_AT: &'static [&'static str] = &["device", "server", "client"];

    fn rounds(settings: &Settings) -> u64 {
        settings.rounds
    }

    fn up(scene: &mut Scene<'a>, settings: Settings) -> Result<BehindDevice, Trouble> {
        let redis = redis_of(&settings)?;
        let mut cast =
            BehindDevice { settings, redis, store: None, sidecar: None, switch: None, client: None };
        cast.start_server(scene)?;
        cast.switch = Some(scene.site.start_switch_with(Logs::Ram, &SWITCH)?);
        cast.wait_until_ready()?;
        cast.client = Some(scene.site.start_client_sidecar_with(&SIDECAR, &WITH_METRICS)?);
        Ok(cast)
    }

    fn address(&self, site: &Site<'a>) -> SocketAddr {
        site.client_sidecar_address(&SIDECAR)
    }

    fn redis(&self) -> Option<&Redis> {
        self.redis.as_ref()
    }

    fn choose(&self, random: &mut Random) -> usize {
        // A power cut is the server's; now and then somebody else dies as well.
        if self.settings.cut && random.below(4) > 0 {
            return SERVER;
        }
        match random.below(KILLS_PER_CLIENT) {
            0 => CLIENT,
            other if other % 2 == 0 => DEVICE,
            _ => SERVER,
        }
    }

    fn kill(&mut self, victim: usize, scene: &mut Scene<'a>) {
        match victim {
            SERVER => {
                let sidecar_first = scene.random.below(2) == 0;
                if sidecar_first {
                    self.sidecar = None;
                }
                self.store = None;
                self.sidecar = None;
            }
            DEVICE => {
                scene.keep_counts("device");
                self.switch = None;
            }
            _ => self.client = None,
        }
    }

    fn revive(&mut self, victim: usize, scene: &mut Scene<'a>) -> Result<(), Trouble> {
        match victim {
            SERVER => {
                if self.settings.cut {
                    scene.cut()?;
                }
                self.start_server(scene)?;
            }
            DEVICE => self.switch = Some(scene.site.start_switch_with(Logs::Ram, &SWITCH)?),
            _ => self.client = Some(scene.site.start_client_sidecar_with(&SIDECAR, &WITH_METRICS)?),
        }
        Ok(())
    }

    fn wait_until_ready(&self) -> Result<(), Trouble> {
        let last = self.sidecar.as_ref().or(self.store.as_ref());
        last.map_or(Ok(()), await_ready)
    }

    fn processes(&self) -> Vec<&Process> {
        [&self.store, &self.sidecar, &self.switch, &self.client].into_iter().flatten().collect()
    }
}

impl BehindDevice {
    fn start_server(&mut self, scene: &Scene<'_>) -> Result<(), Trouble> {
        let Some(redis) = &self.redis else {
            self.store = Some(scene.site.spawn_kv(&WITH_METRICS)?);
            return Ok(());
        };
        self.store = Some(scene.site.start_redis(redis)?);
        let sizes = scene.power.sizes_file().to_string_lossy().into_owned();
        let mut more = WITH_METRICS.to_vec();
        if self.settings.cut {
            more.extend(["--synced-sizes", &sizes]);
        }
        if self.settings.ack_when_applied {
            more.push("--unsafe-ack-when-applied");
        }
        self.sidecar = Some(scene.site.spawn_server_sidecar(redis, &more)?);
        Ok(())
    }
}

/// The Redis that is wanted, if there is one to be started.
fn redis_of(settings: &Settings) -> Result<Option<Redis>, Trouble> {
    if settings.service == Service::Kv {
        return Ok(None);
    }
    if has_redis() {
        return Ok(Some(Redis { name: "redis", appendfsync: settings.appendfsync, listen: &[] }));
    }
    if settings.cut {
        require_redis()?;
    }
    super::super::say("redis-server is not installed: the embedded server takes its place");
    Ok(None)
}
