//! What becomes of a packet between two places.
//!
//! Invariant: nothing here knows what a packet means; whatever a network may do to any packet, it
//! does to every kind alike.

use crate::rng::{PerMillion, Rng};
use scotfree_core::Nanos;

/// How bad every link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quality {
    /// Packets that vanish.
    pub loss: PerMillion,
    /// Packets that arrive twice.
    pub duplication: PerMillion,
    /// Packets of which some bits flip.
    pub corruption: PerMillion,
    /// The shortest way.
    pub delay_min: Nanos,
    /// The longest ordinary way: the difference is what reorders.
    pub delay_max: Nanos,
    /// Packets that come very late: old incarnations go on speaking through them.
    pub straggling: PerMillion,
    /// How late they come at most.
    pub straggle_max: Nanos,
    /// Packets that go around all places between their ends, where there is a way.
    pub detour: PerMillion,
}

impl Quality {
    /// A network without faults.
    pub const CALM: Quality = Quality {
        loss: PerMillion::NEVER,
        duplication: PerMillion::NEVER,
        corruption: PerMillion::NEVER,
        delay_min: Nanos::from_micros(5),
        delay_max: Nanos::from_micros(20),
        straggling: PerMillion::NEVER,
        straggle_max: Nanos(0),
        detour: PerMillion::NEVER,
    };

    /// The same links without their faults.
    #[must_use]
    pub fn calmed(&self) -> Quality {
        Quality { delay_min: self.delay_min, delay_max: self.delay_max, ..Quality::CALM }
    }

    /// How long one copy of a packet is under way; `None` if it vanishes.
    pub fn delay(&self, rng: &mut Rng) -> Option<Nanos> {
        if rng.chance(self.loss) {
            return None;
        }
        let delay = rng.span(self.delay_min, self.delay_max);
        Some(if rng.chance(self.straggling) {
            delay.plus(rng.span(Nanos(0), self.straggle_max))
        } else {
            delay
        })
    }

    /// Flips a few bits, perhaps; whether it did.
    pub fn corrupt(&self, rng: &mut Rng, bytes: &mut [u8]) -> bool {
        if bytes.is_empty() || !rng.chance(self.corruption) {
            return false;
        }
        for _ in 0..rng.between(1, 3) {
            let at = rng.index(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        true
    }
}

/// The links that are cut, one direction at a time.
#[derive(Debug, Clone)]
pub struct Cuts<Place>(Vec<(Place, Place)>);

impl<Place> Default for Cuts<Place> {
    fn default() -> Self {
        Cuts(Vec::new())
    }
}

impl<Place: Copy + Eq> Cuts<Place> {
    /// Cuts the way from one place to the next.
    pub fn cut(&mut self, from: Place, to: Place) {
        if !self.is_cut(from, to) {
            self.0.push((from, to));
        }
    }

    /// Heals it.
    pub fn heal(&mut self, from: Place, to: Place) {
        self.0.retain(|link| *link != (from, to));
    }

    /// Heals everything.
    pub fn heal_all(&mut self) {
        self.0.clear();
    }

    /// Whether nothing passes.
    pub fn is_cut(&self, from: Place, to: Place) -> bool {
        self.0.contains(&(from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calm_network_delivers_all() {
        let mut rng = Rng::new(1, 0);
        for _ in 0..1_000 {
            let delay = Quality::CALM.delay(&mut rng).expect("nothing vanishes");
            assert!((Quality::CALM.delay_min..=Quality::CALM.delay_max).contains(&delay));
            assert!(!Quality::CALM.corrupt(&mut rng, &mut [0; 8]));
        }
    }

    #[test]
    fn a_cut_is_one_way_until_healed() {
        let mut cuts = Cuts::default();
        cuts.cut('a', 'b');
        assert!(cuts.is_cut('a', 'b'));
        assert!(!cuts.is_cut('b', 'a'));
        cuts.heal('a', 'b');
        assert!(!cuts.is_cut('a', 'b'));
    }
}
