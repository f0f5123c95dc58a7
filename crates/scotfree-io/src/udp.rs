//! UDP over a kernel socket: batched system calls, receive stamps on every datagram (under much load in
//! turns, see `stamp_turns`), transmit stamps on the sampled ones.
//!
//! Invariant: what the network does to a datagram (lost, refused, too long, no route) is counted and
//! never an error for the caller; an error means that the socket itself is unusable.

use crate::clock::{now_monotonic_coarse, now_realtime};
use crate::stamp_table::{Match, StampTable};
use crate::stamp_turns::StampTurns;
use crate::sys::batch::{Outgoing, RxBatch, RxRoom, TxBatch};
use crate::sys::{control, socket};
use crate::transport::{RxBurst, Stamps, Transport, TxPacket};
use scotfree_core::Nanos;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// How often one call meets refusals left behind by earlier datagrams before it gives up until the
/// next.
const REFUSALS_MAX: usize = 4;
/// `SCM_TSTAMP_SND` of linux/errqueue.h: the stamp was taken when the datagram left.
const STAMPED_WHEN_SENT: u32 = 0;
/// IPv4 without options plus UDP, and IPv6 plus UDP.
const V4_HEADERS_BYTES: usize = 28;
const V6_HEADERS_BYTES: usize = 48;

/// How a [`UdpTransport`] is set up.
#[derive(Debug, Clone)]
pub struct UdpConfig {
    /// If set, the only peer: datagrams of others are not received, and refusals by the peer's host
    /// are noticed and counted.
    pub peer: Option<SocketAddr>,
    /// How many datagrams one system call moves at most.
    pub burst_max: usize,
    /// The largest IP packet that is sent; datagrams that would need a larger one are dropped and counted.
    pub link_mtu_bytes: usize,
    /// Whether the kernel may cut a packet that is longer than the frames of its way into fragments. Otherwise it is
    /// dropped and counted as well.
    pub may_fragment: bool,
    /// The kernel buffer for what has arrived; when full, the kernel drops and we count.
    pub receive_buffer_bytes: usize,
    /// The kernel buffer for what is to leave; when full, [`Transport::tx_burst`] takes fewer.
    pub send_buffer_bytes: usize,
    /// How many transmit stamps may be awaited; at the limit the oldest is given up.
    pub tx_stamps_max: usize,
    /// Whether the kernel is asked for stamps at all; it takes time for each datagram that it stamps.
    pub stamps: bool,
}

impl Default for UdpConfig {
    fn default() -> Self {
        UdpConfig {
            peer: None,
            burst_max: 64,
            link_mtu_bytes: 1_500,
            may_fragment: false,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            tx_stamps_max: 1_024,
            stamps: true,
        }
    }
}

/// What has happened on a [`UdpTransport`] since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UdpCounters {
    /// Datagrams handed to the caller.
    pub rx_packets: u64,
    /// Datagrams dropped because they were longer than the caller's room.
    pub rx_truncated: u64,
    /// Datagrams that the kernel dropped because its receive buffer was full.
    pub rx_overflowed: u64,
    /// Datagrams that the kernel took.
    pub tx_packets: u64,
    /// Datagrams dropped because they were longer than the mtu.
    pub tx_too_long: u64,
    /// Datagrams dropped because the kernel refused them (no route, forbidden, wrong family).
    pub tx_unroutable: u64,
    /// Times when the peer's host reported that nobody listens.
    pub refused: u64,
    /// Transmit stamps that were given up.
    pub tx_stamps_lost: u64,
    /// Times when our count of transmit stamps and the kernel's were brought back together.
    pub tx_stamp_restarts: u64,
}

/// A UDP socket as a [`Transport`].
pub struct UdpTransport {
    fd: OwnedFd,
    local: SocketAddr,
    connected: bool,
    mtu: usize,
    stamps: Stamps,
    rx: RxBatch,
    tx: TxBatch,
    burst_max: usize,
    stamp_rx: RxBatch,
    stamp_table: StampTable,
    stamp_turns: StampTurns,
    overflowed_last: u32,
    counters: UdpCounters,
}

impl UdpTransport {
    /// Opens a socket bound to `address`. Where the kernel does not stamp, the transport works without
    /// stamps and says so.
    pub fn bind(address: SocketAddr, config: &UdpConfig) -> io::Result<UdpTransport> {
        let fd = socket::open_udp(address)?;
        configure(&fd, address, config)?;
        socket::bind(&fd, address)?;
        if let Some(peer) = config.peer {
            socket::connect(&fd, peer)?;
        }
        UdpTransport::adopt(fd, config)
    }

    /// Takes over a socket that was bound elsewhere, for instance by a service manager.
    pub fn adopt(fd: OwnedFd, config: &UdpConfig) -> io::Result<UdpTransport> {
        let local = socket::local_address(&fd)?;
        socket::set_nonblocking(&fd)?;
        let is_stamping = config.stamps && enable_stamps(&fd, Arrivals::Stamped).is_ok();
        let stamps = if is_stamping { Stamps::Software } else { Stamps::None };
        let headers_bytes = if local.is_ipv4() { V4_HEADERS_BYTES } else { V6_HEADERS_BYTES };
        Ok(UdpTransport {
            fd,
            local,
            connected: config.peer.is_some(),
            mtu: config.link_mtu_bytes.min(65_535).saturating_sub(headers_bytes),
            stamps,
            rx: RxBatch::new(config.burst_max),
            tx: TxBatch::new(config.burst_max),
            burst_max: config.burst_max,
            stamp_rx: RxBatch::new(config.burst_max),
            stamp_table: StampTable::new(config.tx_stamps_max),
            stamp_turns: StampTurns::new(now_monotonic_coarse()),
            overflowed_last: 0,
            counters: UdpCounters::default(),
        })
    }

    /// What has happened so far.
    pub fn counters(&self) -> UdpCounters {
        UdpCounters { tx_stamps_lost: self.stamp_table.lost_count(), ..self.counters }
    }

    /// Receives into the places of `out`; how many datagrams came, long ones included.
    fn receive(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        let (count_max, stride) = (out.burst_max().min(self.burst_max), out.packet_bytes_max());
        for _ in 0..=REFUSALS_MAX {
            let mut room = RxRoom { storage: out.storage_mut(), stride, headroom: 0 };
            match self.rx.receive(self.fd.as_raw_fd(), 0, count_max, &mut room) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(error) => self.absorb_refusal(error)?,
            }
        }
        Ok(0)
    }

    fn note_received(&mut self, index: usize, out: &mut RxBurst) {
        let message = self.rx.message(index);
        let mut received_at = None;
        for item in control::messages(message.control) {
            received_at = received_at.or(item.software_stamp());
            if (item.level, item.kind) == (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) {
                let total = item.u32_at(0).unwrap_or(self.overflowed_last);
                self.counters.rx_overflowed += u64::from(total.wrapping_sub(self.overflowed_last));
                self.overflowed_last = total;
            }
        }
        match message.from {
            Some(from) if !message.truncated => {
                self.counters.rx_packets += 1;
                out.note(index, from, received_at, message.bytes);
            }
            Some(_) | None => self.counters.rx_truncated += 1,
        }
    }

    /// An error that reports the fate of an earlier datagram is counted; others are given back.
    fn absorb_refusal(&mut self, error: io::Error) -> io::Result<()> {
        match error.raw_os_error() {
            Some(libc::EINTR) => Ok(()),
            // A connected socket learns here that nobody listens at the peer, or that it is out of reach.
            Some(
                libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::EPROTO,
            ) => {
                self.counters.refused += 1;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Sends from the front of `packets`, which all fit the mtu; how many were taken.
    fn send_run(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        let mut refusals = 0;
        while sent < packets.len() {
            let rest = &packets[sent..];
            let requested_at =
                if rest.iter().any(|packet| packet.stamp.is_some()) { now_realtime() } else { Nanos(0) };
            match self.send_once(rest) {
                Ok(0) => break,
                Ok(count) => {
                    self.note_sent(&rest[..count], requested_at);
                    sent += count;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR | libc::ECONNREFUSED) if refusals < REFUSALS_MAX => {
                        refusals += 1;
                        self.absorb_refusal(error)?;
                    }
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ECONNREFUSED) => break,
                    Some(libc::EMSGSIZE) => {
                        self.counters.tx_too_long += 1;
                        sent += 1;
                    }
                    Some(errno) if is_unroutable(errno) => {
                        self.counters.tx_unroutable += 1;
                        sent += 1;
                    }
                    _ if sent > 0 => break,
                    _ => return Err(error),
                },
            }
        }
        Ok(sent)
    }

    fn send_once(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let (connected, stamping) = (self.connected, self.stamps != Stamps::None);
        let messages = packets.iter().map(|packet| Outgoing {
            to: (!connected).then_some(packet.to),
            bytes: packet.bytes,
            stamp: stamping && packet.stamp.is_some(),
        });
        self.tx.send(self.fd.as_raw_fd(), messages)
    }

    fn note_sent(&mut self, packets: &[TxPacket<'_>], requested_at: Nanos) {
        self.counters.tx_packets += packets.len() as u64;
        if self.stamps == Stamps::None {
            return;
        }
        for key in packets.iter().filter_map(|packet| packet.stamp) {
            self.stamp_table.requested(key, requested_at);
        }
    }

    fn arrivals(&self) -> Arrivals {
        if self.stamp_turns.is_on() {
            Arrivals::Stamped
        } else {
            Arrivals::Plain
        }
    }

    fn take_turns(&mut self, count: usize) {
        if self.stamps == Stamps::None || !self.stamp_turns.note(now_monotonic_coarse(), count) {
            return;
        }
        // The same flags were taken before; what could be refused now costs stamps, not datagrams.
        let _ = enable_stamps(&self.fd, self.arrivals());
    }

    /// Brings our count of stamp requests and the kernel's back to zero together.
    fn restart_stamps(&mut self) {
        self.counters.tx_stamp_restarts += 1;
        self.stamp_table.restart();
        // The kernel starts its count anew only when the option goes from off to on.
        let restarted = socket::set_option(&self.fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0)
            .and_then(|()| enable_stamps(&self.fd, self.arrivals()));
        if restarted.is_err() {
            self.stamps = Stamps::None;
        }
    }
}

impl Transport for UdpTransport {
    fn rx_burst(&mut self, out: &mut RxBurst) -> io::Result<usize> {
        out.clear();
        let count = self.receive(out)?;
        for index in 0..count {
            self.note_received(index, out);
        }
        self.take_turns(count);
        Ok(out.len())
    }

    fn tx_burst(&mut self, packets: &[TxPacket<'_>]) -> io::Result<usize> {
        let mtu = self.mtu;
        let mut taken = 0;
        for run in packets.chunk_by(|a, b| (a.bytes.len() > mtu) == (b.bytes.len() > mtu)) {
            if run[0].bytes.len() > mtu {
                self.counters.tx_too_long += run.len() as u64;
                taken += run.len();
                continue;
            }
            let sent = self.send_run(run)?;
            taken += sent;
            if sent < run.len() {
                break;
            }
        }
        Ok(taken)
    }

    fn tx_stamps(&mut self, out: &mut Vec<(u32, Nanos)>) {
        if self.stamps == Stamps::None {
            return;
        }
        // The stamp is all in the control messages: the datagram itself does not come back.
        let mut room = RxRoom { storage: &mut [], stride: 0, headroom: 0 };
        let received =
            self.stamp_rx.receive(self.fd.as_raw_fd(), libc::MSG_ERRQUEUE, self.burst_max, &mut room);
        let Ok(count) = received else { return };
        for index in 0..count {
            let Some((id, stamp)) = stamp_of(self.stamp_rx.message(index).control) else { continue };
            match self.stamp_table.stamped(id, stamp) {
                Match::Key(key) => out.push((key, stamp)),
                Match::Forgotten => {}
                Match::OutOfStep => return self.restart_stamps(),
            }
        }
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn stamps(&self) -> Stamps {
        self.stamps
    }

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }
}

impl AsRawFd for UdpTransport {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for UdpTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn configure(fd: &OwnedFd, address: SocketAddr, config: &UdpConfig) -> io::Result<()> {
    socket::set_buffers(fd, config.receive_buffer_bytes, config.send_buffer_bytes)?;
    socket::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    // A datagram that does not fit the path is refused here rather than fragmented on the way, unless it may be.
    let (v4, v6) = if config.may_fragment {
        (libc::IP_PMTUDISC_DONT, libc::IPV6_PMTUDISC_DONT)
    } else {
        (libc::IP_PMTUDISC_DO, libc::IPV6_PMTUDISC_DO)
    };
    if address.is_ipv4() {
        return socket::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, v4);
    }
    socket::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, v6)?;
    // One family per socket, so that a peer has one address only.
    socket::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)
}

/// Whether the kernel stamps what arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrivals {
    Stamped,
    Plain,
}

fn enable_stamps(fd: &OwnedFd, arrivals: Arrivals) -> io::Result<()> {
    let of_arrivals = match arrivals {
        Arrivals::Stamped => libc::SOF_TIMESTAMPING_RX_SOFTWARE,
        Arrivals::Plain => 0,
    };
    let flags = libc::SOF_TIMESTAMPING_SOFTWARE
        | of_arrivals
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    socket::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags as i32)
}

/// The id and the time in a message of the error queue, if it is a stamp of leaving the host.
fn stamp_of(control: &[u8]) -> Option<(u32, Nanos)> {
    let mut id = None;
    let mut stamp = None;
    for item in control::messages(control) {
        stamp = stamp.or(item.software_stamp());
        let is_report = matches!(
            (item.level, item.kind),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        );
        // sock_extended_err: errno (4), origin (1), type, code, pad, info (4), data (4).
        if is_report
            && item.data.get(4) == Some(&libc::SO_EE_ORIGIN_TIMESTAMPING)
            && item.u32_at(8) == Some(STAMPED_WHEN_SENT)
        {
            id = item.u32_at(12);
        }
    }
    Some((id?, stamp?))
}

fn is_unroutable(errno: i32) -> bool {
    matches!(
        errno,
        libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::EPERM
            | libc::EACCES
            | libc::EINVAL
            | libc::EAFNOSUPPORT
            | libc::EADDRNOTAVAIL
    )
}
