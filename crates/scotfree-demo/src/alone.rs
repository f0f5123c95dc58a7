//! Redis alone, to compare with: called directly over the same cables and the same device, which bridges it.
//!
//! Invariant: it has the same version, host and disk as the Redis behind the sidecar, and files of its own.

use scotfree_stage::process::Process;
use scotfree_stage::site::{AppendFsync, Redis, Site, REDIS_PORT};
use scotfree_stage::trouble::Trouble;
use std::net::SocketAddr;

/// The server's address in the topology.
const ADDRESS: &str = "10.77.0.2";
const EVERY_SECOND: Redis =
    Redis { name: "redis-alone-everysec", appendfsync: AppendFsync::EverySec, listen: &[ADDRESS] };
const ALWAYS: Redis =
    Redis { name: "redis-alone-always", appendfsync: AppendFsync::Always, listen: &[ADDRESS] };
const ALWAYS_PORT: u16 = 6_390;

/// One that syncs every second, and one that syncs before it answers.
pub(super) struct Alone {
    pub every_second: RedisAlone,
    pub always: RedisAlone,
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
        Ok(Alone {
            every_second: RedisAlone::start(site, EVERY_SECOND, REDIS_PORT)?,
            always: RedisAlone::start(site, ALWAYS, ALWAYS_PORT)?,
        })
    }

    /// SIGKILL for both.
    pub fn kill(&self) {
        for redis in [&self.every_second, &self.always] {
            redis.process.kill();
        }
    }
}

impl RedisAlone {
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
}

fn start_at(site: &Site<'_>, redis: &Redis, port: u16) -> Result<Process, Trouble> {
    site.start_redis_on("server", redis, &["--port", &port.to_string()])
}
