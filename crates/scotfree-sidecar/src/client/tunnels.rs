//! Connections to the server that are a client's own: tunnels of fronts, which hear what comes back, and of whole
//! clients, whose sockets they have.
//!
//! Invariant: what a client sends through a tunnel is sent on in the turn in which it came, before anything that came
//! later on another connection; what cannot be is held, and its client is not read meanwhile.

use super::mask::{leads_to_messages, Mask};
use super::sessions::ConnectionKey;
use crate::notices::Notices;
use crate::redis::RedisServer;
use crate::seldom::Seldom;
use crate::stream::Stream;
use crate::tunnel::{
    connect, connect_server, interest, is_over, receive, send, spawn, Direction, Pass, SkipReplies,
};
use scotfree_io::{now_monotonic, Event, Interest, Poller, Waker};
use scotfree_resp::codec::error_reply;
use scotfree_resp::front::clients::{is_replication, named_by, with_server_ids, Facts};
use scotfree_rpc::SharedKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

/// How many connections to a server on this host are kept for tunnels to come.
const READY_MAX: usize = 8;
const READ_BYTES: usize = 64 << 10;

/// A connection to the server, and its number there, if it is known.
type ServerEnd = (Stream, Option<i64>);

/// Where tunnels lead to.
#[derive(Debug, Clone)]
pub enum TunnelWay {
    /// To a server's sidecar.
    Sidecar(SocketAddr, SharedKey),
    /// To the server, which is on this host.
    Server(RedisServer),
}

impl TunnelWay {
    fn connect(&self) -> io::Result<ServerEnd> {
        match self {
            TunnelWay::Sidecar(address, key) => Ok((connect(*address, &key.get())?, None)),
            TunnelWay::Server(redis) => connect_server(redis),
        }
    }
}

impl std::fmt::Display for TunnelWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TunnelWay::Sidecar(address, _) => write!(f, "{address}"),
            TunnelWay::Server(redis) => write!(f, "{redis}"),
        }
    }
}

/// A connection that is to become a tunnel.
pub(super) struct TunnelStart {
    pub key: ConnectionKey,
    /// The client's socket; none if a front has it.
    pub client: Option<Stream>,
    /// What brings a new connection to the server into the state of the client's.
    pub setup: Vec<u8>,
    /// How many of the replies to that are dropped.
    pub setup_replies: usize,
    /// The client's bytes that have arrived already.
    pub bytes: Vec<u8>,
    /// Replies from before that the client has not been sent yet.
    pub replies: Vec<u8>,
    /// What is known of the client.
    pub facts: Facts,
}

struct Tunnel {
    /// None: a front takes what is for the client.
    client: Option<Stream>,
    /// Its front needs it at present.
    is_busy: bool,
    server: Option<Stream>,
    /// The poller's key of its connection to the server.
    server_key: u64,
    to_server: Direction,
    to_client: Direction,
    /// The client's bytes that wait until the setup is answered.
    later: Vec<u8>,
    /// Commands of its front that wait until the server's number of a connection that the first one names is known.
    unnamed: VecDeque<Vec<u8>>,
    skip: SkipReplies,
    /// Its client may be told of keys.
    mask: Option<Mask>,
    pass: Pass,
    facts: Facts,
    watched: [Option<Interest>; 2],
}

/// Connections that threads have made, for a tunnel or for those to come.
struct Made {
    list: Mutex<Vec<(Option<ConnectionKey>, io::Result<ServerEnd>)>>,
    waker: Waker,
}

/// All tunnels of the client's end.
pub(super) struct Tunnels {
    way: TunnelWay,
    reserved_db: u16,
    open: BTreeMap<ConnectionKey, Tunnel>,
    by_server_key: BTreeMap<u64, ConnectionKey>,
    touched: BTreeSet<ConnectionKey>,
    /// Those that have something for their fronts.
    spoken: BTreeSet<ConnectionKey>,
    /// Those whose commands wait for the number of another.
    unnamed: BTreeSet<ConnectionKey>,
    ready: VecDeque<ServerEnd>,
    /// How many are being made for tunnels to come.
    filling: usize,
    made: Arc<Made>,
    made_key: u64,
    is_watched: bool,
    buffer: Vec<u8>,
    notices: Notices,
    endings: Seldom,
    last_ending: String,
    /// How many tunnels have ended, and how many of them never were any.
    pub ended: u64,
    pub failed: u64,
}

impl Tunnels {
    /// None yet; `made_key` is the poller's key by which they hear of connections.
    pub fn new(way: TunnelWay, reserved_db: u16, notices: Notices, made_key: u64) -> io::Result<Tunnels> {
        let made = Made { list: Mutex::default(), waker: Waker::new()? };
        let mut tunnels = Tunnels {
            way,
            reserved_db,
            open: BTreeMap::new(),
            by_server_key: BTreeMap::new(),
            touched: BTreeSet::new(),
            spoken: BTreeSet::new(),
            unnamed: BTreeSet::new(),
            ready: VecDeque::new(),
            filling: 0,
            made: Arc::new(made),
            made_key,
            is_watched: false,
            buffer: vec![0; READ_BYTES],
            notices,
            endings: Seldom::default(),
            last_ending: String::new(),
            ended: 0,
            failed: 0,
        };
        tunnels.fill();
        Ok(tunnels)
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// What is known of each tunnel's client, and of its connection to the server the number there.
    pub fn facts(&self) -> impl Iterator<Item = (ConnectionKey, &Facts, Option<i64>)> {
        let busy = self.open.iter().filter(|(_, tunnel)| tunnel.is_busy);
        busy.map(|(key, tunnel)| (*key, &tunnel.facts, tunnel.skip.number))
    }

    /// Goes on with a tunnel that rested; what is to begin, if there is none.
    pub fn go_on(&mut self, start: TunnelStart) -> Option<TunnelStart> {
        let Some(tunnel) = self.open.get_mut(&start.key).filter(|_| start.client.is_none()) else {
            return Some(start);
        };
        tunnel.is_busy = true;
        tunnel.facts = start.facts;
        tunnel.skip.skip_more(start.setup_replies);
        tunnel.to_server.waiting.extend_from_slice(&start.setup);
        self.pass(start.key, &start.bytes);
        None
    }

    /// A front's commands for the server.
    pub fn pass(&mut self, key: ConnectionKey, bytes: &[u8]) {
        let named = self.named_by(bytes);
        let Some(tunnel) = self.open.get_mut(&key) else { return };
        if !tunnel.unnamed.is_empty() || matches!(named, Some(Number::Comes)) {
            tunnel.unnamed.push_back(bytes.to_vec());
            self.unnamed.insert(key);
            return;
        }
        let mut commands = Vec::new();
        tunnel.rewrite(bytes, named, &mut commands);
        tunnel.to_server.waiting.extend_from_slice(&commands);
        self.pump(key);
    }

    /// Sends what waited for the number of a connection that is known now, or never will be.
    fn pass_named(&mut self) {
        for key in std::mem::take(&mut self.unnamed) {
            let tunnel = self.open.get_mut(&key);
            let waiting = tunnel.map(|tunnel| std::mem::take(&mut tunnel.unnamed)).unwrap_or_default();
            for bytes in &waiting {
                self.pass(key, bytes);
            }
        }
    }

    /// What is known of the connection to the server that the first of the commands names.
    fn named_by(&self, commands: &[u8]) -> Option<Number> {
        let id = named_by(commands)?;
        let tunnel = self.open.values().find(|tunnel| tunnel.facts.id == id)?;
        tunnel.number()
    }

    /// A front needs its tunnel no longer, and may again.
    pub fn rest(&mut self, key: ConnectionKey) {
        if let Some(tunnel) = self.open.get_mut(&key) {
            tunnel.is_busy = false;
        }
    }

    /// The first one whose front does not need it at present.
    pub fn first_resting(&self) -> Option<ConnectionKey> {
        self.open.iter().find(|(_, tunnel)| !tunnel.is_busy).map(|(key, _)| *key)
    }

    /// Those that have something for their fronts.
    pub fn spoken(&self) -> Vec<ConnectionKey> {
        self.spoken.iter().copied().collect()
    }

    /// What the server has sent for a front, and whether it is the last.
    pub fn take_spoken(&mut self, key: ConnectionKey) -> (Vec<u8>, bool) {
        self.spoken.remove(&key);
        let Some(tunnel) = self.open.get_mut(&key) else { return (Vec::new(), true) };
        let (bytes, ended) = (std::mem::take(&mut tunnel.to_client.waiting), tunnel.to_client.ended);
        if ended {
            self.end(key, None);
        } else {
            // There is room to read more.
            self.touched.insert(key);
        }
        (bytes, ended)
    }

    /// Begins a tunnel; `server_key` is the poller's key of its connection to the server.
    pub fn start(&mut self, start: TunnelStart, server_key: u64) {
        let mut tunnel = Tunnel {
            client: start.client,
            is_busy: true,
            server: None,
            server_key,
            to_server: Direction { waiting: start.setup, ended: false },
            to_client: Direction { waiting: start.replies, ended: false },
            later: Vec::new(),
            unnamed: VecDeque::new(),
            skip: SkipReplies::new(start.setup_replies),
            // One that only another's command has made is told what that one tracks.
            mask: start.bytes.is_empty().then(Mask::default),
            pass: Pass::new(self.reserved_db),
            facts: start.facts,
            watched: [None, None],
        };
        let is_whole = tunnel.client.is_some();
        if is_whole {
            let mut commands = Vec::new();
            tunnel.rewrite(&start.bytes, None, &mut commands);
            // A server starts no replication where replies wait.
            let replicates = is_replication(&commands);
            let out = if replicates { &mut tunnel.later } else { &mut tunnel.to_server.waiting };
            out.append(&mut commands);
        }
        let key = start.key;
        let ready = self.take_ready();
        self.open.insert(key, tunnel);
        if !is_whole {
            self.pass(key, &start.bytes);
        }
        if let Some(end) = ready {
            self.connected(key, end);
        } else {
            self.make(Some(key));
            self.pump(key);
        }
    }

    // ---- connections to the server

    fn take_ready(&mut self) -> Option<ServerEnd> {
        let mut found = None;
        while let Some((mut stream, number)) = self.ready.pop_front() {
            // One that was closed meanwhile has something to say.
            let silent = stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            if silent {
                found = Some((stream, number));
                break;
            }
        }
        self.fill();
        found
    }

    /// The server was lost: those that are kept for tunnels to come may lead to another by now, and what was written
    /// through those of fronts may be lost, before the last of them has noticed.
    pub fn forget_ready(&mut self) {
        let of_fronts = self.open.iter_mut().filter(|(_, tunnel)| tunnel.client.is_none());
        for (key, tunnel) in of_fronts {
            tunnel.to_client.ended = true;
            self.spoken.insert(*key);
        }
        self.ready.clear();
        self.fill();
    }

    fn fill(&mut self) {
        if matches!(self.way, TunnelWay::Sidecar(..)) {
            return;
        }
        while self.ready.len() + self.filling < READY_MAX {
            self.filling += 1;
            self.make(None);
        }
    }

    fn make(&mut self, key: Option<ConnectionKey>) {
        let (way, made) = (self.way.clone(), Arc::clone(&self.made));
        let spawned = spawn(move || {
            let result = way.connect();
            made.list.lock().unwrap_or_else(PoisonError::into_inner).push((key, result));
            made.waker.wake();
        });
        if let Err(error) = spawned {
            self.made.list.lock().unwrap_or_else(PoisonError::into_inner).push((key, Err(error)));
            self.made.waker.wake();
        }
    }

    fn take_made(&mut self) {
        self.made.waker.drain();
        let made = std::mem::take(&mut *self.made.list.lock().unwrap_or_else(PoisonError::into_inner));
        for (key, result) in made {
            match (key, result) {
                (None, result) => {
                    self.filling -= 1;
                    // If it could not be made, the next tunnel tries.
                    self.ready.extend(result.ok());
                }
                (Some(key), Ok(end)) => self.connected(key, end),
                (Some(key), Err(error)) => self.not_connected(key, &error),
            }
        }
    }

    fn connected(&mut self, key: ConnectionKey, (stream, number): ServerEnd) {
        let Some(tunnel) = self.open.get_mut(&key) else { return };
        tunnel.server = Some(stream);
        tunnel.skip.number = number;
        self.by_server_key.insert(tunnel.server_key, key);
        self.pump(key);
        self.pass_named();
    }

    fn not_connected(&mut self, key: ConnectionKey, error: &io::Error) {
        self.failed += 1;
        self.tell(error);
        let Some(tunnel) = self.open.get_mut(&key) else { return };
        let text = format!("ERR scotfree: no tunnel to {}: {error}", self.way);
        tunnel.to_client.waiting.extend_from_slice(&error_reply(&text));
        tunnel.to_client.ended = true;
        self.pump(key);
    }

    // ---- bytes

    /// Whether an event of the poller is of a tunnel; if so, it is dealt with.
    pub fn on_ready(&mut self, event: Event) -> bool {
        if event.key == self.made_key {
            self.take_made();
            return true;
        }
        let by_server = self.by_server_key.get(&event.key).copied();
        let key = by_server.unwrap_or(ConnectionKey(event.key));
        // A front hears its client itself.
        if !self.open.get(&key).is_some_and(|tunnel| by_server.is_some() || tunnel.client.is_some()) {
            return false;
        }
        let heard = match (event.readable || event.error, by_server) {
            (false, _) => Ok(()),
            (true, None) => self.hear_client(key),
            (true, Some(_)) => self.hear_server(key),
        };
        match heard {
            Ok(()) => self.pump(key),
            Err(error) => self.fail(key, &error),
        }
        true
    }

    fn hear_client(&mut self, key: ConnectionKey) -> io::Result<()> {
        let Some(tunnel) = self.open.get_mut(&key) else { return Ok(()) };
        let Some(client) = &mut tunnel.client else { return Ok(()) };
        if let Some(bytes) = receive(client, &mut self.buffer, &mut tunnel.to_server)? {
            let mut commands = Vec::new();
            tunnel.rewrite(bytes, None, &mut commands);
            let out = if tunnel.later.is_empty() { &mut tunnel.to_server.waiting } else { &mut tunnel.later };
            out.append(&mut commands);
        }
        Ok(())
    }

    fn hear_server(&mut self, key: ConnectionKey) -> io::Result<()> {
        let Some(tunnel) = self.open.get_mut(&key) else { return Ok(()) };
        let Some(server) = &mut tunnel.server else { return Ok(()) };
        if let Some(bytes) = receive(server, &mut self.buffer, &mut tunnel.to_client)? {
            let mut passed = Vec::new();
            tunnel.skip.pass(bytes, &mut passed)?;
            let out = &mut tunnel.to_client.waiting;
            let is_masked = tunnel.mask.as_mut().map(|mask| mask.pass(&passed, out));
            match is_masked {
                None => out.append(&mut passed),
                Some(true) => {}
                Some(false) => tunnel.mask = None,
            }
        }
        if tunnel.skip.left == 0 {
            tunnel.to_server.waiting.append(&mut tunnel.later);
            self.pass_named();
        }
        Ok(())
    }

    /// Sends what can be sent, and ends what is over.
    fn pump(&mut self, key: ConnectionKey) {
        let Some(tunnel) = self.open.get_mut(&key) else { return };
        let sent = tunnel.send();
        if tunnel.client.is_none() && (tunnel.to_client.ended || !tunnel.to_client.waiting.is_empty()) {
            self.spoken.insert(key);
        }
        match sent {
            Ok(true) => _ = self.touched.insert(key),
            Ok(false) => self.end(key, None),
            Err(error) => self.fail(key, &error),
        }
    }

    /// A side of a tunnel is broken.
    fn fail(&mut self, key: ConnectionKey, error: &io::Error) {
        match self.open.get_mut(&key).filter(|tunnel| tunnel.client.is_none()) {
            Some(tunnel) => {
                tunnel.to_client.ended = true;
                self.spoken.insert(key);
            }
            None => self.end(key, Some(error)),
        }
    }

    /// Closes the tunnel of a client.
    pub fn end(&mut self, key: ConnectionKey, error: Option<&io::Error>) {
        let Some(tunnel) = self.open.remove(&key) else { return };
        self.by_server_key.remove(&tunnel.server_key);
        self.spoken.remove(&key);
        self.pass_named();
        self.ended += 1;
        // A client that is gone is nothing to be told.
        if let Some(error) = error.filter(|error| error.kind() != ErrorKind::ConnectionReset) {
            self.tell(error);
        }
    }

    /// A server that is lost ends many at once.
    fn tell(&mut self, error: &io::Error) {
        self.endings.happened(1);
        self.last_ending = error.to_string();
    }

    fn say_endings(&mut self) {
        if let Some(count) = self.endings.due(now_monotonic()) {
            let tunnels = if count == 1 { "a tunnel".to_owned() } else { format!("{count} tunnels") };
            self.notices.say(&format!("{tunnels} ended: {}", self.last_ending));
        }
    }

    /// Says what is to be watched from now on.
    pub fn watch(&mut self, poller: &Poller) {
        self.say_endings();
        if !self.is_watched {
            self.is_watched = poller.add(self.made.waker.as_raw_fd(), self.made_key, Interest::Read).is_ok();
        }
        for key in std::mem::take(&mut self.touched) {
            let watched = self.open.get_mut(&key).map(|tunnel| tunnel.watch(key, poller));
            if let Some(Err(error)) = watched {
                self.end(key, Some(&error));
            }
        }
    }

    /// Closes all.
    pub fn clear(&mut self) {
        self.open.clear();
        self.by_server_key.clear();
        self.spoken.clear();
        self.unnamed.clear();
        self.ready.clear();
    }
}

/// What the server calls a connection.
#[derive(Clone, Copy)]
enum Number {
    Is(i64),
    /// It will say so.
    Comes,
}

impl Tunnel {
    /// None: the server never told, or is lost.
    fn number(&self) -> Option<Number> {
        let comes = !self.to_client.ended && (self.server.is_none() || self.skip.left > 0);
        self.skip.number.map(Number::Is).or(comes.then_some(Number::Comes))
    }

    /// The client's commands, with the server's number of a connection in the place of ours, if the first one names one.
    /// What cannot be read the client is told, and the tunnel ends.
    fn rewrite(&mut self, bytes: &[u8], named: Option<Number>, out: &mut Vec<u8>) {
        let mask = &mut self.mask;
        let passed = self.pass.pass_with(bytes, out, |args| {
            if leads_to_messages(args) {
                mask.get_or_insert_with(Mask::default);
            }
            let Some(Number::Is(number)) = named else { return None };
            with_server_ids(args, |_| Some(number))
        });
        if let Err(refusal) = passed {
            self.to_client.waiting.extend_from_slice(&refusal);
            self.to_client.ended = true;
        }
    }

    /// False if it is over.
    fn send(&mut self) -> io::Result<bool> {
        if let Some(server) = &mut self.server {
            send(server, &mut self.to_server)?;
        }
        let Some(client) = &mut self.client else { return Ok(true) };
        send(client, &mut self.to_client)?;
        let server_over = match &self.server {
            Some(server) => is_over(server, &self.to_server),
            None => self.to_server.ended && self.to_server.waiting.is_empty(),
        };
        Ok(!server_over && !is_over(client, &self.to_client))
    }

    fn watch(&mut self, key: ConnectionKey, poller: &Poller) -> io::Result<()> {
        if let Some(client) = &self.client {
            let wanted = interest(client, &self.to_client, &self.to_server);
            set(poller, client.as_raw_fd(), key.0, &mut self.watched[0], wanted)?;
        }
        let Some(server) = &self.server else { return Ok(()) };
        let wanted = interest(server, &self.to_server, &self.to_client);
        set(poller, server.as_raw_fd(), self.server_key, &mut self.watched[1], wanted)
    }
}

fn set(
    poller: &Poller,
    fd: i32,
    key: u64,
    watched: &mut Option<Interest>,
    wanted: Interest,
) -> io::Result<()> {
    match *watched {
        Some(before) if before == wanted => {}
        Some(_) => poller.modify(fd, key, wanted)?,
        None => poller.add(fd, key, wanted)?,
    }
    *watched = Some(wanted);
    Ok(())
}
