//! What a daemon left in a folder of the BPF file system, to be looked at while none runs.
//!
//! Invariant: looking changes nothing; what a running daemon holds may be looked at too.

use crate::error::{bpf, system, KernelError};
use crate::functions;
use crate::kernel::{require_layout, table_path, TABLE_SHARED};
use crate::shared::Shared;
use crate::tables::{counters_of, sums_of, Counters, FunctionCounters};
use libbpf_rs::{MapCore, MapHandle};
use scotfree_core::{BootEpoch, DeviceId, Nanos, OrderNumber};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What is kept in a folder.
pub struct Kept {
    shared: Shared,
    counters: MapHandle,
    shared_id: u32,
    folder: PathBuf,
}

impl Kept {
    /// Opens what is kept in `folder`.
    pub fn open(folder: &Path) -> Result<Kept, KernelError> {
        let table = |name: &str| {
            let path = table_path(folder, OsStr::new(name));
            MapHandle::from_pinned_path(&path).map_err(bpf(format!("opening {}", path.display())))
        };
        require_layout(folder)?;
        let (shared, counters) = (table(TABLE_SHARED)?, table("scot_counters")?);
        let shared_id = shared.info().map_err(bpf("asking for a table's number"))?.info.id;
        let shared = Shared::map(shared.as_fd()).map_err(system("mapping the shared memory"))?;
        Ok(Kept { shared, counters, shared_id, folder: folder.to_owned() })
    }

    /// Whose it is.
    pub fn device(&self) -> DeviceId {
        self.shared.device()
    }

    /// Its incarnation.
    pub fn boot_epoch(&self) -> BootEpoch {
        self.shared.boot_epoch()
    }

    /// The last order number that was given, of all servers' orders.
    pub fn order_current(&self) -> OrderNumber {
        self.shared.servers().map(|server| server.order_current()).max().unwrap_or_default()
    }

    /// Until when the programs may acknowledge, to whichever server's clients.
    pub fn lease_until(&self) -> Nanos {
        self.shared.servers().map(|server| server.lease()).max().unwrap_or_default()
    }

    /// What the function with this name counted, over all processors and all daemons; nothing if it counts nothing.
    pub fn counters_of(&self, function: &str) -> Result<FunctionCounters, KernelError> {
        let Some((table, names)) = functions::counters(function) else { return Ok(FunctionCounters::new()) };
        let path = table_path(&self.folder, OsStr::new(&table));
        let sums = MapHandle::from_pinned_path(&path).and_then(|table| sums_of(&table));
        Ok(names.iter().copied().zip(sums.map_err(bpf(format!("reading {}", path.display())))?).collect())
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
