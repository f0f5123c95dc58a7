//! What becomes of a packet between two places.
//!
//! Invariant: nothing here knows what a packet means; whatever a network may do to any packet, it
//! does to every kind alike.

use crate::rng::{PerMillion, Rng};
use scotfree_core::Nanos;

/// Where a packet can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// At a client.
    Client(usize),
    /// At a device; 0 is the head, nearest to the clients.
    Device(usize),
    /// At the server.
    Server,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Client(index) => write!(f, "client {index}"),
            Place::Device(index) => write!(f, "device {index}"),
            Place::Server => f.write_str("server"),
        }
    }
}

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
    /// Packets between clients and server that go around all devices.
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

/// The way from `at` towards `target` along the chain of `device_count` devices.
pub fn next_place(at: Place, target: Place, device_count: usize) -> Place {
    let towards_server = match (at, target) {
        (Place::Client(_), _) | (Place::Device(_), Place::Server) => true,
        (Place::Server, _) | (Place::Device(_), Place::Client(_)) => false,
        (Place::Device(at), Place::Device(target)) => at < target,
    };
    match (at, towards_server) {
        (Place::Client(_), _) if device_count == 0 => Place::Server,
        (Place::Client(_), _) => Place::Device(0),
        (Place::Device(at), true) if at + 1 < device_count => Place::Device(at + 1),
        (Place::Device(_), true) => Place::Server,
        (Place::Device(at), false) if at > 0 => Place::Device(at - 1),
        (Place::Server, _) if device_count > 0 => Place::Device(device_count - 1),
        (Place::Device(_), false) | (Place::Server, _) => target,
    }
}

/// The links that are cut, one direction at a time.
#[derive(Debug, Clone, Default)]
pub struct Cuts(Vec<(Place, Place)>);

impl Cuts {
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

    fn route(from: Place, to: Place, device_count: usize) -> Vec<Place> {
        let mut route = vec![from];
        while *route.last().expect("a route has a beginning") != to {
            let at = *route.last().expect("a route has a beginning");
            route.push(next_place(at, to, device_count));
            assert!(route.len() < 9, "{route:?} does not end");
        }
        route
    }

    #[test]
    fn packets_pass_every_device_in_order() {
        use Place::{Client, Device, Server};
        assert_eq!(route(Client(4), Server, 2), [Client(4), Device(0), Device(1), Server]);
        assert_eq!(route(Server, Client(4), 2), [Server, Device(1), Device(0), Client(4)]);
        assert_eq!(route(Device(0), Device(2), 3), [Device(0), Device(1), Device(2)]);
        assert_eq!(route(Server, Device(0), 2), [Server, Device(1), Device(0)]);
        assert_eq!(route(Client(0), Server, 0), [Client(0), Server]);
        assert_eq!(route(Server, Client(0), 0), [Server, Client(0)]);
    }

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
        cuts.cut(Place::Server, Place::Device(0));
        assert!(cuts.is_cut(Place::Server, Place::Device(0)));
        assert!(!cuts.is_cut(Place::Device(0), Place::Server));
        cuts.heal(Place::Server, Place::Device(0));
        assert!(!cuts.is_cut(Place::Server, Place::Device(0)));
    }
}
