//! Ethernet frames as the device sees them: UDP over IPv4 or IPv6, ARP, at most one VLAN tag; all else
//! is passed on unread.
//!
//! Invariant: a frame is read as a borrowed view, without copying; every malformed frame is a typed
//! error and no frame makes reading panic; every frame written here carries full checksums.

mod arp;
mod checksum;
mod ethernet;
mod ip;
mod udp;

pub use arp::{ArpOperation, ArpPacket};
pub use ethernet::{
    Ethernet, Link, MacAddress, VlanTag, ETHERNET_HEADER_BYTES, ETHERTYPE_ARP, ETHERTYPE_IPV4,
    ETHERTYPE_IPV6, ETHERTYPE_VLAN, VLAN_TAG_BYTES,
};
pub use ip::{IpPacket, PROTOCOL_TCP, PROTOCOL_UDP};
pub use udp::{complete_checksums, UdpFrame};

/// Which header of a frame an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet and the VLAN tag.
    Ethernet,
    /// ARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// Why a frame cannot be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame ends before the header or what the header promises.
    #[error("{layer:?} needs {needed} bytes and has {found}")]
    Truncated {
        /// Whose bytes are missing.
        layer: Layer,
        /// How many there should be.
        needed: usize,
        /// How many there are.
        found: usize,
    },
    /// The header says that it is of another version than the frame type does.
    #[error("{layer:?} header of version {version}")]
    BadVersion {
        /// IPv4 or IPv6.
        layer: Layer,
        /// What it says.
        version: u8,
    },
    /// A length in a header contradicts another one.
    #[error("{layer:?} length {length} contradicts its surroundings")]
    BadLength {
        /// Whose length it is.
        layer: Layer,
        /// What it says.
        length: usize,
    },
    /// The checksum does not hold.
    #[error("{layer:?} checksum does not hold")]
    BadChecksum {
        /// Whose checksum it is.
        layer: Layer,
    },
    /// UDP over IPv6 without a checksum, which it must have.
    #[error("UDP over IPv6 without a checksum")]
    ChecksumMissing,
    /// An ARP packet that is not about Ethernet and IPv4, or asks for nothing known.
    #[error("ARP packet of an unknown kind")]
    UnknownArp,
    /// The addresses of a packet to be written are not of one family.
    #[error("addresses of two families in one packet")]
    MixedFamilies,
    /// The content does not fit an IP packet.
    #[error("{bytes} bytes do not fit a packet")]
    TooLong {
        /// Its size.
        bytes: usize,
    },
}

/// Whether the checksums of UDP are complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// They are: refuse what does not hold.
    Ready,
    /// The sender's host left them to hardware that was never passed.
    NotReady,
}

/// A frame, as far as the device reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A whole UDP datagram.
    Udp(UdpFrame<'a>),
    /// A question for a hardware address, or an answer.
    Arp {
        /// Its Ethernet header.
        link: Link,
        /// The question or the answer.
        packet: ArpPacket,
    },
    /// Something well-formed that is none of these: to be passed on unread. Fragments are here too.
    Other,
}

/// Reads a frame.
pub fn parse(bytes: &[u8], checksums: Checksums) -> Result<Frame<'_>, FrameError> {
    let ethernet = Ethernet::parse(bytes)?;
    match ethernet.ethertype {
        ETHERTYPE_ARP => {
            let packet = ArpPacket::parse(ethernet.payload)?;
            Ok(Frame::Arp { link: ethernet.link, packet })
        }
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => {
            let packet = IpPacket::parse(ethernet.ethertype, ethernet.payload)?;
            if packet.protocol != PROTOCOL_UDP || packet.is_fragment {
                return Ok(Frame::Other);
            }
            UdpFrame::parse(ethernet.link, &packet, checksums).map(Frame::Udp)
        }
        _ => Ok(Frame::Other),
    }
}

/// The 16-bit number at `offset` of a header whose length was checked.
fn word(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

/// The first `needed` bytes, or the error that they are missing.
fn first(layer: Layer, bytes: &[u8], needed: usize) -> Result<&[u8], FrameError> {
    bytes.get(..needed).ok_or(FrameError::Truncated { layer, needed, found: bytes.len() })
}
