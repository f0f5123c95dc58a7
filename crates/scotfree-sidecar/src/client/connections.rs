//! The sockets of client connections: bytes between them and their [`Fronts`], and the threads of tunnels.
//!
//! Invariant: a socket is watched for what its front wishes, and for nothing once a tunnel has it.

use super::fronts::{Fronts, Peer, TunnelAsked, Wish};
use super::sessions::ConnectionKey;
use super::ClientSidecarConfig;
use crate::notices::Notices;
use crate::seldom::Seldom;
use crate::stream::Stream;
use crate::tls::{TlsAcceptor, TlsStream};
use crate::tunnel::{self, Ending, TunnelStart};
use scotfree_core::Nanos;
use scotfree_io::{now_monotonic, now_realtime, Event, Interest, Poller};
use scotfree_resp::front::ClientFront;
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{SharedKey, Upstream};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const READ_BYTES: usize = 64 << 10;
/// How many connections one turn accepts.
const ACCEPTS_MAX: usize = 1_024;
/// How long a client may take for a handshake of TLS; it counts as a connection meanwhile.
const HANDSHAKE_TIME_MAX: Nanos = Nanos::from_secs(5);
/// By this a client begins TLS, and no command.
const TLS_HANDSHAKE: u8 = 0x16;

struct Socket {
    stream: Stream,
    watched: Option<Interest>,
    /// Nothing was read from it yet.
    is_new: bool,
}

/// The sockets of all client connections.
pub(super) struct Connections {
    pub fronts: Fronts,
    sockets: BTreeMap<ConnectionKey, Socket>,
    next_key: u64,
    /// What connections' IDs begin at.
    id_base: u64,
    buffer: Vec<u8>,
    accepted: u64,
    refused: u64,
    refusals: Seldom,
    last_refusal: String,
    /// Of each listener that speaks TLS.
    acceptors: Vec<Option<TlsAcceptor>>,
    /// Those that have to have made their handshake by a time, or are over; the first ones first.
    handshakes: VecDeque<(Nanos, ConnectionKey)>,
    handshakes_failed: u64,
    tunnels: Arc<Tunnels>,
    tunnels_refused: u64,
    limits: Limits,
    notices: Notices,
}

struct Limits {
    connections_max: usize,
    tunnels_max: usize,
    tunnel: SocketAddr,
    cluster_key: SharedKey,
}

struct Tunnels {
    open: AtomicUsize,
    ending: Ending,
}

impl Connections {
    /// None yet; the poller's keys of sockets begin at `first_key`.
    pub fn new(config: &ClientSidecarConfig, fronts: Fronts, first_key: u64) -> io::Result<Connections> {
        let tunnels = Tunnels { open: AtomicUsize::new(0), ending: Ending::new()? };
        Ok(Connections {
            fronts,
            sockets: BTreeMap::new(),
            next_key: first_key,
            id_base: id_base(),
            buffer: vec![0; READ_BYTES],
            accepted: 0,
            refused: 0,
            refusals: Seldom::default(),
            last_refusal: String::new(),
            acceptors: config.listeners.iter().map(|listener| listener.tls.clone()).collect(),
            handshakes: VecDeque::new(),
            handshakes_failed: 0,
            tunnels: Arc::new(tunnels),
            tunnels_refused: 0,
            limits: Limits {
                connections_max: config.connections_max,
                tunnels_max: config.tunnels_max,
                tunnel: config.tunnel.unwrap_or(config.server),
                cluster_key: config.cluster_key.clone(),
            },
            notices: config.notices.clone(),
        })
    }

    /// Takes new connections of a listener.
    pub fn accept(
        &mut self,
        listener: &TcpListener,
        index: usize,
        upstream: &mut impl Upstream,
        poller: &Poller,
    ) {
        self.fronts.take_over_rules();
        for _ in 0..ACCEPTS_MAX {
            let Ok((stream, _)) = listener.accept() else { return };
            self.accepted += 1;
            if let Err(text) = self.add(stream, index, upstream, poller) {
                self.turned_away(text);
            }
        }
    }

    fn turned_away(&mut self, text: String) {
        self.refused += 1;
        self.refusals.happened(1);
        self.last_refusal = text;
    }

    /// Ends the connections whose handshake takes too long.
    pub fn end_slow_handshakes(&mut self, now: Nanos) {
        while let Some((_, key)) = self.handshakes.front().copied().filter(|(until, _)| *until <= now) {
            self.handshakes.pop_front();
            if self.sockets.get(&key).is_some_and(|socket| socket.stream.is_handshaking()) {
                let seconds = HANDSHAKE_TIME_MAX.0 / 1_000_000_000;
                self.handshake_failed(key, format!("it has made no TLS handshake within {seconds} s"));
            }
        }
    }

    fn handshake_failed(&mut self, key: ConnectionKey, text: String) {
        self.handshakes_failed += 1;
        self.turned_away(text);
        self.drop_connection(key);
    }

    /// How many clients were turned away, if it is time to say so.
    pub fn say_refusals(&mut self, now: Nanos) -> Option<String> {
        let count = self.refusals.due(now)?;
        Some(format!("clients turned away: {count}, the last one with: {}", self.last_refusal))
    }

    fn add(
        &mut self,
        mut stream: TcpStream,
        index: usize,
        upstream: &mut impl Upstream,
        poller: &Poller,
    ) -> Result<(), String> {
        let acceptor = self.acceptors.get(index).and_then(Option::as_ref);
        let refuse = |stream: &mut TcpStream, text: &str| {
            // The client may not read it; it is told nevertheless, but amid a handshake, where it is no words.
            if acceptor.is_none() {
                let _ = stream.write_all(format!("-ERR {text}\r\n").as_bytes());
            }
            text.to_owned()
        };
        if self.fronts.len() >= self.limits.connections_max {
            return Err(refuse(&mut stream, "max number of clients reached"));
        }
        stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
            .map_err(|error| error.to_string())?;
        let key = ConnectionKey(self.next_key);
        let address = |address: io::Result<SocketAddr>| {
            address.map_or_else(|_| String::new(), |address| address.to_string())
        };
        let peer = Peer {
            listener: index,
            id: self.id_base + self.accepted,
            address: address(stream.peer_addr()),
            local: address(stream.local_addr()),
        };
        // Whoever is dropped is watched no more.
        poller.add(stream.as_raw_fd(), key.0, Interest::Read).map_err(|error| error.to_string())?;
        self.fronts
            .open(key, peer, upstream)
            .map_err(|error| refuse(&mut stream, &format!("scotfree: {error}")))?;
        let stream = match acceptor {
            None => Stream::Tcp(stream),
            Some(acceptor) => {
                self.handshakes.push_back((now_monotonic().plus(HANDSHAKE_TIME_MAX), key));
                let begun = acceptor.accept(stream).inspect_err(|_| self.fronts.close(key));
                Stream::Tls(Box::new(begun.map_err(|error| error.to_string())?))
            }
        };
        self.next_key += 1;
        self.sockets.insert(key, Socket { stream, watched: Some(Interest::Read), is_new: true });
        Ok(())
    }

    /// A connection's socket is ready.
    pub fn on_ready(&mut self, event: Event) {
        let key = ConnectionKey(event.key);
        self.fronts.touch(key);
        if event.readable || event.error {
            self.read(key);
        }
    }

    fn read(&mut self, key: ConnectionKey) {
        let Some(socket) = self.sockets.get_mut(&key) else { return };
        if !self.fronts.admits(key) {
            // It was ready before the others took the room; it is watched no more from the end of this turn.
            return;
        }
        let called = now_realtime();
        let is_handshaking = socket.stream.is_handshaking();
        match socket.stream.read(&mut self.buffer) {
            Ok(0) if is_handshaking => {
                self.handshake_failed(key, "it ended within the TLS handshake".to_owned());
            }
            Ok(0) => self.fronts.on_input_end(key),
            Ok(_) if socket.is_new && self.buffer[0] == TLS_HANDSHAKE => self.refuse_tls(key),
            Ok(count) => {
                socket.is_new = false;
                self.fronts.on_bytes(called, key, &self.buffer[..count]);
                if socket.stream.has_ended() {
                    self.fronts.on_input_end(key);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) if is_handshaking => {
                self.handshake_failed(key, TlsStream::fault_of_client(&error));
            }
            Err(_) => self.drop_connection(key),
        }
    }

    /// A client speaks TLS where commands are expected, and would wait for an answer that never comes.
    fn refuse_tls(&mut self, key: ConnectionKey) {
        let text = "this port speaks no TLS";
        if let Some(socket) = self.sockets.get_mut(&key) {
            let _ = socket.stream.write(format!("-ERR scotfree: {text}\r\n").as_bytes());
        }
        self.turned_away(format!("{text}, as the client does"));
        self.drop_connection(key);
    }

    /// Sends what the clients are to be told, and says what to watch. True if that made room for commands
    /// which had arrived: their requests are to be submitted.
    pub fn send(&mut self, poller: &Poller) -> bool {
        self.start_tunnels(poller);
        let mut resumed = false;
        for key in self.fronts.take_touched() {
            self.fronts.count_input(key);
            let Some(socket) = self.sockets.get_mut(&key) else { continue };
            let Some(front) = self.fronts.front_mut(key) else { continue };
            let was_full = !front.wants_input();
            if !write(&mut socket.stream, front) {
                self.drop_connection(key);
                continue;
            }
            if was_full && front.wants_input() {
                self.fronts.resume(now_realtime(), key);
                resumed = true;
                continue;
            }
            let goes_on = match self.fronts.wish(key) {
                // What it was told last is still to be sent.
                Wish::Close if socket.stream.wants_write() => watch(poller, key, socket, false, true).is_ok(),
                Wish::Close => false,
                Wish::Wait { to_read, to_write } => watch(poller, key, socket, to_read, to_write).is_ok(),
            };
            if !goes_on {
                self.drop_connection(key);
            }
        }
        resumed | self.fronts.make_room(now_realtime())
    }

    fn drop_connection(&mut self, key: ConnectionKey) {
        self.sockets.remove(&key);
        self.fronts.close(key);
    }

    fn start_tunnels(&mut self, poller: &Poller) {
        for asked in self.fronts.take_tunnels() {
            let key = asked.key;
            self.start_tunnel(asked, poller);
            self.drop_connection(key);
        }
    }

    fn start_tunnel(&mut self, asked: TunnelAsked, poller: &Poller) {
        let TunnelAsked { key, setup, setup_replies, bytes } = asked;
        let Some(mut socket) = self.sockets.remove(&key) else { return };
        let replies = self.fronts.front_mut(key).map_or_else(Vec::new, |front| front.output().to_vec());
        // Relaxed: only this thread adds, so the limit holds.
        let open = self.tunnels.open.load(Ordering::Relaxed);
        if open >= self.limits.tunnels_max {
            self.tunnels_refused += 1;
            let text = format!(
                "-ERR scotfree: {open} connections are tunnels already, which is tunnels_max; raise it\r\n"
            );
            let _ = socket.stream.write(&[&replies, text.as_bytes()].concat());
            return;
        }
        // The poller must not report a connection that a tunnel's thread has taken over.
        if socket.watched.is_some() {
            let _ = poller.remove(socket.stream.as_raw_fd());
        }
        let (client, server) = (socket.stream, self.limits.tunnel);
        let cluster_key = self.limits.cluster_key.get();
        let start = TunnelStart { client, server, cluster_key, setup, setup_replies, bytes, replies };
        let (tunnels, notices) = (Arc::clone(&self.tunnels), self.notices.clone());
        tunnels.open.fetch_add(1, Ordering::Relaxed);
        let spawned = tunnel::spawn(move || {
            if let Err(error) = start.run(&tunnels.ending) {
                notices.say(&format!("a tunnel ended: {error}"));
            }
            tunnels.open.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.tunnels.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes all connections and tunnels.
    pub fn close_all(&mut self) {
        self.tunnels.ending.say();
        self.sockets.clear();
        self.fronts.close_all();
    }

    pub fn write_metrics(&self, text: &mut MetricsText) {
        self.fronts.write_metrics(text);
        // Relaxed: a gauge.
        text.gauge("scotfree_tunnels_open", "Tunnels open now", self.tunnels.open.load(Ordering::Relaxed));
        for (name, help, value) in [
            ("connections_total", "Client connections accepted", self.accepted),
            ("connections_refused_total", "Client connections turned away", self.refused),
            ("tunnels_refused_total", "Tunnels refused at their limit", self.tunnels_refused),
            (
                "handshakes_failed_total",
                "Of clients turned away, those with whom TLS failed",
                self.handshakes_failed,
            ),
        ] {
            text.counter(&format!("scotfree_front_{name}"), help, value);
        }
    }
}

/// IDs begin where neither the server's nor those of other sidecars are likely to be, and stay below 2^53,
/// beyond which some clients' numbers are not exact.
fn id_base() -> u64 {
    let random = getrandom::u32().unwrap_or_else(|_| now_realtime().0 as u32);
    (1 << 52) + (u64::from(random >> 12) << 32)
}

/// Sends what it takes; false if the connection is broken.
fn write(stream: &mut Stream, front: &mut ClientFront) -> bool {
    while !front.output().is_empty() {
        match stream.write(front.output()) {
            Ok(count) => front.sent(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    stream.flush().is_ok()
}

fn watch(
    poller: &Poller,
    key: ConnectionKey,
    socket: &mut Socket,
    to_read: bool,
    to_write: bool,
) -> io::Result<()> {
    let wanted = match (to_read, to_write || socket.stream.wants_write()) {
        (true, false) => Some(Interest::Read),
        (false, true) => Some(Interest::Write),
        (true, true) => Some(Interest::ReadWrite),
        (false, false) => None,
    };
    if wanted == socket.watched {
        return Ok(());
    }
    let fd = socket.stream.as_raw_fd();
    match (socket.watched, wanted) {
        (None, Some(interest)) => poller.add(fd, key.0, interest)?,
        (Some(_), Some(interest)) => poller.modify(fd, key.0, interest)?,
        (_, None) => poller.remove(fd)?,
    }
    socket.watched = wanted;
    Ok(())
}
