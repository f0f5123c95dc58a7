//! The plane in the kernel: programs deal with most frames, and this process with what they pass up.
//!
//! Invariant: the programs are attached only when the device's log is restored and they know all that it
//! knows; they stay attached when the daemon ends.

use crate::bridge::PortIndex;
use crate::config::{SwitchConfig, XdpConfig};
use crate::events::Events;
use crate::metrics::MetricsText;
use crate::notice::Notices;
use crate::plane::Plane;
use crate::plane_user::UserPlane;
use crate::programs::Programs;
use scotfree_core::{BootEpoch, Nanos, ServerIndex, SessionId};
use scotfree_device::{DeviceCounters, Pipeline};
use scotfree_wire::{ClusterKey, Direction, KeyEpoch};
use scotfree_xdp::{
    AttachMode, Functions, Interface, Kernel, KernelConfig, KernelError, KeyWords, Port, Settings, Upcall,
    Upcalls,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

/// How many slots a new log has, unless somebody says.
pub(crate) const SLOTS_DEFAULT: u32 = 32_768;

/// The programs, loaded, before anything passes them.
pub(crate) struct Loaded {
    kernel: Kernel,
    config: XdpConfig,
    is_retired: bool,
}

impl Loaded {
    /// Loads the programs; what a daemon before has left is taken over if it is this device's.
    pub(crate) fn load(config: &SwitchConfig, xdp: &XdpConfig) -> Result<Loaded, KernelError> {
        let pin = Some(xdp.pin.clone());
        let slot_count = xdp.slots.or_else(|| scotfree_xdp::slot_count(&xdp.pin)).unwrap_or(SLOTS_DEFAULT);
        let kernel = Kernel::load(&KernelConfig { slot_count, pin, functions: functions(config)? })?;
        // A daemon before may have been of an older epoch of the key.
        let stamp_keys = config.cluster_key.controls(Direction::Stamp);
        let mut stamp_keys: Vec<_> = stamp_keys.all().map(|key| KeyWords(key.words())).collect();
        let kept_key = kernel.shared().settings().stamp_key;
        // Of what has been taken away there is nothing left to tell it by. That its sessions have ended is as if the
        // daemon had run meanwhile; what they left is whole by keys that are kept with it.
        let is_retired = kernel.adopted() && !stamp_keys.contains(&kept_key) && has_lost(&config.cluster_key);
        stamp_keys.extend(is_retired.then_some(kept_key));
        kernel.require_settings(&settings(config, xdp), &stamp_keys)?;
        Ok(Loaded { kernel, config: xdp.clone(), is_retired })
    }

    /// Whether what a daemon before has left is of an epoch of the key that has been taken away since.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired
    }

    /// The ports that frames do not leave by when programs send them.
    pub(crate) fn unreachable(&self, ports: &[(String, u32)]) -> Vec<String> {
        unreachable(self.config.generic, ports.iter().map(|(name, ifindex)| (name.as_str(), *ifindex)))
    }

    /// How many slots the kernel's log has.
    pub(crate) fn slot_count(&self) -> u32 {
        self.kernel.slot_count()
    }

    /// The incarnation that has outlived its daemon; 0 if there is none.
    pub(crate) fn alive(&self) -> BootEpoch {
        if self.kernel.adopted() {
            self.kernel.shared().boot_epoch()
        } else {
            BootEpoch(0)
        }
    }

    /// Puts the programs before `device`, with what both know, and behind it the ports.
    pub(crate) fn attach(
        self,
        config: &SwitchConfig,
        mut device: Pipeline,
        common: impl FnOnce(Pipeline) -> UserPlane,
    ) -> Result<XdpPlane, KernelError> {
        self.kernel.shared().set(&settings(config, &self.config));
        if self.kernel.adopted() && self.kernel.shared().boot_epoch() == device.boot_epoch() {
            for index in 0..config.servers.len() {
                let server = self.kernel.shared().server(index);
                device.resume(ServerIndex(index as u8), server.accepted(), server.lease());
            }
        }
        let common_ports = |common: &UserPlane| -> Vec<Port> {
            let ports = common.interfaces().into_iter();
            ports.map(|(interface, ifindex)| Port { interface, ifindex }).collect()
        };
        let mut common = common(device);
        let ports = common_ports(&common);
        let mode = if self.config.generic { AttachMode::Generic } else { AttachMode::Native };
        let kernel = self.kernel;
        for index in 0..config.servers.len() {
            let known = kernel.shared().server(index).ifindex();
            if ports.iter().any(|port| port.ifindex == known) {
                kernel.set_server_port(&ports, index, known)?;
            }
        }
        let upcalls = kernel.upcalls()?;
        let shared = Arc::new(kernel);
        let path = common.datapath_mut();
        let numbers: Vec<u32> = ports.iter().map(|port| port.ifindex).collect();
        path.begin_programs(|device, effects| {
            config.parts.iter().filter(|part| is_listed(config, part.function)).try_for_each(|part| {
                device.put_in_kernel(part.function, |base, function| {
                    (part.start)(&shared, &numbers, base, function, effects)
                })
            })
        })?;
        path.set_programs(Box::new(KernelPrograms {
            kernel: Arc::clone(&shared),
            ports: ports.clone(),
            servers: config.servers.iter().map(SocketAddr::ip).collect(),
            generic: self.config.generic,
        }));
        let links = shared.attach(&ports, mode)?;
        Ok(XdpPlane {
            common,
            upcalls,
            ports,
            kernel: shared,
            events: Events::default(),
            entries: Vec::new(),
            more: false,
            generic: self.config.generic,
            _links: links,
        })
    }
}

/// Those of the ports that frames do not leave by when programs send them. A kernel that does not say is believed to
/// have none, as is a driver in generic mode, which sends as the host does.
fn unreachable<'a>(generic: bool, ports: impl Iterator<Item = (&'a str, u32)>) -> Vec<String> {
    let takes_none = |ifindex: u32| {
        let found = Interface::look(ifindex);
        found.is_ok_and(|interface| interface.features.native && !interface.features.is_target)
    };
    ports.filter(|(_, ifindex)| !generic && takes_none(*ifindex)).map(|(name, _)| name.to_owned()).collect()
}

/// Whether the key has had epochs that it has no more.
fn has_lost(key: &ClusterKey) -> bool {
    key.epochs().all(|epoch| epoch > KeyEpoch(0))
}

fn settings(config: &SwitchConfig, xdp: &XdpConfig) -> Settings {
    let (first, last) = (*config.scotfree_ports.start(), *config.scotfree_ports.end());
    Settings {
        device: config.device,
        servers: config.servers.clone(),
        control: config.control,
        ports: (first, last),
        stamp_key: KeyWords(config.cluster_key.control(Direction::Stamp).words()),
        own_mac: config.own_mac().0,
        event_every: xdp.event_every,
    }
}

/// Which program takes a port's frames. A system that cannot be asked has no such programs.
pub(crate) fn attached_program(ifindex: u32) -> Option<u32> {
    scotfree_xdp::attached_program(ifindex).ok().flatten()
}

/// The plane in the kernel.
pub(crate) struct XdpPlane {
    common: UserPlane,
    upcalls: Upcalls,
    ports: Vec<Port>,
    kernel: Arc<Kernel>,
    events: Events,
    /// Of one burst, the sessions with new entries that go to disk.
    entries: Vec<(ServerIndex, SessionId)>,
    more: bool,
    generic: bool,
    /// The attachments end with these descriptors, unless they are kept.
    _links: Vec<std::os::fd::OwnedFd>,
}

impl Plane for XdpPlane {
    fn common(&mut self) -> &mut UserPlane {
        &mut self.common
    }

    fn common_ref(&self) -> &UserPlane {
        &self.common
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![self.upcalls.fd()]
    }

    fn receive(&mut self, now: Nanos, _index: usize, notices: &mut Notices) -> io::Result<()> {
        let (common, ports) = (&mut self.common, &self.ports);
        let (entries, events) = (&mut self.entries, &mut self.events);
        let port_of = |ifindex| ports.iter().position(|port| port.ifindex == ifindex).map(PortIndex);
        let taken = self.upcalls.take(|upcall| match upcall {
            Upcall::Frame { ifindex, frame } => {
                if let Some(port) = port_of(ifindex) {
                    common.take_in(now, port, frame, notices);
                }
            }
            Upcall::Notice { ifindex, frame } => {
                if let Some(port) = port_of(ifindex) {
                    common.take_note(now, port, frame, notices);
                }
            }
            // One look at a session finds all that it has.
            Upcall::Entry { server, session, .. } if entries.contains(&(server, session)) => {}
            Upcall::Entry { server, session, .. } => entries.push((server, session)),
            Upcall::Event(event) => events.add(event),
        });
        for entry in self.entries.drain(..) {
            self.common.on_entry(now, entry, notices);
        }
        self.more = taken == scotfree_xdp::UPCALLS_BURST_MAX;
        Ok(())
    }

    fn has_more(&self, _index: usize) -> bool {
        self.more
    }

    fn events(&self) -> String {
        self.events.text()
    }

    fn kernel_slots(&self) -> Option<u32> {
        Some(self.kernel.slot_count())
    }

    fn metrics(&mut self, text: &mut MetricsText) {
        text.plane(if self.generic { "xdp-generic" } else { "xdp" });
        if let Ok(counters) = self.kernel.counters() {
            text.kernel(&counters);
        }
    }
}

/// Refuses a list with a function that the programs have no part of.
pub(crate) fn check_functions(config: &SwitchConfig) -> Result<(), String> {
    functions(config).map(drop).map_err(|error| error.to_string())
}

/// The functions that the programs have a part of: all of the list, since what they do not see they cannot pass by.
fn functions(config: &SwitchConfig) -> Result<Functions, KernelError> {
    let names: Vec<&str> = config.functions.iter().map(|function| function.name).collect();
    Functions::named(&names)
}

fn is_listed(config: &SwitchConfig, name: &str) -> bool {
    config.functions.iter().any(|function| function.name == name)
}

/// The programs, as the path of a frame knows them.
struct KernelPrograms {
    kernel: Arc<Kernel>,
    ports: Vec<Port>,
    servers: Vec<IpAddr>,
    generic: bool,
}

impl Programs for KernelPrograms {
    fn heard(&mut self, host: IpAddr, port: PortIndex) -> Result<(), String> {
        let ifindex = self.ports[port.0].ifindex;
        for (index, server) in self.servers.iter().enumerate() {
            if *server == host && self.kernel.shared().server(index).ifindex() != ifindex {
                let set = self.kernel.set_server_port(&self.ports, index, ifindex);
                set.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn is_kept(&self) -> bool {
        self.kernel.is_kept()
    }

    fn unreachable(&self) -> Vec<String> {
        unreachable(self.generic, self.ports.iter().map(|port| (port.interface.as_str(), port.ifindex)))
    }

    fn counters(&self) -> Result<DeviceCounters, String> {
        let counted = self.kernel.counters().map_err(|error| error.to_string())?;
        Ok(DeviceCounters {
            requests: counted.requests,
            admitted: counted.admitted,
            unadmitted: counted.unadmitted,
            duplicate: counted.duplicate,
            bad: counted.bad,
            answered: counted.answered,
            past_epoch: counted.past_epoch,
            refused: counted.refused,
            ..DeviceCounters::default()
        })
    }
}
