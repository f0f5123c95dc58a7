//! Endpoints that bypass their hosts' network stacks, with and without the device's acknowledgement, beside those
//! that do not (thesis Figure 3.22).
//!
//! Invariant: all arms pass the same device on the same cables, and both ends of an arm take the same way and wait
//! in the same manner. A server is started for each measurement and ended after it, so that none that spins stands
//! beside another's measurement.

use super::bare_services::BareServices;
use super::settings::settings_of;
use super::worker::endpoints::client::{EndpointCallsReport, EndpointCallsSpec};
use super::worker::endpoints::{Access, Endpoint, EndpointReport, Waits};
use super::worker::WorkerSpec;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::site::{difference, report_of, Logs, Site};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::metrics::Counts;
use serde::Deserialize;
use std::net::SocketAddr;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    #[serde(with = "crate::tier_text")]
    durability: Tier,
    /// The way of client and server.
    way: Way,
    /// What they do while nothing comes.
    waits: Waits,
    calls: u64,
    payload_bytes: usize,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    Stack,
    AfXdp,
}

/// The port of both hosts.
const PORT: &str = "eth0";

impl Way {
    fn access(self) -> Access {
        match self {
            Way::Stack => Access::Stack,
            Way::AfXdp => Access::Bypass(PORT.to_owned()),
        }
    }
}

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    let site = context.site()?;
    let _switch = site.start_switch_with(Logs::Ram, &["--plane", "xdp"])?;
    let mut epoch = 0;
    context.measure_in_turns(|arm, _| {
        epoch += 1;
        measure(&site, epoch, &settings_of(arm)?)
    })
}

fn measure(site: &Site<'_>, epoch: u32, settings: &Settings) -> Result<Measured, Trouble> {
    let server = site.start_endpoint_server(epoch, settings.way.access(), settings.waits)?;
    let before = site.device_counts()?;
    let calls =
        site.run_worker("client", "endpoint-calls", &WorkerSpec::EndpointCalls(calls(site, settings)))?;
    let after = site.device_counts()?;
    server.signal("TERM");
    let at_server = report_of(&server)?;
    Ok(measured(&calls, &at_server, &before, &after))
}

fn calls(site: &Site<'_>, settings: &Settings) -> EndpointCallsSpec {
    let address = SocketAddr::new(site.address("client"), 0);
    EndpointCallsSpec {
        endpoint: Endpoint { address, access: settings.way.access(), waits: settings.waits },
        server: site.server(),
        cluster_key: site.cluster_key(),
        tier: settings.durability,
        payload_bytes: settings.payload_bytes,
        calls: settings.calls,
        warmup_calls: settings.calls / 10,
    }
}

fn measured(
    calls: &EndpointCallsReport,
    at_server: &EndpointReport,
    before: &Counts,
    after: &Counts,
) -> Measured {
    let mut measured = Measured::default();
    measured.latency(&calls.latency);
    measured.value("requests_per_s", calls.requests_per_s);
    measured.counter("answered", calls.latency.count);
    measured.counter("completed_early", calls.completed_early);
    measured.counter("sent_again", calls.retransmitted);
    measured.counter("refused", calls.refused);
    for (end, report) in [("client", &calls.client), ("server", at_server)] {
        measured.counter(&format!("{end}_sleeps"), report.sleeps);
        measured.counter(&format!("{end}_received_by_rings"), report.rings.received);
        measured.counter(&format!("{end}_not_ours"), report.rings.not_ours);
        measured.counter(&format!("{end}_sent_by_rings"), report.rings.sent);
        measured.counter(&format!("{end}_sent_by_host"), report.rings.sent_by_host);
    }
    let count = |name| difference(before, after, name);
    measured.counter("device_acks", count("scotfree_device_persist_acks_total"));
    measured.counter("logged", count("scotfree_device_logged_total"));
    measured.counter("passed_up", count("scotfree_kernel_passed_up_total"));
    measured
}
