//! Redis alone, to compare with: called directly over the same cables and the same device, which bridges it.
//!
//! Invariant: it has the same version, host and disk as the Redis behind the sidecar, and files of its own.

use scotfree_stage::process::Process;
use scotfree_stage::resp::Reply;
use scotfree_stage::site::{ask_redis, AppendFsync, Redis, Site, PATIENCE, REDIS_PORT};
use scotfree_stage::trouble::Trouble;
use std::net::SocketAddr;

/// The server's addresses in the topology: on the path, and towards the replicas.
const ADDRESS: &str = "10.77.0.2";
const TO_REPLICAS: [&str; 2] = ["10.78.1.1", "10.78.2.1"];
const EVERY_SECOND: Redis =
    Redis { name: "redis-alone-everysec", appendfsync: AppendFsync::EverySec, listen: &[ADDRESS] };
const ALWAYS: Redis =
    Redis { name: "redis-alone-always", appendfsync: AppendFsync::Always, listen: &[ADDRESS] };
const ALWAYS_PORT: u16 = 6_390;
const REPLICATED: Redis = Redis {
    name: "redis-alone-replicated",
    appendfsync: AppendFsync::EverySec,
    listen: &[ADDRESS, TO_REPLICAS[0], TO_REPLICAS[1]],
};
const REPLICATED_PORT: u16 = 6_391;
/// Each on the host of its name.
const REPLICAS: [Redis; 2] = [
    Redis { name: "replica1", appendfsync: AppendFsync::EverySec, listen: &[] },
    Redis { name: "replica2", appendfsync: AppendFsync::EverySec, listen: &[] },
];

/// One that syncs every second, one that syncs before it answers, and one with replicas.
pub(super) struct Alone {
    pub every_second: RedisAlone,
    pub always: RedisAlone,
    pub replicated: RedisAlone,
    replicas: Vec<Process>,
}

/// A Redis without anything in front of it.
pub(super) struct RedisAlone {
    redis: Redis,
    port: u16,
    /// Where clients find it.
    pub address: SocketAddr,
    pub process: Process,
}

impl Alone {
    pub fn start(site: &Site<'_>) -> Result<Alone, Trouble> {
        let every_second = RedisAlone::every_second(site)?;
        let always = RedisAlone::start(site, ALWAYS, ALWAYS_PORT)?;
        let replicated = RedisAlone::start(site, REPLICATED, REPLICATED_PORT)?;
        let start = |(redis, to): (&Redis, &&str)| start_replica(site, redis, to);
        let replicas = REPLICAS.iter().zip(&TO_REPLICAS).map(start).collect::<Result<_, _>>()?;
        replicated.await_replicas(site)?;
        Ok(Alone { every_second, always, replicated, replicas })
    }

    /// SIGKILL for all.
    pub fn kill(&self) {
        self.every_second.process.kill();
        self.kill_others();
    }

    /// SIGKILL for all but the one that syncs every second.
    pub fn kill_others(&self) {
        for process in [&self.always.process, &self.replicated.process].into_iter().chain(&self.replicas) {
            process.kill();
        }
    }
}

impl RedisAlone {
    /// The one that syncs every second.
    pub fn every_second(site: &Site<'_>) -> Result<RedisAlone, Trouble> {
        RedisAlone::start(site, EVERY_SECOND, REDIS_PORT)
    }

    fn start(site: &Site<'_>, redis: Redis, port: u16) -> Result<RedisAlone, Trouble> {
        let process = start_at(site, &redis, port)?;
        Ok(RedisAlone { redis, port, address: SocketAddr::new(site.address("server"), port), process })
    }

    /// Starts it again on the files that it left.
    pub fn restart(&mut self, site: &Site<'_>) -> Result<(), Trouble> {
        self.process = start_at(site, &self.redis, self.port)?;
        Ok(())
    }

    /// What the site knows it by.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// Waits until all replicas have what it has and follow it.
    fn await_replicas(&self, site: &Site<'_>) -> Result<(), Trouble> {
        let socket = site.redis_socket(&self.redis);
        let follow = || {
            ask_redis(&socket, &["INFO", "replication"]).is_ok_and(|said| followers(&said) == REPLICAS.len())
        };
        self.process.wait_until("has its replicas", PATIENCE, follow)
    }
}

/// How many replicas are up to date, as INFO has them.
fn followers(said: &Reply) -> usize {
    let Reply::Bulk(text) = said else { return 0 };
    String::from_utf8_lossy(text).lines().filter(|line| line.contains("state=online")).count()
}

fn start_at(site: &Site<'_>, redis: &Redis, port: u16) -> Result<Process, Trouble> {
    // Where it has replicas, they get the data at once.
    let more = ["--port", &port.to_string(), "--repl-diskless-sync-delay", "0"];
    site.start_redis_on("server", redis, &more)
}

/// In memory alone, as the device's log is.
fn start_replica(site: &Site<'_>, replica: &Redis, of: &str) -> Result<Process, Trouble> {
    let port = REPLICATED_PORT.to_string();
    site.start_redis_on(replica.name, replica, &["--appendonly", "no", "--replicaof", of, &port])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_is_still_loading_does_not_follow() {
        let said = |states: [&str; 2]| {
            let line = |state: &str| format!("slave0:ip=10.78.1.2,port=0,state={state},offset=14,lag=0\r\n");
            Reply::Bulk(format!("role:master\r\n{}{}", line(states[0]), line(states[1])).into_bytes())
        };
        assert_eq!(followers(&said(["online", "wait_bgsave"])), 1);
        assert_eq!(followers(&said(["online", "online"])), 2);
        assert_eq!(followers(&Reply::Error("LOADING".into())), 0);
    }
}
