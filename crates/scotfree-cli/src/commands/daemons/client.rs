//! The command `scot sidecar client`: the sidecar that Redis clients connect to.
//!
//! Invariant: records of calls never make a request wait; what could not be written is said and counted.

use super::{cluster_key, notices, spin_of, take_key};
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::serve::{begin_quietly, open_files_max, say_ready, say_reload, InForce, Listening, Messages};
use crate::settings::{Client, Mode};
use crate::text::TraceTarget;
use scotfree_core::Nanos;
use scotfree_resp::front::EarlyRule;
use scotfree_rpc::metrics::{MetricKind, MetricsBoard, MetricsText};
use scotfree_rpc::{ProbeOptions, SharedKey};
use scotfree_sidecar::client::{ClientSidecar, ClientSidecarConfig, EarlyRules};
use scotfree_trace::{Resource, TraceCounts, TraceHandle, TraceWriter, WriterOptions};
use scotfree_wire::ClusterKey;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};

/// What is left of the open files for all but clients' connections and tunnels.
const OTHER_FILES: u64 = 64;
/// How many files a tunnel has open.
const TUNNEL_FILES: usize = 3;

/// What can be taken over without a restart; connections that are open keep their rule.
const RELOADABLE: [&str; 5] = ["mode", "early_prefix", "log_level", "key_file", "key"];

/// Runs the sidecar until it is told to end.
pub fn run(sources: Sources) -> Result<(), Failure> {
    let settings = sources.read()?;
    let key = cluster_key(&settings.cluster)?;
    let mut config = config(&settings.client, key).map_err(|failure| sources.placed("client", failure))?;
    let messages = Messages::new("sidecar client", settings.cluster.log_level);
    let listening = Listening::open(settings.client.metrics)?;
    config.notices = notices(&messages);
    let limits = (&mut config.connections_max, &mut config.tunnels_max);
    limit_by_files(limits, open_files_max(), &messages);
    let writer = open_trace(&settings.client)?;
    let mut sidecar = ClientSidecar::start(&config).map_err(Failure::environment)?;
    let rules = sidecar.early_rules();
    let key = config.cluster_key.clone();
    let in_force = InForce::of(&settings.client).and(&settings.cluster);
    let mut reload = Reload { sources, in_force, messages: messages.clone(), rules, key };
    let serving = begin_quietly(listening, move || reload.run())?;
    let addresses: Vec<String> = sidecar.addresses().iter().map(SocketAddr::to_string).collect();
    say_ready(&format!("sidecar client {}", addresses.join(" ")));
    let handle = writer.as_ref().map(|writer| watch_trace(writer, &serving.board, &messages));
    let ended = sidecar.run(&serving.stop, Some(&serving.board), &mut |record| {
        if let Some(handle) = &handle {
            handle.record(record);
        }
    });
    if let Some(writer) = writer {
        close_trace(writer, &messages);
    }
    ended.map_err(Failure::environment)?;
    messages.say("stopped");
    Ok(())
}

/// The writer of call records, if they go anywhere.
fn open_trace(settings: &Client) -> Result<Option<TraceWriter>, Failure> {
    let service = settings.trace_service.as_deref().unwrap_or("scot-sidecar-client");
    let resource = Resource { service: service.into(), instance: None, peer: settings.trace_peer.clone() };
    settings.trace.as_ref().map(|target| open_writer(target, resource)).transpose()
}

fn open_writer(target: &TraceTarget, resource: Resource) -> Result<TraceWriter, Failure> {
    let options = WriterOptions::default();
    match target {
        TraceTarget::File(path) => TraceWriter::to_file(path, resource, options).map_err(|error| {
            let next = "name a file in a folder that is yours";
            Failure::tried(format!("write the trace {}", path.display()), &error, next)
        }),
        TraceTarget::Endpoint(endpoint) => Ok(TraceWriter::to_endpoint(endpoint.clone(), resource, options)),
    }
}

/// Lets the outside see what becomes of the records; the recording side.
fn watch_trace(writer: &TraceWriter, board: &MetricsBoard, messages: &Messages) -> TraceHandle {
    let (handle, messages) = (writer.handle(), messages.clone());
    let watched = handle.clone();
    board.add(move |text| write_metrics(&watched.counts(), text));
    writer.on_trouble(move |line| messages.say(line));
    handle
}

fn write_metrics(counts: &TraceCounts, text: &mut MetricsText) {
    let TraceCounts { recorded, written, dropped_full, dropped_incomplete, failed, retries } = *counts;
    text.counter("scotfree_trace_recorded_total", "Call records made", recorded);
    text.counter("scotfree_trace_written_total", "Call records written, or taken by the collector", written);
    let help =
        "Call records lost: the writer was behind (full), without beginning or end (incomplete), or not \
                taken (refused)";
    text.family(MetricKind::Counter, "scotfree_trace_lost_total", help);
    for (why, count) in [("full", dropped_full), ("incomplete", dropped_incomplete), ("refused", failed)] {
        text.sample("scotfree_trace_lost_total", &[("why", why)], count);
    }
    text.counter("scotfree_trace_retries_total", "Deliveries of call records that were tried again", retries);
}

fn close_trace(writer: TraceWriter, messages: &Messages) {
    let problem = writer.first_error();
    let counts = writer.close();
    let lost = counts.recorded - counts.written;
    if lost > 0 {
        let why = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
        messages.say(&format!("ALARM: {lost} of {} call records were not written{why}", counts.recorded));
    }
}

struct Reload {
    sources: Sources,
    in_force: InForce,
    messages: Messages,
    rules: EarlyRules,
    key: SharedKey,
}

impl Reload {
    fn run(&mut self) {
        let read = self.sources.read().and_then(|new| {
            let key = cluster_key(&new.cluster)?;
            config(&new.client, key.clone()).map_err(|failure| self.sources.placed("client", failure))?;
            Ok((early_rule(&new.client)?, key, new))
        });
        match read {
            Ok((rule, key, new)) => {
                let in_force = InForce::of(&new.client).and(&new.cluster);
                let mut changed = self.in_force.take_over(&in_force, &RELOADABLE);
                self.messages.set_level(new.cluster.log_level);
                self.rules.set(rule);
                changed.extend(take_key(&self.messages, &self.key, key).then(|| "key".to_owned()));
                say_reload(&self.messages, &changed, &RELOADABLE);
            }
            Err(failure) => self.messages.say(&format!("ALARM: not reloaded: {failure}")),
        }
    }
}

/// Refuses settings that are not complete or contradict each other.
pub fn check(settings: &Client) -> Result<(), Failure> {
    config(settings, ClusterKey::from_bytes([0; 32])).map(drop)
}

fn config(settings: &Client, key: ClusterKey) -> Result<ClientSidecarConfig, Failure> {
    let listen = required(settings.listen.as_ref(), "client", "listen")?;
    let server = required(settings.server.as_ref(), "client", "server")?.0;
    let bind = settings.local.unwrap_or_else(|| any_address(server));
    let mut config = ClientSidecarConfig::new(listen, bind, server, key);
    config.listeners[0].early = early_rule(settings)?;
    config.session.tier = settings.durability.map_or(config.session.tier, |asked| asked.0);
    config.drain_ns_max = settings.drain_ns_max.map_or(config.drain_ns_max, Nanos);
    config.probes = probes(settings);
    config.spin = spin_of(settings.spin_us);
    set_limits(settings, &mut config);
    Ok(config)
}

fn set_limits(settings: &Client, config: &mut ClientSidecarConfig) {
    config.tunnels_max = settings.tunnels_max.unwrap_or(config.tunnels_max);
    for (limit, wanted) in [
        (&mut config.connections_max, settings.connections_max),
        (&mut config.front.transaction_commands_max, settings.transaction_commands_max),
        (&mut config.sessions_max, settings.sessions_max),
        (&mut config.connections_per_session, settings.connections_per_session),
    ] {
        *limit = wanted.map_or(*limit, NonZeroUsize::get);
    }
}

/// Lowers the limits of connections and tunnels to what the files that may be open allow, and says so.
pub(super) fn limit_by_files(
    (connections_max, tunnels_max): (&mut usize, &mut usize),
    files_max: u64,
    messages: &Messages,
) {
    let (connections, tunnels) = fit_files(*connections_max, *tunnels_max, files_max);
    if (connections, tunnels) != (*connections_max, *tunnels_max) {
        messages.say(&format!(
            "at most {connections} connections and {tunnels} tunnels, since {files_max} files are its part of those that \
             may be open (ulimit -Hn)"
        ));
    }
    (*connections_max, *tunnels_max) = (connections, tunnels);
}

/// How many connections and tunnels the files that may be open allow: what is beyond that is refused in words, not
/// by the kernel. A connection is an open file, a tunnel three; at least a quarter of the files is for connections.
fn fit_files(connections_max: usize, tunnels_max: usize, files_max: u64) -> (usize, usize) {
    let files = usize::try_from(files_max.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    let tunnels = tunnels_max.min(files / TUNNEL_FILES / 4 * 3);
    let connections = connections_max.min(files - tunnels * TUNNEL_FILES);
    (connections.max(1), tunnels)
}

fn early_rule(settings: &Client) -> Result<EarlyRule, Failure> {
    early_rule_of("client", settings.mode, &settings.early_prefix)
}

/// Which commands are answered early, as a section says it.
pub(super) fn early_rule_of(
    section: &str,
    mode: Option<Mode>,
    prefixes: &[String],
) -> Result<EarlyRule, Failure> {
    let prefixes: Vec<Vec<u8>> = prefixes.iter().map(|prefix| prefix.clone().into_bytes()).collect();
    match (mode.unwrap_or_default(), prefixes.is_empty()) {
        (Mode::Covered, true) => Ok(EarlyRule::Never),
        (Mode::Covered, false) => Err(Failure::usage(format!(
            "[{section}] early_prefix is given, but mode is covered; give mode early, or no prefix"
        ))),
        (Mode::Early, true) => Ok(EarlyRule::Always),
        (Mode::Early, false) => Ok(EarlyRule::Prefixes(prefixes)),
    }
}

fn probes(settings: &Client) -> ProbeOptions {
    let default = ProbeOptions::default();
    // Records that nobody takes need not be made.
    let record_every =
        if settings.trace.is_some() { settings.trace_every.unwrap_or(default.record_every) } else { 0 };
    let keys_every = settings.trace_keys.filter(|_| settings.trace.is_some());
    let record_keys_every = keys_every.map_or(default.record_keys_every, NonZeroU32::get);
    let transmit_stamp_every = settings.stamp_every.unwrap_or(default.transmit_stamp_every);
    ProbeOptions { record_every, record_keys_every, transmit_stamp_every, ..default }
}

fn any_address(peer: SocketAddr) -> SocketAddr {
    let ip: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client { listen: "127.0.0.1:6379".parse().ok(), server: "10.0.0.2".parse().ok(), ..Client::default() }
    }

    fn config_of(settings: &Client) -> Result<ClientSidecarConfig, Failure> {
        config(settings, ClusterKey::from_bytes([1; 32]))
    }

    #[test]
    fn there_are_as_many_connections_as_files_may_be_open() {
        assert_eq!(fit_files(10_000, 2_048, u64::MAX), (10_000, 2_048));
        assert_eq!(fit_files(10_000, 2_048, 10_064), (10_000 - 3 * 2_048, 2_048));
        assert_eq!(fit_files(10_000, 2_048, 4_096), (4_032 - 3 * 1_008, 1_008));
        assert_eq!(fit_files(10_000, 0, 100), (36, 0));
        assert_eq!(fit_files(10_000, 2_048, 64), (1, 0), "one is tried");
        let may_be_open = open_files_max();
        assert_eq!(open_files_max(), may_be_open, "what is raised stays so");
    }

    #[test]
    fn settings_become_the_sidecars_configuration() {
        let config = config_of(&client()).expect("it can be used");
        assert_eq!(config.listeners[0].early, EarlyRule::Never);
        assert_eq!(config.session.tier.to_string(), "ram:1");
        assert_eq!(config.probes.record_every, 0, "nobody would read the records");
        let settings = Client {
            mode: Some(Mode::Early),
            early_prefix: vec!["a:".into()],
            durability: "ram:3+disk".parse().ok(),
            trace: "/tmp/t".parse().ok(),
            drain_ns_max: Some(7),
            spin_us: Some(9),
            ..client()
        };
        let config = config_of(&settings).expect("it can be used");
        assert_eq!(config.listeners[0].early, EarlyRule::Prefixes(vec![b"a:".to_vec()]));
        assert_eq!(config.session.tier.to_string(), "ram:3+disk");
        assert_eq!((config.probes.record_every, config.drain_ns_max), (1, Nanos(7)));
        assert_eq!(config.spin, scotfree_io::Spin::UpTo(Nanos::from_micros(9)));
    }

    #[test]
    fn what_is_missing_or_contradicts_is_refused() {
        for (settings, expected) in [
            (Client { server: None, ..client() }, "--server is missing"),
            (Client { listen: None, ..client() }, "SCOT_CLIENT_LISTEN"),
            (Client { early_prefix: vec!["a".into()], ..client() }, "mode is covered"),
        ] {
            let failure = config_of(&settings).expect_err(expected);
            assert!(failure.code() == 2 && failure.to_string().contains(expected), "{failure}");
        }
    }
}
