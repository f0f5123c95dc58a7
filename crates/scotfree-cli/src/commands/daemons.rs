//! The daemons: from settings to the loops of their crates.
//!
//! Invariant: nothing is opened before all settings are understood.

pub mod client;
pub mod kv;
pub mod peer;
mod place;
pub mod proxy;
pub mod server;
pub mod switch;

use crate::config::Sources;
use crate::failure::{required, Failure};
use crate::key_file;
use crate::serve::Messages;
use crate::settings::{Cluster, Config};
use crate::text::DeviceSpec;
use scotfree_core::{DeviceId, Nanos};
use scotfree_io::Spin;
use scotfree_rpc::{exclusion_notice, Exclusions, SharedKey};
use scotfree_sidecar::notices::Notices;
use scotfree_wire::ClusterKey;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Checks what each section that is set says, as its daemon would at its start; a failure names the place.
pub fn check(config: &Config, sources: &Sources) -> Result<(), Failure> {
    let default = Config::default();
    let key = || ClusterKey::from_bytes([0; 32]);
    let placed = |section| move |failure| sources.placed(section, failure);
    if let Some(file) = &config.cluster.key_file {
        key_file::read(file).map_err(placed("cluster"))?;
    }
    if config.switch != default.switch {
        switch::config(&config.switch, key()).map_err(placed("switch"))?;
    }
    if config.kv != default.kv {
        kv::check(&config.kv).map_err(placed("kv"))?;
    }
    if config.server != default.server {
        server::config(&config.server, key()).map_err(placed("server"))?;
    }
    if config.proxy != default.proxy {
        proxy::check(&config.proxy, sources)?;
    }
    if config.peer != default.peer {
        peer::check(&config.peer).map_err(placed("peer"))?;
    }
    if config.client != default.client {
        client::check(&config.client).map_err(placed("client"))?;
    }
    Ok(())
}

/// Gives a running daemon the key that its file holds now; whether it is another one.
fn take_key(messages: &Messages, shared: &SharedKey, key: ClusterKey) -> bool {
    let said = epochs_text(&key);
    let differs = shared.set(key);
    if differs {
        messages.say(&said);
    }
    differs
}

/// What an operator is told of a key: never the key.
pub fn epochs_text(key: &ClusterKey) -> String {
    let epochs: Vec<String> = key.epochs().map(|epoch| epoch.0.to_string()).collect();
    format!("the cluster key has the epochs {}; new sessions get {}", epochs.join(", "), key.newest().0)
}

/// The key in the file that the settings name.
pub fn cluster_key(cluster: &Cluster) -> Result<ClusterKey, Failure> {
    key_file::read(&required(cluster.key_file.as_ref(), "cluster", "key_file")?)
}

/// Whether a daemon looks for events before it sleeps: unless told, while that pays.
fn spin_of(spin_us: Option<u64>) -> Spin {
    spin_us.map_or(Spin::WhileItPays, |time| Spin::UpTo(Nanos::from_micros(time)))
}

/// Where a log's dead letters go unless another file is named: beside it.
fn dead_letters_of(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".dead");
    name.into()
}

/// A sidecar's lines become messages of the daemon, so `log_level` is obeyed, after a reload too.
fn notices(messages: &Messages) -> Notices {
    let messages = messages.clone();
    Notices::new(move |line| messages.say(line))
}

/// The devices of a server, each once: one that is named twice would be waited for under an address that is not its.
fn devices(specs: &[DeviceSpec]) -> Result<Vec<(DeviceId, SocketAddr)>, Failure> {
    for (place, spec) in specs.iter().enumerate() {
        let same = |other: &&DeviceSpec| other.id == spec.id || other.address == spec.address;
        if let Some(first) = specs[..place].iter().find(same) {
            return Err(Failure::usage(format!(
                "device {spec} has the number or the address of device {first}; name each device once"
            )));
        }
    }
    Ok(specs.iter().map(|spec| (DeviceId(spec.id), spec.address.0)).collect())
}

/// Whether a device may answer reads again. With several on the path the last would not know what the first has
/// acknowledged, and what the first knows another could still lose.
fn is_cached(section: &str, cache: Option<u16>, devices: &[DeviceSpec]) -> Result<bool, Failure> {
    let Some(cache) = cache else { return Ok(false) };
    let on_path: Vec<u16> = devices.iter().map(|device| device.id).collect();
    if on_path == [cache] {
        return Ok(true);
    }
    let named = on_path.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let named = if named.is_empty() { "none".to_owned() } else { named };
    Err(Failure::usage(format!(
        "[{section}] cache_device: device {cache} is to answer reads, which needs that it is the only device on the path; \
         `device` names {named}: name device {cache} alone, or leave cache_device away"
    )))
}

/// Says that a server goes on without these devices.
fn say_excluded(messages: &Messages, devices: &[DeviceId]) {
    for device in devices {
        messages.say(&format!("ALARM: {}", exclusion_notice(*device)));
    }
}

/// Excludes what a running server was not told before; whether it now goes on without those that are named
/// and no others. A device comes back at the next start only: until then it may have missed anything.
fn exclude_more(messages: &Messages, exclusions: &Exclusions, before: &[u16], now: &[u16]) -> bool {
    let added = now.iter().copied().map(DeviceId).filter(|device| exclusions.add(*device));
    say_excluded(messages, &added.collect::<Vec<_>>());
    before.iter().all(|id| now.contains(id))
}

/// The devices to go on without, which are to be among those that the server has.
fn excluded(ids: &[u16], specs: &[DeviceSpec]) -> Result<Vec<DeviceId>, Failure> {
    match ids.iter().find(|id| !specs.iter().any(|spec| spec.id == **id)) {
        None => Ok(ids.iter().copied().map(DeviceId).collect()),
        Some(id) => Err(Failure::usage(format!(
            "device {id} cannot be excluded: the server has none of that number; name it as device too, or leave it out"
        ))),
    }
}
