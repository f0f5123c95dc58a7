//! The plane in the kernel where it was left out of the build.

use super::{Interface, Kept};
use scotfree_core::DeviceId;
use std::path::Path;

const LEFT_OUT: &str = "this scot was built without the plane in the kernel";

pub fn try_load() -> Result<(), String> {
    Err(LEFT_OUT.to_owned())
}

/// What the kernel says of an interface.
pub fn look_at_interface(_ifindex: u32) -> Result<Interface, String> {
    Err(LEFT_OUT.to_owned())
}

/// Whether a folder is a set of programs that root has loaded for a group.
pub fn is_set(_folder: &Path) -> bool {
    false
}

/// Whose log such a set holds, if anybody's.
pub fn owner_of_set(_folder: &Path) -> Result<Option<DeviceId>, String> {
    Err(LEFT_OUT.to_owned())
}

/// What a device has kept in a folder.
pub fn kept(_folder: &Path) -> Result<Kept, String> {
    Err(LEFT_OUT.to_owned())
}
