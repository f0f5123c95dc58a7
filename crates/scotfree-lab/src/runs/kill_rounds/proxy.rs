//! A Redis behind a proxy with a log of its own, on the disk or in the memory of two peers: proxy, Redis, both with
//! what the Redis had not synced, or a peer with its memory.
//!
//! Invariant: no peer dies before the proxy says that both hold the log, and says it of the time since the last of
//! them died.

use super::super::Context;
use super::{Cast, Scene};
use crate::experiment::Measurement;
use scotfree_stage::process::Process;
use scotfree_stage::site::{
    await_condition, await_ready, require_redis, AppendFsync, Redis, Site, REDIS_PORT, WITH_METRICS,
};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use scotfree_stage::workload::Random;
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Settings {
    /// How many rounds, unless the command line says.
    rounds: u64,
    /// What holds the log.
    log: Log,
    /// Whether the log is deleted with what the Redis had not synced, and the proxy told to go on without it.
    #[serde(default)]
    lose_log: bool,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Log {
    /// The disk.
    Disk,
    /// The memory of two other hosts.
    Peers,
}

// Places in the list of victims; a peer is one of two, in turns.
const PROXY: usize = 0;
const REDIS: usize = 1;
const HOST: usize = 2;
const PEER: usize = 3;

const BEHIND: Redis = Redis { name: "redis", appendfsync: AppendFsync::EverySec, listen: &[] };
const NAME: &str = "proxy";
// It is made anew for each block, and is written whole then.
const LOG_BYTES: &str = "32M";
// So much of the Redis' files is not synced when a control begins to lose.
const BYTES_TO_LOSE: u64 = 4_096;
const PEERS: [&str; 2] = ["replica-a", "replica-b"];
const LOSSES: &str = "scotfree_proxy_peer_losses_total";
const WHOLE: &str = "scotfree_proxy_peers_whole";

pub(in super::super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    super::run::<BehindProxy>(context)
}

pub(in super::super) fn run_control(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    super::run_control::<BehindProxy>(context)
}

/// All that serves; none of it is missing but between its kill and its start.
pub(super) struct BehindProxy {
    settings: Settings,
    redis: Option<Process>,
    proxy: Option<Process>,
    peers: Vec<Option<Process>>,
    next_peer: usize,
    // How many proxies have been started.
    proxies_count: u64,
    last_loss: Option<PeerLoss>,
}

/// When a peer was killed, as the proxy counts: which one it was, and the losses that it had counted before.
struct PeerLoss {
    proxy: u64,
    losses: u64,
}

impl<'a> Cast<'a> for BehindProxy {
    type Settings = Settings;
    const VICTIMS: &'static [&'static str] = &["proxy", "redis", "host", "peer"];
    const POWER_CUT: usize = HOST;
    const COUNTERS: &'static [(&'static str, &'static str)] = &[
        ("logged", "scotfree_proxy_logged_total"),
        ("early", "scotfree_proxy_completed_early_total"),
        ("replayed", "scotfree_proxy_replayed_total"),
        ("log_full", "scotfree_proxy_log_full_total"),
    ];
    const COUNTED_AT: &'static [&'static str] = &["server"];

    fn rounds(settings: &Settings) -> u64 {
        settings.rounds
    }

    fn up(scene: &mut Scene<'a>, settings: Settings) -> Result<BehindProxy, Trouble> {
        require_redis()?;
        let mut cast = BehindProxy {
            settings,
            redis: Some(scene.site.start_redis(&BEHIND)?),
            proxy: None,
            peers: Vec::new(),
            next_peer: 0,
            proxies_count: 0,
            last_loss: None,
        };
        if settings.log == Log::Peers {
            let start = |role: &&str| scene.site.start_peer(role).map(Some);
            cast.peers = PEERS.iter().map(start).collect::<Result<_, _>>()?;
        }
        cast.start_proxy(scene, &[])?;
        cast.wait_until_ready()?;
        Ok(cast)
    }

    fn address(&self, site: &Site<'a>) -> SocketAddr {
        SocketAddr::new(site.address("server"), REDIS_PORT)
    }

    fn redis(&self) -> Option<&Redis> {
        Some(&BEHIND)
    }

    fn choose(&self, random: &mut Random) -> usize {
        match random.below(8) {
            0 | 1 => PROXY,
            2 => REDIS,
            3 | 4 if self.settings.log == Log::Peers => PEER,
            _ => HOST,
        }
    }

    fn before_kill(&mut self, victim: usize, scene: &mut Scene<'a>) -> Result<(), Trouble> {
        if matches!(victim, PROXY | HOST) {
            scene.keep_counts("server");
        }
        if self.settings.lose_log {
            return await_condition("there is something to lose", || {
                scene.power.unsynced_bytes().is_ok_and(|bytes| bytes >= BYTES_TO_LOSE)
            });
        }
        if victim != PEER {
            return Ok(());
        }
        let mut found = Counts::new();
        await_condition("both peers hold the log", || {
            found = scene.site.counts("server").unwrap_or_default();
            self.are_peers_whole(&found)
        })?;
        self.last_loss = Some(PeerLoss { proxy: self.proxies_count, losses: losses_of(&found) });
        Ok(())
    }

    fn kill(&mut self, victim: usize, scene: &mut Scene<'a>) {
        match victim {
            PROXY => self.proxy = None,
            REDIS => self.redis = None,
            PEER => self.peers[self.next_peer] = None,
            _ => {
                let proxy_first = scene.random.below(2) == 0;
                if proxy_first {
                    self.proxy = None;
                }
                self.redis = None;
                self.proxy = None;
            }
        }
    }

    fn revive(&mut self, victim: usize, scene: &mut Scene<'a>) -> Result<(), Trouble> {
        match victim {
            PROXY => self.start_proxy(scene, &[])?,
            REDIS => self.redis = Some(scene.site.start_redis(&BEHIND)?),
            PEER => {
                self.peers[self.next_peer] = Some(scene.site.start_peer(PEERS[self.next_peer])?);
                self.next_peer = (self.next_peer + 1) % PEERS.len();
            }
            _ => {
                scene.cut()?;
                self.redis = Some(scene.site.start_redis(&BEHIND)?);
                if self.settings.lose_log {
                    scene.site.remove_proxy_log(NAME)?;
                    self.start_proxy(scene, &["--accept-server"])?;
                } else {
                    self.start_proxy(scene, &[])?;
                }
            }
        }
        Ok(())
    }

    fn wait_until_ready(&self) -> Result<(), Trouble> {
        self.proxy.as_ref().map_or(Ok(()), await_ready)
    }

    fn processes(&self) -> Vec<&Process> {
        [&self.redis, &self.proxy].into_iter().chain(&self.peers).flatten().collect()
    }
}

impl BehindProxy {
    fn start_proxy(&mut self, scene: &Scene<'_>, more: &[&str]) -> Result<(), Trouble> {
        let sizes = scene.power.sizes_file().to_string_lossy().into_owned();
        let peers = if self.settings.log == Log::Peers { &PEERS[..] } else { &[] };
        let peers = scene.site.peer_words(peers);
        let mut words = WITH_METRICS.to_vec();
        words.extend(["--mode", "early", "--log-size", LOG_BYTES, "--synced-sizes", &sizes]);
        words.extend(peers.iter().map(String::as_str));
        words.extend(more);
        self.proxies_count += 1;
        let listen = self.address(&scene.site);
        self.proxy = Some(scene.site.spawn_proxy(NAME, &BEHIND, listen, &words)?);
        Ok(())
    }

    /// Whether both hold the log, and that is said of the time since the last one was killed: what a proxy has
    /// counted it tells a little later.
    fn are_peers_whole(&self, counts: &Counts) -> bool {
        let is_new = self
            .last_loss
            .as_ref()
            .is_none_or(|loss| loss.proxy != self.proxies_count || losses_of(counts) > loss.losses);
        is_new && counts.get(WHOLE).copied() == Some(PEERS.len() as u64)
    }
}

fn losses_of(counts: &Counts) -> u64 {
    counts.get(LOSSES).copied().unwrap_or(0)
}
