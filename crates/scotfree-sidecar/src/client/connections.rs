//! The sockets of client connections: bytes between them and their [`Fronts`], and the threads of tunnels.
//!
//! Invariant: a socket is watched for what its front wishes, and for nothing once a tunnel has it.

use super::fronts::{Fronts, Peer, TunnelAsked, Wish};
use super::sessions::ConnectionKey;
use super::ClientSidecarConfig;
use crate::notices::Notices;
use crate::seldom::Seldom;
use crate::tunnel::{self, Ending, TunnelStart};
use scotfree_core::Nanos;
use scotfree_io::{now_realtime, Event, Interest, Poller};
use scotfree_resp::front::ClientFront;
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{SharedKey, Upstream};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const READ_BYTES: usize = 64 << 10;
/// How many connections one turn accepts.
const ACCEPTS_MAX: usize = 1_024;

struct Socket {
    stream: TcpStream,
    watched: Option<Interest>,
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
                self.refused += 1;
                self.refusals.happened(1);
                self.last_refusal = text;
            }
        }
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
        let refuse = |stream: &mut TcpStream, text: &str| {
            // The client may not read it; it is told nevertheless.
            let _ = stream.write_all(format!("-ERR {text}\r\n").as_bytes());
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
        self.next_key += 1;
        self.sockets.insert(key, Socket { stream, watched: Some(Interest::Read) });
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
        match socket.stream.read(&mut self.buffer) {
            Ok(0) => self.fronts.on_input_end(key),
            Ok(count) => self.fronts.on_bytes(called, key, &self.buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.drop_connection(key),
        }
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
fn write(stream: &mut TcpStream, front: &mut ClientFront) -> bool {
    while !front.output().is_empty() {
        match stream.write(front.output()) {
            Ok(count) => front.sent(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

fn watch(
    poller: &Poller,
    key: ConnectionKey,
    socket: &mut Socket,
    to_read: bool,
    to_write: bool,
) -> io::Result<()> {
    let wanted = match (to_read, to_write) {
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
