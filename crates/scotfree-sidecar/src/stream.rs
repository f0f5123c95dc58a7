//! A connection to a client or to the server, whatever it goes over.
//!
//! Invariant: what is written is sent when [`Stream::wants_write`] says no more; only TLS holds anything back.

use crate::tls::TlsStream;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Over a unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
    /// Over TCP, under TLS.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Whether calls block.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_nonblocking(is_nonblocking),
            Stream::Tcp(stream) => stream.set_nonblocking(is_nonblocking),
            Stream::Tls(stream) => stream.socket().set_nonblocking(is_nonblocking),
        }
    }

    /// Whether something that was written waits for the socket to be writable.
    pub fn wants_write(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.wants_write())
    }

    /// Whether it is under TLS, of which a read may bring less than what is there.
    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// Whether an end was read that the socket does not report any more.
    pub fn has_ended(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.has_ended())
    }

    /// Whether nothing of the other side's own can have come yet.
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.is_handshaking())
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Unix(_) | Stream::Tcp(_) => Ok(()),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Stream::Unix(stream) => stream.as_raw_fd(),
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Tls(stream) => stream.as_raw_fd(),
        }
    }
}
