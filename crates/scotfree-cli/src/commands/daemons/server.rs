//! The command `scot sidecar server`: the sidecar in front of a Redis or Valkey.
//!
//! Invariant: the secret by which it authenticates itself comes from a file that only its owner may read.

use super::{
    cluster_key, devices, exclude_more, excluded, is_cached, notices, say_excluded, spin_of, take_key,
};
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::key_file::read_secret;
use crate::serve::{begin, open_files_max, say_reload, InForce, Listening, Messages};
use crate::settings::{Config, Server};
use crate::variables;
use scotfree_rpc::{Exclusions, SharedKey};
use scotfree_sidecar::server::{self, RedisServiceConfig, ServerSidecarConfig};
use scotfree_wire::ClusterKey;
use std::num::NonZeroUsize;
use std::path::Path;

/// Runs the sidecar until it is told to end.
pub fn run(sources: Sources) -> Result<(), Failure> {
    let settings = sources.read()?;
    let key = cluster_key(&settings.cluster)?;
    let mut config = config(&settings.server, key).map_err(|failure| sources.placed("server", failure))?;
    let what = format!("sidecar server {} for {}", config.listen, config.service.redis);
    let messages = Messages::new("sidecar server", settings.cluster.log_level);
    // A tunnel has three open.
    open_files_max();
    config.service.notices = notices(&messages);
    say_excluded(&messages, &excluded(&settings.server.exclude, &settings.server.devices)?);
    let exclusions = config.excluded.clone();
    let key = config.cluster_key.clone();
    let in_force = InForce::of(&settings.server).and(&settings.cluster);
    let excluded = settings.server.exclude.clone();
    let mut reload = Reload { sources, in_force, excluded, messages: messages.clone(), exclusions, key };
    let serving = begin(what, Listening::open(settings.server.metrics)?, move || reload.run())?;
    server::run(&config, &serving.stop, Some(&serving.board)).map_err(Failure::environment)?;
    messages.say("stopped");
    Ok(())
}

struct Reload {
    sources: Sources,
    in_force: InForce,
    /// The devices to go on without.
    excluded: Vec<u16>,
    messages: Messages,
    exclusions: Exclusions,
    key: SharedKey,
}

impl Reload {
    fn run(&mut self) {
        let is_right = |new: &Config| -> Result<ClusterKey, Failure> {
            let key = cluster_key(&new.cluster)?;
            config(&new.server, key.clone()).map_err(|failure| self.sources.placed("server", failure))?;
            Ok(key)
        };
        match self.sources.read().and_then(|new| Ok((is_right(&new)?, new))) {
            Ok((key, new)) => {
                self.messages.set_level(new.cluster.log_level);
                let Reload { messages, exclusions, .. } = &*self;
                let is_obeyed = exclude_more(messages, exclusions, &self.excluded, &new.server.exclude);
                let mut reloadable = vec!["log_level", "key_file", "key"];
                if is_obeyed {
                    reloadable.push("exclude");
                    self.excluded.clone_from(&new.server.exclude);
                }
                let new = InForce::of(&new.server).and(&new.cluster);
                let mut changed = self.in_force.take_over(&new, &reloadable);
                changed.extend(take_key(&self.messages, &self.key, key).then(|| "key".to_owned()));
                say_reload(&self.messages, &changed, &reloadable);
            }
            Err(failure) => self.messages.say(&format!("ALARM: not reloaded: {failure}")),
        }
    }
}

/// What the settings mean to the sidecar.
pub fn config(settings: &Server, key: ClusterKey) -> Result<ServerSidecarConfig, Failure> {
    let listen = required(settings.listen.as_ref(), "server", "listen")?.0;
    let redis = required(settings.redis.as_ref(), "server", "redis")?.0;
    if redis.is_elsewhere() {
        return Err(Failure::usage(format!(
            "{redis} is no loopback address; let the server listen on a unix socket (unixsocket) or on 127.0.0.1 (bind) \
             and run the sidecar on its host"
        )));
    }
    let dead_letters = required(settings.dead_letters.as_ref(), "server", "dead_letters")?;
    let mut service = RedisServiceConfig::new(redis, dead_letters);
    service.back.reserved_db = settings.marker_db;
    service.back.allow_unstable = settings.allow_unstable.unwrap_or(false);
    service.back.credentials = credentials(settings)?;
    let lanes_max = &mut service.back.private_lanes_max;
    *lanes_max = settings.private_lanes_max.unwrap_or(*lanes_max);
    service.synced_sizes.clone_from(&settings.synced_sizes);
    service.ack_when_applied = settings.unsafe_ack_when_applied.unwrap_or(false);
    if service.ack_when_applied && std::env::var_os(variables::TEST).is_none_or(|value| value != "1") {
        return Err(Failure::usage(
            "--unsafe-ack-when-applied loses acknowledged updates; it is for experiments only, with SCOT_TEST=1",
        ));
    }
    let mut config = ServerSidecarConfig::new(listen, key, service);
    config.devices = devices(&settings.devices)?;
    config.service.back.vouches = is_cached("server", settings.cache_device, &settings.devices)?;
    config.options.spin = spin_of(settings.spin_us);
    config.sessions_max = settings.sessions_max.map_or(config.sessions_max, NonZeroUsize::get);
    config.tunnels_max = settings.tunnels_max.unwrap_or(config.tunnels_max);
    config.excluded = Exclusions::of(excluded(&settings.exclude, &settings.devices)?);
    Ok(config)
}

fn credentials(settings: &Server) -> Result<Option<(String, String)>, Failure> {
    credentials_of("server", settings.redis_user.clone(), settings.redis_password_file.as_deref())
}

/// By what to authenticate at the Redis, as a section says it.
pub(super) fn credentials_of(
    section: &'static str,
    user: Option<String>,
    file: Option<&Path>,
) -> Result<Option<(String, String)>, Failure> {
    let Some(file) = file else {
        return match user {
            None => Ok(None),
            Some(_) => required(None, section, "redis_password_file"),
        };
    };
    Ok(Some((user.unwrap_or_else(|| "default".into()), password_of(file)?)))
}

/// The password that a file holds now.
pub(super) fn password_of(file: &Path) -> Result<String, Failure> {
    let password = read_secret(file, "install -m 600 /dev/stdin")?;
    Ok(password.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sidecar_stands_beside_its_redis() {
        let settings = |redis: &str| Server {
            listen: "127.0.0.1:51000".parse().ok(),
            redis: redis.parse().ok(),
            dead_letters: Some("dead".into()),
            ..Server::default()
        };
        let key = || ClusterKey::from_bytes([0; 32]);
        let far = config(&settings("10.0.0.1:6379"), key()).expect_err("it is on another host");
        assert!(far.code() == 2 && far.to_string().contains("127.0.0.1 (bind)"), "{far}");
        let cached = |devices: &[&str]| {
            let devices = devices.iter().map(|device| device.parse().expect("a device")).collect();
            let settings = Server { devices, cache_device: Some(7), ..settings("127.0.0.1:6379") };
            config(&settings, key()).map(|config| config.service.back.vouches)
        };
        assert!(matches!(cached(&["7=10.0.0.9"]), Ok(true)));
        for (wrong, named) in
            [(&[][..], "none"), (&["1=10.0.0.8", "7=10.0.0.9"], "1, 7"), (&["1=10.0.0.8"], "1")]
        {
            let refused = cached(wrong).expect_err("another could answer");
            assert!(refused.to_string().contains(&format!("`device` names {named}: ")), "{refused}");
        }
        for near in ["127.0.0.1:6379", "localhost:6379", "unix:redis.sock"] {
            assert!(config(&settings(near), key()).is_ok(), "{near}");
        }
    }
}
