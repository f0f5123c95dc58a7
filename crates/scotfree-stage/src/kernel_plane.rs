//! The plane in the kernel, as far as the lab and the doctor look at it.
//!
//! Invariant: what is tried is what a start of the device tries, and it leaves nothing; built without the
//! plane, everything here says so instead.

#[cfg_attr(feature = "xdp", path = "kernel_plane/built.rs")]
#[cfg_attr(not(feature = "xdp"), path = "kernel_plane/left_out.rs")]
mod plane;

pub use plane::{is_set, kept, look_at_interface, owner_of_set};

use crate::trouble::Trouble;
use scotfree_core::{BootEpoch, DeviceId, Nanos, OrderNumber};

/// The file that says whose user namespace a process lives in.
pub const USER_NAMESPACE_FILE: &str = "/proc/self/uid_map";

/// Whether this build has the plane in the kernel.
pub const IS_BUILT: bool = cfg!(feature = "xdp");

/// An interface, as far as programs go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// What its driver offers to programs. Kernels before Linux 6.3 do not say; then it is nothing.
    pub features: Features,
    /// What is attached to it.
    pub program: Option<Attached>,
}

/// What a driver offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Programs run in the driver and may send frames out of other interfaces.
    pub native: bool,
    /// Programs of other interfaces may send frames out of this one.
    pub is_target: bool,
}

/// A program that is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Its number.
    pub id: u32,
    /// Its name, if this process may know it.
    pub name: Option<String>,
    /// Whether it is a device's; none if that is not to be known.
    pub is_ours: Option<bool>,
}

/// What the programs of a device keep, at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Whose it is.
    pub device: DeviceId,
    /// Its incarnation.
    pub boot_epoch: BootEpoch,
    /// The last order number that was given.
    pub order: OrderNumber,
    /// Until when they may acknowledge.
    pub lease_until: Nanos,
    /// How many acknowledgements they have sent.
    pub persist_acks: u64,
    /// The number of the table that its daemon has open.
    pub table: u32,
}

/// Loads the device's programs into the kernel and removes them again.
pub fn try_programs() -> Result<(), Trouble> {
    let map = std::fs::read_to_string(USER_NAMESPACE_FILE).unwrap_or_default();
    let tried = "run the device's programs in the kernel";
    if IS_BUILT && is_user_namespace(&map) {
        let problem =
            "this process lives in a user namespace of its own, and the kernel takes programs from the \
                       first one only";
        return Err(Trouble::new(tried, problem, "run as root (sudo scot …), or with --plane user"));
    }
    plane::try_load().map_err(|problem| Trouble::new(tried, problem, "see: scot doctor"))
}

/// Whether a map of users is another than the first namespace's.
pub fn is_user_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().ne(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_user_namespace_is_told_from_others() {
        assert!(!is_user_namespace("         0          0 4294967295\n"));
        assert!(is_user_namespace("         0      65534          1\n"));
        assert!(is_user_namespace(""), "what cannot be read is no right");
    }

    #[test]
    fn a_build_without_the_plane_says_so() {
        if IS_BUILT {
            return;
        }
        let problem = try_programs().expect_err("there is nothing to try").problem;
        assert!(problem.contains("was built without the plane in the kernel"), "{problem}");
    }
}
