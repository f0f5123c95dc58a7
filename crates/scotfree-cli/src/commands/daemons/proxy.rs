//! The command `scot proxy`: a durable log before a Redis, or before each of several, in the process that its clients
//! connect to.
//!
//! Invariant: nothing is opened before all settings are understood, and nobody is served before the log is replayed.

mod reload;
mod sections;
mod several;

use super::client::{early_rule_of, limit_by_files};
use super::server::{credentials_of, password_of};
use super::{cluster_key, dead_letters_of, notices, spin_of};
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::serve::{
    begin_quietly, keep_files_private, open_files_max, say_ready, InForce, Listening, Messages,
};
use crate::settings::{Cluster, Config, Proxies, Proxy as Settings};
use crate::text::LogProcessor;
use reload::{Reload, Running};
use scotfree_core::Nanos;
use scotfree_io::disk::interrupt;
use scotfree_rpc::metrics::MetricsBoard;
use scotfree_rpc::SharedKey;
use scotfree_sidecar::client::proxy::{
    PeersConfig, Proxy, ProxyConfig, Questions, CACHE_BYTES_MIN, PEERS_MAX,
};
use scotfree_sidecar::client::ListenerConfig;
use scotfree_sidecar::redis::{RedisAddress, RedisServer};
use scotfree_sidecar::server::{PasswordSource, RedisServiceConfig};
use scotfree_sidecar::tls::{AcceptFiles, ConnectFiles, IdentityFiles, TlsAcceptor, TlsConnector};
use sections::sections;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;

/// With peers the file holds no records.
const LOG_BYTES_WITH_PEERS: u64 = 18 << 20;

/// Runs the proxies until they are told to end.
pub fn run(sources: Sources) -> Result<(), Failure> {
    keep_files_private();
    let settings = sources.read()?;
    match &settings.proxy {
        Proxies::One(_) => run_one(sources, &settings),
        Proxies::Several(_) => several::run(sources, &settings),
    }
}

fn run_one(sources: Sources, settings: &Config) -> Result<(), Failure> {
    let sections = sections(&settings.proxy, &sources)?;
    let section = &sections[0];
    let messages = Messages::new("proxy", settings.cluster.log_level);
    let mut config = complete(section.settings, &settings.cluster, &messages, 0)
        .map_err(|failure| section.placed(&sources, failure))?;
    let listening = Listening::open(section.settings.metrics)?;
    let limits = (&mut config.connections_max, &mut config.tunnels_max);
    limit_by_files(limits, open_files_max(), &messages);
    let running = vec![Running::new(section, &config, messages.clone())];
    drop(sections);
    let common = InForce::of(&settings.cluster);
    let mut reload = Reload { sources, common, messages: messages.clone(), running };
    let serving = begin_quietly(listening, move || reload.run())?;
    answer_questions(&serving.board, &config);
    let started = Proxy::start(&config, &serving.stop).map_err(Failure::environment)?;
    let Some(mut proxy) = started else { return Ok(()) };
    say_ready(&format!("proxy {}", place(&proxy, &config)));
    proxy.run(&serving.stop, Some(&serving.board)).map_err(Failure::environment)?;
    messages.say("stopped");
    Ok(())
}

/// The configuration of one, whose lines become these messages, and whose cache answers as server `number`.
fn complete(
    settings: &Settings,
    cluster: &Cluster,
    messages: &Messages,
    number: usize,
) -> Result<ProxyConfig, Failure> {
    let mut config = config(settings)?;
    config.peers = peers(settings, cluster)?;
    let key = match &config.peers {
        Some(peers) => Some(peers.key.clone()),
        None if cluster.key_file.is_some() && config.cache_bytes.is_some() => {
            Some(SharedKey::from(cluster_key(cluster)?))
        }
        None => None,
    };
    config.questions = Questions::new(key, u8::try_from(number).unwrap_or(u8::MAX));
    config.notices = notices(messages);
    config.service.notices = notices(messages);
    Ok(config)
}

/// What an operator asks of the cache is asked where the metrics are.
fn answer_questions(board: &MetricsBoard, config: &ProxyConfig) {
    let questions = config.questions.clone();
    board.answer_questions(move |target| questions.ask(target));
}

/// Where clients connect, how, and to what.
fn place(proxy: &Proxy, config: &ProxyConfig) -> String {
    let listeners = proxy.addresses().into_iter().zip(&config.listeners);
    let addresses: Vec<String> = listeners.map(|(address, listener)| address_of(address, listener)).collect();
    format!("{} for {}", addresses.join(" "), config.service.redis)
}

fn address_of(address: SocketAddr, listener: &ListenerConfig) -> String {
    let scheme = if listener.tls.is_some() { "tls:" } else { "" };
    format!("{scheme}{address}")
}

/// What was read of certificates.
struct Tls {
    acceptor: Option<TlsAcceptor>,
    connector: Option<TlsConnector>,
}

impl Tls {
    fn of(config: &ProxyConfig) -> Tls {
        let acceptor = config.listeners.iter().find_map(|listener| listener.tls.clone());
        Tls { acceptor, connector: config.service.redis.tls.clone() }
    }

    /// Connections made from now on go by what was read anew; whether something differs.
    fn take_over(&self, new: &Tls) -> bool {
        let clients = self.acceptor.as_ref().zip(new.acceptor.as_ref());
        let server = self.connector.as_ref().zip(new.connector.as_ref());
        clients.is_some_and(|(held, new)| held.take_over(new))
            | server.is_some_and(|(held, new)| held.take_over(new))
    }
}

/// Refuses settings that are not complete or contradict each other; a failure names the place.
pub fn check(proxies: &Proxies, sources: &Sources) -> Result<(), Failure> {
    for section in sections(proxies, sources)? {
        let checked = check_peers(section.settings).and_then(|()| config(section.settings).map(drop));
        checked.map_err(|failure| section.placed(sources, failure))?;
    }
    Ok(())
}

/// The peers, if there are any, and the key that they share.
fn peers(settings: &Settings, cluster: &Cluster) -> Result<Option<PeersConfig>, Failure> {
    check_peers(settings)?;
    if settings.peers.is_empty() {
        return Ok(None);
    }
    let key = SharedKey::from(cluster_key(cluster)?);
    Ok(Some(PeersConfig { addresses: settings.peers.clone(), key }))
}

fn check_peers(settings: &Settings) -> Result<(), Failure> {
    let peers = &settings.peers;
    if peers.len() > PEERS_MAX {
        return Err(Failure::usage(format!(
            "[proxy] peers: {} are named, and {PEERS_MAX} are the most",
            peers.len()
        )));
    }
    for (index, peer) in peers.iter().enumerate() {
        let has_port =
            peer.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
        if !has_port {
            return Err(Failure::usage(format!(
                "[proxy] peers: `{peer}` is not NAME:PORT, such as peer1:7399"
            )));
        }
        if peers[..index].contains(peer) {
            return Err(Failure::usage(format!(
                "[proxy] peers: {peer} is named twice: it would hold one copy"
            )));
        }
    }
    Ok(())
}

fn config(settings: &Settings) -> Result<ProxyConfig, Failure> {
    let redis = redis(settings)?;
    let log = required(settings.log.as_ref(), "proxy", "log")?;
    let dead_letters = settings.dead_letters.clone().unwrap_or_else(|| dead_letters_of(&log));
    if sections::resolved(&dead_letters) == sections::resolved(&log) {
        let file = dead_letters.display();
        return Err(Failure::usage(format!(
            "dead_letters: {file} is the log itself, which letters would damage; name a file of its own"
        )));
    }
    let is_remote = redis.is_remote;
    let mut service = RedisServiceConfig::new(redis, dead_letters);
    service.back.same_host = !is_remote;
    service.back.reserved_db = settings.marker_db;
    service.back.credentials =
        credentials_of("proxy", settings.redis_user.clone(), settings.redis_password_file.as_deref())?;
    service.password = settings
        .redis_password_file
        .clone()
        .map(|file| PasswordSource::new(move || password_of(&file).map_err(|failure| failure.to_string())));
    let lanes_max = &mut service.back.private_lanes_max;
    *lanes_max = settings.private_lanes_max.unwrap_or(*lanes_max);
    service.synced_sizes.clone_from(&settings.synced_sizes);
    let mut config = ProxyConfig::new(listeners(settings)?, service, log);
    let log_bytes = if settings.peers.is_empty() { config.log_bytes } else { LOG_BYTES_WITH_PEERS };
    config.log_bytes = settings.log_size.map_or(log_bytes, |size| size.0);
    config.log_processor = match settings.log_processor.unwrap_or_default() {
        _ if !settings.peers.is_empty() => None,
        LogProcessor::Disk => interrupt::processor_of(&config.log),
        LogProcessor::Any => None,
        LogProcessor::Number(number) => Some(number),
    };
    config.cache_bytes = cache_bytes(settings)?;
    config.cache_tracking = cache_tracking(settings)?;
    config.without_peers = settings.without_peers.unwrap_or(false);
    config.accept_server = settings.accept_server.unwrap_or(false);
    config.drain_ns_max = settings.drain_ns_max.map_or(config.drain_ns_max, Nanos);
    config.spin = spin_of(settings.spin_us);
    config.tunnels_max = settings.tunnels_max.unwrap_or(config.tunnels_max);
    for (limit, wanted) in [
        (&mut config.connections_max, settings.connections_max),
        (&mut config.front.transaction_commands_max, settings.transaction_commands_max),
    ] {
        *limit = wanted.map_or(*limit, NonZeroUsize::get);
    }
    Ok(config)
}

/// By how much answers may be older than what others have written.
const TRACKING_TIMES: RangeInclusive<Nanos> = Nanos::from_millis(1)..=Nanos::from_secs(10);

/// How much is kept of values. Redis cannot forbid others to write: somebody vouches that they do not, or is content
/// with what it tells of them.
fn cache_bytes(settings: &Settings) -> Result<Option<u64>, Failure> {
    let of_others = match (settings.cache_only_writer.unwrap_or(false), settings.cache_tracking.is_some()) {
        (true, true) => {
            return Err(Failure::usage(
                "[proxy] cache_only_writer and cache_tracking: by the one nobody else writes this Redis, by the other others \
                 may; leave one out"
                    .to_owned(),
            ))
        }
        (true, false) => "cache_only_writer",
        (false, true) => "cache_tracking",
        (false, false) => "",
    };
    match settings.cache {
        None if of_others.is_empty() => Ok(None),
        None => Err(Failure::usage(format!(
            "[proxy] {of_others}: it says of what others do to a cache, and there is none; add --cache SIZE, such as 64M, or \
             leave it out"
        ))),
        Some(size) if size.0 < CACHE_BYTES_MIN => Err(Failure::usage(format!(
            "[proxy] cache: {} bytes hold next to nothing; give 64K or more, such as 64M",
            size.0
        ))),
        Some(_) if of_others.is_empty() => Err(Failure::usage(
            "[proxy] cache: reads that are answered here would miss what others write at the Redis itself, and Redis cannot \
             forbid it. If nobody writes it but through this proxy, say so: --cache-only-writer ([proxy] \
             cache_only_writer = true). If others do, and an answer may be older than what they have written by a known \
             time: --cache-tracking 10ms ([proxy] cache_tracking). Otherwise leave --cache out"
                .to_owned(),
        )),
        Some(size) => Ok(Some(size.0)),
    }
}

fn cache_tracking(settings: &Settings) -> Result<Option<Nanos>, Failure> {
    match settings.cache_tracking {
        Some(span) if !TRACKING_TIMES.contains(&span.0) => Err(Failure::usage(format!(
            "[proxy] cache_tracking: {span} is not between 1ms and 10s; 10ms is a good beginning"
        ))),
        given => Ok(given.map(|span| span.0)),
    }
}

/// Where clients connect, in plain form and under TLS.
fn listeners(settings: &Settings) -> Result<Vec<ListenerConfig>, Failure> {
    let early = early_rule_of("proxy", settings.mode, &settings.early_prefix)?;
    let listener = |address, tls| ListenerConfig { address, early: early.clone(), tls };
    let mut listeners: Vec<ListenerConfig> =
        settings.listen.iter().map(|address| listener(*address, None)).collect();
    if let Some(address) = settings.tls_listen {
        listeners.push(listener(address, Some(acceptor(settings)?)));
        return Ok(listeners);
    }
    let given = [
        ("--tls-cert", settings.tls_cert.is_some()),
        ("--tls-key", settings.tls_key.is_some()),
        ("--tls-client-ca", settings.tls_client_ca.is_some()),
    ];
    of_no_use(&given, "--tls-listen")?;
    required(settings.listen.as_ref(), "proxy", "listen")?;
    Ok(listeners)
}

fn acceptor(settings: &Settings) -> Result<TlsAcceptor, Failure> {
    let files = AcceptFiles {
        identity: IdentityFiles {
            certificates: required(settings.tls_cert.as_ref(), "proxy", "tls_cert")?,
            key: required(settings.tls_key.as_ref(), "proxy", "tls_key")?,
        },
        client_authorities: settings.tls_client_ca.clone(),
    };
    TlsAcceptor::read(&files).map_err(Failure::environment)
}

/// The Redis, whether it may be elsewhere, and under TLS.
fn redis(settings: &Settings) -> Result<RedisServer, Failure> {
    let address = required(settings.redis.as_ref(), "proxy", "redis")?.0;
    let is_remote = settings.redis_remote.unwrap_or(false);
    if address.is_elsewhere() && !is_remote {
        return Err(Failure::usage(format!(
            "{address} is no loopback address; for a Redis on another host, which has to be 7.2 or newer or a Valkey, \
             add --redis-remote ([proxy] redis_remote = true)"
        )));
    }
    let tls = connector(settings, &address)?;
    let mut redis = RedisServer::from(address);
    redis.is_remote = is_remote;
    redis.tls = tls;
    Ok(redis)
}

fn connector(settings: &Settings, address: &RedisAddress) -> Result<Option<TlsConnector>, Failure> {
    let identity = match (&settings.redis_cert, &settings.redis_key) {
        (None, None) => None,
        (certificates, key) => Some(IdentityFiles {
            certificates: required(certificates.as_ref(), "proxy", "redis_cert")?,
            key: required(key.as_ref(), "proxy", "redis_key")?,
        }),
    };
    if !settings.redis_tls.unwrap_or(false) {
        let given = [
            ("--redis-ca", settings.redis_ca.is_some()),
            ("--redis-server-name", settings.redis_server_name.is_some()),
            ("--redis-cert", identity.is_some()),
        ];
        return of_no_use(&given, "--redis-tls").map(|()| None);
    }
    let name = match (&settings.redis_server_name, address) {
        (Some(name), _) => name.clone(),
        (None, RedisAddress::Name { host, .. }) => host.clone(),
        (None, RedisAddress::Tcp(address)) => address.ip().to_string(),
        (None, RedisAddress::Unix(_)) => {
            return Err(Failure::usage(format!(
                "--redis-tls is of no use with {address}: Redis speaks no TLS on a unix socket; leave it out"
            )))
        }
    };
    let files = ConnectFiles { authorities: settings.redis_ca.clone(), identity };
    TlsConnector::read(&files, &name).map(Some).map_err(Failure::environment)
}

/// Refuses flags that are given without the one that they belong to: somebody thinks that he has TLS.
fn of_no_use(flags: &[(&str, bool)], without: &str) -> Result<(), Failure> {
    match flags.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((flag, _)) => Err(Failure::usage(format!(
            "{flag} is of no use without {without}; give that too, or leave it out"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Mode;
    use scotfree_resp::front::EarlyRule;

    fn proxy() -> Settings {
        Settings {
            listen: "127.0.0.1:7379".parse().ok(),
            redis: "127.0.0.1:6379".parse().ok(),
            log: Some("/var/lib/scot/proxy.log".into()),
            ..Settings::default()
        }
    }

    fn cached() -> Settings {
        Settings { cache: "64M".parse().ok(), ..proxy() }
    }

    fn vouched() -> Settings {
        Settings { cache_only_writer: Some(true), ..cached() }
    }

    #[test]
    fn others_may_write_beside_a_cache_if_answers_may_be_older_by_a_known_time() {
        let tracking = |settings: &Settings| config(settings).expect("it can be used").cache_tracking;
        assert_eq!(tracking(&vouched()), None);
        let settings = Settings { cache_tracking: "5ms".parse().ok(), ..cached() };
        assert_eq!(tracking(&settings), Some(Nanos::from_millis(5)));
    }

    #[test]
    fn dead_letters_do_not_go_into_the_log() {
        let settings = |name: &str| Settings { dead_letters: Some(name.into()), ..proxy() };
        let problem = config(&settings("/var/lib/scot/proxy.log")).expect_err("it would be damaged");
        assert!(problem.to_string().contains("is the log itself"), "{problem}");
        assert!(config(&settings("/var/lib/scot/letters")).is_ok());
    }

    #[test]
    fn settings_become_the_proxys_configuration() {
        let settings = Settings { mode: Some(Mode::Early), log_size: "1G".parse().ok(), ..proxy() };
        let config = config(&settings).expect("it can be used");
        assert_eq!(config.listeners[0].early, EarlyRule::Always);
        assert_eq!(config.log_bytes, 1 << 30);
        assert_eq!(config.service.dead_letters.to_str(), Some("/var/lib/scot/proxy.log.dead"));
        assert!(config.service.back.same_host && !config.service.redis.is_remote);
    }

    #[test]
    fn a_redis_on_another_host_is_named_as_such() {
        let settings =
            Settings { redis: "redis.example.org:6379".parse().ok(), redis_remote: Some(true), ..proxy() };
        let config = config(&settings).expect("it can be used");
        assert!(!config.service.back.same_host && config.service.redis.is_remote);
    }

    #[test]
    fn what_is_missing_or_contradicts_is_refused() {
        for (settings, expected) in [
            (Settings { redis: None, ..proxy() }, "--redis is missing"),
            (Settings { log: None, ..proxy() }, "SCOT_PROXY_LOG"),
            (Settings { early_prefix: vec!["a".into()], ..proxy() }, "[proxy] early_prefix"),
            (Settings { peers: vec!["peer1".into()], ..proxy() }, "is not NAME:PORT"),
            (Settings { peers: vec!["a:1".into(), "a:1".into()], ..proxy() }, "named twice"),
            (Settings { redis: "10.0.0.1:6379".parse().ok(), ..proxy() }, "--redis-remote"),
            (Settings { listen: None, ..proxy() }, "--listen is missing"),
            (Settings { tls_key: Some("k".into()), ..proxy() }, "--tls-listen"),
            (Settings { tls_listen: "127.0.0.1:1".parse().ok(), ..proxy() }, "tls_cert"),
            (Settings { redis_ca: Some("c".into()), ..proxy() }, "--redis-tls"),
            (Settings { redis_key: Some("k".into()), ..proxy() }, "redis_cert"),
            (Settings { redis: "unix:r".parse().ok(), redis_tls: Some(true), ..proxy() }, "unix socket"),
            (Settings { redis_user: Some("u".into()), ..proxy() }, "redis_password_file"),
            (Settings { cache: "64M".parse().ok(), ..proxy() }, "--cache-only-writer"),
            (Settings { cache_only_writer: Some(true), ..proxy() }, "--cache SIZE"),
            (Settings { cache_tracking: "5ms".parse().ok(), ..proxy() }, "--cache SIZE"),
            (Settings { cache_tracking: "5ms".parse().ok(), ..vouched() }, "leave one out"),
            (Settings { cache_tracking: "1us".parse().ok(), ..cached() }, "between 1ms and 10s"),
            (Settings { cache: "1K".parse().ok(), cache_only_writer: Some(true), ..proxy() }, "64K or more"),
        ] {
            let one = Proxies::One(Box::new(settings));
            let failure = check(&one, &Sources::default()).expect_err(expected);
            assert!(failure.code() == 2 && failure.to_string().contains(expected), "{failure}");
        }
    }
}
