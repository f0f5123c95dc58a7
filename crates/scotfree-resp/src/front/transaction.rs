//! MULTI … EXEC, collected here and sent as one request.
//!
//! Invariant: what Redis would refuse when a command is queued is refused here, with its text, and EXEC
//! then refuses the whole. A transaction's class is the most careful one among its commands.

use super::{ClientFront, FrontAction, FrontRequest, Hook};
use crate::classes::{classify, keeps_in_value, key_hash, keys, lookup, written_keys, Class, Flags};
use crate::codec::{error_reply, is_error, parse_integer, write_command, Args, Command};
use crate::description::CommandInfo;
use crate::expiry::{make_absolute, Expiry};
use crate::guard;
use crate::payload::{RequestFlags, RequestKind};
use scotfree_core::KeyHash;

/// The commands queued so far.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Independent facts about the commands, no states of one machine.
pub(super) struct Transaction {
    commands: Vec<Command>,
    bytes: usize,
    spoiled: bool,
    /// The most careful class so far.
    writes: bool,
    bypass: bool,
    /// A command in it makes the connection a stream.
    tunnels: bool,
    /// A command in it deletes every database.
    flushes_all: bool,
    /// A command in it may be answered at length.
    lengthy: bool,
}

impl Transaction {
    /// How many commands it has.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// How many bytes its commands take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// EXEC will refuse it.
    pub fn spoil(&mut self) {
        self.spoiled = true;
    }

    /// MULTI and all behind it, with EXEC, for a connection that has seen nothing of it.
    fn whole(self) -> Vec<Command> {
        let multi = std::iter::once(Command::new(["MULTI"]));
        multi.chain(self.commands).chain([Command::new(["EXEC"])]).collect()
    }

    fn push(&mut self, class: Class, args: Args<'_>) {
        self.tunnels |= class == Class::Tunnel;
        self.writes |= class.is_write();
        self.bypass |= class == Class::Bypass;
        self.flushes_all |= guard::flushes_all(args);
        self.lengthy |= lookup(args).is_none_or(|row| row.lengthy);
        self.bytes += args.iter().map(|argument| argument.len() + 16).sum::<usize>();
        self.commands.push(args.into());
    }

    /// Whether one of its commands may be refused where memory is used up.
    fn grows(&self) -> bool {
        let mut rows = self.commands.iter().map(|command| lookup(command.args()));
        rows.any(|row| row.is_none_or(|row| row.flags.has(Flags::DENYOOM)))
    }

    /// Whether one of its commands runs a script.
    fn runs_script(&self) -> bool {
        let methods = self.commands.iter().filter_map(|command| lookup(command.args()));
        methods.into_iter().any(|row| super::is_script(&row.command))
    }

    /// One of its commands that the server would refuse if it refused any.
    fn most_refusable(&self) -> Command {
        let with = |flag| {
            let mut commands = self.commands.iter().map(Command::args);
            commands.find(|args| lookup(*args).is_some_and(|row| row.flags.has(flag)))
        };
        with(Flags::DENYOOM).or_else(|| with(Flags::WRITE)).map_or_else(|| Command::new(["PING"]), like)
    }

    /// Where a SELECT stands, and what it selects.
    /// The hashes of all keys that it may write; empty if they are not known, or there are none.
    fn written_keys(&self, db: u16) -> Vec<KeyHash> {
        let mut names = Vec::new();
        for command in &self.commands {
            let args = command.args();
            let may_write =
                keeps_in_value(args) || !matches!(class_inside(args), Some(Class::Read | Class::Control));
            let written = if may_write { written_keys(args) } else { Vec::new() };
            if args.is(0, "SELECT") || may_write && written.is_empty() {
                return Vec::new();
            }
            names.extend(written.into_iter().map(|key| KeyHash::of(db, key)));
        }
        names
    }

    fn selects(&self) -> Vec<(usize, u16)> {
        let commands = self.commands.iter().enumerate();
        commands
            .filter(|(_, command)| command.args().is(0, "SELECT"))
            .filter_map(|(index, command)| {
                Some((index, parse_integer(command.args().get(1)).and_then(|db| u16::try_from(db).ok())?))
            })
            .collect()
    }
}

/// A command that waits for the server's word before it is queued.
#[derive(Debug)]
pub(super) struct Queued {
    class: Class,
    command: Command,
}

/// The largest command that is sent to ask about it; the server is asked about a larger one by one like it.
const ASKED_BYTES_MAX: usize = 4 << 10;

/// What the server judges like a command when it queues: by its properties alone.
fn like(command: Args<'_>) -> Command {
    let bytes: usize = command.iter().map(<[u8]>::len).sum();
    if bytes <= ASKED_BYTES_MAX {
        return command.into();
    }
    let flags = lookup(command).map_or(Flags::default(), |row| row.flags);
    if flags.has(Flags::DENYOOM) {
        Command::new(["SET", "k", "v"])
    } else if flags.has(Flags::WRITE) {
        Command::new(["DEL", "k"])
    } else {
        Command::new(["GET", "k"])
    }
}

/// The class of a command inside MULTI; none if it is refused there. What makes the connection a stream takes
/// the whole transaction with it.
fn class_inside(args: Args<'_>) -> Option<Class> {
    let verdict = classify(args);
    verdict.in_transaction.or((verdict.class == Class::Tunnel).then_some(Class::Tunnel))
}

impl ClientFront {
    /// A command inside MULTI.
    pub(super) fn queue(
        &mut self,
        name: &[u8],
        info: CommandInfo,
        args: Args<'_>,
        actions: &mut Vec<FrontAction>,
    ) {
        let refusal = self.queue_refusal(name, info, args);
        let asks = self.must_ask();
        let Some(transaction) = &mut self.state.transaction else { return };
        let class = match class_inside(args) {
            Some(class) if !(self.description.cached && keeps_in_value(args)) => class,
            _ => Class::Bypass,
        };
        if let Some(text) = refusal {
            transaction.spoil();
            self.answer_error(&text);
        } else if asks && class != Class::Tunnel {
            self.ask(&like(args), Hook::Queue(Queued { class, command: args.into() }), actions);
        } else {
            transaction.push(class, args);
            self.answer(b"+QUEUED\r\n");
        }
    }

    /// Whether the server may be in a state in which it refuses what it queues otherwise: its memory is used up or
    /// nearly so, its settings are being changed, it cannot write its files, a script may keep it busy. The server
    /// then has the word on each command, as if it queued it; else all that it judges is known here.
    fn must_ask(&self) -> bool {
        let scripts_run = self.state.scripts_run || self.pending.scripts() > 0;
        self.description.asks && (scripts_run || !self.state.early_allowed)
    }

    fn ask(&mut self, command: &Command, hook: Hook, actions: &mut Vec<FrontAction>) {
        let mut payload = self.begin_payload(RequestFlags::ASK);
        write_command(&mut payload, command.args());
        self.state.stalled = self.send(FrontRequest::read("MULTI", payload), hook, actions);
    }

    pub(super) fn asked_to_queue(&mut self, queued: &Queued, reply: &[u8]) {
        self.state.stalled = false;
        let Some(transaction) = &mut self.state.transaction else { return };
        if is_error(reply) {
            transaction.spoil();
        } else {
            transaction.push(queued.class, queued.command.args());
        }
    }

    /// True if the transaction was sent, whose reply is the answer, or answered.
    pub(super) fn asked_to_exec(
        &mut self,
        now_ms: i64,
        id: u64,
        transaction: &Transaction,
        reply: &[u8],
        actions: &mut Vec<FrontAction>,
    ) {
        self.state.stalled = false;
        // Redis lets EXEC through where it queues nothing, if nothing that was queued takes memory.
        let may_pass = reply.starts_with(b"-OOM") && !transaction.grows();
        if !is_error(reply) || may_pass {
            return self.settle(now_ms, Some(id), transaction, actions);
        }
        let error = String::from_utf8_lossy(reply.get(1..).unwrap_or_default()).into_owned();
        self.abort(Some(id), error.trim_end(), actions);
    }

    /// EXEC executes nothing, because of an error.
    fn abort(&mut self, at: Option<u64>, error: &str, actions: &mut Vec<FrontAction>) {
        self.unwatch(actions);
        let text = format!("EXECABORT Transaction discarded because of: {error}");
        self.answer_at(at, &error_reply(&text));
    }

    fn queue_refusal(&mut self, name: &[u8], info: CommandInfo, args: Args<'_>) -> Option<String> {
        if info.flags.has(Flags::NO_MULTI) {
            return Some("ERR Command not allowed inside a transaction".to_owned());
        }
        if let Some(text) = guard::refusal(args, self.description.reserved_db) {
            return Some(text);
        }
        if class_inside(args) == Some(Class::Tunnel) && self.state.watching {
            let name = String::from_utf8_lossy(name).to_uppercase().replace('|', " ");
            return Some(format!(
                "ERR scotfree: {name} inside MULTI is not supported behind WATCH: it makes the connection a tunnel, \
                 which cannot keep what is watched; UNWATCH first"
            ));
        }
        if class_inside(args).is_none() {
            let name = String::from_utf8_lossy(name).to_uppercase().replace('|', " ");
            return Some(format!("ERR scotfree: {name} inside MULTI is not supported"));
        }
        let transaction = self.state.transaction.as_ref()?;
        let tunnels = class_inside(args) == Some(Class::Tunnel);
        if tunnels && transaction.flushes_all || transaction.tunnels && guard::flushes_all(args) {
            return Some(guard::NO_FLUSH.to_owned());
        }
        let full = transaction.commands.len() >= self.config.transaction_commands_max
            || transaction.bytes >= self.config.limits.whole_bytes_max;
        if full {
            self.counters.over_limit += 1;
            let max = self.config.transaction_commands_max;
            return Some(format!(
                "ERR scotfree: the transaction has more than {max} commands (transaction_commands_max) or {} bytes",
                self.config.limits.whole_bytes_max
            ));
        }
        None
    }

    pub(super) fn multi(&mut self) {
        if self.state.transaction.is_some() {
            self.answer(b"-ERR MULTI calls can not be nested\r\n");
        } else {
            self.state.transaction = Some(Transaction::default());
            self.answer(b"+OK\r\n");
        }
    }

    pub(super) fn discard(&mut self, actions: &mut Vec<FrontAction>) {
        if self.state.transaction.take().is_none() {
            self.answer(b"-ERR DISCARD without MULTI\r\n");
            return;
        }
        self.unwatch(actions);
        self.answer(b"+OK\r\n");
    }

    pub(super) fn exec(&mut self, now_ms: i64, actions: &mut Vec<FrontAction>) {
        let Some(transaction) = self.state.transaction.take() else {
            self.answer(b"-ERR EXEC without MULTI\r\n");
            return;
        };
        let is_refused = transaction.writes && self.state.writes_refused.is_some();
        if self.must_ask() && !transaction.tunnels {
            let command = transaction.most_refusable();
            self.ask(&command, Hook::AskExec(transaction), actions);
        } else if transaction.tunnels && !transaction.spoiled && !is_refused {
            self.tunnel_from(transaction.whole());
        } else {
            self.settle(now_ms, None, &transaction, actions);
        }
    }

    /// Sends a transaction, or says why not; `at` the place of the reply, if it has one.
    fn settle(
        &mut self,
        now_ms: i64,
        at: Option<u64>,
        transaction: &Transaction,
        actions: &mut Vec<FrontAction>,
    ) {
        let refusal = self.refusal_of_writes().filter(|_| transaction.writes);
        if transaction.spoiled {
            self.unwatch(actions);
            self.answer_at(at, b"-EXECABORT Transaction discarded because of previous errors.\r\n");
        } else if let Some(text) = refusal {
            self.abort(at, text.strip_prefix("ERR ").unwrap_or(&text), actions);
        } else if transaction.commands.is_empty() && !self.state.watching {
            self.answer_at(at, b"*0\r\n");
        } else {
            self.send_transaction(now_ms, at, transaction, actions);
        }
    }

    fn send_transaction(
        &mut self,
        now_ms: i64,
        at: Option<u64>,
        transaction: &Transaction,
        actions: &mut Vec<FrontAction>,
    ) {
        let watched = self.state.watching;
        let careful = transaction.bypass || watched || self.state.user;
        let kind = match (transaction.writes, careful) {
            (false, _) => RequestKind::Read,
            (true, false) => RequestKind::Update,
            (true, true) => RequestKind::Bypass,
        };
        let on_own = RequestFlags::PRIVATE.with(RequestFlags::WATCHED);
        let mut payload = self.begin_payload(RequestFlags::TRANSACTION.with_if(watched, on_own));
        for command in &transaction.commands {
            match make_absolute(command.args(), now_ms) {
                Expiry::Absolute(absolute) => write_command(&mut payload, absolute.args()),
                Expiry::Unchanged | Expiry::Invalid => write_command(&mut payload, command.args()),
            }
        }
        let key = transaction.commands.iter().find_map(|command| keys(command.args()).next());
        let key_hash = key_hash(self.state.db, key);
        let selects = transaction.selects();
        let must_wait = !selects.is_empty();
        let hook = if must_wait { Hook::Exec { selects } } else { Hook::None };
        let names = if self.description.cached && kind != RequestKind::Read {
            transaction.written_keys(self.state.db)
        } else {
            Vec::new()
        };
        let request = FrontRequest {
            kind,
            key_hash,
            names,
            lengthy: transaction.lengthy,
            ..FrontRequest::read("EXEC", payload)
        };
        if let Some(id) = self.send_at(at, request, hook, actions) {
            if transaction.runs_script() {
                self.pending.mark_script(id);
            }
            self.state.watching = false;
            self.state.stalled = must_wait;
        } else {
            self.unwatch(actions);
        }
    }
}
