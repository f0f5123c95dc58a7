//! Connections to a server that speaks RESP, to load and to check it: commands out, replies in.
//!
//! Invariant: whatever the peer sends is a reply or a typed error; it cannot make us hold more than
//! `REPLY_BYTES_MAX` nor nest deeper than `DEPTH_MAX`.

use scotfree_resp::codec::{self, write_arguments, Limits, ReplyDecoder};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use scotfree_resp::codec::Reply;

/// The largest reply that is read, all its parts together.
pub const REPLY_BYTES_MAX: usize = 256 << 20;
/// The deepest nesting of a reply.
pub const DEPTH_MAX: usize = 8;
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

/// Why no reply could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// The connection broke or timed out.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The peer does not speak the protocol.
    #[error("the peer does not speak RESP: {0}")]
    Nonsense(#[from] codec::ReplyError),
}

/// Reads replies from a peer. Push messages of RESP3 are skipped: nobody here asked for any.
#[derive(Debug)]
struct Reader<R> {
    peer: R,
    decoder: ReplyDecoder,
    limits: Limits,
    buffer: Box<[u8]>,
}

impl<R: Read> Reader<R> {
    fn new(peer: R) -> Reader<R> {
        // A reply is a level of its own.
        Reader::within(
            peer,
            Limits { reply_bytes_max: REPLY_BYTES_MAX, depth_max: DEPTH_MAX + 1, ..Limits::default() },
        )
    }

    fn within(peer: R, limits: Limits) -> Reader<R> {
        Reader { peer, decoder: ReplyDecoder::new(limits), limits, buffer: vec![0; READ_BYTES].into() }
    }

    fn read(&mut self) -> Result<Reply, ReplyError> {
        loop {
            if let Some(bytes) = self.decoder.pop()? {
                let reply = Reply::parse(bytes, &self.limits)?;
                return Ok(reply.expect("the decoder has found the reply's end"));
            }
            match self.peer.read(&mut self.buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => self.decoder.push(&self.buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Where a service listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An address.
    Tcp(SocketAddr),
    /// A socket in the file system, which can be reached from every network namespace.
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(address) => write!(f, "{address}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A socket, of which both halves of a connection have a part: it is one open file.
#[derive(Debug, Clone)]
enum Stream {
    Tcp(Arc<TcpStream>),
    /// It never waits in the kernel, and is given up after so long.
    Looking(Arc<TcpStream>, Duration),
    Unix(Arc<UnixStream>),
}

impl Stream {
    fn open(place: &Place, timeout: Duration) -> io::Result<Stream> {
        match place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, timeout)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Stream::Tcp(Arc::new(stream)))
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Stream::Unix(Arc::new(stream)))
            }
        }
    }

    /// From now on whoever reads looks for bytes until some are there, instead of sleeping.
    fn looking(self, timeout: Duration) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                Stream::Looking(stream, timeout)
            }
            other => other,
        })
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) | Stream::Looking(stream, _) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.as_ref().read(buffer),
            Stream::Looking(stream, timeout) => look(*timeout, || stream.as_ref().read(buffer)),
            Stream::Unix(stream) => stream.as_ref().read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.as_ref().write(bytes),
            Stream::Looking(stream, timeout) => look(*timeout, || stream.as_ref().write(bytes)),
            Stream::Unix(stream) => stream.as_ref().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // Sockets keep nothing back.
        Ok(())
    }
}

/// Tries again and again until something can be done.
fn look(timeout: Duration, mut what: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let mut begin = None;
    loop {
        match what() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        if begin.get_or_insert_with(Instant::now).elapsed() > timeout {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::hint::spin_loop();
    }
}

/// A connection that sends commands and reads replies.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    reader: Reader<Stream>,
    out: Vec<u8>,
}

impl Connection {
    /// Connects; `timeout` bounds connecting and each read and write.
    pub fn open(address: SocketAddr, timeout: Duration) -> io::Result<Connection> {
        Connection::open_at(&Place::Tcp(address), timeout)
    }

    /// Connects; `timeout` bounds connecting and each read and write.
    pub fn open_at(place: &Place, timeout: Duration) -> io::Result<Connection> {
        let stream = Stream::open(place, timeout)?;
        let reader = Reader::new(stream.clone());
        Ok(Connection { stream, reader, out: Vec::new() })
    }

    /// The same over TCP, by a caller who keeps its processor and looks for replies until they are there.
    pub fn open_looking(address: SocketAddr, timeout: Duration) -> io::Result<Connection> {
        let stream = Stream::open(&Place::Tcp(address), timeout)?.looking(timeout)?;
        let reader = Reader::new(stream.clone());
        Ok(Connection { stream, reader, out: Vec::new() })
    }

    /// Adds a command to what the next [`Connection::flush`] sends.
    pub fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        write_arguments(&mut self.out, args.iter());
    }

    /// Sends what was pushed.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent
    }

    /// Reads the next reply.
    pub fn read(&mut self) -> Result<Reply, ReplyError> {
        self.reader.read()
    }

    /// Whether more of what the peer sent lies here already.
    pub fn has_buffered(&mut self) -> bool {
        !self.reader.decoder.unread().is_empty()
    }

    /// Sends one command and reads its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply, ReplyError> {
        self.push(args);
        self.flush()?;
        self.read()
    }

    /// Ends the connection at once, without the minute in which its port is nobody's: who opens thousands of them
    /// again and again would have none left.
    pub fn reset(self) {
        if let Stream::Tcp(stream) | Stream::Looking(stream, _) = &self.stream {
            // Without it the port is free a minute later.
            let _ = rustix::net::sockopt::set_socket_linger(stream.as_ref(), Some(Duration::ZERO));
        }
    }

    /// The sending and the receiving half, for two threads.
    pub fn split(self) -> (Sender, Receiver) {
        (Sender { stream: self.stream, out: self.out }, Receiver { reader: self.reader })
    }
}

/// The half of a connection that sends.
#[derive(Debug)]
pub struct Sender {
    stream: Stream,
    out: Vec<u8>,
}

impl Sender {
    /// Adds a command to what the next flush sends.
    pub fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        write_arguments(&mut self.out, args.iter());
    }

    /// Sends what was pushed.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent
    }

    /// Breaks the connection, which also ends a read of the other half.
    pub fn close(&self) {
        // It may be broken already.
        let _ = self.stream.shutdown();
    }
}

/// The half of a connection that receives.
#[derive(Debug)]
pub struct Receiver {
    reader: Reader<Stream>,
}

impl Receiver {
    /// Reads the next reply.
    pub fn read(&mut self) -> Result<Reply, ReplyError> {
        self.reader.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Reply, ReplyError> {
        Reader::new(text.as_bytes()).read()
    }

    #[test]
    fn replies_come_one_after_the_other_and_pushes_are_skipped() {
        let mut reader = Reader::new(&b"+OK\r\n>2\r\n+invalidate\r\n_\r\n%1\r\n+k\r\n:1\r\n$-1\r\n"[..]);
        let simple = |text: &str| Reply::Simple(text.to_owned());
        let wanted = [simple("OK"), Reply::Array(vec![simple("k"), Reply::Integer(1)]), Reply::Null];
        for reply in wanted {
            assert_eq!(reader.read().expect("a reply"), reply);
        }
        assert!(matches!(reader.read(), Err(ReplyError::Broken(_))));
    }

    #[test]
    fn nonsense_is_an_error_and_costs_little() {
        let deep = "*1\r\n".repeat(100_000);
        let deeper = "*1\r\n".repeat(DEPTH_MAX + 1);
        let long = "+".repeat(1 << 20);
        for text in [
            "?\r\n",
            "hello\r\n",
            "\r\n",
            ":x\r\n",
            "$99999999999\r\n",
            "$-2\r\n",
            "*x\r\n",
            "$1\r\nabc",
            "*2\r\n>0\r\n:1\r\n",
            &deep,
            &deeper,
            &long,
        ] {
            let error = read(text).expect_err("it is nonsense");
            assert!(matches!(error, ReplyError::Nonsense(_)), "{error}");
        }
        for text in ["", "$5\r\nab", "*2\r\n:1\r\n", "*99999999\r\n", "+OK\n"] {
            let error = read(text).expect_err("it ends too early");
            assert!(matches!(error, ReplyError::Broken(_)), "{error}");
        }
        let nested = format!("{}:1\r\n", "*1\r\n".repeat(DEPTH_MAX));
        assert!(matches!(read(&nested), Ok(Reply::Array(_))), "so deep a reply may be");
    }

    #[test]
    fn who_looks_for_replies_gets_them_all_and_gives_up_in_time() {
        let service = crate::fake_redis::FakeRedis::start();
        let open = |timeout| Connection::open_looking(service.address(), timeout).expect("it listens");
        let mut looking = open(Duration::from_secs(30));
        let value = "v".repeat(1 << 20);
        for text in ["short", &value] {
            assert_eq!(looking.call(&["SET", "k", text]).expect("a reply"), Reply::Simple("OK".into()));
            assert_eq!(looking.call(&["GET", "k"]).expect("a reply"), Reply::Bulk(text.as_bytes().to_vec()));
        }
        let late = open(Duration::from_millis(1)).read().expect_err("nothing was asked");
        assert!(
            matches!(&late, ReplyError::Broken(error) if error.kind() == io::ErrorKind::TimedOut),
            "{late}"
        );
    }

    #[test]
    fn endless_empty_elements_are_bounded() {
        let limits = Limits { reply_bytes_max: 1 << 20, ..Limits::default() };
        let mut reader = Reader::within((&b"*999999999\r\n"[..]).chain(Elements), limits);
        assert!(matches!(reader.read(), Err(ReplyError::Nonsense(codec::ReplyError::TooLong))));
    }

    /// Reads as `_\r\n` for ever.
    struct Elements;

    impl Read for Elements {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len() / 3 * 3;
            buffer[..count].chunks_exact_mut(3).for_each(|chunk| chunk.copy_from_slice(b"_\r\n"));
            Ok(count)
        }
    }
}
