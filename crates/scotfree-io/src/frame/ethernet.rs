//! The Ethernet header with at most one 802.1Q tag.
//!
//! Invariant: a tag inside a tag is left in the payload, so the frame reads as one of unknown type.

use super::{first, word, FrameError, Layer};
use std::fmt;
use std::str::FromStr;

/// Destination, source and type.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// What a tag adds.
pub const VLAN_TAG_BYTES: usize = 4;
/// The type of IPv4 packets.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// The type of ARP packets.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// The type of an 802.1Q tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// The type of IPv6 packets.
pub const ETHERTYPE_IPV6: u16 = 0x86DD;

/// A hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Everybody.
    pub const BROADCAST: MacAddress = MacAddress([0xFF; 6]);

    /// Whether it stands for many; [`MacAddress::BROADCAST`] does.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for MacAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("`{text}` is not a hardware address like 02:00:00:00:00:01");
        let mut out = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut out {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(MacAddress(out))
    }
}

/// The content of an 802.1Q tag: priority and VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag(pub u16);

/// From whom, to whom, in which VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Who gets it.
    pub destination: MacAddress,
    /// Who sent it.
    pub source: MacAddress,
    /// Its tag, if it has one.
    pub vlan: Option<VlanTag>,
}

impl Link {
    /// The link of an answer.
    #[must_use]
    pub fn reversed(self) -> Link {
        Link { destination: self.source, source: self.destination, vlan: self.vlan }
    }

    /// Appends the header of a frame of `ethertype`.
    pub fn write(&self, ethertype: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.destination.0);
        out.extend_from_slice(&self.source.0);
        if let Some(VlanTag(tag)) = self.vlan {
            out.extend_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
            out.extend_from_slice(&tag.to_be_bytes());
        }
        out.extend_from_slice(&ethertype.to_be_bytes());
    }
}

/// A frame, its header read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet<'a> {
    /// From whom, to whom.
    pub link: Link,
    /// What the payload is; below 0x600 it is the payload's length.
    pub ethertype: u16,
    /// What follows the header, padding included.
    pub payload: &'a [u8],
}

impl<'a> Ethernet<'a> {
    /// Reads the header of a frame.
    pub fn parse(bytes: &'a [u8]) -> Result<Ethernet<'a>, FrameError> {
        let header = first(Layer::Ethernet, bytes, ETHERNET_HEADER_BYTES)?;
        let (mut ethertype, mut vlan, mut header_bytes) = (word(header, 12), None, ETHERNET_HEADER_BYTES);
        if ethertype == ETHERTYPE_VLAN {
            header_bytes += VLAN_TAG_BYTES;
            let header = first(Layer::Ethernet, bytes, header_bytes)?;
            vlan = Some(VlanTag(word(header, 14)));
            ethertype = word(header, 16);
        }
        let link = Link { destination: address(header, 0), source: address(header, 6), vlan };
        Ok(Ethernet { link, ethertype, payload: &bytes[header_bytes..] })
    }
}

/// The hardware address at `offset` of a header whose length was checked.
pub(super) fn address(bytes: &[u8], offset: usize) -> MacAddress {
    let mut out = [0; 6];
    out.copy_from_slice(&bytes[offset..offset + 6]);
    MacAddress(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_round_trip_as_text() {
        let address = MacAddress([2, 0, 0, 0xAB, 0, 1]);
        assert_eq!(address.to_string(), "02:00:00:ab:00:01");
        assert_eq!(address.to_string().parse(), Ok(address));
        for wrong in ["", "02:00:00:ab:00", "02:00:00:ab:00:01:02", "2:0:0:0:0:1", "0g:00:00:00:00:00"] {
            assert!(wrong.parse::<MacAddress>().is_err(), "{wrong}");
        }
        assert!(MacAddress::BROADCAST.is_multicast());
        assert!(!address.is_multicast());
    }

    #[test]
    fn a_tag_inside_a_tag_is_an_unknown_type() {
        let link =
            Link { destination: MacAddress::BROADCAST, source: MacAddress([2; 6]), vlan: Some(VlanTag(7)) };
        let mut bytes = Vec::new();
        link.write(ETHERTYPE_VLAN, &mut bytes);
        bytes.extend_from_slice(&[0, 9, 8, 0]);
        let frame = Ethernet::parse(&bytes).expect("well-formed");
        assert_eq!((frame.link, frame.ethertype), (link, ETHERTYPE_VLAN));
        assert_eq!(
            super::super::parse(&bytes, super::super::Checksums::Ready),
            Ok(super::super::Frame::Other)
        );
    }
}
