//! Packets on their way.
//!
//! Invariant: every packet is delivered, lost, absorbed or under way; none is forgotten.

use super::{place_of, Event, World};
use crate::network::{next_place, Place};
use crate::scenario::Drop;
use crate::trace::{Happening, Loss, Sight};
use scotfree_core::{Nanos, SeqNum};
use std::net::SocketAddr;

/// A packet under way.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) sight: Sight,
}

/// Names a packet under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketId(u32);

/// All packets under way; the memory of those that have arrived is used again.
#[derive(Debug, Default)]
pub(super) struct Packets {
    under_way: Vec<Option<Packet>>,
    free: Vec<PacketId>,
    spare: Vec<Vec<u8>>,
}

impl Packets {
    fn add(&mut self, packet: Packet) -> PacketId {
        if let Some(id) = self.free.pop() {
            self.under_way[id.0 as usize] = Some(packet);
            return id;
        }
        self.under_way.push(Some(packet));
        PacketId(self.under_way.len() as u32 - 1)
    }

    fn take(&mut self, id: PacketId) -> Packet {
        self.free.push(id);
        self.under_way[id.0 as usize].take().expect("a packet arrives once")
    }

    pub(super) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        copy
    }

    pub(super) fn recycle(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spare.push(bytes);
    }
}

impl World {
    /// A role at `at` sends a packet.
    pub(super) fn send(&mut self, at: Place, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let sight = Sight::of(bytes);
        self.report.packets_sent += 1;
        self.note(at, Happening::Sent { to, sight });
        self.spy(at, to, &sight, bytes);
        let bytes = self.packets.copy(bytes);
        let packet = Packet { from, to, bytes, sight };
        if self.is_swallowed(at, &sight) {
            return self.end(at, packet, Loss::Lost);
        }
        let Some(target) = place_of(to) else { return self.end(at, packet, Loss::Down) };
        let next = self.first_hop(at, target);
        self.hop(at, next, packet);
    }

    /// Between clients and server there may be a way around the devices.
    fn first_hop(&mut self, at: Place, target: Place) -> Place {
        let between_ends =
            matches!((at, target), (Place::Client(_), Place::Server) | (Place::Server, Place::Client(_)));
        if between_ends && !self.devices.is_empty() && self.chance.network.chance(self.quality.detour) {
            self.report.packets_detoured += 1;
            return target;
        }
        next_place(at, target, self.devices.len())
    }

    /// Sends a packet on from a device.
    pub(super) fn pass_on(&mut self, at: Place, packet: Packet) {
        match place_of(packet.to) {
            Some(target) => self.hop(at, next_place(at, target, self.devices.len()), packet),
            None => self.end(at, packet, Loss::Down),
        }
    }

    fn hop(&mut self, at: Place, next: Place, packet: Packet) {
        if self.cuts.is_cut(at, next) {
            return self.end(at, packet, Loss::Cut);
        }
        if self.is_dropped(at, next, &packet.sight) {
            return self.end(at, packet, Loss::Lost);
        }
        if self.chance.network.chance(self.quality.duplication) {
            self.report.packets_doubled += 1;
            let twin = Packet { bytes: self.packets.copy(&packet.bytes), ..packet };
            self.launch(at, next, twin);
        }
        self.launch(at, next, packet);
    }

    /// Whether the scenario wants this very packet to vanish.
    fn is_dropped(&mut self, at: Place, next: Place, sight: &Sight) -> bool {
        let wanted = |drop: &&mut Drop| {
            let place = drop.seq == SeqNum(0) || drop.seq == sight.seq;
            drop.count > 0 && drop.from == at && drop.to == next && Some(drop.kind) == sight.kind && place
        };
        let found = self.scenario.drops.iter_mut().find(wanted);
        found.map(|drop| drop.count -= 1).is_some()
    }

    fn launch(&mut self, at: Place, next: Place, mut packet: Packet) {
        let Some(delay) = self.quality.delay(&mut self.chance.network) else {
            self.report.packets_lost += 1;
            return self.end(at, packet, Loss::Lost);
        };
        self.report.packets_late += u64::from(delay > self.quality.delay_max);
        if self.quality.corrupt(&mut self.chance.network, &mut packet.bytes) {
            self.report.packets_damaged += 1;
            packet.sight = Sight::of(&packet.bytes);
        }
        self.deliver_after(delay, next, packet);
    }

    fn deliver_after(&mut self, delay: Nanos, next: Place, packet: Packet) {
        let id = self.packets.add(packet);
        self.queue.push(self.now.plus(delay), Event::Arrive(next, id));
    }

    /// Brings a packet to its next place with certainty.
    pub(super) fn inject(&mut self, next: Place, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let sight = Sight::of(&bytes);
        self.deliver_after(Nanos(1_000), next, Packet { from, to, bytes, sight });
    }

    pub(super) fn end(&mut self, at: Place, packet: Packet, why: Loss) {
        self.note(at, Happening::Ended { why, sight: packet.sight });
        self.packets.recycle(packet.bytes);
    }

    pub(super) fn arrive(&mut self, place: Place, id: PacketId) {
        let packet = self.packets.take(id);
        match place {
            Place::Client(client) => self.arrive_at_client(client, packet),
            Place::Device(device) => self.arrive_at_device(device, packet),
            Place::Server => self.arrive_at_server(packet),
        }
    }
}
