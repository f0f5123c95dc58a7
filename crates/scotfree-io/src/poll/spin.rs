//! How long a poller looks for events before it sleeps.
//!
//! Waking a process takes tens of microseconds, of its own processor time too; looking takes a processor meanwhile.
//!
//! Invariant: whoever is told to sleep never looks; whoever looks while it pays looks in vain for a round of waits at
//! most, and tries again after a time that doubles as long as it does not pay.

use scotfree_core::Nanos;

/// Whether a poller looks before it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spin {
    /// It sleeps whenever nothing is there.
    #[default]
    Never,
    /// It looks for up to this time, if events have lately come within it.
    UpTo(Nanos),
    /// It looks while the mean wait is so short that sleeping would cost more.
    WhileItPays,
}

/// The first step, and the last before none, of [`Spin::UpTo`].
const FIRST: Nanos = Nanos::from_micros(20);
/// How long one looks where it pays.
const LOOK_TIME: Nanos = Nanos::from_micros(200);
/// Behind this mean of a round's waits looking takes more of the processor than it spares: a sleep and a wake-up took
/// 40 to 60 us of both ends' time where this was measured, and a wait is shorter where the others do not sleep either.
const PAYS_BELOW: Nanos = Nanos::from_micros(150);
/// How many waits are judged together.
const ROUND: u32 = 32;
/// So many waits in a row would have ended while looking: it is worth a try.
const SHORT_WAITS: u32 = 16;
/// When it is tried again, at first and at most.
const AGAIN_MIN: Nanos = Nanos::from_millis(100);
const AGAIN_MAX: Nanos = Nanos::from_millis(6_400);

/// What a poller has learnt.
#[derive(Debug, Clone, Copy)]
pub(super) enum Looking {
    Never,
    UpTo { time_max: Nanos, time: Nanos },
    WhileItPays(Trial),
}

/// Whether looking is being tried, and how that goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    is_on: bool,
    /// While it is off: how many short waits there were in a row.
    short_count: u32,
    /// While it is on: the waits of this round.
    count: u32,
    sum: Nanos,
    again_at: Nanos,
    again_after: Nanos,
}

impl From<Spin> for Looking {
    fn from(spin: Spin) -> Looking {
        match spin {
            Spin::Never | Spin::UpTo(Nanos(0)) => Looking::Never,
            Spin::UpTo(time_max) => Looking::UpTo { time_max, time: Nanos(0) },
            Spin::WhileItPays => Looking::WhileItPays(Trial {
                is_on: false,
                short_count: 0,
                count: 0,
                sum: Nanos(0),
                again_at: Nanos(0),
                again_after: AGAIN_MIN,
            }),
        }
    }
}

impl Looking {
    /// Whether it never looks, so that there is nothing to learn.
    pub fn is_never(&self) -> bool {
        matches!(self, Looking::Never)
    }

    /// For how long to look now.
    pub fn time(&self) -> Nanos {
        match self {
            Looking::UpTo { time, .. } => *time,
            Looking::WhileItPays(trial) if trial.is_on => LOOK_TIME,
            Looking::Never | Looking::WhileItPays(_) => Nanos(0),
        }
    }

    /// A wait that ended `now` took so long in all; `in_vain`, if looking did not end it.
    pub fn learn(&mut self, waited: Nanos, in_vain: bool, now: Nanos) {
        match self {
            Looking::UpTo { time_max, time } if in_vain => *time = step(*time, *time_max, waited),
            Looking::Never | Looking::UpTo { .. } => {}
            Looking::WhileItPays(trial) => trial.learn(waited, now),
        }
    }
}

/// Grows while looking would have paid, and shrinks to nothing otherwise.
fn step(time: Nanos, time_max: Nanos, waited: Nanos) -> Nanos {
    if waited <= time_max {
        return Nanos((time.0 * 2).max(FIRST.0)).min(time_max);
    }
    let half = Nanos(time.0 / 2);
    if half < FIRST {
        Nanos(0)
    } else {
        half
    }
}

impl Trial {
    fn learn(&mut self, waited: Nanos, now: Nanos) {
        if self.is_on {
            self.judge(waited, now);
            return;
        }
        self.short_count = if waited <= LOOK_TIME { self.short_count.saturating_add(1) } else { 0 };
        if self.short_count >= SHORT_WAITS && now >= self.again_at {
            (self.is_on, self.count, self.sum) = (true, 0, Nanos(0));
        }
    }

    fn judge(&mut self, waited: Nanos, now: Nanos) {
        self.count += 1;
        // One long rest among short waits costs no more than the time of looking.
        self.sum = self.sum.plus(waited.min(LOOK_TIME.plus(LOOK_TIME)));
        if self.count < ROUND {
            return;
        }
        if self.sum.0 / u64::from(ROUND) > PAYS_BELOW.0 {
            (self.is_on, self.short_count) = (false, 0);
            self.again_at = now.plus(self.again_after);
            self.again_after = Nanos(self.again_after.0 * 2).min(AGAIN_MAX);
        } else {
            self.again_after = Nanos(self.again_after.0 / 2).max(AGAIN_MIN);
        }
        (self.count, self.sum) = (0, Nanos(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(count: u64) -> Nanos {
        Nanos::from_micros(count)
    }

    #[test]
    fn looking_grows_while_it_would_have_paid_and_ends_when_it_does_not() {
        let mut looking = Looking::from(Spin::UpTo(micros(200)));
        let mut times = |waited: u64, count: usize| -> Vec<u64> {
            let learn = |_| {
                looking.learn(micros(waited), true, Nanos(0));
                looking.time().0 / 1_000
            };
            (0..count).map(learn).collect()
        };
        assert_eq!(times(150, 5), [20, 40, 80, 160, 200]);
        assert_eq!(times(201, 5), [100, 50, 25, 0, 0]);
        for spin in [Spin::Never, Spin::UpTo(Nanos(0))] {
            let mut never = Looking::from(spin);
            never.learn(Nanos(0), true, Nanos(0));
            assert!(never.is_never() && never.time() == Nanos(0));
        }
    }

    /// Waits of so long, one behind the other; how long it looked at the end of each.
    fn waits(looking: &mut Looking, now: &mut Nanos, waited: u64, count: u32) -> Vec<Nanos> {
        let wait = |_| {
            *now = now.plus(micros(waited));
            looking.learn(micros(waited), false, *now);
            looking.time()
        };
        (0..count).map(wait).collect()
    }

    #[test]
    fn it_looks_where_waits_are_short_and_goes_on_while_they_are() {
        let (mut looking, mut now) = (Looking::from(Spin::WhileItPays), Nanos(0));
        let times = waits(&mut looking, &mut now, 150, SHORT_WAITS);
        assert_eq!(times.iter().filter(|time| **time > Nanos(0)).count(), 1, "only behind the last");
        // Now that nobody sleeps, waits are shorter.
        assert!(waits(&mut looking, &mut now, 60, 10 * ROUND).iter().all(|time| *time == LOOK_TIME));
        // One rest does not end it.
        assert_eq!(waits(&mut looking, &mut now, 50_000, 1), [LOOK_TIME]);
        assert_eq!(waits(&mut looking, &mut now, 60, ROUND).last(), Some(&LOOK_TIME));
    }

    #[test]
    fn where_it_does_not_pay_it_is_tried_again_less_and_less_often() {
        let (mut looking, mut now) = (Looking::from(Spin::WhileItPays), Nanos(0));
        let mut looked_in = |seconds: u64| {
            let count = (seconds * 1_000_000 / 190) as u32;
            waits(&mut looking, &mut now, 190, count).iter().filter(|time| **time > Nanos(0)).count()
        };
        let (first, later) = (looked_in(1), looked_in(1));
        assert!(first > later && later > 0, "{first} {later}");
        // In the long run a round every 6.4 s.
        looked_in(20);
        assert!(looked_in(64) <= 11 * ROUND as usize);
        // Events far apart are never looked for.
        let mut looking = Looking::from(Spin::WhileItPays);
        assert!(waits(&mut looking, &mut now, 201, 10_000).iter().all(|time| *time == Nanos(0)));
    }
}
