//! `scot peer`: keeps the logs of proxies in memory, so that what they have answered outlasts the Redis' host.
//!
//! Invariant: bounded memory: records as told, and for each connection a message, a piece and what it has not read.
//! Nobody who lacks the cluster's key changes or reads anything.

use crate::notices::Notices;
use crate::server::SidecarError;
use scotfree_core::Nanos;
use scotfree_io::{now_monotonic, Event, Interest, Poller};
pub use scotfree_proxy::peers::KeeperConfig;
use scotfree_proxy::peers::{Channel, FromKeeper, Held, Incarnation, Keeper, LogName, ToKeeper};
use scotfree_rpc::metrics::{Health, MetricsBoard, MetricsText};
use scotfree_rpc::{SharedKey, Stop};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How many connections there are at most.
const CONNECTIONS_MAX: usize = 256;
/// How long a connection may take to show that it has the key.
const OPENING_TIME_MAX: Nanos = Nanos::from_secs(5);
/// How often it is looked who is too slow, and metrics are published.
const LOOK_INTERVAL: Nanos = Nanos::from_millis(250);
/// How much is read at once.
const PIECE_BYTES: usize = 64 << 10;
/// How often in a row one connection is read before others have their turn.
const READS_MAX: usize = 32;
/// How many descriptors one wait reports.
const EVENTS_MAX: usize = 256;
const STOP_KEY: u64 = 0;
const LISTENER_KEY: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// What a peer is told at its start.
#[derive(Debug, Clone)]
pub struct PeerConfig {
    /// Where proxies connect.
    pub listen: SocketAddr,
    /// The secret that the cluster shares.
    pub key: SharedKey,
    /// What it may keep.
    pub keeper: KeeperConfig,
    /// Where lines for the operator go.
    pub notices: Notices,
}

struct Connection {
    stream: TcpStream,
    channel: Channel,
    /// Whose log.
    name: Option<LogName>,
    /// What it was told last.
    told: Option<Held>,
    since: Nanos,
    /// It has said something that only who has the key can say.
    is_proven: bool,
    /// It has taken its log over since this was asked last.
    has_taken_over: bool,
    waits_to_write: bool,
}

/// The loop and what it owns.
pub struct Peer {
    listener: TcpListener,
    poller: Poller,
    incarnation: Incarnation,
    key: SharedKey,
    keeper: Keeper,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    accepts: bool,
    notices: Notices,
    look_at: Nanos,
    ended_badly: u64,
    piece: Box<[u8]>,
}

impl Peer {
    /// Listens.
    pub fn start(config: &PeerConfig) -> Result<Peer, SidecarError> {
        let address = config.listen;
        let listener = TcpListener::bind(address).map_err(|error| SidecarError::Listen {
            address,
            what: "proxies",
            error,
        })?;
        listener.set_nonblocking(true)?;
        let poller = Poller::new(EVENTS_MAX)?;
        poller.add(listener.as_raw_fd(), LISTENER_KEY, Interest::Read)?;
        let mut incarnation = Incarnation::default();
        getrandom::fill(&mut incarnation).map_err(SidecarError::Random)?;
        Ok(Peer {
            listener,
            poller,
            incarnation,
            key: config.key.clone(),
            keeper: Keeper::new(config.keeper.clone()),
            connections: BTreeMap::new(),
            next: FIRST_CONNECTION,
            accepts: true,
            notices: config.notices.clone(),
            look_at: Nanos(0),
            ended_badly: 0,
            piece: vec![0; PIECE_BYTES].into(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until somebody asks to stop.
    pub fn run(&mut self, stop: &Stop, board: Option<&MetricsBoard>) -> Result<(), SidecarError> {
        self.poller.add(stop.poll_fd(), STOP_KEY, Interest::Read)?;
        let mut text = MetricsText::new();
        while !stop.is_stopped() {
            let now = now_monotonic();
            if now >= self.look_at {
                self.look_at = now.plus(LOOK_INTERVAL);
                self.end_slow_openings(now);
                if let Some(board) = board {
                    self.publish(board, &mut text);
                }
            }
            let time = Duration::from_nanos(self.look_at.since(now).0);
            for event in self.poller.wait(Some(time))?.to_vec() {
                match event.key {
                    STOP_KEY => {}
                    LISTENER_KEY => self.accept(now)?,
                    _ => self.serve(event),
                }
            }
        }
        if self.keeper.bytes() > 0 {
            self.notices.alarm(&format!(
                "ends with {} bytes of {} logs that are in no Redis' files yet: their proxies go on without this peer",
                self.keeper.bytes(),
                self.keeper.len()
            ));
        }
        Ok(())
    }

    fn accept(&mut self, now: Nanos) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // Who cannot be set up is gone already.
                    let _ = self.take(stream, now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It was gone before it was accepted, or there are no descriptors left.
                Err(error) => {
                    self.notices.alarm(&format!("a connection was not accepted: {error} (ulimit -n?)"));
                    self.poller.remove(self.listener.as_raw_fd())?;
                    self.accepts = false;
                    return Ok(());
                }
            }
        }
    }

    fn take(&mut self, stream: TcpStream, now: Nanos) -> io::Result<()> {
        if self.connections.len() >= CONNECTIONS_MAX {
            self.notices.alarm(&format!("a connection was refused: there are {CONNECTIONS_MAX}"));
            return Ok(());
        }
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut fresh = [0; 8];
        getrandom::fill(&mut fresh).map_err(|error| io::Error::other(error.to_string()))?;
        self.poller.add(stream.as_raw_fd(), self.next, Interest::Read)?;
        let channel = Channel::of_keeper(self.key.get(), self.incarnation, fresh);
        let connection = Connection {
            stream,
            channel,
            name: None,
            told: None,
            since: now,
            is_proven: false,
            has_taken_over: false,
            waits_to_write: false,
        };
        self.connections.insert(self.next, connection);
        self.next += 1;
        Ok(())
    }

    fn serve(&mut self, event: Event) {
        let Some(connection) = self.connections.get_mut(&event.key) else { return };
        let sent = connection
            .flush()
            .and_then(|()| connection.hear(event.key, &mut self.keeper, &mut self.piece))
            .and_then(|()| connection.flush());
        match sent {
            Ok(()) => {
                let taken_over = std::mem::take(&mut connection.has_taken_over).then_some(connection.name);
                let waits = !connection.channel.to_send().is_empty();
                if waits != connection.waits_to_write {
                    connection.waits_to_write = waits;
                    // Who does not read what it asked for is not listened to meanwhile.
                    let interest = if waits { Interest::Write } else { Interest::Read };
                    if self.poller.modify(connection.stream.as_raw_fd(), event.key, interest).is_err() {
                        self.connections.remove(&event.key);
                    }
                }
                // Whoever had the log before is a proxy that is gone, or that should be.
                if let Some(name) = taken_over {
                    self.connections.retain(|key, other| *key == event.key || other.name != name);
                }
            }
            Err(reason) => {
                if !reason.is_empty() {
                    self.ended_badly += 1;
                    let who =
                        connection.stream.peer_addr().map_or_else(|_| "?".to_owned(), |who| who.to_string());
                    self.notices.alarm(&format!("the connection with {who} has ended: {reason}"));
                }
                self.connections.remove(&event.key);
                self.accept_again();
            }
        }
    }

    fn accept_again(&mut self) {
        if !self.accepts {
            self.accepts = self.poller.add(self.listener.as_raw_fd(), LISTENER_KEY, Interest::Read).is_ok();
        }
    }

    fn end_slow_openings(&mut self, now: Nanos) {
        let before = self.connections.len();
        self.connections
            .retain(|_, connection| connection.is_proven || now.since(connection.since) < OPENING_TIME_MAX);
        if self.connections.len() < before || !self.accepts {
            self.accept_again();
        }
    }

    fn publish(&self, board: &MetricsBoard, text: &mut MetricsText) {
        text.clear();
        let counters = self.keeper.counters();
        text.gauge("scotfree_peer_connections", "Connections of proxies", self.connections.len());
        text.gauge("scotfree_peer_logs", "Logs kept", self.keeper.len());
        text.gauge("scotfree_peer_log_bytes", "What their records take", self.keeper.bytes());
        for (name, help, value) in [
            ("records_total", "Records stored", counters.stored),
            ("logs_begun_total", "Logs begun", counters.begun),
            ("refused_total", "Requests refused", counters.refused),
            ("connections_ended_total", "Connections that ended with an error", self.ended_badly),
        ] {
            text.counter(&format!("scotfree_peer_{name}"), help, value);
        }
        board.publish(text, Health::Serving);
    }
}

impl Connection {
    /// Reads and does what is there; the reason why it is over, empty if the other end has closed in order.
    fn hear(&mut self, number: u64, keeper: &mut Keeper, piece: &mut [u8]) -> Result<(), String> {
        if !self.channel.to_send().is_empty() {
            return Ok(());
        }
        for _ in 0..READS_MAX {
            let count = match self.stream.read(piece) {
                Ok(0) => return Err(String::new()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            self.channel.receive(&piece[..count]);
            self.take_messages(number, keeper)?;
            if count < piece.len() {
                break;
            }
        }
        self.tell(keeper);
        Ok(())
    }

    fn take_messages(&mut self, number: u64, keeper: &mut Keeper) -> Result<(), String> {
        loop {
            let mut said = Vec::new();
            let mut is_over = None;
            {
                let Some(message) = self.channel.next_message().map_err(|error| error.to_string())? else {
                    break;
                };
                let message = ToKeeper::read(message).map_err(|error| error.to_string())?;
                let Some(name) = self.name else {
                    return Err("it says something before its name".to_owned());
                };
                self.is_proven = true;
                self.has_taken_over |= matches!(message, ToKeeper::Begin(_) | ToKeeper::Resume(_));
                keeper.take(&name, number, &message, &mut |answer| {
                    if let FromKeeper::Refused(text) = answer {
                        is_over = Some((*text).to_owned());
                    }
                    let mut bytes = Vec::new();
                    answer.write(&mut bytes);
                    said.push(bytes);
                });
            }
            for bytes in said {
                self.channel.say(&mut |out| out.extend_from_slice(&bytes));
            }
            if let Some(text) = is_over {
                // It is told why, if it still listens.
                let _ = self.flush();
                return Err(text);
            }
        }
        if let Some(opened) = self.channel.opened().filter(|_| self.name.is_none()) {
            self.name = Some(opened.name);
            let held = keeper.held(&opened.name);
            self.told = held;
            self.channel.say(&mut |out| FromKeeper::State(held).write(out));
        }
        Ok(())
    }

    /// Says how far the log is, once for all that came together.
    fn tell(&mut self, keeper: &Keeper) {
        let held = self.name.and_then(|name| keeper.held(&name));
        let is_news = |held: &Held| self.told.is_none_or(|told| told != *held);
        if let Some(held) = held.filter(is_news) {
            self.told = Some(held);
            self.channel.say(&mut |out| FromKeeper::Stored(held.stored, held.trimmed).write(out));
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        flush(&mut self.stream, &mut self.channel).map_err(|error| error.to_string())
    }
}

/// Sends what waits, as far as the socket takes it.
pub(crate) fn flush(stream: &mut TcpStream, channel: &mut Channel) -> io::Result<()> {
    while !channel.to_send().is_empty() {
        match stream.write(channel.to_send()) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => channel.sent(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
