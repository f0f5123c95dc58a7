//! The remedies of this build: one line each, and the only place outside a remedy's folder that names it.

use scotfree_device::Maker;

/// The functions of devices.
pub const FUNCTIONS: &[Maker] = &[remedy_persist::MAKER];

/// Their parts in the kernel.
#[cfg(feature = "xdp")]
pub const PARTS: &[scotfree_xdp::PartMaker] = &[remedy_persist_kernel::PART];

/// The functions of a device whose configuration names none.
pub const FUNCTIONS_DEFAULT: &[&str] = &["persist"];
