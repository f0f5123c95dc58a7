//! A proxy's connections to its peers: sockets, reconnecting, and who is told when one is lost.
//!
//! Invariant: nothing here waits, but for the start, which needs one peer's records; a peer that does not take what it
//! is sent, or does not say that it has it, is cut off.

use super::log::{LogName, PeerList};
use crate::notices::Notices;
use crate::peer::flush;
use scotfree_core::{Nanos, SeqNum, SessionId};
use scotfree_io::{now_monotonic, Waker};
use scotfree_proxy::peers::{Channel, ChannelError, Copies, FromKeeper, Held, MessageError, ToKeeper};
use scotfree_proxy::CommitQueue;
use scotfree_rpc::{SharedKey, Stop, Watch};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
/// When it is tried again.
const RETRY_INTERVAL: Nanos = Nanos::from_secs(1);
/// How long a peer may take to say that it has something.
const SILENCE_MAX: Nanos = Nanos::from_secs(2);
/// How much may wait for one peer: what can be under way at all, twice.
const OUTGOING_MAX: usize = 160 << 20;
/// How much is read at once.
const PIECE_BYTES: usize = 16 << 10;
/// Sets what is watched here apart from what else the path watches.
const FIRST_GENERATION: u64 = 1 << 62;
/// How many peers there may be.
pub const PEERS_MAX: usize = 8;

/// What a proxy is told of its peers.
#[derive(Debug, Clone)]
pub struct PeersConfig {
    /// Where they listen, NAME:PORT or IP:PORT.
    pub addresses: Vec<String>,
    /// The secret that the cluster shares.
    pub key: SharedKey,
}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("it has closed the connection")]
    Closed,
    #[error("it refused: {0}")]
    Refused(String),
    #[error("it has not answered for {} s", SILENCE_MAX.0 / 1_000_000_000)]
    Silent,
    #[error("it takes what it is sent too slowly")]
    Slow,
    #[error("it is the same process as another peer")]
    Double,
}

/// A connection that is open.
struct Open {
    stream: TcpStream,
    /// One descriptor may be another connection later.
    generation: u64,
    channel: Channel,
    is_attached: bool,
    /// When it was heard last, or had said all that it had to.
    heard_at: Nanos,
    /// The last place that it was sent, and how far it is.
    sent: u64,
    stored: u64,
}

enum Line {
    Away { retry_at: Nanos },
    Connecting(Receiver<io::Result<TcpStream>>),
    Open(Box<Open>),
}

struct Link {
    address: String,
    line: Line,
    /// The last trouble that was said; empty: none.
    said: String,
    /// It was said that it holds the log.
    is_said_whole: bool,
}

/// All of them.
pub(super) struct Links {
    config: PeersConfig,
    name: LogName,
    notices: Notices,
    copies: Copies,
    lines: Vec<Link>,
    waker: Arc<Waker>,
    generation: u64,
    /// Sessions that may be forgotten when no peer gives back what was trimmed before.
    ended: VecDeque<(SeqNum, SessionId)>,
    pub losses: u64,
}

impl Links {
    /// Connects to nobody yet.
    pub fn new(config: &PeersConfig, name: LogName, epoch: u32, notices: &Notices) -> io::Result<Links> {
        let link = |address: &String| Link {
            address: address.clone(),
            line: Line::Away { retry_at: Nanos(0) },
            said: String::new(),
            is_said_whole: false,
        };
        Ok(Links {
            lines: config.addresses.iter().map(link).collect(),
            copies: Copies::new(config.addresses.len(), epoch, None),
            config: config.clone(),
            name,
            notices: notices.clone(),
            waker: Arc::new(Waker::new()?),
            generation: FIRST_GENERATION,
            ended: VecDeque::new(),
            losses: 0,
        })
    }

    /// The Redis is in another incarnation.
    pub fn set_epoch(&mut self, epoch: u32) {
        let links = &mut self.lines;
        self.copies.set_epoch(epoch, &mut |index, message| send(links, index, message));
    }

    /// Takes what the queue has for the log; `taken` is told each record's last place.
    pub fn take_from(&mut self, queue: &mut CommitQueue, taken: &mut dyn FnMut(SeqNum)) {
        let links = &mut self.lines;
        while let Some((last, record)) = queue.next_record() {
            self.copies.append(last, record, &mut |index, message| send(links, index, message));
            queue.record_taken();
            taken(last);
        }
    }

    /// Records up to this place are needed no longer.
    pub fn trim(&mut self, through: SeqNum) {
        let links = &mut self.lines;
        self.copies.trim(through, &mut |index, message| send(links, index, message));
    }

    /// A session is over.
    pub fn end(&mut self, session: SessionId) {
        self.ended.push_back((self.copies.trim_sent(), session));
    }

    /// A session that the server may forget.
    pub fn next_ended(&mut self) -> Option<SessionId> {
        let (through, session) = self.ended.front().copied()?;
        if through > self.copies.trimmed() {
            return None;
        }
        self.ended.pop_front();
        Some(session)
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        for index in 0..self.lines.len() {
            let Line::Open(open) = &mut self.lines[index].line else { continue };
            if let Err(error) = flush(&mut open.stream, &mut open.channel) {
                self.cut(index, &error.into());
            }
        }
    }

    /// Connects, hears and sends; `write_list` makes the list of those that are relied on durable, and says whether it
    /// could.
    pub fn turn(&mut self, queue: &CommitQueue, write_list: &mut dyn FnMut(&PeerList) -> bool) {
        self.waker.drain();
        let now = now_monotonic();
        for index in 0..self.lines.len() {
            self.connect(index, now);
            if let Err(error) = self.hear(index, queue, now) {
                self.cut(index, &error);
            }
        }
        if let Some(list) = self.copies.wanted_list(queue.stable()) {
            if write_list(&list) {
                self.copies.listed(&list);
                self.say_who_counts();
            }
        }
        self.flush();
    }

    /// How far all peers are, if all are relied on.
    pub fn logged(&mut self) -> Option<SeqNum> {
        self.copies.logged()
    }

    /// Whether all peers are relied on.
    pub fn is_whole(&self) -> bool {
        self.copies.is_whole()
    }

    /// How many are.
    pub fn count(&self) -> (usize, usize) {
        ((0..self.lines.len()).filter(|index| self.copies.counts(*index)).count(), self.lines.len())
    }

    /// Appends what is waited for.
    pub fn watches(&self, out: &mut Vec<Watch>) {
        out.push(Watch {
            fd: self.waker.as_raw_fd(),
            generation: FIRST_GENERATION,
            readable: true,
            writable: false,
        });
        for link in &self.lines {
            if let Line::Open(open) = &link.line {
                let writable = !open.channel.to_send().is_empty();
                out.push(Watch {
                    fd: open.stream.as_raw_fd(),
                    generation: open.generation,
                    readable: true,
                    writable,
                });
            }
        }
    }

    /// When to turn again even if nothing happens.
    pub fn next_turn(&self) -> Option<Nanos> {
        let at = |link: &Link| match &link.line {
            Line::Away { retry_at } => Some(*retry_at),
            Line::Connecting(_) => None,
            Line::Open(open) => open.owes().then(|| open.heard_at.plus(SILENCE_MAX)),
        };
        self.lines.iter().filter_map(at).min()
    }

    /// Everything is stable: peers may forget the log.
    pub fn leave(&mut self) {
        for index in 0..self.lines.len() {
            send(&mut self.lines, index, &ToKeeper::Drop);
        }
        self.flush();
    }

    fn connect(&mut self, index: usize, now: Nanos) {
        let link = &mut self.lines[index];
        match &link.line {
            Line::Away { retry_at } if *retry_at <= now => {
                let connecting = begin_connect(link.address.clone(), Arc::clone(&self.waker));
                link.line = match connecting {
                    Ok(connecting) => Line::Connecting(connecting),
                    Err(_) => Line::Away { retry_at: now.plus(RETRY_INTERVAL) },
                };
            }
            Line::Connecting(result) => match result.try_recv() {
                Ok(Ok(stream)) => match opened(stream, &self.config.key, self.name) {
                    Ok((stream, channel)) => {
                        self.generation += 1;
                        link.line = Line::Open(Box::new(Open {
                            stream,
                            generation: self.generation,
                            channel,
                            is_attached: false,
                            heard_at: now,
                            sent: 0,
                            stored: 0,
                        }));
                    }
                    Err(error) => self.cut(index, &error.into()),
                },
                Ok(Err(error)) => self.cut(index, &error.into()),
                Err(std::sync::mpsc::TryRecvError::Empty) => {}
                Err(std::sync::mpsc::TryRecvError::Disconnected) => self.cut(index, &LinkError::Closed),
            },
            _ => {}
        }
    }

    fn hear(&mut self, index: usize, queue: &CommitQueue, now: Nanos) -> Result<(), LinkError> {
        let Line::Open(open) = &mut self.lines[index].line else { return Ok(()) };
        let is_over = open.read(now)?;
        loop {
            let Line::Open(open) = &mut self.lines[index].line else { return Ok(()) };
            let is_attached = open.is_attached;
            let Some(message) = open.channel.next_message()? else { break };
            match FromKeeper::read(message)? {
                FromKeeper::State(held) if !is_attached => self.attach(index, held, queue)?,
                FromKeeper::State(Some(held)) => {
                    open.stored = held.stored;
                    self.copies.on_state(index, held);
                }
                FromKeeper::Stored(stored, trimmed) => {
                    open.stored = stored;
                    self.copies.on_stored(index, stored, trimmed);
                }
                FromKeeper::Refused(text) => return Err(LinkError::Refused(text.to_owned())),
                FromKeeper::State(None) | FromKeeper::Record(_) | FromKeeper::End => {}
            }
        }
        let Line::Open(open) = &self.lines[index].line else { return Ok(()) };
        if is_over {
            return Err(LinkError::Closed);
        }
        if open.owes() && now.since(open.heard_at) >= SILENCE_MAX {
            return Err(LinkError::Silent);
        }
        if open.channel.to_send().len() > OUTGOING_MAX {
            return Err(LinkError::Slow);
        }
        Ok(())
    }

    fn attach(&mut self, index: usize, held: Option<Held>, queue: &CommitQueue) -> Result<(), LinkError> {
        let Line::Open(open) = &mut self.lines[index].line else { return Ok(()) };
        let Some(peer) = open.channel.opened() else { return Ok(()) };
        if self.copies.is_attached(peer.incarnation) {
            return Err(LinkError::Double);
        }
        open.is_attached = true;
        open.stored = held.map_or(0, |held| held.stored);
        let links = &mut self.lines;
        self.copies.attach(index, peer.incarnation, held, queue, &mut |index, message| {
            send(links, index, message);
        });
        Ok(())
    }

    fn cut(&mut self, index: usize, error: &LinkError) {
        let was_relied_on = self.copies.counts(index);
        self.copies.lose(index);
        let link = &mut self.lines[index];
        link.line = Line::Away { retry_at: now_monotonic().plus(RETRY_INTERVAL) };
        let text = error.to_string();
        self.losses += u64::from(was_relied_on);
        if text != link.said || link.is_said_whole {
            link.is_said_whole = false;
            self.notices.alarm(&format!(
                "peer {}: {text}; until it is back every write is answered when the server's storage holds it, which is \
                 as safe and slower; it is tried again every second",
                link.address
            ));
            link.said = text;
        }
    }

    fn say_who_counts(&mut self) {
        for (index, link) in self.lines.iter_mut().enumerate() {
            if self.copies.counts(index) && !link.is_said_whole {
                self.notices.say(&format!("peer {} holds the log", link.address));
                link.said.clear();
                link.is_said_whole = true;
            }
        }
    }
}

impl Open {
    /// Whether there is something that the peer has not said it has.
    fn owes(&self) -> bool {
        !self.is_attached || self.stored < self.sent || !self.channel.to_send().is_empty()
    }

    /// Reads what is there; whether the other end has closed.
    fn read(&mut self, now: Nanos) -> io::Result<bool> {
        let mut piece = [0; PIECE_BYTES];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(true),
                Ok(count) => {
                    self.heard_at = now;
                    self.channel.receive(&piece[..count]);
                    // A peer's words are short.
                    if count < piece.len() {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn send(links: &mut [Link], index: usize, message: &ToKeeper<'_>) {
    let Line::Open(open) = &mut links[index].line else { return };
    if !open.owes() {
        // It owes something from now on.
        open.heard_at = now_monotonic();
    }
    if let ToKeeper::Append(last, _) = message {
        open.sent = last.0;
    }
    open.channel.say(&mut |out| message.write(out));
}

/// Looks the name up and connects, in a thread of its own: both may take their time.
fn begin_connect(address: String, waker: Arc<Waker>) -> io::Result<Receiver<io::Result<TcpStream>>> {
    let (sender, result) = channel();
    let work = move || {
        // Nobody may be left who wants it.
        let _ = sender.send(connect(&address));
        waker.wake();
    };
    std::thread::Builder::new().name("scotfree-peer".to_owned()).spawn(work)?;
    Ok(result)
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, CONNECT_TIME_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn opened(stream: TcpStream, key: &SharedKey, name: LogName) -> io::Result<(TcpStream, Channel)> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok((stream, Channel::of_proxy(key.get(), name, nonce)))
}

/// The records that one of the peers on the list holds, waited for as long as it takes; none if somebody asks to stop.
pub(super) fn records_of_peers(
    config: &PeersConfig,
    name: LogName,
    list: &PeerList,
    notices: &Notices,
    stop: &Stop,
) -> Option<BTreeMap<u64, Vec<u8>>> {
    let mut said = String::new();
    while !stop.is_stopped() {
        let mut troubles = Vec::new();
        for address in &config.addresses {
            match read_records(config, address, name, list) {
                Ok(records) => return Some(records),
                Err(error) => troubles.push(format!("{address}: {error}")),
            }
        }
        let text = format!(
            "the last acknowledged updates are in the memory of peers, and none of them gives them back ({}); waiting \
             for one. If all of them have lost their memory (restarted), --without-peers goes on without these updates",
            troubles.join("; ")
        );
        if text != said {
            notices.alarm(&text);
            said = text;
        }
        std::thread::sleep(Duration::from_nanos(RETRY_INTERVAL.0));
    }
    None
}

fn read_records(
    config: &PeersConfig,
    address: &str,
    name: LogName,
    list: &PeerList,
) -> Result<BTreeMap<u64, Vec<u8>>, LinkError> {
    let stream = connect(address)?;
    let (stream, mut channel) = opened(stream, &config.key, name)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_nanos(SILENCE_MAX.0)))?;
    let mut records = BTreeMap::new();
    let mut is_asked = false;
    loop {
        (&stream).write_all(channel.to_send())?;
        channel.sent(channel.to_send().len());
        let mut piece = [0; PIECE_BYTES];
        let count = (&stream).read(&mut piece)?;
        if count == 0 {
            return Err(LinkError::Closed);
        }
        channel.receive(&piece[..count]);
        while let Some(message) = channel.next_message()? {
            match FromKeeper::read(message)? {
                FromKeeper::State(_) if !is_asked => {
                    is_asked = true;
                    let is_listed = channel.opened().is_some_and(|peer| list.contains(&peer.incarnation));
                    if !is_listed {
                        return Err(LinkError::Refused(
                            "its memory is not the one that was relied on".to_owned(),
                        ));
                    }
                    channel.say(&mut |out| ToKeeper::Read.write(out));
                }
                FromKeeper::Record(record) => drop(records.insert(records.len() as u64, record.to_vec())),
                FromKeeper::End => return Ok(records),
                FromKeeper::Refused(text) => return Err(LinkError::Refused(text.to_owned())),
                FromKeeper::State(_) | FromKeeper::Stored(..) => {}
            }
        }
    }
}
