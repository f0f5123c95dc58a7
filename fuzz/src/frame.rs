//! The target of scotfree-io: frames as they come from a port.
//!
//! Invariant: a frame that is read as something we write is written back with the same meaning, and
//! completing checksums makes a frame readable that lacked nothing else.

use scotfree_io::frame::{
    complete_checksums, parse, ArpPacket, Checksums, Frame, Link, MacAddress, UdpFrame, VlanTag,
};
use std::net::{Ipv4Addr, SocketAddr};

/// UDP over both IPs, with and without a tag and a checksum, a question and its answer, and one of
/// another kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for vlan in [None, Some(VlanTag(0x2005))] {
        let link = Link {
            destination: MacAddress([2, 0, 0, 0, 0, 1]),
            source: MacAddress([2, 0, 0, 0, 0, 2]),
            vlan,
        };
        for (source, destination) in
            [("10.0.0.1:51000", "10.0.0.2:51001"), ("[fd00::1]:51000", "[fd00::2]:51001")]
        {
            seeds.push(udp(link, address(source), address(destination)));
        }
        seeds.extend(arp(link));
    }
    let mut without_checksum = seeds[0].clone();
    without_checksum[40..42].fill(0);
    seeds.push(without_checksum);
    seeds.push(b"\x01\x00\x5e\x00\x00\xfb\x02\x00\x00\x00\x00\x02\x88\xcc\x02\x07\x04".to_vec());
    seeds
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("a seed's address is one")
}

fn udp(link: Link, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let payload = b"an odd payload.";
    let frame = UdpFrame { link, source, destination, hop_limit: 64, traffic_class: 0, payload };
    written(&frame)
}

fn arp(link: Link) -> [Vec<u8>; 2] {
    let question = ArpPacket::request(link.source, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    [question, question.reply(link.destination)].map(|packet| {
        let mut out = Vec::new();
        packet.write(&link, &mut out);
        out
    })
}

fn written(frame: &UdpFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.write(&mut out).expect("a frame of one family and a small payload is written");
    out
}

/// Reads the input as a frame.
pub fn frame(data: &[u8]) {
    let ready = parse(data, Checksums::Ready);
    let not_ready = parse(data, Checksums::NotReady);
    if let Ok(frame) = &ready {
        assert_eq!(not_ready.as_ref(), Ok(frame), "checksums change what is read");
        check_written(frame);
    }
    let mut completed = data.to_vec();
    let result = complete_checksums(&mut completed);
    assert_eq!(completed.len(), data.len());
    if let Ok(frame @ Frame::Udp(_)) = &not_ready {
        assert_eq!(result, Ok(()), "a readable frame cannot be completed");
        assert_eq!(parse(&completed, Checksums::Ready).as_ref(), Ok(frame), "completed and yet not right");
    }
}

fn check_written(frame: &Frame<'_>) {
    match frame {
        Frame::Udp(udp) => {
            assert_eq!(parse(&written(udp), Checksums::Ready), Ok(Frame::Udp(*udp)));
            let _ = written(&udp.answer(b"answer"));
        }
        Frame::Arp { link, packet } => {
            let mut out = Vec::new();
            packet.write(link, &mut out);
            assert_eq!(parse(&out, Checksums::Ready).as_ref(), Ok(frame));
        }
        Frame::Other => {}
    }
}
