//! Whether programs can be put under the limits of small machines here.
//!
//! Invariant: lists are read, and nothing is made.

use super::{Environment, Finding, State};
use scotfree_stage::confined::{available, Availability};

pub(super) fn check(environment: &dyn Environment) -> Finding {
    let check = "control groups (scot lab device)";
    let read = |file: &str| environment.read(file).unwrap_or_default();
    let of_file = |file: &std::path::Path| read(&file.to_string_lossy());
    let Availability { found, missing } =
        available(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"), of_file);
    if missing.is_empty() {
        return Finding::ok(check, found);
    }
    Finding::lacks(
        check,
        State::Could,
        format!("{} cannot be limited: {found}", missing.join(", ")),
        "where none is mounted, as root: mount -t cgroup2 cgroup2 /sys/fs/cgroup; where one has no memory: boot with \
         cgroup_enable=memory; in a container: run outside of it",
    )
}
