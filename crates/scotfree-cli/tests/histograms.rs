//! How long requests take, as daemons say it to Prometheus: every request is counted once, and where it
//! belongs.

mod prometheus;
mod site;

use scotfree_io::conformance::ports::free_address;
use scotfree_stage::process::{find_tool, wait_until, Process};
use scotfree_stage::resp::Connection;
use site::{call, get, ready, Site, PATIENCE, SCOT};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a Redis is stopped in which a request waits: more than this bucket holds.
const STOPPED: Duration = Duration::from_millis(400);
const LESS_THAN_STOPPED: &str = "0.25";

/// A page of metrics that Prometheus takes.
fn page(metrics: SocketAddr) -> String {
    let answer = get(metrics, "/metrics");
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    assert_eq!(prometheus::faults(&body), Vec::<String>::new());
    body
}

/// The same as `OpenMetrics`, which Prometheus asks for.
fn open_page(metrics: SocketAddr) -> String {
    let answer = site::get_as(metrics, "/metrics", "HTTP/1.1\r\nAccept: application/openmetrics-text");
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    assert_eq!(prometheus::open_faults(&body), Vec::<String>::new());
    body
}

/// A sample of a page, by its whole name.
fn sample(page: &str, name: &str) -> Option<u64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Waits until a histogram has counted so many; the page that says so.
fn await_count(metrics: SocketAddr, name: &str, labels: &str, expected: u64) -> String {
    let mut last = String::new();
    let count = format!("{name}_count{labels}");
    let found = wait_until(PATIENCE, || {
        last = page(metrics);
        sample(&last, &count) == Some(expected)
    });
    assert!(found, "{count} {expected}: {last}");
    last
}

/// The cumulative counts of a histogram's buckets, with their bounds.
fn buckets<'p>(page: &'p str, name: &str, kind: &str) -> Vec<(&'p str, u64)> {
    let begin = format!("{name}_bucket{{kind=\"{kind}\",le=\"");
    let bucket = |line: &'p str| {
        let (bound, count) = line.strip_prefix(begin.as_str())?.split_once("\"} ")?;
        Some((bound, count.parse().ok()?))
    };
    page.lines().filter_map(bucket).collect()
}

/// Asserts that one more request was counted between two pages, and that it took longer than
/// `LESS_THAN_STOPPED`.
fn assert_one_was_slow(before: &str, after: &str, name: &str, kind: &str) {
    let (before, after) = (buckets(before, name, kind), buckets(after, name, kind));
    assert!(!before.is_empty() && before.len() == after.len(), "{name} {kind}");
    let quick = before.iter().position(|(bound, _)| *bound == LESS_THAN_STOPPED).expect("it is a bound");
    let more: Vec<u64> = after.iter().zip(&before).map(|((_, after), (_, before))| after - before).collect();
    assert!(more[..=quick].iter().all(|more| *more == 0), "{name} {kind}: {more:?}");
    assert_eq!(more.last(), Some(&1), "{name} {kind}: {more:?}");
}

const REDIS: &str = "scotfree_redis_request_duration_seconds";
const EXECUTION: &str = "scotfree_server_execution_duration_seconds";
const STABLE: &str = "scotfree_server_stable_duration_seconds";
const FRONT: &str = "scotfree_front_request_duration_seconds";

struct Proxied {
    site: Site,
    redis: Process,
    metrics: SocketAddr,
    _proxy: Process,
}

/// A proxy before a Redis that answers early what begins with `e:`; none where there is no Redis.
fn proxied(name: &str) -> Option<Proxied> {
    let site = Site::new(name)?;
    let (redis, metrics) = (site.redis(&[]), free_address());
    let at = metrics.to_string();
    let proxy = site.proxy(&["--metrics", &at, "--mode", "early", "--early-prefix", "e:"]);
    Some(Proxied { site, redis, metrics, _proxy: proxy })
}

#[test]
fn a_proxy_counts_every_request_once_and_by_what_it_is() {
    let Some(Proxied { site, redis: _redis, metrics, _proxy }) = proxied("histograms-proxy") else { return };
    let mut client = site.connect();
    for number in 0..7 {
        call(&mut client, &format!("SET c:{number} v"));
        call(&mut client, &format!("GET c:{number}"));
    }
    for number in 0..5 {
        call(&mut client, &format!("SET e:{number} v"));
    }
    await_count(metrics, FRONT, "{kind=\"early\"}", 5);
    await_count(metrics, FRONT, "{kind=\"covered\"}", 7);
    // The Redis may have early ones still to execute.
    await_count(metrics, REDIS, "{kind=\"update\"}", 12);
    let page = await_count(metrics, FRONT, "{kind=\"read\"}", 7);
    for (name, expected) in [
        (format!("{FRONT}_count{{kind=\"bypass\"}}"), 0),
        (format!("{REDIS}_count{{kind=\"read\"}}"), 7),
        (format!("{REDIS}_count{{kind=\"bypass\"}}"), 0),
        // One client that waits for each answer: a record for each update.
        ("scotfree_proxy_log_write_duration_seconds_count".to_owned(), 12),
        ("scotfree_proxy_records_total".to_owned(), 12),
    ] {
        assert_eq!(sample(&page, &name), Some(expected), "{name}: {page}");
    }
    prometheus::check_by_promtool(&page);
    open_page(metrics);
}

#[test]
fn a_store_and_a_client_s_sidecar_count_every_request_once() {
    let folder = Site::without_redis("histograms-store");
    let traced = Traced::start(&folder);
    let mut client = Connection::open(traced.listen, PATIENCE).expect("it listens");
    for number in 0..6 {
        call(&mut client, &format!("SET {number} v"));
        call(&mut client, &format!("GET {number}"));
    }
    await_count(traced.metrics, FRONT, "{kind=\"covered\"}", 6);
    let page = await_count(traced.metrics, FRONT, "{kind=\"read\"}", 6);
    prometheus::check_by_promtool(&page);
    await_count(traced.store_metrics, STABLE, "", 6);
    let page = await_count(traced.store_metrics, EXECUTION, "{kind=\"update\"}", 6);
    // The sidecar asks now and then what the store is.
    let reads = sample(&page, &format!("{EXECUTION}_count{{kind=\"read\"}}"));
    assert!(reads.is_some_and(|reads| reads > 6), "{page}");
    prometheus::check_by_promtool(&page);
    open_page(traced.store_metrics);
    let open = open_page(traced.metrics);
    let has_exemplar = |kind: &str| {
        let begin = format!("{FRONT}_bucket{{kind=\"{kind}\"");
        open.lines().any(|line| line.starts_with(&begin) && line.contains("# {trace_id=\""))
    };
    assert!(has_exemplar("covered") && has_exemplar("read") && !has_exemplar("early"), "{open}");
}

#[test]
fn a_server_s_sidecar_counts_what_its_redis_executes() {
    let Some(site) = Site::new("histograms-sidecar") else { return };
    let _redis = site.redis(&[]);
    let (server, listen, metrics) = (free_address(), free_address(), free_address());
    let [server, listening, at] = [server, listen, metrics].map(|address| address.to_string());
    new_key(&site);
    let words = ["sidecar", "server", "--listen", &server, "--redis", "unix:redis.sock", "--key-file", "key"];
    let more = ["--metrics", &at, "--dead-letters", "letters"];
    let _sidecar = ready(site.spawn("server", SCOT, &[&words[..], &more].concat()));
    let words = ["sidecar", "client", "--listen", &listening, "--server", &server, "--key-file", "key"];
    let _client = ready(site.spawn("client", SCOT, &words));
    let mut client = Connection::open(listen, PATIENCE).expect("it listens");
    for number in 0..4 {
        call(&mut client, &format!("SET {number} v"));
        call(&mut client, &format!("GET {number}"));
    }
    await_count(metrics, STABLE, "", 4);
    let page = await_count(metrics, EXECUTION, "{kind=\"update\"}", 4);
    assert_eq!(sample(&page, &format!("{REDIS}_count{{kind=\"update\"}}")), Some(4), "{page}");
    prometheus::check_by_promtool(&page);
    open_page(metrics);
}

/// Reads a key while the Redis is stopped: that time is to be found again.
fn read_while_stopped(redis: &Process, client: &mut Connection) {
    redis.signal("STOP");
    client.push(&["GET", "c"]);
    client.flush().expect("it is sent");
    std::thread::sleep(STOPPED);
    redis.signal("CONT");
    client.read().expect("it is answered");
}

#[test]
fn a_request_that_waits_for_a_stopped_redis_is_found_in_a_bucket_of_its_time() {
    let Some(Proxied { site, redis, metrics, _proxy }) = proxied("histograms-slow") else { return };
    let mut client = site.connect();
    call(&mut client, "SET c v");
    for _ in 0..20 {
        call(&mut client, "GET c");
    }
    let before = await_count(metrics, FRONT, "{kind=\"read\"}", 20);
    read_while_stopped(&redis, &mut client);
    let after = await_count(metrics, FRONT, "{kind=\"read\"}", 21);
    assert_one_was_slow(&before, &after, FRONT, "read");
    assert_one_was_slow(&before, &after, REDIS, "read");
    for (name, kind) in [(FRONT, "covered"), (REDIS, "update")] {
        assert_eq!(buckets(&before, name, kind), buckets(&after, name, kind), "{name}");
    }
}

/// A Prometheus that scrapes these every second.
struct Prometheus {
    address: SocketAddr,
    /// It ends with this.
    process: Process,
}

impl Prometheus {
    fn start(site: &Site, targets: &[SocketAddr]) -> Prometheus {
        let targets: Vec<String> = targets.iter().map(|target| format!("\"{target}\"")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  - job_name: scot\n    \
             static_configs: [{{targets: [{}]}}]\n",
            targets.join(", ")
        );
        std::fs::write(site.file("prometheus.yml"), config).expect("it can be written");
        let address = free_address();
        let listen = format!("--web.listen-address={address}");
        let words = ["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", &listen];
        let process = site.spawn(
            "prometheus",
            "prometheus",
            &[&words[..], &["--enable-feature=exemplar-storage"]].concat(),
        );
        let prometheus = Prometheus { address, process };
        let is_ready = || site::get_as(prometheus.address, "/-/ready", "HTTP/1.0").contains("200 OK");
        assert!(wait_until(PATIENCE, is_ready), "{}", prometheus.process.error_output());
        prometheus
    }

    /// What it answers to a question of its HTTP API; Null while it does not.
    fn ask(&self, path: &str, query: &str) -> serde_json::Value {
        let mut asked = format!("/api/v1/{path}");
        for byte in query.bytes() {
            write!(asked, "%{byte:02X}").expect("a string takes it");
        }
        // As an older version of HTTP, which knows no answers in chunks.
        let answer = site::get_as(self.address, &asked, "HTTP/1.0");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let found: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        found.get("data").cloned().unwrap_or_default()
    }

    /// The value of a query that has one.
    fn value(&self, query: &str) -> Option<f64> {
        let found = self.ask("query?query=", query);
        found.pointer("/result/0/value/1")?.as_str()?.parse().ok()
    }

    fn await_value(&self, query: &str, expected: f64) {
        let mut last = None;
        let found = wait_until(PATIENCE, || {
            last = self.value(query);
            last == Some(expected)
        });
        let targets = self.ask("targets?state=", "active");
        assert!(found, "{query}: {last:?}; {targets}");
    }
}

#[test]
fn a_prometheus_computes_quantiles_and_keeps_the_exemplars_of_traced_calls() {
    if find_tool("prometheus").is_none() {
        eprintln!("SKIP: prometheus is not installed: apt-get install prometheus");
        return;
    }
    let Some(Proxied { site, redis, metrics, _proxy }) = proxied("histograms-prometheus") else { return };
    let traced = Traced::start(&site);
    let prometheus = Prometheus::start(&site, &[metrics, traced.metrics]);
    let mut client = site.connect();
    for _ in 0..3 {
        call(&mut client, "GET c");
    }
    read_while_stopped(&redis, &mut client);
    let mut beside = Connection::open(traced.listen, PATIENCE).expect("it listens");
    call(&mut beside, "SET t v");
    let of =
        |target: SocketAddr, part: &str| format!("{FRONT}_{part}{{instance=\"{target}\",kind=\"read\"}}");
    prometheus.await_value("count(up == 1)", 2.0);
    prometheus.await_value(&of(metrics, "count"), 4.0);
    // One of four took that long: more than the quantile that leaves it out, less than the one that has it.
    let quantile =
        |share: &str| prometheus.value(&format!("histogram_quantile({share}, {})", of(metrics, "bucket")));
    let (few, all) = (quantile("0.5"), quantile("1"));
    assert!(few.is_some_and(|few| few > 0.0) && all >= Some(STOPPED.as_secs_f64()), "{few:?} {all:?}");
    assert!(few < all, "{few:?} {all:?}");

    let series = format!("{FRONT}_bucket{{instance=\"{}\"}}", traced.metrics);
    let mut found = serde_json::Value::Null;
    let has_come = wait_until(PATIENCE, || {
        // Until then they are kept: seconds since 1970.
        found = prometheus.ask("query_exemplars?start=0&end=99999999999&query=", &series);
        found.pointer("/0/exemplars/0/labels/trace_id").is_some()
    });
    assert!(has_come, "{found}");
    let id = found.pointer("/0/exemplars/0/labels/trace_id").and_then(serde_json::Value::as_str);
    let kind = found.pointer("/0/seriesLabels/kind").and_then(serde_json::Value::as_str);
    assert_eq!(kind, Some("covered"), "{found}");
    traced.stop();
    let trace = std::fs::read_to_string(site.file("trace.jsonl")).expect("it was written");
    assert!(trace.contains(id.expect("it is text")), "{found} {trace}");
    assert_eq!(
        prometheus.ask("query_exemplars?start=0&end=99999999999&query=", &of(metrics, "bucket")),
        serde_json::json!([])
    );
}

fn new_key(site: &Site) {
    let made = site.spawn("key", SCOT, &["key", "new", "key"]).wait(PATIENCE);
    assert!(made.is_some_and(|made| made.success()));
}

/// A sidecar that records its calls, before a store.
struct Traced {
    listen: SocketAddr,
    metrics: SocketAddr,
    store_metrics: SocketAddr,
    sidecar: Process,
    _store: Process,
}

impl Traced {
    fn start(site: &Site) -> Traced {
        let (server, listen, metrics) = (free_address(), free_address(), free_address());
        let store_metrics = free_address();
        let [server, listening, at, store_at] =
            [server, listen, metrics, store_metrics].map(|address| address.to_string());
        new_key(site);
        let words = ["kv", "--listen", &server, "--log", "kv.wal", "--log-size", "8M", "--key-file", "key"];
        let store = ready(site.spawn("kv", SCOT, &[&words[..], &["--metrics", &store_at]].concat()));
        let words = ["sidecar", "client", "--listen", &listening, "--server", &server, "--key-file", "key"];
        let more = ["--metrics", &at, "--trace", "trace.jsonl"];
        let sidecar = ready(site.spawn("sidecar", SCOT, &[&words[..], &more].concat()));
        Traced { listen, metrics, store_metrics, sidecar, _store: store }
    }

    fn stop(&self) {
        assert!(self.sidecar.stop(PATIENCE).is_some_and(|status| status.success()));
    }
}
