//! The server, which does nothing with what it is sent.
//!
//! Invariant: it is a whole server of its cluster (it recovers, opens sessions, keeps leases, says what is stable),
//! and all of that takes the way that was chosen. It reports what happened from its readiness until it was told to
//! end.

use super::super::noop::{self, NoopSpec};
use super::{open_stack, sleeps, Access, Endpoint, EndpointReport, HasRings, Waits};
use crate::af_xdp::AfXdpTransport;
use scotfree_io::{Interest, Poller, Signals};
use scotfree_rpc::Stop;
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::{print_report, READY};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsRawFd;
use std::thread;

/// A server on a chosen way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EndpointServerSpec {
    /// What it does.
    pub noop: NoopSpec,
    /// How it gets at its datagrams.
    pub endpoint: Endpoint,
}

pub(in super::super) fn serve(spec: &EndpointServerSpec) -> Result<(), Trouble> {
    let stop = Stop::new().map_err(|error| broke(spec, &error))?;
    stop_at_signal(stop.clone()).map_err(|error| broke(spec, &error))?;
    let report = match &spec.endpoint.access {
        Access::Stack => serve_on(spec, open_stack(spec.endpoint.address)?, &stop),
        Access::Bypass(interface) => {
            serve_on(spec, AfXdpTransport::bind(spec.endpoint.address, interface)?, &stop)
        }
    };
    print_report(&report.map_err(|error| broke(spec, &error))?);
    Ok(())
}

fn broke(spec: &EndpointServerSpec, error: &io::Error) -> Trouble {
    Trouble::new(format!("serve at {}", spec.endpoint.address), error, "see the log of the device")
}

fn serve_on<T: HasRings>(spec: &EndpointServerSpec, transport: T, stop: &Stop) -> io::Result<EndpointReport> {
    let mut server = noop::recovered(&spec.noop, transport)?;
    println!("{READY}");
    let sleeps_before = sleeps();
    match spec.endpoint.waits {
        Waits::Asleep => drop(server.run(stop, None)?),
        Waits::Spinning => {
            while !stop.is_stopped() {
                server.turn()?;
            }
        }
    }
    Ok(EndpointReport { sleeps: sleeps() - sleeps_before, rings: server.transport().rings() })
}

/// A thread of its own waits for the signal, so that the server need not look for it.
fn stop_at_signal(stop: Stop) -> io::Result<()> {
    let signals = Signals::install()?;
    let mut poller = Poller::new(1)?;
    poller.add(signals.as_raw_fd(), 0, Interest::Read)?;
    thread::spawn(move || {
        // If waiting fails there is no other way to be told to end.
        let _ = poller.wait(None);
        drop(signals);
        stop.stop();
    });
    Ok(())
}
