//! The programmer's interface of a client (`PMNet`, thesis table 3.1): start a session, send updates,
//! bypass requests and reads, take the replies, end the session.
//!
//! Invariant: replies come in the order of the requests, one for each, until the session has ended.

use crate::client::{
    CallError, ClientEvent, ClientOptions, ClientRuntime, Patience, Reply, SessionHandle, SessionOptions,
};
use crate::probes::{CallLabel, ProbeOptions};
use scotfree_core::{KeyHash, SeqNum, SessionId};
use scotfree_io::udp::{UdpConfig, UdpTransport};
use scotfree_session::{ClosedReason, Mode, Request, RequestKind, SubmitError};
use scotfree_wire::ClusterKey;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// What a session is told at its start.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The server's address.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// What the session asks for.
    pub options: SessionOptions,
    /// How long opening, ending and sending into a full window may take.
    pub patience: Duration,
    /// Stamps and records.
    pub probes: ProbeOptions,
}

impl SessionConfig {
    /// Defaults: updates covered by one device, in its memory.
    pub fn new(server: SocketAddr, cluster_key: ClusterKey) -> SessionConfig {
        SessionConfig {
            server,
            cluster_key,
            options: SessionOptions::default(),
            patience: Duration::from_secs(10),
            probes: ProbeOptions::OFF,
        }
    }
}

/// Why a session could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No socket.
    #[error("cannot open a UDP socket to reach {server}: {source}")]
    Socket {
        /// The server.
        server: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody answers.
    #[error("no server answers at {server}; is it running, and does it have the same cluster key?")]
    Unreachable {
        /// The server.
        server: SocketAddr,
    },
    /// The session has ended. What had no reply has an unknown outcome.
    #[error("the session has ended: {0:?}")]
    Ended(ClosedReason),
    /// The session could not be set up.
    #[error("the session cannot be started: {0}")]
    Start(#[from] crate::client::StartError),
    /// The request is larger than any may be.
    #[error("the request has {bytes} bytes, at most {} are possible", scotfree_wire::REQUEST_BYTES_MAX)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The time is over.
    #[error("no answer in time")]
    TimedOut,
    /// The socket broke.
    #[error("the socket broke: {0}")]
    Io(#[from] io::Error),
}

/// A session with a server, on a socket of its own. For many sessions on one socket, or for an event
/// loop of your own, use [`ClientRuntime`].
pub struct Session {
    runtime: ClientRuntime<UdpTransport>,
    handle: SessionHandle,
    server: SocketAddr,
    patience: Duration,
    ended: Option<ClosedReason>,
}

/// Starts a session and waits until it is open.
pub fn start_session(config: &SessionConfig) -> Result<Session, SessionError> {
    let any = match config.server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let udp = UdpConfig { stamps: config.probes.stamps, ..UdpConfig::default() };
    let transport = UdpTransport::bind(any, &udp)
        .map_err(|source| SessionError::Socket { server: config.server, source })?;
    let options = ClientOptions {
        sessions_max: 1,
        probes: config.probes,
        ..ClientOptions::new(config.server, config.cluster_key.clone())
    };
    let mut runtime = ClientRuntime::new(transport, options);
    let handle = runtime.start_session(config.options)?;
    let (server, patience) = (config.server, config.patience);
    match runtime.wait_open(handle, patience) {
        Ok(()) => Ok(Session { runtime, handle, server, patience, ended: None }),
        Err(CallError::Io(error)) => Err(error.into()),
        Err(CallError::Closed(Some(ClosedReason::Server(reason)))) => {
            Err(SessionError::Ended(ClosedReason::Server(reason)))
        }
        Err(CallError::Closed(_) | CallError::TooLarge | CallError::TimedOut(_)) => {
            Err(SessionError::Unreachable { server })
        }
    }
}

impl Session {
    /// Sends an update: a deterministic write, which devices on the path may log. Its reply comes when
    /// the log and the server have it.
    pub fn send_update(&mut self, key: &[u8], payload: &[u8]) -> Result<SeqNum, SessionError> {
        self.send(RequestKind::Update, Mode::Covered, key_hash(key), false, payload)
    }

    /// Sends an update whose reply is known in advance: it completes when the log has it, and its
    /// reply has no bytes then.
    pub fn send_early_update(&mut self, key: &[u8], payload: &[u8]) -> Result<SeqNum, SessionError> {
        self.send(RequestKind::Update, Mode::Early, key_hash(key), false, payload)
    }

    /// Sends a write that must not be logged: its reply comes when the server has stored it.
    pub fn bypass(&mut self, payload: &[u8]) -> Result<SeqNum, SessionError> {
        self.send(RequestKind::Bypass, Mode::Covered, KeyHash(0), false, payload)
    }

    /// Sends a request that changes nothing.
    pub fn read(&mut self, key: &[u8], payload: &[u8]) -> Result<SeqNum, SessionError> {
        self.send(RequestKind::Read, Mode::Covered, key_hash(key), false, payload)
    }

    /// The same, but it may miss updates that were complete before: it waits for nobody's.
    pub fn read_relaxed(&mut self, key: &[u8], payload: &[u8]) -> Result<SeqNum, SessionError> {
        self.send(RequestKind::Read, Mode::Covered, key_hash(key), true, payload)
    }

    /// The next reply, in the order of the requests; waits for it at most `timeout`.
    pub fn next_reply(&mut self, timeout: Duration) -> Result<Reply<'_>, SessionError> {
        let mut patience = Patience::of(timeout);
        while !self.runtime.has_completion() {
            if let Some(reason) = self.ended() {
                return Err(SessionError::Ended(reason));
            }
            if !self.runtime.advance(&mut patience)? {
                return Err(SessionError::TimedOut);
            }
        }
        self.runtime.next_completion().ok_or(SessionError::TimedOut)
    }

    /// How many requests have no reply yet.
    pub fn outstanding(&self) -> usize {
        self.runtime.outstanding(self.handle)
    }

    /// The session's name in the cluster.
    pub fn id(&self) -> Option<SessionId> {
        self.runtime.session_id(self.handle)
    }

    /// The runtime underneath, for its counters and records.
    pub fn runtime(&mut self) -> &mut ClientRuntime<UdpTransport> {
        &mut self.runtime
    }

    /// Ends the session: waits until the server has stored every update. Replies that were not taken
    /// are dropped.
    pub fn end_session(mut self) -> Result<(), SessionError> {
        self.runtime.end_session(self.handle);
        let mut patience = Patience::of(self.patience);
        loop {
            match self.ended() {
                Some(ClosedReason::Finished) => return Ok(()),
                Some(reason) => return Err(SessionError::Ended(reason)),
                None => while self.runtime.next_completion().is_some() {},
            }
            if !self.runtime.advance(&mut patience)? {
                return Err(SessionError::TimedOut);
            }
        }
    }

    fn send(
        &mut self,
        kind: RequestKind,
        mode: Mode,
        key_hash: KeyHash,
        relaxed: bool,
        payload: &[u8],
    ) -> Result<SeqNum, SessionError> {
        let request = Request {
            kind,
            mode,
            fixed_reply: mode == Mode::Early,
            relaxed,
            traced: false,
            key_hash,
            payload,
        };
        let mut patience = Patience::of(self.patience);
        loop {
            match self.runtime.submit(self.handle, request, CallLabel::of_kind(kind)) {
                Ok(seq) => {
                    self.runtime.flush()?;
                    return Ok(seq);
                }
                Err(SubmitError::TooLarge) => return Err(SessionError::TooLarge { bytes: payload.len() }),
                Err(SubmitError::Closed) => {
                    let reason = self.ended().unwrap_or(ClosedReason::Finished);
                    return Err(SessionError::Ended(reason));
                }
                Err(SubmitError::NotOpen | SubmitError::WindowFull) => {}
            }
            if !self.runtime.advance(&mut patience)? {
                return Err(SessionError::TimedOut);
            }
        }
    }

    /// Why the session has ended, if it has.
    fn ended(&mut self) -> Option<ClosedReason> {
        if self.ended.is_none() {
            self.ended = self.runtime.close_reason(self.handle);
        }
        self.ended
    }

    /// The server's address.
    pub fn server(&self) -> SocketAddr {
        self.server
    }
}

impl<T: scotfree_io::Transport> ClientRuntime<T> {
    /// The next completion, of whatever session; events of other kinds before it are dropped.
    fn next_completion(&mut self) -> Option<Reply<'_>> {
        while self.has_completion() {
            if self.next_is_completion() {
                return match self.next_event() {
                    Some(ClientEvent::Completed { reply, .. }) => Some(reply),
                    Some(ClientEvent::Opened { .. } | ClientEvent::Closed { .. }) | None => None,
                };
            }
            self.next_event();
        }
        None
    }
}

/// The hash by which a request names its key, as the sidecars compute it for database 0.
pub fn key_hash(key: &[u8]) -> KeyHash {
    KeyHash::of(0, key)
}
