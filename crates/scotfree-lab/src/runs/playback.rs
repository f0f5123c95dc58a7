//! What one processor does when it does nothing but a device's work: log, forward and acknowledge updates.
//!
//! Invariant: no host takes part. What the device sends ends at the other ends of its cables, in programs that
//! count it; that, and taking the frames in, is in the time measured.

use super::settings::settings_of;
use super::worker::playback::{PlaybackReport, PlaybackSpec};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    sessions: u32,
    window: u32,
    payload_bytes: usize,
    rounds: u32,
    to_device: bool,
}

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    let ports = |side: &str| [format!("{side}0"), format!("{side}1")];
    context.measure_in_turns(|arm, _| {
        let Settings { sessions, window, payload_bytes, rounds, to_device } = settings_of(arm)?;
        let (client_ports, server_ports) = (ports("client"), ports("server"));
        let spec =
            PlaybackSpec { client_ports, server_ports, sessions, window, payload_bytes, rounds, to_device };
        let report: PlaybackReport = site.run_worker("device", "playback", &WorkerSpec::Playback(spec))?;
        let mut measured = Measured::default();
        measured.value("requests_mpps", report.requests_per_s / 1e6);
        measured.value("requests_mpps_p50", report.requests_per_s_p50 / 1e6);
        measured.value("ns_per_request_p50", 1e9 / report.requests_per_s_p50);
        for (name, value) in &report.counters {
            measured.counter(name, *value);
        }
        Ok(measured)
    })
}
