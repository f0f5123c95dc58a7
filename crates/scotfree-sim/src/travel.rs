//! Packets on their way.
//!
//! Invariant: every packet is delivered, lost, absorbed or under way; none is forgotten.

use crate::engine::{Engine, Event};
use crate::protocol::Protocol;
use crate::report::Counters;
use crate::trace::{Happening, Loss};
use scotfree_core::Nanos;
use std::net::SocketAddr;

/// How long a packet takes that is brought to its place with certainty.
const INJECTED_AFTER: Nanos = Nanos(1_000);

/// A packet under way.
#[derive(Debug)]
pub struct Packet<Sight> {
    /// Whose address it bears as its sender's.
    pub from: SocketAddr,
    /// Whom it is for.
    pub to: SocketAddr,
    /// The packet.
    pub bytes: Vec<u8>,
    /// Its outside.
    pub sight: Sight,
}

/// Names a packet under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketId(u32);

/// All packets under way; the memory of those that have arrived is used again.
#[derive(Debug)]
pub struct Packets<Sight> {
    under_way: Vec<Option<Packet<Sight>>>,
    free: Vec<PacketId>,
    spare: Vec<Vec<u8>>,
}

impl<Sight> Default for Packets<Sight> {
    fn default() -> Self {
        Packets { under_way: Vec::new(), free: Vec::new(), spare: Vec::new() }
    }
}

impl<Sight> Packets<Sight> {
    fn add(&mut self, packet: Packet<Sight>) -> PacketId {
        if let Some(id) = self.free.pop() {
            self.under_way[id.0 as usize] = Some(packet);
            return id;
        }
        self.under_way.push(Some(packet));
        PacketId(self.under_way.len() as u32 - 1)
    }

    pub(crate) fn take(&mut self, id: PacketId) -> Packet<Sight> {
        self.free.push(id);
        self.under_way[id.0 as usize].take().expect("a packet arrives once")
    }

    /// A copy, in memory that has been used before.
    pub fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        copy
    }

    /// Takes back what a packet needs no longer.
    pub fn recycle(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spare.push(bytes);
    }
}

/// How packets get from role to role. Every protocol has it.
pub trait Travel: Protocol {
    /// A role at `at` sends a packet.
    fn send(&mut self, at: Self::Place, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let sight = Self::sight(bytes);
        let engine = self.engine_mut();
        engine.report.tally_mut().packets_sent += 1;
        engine.note(at, Happening::Sent { to, sight });
        self.saw(at, to, &sight, bytes);
        let bytes = self.engine_mut().packets.copy(bytes);
        let packet = Packet { from, to, bytes, sight };
        if self.vanishes(at, &sight) {
            return self.end(at, packet, Loss::Lost);
        }
        let Some(target) = Self::place_of(to) else { return self.end(at, packet, Loss::Down) };
        let next = first_hop(self, at, target);
        hop(self, at, next, packet);
    }

    /// A role at `at` sends a packet of others on.
    fn pass_on(&mut self, at: Self::Place, packet: Packet<Self::Sight>) {
        match Self::place_of(packet.to) {
            Some(target) => {
                let next = self.next_place(at, target);
                hop(self, at, next, packet);
            }
            None => self.end(at, packet, Loss::Down),
        }
    }

    /// Brings a packet to a place with certainty.
    fn inject(&mut self, next: Self::Place, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let sight = Self::sight(&bytes);
        self.engine_mut().deliver_after(INJECTED_AFTER, next, Packet { from, to, bytes, sight });
    }

    /// A packet goes no further.
    fn end(&mut self, at: Self::Place, packet: Packet<Self::Sight>, why: Loss) {
        self.engine_mut().end(at, packet, why);
    }
}

impl<P: Protocol> Travel for P {}

/// The first place on the way, unless there is a way around and chance takes it.
fn first_hop<P: Protocol>(world: &mut P, at: P::Place, target: P::Place) -> P::Place {
    if world.has_detour(at, target) {
        let engine = world.engine_mut();
        if engine.chance.network.chance(engine.quality.detour) {
            engine.report.tally_mut().packets_detoured += 1;
            return target;
        }
    }
    world.next_place(at, target)
}

fn hop<P: Protocol>(world: &mut P, at: P::Place, next: P::Place, packet: Packet<P::Sight>) {
    if world.engine().cuts.is_cut(at, next) {
        return world.engine_mut().end(at, packet, Loss::Cut);
    }
    if world.vanishes_between(at, next, &packet.sight) {
        return world.engine_mut().end(at, packet, Loss::Lost);
    }
    let engine = world.engine_mut();
    if engine.chance.network.chance(engine.quality.duplication) {
        engine.report.tally_mut().packets_doubled += 1;
        let twin = Packet { bytes: engine.packets.copy(&packet.bytes), ..packet };
        launch(engine, at, next, twin);
    }
    launch(engine, at, next, packet);
}

fn launch<P: Protocol>(engine: &mut Engine<P>, at: P::Place, next: P::Place, mut packet: Packet<P::Sight>) {
    let Some(delay) = engine.quality.delay(&mut engine.chance.network) else {
        engine.report.tally_mut().packets_lost += 1;
        return engine.end(at, packet, Loss::Lost);
    };
    engine.report.tally_mut().packets_late += u64::from(delay > engine.quality.delay_max);
    if engine.quality.corrupt(&mut engine.chance.network, &mut packet.bytes) {
        engine.report.tally_mut().packets_damaged += 1;
        packet.sight = P::sight(&packet.bytes);
    }
    engine.deliver_after(delay, next, packet);
}

impl<P: Protocol> Engine<P> {
    fn deliver_after(&mut self, delay: Nanos, next: P::Place, packet: Packet<P::Sight>) {
        let id = self.packets.add(packet);
        self.queue.push(self.now.plus(delay), Event::Arrive(next, id));
    }

    fn end(&mut self, at: P::Place, packet: Packet<P::Sight>, why: Loss) {
        self.note(at, Happening::Ended { why, sight: packet.sight });
        self.packets.recycle(packet.bytes);
    }
}
