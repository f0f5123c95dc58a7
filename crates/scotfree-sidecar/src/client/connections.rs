//! The sockets of client connections: bytes between them and their [`Fronts`], and the threads of tunnels.
//!
//! Invariant: a socket is watched for what its front wishes, and for nothing once a tunnel has it.

use super::fronts::{Fronts, Peer, TunnelAsked, TunnelBegun, Wish};
use super::sessions::ConnectionKey;
use super::tunnels::{TunnelStart, TunnelWay, Tunnels};
use super::ClientSidecarConfig;
use crate::seldom::Seldom;
use crate::stream::Stream;
use crate::tls::{TlsAcceptor, TlsStream};
use scotfree_core::Nanos;
use scotfree_io::{now_monotonic, now_realtime, Event, Interest, Poller};
use scotfree_resp::front::clients::{redirect_of, Outcome, Row};
use scotfree_resp::front::ClientFront;
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::Upstream;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

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
    /// The client is gone, though there may be more to read of it.
    has_ended: bool,
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
    tunnels: Tunnels,
    tunnels_refused: u64,
    /// To which connection each tunnel redirects what it tracks.
    named: BTreeMap<ConnectionKey, u64>,
    limits: Limits,
}

struct Limits {
    connections_max: usize,
    tunnels_max: usize,
}

impl Connections {
    /// The server was lost, and is there again, at another address perhaps.
    pub fn forget_ready_tunnels(&mut self) {
        self.tunnels.forget_ready();
    }

    /// None yet; the poller's keys of sockets begin at `first_key`.
    pub fn new(config: &ClientSidecarConfig, fronts: Fronts, first_key: u64) -> io::Result<Connections> {
        let way = match &config.tunnels_to {
            Some(redis) => TunnelWay::Server(redis.clone()),
            None => TunnelWay::Sidecar(config.tunnel.unwrap_or(config.server), config.cluster_key.clone()),
        };
        let tunnels = Tunnels::new(way, fronts.reserved_db(), config.notices.clone(), first_key)?;
        Ok(Connections {
            fronts,
            sockets: BTreeMap::new(),
            next_key: first_key + 1,
            id_base: id_base(),
            buffer: vec![0; READ_BYTES],
            accepted: 0,
            refused: 0,
            refusals: Seldom::default(),
            last_refusal: String::new(),
            acceptors: config.listeners.iter().map(|listener| listener.tls.clone()).collect(),
            handshakes: VecDeque::new(),
            handshakes_failed: 0,
            tunnels,
            tunnels_refused: 0,
            named: BTreeMap::new(),
            limits: Limits { connections_max: config.connections_max, tunnels_max: config.tunnels_max },
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
        self.sockets
            .insert(key, Socket { stream, watched: Some(Interest::Read), is_new: true, has_ended: false });
        Ok(())
    }

    /// A connection's socket is ready.
    pub fn on_ready(&mut self, event: Event) {
        if self.tunnels.on_ready(event) {
            return;
        }
        let key = ConnectionKey(event.key);
        self.fronts.touch(key);
        let waits_for_end = |socket: &&mut Socket| socket.watched == Some(Interest::End);
        if let Some(socket) = self.sockets.get_mut(&key).filter(waits_for_end) {
            // Who is gone must not be given what it has blocked for; what it has sent behind that is not read.
            socket.has_ended = true;
            self.fronts.on_input_end(key);
        } else if event.readable || event.error {
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
        let mut resumed = self.answer_questions();
        self.start_tunnels(poller);
        resumed |= self.hear_tunnels(poller);
        for key in self.fronts.take_touched() {
            self.fronts.count_input(key);
            let Some(socket) = self.sockets.get_mut(&key) else { continue };
            let Some(front) = self.fronts.front_mut(key) else { continue };
            let (was_full, blocks) = (!front.wants_input(), front.blocks());
            if !write(&mut socket.stream, front) {
                self.drop_connection(key);
                continue;
            }
            if was_full && front.wants_input() {
                self.fronts.resume(now_realtime(), key);
                resumed = true;
                continue;
            }
            let wanted = match self.fronts.wish(key) {
                // What it was told last is still to be sent.
                Wish::Close if socket.stream.wants_write() => Some(Interest::Write),
                Wish::Close => {
                    self.drop_connection(key);
                    continue;
                }
                Wish::Wait { to_read, to_write } => {
                    let ends = blocks && !socket.has_ended;
                    interest(to_read, to_write || socket.stream.wants_write(), ends)
                }
            };
            let goes_on = watch(poller, key, socket, wanted).is_ok();
            if !goes_on {
                self.drop_connection(key);
            }
        }
        self.tunnels.watch(poller);
        // What was sent may have made room for what tunnels have heard: nothing else wakes it.
        let hears = self.tunnels.spoken().into_iter().any(|key| self.takes_tunnel(key));
        resumed | hears | self.fronts.make_room(now_realtime())
    }

    fn drop_connection(&mut self, key: ConnectionKey) {
        self.sockets.remove(&key);
        self.tunnels.end(key, None);
        self.fronts.close(key);
        self.forget_named(key);
    }

    /// Passes on to fronts what their tunnels have heard; true if there was something, which may leave something to be
    /// submitted. Who does not read is told no more.
    fn hear_tunnels(&mut self, poller: &Poller) -> bool {
        let mut any = false;
        for key in self.tunnels.spoken() {
            if !self.takes_tunnel(key) {
                continue;
            }
            let (bytes, ended) = self.tunnels.take_spoken(key);
            self.fronts.on_tunnel(now_realtime(), key, &bytes, ended);
            any = true;
        }
        if any {
            self.start_tunnels(poller);
        }
        any
    }

    fn takes_tunnel(&mut self, key: ConnectionKey) -> bool {
        self.fronts.front_mut(key).is_none_or(|front| front.takes_tunnel())
    }

    /// Has tunnels do what their fronts ask, at once.
    pub fn start_tunnels(&mut self, poller: &Poller) {
        while let Some(asked) = self.fronts.next_tunnel() {
            if let TunnelAsked::Begin(TunnelBegun { key, bytes, .. }) | TunnelAsked::Pass(key, bytes) = &asked
            {
                self.name_tunnel(*key, bytes, poller);
            }
            self.obey(asked, poller);
        }
    }

    /// What a command names must be a connection to the server, too, as long as that is what it redirects to.
    fn name_tunnel(&mut self, key: ConnectionKey, bytes: &[u8], poller: &Poller) {
        let Some(id) = redirect_of(bytes) else { return };
        self.forget_named(key);
        self.named.insert(key, id);
        self.fronts.make_tunnel(id).into_iter().for_each(|other| self.obey(other, poller));
    }

    /// A tunnel redirects nothing any more.
    fn forget_named(&mut self, key: ConnectionKey) {
        let Some(id) = self.named.remove(&key) else { return };
        if !self.named.values().any(|other| *other == id) {
            self.fronts.forget_naming(now_realtime(), id);
        }
    }

    fn obey(&mut self, asked: TunnelAsked, poller: &Poller) {
        match asked {
            TunnelAsked::Begin(begun) => self.start_tunnel(begun, poller),
            TunnelAsked::Pass(key, bytes) => self.tunnels.pass(key, &bytes),
            TunnelAsked::Rest(key) => {
                self.tunnels.rest(key);
                self.forget_named(key);
            }
            TunnelAsked::End(key) => self.tunnels.end(key, None),
        }
    }

    fn start_tunnel(&mut self, asked: TunnelBegun, poller: &Poller) {
        let TunnelBegun { key, setup, setup_replies, bytes, is_whole } = asked;
        let Some(front) = self.fronts.front_mut(key) else { return };
        let facts = front.facts();
        let replies = if is_whole { front.output().to_vec() } else { Vec::new() };
        let client = if is_whole { self.take_socket(key, poller) } else { None };
        let start = TunnelStart { key, client, setup, setup_replies, bytes, replies, facts };
        let Some(start) = self.tunnels.go_on(start) else { return };
        self.make_room_for_tunnel();
        let open = self.tunnels.len();
        if open >= self.limits.tunnels_max {
            self.tunnels_refused += 1;
            let text = format!(
                "-ERR scotfree: {open} connections are tunnels already, which is tunnels_max; raise it\r\n"
            );
            match start.client {
                Some(mut client) => _ = client.write(&[&start.replies, text.as_bytes()].concat()),
                None => self.fronts.on_tunnel(now_realtime(), key, text.as_bytes(), true),
            }
            return;
        }
        let server_key = self.next_key;
        self.next_key += 1;
        self.tunnels.start(start, server_key);
    }

    /// Where no more may be open, one that rests is ended; its front may have another.
    fn make_room_for_tunnel(&mut self) {
        if self.tunnels.len() < self.limits.tunnels_max {
            return;
        }
        if let Some(key) = self.tunnels.first_resting() {
            self.tunnels.end(key, None);
            self.fronts.on_tunnel(now_realtime(), key, b"", true);
        }
    }

    /// The poller's key stays; what it is watched for is the tunnel's affair.
    fn take_socket(&mut self, key: ConnectionKey, poller: &Poller) -> Option<Stream> {
        let socket = self.sockets.remove(&key)?;
        self.fronts.close(key);
        if socket.watched.is_some() {
            let _ = poller.remove(socket.stream.as_raw_fd());
        }
        Some(socket.stream)
    }

    /// Answers questions about the clients; true if there were some, which may leave something to be submitted.
    fn answer_questions(&mut self) -> bool {
        let asked = self.fronts.take_questions();
        for asked in &asked {
            let rows: BTreeMap<ConnectionKey, Row> = self.rows();
            let asker = rows.get(&asked.key).map_or(0, |row| row.facts.id);
            let all: Vec<Row> = rows.values().cloned().collect();
            let now = now_realtime();
            let now_ms = self.fronts.server_time_ms(now);
            let outcome = asked.question.answer(now_ms, asker, &asked.list, &all);
            let hit = match &outcome {
                Outcome::Reply(_, hit) => hit.clone(),
                Outcome::Forward(_) => Vec::new(),
            };
            self.fronts.on_clients(now, asked, outcome, hit.contains(&asker));
            let others = |row: &Row| row.facts.id != asker && hit.contains(&row.facts.id);
            for (key, _) in rows.iter().filter(|(_, row)| others(row)) {
                self.drop_connection(*key);
            }
        }
        !asked.is_empty()
    }

    /// All clients, by their keys, which grow with their numbers.
    fn rows(&self) -> BTreeMap<ConnectionKey, Row> {
        let plain = self.fronts.facts();
        let plain = plain.map(|(key, facts)| (key, Row { facts, server_id: None, is_tunnel: false }));
        let tunnels = self
            .tunnels
            .facts()
            .map(|(key, facts, server_id)| (key, Row { facts: facts.clone(), server_id, is_tunnel: true }));
        plain.chain(tunnels).collect()
    }

    /// Tunnels open now, that have ended, and that never came to the server.
    pub fn tunnel_counts(&self) -> (u64, u64, u64) {
        (self.tunnels.len() as u64, self.tunnels.ended, self.tunnels.failed)
    }

    /// Closes all connections and tunnels.
    pub fn close_all(&mut self) {
        self.tunnels.clear();
        self.named.clear();
        self.sockets.clear();
        self.fronts.close_all();
    }

    pub fn write_metrics(&self, text: &mut MetricsText) {
        self.fronts.write_metrics(text);
        text.gauge("scotfree_tunnels_open", "Tunnels open now", self.tunnels.len());
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

/// `to_end`: even if nothing is to be read, that the client is gone matters.
fn interest(to_read: bool, to_write: bool, to_end: bool) -> Option<Interest> {
    match (to_read, to_write) {
        (true, false) => Some(Interest::Read),
        (false, true) => Some(Interest::Write),
        (true, true) => Some(Interest::ReadWrite),
        (false, false) => to_end.then_some(Interest::End),
    }
}

fn watch(
    poller: &Poller,
    key: ConnectionKey,
    socket: &mut Socket,
    wanted: Option<Interest>,
) -> io::Result<()> {
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
