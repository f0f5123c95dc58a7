//! Sets keys of the Redis behind a server's sidecar from within this process, one SET behind the other, and measures
//! each.
//!
//! Invariant: a latency runs from before the SET is asked for until its reply is there.

use super::sets::SetsReport;
use scotfree_resp::front::EarlyRule;
use scotfree_sidecar::client::in_process::{RedisClient, RedisClientConfig, RedisError};
use scotfree_stage::stats::Latencies;
use scotfree_stage::trouble::Trouble;
use scotfree_wire::ClusterKey;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How many keys are set in turn, as by [`super::sets`].
const KEYS: u64 = 4_096;

/// Which SETs to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InProcessSpec {
    /// The server's sidecar.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: [u8; 32],
    /// Whether the device's word answers.
    pub early: bool,
    /// How many are measured.
    pub sets: u64,
    /// How many are made before.
    pub warmup_sets: u64,
    /// The size of a value.
    pub value_bytes: usize,
    /// How long it looks for a reply before it sleeps.
    pub spin_us: u64,
}

pub(super) fn measure(spec: &InProcessSpec) -> Result<SetsReport, Trouble> {
    let broke = |error: RedisError| {
        let next = "see whether the server's sidecar runs, and its log";
        Trouble::new(format!("set keys behind the sidecar at {}", spec.server), error, next)
    };
    let mut config = RedisClientConfig::new(spec.server, ClusterKey::from_bytes(spec.cluster_key));
    config.early = if spec.early { EarlyRule::Always } else { EarlyRule::Never };
    config.spin = Duration::from_micros(spec.spin_us);
    let mut redis = RedisClient::connect(&config).map_err(broke)?;
    let mut number = 0;
    run(&mut redis, spec, spec.warmup_sets, &mut number).map_err(broke)?;
    let begun = Instant::now();
    let latencies = run(&mut redis, spec, spec.sets, &mut number).map_err(broke)?;
    let elapsed = begun.elapsed();
    let latency = latencies
        .summary()
        .ok_or_else(|| Trouble::new("measure SETs", "none were to be made", "ask for at least one"))?;
    let sets_per_s = latency.count as f64 / elapsed.as_secs_f64();
    // What Redis refuses is an error above.
    Ok(SetsReport { sets_per_s, latency, refused: 0, reads: 0, stale_reads: 0 })
}

fn run(
    redis: &mut RedisClient,
    spec: &InProcessSpec,
    sets: u64,
    number: &mut u64,
) -> Result<Latencies, RedisError> {
    let mut latencies = Latencies::new();
    for _ in 0..sets {
        *number += 1;
        let key = format!("key:0:{}", *number % KEYS);
        let value = format!("{:0width$}", *number, width = spec.value_bytes);
        let begun = Instant::now();
        redis.set(key, value)?;
        latencies.record(begun.elapsed());
    }
    Ok(latencies)
}
