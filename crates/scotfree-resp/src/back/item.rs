//! One thing to be done by the server, and how it has to be done.
//!
//! Invariant: nothing reaches the server that could break the order of replies on a lane, touch the
//! markers, or write under the name of a read, whatever the payload claims.

use crate::classes::{arity_admits, classify, Class, Flags};
use crate::codec::{error_reply, parse_integer, Args};
use crate::description::{CommandInfo, Description, NameBuffer};
use crate::guard;
use crate::payload::{PartHead, RequestFlags, RequestKind, RequestPayload, ResponseFlags};
use scotfree_core::{SeqNum, SessionId};

/// How an item has to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Nature {
    /// By itself; doing it again does no harm.
    Direct {
        /// The server will refuse it, and with it whatever it shares a transaction with.
        inert: bool,
    },
    /// By itself; it may write, but the server does not take it inside MULTI.
    Solo,
    /// By itself and without a marker, since the server's memory is used up or it takes no writes for another reason.
    Bare,
    /// Inside MULTI, with others or alone.
    Batched {
        /// The server will refuse it, and with it whatever it shares a transaction with.
        alone: bool,
    },
    /// A command of the connection, on a lane of its own.
    OnLane(LaneCommand),
    /// HELLO: the reply is the server's, the version is the lane's affair.
    Hello(u8),
    /// Lets go of a lane.
    Release,
    /// Would the server queue the command?
    Ask,
    /// Answered with the description.
    Describe,
    /// Bytes of a large request, to be kept.
    Part,
    /// Asks for the next part of a large reply.
    Rest,
    /// Answered with this; whether the client's connection is closed.
    Refused(Vec<u8>, bool),
    /// Stores a session's marker.
    Record(Vec<u8>),
    /// Deletes a session's marker.
    Delete,
    /// Stores the markers that are behind.
    Flush,
}

/// A command that changes or asks the state of its own lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneCommand {
    Auth { user: bool },
    Watch,
    Unwatch,
    Ask,
}

/// What a part of a pack is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub reply: Vec<u8>,
    pub flags: ResponseFlags,
}

impl Answer {
    /// A reply with nothing more to be said.
    pub fn plain(reply: &[u8]) -> Answer {
        Answer { reply: reply.to_vec(), flags: ResponseFlags::NONE }
    }
}

/// One thing to be done.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// None for what the sidecar does for itself.
    pub ticket: Option<u64>,
    pub session: SessionId,
    pub seq: SeqNum,
    /// Whether its place is to be stored as the session's position.
    pub writes: bool,
    pub nature: Nature,
    pub payload: Vec<u8>,
    pub request: RequestPayload,
    /// Of a pack: what its parts are answered, as far as that is known.
    pub answers: Vec<Option<Answer>>,
    /// How many milliseconds what it shows lives, if it is a read of which that is to be said.
    pub lives_ms: Option<u64>,
    /// How often it was on its way when a lane broke.
    pub tries: u8,
    /// It may have been acknowledged before: see [`super::Execute::is_replayed`].
    pub is_replayed: bool,
    /// Its session's position is behind it already, although it was not executed: see [`super::Back::on_overtaken`].
    pub is_counted: bool,
}

impl Item {
    /// Something that the sidecar does for itself.
    pub fn own(session: SessionId, nature: Nature) -> Item {
        Item {
            ticket: None,
            session,
            seq: SeqNum(0),
            writes: false,
            nature,
            payload: Vec::new(),
            request: RequestPayload::default(),
            answers: Vec::new(),
            lives_ms: None,
            tries: 0,
            is_replayed: false,
            is_counted: false,
        }
    }

    pub fn has(&self, flags: RequestFlags) -> bool {
        self.request.head.flags.has(flags)
    }

    /// Whose parts these are.
    pub fn owner(&self) -> (SessionId, u32) {
        (self.session, self.request.head.connection)
    }

    /// The session's and the connection's numbers, if it has to run on a lane of its own.
    pub fn private(&self) -> Option<(SessionId, u32)> {
        self.has(RequestFlags::PRIVATE).then_some((self.session, self.request.head.connection))
    }

    /// Whether its commands are parts that only share a packet.
    pub fn is_pack(&self) -> bool {
        self.has(RequestFlags::PACK)
    }

    /// The commands that are to be run: all but those of a pack that are answered already.
    pub fn open_commands(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.request.len()).filter(|index| self.answers.get(*index).is_none_or(Option::is_none))
    }

    /// A reply to the first of a pack's open commands has come; whether it was the last.
    pub fn answer_next(&mut self, answer: Answer) -> bool {
        let next = self.open_commands().next();
        if let Some(slot) = next.and_then(|index| self.answers.get_mut(index)) {
            *slot = Some(answer);
        }
        self.open_commands().next().is_none()
    }

    /// Which database a command begins in.
    pub fn db(&self, command: usize) -> u16 {
        self.request.part(command).db
    }

    /// Whether a reply of several elements is wanted.
    pub fn is_transaction(&self) -> bool {
        self.has(RequestFlags::TRANSACTION)
    }

    /// Whether it only reads, and for somebody.
    pub fn is_read(&self) -> bool {
        self.ticket.is_some() && !self.writes
    }

    /// Whether one of the commands empties all databases.
    pub fn flushes_all(&self) -> bool {
        self.request.all(&self.payload).any(|args| args.is(0, "FLUSHALL"))
    }

    /// Whether one of the commands changes the server's settings.
    pub fn configures(&self) -> bool {
        self.request.all(&self.payload).any(|args| args.is(0, "CONFIG") && args.is(1, "SET"))
    }

    /// Whether one of the commands runs a script, which may take any time.
    pub fn runs_script(&self) -> bool {
        self.request.all(&self.payload).any(runs_script)
    }

    /// Whether the server may refuse a command because its memory is used up.
    pub fn may_grow(&self, command: usize) -> bool {
        let args = self.request.args(&self.payload, command);
        classify(args).row.is_none_or(|row| row.flags.has(Flags::DENYOOM))
    }

    /// What its open commands answer whenever they are executed, if that is always the same.
    pub fn fixed_replies(&self) -> Option<Vec<&'static [u8]>> {
        if self.nature != (Nature::Batched { alone: false }) || self.is_transaction() {
            return None;
        }
        let fixed = |command| {
            let verdict = classify(self.request.args(&self.payload, command));
            Some(verdict).filter(|verdict| verdict.class == Class::Early)?.fixed_reply
        };
        self.open_commands().map(fixed).collect()
    }

    /// A command as words, for a dead letter.
    pub fn words(&self, command: usize) -> Vec<Vec<u8>> {
        self.request.args(&self.payload, command).iter().map(<[u8]>::to_vec).collect()
    }
}

/// Decides how a request has to be done.
pub(super) fn judge(
    description: &Description,
    kind: RequestKind,
    request: &RequestPayload,
    payload: &[u8],
) -> Nature {
    let head = request.head;
    if head.flags.has(RequestFlags::REST) {
        return Nature::Rest;
    }
    if head.flags.has(RequestFlags::PART) && kind == RequestKind::Read {
        return Nature::Part;
    }
    if head.flags.is_partial() {
        return refused("ERR scotfree: a part of a request came out of place");
    }
    if head.flags.has(RequestFlags::DESCRIBE) {
        return Nature::Describe;
    }
    if head.flags.has(RequestFlags::ASK) {
        return judge_ask(description, kind, request, payload);
    }
    let mut places = (0..request.len().max(1)).map(|command| request.part(command));
    if let Some(text) = places.find_map(|part| closed_database(description, part)) {
        return refused(&text);
    }
    if request.is_empty() && !head.flags.has(RequestFlags::TRANSACTION) {
        return Nature::Release;
    }
    for args in request.all(payload) {
        if let Some(text) = guard::refusal(args, description.reserved_db) {
            return refused(&text);
        }
    }
    let known = |args| known(description, args);
    let harmless =
        |args| known(args).is_none() || !may_write(args, head.flags.has(RequestFlags::TRANSACTION));
    if kind == RequestKind::Read && !request.all(payload).all(harmless) {
        return refused(
            "ERR scotfree: a command that writes came as a read; reconnect to learn the server's commands",
        );
    }
    if head.flags.has(RequestFlags::TRANSACTION) {
        if request.all(payload).any(|args| classify(args).in_transaction.is_none()) {
            return refused("ERR scotfree: a command of the transaction is not supported there");
        }
        return Nature::Batched { alone: !request.all(payload).all(|args| known(args).is_some()) };
    }
    if head.flags.has(RequestFlags::PACK) {
        return judge_pack(description, kind, request, payload);
    }
    judge_one(description, kind, request.args(payload, 0), head.flags)
}

/// What is asked about must be what MULTI only queues.
fn judge_ask(
    description: &Description,
    kind: RequestKind,
    request: &RequestPayload,
    payload: &[u8],
) -> Nature {
    let is_queued = |args: Args<'_>| {
        let runs = ["EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"].iter().any(|name| args.is(0, name));
        !runs
            && guard::refusal(args, description.reserved_db).is_none()
            && known(description, args).is_some()
            && classify(args).in_transaction.is_some()
    };
    if kind == RequestKind::Read && request.len() == 1 && is_queued(request.args(payload, 0)) {
        Nature::Ask
    } else {
        refused("ERR scotfree: it can only be asked whether one command that MULTI queues would be queued")
    }
}

/// Why nothing is done in a part's database.
fn closed_database(description: &Description, part: PartHead) -> Option<String> {
    if part.db == description.reserved_db {
        return Some(guard::reserved(part.db));
    }
    (part.db >= description.databases).then(|| "ERR DB index is out of range".to_owned())
}

/// Parts are run together, so none may be what has to be run by itself; a client's sidecar packs none such.
fn judge_pack(
    description: &Description,
    kind: RequestKind,
    request: &RequestPayload,
    payload: &[u8],
) -> Nature {
    let mut refused_by_server = false;
    for args in request.all(payload) {
        match judge_one(description, kind, args, request.head.flags) {
            Nature::Direct { inert } => refused_by_server |= inert,
            Nature::Batched { .. } => {}
            _ => return refused("ERR scotfree: a command that has to be run by itself came with others"),
        }
    }
    match kind {
        RequestKind::Read => Nature::Direct { inert: refused_by_server },
        RequestKind::Update | RequestKind::Bypass => Nature::Batched { alone: refused_by_server },
    }
}

fn judge_one(description: &Description, kind: RequestKind, args: Args<'_>, flags: RequestFlags) -> Nature {
    let Some(info) = known(description, args) else { return Nature::Direct { inert: true } };
    let class = classify(args).class;
    match class {
        Class::Control => lane_command(args, flags),
        Class::Tunnel => refused("ERR scotfree: a command that blocks or streams came as a request"),
        // A script is what others must not wait behind: see `Back::take_batch`.
        Class::Read if kind == RequestKind::Read && runs_script(args) => Nature::Batched { alone: false },
        Class::Read if kind == RequestKind::Read => Nature::Direct { inert: false },
        _ if info.flags.has(Flags::NO_MULTI) => Nature::Solo,
        // Inside MULTI the server would begin later, and say so.
        _ if begins_a_file(args) && !flags.has(RequestFlags::PACK) => Nature::Solo,
        Class::Early | Class::Covered | Class::Bypass | Class::Read => Nature::Batched { alone: false },
    }
}

/// Whether the server begins to write a file of its own.
fn begins_a_file(args: Args<'_>) -> bool {
    args.is(0, "BGREWRITEAOF") || args.is(0, "BGSAVE")
}

fn lane_command(args: Args<'_>, flags: RequestFlags) -> Nature {
    if args.is(0, "HELLO") && args.len() == 2 {
        return match args.get(1) {
            b"2" => Nature::Hello(2),
            b"3" => Nature::Hello(3),
            _ => refused("NOPROTO unsupported protocol version"),
        };
    }
    if flags.has(RequestFlags::PRIVATE) {
        let asks = ["ID", "INFO", "GETREDIR", "TRACKINGINFO", "NO-EVICT", "NO-TOUCH", "CAPA"];
        if args.is(0, "AUTH") {
            let user = args.len() == 3 && args.get(1) != b"default";
            return Nature::OnLane(LaneCommand::Auth { user });
        } else if args.is(0, "WATCH") {
            return Nature::OnLane(LaneCommand::Watch);
        } else if args.is(0, "UNWATCH") {
            return Nature::OnLane(LaneCommand::Unwatch);
        } else if args.is(0, "CLIENT") && asks.iter().any(|word| args.is(1, word)) {
            return Nature::OnLane(LaneCommand::Ask);
        }
    }
    refused("ERR scotfree: a command of the connection came as a request")
}

fn refused(text: &str) -> Nature {
    Nature::Refused(error_reply(text), false)
}

/// What the server knows of a command; none if it would refuse it for its name or number of arguments.
fn known(description: &Description, args: Args<'_>) -> Option<CommandInfo> {
    let (_, info) = description.command_of(args, &mut NameBuffer::default()).ok()?;
    arity_admits(info.arity, args.len()).then_some(info)
}

fn runs_script(args: Args<'_>) -> bool {
    let names = ["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"];
    names.iter().any(|name| args.is(0, name))
}

fn may_write(args: Args<'_>, in_transaction: bool) -> bool {
    let verdict = classify(args);
    let class = if in_transaction { verdict.in_transaction.unwrap_or(Class::Bypass) } else { verdict.class };
    class.is_write()
}

/// The database that is selected after a command, if it changes it.
pub(super) fn selected(args: Args<'_>, databases: u16) -> Option<u16> {
    let db = args.is(0, "SELECT").then(|| parse_integer(args.get(1)))??;
    u16::try_from(db).ok().filter(|db| *db < databases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{write_command, Command};
    use crate::payload::RequestHead;

    fn nature(kind: RequestKind, flags: RequestFlags, lines: &[&str]) -> Nature {
        let mut payload = Vec::new();
        RequestHead { flags, ..RequestHead::default() }.write(&mut payload);
        for line in lines {
            write_command(&mut payload, Command::new(line.split(' ')).args());
        }
        let request = RequestPayload::parse(&payload).expect("well-formed");
        judge(&Description::of_table(), kind, &request, &payload)
    }

    #[test]
    fn requests_are_done_as_their_commands_need() {
        let none = RequestFlags::NONE;
        assert_eq!(nature(RequestKind::Update, none, &["SET k v"]), Nature::Batched { alone: false });
        assert_eq!(nature(RequestKind::Bypass, none, &["SPOP k"]), Nature::Batched { alone: false });
        assert_eq!(nature(RequestKind::Bypass, none, &["NOSUCH k"]), Nature::Direct { inert: true });
        assert_eq!(nature(RequestKind::Bypass, none, &["SETEX k"]), Nature::Direct { inert: true });
        assert_eq!(nature(RequestKind::Read, none, &["GET k"]), Nature::Direct { inert: false });
        assert_eq!(nature(RequestKind::Bypass, none, &["SAVE"]), Nature::Solo);
        assert_eq!(nature(RequestKind::Read, none, &["EVAL_RO x 0"]), Nature::Batched { alone: false });
        assert_eq!(nature(RequestKind::Read, none, &["HELLO 3"]), Nature::Hello(3));
        let transaction = RequestFlags::TRANSACTION;
        assert_eq!(nature(RequestKind::Read, transaction, &["GET k"]), Nature::Batched { alone: false });
        assert_eq!(nature(RequestKind::Update, transaction, &["NOSUCH k"]), Nature::Batched { alone: true });
        assert_eq!(
            nature(RequestKind::Update, transaction, &["BLPOP k 0"]),
            Nature::Batched { alone: false }
        );
        assert_eq!(nature(RequestKind::Read, RequestFlags::ASK, &["SET k v"]), Nature::Ask);
        let private = RequestFlags::PRIVATE;
        assert_eq!(nature(RequestKind::Read, private, &["WATCH k"]), Nature::OnLane(LaneCommand::Watch));
        assert_eq!(nature(RequestKind::Read, private.with(RequestFlags::RELEASE), &[]), Nature::Release);
    }

    #[test]
    fn a_hostile_request_is_refused() {
        let none = RequestFlags::NONE;
        for (kind, flags, line) in [
            (RequestKind::Read, none, "SET k v"),
            (RequestKind::Read, none, "SPOP k"),
            (RequestKind::Read, RequestFlags::TRANSACTION, "DEL k"),
            (RequestKind::Update, none, "BLPOP k 0"),
            (RequestKind::Read, none, "MONITOR"),
            (RequestKind::Read, none, "SUBSCRIBE c"),
            (RequestKind::Read, none, "CLIENT REPLY OFF"),
            (RequestKind::Read, RequestFlags::PRIVATE, "CLIENT REPLY SKIP"),
            (RequestKind::Read, none, "SELECT 3"),
            (RequestKind::Read, none, "WATCH k"),
            (RequestKind::Read, none, "MULTI"),
            (RequestKind::Read, none, "RESET"),
            (RequestKind::Update, none, "MOVE k 15"),
            (RequestKind::Update, RequestFlags::TRANSACTION, "SELECT 15"),
            (RequestKind::Read, RequestFlags::TRANSACTION, "MONITOR"),
            (RequestKind::Read, RequestFlags::TRANSACTION, "HELLO 3"),
            (RequestKind::Read, RequestFlags::ASK, "EXEC"),
            (RequestKind::Read, RequestFlags::ASK, "DISCARD"),
            (RequestKind::Read, RequestFlags::ASK, "MONITOR"),
            (RequestKind::Read, RequestFlags::ASK, "SELECT 15"),
            (RequestKind::Update, RequestFlags::ASK, "SET k v"),
        ] {
            assert!(matches!(nature(kind, flags, &[line]), Nature::Refused(..)), "{line}");
        }
    }

    #[test]
    fn no_request_starts_in_the_reserved_database() {
        for db in [15, 16] {
            let head = RequestHead { db, ..RequestHead::default() };
            let mut payload = Vec::new();
            head.write(&mut payload);
            write_command(&mut payload, Command::new(["GET", "k"]).args());
            let request = RequestPayload::parse(&payload).expect("well-formed");
            let nature = judge(&Description::of_table(), RequestKind::Read, &request, &payload);
            assert!(matches!(nature, Nature::Refused(..)));
        }
    }
}
