//! Reading a kernel clock.
//!
//! Invariant: the clocks read here exist on every Linux, so reading cannot fail.

use scotfree_core::Nanos;

/// The time of `clock`, one of `CLOCK_REALTIME`, `CLOCK_MONOTONIC` and `CLOCK_MONOTONIC_COARSE`.
pub fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec for the length of the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "clock {clock} exists");
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
