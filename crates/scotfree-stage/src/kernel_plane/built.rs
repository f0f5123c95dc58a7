//! The plane in the kernel where it was built.

use super::{Attached, Features, Interface, Kept};
use scotfree_core::DeviceId;
use scotfree_xdp::{Functions, Kernel, KernelConfig};
use std::path::Path;

/// Loads the programs, and removes them with the value that is dropped.
pub fn try_load() -> Result<(), String> {
    let loaded = Kernel::load(&KernelConfig { slot_count: 1, pin: None, functions: Functions::ALL });
    loaded.map(drop).map_err(|error| error.to_string())
}

/// What the kernel says of an interface.
pub fn look_at_interface(ifindex: u32) -> Result<Interface, String> {
    let scotfree_xdp::Interface { features, program } =
        scotfree_xdp::Interface::look(ifindex).map_err(|error| error.to_string())?;
    let attached = |program: scotfree_xdp::Attached| Attached {
        is_ours: program.is_ours(),
        id: program.id,
        name: program.name,
    };
    Ok(Interface {
        features: Features { native: features.native, is_target: features.is_target },
        program: program.map(attached),
    })
}

/// Whether a folder is a set of programs that root has loaded for a group.
pub fn is_set(folder: &Path) -> bool {
    scotfree_xdp::is_set(folder)
}

/// Whose log such a set holds, if anybody's, or why this process cannot use it.
pub fn owner_of_set(folder: &Path) -> Result<Option<DeviceId>, String> {
    scotfree_xdp::owner(folder).map_err(|error| error.to_string())
}

/// What a device has kept in `folder`.
pub fn kept(folder: &Path) -> Result<Kept, String> {
    let kept = scotfree_xdp::Kept::open(folder).map_err(|error| error.to_string())?;
    let counters = kept.counters_of("persist").map_err(|error| error.to_string())?;
    Ok(Kept {
        device: kept.device(),
        boot_epoch: kept.boot_epoch(),
        order: kept.order_current(),
        lease_until: kept.lease_until(),
        persist_acks: counters.get("persist_acks").copied().unwrap_or(0),
        table: kept.shared_id(),
    })
}
