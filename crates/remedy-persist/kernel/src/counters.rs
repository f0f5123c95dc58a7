//! What the programs counted, under the device machine's names.
//!
//! Invariant: a counter of the machine that the programs do not have is 0.

use remedy_persist::PersistCounters;
use scotfree_xdp::{Kernel, KernelError};

/// What the programs counted of persist's, over all processors.
pub fn counters(kernel: &Kernel) -> Result<PersistCounters, KernelError> {
    let own = kernel.counters_of(crate::FUNCTION)?;
    let of = |name: &str| own.get(name).copied().unwrap_or(0);
    Ok(PersistCounters {
        admitted_updates: of("admitted_updates"),
        logged: of("logged"),
        ungranted: of("ungranted"),
        persist_acks: of("persist_acks"),
        freed: of("freed"),
        without_lease: of("without_lease"),
        ..PersistCounters::default()
    })
}
