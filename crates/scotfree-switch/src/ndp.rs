//! Neighbour discovery for IPv6 (RFC 4861), as far as a device with one address needs it: the question
//! who has an address, and the answer.
//!
//! Invariant: only messages that have not passed a router (hop limit 255) and whose checksum holds are
//! read; everything else is no message of ours and passes the bridge unread.

use scotfree_io::frame::{Ethernet, IpPacket, Link, MacAddress, ETHERTYPE_IPV6};
use std::net::{IpAddr, Ipv6Addr};

const PROTOCOL_ICMP6: u8 = 58;
const HOP_LIMIT: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;
/// Type, code, checksum, flags, target.
const FIXED_BYTES: usize = 24;
const OPTION_BYTES: usize = 8;
const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;

/// Question or answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NdpKind {
    /// Who has the target's address?
    Solicitation,
    /// The target is at the station that is named.
    Advertisement,
}

/// A message of neighbour discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NdpMessage {
    /// Question or answer.
    pub kind: NdpKind,
    /// Who sent it; unspecified if the sender has no address yet.
    pub source: Ipv6Addr,
    /// The address it is about.
    pub target: Ipv6Addr,
    /// The station that it names: the sender's in a question, the target's in an answer.
    pub station: Option<MacAddress>,
}

impl NdpMessage {
    /// Reads a frame, if it is such a message.
    pub fn read(ethernet: &Ethernet<'_>) -> Option<NdpMessage> {
        if ethernet.ethertype != ETHERTYPE_IPV6 || *ethernet.payload.get(6)? != PROTOCOL_ICMP6 {
            return None;
        }
        let packet = IpPacket::parse(ETHERTYPE_IPV6, ethernet.payload).ok()?;
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (packet.source, packet.destination) else {
            return None;
        };
        let message = packet.payload;
        let fixed = message.get(..FIXED_BYTES)?;
        let kind = match fixed[0] {
            SOLICITATION => NdpKind::Solicitation,
            ADVERTISEMENT => NdpKind::Advertisement,
            _ => return None,
        };
        let valid =
            packet.hop_limit == HOP_LIMIT && fixed[1] == 0 && checksum(source, destination, message) == 0;
        let target: [u8; 16] = fixed[8..24].try_into().ok()?;
        valid.then(|| NdpMessage {
            kind,
            source,
            target: target.into(),
            station: station(&message[FIXED_BYTES..], kind.option()),
        })
    }

    /// Whom this message shows to be at which station.
    pub fn shows(&self) -> Option<(Ipv6Addr, MacAddress)> {
        let host = match self.kind {
            NdpKind::Solicitation => self.source,
            NdpKind::Advertisement => self.target,
        };
        Some((host, self.station?)).filter(|(host, _)| !host.is_unspecified())
    }

    /// Appends the question of `own`, at station `mac`, for the station of `target`.
    pub fn write_question(own: Ipv6Addr, mac: MacAddress, target: Ipv6Addr, link: Link, out: &mut Vec<u8>) {
        let [.., a, b, c] = target.octets();
        let destination = MacAddress([0x33, 0x33, 0xff, a, b, c]);
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
        let message = NdpMessage { kind: NdpKind::Solicitation, source: own, target, station: Some(mac) };
        message.write(group, 0, Link { source: mac, destination, ..link }, out);
    }

    /// Appends the answer to this question: its target is at station `mac`. `link` is the question's.
    pub fn write_answer(&self, mac: MacAddress, link: Link, out: &mut Vec<u8>) {
        let answer = NdpMessage {
            kind: NdpKind::Advertisement,
            source: self.target,
            target: self.target,
            station: Some(mac),
        };
        if self.source.is_unspecified() {
            let everyone = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            let destination = MacAddress([0x33, 0x33, 0, 0, 0, 1]);
            return answer.write(everyone, FLAG_OVERRIDE, Link { source: mac, destination, ..link }, out);
        }
        let link = Link { source: mac, destination: self.station.unwrap_or(link.source), ..link };
        answer.write(self.source, FLAG_SOLICITED | FLAG_OVERRIDE, link, out);
    }

    fn write(&self, destination: Ipv6Addr, flags: u8, link: Link, out: &mut Vec<u8>) {
        let mut message = Vec::with_capacity(FIXED_BYTES + OPTION_BYTES);
        message.extend_from_slice(&[self.kind.code(), 0, 0, 0, flags, 0, 0, 0]);
        message.extend_from_slice(&self.target.octets());
        if let Some(station) = self.station {
            message.extend_from_slice(&[self.kind.option(), 1]);
            message.extend_from_slice(&station.0);
        }
        let sum = checksum(self.source, destination, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        link.write(ETHERTYPE_IPV6, out);
        out.extend_from_slice(&[0x60, 0, 0, 0]);
        out.extend_from_slice(&(message.len() as u16).to_be_bytes());
        out.extend_from_slice(&[PROTOCOL_ICMP6, HOP_LIMIT]);
        out.extend_from_slice(&self.source.octets());
        out.extend_from_slice(&destination.octets());
        out.extend_from_slice(&message);
    }
}

impl NdpKind {
    fn code(self) -> u8 {
        match self {
            NdpKind::Solicitation => SOLICITATION,
            NdpKind::Advertisement => ADVERTISEMENT,
        }
    }

    /// The option that names a station in messages of this kind.
    fn option(self) -> u8 {
        match self {
            NdpKind::Solicitation => OPTION_SOURCE,
            NdpKind::Advertisement => OPTION_TARGET,
        }
    }
}

/// The station named by the first option of kind `wanted`.
fn station(mut options: &[u8], wanted: u8) -> Option<MacAddress> {
    loop {
        let (kind, length) = (*options.first()?, usize::from(*options.get(1)?) * OPTION_BYTES);
        let option = options.get(..length).filter(|option| !option.is_empty())?;
        if kind == wanted {
            return option[2..OPTION_BYTES].try_into().ok().map(MacAddress);
        }
        options = &options[length..];
    }
}

/// The checksum of `ICMPv6`; zero over a message that contains its own.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let pseudo = [u32::try_from(message.len()).unwrap_or(u32::MAX), u32::from(PROTOCOL_ICMP6)];
    let pseudo = pseudo.map(u32::to_be_bytes).concat();
    let mut sum: u64 = 0;
    for part in [&source.octets()[..], &destination.octets(), &pseudo, message] {
        for pair in part.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scotfree_io::frame::VlanTag;

    const OWN: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 9);
    const HOST: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0x12, 0x3456);

    fn mac(last: u8) -> MacAddress {
        MacAddress([2, 0, 0, 0, 0, last])
    }

    fn link() -> Link {
        Link { destination: mac(0), source: mac(1), vlan: Some(VlanTag(7)) }
    }

    fn read(bytes: &[u8]) -> Option<(Link, NdpMessage)> {
        let ethernet = Ethernet::parse(bytes).ok()?;
        Some((ethernet.link, NdpMessage::read(&ethernet)?))
    }

    fn question() -> Vec<u8> {
        let mut bytes = Vec::new();
        NdpMessage::write_question(HOST, mac(1), OWN, link(), &mut bytes);
        bytes
    }

    #[test]
    fn a_question_goes_to_the_targets_group_and_shows_who_asks() {
        let (link, message) = read(&question()).expect("a question");
        assert_eq!(link.destination, MacAddress([0x33, 0x33, 0xff, 0, 0, 9]));
        assert_eq!(link.vlan, Some(VlanTag(7)));
        assert_eq!((message.kind, message.target), (NdpKind::Solicitation, OWN));
        assert_eq!(message.shows(), Some((HOST, mac(1))));
    }

    #[test]
    fn an_answer_goes_back_and_shows_the_target() {
        let (link, message) = read(&question()).expect("a question");
        let mut bytes = Vec::new();
        message.write_answer(mac(99), link, &mut bytes);
        let (link, answer) = read(&bytes).expect("an answer");
        assert_eq!((link.destination, link.source), (mac(1), mac(99)));
        assert_eq!(answer.kind, NdpKind::Advertisement);
        assert_eq!(answer.shows(), Some((OWN, mac(99))));
        let nobody = NdpMessage { source: Ipv6Addr::UNSPECIFIED, station: None, ..message };
        assert_eq!(nobody.shows(), None);
        let mut bytes = Vec::new();
        nobody.write_answer(mac(99), link, &mut bytes);
        let (link, _) = read(&bytes).expect("an answer to all");
        assert_eq!(link.destination, MacAddress([0x33, 0x33, 0, 0, 0, 1]));
    }

    #[test]
    fn what_passed_a_router_or_is_damaged_is_not_read() {
        let whole = question();
        let addresses_at = 18 + 8;
        for at in addresses_at..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert_eq!(read(&damaged), None, "byte {at}");
        }
        let mut routed = whole.clone();
        routed[addresses_at - 1] -= 1;
        assert_eq!(read(&routed), None);
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), None);
        }
    }

    proptest! {
        #[test]
        fn no_options_make_it_panic(options in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = station(&options, OPTION_SOURCE);
        }
    }
}
