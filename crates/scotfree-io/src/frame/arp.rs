//! ARP for IPv4 over Ethernet.
//!
//! Invariant: what is read back is what was written; other kinds of ARP are an error.

use super::ethernet::address;
use super::{first, word, FrameError, Layer, Link, MacAddress, ETHERTYPE_ARP, ETHERTYPE_IPV4};
use std::net::Ipv4Addr;

const ARP_BYTES: usize = 28;
const HARDWARE_ETHERNET: u16 = 1;

/// What an ARP packet wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArpOperation {
    /// Who has the target's address?
    Request,
    /// The sender has its address.
    Reply,
}

/// An ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpPacket {
    /// Question or answer.
    pub operation: ArpOperation,
    /// The sender's hardware address.
    pub sender_mac: MacAddress,
    /// The sender's IP address.
    pub sender_ip: Ipv4Addr,
    /// Whose hardware address is answered to; zero in a question.
    pub target_mac: MacAddress,
    /// Whose hardware address is asked for, or answered to.
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// The question for the hardware address of `target_ip`.
    pub fn request(sender_mac: MacAddress, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> ArpPacket {
        let operation = ArpOperation::Request;
        ArpPacket { operation, sender_mac, sender_ip, target_mac: MacAddress::default(), target_ip }
    }

    /// The answer to this question: the target is at `mac`.
    #[must_use]
    pub fn reply(&self, mac: MacAddress) -> ArpPacket {
        ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Reads the payload of a frame.
    pub fn parse(bytes: &[u8]) -> Result<ArpPacket, FrameError> {
        let bytes = first(Layer::Arp, bytes, ARP_BYTES)?;
        let kind = (word(bytes, 0), word(bytes, 2), bytes[4], bytes[5]);
        if kind != (HARDWARE_ETHERNET, ETHERTYPE_IPV4, 6, 4) {
            return Err(FrameError::UnknownArp);
        }
        let operation = match word(bytes, 6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(FrameError::UnknownArp),
        };
        Ok(ArpPacket {
            operation,
            sender_mac: address(bytes, 8),
            sender_ip: Ipv4Addr::new(bytes[14], bytes[15], bytes[16], bytes[17]),
            target_mac: address(bytes, 18),
            target_ip: Ipv4Addr::new(bytes[24], bytes[25], bytes[26], bytes[27]),
        })
    }

    /// Appends the whole frame.
    pub fn write(&self, link: &Link, out: &mut Vec<u8>) {
        link.write(ETHERTYPE_ARP, out);
        out.extend_from_slice(&HARDWARE_ETHERNET.to_be_bytes());
        out.extend_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        let operation = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        out.extend_from_slice(&[6, 4, 0, operation]);
        out.extend_from_slice(&self.sender_mac.0);
        out.extend_from_slice(&self.sender_ip.octets());
        out.extend_from_slice(&self.target_mac.0);
        out.extend_from_slice(&self.target_ip.octets());
    }
}
