//! What the bridge needs to know about the names of the link layer.
//!
//! Invariant: a [`Vlan`] holds a number of at most 12 bits.

use scotfree_core::Fnv1a;
use scotfree_io::frame::{MacAddress, VlanTag};
use std::net::SocketAddr;

/// The address that a device derives for itself from its control address: locally administered, the
/// same at every start, different for different control addresses of one cluster.
pub fn mac_of_device(control: SocketAddr) -> MacAddress {
    let hash = Fnv1a::of(control.to_string().as_bytes());
    let mut bytes = [0; 6];
    bytes.copy_from_slice(&(hash ^ (hash >> 17)).to_be_bytes()[2..]);
    // Bit 1 of the first byte: locally administered. Bit 0 clear: one station.
    bytes[0] = (bytes[0] & 0xfc) | 0x02;
    MacAddress(bytes)
}

/// Whether an address is that of the next bridge only. The spanning tree's own address is left out:
/// this bridge does not take part in the tree and must not hide loops from those that do.
pub fn is_link_local(mac: MacAddress) -> bool {
    matches!(mac.0, [0x01, 0x80, 0xc2, 0, 0, 1..=0x0f])
}

/// The virtual network of a frame; an untagged frame is in network 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vlan(u16);

impl Vlan {
    /// No tag.
    pub const NONE: Vlan = Vlan(0);

    /// The network with this number, of which the lower 12 bits count.
    pub const fn numbered(number: u16) -> Vlan {
        Vlan(number & 0x0fff)
    }

    /// The network of a tag, whose upper four bits are its priority.
    pub const fn of(tag: Option<VlanTag>) -> Vlan {
        match tag {
            Some(VlanTag(control)) => Vlan::numbered(control),
            None => Vlan::NONE,
        }
    }

    /// The tag of frames made for this network.
    pub fn tag(self) -> Option<VlanTag> {
        (self != Vlan::NONE).then_some(VlanTag(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_address_is_stable_local_and_single() {
        let of = |text: &str| mac_of_device(text.parse().expect("a socket address"));
        let mac = of("10.0.0.1:51000");
        assert_eq!(mac, of("10.0.0.1:51000"));
        assert_ne!(mac, of("10.0.0.2:51000"));
        assert_eq!(mac.0[0] & 3, 2, "{mac}");
    }

    #[test]
    fn only_the_next_bridges_addresses_are_link_local() {
        assert!(is_link_local(MacAddress([0x01, 0x80, 0xc2, 0, 0, 0x0e])));
        for passed in [0, 0x10] {
            assert!(!is_link_local(MacAddress([0x01, 0x80, 0xc2, 0, 0, passed])));
        }
    }

    #[test]
    fn priority_does_not_make_another_network() {
        assert_eq!(Vlan::of(Some(VlanTag(0xe007))), Vlan::numbered(7));
        assert_eq!(Vlan::of(Some(VlanTag(0xe000))), Vlan::NONE);
        assert_eq!(Vlan::numbered(7).tag(), Some(VlanTag(7)));
        assert_eq!(Vlan::NONE.tag(), None);
    }
}
