//! What goes past the order: commands that block, listen or track, over a connection to the server that is the
//! client's own.
//!
//! Invariant: a connection goes this way no longer than it must. As soon as nothing blocks, listens or tracks, and
//! everything that was asked here is answered, its commands take the usual way again, so its writes are logged. What is
//! written here meanwhile is answered when the server's storage holds it, and nothing that came behind it sooner. What
//! would delete the markers goes the usual way, where they are written anew, when everything before it is answered.

use super::control::{parse_hello, Hello};
use super::pending::Hook;
use super::{ClientFront, Closing, FrontAction, FrontRequest, ReplyMode, Waits};
use crate::classes::{classify, keeps_in_value, key_hash, keys, lookup, Class, Flags};
use crate::codec::{
    elements, error_reply, is_error, parse_integer, text_of, write_command, write_words, Args, Command,
    Frames,
};
use crate::description::NameBuffer;
use crate::guard;
use crate::payload::{RequestFlags, RequestHead, RequestKind};
use scotfree_core::KeyHash;
use std::collections::VecDeque;

/// How many bytes that a client sends while it must wait for its tunnel are read. Its end is to be noticed, which comes
/// behind all of them, and behind what does not fit the socket is not heard.
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// By this command and its reply it is known that everything before it is answered: how many answers SUBSCRIBE and its
/// kin have, only the server knows.
const MARK: &str = "scotfree: answered so far?";
/// What is sent in the place of a command that is refused here: the server alone knows when it is its turn to be
/// answered, and answers that it does not know this one.
const REFUSED: &str = "scotfree: refused";
/// Deletes nothing; once that is stable, so is what was written before it.
const BARRIER: [&str; 2] = ["UNLINK", "scotfree: nothing has this name"];

/// What brought a connection to the server into its present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    credentials: Option<Command>,
    resp: u8,
    db: u16,
    client_name: Vec<u8>,
}

/// What a reply changes, if it is no error.
#[derive(Debug)]
enum Change {
    Nothing,
    Select(u16),
    Name(Vec<u8>),
    User(Command),
    Hello(Hello, Option<Command>),
    Track(bool),
    Monitor,
    Watch,
    Unwatch,
    Multi,
    Discard,
    Exec,
    Reset,
    Quit,
    /// SUBSCRIBE and its kin: any number of answers, and then that of the mark.
    Listen {
        confirmed: bool,
    },
    /// The answer to what asks whether everything is answered.
    Mark,
}

impl Change {
    /// Whether the next command may be of another database. What is inside a transaction is not looked at.
    fn may_choose_a_database(&self) -> bool {
        matches!(self, Change::Select(_) | Change::Reset | Change::Exec)
    }

    /// Whether the command is answered before what becomes of the next one is known: it may end the tunnel, or
    /// what is inside MULTI.
    fn decides_the_way(&self) -> bool {
        matches!(
            self,
            Change::Multi | Change::Exec | Change::Discard | Change::Reset | Change::Unwatch | Change::Quit
        )
    }
}

/// What a command may have written when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writes {
    Nothing,
    /// Nothing if the answer is null: the time is over, or what was watched has changed.
    UnlessNull,
    Something,
}

/// A command that was sent and is not answered.
#[derive(Debug)]
struct Asked {
    change: Change,
    writes: Writes,
    wanted: bool,
    /// Why another was sent in its place, which the server does not know.
    refusal: Option<String>,
    /// Its answer may never come.
    blocks: bool,
    /// It may change what a read is answered.
    changes: bool,
}

impl Asked {
    fn new(change: Change, writes: Writes, wanted: bool) -> Asked {
        Asked { change, writes, wanted, refusal: None, blocks: false, changes: false }
    }
}

/// An answer that is not sent yet.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    writes: bool,
}

/// One connection's way past the order.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Independent facts about a connection, no states of one machine.
pub(super) struct Tunnel {
    frames: Frames,
    asked: VecDeque<Asked>,
    held: VecDeque<Held>,
    /// How many bytes these have.
    held_bytes: usize,
    /// For how many of those held the barrier under way speaks.
    covered: usize,
    /// MULTI was sent, and nothing that ends it; what was sent inside may write, or listen.
    queues: bool,
    writes_queued: bool,
    listens_queued: bool,
    channels: i64,
    shard_channels: i64,
    tracks: bool,
    monitors: bool,
    watches: bool,
    /// Another connection names this one, and will.
    is_named: bool,
    /// Changes that wait for EXEC.
    multi: Option<Vec<Change>>,
    /// A command that is to go the usual way, and whether its answer is wanted; nothing behind it is read.
    aside: Option<(Command, bool)>,
    /// One did, and is not answered.
    is_aside: bool,
    /// What the client is told last, behind all answers.
    last: Vec<u8>,
}

impl Tunnel {
    /// One whose connection has been sent these already: MULTI and what is inside, or nothing.
    fn behind(commands: &[Command], is_named: bool) -> Tunnel {
        let inside = || commands.iter().skip(1).map(Command::args);
        let changes: Vec<Change> = inside().map(change_of).collect();
        Tunnel {
            queues: !commands.is_empty(),
            writes_queued: inside().any(|args| writes_of(args) != Writes::Nothing),
            listens_queued: changes.iter().any(|change| matches!(change, Change::Listen { .. })),
            multi: (!commands.is_empty()).then_some(changes),
            is_named,
            ..Tunnel::default()
        }
    }

    fn listens(&self) -> bool {
        self.channels > 0 || self.shard_channels > 0
    }

    /// Whether the connection to the server has a state that the usual way lacks.
    fn lasts(&self) -> bool {
        self.listens()
            || self.tracks
            || self.monitors
            || self.watches
            || self.is_named
            || self.multi.is_some()
    }

    /// The server has forgotten everything about the connection.
    fn forget(&mut self) {
        (self.channels, self.shard_channels, self.multi) = (0, 0, None);
        (self.tracks, self.monitors, self.watches) = (false, false, false);
    }

    /// Whether the client has every answer.
    fn is_answered(&self) -> bool {
        self.asked.is_empty() && self.held.is_empty() && self.last.is_empty() && !self.has_aside()
    }

    /// Whether nothing else may be said before a command that goes the usual way is answered.
    pub(super) fn has_aside(&self) -> bool {
        self.is_aside || self.aside.is_some()
    }

    /// The command that is to go the usual way, if it is its turn.
    fn take_aside(&mut self) -> Option<(Command, bool)> {
        let aside = self.aside.take_if(|_| self.asked.is_empty() && self.held.is_empty())?;
        self.is_aside = true;
        Some(aside)
    }

    fn is_over(&self) -> bool {
        self.is_answered() && !self.lasts()
    }

    /// How many commands have no answer yet.
    pub(super) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// What a command may write that is sent now. Inside MULTI it writes when EXEC does.
    fn writes_now(&mut self, args: Args<'_>, change: &Change) -> Writes {
        let writes = writes_of(args);
        match change {
            Change::Multi => self.queues = true,
            Change::Exec => {
                self.queues = false;
                if std::mem::take(&mut self.writes_queued) {
                    return Writes::UnlessNull;
                }
            }
            Change::Discard | Change::Reset => self.stop_queueing(),
            Change::Listen { .. } => self.listens_queued |= self.queues,
            _ if self.queues => self.writes_queued |= writes != Writes::Nothing,
            _ => {}
        }
        writes
    }

    /// What is sent from now on is inside no MULTI.
    fn stop_queueing(&mut self) {
        (self.queues, self.writes_queued, self.listens_queued) = (false, false, false);
    }

    /// Whether a mark is to be sent behind a command.
    fn needs_mark(&mut self, change: &Change) -> bool {
        match change {
            Change::Listen { .. } => !self.queues,
            Change::Exec => std::mem::take(&mut self.listens_queued),
            _ => false,
        }
    }

    /// Whether an answer belongs to no command.
    fn is_unasked(&self, frame: &[u8], resp: u8) -> bool {
        match frame.first() {
            Some(b'>') => true,
            Some(b'+') => self.monitors && frame.get(1).is_some_and(u8::is_ascii_digit),
            Some(b'*') if resp == 2 && self.listens() => {
                [&b"message"[..], b"pmessage", b"smessage"].contains(&kind_of(frame))
            }
            _ => false,
        }
    }

    /// Takes what an answer, or one inside EXEC's, says of channels; whether it says something of them.
    fn confirm(&mut self, frame: &[u8]) -> bool {
        let kind = kind_of(frame);
        let count = elements(frame).nth(2).and_then(|part| part.strip_prefix(b":")?.strip_suffix(b"\r\n"));
        let Some(count) = count.filter(|_| kind.ends_with(b"subscribe")).and_then(parse_integer) else {
            return false;
        };
        match kind {
            b"ssubscribe" | b"sunsubscribe" => self.shard_channels = count,
            _ => self.channels = count,
        }
        if let Some(Asked { change: Change::Listen { confirmed }, .. }) = self.asked.front_mut() {
            *confirmed = true;
        }
        true
    }

    /// To which command an answer belongs; none if it is not for the client.
    fn take_asked(&mut self, frame: &[u8]) -> Option<Asked> {
        let more = Asked::new(Change::Nothing, Writes::Nothing, true);
        // In RESP2 they look like data, which any other command may be answered.
        let may_say = matches!(
            self.asked.front().map(|asked| &asked.change),
            Some(Change::Listen { .. } | Change::Mark)
        );
        let says_of_channels = may_say && self.confirm(frame);
        match self.asked.front().map(|asked| &asked.change) {
            Some(Change::Listen { .. } | Change::Mark) | None if says_of_channels => Some(more),
            Some(Change::Listen { confirmed }) if is_mark(frame) || *confirmed && is_error(frame) => {
                self.asked.drain(..self.asked.len().min(2));
                None
            }
            // Without the right to PING the answer is an error, which says as much.
            Some(Change::Mark) if is_mark(frame) || is_error(frame) => {
                self.asked.pop_front();
                None
            }
            Some(Change::Mark) | None => Some(more),
            Some(_) => self.asked.pop_front(),
        }
    }

    /// Puts an answer behind those that wait; at once if none does and it need not.
    fn put(&mut self, frame: &[u8], writes: bool, output: &mut Vec<u8>) {
        if self.held.is_empty() && !writes {
            output.extend_from_slice(frame);
        } else {
            self.held_bytes += frame.len();
            self.held.push_back(Held { bytes: frame.to_vec(), writes });
        }
    }

    /// If all commands are answered, what is said last goes behind the answers.
    fn put_last(&mut self, output: &mut Vec<u8>) {
        if self.asked.is_empty() && !self.last.is_empty() {
            let last = std::mem::take(&mut self.last);
            self.put(&last, false, output);
        }
    }

    /// What was answered before the barrier set out may leave.
    fn release(&mut self, output: &mut Vec<u8>) {
        let mut covered = std::mem::take(&mut self.covered);
        while self.held.front().is_some_and(|held| covered > 0 || !held.writes) {
            covered = covered.saturating_sub(1);
            let bytes = self.held.pop_front().unwrap_or_default().bytes;
            self.held_bytes -= bytes.len();
            output.extend_from_slice(&bytes);
        }
    }

    /// What a change that belongs to the connection to the server alone makes of it; false if it is another.
    fn take_change(&mut self, change: &Change) -> bool {
        match change {
            Change::Track(on) => self.tracks = *on,
            Change::Monitor => self.monitors = true,
            Change::Watch => self.watches = true,
            Change::Unwatch => self.watches = false,
            Change::Multi => self.multi = Some(Vec::new()),
            Change::Discard => (self.multi, self.watches) = (None, false),
            Change::Nothing | Change::Mark | Change::Listen { .. } => {}
            Change::Select(_)
            | Change::Name(_)
            | Change::User(_)
            | Change::Hello(..)
            | Change::Exec
            | Change::Quit
            | Change::Reset => return false,
        }
        true
    }
}

impl ClientFront {
    /// The connection becomes a tunnel as soon as nothing is pending.
    pub(super) fn tunnel(&mut self, args: Args<'_>) {
        self.tunnel_from(vec![args.into()]);
    }

    /// As [`ClientFront::tunnel`]. The client has had the answers to all but the last of `commands`.
    pub(super) fn tunnel_from(&mut self, commands: Vec<Command>) {
        self.counters.tunnels += 1;
        self.pending.expect(Hook::Tunnel(commands));
        self.state.stalled = true;
    }

    /// Becomes a tunnel without a command of its own, if nothing is pending; another one is to name its connection.
    pub fn become_tunnel(&mut self, actions: &mut Vec<FrontAction>) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.is_named = true;
        } else if self.pending.is_empty() && self.state.transaction.is_none() && !self.state.watching {
            self.tunnel_from(Vec::new());
            self.start_tunnel(actions);
        }
    }

    /// No other connection names this one any more.
    pub fn forget_naming(&mut self, now_ms: i64, actions: &mut Vec<FrontAction>) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.is_named = false;
        }
        self.settle_tunnel(actions);
        self.run(now_ms, actions);
    }

    /// Begins the tunnel that is next, if one is.
    pub(super) fn start_tunnel(&mut self, actions: &mut Vec<FrontAction>) {
        let Some((mut commands, wanted)) = self.pending.take_tunnel() else { return };
        let command = commands.pop();
        if let Some(command) = command.as_ref().filter(|command| is_stream(command.args())) {
            return self.give_away(command, actions);
        }
        // The connection of the last time is still there; it is used again if it is in this one's state.
        let is_ready = self.tunnel_setting.as_ref() == Some(&self.setting());
        if self.tunnel_setting.is_some() && !is_ready {
            actions.push(FrontAction::EndTunnel);
        }
        self.tunnel_setting = Some(self.setting());
        let (setup, setup_replies) = self.tunnel_setup(&commands, is_ready);
        self.tunnel = Some(Tunnel::behind(&commands, command.is_none()));
        let bytes = command.map_or_else(Vec::new, |command| self.ask_tunnel(command.args(), wanted));
        self.state.stalled &= !bytes.is_empty();
        actions.push(FrontAction::Tunnel { setup, setup_replies, bytes, is_whole: false });
    }

    /// The connection's bytes are the server's affair from now on.
    fn give_away(&mut self, command: &Command, actions: &mut Vec<FrontAction>) {
        if self.tunnel_setting.take().is_some() {
            actions.push(FrontAction::EndTunnel);
        }
        self.state.closing = Closing::Done;
        self.passed_by.begun += 1;
        self.passed_by.given_away += 1;
        let (mut setup, setup_replies) = self.tunnel_setup(&[], false);
        if self.state.replies == ReplyMode::Off {
            write_words(&mut setup, &[b"CLIENT", b"REPLY", b"OFF"]);
        }
        let mut bytes = Vec::new();
        write_command(&mut bytes, command.args());
        bytes.extend_from_slice(self.decoder.unread());
        actions.push(FrontAction::Tunnel { setup, setup_replies, bytes, is_whole: true });
    }

    fn setting(&self) -> Setting {
        Setting {
            credentials: self.state.credentials.clone(),
            resp: self.state.resp,
            db: self.state.db,
            client_name: self.state.client_name.clone(),
        }
    }

    /// What brings a connection into this one's state, with `answered` commands last; and how many replies it has.
    fn tunnel_setup(&self, answered: &[Command], is_ready: bool) -> (Vec<u8>, usize) {
        let mut commands = if is_ready { Vec::new() } else { self.tunnel_greeting() };
        commands.extend_from_slice(answered);
        let mut setup = Vec::new();
        for command in &commands {
            write_command(&mut setup, command.args());
        }
        (setup, commands.len())
    }

    fn tunnel_greeting(&self) -> Vec<Command> {
        let mut commands: Vec<Command> = self.state.credentials.iter().cloned().collect();
        if self.state.resp == 3 {
            commands.push(Command::new(["HELLO", "3"]));
        }
        if self.state.db != 0 {
            commands.push(Command::new(["SELECT", &self.state.db.to_string()]));
        }
        // The connection has a name of ours, so that it is known as such.
        commands.push(Command::new([&b"CLIENT"[..], b"SETNAME", &self.state.client_name]));
        // By the only number among the replies other connections' commands can name this one.
        commands.push(Command::new(["CLIENT", "ID"]));
        commands
    }

    /// A command of a connection that is a tunnel.
    pub(super) fn pass(&mut self, args: Args<'_>, actions: &mut Vec<FrontAction>) {
        // RESET has the answers come again, its own as the first.
        let resets = args.len() == 1 && args.is(0, "RESET") && self.state.replies == ReplyMode::Off;
        let mut wanted = !self.pending.suppress || resets;
        if self.may_choose_replies() && chooses_replies(args) {
            // The server always answers: what is not wanted is left out here.
            match () {
                () if args.is(2, "OFF") => return self.state.replies = ReplyMode::Off,
                () if args.is(2, "SKIP") && self.state.replies == ReplyMode::Off => return,
                () if args.is(2, "SKIP") => return self.state.replies = ReplyMode::SkipNext,
                () if args.is(2, "ON") => (self.state.replies, wanted) = (ReplyMode::On, true),
                () => {}
            }
        }
        if let Some(tunnel) = self.tunnel.as_mut().filter(|tunnel| guard::flushes_all(args) && !tunnel.queues)
        {
            return tunnel.aside = Some((args.into(), wanted));
        }
        let bytes = self.ask_tunnel(args, wanted);
        actions.push(FrontAction::Pass(bytes));
    }

    /// Whether the server would carry out CLIENT REPLY: in RESP2 not while the client listens, and inside MULTI later.
    fn may_choose_replies(&self) -> bool {
        self.may_say_anything() && !self.tunnel.as_ref().is_some_and(|tunnel| tunnel.queues)
    }

    /// In RESP2 the server takes few commands of a client that listens.
    fn may_say_anything(&self) -> bool {
        self.state.resp != 2 || !self.tunnel.as_ref().is_some_and(Tunnel::listens)
    }

    /// Sends what is to go the usual way, as soon as everything before it is answered.
    pub(super) fn go_aside(&mut self, now_ms: i64, actions: &mut Vec<FrontAction>) {
        let may_say = self.may_say_anything();
        let Some(tunnel) = &mut self.tunnel else { return };
        let Some((command, wanted)) = tunnel.take_aside() else { return };
        if !may_say {
            tunnel.is_aside = false;
            // With an argument that it does not have it does nothing, wherever the server takes it.
            let bytes = self.ask_tunnel(Command::new(["FLUSHALL", "not here"]).args(), wanted);
            return actions.push(FrontAction::Pass(bytes));
        }
        self.authenticate_again(actions);
        let suppressed = std::mem::replace(&mut self.pending.suppress, !wanted);
        let asked = actions.len();
        let mut name = NameBuffer::default();
        match self.find(command.args(), &mut name) {
            Err(text) => self.answer_error(&text),
            Ok((_, info)) => self.ordinary(now_ms, info, command.args(), actions),
        }
        self.pending.suppress = suppressed;
        if actions.len() == asked {
            // It was answered at once.
            self.end_aside(actions);
        }
    }

    /// What went the usual way is answered.
    pub(super) fn end_aside(&mut self, actions: &mut Vec<FrontAction>) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.is_aside = false;
        }
        self.settle_tunnel(actions);
    }

    /// Expects the answers to a command; what is sent for it.
    fn ask_tunnel(&mut self, args: Args<'_>, wanted: bool) -> Vec<u8> {
        let refusal = self.tunnel_refusal(args);
        let (reserved, mut bytes) = (self.description.reserved_db, Vec::new());
        let Some(tunnel) = &mut self.tunnel else { return bytes };
        let refusal = guard::refusal_aside(args, reserved).or(refusal);
        let (change, writes) = if args.is(0, "QUIT") {
            // Its end would say that the server is lost; so it is answered here when everything before it is.
            write_words(&mut bytes, &[b"PING", MARK.as_bytes()]);
            (Change::Quit, Writes::Nothing)
        } else if refusal.is_some() {
            write_words(&mut bytes, &[REFUSED.as_bytes()]);
            (Change::Nothing, Writes::Nothing)
        } else {
            write_command(&mut bytes, args);
            let change = change_of(args);
            let writes = tunnel.writes_now(args, &change);
            (change, writes)
        };
        let is_of_tunnels = classify(args).class == Class::Tunnel;
        self.state.stalled |= change.decides_the_way() || is_of_tunnels;
        let needs_mark = tunnel.needs_mark(&change);
        let blocks = is_of_tunnels && matches!(change, Change::Nothing) && refusal.is_none();
        let changes = refusal.is_none() && !blocks && may_change(args, writes);
        self.passed_by.begun += u64::from(changes);
        if blocks && writes != Writes::Nothing && !takes_nothing_away(args) {
            self.waits_begun += 1;
            // Which database it is in is not known while something is asked that may choose another.
            let is_known = !tunnel.asked.iter().any(|asked| asked.change.may_choose_a_database());
            let keys = is_known.then(|| key_hashes(self.state.db, args));
            self.waits = Some(Waits { number: self.waits_begun, keys: keys.filter(|keys| !keys.is_empty()) });
        }
        tunnel.asked.push_back(Asked { refusal, blocks, changes, ..Asked::new(change, writes, wanted) });
        if needs_mark {
            write_words(&mut bytes, &[b"PING", MARK.as_bytes()]);
            tunnel.asked.push_back(Asked::new(Change::Mark, Writes::Nothing, false));
        }
        bytes
    }

    fn tunnel_refusal(&self, args: Args<'_>) -> Option<String> {
        if is_stream(args) {
            return Some(
                "ERR scotfree: replication begins on a new connection, not on one that listens or tracks"
                    .into(),
            );
        }
        // Its answers would count differently: the server takes it when EXEC comes.
        if chooses_replies(args) && self.tunnel.as_ref().is_some_and(|tunnel| tunnel.queues) {
            return Some("ERR scotfree: CLIENT REPLY inside MULTI is not supported".into());
        }
        self.refusal_of_writes().filter(|_| writes_of(args) != Writes::Nothing)
    }

    /// The connection to the server has sent bytes; `ended`: they are its last ones.
    pub fn on_tunnel(&mut self, now_ms: i64, bytes: &[u8], ended: bool, actions: &mut Vec<FrontAction>) {
        let mut failure = None;
        if let Some(tunnel) = &mut self.tunnel {
            let mut frames = std::mem::take(&mut tunnel.frames);
            frames.push(bytes);
            failure = loop {
                match frames.pop() {
                    Ok(Some(frame)) => self.on_answer(frame),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            if let Some(tunnel) = &mut self.tunnel {
                tunnel.frames = frames;
            }
        }
        if ended || failure.is_some() {
            self.lose_tunnel();
        }
        if let Some(error) = failure {
            let text = format!("ERR scotfree: the server's answer cannot be read: {error}");
            self.output.extend_from_slice(&error_reply(&text));
        }
        self.settle_tunnel(actions);
        self.run(now_ms, actions);
    }

    /// The connection to the server is lost. What is held has been executed there; whether it outlasts the loss nobody
    /// knows, and what is stable at a server that comes back says nothing of it.
    fn lose_tunnel(&mut self) {
        self.tunnel_setting = None;
        let Some(tunnel) = self.tunnel.take() else { return };
        // Nothing else is waited for than what the barrier says.
        self.pending.clear();
        if !tunnel.held.is_empty() || tunnel.is_aside {
            let text = "ERR scotfree: the server is lost, and with it perhaps what this command has written; the outcome \
                        is unknown";
            self.output.extend_from_slice(&error_reply(text));
        }
        if self.state.closing == Closing::No {
            self.state.closing = Closing::WhenAnswered;
        }
    }

    fn on_answer(&mut self, frame: &[u8]) {
        let Some(tunnel) = &mut self.tunnel else { return };
        if tunnel.is_unasked(frame, self.state.resp) {
            tunnel.confirm(frame);
            return tunnel.put(frame, false, &mut self.output);
        }
        let Some(asked) = tunnel.take_asked(frame) else { return };
        self.passed_by.ended += u64::from(asked.changes);
        self.waits.take_if(|_| asked.blocks);
        let is_queued = tunnel.multi.is_some() && frame == b"+QUEUED\r\n";
        let wrote = match asked.writes {
            Writes::Nothing => false,
            Writes::UnlessNull => !is_null(frame),
            Writes::Something => true,
        };
        if matches!(asked.change, Change::Quit) {
            if asked.wanted {
                tunnel.put(b"+OK\r\n", false, &mut self.output);
            }
            self.state.closing = Closing::WhenAnswered;
            return;
        }
        let refusal = asked.refusal.filter(|_| frame.starts_with(b"-ERR unknown command"));
        let refusal = refusal.map(|text| error_reply(&text));
        if asked.wanted {
            let answer = refusal.as_deref().unwrap_or(frame);
            tunnel.put(answer, wrote && !is_queued && !is_error(frame), &mut self.output);
        }
        match (&mut tunnel.multi, asked.change) {
            (Some(multi), change) if is_queued => multi.push(change),
            (None, Change::Multi) if is_error(frame) => tunnel.stop_queueing(),
            (_, Change::Exec) => self.executed_in_tunnel(frame, asked.wanted),
            (_, change) if !is_error(frame) => self.take_change(change),
            _ => {}
        }
    }

    /// What is said of channels is told also where answers are not wanted.
    fn executed_in_tunnel(&mut self, frame: &[u8], wanted: bool) {
        let Some(tunnel) = &mut self.tunnel else { return };
        tunnel.watches = false;
        let changes = tunnel.multi.take().unwrap_or_default();
        let listens = changes.iter().any(|change| matches!(change, Change::Listen { .. }));
        let mut changes = changes.into_iter();
        for part in parts(frame) {
            let change = changes.next().unwrap_or(Change::Nothing);
            let may_say = part.starts_with(b">") || listens && self.state.resp == 2;
            if let Some(tunnel) = self.tunnel.as_mut().filter(|_| may_say) {
                if tunnel.confirm(&part) && !wanted {
                    tunnel.put(&part, false, &mut self.output);
                }
            }
            if !is_error(&part) {
                self.take_change(change);
            }
        }
    }

    fn take_change(&mut self, change: Change) {
        let Some(tunnel) = &mut self.tunnel else { return };
        if tunnel.take_change(&change) {
            return;
        }
        match change {
            Change::Select(db) => self.state.db = db,
            Change::Name(name) => self.state.client_name = name,
            Change::User(credentials) => self.take_user(credentials),
            Change::Hello(hello, credentials) => {
                if let Some(credentials) = credentials {
                    self.take_user(credentials);
                }
                self.take_hello(&hello);
            }
            Change::Reset => {
                tunnel.forget();
                let private_open = self.state.private_open;
                self.forget_state();
                (self.state.stalled, self.state.private_open) = (true, private_open);
            }
            _ => {}
        }
    }

    /// Ends the connection when everything that was asked is answered, with these words.
    pub(super) fn part(&mut self, words: &[u8]) {
        self.state.closing = Closing::WhenAnswered;
        let Some(tunnel) = &mut self.tunnel else { return self.answer(words) };
        tunnel.last.extend_from_slice(words);
        tunnel.put_last(&mut self.output);
    }

    /// Whether nothing is to be waited for any more.
    pub(super) fn is_answered(&self) -> bool {
        self.pending.is_empty() && self.tunnel.as_ref().is_none_or(Tunnel::is_answered)
    }

    /// Takes the usual way again if nothing is left that needs this one, and asks for what is held.
    pub(super) fn settle_tunnel(&mut self, actions: &mut Vec<FrontAction>) {
        let Some(tunnel) = &mut self.tunnel else { return };
        tunnel.put_last(&mut self.output);
        if tunnel.lasts() {
            self.state.stalled &= !tunnel.asked.is_empty();
        }
        if tunnel.is_over() {
            self.tunnel = None;
            self.state.stalled = false;
            if self.tunnel_setting.is_some() {
                self.tunnel_setting = Some(self.setting());
                actions.push(FrontAction::RestTunnel);
            }
            self.authenticate_again(actions);
        } else if !tunnel.held.is_empty() && tunnel.covered == 0 {
            tunnel.covered = tunnel.held.len();
            self.ask_barrier(actions);
        }
    }

    /// Asks for something that is answered when it is stable, and all that was written before.
    fn ask_barrier(&mut self, actions: &mut Vec<FrontAction>) {
        let command = Command::new(BARRIER);
        let mut payload = Vec::new();
        let head = RequestHead { flags: RequestFlags::NONE, db: 0, connection: self.identity.number };
        head.write(&mut payload);
        write_command(&mut payload, command.args());
        let suppressed = std::mem::replace(&mut self.pending.suppress, true);
        let id = self.pending.expect(Hook::Barrier);
        self.pending.suppress = suppressed;
        self.counters.bypasses += 1;
        let key_hash = key_hash(0, Some(BARRIER[1].as_bytes()));
        let request = FrontRequest::read("UNLINK", payload);
        actions.push(FrontAction::Request(FrontRequest {
            id,
            kind: RequestKind::Bypass,
            key_hash,
            lengthy: false,
            ..request
        }));
    }

    /// What was asked to know that something is stable is answered.
    pub(super) fn on_barrier(&mut self, id: u64, reply: &[u8], actions: &mut Vec<FrontAction>) {
        if is_error(reply) {
            let error = String::from_utf8_lossy(reply.get(1..).unwrap_or_default()).trim_end().to_owned();
            let text = format!(
                "ERR scotfree: the command was executed; whether it outlasts a crash is not known, since the server \
                 refuses to write: {error}"
            );
            return self.pending.complete(id, &error_reply(&text), true);
        }
        self.pending.complete(id, b"", false);
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.release(&mut self.output);
        }
        self.settle_tunnel(actions);
    }

    /// Whether it waits for what may never come. Who is gone must not get it.
    pub fn blocks(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|tunnel| tunnel.asked.iter().any(|asked| asked.blocks))
    }

    /// Whether what its tunnel has heard can be taken: not while much waits for the client, or for storage before it.
    pub fn takes_tunnel(&self) -> bool {
        let held = self.tunnel.as_ref().map_or(0, |tunnel| tunnel.held_bytes);
        self.output().len() + held < self.config.output_bytes_max
    }

    /// Whether it waits for answers that come past the order, and will come.
    pub fn awaits_tunnel(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|tunnel| !tunnel.asked.is_empty()) && !self.blocks()
    }

    /// Whether bytes are read of a client that has to wait for its tunnel.
    pub(super) fn reads_ahead(&self) -> bool {
        let has_room = self.decoder.held_bytes() < AHEAD_BYTES_MAX && !self.is_full();
        self.tunnel.is_some() && has_room && self.state.closing == Closing::No
    }
}

/// Whether a command that goes past the order may change what a read is answered: a write, what a MULTI behind which
/// nobody has looked holds, and PFCOUNT, which keeps what it has counted in the value.
fn may_change(args: Args<'_>, writes: Writes) -> bool {
    writes != Writes::Nothing || args.is(0, "EXEC") || keeps_in_value(args)
}

/// Whether a command that blocks changes only what a group has read, which no reply shows that is kept anywhere.
fn takes_nothing_away(args: Args<'_>) -> bool {
    args.is(0, "XREADGROUP")
}

fn key_hashes(db: u16, args: Args<'_>) -> Vec<KeyHash> {
    keys(args).map(|key| key_hash(db, Some(key))).collect()
}

/// Whether a command makes the connection a stream of replication, for good.
fn is_stream(args: Args<'_>) -> bool {
    ["SYNC", "PSYNC", "REPLCONF"].iter().any(|name| args.is(0, name))
}

/// Whether a command says which answers are wanted.
fn chooses_replies(args: Args<'_>) -> bool {
    args.len() == 3 && args.is(0, "CLIENT") && args.is(1, "REPLY")
}

fn writes_of(args: Args<'_>) -> Writes {
    let verdict = classify(args);
    match verdict.class {
        Class::Tunnel if verdict.row.is_some_and(|row| row.flags.has(Flags::WRITE)) => Writes::UnlessNull,
        Class::Early | Class::Covered | Class::Bypass => Writes::Something,
        Class::Tunnel | Class::Read | Class::Control => Writes::Nothing,
    }
}

fn change_of(args: Args<'_>) -> Change {
    let name = lookup(args).map_or("", |row| row.command.as_str());
    match name {
        "SELECT" => {
            let db = parse_integer(args.get(1)).and_then(|db| u16::try_from(db).ok());
            db.map_or(Change::Nothing, Change::Select)
        }
        "CLIENT SETNAME" => Change::Name(args.get(2).to_vec()),
        "AUTH" => Change::User(args.into()),
        "HELLO" => parse_hello(args).map_or(Change::Nothing, |(hello, user)| Change::Hello(hello, user)),
        "CLIENT TRACKING" => Change::Track(args.is(2, "ON")),
        "MONITOR" => Change::Monitor,
        "WATCH" => Change::Watch,
        "UNWATCH" => Change::Unwatch,
        "MULTI" => Change::Multi,
        "DISCARD" => Change::Discard,
        "EXEC" => Change::Exec,
        "RESET" => Change::Reset,
        name if name.ends_with("SUBSCRIBE") => Change::Listen { confirmed: false },
        _ => Change::Nothing,
    }
}

/// The first word of a message.
fn kind_of(frame: &[u8]) -> &[u8] {
    let is_message = matches!(frame.first(), Some(b'*' | b'>'));
    elements(frame).next().filter(|_| is_message).and_then(text_of).unwrap_or_default()
}

fn is_mark(frame: &[u8]) -> bool {
    let is_text = |part: &[u8]| text_of(part) == Some(MARK.as_bytes());
    is_text(frame) || kind_of(frame) == b"pong" && elements(frame).nth(1).is_some_and(is_text)
}

fn is_null(frame: &[u8]) -> bool {
    matches!(frame, b"*-1\r\n" | b"$-1\r\n" | b"_\r\n")
}

/// The values inside EXEC's answer, messages among them.
fn parts(frame: &[u8]) -> Vec<Vec<u8>> {
    let body = frame.iter().position(|byte| *byte == b'\n').map_or(&[][..], |end| &frame[end + 1..]);
    let (mut frames, mut parts) = (Frames::default(), Vec::new());
    if frame.first() == Some(&b'*') {
        frames.push(body);
        while let Ok(Some(part)) = frames.pop() {
            parts.push(part.to_vec());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::{FrontConfig, Identity};
    use super::*;
    use crate::description::Description;
    use std::sync::Arc;

    #[test]
    fn of_a_client_that_must_wait_so_much_is_read_ahead_and_no_more() {
        let description = Arc::new(Description::of_table());
        let mut front = ClientFront::new(Arc::new(FrontConfig::default()), description, Identity::new(1, 77));
        let mut actions = Vec::new();
        front.on_bytes(0, b"BLPOP l 0\r\n", &mut actions);
        assert!(front.wants_input(), "its end is to be noticed");
        let mut ahead = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9999999\r\n".to_vec();
        ahead.resize(AHEAD_BYTES_MAX - 1, b'x');
        front.on_bytes(0, &ahead, &mut actions);
        assert!(front.wants_input());
        front.on_bytes(0, b"xx", &mut actions);
        assert!(!front.wants_input());
        front.on_tunnel(0, b"*-1\r\n", false, &mut actions);
        assert!(front.wants_input(), "what came ahead is the next command");
    }
}
