//! Forged, replayed, truncated and misdirected packets beside an honest client: whether any is accepted, and
//! whether each is counted.
//!
//! Invariant: kinds are sent one after the other, and what device and server have counted is compared before and
//! after each, so a kind cannot hide behind another.

use super::bare_services::BareServices;
use super::settings::settings_of;
use super::worker::hostile::{HostileReport, HostileSpec, Hostility};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_stage::process::run as run_tool;
use scotfree_stage::site::{await_condition, difference, Logs, Site};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use serde::Deserialize;
use std::cell::Cell;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    /// What moves the frames.
    plane: String,
    /// How many hostile packets of all kinds together.
    packets: u64,
    per_second: u64,
}

/// Of a hundred packets, so many are of a kind: fewest of those that wake a daemon or the server one by one.
const fn share_percent(hostility: Hostility) -> u64 {
    match hostility {
        Hostility::RandomMac => 20,
        Hostility::Replayed | Hostility::Truncated | Hostility::ForgedStamp => 10,
        Hostility::BitFlipped | Hostility::CrossSession | Hostility::ForgedServerAck => 15,
        Hostility::WrongDirection | Hostility::ForgedControl => 2,
        Hostility::ForgedOpening => 1,
    }
}

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    let epoch = Cell::new(0);
    context.measure_in_turns(|arm, repetition| {
        let settings: Settings = settings_of(arm)?;
        epoch.set(epoch.get() + 1);
        let switch = site.start_switch_with(Logs::Ram, &["--plane", &settings.plane])?;
        let server = site.start_counting_noop(epoch.get())?;
        let mut sums = Sums::default();
        let mut measured = Measured::default();
        for hostility in Hostility::ALL {
            context.interrupt.check()?;
            let seed = u64::from(repetition) << 32 | u64::from(epoch.get()) << 8 | hostility as u64;
            attack(&site, &settings, hostility, seed, &mut sums, &mut measured)?;
        }
        sums.tell(&mut measured);
        drop((switch, server));
        site.remove_kept()?;
        await_bare_ports(&site)?;
        Ok(measured)
    })
}

/// The kernel takes programs off their ports a moment after what kept them is gone.
fn await_bare_ports(site: &Site<'_>) -> Result<(), Trouble> {
    let namespace = site.lab.namespace(&site.device().role);
    await_condition("the kernel plane has left its ports", || {
        run_tool("ip", ["-n", &namespace, "link", "show"]).is_ok_and(|shown| !shown.contains("xdp"))
    })
}

/// What all kinds come to.
#[derive(Debug, Default)]
struct Sums {
    sent: u64,
    counted: u64,
    accepted: u64,
    honest: u64,
    honest_executed: u64,
}

impl Sums {
    fn tell(&self, measured: &mut Measured) {
        measured.counter("sent", self.sent);
        measured.counter("counted", self.counted);
        measured.counter("accepted", self.accepted);
        measured.counter("honest", self.honest);
        measured.counter("honest_executed", self.honest_executed);
        measured.value("sent", self.sent as f64);
        measured.value("accepted", self.accepted as f64);
        measured.value("counted_share", self.counted as f64 / self.sent.max(1) as f64);
        measured.value("honest_lost", self.honest.abs_diff(self.honest_executed) as f64);
    }
}

/// What device and server have counted.
struct Looked {
    device: Counts,
    server: Counts,
}

impl Looked {
    fn look(site: &Site<'_>) -> Result<Looked, Trouble> {
        Ok(Looked { device: site.device_counts()?, server: site.counts("server")? })
    }

    /// By how much the counters of a name have grown, over all their labels.
    fn grown(before: &Counts, after: &Counts, name: &str) -> u64 {
        let labelled = format!("{name}{{");
        let names = after.keys().filter(|known| *known == name || known.starts_with(&labelled));
        names.map(|name| difference(before, after, name)).sum()
    }

    /// How many packets were refused or recognised since `before`, each counted once: those that the device
    /// refuses, duplicates that it passes on, and what the server refuses of what the device passes on.
    fn counted_since(&self, before: &Looked) -> u64 {
        let device = |name| Looked::grown(&before.device, &self.device, name);
        let server = |name| Looked::grown(&before.server, &self.server, name);
        device("scotfree_device_refused_total")
            + device("scotfree_device_duplicate_total")
            + device("scotfree_frames_malformed_total")
            + device("scotfree_kernel_ring_full_total")
            + server("scotfree_server_packets_refused_total")
            + server("scotfree_server_unknown_session_total")
    }

    fn executed_since(&self, before: &Looked) -> u64 {
        Looked::grown(&before.server, &self.server, "scotfree_server_executed_total")
    }

    /// What was done at the word of hostile packets, when `honest` updates were made: requests admitted or
    /// executed, entries logged or freed, acknowledgements sent.
    fn accepted_since(&self, before: &Looked, report: &HostileReport) -> u64 {
        let device = |name| Looked::grown(&before.device, &self.device, name);
        let executed = self.executed_since(before);
        let logged = device("scotfree_device_logged_total");
        device("scotfree_device_admitted_total").saturating_sub(report.honest)
            + logged.saturating_sub(report.honest)
            + executed.saturating_sub(report.honest)
            + device("scotfree_device_persist_acks_total").saturating_sub(report.honest + report.again)
            + device("scotfree_device_freed_total").saturating_sub(logged)
    }
}

fn attack(
    site: &Site<'_>,
    settings: &Settings,
    hostility: Hostility,
    seed: u64,
    sums: &mut Sums,
    measured: &mut Measured,
) -> Result<(), Trouble> {
    let before = Looked::look(site)?;
    let spec = spec_of(site, settings, hostility, seed)?;
    let report: HostileReport = site.run_worker("client", hostility.name(), &WorkerSpec::Hostile(spec))?;
    // The server publishes what it counts now and then; what is missing in the end is missing.
    let mut after = Looked::look(site)?;
    let wanted = report.sent + report.again;
    let _ = await_condition("every packet is counted", || {
        Looked::look(site).is_ok_and(|now| {
            after = now;
            after.counted_since(&before) >= wanted && after.executed_since(&before) >= report.honest
        })
    });
    let counted = after.counted_since(&before).saturating_sub(report.again);
    let accepted = after.accepted_since(&before, &report);
    let executed = after.executed_since(&before);
    let name = hostility.name();
    measured.counter(&format!("{name}_sent"), report.sent);
    measured.counter(&format!("{name}_counted"), counted);
    measured.counter(&format!("{name}_accepted"), accepted);
    sums.sent += report.sent;
    sums.counted += counted.min(report.sent);
    sums.accepted += accepted;
    sums.honest += report.honest;
    sums.honest_executed += executed;
    Ok(())
}

fn spec_of(
    site: &Site<'_>,
    settings: &Settings,
    hostility: Hostility,
    seed: u64,
) -> Result<HostileSpec, Trouble> {
    let topology = site.lab.topology();
    let device = site.device();
    let mac = topology.host(&device.role).and_then(|host| host.mac.as_deref());
    let octets: Option<Vec<u8>> =
        mac.map(|mac| mac.split(':').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect());
    let control_mac = octets.and_then(|octets| octets.try_into().ok()).ok_or_else(|| {
        Trouble::new("find the device's station", "the topology names none", "give the device's host a mac")
    })?;
    let client = topology.host("client").and_then(|host| host.ports.first());
    Ok(HostileSpec {
        server: site.server(),
        control: device.control,
        control_mac,
        cluster_key: site.cluster_key(),
        local: site.address("client"),
        interface: client.map(|port| port.name.clone()).unwrap_or_default(),
        hostility,
        packets: settings.packets * share_percent(hostility) / 100,
        per_second: settings.per_second,
        seed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_a_whole() {
        assert_eq!(Hostility::ALL.iter().map(|kind| share_percent(*kind)).sum::<u64>(), 100);
    }

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn what_is_accepted_is_what_goes_beyond_the_honest() {
        let looked = |device: &[_], server: &[_]| Looked { device: counts(device), server: counts(server) };
        let before = looked(&[("scotfree_device_admitted_total", 5)], &[]);
        let report = HostileReport { sent: 10, honest: 3, again: 0, refused: 0 };
        let honest = [("scotfree_device_admitted_total", 8), ("scotfree_device_logged_total", 3)];
        let executed = [("scotfree_server_executed_total", 3)];
        assert_eq!(looked(&honest, &executed).accepted_since(&before, &report), 0);
        let one_more = [("scotfree_server_executed_total", 4)];
        assert_eq!(looked(&honest, &one_more).accepted_since(&before, &report), 1);
        let freed = [("scotfree_device_freed_total", 2)];
        assert_eq!(looked(&freed, &executed).accepted_since(&before, &report), 2);
    }

    #[test]
    fn refusals_are_counted_over_all_reasons() {
        let refused = [
            ("scotfree_device_refused_total{reason=\"bad_mac\"}", 4),
            ("scotfree_device_refused_total{reason=\"truncated\"}", 2),
            ("scotfree_device_refused_totals", 9),
        ];
        let before = Looked { device: counts(&[]), server: counts(&[]) };
        let after = Looked { device: counts(&refused), server: counts(&[]) };
        assert_eq!(after.counted_since(&before), 6);
    }
}
