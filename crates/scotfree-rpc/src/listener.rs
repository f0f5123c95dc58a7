//! The programmer's interface of a server (`PMNet`, thesis table 3.1): receive the next request, and
//! acknowledge it when it is stored.
//!
//! Invariant: requests come in the order in which they must be executed, each once; an acknowledged
//! request is reported as stable when all requests before it are acknowledged too.

use crate::server::{ServerOptions, ServerRuntime};
use crate::service::{DeadLetter, Execution, Handler, Replies, Service};
use scotfree_core::{DeviceId, Epoch, Nanos, SeqNum, SessionId};
use scotfree_io::advice::after_listening;
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_io::{now_monotonic, Transport};
use scotfree_session::{DeadLetterReason, RecoveredSession, RequestKind, ServerConfig};
use scotfree_wire::{ClusterKey, Nonce};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Who remembers sessions beyond the life of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionKeeping {
    /// Nobody: for servers whose state does not outlive them either.
    Nobody,
    /// The application: it stores [`Incoming::SessionStarted`] and, with each write, the session's
    /// `seq`; and gives both back at the next start.
    Application(Vec<RecoveredSession>),
}

/// What a listener is told at its start.
#[derive(Debug, Clone)]
pub struct ListenerConfig {
    /// Where to listen.
    pub address: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// The server's incarnation: larger than that of any earlier start.
    pub epoch: Epoch,
    /// The devices on the path with their control addresses; the first is the head.
    pub devices: Vec<(DeviceId, SocketAddr)>,
    /// Who remembers sessions.
    pub sessions: SessionKeeping,
}

impl ListenerConfig {
    /// A server without devices whose sessions nobody remembers.
    pub fn new(address: SocketAddr, cluster_key: ClusterKey, epoch: Epoch) -> ListenerConfig {
        ListenerConfig { address, cluster_key, epoch, devices: Vec::new(), sessions: SessionKeeping::Nobody }
    }
}

/// Why a listener could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// The address is not free or not ours.
    #[error("cannot listen on {address}: {source}; {}", after_listening(source))]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no random numbers for the sessions' keys.
    #[error("no random numbers for the sessions' keys: {0}")]
    Random(getrandom::Error),
    /// No such request waits for an acknowledgement.
    #[error("nothing with the id {0} waits for an acknowledgement")]
    UnknownId(u64),
    /// The socket broke.
    #[error("the socket broke: {0}")]
    Io(#[from] io::Error),
}

/// What a server gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A request to be executed, now, before any later one. Acknowledge it when it is stored.
    Request {
        /// For [`Listener::ack`].
        id: u64,
        /// Whose.
        session: SessionId,
        /// Its place in the session, to be stored with what it writes.
        seq: SeqNum,
        /// What kind.
        kind: RequestKind,
        /// The request.
        payload: Vec<u8>,
    },
    /// A session to be stored. Acknowledge it when it is.
    SessionStarted {
        /// For [`Listener::ack`].
        id: u64,
        /// What to store.
        record: RecoveredSession,
    },
    /// A session to be forgotten. Acknowledge it when it is.
    SessionEnded {
        /// For [`Listener::ack`].
        id: u64,
        /// Which.
        session: SessionId,
    },
    /// An update that will never be executed: keep it where an operator finds it.
    DeadLetter {
        /// Whose.
        session: SessionId,
        /// Its place.
        seq: SeqNum,
        /// Why.
        reason: DeadLetterReason,
        /// The update.
        payload: Vec<u8>,
    },
}

/// A server that asks for its requests.
pub struct Listener {
    runtime: ServerRuntime<UdpTransport, Inbox>,
}

impl Listener {
    /// Listens; with devices, recovers what they hold first.
    pub fn bind(config: ListenerConfig) -> Result<Listener, ListenerError> {
        let bind = |source| ListenerError::Bind { address: config.address, source };
        let transport = UdpTransport::bind(config.address, &UdpConfig::default()).map_err(bind)?;
        let mut nonce_seed = Nonce::default();
        getrandom::fill(&mut nonce_seed).map_err(ListenerError::Random)?;
        let local = transport.local_address();
        let server = ServerConfig::new(local, config.cluster_key, config.epoch, nonce_seed, config.devices);
        let (keeps_sessions, recovered) = match config.sessions {
            SessionKeeping::Nobody => (false, Vec::new()),
            SessionKeeping::Application(recovered) => (true, recovered),
        };
        let inbox = Inbox { keeps_sessions, ..Inbox::default() };
        let runtime = ServerRuntime::new(transport, inbox, server, &recovered, ServerOptions::default());
        Ok(Listener { runtime })
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.runtime.transport().local_address()
    }

    /// The next thing to do; waits for it at most `timeout`.
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<Incoming>, ListenerError> {
        let span = Nanos(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let deadline = now_monotonic().plus(span);
        loop {
            self.runtime.turn()?;
            if let Some(incoming) = self.runtime.service_mut().waiting.pop_front() {
                return Ok(Some(incoming));
            }
            let left = deadline.since(now_monotonic());
            if left == Nanos(0) {
                return Ok(None);
            }
            self.runtime.wait(Some(Duration::from_nanos(left.0)))?;
        }
    }

    /// What came under `id` is stored, or for a read, answered. `failed`: the application refused the
    /// request, which nevertheless has its place. Sessions have no reply.
    pub fn ack(&mut self, id: u64, reply: &[u8], failed: bool) -> Result<(), ListenerError> {
        let inbox = self.runtime.service_mut();
        inbox.ack(id, reply, failed).ok_or(ListenerError::UnknownId(id))?;
        self.runtime.turn()?;
        Ok(())
    }

    /// Receives nothing more and sends what is ready; whether everything was acknowledged.
    pub fn close(mut self) -> Result<bool, ListenerError> {
        Ok(self.runtime.drain()?)
    }
}

/// The service behind a [`Listener`]: keeps requests until they are asked for.
#[derive(Debug, Default)]
struct Inbox {
    keeps_sessions: bool,
    waiting: VecDeque<Incoming>,
    id_last: u64,
    /// What was handed out or waits, by id, in order.
    open: VecDeque<(u64, Open)>,
    /// Tickets acknowledged ahead of an earlier one.
    ahead: BTreeSet<u64>,
    ticket_stable: u64,
    reported: Replies,
}

#[derive(Debug, Clone, Copy)]
enum Open {
    Ticket(u64),
    Started(SessionId),
    Ended(SessionId),
}

impl Inbox {
    fn open(&mut self, open: Open) -> u64 {
        self.id_last += 1;
        self.open.push_back((self.id_last, open));
        self.id_last
    }

    fn ack(&mut self, id: u64, reply: &[u8], failed: bool) -> Option<()> {
        let index = self.open.binary_search_by_key(&id, |(open, _)| *open).ok()?;
        match self.open.remove(index)?.1 {
            Open::Ticket(ticket) => {
                self.reported.reply(ticket, failed, |out| out.extend_from_slice(reply));
                self.ahead.insert(ticket);
                while self.ahead.remove(&(self.ticket_stable + 1)) {
                    self.ticket_stable += 1;
                }
                self.reported.stable(self.ticket_stable);
            }
            Open::Started(session) => self.reported.session_recorded(session),
            Open::Ended(session) => self.reported.session_deleted(session),
        }
        Some(())
    }
}

impl Handler for Inbox {
    fn execute(&mut self, request: &Execution<'_>, _replies: &mut Replies) {
        let id = self.open(Open::Ticket(request.ticket));
        let Execution { session, seq, kind, payload, .. } = *request;
        self.waiting.push_back(Incoming::Request { id, session, seq, kind, payload: payload.to_vec() });
    }

    fn poll(&mut self, _wants_stable: bool, replies: &mut Replies) {
        replies.take_from(&mut self.reported);
    }
}

impl Service for Inbox {
    fn record_session(&mut self, record: &RecoveredSession, replies: &mut Replies) {
        if !self.keeps_sessions {
            return replies.session_recorded(record.session);
        }
        let id = self.open(Open::Started(record.session));
        self.waiting.push_back(Incoming::SessionStarted { id, record: *record });
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        if !self.keeps_sessions {
            return replies.session_deleted(session);
        }
        let id = self.open(Open::Ended(session));
        self.waiting.push_back(Incoming::SessionEnded { id, session });
    }

    fn dead_letter(&mut self, letter: &DeadLetter<'_>) {
        let DeadLetter { session, seq, reason, payload } = *letter;
        self.waiting.push_back(Incoming::DeadLetter { session, seq, reason, payload: payload.to_vec() });
    }
}
