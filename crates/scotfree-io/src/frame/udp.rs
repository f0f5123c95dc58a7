//! UDP datagrams in their frames.
//!
//! Invariant: a datagram is read only if its checksum holds, where it has one and the sender's host has
//! not left it to hardware; every datagram written has its full checksum.

use super::ip::length;
use super::{
    first, word, Checksums, Ethernet, FrameError, IpPacket, Layer, Link, ETHERTYPE_IPV4, ETHERTYPE_IPV6,
    PROTOCOL_TCP, PROTOCOL_UDP,
};
use std::net::SocketAddr;

const UDP_HEADER_BYTES: usize = 8;
const UDP_CHECKSUM_OFFSET: usize = 6;
const TCP_HEADER_BYTES: usize = 20;
const TCP_CHECKSUM_OFFSET: usize = 16;

/// A UDP datagram with all that stands around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpFrame<'a> {
    /// From whom, to whom, on the link.
    pub link: Link,
    /// Who sent it.
    pub source: SocketAddr,
    /// Who gets it.
    pub destination: SocketAddr,
    /// How many routers it may still pass.
    pub hop_limit: u8,
    /// Priority and congestion marks.
    pub traffic_class: u8,
    /// Its content.
    pub payload: &'a [u8],
}

impl<'a> UdpFrame<'a> {
    pub(super) fn parse(
        link: Link,
        packet: &IpPacket<'a>,
        checksums: Checksums,
    ) -> Result<UdpFrame<'a>, FrameError> {
        let header = first(Layer::Udp, packet.payload, UDP_HEADER_BYTES)?;
        let datagram_bytes = usize::from(word(header, 4));
        if datagram_bytes < UDP_HEADER_BYTES {
            return Err(FrameError::BadLength { layer: Layer::Udp, length: datagram_bytes });
        }
        let datagram = first(Layer::Udp, packet.payload, datagram_bytes)?;
        if checksums == Checksums::Ready {
            check(packet, datagram)?;
        }
        Ok(UdpFrame {
            link,
            source: SocketAddr::new(packet.source, word(header, 0)),
            destination: SocketAddr::new(packet.destination, word(header, 2)),
            hop_limit: packet.hop_limit,
            traffic_class: packet.traffic_class,
            payload: &datagram[UDP_HEADER_BYTES..],
        })
    }

    /// The frame of an answer with `payload`.
    #[must_use]
    pub fn answer(self, payload: &[u8]) -> UdpFrame<'_> {
        UdpFrame {
            link: self.link.reversed(),
            source: self.destination,
            destination: self.source,
            hop_limit: 64,
            traffic_class: self.traffic_class,
            payload,
        }
    }

    /// Appends the whole frame; after an error `out` is as before.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let start = out.len();
        let written = self.try_write(out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn try_write(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let datagram_bytes = UDP_HEADER_BYTES + self.payload.len();
        let packet = IpPacket {
            source: self.source.ip(),
            destination: self.destination.ip(),
            protocol: PROTOCOL_UDP,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            is_fragment: false,
            header_bytes: 0,
            payload: &[],
        };
        self.link.write(if self.source.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 }, out);
        packet.write_header(datagram_bytes, out)?;
        let start = out.len();
        out.extend_from_slice(&self.source.port().to_be_bytes());
        out.extend_from_slice(&self.destination.port().to_be_bytes());
        out.extend_from_slice(&length(datagram_bytes)?.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(self.payload);
        let checksum = checksum(&packet, &out[start..]);
        out[start + UDP_CHECKSUM_OFFSET..][..2].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

/// Puts full checksums into a frame whose sender left them to hardware, as hosts do on virtual links.
/// Frames without such checksums stay as they are.
pub fn complete_checksums(frame: &mut [u8]) -> Result<(), FrameError> {
    let ethernet = Ethernet::parse(frame)?;
    if ethernet.ethertype != ETHERTYPE_IPV4 && ethernet.ethertype != ETHERTYPE_IPV6 {
        return Ok(());
    }
    let packet = IpPacket::parse(ethernet.ethertype, ethernet.payload)?;
    let (layer, header_bytes, offset) = match packet.protocol {
        PROTOCOL_UDP => (Layer::Udp, UDP_HEADER_BYTES, UDP_CHECKSUM_OFFSET),
        PROTOCOL_TCP => (Layer::Tcp, TCP_HEADER_BYTES, TCP_CHECKSUM_OFFSET),
        _ => return Ok(()),
    };
    if packet.is_fragment {
        return Ok(());
    }
    first(layer, packet.payload, header_bytes)?;
    // A datagram may be shorter than its packet; a segment fills it.
    let covered_bytes = match packet.protocol {
        PROTOCOL_UDP => usize::from(word(packet.payload, 4)),
        _ => packet.payload.len(),
    };
    if covered_bytes < header_bytes {
        return Err(FrameError::BadLength { layer, length: covered_bytes });
    }
    let covered = first(layer, packet.payload, covered_bytes)?;
    let sum = packet.pseudo_sum(covered_bytes);
    let without_old = sum.add(&covered[..offset]).add(&covered[offset + 2..]);
    let checksum = nonzero(packet.protocol, without_old.finish());
    let start = frame.len() - ethernet.payload.len() + packet.header_bytes;
    frame[start + offset..start + offset + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

fn check(packet: &IpPacket<'_>, datagram: &[u8]) -> Result<(), FrameError> {
    if word(datagram, UDP_CHECKSUM_OFFSET) == 0 {
        // IPv4 may go without; IPv6 has no checksum of its own and may not.
        return if packet.source.is_ipv4() { Ok(()) } else { Err(FrameError::ChecksumMissing) };
    }
    if packet.pseudo_sum(datagram.len()).add(datagram).finish() != 0 {
        return Err(FrameError::BadChecksum { layer: Layer::Udp });
    }
    Ok(())
}

/// The checksum of a datagram whose own field is zero.
fn checksum(packet: &IpPacket<'_>, datagram: &[u8]) -> u16 {
    nonzero(packet.protocol, packet.pseudo_sum(datagram.len()).add(datagram).finish())
}

/// In UDP zero means "none", so a sum of zero is written as its other form.
fn nonzero(protocol: u8, checksum: u16) -> u16 {
    if checksum == 0 && protocol == PROTOCOL_UDP {
        return 0xFFFF;
    }
    checksum
}
