//! As much of gRPC over HTTP/2 as unary calls of small messages take, without a library: what a client costs is part of
//! what is measured.
//!
//! Invariant: every call begun ends once, with its message if it was a good one. Headers are sent without a table, so
//! that none has to be kept, and those received are not read: a call that failed has no message.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// More than all messages of a run together, so that the peer need not be told of what was read.
const WINDOW: u32 = 1 << 30;
/// What a frame may hold at most, unless a peer is told otherwise.
const FRAME_BYTES_MAX: usize = 16 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// A call that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub stream: u32,
    /// What it was answered; none if it failed.
    pub message: Option<Vec<u8>>,
}

/// A connection to a server.
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    /// What is to be written before anything is awaited.
    out: Vec<u8>,
    next_stream: u32,
    /// What has come of calls under way.
    received: HashMap<u32, Vec<u8>>,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut connection = Connection {
            reader: BufReader::new(stream),
            out: PREFACE.to_vec(),
            next_stream: 1,
            received: HashMap::new(),
        };
        connection.push(SETTINGS, 0, 0, &[]);
        connection.push(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
        Ok(connection)
    }

    /// Begins a call; it is sent when an end is awaited.
    pub(super) fn begin(&mut self, path: &str, message: &[u8]) -> io::Result<u32> {
        let stream = self.next_stream;
        self.next_stream =
            stream.checked_add(2).ok_or_else(|| io::Error::other("all streams are used up"))?;
        self.push(HEADERS, END_HEADERS, stream, &headers(path));
        let mut data = vec![0];
        data.extend_from_slice(&(message.len() as u32).to_be_bytes());
        data.extend_from_slice(message);
        self.push(DATA, END_STREAM, stream, &data);
        self.received.insert(stream, Vec::new());
        Ok(stream)
    }

    /// Sends what was begun, and waits until a call ends.
    pub(super) fn next_end(&mut self) -> io::Result<Ended> {
        loop {
            self.flush()?;
            let frame = self.read()?;
            if let Some(ended) = self.take(frame)? {
                return Ok(ended);
            }
        }
    }

    fn take(&mut self, frame: Frame) -> io::Result<Option<Ended>> {
        let Frame { kind, flags, stream, payload } = frame;
        match kind {
            DATA => self.received.entry(stream).or_default().extend_from_slice(&payload),
            SETTINGS if flags & ACK == 0 => self.push(SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => self.push(PING, ACK, 0, &payload),
            GO_AWAY => return Err(io::Error::other("the server ends the connection")),
            _ => {}
        }
        let is_end = kind == RESET || matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        Ok(is_end.then(|| {
            let received = self.received.remove(&stream).unwrap_or_default();
            // The first five bytes are its flag and its length.
            let message = (kind != RESET && received.len() >= 5).then(|| received[5..].to_vec());
            Ended { stream, message }
        }))
    }

    fn push(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        self.out.extend_from_slice(&[kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        self.out.extend_from_slice(payload);
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.reader.get_ref().write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.reader.read_exact(&mut head)?;
        let bytes = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if bytes > FRAME_BYTES_MAX {
            return Err(io::Error::other("a frame is larger than allowed"));
        }
        let mut payload = vec![0; bytes];
        self.reader.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Ok(Frame { kind: head[3], flags: head[4], stream, payload })
    }
}

/// The headers of a call. A number is the place of a name, or of a name and value, in the table that all know.
fn headers(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86]; // :method POST, :scheme http
    let mut named = |name: &[u8], value: &str| {
        block.extend_from_slice(name);
        push_text(&mut block, value);
    };
    named(&[0x04], path);
    named(&[0x01], "localhost"); // :authority
    named(&[0x0f, 0x10], "application/grpc"); // content-type
    named(&[0x00, 2, b't', b'e'], "trailers");
    block
}

fn push_text(block: &mut Vec<u8>, text: &str) {
    debug_assert!(text.len() < 127, "longer texts have lengths of several bytes");
    block.push(text.len() as u8);
    block.extend_from_slice(text.as_bytes());
}

/// A field of bytes in a message.
pub(super) fn bytes_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    push_varint(&mut field, bytes.len() as u64);
    field.extend_from_slice(bytes);
    field
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A field of a message: its number, if it is one, and its bytes, if it has some.
pub(super) fn field(mut message: &[u8], wanted: u64) -> Option<(u64, &[u8])> {
    while !message.is_empty() {
        let tag = take_varint(&mut message)?;
        let number = take_varint(&mut message)?;
        let mut bytes: &[u8] = &[];
        if tag & 7 == 2 {
            (bytes, message) = message.split_at_checked(usize::try_from(number).ok()?)?;
        }
        if tag >> 3 == wanted {
            return Some((number, bytes));
        }
    }
    None
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn fields_are_found_behind_others() {
        let long = vec![9; 300];
        let message = [bytes_field(1, &long), vec![0x20, 0xac, 0x02], bytes_field(3, b"x")].concat();
        assert_eq!(field(&message, 1), Some((300, &long[..])));
        assert_eq!(field(&message, 4).map(|(number, _)| number), Some(300));
        assert_eq!(field(&message, 3), Some((1, &b"x"[..])));
        assert_eq!(field(&message, 7), None);
        assert_eq!(field(&message[..100], 4), None);
    }

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn calls_end_in_any_order_and_a_failed_one_has_no_message() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            let answers = [
                frame(SETTINGS, 0, 0, &[]),
                frame(PING, 0, 0, &[1; 8]),
                frame(HEADERS, END_HEADERS, 3, &[0x88]),
                frame(DATA, 0, 3, &[0, 0, 0, 0, 2, 7, 8]),
                frame(HEADERS, END_HEADERS | END_STREAM, 3, &[0x88]),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88]),
            ];
            stream.write_all(&answers.concat()).expect("it is read");
            let mut said = Vec::new();
            stream.read_to_end(&mut said).expect("it ends");
            said
        });
        let mut connection = Connection::open(address).expect("it listens");
        assert_eq!(connection.begin("/a/B", b"m").ok(), Some(1));
        assert_eq!(connection.begin("/a/B", b"m").ok(), Some(3));
        let ends = [connection.next_end(), connection.next_end()].map(|end| end.expect("it ends"));
        assert_eq!(ends[0], Ended { stream: 3, message: Some(vec![7, 8]) });
        assert_eq!(ends[1], Ended { stream: 1, message: None });
        connection.flush().expect("it is written");
        drop(connection);
        let said = server.join().expect("no panic");
        assert!(said.starts_with(PREFACE));
        for sent in [frame(PING, ACK, 0, &[1; 8]), frame(DATA, END_STREAM, 1, &[0, 0, 0, 0, 1, b'm'])] {
            assert!(said.windows(sent.len()).any(|part| part == sent), "{said:?}");
        }
    }
}
