//! What the programs counted, under the device machine's names.
//!
//! Invariant: a counter of the machine that the programs do not have is 0.

use remedy_persist::DeviceCounters;
use scotfree_xdp::{Kernel, KernelError};

/// What the programs counted by themselves, over all processors.
pub fn counters(kernel: &Kernel) -> Result<DeviceCounters, KernelError> {
    let (base, own) = (kernel.counters()?, kernel.counters_of(crate::FUNCTION)?);
    let of = |name: &str| own.get(name).copied().unwrap_or(0);
    Ok(DeviceCounters {
        requests: base.requests,
        admitted: base.admitted,
        unadmitted: base.unadmitted,
        duplicate: base.duplicate,
        bad: base.bad,
        past_epoch: base.past_epoch,
        refused: base.refused,
        admitted_updates: of("admitted_updates"),
        logged: of("logged"),
        ungranted: of("ungranted"),
        persist_acks: of("persist_acks"),
        freed: of("freed"),
        without_lease: of("without_lease"),
        ..DeviceCounters::default()
    })
}
