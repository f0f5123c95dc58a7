//! Which entries live, by their place in the order and by their age.
//!
//! Invariant: neither allocates once it has been as large as it gets; what is found by order was put in under that
//! very key, and the first by age is an entry that lives.

use scotfree_core::{BootEpoch, Nanos, OrderNumber, SeqNum, ServerIndex};
use scotfree_device::{Region, SessionName};
use scotfree_wire::Stamp;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasherDefault, Hasher};

/// A place in a server's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OrderPlace {
    pub(crate) server: ServerIndex,
    pub(crate) boot_epoch: BootEpoch,
    pub(crate) number: OrderNumber,
}

impl OrderPlace {
    pub(crate) fn of(server: ServerIndex, stamp: &Stamp) -> OrderPlace {
        OrderPlace { server, boot_epoch: stamp.boot_epoch, number: stamp.number }
    }
}

/// Hashes numbers that this device or its head gave: nobody chooses them to collide.
#[derive(Debug, Default)]
pub(crate) struct OrderHasher(u64);

impl Hasher for OrderHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(26) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The entries that live, by their place in the order. It is asked for single places and never listed: the order in
/// which it would be listed is nobody's.
#[expect(clippy::disallowed_types, reason = "never iterated, and its hash is the same in every run")]
pub(crate) type OrderIndex =
    std::collections::HashMap<OrderPlace, (Region, SeqNum), BuildHasherDefault<OrderHasher>>;

/// An entry, and when it is to be sent to the server again.
pub(crate) type Due = (Nanos, SessionName, SeqNum, Region);

/// The entries that live, the one that is due next first. Those that live no more are let go when they come first, or
/// when they are more than those that do.
#[derive(Debug, Default)]
pub(crate) struct Aged(BinaryHeap<Reverse<Due>>);

/// Fewer than this are not worth a look.
const STALE_MIN: usize = 64;

impl Aged {
    pub(crate) fn push(&mut self, due: Due) {
        self.0.push(Reverse(due));
    }

    pub(crate) fn first(&self) -> Option<Due> {
        self.0.peek().map(|Reverse(due)| *due)
    }

    pub(crate) fn pop(&mut self) -> Option<Due> {
        self.0.pop().map(|Reverse(due)| due)
    }

    /// Lets go what `lives` does not hold for; `live_count` entries do.
    pub(crate) fn prune(&mut self, live_count: usize, lives: impl Fn(&Due) -> bool) {
        if self.0.len() > 2 * live_count + STALE_MIN {
            self.0.retain(|Reverse(due)| lives(due));
        }
        while self.0.peek().is_some_and(|Reverse(due)| !lives(due)) {
            self.0.pop();
        }
    }
}
