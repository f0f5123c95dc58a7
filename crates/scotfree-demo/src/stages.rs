//! What SETs and GETs take: of Redis alone, and behind the sidecars without and with the remedy, stage by stage.
//!
//! Invariant: all are measured in turns, and nothing is shown if the device did not log.

use super::baseline::Baseline;
use super::seen::{
    beside_redis, gain, latencies, rate, table, table_of_rates, Many, Seen, ALWAYS, COVERED, EVERYSEC,
    PERSIST,
};
use super::{bar, named, Plane, Stage, Stages, Teller, FLUSH_TIME_MAX};
use scotfree_core::Tier;
use scotfree_stage::load::LoadReport;
use scotfree_stage::process::find_tool;
use scotfree_stage::site::{difference, ClientSidecar};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use scotfree_stage::worker::{LoadSpec, WorkerSpec};
use scotfree_stage::workload::{Command, Pace, Workload};
use scotfree_trace::{render_comparison, MethodReport, Percentile, Report, Row};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// What only programs in the kernel count.
const SEEN_IN_KERNEL: &str = "scotfree_kernel_scotfree_total";
const LOGGED: &str = "scotfree_device_logged_total";
const REMEDY_PORT: u16 = 6_380;
const COVERED_PORT: u16 = 6_381;
/// How many connections ask at a time where many do, and in how many turns.
const MANY: u32 = 16;
const MANY_TURNS: u64 = 2;
/// Who calls and who is called, in the records.
const CALLER: &str = "client-with-persist";
const CALLEE: &str = "store-with-persist";
/// The rows of the bars.
const SHOWN: [Percentile; 2] = [Percentile::P50, Percentile::P99];
/// The requests that the real client makes of each kind.
const REAL_REQUESTS: &str = "300";
/// What its numbers are worth.
const REAL_MEANING: &str =
    "(300 requests each, through redis-benchmark's own TCP hop, both sidecars and the device: they show that an \
     unmodified client works, and are too few to compare. A SET with the remedy may be slower here: the server \
     is still at the one before, on the same processors. The bars below compare.)";
/// How often each is measured, in turns.
const TURNS: u64 = 4;
/// What a client's own clock says, and what of it the bars below have.
const SEEN: &str =
    "as a client of Redis sees them, one connection, one request at a time, each the median of 4 turns:";
const SURVIVES: &str =
    "(an answered SET survives kill -9 of Redis in all of them. When its host loses power, everysec loses up to a second \
     of them, always none; with persist none, as long as the device, another host, goes on: ram:1)";

impl Stage<'_> {
    /// Measures and shows.
    pub fn measure(&self, teller: &mut Teller<'_>) -> Result<(Seen, Stages), Trouble> {
        let baseline = Baseline::start(self.options, &self.site)?;
        let trace = self.site.folder().join("remedy.jsonl");
        let remedy = ClientSidecar {
            name: "remedy",
            port: REMEDY_PORT,
            early: true,
            durability: Tier::RAM,
            trace: Some(trace.clone()),
        };
        let sidecar = self.site.start_client_sidecar_with(&remedy, &named(CALLER, CALLEE))?;
        let covered = ClientSidecar {
            name: "covered",
            port: COVERED_PORT,
            early: false,
            trace: None,
            ..remedy.clone()
        };
        let covered_sidecar = self.site.start_client_sidecar(&covered)?;
        let before = self.site.device_counts()?;
        let (plain, early) = (baseline.address, self.site.client_sidecar_address(&remedy));
        self.real_client([(plain, "without the remedy"), (early, "with the remedy")], teller)?;
        let ways = Ways { plain, covered: self.site.client_sidecar_address(&covered), early };
        let seen = self.load_all(&ways, teller)?;
        covered_sidecar.stop(FLUSH_TIME_MAX);
        let after = self.site.device_counts()?;
        self.require_plane(&before, &after)?;
        let baseline_trace = baseline.finish();
        sidecar.stop(FLUSH_TIME_MAX);
        self.keep(&[&baseline_trace, &trace])?;
        let baseline = report("without remedy", &baseline_trace)?;
        let remedy = report("persist, SET early", &trace)?;
        show_seen(&seen, teller);
        teller.say(
            "the same calls behind the sidecars, stage by stage (from the client's sidecar on), the median one and a slow one:",
        );
        teller.show(&render_comparison(&baseline, &remedy, self.options.style));
        teller.say(&summary(&seen, &before, &after)?);
        Ok((seen, Stages { baseline: medians(&baseline), remedy: medians(&remedy) }))
    }

    /// Loads Redis alone, where there is one, and what stands behind the sidecars.
    fn load_all(&self, ways: &Ways, teller: &mut Teller<'_>) -> Result<Seen, Trouble> {
        let alone = self.alone.as_ref().map(|alone| [alone.every_second.address, alone.always.address]);
        let behind = [ways.plain, ways.covered, ways.early];
        let addresses: Vec<SocketAddr> = alone.into_iter().flatten().chain(behind).collect();
        let turn = self.options.span / (2 * TURNS as u32);
        let seconds = (turn * TURNS as u32 * addresses.len() as u32).as_secs_f64();
        let first = if alone.is_some() { "Redis alone, and the path " } else { "the path " };
        teller.say(&format!(
            "measuring SET and GET for {seconds:.0} s: {first}without and with the remedy, in turns"
        ));
        let loads = self.load_in_turns(&addresses, TURNS, |number| workload(turn, number))?;
        let many = self.load_many(ways, turn, teller)?;
        let mut loads = loads.into_iter().map(|turns| latencies(&turns));
        let mut next = || loads.next().expect("every address was loaded");
        let (redis_everysec, redis_always) =
            if alone.is_some() { (Some(next()), Some(next())) } else { (None, None) };
        let (without_remedy, covered, persist) = (next(), next(), next());
        Ok(Seen { redis_everysec, redis_always, without_remedy, covered, persist, many })
    }

    /// Many connections that set at a time: Redis alone, where there is one, and both modes of the remedy.
    fn load_many(&self, ways: &Ways, turn: Duration, teller: &mut Teller<'_>) -> Result<Many, Trouble> {
        let alone = self
            .alone
            .as_ref()
            .map(|alone| [(EVERYSEC, alone.every_second.address), (ALWAYS, alone.always.address)]);
        let behind = [(COVERED, ways.covered), (PERSIST, ways.early)];
        let asked: Vec<(&'static str, SocketAddr)> = alone.into_iter().flatten().chain(behind).collect();
        let seconds = (turn * MANY_TURNS as u32 * asked.len() as u32).as_secs_f64();
        teller.say(&format!("measuring SETs of {MANY} connections for {seconds:.0} s, in turns"));
        let addresses: Vec<SocketAddr> = asked.iter().map(|(_, address)| *address).collect();
        let loads = self.load_in_turns(&addresses, MANY_TURNS, |number| workload_of_many(turn, number))?;
        let rates = asked.iter().zip(&loads).filter_map(|((way, _), turns)| Some((*way, rate(turns)?)));
        Ok(Many { connections: MANY, ways: rates.collect() })
    }

    /// Copies the records of calls to where somebody wants them.
    fn keep(&self, traces: &[&Path]) -> Result<(), Trouble> {
        let Some(folder) = &self.options.trace_folder else { return Ok(()) };
        for trace in traces {
            let kept = folder.join(trace.file_name().expect("a trace is a file"));
            std::fs::copy(trace, &kept).map_err(|error| Trouble::file("write", &kept, &error))?;
        }
        Ok(())
    }

    /// The plane that is named must be the one that has seen the packets.
    fn require_plane(&self, before: &Counts, after: &Counts) -> Result<(), Trouble> {
        let in_kernel = difference(before, after, SEEN_IN_KERNEL) > 0;
        if in_kernel == (self.plane == Plane::XDP) {
            return Ok(());
        }
        let problem =
            format!("it says {}, and packets seen by the kernel's programs: {in_kernel}", self.plane.name);
        Err(Trouble::new(
            "tell which plane ran",
            problem,
            "run it again; if it comes again, see: scot doctor",
        ))
    }

    /// A Redis client that knows nothing of Scotfree.
    fn real_client(&self, services: [(SocketAddr, &str); 2], teller: &mut Teller<'_>) -> Result<(), Trouble> {
        if find_tool("redis-benchmark").is_none() {
            teller.say(
                "redis-benchmark is not installed: only our own load is run (apt-get install redis-tools)",
            );
            return Ok(());
        }
        for (address, words) in services {
            let said = self.benchmark(address)?;
            for line in benchmark_lines(&said) {
                teller.say(&format!("redis-benchmark {words}: {line}"));
            }
        }
        teller.say(REAL_MEANING);
        Ok(())
    }

    fn benchmark(&self, address: SocketAddr) -> Result<String, Trouble> {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let flags =
            ["-t", "set,get", "-c", "1", "-d", "100", "-n", REAL_REQUESTS, "-q", "-h", &host, "-p", &port];
        self.site.lab.run("client", "redis-benchmark", flags)
    }

    /// In turns, so that what else the machine does falls on all alike.
    fn load_in_turns(
        &self,
        addresses: &[SocketAddr],
        turns: u64,
        workload: impl Fn(u64) -> Workload,
    ) -> Result<Vec<Vec<LoadReport>>, Trouble> {
        let bar = bar(turns * addresses.len() as u64, "measuring");
        let mut loads: Vec<Vec<LoadReport>> = vec![Vec::new(); addresses.len()];
        for number in 0..turns {
            for (address, loads) in addresses.iter().zip(&mut loads) {
                let spec = WorkerSpec::Load(LoadSpec { address: *address, workload: workload(number) });
                let loaded: LoadReport = self.site.run_worker("client", "load", &spec)?;
                require_answers(*address, &loaded)?;
                loads.push(loaded);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(loads)
    }
}

fn show_seen(seen: &Seen, teller: &mut Teller<'_>) {
    teller.say(SEEN);
    teller.show(&table(seen));
    if let Some(beside_redis) = beside_redis(seen) {
        teller.say(&beside_redis);
        teller.say(SURVIVES);
    }
    teller.say(&format!("SETs of {} connections, each with one at a time:", seen.many.connections));
    teller.show(&table_of_rates(&seen.many));
}

/// Where clients find what stands behind the sidecars.
struct Ways {
    plain: SocketAddr,
    covered: SocketAddr,
    early: SocketAddr,
}

fn workload_of_many(span: Duration, seed: u64) -> Workload {
    Workload {
        name: "set-of-many".into(),
        connections: MANY,
        mix: vec![(Command::Set, 1)],
        ..workload(span, seed)
    }
}

fn workload(span: Duration, seed: u64) -> Workload {
    Workload {
        name: "set-get".into(),
        connections: 1,
        pace: Pace::Closed { outstanding: 1 },
        mix: vec![(Command::Set, 1), (Command::Get, 1)],
        value_bytes: 100,
        keys: 1_000,
        requests_max: u64::MAX,
        duration_ms_max: span.as_millis() as u64,
        warmup_ms: 0,
        seed,
    }
}

fn require_answers(address: SocketAddr, loaded: &LoadReport) -> Result<(), Trouble> {
    let LoadReport { measured_count, refused_count, unanswered_count, first_error, .. } = loaded;
    if *measured_count > 0 && refused_count + unanswered_count == 0 {
        return Ok(());
    }
    let why = first_error.clone().unwrap_or_else(|| "no connection broke".into());
    let problem =
        format!("{measured_count} answers, {refused_count} refused, {unanswered_count} unanswered ({why})");
    Err(Trouble::new(format!("load {address}"), problem, "run it again; if it comes again, see: scot doctor"))
}

/// The last state of each line that redis-benchmark -q draws over and over.
fn benchmark_lines(said: &str) -> Vec<&str> {
    let last = said.lines().filter_map(|line| line.split('\r').rfind(|part| !part.trim().is_empty()));
    last.filter(|line| line.contains("requests per second")).map(str::trim).collect()
}

fn report(label: &str, trace: &Path) -> Result<Report, Trouble> {
    let mut report = Report::from_files(label, &[trace])
        .map_err(|error| Trouble::file("read the trace", trace, &error))?;
    // The sidecar's own questions and what redis-benchmark asks before it begins are not what is compared.
    report.methods.retain(|method| is_compared(&method.method));
    for method in &mut report.methods {
        method.rows.retain(|row| SHOWN.contains(&row.percentile));
    }
    if report.methods.iter().filter(|method| !method.rows.is_empty()).count() < 2 {
        let problem = format!("there are no SETs and GETs among its {} calls", report.call_count);
        return Err(Trouble::new(format!("compare {}", trace.display()), problem, "run it again"));
    }
    Ok(report)
}

fn is_compared(method: &str) -> bool {
    ["SET", "GET"].iter().any(|name| method.eq_ignore_ascii_case(name))
}

fn medians(report: &Report) -> BTreeMap<String, Row> {
    let row =
        |method: &MethodReport| Some((method.method.to_uppercase(), method.row(Percentile::P50)?.clone()));
    report.methods.iter().filter_map(row).collect()
}

/// What the remedy changes for a client, and whether the device did what the bars say.
fn summary(seen: &Seen, before: &Counts, after: &Counts) -> Result<String, Trouble> {
    let logged = difference(before, after, LOGGED);
    if logged == 0 {
        let next = "the bars do not show the remedy; see: scot doctor";
        return Err(Trouble::new("let the device log updates", "it logged none", next));
    }
    let gain = gain(seen).map_or_else(String::new, |gain| format!("{gain}; "));
    Ok(format!("{gain}the device logged {logged} updates"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_the_benchmark_is_shown() {
        let said = "SET: rps=0.0 (overall: 0.0)\rSET: 11111.11 requests per second, p50=0.079 msec\n\
                    \rGET: rps=1\rGET: 12500.00 requests per second, p50=0.071 msec\n\n";
        let lines = benchmark_lines(said);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("SET: 11111.11") && lines[1].starts_with("GET: 12500.00"), "{lines:?}");
    }

    #[test]
    fn what_is_said_of_the_real_client_is_what_it_does() {
        assert!(REAL_MEANING.starts_with(&format!("({REAL_REQUESTS} requests each")));
    }

    #[test]
    fn a_load_that_was_not_answered_is_an_error() {
        let loaded = LoadReport {
            workload: "x".into(),
            measured_count: 10,
            sent_count: 11,
            refused_count: 1,
            unanswered_count: 0,
            broken_count: 0,
            first_error: None,
            elapsed_s: 1.0,
            requests_per_s: 10.0,
            late_ns_max: 0,
            all: None,
            commands: BTreeMap::new(),
        };
        let address = "127.0.0.1:6379".parse().expect("an address");
        assert!(require_answers(address, &loaded)
            .expect_err("one was refused")
            .to_string()
            .contains("1 refused"));
        assert_eq!(require_answers(address, &LoadReport { refused_count: 0, ..loaded }), Ok(()));
    }

    #[test]
    fn bars_that_do_not_show_the_remedy_are_an_error() {
        let counts = |logged| Counts::from([(LOGGED.to_owned(), logged)]);
        let seen = Seen {
            redis_everysec: None,
            redis_always: None,
            without_remedy: BTreeMap::new(),
            covered: BTreeMap::new(),
            persist: BTreeMap::new(),
            many: Many { connections: MANY, ways: BTreeMap::new() },
        };
        assert!(summary(&seen, &counts(7), &counts(7)).is_err());
        assert_eq!(summary(&seen, &counts(7), &counts(9)), Ok("the device logged 2 updates".to_owned()));
    }
}
