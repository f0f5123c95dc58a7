//! Where packets can be, and the way between two places.
//!
//! Invariant: all devices stand in one row between the clients and the servers.

/// Where a packet can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// At a client.
    Client(usize),
    /// At a device; 0 is the head, nearest to the clients.
    Device(usize),
    /// At a server.
    Server(usize),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Client(index) => write!(f, "client {index}"),
            Place::Device(index) => write!(f, "device {index}"),
            // The first one's name is older than the others.
            Place::Server(0) => f.write_str("server"),
            Place::Server(index) => write!(f, "server {index}"),
        }
    }
}

/// The way from `at` towards `target` along the chain of `device_count` devices.
pub fn next_place(at: Place, target: Place, device_count: usize) -> Place {
    let towards_server = match (at, target) {
        (Place::Client(_), _) | (Place::Device(_), Place::Server(_)) => true,
        (Place::Server(_), _) | (Place::Device(_), Place::Client(_)) => false,
        (Place::Device(at), Place::Device(target)) => at < target,
    };
    match (at, towards_server) {
        (Place::Client(_), _) if device_count == 0 => target,
        (Place::Client(_), _) => Place::Device(0),
        (Place::Device(at), true) if at + 1 < device_count => Place::Device(at + 1),
        (Place::Device(at), false) if at > 0 => Place::Device(at - 1),
        (Place::Server(_), _) if device_count > 0 => Place::Device(device_count - 1),
        (Place::Device(_) | Place::Server(_), _) => target,
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
        assert_eq!(route(Client(4), Server(0), 2), [Client(4), Device(0), Device(1), Server(0)]);
        assert_eq!(route(Server(1), Client(4), 2), [Server(1), Device(1), Device(0), Client(4)]);
        assert_eq!(route(Device(0), Device(2), 3), [Device(0), Device(1), Device(2)]);
        assert_eq!(route(Server(0), Device(0), 2), [Server(0), Device(1), Device(0)]);
        assert_eq!(route(Client(0), Server(2), 0), [Client(0), Server(2)]);
        assert_eq!(route(Server(2), Client(0), 0), [Server(2), Client(0)]);
    }
}
