//! A topology: hosts with ports, and the cables between them.
//!
//! Invariant: a topology that was read is consistent: every cable ends at two different ports that exist,
//! every port has one cable, names fit the kernel's limits.

use crate::config::{is_plain_name, Source, PLAIN_NAME_RULE};
use crate::trouble::ConfigError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use toml::Spanned;

/// Hosts of one topology.
pub const HOSTS_MAX: usize = 64;
/// Ports of one host.
pub const PORTS_MAX: usize = 64;
// The kernel's IFNAMSIZ less the terminating zero.
const PORT_NAME_BYTES_MAX: usize = 15;

/// The topologies of the repository, for where it is not: name and text.
const BUILT_IN: [(&str, &str); 15] = [
    ("chain2-replicas", include_str!("../../../lab/topologies/chain2-replicas.toml")),
    ("chain3", include_str!("../../../lab/topologies/chain3.toml")),
    ("chain3-peers", include_str!("../../../lab/topologies/chain3-peers.toml")),
    ("chain3-replicas", include_str!("../../../lab/topologies/chain3-replicas.toml")),
    ("chain3-replicas-apart", include_str!("../../../lab/topologies/chain3-replicas-apart.toml")),
    ("direct", include_str!("../../../lab/topologies/direct.toml")),
    ("direct-replicas", include_str!("../../../lab/topologies/direct-replicas.toml")),
    ("loop", include_str!("../../../lab/topologies/loop.toml")),
    ("one-device", include_str!("../../../lab/topologies/one-device.toml")),
    ("one-device-and-cable", include_str!("../../../lab/topologies/one-device-and-cable.toml")),
    ("one-device-and-replicas", include_str!("../../../lab/topologies/one-device-and-replicas.toml")),
    ("one-device-apart", include_str!("../../../lab/topologies/one-device-apart.toml")),
    ("one-device-bad-wire", include_str!("../../../lab/topologies/one-device-bad-wire.toml")),
    ("one-device-server-apart", include_str!("../../../lab/topologies/one-device-server-apart.toml")),
    ("one-host", include_str!("../../../lab/topologies/one-host.toml")),
];

/// Hosts and cables; none of either by default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Its name; namespaces are called `scot-<name>-<role>`.
    pub name: String,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The cables between their ports.
    pub links: Vec<Link>,
}

/// One network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// What it is in experiments: `client`, `device`, `server`.
    pub role: String,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The address of a host whose ports have none: a device that speaks in packets, not through the
    /// kernel.
    pub address: Option<IpAddr>,
    /// The hardware address under which the others find that address.
    pub mac: Option<String>,
    /// The processor on which its programs run, counted from 0 among those that may be used here, round and round;
    /// any of them if none is said. Separate machines share none.
    #[serde(default)]
    pub processor: Option<usize>,
}

/// One end of a cable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The interface's name inside its namespace.
    pub name: String,
    /// Its address with the prefix length; none on a device.
    pub address: Option<AddressWithPrefix>,
    /// Its hardware address, where it matters.
    pub mac: Option<String>,
    /// The largest packet.
    pub mtu_bytes: Option<u32>,
    /// Whether it polls (GRO), as programs need that send frames to it. End hosts always do; a bridge that does
    /// may merge what is not Scotfree's.
    #[serde(default)]
    pub polls: bool,
}

/// An address in its network, as `10.77.0.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressWithPrefix {
    /// The address.
    pub address: IpAddr,
    /// The length of the network's prefix in bits.
    pub prefix_bits: u8,
}

impl TryFrom<String> for AddressWithPrefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            let prefix_bits_max = if address.is_ipv4() { 32 } else { 128 };
            let prefix_bits = prefix.parse().ok().filter(|bits| *bits <= prefix_bits_max)?;
            Some(AddressWithPrefix { address, prefix_bits })
        };
        parse().ok_or_else(|| format!("`{text}` is no address with a prefix, such as 10.77.0.1/24"))
    }
}

impl From<AddressWithPrefix> for String {
    fn from(value: AddressWithPrefix) -> String {
        format!("{}/{}", value.address, value.prefix_bits)
    }
}

impl AddressWithPrefix {
    /// Whether `other` lies in the same network.
    pub fn reaches(&self, other: IpAddr) -> bool {
        let shared_bits = match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        shared_bits >= u32::from(self.prefix_bits)
    }
}

/// A cable between two ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// One end.
    pub a: LinkEnd,
    /// The other.
    pub b: LinkEnd,
}

/// A port as a cable names it: `role:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkEnd {
    /// The host.
    pub role: String,
    /// Its port.
    pub port: String,
}

impl Topology {
    /// Reads a topology file.
    pub fn read(file: &Path) -> Result<Topology, ConfigError> {
        Topology::parse(&Source::read(file)?)
    }

    /// One of the repository's topologies, as it was when this was built.
    pub fn built_in(name: &str) -> Option<Result<Topology, ConfigError>> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        Some(Topology::parse(&Source::from_text(format!("{name}.toml"), *text)))
    }

    /// The names of those.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Reads a topology.
    pub fn parse(source: &Source) -> Result<Topology, ConfigError> {
        source.parse::<Form>()?.check(source)
    }

    /// The host of a role.
    pub fn host(&self, role: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.role == role)
    }

    /// The hosts that speak in packets of their own, in the order of the path: the first is the head.
    pub fn devices(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(|host| host.address.is_some())
    }

    /// The address at which a role is reached: its own, or that of its first port that has one.
    pub fn address_of(&self, role: &str) -> Option<IpAddr> {
        let host = self.host(role)?;
        host.address.or_else(|| host.ports.iter().find_map(|port| port.address.map(|it| it.address)))
    }

    /// The name of a role's namespace.
    pub fn namespace(&self, role: &str) -> String {
        format!("scot-{}-{role}", self.name)
    }
}

impl Host {
    fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }
}

/// The file's form, with the places for error messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    name: Spanned<String>,
    host: Vec<HostForm>,
    #[serde(default)]
    link: Vec<LinkForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostForm {
    role: Spanned<String>,
    #[serde(default)]
    port: Vec<PortForm>,
    address: Option<IpAddr>,
    mac: Option<Spanned<String>>,
    processor: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PortForm {
    name: Spanned<String>,
    address: Option<AddressWithPrefix>,
    mac: Option<Spanned<String>>,
    mtu_bytes: Option<Spanned<u32>>,
    #[serde(default)]
    polls: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkForm {
    ends: Spanned<[String; 2]>,
}

impl Form {
    fn check(self, source: &Source) -> Result<Topology, ConfigError> {
        check_name(source, "name", &self.name)?;
        if self.host.is_empty() || self.host.len() > HOSTS_MAX {
            let problem = format!("{} hosts; allowed are 1 to {HOSTS_MAX}", self.host.len());
            return Err(source.error(self.name.span(), "host", problem));
        }
        let mut hosts: Vec<Host> = Vec::new();
        for form in self.host {
            let span = form.role.span();
            let host = form.check(source)?;
            if hosts.iter().any(|other| other.role == host.role) {
                return Err(source.error(span, "role", format!("there are two hosts `{}`", host.role)));
            }
            hosts.push(host);
        }
        let links = check_links(source, &hosts, self.link)?;
        Ok(Topology { name: self.name.into_inner(), hosts, links })
    }
}

impl HostForm {
    fn check(self, source: &Source) -> Result<Host, ConfigError> {
        check_name(source, "role", &self.role)?;
        if self.port.len() > PORTS_MAX {
            let problem = format!("{} ports; allowed are up to {PORTS_MAX}", self.port.len());
            return Err(source.error(self.role.span(), "port", problem));
        }
        let mut host = Host {
            role: self.role.into_inner(),
            ports: Vec::new(),
            address: self.address,
            mac: check_mac(source, self.mac)?,
            processor: self.processor,
        };
        for form in self.port {
            let span = form.name.span();
            let port = form.check(source)?;
            if host.port(&port.name).is_some() {
                return Err(source.error(span, "name", format!("there are two ports `{}`", port.name)));
            }
            host.ports.push(port);
        }
        Ok(host)
    }
}

impl PortForm {
    fn check(self, source: &Source) -> Result<Port, ConfigError> {
        check_name(source, "name", &self.name)?;
        if self.name.get_ref().len() > PORT_NAME_BYTES_MAX || self.name.get_ref() == "lo" {
            let problem = format!("a port's name has at most {PORT_NAME_BYTES_MAX} bytes and is not `lo`");
            return Err(source.error(self.name.span(), "name", problem));
        }
        if let Some(mtu) = self.mtu_bytes.as_ref().filter(|mtu| !(1_280..=65_535).contains(mtu.get_ref())) {
            let problem = format!("{} is not allowed; allowed are 1280 to 65535", mtu.get_ref());
            return Err(source.error(mtu.span(), "mtu_bytes", problem));
        }
        Ok(Port {
            name: self.name.into_inner(),
            address: self.address,
            mac: check_mac(source, self.mac)?,
            mtu_bytes: self.mtu_bytes.map(Spanned::into_inner),
            polls: self.polls || self.address.is_some(),
        })
    }
}

fn check_links(source: &Source, hosts: &[Host], forms: Vec<LinkForm>) -> Result<Vec<Link>, ConfigError> {
    let mut used = BTreeSet::new();
    let mut links = Vec::new();
    for form in forms {
        let span = form.ends.span();
        let error = |problem: String| source.error(span.clone(), "ends", problem);
        let [a, b] = form.ends.into_inner().map(|text| check_end(hosts, &text));
        let (a, b) = (a.map_err(error)?, b.map_err(error)?);
        for end in [&a, &b] {
            if !used.insert(end.clone()) {
                return Err(error(format!("the port `{}:{}` already has a cable", end.role, end.port)));
            }
        }
        links.push(Link { a, b });
    }
    let ports = hosts.iter().flat_map(|host| host.ports.iter().map(move |port| (host, port)));
    for (host, port) in ports {
        let end = LinkEnd { role: host.role.clone(), port: port.name.clone() };
        if !used.contains(&end) {
            let problem = format!("the port `{}:{}` has no cable; add it to a [[link]]", end.role, end.port);
            return Err(source.error_at_top("link", problem));
        }
    }
    Ok(links)
}

fn check_end(hosts: &[Host], text: &str) -> Result<LinkEnd, String> {
    let all = || {
        let name = |host: &Host, port: &Port| format!("{}:{}", host.role, port.name);
        hosts.iter().flat_map(|host| host.ports.iter().map(|port| name(host, port))).collect::<Vec<_>>()
    };
    let found = text.split_once(':').and_then(|(role, port)| {
        let host = hosts.iter().find(|host| host.role == role)?;
        host.port(port).map(|_| LinkEnd { role: role.to_owned(), port: port.to_owned() })
    });
    found.ok_or_else(|| format!("there is no port `{text}`; allowed are {}", all().join(", ")))
}

fn check_name(source: &Source, key: &str, name: &Spanned<String>) -> Result<(), ConfigError> {
    if is_plain_name(name.get_ref()) {
        return Ok(());
    }
    Err(source.error(name.span(), key, format!("`{}` is not a name; {PLAIN_NAME_RULE}", name.get_ref())))
}

fn check_mac(source: &Source, mac: Option<Spanned<String>>) -> Result<Option<String>, ConfigError> {
    let Some(mac) = mac else { return Ok(None) };
    let octets: Vec<Option<u8>> = mac
        .get_ref()
        .split(':')
        .map(|octet| u8::from_str_radix(octet, 16).ok().filter(|_| octet.len() == 2))
        .collect();
    // The lowest bit of the first octet marks a group, which no host can be.
    let is_host =
        octets.len() == 6 && octets.iter().all(Option::is_some) && octets[0].is_some_and(|it| it & 1 == 0);
    if is_host {
        return Ok(Some(mac.into_inner()));
    }
    let problem =
        format!("`{}` is not a hardware address of one host, such as 02:5c:07:00:00:fe", mac.get_ref());
    Err(source.error(mac.span(), "mac", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topologies_of_the_lab_are_right() {
        for (name, devices) in [
            ("direct", 0),
            ("direct-replicas", 0),
            ("one-device", 1),
            ("one-device-apart", 1),
            ("one-device-and-replicas", 1),
            ("chain2-replicas", 2),
            ("chain3", 3),
            ("chain3-replicas", 3),
            ("chain3-replicas-apart", 3),
            ("chain3-peers", 3),
        ] {
            let file =
                Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../lab/topologies/{name}.toml"));
            let topology = Topology::read(&file).expect("it is a topology");
            assert_eq!(topology.name, name);
            assert_eq!(topology.address_of("client"), Some("10.77.0.1".parse().expect("an address")));
            assert_eq!(topology.address_of("server"), Some("10.77.0.2".parse().expect("an address")));
            assert_eq!(topology.devices().count(), devices);
            let head = topology.devices().next().map(|device| device.role.clone());
            assert_eq!(head.as_deref(), [None, Some("device"), Some("device-a"), Some("device-a")][devices]);
        }
    }

    #[test]
    fn all_topologies_of_the_lab_are_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/topologies");
        let files =
            std::fs::read_dir(&folder).expect("it is there").map(|entry| entry.expect("an entry").path());
        let mut names: Vec<String> =
            files.filter_map(|file| file.file_stem()?.to_str().map(str::to_owned)).collect();
        names.sort();
        assert_eq!(names, Topology::built_in_names().collect::<Vec<_>>());
        for name in names {
            let built_in = Topology::built_in(&name).expect("it is known").expect("it is a topology");
            let file = folder.join(format!("{name}.toml"));
            assert_eq!(built_in, Topology::read(&file).expect("it is a topology"));
        }
        assert!(Topology::built_in("nowhere").is_none());
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_its_line() {
        for (text, line, problem) in [
            ("name = \"A b\"\nhost = []", 1, "not a name"),
            ("name = \"a\"\nhost = []", 1, "0 hosts"),
            ("name = \"a\"\n[[host]]\nrole = \"x\"\n[[host]]\nrole = \"x\"", 5, "two hosts"),
            ("name = \"a\"\n[[host]]\nrole = \"x\"\n[[host.port]]\nname = \"p\"", 1, "no cable"),
            ("name = \"a\"\n[[host]]\nrole = \"x\"\n[[link]]\nends = [\"x:p\", \"y:q\"]", 5, "no port `x:p`"),
            ("name = \"a\"\n[[host]]\nrole = \"x\"\nmac = \"01:00:00:00:00:00\"", 4, "hardware address"),
            ("name = \"a\"\n[[host]]\nrole = \"x\"\naddress = \"10\"", 4, "invalid IP address"),
            (
                "name = \"a\"\n[[host]]\nrole = \"x\"\n[[host.port]]\nname = \"p\"\naddress = \"10.0.0.1\"",
                6,
                "prefix",
            ),
            ("name = \"a\"\n[[host]]\nrole = \"x\"\n[[host.port]]\nname = \"p\"\nmtu_bytes = 9", 6, "1280"),
            ("name = \"a\"\n[[host]]\nrole = \"x\"\nrule = 1", 4, "expected one of"),
        ] {
            let error = Topology::parse(&Source::from_text("t.toml", text)).expect_err(problem);
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    #[test]
    fn a_port_with_two_cables_is_refused() {
        let text = "name = \"a\"\n[[host]]\nrole = \"x\"\nport = [{name = \"p\"}, {name = \"q\"}]\n\
                    [[link]]\nends = [\"x:p\", \"x:q\"]\n[[link]]\nends = [\"x:p\", \"x:q\"]";
        let error = Topology::parse(&Source::from_text("t.toml", text)).expect_err("p has two cables");
        assert!(error.problem.contains("already has a cable") && error.line == 8, "{error}");
    }

    #[test]
    fn networks_contain_their_addresses() {
        let here = AddressWithPrefix::try_from("10.77.0.1/24".to_owned()).expect("it is an address");
        assert!(here.reaches("10.77.0.254".parse().expect("an address")));
        assert!(!here.reaches("10.77.1.1".parse().expect("an address")));
        assert!(!here.reaches("::1".parse().expect("an address")));
        let all = AddressWithPrefix::try_from("0.0.0.0/0".to_owned()).expect("it is an address");
        assert!(all.reaches("1.2.3.4".parse().expect("an address")));
        assert!(AddressWithPrefix::try_from("10.0.0.1/33".to_owned()).is_err());
    }
}
