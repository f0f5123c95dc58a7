//! Datagrams between endpoints of one process, through bounded queues.
//!
//! Invariant: an endpoint's queue never holds more than `queue_packets_max` datagrams; what finds it
//! full, or finds no endpoint at its address, is dropped and counted, as a network would.

use crate::clock::now_realtime;
use crate::sys::event;
use crate::transport::{RxBurst, Stamps, Transport, TxPacket};
use scotfree_core::Nanos;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a [`MemoryHub`] is set up.
#[derive(Debug, Clone, Copy)]
pub struct MemoryConfig {
    /// How many datagrams wait at one endpoint at most; at the limit new ones are dropped.
    pub queue_packets_max: usize,
    /// The largest datagram; longer ones are dropped.
    pub mtu_bytes: usize,
    /// How many transmit stamps wait to be fetched at most; at the limit new ones are lost.
    pub tx_stamps_max: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        MemoryConfig { queue_packets_max: 1_024, mtu_bytes: 1_472, tx_stamps_max: 1_024 }
    }
}

/// What has happened at a [`MemoryTransport`] since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// Datagrams handed to the caller.
    pub rx_packets: u64,
    /// Datagrams dropped because they were longer than the caller's room.
    pub rx_truncated: u64,
    /// Datagrams for this endpoint dropped because its queue was full.
    pub rx_overflowed: u64,
    /// Datagrams that reached another endpoint's queue.
    pub tx_packets: u64,
    /// Datagrams dropped because they were longer than the mtu.
    pub tx_too_long: u64,
    /// Datagrams dropped because no endpoint has their address.
    pub tx_unroutable: u64,
    /// Transmit stamps lost because nobody fetched the earlier ones.
    pub tx_stamps_lost: u64,
}

/// A network inside the process; clones are the same network.
#[derive(Clone)]
pub struct MemoryHub {
    config: MemoryConfig,
    endpoints: Arc<Mutex<BTreeMap<SocketAddr, Arc<Endpoint>>>>,
}

struct Endpoint {
    queue: Mutex<Queue>,
    /// Readable while the queue is not empty.
    ready: OwnedFd,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Datagram>,
    /// Buffers of datagrams that were received, to be used again.
    spare: Vec<Vec<u8>>,
    overflowed: u64,
}

struct Datagram {
    from: SocketAddr,
    sent_at: Nanos,
    bytes: Vec<u8>,
}

impl MemoryHub {
    /// A network without endpoints.
    pub fn new(config: MemoryConfig) -> MemoryHub {
        MemoryHub { config, endpoints: Arc::default() }
    }

    /// Adds an endpoint at `address`; it leaves the network when it is dropped.
    pub fn endpoint(&self, address: SocketAddr) -> io::Result<MemoryTransport> {
        let mut endpoints = lock(&self.endpoints);
        if endpoints.contains_key(&address) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("the in-process network has an endpoint at {address} already"),
            ));
        }
        let inbox = Arc::new(Endpoint { queue: Mutex::default(), ready: event::eventfd()? });
        endpoints.insert(address, Arc::clone(&inbox));
        Ok(MemoryTransport {
            hub: self.clone(),
            address,
            inbox,
            stamps: VecDeque::new(),
            counters: MemoryCounters::default(),
        })
    }

    fn find(&self, address: SocketAddr) -> Option<Arc<Endpoint>> {
        lock(&self.endpoints).get(&address).map(Arc::clone)
    }
}

/// Two endpoints of a network of their own.
pub fn pair(
    a: SocketAddr,
    b: SocketAddr,
    config: MemoryConfig,
) -> io::Result<(MemoryTransport, MemoryTransport)> {
    let hub = MemoryHub::new(config);
    Ok((hub.endpoint(a)?, hub.endpoint(b)?))
}

/// An endpoint of a [`MemoryHub`].
pub struct MemoryTransport {
    hub: MemoryHub,
    address: SocketAddr,
    inbox: Arc<Endpoint>,
    stamps: VecDeque<(u32, Nanos)>,
    counters: MemoryCounters,
}

impl MemoryTransport {
    /// What has happened so far.
    pub fn counters(&self) -> MemoryCounters {
        MemoryCounters { rx_overflowed: lock(&self.inbox.queue).overflowed, ..self.counters }
    }

    fn send(&mut self, packet: &TxPacket<'_>) {
        if packet.bytes.len() > self.hub.config.mtu_bytes {
            self.counters.tx_too_long += 1;
            return;
        }
        let now = now_realtime();
        self.note_stamp(packet.stamp, now);
        let Some(endpoint) = self.hub.find(packet.to) else {
            self.counters.tx_unroutable += 1;
            return;
        };
        let queue_packets_max = self.hub.config.queue_packets_max;
        if endpoint.push(self.address, now, packet.bytes, queue_packets_max) {
            self.counters.tx_packets += 1;
        }
    }

    fn note_stamp(&mut self, key: Option<u32>, now: Nanos) {
        let Some(key) = key else { return };
        if self.stamps.len() == self.hub.config.tx_stamps_max {
            self.counters.tx_stamps_lost += 1;
            return;
        }
        self.stamps.push_back((key, now));
    }
}

impl Transport for MemoryTransport {
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        out.clear();
        let mut queue = lock(&self.inbox.queue);
        let was_ready = !queue.waiting.is_empty();
        while out.len() < out.burst_max() {
            let Some(datagram) = queue.waiting.pop_front() else { break };
            if out.push(datagram.from, Some(datagram.sent_at), &datagram.bytes) {
                self.counters.rx_packets += 1;
            } else {
                self.counters.rx_truncated += 1;
            }
            queue.spare.push(datagram.bytes);
        }
        if was_ready && queue.waiting.is_empty() {
            event::eventfd_clear(&self.inbox.ready);
        }
        Ok(out.len())
    }

    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        for packet in packets {
            self.send(packet);
        }
        Ok(packets.len())
    }

    fn tx_stamps(&mut self, out: &mut Vec<(u32, Nanos)>) {
        out.extend(self.stamps.drain(..));
    }

    fn mtu(&self) -> usize {
        self.hub.config.mtu_bytes
    }

    fn stamps(&self) -> Stamps {
        Stamps::Software
    }

    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.inbox.ready.as_raw_fd())
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        lock(&self.hub.endpoints).remove(&self.address);
    }
}

impl Endpoint {
    fn push(&self, from: SocketAddr, sent_at: Nanos, bytes: &[u8], queue_packets_max: usize) -> bool {
        let mut queue = lock(&self.queue);
        if queue.waiting.len() >= queue_packets_max {
            queue.overflowed += 1;
            return false;
        }
        let mut buffer = queue.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        queue.waiting.push_back(Datagram { from, sent_at, bytes: buffer });
        if queue.waiting.len() == 1 {
            event::eventfd_set(&self.ready);
        }
        true
    }
}

/// The queues are consistent between any two statements, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let config = MemoryConfig { queue_packets_max: 2, ..MemoryConfig::default() };
        let (mut a, mut b) = pair(address(1), address(2), config).expect("two endpoints");
        let packet = TxPacket { to: address(2), bytes: b"x", stamp: None };
        assert_eq!(a.tx_burst(&[packet; 5]).expect("memory does not fail"), 5);
        assert_eq!(b.counters().rx_overflowed, 3);
        let mut burst = RxBurst::new(8, 64);
        assert_eq!(b.rx_burst(&mut burst).expect("memory does not fail"), 2);
    }

    #[test]
    fn unfetched_stamps_are_bounded() {
        let config = MemoryConfig { tx_stamps_max: 2, ..MemoryConfig::default() };
        let (mut a, _b) = pair(address(1), address(2), config).expect("two endpoints");
        let packet = TxPacket { to: address(2), bytes: b"x", stamp: Some(7) };
        a.tx_burst(&[packet; 3]).expect("memory does not fail");
        assert_eq!(a.counters().tx_stamps_lost, 1);
        let mut stamps = Vec::new();
        a.tx_stamps(&mut stamps);
        assert_eq!(stamps.len(), 2);
    }

    #[test]
    fn an_address_is_taken_once_and_free_after_drop() {
        let hub = MemoryHub::new(MemoryConfig::default());
        let first = hub.endpoint(address(1)).expect("a free address");
        let second = hub.endpoint(address(1)).map(drop).expect_err("a taken address");
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(hub.endpoint(address(1)).is_ok());
    }

    #[test]
    fn the_descriptor_tells_whether_something_waits() {
        use crate::poll::{Interest, Poller};
        use std::time::Duration;
        let (mut a, mut b) = pair(address(1), address(2), MemoryConfig::default()).expect("two endpoints");
        let mut poller = Poller::new(4).expect("a poller");
        poller.add(b.poll_fd().expect("it can be polled"), 5, Interest::Read).expect("a watch");
        assert!(poller.wait(Some(Duration::ZERO)).expect("a wait").is_empty());
        a.tx_burst(&[TxPacket { to: address(2), bytes: b"x", stamp: None }]).expect("memory does not fail");
        assert_eq!(poller.wait(None).expect("a wait")[0].key, 5);
        b.rx_burst(&mut RxBurst::new(8, 64)).expect("memory does not fail");
        assert!(poller.wait(Some(Duration::ZERO)).expect("a wait").is_empty());
    }
}
