//! Replicated groups of `scot kv`: members as processes of one host, which speak over its loopback.
//!
//! Invariant: members of one group differ in their numbers only, and every group begins with empty files; one that is
//! started again has the files that it left.

pub(super) mod device;
mod etcd;
pub(super) mod etcd_put;
mod failing;
pub(super) mod failures;
pub(super) mod kill_rounds;
mod phases;
pub(super) mod reads;
pub(super) mod redis_wait;
pub(super) mod resent;
pub(super) mod shares;
pub(super) mod unavailability;

use super::worker::group_use::{GroupUseReport, GroupUseSpec, Members, Requests};
use super::worker::WorkerSpec;
use super::Measured;
use scotfree_stage::process::Process;
use scotfree_stage::site::{await_ready, difference, Site, PATIENCE};
use scotfree_stage::stats::Summary;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The host of the topology.
const HOST: &str = "host";
/// From here on members have their ports, by their numbers.
const CLIENTS_PORT: u16 = 51_000;
const PEERS_PORT: u16 = 51_100;
const METRICS_PORT: u16 = 9_100;
/// What a member says when it serves.
const IS_FULL: &str = "this one is full";

/// How the members of a group are started.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct GroupSettings {
    protocol: String,
    /// How many there are.
    members: u8,
    /// When a write is answered: `stored` or `memory`.
    answer_when: String,
    /// How long members look for events before they sleep; as they do by themselves if it is not said.
    #[serde(default)]
    spin_us: Option<u64>,
}

impl GroupSettings {
    /// Members that sleep as they do by themselves.
    fn of(protocol: &str, members: u8, answer_when: &str) -> GroupSettings {
        let (protocol, answer_when) = (protocol.to_owned(), answer_when.to_owned());
        GroupSettings { protocol, members, answer_when, spin_us: None }
    }
}

/// Where the members of a group run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// On a host with their clients.
    OneHost,
    /// On the host of servers, with a device on the path to it, whose server is the first of them.
    BehindDevice,
}

/// A group that is up.
struct Group<'s, 'a> {
    site: &'s Site<'a>,
    ground: Ground,
    settings: GroupSettings,
    /// Clients know of members up to this one, which may not be there yet.
    last_member: u8,
    folder: PathBuf,
    membership: String,
    processes: BTreeMap<u8, Process>,
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn clients_of(id: u8) -> SocketAddr {
    loopback(CLIENTS_PORT + u16::from(id))
}

impl Ground {
    const fn host(self) -> &'static str {
        match self {
            Ground::OneHost => HOST,
            Ground::BehindDevice => "server",
        }
    }

    /// Where a member listens for clients.
    fn clients_of(self, site: &Site<'_>, id: u8) -> SocketAddr {
        match self {
            Ground::BehindDevice if id == 1 => site.server(),
            Ground::OneHost | Ground::BehindDevice => clients_of(id),
        }
    }

    /// How a member is told of the device before it, if there is one.
    fn device_words(self, site: &Site<'_>, id: u8) -> Vec<String> {
        match self {
            Ground::BehindDevice if id == 1 => {
                site.device_words().into_iter().filter_map(|word| word.into_string().ok()).collect()
            }
            Ground::OneHost | Ground::BehindDevice => Vec::new(),
        }
    }
}

fn peers_of(id: u8) -> SocketAddr {
    loopback(PEERS_PORT + u16::from(id))
}

impl<'s, 'a> Group<'s, 'a> {
    /// A group whose members a file names, all of them serving. Of the groups of a site only one may be up at a time.
    fn up(site: &'s Site<'a>, settings: &GroupSettings) -> Result<Group<'s, 'a>, Trouble> {
        let folder = empty_folder(site)?;
        let file = folder.join("members.toml");
        write(&file, &members_file(settings.members))?;
        let membership = format!("static:{}", file.display());
        Group::start_all(site, Ground::OneHost, settings, folder, membership)
    }

    fn start_all(
        site: &'s Site<'a>,
        ground: Ground,
        settings: &GroupSettings,
        folder: PathBuf,
        membership: String,
    ) -> Result<Group<'s, 'a>, Trouble> {
        let (settings, last_member, processes) = (settings.clone(), settings.members, BTreeMap::new());
        let mut group = Group { site, ground, settings, last_member, folder, membership, processes };
        (1..=last_member).try_for_each(|id| group.start(id))?;
        (1..=last_member).try_for_each(|id| group.await_full(id))?;
        Ok(group)
    }

    /// Ends a member without a word.
    fn kill(&mut self, id: u8) {
        self.processes.remove(&id);
    }

    /// Waits until a member that was started serves.
    fn await_full(&self, id: u8) -> Result<(), Trouble> {
        self.processes.get(&id).map_or(Ok(()), |process| process.wait_for_output(IS_FULL, PATIENCE))
    }

    /// Waits until a member serves its clients, those of a device before it too.
    fn await_ready(&self, id: u8) -> Result<(), Trouble> {
        self.processes.get(&id).map_or(Ok(()), await_ready)
    }

    /// Whether a member that was started serves by now.
    fn is_full(&self, id: u8) -> bool {
        let process = self.processes.get(&id);
        process.is_some_and(|process| process.wait_for_output(IS_FULL, Duration::ZERO).is_ok())
    }

    /// Starts a member; whether it serves yet is not waited for.
    fn start(&mut self, id: u8) -> Result<(), Trouble> {
        let log = self.folder.join(format!("{id}.wal")).display().to_string();
        let clients = self.ground.clients_of(self.site, id);
        let (peers, metrics) = (peers_of(id), metrics_of(id));
        let device = self.ground.device_words(self.site, id);
        let [clients, peers, metrics] = [clients, peers, metrics].map(|address| address.to_string());
        let (member, spin) = (id.to_string(), self.settings.spin_us.map(|spin| spin.to_string()));
        let mut words = vec!["kv", "--listen", &clients, "--peers", &peers, "--metrics", &metrics];
        words.extend(["--log", &log, "--log-size", "64M", "--group", "lab", "--member", &member]);
        words.extend(["--protocol", &self.settings.protocol, "--membership", &self.membership]);
        words.extend(["--answer-when", &self.settings.answer_when]);
        words.extend(spin.iter().flat_map(|spin| ["--spin-us", spin]));
        words.extend(device.iter().map(String::as_str));
        let process = self.site.spawn_daemon(self.ground.host(), &format!("member-{id}"), &words)?;
        self.processes.insert(id, process);
        Ok(())
    }

    fn members(&self) -> Members {
        Members {
            addresses: (1..=self.last_member).map(|id| (id, clients_of(id))).collect(),
            cluster_key: self.site.cluster_key(),
        }
    }

    /// Makes requests of the group, and measures them.
    fn ask(&self, requests: Requests) -> Result<GroupUseReport, Trouble> {
        let spec = GroupUseSpec { members: self.members(), requests };
        self.site.run_worker(HOST, "group-use", &WorkerSpec::GroupUse(spec))
    }

    /// Begins to make requests of the group.
    fn begin_to_ask(&self, name: &str, requests: Requests) -> Result<Process, Trouble> {
        let spec = GroupUseSpec { members: self.members(), requests };
        self.site.spawn_worker(HOST, name, &WorkerSpec::GroupUse(spec))
    }

    /// The processor time that each member has used.
    fn cpu_times(&self) -> BTreeMap<u8, Duration> {
        let time = |(id, process): (&u8, &Process)| (*id, process.cpu_time().unwrap_or_default());
        self.processes.iter().map(time).collect()
    }

    /// What each member has counted.
    fn counts(&self) -> Result<BTreeMap<u8, Counts>, Trouble> {
        let counts = |id: &u8| Ok((*id, self.site.counts_at(self.ground.host(), metrics_of(*id))?));
        self.processes.keys().map(counts).collect()
    }
}

fn metrics_of(id: u8) -> SocketAddr {
    loopback(METRICS_PORT + u16::from(id))
}

/// By how much a counter has grown at each member.
fn grown(before: &BTreeMap<u8, Counts>, after: &BTreeMap<u8, Counts>, name: &str) -> BTreeMap<u8, u64> {
    let name = format!("scotfree_group_{name}_total");
    let nothing = Counts::new();
    let growth =
        |(id, after): (&u8, &Counts)| (*id, difference(before.get(id).unwrap_or(&nothing), after, &name));
    after.iter().map(growth).collect()
}

/// The folder of a group's files, on a disk.
fn empty_folder(site: &Site<'_>) -> Result<PathBuf, Trouble> {
    let folder = site.disk_folder().join("group");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| Trouble::file("remove", &folder, &error))?;
    }
    fs::create_dir_all(&folder).map_err(|error| Trouble::file("create the folder", &folder, &error))?;
    Ok(folder)
}

fn write(file: &Path, text: &str) -> Result<(), Trouble> {
    fs::write(file, text).map_err(|error| Trouble::file("write", file, &error))
}

fn members_file(count: u8) -> String {
    let member = |id| {
        let (peers, clients) = (peers_of(id), clients_of(id));
        format!("[[member]]\nid = {id}\npeers = \"{peers}\"\nclients = \"{clients}\"\n")
    };
    "epoch = 1\n".to_owned() + &(1..=count).map(member).collect::<String>()
}

/// Has a group of its own up for these requests, and measures them.
fn use_group(site: &Site<'_>, settings: &GroupSettings, requests: Requests) -> Result<Measured, Trouble> {
    let group = Group::up(site, settings)?;
    let mut measured = measured(&group.ask(requests)?);
    // What all members have applied, the slowest has.
    let applied = grown(&BTreeMap::new(), &group.counts()?, "applied").into_values().min();
    measured.counter("applied_by_all", applied.unwrap_or(0));
    Ok(measured)
}

/// What requests measured, as metrics and counters.
fn measured(report: &GroupUseReport) -> Measured {
    let mut measured = Measured::default();
    measured.latency(&report.all);
    let mut of_kind = |kind: &str, summary: &Option<Summary>| {
        let Some(summary) = summary else { return };
        for (name, ns) in [("p50", summary.p50_ns), ("p99", summary.p99_ns)] {
            measured.value(&format!("{kind}_{name}_us"), ns as f64 / 1_000.0);
        }
    };
    of_kind("update", &report.updates);
    of_kind("read", &report.reads);
    measured.value("requests_per_s", report.requests_per_s);
    measured.value("update_gap_max_ms", report.update_gap_max_ms);
    measured.value("read_gap_max_ms", report.read_gap_max_ms);
    measured.counter("requests", report.all.count);
    measured.counter("wrong_replies", report.wrong_replies);
    measured.counter("given_up", report.given_up);
    measured.counter("sent_again", report.sent_again);
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_each_member_with_addresses_of_its_own() {
        let text = members_file(3);
        let parsed: toml::Table = text.parse().expect("it is TOML");
        let members = parsed["member"].as_array().expect("there are members");
        let addresses: std::collections::BTreeSet<&str> = members
            .iter()
            .flat_map(|member| [&member["peers"], &member["clients"]])
            .filter_map(toml::Value::as_str)
            .collect();
        assert_eq!((members.len(), addresses.len()), (3, 6));
    }

    #[test]
    fn what_has_grown_is_told_by_member() {
        let counts = |count| Counts::from([("scotfree_group_writes_total".to_owned(), count)]);
        let before = BTreeMap::from([(1, counts(5))]);
        let after = BTreeMap::from([(1, counts(7)), (2, counts(3))]);
        assert_eq!(grown(&before, &after, "writes"), BTreeMap::from([(1, 2), (2, 3)]));
    }
}
