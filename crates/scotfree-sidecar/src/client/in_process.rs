//! A Redis client in the caller's own process: its commands leave as packets of the protocol, with no sidecar and
//! no socket of Redis' own in between.
//!
//! The same machines as in the client's sidecar: what is early, covered or a bypass, what shares a packet, and what
//! is refused is the same.
//!
//! Invariant: replies come in the order of the commands, one for each, until an error says that the connection has
//! ended; what had no reply then has an unknown outcome. The next command begins a new connection.

use super::begin::{begin, Control};
use super::fronts::{Fronts, Peer, Wish};
use super::sessions::ConnectionKey;
use super::ClientSidecarConfig;
use crate::notices::Notices;
use crate::server::SidecarError;
use scotfree_core::{Nanos, Tier};
use scotfree_io::udp::UdpTransport;
use scotfree_io::{now_monotonic, now_realtime, Spin};
use scotfree_resp::codec::{write_arguments, Limits, ReplyDecoder, ReplyError};
use scotfree_resp::front::EarlyRule;
use scotfree_rpc::{ClientRuntime, SharedKey, StartError};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

pub use scotfree_resp::codec::Reply;

/// What a client is told at its start.
#[derive(Debug, Clone)]
pub struct RedisClientConfig {
    /// The server's sidecar.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: SharedKey,
    /// Which commands are answered by the devices alone.
    pub early: EarlyRule,
    /// What the devices must give before an update is acknowledged.
    pub tier: Tier,
    /// How long the start waits for the server's sidecar, and a command for its reply.
    pub time_max: Duration,
    /// How long to look for a reply before sleeping, at most: saves a wake-up, and takes the processor meanwhile.
    pub spin: Duration,
    /// Where lines for the operator go.
    pub notices: Notices,
}

impl RedisClientConfig {
    /// Defaults: covered by one device, in its memory; ten seconds; no looking.
    pub fn new(server: SocketAddr, cluster_key: impl Into<SharedKey>) -> RedisClientConfig {
        RedisClientConfig {
            server,
            cluster_key: cluster_key.into(),
            early: EarlyRule::Never,
            tier: Tier::RAM,
            time_max: Duration::from_secs(10),
            spin: Duration::ZERO,
            notices: Notices::default(),
        }
    }
}

/// Why a command has no reply.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// The server's sidecar cannot be reached or used.
    #[error(transparent)]
    Start(#[from] SidecarError),
    /// No session.
    #[error("no session with the server: {0}")]
    Session(#[from] StartError),
    /// The connection has ended, with this as its last reply; what had no reply has an unknown outcome.
    #[error("the connection has ended: {0}")]
    Ended(String),
    /// Nobody has asked anything.
    #[error("no command waits for a reply")]
    NothingAsked,
    /// The time is over. The reply may still come.
    #[error("no reply within {0:?}")]
    TimedOut(Duration),
    /// It never ends, or has no reply, or more than one.
    #[error(
        "subscriptions, blocking commands, MONITOR and CLIENT REPLY are not for a client in the process: use scot \
         sidecar client"
    )]
    Unsupported,
    /// The server said what no server says.
    #[error("the server answered nonsense: {0:?}")]
    Nonsense(ReplyError),
    /// The reply is not of the kind that this call expects.
    #[error("the server answered {0:?}")]
    Unexpected(Reply),
    /// The socket broke.
    #[error("the socket broke: {0}")]
    Io(#[from] std::io::Error),
}

/// One connection to the Redis behind a server's sidecar. It lives from call to call: between two of them, at most
/// some thirty seconds apart, [`RedisClient::turn`] keeps its session alive.
pub struct RedisClient {
    runtime: ClientRuntime<UdpTransport>,
    control: Control,
    fronts: Fronts,
    connection: Option<ConnectionKey>,
    opened: u64,
    replies: ReplyDecoder,
    /// How many commands have no reply yet.
    waiting: usize,
    /// The oldest command without a reply needs a tunnel.
    wants_tunnel: bool,
    time_max: Duration,
}

impl RedisClient {
    /// Learns from the server's sidecar what the server is, and opens a session.
    pub fn connect(config: &RedisClientConfig) -> Result<RedisClient, RedisError> {
        let any = match config.server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let mut common = ClientSidecarConfig::new(any, any, config.server, config.cluster_key.clone());
        common.listeners[0].early = config.early.clone();
        common.session.tier = config.tier;
        common.start_time_max = config.time_max;
        common.notices = config.notices.clone();
        let (mut runtime, control, fronts) = begin(&common)?;
        if config.spin > Duration::ZERO {
            let time = u64::try_from(config.spin.as_nanos()).unwrap_or(u64::MAX);
            runtime.spin(Spin::UpTo(Nanos(time)))?;
        }
        Ok(RedisClient {
            runtime,
            control,
            fronts,
            connection: None,
            opened: 0,
            replies: ReplyDecoder::new(Limits::default()),
            waiting: 0,
            wants_tunnel: false,
            time_max: config.time_max,
        })
    }

    /// Says a command and waits for its reply; those of commands that were sent before are dropped.
    pub fn command<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Reply, RedisError> {
        self.send(words)?;
        while self.waiting > 1 {
            self.receive()?;
        }
        self.receive()
    }

    /// `SET`, where the reply is no error.
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), RedisError> {
        match self.command(&[b"SET", key.as_ref(), value.as_ref()])? {
            Reply::Simple(_) => Ok(()),
            other => Err(RedisError::Unexpected(other)),
        }
    }

    /// `GET`: the value, if there is one.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, RedisError> {
        match self.command(&[b"GET", key.as_ref()])? {
            Reply::Bulk(value) => Ok(Some(value)),
            Reply::Null => Ok(None),
            other => Err(RedisError::Unexpected(other)),
        }
    }

    /// Says a command and waits for nothing: its reply is taken by [`RedisClient::receive`]. Commands that are sent
    /// one behind the other share packets.
    pub fn send<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<(), RedisError> {
        let is = |at: usize, word: &str| {
            words.get(at).is_some_and(|argument| argument.as_ref().eq_ignore_ascii_case(word.as_bytes()))
        };
        if words.is_empty() || is(0, "CLIENT") && is(1, "REPLY") {
            return Err(RedisError::Unsupported);
        }
        let key = self.open_connection()?;
        let mut bytes = Vec::with_capacity(64);
        write_arguments(&mut bytes, words.iter());
        self.fronts.on_bytes(now_realtime(), key, &bytes);
        self.waiting += 1;
        self.look_for_tunnel();
        if self.waiting == 1 {
            self.refuse_tunnel()?;
        }
        Ok(())
    }

    /// Commands that need a tunnel ask for it when all before them is answered.
    fn look_for_tunnel(&mut self) {
        self.wants_tunnel |= std::iter::from_fn(|| self.fronts.next_tunnel()).count() > 0;
    }

    fn refuse_tunnel(&mut self) -> Result<(), RedisError> {
        if !self.wants_tunnel {
            return Ok(());
        }
        self.close_connection();
        Err(RedisError::Unsupported)
    }

    /// The reply to the oldest command that has none; waits for it.
    pub fn receive(&mut self) -> Result<Reply, RedisError> {
        if self.waiting == 0 {
            return Err(RedisError::NothingAsked);
        }
        let deadline =
            now_monotonic().plus(Nanos(u64::try_from(self.time_max.as_nanos()).unwrap_or(u64::MAX)));
        loop {
            self.turn()?;
            if let Some(reply) = self.take_reply()? {
                return Ok(reply);
            }
            self.refuse_tunnel()?;
            let left = deadline.since(now_monotonic());
            if left == Nanos(0) {
                return Err(RedisError::TimedOut(self.time_max));
            }
            let ask = self.control.ask_at.since(now_monotonic());
            self.runtime.wait(Some(Duration::from_nanos(left.0.min(ask.0))))?;
        }
    }

    /// Sends and receives what there is, without waiting.
    pub fn turn(&mut self) -> Result<(), RedisError> {
        // What was said since the last time leaves before anything is looked for.
        self.fronts.submit(now_realtime(), &mut self.runtime);
        self.runtime.turn()?;
        self.fronts.hear(now_realtime(), self.control.session, &mut self.runtime);
        self.look_for_tunnel();
        self.control.ask_if_due(&mut self.runtime, &mut self.fronts);
        self.fronts.submit(now_realtime(), &mut self.runtime);
        self.runtime.flush()?;
        while self.runtime.next_record().is_some() {}
        Ok(())
    }

    /// How many commands have no reply yet.
    pub fn outstanding(&self) -> usize {
        self.waiting
    }

    fn open_connection(&mut self) -> Result<ConnectionKey, RedisError> {
        if let Some(key) = self.connection {
            return Ok(key);
        }
        self.opened += 1;
        let key = ConnectionKey(self.opened);
        self.fronts.open(key, Peer { id: self.opened, ..Peer::default() }, &mut self.runtime)?;
        self.connection = Some(key);
        Ok(key)
    }

    fn close_connection(&mut self) {
        if let Some(key) = self.connection.take() {
            self.fronts.close(key);
        }
        self.replies = ReplyDecoder::new(Limits::default());
        self.waiting = 0;
        self.wants_tunnel = false;
    }

    fn take_reply(&mut self) -> Result<Option<Reply>, RedisError> {
        let Some(key) = self.connection else { return Err(RedisError::Ended("it was closed".to_owned())) };
        if let Some(front) = self.fronts.front_mut(key) {
            self.replies.push(front.output());
            front.sent(front.output().len());
        }
        // Commands may have waited for room for their replies.
        self.fronts.resume(now_realtime(), key);
        let popped =
            self.replies.pop().map(|bytes| bytes.map(|bytes| Reply::parse(bytes, &Limits::default())));
        let parsed = match popped {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(parsed))) => parsed,
            Ok(Some(Err(error))) | Err(error) => {
                // Where the next reply begins is not known any more.
                self.close_connection();
                return Err(RedisError::Nonsense(error));
            }
        };
        self.waiting = self.waiting.saturating_sub(1);
        let goes_on = self.wants_tunnel || self.fronts.wish(key) != Wish::Close;
        if goes_on || !self.replies.unread().is_empty() {
            return Ok(parsed);
        }
        self.close_connection();
        match parsed {
            Some(Reply::Error(text)) => Err(RedisError::Ended(text)),
            reply => Ok(reply),
        }
    }
}
