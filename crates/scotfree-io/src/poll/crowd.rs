//! Whether so many requests are under way that a loop should not look before it sleeps: the more there are, the less a
//! sleep costs each, and on the same host a loop that looks takes the processor of those whom it waits for.
//!
//! Invariant: a crowd that has gone is forgotten within some tens of turns.

/// What was under way of late. How many come in one turn would not do: the more often a loop turns, the fewer they are.
#[derive(Debug)]
pub struct Crowd {
    few: u64,
    /// The most of late; in eighths.
    recent: u64,
}

/// More than these are all the same.
const MANY: u64 = 1 << 10;

impl Crowd {
    /// More than so many are a crowd.
    pub fn above(few: u64) -> Crowd {
        Crowd { few, recent: 0 }
    }

    /// Whether of late no crowd was under way, now that so many are.
    pub fn are_few(&mut self, under_way: u64) -> bool {
        self.recent = (self.recent - self.recent.div_ceil(8)).max(under_way.min(MANY) * 8);
        self.recent <= self.few * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_one_for_a_while() {
        let mut crowd = Crowd::above(1);
        assert!([0, 1, 0, 1, 1].into_iter().all(|under_way| crowd.are_few(under_way)));
        assert!(!crowd.are_few(4));
        let mut turns = 0;
        while !crowd.are_few(1) {
            turns += 1;
        }
        assert!((3..30).contains(&turns), "{turns}");
        assert!(Crowd::above(4).are_few(4) && !Crowd::above(4).are_few(5));
    }
}
