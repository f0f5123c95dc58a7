//! Time in which the host of a virtual machine lets others use its processors.
//!
//! Invariant: what is measured meanwhile says more of those others than of us, so it is measured once more.

use scotfree_stage::trouble::Trouble;
use std::fs;
use std::path::Path;

const FILE: &str = "/proc/stat";
/// From this share of all processor time on.
const MUCH: f64 = 0.01;

/// The processors' time so far, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks {
    all: u64,
    stolen: u64,
}

/// How a measurement was made in the end.
#[derive(Debug, PartialEq)]
pub(super) struct Undisturbed<T> {
    pub found: T,
    /// How often it was made in vain before.
    pub repeated: u64,
    /// Whether it is disturbed nevertheless, since the patience is over.
    pub is_disturbed: bool,
}

/// Measures until the host leaves the processors alone meanwhile, at most so many times more.
pub(super) fn undisturbed<T>(
    again_max: u64,
    measure: impl FnMut() -> Result<T, Trouble>,
) -> Result<Undisturbed<T>, Trouble> {
    undisturbed_by(Ticks::now, again_max, measure)
}

fn undisturbed_by<T>(
    mut now: impl FnMut() -> Result<Ticks, Trouble>,
    again_max: u64,
    mut measure: impl FnMut() -> Result<T, Trouble>,
) -> Result<Undisturbed<T>, Trouble> {
    let mut repeated = 0;
    loop {
        let before = now()?;
        let found = measure()?;
        let is_disturbed = now()?.stolen_since(before) > MUCH;
        if !is_disturbed || repeated == again_max {
            return Ok(Undisturbed { found, repeated, is_disturbed });
        }
        repeated += 1;
    }
}

impl Ticks {
    fn now() -> Result<Ticks, Trouble> {
        let file = Path::new(FILE);
        let text = fs::read_to_string(file).map_err(|error| Trouble::file("read", file, &error))?;
        Ok(Ticks::of(&text))
    }

    /// Of the first line: user, nice, system, idle, iowait, irq, softirq, steal, and guests that are in user.
    fn of(text: &str) -> Ticks {
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        Ticks { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// The share of the time since.
    fn stolen_since(self, before: Ticks) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_host_s_part_is_read_beside_all_but_the_guests() {
        let text = "cpu  10 20 30 400 5 6 7 8 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\n";
        assert_eq!(Ticks::of(text), Ticks { all: 486, stolen: 8 });
        assert_eq!(Ticks::of("cpu 1 2 3 4\n"), Ticks { all: 10, stolen: 0 });
        let later = Ticks { all: 686, stolen: 18 };
        assert!((later.stolen_since(Ticks::of(text)) - 0.05).abs() < 1e-9);
    }

    /// Measures where the host takes so many ticks of a hundred each time.
    fn measured(stolen: &[u64], again_max: u64) -> Undisturbed<u64> {
        let (turn, ticks) = (Cell::new(0), Cell::new(Ticks { all: 0, stolen: 0 }));
        let measure = || {
            let taken = stolen[turn.get() as usize];
            turn.set(turn.get() + 1);
            ticks.set(Ticks { all: ticks.get().all + 100, stolen: ticks.get().stolen + taken });
            Ok(turn.get())
        };
        undisturbed_by(|| Ok(ticks.get()), again_max, measure).expect("nothing refuses")
    }

    #[test]
    fn what_was_disturbed_is_measured_again_until_the_patience_is_over() {
        assert_eq!(measured(&[1], 3), Undisturbed { found: 1, repeated: 0, is_disturbed: false });
        assert_eq!(measured(&[2, 50, 0], 3), Undisturbed { found: 3, repeated: 2, is_disturbed: false });
        assert_eq!(measured(&[2, 2], 1), Undisturbed { found: 2, repeated: 1, is_disturbed: true });
    }
}
