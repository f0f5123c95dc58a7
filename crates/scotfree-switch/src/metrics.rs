//! What the daemon counts, as Prometheus text.
//!
//! Invariant: every counter that a part of the device keeps has a line here; a `match`-less list per
//! part makes a missing one easy to see.

use crate::bridge::{BridgeCounters, DropReason};
use crate::datapath::DatapathCounters;
use crate::impair::ImpairmentCounters;
use crate::logs::LogCounters;
use crate::neighbours::NeighbourCounters;
use crate::plane_user::PortReport;
use scotfree_core::{Durability, Nanos, ServerIndex};
use scotfree_device::{Count, DeviceCounters, Pipeline, UnsafeNow};
use scotfree_io::exposition::{write_histogram, DurationHistogram};
use scotfree_wire::WireError;
use std::fmt::Write;

/// A text under construction. Series of one name are to be added one after the other.
#[derive(Debug, Default)]
pub struct MetricsText {
    text: String,
    last: &'static str,
}

/// What a number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations, by bucket.
    Histogram,
}

impl MetricsText {
    /// Adds one value. `labels` is empty or `name="value"` pairs with commas.
    pub fn add(&mut self, name: &'static str, kind: MetricKind, help: &str, labels: &str, value: f64) {
        self.begin(name, kind, help);
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    fn begin(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        if self.last == name {
            return;
        }
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self.last = name;
    }

    fn count(&mut self, name: &'static str, help: &str, value: u64) {
        self.add(name, MetricKind::Counter, help, "", value as f64);
    }

    fn count_labelled(&mut self, name: &'static str, help: &str, labels: &str, value: u64) {
        self.add(name, MetricKind::Counter, help, labels, value as f64);
    }

    fn gauge(&mut self, name: &'static str, help: &str, value: f64) {
        self.add(name, MetricKind::Gauge, help, "", value);
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }

    /// What the device counted, whatever its functions (rule 15).
    pub fn device(&mut self, counters: &DeviceCounters) {
        let DeviceCounters {
            requests,
            admitted,
            unadmitted,
            duplicate,
            bad,
            answered,
            passed_over,
            past_epoch,
            refused,
            sessions_refused,
        } = *counters;
        for (name, help, value) in [
            ("scotfree_device_requests_total", "Requests seen.", requests),
            ("scotfree_device_admitted_total", "Requests that were the next of their session.", admitted),
            ("scotfree_device_unadmitted_total", "Requests forwarded without a stamp.", unadmitted),
            ("scotfree_device_duplicate_total", "Requests seen before.", duplicate),
            ("scotfree_device_bad_total", "Requests dropped because they were not authentic.", bad),
            ("scotfree_device_answered_total", "Reads that a function answered.", answered),
            (
                "scotfree_device_passed_over_total",
                "Words to servers to pass over what was answered.",
                passed_over,
            ),
            ("scotfree_device_past_epoch_total", "Messages of past server epochs refused.", past_epoch),
            ("scotfree_device_sessions_refused_total", "Sessions not granted slots.", sessions_refused),
        ] {
            self.count(name, help, value);
        }
        for (reason, value) in WireError::ALL.iter().zip(refused) {
            let label = format!("reason=\"{}\"", reason.name());
            self.count_labelled(
                "scotfree_device_refused_total",
                "Packets refused, by reason.",
                &label,
                value,
            );
        }
    }

    /// One count of a function's.
    pub fn function(&mut self, _function: &str, count: Count) {
        if count.is_gauge() {
            self.add(count.name, MetricKind::Gauge, count.help, count.labels, count.value as f64);
        } else {
            self.count_labelled(count.name, count.help, count.labels, count.value);
        }
    }

    /// What is acknowledged and not yet stable.
    pub fn unsafe_now(&mut self, now: Nanos, gauge: &UnsafeNow) {
        let age = gauge.oldest_since.map_or(0.0, |since| now.since(since).0 as f64 / 1e9);
        let entries = gauge.entries as f64;
        self.gauge("scotfree_unsafe_entries", "Log entries acknowledged and not yet stable.", entries);
        self.gauge("scotfree_unsafe_bytes", "Their payload bytes.", gauge.bytes as f64);
        self.gauge("scotfree_unsafe_oldest_age_seconds", "The age of the oldest of them.", age);
    }

    /// The state of the device.
    pub fn state(&mut self, now: Nanos, media: Durability, device: &Pipeline) {
        for (tier, durability) in [("ram", Durability::Ram), ("disk", Durability::Disk)] {
            let works = f64::from(u8::from(media.satisfies(durability)));
            let help = "Whether updates are acknowledged from this log.";
            self.add("scotfree_device_media", MetricKind::Gauge, help, &format!("tier=\"{tier}\""), works);
        }
        for (name, help, value) in [
            ("scotfree_device_sessions", "Sessions with slots.", device.session_count() as f64),
            ("scotfree_device_boot_epoch", "Its incarnation.", device.boot_epoch().0.into()),
        ] {
            self.gauge(name, help, value);
        }
        self.servers(
            "scotfree_device_leased",
            "Whether the server lets it acknowledge.",
            device,
            |device, server| u8::from(device.has_lease(server, now)).into(),
        );
        self.servers(
            "scotfree_device_server_epoch",
            "The largest server epoch seen.",
            device,
            |device, server| device.server_epoch(server).0.into(),
        );
    }

    /// One gauge of each server.
    fn servers(
        &mut self,
        name: &'static str,
        help: &str,
        device: &Pipeline,
        value: impl Fn(&Pipeline, ServerIndex) -> f64,
    ) {
        let base = device.base();
        for server in (0..base.server_count()).map(|index| ServerIndex(index as u8)) {
            let labels = format!("server=\"{}\"", base.server_address(server));
            self.add(name, MetricKind::Gauge, help, &labels, value(device, server));
        }
    }

    /// What the logs did.
    pub fn logs(&mut self, counters: &LogCounters, alarms: u64) {
        let LogCounters { submitted, completed, full, without_domain, failed, written_here } = *counters;
        for (name, help, value) in [
            ("scotfree_log_submitted_total", "Records given to a log.", submitted),
            ("scotfree_log_completed_total", "Records that became durable.", completed),
            ("scotfree_log_full_total", "Records for which a log had no room.", full),
            ("scotfree_log_without_domain_total", "Records for a log that is not there.", without_domain),
            ("scotfree_log_failed_total", "Logs that failed.", failed),
            (
                "scotfree_log_written_here_total",
                "Groups of records that the daemon wrote by itself, without the log's thread.",
                written_here,
            ),
            ("scotfree_alarms_total", "Lines that somebody should act on.", alarms),
        ] {
            self.count(name, help, value);
        }
    }

    /// How long records took to become durable, by log.
    pub fn log_durations<'a>(&mut self, logs: impl Iterator<Item = (&'static str, &'a DurationHistogram)>) {
        let name = "scotfree_log_write_duration_seconds";
        for (tier, durations) in logs {
            self.begin(name, MetricKind::Histogram, "From giving a record to a log until it was durable.");
            write_histogram(&mut self.text, name, &format!("tier=\"{tier}\""), durations, None);
        }
    }

    /// What the bridge did.
    pub fn bridge(&mut self, counters: &BridgeCounters, stations: usize) {
        let BridgeCounters { forwarded, flooded, local, dropped: _, unlearnt, moved } = *counters;
        for (name, help, value) in [
            ("scotfree_bridge_forwarded_total", "Frames sent out of one port.", forwarded),
            ("scotfree_bridge_flooded_total", "Frames sent out of all ports but one.", flooded),
            ("scotfree_bridge_local_total", "Frames for the device itself.", local),
            ("scotfree_bridge_unlearnt_total", "Stations not learnt for want of room.", unlearnt),
            ("scotfree_bridge_moved_total", "Stations seen at another port than before.", moved),
        ] {
            self.count(name, help, value);
        }
        self.gauge("scotfree_bridge_stations", "Stations remembered.", stations as f64);
        for reason in DropReason::ALL {
            let label = format!("reason=\"{}\"", reason.name());
            let value = counters.dropped_for(reason);
            self.count_labelled(
                "scotfree_bridge_dropped_total",
                "Frames dropped by the bridge.",
                &label,
                value,
            );
        }
    }

    /// What the table of addresses did.
    pub fn neighbours(&mut self, counters: &NeighbourCounters, known: usize) {
        let NeighbourCounters { asked, unlearnt, refused, unanswered, moved } = *counters;
        for (name, help, value) in [
            ("scotfree_neighbour_asked_total", "Questions for an address.", asked),
            ("scotfree_neighbour_unlearnt_total", "Addresses not learnt for want of room.", unlearnt),
            ("scotfree_neighbour_refused_total", "Packets without room to wait for an address.", refused),
            ("scotfree_neighbour_unanswered_total", "Packets given up for want of an answer.", unanswered),
            ("scotfree_neighbour_moved_total", "Addresses that moved.", moved),
        ] {
            self.count(name, help, value);
        }
        self.gauge("scotfree_neighbours", "Addresses known.", known as f64);
    }

    /// Which plane moves the frames.
    pub fn plane(&mut self, name: &str) {
        let label = format!("plane=\"{name}\"");
        self.add("scotfree_plane", MetricKind::Gauge, "Which plane moves the frames.", &label, 1.0);
    }

    /// What the programs in the kernel have done with frames by themselves.
    #[cfg(feature = "xdp")]
    pub fn kernel(&mut self, counters: &scotfree_xdp::Counters) {
        for (name, help, value) in [
            ("scotfree_kernel_frames_total", "Frames that came in.", counters.frames),
            ("scotfree_kernel_scotfree_total", "Frames with a packet of Scotfree.", counters.scotfree),
            ("scotfree_kernel_malformed_total", "Frames too short to be frames.", counters.malformed),
            ("scotfree_kernel_forwarded_total", "Frames sent out of one port.", counters.forwarded),
            ("scotfree_kernel_flooded_total", "Frames sent out of all ports but one.", counters.flooded),
            ("scotfree_kernel_unlearnt_total", "Stations not learnt for want of room.", counters.unlearnt),
            ("scotfree_kernel_moved_total", "Stations seen at another port.", counters.moved),
            ("scotfree_kernel_answered_total", "Requests answered instead of the server.", counters.answered),
            ("scotfree_kernel_passed_up_total", "Frames passed up to the daemon.", counters.passed_up),
            (
                "scotfree_kernel_ring_full_total",
                "Frames for which the ring had no room.",
                counters.passed_up_full,
            ),
            (
                "scotfree_kernel_unwritable_total",
                "Acknowledgements and answers that could not be made.",
                counters.unwritable,
            ),
        ] {
            self.count(name, help, value);
        }
        for (reason, value) in [
            ("same_port", counters.dropped_same_port),
            ("source_is_group", counters.dropped_source_is_group),
            ("source_is_own", counters.dropped_source_is_own),
            ("link_local", counters.dropped_link_local),
        ] {
            let label = format!("reason=\"{reason}\"");
            self.count_labelled("scotfree_kernel_dropped_total", "Frames dropped, by reason.", &label, value);
        }
    }

    /// The ports by which frames of programs leave for nobody.
    pub fn unreachable(&mut self, ports: &[String]) {
        let help = "Ports whose other end takes no frames from programs: what is sent there vanishes.";
        self.gauge("scotfree_unreachable_ports", help, ports.len() as f64);
    }

    /// What was done with frames.
    pub fn datapath(&mut self, counters: &DatapathCounters) {
        let DatapathCounters { frames, scotfree, malformed, answered, originated, unwritable } = *counters;
        for (name, help, value) in [
            ("scotfree_frames_total", "Frames that came in.", frames),
            ("scotfree_frames_scotfree_total", "Frames with a packet of Scotfree.", scotfree),
            ("scotfree_frames_malformed_total", "Frames dropped because they could not be read.", malformed),
            ("scotfree_frames_answered_total", "Questions for the control address answered.", answered),
            ("scotfree_frames_originated_total", "Packets that the device made itself.", originated),
            ("scotfree_frames_unwritable_total", "Packets that fit no frame.", unwritable),
        ] {
            self.count(name, help, value);
        }
    }

    /// What the ports have seen.
    pub fn ports(&mut self, reports: &[PortReport]) {
        for (name, help, value) in PORT_VALUES {
            for report in reports {
                let label = format!("port=\"{}\"", report.interface);
                self.count_labelled(name, help, &label, value(report));
            }
        }
        let label = |report: &PortReport, way| format!("port=\"{}\",direction=\"{way}\"", report.interface);
        let links: Vec<(String, &ImpairmentCounters)> = reports
            .iter()
            .flat_map(|one| [(label(one, "ingress"), &one.ingress), (label(one, "egress"), &one.egress)])
            .collect();
        self.impairments(&links);
    }

    fn impairments(&mut self, links: &[(String, &ImpairmentCounters)]) {
        for (name, help, value) in IMPAIRMENT_VALUES {
            for (label, counters) in links {
                self.count_labelled(name, help, label, value(counters));
            }
        }
    }
}

/// Name, help and value of a counter.
type Series<Of> = (&'static str, &'static str, fn(&Of) -> u64);

const PORT_VALUES: [Series<PortReport>; 10] = [
    ("scotfree_port_rx_frames_total", "Frames received.", |one| one.counters.rx_frames),
    (
        "scotfree_port_rx_truncated_total",
        "Frames too long to be bridged: switch TSO and GSO off at the hosts, GRO and LRO at the port.",
        |one| one.counters.rx_truncated,
    ),
    ("scotfree_port_rx_overflowed_total", "Frames lost before they were received.", |one| {
        one.counters.rx_overflowed
    }),
    ("scotfree_port_rx_tags_restored_total", "Frames whose VLAN tag was put back.", |one| {
        one.counters.rx_tags_restored
    }),
    ("scotfree_port_rx_checksums_completed_total", "Frames whose checksum was completed.", |one| {
        one.counters.rx_checksums_completed
    }),
    ("scotfree_port_tx_frames_total", "Frames sent.", |one| one.counters.tx_frames),
    ("scotfree_port_tx_too_long_total", "Frames longer than the interface takes.", |one| {
        one.counters.tx_too_long
    }),
    ("scotfree_port_tx_dropped_total", "Frames dropped by the interface.", |one| one.counters.tx_dropped),
    ("scotfree_port_tx_full_total", "Frames for which there was no room.", |one| one.full),
    ("scotfree_port_link_down_total", "Times the interface was down.", |one| one.counters.link_down),
];

const IMPAIRMENT_VALUES: [Series<ImpairmentCounters>; 7] = [
    ("scotfree_impaired_offered_total", "Frames that met a fault on purpose.", |one| one.offered),
    ("scotfree_impaired_lost_total", "Frames lost.", |one| one.lost),
    ("scotfree_impaired_duplicated_total", "Frames doubled.", |one| one.duplicated),
    ("scotfree_impaired_reordered_total", "Frames held back.", |one| one.reordered),
    ("scotfree_impaired_corrupted_total", "Frames with a flipped bit.", |one| one.corrupted),
    ("scotfree_impaired_overflowed_total", "Frames beyond what is held.", |one| one.overflowed),
    ("scotfree_impaired_delivered_total", "Frames that came out.", |one| one.delivered),
];

#[cfg(test)]
mod tests {
    use super::*;
    use remedy_persist::PersistConfig;
    use scotfree_core::{BootEpoch, DeviceId};
    use scotfree_device::DeviceConfig;
    use scotfree_io::packet_port::PacketPortCounters;
    use scotfree_wire::ClusterKey;

    fn device() -> Pipeline {
        let address = |text: &str| text.parse().expect("an address");
        let (control, server) = (address("10.0.0.9:51000"), address("10.0.0.2:51000"));
        let key = ClusterKey::from_bytes([1; 32]);
        let config = DeviceConfig::new(DeviceId(1), BootEpoch(4), control, server, key);
        remedy_persist::device(config, PersistConfig::default())
    }

    #[test]
    fn every_line_is_a_comment_or_a_number_and_each_name_is_declared_once() {
        let mut text = MetricsText::default();
        text.device(&DeviceCounters::default());
        text.unsafe_now(Nanos(5), &UnsafeNow { entries: 2, bytes: 9, oldest_since: Some(Nanos(1)) });
        let device = device();
        device.function_counters(&mut |function, count| text.function(function, count));
        text.state(Nanos(1), Durability::Ram, &device);
        text.datapath(&DatapathCounters::default());
        text.logs(&LogCounters::default(), 1);
        let mut durations = DurationHistogram::default();
        durations.record(Nanos::from_millis(3));
        text.log_durations([("ram", &durations), ("disk", &durations)].into_iter());
        text.bridge(&BridgeCounters::default(), 7);
        text.neighbours(&NeighbourCounters::default(), 1);
        let ingress = ImpairmentCounters { lost: 3, ..ImpairmentCounters::default() };
        let report = PortReport {
            interface: "p0".to_owned(),
            counters: PacketPortCounters::default(),
            full: 0,
            ingress,
            egress: ImpairmentCounters::default(),
        };
        text.ports(&[report.clone(), PortReport { interface: "p1".to_owned(), ..report }]);
        let text = text.finish();
        let mut declared = std::collections::BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(declared.insert(rest.split(' ').next().expect("a name").to_owned()), "{line}");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').expect("a value");
                let name = name.split('{').next().expect("a name");
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
                assert!(declared.contains(family.unwrap_or(name)), "{line}");
                value.parse::<f64>().expect("a number");
            }
        }
        assert!(text.contains("scotfree_log_write_duration_seconds_bucket{tier=\"disk\",le=\"0.005\"} 1\n"));
        assert!(text.contains("scotfree_unsafe_entries 2\n"));
        assert!(text.contains("scotfree_impaired_lost_total{port=\"p0\",direction=\"ingress\"} 3\n"));
        assert!(text.contains("scotfree_device_media{tier=\"disk\"} 0\n"));
        assert!(text.contains("scotfree_device_leased{server=\"10.0.0.2:51000\"} 0\n"));
        assert!(text.contains("scotfree_device_logged_total 0\n"));
    }
}
