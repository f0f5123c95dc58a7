//! Just enough of the Redis protocol to load and to check a server: commands out, replies in.
//!
//! Invariant: whatever the peer sends is a reply or a typed error; it cannot make us allocate more than
//! `REPLY_BYTES_MAX` nor nest deeper than `DEPTH_MAX`.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The largest reply that is read, all its parts together.
pub const REPLY_BYTES_MAX: usize = 256 << 20;
/// The deepest nesting of a reply.
pub const DEPTH_MAX: usize = 8;

const LINE_BYTES_MAX: u64 = 64 << 10;
// What an element of an array costs at least, so that empty elements are bounded as well.
const ELEMENT_BYTES: usize = 32;

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and its kin; also the verbatim, boolean, double and big-number forms of RESP3, as text.
    Simple(String),
    /// `-ERR ...`.
    Error(String),
    /// `:1`.
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Null,
    /// Several replies; also RESP3's sets, and its maps as a flat list.
    Array(Vec<Reply>),
}

/// Why no reply could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// The connection broke or timed out.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The peer does not speak the protocol.
    #[error("the peer does not speak RESP: {0}")]
    Nonsense(String),
}

/// Appends a command.
pub fn encode_command<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    write!(out, "*{}\r\n", args.len()).expect("writing to memory does not fail");
    for arg in args {
        let arg = arg.as_ref();
        write!(out, "${}\r\n", arg.len()).expect("writing to memory does not fail");
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads one reply. Push messages of RESP3 are skipped: nobody here asked for any.
pub fn read_reply(reader: &mut impl BufRead) -> Result<Reply, ReplyError> {
    let mut parser = Parser { reader, bytes_left: REPLY_BYTES_MAX };
    loop {
        if let Some(reply) = parser.reply(0)? {
            return Ok(reply);
        }
    }
}

struct Parser<'a, R> {
    reader: &'a mut R,
    bytes_left: usize,
}

impl<R: BufRead> Parser<'_, R> {
    /// The next reply; nothing for a push message or an attribute.
    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, ReplyError> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
        let reply = match kind {
            "+" | "," | "(" | "#" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(rest.parse().map_err(|_| nonsense("integer", &line))?),
            "$" | "=" => self.bulk(rest, &line)?.map_or(Reply::Null, Reply::Bulk),
            "!" => Reply::Error(
                String::from_utf8_lossy(&self.bulk(rest, &line)?.unwrap_or_default()).into_owned(),
            ),
            "_" => Reply::Null,
            "*" | "~" => self.array(rest, 1, depth, &line)?,
            "%" => self.array(rest, 2, depth, &line)?,
            ">" => return self.array(rest, 1, depth, &line).map(|_| None),
            "|" => return self.array(rest, 2, depth, &line).map(|_| None),
            _ => return Err(nonsense("reply", &line)),
        };
        Ok(Some(reply))
    }

    fn array(&mut self, count: &str, per_item: usize, depth: usize, line: &str) -> Result<Reply, ReplyError> {
        if count == "-1" {
            return Ok(Reply::Null);
        }
        if depth >= DEPTH_MAX {
            return Err(ReplyError::Nonsense(format!("a reply is nested deeper than {DEPTH_MAX}")));
        }
        let count: usize = count.parse().map_err(|_| nonsense("count", line))?;
        let mut items = Vec::new();
        for _ in 0..count.saturating_mul(per_item) {
            self.charge(ELEMENT_BYTES)?;
            // A push message may come between replies, not inside one.
            items.push(self.reply(depth + 1)?.ok_or_else(|| nonsense("element", line))?);
        }
        Ok(Reply::Array(items))
    }

    fn bulk(&mut self, length: &str, line: &str) -> Result<Option<Vec<u8>>, ReplyError> {
        if length == "-1" {
            return Ok(None);
        }
        let length: usize = length.parse().map_err(|_| nonsense("length", line))?;
        self.charge(length)?;
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes)?;
        let mut end = [0; 2];
        self.reader.read_exact(&mut end)?;
        if end != *b"\r\n" {
            return Err(nonsense("end of a string", line));
        }
        Ok(Some(bytes))
    }

    fn line(&mut self) -> Result<String, ReplyError> {
        let mut line = Vec::new();
        let mut limited = Read::take(&mut *self.reader, LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.charge(line.len())?;
        let line = String::from_utf8_lossy(&line);
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| nonsense("line", &line))
    }

    fn charge(&mut self, bytes: usize) -> Result<(), ReplyError> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left
            .ok_or_else(|| ReplyError::Nonsense(format!("a reply is larger than {REPLY_BYTES_MAX} bytes")))?;
        Ok(())
    }
}

fn nonsense(what: &str, line: &str) -> ReplyError {
    let shown: String = line.chars().take(60).collect();
    ReplyError::Nonsense(format!("`{shown}` is no {what}"))
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

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn open(place: &Place, timeout: Duration) -> io::Result<Stream> {
        match place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, timeout)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Stream::Tcp(stream))
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Stream::Unix(stream))
            }
        }
    }

    fn try_clone(&self) -> io::Result<Stream> {
        match self {
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // Sockets keep nothing back.
        Ok(())
    }
}

/// A connection that sends commands and reads replies.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    reader: BufReader<Stream>,
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
        let reader = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        Ok(Connection { stream, reader, out: Vec::new() })
    }

    /// Adds a command to what the next [`Connection::flush`] sends.
    pub fn push<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        encode_command(args, &mut self.out);
    }

    /// Sends what was pushed.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent
    }

    /// Reads the next reply.
    pub fn read(&mut self) -> Result<Reply, ReplyError> {
        read_reply(&mut self.reader)
    }

    /// Whether more of what the peer sent lies here already.
    pub fn has_buffered(&self) -> bool {
        !self.reader.buffer().is_empty()
    }

    /// Sends one command and reads its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply, ReplyError> {
        self.push(args);
        self.flush()?;
        self.read()
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
        encode_command(args, &mut self.out);
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
    reader: BufReader<Stream>,
}

impl Receiver {
    /// Reads the next reply.
    pub fn read(&mut self) -> Result<Reply, ReplyError> {
        read_reply(&mut self.reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_form() {
        let mut out = Vec::new();
        encode_command(&[&b"SET"[..], b"k", b"a\r\n"], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na\r\n\r\n");
    }

    #[test]
    fn replies_of_both_versions_are_read() {
        let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        for (text, wanted) in [
            ("+OK\r\n", Reply::Simple("OK".into())),
            ("-ERR no\r\n", Reply::Error("ERR no".into())),
            (":-12\r\n", Reply::Integer(-12)),
            ("$2\r\na\n\r\n", bulk("a\n")),
            ("$0\r\n\r\n", bulk("")),
            ("$-1\r\n", Reply::Null),
            ("*-1\r\n", Reply::Null),
            ("_\r\n", Reply::Null),
            (
                "*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
                Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![bulk("a")])]),
            ),
            ("%1\r\n+k\r\n:1\r\n", Reply::Array(vec![Reply::Simple("k".into()), Reply::Integer(1)])),
            (">2\r\n+invalidate\r\n_\r\n+OK\r\n", Reply::Simple("OK".into())),
            ("!5\r\nERR x\r\n", Reply::Error("ERR x".into())),
            ("#t\r\n", Reply::Simple("t".into())),
        ] {
            assert_eq!(read_reply(&mut text.as_bytes()).expect(text), wanted);
        }
    }

    #[test]
    fn nonsense_is_an_error_and_costs_little() {
        let deep = "*1\r\n".repeat(100_000);
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
            "+OK\n",
            "*2\r\n>0\r\n:1\r\n",
            &deep,
            &long,
        ] {
            let error = read_reply(&mut text.as_bytes()).expect_err("it is nonsense");
            assert!(matches!(error, ReplyError::Nonsense(_)), "{error}");
        }
        for text in ["", "$5\r\nab", "*2\r\n:1\r\n", "*99999999\r\n"] {
            let error = read_reply(&mut text.as_bytes()).expect_err("it ends too early");
            assert!(matches!(error, ReplyError::Broken(_)), "{error}");
        }
    }

    #[test]
    fn endless_empty_elements_are_bounded() {
        let mut reader = BufReader::new((&b"*999999999\r\n"[..]).chain(Elements));
        assert!(matches!(read_reply(&mut reader), Err(ReplyError::Nonsense(_))));
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
