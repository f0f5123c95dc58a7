//! An `AF_XDP` socket with its rings and the memory that it shares with the kernel.
//!
//! Invariant: a place in that memory is free, with the kernel, or holds a frame that waits to be sent with the next
//! kick; what is received is free again when it has been handed over. The memory outlives the socket, which is
//! dropped first.
#![allow(unsafe_code)]

use std::error::Error;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use xdp::nic::NicIndex;
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{PollTimeout, SocketError, XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{CompletionRing, RingConfigBuilder, RxRing, Umem, WakableFillRing, WakableTxRing};

/// How many frames are moved at once.
pub(super) const BURST_MAX: usize = 64;
/// How many frames may wait to be received, and how many to be sent; the memory has room for both.
const RING_FRAMES: u32 = 1_024;
/// So many frames the kernel sends when it is told to.
const KICK_FRAMES: usize = 32;
const AT_ONCE: PollTimeout = PollTimeout::new(Some(Duration::ZERO));

/// A socket bound to one queue of an interface.
pub(super) struct Rings {
    socket: XdpSocket,
    fill: WakableFillRing,
    receive: RxRing,
    transmit: WakableTxRing,
    completion: CompletionRing,
    /// Frames between their ring and the function that they are handed to; empty but for that.
    arriving: HeapSlab,
    /// Frames that wait for the next kick.
    leaving: HeapSlab,
    /// Frames that the kernel has not said to have sent.
    unsent: usize,
    memory: Umem,
}

impl Rings {
    /// Binds in copy mode, which needs nothing of the driver. There the kernel sends only when it is told to, and
    /// takes free places without being told.
    pub(super) fn bind(ifindex: u32, queue: u32) -> io::Result<Rings> {
        let frames = UmemCfgBuilder {
            frame_size: FrameSize::TwoK,
            frame_count: 2 * RING_FRAMES,
            ..UmemCfgBuilder::default()
        };
        let mut memory = Umem::map(frames.build().map_err(other)?)?;
        let sizes = RingConfigBuilder {
            rx_count: RING_FRAMES,
            tx_count: RING_FRAMES,
            // The kernel hands a frame over before it says that the place's entry here is free.
            fill_count: 2 * RING_FRAMES,
            completion_count: RING_FRAMES,
        };
        let mut builder = XdpSocketBuilder::new().map_err(other)?;
        let (rings, mut flags) =
            builder.build_wakable_rings(&memory, sizes.build().map_err(other)?).map_err(other)?;
        flags.force_copy();
        let mut fill = rings.fill_ring;
        give(&mut fill, &mut memory, RING_FRAMES as usize)?;
        let socket = builder.bind(NicIndex(ifindex), queue, flags).map_err(bind_error)?;
        let arriving = HeapSlab::with_capacity(BURST_MAX);
        assert_eq!(arriving.available(), BURST_MAX, "a slab has the capacity that it was asked for");
        Ok(Rings {
            socket,
            fill,
            receive: rings.rx_ring.expect("a ring to receive was asked for"),
            transmit: rings.tx_ring.expect("a ring to transmit was asked for"),
            completion: rings.completion_ring,
            arriving,
            leaving: HeapSlab::with_capacity(BURST_MAX),
            unsent: 0,
            memory,
        })
    }

    /// The socket: readable when frames wait.
    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Hands over frames that have come, at most [`BURST_MAX`]; how many.
    pub(super) fn receive(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        // SAFETY: all that is received is freed below, while the memory is there.
        let count = unsafe { self.receive.recv(&self.memory, &mut self.arriving) };
        while let Some(packet) = self.arriving.pop_back() {
            take(&packet);
            self.memory.free_packet(packet);
        }
        give(&mut self.fill, &mut self.memory, count)?;
        Ok(count)
    }

    /// Takes a frame to be sent with the next [`Rings::kick`]; false if there is no room, or it is too long.
    pub(super) fn push(&mut self, frame: &[u8]) -> bool {
        if self.leaving.available() == 0 {
            return false;
        }
        // SAFETY: the packet is freed here or handed to the kernel by `kick`, while the memory is there.
        let Some(mut packet) = (unsafe { self.memory.alloc() }) else { return false };
        if packet.insert(0, frame).is_err() {
            self.memory.free_packet(packet);
            return false;
        }
        assert!(self.leaving.push_front(packet).is_none(), "there is room in the slab");
        true
    }

    /// Hands what was taken to the kernel, and has it sent.
    pub(super) fn kick(&mut self) -> io::Result<()> {
        self.unsent += self.leaving.len();
        // SAFETY: the memory outlives the socket.
        let sent = unsafe { self.transmit.send(&mut self.leaving, true) };
        assert!(self.leaving.is_empty(), "the ring has room for all that the memory has");
        if let Err(error) = sent {
            if !is_passing(&error) {
                return Err(error);
            }
            // It stopped in the middle. In copy mode polling sends, too; what is left after that goes with the next.
            for _ in 0..BURST_MAX / KICK_FRAMES {
                self.socket.poll_write(AT_ONCE)?;
            }
        }
        self.unsent -= self.completion.dequeue(&mut self.memory, self.unsent);
        Ok(())
    }
}

/// Gives the kernel free places to receive into. None are missing: there are as many as were taken from it.
fn give(fill: &mut WakableFillRing, memory: &mut Umem, count: usize) -> io::Result<()> {
    // SAFETY: the memory outlives the socket.
    let given = unsafe { fill.enqueue(memory, count, false) }?;
    assert_eq!(given, count, "what was taken from the kernel is free");
    Ok(())
}

/// Whether the kernel could not send now, and may later.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS))
}

fn bind_error(error: SocketError) -> io::Error {
    match error {
        SocketError::Bind(error) => error,
        error => other(error),
    }
}

fn other(error: impl Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
