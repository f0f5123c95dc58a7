//! The client's side: one ring as a transport.

use crate::bell::Bell;
use crate::handover::{ask, has_ended, Granted, HandoverError};
use crate::region::Region;
use crate::server::{server_address, ATTEND_EVERY, GLANCES, HOW};
use crate::RingCounters;
use remedy_ring::{announce_marked, Memory as _, Refused, RingClient};
use scotfree_core::Nanos;
use scotfree_io::{Interest, Poller, RxBurst, Stamps, Transport, TxPacket};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

const BELL: u64 = 0;
const SERVER: u64 = 1;

/// A client's ring.
pub struct RingTransport {
    region: Region,
    client: RingClient,
    server: Bell,
    own: Bell,
    stream: UnixStream,
    poller: Poller,
    bytes: Vec<u8>,
    has_slept: bool,
    unattended: u32,
    /// The server is gone: what is written reaches nobody, and maybe the ring's next client.
    is_gone: bool,
    counters: RingCounters,
}

impl RingTransport {
    /// Gets a ring of the server that listens at `path`.
    pub fn connect(path: &Path) -> Result<RingTransport, HandoverError> {
        let Granted { region, ring, server, own, stream } = ask(path)?;
        let client = RingClient::new(ring, region.shape(), HOW);
        let poller = (|| {
            let poller = Poller::new(2)?;
            poller.add(own.as_raw_fd(), BELL, Interest::Read)?;
            poller.add(stream.as_raw_fd(), SERVER, Interest::Read)?;
            Ok(poller)
        })();
        let poller = poller.map_err(|source| HandoverError::Connect { path: path.to_owned(), source })?;
        let (bytes, counters) = (Vec::new(), RingCounters::default());
        Ok(RingTransport {
            region,
            client,
            server,
            own,
            stream,
            poller,
            bytes,
            has_slept: false,
            unattended: 0,
            is_gone: false,
            counters,
        })
    }

    /// Writes what no client writes, for a test that has to see what becomes of others.
    #[doc(hidden)]
    pub fn spoil(&self) {
        let ring = self.client.ring();
        self.region.requests(ring)[0].store(1 | u64::from(u32::MAX) << 32, Ordering::Release);
        announce_marked(self.region.pointers(), self.region.marks(), ring, 1);
    }

    /// What has happened so far.
    pub fn counters(&self) -> RingCounters {
        self.counters
    }

    /// Whether the server is gone.
    fn attend(&mut self) -> io::Result<bool> {
        self.unattended = 0;
        let events = self.poller.wait(Some(Duration::ZERO))?;
        let (is_woken, is_told) =
            (events.iter().any(|event| event.key == BELL), events.iter().any(|event| event.key == SERVER));
        if is_woken {
            self.own.hush()?;
        }
        Ok(is_told && has_ended(&self.stream))
    }

    /// Takes what lies in the ring.
    fn take(&mut self, out: &mut RxBurst) -> io::Result<()> {
        while out.len() < out.burst_max() {
            self.bytes.clear();
            let taken = self.client.take(&self.region, &mut self.bytes);
            let taken = taken.map_err(|broken| io::Error::new(ErrorKind::InvalidData, broken))?;
            if taken.is_none() {
                break;
            }
            if out.push(server_address(), None, &self.bytes) {
                self.counters.rx_packets += 1;
            } else {
                self.counters.rx_truncated += 1;
            }
        }
        Ok(())
    }
}

impl Transport for RingTransport {
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        out.clear();
        let has_slept = std::mem::take(&mut self.has_slept);
        if has_slept {
            self.client.doorbell(&self.region).awake();
        }
        self.take(out)?;
        self.unattended += 1;
        if has_slept || self.unattended >= ATTEND_EVERY {
            self.is_gone = self.is_gone || self.attend()?;
        }
        if self.is_gone {
            // What it has said before its end counts.
            self.take(out)?;
            if out.is_empty() {
                let gone = "the server is gone, and the memory with it: connect again when it is back";
                return Err(io::Error::new(ErrorKind::ConnectionReset, gone));
            }
        }
        Ok(out.len())
    }

    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        for packet in packets {
            if packet.to != server_address() || self.is_gone {
                self.counters.tx_unroutable += 1;
                continue;
            }
            match self.client.ask(&self.region, packet.bytes) {
                Ok(_) => self.counters.tx_packets += 1,
                Err(Refused::Full) => self.counters.tx_full += 1,
                Err(Refused::TooLong { .. }) => self.counters.tx_too_long += 1,
            }
        }
        if self.client.tell(&self.region) {
            self.counters.wakes += 1;
            self.server.ring()?;
        }
        Ok(packets.len())
    }

    fn tx_stamps(&mut self, _out: &mut Vec<(u32, Nanos)>) {}

    fn mtu(&self) -> usize {
        self.region.shape().payload_bytes()
    }

    fn stamps(&self) -> Stamps {
        Stamps::None
    }

    fn local_address(&self) -> SocketAddr {
        server_address()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.poller.as_raw_fd())
    }

    fn events(&self) -> Vec<(&'static str, u64)> {
        self.counters.events()
    }

    fn glances(&self) -> u32 {
        GLANCES
    }

    fn glance(&mut self) -> bool {
        self.client.is_ready(&self.region)
    }

    fn may_sleep(&mut self) -> bool {
        let doorbell = self.client.doorbell(&self.region);
        doorbell.about_to_sleep();
        let may_sleep = !self.client.is_ready(&self.region);
        if may_sleep {
            self.has_slept = true;
        } else {
            doorbell.awake();
        }
        may_sleep
    }
}
