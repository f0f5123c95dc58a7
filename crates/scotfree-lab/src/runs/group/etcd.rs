//! etcd as processes of one host: one or several members of one cluster.
//!
//! Invariant: its files are empty at its start and lie on a disk, and it serves when it was started.

use super::loopback;
use scotfree_stage::process::{find_tool, Process, ProcessSpec, Socket};
use scotfree_stage::site::{Site, PATIENCE};
use scotfree_stage::trouble::Trouble;
use std::fs;
use std::net::SocketAddr;

/// Where the first member is found; each further one ten ports on, and other members the port behind.
const PORT: u16 = 2_379;

/// A cluster that is up.
pub(super) struct Etcd {
    members: u16,
    _processes: Vec<Process>,
}

impl Etcd {
    pub(super) fn up(site: &Site<'_>, host: &str, members: u16) -> Result<Etcd, Trouble> {
        if find_tool("etcd").is_none() {
            let next = "install it: apt-get install etcd-server";
            return Err(Trouble::new("start an etcd", "etcd is not installed", next));
        }
        let folder = site.disk_folder().join("etcd");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| Trouble::file("remove", &folder, &error))?;
        }
        let named = |index| format!("e{index}={}", url(peers_of(index)));
        let all: Vec<String> = (0..members).map(named).collect();
        let all = all.join(",");
        let start = |index: u16| {
            let (name, clients, peers) = (format!("e{index}"), url(clients_of(index)), url(peers_of(index)));
            let spec = ProcessSpec::new(&format!("etcd-{index}"), "etcd", site.log_folder())
                .args(["--name", &name, "--logger", "zap", "--log-level", "error"])
                .args(["--data-dir".into(), folder.join(&name).into_os_string()])
                .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
                .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
                .args(["--initial-cluster", &all, "--initial-cluster-state", "new"]);
            site.lab.spawn(host, &spec.at(site.priority()))
        };
        let processes: Vec<Process> = (0..members).map(start).collect::<Result<_, _>>()?;
        for (index, process) in (0..).zip(&processes) {
            // Clients find it once it knows of a leader.
            process.wait_for_port(Socket::Tcp, clients_of(index).port(), PATIENCE)?;
        }
        Ok(Etcd { members, _processes: processes })
    }

    /// Where clients find its members.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.members).map(clients_of).collect()
    }

    /// The membership of a group that it keeps.
    pub(super) fn place(&self, group: u64) -> String {
        let first = self.addresses()[0];
        format!("etcd:{}/scotfree/g{group}", url(first))
    }
}

fn clients_of(index: u16) -> SocketAddr {
    loopback(PORT + 10 * index)
}

fn peers_of(index: u16) -> SocketAddr {
    loopback(PORT + 10 * index + 1)
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}
