//! Connections that go around the protocol: commands that block, stream or replicate.
//!
//! Handshake: the client's sidecar sends `SCOTTUN1` and 16 random bytes; the server's answers with 16 of
//! its own and a MAC over all; the client's sends its MAC. Then the bytes are the client's and the
//! server's own, but for commands that the guard refuses.
//!
//! Invariant: nobody without the cluster's key gets a connection to the server, and no tunnel reaches the
//! markers. There are never more than the configured number, and each is counted.

use crate::redis::RedisServer;
use crate::stream::Stream;
use scotfree_core::{Epoch, SessionId};
use scotfree_io::{Interest, Poller, Waker};
use scotfree_resp::back::LANE_NAME_PREFIX;
use scotfree_resp::codec::{write_command, write_words, Args, Command, Limits, ReplyDecoder, RequestDecoder};
use scotfree_resp::guard;
use scotfree_rpc::SharedKey;
use scotfree_wire::{key_epoch, nonce_under, ClusterKey, KeyEpoch, Nonce, SessionKeys};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const MAGIC: &[u8; 8] = b"SCOTTUN1";
const NONCE_BYTES: usize = 16;
const MAC_BYTES: usize = 8;
/// How long a handshake may take.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(2);
/// How many bytes wait in one direction; more are not read.
const DIRECTION_BYTES_MAX: usize = 256 << 10;
/// The stack of a tunnel's thread, which calls nothing deep: there may be thousands.
const STACK_BYTES: usize = 256 << 10;
/// No database is reserved yet: nothing is let through.
const NOT_SERVING: u32 = u32::MAX;

/// What the server's end is told at its start.
#[derive(Debug, Clone)]
pub struct TunnelOptions {
    /// The secret that the cluster shares.
    pub cluster_key: SharedKey,
    /// The server.
    pub redis: RedisServer,
    /// How many tunnels there can be; a further one is refused.
    pub tunnels_max: usize,
    /// A device before the server answers reads, and sees nothing of what is written here.
    pub is_cached: bool,
}

/// Tells all tunnels of one end that they are to end.
pub struct Ending {
    said: AtomicBool,
    /// Is never drained, so it wakes every thread that waits for it.
    waker: Waker,
}

impl Ending {
    /// Not yet.
    pub fn new() -> io::Result<Ending> {
        Ok(Ending { said: AtomicBool::new(false), waker: Waker::new()? })
    }

    /// Now.
    pub fn say(&self) {
        // Release: whoever sees the flag sees everything before it.
        self.said.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn is_said(&self) -> bool {
        // Acquire pairs with the release of whoever says it.
        self.said.load(Ordering::Acquire)
    }
}

/// Runs a tunnel in a thread of its own.
pub fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("scotfree-tunnel".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(run).map(drop)
}

struct Shared {
    options: TunnelOptions,
    reserved_db: AtomicU32,
    ending: Ending,
    open: AtomicU64,
    total: AtomicU64,
    refused: AtomicU64,
}

/// Accepts tunnels beside the server.
pub struct TunnelListener {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl TunnelListener {
    /// Listens; nothing is let through before [`TunnelListener::serve`].
    pub fn start(address: SocketAddr, options: TunnelOptions) -> io::Result<TunnelListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            options,
            reserved_db: AtomicU32::new(NOT_SERVING),
            ending: Ending::new()?,
            open: AtomicU64::new(0),
            total: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        let mut poller = Poller::new(4)?;
        poller.add(listener.as_raw_fd(), 0, Interest::Read)?;
        poller.add(shared.ending.waker.as_raw_fd(), 1, Interest::Read)?;
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("scotfree-tunnels".to_owned()).spawn(move || {
            while !for_thread.ending.is_said() {
                if poller.wait(None).is_err() {
                    break;
                }
                while let Ok((stream, _)) = listener.accept() {
                    accept(&for_thread, stream);
                }
            }
        })?;
        Ok(TunnelListener { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on tunnels may pass, but not into this database.
    pub fn serve(&self, reserved_db: u16) {
        // Relaxed: the number stands for itself.
        self.shared.reserved_db.store(u32::from(reserved_db), Ordering::Relaxed);
    }

    /// Tunnels open now, ever opened, and refused.
    pub fn counts(&self) -> (u64, u64, u64) {
        // Relaxed: counters only.
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.shared.open), load(&self.shared.total), load(&self.shared.refused))
    }
}

impl Drop for TunnelListener {
    fn drop(&mut self) {
        self.shared.ending.say();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, stream: TcpStream) {
    // Relaxed: only the accepting thread adds, so the limit holds.
    if shared.open.load(Ordering::Relaxed) >= shared.options.tunnels_max as u64 {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    shared.open.fetch_add(1, Ordering::Relaxed);
    let for_thread = Arc::clone(shared);
    let spawned = spawn(move || {
        let result = serve_one(&for_thread, stream);
        let counter = if result.is_ok() { &for_thread.total } else { &for_thread.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        for_thread.open.fetch_sub(1, Ordering::Relaxed);
    });
    if spawned.is_err() {
        shared.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve_one(shared: &Shared, mut client: TcpStream) -> io::Result<()> {
    answer_handshake(&shared.options.cluster_key.get(), &mut client)?;
    let reserved_db = shared.reserved_db.load(Ordering::Relaxed);
    let Ok(reserved_db) = u16::try_from(reserved_db) else {
        return Err(io::Error::new(ErrorKind::NotConnected, "the server is not ready"));
    };
    let mut server = shared.options.redis.connect()?;
    let mut greeting = Vec::new();
    write_words(&mut greeting, &[b"CLIENT", b"SETNAME", lane_name().as_bytes()]);
    let mut pass = Pass { is_cached: shared.options.is_cached, ..Pass::new(reserved_db) };
    client.set_nonblocking(true)?;
    let waiting = Waiting { to_server: greeting, to_client: Vec::new() };
    let mut client = Stream::Tcp(client);
    splice(&mut client, &mut server, waiting, SkipReplies::new(1), &shared.ending, |bytes, out| {
        pass.pass(bytes, out)
    })
}

/// Lets commands through but those that the guard refuses.
#[derive(Debug)]
pub(crate) struct Pass {
    requests: RequestDecoder,
    reserved_db: u16,
    is_cached: bool,
}

impl Pass {
    pub(crate) fn new(reserved_db: u16) -> Pass {
        Pass { requests: RequestDecoder::new(Limits::default()), reserved_db, is_cached: false }
    }

    /// What to send on; an error is what the client is told before the tunnel ends.
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Vec<u8>> {
        self.pass_with(bytes, out, |_| None)
    }

    /// As [`Pass::pass`], with other commands in the place of some.
    pub(crate) fn pass_with(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        mut instead: impl FnMut(Args<'_>) -> Option<Command>,
    ) -> Result<(), Vec<u8>> {
        self.requests.push(bytes);
        while let Some(args) = self.requests.pop(true).map_err(|error| error.reply())? {
            let unseen = || guard::refusal_unseen(args).filter(|_| self.is_cached);
            if let Some(text) = guard::refusal_aside(args, self.reserved_db).or_else(unseen) {
                // The server alone knows when it is this command's turn to be answered: it repeats the name of a
                // command that it does not know.
                let text = text.strip_prefix("ERR ").unwrap_or(&text);
                write_words(out, &[text.as_bytes()]);
            } else if let Some(other) = instead(args) {
                write_command(out, other.args());
            } else {
                write_command(out, args);
            }
        }
        Ok(())
    }
}

/// Connects a tunnel to a server's sidecar; the connection does not block afterwards.
pub(crate) fn connect(server: SocketAddr, cluster_key: &ClusterKey) -> io::Result<Stream> {
    let mut stream = TcpStream::connect_timeout(&server, HANDSHAKE_TIME_MAX)?;
    stream.set_nodelay(true)?;
    ask_handshake(cluster_key, &mut stream)?;
    stream.set_nonblocking(true)?;
    Ok(Stream::Tcp(stream))
}

/// Connects to the server itself and names the connection. Returns once the server has taken it, so that what is sent
/// from then on comes there in the order in which it is sent, whichever connection takes it; with its number there, if it
/// is told before anybody has authenticated himself.
pub(crate) fn connect_server(redis: &RedisServer) -> io::Result<(Stream, Option<i64>)> {
    let mut stream = redis.connect()?;
    let mut greeting = Direction::default();
    write_words(&mut greeting.waiting, &[b"CLIENT", b"SETNAME", lane_name().as_bytes()]);
    write_words(&mut greeting.waiting, &[b"CLIENT", b"ID"]);
    let mut skip = SkipReplies::new(2);
    let (mut buffer, mut none) = (vec![0; 1 << 10], Vec::new());
    let mut answer = Direction::default();
    let mut poller = Poller::new(1)?;
    poller.add(stream.as_raw_fd(), 0, Interest::Read)?;
    while skip.left > 0 {
        send(&mut stream, &mut greeting)?;
        let waits = if greeting.waiting.is_empty() && !stream.wants_write() {
            Interest::Read
        } else {
            Interest::ReadWrite
        };
        poller.modify(stream.as_raw_fd(), 0, waits)?;
        if poller.wait(Some(HANDSHAKE_TIME_MAX))?.is_empty() {
            return Err(io::Error::new(ErrorKind::TimedOut, "the server does not answer"));
        }
        if let Some(bytes) = receive(&mut stream, &mut buffer, &mut answer)? {
            skip.pass(bytes, &mut none)?;
        }
        if answer.ended {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
    }
    Ok((stream, skip.number))
}

fn lane_name() -> String {
    format!("{LANE_NAME_PREFIX}tunnel")
}

fn ask_handshake(cluster_key: &ClusterKey, server: &mut TcpStream) -> io::Result<()> {
    server.set_read_timeout(Some(HANDSHAKE_TIME_MAX))?;
    let client_nonce = nonce(cluster_key.newest())?;
    server.write_all(&[&MAGIC[..], &client_nonce].concat())?;
    let mut answer = [0; NONCE_BYTES + MAC_BYTES];
    server.read_exact(&mut answer).map_err(slow)?;
    let (server_nonce, mac) = answer.split_at(NONCE_BYTES);
    let server_nonce: Nonce = server_nonce.try_into().map_err(io::Error::other)?;
    let keys = keys(cluster_key, &client_nonce, &server_nonce);
    if keys.server_to_client.mac(&[MAGIC]).to_le_bytes() != *mac {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "the other side has another cluster key"));
    }
    server.write_all(&keys.client_to_server.mac(&[MAGIC]).to_le_bytes())
}

/// What has not come in time is no resource that is missing, as the kernel puts it.
fn slow(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock {
        let seconds = HANDSHAKE_TIME_MAX.as_secs();
        return io::Error::new(ErrorKind::TimedOut, format!("no answer within {seconds} s"));
    }
    error
}

fn answer_handshake(cluster_key: &ClusterKey, client: &mut TcpStream) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(HANDSHAKE_TIME_MAX))?;
    let mut hello = [0; 8 + NONCE_BYTES];
    client.read_exact(&mut hello)?;
    let client_nonce: Nonce = hello[8..].try_into().map_err(io::Error::other)?;
    if &hello[..8] != MAGIC {
        return Err(io::Error::new(ErrorKind::InvalidData, "no tunnel of a sidecar"));
    }
    let epoch = key_epoch(&client_nonce);
    if !cluster_key.has(epoch) {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            "the other side has a newer or older cluster key",
        ));
    }
    let server_nonce = nonce(epoch)?;
    let keys = keys(cluster_key, &client_nonce, &server_nonce);
    let mac = keys.server_to_client.mac(&[MAGIC]).to_le_bytes();
    client.write_all(&[&server_nonce[..], &mac].concat())?;
    let mut mac = [0; MAC_BYTES];
    client.read_exact(&mut mac)?;
    if keys.client_to_server.mac(&[MAGIC]).to_le_bytes() != mac {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "the other side has another cluster key"));
    }
    Ok(())
}

/// Both nonces are in the keys, so the MACs are good for this connection only.
fn keys(cluster_key: &ClusterKey, client: &Nonce, server: &Nonce) -> SessionKeys {
    cluster_key.session(client, server, SessionId(0), Epoch(0))
}

/// Under which epoch of the cluster's key a tunnel is opened, its client's nonce says, and the server's repeats.
fn nonce(epoch: KeyEpoch) -> io::Result<Nonce> {
    let mut fresh = [0; 8];
    getrandom::fill(&mut fresh).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce_under(epoch, fresh))
}

/// Drops the first so many replies.
#[derive(Debug)]
pub(crate) struct SkipReplies {
    pub(crate) left: usize,
    replies: ReplyDecoder,
    /// The last number among them: the connection's at the server.
    pub(crate) number: Option<i64>,
}

impl SkipReplies {
    pub(crate) fn new(left: usize) -> SkipReplies {
        SkipReplies { left, replies: ReplyDecoder::default(), number: None }
    }

    /// So many more are dropped, of those that come next.
    pub(crate) fn skip_more(&mut self, count: usize) {
        if self.left == 0 {
            self.replies = ReplyDecoder::default();
        }
        self.left += count;
    }

    pub(crate) fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if self.left == 0 {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        self.replies.push(bytes);
        while self.left > 0 {
            match self.replies.pop() {
                Ok(Some(reply)) => {
                    self.left -= 1;
                    let digits = reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
                    self.number = digits.and_then(scotfree_resp::codec::parse_integer).or(self.number);
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(io::Error::new(ErrorKind::InvalidData, error)),
            }
        }
        out.extend_from_slice(self.replies.unread());
        Ok(())
    }
}

/// What is to be sent before anything is received.
struct Waiting {
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

/// Bytes on their way in one direction.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    pub(crate) waiting: Vec<u8>,
    pub(crate) ended: bool,
}

/// Carries bytes both ways until one side closes.
fn splice(
    client: &mut Stream,
    server: &mut Stream,
    waiting: Waiting,
    mut skip: SkipReplies,
    ending: &Ending,
    mut pass: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), Vec<u8>>,
) -> io::Result<()> {
    let mut to_server = Direction { waiting: waiting.to_server, ended: false };
    let mut to_client = Direction { waiting: waiting.to_client, ended: false };
    let mut poller = Poller::new(4)?;
    poller.add(client.as_raw_fd(), 0, Interest::Read)?;
    poller.add(server.as_raw_fd(), 1, Interest::Read)?;
    poller.add(ending.waker.as_raw_fd(), 2, Interest::Read)?;
    let mut buffer = vec![0; 64 << 10];
    while !ending.is_said() {
        send(server, &mut to_server)?;
        send(client, &mut to_client)?;
        if is_over(server, &to_server) || is_over(client, &to_client) {
            break;
        }
        poller.modify(client.as_raw_fd(), 0, interest(client, &to_client, &to_server))?;
        poller.modify(server.as_raw_fd(), 1, interest(server, &to_server, &to_client))?;
        // An end that was read already is reported by no socket.
        let is_known = client.has_ended() && !to_server.ended || server.has_ended() && !to_client.ended;
        poller.wait(is_known.then_some(Duration::ZERO))?;
        if let Some(bytes) = receive(client, &mut buffer, &mut to_server)? {
            if let Err(refusal) = pass(bytes, &mut to_server.waiting) {
                to_client.waiting.extend_from_slice(&refusal);
                to_client.ended = true;
            }
        }
        if let Some(bytes) = receive(server, &mut buffer, &mut to_client)? {
            skip.pass(bytes, &mut to_client.waiting)?;
        }
    }
    Ok(())
}

/// Whether a side has been sent the last that it will be sent.
pub(crate) fn is_over(stream: &Stream, direction: &Direction) -> bool {
    direction.ended && direction.waiting.is_empty() && !stream.wants_write()
}

/// A side is read only while its bytes have room on the other.
pub(crate) fn interest(stream: &Stream, out: &Direction, input: &Direction) -> Interest {
    let to_write = !out.waiting.is_empty() || stream.wants_write();
    match (to_write, input.waiting.len() < DIRECTION_BYTES_MAX && !input.ended) {
        (false, _) => Interest::Read,
        (true, true) => Interest::ReadWrite,
        (true, false) => Interest::Write,
    }
}

pub(crate) fn send(stream: &mut Stream, direction: &mut Direction) -> io::Result<()> {
    if direction.waiting.is_empty() {
        return stream.flush();
    }
    match stream.write(&direction.waiting) {
        Ok(count) => {
            direction.waiting.drain(..count);
            Ok(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(crate) fn receive<'a>(
    stream: &mut Stream,
    buffer: &'a mut [u8],
    direction: &mut Direction,
) -> io::Result<Option<&'a [u8]>> {
    if direction.ended || direction.waiting.len() >= DIRECTION_BYTES_MAX {
        return Ok(None);
    }
    match stream.read(buffer) {
        Ok(0) => {
            direction.ended = true;
            Ok(None)
        }
        Ok(count) => Ok(Some(&buffer[..count])),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let here = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        (here, listener.accept().expect("a connection").0)
    }

    /// A cluster key of these secrets, whose last two digits are their epochs.
    fn key(secrets: &[u8]) -> ClusterKey {
        let secret = |secret: &u8| (KeyEpoch(u32::from(*secret % 100)), [*secret; 32]);
        ClusterKey::from_epochs(secrets.iter().map(secret).collect()).expect("they grow")
    }

    fn handshake(client_key: &[u8], server_key: &[u8]) -> (bool, bool) {
        let (mut here, mut there) = pair();
        let server_key = key(server_key);
        let server = std::thread::spawn(move || answer_handshake(&server_key, &mut there).is_ok());
        let client = ask_handshake(&key(client_key), &mut here).is_ok();
        drop(here);
        (client, server.join().expect("no panic"))
    }

    #[test]
    fn only_who_has_the_clusters_key_gets_through() {
        assert_eq!(handshake(&[1], &[1]), (true, true));
        // Another secret of the same epoch.
        assert_eq!(handshake(&[1], &[101]), (false, false));
    }

    #[test]
    fn a_tunnel_is_opened_under_the_clients_newest_key_if_the_server_has_it() {
        assert_eq!(handshake(&[1], &[1, 2]), (true, true));
        assert_eq!(handshake(&[1, 2], &[1, 2, 3]), (true, true));
        assert_eq!(handshake(&[1], &[2]), (false, false));
        assert_eq!(handshake(&[1, 2], &[1]), (false, false));
    }

    #[test]
    fn the_guard_stands_in_a_tunnel_too() {
        let mut pass = Pass::new(15);
        let mut out = Vec::new();
        assert_eq!(pass.pass(b"SUBSCRIBE c\r\nSEL", &mut out), Ok(()));
        assert_eq!(out, b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n");
        out.clear();
        assert_eq!(pass.pass(b"ECT 15\r\nPING\r\n", &mut out), Ok(()));
        let sent = String::from_utf8_lossy(&out).into_owned();
        assert!(sent.contains("\r\nscotfree: database 15 holds") && sent.ends_with("PING\r\n"), "{sent}");
        assert!(!sent.contains("SELECT"), "{sent}");
    }

    #[test]
    fn past_a_device_that_answers_reads_nobody_writes() {
        let sent = |is_cached: bool, line: &str| {
            let mut pass = Pass { is_cached, ..Pass::new(15) };
            let mut out = Vec::new();
            pass.pass(format!("{line}\r\n").as_bytes(), &mut out).expect("it is well-formed");
            String::from_utf8_lossy(&out).into_owned()
        };
        for line in ["SET k v", "incr k", "EVAL x 0", "NEW.COMMAND k", "FLUSHDB", "RESTORE k 0 x"] {
            assert!(
                sent(true, line).contains("\r\nscotfree: ") && !sent(false, line).contains("scotfree"),
                "{line}"
            );
        }
        for line in
            ["GET k", "BLPOP l 0", "SUBSCRIBE c", "PUBLISH c m", "CLIENT TRACKING ON", "MULTI", "EXEC"]
        {
            assert_eq!(sent(true, line), sent(false, line), "{line}");
        }
    }

    #[test]
    fn replies_of_the_setup_are_dropped() {
        let mut skip = SkipReplies::new(2);
        let mut out = Vec::new();
        for piece in [&b"+OK\r\n+"[..], b"OK\r\n:1", b"\r\n:2\r\n"] {
            skip.pass(piece, &mut out).expect("RESP");
        }
        assert_eq!(out, b":1\r\n:2\r\n");
    }
}
