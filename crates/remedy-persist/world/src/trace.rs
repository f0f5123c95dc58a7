//! What the trace shows of persist: packets' outsides, and what roles do.
//!
//! Invariant: a sight and a deed are small values, put into words only when somebody asks.

use crate::app::Op;
use scotfree_core::{SeqNum, SessionId};
use scotfree_wire::{Flags, Kind, Packet, Stamp, StampKind, Tail};
use std::fmt;

pub use scotfree_sim::trace::{Depth, Loss};

/// What happens in this world.
pub type Happening = scotfree_sim::Happening<Sight, Deed>;

/// A packet's outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// What it is; `None` if it is not one of ours.
    pub kind: Option<Kind>,
    /// Its flags.
    pub flags: Flags,
    /// Its session.
    pub session: SessionId,
    /// Its place in the session.
    pub seq: SeqNum,
    /// Its stamp.
    pub stamp: Stamp,
    /// The epoch in it.
    pub epoch: u32,
    /// Fragment and fragments.
    pub fragment: (u16, u16),
    /// The two most telling numbers of its tail.
    pub said: (u64, u64),
}

impl Sight {
    /// Looks at a packet.
    pub fn of(bytes: &[u8]) -> Sight {
        match Packet::parse(bytes) {
            Ok(packet) => Sight::of_packet(&packet),
            Err(_) => Sight::NOTHING,
        }
    }

    const NOTHING: Sight = Sight {
        kind: None,
        flags: Flags::NONE,
        session: SessionId(0),
        seq: SeqNum(0),
        stamp: Stamp {
            kind: StampKind::None,
            device: scotfree_core::DeviceId(0),
            boot_epoch: scotfree_core::BootEpoch(0),
            number: scotfree_core::OrderNumber(0),
            previous_write: SeqNum(0),
        },
        epoch: 0,
        fragment: (0, 1),
        said: (0, 0),
    };

    fn of_packet(packet: &Packet<'_>) -> Sight {
        let header = packet.header();
        Sight {
            kind: Some(header.kind),
            flags: header.flags,
            session: header.session,
            seq: header.seq_num,
            stamp: packet.stamp(),
            epoch: header.epoch.0,
            fragment: (header.fragment_index, header.fragment_count),
            said: told(packet.tail()),
        }
    }
}

fn told(tail: &Tail) -> (u64, u64) {
    match tail {
        Tail::Empty | Tail::Stamp(_) | Tail::Response(_) => (0, 0),
        Tail::Open(tail) => (u64::from(tail.window_asked), 0),
        Tail::Accept(tail) => (u64::from(tail.window), u64::from(tail.expiry_ms)),
        Tail::Close(tail) => (tail.reason as u64, 0),
        Tail::Range(tail) => (tail.first, tail.last),
        Tail::Manifest(tail) => (tail.order_current.0, u64::from(tail.boot_epoch.0)),
        Tail::Heartbeat(tail) => (tail.highest.0, tail.stable.0),
        Tail::Lease(tail) => (tail.duration.0, u64::from(tail.boot_epoch.0)),
        Tail::Busy(tail) => (tail.backoff.0, 0),
    }
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kind) = self.kind else { return f.write_str("(damaged)") };
        write!(f, "{kind:?} {:x}:{}", self.session.0, self.seq)?;
        if self.fragment.1 > 1 {
            write!(f, " part {}/{}", self.fragment.0 + 1, self.fragment.1)?;
        }
        if self.stamp.kind != StampKind::None {
            let Stamp { kind, device, boot_epoch, number, previous_write } = self.stamp;
            write!(f, " {kind:?} {boot_epoch}.{number} by d{device} after {previous_write}")?;
        }
        if self.said != (0, 0) {
            write!(f, " says {}, {}", self.said.0, self.said.1)?;
        }
        let names = [
            (Flags::EARLY, "early"),
            (Flags::SKIP, "skip"),
            (Flags::VOID, "void"),
            (Flags::CONFIRMED, "confirmed"),
            (Flags::FAILED, "failed"),
            (Flags::AGAIN, "again"),
        ];
        for (_, name) in names.iter().filter(|(flag, _)| self.flags.has(*flag)) {
            write!(f, " {name}")?;
        }
        write!(f, " e{}", self.epoch)
    }
}

/// What a role did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// A client made a request.
    Invoked {
        /// Its place in the session.
        seq: SeqNum,
        /// What it asks.
        op: Op,
    },
    /// A client was told that a request is complete.
    Completed {
        /// Its place in the session.
        seq: SeqNum,
    },
    /// The application did something.
    Executed {
        /// Whose.
        session: SessionId,
        /// Its place in the session.
        seq: SeqNum,
        /// Under which ticket.
        ticket: u64,
    },
    /// Storage is synced up to a record and a ticket.
    Synced {
        /// The record.
        written: usize,
        /// The ticket.
        ticket: u64,
    },
    /// A device erased an entry.
    Erased {
        /// Its session.
        session: u64,
        /// Its place.
        seq: u64,
    },
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Invoked { seq, op } => write!(f, "asks {seq}: {op:?}"),
            Deed::Completed { seq } => write!(f, "is told that {seq} is complete"),
            Deed::Executed { session, seq, ticket } => {
                write!(f, "executes {:x}:{seq} under ticket {ticket}", session.0)
            }
            Deed::Synced { written, ticket } => {
                write!(f, "has synced {written} records, ticket {ticket}")
            }
            Deed::Erased { session, seq } => write!(f, "erases {session:x}:{seq}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_packet_can_be_shown() {
        assert_eq!(Sight::of(b"nonsense").to_string(), "(damaged)");
    }
}
