//! The clocks of the shells: real time, comparable with kernel stamps, monotonic time, for timers, and boot time,
//! for what others rely on while this host is suspended.
//!
//! Invariant: machines never see these; their shells read a clock and pass the time as an argument.

use crate::sys;
use scotfree_core::Nanos;

/// `CLOCK_REALTIME`, the clock of the kernel's software stamps. It can be stepped: use it for stamps,
/// never for timers.
pub fn now_realtime() -> Nanos {
    sys::clock::read(libc::CLOCK_REALTIME)
}

/// `CLOCK_MONOTONIC`, which never goes back; for timers.
pub fn now_monotonic() -> Nanos {
    sys::clock::read(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_BOOTTIME`: monotonic time and the time for which the host was suspended. For leases: whoever has granted one,
/// on another host, goes on counting.
pub fn now_boottime() -> Nanos {
    sys::clock::read(libc::CLOCK_BOOTTIME)
}

/// The monotonic time at a moment of boot time that is to come, if the host is not suspended before: when to wake up.
pub fn monotonic_at(boottime: Nanos) -> Nanos {
    now_monotonic().plus(boottime.since(now_boottime()))
}

/// The same to within a few milliseconds, for a quarter of the price.
pub(crate) fn now_monotonic_coarse() -> Nanos {
    sys::clock::read(libc::CLOCK_MONOTONIC_COARSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn monotonic_time_does_not_go_back() {
        let mut previous = now_monotonic();
        for _ in 0..1_000 {
            let now = now_monotonic();
            assert!(now >= previous);
            previous = now;
        }
    }

    #[test]
    fn boot_time_goes_on_beside_monotonic_time() {
        let (monotonic, boot) = (now_monotonic(), now_boottime());
        let span = Nanos(3_600_000_000_000);
        let at = monotonic_at(boot.plus(span));
        assert!(at <= now_monotonic().plus(span), "it is not later than from now");
        assert!(at.plus(Nanos(60_000_000_000)) >= monotonic.plus(span), "nor is it past");
        assert!(monotonic_at(Nanos(0)) <= now_monotonic(), "what is over is due at once");
        assert!(now_boottime() >= boot);
    }

    #[test]
    fn real_time_is_the_time_since_1970() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
        let now = now_realtime();
        assert!(u128::from(now.0) + 1_000_000_000 > before.as_nanos());
        assert!(u128::from(now.0) < before.as_nanos() + 3_600_000_000_000);
    }
}
