//! Reads that functions of devices answered in a server's place, and that the server is to pass over.
//!
//! Invariant: when a device passes on the next request of a session, that request's word of what is complete or one
//! `Read | SKIP` before it covers every read that the device has answered; else the server would wait for them.

use super::{place_of, World};
use crate::model::{Invariant, Violation};
use crate::place::Place;
use crate::trace::Sight;
use scotfree_core::{SeqNum, SessionId};
use scotfree_sim::Protocol;
use scotfree_wire::{Flags, Kind, Packet};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A device, a server, and a session of its.
type Name = (usize, usize, SessionId);

/// The last read of each session that a device has answered.
#[derive(Debug, Default)]
pub(super) struct AnsweredReads(BTreeMap<Name, Answered>);

#[derive(Debug, Clone, Copy)]
struct Answered {
    last: SeqNum,
    /// Whether the server can know of it.
    told: bool,
}

impl AnsweredReads {
    /// A device has forgotten what it has answered.
    pub(super) fn forget(&mut self, device: usize) {
        self.0.retain(|(of, _, _), _| *of != device);
    }

    fn answered(&mut self, name: Name, seq: SeqNum) {
        let known = self.0.entry(name).or_insert(Answered { last: SeqNum(0), told: true });
        // An answer that is given again was answered before.
        if seq > known.last {
            *known = Answered { last: seq, told: false };
        }
    }

    fn told(&mut self, name: Name, last: SeqNum) {
        if let Some(known) = self.0.get_mut(&name).filter(|known| known.last <= last) {
            known.told = true;
        }
    }

    /// What a server has not been told of.
    fn untold(&self, name: Name) -> Option<SeqNum> {
        self.0.get(&name).filter(|known| !known.told).map(|known| known.last)
    }
}

impl World {
    /// A device answers a client, or tells a server what to pass over.
    pub(super) fn spy_on_answer(&mut self, device: usize, to: SocketAddr, sight: &Sight) {
        match (place_of(to), sight.kind) {
            (Some(Place::Client(client)), Some(Kind::Response)) => {
                let name = (device, self.clients[client].server(), sight.session);
                self.answered.answered(name, sight.seq);
            }
            (Some(Place::Server(server)), Some(Kind::Read)) if sight.flags.has(Flags::SKIP) => {
                self.answered.told((device, server, sight.session), sight.seq);
            }
            _ => {}
        }
    }

    /// A request has taken its place at a device, which passes it on.
    pub(super) fn spy_on_admitted(&mut self, device: usize, to: SocketAddr, bytes: &[u8]) {
        let (Some(Place::Server(server)), Ok(packet)) = (place_of(to), Packet::parse(bytes)) else { return };
        let name = (device, server, packet.session());
        let Some(last) = self.answered.untold(name) else { return };
        if packet.header().completed < last {
            let detail = format!(
                "device {device} passes {} on, and not that it has answered {last}",
                Sight::of(bytes)
            );
            self.must(Err(Violation::new(Invariant::PassedOver, detail)));
        }
        self.answered.told(name, last);
    }
}
