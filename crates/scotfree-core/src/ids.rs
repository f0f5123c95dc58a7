//! Newtypes for what would otherwise be interchangeable integers.

use crate::fnv::Fnv1a;
use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// A point in time or a span of time, in nanoseconds. Which clock is the shell's affair.
    Nanos(u64)
);
id!(
    /// A client's session with a server; never reused. 0 is the control session between server and
    /// devices.
    SessionId(u64)
);
id!(
    /// The incarnation of a server; grows with every start. Every server message carries it.
    Epoch(u32)
);
id!(
    /// The place of a request in its session, from 1, contiguous over all request kinds.
    SeqNum(u64)
);
id!(
    /// A slot of a device's log.
    SlotIndex(u32)
);
id!(
    /// A hash over database and key.
    KeyHash(u64)
);

impl KeyHash {
    /// The hash of a key in a database, as it goes on the wire; never 0, which is that of no key.
    pub fn of(db: u16, key: &[u8]) -> KeyHash {
        let hash = Fnv1a::EMPTY.and(&db.to_le_bytes()).and(key).value();
        // A finalizer, since the hash's upper bits move little for short keys.
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        KeyHash((mixed ^ (mixed >> 32)).max(1))
    }
}

id!(
    /// A place in a device's total order of logged updates, from 1 in each boot epoch.
    OrderNumber(u64)
);
id!(
    /// A device, unique in its cluster.
    DeviceId(u16)
);
id!(
    /// The incarnation of a device; grows with every start.
    BootEpoch(u32)
);

id!(
    /// A server behind a device, by its place in the device's list of them, from 0.
    ServerIndex(u8)
);

/// How many servers stand behind one device at most.
pub const SERVERS_MAX: usize = 16;

/// The place of a logged update in the order of its cluster. No two heads have the same boot epoch:
/// the server sees to that when it grants leases.
pub type OrderKey = (BootEpoch, OrderNumber);

impl Nanos {
    /// The largest representable time: "never".
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// `count` microseconds.
    pub const fn from_micros(count: u64) -> Nanos {
        Nanos(count * 1_000)
    }

    /// `count` milliseconds.
    pub const fn from_millis(count: u64) -> Nanos {
        Nanos(count * 1_000_000)
    }

    /// `count` seconds.
    pub const fn from_secs(count: u64) -> Nanos {
        Nanos(count * 1_000_000_000)
    }

    /// This time plus `span`, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn plus(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }

    /// The span from `earlier` to this time, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl SeqNum {
    /// The next place in the session.
    #[must_use]
    pub const fn next(self) -> SeqNum {
        SeqNum(self.0.saturating_add(1))
    }
}

impl OrderNumber {
    /// The next place in the order.
    #[must_use]
    pub const fn next(self) -> OrderNumber {
        OrderNumber(self.0 + 1)
    }
}

/// A session's name: sessions of two servers may bear the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionName {
    /// Whose session it is.
    pub server: ServerIndex,
    /// Its id there.
    pub id: SessionId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_at_both_ends() {
        assert_eq!(Nanos::MAX.plus(Nanos(1)), Nanos::MAX);
        assert_eq!(Nanos(1).since(Nanos(2)), Nanos(0));
        assert_eq!(Nanos::from_millis(2), Nanos::from_micros(2_000));
    }
}
