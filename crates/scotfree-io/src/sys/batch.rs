//! Many messages per system call: `recvmmsg` and `sendmmsg` over preallocated headers.
//!
//! Invariant: the raw pointers inside the headers are written anew before each call from borrows that
//! live through it, and are never followed afterwards.
//!
//! A header costs as much to write whether or not a message comes for it: a call asks for twice as many as came last.

use super::address::RawAddress;
use super::control::{stamp_request, CONTROL_BYTES_MAX, STAMP_REQUEST_BYTES};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

/// How many messages are asked for where few came last.
const ASKED_MIN: usize = 4;

/// Headers for receiving up to a fixed number of messages per call.
pub struct RxBatch {
    headers: Box<[libc::mmsghdr]>,
    iovecs: Box<[libc::iovec]>,
    addresses: Box<[RawAddress]>,
    controls: Box<[[u8; CONTROL_BYTES_MAX]]>,
    /// How many messages the next call asks for.
    asked: usize,
}

// SAFETY: the raw pointers in the headers are dead between calls (see the module's invariant).
unsafe impl Send for RxBatch {}

/// Where [`RxBatch::receive`] puts the messages: message `i` goes to
/// `storage[i * stride + headroom .. (i + 1) * stride]`.
pub struct RxRoom<'a> {
    /// The memory of all messages.
    pub storage: &'a mut [u8],
    /// The distance from one message to the next.
    pub stride: usize,
    /// Bytes left free before each message.
    pub headroom: usize,
}

/// What the kernel says about one received message.
pub struct RxMessage<'a> {
    /// How many bytes it wrote.
    pub bytes: usize,
    /// Whether the message was longer than its room.
    pub truncated: bool,
    /// Who sent it.
    pub from: Option<SocketAddr>,
    /// Its control messages.
    pub control: &'a [u8],
}

impl RxBatch {
    /// Headers for `burst_max` messages.
    pub fn new(burst_max: usize) -> RxBatch {
        RxBatch {
            headers: (0..burst_max).map(|_| empty_header()).collect(),
            iovecs: (0..burst_max).map(|_| EMPTY_IOVEC).collect(),
            addresses: vec![RawAddress::default(); burst_max].into(),
            controls: vec![[0; CONTROL_BYTES_MAX]; burst_max].into(),
            asked: ASKED_MIN,
        }
    }

    /// Receives up to `count_max` messages without blocking; how many came. More may wait, however few these are.
    pub fn receive(
        &mut self,
        fd: RawFd,
        flags: i32,
        count_max: usize,
        room: &mut RxRoom<'_>,
    ) -> io::Result<usize> {
        let count = self.asked.min(count_max).min(self.headers.len());
        self.prepare(count, room);
        // SAFETY: `prepare` has just pointed the first `count` headers at memory that `self` and `room`
        // own and keep borrowed until this call returns.
        let received = unsafe {
            libc::recvmmsg(
                fd,
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                flags | libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let received = super::check(received)? as usize;
        for (header, address) in self.headers.iter().zip(self.addresses.iter_mut()).take(received) {
            address.set_length(header.msg_hdr.msg_namelen);
        }
        self.asked = (2 * received).max(ASKED_MIN);
        Ok(received)
    }

    /// The message at `index` of the last [`RxBatch::receive`].
    pub fn message(&self, index: usize) -> RxMessage<'_> {
        let header = &self.headers[index];
        let control_bytes = header.msg_hdr.msg_controllen.min(CONTROL_BYTES_MAX);
        RxMessage {
            bytes: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            from: self.addresses[index].decode(),
            control: &self.controls[index][..control_bytes],
        }
    }

    fn prepare(&mut self, count: usize, room: &mut RxRoom<'_>) {
        assert!(room.headroom <= room.stride, "a message's headroom fits its stride");
        assert!(room.storage.len() >= count * room.stride, "the storage holds every message of the burst");
        for index in 0..count {
            let place = &mut room.storage[index * room.stride + room.headroom..(index + 1) * room.stride];
            self.iovecs[index] = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
            let name = self.addresses[index].room();
            let header = &mut self.headers[index].msg_hdr;
            header.msg_namelen = name.len() as u32;
            header.msg_name = name.as_mut_ptr().cast();
            header.msg_iov = &raw mut self.iovecs[index];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[index].as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES_MAX;
            header.msg_flags = 0;
        }
    }
}

/// One message to be sent.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// Its destination; none where the socket is bound to one.
    pub to: Option<SocketAddr>,
    /// Its content.
    pub bytes: &'a [u8],
    /// Whether the kernel shall stamp it when it leaves.
    pub stamp: bool,
}

/// Headers for sending up to a fixed number of messages per call.
pub struct TxBatch {
    headers: Box<[libc::mmsghdr]>,
    iovecs: Box<[libc::iovec]>,
    addresses: Box<[RawAddress]>,
    stamp_request: [u8; STAMP_REQUEST_BYTES],
}

// SAFETY: the raw pointers in the headers are dead between calls (see the module's invariant).
unsafe impl Send for TxBatch {}

impl TxBatch {
    /// Headers for `burst_max` messages.
    pub fn new(burst_max: usize) -> TxBatch {
        TxBatch {
            headers: (0..burst_max).map(|_| empty_header()).collect(),
            iovecs: (0..burst_max).map(|_| EMPTY_IOVEC).collect(),
            addresses: vec![RawAddress::default(); burst_max].into(),
            stamp_request: stamp_request(),
        }
    }

    /// Sends messages without blocking, at most the burst; how many the kernel took from
    /// the front. An error is about the first message.
    pub fn send<'a>(&mut self, fd: RawFd, messages: impl Iterator<Item = Outgoing<'a>>) -> io::Result<usize> {
        let count = self.prepare(messages);
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: `prepare` has just pointed the first `count` headers at memory that `self` and the
        // messages' borrows (alive for 'a, hence through this call) own; the kernel only reads it.
        let sent = unsafe {
            libc::sendmmsg(
                fd,
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        super::check(sent).map(|sent| sent as usize)
    }

    fn prepare<'a>(&mut self, messages: impl Iterator<Item = Outgoing<'a>>) -> usize {
        let mut count = 0;
        for (index, message) in messages.take(self.headers.len()).enumerate() {
            self.iovecs[index] = libc::iovec {
                iov_base: message.bytes.as_ptr().cast_mut().cast(),
                iov_len: message.bytes.len(),
            };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_iov = &raw mut self.iovecs[index];
            header.msg_iovlen = 1;
            header.msg_name = std::ptr::null_mut();
            header.msg_namelen = 0;
            if let Some(to) = message.to {
                self.addresses[index] = RawAddress::encode(to);
                let name = self.addresses[index].as_bytes();
                header.msg_namelen = name.len() as u32;
                header.msg_name = name.as_ptr().cast_mut().cast();
            }
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
            if message.stamp {
                header.msg_control = self.stamp_request.as_mut_ptr().cast();
                header.msg_controllen = STAMP_REQUEST_BYTES;
            }
            count += 1;
        }
        count
    }
}

const EMPTY_IOVEC: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

fn empty_header() -> libc::mmsghdr {
    // SAFETY: mmsghdr is plain data of pointers and integers, for which zero is a valid value.
    unsafe { std::mem::zeroed() }
}
