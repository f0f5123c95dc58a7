//! What roles say and hold, checked when they say it and after every step.
//!
//! Invariant: a role is believed nothing: every claim on the wire is compared with what the world
//! knows to be true at that moment.

use super::device::index_of;
use super::{place_of, World};
use crate::model::{Invariant, Violation};
use crate::place::Place;
use crate::trace::Sight;
use scotfree_core::{Durability, Nanos, SeqNum};
use scotfree_session::Server;
use scotfree_sim::{Protocol, Travel};
use scotfree_wire::{Flags, Kind, Packet, Tail};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where recordings are sent from.
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 3, 1)), 51_000);

impl World {
    /// Looks at what a role sends.
    pub(super) fn spy(&mut self, at: Place, to: SocketAddr, sight: &Sight, bytes: &[u8]) {
        // A device is told so of a session's dead letters too; what it then erases is checked.
        let to_client = matches!(place_of(to), Some(Place::Client(_)));
        match (at, sight.kind) {
            (Place::Server(_), Some(Kind::ServerAck)) if !to_client => {}
            (Place::Server(server), Some(Kind::ServerAck)) => self.spy_on_stable(server, sight, sight.seq),
            (Place::Server(server), Some(Kind::Heartbeat)) => {
                self.spy_on_stable(server, sight, SeqNum(sight.said.1));
            }
            (Place::Server(server), Some(Kind::Response)) => self.spy_on_response(server, sight),
            (Place::Server(server), Some(Kind::Lease)) => self.spy_on_lease(server, bytes),
            (Place::Device(device), Some(Kind::PersistAck)) if to_client => {
                self.spy_on_persist_ack(device, to, sight, bytes);
            }
            (Place::Device(device), Some(Kind::PersistAck)) => {
                let detail = format!("device {device} acknowledges {sight} to {to}, where no client is");
                self.must(Err(Violation::new(Invariant::Bound, detail)));
            }
            (Place::Device(device), Some(Kind::Response | Kind::Read)) => {
                self.spy_on_answer(device, to, sight);
            }
            (Place::Client(client), Some(Kind::Update)) => self.clients[client].record(bytes),
            _ => {}
        }
    }

    fn spy_on_stable(&mut self, server: usize, sight: &Sight, seq: SeqNum) {
        let node = &self.servers[server];
        let verdict = node.model.claimed_stable(sight.session, seq, &node.storage);
        self.must(verdict);
    }

    fn spy_on_response(&mut self, server: usize, sight: &Sight) {
        if self.failed_sessions.contains(&(server, self.servers[server].incarnation(), sight.session)) {
            let detail = format!("{sight} is sent, and the session has failed");
            self.must(Err(Violation::new(Invariant::FailedIsSilent, detail)));
        }
    }

    fn spy_on_lease(&mut self, server: usize, bytes: &[u8]) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        let Tail::Lease(lease) = packet.tail() else { return };
        // Clocks run apart, but not by more than this.
        let until = self.engine.now.plus(lease.duration).plus(Nanos(lease.duration.0 / 100));
        if let Some(node) = self.devices.get_mut(index_of(lease.device)).filter(|_| lease.duration.0 > 0) {
            node.lease(server, until);
        }
    }

    /// A device passes a request on: has it kept the stamp that it gave?
    pub(super) fn spy_on_stamp(&mut self, device: usize, to: SocketAddr, sight: &Sight, bytes: &[u8]) {
        let Some(Place::Server(server)) = place_of(to) else { return };
        let own = sight.stamp.device == super::device::device_id(device);
        // Damaged stamps are passed on too, by devices that do not know the session.
        let true_stamp = |packet: Packet<'_>| self.stamp_keys.verified_stamp(&packet).is_ok();
        if own && Packet::parse(bytes).is_ok_and(true_stamp) {
            let verdict = self.servers[server].model.stamped(sight.session, sight.seq, &sight.stamp);
            self.must(verdict);
        }
    }

    fn spy_on_persist_ack(&mut self, device: usize, to: SocketAddr, sight: &Sight, bytes: &[u8]) {
        let Some(Place::Client(client)) = place_of(to) else { return };
        let server = self.clients[client].server();
        let granted = Packet::parse(bytes).map_or(Durability::None, |packet| packet.header().granted);
        let entry = (server as u8, sight.session.0, sight.seq.0);
        let held = granted != Durability::None && self.devices[device].media().holds(entry, granted);
        let leased = self.devices[device].is_leased(server, self.engine.now);
        if !held {
            let detail = format!("device {device} acknowledges {sight} at {granted} and does not hold it so");
            self.must(Err(Violation::new(Invariant::PersistClaim, detail)));
        } else if !leased {
            let detail = format!("device {device} acknowledges {sight} without a lease");
            self.must(Err(Violation::new(Invariant::Leased, detail)));
        }
        if !self.device_may_speak(device, server, sight.session) {
            let detail = format!("device {device} acknowledges {sight}, whose epoch of the key it has lost");
            self.must(Err(Violation::new(Invariant::RemovedKey, detail)));
        }
        self.must(self.excluded_is_silent(server, device));
        self.servers[server].model.acknowledged(sight.session, sight.seq, super::device::device_id(device));
    }

    /// The server does not go on without a device that may still acknowledge.
    fn excluded_is_silent(&self, server: usize, device: usize) -> Result<(), Violation> {
        let name = super::device::device_id(device);
        let without =
            |machine: &Server| machine.is_serving() && machine.devices().all(|(known, _)| known != name);
        if self.servers[server].machine().is_some_and(without) && !self.clocks_were_set {
            let detail = format!("device {device} acknowledges though the server goes on without it");
            return Err(Violation::new(Invariant::Leased, detail));
        }
        Ok(())
    }

    /// Counters add up, tables are within their limits (rules 15 and 3).
    pub(super) fn check_device(&mut self, device: usize) {
        let Some(machine) = self.devices[device].machine() else { return };
        let counters = machine.counters();
        let requests = counters.admitted + counters.unadmitted + counters.duplicate + counters.bad;
        let persist = remedy_persist::counters(machine);
        let updates = persist.logged + persist.ungranted;
        let add_up = counters.requests == requests && persist.admitted_updates == updates;
        let fits = machine.session_count() <= self.scenario.device_sessions_max as usize;
        if !add_up {
            let detail = format!("device {device} has counted {counters:?} {persist:?}");
            self.must(Err(Violation::new(Invariant::Counters, detail)));
        } else if !fits {
            self.must(Err(Violation::new(
                Invariant::Bounded,
                format!("device {device} has too many sessions"),
            )));
        }
    }

    /// Tables are within their limits.
    pub(super) fn check_server(&mut self, server: usize) {
        let Some(machine) = self.servers[server].machine() else { return };
        // Beyond the limit only what is next is taken: one request of each session.
        let slack = machine.session_count() * scotfree_wire::REQUEST_BYTES_MAX;
        let fits = machine.session_count() <= super::server::SESSIONS_MAX
            && machine.buffer_bytes() <= self.scenario.buffer_bytes_max + slack;
        if !fits {
            let detail =
                format!("{} sessions, {} bytes wait", machine.session_count(), machine.buffer_bytes());
            self.must(Err(Violation::new(Invariant::Bounded, detail)));
        }
    }

    /// Whether replies may have to give way to new ones before their clients have them.
    pub(super) fn replies_are_scarce(&self) -> bool {
        self.scenario.replies_bytes_max < 1 << 20
    }

    /// Somebody without the key says that everything is stable, and sends again from elsewhere what the client
    /// has sent last.
    pub(super) fn forge(&mut self, client: usize) {
        let Some(machine) = self.clients[client].machine() else { return };
        let (Some(session), false) = (machine.session(), self.devices.is_empty()) else { return };
        let mut header = scotfree_wire::Header::new(Kind::ServerAck, session, scotfree_core::Epoch(u32::MAX));
        header.seq_num = SeqNum(1_000_000);
        header.flags = Flags::NONE;
        let key = scotfree_wire::Key::from_bytes([0x66; 16]);
        let mut bytes = Vec::new();
        scotfree_wire::emit(&header, &Tail::Empty, &[], &key, &mut bytes);
        let to = self.clients[client].address(client);
        self.engine.report.forged += 1;
        let head = Place::Device(0);
        let server = super::server_address(self.clients[client].server());
        self.inject(Place::Device(self.devices.len() - 1), server, to, bytes);
        let recorded = self.clients[client].recorded().to_vec();
        self.inject(head, ELSEWHERE, server, recorded);
    }
}
