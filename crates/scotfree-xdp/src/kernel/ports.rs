//! The programs at the device's ports.
//!
//! Invariant: a port's program is replaced in one step, so no frame passes without one, and a port that is not
//! the device's any more has none.

use super::{Kernel, Programs, PROGRAM_EGRESS, PROGRAM_INGRESS};
use crate::error::{bpf, system, KernelError};
use crate::links::{create_link, kept_links, link_name, pin_descriptor, remove_link, replace_link};
use crate::plain::{bytes_of, value_of};
use crate::prepared::{self, links_folder, pair_path};
use crate::shared::{PORTS_MAX, SERVERS_MAX};
use crate::skeleton::types;
use libbpf_rs::{libbpf_sys, MapCore, MapFlags, MapHandle, MapType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

/// How the programs are attached to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMode {
    /// In the port's driver.
    Native,
    /// In the kernel's stack: works with every driver and is slower.
    Generic,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its interface.
    pub interface: String,
    /// The interface's number.
    pub ifindex: u32,
}

impl Kernel {
    /// Attaches the programs to the ports. Where a daemon before left them attached they are replaced, and
    /// taken from such ports as are no more. Unless a folder keeps them, the attachments end with the
    /// descriptors.
    pub fn attach(&self, ports: &[Port], mode: AttachMode) -> Result<Vec<OwnedFd>, KernelError> {
        self.leave_others(ports)?;
        self.place_ports(ports)?;
        for port in ports {
            let value = devmap_value(port.ifindex, None);
            let written = self.opened.ports.update(bytes_of(&port.ifindex), bytes_of(&value), MapFlags::ANY);
            written.map_err(bpf(format!("entering {} into the table of ports", port.interface)))?;
        }
        let links = ports.iter().map(|port| self.attach_one(port, mode)).collect::<Result<_, _>>()?;
        if let Some(log) = &self.new_log {
            log.keep();
        }
        Ok(links)
    }

    fn attach_one(&self, port: &Port, mode: AttachMode) -> Result<OwnedFd, KernelError> {
        let program = self.program_fd(PROGRAM_INGRESS);
        let kept = self.links_folder().map(|folder| folder.join(link_name(&port.interface)));
        if let Some(link) = kept.as_deref().and_then(|path| replace_link(path, program, port, mode)) {
            return Ok(link);
        }
        if let Some(path) = &kept {
            // One that could not be taken over is of another interface, or in the other mode.
            remove_link(path);
        }
        let link = create_link(program, port, mode)?;
        if let Some(path) = kept {
            pin_descriptor(link.as_raw_fd(), &path)
                .map_err(system(format!("keeping the attachment as {}", path.display())))?;
        }
        Ok(link)
    }

    /// The program that frames meet as they come in, for who wants to hand it frames in another way; the
    /// descriptor is this kernel's.
    pub fn ingress_program(&self) -> RawFd {
        self.program_fd(PROGRAM_INGRESS)
    }

    /// Takes the programs from ports that are not the device's any more, and forgets who lived behind them.
    pub(super) fn leave_others(&self, ports: &[Port]) -> Result<(), KernelError> {
        let is_other = |ifindex: u32| ports.iter().all(|port| port.ifindex != ifindex);
        let shared = &self.opened.shared;
        for server in shared.servers().filter(|server| is_other(server.ifindex())) {
            server.set_ifindex(0);
        }
        remove_keys(&self.opened.ports, |key| value_of(key).is_some_and(is_other));
        for place in (0..PORTS_MAX).filter(|place| is_other(shared.port_of(*place))) {
            for server in 0..SERVERS_MAX {
                // One that was never entered is not there.
                let _ = self.opened.pairs.delete(bytes_of(&pair_number(place, server)));
            }
            shared.remove_port(place);
        }
        let lives_there = |key: &[u8]| self.opened.tables.stations.lookup(key, MapFlags::ANY).ok().flatten();
        remove_keys(&self.opened.tables.stations, |key| {
            let station = lives_there(key).and_then(|bytes| value_of::<types::scot_station>(&bytes));
            station.is_some_and(|station| is_other(station.ifindex))
        });
        shared.note_station();
        let Some(folder) = self.links_folder() else { return Ok(()) };
        let names: Vec<_> = ports.iter().map(|port| link_name(&port.interface)).collect();
        for path in kept_links(&folder).map_err(system(format!("looking into {}", folder.display())))? {
            if names.iter().all(|name| !path.ends_with(name)) {
                remove_link(&path);
            }
        }
        Ok(())
    }

    fn links_folder(&self) -> Option<PathBuf> {
        let folder = self.pin.as_deref()?;
        Some(match self.programs {
            Programs::Loaded(_) => folder.to_owned(),
            Programs::Set(_) => links_folder(folder),
        })
    }

    /// Gives the ports their places: they keep those that they have.
    fn place_ports(&self, ports: &[Port]) -> Result<(), KernelError> {
        let full = |port: &Port| {
            let trouble = io::Error::other(format!("a device has {PORTS_MAX} ports at most"));
            system(format!("giving {} a place among the ports", port.interface))(trouble)
        };
        ports.iter().try_for_each(|port| {
            self.opened.shared.add_port(port.ifindex).map(|_| ()).ok_or_else(|| full(port))
        })
    }

    /// Says behind which of the ports a server lives: requests of the others are acknowledged.
    pub fn set_server_port(&self, ports: &[Port], server: usize, ifindex: u32) -> Result<(), KernelError> {
        self.place_ports(ports)?;
        let egress = self.program_fd(PROGRAM_EGRESS);
        let shared = self.opened.shared.server(server);
        if shared.ifindex() != ifindex {
            shared.set_ifindex(0);
        }
        for port in ports.iter().filter(|port| port.ifindex != ifindex) {
            let place = self.opened.shared.port_place(port.ifindex).expect("it has just been given one");
            let pair = self.pair(place.into(), server, [port.ifindex, ifindex])?;
            for value in [devmap_value(port.ifindex, Some(egress)), devmap_value(ifindex, None)] {
                let written = pair.update(bytes_of(&value.ifindex), bytes_of(&value), MapFlags::ANY);
                written.map_err(bpf(format!("pairing {} with the server's port", port.interface)))?;
            }
            let pair_fd = pair.as_fd().as_raw_fd() as u32;
            let written = self.opened.pairs.update(
                bytes_of(&pair_number(place.into(), server)),
                bytes_of(&pair_fd),
                MapFlags::ANY,
            );
            written.map_err(bpf("entering a pair of ports"))?;
        }
        shared.set_ifindex(ifindex);
        Ok(())
    }

    /// A pair for these two: a new one, or that of the set.
    fn pair(&self, port: usize, server: usize, ifindexes: [u32; 2]) -> Result<MapHandle, KernelError> {
        let (Programs::Set(_), Some(folder)) = (&self.programs, &self.pin) else {
            return new_pair().map_err(bpf("making a pair of ports"));
        };
        if server >= prepared::SERVERS_MAX {
            let (most, wanted) = (prepared::SERVERS_MAX, server + 1);
            return Err(KernelError::SetServers { path: folder.clone(), most, wanted });
        }
        let path = pair_path(folder, port * prepared::SERVERS_MAX + server);
        let pair = MapHandle::from_pinned_path(&path).map_err(bpf(format!("opening {}", path.display())))?;
        remove_keys(&pair, |key| value_of(key).is_some_and(|ifindex| !ifindexes.contains(&ifindex)));
        Ok(pair)
    }
}

/// By which number the programs find the pair of a client's port and a server.
fn pair_number(port: usize, server: usize) -> u32 {
    (port * SERVERS_MAX + server) as u32
}

fn devmap_value(ifindex: u32, program: Option<i32>) -> types::bpf_devmap_val {
    let mut value = types::bpf_devmap_val { ifindex, ..types::bpf_devmap_val::default() };
    value.bpf_prog.fd = program.unwrap_or(0);
    value
}

pub(crate) fn new_pair() -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..libbpf_sys::bpf_map_create_opts::default()
    };
    let value_bytes = size_of::<types::bpf_devmap_val>() as u32;
    MapHandle::create(MapType::DevmapHash, Some("scot_pair"), 4, value_bytes, 2, &options)
}

/// The number of the program that is attached to an interface, by whomever; frames that it takes reach no
/// packet socket.
pub fn attached_program(ifindex: u32) -> io::Result<Option<u32>> {
    let mut id = 0;
    // SAFETY: the number is written to a place that outlives the call.
    let result = unsafe { libbpf_sys::bpf_xdp_query_id(ifindex as i32, 0, &raw mut id) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok((id != 0).then_some(id))
}

fn remove_keys(table: &MapHandle, is_out: impl Fn(&[u8]) -> bool) {
    let out: Vec<Vec<u8>> = table.keys().filter(|key| is_out(key)).collect();
    for key in out {
        // A port that is gone has left the table by itself.
        let _ = table.delete(&key);
    }
}
