//! What the sidecars and the device cost a SET of redis-benchmark, at one connection and at sixteen.
//!
//! Invariant: direct access goes to a Redis with the same settings, on the same host, over the same cables
//! and the same bridge, or over a cable of its own. What is not measured sleeps meanwhile.

use super::settings::{settings_of, shared_by_arms};
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::{Stage, Tier};
use scotfree_stage::process::{find_tool, Process, ProcessSpec};
use scotfree_stage::site::{
    await_condition, require_redis, AppendFsync, ClientSidecar, Logs, Redis, Site, REDIS_PORT,
};
use scotfree_stage::trouble::Trouble;
use scotfree_trace::{read_calls, Percentile, ReportBuilder};
use serde::Deserialize;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    access: Access,
    connections: u32,
    requests: u64,
    /// How many requests of each connection are under way.
    #[serde(default = "one")]
    pipeline: u32,
    /// How long device and sidecars look for events before they sleep; the same in every arm, since they are. Their
    /// default if it is not said.
    spin_us: Option<u64>,
    /// What moves the device's frames; the same in every arm.
    #[serde(default = "user_plane")]
    plane: String,
}

const fn one() -> u32 {
    1
}

fn user_plane() -> String {
    "user".to_owned()
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Access {
    /// Straight to Redis, over a cable without a device.
    Cable,
    /// Straight to Redis, through the device, which bridges it like any foreign traffic.
    Bridge,
    /// Through both sidecars and the device.
    Sidecars,
    /// The same, and every call is recorded.
    SidecarsTraced,
    /// The same, and the device's acknowledgement is the answer.
    SidecarsEarly,
}

const VALUE_BYTES: &str = "100";
const BENCHMARK_TIME_MAX: Duration = Duration::from_secs(60);

const BEHIND: Redis = Redis { name: "redis", appendfsync: AppendFsync::EverySec, listen: &[] };
// The address on the cable and the one behind the device.
const CABLE_ADDRESS: &str = "10.78.0.2";
const BRIDGE_ADDRESS: &str = "10.77.0.2";
const DIRECT: Redis = Redis {
    name: "redis-direct",
    appendfsync: AppendFsync::EverySec,
    listen: &[BRIDGE_ADDRESS, CABLE_ADDRESS],
};

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    require_redis()?;
    require_benchmark()?;
    let bench = Bench::up(context)?;
    context.measure_in_turns(|arm, _| bench.measure(&settings_of(arm)?))
}

/// All that is compared, up at the same time.
struct Bench<'a> {
    site: Site<'a>,
    // Those that work on a request, by what they are called in metrics.
    behind: Process,
    direct: Process,
    switch: Process,
    server: Process,
    client: Process,
    client_traced: Process,
    client_early: Process,
    plain: ClientSidecar,
    traced: ClientSidecar,
    early: ClientSidecar,
    trace: PathBuf,
}

impl<'a> Bench<'a> {
    fn up(context: &Context<'a>) -> Result<Bench<'a>, Trouble> {
        let spin_us = shared_by_arms(context.experiment, |arm: &Settings| arm.spin_us)?;
        let spin_us = spin_us.map(|time| time.to_string());
        let spin: Vec<&str> = spin_us.iter().flat_map(|time| ["--spin-us", time]).collect();
        let plane = shared_by_arms(context.experiment, |arm: &Settings| arm.plane.clone())?;
        let site = context.site()?;
        let trace = site.folder().join("trace.jsonl");
        let sidecar =
            |name, port, early, trace| ClientSidecar { name, port, early, durability: Tier::RAM, trace };
        let plain = sidecar("sidecar-client", REDIS_PORT, false, None);
        let traced = sidecar("sidecar-client-traced", REDIS_PORT + 1, false, Some(trace.clone()));
        let early = sidecar("sidecar-client-early", REDIS_PORT + 2, true, None);
        Ok(Bench {
            behind: site.start_redis(&BEHIND)?,
            direct: site.start_redis(&DIRECT)?,
            switch: site.start_switch_with(Logs::Ram, &[&["--plane", &plane], &spin[..]].concat())?,
            server: site.start_server_sidecar(&BEHIND, &spin)?,
            client: site.start_client_sidecar_with(&plain, &spin)?,
            client_traced: site.start_client_sidecar_with(&traced, &spin)?,
            client_early: site.start_client_sidecar_with(&early, &spin)?,
            site,
            plain,
            traced,
            early,
            trace,
        })
    }

    fn measure(&self, settings: &Settings) -> Result<Measured, Trouble> {
        let (address, working) = match settings.access {
            Access::Cable => (CABLE_ADDRESS.to_owned(), vec![("redis", &self.direct)]),
            Access::Bridge => {
                (BRIDGE_ADDRESS.to_owned(), vec![("redis", &self.direct), ("switch", &self.switch)])
            }
            Access::Sidecars | Access::SidecarsTraced | Access::SidecarsEarly => {
                let client = match settings.access {
                    Access::SidecarsTraced => &self.client_traced,
                    Access::SidecarsEarly => &self.client_early,
                    _ => &self.client,
                };
                let working = vec![
                    ("redis", &self.behind),
                    ("sidecar_server", &self.server),
                    ("switch", &self.switch),
                    ("sidecar_client", client),
                ];
                (self.site.address("client").to_string(), working)
            }
        };
        let port = match settings.access {
            Access::SidecarsTraced => self.traced.port,
            Access::SidecarsEarly => self.early.port,
            _ => self.plain.port,
        };
        let trace_from = self.trace.metadata().map_or(0, |file| file.len());
        let acks_before = self.site.device_counts()?;
        let cpu_before: Vec<Duration> = working.iter().map(|(_, process)| cpu_of(process)).collect();
        let benchmark = self.benchmark(&address, port, settings)?;
        let mut measured = benchmark.measured();
        let per_request_us = |span: Duration| span.as_secs_f64() * 1e6 / settings.requests as f64;
        let mut behind_client = Duration::ZERO;
        for ((name, process), before) in working.iter().zip(cpu_before) {
            let used = cpu_of(process).saturating_sub(before);
            behind_client += used;
            measured.value(&format!("cpu_us_per_request_{name}"), per_request_us(used));
        }
        measured.value("cpu_us_per_request_benchmark", per_request_us(benchmark.cpu));
        measured.value("cpu_us_per_request_behind_client", per_request_us(behind_client));
        measured.value("cpu_us_per_request", per_request_us(behind_client + benchmark.cpu));
        let acks_after = self.site.device_counts()?;
        let logged =
            scotfree_stage::site::difference(&acks_before, &acks_after, "scotfree_device_logged_total");
        measured.counter("logged", logged);
        if settings.access == Access::SidecarsTraced {
            stages(&self.trace, trace_from, settings.requests, &mut measured)?;
        }
        Ok(measured)
    }

    fn benchmark(&self, address: &str, port: u16, settings: &Settings) -> Result<Benchmark, Trouble> {
        let (connections, requests) = (settings.connections.to_string(), settings.requests.to_string());
        let pipeline = settings.pipeline.to_string();
        let spec = ProcessSpec::new("redis-benchmark", "redis-benchmark", self.site.log_folder()).args([
            "-h",
            address,
            "-p",
            &port.to_string(),
            "-c",
            &connections,
            "-n",
            &requests,
            "-P",
            &pipeline,
            "-d",
            VALUE_BYTES,
            "-r",
            "10000",
            "-t",
            "set",
            "--csv",
        ]);
        let process = self.site.lab.spawn("client", &spec.at(self.site.priority()))?;
        // Its processor time can be asked for only while it lives.
        let mut cpu = Duration::ZERO;
        process.wait_until("ends", BENCHMARK_TIME_MAX, || {
            cpu = process.cpu_time().unwrap_or(cpu).max(cpu);
            process.exit_status().is_some()
        })?;
        let fault = |problem: String| {
            let said = process.output() + &process.error_output();
            Trouble::new("run redis-benchmark", problem, format!("it printed: {}", said.trim()))
        };
        let csv = parse_csv(&process.output()).map_err(fault)?;
        Ok(Benchmark { csv, cpu })
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // The sidecars before those that they speak to.
        for process in
            [&self.client_traced, &self.client_early, &self.client, &self.server, &self.switch, &self.behind]
        {
            process.kill();
        }
    }
}

fn cpu_of(process: &Process) -> Duration {
    process.cpu_time().unwrap_or_default()
}

/// What redis-benchmark said, and what it cost.
struct Benchmark {
    csv: Csv,
    cpu: Duration,
}

impl Benchmark {
    fn measured(&self) -> Measured {
        let mut measured = Measured::default();
        let Csv { requests_per_s, mean_us, p50_us, p95_us, p99_us, max_us } = self.csv;
        measured.value("requests_per_s", requests_per_s);
        measured.value("mean_us", mean_us).value("p50_us", p50_us).value("p95_us", p95_us);
        measured.value("p99_us", p99_us).value("max_us", max_us);
        measured
    }
}

/// A line of redis-benchmark's table.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Csv {
    requests_per_s: f64,
    mean_us: f64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    max_us: f64,
}

/// Reads the line of SET: test, requests per second, then milliseconds: mean, min, p50, p95, p99, max.
fn parse_csv(output: &str) -> Result<Csv, String> {
    let line = output.lines().find(|line| line.starts_with("\"SET\"")).ok_or("it printed no line for SET")?;
    let cells = line.split(',').skip(1).map(|cell| cell.trim_matches('"').parse::<f64>());
    let cells: Vec<f64> = cells.collect::<Result<_, _>>().map_err(|error| format!("`{line}`: {error}"))?;
    let [requests_per_s, mean, _, p50, p95, p99, max] = cells[..] else {
        return Err(format!("`{line}` has not the columns of redis-benchmark 6.2 and later"));
    };
    let us = |ms: f64| ms * 1_000.0;
    let (mean_us, p50_us, p95_us, p99_us, max_us) = (us(mean), us(p50), us(p95), us(p99), us(max));
    Ok(Csv { requests_per_s, mean_us, p50_us, p95_us, p99_us, max_us })
}

/// The nine stages of the SETs that were recorded from a place in the trace on.
fn stages(trace: &Path, from: u64, requests: u64, measured: &mut Measured) -> Result<(), Trouble> {
    let fault = |error: std::io::Error| Trouble::file("read the trace", trace, &error);
    let mut count = 0;
    // The writer is behind by some milliseconds.
    await_condition("all calls are recorded", || {
        count = count_calls(trace, from).unwrap_or(0);
        count >= requests
    })?;
    let mut builder = ReportBuilder::new("sidecars");
    read_calls(open_at(trace, from).map_err(fault)?, |call| builder.add(&call)).map_err(fault)?;
    let report = builder.finish();
    let set = report.methods.iter().find(|method| method.method.to_uppercase().contains("SET"));
    let row = set.and_then(|method| method.row(Percentile::P50)).ok_or_else(|| {
        let found: Vec<&str> = report.methods.iter().map(|method| method.method.as_str()).collect();
        Trouble::new("find the SETs in the trace", format!("it has {}", found.join(", ")), "see the trace")
    })?;
    for stage in Stage::ALL {
        measured
            .value(&format!("stage_{}_us", stage.name()), row.stages_ns.get(stage).unwrap_or(0.0) / 1_000.0);
    }
    measured.value("stages_total_us", row.total_ns / 1_000.0);
    measured.counter("recorded", count);
    measured.counter("sum_violations", report.sum_violation_count);
    Ok(())
}

fn count_calls(trace: &Path, from: u64) -> std::io::Result<u64> {
    read_calls(open_at(trace, from)?, |_| ()).map(|summary| summary.call_count)
}

fn open_at(trace: &Path, from: u64) -> std::io::Result<BufReader<File>> {
    let mut file = File::open(trace)?;
    file.seek(SeekFrom::Start(from))?;
    Ok(BufReader::new(file))
}

fn require_benchmark() -> Result<(), Trouble> {
    if find_tool("redis-benchmark").is_some() {
        return Ok(());
    }
    Err(Trouble::new("run redis-benchmark", "it is not installed", "install it: apt-get install redis-tools"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_redis_benchmark_is_read() {
        let output = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
            \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
            \"SET\",\"20449.90\",\"0.042\",\"0.024\",\"0.039\",\"0.063\",\"0.111\",\"1.231\"\n";
        let csv = parse_csv(output).expect("it is a table");
        assert_eq!((csv.requests_per_s, csv.p50_us, csv.max_us), (20_449.9, 39.0, 1_231.0));
        assert!(parse_csv("Could not connect").expect_err("no table").contains("no line for SET"));
        assert!(parse_csv("\"SET\",\"1.0\"\n").expect_err("an old one").contains("columns"));
        assert!(parse_csv("\"SET\",\"x\"\n").expect_err("no number").contains("invalid float"));
    }
}
