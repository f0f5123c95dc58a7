//! Datagrams that bypass their host's network stack: by an `AF_XDP` socket, in frames that are made and read here.
//!
//! Invariant: a datagram comes in by the rings only; it leaves by them as soon as the station of its receiver is
//! known, which the receiver's first frame says, and by the host's stack before that. Both ways are counted.

mod rings;
mod steering;

use crate::gauge::interface_number;
use rings::{Rings, BURST_MAX};
use scotfree_core::Nanos;
use scotfree_io::frame::{parse, Checksums, Frame, Link, MacAddress, UdpFrame};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{RxBurst, Stamps, Transport, TxPacket};
use scotfree_stage::process::wait_until;
use scotfree_stage::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::Path;
use std::time::Duration;
use steering::Steering;

/// Interfaces of the lab have one queue; what came by another would go to the host.
const QUEUE: u32 = 0;
/// The stations of as many hosts are remembered; to others datagrams go by the host's stack.
const STATIONS_MAX: usize = 64;
/// IPv4 without options, and UDP.
const HEADERS_BYTES: usize = 28;
const LINK_MTU_BYTES: usize = 1_500;
/// How long the kernel may take to let the queue of an earlier socket go.
const BIND_PATIENCE: Duration = Duration::from_secs(10);

/// By which way datagrams came and went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RingCounters {
    /// Datagrams that came by the rings.
    pub received: u64,
    /// Frames that came by the rings and were no datagrams for this endpoint.
    pub not_ours: u64,
    /// Datagrams that left by the rings.
    pub sent: u64,
    /// Datagrams that left by the host's stack.
    pub sent_by_host: u64,
}

impl RingCounters {
    /// What has come and gone since `before`.
    #[must_use]
    pub fn since(self, before: RingCounters) -> RingCounters {
        RingCounters {
            received: self.received - before.received,
            not_ours: self.not_ours - before.not_ours,
            sent: self.sent - before.sent,
            sent_by_host: self.sent_by_host - before.sent_by_host,
        }
    }
}

/// An `AF_XDP` socket as a [`Transport`].
pub struct AfXdpTransport {
    // Dropped first: nothing is brought to a socket that is gone.
    _steering: Steering,
    rings: Rings,
    /// Keeps the port for this endpoint, and sends what the rings cannot send yet.
    host: UdpTransport,
    stations: Stations,
    frame: Vec<u8>,
    counters: RingCounters,
}

impl AfXdpTransport {
    /// Binds to an address of an interface; port 0 is a free one.
    pub fn bind(address: SocketAddr, interface: &str) -> Result<AfXdpTransport, Trouble> {
        let broke = |error: io::Error| {
            let next = "see whether the interface is there and has one queue, and: scot doctor";
            Trouble::new(format!("bypass the stack at {interface}"), error, next)
        };
        let ifindex = interface_number(interface)?;
        let station = station_of(interface)?;
        let udp = UdpConfig { stamps: false, ..UdpConfig::default() };
        let host = UdpTransport::bind(address, &udp).map_err(broke)?;
        let local = host.local_address();
        let rings = bind_rings(ifindex).map_err(broke)?;
        let steering = Steering::start(ifindex, local.port(), rings.fd());
        let steering = steering.map_err(|error| broke(io::Error::other(error)))?;
        Ok(AfXdpTransport {
            _steering: steering,
            rings,
            host,
            stations: Stations::new(station, local),
            frame: Vec::with_capacity(LINK_MTU_BYTES),
            counters: RingCounters::default(),
        })
    }

    /// What has come and gone.
    pub fn counters(&self) -> RingCounters {
        self.counters
    }
}

impl Transport for AfXdpTransport {
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        assert!(out.burst_max() >= BURST_MAX, "a burst has room for all that the rings give at once");
        out.clear();
        let (stations, counters) = (&mut self.stations, &mut self.counters);
        self.rings.receive(|frame| match stations.read(frame) {
            Some(datagram) if out.push(datagram.source, None, datagram.payload) => counters.received += 1,
            Some(_) | None => counters.not_ours += 1,
        })
    }

    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for packet in packets {
            self.frame.clear();
            if self.stations.write(packet, &mut self.frame) {
                if !self.rings.push(&self.frame) {
                    break;
                }
                self.counters.sent += 1;
            } else {
                if self.host.tx_burst(&[*packet])? == 0 {
                    break;
                }
                self.counters.sent_by_host += 1;
            }
            taken += 1;
        }
        self.rings.kick()?;
        Ok(taken)
    }

    fn tx_stamps(&mut self, _out: &mut Vec<(u32, Nanos)>) {}

    fn mtu(&self) -> usize {
        LINK_MTU_BYTES - HEADERS_BYTES
    }

    fn stamps(&self) -> Stamps {
        Stamps::None
    }

    fn local_address(&self) -> SocketAddr {
        self.host.local_address()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.rings.fd())
    }
}

/// Who is where on the link. There are no routers in the lab: who sent a frame is who sent its datagram.
struct Stations {
    own: MacAddress,
    local: SocketAddr,
    others: HashMap<IpAddr, MacAddress>,
}

impl Stations {
    fn new(own: MacAddress, local: SocketAddr) -> Stations {
        Stations { own, local, others: HashMap::with_capacity(STATIONS_MAX) }
    }

    /// The datagram in a frame, if it is for this endpoint; its sender's station is remembered.
    fn read<'a>(&mut self, frame: &'a [u8]) -> Option<UdpFrame<'a>> {
        let Ok(Frame::Udp(datagram)) = parse(frame, Checksums::Ready) else { return None };
        if datagram.destination != self.local || datagram.link.destination != self.own {
            return None;
        }
        let (ip, station) = (datagram.source.ip(), datagram.link.source);
        if self.others.len() < STATIONS_MAX || self.others.contains_key(&ip) {
            self.others.insert(ip, station);
        }
        Some(datagram)
    }

    /// Writes the frame of a datagram whose receiver's station is known; whether it is.
    fn write(&self, packet: &TxPacket<'_>, out: &mut Vec<u8>) -> bool {
        let Some(station) = self.others.get(&packet.to.ip()) else { return false };
        let datagram = UdpFrame {
            link: Link { destination: *station, source: self.own, vlan: None },
            source: self.local,
            destination: packet.to,
            hop_limit: 64,
            traffic_class: 0,
            payload: packet.bytes,
        };
        datagram.write(out).is_ok()
    }
}

fn bind_rings(ifindex: u32) -> io::Result<Rings> {
    let mut bound = Err(io::ErrorKind::TimedOut.into());
    wait_until(BIND_PATIENCE, || {
        bound = Rings::bind(ifindex, QUEUE);
        !matches!(&bound, Err(error) if error.raw_os_error() == Some(libc::EBUSY))
    });
    bound
}

/// The station of an interface of this thread's namespace.
fn station_of(interface: &str) -> Result<MacAddress, Trouble> {
    let file = Path::new("/sys/class/net").join(interface).join("address");
    let text = std::fs::read_to_string(&file).map_err(|error| Trouble::file("read", &file, &error))?;
    text.trim().parse().map_err(|problem: String| {
        Trouble::new(format!("read {}", file.display()), problem, "give an Ethernet interface")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const THERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn here() -> Stations {
        Stations::new(HERE, address("10.0.0.1:7"))
    }

    fn there() -> Stations {
        Stations::new(THERE, address("10.0.0.2:9"))
    }

    fn packet(to: &str) -> TxPacket<'static> {
        TxPacket { to: address(to), bytes: b"update", stamp: None }
    }

    /// The frame by which one who knows `HERE` reaches it.
    fn frame_from_there(to: &str) -> Vec<u8> {
        let mut there = there();
        there.others.insert(address(to).ip(), HERE);
        let mut frame = Vec::new();
        assert!(there.write(&packet(to), &mut frame));
        frame
    }

    #[test]
    fn the_first_frame_of_a_host_says_where_its_answer_goes() {
        let (mut here, mut answer) = (here(), Vec::new());
        assert!(!here.write(&packet("10.0.0.2:9"), &mut answer), "nobody has said where that is");
        let frame = frame_from_there("10.0.0.1:7");
        let datagram = here.read(&frame).expect("it is for this endpoint");
        assert_eq!((datagram.source, datagram.payload), (address("10.0.0.2:9"), &b"update"[..]));
        assert!(here.write(&packet("10.0.0.2:9"), &mut answer));
        assert_eq!(there().read(&answer).expect("it is for the other one").source, address("10.0.0.1:7"));
    }

    #[test]
    fn what_is_for_others_is_not_read_and_teaches_nothing() {
        let mut here = here();
        for to in ["10.0.0.1:8", "10.0.0.3:7"] {
            assert!(here.read(&frame_from_there(to)).is_none(), "{to}");
        }
        let mut damaged = frame_from_there("10.0.0.1:7");
        *damaged.last_mut().expect("bytes") ^= 1;
        assert!(here.read(&damaged).is_none());
        let mut of_another_station = frame_from_there("10.0.0.1:7");
        of_another_station[5] ^= 8;
        assert!(here.read(&of_another_station).is_none());
        assert!(here.others.is_empty());
    }

    #[test]
    fn so_many_stations_are_remembered_and_not_more() {
        let mut here = here();
        for host in 0..=u8::try_from(STATIONS_MAX).expect("a small table") {
            here.read(&frame_of_host(host)).expect("it is for this endpoint");
        }
        assert_eq!(here.others.len(), STATIONS_MAX);
        let moved = MacAddress([2, 0, 0, 0, 0, 3]);
        let mut frame = frame_of_host(0);
        frame[6..12].copy_from_slice(&moved.0);
        here.read(&frame).expect("it is for this endpoint");
        assert_eq!(here.others[&IpAddr::from([10, 0, 1, 0])], moved, "one that is known may move");
    }

    fn frame_of_host(host: u8) -> Vec<u8> {
        let mut one = Stations::new(THERE, SocketAddr::from(([10, 0, 1, host], 9)));
        one.others.insert(address("10.0.0.1:7").ip(), HERE);
        let mut frame = Vec::new();
        assert!(one.write(&packet("10.0.0.1:7"), &mut frame));
        frame
    }
}
