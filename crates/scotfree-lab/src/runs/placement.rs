//! Where on the path the device lies: at the client's host, between the hosts, or at the server's (thesis 3.6.2,
//! PMNet-Switch and PMNet-NIC).
//!
//! Invariant: in every arm a frame passes the same three bridges of the same kind on its way; one of them is the
//! device, and the two others log nothing.

use super::bare_services::{BareServices, Calls};
use super::settings::settings_of;
use super::update_ack;
use super::{Context, Measured};
use crate::experiment::Measurement;
use scotfree_core::Tier;
use scotfree_stage::kernel_plane::try_programs;
use scotfree_stage::process::Process;
use scotfree_stage::site::{difference, Device, Logs, Site};
use scotfree_stage::trouble::Trouble;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    place: Place,
    calls: u64,
    payload_bytes: usize,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Place {
    /// A bump in the client's wire.
    AtClient,
    /// The switch to which both hosts are connected.
    TopOfRack,
    /// A bump in the server's wire.
    AtServer,
}

const PLACES: [Place; 3] = [Place::AtClient, Place::TopOfRack, Place::AtServer];

pub(super) fn run(context: &Context<'_>) -> Result<Vec<Measurement>, Trouble> {
    try_programs()?;
    // Each measurement has processes of its own.
    context.measure_in_turns(|arm, _| {
        let settings = settings_of(arm)?;
        Path::up(context, &settings)?.measure(&settings)
    })
}

/// The way from the client to the server.
struct Path<'a> {
    device: Device,
    others: Vec<Device>,
    _bridges: Vec<Process>,
    _server: Process,
    // Behind the processes, which end before it goes.
    site: Site<'a>,
}

impl<'a> Path<'a> {
    fn up(context: &Context<'a>, settings: &Settings) -> Result<Path<'a>, Trouble> {
        let site = context.site()?;
        let here = |(_, place): &(Device, Place)| *place == settings.place;
        let (device, others): (Vec<_>, Vec<_>) = site.devices().into_iter().zip(PLACES).partition(here);
        let (device, _) = device.into_iter().next().expect("the topology has a host for each place");
        // The only one that its cluster knows.
        let device = Device { id: 1, is_first: true, ..device };
        let others: Vec<Device> = others.into_iter().map(|(other, _)| other).collect();
        site.say_head(&device, true)?;
        let mut bridges = vec![site.start_device(&device, Logs::Ram, &["--plane", "xdp"])?];
        for other in &others {
            bridges.push(site.start_plain_bridge(&other.role)?);
        }
        let server = site.start_noop_behind(std::slice::from_ref(&device))?;
        Ok(Path { device, others, _bridges: bridges, _server: server, site })
    }

    fn measure(&self, settings: &Settings) -> Result<Measured, Trouble> {
        let calls = Calls {
            tier: Tier::RAM,
            outstanding: 1,
            interval_us: 0,
            payload_bytes: settings.payload_bytes,
            count: settings.calls,
            trace: None,
        };
        let before = self.site.counts(&self.device.role)?;
        let mut measured = update_ack::measured(&self.site.calls(&calls)?);
        let after = self.site.counts(&self.device.role)?;
        measured.counter("acks", difference(&before, &after, "scotfree_device_persist_acks_total"));
        let mut of_others = 0;
        for other in &self.others {
            let counts = self.site.counts(&other.role)?;
            of_others += counts.get("scotfree_device_admitted_total").copied().unwrap_or(0);
        }
        measured.counter("admitted_by_others", of_others);
        Ok(measured)
    }
}
