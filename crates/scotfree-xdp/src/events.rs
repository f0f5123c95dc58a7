//! What the programs did with one packet of many, for a look into the plane.
//!
//! Invariant: an outcome's place in [`OUTCOMES`] is its number in the programs.

use crate::plain::value_of;
use scotfree_core::{Nanos, SeqNum, SessionId};

/// What can become of a packet of Scotfree's, in the programs' order (`enum scot_verdict`).
const OUTCOMES: [&str; 7] =
    ["forward", "answer", "acknowledge", "tell-and-forward", "pass-up", "pass-up-request", "refuse"];

/// One packet, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When it came in, by the kernel's monotonic clock.
    pub at: Nanos,
    /// The port it came in by.
    pub ifindex: u32,
    /// Its kind, as its header says.
    pub kind: u8,
    /// The durability that was asked for, as its header says.
    pub asked: u8,
    /// The session that it names.
    pub session: SessionId,
    /// Its place there.
    pub seq: SeqNum,
    /// Its size in bytes, without network headers.
    pub packet_bytes: u16,
    /// What became of it.
    pub outcome: &'static str,
}

impl Event {
    /// Reads a `struct scot_event`, whose offsets the C side asserts.
    pub(crate) fn read(record: &[u8]) -> Option<Event> {
        let long = |at: usize| value_of::<u64>(record.get(at..)?);
        let [kind, asked, outcome, _, low, high] = *record.get(32..38)?.first_chunk()?;
        Some(Event {
            at: Nanos(long(24)?),
            ifindex: value_of(record.get(4..)?)?,
            kind,
            asked,
            session: SessionId(long(8)?),
            seq: SeqNum(long(16)?),
            packet_bytes: u16::from_ne_bytes([low, high]),
            outcome: OUTCOMES.get(usize::from(outcome)).copied()?,
        })
    }
}
