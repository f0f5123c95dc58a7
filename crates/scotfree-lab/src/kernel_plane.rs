//! Whether the plane in the kernel can be had here.
//!
//! Invariant: what is tried is what a start of the device tries, and it leaves nothing.

use crate::trouble::Trouble;
use scotfree_xdp::{Kernel, KernelConfig};

/// The file that says whose user namespace a process lives in.
pub(crate) const USER_NAMESPACE_FILE: &str = "/proc/self/uid_map";

/// Loads the device's programs into the kernel and removes them again.
pub fn try_programs() -> Result<(), Trouble> {
    let map = std::fs::read_to_string(USER_NAMESPACE_FILE).unwrap_or_default();
    let tried = "run the device's programs in the kernel";
    if is_user_namespace(&map) {
        let problem =
            "this process lives in a user namespace of its own, and the kernel takes programs from the \
                       first one only";
        return Err(Trouble::new(tried, problem, "run as root (sudo scot …), or with --plane user"));
    }
    match Kernel::load(&KernelConfig { slot_count: 1, pin: None }) {
        Ok(_) => Ok(()),
        Err(error) => Err(Trouble::new(tried, error, "see: scot doctor")),
    }
}

/// Whether a map of users is another than the first namespace's.
pub(crate) fn is_user_namespace(uid_map: &str) -> bool {
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
}
