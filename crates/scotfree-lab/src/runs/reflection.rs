//! The kernel plane's acknowledgement beside the least that an answer from the same port can cost: the same
//! update sent back by a program that does nothing else. What the device costs alone, without waking a server that
//! sleeps, is an arm of its own.
//!
//! Invariant: all arms have the same client, cable and port; in the arm without a device its program is replaced
//! by the reflection, and after it by that of the device's next daemon. Where updates were kept from the server, it
//! and the device begin anew afterwards.

use super::bare_calls::{bare_calls, BareCalls};
use super::bare_services::BareServices;
use super::settings::settings_of;
use super::worker::bare_calls::Answerer;
use super::worker::take::{TakeReport, TakeSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use crate::gauge::{Gauge, Part};
use scotfree_core::Tier;
use scotfree_stage::process::Process;
use scotfree_stage::site::{await_condition, difference, report_of, Device, Logs, Site};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    answerer: Answerer,
    #[serde(with = "crate::tier_text")]
    durability: Tier,
    calls: u64,
    /// The shortest time between two calls.
    interval_us: u64,
    payload_bytes: usize,
}

const PLANE: [&str; 2] = ["--plane", "xdp"];
const CALLS_BEFORE: u64 = 100;
/// The client's port.
const CLIENT_PORT: &str = "eth0";
/// The server's port.
const SERVER_PORT: &str = "eth0";
/// Whether the device has a server's lease.
const LEASED: &str = "scotfree_device_leased";
/// The device's port to the client.
const PORT: &str = "client0";

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    let device = site.device();
    let mut switch = site.start_switch_with(Logs::Ram, &PLANE)?;
    let mut server = site.start_noop(false)?;
    context.measure_in_turns(|arm, _| {
        let Settings { answerer, durability, calls, interval_us, payload_bytes } = settings_of(arm)?;
        let calls = BareCalls {
            pass_at: Some(CLIENT_PORT),
            tier: durability,
            answerer,
            outstanding: 1,
            interval_us,
            spin_us: 0,
            payload_bytes,
            count: calls,
        };
        match answerer {
            Answerer::Device => by_device(&site, &calls),
            Answerer::DeviceAlone => {
                let measured = by_device_alone(&site, &calls)?;
                (switch, server) = begin_anew(&site, &device, [&switch, &server])?;
                Ok(measured)
            }
            Answerer::Reflection => {
                // So that the client knows the server's station: the reflection answers no questions.
                bare_calls(&site, &BareCalls { answerer: Answerer::Device, count: CALLS_BEFORE, ..calls })?;
                let measured = by_reflection(&site, &device.role, &calls)?;
                switch.kill();
                switch = site.start_device(&device, Logs::Ram, &PLANE)?;
                Ok(measured)
            }
        }
    })
}

fn by_device(site: &Site<'_>, calls: &BareCalls) -> Result<Measured, Trouble> {
    let before = site.device_counts()?;
    let mut measured = measured(site, calls)?;
    let after = site.device_counts()?;
    let count = |name| difference(&before, &after, name);
    measured.counter("device_acks", count("scotfree_device_persist_acks_total"));
    measured.counter("logged", count("scotfree_device_logged_total"));
    measured.counter("passed_up", count("scotfree_kernel_passed_up_total"));
    Ok(measured)
}

/// With a program before the server's port that takes the updates.
fn by_device_alone(site: &Site<'_>, calls: &BareCalls) -> Result<Measured, Trouble> {
    let spec = WorkerSpec::Take(TakeSpec { interface: SERVER_PORT.to_owned() });
    let taker = site.start_worker("server", "take", &spec)?;
    let mut measured = by_device(site, calls)?;
    taker.signal("TERM");
    let TakeReport { taken } = report_of(&taker)?;
    measured.counter("taken", taken);
    Ok(measured)
}

/// A device without a log and a server without sessions, in the place of those that have updates of which the other
/// knows nothing.
fn begin_anew(
    site: &Site<'_>,
    device: &Device,
    [switch, server]: [&Process; 2],
) -> Result<(Process, Process), Trouble> {
    server.kill();
    switch.kill();
    site.remove_kept()?;
    site.remove_log(device)?;
    let anew = (site.start_device(device, Logs::Ram, &PLANE)?, site.start_noop(false)?);
    // Without a lease it acknowledges nothing, and a few calls would be over before it has one.
    let leased = |counts: Counts| counts.iter().any(|(name, value)| name.starts_with(LEASED) && *value == 1);
    await_condition("the device has a lease", || site.device_counts().is_ok_and(leased))?;
    Ok(anew)
}

fn by_reflection(site: &Site<'_>, role: &str, calls: &BareCalls) -> Result<Measured, Trouble> {
    let broke = |error| Trouble::new("put a reflection in the device's place", error, "see: scot doctor");
    let reflection = Gauge::load(Part::Reflect).map_err(broke)?;
    reflection.replace(&site.kept_folder(role).join(format!("port-{PORT}"))).map_err(broke)?;
    let mut measured = measured(site, calls)?;
    let counters = reflection.counters().map_err(broke)?;
    measured.counter("reflected", counters.reflected);
    measured.counter("not_reflected", counters.dropped);
    Ok(measured)
}

fn measured(site: &Site<'_>, calls: &BareCalls) -> Result<Measured, Trouble> {
    let report = bare_calls(site, calls)?;
    let mut measured = Measured::default();
    measured.latency(&report.latency);
    measured.counter("answered", report.answered);
    measured.counter("ended_stable", report.ended_stable);
    measured.counter("sent_again", report.sent_again);
    measured.counter("refused", report.refused);
    Ok(measured)
}
