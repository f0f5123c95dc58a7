//! One connection of a Redis client: its bytes in, requests out, and replies in the order it expects.
//!
//! Invariant: replies leave in the order of the commands, each exactly once, and are what Redis itself
//! would have answered. No state of the connection changes before the reply that changes it is known.

pub mod clients;
mod control;
mod identity;
mod pending;
mod transaction;
mod tunnel;

use crate::classes::{
    classify, first_key, keeps_in_value, key_hash, lookup, read_again, written_keys, Class, Flags, Row,
    Verdict,
};
use crate::codec::{
    drop_room, error_reply, write_command, Args, Command, Limits, ProtocolError, RequestDecoder,
    KEPT_BYTES_MAX,
};
use crate::description::{CommandInfo, Description, NameBuffer, Unknown};
use crate::expiry::{make_absolute, Expiry};
use crate::guard;
use crate::payload::{
    parse_part, parse_response, split, RequestFlags, RequestHead, RequestKind, ResponseFlags,
    REQUEST_HEAD_BYTES,
};
pub use identity::Identity;
use pending::{Hook, Pending};
use scotfree_core::{KeyHash, Nanos};
use std::fmt::Write as _;
use std::sync::Arc;
use transaction::Transaction;
use tunnel::{Setting, Tunnel};

/// How many bytes most commands have at most, as they are sent.
const PAYLOAD_BYTES_USUAL: usize = 192;

/// Which commands may be answered before the server has seen them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum EarlyRule {
    /// None: every update is covered.
    #[default]
    Never,
    /// Every command of class early.
    Always,
    /// Those whose key begins with one of these.
    Prefixes(Vec<Vec<u8>>),
}

impl EarlyRule {
    fn admits(&self, key: &[u8]) -> bool {
        match self {
            EarlyRule::Never => false,
            EarlyRule::Always => true,
            EarlyRule::Prefixes(prefixes) => prefixes.iter().any(|prefix| key.starts_with(prefix)),
        }
    }
}

/// What a front is told at its start; the same for all connections of a listener.
#[derive(Debug, Clone)]
pub struct FrontConfig {
    /// Bounds on what a client may send. A transaction has the same bound on its bytes as a command.
    pub limits: Limits,
    /// Which commands are answered early.
    pub early: EarlyRule,
    /// How many commands may wait for their replies; no more input is read then.
    pub pending_max: usize,
    /// How many bytes may wait for the client to read them; no more input is read then.
    pub output_bytes_max: usize,
    /// How many commands a transaction may have; it is refused behind that, as after any other error.
    pub transaction_commands_max: usize,
    /// How large one request of the protocol may be; a larger command is sent in parts, and never logged.
    pub request_bytes_max: usize,
}

impl Default for FrontConfig {
    fn default() -> Self {
        FrontConfig {
            limits: Limits { whole_bytes_max: 64 << 20, ..Limits::default() },
            early: EarlyRule::Never,
            pending_max: 1_024,
            output_bytes_max: 4 << 20,
            transaction_commands_max: 65_536,
            request_bytes_max: 48 << 10,
        }
    }
}

/// A request for the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontRequest {
    /// Names the command that waits for the reply; 0 if none does.
    pub id: u64,
    /// What kind of request.
    pub kind: RequestKind,
    /// Whether the device's acknowledgement completes it; then its reply is known.
    pub early: Option<&'static [u8]>,
    /// The command's name, for traces.
    pub method: &'static str,
    /// The hash over database and key.
    pub key_hash: KeyHash,
    /// The hashes of all keys that it writes; empty if that is not known, or if nobody wants to know it.
    pub names: Vec<KeyHash>,
    /// Whether it may share a packet with others; see [`crate::payload::pack`].
    pub shares: bool,
    /// Whether its reply may be large.
    pub lengthy: bool,
    /// What to send.
    pub payload: Vec<u8>,
    /// When its client was heard last before it was made, as far as whoever reads the client knows it; 0 if not.
    pub called: Nanos,
}

impl FrontRequest {
    /// Whether nobody else should have to wait for it: it is answered only when storage holds it, or depends on
    /// what the server keeps for its connection alone.
    pub fn is_apart(&self) -> bool {
        let own =
            |head: RequestHead| head.flags.has(RequestFlags::PRIVATE) || head.flags.has(RequestFlags::PART);
        self.kind == RequestKind::Bypass || RequestHead::parse(&self.payload).is_ok_and(own)
    }

    /// Whether it is a transaction, of several commands and perhaps of several keys.
    pub fn is_transaction(&self) -> bool {
        RequestHead::parse(&self.payload).is_ok_and(|head| head.flags.has(RequestFlags::TRANSACTION))
    }

    /// Whether it asks for the next part of a large reply: that is held for it elsewhere, where others may wait for the
    /// room, so it waits for nothing.
    pub fn fetches(&self) -> bool {
        self.method == REST
    }

    /// A read that concerns no key and that nobody waits for (yet).
    fn read(method: &'static str, payload: Vec<u8>) -> FrontRequest {
        FrontRequest {
            id: 0,
            kind: RequestKind::Read,
            early: None,
            method,
            key_hash: KeyHash(0),
            names: Vec::new(),
            shares: false,
            lengthy: true,
            payload,
            called: Nanos(0),
        }
    }
}

/// What a connection's shell has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrontAction {
    /// Send a request.
    Request(FrontRequest),
    /// Send this over a connection to the server that is the client's own: the one that rests, or a new one. Nothing
    /// is pending.
    Tunnel {
        /// What brings it into this one's state.
        setup: Vec<u8>,
        /// How many replies of the setup are to be dropped.
        setup_replies: usize,
        /// What is sent behind it.
        bytes: Vec<u8>,
        /// From now on the client's bytes are passed straight to the server, and back, for good; these are what have
        /// arrived already. Else the front is told of what comes back by [`ClientFront::on_tunnel`].
        is_whole: bool,
    },
    /// Send more over that connection.
    Pass(Vec<u8>),
    /// That connection is needed no longer, and may be again.
    RestTunnel,
    /// Close that connection.
    EndTunnel,
    /// The front is to be told by [`ClientFront::on_clients`] what came of a question about the clients.
    Clients {
        /// Names the command that waits.
        id: u64,
        /// What it asks.
        question: clients::Question,
        /// The server's own list, if it is needed.
        list: Vec<u8>,
    },
    /// Close the connection when its output is sent.
    Close,
}

/// What a connection has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrontCounters {
    /// Commands read.
    pub commands: u64,
    /// Of these, sent as updates.
    pub updates: u64,
    /// Of these, to be answered early.
    pub early: u64,
    /// Sent as reads.
    pub reads: u64,
    /// Sent as bypass requests.
    pub bypasses: u64,
    /// How often connections became tunnels.
    pub tunnels: u64,
    /// Requests too large for one packet of the protocol.
    pub large: u64,
    /// Requests refused because a limit was reached.
    pub over_limit: u64,
    /// Replies that came with durability none.
    pub not_durable: u64,
}

impl FrontCounters {
    /// Adds another connection's counters.
    pub fn add(&mut self, other: FrontCounters) {
        self.commands += other.commands;
        self.updates += other.updates;
        self.early += other.early;
        self.reads += other.reads;
        self.bypasses += other.bypasses;
        self.tunnels += other.tunnels;
        self.large += other.large;
        self.over_limit += other.over_limit;
        self.not_durable += other.not_durable;
    }
}

/// The machine of one client connection.
#[derive(Debug)]
pub struct ClientFront {
    config: Arc<FrontConfig>,
    description: Arc<Description>,
    identity: Identity,
    decoder: RequestDecoder,
    pending: Pending,
    output: Vec<u8>,
    /// So many of its first bytes are sent.
    sent: usize,
    counters: FrontCounters,
    state: State,
    /// The way past the order, while there is one.
    tunnel: Option<Tunnel>,
    /// In what state the connection to the server is that serves as a tunnel, or did and rests.
    tunnel_setting: Option<Setting>,
    passed_by: PassedBy,
    waits: Option<Waits>,
    /// How often it has begun to wait.
    waits_begun: u64,
}

/// A command that is answered, and takes elements away, when there are some: it changes data past the order, at any
/// time until its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// How many there have been with it.
    pub number: u64,
    /// The keys that it may change; none if that cannot be told.
    pub keys: Option<Vec<KeyHash>>,
}

/// What may have changed data past the order, through tunnels: how often that was asked, and how often it was answered.
/// Commands that block are not counted here, but in [`Waits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassedBy {
    /// Sent.
    pub begun: u64,
    /// Answered.
    pub ended: u64,
    /// Of those that were sent, the connections that were given away: what is said there nobody reads here, and it goes
    /// on when this machine is gone.
    pub given_away: u64,
}

impl PassedBy {
    /// How much will have no answer if the connection ends now, and may still be done.
    pub fn unanswered(self) -> u64 {
        self.begun - self.ended - self.given_away
    }
}

/// What Redis keeps of a connection.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Independent facts about a connection, no states of one machine.
struct State {
    db: u16,
    resp: u8,
    authenticated: bool,
    /// The user, if it is not the default one.
    user: bool,
    /// The last successful AUTH, for a tunnel.
    credentials: Option<Command>,
    /// That was in a tunnel: on the usual way nobody knows of it yet.
    is_known_in_tunnel_only: bool,
    client_name: Vec<u8>,
    replies: ReplyMode,
    transaction: Option<Transaction>,
    watching: bool,
    /// Whether the server's sidecar may hold a connection of our own.
    private_open: bool,
    /// Whether the server's sidecar may hold parts of our requests or replies.
    parts_open: bool,
    /// The next command must wait for a reply.
    stalled: bool,
    early_allowed: bool,
    /// Why writes are refused, if they are.
    writes_refused: Option<Arc<str>>,
    /// Scripts are under way, of this connection or of others: the server may be busy.
    scripts_run: bool,
    /// When the client was heard last, in milliseconds.
    heard_ms: i64,
    /// What was asked of the server last.
    last_command: &'static str,
    closing: Closing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyMode {
    On,
    Off,
    SkipNext,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    WhenAnswered,
    Done,
}

impl State {
    fn new(description: &Description) -> State {
        State {
            db: 0,
            resp: 2,
            authenticated: !description.auth_required,
            user: false,
            credentials: None,
            is_known_in_tunnel_only: false,
            client_name: Vec::new(),
            replies: ReplyMode::On,
            transaction: None,
            watching: false,
            private_open: false,
            parts_open: false,
            stalled: false,
            early_allowed: description.early_allowed,
            writes_refused: description.writes_refused.as_deref().map(Arc::from),
            scripts_run: false,
            heard_ms: 0,
            last_command: "",
            closing: Closing::No,
        }
    }
}

impl ClientFront {
    /// The machine of a new connection.
    pub fn new(config: Arc<FrontConfig>, description: Arc<Description>, identity: Identity) -> ClientFront {
        ClientFront {
            decoder: RequestDecoder::new(config.limits),
            state: State::new(&description),
            config,
            description,
            identity,
            pending: Pending::default(),
            output: Vec::new(),
            sent: 0,
            counters: FrontCounters::default(),
            tunnel: None,
            tunnel_setting: None,
            passed_by: PassedBy::default(),
            waits: None,
            waits_begun: 0,
        }
    }

    /// What it may have changed past the order.
    pub fn passed_by(&self) -> PassedBy {
        self.passed_by
    }

    /// What it waits for that may change data past the order.
    pub fn waits(&self) -> Option<&Waits> {
        self.waits.as_ref()
    }

    /// The client sent bytes. `now_ms` is the server's Unix time in milliseconds.
    pub fn on_bytes(&mut self, now_ms: i64, bytes: &[u8], actions: &mut Vec<FrontAction>) {
        self.identity.begin(now_ms);
        if !bytes.is_empty() {
            self.state.heard_ms = now_ms;
        }
        self.decoder.push(bytes);
        self.run(now_ms, actions);
    }

    /// A response to the request `id` arrived.
    pub fn on_response(&mut self, now_ms: i64, id: u64, payload: &[u8], actions: &mut Vec<FrontAction>) {
        match parse_response(payload) {
            Ok((flags, reply)) => self.on_reply(now_ms, id, flags, reply, actions),
            Err(error) => {
                let text = format!(
                    "ERR scotfree: the server's sidecar sent a response that cannot be read: {error}"
                );
                self.pending.complete(id, &error_reply(&text), true);
            }
        }
        self.run(now_ms, actions);
    }

    /// The devices acknowledged the early request `id`: its known reply is its answer.
    pub fn on_early(&mut self, now_ms: i64, id: u64, reply: &[u8], actions: &mut Vec<FrontAction>) {
        self.pending.complete(id, reply, false);
        self.run(now_ms, actions);
    }

    /// What the server said last of early answers, to another request than this connection's: one that is
    /// answered by devices alone gets no word from the server.
    pub fn allow_early(&mut self, allowed: bool) {
        self.state.early_allowed = allowed;
    }

    /// What the server said last of writes: why they are refused here, if they are.
    pub fn refuse_writes(&mut self, reason: Option<Arc<str>>) {
        self.state.writes_refused = reason;
    }

    /// What came of a question about the clients. `is_end`: this connection is among those that are closed.
    pub fn on_clients(
        &mut self,
        now_ms: i64,
        id: u64,
        outcome: clients::Outcome,
        is_end: bool,
        actions: &mut Vec<FrontAction>,
    ) {
        match outcome {
            clients::Outcome::Reply(reply, _) => self.pending.complete(id, &reply, is_end),
            clients::Outcome::Forward(command) => {
                let request = self.request_of(RequestKind::Read, None, command.args());
                self.send_at(Some(id), request, Hook::None, actions);
            }
        }
        self.run(now_ms, actions);
    }

    /// What is known of the client.
    pub fn facts(&self) -> clients::Facts {
        let state = &self.state;
        let named = state.credentials.as_ref().map(Command::args).filter(|args| args.len() == 3);
        let user = named.map(|args| args.get(1).to_vec());
        clients::Facts {
            begun_ms: self.identity.begun_ms().unwrap_or(state.heard_ms),
            heard_ms: state.heard_ms,
            name: state.client_name.clone(),
            db: state.db,
            resp: state.resp,
            user: user.unwrap_or_else(|| b"default".to_vec()),
            queued: state.transaction.as_ref().map(Transaction::len),
            command: state.last_command.to_ascii_lowercase().replace(' ', "|").into_bytes(),
            ..clients::Facts::of(&self.identity)
        }
    }

    /// Whether scripts are under way, of whichever connection.
    pub fn know_scripts(&mut self, run: bool) {
        self.state.scripts_run = run;
    }

    /// How many of its scripts are under way.
    pub fn scripts(&self) -> usize {
        self.pending.scripts()
    }

    /// The request `id` could not be sent or has an unknown outcome; the connection ends with an error.
    pub fn on_failure(&mut self, now_ms: i64, id: u64, reason: &str, actions: &mut Vec<FrontAction>) {
        if matches!(self.pending.take_hook(id), Hook::Shutdown) {
            self.pending.complete(id, b"", true);
            return self.run(now_ms, actions);
        }
        self.on_refusal(now_ms, id, &format!("ERR scotfree: {reason}"), actions);
    }

    /// A request was not sent; its command is answered with this error and the connection ends.
    pub fn on_refusal(&mut self, now_ms: i64, id: u64, error: &str, actions: &mut Vec<FrontAction>) {
        self.pending.complete(id, &error_reply(error), true);
        self.run(now_ms, actions);
    }

    /// What has arrived is given up, and the connection ends with an error.
    pub fn refuse(&mut self, now_ms: i64, reason: &str, actions: &mut Vec<FrontAction>) {
        self.counters.over_limit += 1;
        self.decoder = RequestDecoder::default();
        self.state.transaction = None;
        // A command that blocks may never be answered.
        self.tunnel = None;
        self.part(&error_reply(&format!("ERR scotfree: {reason}")));
        self.run(now_ms, actions);
    }

    /// What the client's disconnection leaves to be said to the server, if anything.
    pub fn farewell(&mut self) -> Option<FrontRequest> {
        let parts_open = std::mem::take(&mut self.state.parts_open);
        let private_open = std::mem::take(&mut self.state.private_open);
        // What is still to be answered may be too large for one packet: nobody will ask for its rest.
        (private_open || parts_open || !self.pending.is_empty()).then(|| self.release_request())
    }

    /// The bytes to be sent to the client.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// The first `count` bytes of the output are sent.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        // What is left is moved when that is less than what was sent: large replies leave in many pieces.
        if self.sent >= self.output.len() / 2 {
            self.output.drain(..self.sent);
            self.sent = 0;
            drop_room(&mut self.output, KEPT_BYTES_MAX);
        }
    }

    /// Whether more of the client's bytes can be taken. What is not read slows the client down.
    pub fn wants_input(&self) -> bool {
        self.can_run() || self.reads_ahead()
    }

    /// Whether a large reply has come in part: its rest comes first, and then what else is to be read.
    pub fn is_fetching(&self) -> bool {
        self.pending.is_fetching()
    }

    /// Whether the client has as many bytes to read as may wait for it.
    pub fn is_full(&self) -> bool {
        self.output().len() >= self.config.output_bytes_max
    }

    /// How many bytes are held of what the client sent: requests in part, and those of a transaction.
    pub fn input_bytes(&self) -> usize {
        let queued = self.state.transaction.as_ref().map_or(0, Transaction::bytes);
        self.decoder.held_bytes() + queued
    }

    /// How many commands wait for their replies.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// What this connection has counted.
    pub fn counters(&self) -> FrontCounters {
        self.counters
    }

    fn can_run(&self) -> bool {
        !self.state.stalled
            && self.state.closing == Closing::No
            && self.pending.len() + self.tunnel.as_ref().map_or(0, Tunnel::asked) < self.config.pending_max
            && self.output().len() < self.config.output_bytes_max
            && !self.tunnel.as_ref().is_some_and(Tunnel::has_aside)
    }

    fn run(&mut self, now_ms: i64, actions: &mut Vec<FrontAction>) {
        // The decoder lends out arguments while the rest of the machine changes.
        let mut decoder = std::mem::take(&mut self.decoder);
        loop {
            self.go_aside(now_ms, actions);
            self.release_replies();
            if !self.can_run() {
                break;
            }
            match decoder.pop(self.state.authenticated) {
                Ok(None) => break,
                Ok(Some(args)) => self.on_command(now_ms, args, actions),
                Err(error) => {
                    let too_long = matches!(error, ProtocolError::RequestTooLong { .. });
                    self.counters.over_limit += u64::from(too_long);
                    self.part(&error.reply());
                    // What it holds is of no use any more.
                    decoder = RequestDecoder::default();
                }
            }
        }
        self.decoder = decoder;
        self.start_tunnel(actions);
        self.release_replies();
        if self.state.closing == Closing::WhenAnswered && self.is_answered() {
            self.state.closing = Closing::Done;
            actions.push(FrontAction::Close);
        }
    }

    fn release_replies(&mut self) {
        if self.pending.release(&mut self.output) {
            self.pending.clear();
            // What is held is not answered any more.
            self.tunnel = None;
            self.state.closing = Closing::WhenAnswered;
        }
    }

    fn on_command(&mut self, now_ms: i64, args: Args<'_>, actions: &mut Vec<FrontAction>) {
        self.counters.commands += 1;
        self.pending.suppress = self.state.replies != ReplyMode::On;
        if self.state.replies == ReplyMode::SkipNext {
            self.state.replies = ReplyMode::On;
        }
        if self.tunnel.is_some() {
            return self.pass(args, actions);
        }
        if args.is(0, "quit") {
            self.answer(b"+OK\r\n");
            self.state.closing = Closing::WhenAnswered;
            return;
        }
        if args.is(0, "post") || args.is(0, "host:") {
            // A browser was led to speak to us; Redis hangs up without a word.
            self.state.closing = Closing::WhenAnswered;
            return;
        }
        let mut name = NameBuffer::default();
        match self.find(args, &mut name) {
            Err(text) => self.on_unknown(args, &text, actions),
            Ok((name, info)) => self.on_known(now_ms, name, info, args, actions),
        }
    }

    /// What the server knows under this name with this many arguments, or the error it would answer.
    fn find<'a>(&self, args: Args<'_>, name: &'a mut NameBuffer) -> Result<(&'a [u8], CommandInfo), String> {
        let (name, info) = self.description.command_of(args, name).map_err(|unknown| match unknown {
            Unknown::Command => unknown_command(args),
            Unknown::Subcommand => unknown_subcommand(args),
        })?;
        if !crate::classes::arity_admits(info.arity, args.len()) {
            let name = String::from_utf8_lossy(name);
            return Err(format!("ERR wrong number of arguments for '{name}' command"));
        }
        Ok((name, info))
    }

    fn on_unknown(&mut self, args: Args<'_>, text: &str, actions: &mut Vec<FrontAction>) {
        if args.is(0, "exec") {
            self.state.transaction = None;
            self.unwatch(actions);
            let error = text.strip_prefix("ERR ").unwrap_or(text);
            return self.answer_error(&format!("EXECABORT Transaction discarded because of: {error}"));
        }
        if let Some(transaction) = &mut self.state.transaction {
            transaction.spoil();
            self.answer_error(text);
        } else if self.state.authenticated {
            // The server answers in its own words, and nothing can happen there.
            self.forward(RequestKind::Read, None, args, Hook::None, actions);
        } else {
            self.answer_error(text);
        }
    }

    fn on_known(
        &mut self,
        now_ms: i64,
        name: &[u8],
        info: CommandInfo,
        args: Args<'_>,
        actions: &mut Vec<FrontAction>,
    ) {
        if !self.state.authenticated && !matches!(name, b"auth" | b"hello" | b"reset") {
            if let Some(transaction) = &mut self.state.transaction {
                transaction.spoil();
            }
            let text: &[u8] = match name {
                b"exec" => {
                    b"-EXECABORT Transaction discarded because of: NOAUTH Authentication required.\r\n"
                }
                _ => b"-NOAUTH Authentication required.\r\n",
            };
            self.answer(text);
            return;
        }
        let at_once = matches!(name, b"multi" | b"exec" | b"discard" | b"watch" | b"reset");
        if self.state.transaction.is_some() && !at_once {
            self.queue(name, info, args, actions);
            return;
        }
        if self.control(now_ms, name, args, actions) {
            return;
        }
        self.ordinary(now_ms, info, args, actions);
    }

    /// A command that only concerns data.
    fn ordinary(&mut self, now_ms: i64, info: CommandInfo, args: Args<'_>, actions: &mut Vec<FrontAction>) {
        if let Some(text) = guard::refusal(args, self.description.reserved_db) {
            self.answer_error(&text);
            return;
        }
        let verdict = classify(args);
        let kind = match verdict.class {
            Class::Tunnel if !info.flags.has(Flags::WRITE) || self.state.writes_refused.is_none() => {
                return self.tunnel(args);
            }
            Class::Tunnel => RequestKind::Bypass,
            // A device has to see that it may change what is read.
            Class::Read if self.description.cached && keeps_in_value(args) => RequestKind::Bypass,
            Class::Read | Class::Control => RequestKind::Read,
            Class::Early | Class::Covered | Class::Bypass => self.write_kind(verdict.class),
        };
        if let Some(text) = self.refusal_of_writes().filter(|_| kind != RequestKind::Read) {
            self.answer_error(&text);
            return;
        }
        let early = self.early_reply(&verdict, args);
        let absolute = match kind {
            RequestKind::Update => make_absolute(args, now_ms),
            RequestKind::Read | RequestKind::Bypass => Expiry::Unchanged,
        };
        let mut request = match &absolute {
            // Another command, perhaps of another name.
            Expiry::Absolute(command) => self.request_of(kind, early, command.args()),
            Expiry::Unchanged | Expiry::Invalid => self.request_of_row(kind, early, args, verdict.row),
        };
        request.shares = match kind {
            // What a device may answer it sees by itself.
            RequestKind::Read => verdict.class == Class::Read && !self.is_noted(args, verdict.row),
            RequestKind::Update => !info.flags.has(Flags::NO_MULTI),
            RequestKind::Bypass => false,
        };
        let hook = match () {
            () if args.is(0, "SHUTDOWN") => Hook::Shutdown,
            () if self.tunnel.is_some() => Hook::Aside,
            () => Hook::None,
        };
        self.send(request, hook, actions);
    }

    fn refusal_of_writes(&self) -> Option<String> {
        let reason = self.state.writes_refused.as_ref()?;
        Some(format!("ERR scotfree: writes are refused at present: {reason}"))
    }

    /// A user of its own may have fewer rights than the connection over which a log is replayed, so its
    /// writes are never logged.
    fn write_kind(&self, class: Class) -> RequestKind {
        match class {
            Class::Early | Class::Covered if !self.state.user => RequestKind::Update,
            _ => RequestKind::Bypass,
        }
    }

    fn early_reply(&self, verdict: &Verdict, args: Args<'_>) -> Option<&'static [u8]> {
        let allowed = verdict.class == Class::Early && self.state.early_allowed && !self.state.user;
        verdict.fixed_reply.filter(|_| allowed && self.config.early.admits(args.get(1)))
    }

    /// Sends one command as a request of its own.
    fn forward(
        &mut self,
        kind: RequestKind,
        early: Option<&'static [u8]>,
        args: Args<'_>,
        hook: Hook,
        actions: &mut Vec<FrontAction>,
    ) {
        let request = self.request_of(kind, early, args);
        self.send(request, hook, actions);
    }

    fn request_of(&self, kind: RequestKind, early: Option<&'static [u8]>, args: Args<'_>) -> FrontRequest {
        self.request_of_row(kind, early, args, lookup(args))
    }

    /// As [`ClientFront::request_of`], for who has found the command's row.
    fn request_of_row(
        &self,
        kind: RequestKind,
        early: Option<&'static [u8]>,
        args: Args<'_>,
        row: Option<&'static Row>,
    ) -> FrontRequest {
        let flags = RequestFlags::NONE
            .with_if(early.is_some(), RequestFlags::EARLY)
            .with_if(kind == RequestKind::Read && self.is_noted(args, row), RequestFlags::NOTED);
        let names = if self.description.cached && kind != RequestKind::Read {
            written_keys(args).iter().map(|key| KeyHash::of(self.state.db, key)).collect()
        } else {
            Vec::new()
        };
        let key_hash = key_hash(self.state.db, first_key(row, args));
        let mut payload = self.begin_payload(flags);
        write_command(&mut payload, args);
        let method = row.map_or("unknown", |row| row.command.as_str());
        FrontRequest {
            kind,
            early,
            key_hash,
            names,
            lengthy: kind == RequestKind::Read || row.is_none_or(|row| row.lengthy),
            ..FrontRequest::read(method, payload)
        }
    }

    /// Whether a read is one that a device may answer. What depends on the client's user is not, nor what its client has
    /// sent behind something that it has no answer to (docs/design/cache.md, K14): that shares a packet with others.
    fn is_noted(&self, args: Args<'_>, row: Option<&'static Row>) -> bool {
        let may_be_kept = || row.is_some_and(|row| read_again(row, args).is_some());
        self.description.cached && !self.state.user && self.pending.is_empty() && may_be_kept()
    }

    /// A payload's head in the present state of the connection.
    fn begin_payload(&self, flags: RequestFlags) -> Vec<u8> {
        let own_user = RequestFlags::PRIVATE.with(RequestFlags::USER);
        let flags =
            flags.with_if(self.state.user, own_user).with_if(self.state.resp == 3, RequestFlags::RESP3);
        let mut payload = Vec::with_capacity(REQUEST_HEAD_BYTES + PAYLOAD_BYTES_USUAL);
        RequestHead { flags, db: self.state.db, connection: self.identity.number }.write(&mut payload);
        payload
    }

    /// Sends a request; false if it is too large and was answered here.
    fn send(&mut self, request: FrontRequest, hook: Hook, actions: &mut Vec<FrontAction>) -> bool {
        self.send_at(None, request, hook, actions).is_some()
    }

    /// As [`ClientFront::send`], for a reply that may have its place already; its name.
    fn send_at(
        &mut self,
        at: Option<u64>,
        mut request: FrontRequest,
        hook: Hook,
        actions: &mut Vec<FrontAction>,
    ) -> Option<u64> {
        if request.payload.len() > self.config.limits.whole_bytes_max {
            self.counters.over_limit += 1;
            let text = format!(
                "ERR scotfree: the request has {} bytes and may have {}",
                request.payload.len(),
                self.config.limits.whole_bytes_max
            );
            self.answer_at(at, &error_reply(&text));
            return None;
        }
        if request.payload.len() > self.config.request_bytes_max {
            self.send_parts(&mut request, actions);
        }
        match request.kind {
            RequestKind::Update => self.counters.updates += 1,
            RequestKind::Read => self.counters.reads += 1,
            RequestKind::Bypass => self.counters.bypasses += 1,
        }
        self.counters.early += u64::from(request.early.is_some());
        let id = match at {
            Some(id) => self.pending.set_hook(id, hook),
            None => self.pending.expect(hook),
        };
        request.id = id;
        self.state.last_command = request.method;
        if is_script(request.method) {
            self.pending.mark_script(id);
        }
        actions.push(FrontAction::Request(request));
        Some(id)
    }

    /// Sends all but the last part of a large request, which becomes the request. A device could log only
    /// the last part, so a write becomes a bypass.
    fn send_parts(&mut self, request: &mut FrontRequest, actions: &mut Vec<FrontAction>) {
        let mut parts = split(&request.payload, self.config.request_bytes_max);
        request.payload = parts.pop().unwrap_or_default();
        request.early = None;
        request.shares = false;
        if request.kind == RequestKind::Update {
            request.kind = RequestKind::Bypass;
        }
        self.counters.large += 1;
        self.state.parts_open = true;
        for part in parts {
            actions.push(FrontAction::Request(FrontRequest::read("part", part)));
        }
    }

    /// A reply goes on: asks for its next part.
    fn ask_rest(&mut self, id: u64, name: u64, actions: &mut Vec<FrontAction>) {
        self.state.parts_open = true;
        let mut payload = Vec::new();
        let head = RequestHead { flags: RequestFlags::REST, db: 0, connection: self.identity.number };
        head.write(&mut payload);
        payload.extend_from_slice(&name.to_le_bytes());
        actions.push(FrontAction::Request(FrontRequest { id, ..FrontRequest::read(REST, payload) }));
    }

    /// A request that tells the server's sidecar to let go of what it holds of ours: a connection to the server,
    /// parts.
    fn release_request(&mut self) -> FrontRequest {
        let flags = RequestFlags::PRIVATE.with(RequestFlags::RELEASE);
        let mut payload = Vec::new();
        RequestHead { flags, db: 0, connection: self.identity.number }.write(&mut payload);
        FrontRequest::read("release", payload)
    }

    fn answer(&mut self, reply: &[u8]) {
        self.pending.answer(reply);
    }

    /// A reply that is known, to what has its place already or to the present command.
    fn answer_at(&mut self, at: Option<u64>, reply: &[u8]) {
        match at {
            Some(id) => self.pending.complete(id, reply, false),
            None => self.answer(reply),
        }
    }

    fn answer_error(&mut self, text: &str) {
        self.answer(&error_reply(text));
    }

    fn on_reply(
        &mut self,
        now_ms: i64,
        id: u64,
        flags: ResponseFlags,
        reply: &[u8],
        actions: &mut Vec<FrontAction>,
    ) {
        if !flags.has(ResponseFlags::AGAIN) {
            self.state.early_allowed = flags.has(ResponseFlags::EARLY_ALLOWED);
        }
        self.counters.not_durable += u64::from(flags.has(ResponseFlags::DURABILITY_NONE));
        if let Some((name, part)) = parse_part(reply).filter(|_| flags.has(ResponseFlags::MORE)) {
            self.pending.add_part(id, part);
            return self.ask_rest(id, name, actions);
        }
        let whole = self.pending.take_parts(id, reply);
        let reply = whole.as_deref().unwrap_or(reply);
        let hook = self.pending.take_hook(id);
        let own = self.identity.replace(&hook, reply);
        if !self.run_hook(now_ms, id, hook, reply, actions) {
            self.pending.complete(id, own.as_deref().unwrap_or(reply), flags.has(ResponseFlags::CLOSE));
        }
    }
}

/// The request that asks a server's sidecar for its description.
pub fn describe_request() -> FrontRequest {
    let mut payload = Vec::new();
    RequestHead { flags: RequestFlags::DESCRIBE, ..RequestHead::default() }.write(&mut payload);
    FrontRequest::read("describe", payload)
}

/// Whether a request runs a script, during which the server may answer nothing but BUSY.
fn is_script(method: &str) -> bool {
    ["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"].contains(&method)
}

/// What a request for the next part of a large reply is called.
const REST: &str = "rest";

/// How many bytes of a command's arguments Redis repeats in an error.
const REPEATED_BYTES_MAX: usize = 128;

fn unknown_command(args: Args<'_>) -> String {
    let mut text = format!(
        "ERR unknown command '{}', with args beginning with: ",
        repeated(args.get(0), REPEATED_BYTES_MAX)
    );
    let mut listed = String::new();
    for argument in args.iter().skip(1) {
        if listed.len() >= REPEATED_BYTES_MAX {
            break;
        }
        let room = REPEATED_BYTES_MAX - listed.len();
        let _ = write!(listed, "'{}' ", repeated(argument, room));
    }
    text.push_str(&listed);
    text
}

fn unknown_subcommand(args: Args<'_>) -> String {
    let container = String::from_utf8_lossy(args.get(0)).to_uppercase();
    format!("ERR unknown subcommand '{}'. Try {container} HELP.", repeated(args.get(1), REPEATED_BYTES_MAX))
}

fn repeated(argument: &[u8], room: usize) -> String {
    let end = argument.iter().position(|byte| *byte == 0).unwrap_or(argument.len()).min(room);
    String::from_utf8_lossy(&argument[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_unknown_command_as_much_is_repeated_as_redis_repeats() {
        let text = |words: &[&str]| unknown_command(Command::new(words).args());
        let long = "x".repeat(REPEATED_BYTES_MAX + 1);
        let cut = &long[..REPEATED_BYTES_MAX];
        assert_eq!(text(&["NO", "a", "b"]), "ERR unknown command 'NO', with args beginning with: 'a' 'b' ");
        assert_eq!(text(&[&long]), format!("ERR unknown command '{cut}', with args beginning with: "));
        let repeated = format!("ERR unknown command 'NO', with args beginning with: '{cut}' ");
        assert_eq!(text(&["NO", &long, "b"]), repeated, "there is no room for more");
    }
}
