//! How a client comes to its ring: over a unix socket, which then tells each side of the other's end.
//!
//! Invariant: the memory goes to processes of the server's own user alone, as the kernel says it, and a client maps
//! nothing that could be made shorter under it.

use crate::bell::Bell;
use crate::region::Region;
use remedy_ring::{Shape, ShapeError};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    recvmsg, sendmsg, socket_with, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::geteuid;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a client waits for a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// "scotring" as a number, and the version of what lies in the memory.
const MAGIC: u64 = u64::from_le_bytes(*b"scotring");
const VERSION: u32 = 1;
const GRANT_BYTES: usize = 32;
/// The memory, the server's bell and the client's.
const DESCRIPTORS: usize = 3;
const MESSAGE_BYTES_MAX: usize = 512;

/// How many rings a server has, and how large they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingConfig {
    /// How many clients it takes.
    pub rings_max: usize,
    /// How many datagrams wait in a ring.
    pub entries: u32,
    /// How long an entry is, its head of 16 bytes among it.
    pub entry_bytes: u32,
    /// How many datagrams of a ring are taken before it is the next one's turn.
    pub quota: usize,
}

impl Default for RingConfig {
    /// For 1,024 clients with 256 datagrams of a frame's length each way: 1 GiB, of which only that is taken up which
    /// clients have used.
    fn default() -> Self {
        RingConfig { rings_max: 1_024, entries: 256, entry_bytes: 2_048, quota: 32 }
    }
}

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// Such rings there cannot be.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// It cannot be listened there.
    #[error("{}: {source}{}", path.display(), advice_to_server(source))]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Nobody listens there, or does not let anybody in.
    #[error("{}: {source}{}", path.display(), advice_to_client(source))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another server serves there.
    #[error("{}: another server listens there: end it, or choose another name", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// What lies there is not a socket, and stays.
    #[error("{}: there is something that is no socket: choose another name", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The server says no.
    #[error("{}: the server refuses a ring: {reason}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// As it says.
        reason: String,
    },
    /// What listens there is something else, or of another version.
    #[error("{}: what listens there hands over no rings of version {VERSION}", path.display())]
    Foreign {
        /// The socket.
        path: PathBuf,
    },
    /// The server has closed the connection without a word.
    #[error("{}: what listens there has closed the connection without an answer: see what it says", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// There is no memory, or it is not what it should be.
    #[error("the memory of the rings: {source}{}", advice_on_memory(source))]
    Memory {
        /// What the system says.
        source: io::Error,
    },
}

fn advice_to_server(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => ": make its folder first",
        ErrorKind::PermissionDenied => ": this user may not write in its folder: choose another",
        ErrorKind::InvalidInput => ": the name of a socket has at most 107 bytes: choose a shorter one",
        _ => "",
    }
}

fn advice_to_client(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => ": no server listens there: start it first",
        ErrorKind::PermissionDenied => ": rings are shared with processes of the same user alone",
        ErrorKind::InvalidInput => ": the name of a socket has at most 107 bytes",
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ": the server does not answer: was it stopped?",
        _ => "",
    }
}

fn advice_on_memory(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::OutOfMemory | ErrorKind::FileTooLarge => {
            ": rings want 1 GiB of addresses, of which they use little: see ulimit -v and ulimit -f"
        }
        _ => "",
    }
}

/// Connects without waiting: a server that was stopped takes nobody, and would keep us for ever.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Whether the other end of a connection is gone, or says something where there is nothing to say.
pub(crate) fn has_ended(mut stream: &UnixStream) -> bool {
    !matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// What a client gets.
pub(crate) struct Granted {
    pub(crate) region: Region,
    pub(crate) ring: usize,
    pub(crate) server: Bell,
    pub(crate) own: Bell,
    /// It ends when the server does.
    pub(crate) stream: UnixStream,
}

/// What a server says to a client that gets a ring.
fn grant_bytes(ring: usize, rings: usize, shape: Shape) -> [u8; GRANT_BYTES] {
    let mut bytes = [0; GRANT_BYTES];
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    let numbers = [VERSION, ring as u32, rings as u32, shape.entries(), shape.entry_bytes()];
    for (place, number) in bytes[8..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// (ring, rings, shape), if it is a grant of this version.
fn granted(bytes: &[u8]) -> Option<(usize, usize, Shape)> {
    let bytes: &[u8; GRANT_BYTES] = bytes.try_into().ok()?;
    let number = |nth: usize| {
        let start = 8 + 4 * nth;
        u32::from_le_bytes([bytes[start], bytes[start + 1], bytes[start + 2], bytes[start + 3]])
    };
    let is_ours = bytes[..8] == MAGIC.to_le_bytes() && number(0) == VERSION;
    let (ring, rings) = (number(1) as usize, number(2) as usize);
    let shape = Shape::new(number(3), number(4)).ok()?;
    (is_ours && ring < rings).then_some((ring, rings, shape))
}

/// Whether the process at the other end is of this one's user; if not, what it is told.
pub(crate) fn is_trusted(stream: &UnixStream) -> Result<(), String> {
    let (ours, peer) = (geteuid(), socket_peercred(stream).map_err(|error| error.to_string())?.uid);
    if ours == peer {
        return Ok(());
    }
    Err(format!(
        "it shares memory with processes of its own user ({}) alone, and this one is of {}",
        ours.as_raw(),
        peer.as_raw()
    ))
}

/// Hands a ring over.
pub(crate) fn grant(stream: &UnixStream, region: &Region, ring: usize, bells: [&Bell; 2]) -> io::Result<()> {
    let bytes = grant_bytes(ring, region.rings(), region.shape());
    let descriptors = [region.descriptor(), bells[0].as_fd(), bells[1].as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for three");
    let sent =
        sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(ErrorKind::WriteZero.into())
    }
}

/// Says no, as far as the other end listens.
pub(crate) fn refuse(stream: &UnixStream, reason: &str) {
    let bytes = &reason.as_bytes()[..reason.len().min(MESSAGE_BYTES_MAX)];
    // One that has gone already needs no reason.
    let _ = rustix::net::send(stream, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Asks the server that listens at `path` for a ring.
pub(crate) fn ask(path: &Path) -> Result<Granted, HandoverError> {
    let of_socket = |source: io::Error| HandoverError::Connect { path: path.to_owned(), source };
    let stream = connect(path).map_err(of_socket)?;
    is_trusted(&stream).map_err(|reason| HandoverError::Refused { path: path.to_owned(), reason })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(of_socket)?;
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(&stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .map_err(|error| of_socket(error.into()))?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
    let said = &bytes[..received.bytes];
    let Some((ring, rings, shape)) = granted(said) else {
        return Err(refused(path, said));
    };
    let Ok([memory, server, own]) = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors) else {
        return Err(HandoverError::Foreign { path: path.to_owned() });
    };
    let region = Region::open(memory, rings, shape).map_err(|source| HandoverError::Memory { source })?;
    stream.set_nonblocking(true).map_err(of_socket)?;
    Ok(Granted { region, ring, server: Bell::of(server), own: Bell::of(own), stream })
}

fn refused(path: &Path, said: &[u8]) -> HandoverError {
    let path = path.to_owned();
    match std::str::from_utf8(said) {
        Ok("") => HandoverError::Silent { path },
        Ok(reason) if !said.starts_with(&MAGIC.to_le_bytes()) => {
            HandoverError::Refused { path, reason: reason.to_owned() }
        }
        _ => HandoverError::Foreign { path },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_as_it_was_written_and_nothing_else_is_one() {
        let shape = Shape::new(256, 2_048).expect("a ring");
        let bytes = grant_bytes(7, 1_024, shape);
        assert_eq!(granted(&bytes), Some((7, 1_024, shape)));
        assert_eq!(granted(&bytes[..31]), None);
        for at in [0, 8, 13, 20, 21, 24] {
            let mut changed = bytes;
            changed[at] ^= 0x11;
            assert_ne!(granted(&changed), Some((7, 1_024, shape)), "{at}");
        }
        assert_eq!(granted(&grant_bytes(1_024, 1_024, shape)), None, "there is no such ring");
    }
}
