//! Logs that are no devices: processes that log a request before its server has it, on the client's host or on
//! the server's, and what they need on both sides.
//!
//! Invariant: a logger answers when its log, and that of every peer it has, holds the request whole; the
//! messages carry no MACs, and nothing is sent again: what is lost stops the run.

pub mod application;
pub mod caller;
pub mod logger;

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// The largest message.
const MESSAGE_BYTES_MAX: usize = 2_048;
/// A message begins with its number, with how many requests are applied, and with its payload's length.
const HEADER_BYTES: usize = 24;
/// Asks a logger what it has done, instead of logging anything.
const QUESTION: u64 = 0;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a logger takes requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Door {
    /// Of processes on its own host.
    Unix(PathBuf),
    /// Of others.
    Udp(SocketAddr),
}

/// What a logger has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Requests in its log, those that were freed with them.
    pub logged: u64,
    /// Acknowledgements of its peers.
    pub copied: u64,
    /// Requests that the application has applied.
    pub applied: u64,
}

impl Done {
    fn encode(self) -> [u8; HEADER_BYTES] {
        header(self.logged, self.copied, self.applied)
    }

    fn decode(bytes: &[u8]) -> io::Result<Done> {
        let [logged, copied, applied] = words(bytes)?;
        Ok(Done { logged, copied, applied })
    }

    /// What was done since.
    fn since(self, before: Done) -> Done {
        Done {
            logged: self.logged - before.logged,
            copied: self.copied - before.copied,
            applied: self.applied - before.applied,
        }
    }
}

/// A request, between whomever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message<'a> {
    number: u64,
    /// The receiver may forget the requests up to here.
    applied: u64,
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Writes the message into `buffer`; how long it is.
    fn write(&self, buffer: &mut [u8; MESSAGE_BYTES_MAX]) -> usize {
        let end = HEADER_BYTES + self.payload.len();
        buffer[..HEADER_BYTES].copy_from_slice(&header(self.number, self.applied, self.payload.len() as u64));
        buffer[HEADER_BYTES..end].copy_from_slice(self.payload);
        end
    }

    fn read(bytes: &'a [u8]) -> io::Result<Message<'a>> {
        let [number, applied, length] = words(bytes)?;
        let payload = &bytes[HEADER_BYTES..];
        if payload.len() as u64 != length {
            return Err(damaged());
        }
        Ok(Message { number, applied, payload })
    }
}

fn header(a: u64, b: u64, c: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip([a, b, c]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words<const COUNT: usize>(bytes: &[u8]) -> io::Result<[u64; COUNT]> {
    let bytes = bytes.get(..COUNT * 8).ok_or_else(damaged)?;
    let mut words = [0; COUNT];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("it has eight bytes"));
    }
    Ok(words)
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message is damaged")
}

/// Where requests come in, from one caller at a time.
enum Requests {
    Unix { listener: UnixListener, caller: Option<UnixStream> },
    Udp { socket: UdpSocket, caller: Option<SocketAddr> },
}

impl Requests {
    fn open(door: &Door) -> io::Result<Requests> {
        Ok(match door {
            Door::Unix(path) => Requests::Unix { listener: UnixListener::bind(path)?, caller: None },
            Door::Udp(address) => Requests::Udp { socket: UdpSocket::bind(address)?, caller: None },
        })
    }

    /// Waits for the next request; the place that it takes in `buffer`.
    fn next(&mut self, buffer: &mut [u8; MESSAGE_BYTES_MAX]) -> io::Result<usize> {
        match self {
            Requests::Unix { listener, caller } => loop {
                let stream = match caller {
                    Some(stream) => stream,
                    None => caller.insert(listener.accept()?.0),
                };
                match read_message(stream, buffer)? {
                    0 => *caller = None,
                    length => return Ok(length),
                }
            },
            Requests::Udp { socket, caller } => {
                let (length, from) = socket.recv_from(buffer)?;
                *caller = Some(from);
                Ok(length)
            }
        }
    }

    /// Answers whoever sent the last request.
    fn answer(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Requests::Unix { caller: Some(stream), .. } => stream.write_all(bytes),
            Requests::Udp { socket, caller: Some(to) } => socket.send_to(bytes, *to).map(drop),
            Requests::Unix { caller: None, .. } | Requests::Udp { caller: None, .. } => Ok(()),
        }
    }
}

/// Reads one whole message of a stream; 0 at its end. Its sender sends the next one when this one is answered.
fn read_message(stream: &mut UnixStream, buffer: &mut [u8; MESSAGE_BYTES_MAX]) -> io::Result<usize> {
    let mut filled = 0;
    loop {
        let count = stream.read(&mut buffer[filled..])?;
        filled += count;
        if count == 0 {
            return if filled == 0 { Ok(0) } else { Err(damaged()) };
        }
        if filled >= HEADER_BYTES {
            let [_, _, length] = words::<3>(buffer)?;
            match (filled as u64).cmp(&(HEADER_BYTES as u64).saturating_add(length)) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(filled),
                std::cmp::Ordering::Greater => return Err(damaged()),
            }
        }
    }
}

/// A socket of this host's towards `peer`, with patience.
fn connect_udp(peer: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}
