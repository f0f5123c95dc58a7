//! The clock of one role: its own offset, its own rate, and jumps.
//!
//! Invariant: between jumps a clock never runs backward, and `when` is the first instant of the
//! world at which the clock shows a time.

use scotfree_core::Nanos;

const MILLION: u128 = 1_000_000;

/// A role's clock, as a line through one point.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    world: Nanos,
    shown: Nanos,
    /// How many millionths of a second the clock gains in a second of the world.
    drift_ppm: i32,
}

impl Clock {
    /// A clock that shows `shown` at the beginning of the world.
    pub fn new(shown: Nanos, drift_ppm: i32) -> Clock {
        Clock { world: Nanos(0), shown, drift_ppm }
    }

    /// What the clock shows at `world`.
    pub fn read(&self, world: Nanos) -> Nanos {
        self.shown.plus(Nanos((u128::from(world.since(self.world).0) * self.rate() / MILLION) as u64))
    }

    /// When in the world the clock will show `shown`.
    pub fn when(&self, shown: Nanos) -> Nanos {
        if shown == Nanos::MAX {
            return Nanos::MAX;
        }
        let wait = (u128::from(shown.since(self.shown).0) * MILLION).div_ceil(self.rate());
        self.world.plus(Nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// Sets the clock at `world` forward or, if `jump_ns` is negative, backward.
    pub fn jump(&mut self, world: Nanos, jump_ns: i64) {
        self.shown = Nanos(self.read(world).0.saturating_add_signed(jump_ns));
        self.world = world;
    }

    fn rate(&self) -> u128 {
        MILLION.saturating_add_signed(i128::from(self.drift_ppm)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_a_time_first_at_the_instant_it_names() {
        for drift_ppm in [-300, 0, 7, 500] {
            let mut clock = Clock::new(Nanos::from_secs(5), drift_ppm);
            clock.jump(Nanos(12_345), 999);
            for ahead in [1, 1_000, 123_456_789] {
                let shown = clock.read(Nanos(20_000)).plus(Nanos(ahead));
                let when = clock.when(shown);
                assert!(clock.read(when) >= shown);
                assert!(clock.read(Nanos(when.0 - 1)) < shown);
            }
        }
    }

    #[test]
    fn a_jump_moves_what_is_shown_by_as_much() {
        let mut clock = Clock::new(Nanos(1_000), 0);
        clock.jump(Nanos(50), 100);
        assert_eq!(clock.read(Nanos(50)), Nanos(1_150));
        clock.jump(Nanos(50), -200);
        assert_eq!(clock.read(Nanos(50)), Nanos(950));
    }

    #[test]
    fn never_stays_never() {
        assert_eq!(Clock::new(Nanos(1), 100).when(Nanos::MAX), Nanos::MAX);
    }
}
