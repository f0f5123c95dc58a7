//! The plane in the kernel where it was left out of the build.

use super::{Interface, Kept};
use scotfree_core::DeviceId;
use std::path::Path;

const LEFT_OUT: &str = "this scot was built without the plane in the kernel";

pub(super) fn try_load() -> Result<(), String> {
    Err(LEFT_OUT.to_owned())
}

pub(crate) fn look_at_interface(_ifindex: u32) -> Result<Interface, String> {
    Err(LEFT_OUT.to_owned())
}

pub(crate) fn is_set(_folder: &Path) -> bool {
    false
}

pub(crate) fn owner_of_set(_folder: &Path) -> Result<Option<DeviceId>, String> {
    Err(LEFT_OUT.to_owned())
}

pub(crate) fn kept(_folder: &Path) -> Result<Kept, String> {
    Err(LEFT_OUT.to_owned())
}
