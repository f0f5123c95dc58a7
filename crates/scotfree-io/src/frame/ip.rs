//! IPv4 and IPv6 headers.
//!
//! Invariant: the payload of a packet is exactly what its header says, without padding; an IPv4 header
//! is read only if its checksum holds.

use super::checksum::Sum;
use super::{first, word, FrameError, Layer, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// The protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
const V4_HEADER_BYTES: usize = 20;
const V6_HEADER_BYTES: usize = 40;
const V4_DONT_FRAGMENT: u16 = 0x4000;
/// More fragments follow, or this is not the first.
const V4_FRAGMENT: u16 = 0x3FFF;

/// An IP packet, its header read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpPacket<'a> {
    /// Who sent it.
    pub source: IpAddr,
    /// Who gets it.
    pub destination: IpAddr,
    /// What the payload is; with IPv6 this may be an extension header, which is not read.
    pub protocol: u8,
    /// How many routers it may still pass.
    pub hop_limit: u8,
    /// Priority and congestion marks.
    pub traffic_class: u8,
    /// Whether the payload is a part only.
    pub is_fragment: bool,
    /// The size of the header, options included.
    pub header_bytes: usize,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl<'a> IpPacket<'a> {
    /// Reads the payload of a frame of type [`ETHERTYPE_IPV4`] or [`ETHERTYPE_IPV6`].
    pub fn parse(ethertype: u16, bytes: &'a [u8]) -> Result<IpPacket<'a>, FrameError> {
        if ethertype == ETHERTYPE_IPV4 {
            return Self::parse_v4(bytes);
        }
        assert_eq!(ethertype, ETHERTYPE_IPV6, "the caller has seen an IP type");
        Self::parse_v6(bytes)
    }

    fn parse_v4(bytes: &'a [u8]) -> Result<IpPacket<'a>, FrameError> {
        let fixed = first(Layer::Ipv4, bytes, V4_HEADER_BYTES)?;
        check_version(Layer::Ipv4, fixed[0], 4)?;
        let header_bytes = usize::from(fixed[0] & 0x0F) * 4;
        if header_bytes < V4_HEADER_BYTES {
            return Err(FrameError::BadLength { layer: Layer::Ipv4, length: header_bytes });
        }
        let header = first(Layer::Ipv4, bytes, header_bytes)?;
        if Sum::default().add(header).finish() != 0 {
            return Err(FrameError::BadChecksum { layer: Layer::Ipv4 });
        }
        let total_bytes = usize::from(word(header, 2));
        if total_bytes < header_bytes {
            return Err(FrameError::BadLength { layer: Layer::Ipv4, length: total_bytes });
        }
        let packet = first(Layer::Ipv4, bytes, total_bytes)?;
        Ok(IpPacket {
            source: Ipv4Addr::new(header[12], header[13], header[14], header[15]).into(),
            destination: Ipv4Addr::new(header[16], header[17], header[18], header[19]).into(),
            protocol: header[9],
            hop_limit: header[8],
            traffic_class: header[1],
            is_fragment: word(header, 6) & V4_FRAGMENT != 0,
            header_bytes,
            payload: &packet[header_bytes..],
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<IpPacket<'a>, FrameError> {
        let header = first(Layer::Ipv6, bytes, V6_HEADER_BYTES)?;
        check_version(Layer::Ipv6, header[0], 6)?;
        let packet = first(Layer::Ipv6, bytes, V6_HEADER_BYTES + usize::from(word(header, 4)))?;
        Ok(IpPacket {
            source: v6_address(header, 8).into(),
            destination: v6_address(header, 24).into(),
            protocol: header[6],
            hop_limit: header[7],
            traffic_class: (word(header, 0) >> 4) as u8,
            // Fragments have an extension header of their own as their protocol.
            is_fragment: false,
            header_bytes: V6_HEADER_BYTES,
            payload: &packet[V6_HEADER_BYTES..],
        })
    }

    /// The sum over the pseudo header of a payload of `payload_bytes`.
    pub(super) fn pseudo_sum(&self, payload_bytes: usize) -> Sum {
        let addresses = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Sum::default().add(&source.octets()).add(&destination.octets())
            }
            (source, destination) => Sum::default().add(&v6_octets(source)).add(&v6_octets(destination)),
        };
        addresses.add(&(payload_bytes as u32).to_be_bytes()).add_word(u16::from(self.protocol))
    }

    /// Appends the header of a packet with `payload_bytes` behind it. Packets written here are never
    /// fragmented on the way.
    pub(super) fn write_header(&self, payload_bytes: usize, out: &mut Vec<u8>) -> Result<(), FrameError> {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total_bytes = length(V4_HEADER_BYTES + payload_bytes)?;
                let mut header = [0; V4_HEADER_BYTES];
                header[0] = 0x45;
                header[1] = self.traffic_class;
                header[2..4].copy_from_slice(&total_bytes.to_be_bytes());
                header[6..8].copy_from_slice(&V4_DONT_FRAGMENT.to_be_bytes());
                header[8] = self.hop_limit;
                header[9] = self.protocol;
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                let checksum = Sum::default().add(&header).finish();
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                out.extend_from_slice(&header);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let payload_bytes = length(payload_bytes)?;
                let first = 0x6000 | u16::from(self.traffic_class) << 4;
                out.extend_from_slice(&first.to_be_bytes());
                out.extend_from_slice(&[0; 2]);
                out.extend_from_slice(&payload_bytes.to_be_bytes());
                out.extend_from_slice(&[self.protocol, self.hop_limit]);
                out.extend_from_slice(&source.octets());
                out.extend_from_slice(&destination.octets());
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
                return Err(FrameError::MixedFamilies);
            }
        }
        Ok(())
    }
}

/// A length that fits its field.
pub(super) fn length(bytes: usize) -> Result<u16, FrameError> {
    u16::try_from(bytes).map_err(|_| FrameError::TooLong { bytes })
}

fn check_version(layer: Layer, first: u8, expected: u8) -> Result<(), FrameError> {
    let version = first >> 4;
    if version == expected {
        return Ok(());
    }
    Err(FrameError::BadVersion { layer, version })
}

fn v6_address(header: &[u8], offset: usize) -> Ipv6Addr {
    let mut out = [0; 16];
    out.copy_from_slice(&header[offset..offset + 16]);
    Ipv6Addr::from(out)
}

fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
