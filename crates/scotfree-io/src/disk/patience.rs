//! Whether the owner of a log may wait for the medium itself, which spares two wake-ups.
//!
//! Invariant: it may only behind a row of writes that were all quick, whoever waited for them; so a medium that
//! begins to hang holds its owner up for one write and no other.

use scotfree_core::Nanos;

/// A write that takes longer is not quick.
const QUICK_MAX: Nanos = Nanos::from_millis(2);

/// How the medium has been of late.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How many quick writes in a row it takes; `None` for an owner who never waits.
    row_wanted: Option<u32>,
    row: u32,
}

impl Patience {
    /// That of an owner who waits after so many quick writes in a row.
    pub fn after(row_wanted: Option<u32>) -> Patience {
        Patience { row_wanted, row: 0 }
    }

    /// Another write took so long.
    pub fn learn(&mut self, took: Nanos) {
        self.row = if took <= QUICK_MAX { self.row.saturating_add(1) } else { 0 };
    }

    /// Whether the owner may wait for the next one.
    pub fn is_enough(&self) -> bool {
        self.row_wanted.is_some_and(|wanted| self.row >= wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_write_ends_it_until_a_row_of_quick_ones_is_over() {
        let mut patience = Patience::after(Some(3));
        let mut learn = |took: Nanos| {
            patience.learn(took);
            patience.is_enough()
        };
        assert_eq!([QUICK_MAX; 4].map(&mut learn), [false, false, true, true]);
        assert!(!learn(Nanos(QUICK_MAX.0 + 1)));
        assert_eq!([QUICK_MAX; 3].map(&mut learn), [false, false, true]);
    }

    #[test]
    fn who_never_waits_does_not_learn_to() {
        let mut never = Patience::after(None);
        (0..100).for_each(|_| never.learn(Nanos(0)));
        assert!(!never.is_enough());
        assert!(Patience::after(Some(0)).is_enough());
    }
}
