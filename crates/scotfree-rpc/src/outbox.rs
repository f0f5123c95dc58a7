//! Sends the packets that a machine wished for, in bursts, straight from the effects' memory.
//!
//! Invariant: packets leave in the order of the wishes; what a full transport does not take stays
//! where it is and goes first the next time.

use scotfree_core::{Effect, Effects};
use scotfree_io::{Transport, TxPacket};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// How many packets are offered to the transport at once.
pub(crate) const BURST_MAX: usize = 32;
/// The same where no more effects wait: empty places cost time, too, and one call wishes for few.
const FEW: usize = 2;

/// How far sending has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// All packets are with the transport.
    All,
    /// The transport is full; the effect at this index is the first that waits.
    UpTo(usize),
}

/// Sends the packets of all effects from `next` on. `stamp` sees each packet just before, with the
/// index of its effect, and says under which key its transmit stamp is wanted, if at all.
pub(crate) fn flush<Own, T: Transport>(
    effects: &Effects<Own>,
    next: usize,
    transport: &mut T,
    stamp: impl FnMut(usize, &[u8]) -> Option<u32>,
) -> io::Result<Flushed> {
    if effects.len() - next <= FEW {
        flush_by::<FEW, Own, T>(effects, next, transport, stamp)
    } else {
        flush_by::<BURST_MAX, Own, T>(effects, next, transport, stamp)
    }
}

/// The same, with so many packets offered at once.
fn flush_by<const MAX: usize, Own, T: Transport>(
    effects: &Effects<Own>,
    mut next: usize,
    transport: &mut T,
    mut stamp: impl FnMut(usize, &[u8]) -> Option<u32>,
) -> io::Result<Flushed> {
    loop {
        let mut burst = Burst::<MAX>::new();
        for (index, effect) in effects.iter().enumerate().skip(next) {
            next = index + 1;
            if let Effect::Send { to, bytes, .. } = effect {
                let bytes = effects.bytes(*bytes);
                burst.push(index, TxPacket { to: *to, bytes, stamp: stamp(index, bytes) });
            }
            if burst.count == MAX {
                break;
            }
        }
        if burst.count == 0 {
            return Ok(Flushed::All);
        }
        let taken = transport.tx_burst(&burst.packets[..burst.count])?;
        if taken < burst.count {
            return Ok(Flushed::UpTo(burst.indices[taken]));
        }
    }
}

struct Burst<'a, const MAX: usize> {
    packets: [TxPacket<'a>; MAX],
    indices: [usize; MAX],
    count: usize,
}

impl<'a, const MAX: usize> Burst<'a, MAX> {
    fn new() -> Self {
        let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let empty = TxPacket { to: nobody, bytes: &[], stamp: None };
        Burst { packets: [empty; MAX], indices: [0; MAX], count: 0 }
    }

    fn push(&mut self, index: usize, packet: TxPacket<'a>) {
        self.packets[self.count] = packet;
        self.indices[self.count] = index;
        self.count += 1;
    }
}

/// The next effect from `processed` on that only the machine's shell can carry out.
pub(crate) fn next_own<Own: Copy>(effects: &Effects<Own>, processed: &mut usize) -> Option<Own> {
    for effect in effects.iter().skip(*processed) {
        *processed += 1;
        match effect {
            Effect::Own(own) => return Some(*own),
            Effect::Send { .. } => {}
            Effect::Persist { .. } | Effect::Erase { .. } => {
                unreachable!("clients and servers wish for no records of their own")
            }
        }
    }
    None
}
