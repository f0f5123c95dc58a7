//! Reads that the device answers: GETs of Redis alone, behind the sidecars, and with a device on the path that knows.
//!
//! Invariant: all are measured in turns, and nothing is shown if the device has not answered.

use super::alone::RedisAlone;
use super::baseline::Baseline;
use super::plane::{self, Plane};
use super::seen::{latencies, micros, Latency};
use super::stages::load;
use super::{
    bar, describe, named, named_topology, DemoError, DemoOptions, Server, Service, Stages, Teller, Tools,
    FLUSH_TIME_MAX, NAME, TOPOLOGY_OF_KV,
};
use scotfree_core::Tier;
use scotfree_stage::load::LoadReport;
use scotfree_stage::process::Process;
use scotfree_stage::site::{difference, require_redis, ClientSidecar, Ground, Site};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::workload::{Command, Pace, Workload};
use scotfree_trace::{render_comparison, Percentile, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

const HITS: &str = "scotfree_cache_hits_total";
/// Persist stands behind it: it gives the order and says what is durable.
const FUNCTIONS: [&str; 4] = ["--function", "cache", "--function", "persist"];
const REMEDY_PORT: u16 = 6_380;
const FILL_PORT: u16 = 6_381;
const CALLER: &str = "client-with-cache";
const CALLEE: &str = "store-with-cache";
/// Few enough that each is written and read often before anything is measured.
const KEYS: u64 = 200;
const FILLED: u64 = 20 * KEYS;
const TURNS: u64 = 4;
const TURNS_IN_SPAN: u32 = 8;
/// The rows of the bars.
const SHOWN: [Percentile; 2] = [Percentile::P50, Percentile::P99];
const WAYS: [&str; 3] =
    ["Redis alone", "both sidecars, answered by the Redis", "both sidecars, answered by the device"];

/// What the demonstration has shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CachedReport {
    /// What moved the device's frames.
    pub plane: &'static str,
    /// Why that was not the kernel, if nobody asked for it to be another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plane_reason: Option<String>,
    /// GETs that the device was asked for while it was measured.
    pub reads: u64,
    /// Of these, answered by it.
    pub hits: u64,
    /// Redis alone, as its client sees it.
    pub redis_alone: Latency,
    /// Behind the sidecars, answered by the Redis.
    pub without_cache: Latency,
    /// Behind the sidecars, answered by the device.
    pub with_cache: Latency,
    /// Where the time of calls went.
    pub stages: Stages,
}

/// Shows what GETs take that the device answers. `say` is given lines for the reader. SIGINT and SIGTERM end it.
///
/// # Errors
/// No Redis, no namespaces, no device, a load that got no answers, or a device that answered none.
pub fn run_cached(options: &DemoOptions, say: &mut dyn FnMut(&str)) -> Result<CachedReport, DemoError> {
    // Only a Redis' replies are known to the cache.
    require_redis()?;
    let mut teller = Teller { begin: Instant::now(), say };
    teller.say("a client, a device with a cache and a server, each in a network namespace of its own");
    let DemoOptions { scot, run_folder, log_folder, .. } = options;
    let tools = Tools { scot, run_folder, log_folder: log_folder.as_deref() };
    tools.on_ground(&named_topology(TOPOLOGY_OF_KV, NAME)?, |ground| Ok(show(options, ground, &mut teller)?))
}

fn show(
    options: &DemoOptions,
    ground: &Ground<'_, '_>,
    teller: &mut Teller<'_>,
) -> Result<CachedReport, Trouble> {
    let site = Site::up(ground)?;
    let (_switch, plane) = plane::start_with(&site, options.plane, &FUNCTIONS)?;
    teller.say(&plane.describe());
    let mut server =
        Server::start(&site, Service::Redis, &["--cache-device", &site.device().id.to_string()])?;
    let shown = server.await_ready().and_then(|()| {
        teller.say(&describe(Service::Redis));
        measure(options, &site, &plane, ground, teller)
    });
    server.kill();
    shown
}

fn measure(
    options: &DemoOptions,
    site: &Site<'_>,
    plane: &Plane,
    ground: &Ground<'_, '_>,
    teller: &mut Teller<'_>,
) -> Result<CachedReport, Trouble> {
    let alone = RedisAlone::every_second(site)?;
    let baseline = Baseline::start(&DemoOptions { service: Service::Redis, ..options.clone() }, site)?;
    let remedy = Remedy::start(site)?;
    let ways = [alone.address, baseline.address, remedy.address];
    let turn = options.span / TURNS_IN_SPAN;
    let seconds = (turn * TURNS as u32 * ways.len() as u32).as_secs_f64();
    teller.say(&format!(
        "measuring GETs of {KEYS} keys for {seconds:.0} s, one at a time, three ways in turns"
    ));
    for (filled, reads) in [(alone.address, false), (baseline.address, false), (remedy.fill, true)] {
        load(site, filled, workload(Command::Set, FILLED, Duration::from_secs(30), 0))?;
        if reads {
            load(site, filled, workload(Command::Get, FILLED, Duration::from_secs(30), 1))?;
        }
    }
    let before = site.device_counts()?;
    let turns = in_turns(site, ground, &ways, turn)?;
    let hits = difference(&before, &site.device_counts()?, HITS);
    let reads = turns[2].iter().map(|turn| turn.sent_count).sum();
    alone.process.kill();
    let stages = bars(options, baseline, remedy, teller)?;
    let [redis_alone, without_cache, with_cache] = of_gets(&turns)?;
    for (way, seen) in WAYS.iter().zip([redis_alone, without_cache, with_cache]) {
        teller.show(&format!(
            " {way:<40} GET P50 {:>10}  P99 {:>10}",
            micros(seen.p50_ns),
            micros(seen.p99_ns)
        ));
    }
    teller.say(&said(hits, reads, redis_alone, with_cache)?);
    Ok(CachedReport {
        plane: plane.name,
        plane_reason: plane.reason.clone(),
        reads,
        hits,
        redis_alone,
        without_cache,
        with_cache,
        stages,
    })
}

/// The clients' sides of what the device answers: one that is recorded, and one that fills and warms.
struct Remedy {
    address: SocketAddr,
    fill: SocketAddr,
    trace: std::path::PathBuf,
    sidecars: [Process; 2],
}

impl Remedy {
    fn start(site: &Site<'_>) -> Result<Remedy, Trouble> {
        let trace = site.folder().join("remedy.jsonl");
        let recorded = ClientSidecar {
            name: "remedy",
            port: REMEDY_PORT,
            early: true,
            durability: Tier::RAM,
            trace: Some(trace.clone()),
        };
        let fill = ClientSidecar { name: "fill", port: FILL_PORT, trace: None, ..recorded.clone() };
        let sidecars = [
            site.start_client_sidecar_with(&recorded, &named(CALLER, CALLEE))?,
            site.start_client_sidecar(&fill)?,
        ];
        let (address, fill) = (site.client_sidecar_address(&recorded), site.client_sidecar_address(&fill));
        Ok(Remedy { address, fill, trace, sidecars })
    }
}

fn in_turns(
    site: &Site<'_>,
    ground: &Ground<'_, '_>,
    ways: &[SocketAddr],
    turn: Duration,
) -> Result<Vec<Vec<LoadReport>>, Trouble> {
    let bar = bar(TURNS * ways.len() as u64, "measuring");
    let mut loads: Vec<Vec<LoadReport>> = ways.iter().map(|_| Vec::new()).collect();
    for number in 0..TURNS {
        for (way, address) in ways.iter().enumerate() {
            ground.interrupt.check()?;
            loads[way].push(load(site, *address, workload(Command::Get, u64::MAX, turn, 2 + number))?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(loads)
}

fn bars(
    options: &DemoOptions,
    baseline: Baseline,
    remedy: Remedy,
    teller: &mut Teller<'_>,
) -> Result<Stages, Trouble> {
    let without = baseline.finish();
    for sidecar in remedy.sidecars {
        sidecar.stop(FLUSH_TIME_MAX);
    }
    super::stages::keep(options, &[&without, &remedy.trace])?;
    let (without, with) =
        (report("answered by the Redis", &without)?, report("by the device", &remedy.trace)?);
    teller.say("GETs behind the sidecars, stage by stage (from the client's sidecar on), the median one and a slow one:");
    teller.show(&render_comparison(&without, &with, options.style));
    let medians = |report: &Report| {
        let row = report.methods.iter().find_map(|method| method.row(Percentile::P50).cloned());
        row.map(|row| (Command::Get.name().to_owned(), row)).into_iter().collect::<BTreeMap<_, _>>()
    };
    Ok(Stages { baseline: medians(&without), remedy: medians(&with) })
}

fn report(label: &str, trace: &Path) -> Result<Report, Trouble> {
    let mut report = Report::from_files(label, &[trace])
        .map_err(|error| Trouble::file("read the trace", trace, &error))?;
    report.methods.retain(|method| method.method.eq_ignore_ascii_case(Command::Get.name()));
    for method in &mut report.methods {
        method.rows.retain(|row| SHOWN.contains(&row.percentile));
    }
    if report.methods.iter().all(|method| method.rows.is_empty()) {
        let problem = format!("there are no GETs among its {} calls", report.call_count);
        return Err(Trouble::new(format!("compare {}", trace.display()), problem, "run it again"));
    }
    Ok(report)
}

fn of_gets(turns: &[Vec<LoadReport>]) -> Result<[Latency; 3], Trouble> {
    let seen: Vec<Latency> =
        turns.iter().filter_map(|turns| latencies(turns).get(Command::Get.name()).copied()).collect();
    seen.try_into().map_err(|_| Trouble::new("measure GETs", "a way had no answers", "run it again"))
}

/// What came of it; an error if the device has not answered most.
fn said(hits: u64, reads: u64, alone: Latency, with: Latency) -> Result<String, Trouble> {
    if hits * 2 < reads {
        let problem = format!("it answered {hits} of {reads}");
        let next =
            "run it again, with --log-folder to see the device's words; `scot cache stats` says why not";
        return Err(Trouble::new("let the device answer GETs", problem, next));
    }
    let (ratio, word) = if with.p50_ns > alone.p50_ns {
        (with.p50_ns / alone.p50_ns, "slower")
    } else {
        (alone.p50_ns / with.p50_ns, "faster")
    };
    Ok(format!(
        "the device answered {hits} of {reads} GETs, the Redis saw none of these; a median GET is {ratio:.1} times \
         {word} than that of Redis alone"
    ))
}

fn workload(command: Command, requests_max: u64, span: Duration, seed: u64) -> Workload {
    Workload {
        name: command.name().to_ascii_lowercase(),
        connections: 1,
        pace: Pace::Closed { outstanding: 1 },
        mix: vec![(command, 1)],
        value_bytes: 100,
        keys: KEYS,
        requests_max,
        duration_ms_max: span.as_millis() as u64,
        warmup_ms: 0,
        seed,
        replicas: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(p50_ns: f64) -> Latency {
        Latency { count: 1, p50_ns, p99_ns: p50_ns }
    }

    #[test]
    fn what_is_slower_is_called_slower_and_a_device_that_was_not_asked_is_an_error() {
        let slower = said(9, 10, latency(50.0), latency(75.0)).expect("most were answered");
        assert!(slower.contains("9 of 10 GETs") && slower.contains("1.5 times slower"), "{slower}");
        assert!(said(9, 10, latency(90.0), latency(45.0)).expect("as above").contains("2.0 times faster"));
        assert!(said(4, 10, latency(1.0), latency(1.0))
            .expect_err("too few")
            .to_string()
            .contains("4 of 10"));
    }
}
