//! An Ethernet interface as a port of the user-space device: whole frames in and out, in bursts.
//!
//! Invariant: a received frame is as it was on the wire: its VLAN tag, which the kernel takes off, is
//! put back, and a checksum that its sender left to hardware is completed or marked as not ready. What
//! we send is never received again by the same port.

use crate::frame::{complete_checksums, Checksums, MacAddress, ETHERNET_HEADER_BYTES, VLAN_TAG_BYTES};
use crate::sys::batch::{Outgoing, RxBatch, RxMessage, RxRoom, TxBatch};
use crate::sys::control::{self, ControlMessage};
use crate::sys::socket;
use scotfree_core::Nanos;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Where the addresses end and the tag, or the type, begins.
const ADDRESSES_BYTES: usize = 12;

/// How a [`PacketPort`] is set up.
#[derive(Debug, Clone)]
pub struct PacketPortConfig {
    /// How many frames one system call moves at most.
    pub burst_max: usize,
    /// Whether frames for every destination are received; a bridge needs them.
    pub promiscuous: bool,
    /// Whether checksums that were left to hardware are completed on receipt. Without, frames with
    /// [`Checksums::NotReady`] must not leave by another port as they are.
    pub complete_checksums: bool,
    /// The kernel buffer for what has arrived; when full, the kernel drops and we count.
    pub receive_buffer_bytes: usize,
    /// The kernel buffer for what is to leave; when full, [`PacketPort::tx_burst`] takes fewer.
    pub send_buffer_bytes: usize,
}

impl Default for PacketPortConfig {
    fn default() -> Self {
        PacketPortConfig {
            burst_max: 64,
            promiscuous: true,
            complete_checksums: true,
            receive_buffer_bytes: 16 << 20,
            send_buffer_bytes: 4 << 20,
        }
    }
}

/// What has happened at a [`PacketPort`] since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketPortCounters {
    /// Frames handed to the caller.
    pub rx_frames: u64,
    /// Frames dropped because they were longer than the caller's room, as merged segments are: switch
    /// GRO, GSO and TSO off on both ends of the link.
    pub rx_truncated: u64,
    /// Frames that the kernel dropped because its buffer was full.
    pub rx_overflowed: u64,
    /// Frames whose VLAN tag was put back.
    pub rx_tags_restored: u64,
    /// Frames whose checksum was completed.
    pub rx_checksums_completed: u64,
    /// Frames that the kernel took.
    pub tx_frames: u64,
    /// Frames dropped because they were longer than the interface takes.
    pub tx_too_long: u64,
    /// Frames dropped because the interface is down or its queue full.
    pub tx_dropped: u64,
    /// Times when the interface was reported to be down.
    pub link_down: u64,
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The process may not open packet sockets.
    #[error(
        "opening a packet socket on `{interface}` needs CAP_NET_RAW in this network namespace; \
         run as root, or inside `unshare -Urn`, or `setcap cap_net_raw+ep` the program"
    )]
    NoPrivilege {
        /// The interface.
        interface: String,
    },
    /// There is no such interface here.
    #[error(
        "there is no interface `{interface}` in this network namespace; `ip link` lists those there are"
    )]
    NoInterface {
        /// The interface.
        interface: String,
    },
    /// Something else failed.
    #[error("{doing} on `{interface}` failed: {source}")]
    Io {
        /// The interface.
        interface: String,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A raw socket bound to one interface.
pub struct PacketPort {
    fd: OwnedFd,
    interface: String,
    index: u32,
    mac: MacAddress,
    mtu: usize,
    complete_checksums: bool,
    burst_max: usize,
    rx: RxBatch,
    tx: TxBatch,
    counters: PacketPortCounters,
}

impl PacketPort {
    /// Opens `interface`, from now on receiving what arrives there.
    pub fn open(interface: &str, config: &PacketPortConfig) -> Result<PacketPort, PortError> {
        let failed = |doing| {
            let interface = interface.to_owned();
            move |source: io::Error| match source.raw_os_error() {
                Some(libc::ENODEV | libc::ENXIO) => PortError::NoInterface { interface },
                Some(libc::EPERM | libc::EACCES) => PortError::NoPrivilege { interface },
                _ => PortError::Io { interface, doing, source },
            }
        };
        let index = socket::interface_index(interface).map_err(failed("looking the interface up"))?;
        let fd = socket::open_packet().map_err(failed("opening a packet socket"))?;
        let mac =
            socket::hardware_address(&fd, interface).map_err(failed("asking for the hardware address"))?;
        let mtu = socket::interface_mtu(&fd, interface).map_err(failed("asking for the mtu"))?;
        configure(&fd, config).map_err(failed("configuring the packet socket"))?;
        // Until it is bound, the socket receives nothing, in particular nothing of other interfaces.
        socket::bind_packet(&fd, index).map_err(failed("binding the packet socket"))?;
        if config.promiscuous {
            socket::join_promiscuous(&fd, index).map_err(failed("entering promiscuous mode"))?;
        }
        Ok(PacketPort {
            fd,
            interface: interface.to_owned(),
            index,
            mac: MacAddress(mac),
            mtu,
            complete_checksums: config.complete_checksums,
            burst_max: config.burst_max,
            rx: RxBatch::new(config.burst_max),
            tx: TxBatch::new(config.burst_max),
            counters: PacketPortCounters::default(),
        })
    }

    /// Whether the interface is still there; one made anew under its name is another.
    pub fn is_there(&self) -> bool {
        socket::interface_index(&self.interface).is_ok_and(|index| index == self.index)
    }

    /// Replaces the content of `out` by frames that have arrived, at most [`FrameBurst::burst_max`];
    /// how many there are.
    pub fn rx_burst(&mut self, out: &mut FrameBurst) -> io::Result<usize> {
        out.clear();
        let count_max = out.burst_max.min(self.burst_max);
        let mut room = RxRoom { storage: &mut out.storage, stride: out.stride, headroom: VLAN_TAG_BYTES };
        let count = match self.rx.receive(self.fd.as_raw_fd(), 0, count_max, &mut room) {
            Ok(count) => count,
            Err(error) => return self.absorb(error).map(|()| 0),
        };
        for index in 0..count {
            let message = self.rx.message(index);
            note_received(index, &message, out, self.complete_checksums, &mut self.counters);
        }
        Ok(out.len())
    }

    /// Takes frames from the front of `frames`; how many it took. The rest found no room. A frame that
    /// can never be sent is taken, dropped and counted.
    #[allow(clippy::needless_pass_by_value)] // Iterators are handed over, as everywhere.
    pub fn tx_burst<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]> + Clone) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            let rest = frames.clone().skip(taken);
            let messages = rest.map(|bytes| Outgoing { to: None, bytes, stamp: false });
            match self.tx.send(self.fd.as_raw_fd(), messages) {
                Ok(0) => return Ok(taken),
                Ok(count) => {
                    self.counters.tx_frames += count as u64;
                    taken += count;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(taken),
                    Some(libc::EINTR) => {}
                    Some(libc::EMSGSIZE | libc::EINVAL) => {
                        self.counters.tx_too_long += 1;
                        taken += 1;
                    }
                    Some(libc::ENOBUFS | libc::ENETDOWN | libc::ENXIO) => {
                        self.counters.tx_dropped += 1;
                        taken += 1;
                    }
                    _ if taken > 0 => return Ok(taken),
                    _ => return Err(error),
                },
            }
        }
    }

    /// The name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The index of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The hardware address of the interface.
    pub fn mac(&self) -> MacAddress {
        self.mac
    }

    /// The largest payload of a frame, as it was when the port was opened.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// What has happened so far.
    pub fn counters(&mut self) -> PacketPortCounters {
        // The kernel's count starts anew with every question; when it cannot be asked, it is late.
        self.counters.rx_overflowed += socket::packet_drops(&self.fd).unwrap_or(0);
        self.counters
    }

    fn absorb(&mut self, error: io::Error) -> io::Result<()> {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(()),
            // The interface went down; the socket stays bound and works again when it comes up.
            Some(libc::ENETDOWN) => {
                self.counters.link_down += 1;
                Ok(())
            }
            _ => Err(error),
        }
    }
}

impl AsRawFd for PacketPort {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn configure(fd: &OwnedFd, config: &PacketPortConfig) -> io::Result<()> {
    socket::set_buffers(fd, config.receive_buffer_bytes, config.send_buffer_bytes)?;
    socket::set_option(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
    socket::set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    let stamps = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE;
    // Without stamps the port works all the same.
    let _ = socket::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, stamps as i32);
    Ok(())
}

/// What the kernel says beside a frame (`tpacket_auxdata`).
#[derive(Default)]
struct Aside {
    received_at: Option<Nanos>,
    checksum_not_ready: bool,
    /// Type and content of the tag that was taken off.
    tag: Option<(u16, u16)>,
}

impl Aside {
    fn read(control: &[u8]) -> Aside {
        let mut aside = Aside::default();
        for item in control::messages(control) {
            aside.received_at = aside.received_at.or(item.software_stamp());
            if (item.level, item.kind) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
                aside.read_auxdata(&item);
            }
        }
        aside
    }

    /// status (4), len (4), snaplen (4), mac (2), net (2), vlan tci (2), vlan tpid (2).
    fn read_auxdata(&mut self, item: &ControlMessage<'_>) {
        let status = item.u32_at(0).unwrap_or(0);
        self.checksum_not_ready = status & libc::TP_STATUS_CSUMNOTREADY != 0;
        if status & libc::TP_STATUS_VLAN_VALID != 0 {
            let kind = item.u16_at(18).filter(|_| status & libc::TP_STATUS_VLAN_TPID_VALID != 0);
            self.tag = item.u16_at(16).map(|tag| (kind.unwrap_or(libc::ETH_P_8021Q as u16), tag));
        }
    }
}

fn note_received(
    index: usize,
    message: &RxMessage<'_>,
    out: &mut FrameBurst,
    completing: bool,
    counters: &mut PacketPortCounters,
) {
    let aside = Aside::read(message.control);
    let tag_bytes = aside.tag.map_or(0, |_| VLAN_TAG_BYTES);
    let bytes = message.bytes + tag_bytes;
    if message.truncated || bytes > out.frame_bytes_max || message.bytes < ETHERNET_HEADER_BYTES {
        counters.rx_truncated += 1;
        return;
    }
    let start = index * out.stride + VLAN_TAG_BYTES - tag_bytes;
    let frame = &mut out.storage[start..start + bytes];
    if let Some(tag) = aside.tag {
        restore_tag(frame, tag);
        counters.rx_tags_restored += 1;
    }
    let mut checksums = Checksums::Ready;
    if aside.checksum_not_ready {
        checksums = Checksums::NotReady;
        if completing && complete_checksums(frame).is_ok() {
            checksums = Checksums::Ready;
            counters.rx_checksums_completed += 1;
        }
    }
    counters.rx_frames += 1;
    out.frames.push(Placed { start, bytes, checksums, received_at: aside.received_at });
}

/// Puts a tag between the addresses and the type of a frame that has room for it in front.
fn restore_tag(frame: &mut [u8], (kind, tag): (u16, u16)) {
    frame.copy_within(VLAN_TAG_BYTES..VLAN_TAG_BYTES + ADDRESSES_BYTES, 0);
    frame[ADDRESSES_BYTES..ADDRESSES_BYTES + 2].copy_from_slice(&kind.to_be_bytes());
    frame[ADDRESSES_BYTES + 2..ADDRESSES_BYTES + 4].copy_from_slice(&tag.to_be_bytes());
}

/// A reusable buffer of received frames.
#[derive(Debug)]
pub struct FrameBurst {
    storage: Box<[u8]>,
    stride: usize,
    frames: Vec<Placed>,
    burst_max: usize,
    frame_bytes_max: usize,
}

#[derive(Debug, Clone, Copy)]
struct Placed {
    start: usize,
    bytes: usize,
    checksums: Checksums,
    received_at: Option<Nanos>,
}

/// A received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxFrame<'a> {
    /// The frame, from the destination address on, tag included.
    pub bytes: &'a [u8],
    /// Whether its checksums are complete; how to [`crate::frame::parse`] it.
    pub checksums: Checksums,
    /// When it reached the host (`CLOCK_REALTIME`), if that was stamped.
    pub received_at: Option<Nanos>,
}

impl FrameBurst {
    /// Room for `burst_max` frames of up to `frame_bytes_max` bytes, tag included, allocated here once.
    pub fn new(burst_max: usize, frame_bytes_max: usize) -> FrameBurst {
        assert!(burst_max > 0, "a burst holds at least one frame");
        let stride = frame_bytes_max + VLAN_TAG_BYTES;
        FrameBurst {
            storage: vec![0; burst_max * stride].into(),
            stride,
            frames: Vec::with_capacity(burst_max),
            burst_max,
            frame_bytes_max,
        }
    }

    /// How many frames fit.
    pub fn burst_max(&self) -> usize {
        self.burst_max
    }

    /// How long a frame may be.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.frames.clear();
    }

    /// The frames in order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RxFrame<'_>> + Clone {
        self.frames.iter().map(|placed| RxFrame {
            bytes: &self.storage[placed.start..placed.start + placed.bytes],
            checksums: placed.checksums,
            received_at: placed.received_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_put_back_between_addresses_and_type() {
        let mut frame = *b"....ddddddssssssttpayload";
        restore_tag(&mut frame, (0x8100, 7));
        assert_eq!(&frame, b"ddddddssssss\x81\x00\x00\x07ttpayload");
    }

    #[test]
    fn a_missing_interface_is_named() {
        let Err(error) = PacketPort::open("scot-none", &PacketPortConfig::default()) else {
            panic!("there is no such interface");
        };
        assert!(matches!(error, PortError::NoInterface { .. }), "{error}");
        assert!(error.to_string().contains("`scot-none`"));
    }
}
