//! What the device daemon is told at its start; the command line fills it from `scot.toml`.
//!
//! Invariant: [`SwitchConfig::check`] refuses what cannot work, before anything is opened.

use crate::bridge::BridgeLimits;
use crate::impair::Impairment;
use crate::link::{mac_of_device, Vlan};
use crate::neighbours::NeighbourLimits;
use scotfree_core::{DeviceId, Durability, Nanos};
use scotfree_device::{check_servers, check_settings, Maker, OptionValue, Served, Settings};
use scotfree_io::frame::MacAddress;
use scotfree_io::ram::Media;
use scotfree_io::Spin;
use scotfree_wire::ClusterKey;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The ports of Scotfree's packets, unless the configuration names others.
pub const PORTS_DEFAULT: RangeInclusive<u16> = 51_000..=52_000;
/// How many interfaces one device bridges.
pub const PORTS_MAX: usize = 16;

/// One interface that the device bridges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConfig {
    /// Its name in the daemon's network namespace.
    pub interface: String,
    /// What happens to frames before the device sees them.
    pub ingress: Impairment,
    /// What happens to frames after it.
    pub egress: Impairment,
}

impl PortConfig {
    /// A port without faults.
    pub fn new(interface: &str) -> PortConfig {
        PortConfig {
            interface: interface.to_owned(),
            ingress: Impairment::default(),
            egress: Impairment::default(),
        }
    }
}

/// The log in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RamLogConfig {
    /// Its file, best on a memory file system.
    pub path: PathBuf,
    /// What that memory is.
    pub media: Media,
}

/// The log on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskLogConfig {
    /// Its file.
    pub path: PathBuf,
    /// The size of the file when it is made; live records may take half of it.
    pub log_bytes: u64,
}

/// What moves the frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaneConfig {
    /// This process.
    User,
    /// Programs in the kernel, with this process behind them.
    Xdp(XdpConfig),
}

/// How the programs in the kernel are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdpConfig {
    /// The folder, in a BPF file system, that keeps the log and the attachments when the daemon ends.
    pub pin: PathBuf,
    /// How many slots of 1.5 KiB the log in the kernel's memory has; none: those that a log already there has,
    /// 32768 in a new one.
    pub slots: Option<u32>,
    /// Whether the programs may run in the kernel's stack instead of the ports' drivers.
    pub generic: bool,
    /// Of so many of Scotfree's packets one is shown at `/events`; 0: none.
    pub event_every: u32,
}

impl XdpConfig {
    /// Defaults for a device of this name.
    pub fn new(device: DeviceId) -> XdpConfig {
        let pin = PathBuf::from(format!("/sys/fs/bpf/scotfree-device-{device}"));
        XdpConfig { pin, slots: None, generic: false, event_every: 0 }
    }
}

/// All that the daemon is told.
#[derive(Debug, Clone)]
pub struct SwitchConfig {
    /// The device's name in the cluster.
    pub device: DeviceId,
    /// Whether it is the first on the path, which gives order numbers.
    pub head: bool,
    /// The interfaces it bridges, at least two.
    pub ports: Vec<PortConfig>,
    /// The address of its control messages; it answers for this address itself.
    pub control: SocketAddr,
    /// The virtual network of the control address.
    pub control_vlan: Vlan,
    /// Its own station address; derived from the control address if not given.
    pub mac: Option<MacAddress>,
    /// The servers that it serves, 1 to 16; the log names them by their places here.
    pub servers: Vec<SocketAddr>,
    /// Of these, those whose updates are logged; none named: all.
    pub logged: Vec<SocketAddr>,
    /// The functions that packets pass, in their order.
    pub functions: Vec<Maker>,
    /// What was given of their own options.
    pub options: Vec<OptionValue>,
    /// The parts of functions in the kernel, for the plane there.
    #[cfg(feature = "xdp")]
    pub parts: Vec<scotfree_xdp::PartMaker>,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// The UDP ports of Scotfree's packets.
    pub scotfree_ports: RangeInclusive<u16>,
    /// What moves the frames.
    pub plane: PlaneConfig,
    /// The log in memory, if there is one.
    pub ram: Option<RamLogConfig>,
    /// The log on disk, if there is one.
    pub disk: Option<DiskLogConfig>,
    /// The largest window it grants.
    pub window_max: u32,
    /// How many sessions it grants slots.
    pub sessions_max: u32,
    /// How long an entry may stay without `ServerAck` before it is sent to the server again.
    pub reforward_after: Nanos,
    /// How often it asks for a lease.
    pub lease_interval: Nanos,
    /// The bounds of the table of stations.
    pub bridge: BridgeLimits,
    /// The bounds of the table of addresses.
    pub neighbours: NeighbourLimits,
    /// Whether it looks for the next frame before it sleeps.
    pub spin: Spin,
    /// Where `/metrics` and `/healthz` are answered, if anywhere.
    pub metrics: Option<SocketAddr>,
}

impl SwitchConfig {
    /// What its functions are told, above such memory.
    pub fn settings(&self, media: Durability) -> Settings {
        Settings {
            media,
            reforward_after: self.reforward_after,
            head: self.head,
            options: self.options.clone(),
            ..Settings::default()
        }
    }

    /// Defaults for a device at the head of its chain before one server, without logs and without functions.
    pub fn new(
        device: DeviceId,
        interfaces: &[&str],
        control: SocketAddr,
        server: SocketAddr,
        cluster_key: ClusterKey,
    ) -> SwitchConfig {
        SwitchConfig {
            device,
            head: true,
            ports: interfaces.iter().map(|name| PortConfig::new(name)).collect(),
            control,
            control_vlan: Vlan::NONE,
            mac: None,
            servers: vec![server],
            logged: Vec::new(),
            functions: Vec::new(),
            options: Vec::new(),
            #[cfg(feature = "xdp")]
            parts: Vec::new(),
            cluster_key,
            scotfree_ports: PORTS_DEFAULT,
            plane: PlaneConfig::User,
            ram: None,
            disk: None,
            window_max: 4_096,
            sessions_max: 64,
            reforward_after: Nanos::from_millis(400),
            lease_interval: Nanos::from_millis(300),
            bridge: BridgeLimits::default(),
            neighbours: NeighbourLimits::default(),
            spin: Spin::Never,
            metrics: None,
        }
    }

    /// The device's own station address.
    pub fn own_mac(&self) -> MacAddress {
        self.mac.unwrap_or_else(|| mac_of_device(self.control))
    }

    /// Refuses what cannot work, in words for the operator.
    pub fn check(&self) -> Result<(), String> {
        let interfaces: Vec<&str> = self.ports.iter().map(|port| port.interface.as_str()).collect();
        if !(2..=PORTS_MAX).contains(&interfaces.len()) {
            return Err(format!("a device bridges 2 to {PORTS_MAX} interfaces, not {}", interfaces.len()));
        }
        if let Some(twice) = interfaces.iter().enumerate().find(|(at, name)| interfaces[..*at].contains(name))
        {
            return Err(format!("interface `{}` is named twice", twice.1));
        }
        if self.control.ip().is_unspecified() || self.control.port() == 0 {
            return Err(format!(
                "the control address {} is no address that the server could send to",
                self.control
            ));
        }
        check_servers(&self.served()).map_err(|error| error.to_string())?;
        for server in &self.servers {
            if self.control.is_ipv4() != server.is_ipv4() {
                return Err(format!(
                    "the control address {} and the server {server} are of different families",
                    self.control
                ));
            }
            if self.control.ip() == server.ip() {
                return Err(format!("the control address {} is the server's own", self.control.ip()));
            }
        }
        if let Some(stranger) = self.logged.iter().find(|logged| !self.servers.contains(logged)) {
            return Err(format!(
                "updates for {stranger} are to be logged, and no server of this device has that address; name it under \
                 server too, or take it out of logged"
            ));
        }
        let servers = self.servers.iter().map(|server| ("server", *server));
        for (what, address) in [("control", self.control)].into_iter().chain(servers) {
            if !self.scotfree_ports.contains(&address.port()) {
                let (first, last) = (self.scotfree_ports.start(), self.scotfree_ports.end());
                return Err(format!("the port of the {what} address {address} is outside {first}-{last}"));
            }
        }
        check_settings(&self.functions, &self.settings(Durability::Ram))?;
        self.check_sizes()
    }

    /// The servers, and whether their updates are logged.
    pub fn served(&self) -> Vec<Served> {
        let logs_all = self.logged.is_empty();
        let served = |address: &SocketAddr| Served {
            logged: logs_all || self.logged.contains(address),
            ..Served::new(*address)
        };
        self.servers.iter().map(served).collect()
    }

    fn check_sizes(&self) -> Result<(), String> {
        if self.window_max == 0 || self.sessions_max == 0 {
            return Err("window_max and sessions_max must be at least 1".to_owned());
        }
        if u64::from(self.window_max) * u64::from(self.sessions_max) > RECORDS_MAX {
            return Err(format!("window_max times sessions_max is more than {RECORDS_MAX} log records"));
        }
        if self.own_mac().is_multicast() {
            return Err(format!("the device's own station address {} is that of a group", self.own_mac()));
        }
        match (&self.ram, &self.disk) {
            (Some(ram), Some(disk)) if ram.path == disk.path => {
                Err(format!("{} cannot be the ram log and the disk log at once", ram.path.display()))
            }
            _ => self.check_plane(),
        }
    }

    /// How many slots a log in the kernel needs for one session of the usual window, if it has only `slots`, which are
    /// fewer.
    pub(crate) fn lacks_slots(&self, slots: u32) -> Option<u32> {
        let least = self.window_max.min(WINDOW_USUAL);
        (slots < least).then_some(least)
    }

    fn check_plane(&self) -> Result<(), String> {
        let PlaneConfig::Xdp(xdp) = &self.plane else { return Ok(()) };
        if !self.ports.iter().all(|port| port.ingress.is_transparent() && port.egress.is_transparent()) {
            return Err("faults on purpose are made by --plane user only".to_owned());
        }
        if let Some((slots, least)) = xdp.slots.and_then(|slots| Some((slots, self.lacks_slots(slots)?))) {
            return Err(format!(
                "slots {slots}: no session would have room in the kernel's log, where each takes as many slots as its \
                 window, usually {least}; give --slots {least} or more, or a smaller --window-max"
            ));
        }
        if self.sessions_max > XDP_SESSIONS_MAX {
            let asked = self.sessions_max;
            return Err(format!("sessions_max {asked}: the kernel's table has {XDP_SESSIONS_MAX} places"));
        }
        // Without programs the plane itself is refused as it is loaded.
        #[cfg(feature = "xdp")]
        crate::plane_xdp::check_functions(self)?;
        Ok(())
    }
}

/// The window that a client asks for, unless it is told otherwise.
const WINDOW_USUAL: u32 = 1_024;

/// How many sessions the kernel's table holds.
pub const XDP_SESSIONS_MAX: u32 = 1024;

/// How many records the logs are numbered for.
pub const RECORDS_MAX: u64 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SwitchConfig {
        let address = |text: &str| text.parse().expect("an address");
        let key = ClusterKey::from_bytes([1; 32]);
        SwitchConfig::new(
            DeviceId(1),
            &["p0", "p1"],
            address("10.0.0.9:51000"),
            address("10.0.0.2:51000"),
            key,
        )
    }

    #[test]
    fn defaults_are_accepted() {
        assert_eq!(config().check(), Ok(()));
    }

    #[test]
    fn a_log_in_the_kernel_has_room_for_a_session() {
        let check = |slots, window_max| {
            let plane = PlaneConfig::Xdp(XdpConfig { slots: Some(slots), ..XdpConfig::new(DeviceId(1)) });
            SwitchConfig { plane, window_max, ..config() }.check()
        };
        for (slots, window_max, least) in [(1, 4_096, "1024"), (1_023, 4_096, "1024"), (7, 8, "8")] {
            let refused = check(slots, window_max).expect_err("no session has room");
            assert!(refused.starts_with(&format!("slots {slots}: ")), "{refused}");
            assert!(refused.contains(&format!("give --slots {least} or more")), "{refused}");
        }
        assert_eq!(check(1_024, 4_096), Ok(()));
        assert_eq!(check(8, 8), Ok(()));
    }

    /// A function without a part in the kernel would see nothing there.
    #[cfg(feature = "xdp")]
    #[test]
    fn a_function_that_the_programs_have_no_part_of_is_refused_with_the_plane_in_the_kernel() {
        let make = remedy_persist::MAKER.make;
        let functions = vec![Maker::plain("user-only", make), remedy_persist::MAKER];
        let check = |plane| SwitchConfig { plane, functions: functions.clone(), ..config() }.check();
        assert_eq!(check(PlaneConfig::User), Ok(()));
        let refused = check(PlaneConfig::Xdp(XdpConfig::new(DeviceId(1)))).expect_err("it has no programs");
        assert!(refused.contains("no part of function `user-only`"), "{refused}");
        assert!(refused.contains("persist. Give --plane user"), "{refused}");
    }

    #[test]
    fn each_impossible_setting_is_named() {
        type Spoil = fn(&mut SwitchConfig);
        let cases: [(Spoil, &str); 16] = [
            (
                |config| {
                    config.plane =
                        PlaneConfig::Xdp(XdpConfig { slots: Some(0), ..XdpConfig::new(DeviceId(1)) });
                },
                "--slots",
            ),
            (
                |config| {
                    config.plane = PlaneConfig::Xdp(XdpConfig::new(DeviceId(1)));
                    config.sessions_max = 2_000;
                },
                "1024 places",
            ),
            (
                |config| {
                    config.plane = PlaneConfig::Xdp(XdpConfig::new(DeviceId(1)));
                    config.ports[0].ingress.delay = Nanos(1);
                },
                "--plane user only",
            ),
            (|config| config.ports.truncate(1), "2 to 16"),
            (|config| config.ports[1].interface = "p0".to_owned(), "twice"),
            (|config| config.control.set_port(0), "no address"),
            (|config| config.servers[0] = "[fd00::2]:51000".parse().expect("an address"), "families"),
            (|config| config.servers[0] = config.control, "server's own"),
            (|config| config.servers[0].set_port(6_379), "outside 51000-52000"),
            (|config| config.servers.push(config.servers[0]), "named twice; name each server once"),
            (|config| config.servers.clear(), "no server is named"),
            (
                |config| {
                    let more = (3..20).map(|last| SocketAddr::from(([10, 0, 0, last], 51_000)));
                    config.servers.extend(more.filter(|server| server.ip() != config.control.ip()));
                },
                "17 servers are named: a device serves 16 at most",
            ),
            (
                |config| config.logged.push("10.0.0.77:51000".parse().expect("an address")),
                "take it out of logged",
            ),
            (|config| config.window_max = 0, "at least 1"),
            (|config| config.sessions_max = 1 << 20, "log records"),
            (|config| config.mac = Some(MacAddress::BROADCAST), "group"),
        ];
        for (spoil, expected) in cases {
            let mut config = config();
            spoil(&mut config);
            let message = config.check().expect_err(expected);
            assert!(message.contains(expected), "{message}");
        }
    }
}
