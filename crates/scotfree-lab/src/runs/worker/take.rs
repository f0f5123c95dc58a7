//! A program before a server's port that takes the updates which a device sends on, so that the server sleeps on.
//!
//! Invariant: nothing else is kept from the server; what was taken is counted, and reported when it is told to end.

use crate::gauge::{interface_number, Gauge, Part};
use scotfree_io::{Interest, Poller, Signals};
use scotfree_stage::trouble::Trouble;
use scotfree_stage::worker::{print_report, READY};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsRawFd;

/// Where updates are taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakeSpec {
    /// The server's interface.
    pub interface: String,
}

/// What was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeReport {
    /// Updates with an order number.
    pub taken: u64,
}

pub(super) fn serve(spec: &TakeSpec) -> Result<(), Trouble> {
    let broke =
        |error| Trouble::new(format!("take updates at {}", spec.interface), error, "see: scot doctor");
    let told = |error: io::Error| {
        Trouble::new("wait for the end of the measurement", error, "see whether signals can be taken over")
    };
    let program = Gauge::load(Part::Take).map_err(broke)?;
    let _link = program.attach(interface_number(&spec.interface)?).map_err(broke)?;
    let signals = Signals::install().map_err(told)?;
    println!("{READY}");
    let mut poller = Poller::new(1).map_err(told)?;
    poller.add(signals.as_raw_fd(), 0, Interest::Read).map_err(told)?;
    poller.wait(None).map_err(told)?;
    print_report(&TakeReport { taken: program.counters().map_err(broke)?.stamped });
    Ok(())
}
