//! The devices' daemons, and bridges that are no devices.
//!
//! Invariant: what planes in the kernel keep lies below the site's folder.

use super::{log_word, Site, DEVICE_PORT, METRICS, SERVER_PORT};
use crate::process::{run, Process};
use crate::trouble::Trouble;
use crate::worker::metrics::Counts;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// A bad wire has an address only because its daemon wants one; as a host with one it would be a device.
const WIRE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// Below the site's folder.
const BPF_FOLDER: &str = "bpf";

/// The logs of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Logs {
    /// It bridges, and acknowledges nothing.
    None,
    /// In memory.
    Ram,
    /// In memory and on a disk.
    RamAndDisk,
}

/// A device of the topology, as its cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its host.
    pub role: String,
    /// Its number.
    pub id: u16,
    /// Where it answers control messages.
    pub control: SocketAddr,
    /// Whether it is the first on the path.
    pub is_first: bool,
}

impl Site<'_> {
    /// Starts the only device's daemon with further flags, or starts it again on the logs that it left.
    pub fn start_switch_with(&self, logs: Logs, more: &[&str]) -> Result<Process, Trouble> {
        let device = self.device();
        self.say_head(&device, device.is_first)?;
        self.start_device(&device, logs, more)
    }

    /// Starts the daemons of all devices; the first on the path is the head.
    pub fn start_chain(&self, logs: &[Logs], more: &[&str]) -> Result<Vec<Process>, Trouble> {
        let start = |(device, logs): (Device, &Logs)| {
            self.say_head(&device, device.is_first)?;
            self.start_device(&device, *logs, more)
        };
        self.devices().into_iter().zip(logs).map(start).collect()
    }

    /// Starts a device's daemon, or starts it again on the logs that it left and in the part that was last
    /// said to be its.
    pub fn start_device(&self, device: &Device, logs: Logs, more: &[&str]) -> Result<Process, Trouble> {
        let Device { role, id, control, .. } = device;
        let mut words = self.words(&["switch", "--device-id", &id.to_string()]);
        words.extend(["--config".into(), self.config_file(role).into()]);
        let host = self.lab.topology().host(role).expect("the device is of this topology");
        for port in &host.ports {
            words.extend(["--port".into(), port.name.clone().into()]);
        }
        words.extend(["--address".into(), control.to_string().into()]);
        words.extend(["--server".into(), self.server().to_string().into()]);
        words.extend(["--metrics".into(), METRICS.to_string().into()]);
        if logs != Logs::None {
            let file = self.ram_log(role);
            words.extend(["--log".into(), log_word("ram", &file)]);
        }
        if logs == Logs::RamAndDisk {
            let file = self.disk.path().join(format!("{role}.disk"));
            words.extend(["--log".into(), log_word("disk", &file)]);
        }
        words.extend(more.iter().map(OsString::from));
        if more.contains(&"xdp") {
            words.extend(["--pin".into(), self.bpf_folder()?.join(role).into()]);
        }
        self.start_scot(role, "switch", words)
    }

    /// Where planes in the kernel keep their logs: a BPF file system of this site's own, since the usual one is
    /// not seen from inside a network namespace.
    fn bpf_folder(&self) -> Result<PathBuf, Trouble> {
        let folder = self.folder.path().join(BPF_FOLDER);
        if !folder.exists() {
            fs::create_dir(&folder).map_err(|error| Trouble::file("create the folder", &folder, &error))?;
            run("mount", ["-t".as_ref(), "bpf".as_ref(), "bpf".as_ref(), folder.as_os_str()])?;
        }
        Ok(folder)
    }

    /// Where a device's plane in the kernel keeps its log.
    pub fn kept_folder(&self, role: &str) -> PathBuf {
        self.folder.path().join(BPF_FOLDER).join(role)
    }

    /// Removes what planes in the kernel have kept: logs and attachments.
    pub fn remove_kept(&self) -> Result<(), Trouble> {
        self.devices().iter().map(|device| self.kept_folder(&device.role)).try_for_each(|folder| {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Trouble::file("remove", &folder, &error))
                }
                _ => Ok(()),
            }
        })
    }

    /// Removes the log that a device has in memory, with the sessions in it: its server must begin anew too.
    pub fn remove_log(&self, device: &Device) -> Result<(), Trouble> {
        let file = self.ram_log(&device.role);
        fs::remove_file(&file).map_err(|error| Trouble::file("remove", &file, &error))
    }

    fn ram_log(&self, role: &str) -> PathBuf {
        self.memory.path().join(format!("{role}.ram"))
    }

    /// Writes down whether a device is the head: it reads that at its start and on SIGHUP.
    pub fn say_head(&self, device: &Device, is_head: bool) -> Result<(), Trouble> {
        self.write_config(&device.role, &format!("[switch]\nhead = {is_head}\n"))
    }

    /// Starts a bridge that is no device of this cluster but a bad wire: it loses and reorders so many
    /// percent of the frames.
    pub fn start_bad_wire(&self, percent: &str) -> Result<Process, Trouble> {
        let mut words = self.words_of_stranger("wire");
        words.extend(["--loss", percent, "--reorder", percent].map(OsString::from));
        words.extend(["--log".into(), log_word("ram", &self.memory.path().join("wire.ram"))]);
        self.start_scot("wire", "wire", words)
    }

    /// Starts a bridge in the kernel that is no device of this cluster: it logs and stamps nothing.
    pub fn start_plain_bridge(&self, role: &str) -> Result<Process, Trouble> {
        self.write_config(role, "[switch]\nhead = false\n")?;
        let mut words = self.words_of_stranger(role);
        words.extend(["--config".into(), self.config_file(role).into()]);
        words.extend(["--metrics".into(), METRICS.to_string().into()]);
        words.extend(["--plane".into(), "xdp".into(), "--pin".into()]);
        words.push(self.bpf_folder()?.join(role).into());
        self.start_scot(role, "bridge", words)
    }

    /// The words that start a bridge that serves nobody's server.
    fn words_of_stranger(&self, role: &str) -> Vec<OsString> {
        let host = self.lab.topology().host(role).expect("the bridge is of this topology");
        let control = SocketAddr::new(WIRE_ADDRESS, DEVICE_PORT).to_string();
        // An address for documents: nothing that passes is for a server there.
        let nobody = format!("192.0.2.1:{SERVER_PORT}");
        let mut words = self.words(&["switch", "--device-id", "999", "--address", &control]);
        words.extend(["--server".into(), nobody.into()]);
        for port in &host.ports {
            words.extend(["--port".into(), port.name.clone().into()]);
        }
        words
    }

    /// What the first device's daemon has counted.
    pub fn device_counts(&self) -> Result<Counts, Trouble> {
        self.counts(&self.device().role)
    }

    /// What the daemon of each device has counted, by its number.
    pub fn counts_of_devices(&self) -> Result<BTreeMap<u16, Counts>, Trouble> {
        let counts = |device: Device| Ok((device.id, self.counts(&device.role)?));
        self.devices().into_iter().map(counts).collect()
    }

    /// Flags that name all devices to a server.
    pub fn device_words(&self) -> Vec<OsString> {
        let word = |Device { id, control, .. }| ["--device".into(), format!("{id}={control}").into()];
        self.devices().into_iter().flat_map(word).collect()
    }
}
