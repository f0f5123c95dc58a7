//! The socket between members.
//!
//! Invariant: a datagram that finds no room is dropped: the machine sends again what has no answer.

use remedy_replicate::DATAGRAM_BYTES_MAX;
use scotfree_core::{Effect, Effects};
use scotfree_io::udp::{UdpConfig, UdpCounters, UdpTransport};
use scotfree_io::{RxBurst, Transport, TxPacket};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

const BURST_MAX: usize = 16;
/// How many datagrams are handed over at once.
const SENT_AT_ONCE_MAX: usize = 32;

pub(crate) struct Peers {
    transport: UdpTransport,
    rx: Option<RxBurst>,
    dropped: u64,
}

impl Peers {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Peers> {
        // The kernel cuts what is longer than a frame, and puts it together again.
        let config = UdpConfig { link_mtu_bytes: 65_535, may_fragment: true, ..UdpConfig::default() };
        let transport = UdpTransport::bind(address, &config)?;
        Ok(Peers { transport, rx: Some(RxBurst::new(BURST_MAX, DATAGRAM_BYTES_MAX)), dropped: 0 })
    }

    pub(crate) fn poll_fd(&self) -> Option<RawFd> {
        self.transport.poll_fd()
    }

    /// Datagrams that were not sent: for want of room, or since the kernel would not take them.
    pub(crate) fn dropped(&self) -> u64 {
        let UdpCounters { tx_too_long, tx_unroutable, .. } = self.transport.counters();
        self.dropped + tx_too_long + tx_unroutable
    }

    /// Takes what has come, and from where; whether there may be more.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(SocketAddr, &[u8])) -> io::Result<bool> {
        let mut rx = self.rx.take().expect("the burst is put back below");
        let count = self.transport.rx_burst(&mut rx);
        if count.is_ok() {
            rx.iter().for_each(|packet| take(packet.from, packet.bytes));
        }
        self.rx = Some(rx);
        count.map(|count| count == BURST_MAX)
    }

    /// Sends what a machine wants sent.
    pub(crate) fn send<Own>(&mut self, effects: &Effects<Own>) -> io::Result<()> {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut packets = [TxPacket { to: nobody, bytes: &[], stamp: None }; SENT_AT_ONCE_MAX];
        let mut count = 0;
        for effect in effects.iter() {
            let Effect::Send { to, bytes, .. } = effect else { continue };
            packets[count] = TxPacket { to: *to, bytes: effects.bytes(*bytes), stamp: None };
            count += 1;
            if count == SENT_AT_ONCE_MAX {
                let taken = self.transport.tx_burst(&packets[..count])?;
                self.dropped += (count - taken) as u64;
                count = 0;
            }
        }
        let taken = self.transport.tx_burst(&packets[..count])?;
        self.dropped += (count - taken) as u64;
        Ok(())
    }
}
