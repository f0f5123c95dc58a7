//! The last packets that the programs in the kernel were asked to tell of.
//!
//! Invariant: at most [`EVENTS_MAX`] are kept; the oldest go first.

use scotfree_wire::Kind;
use scotfree_xdp::Event;
use std::collections::VecDeque;
use std::fmt::Write;

/// How many are kept.
pub(crate) const EVENTS_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<Event>);

impl Events {
    pub(crate) fn add(&mut self, event: Event) {
        if self.0.len() == EVENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    /// A line of JSON for each, the oldest first.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for event in &self.0 {
            let kind = Kind::from_code(event.kind).map_or("unknown", Kind::name);
            // Names and numbers need no escaping, and a string takes all.
            let _ = writeln!(
                text,
                "{{\"monotonic_ns\":{},\"ifindex\":{},\"kind\":\"{kind}\",\"asked\":{},\"session\":{},\"seq\":{},\
                 \"packet_bytes\":{},\"outcome\":\"{}\"}}",
                event.at.0,
                event.ifindex,
                event.asked,
                event.session.0,
                event.seq.0,
                event.packet_bytes,
                event.outcome
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_core::{Nanos, SeqNum, SessionId};

    #[test]
    fn the_last_are_kept_and_told_in_their_order() {
        let mut events = Events::default();
        for seq in 0..EVENTS_MAX as u64 + 2 {
            events.add(Event {
                at: Nanos(seq * 10),
                ifindex: 7,
                kind: 1,
                asked: 1,
                session: SessionId(5),
                seq: SeqNum(seq),
                packet_bytes: 160,
                outcome: "acknowledge",
            });
        }
        let text = events.text();
        assert_eq!(text.lines().count(), EVENTS_MAX);
        let first = text.lines().next().expect("there are lines");
        let kind = Kind::from_code(1).expect("it is one").name();
        assert_eq!(
            first,
            format!(
                "{{\"monotonic_ns\":20,\"ifindex\":7,\"kind\":\"{kind}\",\"asked\":1,\"session\":5,\"seq\":2,\
                 \"packet_bytes\":160,\"outcome\":\"acknowledge\"}}"
            )
        );
    }
}
