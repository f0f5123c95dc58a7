//! What every transport offers: bursts of datagrams in and out, and stamps of when they passed.
//!
//! Invariant: nothing here blocks, and after warm-up nothing here allocates per packet. A datagram may
//! be lost, doubled or reordered on every transport; it is never changed or cut.

use scotfree_core::Nanos;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::Path;

/// Where the stamps of a transport are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamps {
    /// Nowhere.
    None,
    /// In the host's kernel, or its stand-in.
    Software,
    /// In the network interface.
    Hardware,
}

/// A datagram to be sent.
#[derive(Debug, Clone, Copy)]
pub struct TxPacket<'a> {
    /// Its destination.
    pub to: SocketAddr,
    /// Its content.
    pub bytes: &'a [u8],
    /// If set, [`Transport::tx_stamps`] later reports under this key when it left the host, unless the
    /// stamp is lost. Asking costs; ask for a sample.
    pub stamp: Option<u32>,
}

/// Sends and receives datagrams in bursts.
pub trait Transport {
    /// Replaces the content of `out` by datagrams that have arrived, at most [`RxBurst::burst_max`];
    /// how many there are. 0 means that none were waiting. A datagram longer than
    /// [`RxBurst::packet_bytes_max`] is dropped and counted.
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize>;

    /// Takes datagrams from the front of `packets`; how many it took. The rest found no room: offer it
    /// again when the transport is writable, or drop it. A datagram that can never be sent (too long,
    /// no route) is taken, dropped and counted, since the network could have lost it too.
    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize>;

    /// Appends (key, time) of the stamped datagrams that have left the host since the last call.
    fn tx_stamps(&mut self, out: &mut Vec<(u32, Nanos)>);

    /// The largest datagram that passes whole, without fragments.
    fn mtu(&self) -> usize;

    /// Where the stamps come from.
    fn stamps(&self) -> Stamps;

    /// The address that others reach this transport at.
    fn local_address(&self) -> SocketAddr;

    /// A descriptor to poll: readable when datagrams wait, in error when transmit stamps wait.
    fn poll_fd(&self) -> Option<RawFd>;

    /// What has happened so far, by name, where nothing else says it.
    fn events(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// How often [`Transport::glance`] is worth its while between two looks at descriptors, which cost a system call.
    fn glances(&self) -> u32 {
        0
    }

    /// Whether datagrams wait of which the descriptor does not tell, since nobody has said that he sleeps: one look,
    /// without a system call.
    fn glance(&mut self) -> bool {
        false
    }

    /// The caller is about to sleep until [`Transport::poll_fd`] tells of something; whether it may, since nothing waits. From
    /// then on until the next [`Transport::rx_burst`] the descriptor tells of everything.
    fn may_sleep(&mut self) -> bool {
        true
    }
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        (**self).rx_burst(out)
    }

    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        (**self).tx_burst(packets)
    }

    fn tx_stamps(&mut self, out: &mut Vec<(u32, Nanos)>) {
        (**self).tx_stamps(out);
    }

    fn mtu(&self) -> usize {
        (**self).mtu()
    }

    fn stamps(&self) -> Stamps {
        (**self).stamps()
    }

    fn local_address(&self) -> SocketAddr {
        (**self).local_address()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        (**self).poll_fd()
    }

    fn events(&self) -> Vec<(&'static str, u64)> {
        (**self).events()
    }

    fn glances(&self) -> u32 {
        (**self).glances()
    }

    fn glance(&mut self) -> bool {
        (**self).glance()
    }

    fn may_sleep(&mut self) -> bool {
        (**self).may_sleep()
    }
}

/// A transport, or why there is none, in words for the operator.
pub type Made = Result<Box<dyn Transport>, String>;

/// A number that a kind of transport costs on this machine.
#[derive(Debug, Clone)]
pub struct Cost {
    /// Of what.
    pub what: &'static str,
    /// How much.
    pub value: f64,
    /// In which unit.
    pub unit: &'static str,
    /// At most so much is required.
    pub required: Option<f64>,
}

/// Makes transports of a kind, which are named `KIND:PLACE`, said without naming what makes them.
#[derive(Clone, Copy)]
pub struct TransportMaker {
    /// The kind.
    pub kind: &'static str,
    /// A server's, at this place.
    pub listen: fn(place: &Path) -> Made,
    /// A client's of the server there; [`Transport::local_address`] is what the server is called.
    pub connect: fn(place: &Path) -> Made,
    /// What it costs by itself, without a runtime on it, measured by so many messages each.
    pub costs: fn(count: usize) -> io::Result<Vec<Cost>>,
}

impl std::fmt::Debug for TransportMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TransportMaker").field(&self.kind).finish()
    }
}

/// A reusable buffer of received datagrams.
#[derive(Debug)]
pub struct RxBurst {
    storage: Box<[u8]>,
    packets: Vec<Placed>,
    burst_max: usize,
    packet_bytes_max: usize,
}

#[derive(Debug, Clone, Copy)]
struct Placed {
    from: SocketAddr,
    received_at: Option<Nanos>,
    start: usize,
    bytes: usize,
}

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxPacket<'a> {
    /// Who sent it.
    pub from: SocketAddr,
    /// Its content.
    pub bytes: &'a [u8],
    /// When it reached the host (`CLOCK_REALTIME`), if that was stamped.
    pub received_at: Option<Nanos>,
}

impl RxBurst {
    /// Room for `burst_max` datagrams of up to `packet_bytes_max` bytes each, allocated here once.
    pub fn new(burst_max: usize, packet_bytes_max: usize) -> RxBurst {
        assert!(burst_max > 0, "a burst holds at least one datagram");
        RxBurst {
            storage: vec![0; burst_max * packet_bytes_max].into(),
            packets: Vec::with_capacity(burst_max),
            burst_max,
            packet_bytes_max,
        }
    }

    /// How many datagrams fit.
    pub fn burst_max(&self) -> usize {
        self.burst_max
    }

    /// How long a datagram may be.
    pub fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max
    }

    /// How many datagrams there are.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.packets.clear();
    }

    /// The datagrams in order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RxPacket<'_>> {
        self.packets.iter().map(|packet| self.view(*packet))
    }

    /// The datagram at `index`.
    pub fn get(&self, index: usize) -> Option<RxPacket<'_>> {
        self.packets.get(index).map(|packet| self.view(*packet))
    }

    /// Copies a datagram in, for transports that hold it elsewhere; false, and nothing happens, if the
    /// burst is full or the datagram too long.
    pub fn push(&mut self, from: SocketAddr, received_at: Option<Nanos>, bytes: &[u8]) -> bool {
        if self.packets.len() == self.burst_max || bytes.len() > self.packet_bytes_max {
            return false;
        }
        let start = self.packets.len() * self.packet_bytes_max;
        self.storage[start..start + bytes.len()].copy_from_slice(bytes);
        self.packets.push(Placed { from, received_at, start, bytes: bytes.len() });
        true
    }

    /// The whole memory, place after place of [`RxBurst::packet_bytes_max`] bytes, to receive into;
    /// then [`RxBurst::note`] says what came.
    pub(crate) fn storage_mut(&mut self) -> &mut [u8] {
        self.packets.clear();
        &mut self.storage
    }

    /// Notes that a datagram was received into the place at `index`.
    pub(crate) fn note(&mut self, index: usize, from: SocketAddr, received_at: Option<Nanos>, bytes: usize) {
        assert!(index < self.burst_max && bytes <= self.packet_bytes_max, "a datagram lies in its place");
        self.packets.push(Placed { from, received_at, start: index * self.packet_bytes_max, bytes });
    }

    fn view(&self, packet: Placed) -> RxPacket<'_> {
        RxPacket {
            from: packet.from,
            bytes: &self.storage[packet.start..packet.start + packet.bytes],
            received_at: packet.received_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_burst_and_a_long_datagram_are_refused() {
        let from: SocketAddr = "10.0.0.1:1".parse().expect("an address");
        let mut burst = RxBurst::new(2, 4);
        assert!(!burst.push(from, None, b"12345"));
        assert!(burst.push(from, Some(Nanos(7)), b"1234"));
        assert!(burst.push(from, None, b""));
        assert!(!burst.push(from, None, b"1"));
        assert_eq!(burst.get(0), Some(RxPacket { from, bytes: b"1234", received_at: Some(Nanos(7)) }));
        assert_eq!(burst.iter().len(), 2);
        burst.clear();
        assert!(burst.is_empty());
    }
}
