//! Histories of clients of a Redis behind sidecars, most of whose reads a device answers, while processes are killed and
//! the wire behind the device loses and reorders frames: does some order explain them?
//!
//! Invariant: a round has keys of its own, so its history begins with nothing. What the device counted until it was
//! killed belongs to the round; what it counted in its last moments is not known, so that the share of hits is a lower
//! bound.

use super::cache_counts::hits;
use super::kill_rounds::COUNTS_AGE_MAX;
use super::linearizability::{finish, judge, BAD_PERCENT, KEYS, KILLS_PER_ROUND};
use super::settings::settings_of;
use super::worker::operations::{lines_count, OperationsSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::{
    await_condition, await_ready, require_redis, AppendFsync, ClientSidecar, Logs, Redis, Site, REDIS_PORT,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::Random;
use serde::Deserialize;
use std::path::PathBuf;
use std::thread;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// How many processes.
    clients: u64,
    /// How many operations each of them makes.
    operations: u64,
}

const REDIS: Redis = Redis { name: "redis", appendfsync: AppendFsync::EverySec, listen: &[] };
const SIDECAR: ClientSidecar = ClientSidecar {
    name: "sidecar-client",
    port: REDIS_PORT,
    early: true,
    durability: Tier::RAM,
    trace: None,
};
const CACHE: [&str; 6] = ["--plane", "user", "--function", "cache", "--function", "persist"];
// A killed sidecar's sessions stay until they expire. A key is kept as soon as it is read.
const SWITCH: [&str; 4] = ["--sessions-max", "1024", "--option", "cache.admit_reads=0"];

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    let seed = super::kill_rounds::seed(context)?;
    let mut world = World::up(context, seed)?;
    context.measure_in_turns(|arm, repetition| {
        let prefix = format!("{}-{repetition}-", arm.name);
        world.round(&settings_of(arm)?, &prefix)
    })
}

struct World<'a> {
    site: Site<'a>,
    redis: Option<Process>,
    server: Option<Process>,
    switch: Option<Process>,
    client: Option<Process>,
    _wire: Process,
    random: Random,
    seed: u64,
    /// Hits of this device's process that were counted already, and those that a round has had so far.
    hits_before: u64,
    hits: u64,
}

impl<'a> World<'a> {
    fn up(context: &'a Context<'a>, seed: u64) -> Result<World<'a>, Trouble> {
        let site = context.site()?;
        let wire = site.start_bad_wire(BAD_PERCENT)?;
        let redis = site.start_redis(&REDIS)?;
        let server = start_server(&site)?;
        let switch = start_switch(&site)?;
        await_ready(&server)?;
        let client = site.start_client_sidecar(&SIDECAR)?;
        let random = Random::new(seed, 1 << 32);
        let (redis, server, switch, client) = (Some(redis), Some(server), Some(switch), Some(client));
        Ok(World { site, redis, server, switch, client, _wire: wire, random, seed, hits_before: 0, hits: 0 })
    }

    fn round(&mut self, settings: &Settings, prefix: &str) -> Result<Measured, Trouble> {
        let file = |client: u64| self.site.folder().join(format!("{prefix}{client}.jsonl"));
        let files: Vec<PathBuf> = (0..settings.clients).map(file).collect();
        let clients: Vec<Process> = files
            .iter()
            .zip(0..)
            .map(|(file, client)| {
                let spec = OperationsSpec {
                    server: self.site.client_sidecar_address(&SIDECAR),
                    sidecar: true,
                    cluster_key: self.site.cluster_key(),
                    prefix: prefix.to_owned(),
                    keys: KEYS,
                    client,
                    operations: settings.operations,
                    relaxed: false,
                    seed: self.seed,
                    history: file.clone(),
                };
                self.site.spawn_worker("client", &format!("{prefix}{client}"), &WorkerSpec::Operations(spec))
            })
            .collect::<Result<_, _>>()?;
        self.hits = 0;
        for number in 1..=KILLS_PER_ROUND {
            // A line for the call and one for the reply.
            let lines = 2 * settings.operations as usize * number / (KILLS_PER_ROUND + 1);
            // The last client is never killed.
            let (last, process) = (&files[files.len() - 1], &clients[clients.len() - 1]);
            await_condition("the clients have made calls", || {
                lines_count(last) > lines || !process.is_running()
            })?;
            self.kill_something(&clients)?;
        }
        for client in &clients {
            finish(client)?;
        }
        self.count_hits()?;
        let mut measured = judge(&files, prefix, 0)?;
        let reads = measured.values.get("reads").copied().unwrap_or(0.0).max(1.0);
        measured.value("hits", self.hits as f64).value("hits_percent", 100.0 * self.hits as f64 / reads);
        measured.counter("hits", self.hits);
        Ok(measured)
    }

    /// Takes what the device has counted since it was asked last, when it has said it.
    fn count_hits(&mut self) -> Result<(), Trouble> {
        thread::sleep(COUNTS_AGE_MAX);
        let counted = hits(&self.site.device_counts()?);
        self.hits += counted.saturating_sub(self.hits_before);
        self.hits_before = counted;
        Ok(())
    }

    fn kill_something(&mut self, clients: &[Process]) -> Result<(), Trouble> {
        // After a device's death a session that lives on fills nothing for a window of requests.
        match self.random.below(10) {
            0..3 => {
                // As if their host had died.
                (self.server, self.redis) = (None, None);
                self.redis = Some(self.site.start_redis(&REDIS)?);
                self.server = Some(start_server(&self.site)?);
            }
            3 => {
                self.count_hits()?;
                self.switch = None;
                self.hits_before = 0;
                self.switch = Some(start_switch(&self.site)?);
            }
            4..7 => {
                self.client = None;
                self.client = Some(self.site.start_client_sidecar(&SIDECAR)?);
            }
            _ => {
                let victim = self.random.below(clients.len() as u64 - 1) as usize;
                clients[victim].kill();
            }
        }
        Ok(())
    }
}

fn start_server(site: &Site<'_>) -> Result<Process, Trouble> {
    let device = site.device().id.to_string();
    site.spawn_server_sidecar(&REDIS, &["--cache-device", &device])
}

fn start_switch(site: &Site<'_>) -> Result<Process, Trouble> {
    site.start_switch_with(Logs::Ram, &[&CACHE[..], &SWITCH].concat())
}
