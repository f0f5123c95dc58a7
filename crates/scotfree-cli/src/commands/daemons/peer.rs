//! The command `scot peer`: keeps the logs of proxies in memory.
//!
//! Invariant: nothing is opened before all settings are understood.

use super::{cluster_key, notices, take_key};
use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::serve::{begin_quietly, say_ready, say_reload, InForce, Listening, Messages};
use crate::settings::{Config, Peer as Settings};
use scotfree_rpc::SharedKey;
use scotfree_sidecar::peer::{KeeperConfig, Peer, PeerConfig};
use scotfree_wire::ClusterKey;
use std::num::NonZeroUsize;

/// What can be taken over without a restart.
const RELOADABLE: [&str; 3] = ["log_level", "key_file", "key"];

/// Runs the peer until it is told to end.
pub fn run(sources: Sources) -> Result<(), Failure> {
    let settings = sources.read()?;
    let key = SharedKey::from(cluster_key(&settings.cluster)?);
    let placed = |failure| sources.placed("peer", failure);
    let messages = Messages::new("peer", settings.cluster.log_level);
    let config = PeerConfig {
        listen: required(settings.peer.listen.as_ref(), "peer", "listen").map_err(placed)?,
        key: key.clone(),
        keeper: keeper(&settings.peer),
        notices: notices(&messages),
    };
    let listening = Listening::open(settings.peer.metrics)?;
    let mut peer = Peer::start(&config).map_err(Failure::environment)?;
    let in_force = InForce::of(&settings.peer).and(&settings.cluster);
    let mut reload = Reload { sources, in_force, messages: messages.clone(), key };
    let serving = begin_quietly(listening, move || reload.run())?;
    let address = peer.address().map_err(|error| Failure::tried("listen", &error, "see ulimit -n"))?;
    say_ready(&format!("peer {address}"));
    peer.run(&serving.stop, Some(&serving.board)).map_err(Failure::environment)?;
    messages.say("stopped");
    Ok(())
}

/// Refuses settings that are not complete.
pub fn check(settings: &Settings) -> Result<(), Failure> {
    required(settings.listen.as_ref(), "peer", "listen").map(drop)
}

fn keeper(settings: &Settings) -> KeeperConfig {
    let default = KeeperConfig::default();
    KeeperConfig {
        bytes_max: settings.memory.map_or(default.bytes_max, |size| size.0 as usize),
        logs_max: settings.logs_max.map_or(default.logs_max, NonZeroUsize::get),
    }
}

struct Reload {
    sources: Sources,
    in_force: InForce,
    messages: Messages,
    key: SharedKey,
}

impl Reload {
    fn run(&mut self) {
        let is_right = |new: &Config| -> Result<ClusterKey, Failure> {
            check(&new.peer).map_err(|failure| self.sources.placed("peer", failure))?;
            cluster_key(&new.cluster)
        };
        match self.sources.read().and_then(|new| Ok((is_right(&new)?, new))) {
            Ok((key, new)) => {
                let in_force = InForce::of(&new.peer).and(&new.cluster);
                let mut changed = self.in_force.take_over(&in_force, &RELOADABLE);
                self.messages.set_level(new.cluster.log_level);
                changed.extend(take_key(&self.messages, &self.key, key).then(|| "key".to_owned()));
                say_reload(&self.messages, &changed, &RELOADABLE);
            }
            Err(failure) => self.messages.say(&format!("ALARM: not reloaded: {failure}")),
        }
    }
}
