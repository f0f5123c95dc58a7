//! GETs of a Redis behind a proxy that answers what it knows, beside one that knows nothing and a Redis alone.
//!
//! Invariant: all that is compared is up at the same time on one host and has the same keys; what is not measured
//! sleeps. What the proxy has answered it counts, and the Redis behind it counts what it was asked.

use super::cache_counts::{counts_after, hits};
use super::settings::settings_of;
use super::worker::redis_use::{FillRedisSpec, UseRedisReport, UseRedisSpec};
use super::worker::stores::StoreShape;
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use crate::keys::Popularity;
use scotfree_stage::process::Process;
use scotfree_stage::resp::Reply;
use scotfree_stage::site::{ask_redis, require_redis, AppendFsync, Redis, Site, REDIS_PORT, WITH_METRICS};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use serde::Deserialize;
use std::net::SocketAddr;

/// What clients call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Access {
    /// A Redis.
    Alone,
    /// A proxy without a cache.
    Proxy,
    /// One with a cache.
    Cached,
}

const ALL: [Access; 3] = [Access::Alone, Access::Proxy, Access::Cached];

impl Access {
    const fn port(self) -> u16 {
        REDIS_PORT + self as u16
    }

    fn address(self) -> SocketAddr {
        SocketAddr::new(ADDRESS.parse().expect("it is an address"), self.port())
    }

    const fn redis(self) -> &'static Redis {
        match self {
            Access::Alone => &ALONE,
            Access::Proxy => &BEHIND,
            Access::Cached => &BEHIND_CACHE,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    access: Access,
    /// Whether keys are read that have a time to live, which no cache of a proxy keeps.
    #[serde(default)]
    expire: bool,
    connections: u32,
    /// Commands that each connection sends at once.
    pipeline: u32,
    /// Whether the client looks for replies instead of sleeping.
    #[serde(default)]
    looks: bool,
    time_ms: u64,
}

const ADDRESS: &str = "10.77.0.2";
const SHAPE: StoreShape = StoreShape { keys: 10_000, value_bytes: 100 };
const WARMUP_MS: u64 = 100;
/// A cache keeps what was read before: until then, and once more.
const ROUNDS: u32 = 4;
const ALONE: Redis = Redis { name: "redis-alone", appendfsync: AppendFsync::EverySec, listen: &[ADDRESS] };
const BEHIND: Redis = Redis { name: "redis-behind", appendfsync: AppendFsync::EverySec, listen: &[] };
const BEHIND_CACHE: Redis = Redis { name: "redis-cache", appendfsync: AppendFsync::EverySec, listen: &[] };
const CACHE: [&str; 3] = ["--cache", "64M", "--cache-only-writer"];

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    let stand = Stand::up(context)?;
    context.measure_in_turns(|arm, repetition| stand.measure(&settings_of(arm)?, u64::from(repetition)))
}

/// What is compared, up and filled.
struct Stand<'a> {
    site: Site<'a>,
    _processes: [Process; 5],
}

impl<'a> Stand<'a> {
    fn up(context: &Context<'a>) -> Result<Stand<'a>, Trouble> {
        let site = context.site()?;
        let processes = [
            site.start_redis(&ALONE)?,
            site.start_redis(&BEHIND)?,
            site.start_redis(&BEHIND_CACHE)?,
            site.start_proxy("proxy", &BEHIND, Access::Proxy.port(), &[])?,
            site.start_proxy(
                "proxy-cached",
                &BEHIND_CACHE,
                Access::Cached.port(),
                &[&WITH_METRICS[..], &CACHE].concat(),
            )?,
        ];
        let stand = Stand { site, _processes: processes };
        for access in ALL {
            stand.pass_over(access, true, false, 1)?;
            stand.pass_over(access, true, true, 1)?;
        }
        // What has no time to live the cache knows then, and of what has one that it has. In this order: keys are doubted
        // by their hash, others with them.
        for expire in [false, true] {
            let before = stand.counts()?;
            stand.pass_over(Access::Cached, false, expire, ROUNDS)?;
            counts_after(&before, SHAPE.keys * u64::from(ROUNDS), || stand.counts())?;
        }
        Ok(stand)
    }

    fn pass_over(&self, access: Access, sets: bool, expire: bool, rounds: u32) -> Result<(), Trouble> {
        let spec = FillRedisSpec { address: access.address(), shape: SHAPE, sets, expire, rounds };
        self.site.run_worker("client", "fill", &WorkerSpec::FillRedis(spec))
    }

    fn measure(&self, settings: &Settings, seed: u64) -> Result<Measured, Trouble> {
        let Settings { access, expire, connections, pipeline, looks, time_ms } = *settings;
        let spec = UseRedisSpec {
            address: access.address(),
            shape: SHAPE,
            expire,
            popularity: Popularity::Uniform,
            updates_percent: 0,
            connections,
            pipeline,
            looks,
            time_ms,
            warmup_ms: WARMUP_MS,
            seed,
        };
        let (before, gets_before) = (self.counts()?, gets_of(&self.site, access)?);
        let report: UseRedisReport =
            self.site.run_worker("client", "use-redis", &WorkerSpec::UseRedis(spec))?;
        // Of another access this cache hears nothing.
        let asked = if access == Access::Cached { report.reads_sent } else { 0 };
        let after = counts_after(&before, asked, || self.counts())?;
        let gets = gets_of(&self.site, access)? - gets_before;
        let mut measured = measured(&report);
        let hits = hits(&after) - hits(&before);
        measured.counter("hits", hits).counter("not_hit", report.reads_sent.saturating_sub(hits));
        measured.counter("redis_gets", gets);
        Ok(measured)
    }

    fn counts(&self) -> Result<Counts, Trouble> {
        self.site.counts("server")
    }
}

/// How many GETs the Redis behind an access has executed.
fn gets_of(site: &Site<'_>, access: Access) -> Result<u64, Trouble> {
    let broke = |problem: String| {
        let next = "see whether it runs, and its log";
        Trouble::new(format!("ask {} for its counters", access.redis().name), problem, next)
    };
    match ask_redis(&site.redis_socket(access.redis()), &["INFO", "commandstats"]).map_err(broke)? {
        Reply::Bulk(text) => Ok(calls_in(&String::from_utf8_lossy(&text), "get")),
        other => Err(broke(format!("it answers {other:?}"))),
    }
}

/// How often a command was called, as INFO says it.
fn calls_in(info: &str, command: &str) -> u64 {
    let begin = format!("cmdstat_{command}:calls=");
    let count = info.lines().find_map(|line| line.strip_prefix(&begin)?.split(',').next()?.parse().ok());
    count.unwrap_or(0)
}

fn measured(report: &UseRedisReport) -> Measured {
    let mut measured = Measured::default();
    measured.latency(&report.calls).value("requests_per_s", report.requests_per_s);
    measured.counter("reads", report.reads_sent);
    measured.counter("wrong_replies", report.wrong_replies);
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_a_command_are_read_from_info() {
        let info = "# Commandstats\r\ncmdstat_getex:calls=9,usec=1\r\ncmdstat_get:calls=123,usec=4,usec_per_call=1\r\n";
        assert_eq!((calls_in(info, "get"), calls_in(info, "getex"), calls_in(info, "set")), (123, 9, 0));
    }
}
