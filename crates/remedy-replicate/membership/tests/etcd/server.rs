//! An etcd in a folder of its own, on ports that were free.

use super::{address, pause, LIMIT};
use remedy_replicate_membership::{view, Endpoint};
use rustix::process::{kill_process, Pid, Signal};
use scotfree_io::lifetime::end_with_starter;
use scotfree_io::now_monotonic;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = "/usr/bin/etcd";

pub struct Etcd {
    folder: tempfile::TempDir,
    clients: u16,
    peers: u16,
    child: Child,
}

impl Etcd {
    /// Starts one, or says why there is none.
    pub fn start() -> Option<Etcd> {
        if !std::path::Path::new(PROGRAM).exists() {
            eprintln!("SKIP: etcd is not installed: apt-get install etcd-server");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let [clients, peers] = free_ports();
        let child = spawn(&folder, clients, peers);
        let etcd = Etcd { folder, clients, peers, child };
        etcd.wait_until_it_answers();
        Some(etcd)
    }

    pub fn endpoint(&self, group: &str) -> Endpoint {
        Endpoint::parse(&format!("etcd:http://127.0.0.1:{}/scotfree/{group}", self.clients)).unwrap()
    }

    pub fn port(&self) -> u16 {
        self.clients
    }

    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    pub fn start_again(&mut self) {
        self.child = spawn(&self.folder, self.clients, self.peers);
        self.wait_until_it_answers();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn wait_until_it_answers(&self) {
        let until = now_monotonic().plus(LIMIT);
        // An etcd that answers knows that there is no group.
        while !view(&self.endpoint("none")).is_err_and(|reason| reason.contains("no group")) {
            assert!(now_monotonic() < until, "etcd does not answer");
            pause();
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Bound at the same time, so that they differ.
fn free_ports() -> [u16; 2] {
    let listeners = [0; 2].map(|port| TcpListener::bind(address(port)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// An election time of 100 ms lets it grant leases of a second.
fn spawn(folder: &tempfile::TempDir, clients: u16, peers: u16) -> Child {
    let (clients, peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
    let mut command = Command::new(PROGRAM);
    command.args(["--name", "one", "--heartbeat-interval", "10", "--election-timeout", "100"]);
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("one={peers}"), "--log-level", "error"]);
    command.arg("--data-dir").arg(folder.path().join("data"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    end_with_starter(&mut command);
    command.spawn().unwrap()
}
