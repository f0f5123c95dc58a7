//! What SETs and GETs take: of Redis alone, and behind the sidecars without and with the remedy, stage by stage.
//!
//! Invariant: all are measured in turns, and nothing is shown if the device did not log.

use super::baseline::Baseline;
use super::proxied::{require_logged, Proxied};
use super::seen::{
    beside_redis, gain, latencies, rate, table, table_of_sets, Methods, Rate, Seen, Sets, ALWAYS, COVERED,
    EVERYSEC, PERSIST, PROXY, WAIT2, WITHOUT,
};
use super::{bar, named, DemoOptions, Plane, Stage, Stages, Teller, FLUSH_TIME_MAX};
use scotfree_core::Tier;
use scotfree_stage::load::LoadReport;
use scotfree_stage::process::find_tool;
use scotfree_stage::site::{difference, ClientSidecar, Site};
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
const SETS_PORT: u16 = 6_382;
/// How many connections set at a time, where SETs alone are measured, and in how many turns.
const ONE: u32 = 1;
const MANY: u32 = 16;
const SETS_TURNS: u64 = 3;
/// How many replicas a SET waits for, where it waits for some.
const REPLICAS: u32 = 2;
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
/// How often each is measured, in turns, and how many of them a span has.
const TURNS: u64 = 4;
const TURNS_IN_SPAN: u32 = 16;
const TURN_TRIES_MAX: u32 = 5;
/// What a client's own clock says, and what of it the bars below have.
const SEEN: &str =
    "as a client of Redis sees them, one connection, one request at a time, each the median of 4 turns:";
const SURVIVES: &str =
    "(an answered SET survives kill -9 of Redis in all of them. When its host loses power, everysec loses up to a second \
     of them; always and the proxy none, whose log is on the same host's disk; WAIT 2 none, as long as a replica goes on \
     that somebody makes the master; persist none, as long as the device, another host, goes on: ram:1. When its disk is \
     lost as well, only the replicas have the data)";
const SETS: &str = "SETs alone, each connection with one at a time (with WAIT 2, SET and WAIT together):";

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
        // What is recorded is of one kind of load on both sides; SETs alone go by a sidecar that records nothing.
        let alone = ClientSidecar { name: "sets", port: SETS_PORT, trace: None, ..remedy.clone() };
        let alone_sidecar = self.site.start_client_sidecar(&alone)?;
        let before = self.site.device_counts()?;
        let (plain, early) = (baseline.address, self.site.client_sidecar_address(&remedy));
        self.real_client([(plain, "without the remedy"), (early, "with the remedy")], teller)?;
        let behind =
            [(WITHOUT, plain), (COVERED, self.site.client_sidecar_address(&covered)), (PERSIST, early)];
        let proxy_before = self.proxied.as_ref().map(|_| Proxied::counts(&self.site)).transpose()?;
        let seen = self.load_all(&self.ways(behind), self.site.client_sidecar_address(&alone), teller)?;
        if let Some(before) = proxy_before {
            require_logged(&before, &Proxied::counts(&self.site)?)?;
        }
        covered_sidecar.stop(FLUSH_TIME_MAX);
        alone_sidecar.stop(FLUSH_TIME_MAX);
        let after = self.site.device_counts()?;
        self.require_plane(&before, &after)?;
        let baseline_trace = baseline.finish();
        sidecar.stop(FLUSH_TIME_MAX);
        keep(self.options, &[&baseline_trace, &trace])?;
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

    /// All that is measured: Redis alone and behind the proxy, where there is one, and what stands behind the sidecars.
    fn ways(&self, behind: [(&'static str, SocketAddr); 3]) -> Vec<Way> {
        let way = |(name, address)| Way { name, address, replicas: 0 };
        let alone = self.alone.iter().flat_map(|alone| {
            let waits = Way { replicas: REPLICAS, ..way((WAIT2, alone.replicated.address)) };
            [way((EVERYSEC, alone.every_second.address)), way((ALWAYS, alone.always.address)), waits]
        });
        let proxied = self.proxied.iter().map(|proxied| way((PROXY, proxied.address)));
        alone.chain(proxied).chain(behind.map(way)).collect()
    }

    /// `sets` is where SETs alone find persist.
    fn load_all(&self, ways: &[Way], sets: SocketAddr, teller: &mut Teller<'_>) -> Result<Seen, Trouble> {
        let turn = self.options.span / TURNS_IN_SPAN;
        let seconds = (turn * TURNS as u32 * ways.len() as u32).as_secs_f64();
        let first = if self.alone.is_some() { "Redis alone, the proxy, and the path " } else { "the path " };
        teller.say(&format!(
            "measuring SET and GET for {seconds:.0} s: {first}without and with the remedy, in turns"
        ));
        let loads = self.load_in_turns(ways, TURNS, |number| workload(turn, number))?;
        let mut seen: BTreeMap<&str, Methods> =
            ways.iter().zip(&loads).map(|(way, turns)| (way.name, latencies(turns))).collect();
        let of_sets =
            |way: &Way| Way { address: if way.name == PERSIST { sets } else { way.address }, ..*way };
        let ways: Vec<Way> = ways.iter().filter(|way| way.name != WITHOUT).map(of_sets).collect();
        let mut take = |name: &str| seen.remove(name);
        Ok(Seen {
            redis_everysec: take(EVERYSEC),
            redis_always: take(ALWAYS),
            redis_wait2: take(WAIT2),
            proxy: take(PROXY),
            without_remedy: take(WITHOUT).expect("it was loaded"),
            covered: take(COVERED).expect("it was loaded"),
            persist: take(PERSIST).expect("it was loaded"),
            one: self.load_sets(ONE, &ways, turn, teller)?,
            many: self.load_sets(MANY, &ways, turn, teller)?,
        })
    }

    /// Loads with SETs alone.
    fn load_sets(
        &self,
        connections: u32,
        ways: &[Way],
        turn: Duration,
        teller: &mut Teller<'_>,
    ) -> Result<Sets, Trouble> {
        let seconds = (turn * SETS_TURNS as u32 * ways.len() as u32).as_secs_f64();
        let plural = if connections == 1 { "" } else { "s" };
        teller
            .say(&format!("measuring SETs of {connections} connection{plural} for {seconds:.0} s, in turns"));
        let loads =
            self.load_in_turns(ways, SETS_TURNS, |number| workload_of_sets(connections, turn, number))?;
        let rates = ways.iter().zip(&loads).filter_map(|(way, turns)| Some((way.name, rate(turns)?)));
        Ok(Sets { connections, ways: rates.collect::<BTreeMap<&'static str, Rate>>() })
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
        ways: &[Way],
        turns: u64,
        workload: impl Fn(u64) -> Workload,
    ) -> Result<Vec<Vec<LoadReport>>, Trouble> {
        let bar = bar(turns * ways.len() as u64, "measuring");
        let mut loads: Vec<Vec<LoadReport>> = vec![Vec::new(); ways.len()];
        for number in 0..turns {
            for (way, loads) in ways.iter().zip(&mut loads) {
                let workload = Workload { replicas: way.replicas, ..workload(number) };
                loads.push(load(&self.site, way.address, workload)?);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(loads)
    }
}

/// Copies the records of calls to where somebody wants them.
pub(super) fn keep(options: &DemoOptions, traces: &[&Path]) -> Result<(), Trouble> {
    let Some(folder) = &options.trace_folder else { return Ok(()) };
    for trace in traces {
        let kept = folder.join(trace.file_name().expect("a trace is a file"));
        std::fs::copy(trace, &kept).map_err(|error| Trouble::file("write", &kept, &error))?;
    }
    Ok(())
}

fn show_seen(seen: &Seen, teller: &mut Teller<'_>) {
    teller.say(SEEN);
    teller.show(&table(seen));
    teller.say(SETS);
    teller.show(&table_of_sets(seen));
    for line in beside_redis(seen) {
        teller.show(&line);
    }
    if seen.redis_everysec.is_some() {
        teller.say(SURVIVES);
    }
}

/// One way to a server, and where clients find it.
#[derive(Clone, Copy)]
struct Way {
    /// Its name in the report.
    name: &'static str,
    address: SocketAddr,
    /// How many replicas a SET waits for.
    replicas: u32,
}

fn workload_of_sets(connections: u32, span: Duration, seed: u64) -> Workload {
    Workload { name: "set".into(), connections, mix: vec![(Command::Set, 1)], ..workload(span, seed) }
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
        replicas: 0,
    }
}

/// One turn. On a machine that does more than it can it may be over before its client has begun: then it is made again.
pub(super) fn load(site: &Site<'_>, address: SocketAddr, workload: Workload) -> Result<LoadReport, Trouble> {
    let spec = WorkerSpec::Load(LoadSpec { address, workload });
    let run = || site.run_worker::<LoadReport>("client", "load", &spec);
    let mut loaded = run()?;
    for _ in 1..TURN_TRIES_MAX {
        if loaded.sent_count > 0 {
            break;
        }
        loaded = run()?;
    }
    require_answers(address, &loaded)?;
    Ok(loaded)
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
            redis_wait2: None,
            proxy: None,
            without_remedy: BTreeMap::new(),
            covered: BTreeMap::new(),
            persist: BTreeMap::new(),
            one: Sets { connections: ONE, ways: BTreeMap::new() },
            many: Sets { connections: MANY, ways: BTreeMap::new() },
        };
        assert!(summary(&seen, &counts(7), &counts(7)).is_err());
        assert_eq!(summary(&seen, &counts(7), &counts(9)), Ok("the device logged 2 updates".to_owned()));
    }
}
