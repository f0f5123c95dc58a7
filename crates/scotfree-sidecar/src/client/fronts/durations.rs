//! How long clients' requests take, by what they are.
//!
//! Invariant: a request is counted once, when its reply is passed to its client's connection; one that nobody
//! waits for, and one that lost its session, is not.

use super::super::sessions::{Asker, Flight};
use scotfree_core::Nanos;
use scotfree_rpc::metrics::{DurationHistogram, Exemplar, Exemplars, MetricKind, MetricsText};
use scotfree_rpc::Recorded;
use scotfree_session::RequestKind;

const NAME: &str = "scotfree_front_request_duration_seconds";
const HELP: &str = "From when a client's request was read until its reply was there to be sent, by what it is: \
    an update answered when the server and what makes it durable have it (covered) or by the latter alone (early), \
    a read, or what bypasses the log";
const KINDS: [&str; 4] = ["covered", "early", "read", "bypass"];

/// The requests of one kind.
#[derive(Default)]
struct OfKind {
    durations: DurationHistogram,
    /// Of those whose calls were recorded.
    exemplars: Exemplars,
}

/// All requests.
#[derive(Default)]
pub(super) struct Durations([OfKind; KINDS.len()]);

impl Durations {
    /// A request is answered: those whose commands it carried have waited until `now`.
    pub fn note(&mut self, now: Nanos, flight: &Flight, recorded: Option<Recorded>) {
        let of_kind = &mut self.0[kind_of(flight)];
        for asker in flight.askers().filter(is_waited_for) {
            of_kind.durations.record(now.since(asker.called));
        }
        // The record is that of the call that the first one made.
        if let Some(Recorded { trace_id, span_id }) = recorded.filter(|_| is_waited_for(&flight.first)) {
            let duration = now.since(flight.first.called);
            let (trace_id, span_id) = (trace_id.0, span_id.0);
            of_kind.exemplars.note(Exemplar { trace_id, span_id, duration, at: now });
        }
    }

    pub fn write_metrics(&self, text: &mut MetricsText) {
        text.family(MetricKind::Histogram, NAME, HELP);
        for (kind, of_kind) in KINDS.iter().zip(&self.0) {
            text.histogram(NAME, &[("kind", kind)], &of_kind.durations, Some(&of_kind.exemplars));
        }
    }
}

fn is_waited_for(asker: &Asker) -> bool {
    asker.called != Nanos(0)
}

fn kind_of(flight: &Flight) -> usize {
    match flight.kind() {
        RequestKind::Update => usize::from(flight.first.early.is_some()),
        RequestKind::Read => 2,
        RequestKind::Bypass => 3,
    }
}
