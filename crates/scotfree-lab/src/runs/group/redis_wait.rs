//! A SET that three servers have before it is answered: a Redis with two replicas, told to wait for both, or a group.
//!
//! Invariant: in every arm one client on the same host makes SETs of the same size over loopback, one behind the other,
//! and what answers has the SET at three servers: in memory, or synced to the disk by each of them.

use super::{use_group, GroupSettings, HOST};
use crate::experiment::Measurement;
use crate::runs::settings::settings_of;
use crate::runs::worker::group_use::Requests;
use crate::runs::worker::sets::{SetsReport, SetsSpec};
use crate::runs::worker::WorkerSpec;
use crate::runs::{Context, Measured};
use scotfree_stage::process::Process;
use scotfree_stage::resp::Reply;
use scotfree_stage::site::{ask_redis, await_condition, require_redis, AppendFsync, Redis, Site, REDIS_PORT};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// A group of this kind; a Redis with replicas if none is said.
    group: Option<GroupSettings>,
    /// Whether the servers of Redis sync each SET before they answer or acknowledge; groups say it themselves.
    #[serde(default)]
    syncs: bool,
    /// How long a group is given SETs.
    #[serde(default)]
    time_ms: u64,
    /// How many SETs Redis is given, whose client counts them.
    #[serde(default)]
    sets: u64,
}

const VALUE_BYTES: usize = 100;
/// As the client of Redis has them.
const KEYS: u64 = 4_096;
const REPLICAS: u32 = 2;
const ADDRESS: &str = "127.0.0.1";

/// A Redis and its replicas.
struct Replicated {
    port: u16,
    servers: [Redis; 3],
    syncs: bool,
}

const fn redis(name: &'static str) -> Redis {
    Redis { name, appendfsync: AppendFsync::Always, listen: &[ADDRESS] }
}

const IN_MEMORY: Replicated = Replicated {
    port: REDIS_PORT,
    servers: [redis("redis-memory"), redis("redis-memory-a"), redis("redis-memory-b")],
    syncs: false,
};
const SYNCED: Replicated = Replicated {
    port: REDIS_PORT + 10,
    servers: [redis("redis-synced"), redis("redis-synced-a"), redis("redis-synced-b")],
    syncs: true,
};

pub(in crate::runs) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    let site = context.site()?;
    let _processes = [IN_MEMORY.start(&site)?, SYNCED.start(&site)?];
    context.measure_in_turns(|arm, repetition| {
        let settings: Settings = settings_of(arm)?;
        match &settings.group {
            Some(group) => use_group(&site, group, sets(settings.time_ms, u64::from(repetition))),
            None if settings.syncs => SYNCED.set(&site, settings.sets),
            None => IN_MEMORY.set(&site, settings.sets),
        }
    })
}

impl Replicated {
    fn start(&self, site: &Site<'_>) -> Result<Vec<Process>, Trouble> {
        let primary = self.port.to_string();
        let mut processes = Vec::new();
        for (port, redis) in (self.port..).zip(&self.servers) {
            let port_word = port.to_string();
            let mut more = vec!["--port", &port_word, "--repl-diskless-sync-delay", "0"];
            if port != self.port {
                more.extend(["--replicaof", ADDRESS, &primary]);
            }
            if !self.syncs {
                more.extend(["--appendonly", "no"]);
            }
            processes.push(site.start_redis_on(HOST, redis, &more)?);
        }
        let socket = site.redis_socket(&self.servers[0]);
        await_condition("two replicas follow the Redis", || {
            let info = ask_redis(&socket, &["INFO", "replication"]);
            matches!(info, Ok(Reply::Bulk(text)) if online_count(&text) == REPLICAS as usize)
        })?;
        Ok(processes)
    }

    /// SETs, each with WAIT in the same packet.
    fn set(&self, site: &Site<'_>, sets: u64) -> Result<Measured, Trouble> {
        let spec = SetsSpec {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port),
            connections: 1,
            sets,
            warmup_sets: sets / 10,
            value_bytes: VALUE_BYTES,
            replicas: REPLICAS,
            read_every: 0,
        };
        let report: SetsReport = site.run_worker(HOST, "sets", &WorkerSpec::Sets(spec))?;
        let mut measured = Measured::default();
        measured.latency(&report.latency).counter("requests", report.latency.count);
        // A SET that fewer than two replicas have is wrong.
        measured.counter("wrong_replies", report.refused);
        Ok(measured)
    }
}

fn online_count(info: &[u8]) -> usize {
    String::from_utf8_lossy(info).matches("state=online").count()
}

/// One SET behind the other, of keys that the client of Redis has as well.
fn sets(time_ms: u64, seed: u64) -> Requests {
    Requests {
        updates_percent: 100,
        keys: KEYS,
        value_bytes: VALUE_BYTES,
        warmup_ms: time_ms / 10,
        time_ms,
        seed,
        ..Requests::default()
    }
}
