//! What the log looks like, for tools, metrics and tests.

use crate::index::OrderPlace;
use crate::log::{Persist, Slot};
use scotfree_core::{Durability, KeyHash, Nanos, SeqNum};
use scotfree_device::{Base, Noted, SessionBase, SessionName};
use scotfree_wire::Stamp;

/// What is acknowledged and not yet stable: what a loss of this device would endanger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnsafeNow {
    /// How many entries.
    pub entries: u64,
    /// How many bytes of payload.
    pub bytes: u64,
    /// When the oldest was logged.
    pub oldest_since: Option<Nanos>,
}

/// One log entry, for tools and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEntryView<'a> {
    /// Its session.
    pub session: SessionName,
    /// Its place in the session.
    pub seq: SeqNum,
    /// Its stamp.
    pub stamp: Stamp,
    /// The durability that was asked for.
    pub asked: Durability,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// Whether it has been acknowledged.
    pub acknowledged: bool,
    /// The request.
    pub payload: &'a [u8],
}

impl Persist {
    fn live_slots<'a>(
        &'a self,
        base: &'a Base,
    ) -> impl Iterator<Item = (&'a SessionBase, &'a Slot, &'a Noted)> {
        base.sessions().iter().flat_map(move |(region, session)| {
            session.held().filter_map(move |seq| {
                let (slot, noted) = self.entry(region, session, seq)?;
                Some((session, slot, noted))
            })
        })
    }

    /// What is acknowledged and not yet stable.
    pub fn unsafe_now(&self, base: &Base) -> UnsafeNow {
        let mut gauge = UnsafeNow::default();
        for (_, slot, _) in self.live_slots(base).filter(|(_, slot, _)| slot.acknowledged) {
            gauge.entries += 1;
            gauge.bytes += slot.payload.len() as u64;
            gauge.oldest_since =
                Some(gauge.oldest_since.map_or(slot.logged_at, |oldest| oldest.min(slot.logged_at)));
        }
        gauge
    }

    /// The live entries, each server's in its order.
    pub fn entries<'a>(&'a self, base: &'a Base) -> impl Iterator<Item = LogEntryView<'a>> {
        let mut live: Vec<(OrderPlace, LogEntryView<'a>)> = self
            .live_slots(base)
            .map(|(session, slot, noted)| {
                let view = LogEntryView {
                    session: session.name,
                    seq: noted.seq,
                    stamp: noted.stamp,
                    asked: slot.asked,
                    key_hash: slot.key_hash,
                    acknowledged: slot.acknowledged,
                    payload: &slot.payload,
                };
                (OrderPlace::of(session.name.server, &noted.stamp), view)
            })
            .collect();
        live.sort_unstable_by_key(|(place, _)| *place);
        live.into_iter().map(|(_, view)| view)
    }
}
