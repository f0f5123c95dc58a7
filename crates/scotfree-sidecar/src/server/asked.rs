//! How long the Redis takes for requests.
//!
//! Invariant: a request is timed from the poll that sends it to the one that finds its reply, by the clock
//! that polls read anyway; what is never answered is forgotten when its place is needed.

use scotfree_core::Nanos;
use scotfree_rpc::metrics::{DurationHistogram, MetricKind, MetricsText};
use scotfree_session::RequestKind;

/// How many requests on their way are timed: with more of them the oldest are not counted.
const TIMED_MAX: usize = 16_384;
const NAME: &str = "scotfree_redis_request_duration_seconds";
const HELP: &str =
    "From when a request was due to be sent to the Redis server until it had replied, by what it is, the \
    wait for the transaction before it included";
const KINDS: [&str; 3] = ["update", "read", "bypass"];

/// A request on its way.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    /// 0: none.
    ticket: u64,
    kind: u8,
    sent: Nanos,
}

/// The requests on their way, and how long others took.
#[derive(Debug)]
pub(super) struct Asked {
    /// By their tickets, which are contiguous: the newer takes the place of an older one.
    requests: Box<[Request]>,
    /// Those that the next poll sends.
    unsent: Vec<u64>,
    durations: [DurationHistogram; KINDS.len()],
}

impl Default for Asked {
    fn default() -> Asked {
        let requests = vec![Request::default(); TIMED_MAX].into_boxed_slice();
        Asked { requests, unsent: Vec::new(), durations: Default::default() }
    }
}

impl Asked {
    /// A request is handed over.
    pub fn ask(&mut self, ticket: u64, kind: RequestKind) {
        let kind = match kind {
            RequestKind::Update => 0,
            RequestKind::Read => 1,
            RequestKind::Bypass => 2,
        };
        *self.place(ticket) = Request { ticket, kind, sent: Nanos(0) };
        self.unsent.push(ticket);
    }

    /// What was handed over is sent.
    pub fn send(&mut self, now: Nanos) {
        let Asked { requests, unsent, .. } = self;
        for ticket in unsent.drain(..) {
            requests[ticket as usize % TIMED_MAX].sent = now;
        }
    }

    /// A reply has come.
    pub fn answer(&mut self, now: Nanos, ticket: u64) {
        let place = self.place(ticket);
        if place.ticket == ticket {
            let Request { kind, sent, .. } = std::mem::take(place);
            self.durations[usize::from(kind)].record(now.since(sent));
        }
    }

    pub fn write_metrics(&self, text: &mut MetricsText) {
        text.family(MetricKind::Histogram, NAME, HELP);
        for (kind, durations) in KINDS.iter().zip(&self.durations) {
            text.histogram(NAME, &[("kind", kind)], durations, None);
        }
    }

    fn place(&mut self, ticket: u64) -> &mut Request {
        &mut self.requests[ticket as usize % TIMED_MAX]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations_ms: &[u64]) -> DurationHistogram {
        let mut expected = DurationHistogram::default();
        for ms in durations_ms {
            expected.record(Nanos::from_millis(*ms));
        }
        expected
    }

    #[test]
    fn requests_are_timed_from_the_poll_that_sends_them_and_once() {
        let mut asked = Asked::default();
        asked.ask(1, RequestKind::Update);
        asked.ask(2, RequestKind::Read);
        asked.send(Nanos::from_millis(10));
        asked.ask(3, RequestKind::Read);
        asked.send(Nanos::from_millis(15));
        // Reads may overtake.
        asked.answer(Nanos::from_millis(20), 3);
        asked.answer(Nanos::from_millis(40), 1);
        asked.answer(Nanos::from_millis(90), 1);
        asked.answer(Nanos::from_millis(90), 7);
        assert_eq!(asked.durations, [of(&[30]), of(&[5]), of(&[])]);
    }

    #[test]
    fn what_is_never_answered_takes_no_place_for_ever() {
        let mut asked = Asked::default();
        let newer = 1 + TIMED_MAX as u64;
        asked.ask(1, RequestKind::Bypass);
        asked.send(Nanos::from_millis(1));
        asked.ask(newer, RequestKind::Bypass);
        asked.send(Nanos::from_millis(2));
        asked.answer(Nanos::from_millis(3), newer);
        asked.answer(Nanos::from_millis(9), 1);
        assert_eq!(asked.durations[2], of(&[1]));
    }
}
