//! Times a server's executions, until the reply and until they are stable.
//!
//! Invariant: an execution begins with the burst or the turn that brings it, by the clock that the loop reads
//! anyway; each is counted once when it has its reply, and a write once more when it is stable.

use crate::server_metrics::ServerDurations;
use scotfree_core::Nanos;
use scotfree_session::RequestKind;
use std::collections::VecDeque;

/// How many bursts with writes that are not stable are timed; writes of further ones are not counted as
/// stable.
const GROUPS_MAX: usize = 65_536;

/// Writes that began together.
#[derive(Debug)]
struct Group {
    begun: Nanos,
    /// The ticket of the last.
    last: u64,
    count: u64,
}

/// What is on its way, and what was counted.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    /// When the burst or the turn began.
    pub begun: Nanos,
    counted: ServerDurations,
    unstable: VecDeque<Group>,
}

impl Stopwatch {
    /// An execution begins.
    pub fn begin(&mut self, ticket: u64, kind: RequestKind) {
        if kind == RequestKind::Read {
            return;
        }
        let (begun, has_room) = (self.begun, self.unstable.len() < GROUPS_MAX);
        match self.unstable.back_mut() {
            Some(group) if group.begun == begun => {
                group.last = ticket;
                group.count += 1;
            }
            _ if has_room => self.unstable.push_back(Group { begun, last: ticket, count: 1 }),
            _ => {}
        }
    }

    /// An execution that began then has its reply.
    pub fn reply(&mut self, now: Nanos, begun: Nanos, kind: RequestKind) {
        self.counted.replied[kind as usize].record(now.since(begun));
    }

    /// Everything up to this ticket is stable. Writes that began together are counted with the last of them.
    pub fn settle(&mut self, now: Nanos, through: u64) {
        while let Some(group) = self.unstable.front().filter(|group| group.last <= through) {
            self.counted.stable.record_many(now.since(group.begun), group.count);
            self.unstable.pop_front();
        }
    }

    /// What was counted so far.
    pub fn counted(&self) -> ServerDurations {
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_counted_when_the_last_that_began_with_them_is_stable() {
        let mut watch = Stopwatch { begun: Nanos::from_millis(10), ..Stopwatch::default() };
        for (ticket, kind) in [(1, RequestKind::Update), (2, RequestKind::Read), (3, RequestKind::Update)] {
            watch.begin(ticket, kind);
        }
        watch.begun = Nanos::from_millis(20);
        watch.begin(4, RequestKind::Update);
        watch.reply(Nanos::from_millis(12), Nanos::from_millis(10), RequestKind::Read);
        let mut expected = ServerDurations::default();
        expected.replied[RequestKind::Read as usize].record(Nanos::from_millis(2));
        watch.settle(Nanos::from_millis(30), 2);
        assert_eq!(watch.counted(), expected);
        watch.settle(Nanos::from_millis(40), 3);
        expected.stable.record_many(Nanos::from_millis(30), 2);
        assert_eq!(watch.counted(), expected);
        watch.settle(Nanos::from_millis(41), 9);
        expected.stable.record(Nanos::from_millis(21));
        assert_eq!(watch.counted(), expected);
    }
}
