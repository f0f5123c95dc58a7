//! A Redis behind `scot proxy`, to compare with: without a device, but for the one that bridges the client's packets.
//!
//! Invariant: the proxy has logged what was measured, or there is an error instead of numbers.

use scotfree_stage::process::Process;
use scotfree_stage::site::{difference, AppendFsync, Redis, Site, WITH_METRICS};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use std::net::SocketAddr;

const REDIS: Redis = Redis { name: "redis-proxied", appendfsync: AppendFsync::EverySec, listen: &[] };
const PORT: u16 = 6_392;
const LOGGED: &str = "scotfree_proxy_logged_total";

/// A proxy, covered, and the Redis that it stands before.
pub(super) struct Proxied {
    /// Where clients find it.
    pub address: SocketAddr,
    // The proxy first: it ends before what it speaks to.
    _processes: [Process; 2],
}

impl Proxied {
    pub fn start(site: &Site<'_>) -> Result<Proxied, Trouble> {
        let redis = site.start_redis(&REDIS)?;
        let proxy = site.start_proxy("proxy", &REDIS, PORT, &WITH_METRICS)?;
        let address = SocketAddr::new(site.address("server"), PORT);
        Ok(Proxied { address, _processes: [proxy, redis] })
    }

    /// What it has counted. The server's host has no other daemon that says so.
    pub fn counts(site: &Site<'_>) -> Result<Counts, Trouble> {
        site.counts("server")
    }
}

/// How many updates it has logged in between.
pub(super) fn require_logged(before: &Counts, after: &Counts) -> Result<u64, Trouble> {
    match difference(before, after, LOGGED) {
        0 => {
            let next =
                "what was measured of it was not durable; run it again, with --log-folder to see its words";
            Err(Trouble::new("let the proxy log updates", "it logged none", next))
        }
        logged => Ok(logged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_logged_nothing_is_an_error() {
        let counts = |logged| Counts::from([(LOGGED.to_owned(), logged)]);
        assert!(require_logged(&counts(7), &counts(7)).is_err());
        assert_eq!(require_logged(&counts(7), &counts(9)), Ok(2));
    }
}
