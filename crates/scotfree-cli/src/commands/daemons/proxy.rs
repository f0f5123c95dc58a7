//! The command `scot proxy`: a durable log before one Redis, in the process that its clients connect to.
//!
//! Invariant: nothing is opened before all settings are understood, and nobody is served before the log is replayed.

use super::client::{early_rule_of, fit_files};
use super::server::credentials_of;
use super::{cluster_key, dead_letters_of, notices, spin_of, take_key};
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::serve::{
    begin_quietly, changed_keys, keep_files_private, open_files_max, say_ready, say_reload, Listening,
    Messages,
};
use crate::settings::{Cluster, Config, Proxy as Settings};
use crate::text::LogProcessor;
use scotfree_core::Nanos;
use scotfree_io::disk::interrupt;
use scotfree_rpc::SharedKey;
use scotfree_sidecar::client::proxy::{PeersConfig, Proxy, ProxyConfig, PEERS_MAX};
use scotfree_sidecar::client::EarlyRules;
use scotfree_sidecar::server::RedisServiceConfig;
use std::net::SocketAddr;
use std::num::NonZeroUsize;

/// What can be taken over without a restart; connections that are open keep their rule.
const RELOADABLE: [&str; 5] = ["mode", "early_prefix", "log_level", "key_file", "key"];
/// With peers the file holds no records.
const LOG_BYTES_WITH_PEERS: u64 = 18 << 20;

/// Runs the proxy until it is told to end.
pub fn run(sources: Sources) -> Result<(), Failure> {
    keep_files_private();
    let settings = sources.read()?;
    let mut config = config(&settings.proxy).map_err(|failure| sources.placed("proxy", failure))?;
    config.peers =
        peers(&settings.proxy, &settings.cluster).map_err(|failure| sources.placed("proxy", failure))?;
    let messages = Messages::new("proxy", settings.cluster.log_level);
    let listening = Listening::open(settings.proxy.metrics)?;
    config.notices = notices(&messages);
    config.service.notices = notices(&messages);
    (config.connections_max, config.tunnels_max) =
        fit_files(config.connections_max, config.tunnels_max, open_files_max());
    let rules = config.early_rules.clone();
    let key = config.peers.as_ref().map(|peers| peers.key.clone());
    let mut reload = Reload { sources, settings: settings.clone(), messages: messages.clone(), rules, key };
    let serving = begin_quietly(listening, move || reload.run())?;
    let started = Proxy::start(&config, &serving.stop).map_err(Failure::environment)?;
    let Some(mut proxy) = started else { return Ok(()) };
    let addresses: Vec<String> = proxy.addresses().iter().map(SocketAddr::to_string).collect();
    say_ready(&format!("proxy {} for {}", addresses.join(" "), config.service.redis));
    proxy.run(&serving.stop, Some(&serving.board)).map_err(Failure::environment)?;
    messages.say("stopped");
    Ok(())
}

struct Reload {
    sources: Sources,
    settings: Config,
    messages: Messages,
    rules: EarlyRules,
    /// What peers are spoken to with.
    key: Option<SharedKey>,
}

impl Reload {
    fn run(&mut self) {
        let read = self.sources.read().and_then(|new| {
            check(&new.proxy).map_err(|failure| self.sources.placed("proxy", failure))?;
            let rule = early_rule_of("proxy", new.proxy.mode, &new.proxy.early_prefix)?;
            let key = self.key.as_ref().map(|_| cluster_key(&new.cluster)).transpose()?;
            Ok((rule, key, new))
        });
        match read {
            Ok((rule, key, new)) => {
                let mut changed = changed_keys(&self.settings.proxy, &new.proxy);
                changed.extend(changed_keys(&self.settings.cluster, &new.cluster));
                self.messages.set_level(new.cluster.log_level);
                if let (Some(shared), Some(key)) = (&self.key, key) {
                    changed.extend(take_key(&self.messages, shared, key).then(|| "key".to_owned()));
                }
                self.rules.set(rule);
                say_reload(&self.messages, &changed, &RELOADABLE);
                self.settings = new;
            }
            Err(failure) => self.messages.say(&format!("ALARM: not reloaded: {failure}")),
        }
    }
}

/// Refuses settings that are not complete or contradict each other.
pub fn check(settings: &Settings) -> Result<(), Failure> {
    check_peers(settings)?;
    config(settings).map(drop)
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
    let listen = required(settings.listen.as_ref(), "proxy", "listen")?;
    let redis = required(settings.redis.as_ref(), "proxy", "redis")?.0;
    let log = required(settings.log.as_ref(), "proxy", "log")?;
    let dead_letters = settings.dead_letters.clone().unwrap_or_else(|| dead_letters_of(&log));
    let mut service = RedisServiceConfig::new(redis, dead_letters);
    service.back.reserved_db = settings.marker_db;
    service.back.credentials =
        credentials_of("proxy", settings.redis_user.clone(), settings.redis_password_file.as_deref())?;
    let lanes_max = &mut service.back.private_lanes_max;
    *lanes_max = settings.private_lanes_max.unwrap_or(*lanes_max);
    service.synced_sizes.clone_from(&settings.synced_sizes);
    let mut config = ProxyConfig::new(listen, service, log);
    config.listeners[0].early = early_rule_of("proxy", settings.mode, &settings.early_prefix)?;
    let log_bytes = if settings.peers.is_empty() { config.log_bytes } else { LOG_BYTES_WITH_PEERS };
    config.log_bytes = settings.log_size.map_or(log_bytes, |size| size.0);
    config.log_processor = match settings.log_processor.unwrap_or_default() {
        _ if !settings.peers.is_empty() => None,
        LogProcessor::Disk => interrupt::processor_of(&config.log),
        LogProcessor::Any => None,
        LogProcessor::Number(number) => Some(number),
    };
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

    #[test]
    fn settings_become_the_proxys_configuration() {
        let settings = Settings { mode: Some(Mode::Early), log_size: "1G".parse().ok(), ..proxy() };
        let config = config(&settings).expect("it can be used");
        assert_eq!(config.listeners[0].early, EarlyRule::Always);
        assert_eq!(config.log_bytes, 1 << 30);
        assert_eq!(config.service.dead_letters.to_str(), Some("/var/lib/scot/proxy.log.dead"));
    }

    #[test]
    fn what_is_missing_or_contradicts_is_refused() {
        for (settings, expected) in [
            (Settings { redis: None, ..proxy() }, "--redis is missing"),
            (Settings { log: None, ..proxy() }, "SCOT_PROXY_LOG"),
            (Settings { early_prefix: vec!["a".into()], ..proxy() }, "[proxy] early_prefix"),
            (Settings { peers: vec!["peer1".into()], ..proxy() }, "is not NAME:PORT"),
            (Settings { peers: vec!["a:1".into(), "a:1".into()], ..proxy() }, "named twice"),
            (Settings { redis_user: Some("u".into()), ..proxy() }, "redis_password_file"),
        ] {
            let failure = check(&settings).expect_err(expected);
            assert!(failure.code() == 2 && failure.to_string().contains(expected), "{failure}");
        }
    }
}
