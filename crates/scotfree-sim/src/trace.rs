//! What happened, kept as small values and put into words only when somebody asks.
//!
//! Invariant: recording allocates nothing once the ring is full, and never changes the run.

use crate::app::Op;
use crate::network::Place;
use scotfree_core::{Nanos, SeqNum, SessionId};
use scotfree_wire::{Flags, Kind, Packet, Stamp, StampKind, Tail};
use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::net::SocketAddr;

/// How many happenings are kept when not all are wanted.
const KEPT_MAX: usize = 250;

/// How much of a run is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// The last few hundred happenings.
    #[default]
    Last,
    /// All of them.
    All,
    /// The last few hundred, and a hash over all.
    Hashed,
}

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

/// Why a packet went no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The network lost it.
    Lost,
    /// The link is cut.
    Cut,
    /// Nobody is there.
    Down,
    /// The device absorbed it.
    Absorbed,
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// A packet was sent.
    Sent {
        /// To whom.
        to: SocketAddr,
        /// What.
        sight: Sight,
    },
    /// A packet went no further.
    Ended {
        /// Why.
        why: Loss,
        /// What.
        sight: Sight,
    },
    /// A packet arrived.
    Arrived {
        /// What.
        sight: Sight,
    },
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
    /// A timer went off.
    Woke,
    /// Something else, with a number that says more.
    Note(&'static str, u64),
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::Sent { to, sight } => write!(f, "sends to {to}: {sight}"),
            Happening::Ended { why, sight } => write!(f, "{why:?}: {sight}"),
            Happening::Arrived { sight } => write!(f, "gets {sight}"),
            Happening::Invoked { seq, op } => write!(f, "asks {seq}: {op:?}"),
            Happening::Completed { seq } => write!(f, "is told that {seq} is complete"),
            Happening::Executed { session, seq, ticket } => {
                write!(f, "executes {:x}:{seq} under ticket {ticket}", session.0)
            }
            Happening::Synced { written, ticket } => {
                write!(f, "has synced {written} records, ticket {ticket}")
            }
            Happening::Erased { session, seq } => write!(f, "erases {session:x}:{seq}"),
            Happening::Woke => f.write_str("wakes"),
            Happening::Note(what, number) => write!(f, "{what} ({number})"),
        }
    }
}

/// A happening with its time and place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When, by the world's clock.
    pub at: Nanos,
    /// In which step.
    pub step: u64,
    /// Where.
    pub place: Place,
    /// What.
    pub what: Happening,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { at, step, place, what } = self;
        write!(f, "{:>12.3} us  step {step:<6} {:<10} {what}", at.0 as f64 / 1e3, place.to_string())
    }
}

/// What happened.
#[derive(Debug)]
pub struct Trace {
    depth: Depth,
    entries: VecDeque<Entry>,
    hash: TextHash,
}

/// FNV-1a over what would be shown: words outlive types, so that a run can be compared with one of another build.
#[derive(Debug)]
struct TextHash(u64);

impl TextHash {
    const EMPTY: TextHash = TextHash(0xcbf2_9ce4_8422_2325);
}

impl Write for TextHash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

impl Trace {
    /// Nothing yet.
    pub fn new(depth: Depth) -> Trace {
        Trace { depth, entries: VecDeque::with_capacity(KEPT_MAX), hash: TextHash::EMPTY }
    }

    /// Adds a happening.
    pub fn note(&mut self, entry: Entry) {
        if self.depth == Depth::Hashed {
            // Writing to a hash cannot fail.
            let _ = writeln!(self.hash, "{entry}");
        }
        if self.depth != Depth::All && self.entries.len() == KEPT_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// The hash over all that happened; 0 unless it was wanted.
    pub fn hash(&self) -> u64 {
        if self.depth == Depth::Hashed {
            self.hash.0
        } else {
            0
        }
    }

    /// All that is kept.
    pub fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_happenings_are_kept_unless_all_are_wanted() {
        for (depth, kept) in [(Depth::Last, KEPT_MAX), (Depth::All, 2 * KEPT_MAX)] {
            let mut trace = Trace::new(depth);
            for step in 0..2 * KEPT_MAX as u64 {
                trace.note(Entry { at: Nanos(step), step, place: Place::Server, what: Happening::Woke });
            }
            let entries = trace.take();
            assert_eq!(entries.len(), kept);
            assert_eq!(entries.last().map(|entry| entry.step), Some(2 * KEPT_MAX as u64 - 1));
        }
    }

    #[test]
    fn the_hash_sees_every_happening_and_their_order() {
        let hash_of = |steps: &[u64]| {
            let mut trace = Trace::new(Depth::Hashed);
            for step in steps {
                let (at, place) = (Nanos(*step), Place::Server);
                trace.note(Entry { at, step: *step, place, what: Happening::Woke });
            }
            trace.hash()
        };
        assert_eq!(hash_of(&[1, 2]), hash_of(&[1, 2]));
        assert_ne!(hash_of(&[1, 2]), hash_of(&[2, 1]));
        assert_ne!(hash_of(&[1, 2]), hash_of(&[1, 2, 2]));
    }

    #[test]
    fn a_damaged_packet_can_be_shown() {
        assert_eq!(Sight::of(b"nonsense").to_string(), "(damaged)");
    }
}
