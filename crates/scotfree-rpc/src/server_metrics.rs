//! What a server's operator wants to know, as a snapshot and as Prometheus text.
//!
//! Invariant: every counter of the machine and of the runtime appears, under a name that says what is
//! counted and, last, in which unit.

use crate::metrics::{DurationHistogram, MetricKind, MetricsText};
use crate::server::ServerRuntimeCounters;
use scotfree_core::Nanos;
use scotfree_io::udp::UdpCounters;
use scotfree_session::ServerCounters;
use scotfree_wire::{WireError, WIRE_ERROR_COUNT};

/// The names of the kinds of requests, in their order.
const KINDS: [&str; 3] = ["update", "read", "bypass"];

/// How long a server's executions have taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerDurations {
    /// Until the reply, by kind of request.
    pub replied: [DurationHistogram; 3],
    /// Writes until storage held them.
    pub stable: DurationHistogram,
}

impl ServerDurations {
    fn write(&self, text: &mut MetricsText) {
        let name = "scotfree_server_execution_duration_seconds";
        let help = "From handing a request to the service until its reply, by what it is.";
        text.family(MetricKind::Histogram, name, help);
        for (kind, durations) in KINDS.iter().zip(&self.replied) {
            text.histogram(name, &[("kind", kind)], durations, None);
        }
        let name = "scotfree_server_stable_duration_seconds";
        let help = "From handing a write to the service until storage held it, as far as the service knows.";
        text.family(MetricKind::Histogram, name, help);
        text.histogram(name, &[], &self.stable, None);
    }
}

/// A snapshot of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerMetrics {
    /// What the runtime has counted.
    pub runtime: ServerRuntimeCounters,
    /// What the machine has counted.
    pub machine: ServerCounters,
    /// How many sessions there are.
    pub session_count: u64,
    /// How many bytes of requests wait for their turn.
    pub buffer_bytes: u64,
    /// How many executions have no reply yet.
    pub executing_count: u64,
    /// How many executions are not known to be stable.
    pub unstable_count: u64,
    /// Whether requests are executed.
    pub is_serving: bool,
    /// How long it took from the first question to the devices until what they held was executed; nothing
    /// while it is not.
    pub recovered_after: Option<Nanos>,
    /// How long executions have taken.
    pub durations: ServerDurations,
}

impl ServerMetrics {
    /// Appends the snapshot.
    pub fn write(&self, text: &mut MetricsText) {
        self.write_gauges(text);
        self.write_machine(text);
        let runtime = &self.runtime;
        text.counter("scotfree_server_datagrams_received_total", "Datagrams received.", runtime.received);
        text.counter("scotfree_server_replies_total", "Replies of the service.", runtime.replies);
        let help = "Replies by which the service refused the request.";
        text.counter("scotfree_server_replies_failed_total", help, runtime.replies_failed);
        let help = "Reports of the service about executions it does not have.";
        text.counter("scotfree_server_reports_refused_total", help, runtime.reports_refused);
        let help = "Times when a stalled transport made the server drop what was unsent.";
        text.counter("scotfree_server_unsent_dropped_total", help, runtime.unsent_dropped);
        self.durations.write(text);
    }

    fn write_gauges(&self, text: &mut MetricsText) {
        text.gauge("scotfree_server_serving", "1 if requests are executed.", u8::from(self.is_serving));
        text.gauge("scotfree_server_sessions", "Sessions.", self.session_count);
        let help = "Bytes of requests that wait for their turn.";
        text.gauge("scotfree_server_buffer_bytes", help, self.buffer_bytes);
        text.gauge("scotfree_server_executing", "Executions without a reply yet.", self.executing_count);
        let help = "Executions that are not known to be stable.";
        text.gauge("scotfree_server_unstable", help, self.unstable_count);
        if let Some(recovered_after) = self.recovered_after {
            let help = "From the first question to the devices until what they held was executed.";
            text.gauge("scotfree_server_recovery_seconds", help, recovered_after.0 as f64 / 1e9);
        }
    }

    fn write_machine(&self, text: &mut MetricsText) {
        let ServerCounters {
            executed,
            replayed,
            duplicates,
            replies_resent,
            replies_held,
            replies_gone,
            gaps_asked,
            orders_asked,
            drains_asked,
            gaps_passed,
            orders_given_up,
            dead_letters,
            polls,
            server_acks,
            busy,
            unknown_session,
            expired,
            beyond_window,
            gave_way,
            revoked,
            refused,
        } = self.machine;
        let counters = [
            ("executed", "Requests handed to the service.", executed),
            ("replayed", "Requests executed from a device's log.", replayed),
            ("duplicates", "Requests seen again after execution.", duplicates),
            ("replies_resent", "Replies sent again.", replies_resent),
            ("replies_held", "Replies held until stability.", replies_held),
            ("replies_gone", "Retries whose reply was gone.", replies_gone),
            ("gaps_asked", "Questions to clients for missing requests.", gaps_asked),
            ("orders_asked", "Questions to the head for missing order numbers.", orders_asked),
            ("drains_asked", "Questions to the head for the place of a request.", drains_asked),
            ("gaps_passed", "Gaps of reads passed over.", gaps_passed),
            ("orders_given_up", "Order numbers given up.", orders_given_up),
            (
                "dead_letters",
                "Updates that were never applied, their session being unknown or an update before them lost.",
                dead_letters,
            ),
            ("polls", "Recovery polls sent.", polls),
            ("server_acks", "Words of stability sent.", server_acks),
            ("busy", "Times a client was told to wait.", busy),
            ("unknown_session", "Messages of unknown sessions.", unknown_session),
            ("expired", "Sessions that expired.", expired),
            ("beyond_window", "Requests beyond their session's credit, dropped.", beyond_window),
            ("gave_way", "Sessions of clients that had not spoken, gone for newer ones.", gave_way),
            ("revoked", "Sessions whose epoch was taken out of the cluster's key.", revoked),
        ];
        for (name, help, value) in counters {
            text.counter(&format!("scotfree_server_{name}_total"), help, value);
        }
        write_refused(text, "server", &refused);
    }
}

/// Appends how many packets were refused, by reason; `role` is who did.
pub fn write_refused(text: &mut MetricsText, role: &str, refused: &[u64; WIRE_ERROR_COUNT]) {
    let name = format!("scotfree_{role}_packets_refused_total");
    text.family(MetricKind::Counter, &name, "Packets refused, by reason.");
    for reason in WireError::ALL {
        text.sample(&name, &[("reason", reason.name())], refused[reason as usize]);
    }
}

/// Appends the counters of a UDP socket; `role` is whose it is.
pub fn write_udp_metrics(text: &mut MetricsText, role: &str, counters: &UdpCounters) {
    let UdpCounters {
        rx_packets,
        rx_truncated,
        rx_overflowed,
        tx_packets,
        tx_too_long,
        tx_unroutable,
        refused,
        tx_stamps_lost,
        tx_stamp_restarts,
    } = *counters;
    let name = "scotfree_udp_events_total";
    text.family(MetricKind::Counter, name, "What has happened on the UDP socket.");
    for (event, value) in [
        ("rx_packets", rx_packets),
        ("rx_truncated", rx_truncated),
        ("rx_overflowed", rx_overflowed),
        ("tx_packets", tx_packets),
        ("tx_too_long", tx_too_long),
        ("tx_unroutable", tx_unroutable),
        ("refused", refused),
        ("tx_stamps_lost", tx_stamps_lost),
        ("tx_stamp_restarts", tx_stamp_restarts),
    ] {
        text.sample(name, &[("role", role), ("event", event)], value);
    }
}
