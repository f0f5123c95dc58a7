//! Updates and reads of the stores and of a Redis: without a device, with one that logs updates, and with one that
//! answers reads as well.
//!
//! Invariant: all arms of a store make the same calls on the same keys; they differ in what completes an update and who
//! answers a read. A device with a cache has hosts of its own beside those of one without, and both sleep while the
//! other is measured. What a cache has answered it counts.

use super::cache_counts::{counts_after, hits};
use super::settings::{settings_of, shared_by_arms};
use super::stores;
use super::worker::redis_use::{FillRedisSpec, UseRedisReport, UseRedisSpec};
use super::worker::stores::{FillSpec, ReadAllSpec, StoreShape, UseReport, UseSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use crate::keys::Popularity;
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::{
    await_ready, difference, require_redis, AppendFsync, ClientSidecar, Logs, Medium, Redis, Site, PATIENCE,
    REDIS_PORT,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use serde::Deserialize;
use std::fs;
use std::net::SocketAddr;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// A structure, as `scot kv --index` has it, or `redis`.
    store: String,
    with: With,
    updates_percent: u32,
    /// What moves the devices' frames, if it is not what it is in most arms.
    plane: Option<String>,
    stand: Stand,
}

impl Settings {
    fn plane(&self) -> &str {
        self.plane.as_deref().unwrap_or(&self.stand.plane)
    }
}

/// What completes an update and answers a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum With {
    /// The server, an update when it is on its storage.
    Nothing,
    /// The device's log, and the server.
    Log,
    /// The device's log, and its cache where it knows the value.
    Cache,
}

/// What all arms share.
#[derive(Deserialize, Clone, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Stand {
    keys: u64,
    value_bytes: usize,
    popularity: Popularity,
    /// Where the log of the embedded server lies.
    log: Medium,
    /// What moves the devices' frames, unless an arm says otherwise.
    plane: String,
    time_ms: u64,
    warmup_ms: u64,
}

impl Stand {
    fn shape(&self) -> StoreShape {
        StoreShape { keys: self.keys, value_bytes: self.value_bytes }
    }
}

const REDIS: &str = "redis";
/// A cache keeps what was read before: until then, and once more.
const ROUNDS: u32 = 3;
const CACHE: [&str; 4] = ["--function", "cache", "--function", "persist"];
/// The number of the only device.
const VOUCHED: [&str; 2] = ["--cache-device", "1"];
const DIRECT_ADDRESS: &str = "10.77.0.2";
const DIRECT: Redis =
    Redis { name: "redis-direct", appendfsync: AppendFsync::Always, listen: &[DIRECT_ADDRESS] };
const BEHIND: Redis = Redis { name: "redis-behind", appendfsync: AppendFsync::EverySec, listen: &[] };
const SIDECAR: ClientSidecar = ClientSidecar {
    name: "sidecar-client",
    port: REDIS_PORT,
    early: true,
    durability: Tier::RAM,
    trace: None,
};

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let stand = shared_by_arms(context.experiment, |arm: &Settings| arm.stand.clone())?;
    require_redis()?;
    let mut world = World { context, stand, sides: None };
    context.measure_in_turns(|arm, repetition| world.measure(&settings_of(arm)?, u64::from(repetition)))
}

/// The hosts of what is measured: those of a Redis, or of the embedded server.
struct World<'c, 'a> {
    context: &'c Context<'a>,
    stand: Stand,
    sides: Option<Sides<'a>>,
}

struct Sides<'a> {
    is_redis: bool,
    plane: String,
    without_cache: Side<'a>,
    with_cache: Side<'a>,
}

impl World<'_, '_> {
    fn measure(&mut self, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
        let is_redis = settings.store == REDIS;
        let plane = settings.plane();
        if self.sides.as_ref().is_none_or(|sides| (sides.is_redis, &sides.plane[..]) != (is_redis, plane)) {
            // The ones before go first, with all that runs there.
            self.sides = None;
            let up = |has_cache| Side::up(self.context, &self.stand, plane, is_redis, has_cache);
            let (without_cache, with_cache) = (up(false)?, up(true)?);
            self.sides = Some(Sides { is_redis, plane: plane.to_owned(), without_cache, with_cache });
        }
        let sides = self.sides.as_mut().expect("they are up");
        let side =
            if settings.with == With::Cache { &mut sides.with_cache } else { &mut sides.without_cache };
        if is_redis {
            side.measure_redis(&self.stand, settings, seed)
        } else {
            side.serve_known(&self.stand, &settings.store)?;
            side.measure_store(&self.stand, settings, seed)
        }
    }
}

/// A client, a device and a server.
struct Side<'a> {
    site: Site<'a>,
    has_cache: bool,
    store: Option<(String, Process)>,
    processes: Vec<Process>,
}

impl<'a> Side<'a> {
    fn up(
        context: &Context<'a>,
        stand: &Stand,
        plane: &str,
        is_redis: bool,
        has_cache: bool,
    ) -> Result<Side<'a>, Trouble> {
        let name = &context.experiment.name;
        let site = context.site_named(&if has_cache { format!("{name}-with") } else { name.clone() })?;
        let functions = if has_cache { &CACHE[..] } else { &[] };
        let switch = site.start_switch_with(Logs::Ram, &[&["--plane", plane], functions].concat())?;
        let mut side = Side { site, has_cache, store: None, processes: vec![switch] };
        if is_redis {
            side.serve_redis(stand)?;
        } else {
            side.serve(stand, "hash")?;
            side.site.run_worker::<()>("client", "fill", &WorkerSpec::FillStore(side.fill(stand)))?;
            // Whoever measures first starts a server that has to find the keys.
            side.stop()?;
        }
        Ok(side)
    }

    fn vouched(&self) -> &'static [&'static str] {
        if self.has_cache {
            &VOUCHED
        } else {
            &[]
        }
    }

    // ---- the embedded server

    fn fill(&self, stand: &Stand) -> FillSpec {
        let (server, cluster_key) = (self.site.server(), self.site.cluster_key());
        FillSpec { server, cluster_key, shape: stand.shape() }
    }

    /// Has a server with this structure, and a cache that knows its keys.
    fn serve_known(&mut self, stand: &Stand, index: &str) -> Result<(), Trouble> {
        let is_new = self.serve(stand, index)?;
        if !(is_new && self.has_cache) {
            return Ok(());
        }
        let spec = ReadAllSpec { store: self.fill(stand), rounds: ROUNDS };
        self.site.run_worker("client", "read-all", &WorkerSpec::ReadStore(spec))
    }

    /// Has a server with this structure, on the log of the one before; whether it is a new one.
    fn serve(&mut self, stand: &Stand, index: &str) -> Result<bool, Trouble> {
        if self.store.as_ref().is_some_and(|(store, _)| store == index) {
            return Ok(false);
        }
        self.stop()?;
        let process = self.site.spawn_kv_on(stand.log, &[&["--index", index], self.vouched()].concat())?;
        await_ready(&process)?;
        self.store = Some((index.to_owned(), process));
        Ok(true)
    }

    /// Ends the server, which writes out what it has executed.
    fn stop(&mut self) -> Result<(), Trouble> {
        let Some((index, process)) = self.store.take() else { return Ok(()) };
        match process.stop(PATIENCE) {
            Some(status) if status.success() => Ok(()),
            status => {
                let problem = status.map_or("it does not end".to_owned(), |status| status.to_string());
                let tried = format!("end the server with `{index}`");
                Err(Trouble::new(tried, problem, format!("it printed: {}", process.error_output().trim())))
            }
        }
    }

    fn measure_store(&self, stand: &Stand, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
        let tier = if settings.with == With::Nothing { Tier::NONE } else { Tier::RAM };
        let spec = UseSpec {
            server: self.site.server(),
            cluster_key: self.site.cluster_key(),
            tier,
            shape: stand.shape(),
            popularity: stand.popularity,
            updates_percent: settings.updates_percent,
            is_noted: self.has_cache,
            time_ms: stand.time_ms,
            warmup_ms: stand.warmup_ms,
            seed,
        };
        let before = self.site.device_counts()?;
        let report: UseReport = self.site.run_worker("client", "use", &WorkerSpec::UseStore(spec))?;
        // The warm-up's reads come on top.
        let after = self.counts_after(&before, report.reads)?;
        let mut measured = stores::measured(&report);
        measured.value("mean_us", report.mean_ns / 1_000.0);
        measured.value("hit_share", share(report.reads_again, report.reads));
        measured.counter("hits", hits(&after) - hits(&before));
        count_acks(&before, &after, &mut measured);
        Ok(measured)
    }

    // ---- a Redis

    fn serve_redis(&mut self, stand: &Stand) -> Result<(), Trouble> {
        self.start_redis(&BEHIND)?;
        if !self.has_cache {
            self.start_redis(&DIRECT)?;
        }
        self.processes.push(self.site.start_server_sidecar(&BEHIND, self.vouched())?);
        self.processes.push(self.site.start_client_sidecar(&SIDECAR)?);
        let sidecar = self.site.client_sidecar_address(&SIDECAR);
        self.pass_over(stand, sidecar, true, 1)?;
        if self.has_cache {
            self.pass_over(stand, sidecar, false, ROUNDS)
        } else {
            self.pass_over(stand, direct(), true, 1)
        }
    }

    /// Starts one whose files lie in memory, as the log of the embedded server does.
    fn start_redis(&mut self, redis: &Redis) -> Result<(), Trouble> {
        let folder = self.site.memory_folder().join(redis.name);
        fs::create_dir_all(&folder).map_err(|error| Trouble::file("create the folder", &folder, &error))?;
        let more = ["--dir", &folder.to_string_lossy()];
        self.processes.push(self.site.start_redis_on("server", redis, &more)?);
        Ok(())
    }

    fn pass_over(&self, stand: &Stand, address: SocketAddr, sets: bool, rounds: u32) -> Result<(), Trouble> {
        let spec = FillRedisSpec { address, shape: stand.shape(), sets, expire: false, rounds };
        self.site.run_worker("client", "fill", &WorkerSpec::FillRedis(spec))
    }

    fn measure_redis(&self, stand: &Stand, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
        let sidecar = self.site.client_sidecar_address(&SIDECAR);
        let spec = UseRedisSpec {
            address: if settings.with == With::Nothing { direct() } else { sidecar },
            shape: stand.shape(),
            expire: false,
            popularity: stand.popularity,
            updates_percent: settings.updates_percent,
            connections: 1,
            pipeline: 1,
            looks: false,
            time_ms: stand.time_ms,
            warmup_ms: stand.warmup_ms,
            seed,
        };
        let before = self.site.device_counts()?;
        let report: UseRedisReport =
            self.site.run_worker("client", "use-redis", &WorkerSpec::UseRedis(spec))?;
        let after = self.counts_after(&before, report.reads_sent)?;
        let mut measured = measured(&report);
        let hits = hits(&after) - hits(&before);
        measured.value("hit_share", share(hits, report.reads_sent)).counter("hits", hits);
        count_acks(&before, &after, &mut measured);
        Ok(measured)
    }

    // ---- counters

    /// What the device has counted once its cache, if it has one, has counted these reads.
    fn counts_after(&self, before: &Counts, reads: u64) -> Result<Counts, Trouble> {
        counts_after(before, if self.has_cache { reads } else { 0 }, || self.site.device_counts())
    }
}

fn count_acks(before: &Counts, after: &Counts, measured: &mut Measured) {
    let acks = difference(before, after, "scotfree_device_persist_acks_total");
    measured.counter("persist_acks", acks);
}

fn direct() -> SocketAddr {
    SocketAddr::new(DIRECT_ADDRESS.parse().expect("it is an address"), REDIS_PORT)
}

fn share(of: u64, all: u64) -> f64 {
    if all == 0 {
        return 0.0;
    }
    of as f64 / all as f64
}

/// What commands measured, as metrics and counters, named as those of the stores.
fn measured(report: &UseRedisReport) -> Measured {
    let mut measured = Measured::default();
    measured.value("requests_per_s", report.requests_per_s);
    for (percent, ns) in &report.calls_ns {
        measured.value(&format!("p{percent}_us"), *ns as f64 / 1_000.0);
    }
    measured.value("mean_us", report.calls.mean_ns / 1_000.0);
    for (prefix, of) in [("update_", &report.updates), ("read_", &report.reads)] {
        if let Some(summary) = of {
            measured.value(&format!("{prefix}p50_us"), summary.p50_ns as f64 / 1_000.0);
            measured.value(&format!("{prefix}p99_us"), summary.p99_ns as f64 / 1_000.0);
        }
    }
    measured.counter("updates", report.updates_sent).counter("reads", report.reads_sent);
    measured.counter("wrong_replies", report.wrong_replies);
    measured
}
