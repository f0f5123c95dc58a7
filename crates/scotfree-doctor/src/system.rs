//! The machine itself, as the doctor's checks see it.
//!
//! Invariant: what is tried is undone before the answer is given.

use super::{elsewhere, Environment, GroupSet, KeptDevice, Runner, StampTrial, KEPT_PREFIX, SETS_PREFIX};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{DomainError, RxBurst, Transport, TxPacket};
use scotfree_stage::kernel_plane::{self, Interface};
use scotfree_stage::process::{find_tool, run, wait_until, Socket};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

// How long a stamp over loopback may take; it takes microseconds.
const STAMP_PATIENCE: Duration = Duration::from_millis(500);

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Environment for System {
    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(file).ok()
    }

    fn has_tool(&self, name: &str) -> bool {
        find_tool(name).is_some()
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<String, String> {
        run(program, args).map_err(|trouble| trouble.problem)
    }

    fn bind(&self, socket: Socket, address: SocketAddr) -> io::Result<()> {
        match socket {
            Socket::Tcp => TcpListener::bind(address).map(drop),
            Socket::Udp => UdpSocket::bind(address).map(drop),
        }
    }

    fn try_pmem(&self, path: &Path) -> Result<String, String> {
        match scotfree_io::pmem::probe(path) {
            Ok(instruction) => Ok(instruction.to_string()),
            // What to do about it the finding says.
            Err(DomainError::NotPersistent { missing, .. }) => Err(missing),
            Err(error) => Err(error.to_string()),
        }
    }

    fn is_there(&self, file: &Path) -> bool {
        file.exists()
    }

    fn has_kernel_plane(&self) -> bool {
        kernel_plane::IS_BUILT
    }

    fn try_programs(&self) -> Result<(), String> {
        kernel_plane::try_programs().map_err(|trouble| trouble.problem)
    }

    fn look_at_interface(&self, ifindex: u32) -> Result<Interface, String> {
        kernel_plane::look_at_interface(ifindex)
    }

    fn group_sets(&self, folder: &Path, other: Option<&Path>) -> Vec<GroupSet> {
        let of_groups = folders_in(folder).unwrap_or_default().into_iter();
        let of_groups = of_groups.filter(|path| name_of(path).starts_with(SETS_PREFIX));
        let mut sets: Vec<GroupSet> = of_groups.flat_map(sets_of_group).collect();
        let other = other.filter(|other| sets.iter().all(|set| set.folder != *other));
        let other = other.filter(|other| kernel_plane::is_set(other));
        sets.extend(other.map(|other| group_set(other.to_owned())));
        sets
    }

    fn kept_devices(&self, folder: &Path, other: Option<&Path>) -> Result<Vec<KeptDevice>, String> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            // A file system that is not mounted keeps nothing, which another check says.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.to_string()),
        };
        let is_device = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(KEPT_PREFIX) || (other == Some(path) && !kernel_plane::is_set(path))
        };
        let mut folders: Vec<_> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_device(path)).collect();
        folders.sort();
        Ok(folders.into_iter().map(kept_device).collect())
    }

    fn kept_elsewhere(&self) -> Vec<PathBuf> {
        elsewhere::kept_elsewhere(&self.read("/proc/self/mounts").unwrap_or_default())
    }

    fn try_stamps(&self) -> io::Result<StampTrial> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut sender = UdpTransport::bind(any, &UdpConfig::default())?;
        let mut receiver = UdpTransport::bind(any, &UdpConfig::default())?;
        let packet = TxPacket { to: receiver.local_address(), bytes: b"scot doctor", stamp: Some(1) };
        let mut burst = RxBurst::new(1, 64);
        let mut stamps = Vec::new();
        let mut trial = StampTrial { sent: false, received: false };
        wait_until(STAMP_PATIENCE, || {
            // Again and again: the kernel switches receive stamps on a moment after the first asks.
            let _ = sender.tx_burst(&[packet]);
            if receiver.rx_burst(&mut burst).is_ok_and(|count| count > 0) {
                trial.received |= burst.get(0).is_some_and(|packet| packet.received_at.is_some());
            }
            sender.tx_stamps(&mut stamps);
            trial.sent = !stamps.is_empty();
            trial.sent && trial.received
        });
        Ok(trial)
    }
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    Ok(folders)
}

fn sets_of_group(folder: PathBuf) -> Vec<GroupSet> {
    match folders_in(&folder) {
        Ok(sets) => sets.into_iter().map(group_set).collect(),
        Err(error) => vec![GroupSet { folder, owner: Err(error.to_string()) }],
    }
}

fn group_set(folder: PathBuf) -> GroupSet {
    let owner = kernel_plane::owner_of_set(&folder);
    GroupSet { folder, owner }
}

fn kept_device(folder: PathBuf) -> KeptDevice {
    let (holds, runner) = match kernel_plane::kept(&folder) {
        Ok(kept) => {
            let holds = format!("the log of device {}, boot epoch {}", kept.device, kept.boot_epoch);
            (Ok(holds), runner_of(kept.table))
        }
        Err(problem) => (Err(problem), Runner::Unknown),
    };
    let names = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let port = |name: std::ffi::OsString| Some(name.to_str()?.strip_prefix("port-")?.to_owned());
    let mut ports: Vec<String> = names.filter_map(port).collect();
    ports.sort();
    KeptDevice { folder, holds, ports, runner }
}

/// The process, other than this one, that has a table of this number open.
fn runner_of(table: u32) -> Runner {
    let wanted = format!("map_id:\t{table}");
    let mut sees_all = true;
    for pid in fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| pid_of(&entry)) {
        if pid == std::process::id() {
            continue;
        }
        match fs::read_dir(format!("/proc/{pid}/fdinfo")) {
            Ok(infos) => {
                let mut texts = infos.flatten().filter_map(|info| fs::read_to_string(info.path()).ok());
                if texts.any(|text| text.lines().any(|line| line == wanted)) {
                    return Runner::Process(pid);
                }
            }
            // One that has just ended runs nothing. Of one with more rights than ours the name tells.
            Err(error) => sees_all &= error.kind() != io::ErrorKind::PermissionDenied || !is_scot(pid),
        }
    }
    if sees_all {
        Runner::Nobody
    } else {
        Runner::Unknown
    }
}

fn is_scot(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("scot"))
}

fn pid_of(entry: &fs::DirEntry) -> Option<u32> {
    entry.file_name().to_str()?.parse().ok()
}
