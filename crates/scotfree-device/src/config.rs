//! What a device is told at its start.
//!
//! Invariant: [`DeviceConfig::check`] refuses what cannot work and says what to do.

use scotfree_core::{BootEpoch, DeviceId, Epoch, Nanos, ServerIndex, SERVERS_MAX};
use scotfree_session::Planted;
use scotfree_wire::ClusterKey;
use std::net::SocketAddr;

/// A server behind the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Its address.
    pub address: SocketAddr,
    /// The largest of its epochs that polled an earlier incarnation of the device.
    pub epoch: Epoch,
    /// Whether its updates may be logged; those of others pass stamped.
    pub logged: bool,
}

impl Served {
    /// A server that has not polled yet and whose updates are logged.
    pub const fn new(address: SocketAddr) -> Served {
        Served { address, epoch: Epoch(0), logged: true }
    }
}

/// What a device is told at its start.
#[derive(Debug, Clone)]
pub struct DeviceConfig {
    /// Its name in the cluster.
    pub device: DeviceId,
    /// Its incarnation: larger than that of any earlier start, and durable already.
    pub boot_epoch: BootEpoch,
    /// The address of its control messages.
    pub address: SocketAddr,
    /// The servers that it serves; a server's index is its place here.
    pub servers: Vec<Served>,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// Whether it is the first on the path, which gives order numbers.
    pub head: bool,
    /// The largest window it grants.
    pub window_max: u32,
    /// How many sessions its directory holds, of all servers.
    pub sessions_max: u32,
    /// How often it asks for a lease.
    pub lease_interval: Nanos,
    /// How long a session without entries and without traffic is remembered.
    pub idle_max: Nanos,
    /// How many bytes of answers that clients do not have for certain are kept; beyond, only reads are answered whose
    /// clients have all before them, and a retry goes to the server.
    pub answers_bytes_max: usize,
    /// A safety rule switched off, for tests.
    pub planted: Planted,
}

/// Why a configuration cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigError {
    /// No server is named.
    NoServer,
    /// More servers than a device serves.
    ManyServers(usize),
    /// An address is named twice.
    ServerTwice(SocketAddr),
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::NoServer => {
                f.write_str("no server is named: a device stands before 1 to 16; name the address of each")
            }
            ConfigError::ManyServers(count) => write!(
                f,
                "{count} servers are named: a device serves {SERVERS_MAX} at most; put the others behind another device"
            ),
            ConfigError::ServerTwice(address) => {
                write!(f, "server {address} is named twice; name each server once")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// Refuses a list of servers that cannot work.
pub fn check_servers(servers: &[Served]) -> Result<(), ConfigError> {
    if servers.is_empty() {
        return Err(ConfigError::NoServer);
    }
    if servers.len() > SERVERS_MAX {
        return Err(ConfigError::ManyServers(servers.len()));
    }
    let address = |at: usize| servers[at].address;
    let is_twice = |at: &usize| (0..*at).any(|earlier| address(earlier) == address(*at));
    match (0..servers.len()).find(is_twice) {
        Some(twice) => Err(ConfigError::ServerTwice(address(twice))),
        None => Ok(()),
    }
}

impl DeviceConfig {
    /// Defaults for a device at the head of its chain, before one server.
    pub fn new(
        device: DeviceId,
        boot_epoch: BootEpoch,
        address: SocketAddr,
        server: SocketAddr,
        cluster_key: ClusterKey,
    ) -> DeviceConfig {
        DeviceConfig {
            device,
            boot_epoch,
            address,
            servers: vec![Served::new(server)],
            cluster_key,
            head: true,
            window_max: 4096,
            sessions_max: 64,
            lease_interval: Nanos::from_millis(300),
            idle_max: Nanos::from_secs(600),
            answers_bytes_max: 1 << 20,
            planted: Planted::NONE,
        }
    }

    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_servers(&self.servers)
    }

    /// Which server has this address.
    pub(crate) fn server_at(&self, address: SocketAddr) -> Option<ServerIndex> {
        let place = self.servers.iter().position(|server| server.address == address)?;
        Some(ServerIndex(place as u8))
    }

    /// The server of this index.
    pub fn server(&self, server: ServerIndex) -> &Served {
        &self.servers[usize::from(server.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(count: usize) -> Vec<Served> {
        let address = |at: usize| SocketAddr::from(([10, 0, 0, at as u8], 51_000));
        (0..count).map(|at| Served::new(address(at))).collect()
    }

    #[test]
    fn a_device_serves_one_to_servers_max_servers_with_an_address_each() {
        assert_eq!(check_servers(&servers(0)), Err(ConfigError::NoServer));
        assert_eq!(check_servers(&servers(SERVERS_MAX)), Ok(()));
        let one_more = check_servers(&servers(SERVERS_MAX + 1)).expect_err("one is too many");
        assert!(one_more.to_string().contains("behind another device"), "{one_more}");
        let twice = [servers(2), servers(1)].concat();
        assert_eq!(check_servers(&twice), Err(ConfigError::ServerTwice(twice[0].address)));
    }
}
