//! What a daemon left in a folder of the BPF file system, to be looked at while none runs.
//!
//! Invariant: looking changes nothing; what a running daemon holds may be looked at too.

use crate::error::{bpf, refused, system, KernelError};
use crate::kernel::{table_path, TABLE_SHARED};
use crate::shared::{Shared, VERSION};
use crate::tables::{counters_of, Counters};
use libbpf_rs::{MapCore, MapHandle};
use scotfree_core::{BootEpoch, DeviceId, Nanos, OrderNumber};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;

/// What is kept in a folder.
pub struct Kept {
    shared: Shared,
    counters: MapHandle,
    shared_id: u32,
}

impl Kept {
    /// Opens what is kept in `folder`.
    pub fn open(folder: &Path) -> Result<Kept, KernelError> {
        let table = |name: &str| {
            let path = table_path(folder, OsStr::new(name));
            MapHandle::from_pinned_path(&path).map_err(bpf(format!("opening {}", path.display())))
        };
        let (shared, counters) = (table(TABLE_SHARED)?, table("scot_counters")?);
        let shared_id = shared.info().map_err(bpf("asking for a table's number"))?.info.id;
        let shared = Shared::map(shared.as_fd()).map_err(system("mapping the shared memory"))?;
        if shared.version() != VERSION {
            let found = format!("tables of layout {}", shared.version());
            return Err(refused(folder, found, format!("layout {VERSION}")));
        }
        Ok(Kept { shared, counters, shared_id })
    }

    /// Whose it is.
    pub fn device(&self) -> DeviceId {
        self.shared.device()
    }

    /// Its incarnation.
    pub fn boot_epoch(&self) -> BootEpoch {
        self.shared.boot_epoch()
    }

    /// The last order number that was given.
    pub fn order_current(&self) -> OrderNumber {
        self.shared.order_current()
    }

    /// Until when the programs may acknowledge.
    pub fn lease_until(&self) -> Nanos {
        self.shared.lease()
    }

    /// What the programs counted, over all processors and all daemons.
    pub fn counters(&self) -> Result<Counters, KernelError> {
        counters_of(&self.counters).map_err(bpf("reading the counters"))
    }

    /// The number under which the kernel knows the shared memory: who has it open is the daemon.
    pub fn shared_id(&self) -> u32 {
        self.shared_id
    }
}
