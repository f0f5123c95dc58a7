//! A connection under TLS, read and written as a socket is.
//!
//! Invariant: after a read nothing that was decrypted is left behind, so who waits for the socket misses nothing; but
//! an end, of which [`TlsStream::has_ended`] tells. What was taken and not sent yet is told by
//! [`TlsStream::wants_write`].

use super::faults::{of_client, NoTls};
use rustls::Connection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// More than what one read of the socket can bring: the largest record and its head.
const PLAIN_BYTES_MAX: usize = 20 << 10;

/// A socket and what TLS knows of it.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    tls: Connection,
    ended: bool,
}

impl TlsStream {
    pub(super) fn new(socket: TcpStream, tls: Connection) -> TlsStream {
        TlsStream { socket, tls, ended: false }
    }

    /// Whether nothing can be said yet.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether something waits for the socket to be writable.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Whether the other side has said all that it will say.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// What a client is told that was turned away with this error.
    pub fn fault_of_client(error: &io::Error) -> String {
        let known = error.get_ref().and_then(|error| error.downcast_ref());
        known.map_or_else(|| error.to_string(), of_client)
    }

    /// One step of the handshake, on a socket that blocks: for so long at most.
    pub(super) fn step(&mut self, time: Duration) -> io::Result<()> {
        let time = Some(time).filter(|time| !time.is_zero()).ok_or(ErrorKind::TimedOut)?;
        self.socket.set_read_timeout(Some(time))?;
        self.socket.set_write_timeout(Some(time))?;
        self.push()?;
        if self.tls.is_handshaking() && self.pull()? == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, NoTls::Closed));
        }
        self.push()
    }

    /// Takes bytes from the socket; how many.
    fn pull(&mut self) -> io::Result<usize> {
        let count = self.tls.read_tls(&mut self.socket)?;
        if let Err(error) = self.tls.process_new_packets() {
            // The other side is told why, if it listens.
            let _ = self.push();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(count)
    }

    /// Sends what waits, as far as the socket takes it.
    fn push(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills the buffer with what was decrypted; how much of it.
    fn take_plain(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < buffer.len() && !self.ended {
            match self.tls.reader().read(&mut buffer[count..]) {
                // Without a word of farewell it is an end too: replies and commands say themselves where they end.
                Ok(0) => self.ended = true,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => self.ended = true,
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}

impl Read for TlsStream {
    /// As a socket's, but for a buffer of less than 20 KiB, which may leave something behind.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = self.take_plain(buffer)?;
        while !self.ended && (count == 0 || buffer.len() - count >= PLAIN_BYTES_MAX) {
            match self.pull() {
                Ok(_) => count += self.take_plain(&mut buffer[count..])?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It comes again when the socket is read again.
                Err(error) if error.kind() == ErrorKind::WouldBlock || count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        match self.push() {
            Err(error) if count == 0 => Err(error),
            _ if count == 0 && !self.ended => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(count),
        }
    }
}

impl Write for TlsStream {
    /// Takes what there is room for, 64 KiB at most, and sends what the socket takes of it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push()?;
        let count = self.tls.writer().write(bytes)?;
        self.push()?;
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    /// Sends what waits, as far as the socket takes it.
    fn flush(&mut self) -> io::Result<()> {
        self.push()
    }
}

impl AsRawFd for TlsStream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        // Without this an end looks as if somebody had cut the connection.
        self.tls.send_close_notify();
        let _ = self.push();
    }
}
