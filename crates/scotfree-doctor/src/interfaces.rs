//! Whether an interface can be a device's port, in whichever plane.
//!
//! Invariant: of one that cannot be a port at all nothing else is said.

use super::{Environment, Finding, State};

/// What `ip` says of an interface, as far as it matters.
#[derive(serde::Deserialize, Default)]
#[serde(default)]
pub(super) struct Link {
    pub(super) ifindex: u32,
    pub(super) num_rx_queues: u32,
    pub(super) mtu: u32,
    flags: Vec<String>,
    /// The other end, if it is in this namespace.
    #[serde(rename = "link")]
    pub(super) other_end: Option<String>,
    #[serde(rename = "linkinfo")]
    info: LinkInfo,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct LinkInfo {
    #[serde(rename = "info_kind")]
    kind: String,
}

impl Link {
    /// Asks `ip`; why it does not say, otherwise.
    pub(super) fn look(environment: &dyn Environment, name: &str) -> Result<Link, String> {
        let said = environment.run("ip", &["-j", "-details", "link", "show", "dev", name]);
        let said = said.map_err(|problem| problem.trim().to_owned())?;
        let link = serde_json::from_str::<Vec<Link>>(&said).ok().and_then(|links| links.into_iter().next());
        link.ok_or_else(|| format!("ip says {}", said.trim()))
    }

    pub(super) fn is_veth(&self) -> bool {
        self.info.kind == "veth"
    }

    /// The other end's name and, where it is in another namespace, what is to be said before a command for it.
    pub(super) fn other_end_of(&self, name: &str) -> (&str, String) {
        match self.other_end.as_deref() {
            Some(peer) => (peer, String::new()),
            None => ("INTERFACE", format!("in the namespace of the other end of {name}: ")),
        }
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.has("LOOPBACK")
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }
}

pub(super) fn check(environment: &dyn Environment, name: &str) -> Vec<Finding> {
    if is_missing(environment, name) {
        let mend = "give one of: ip -brief link; or make it, and name it in [switch] ports";
        let found = format!("there is no port {name} here");
        return vec![Finding::lacks(format!("offloads of {name}"), State::Must, found, mend)];
    }
    // That it cannot be asked is said where more is wanted of it.
    let link = Link::look(environment, name).ok();
    if link.as_ref().is_some_and(Link::is_loopback) {
        let found = "is this host's loopback: no cable leads from there to clients or to a server";
        let mend = "give another of: ip -brief link";
        return vec![Finding::lacks(format!("port {name}"), State::Must, found, mend)];
    }
    let mut findings: Vec<Finding> = link.iter().map(|link| state(name, link)).collect();
    findings.push(offloads(environment, name));
    let veth = link.filter(Link::is_veth);
    findings.extend(veth.map(|link| segmenting(environment, name, &link)));
    findings
}

/// Whether frames come and go.
fn state(name: &str, link: &Link) -> Finding {
    let check = format!("port {name}");
    if !link.has("UP") {
        let found = "is down: no frame comes or goes";
        return Finding::lacks(check, State::Must, found, format!("ip link set dev {name} up"));
    }
    if link.has("NO-CARRIER") {
        let found = "is up, but has no carrier: nothing is at the other end of its cable, or that is down";
        let mend = "plug it in; of a veth, at the other end: ip link set dev INTERFACE up";
        return Finding::lacks(check, State::Should, found, mend);
    }
    Finding::ok(check, format!("is up, with an MTU of {}", link.mtu))
}

pub(super) fn is_missing(environment: &dyn Environment, interface: &str) -> bool {
    let is_it = |line: &str| line.split_once(':').is_some_and(|(name, _)| name.trim() == interface);
    environment.read("/proc/net/dev").is_some_and(|table| !table.lines().any(is_it))
}

/// Features that must be off at a device's port, by their long names, with the words that `ethtool -K`
/// takes.
const OFFLOADS: [(&str, &str); 5] = [
    ("tx-checksumming", "tx"),
    ("tcp-segmentation-offload", "tso"),
    ("generic-segmentation-offload", "gso"),
    ("generic-receive-offload", "gro"),
    ("large-receive-offload", "lro"),
];

fn offloads(environment: &dyn Environment, interface: &str) -> Finding {
    let check = format!("offloads of {interface}");
    let features = match environment.run("ethtool", &["-k", interface]) {
        Ok(features) => features,
        Err(problem) => {
            let found = format!("cannot be read: {}", problem.trim());
            return Finding::lacks(check, State::Should, found, "apt-get install ethtool");
        }
    };
    let Some((names, words)) = switched_on(&features, &OFFLOADS) else {
        return Finding::ok(check, "are off, as a device's port needs them");
    };
    Finding::lacks(
        check,
        State::Should,
        format!("{names} on: frames may be merged or without checksum"),
        format!("ethtool -K {interface} {words}"),
    )
}

/// Which of these features are on, if any is, and the words that switch them off.
fn switched_on(features: &str, asked: &[(&str, &str)]) -> Option<(String, String)> {
    let is_on = |feature: &str| {
        features
            .lines()
            .any(|line| line.trim().strip_prefix(feature).is_some_and(|rest| rest.starts_with(": on")))
    };
    let on: Vec<&(&str, &str)> = asked.iter().filter(|(feature, _)| is_on(feature)).collect();
    let names: Vec<&str> = on.iter().map(|(feature, _)| *feature).collect();
    let words: Vec<String> = on.iter().map(|(_, word)| format!("{word} off")).collect();
    (!on.is_empty()).then(|| (names.join(", "), words.join(" ")))
}

/// By a veth come frames as long as its other end makes them: what that leaves to its interface nobody segments.
fn segmenting(environment: &dyn Environment, name: &str, link: &Link) -> Finding {
    let check = format!("segmentation at the other end of {name}");
    let (peer, place) = link.other_end_of(name);
    let mend = |words: &str| format!("{place}ethtool -K {peer} {words}");
    let all = "tx off tso off gso off";
    if link.other_end.is_none() {
        let found = "cannot be looked at from here: the other end is in another namespace";
        return Finding::lacks(check, State::Could, found, mend(all));
    }
    let features = match environment.run("ethtool", &["-k", peer]) {
        Ok(features) => features,
        Err(problem) => {
            let found = format!("cannot be looked at: {}", problem.trim());
            return Finding::lacks(check, State::Could, found, mend(all));
        }
    };
    let Some((names, words)) = switched_on(&features, &OFFLOADS[1..3]) else {
        return Finding::ok(check, format!("{peer} sends frames that fit"));
    };
    let found = format!("{names} on at {peer}: frames too long for {name} are dropped, and TCP crawls");
    Finding::lacks(check, State::Should, found, mend(&words))
}
