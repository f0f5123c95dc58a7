//! The service: executes requests on the map, and answers for what is stable.
//!
//! Invariant: every request that may write leaves one op, with its session's position in it; replies
//! are given at once, stability is reported when the op is durable. Requests are executed in order,
//! also when the log cannot keep up: then all of them wait.

use crate::index::IndexKind;
use crate::journal::{Journal, JournalError, JournalLimits, Recovered};
use crate::letters::Letters;
use crate::op::Op;
use crate::request::{is_early, Request};
use crate::room::RoomWatch;
use crate::snapshot::{self, Sessions};
use crate::store::{commands, Call, Store, DATABASES};
use scotfree_core::{Epoch, Nanos, SeqNum, SessionId};
use scotfree_io::{now_monotonic, now_realtime, PersistenceDomain, ScanReport};
use scotfree_resp::codec::{is_error, write_bulk, write_error, write_header, write_simple};
use scotfree_resp::description::Description;
use scotfree_resp::payload::{
    write_request, write_response, CommandReader, RequestFlags, ResponseFlags, REQUEST_HEAD_BYTES,
};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{DeadLetter, Execution, Handler, Replies, Service, Watch};
use scotfree_session::{RecoveredSession, RequestKind};
use scotfree_wire::REQUEST_BYTES_MAX;
use std::collections::VecDeque;
use std::path::PathBuf;

/// How a [`KvService`] is set up.
#[derive(Debug, Clone)]
pub struct KvOptions {
    /// What finds a key's value. The log is the same for all.
    pub index: IndexKind,
    /// How much the data may take; a command that could exceed it is refused, after a warning at nine
    /// tenths of it.
    pub data_bytes_max: usize,
    /// How large a request that writes may be; a larger one is refused.
    pub request_bytes_max: usize,
    /// How many devices stand before it, which a client's sidecar wants to know.
    pub devices: u32,
    /// Whether the only device before it may answer reads again: clients are asked to take a note of values, and get one.
    pub vouches: bool,
    /// The bounds of the log.
    pub limits: JournalLimits,
    /// Where updates go that were never applied or were refused after an early answer, and how large that file may grow.
    pub dead_letters: PathBuf,
    /// See [`KvOptions::dead_letters`].
    pub dead_letters_bytes_max: u64,
}

impl KvOptions {
    /// Bounds that fit a log of `log_bytes`, behind so many devices. Half of it may be live: two snapshots and the ops.
    pub fn for_log(log_bytes: u64, devices: u32, dead_letters: PathBuf) -> KvOptions {
        KvOptions {
            index: IndexKind::default(),
            devices,
            vouches: false,
            data_bytes_max: (log_bytes / 8) as usize,
            // A record takes at most an eighth of a log.
            request_bytes_max: (log_bytes / 8).saturating_sub(128).min(REQUEST_BYTES_MAX as u64) as usize,
            limits: JournalLimits {
                ops_bytes_max: log_bytes / 8,
                backlog_bytes_max: 8 << 20,
                full_time_max: Nanos::from_secs(10),
            },
            dead_letters,
            dead_letters_bytes_max: 64 << 20,
        }
    }
}

/// What a service found in its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvRecovery {
    /// The epoch for this run of the server.
    pub epoch: Epoch,
    /// The sessions with their positions.
    pub sessions: Vec<RecoveredSession>,
    /// How many keys there are.
    pub key_count: usize,
    /// How many ops were applied on top of the latest snapshot.
    pub op_count: usize,
    /// What the log says of torn records.
    pub report: ScanReport,
}

/// The embedded key-value service.
pub struct KvService<D> {
    state: State,
    sessions: Sessions,
    journal: Journal<D>,
    /// What each op that is not durable stands for.
    undurable: VecDeque<(u64, Stands)>,
    /// The last request executed, and the last one reported as stable.
    ticket_last: u64,
    ticket_stable: u64,
    /// Requests that wait for the log.
    waiting: VecDeque<Waiting>,
    letters: Letters,
    request_bytes_max: usize,
    broken: Option<String>,
    room: RoomWatch,
}

/// What happens when an op is durable.
enum Stands {
    Nothing,
    Ticket(u64),
    Recorded(SessionId),
    Deleted(SessionId),
}

struct Waiting {
    ticket: u64,
    session: SessionId,
    seq: SeqNum,
    kind: RequestKind,
    payload: Vec<u8>,
    is_replayed: bool,
}

/// The map and the scratch memory of its requests.
struct State {
    store: Store,
    devices: u32,
    vouches: bool,
    reader: CommandReader,
    reply: Vec<u8>,
    /// It is one value, whose reader takes a note of how long that is true.
    is_noted: bool,
}

impl<D: PersistenceDomain> KvService<D> {
    /// Rebuilds the state from what the domain holds.
    pub fn open(domain: D, options: &KvOptions) -> Result<(KvService<D>, KvRecovery), JournalError> {
        let (journal, recovered) = Journal::open(domain, options.limits)?;
        let mut state = State::new(options);
        let mut sessions = Sessions::new();
        rebuild(&recovered, &mut state, &mut sessions)?;
        let recovery = KvRecovery {
            epoch: Epoch(recovered.epoch),
            sessions: sessions.values().copied().collect(),
            key_count: state.store.len(),
            op_count: recovered.ops.len(),
            report: recovered.report,
        };
        let state_refused = state.store.refused_count();
        let mut service = KvService {
            state,
            sessions,
            journal,
            undurable: VecDeque::new(),
            ticket_last: 0,
            ticket_stable: 0,
            waiting: VecDeque::new(),
            letters: Letters::new(&options.dead_letters, options.dead_letters_bytes_max),
            request_bytes_max: options.request_bytes_max,
            broken: None,
            room: RoomWatch::new(state_refused),
        };
        service.limit_data(options.data_bytes_max);
        Ok((service, recovery))
    }

    /// Whom to tell when the data comes near its limit, and when it has left it behind.
    pub fn tell(&mut self, say: impl FnMut(&str) + Send + 'static) {
        self.room.tell(say);
    }

    /// The map.
    pub fn store(&self) -> &Store {
        &self.state.store
    }

    /// The sessions with their positions.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// How many snapshots were taken.
    pub fn snapshots_taken(&self) -> u64 {
        self.journal.snapshots_taken()
    }

    /// What of a snapshot the log has not been given yet.
    pub fn snapshot_left_bytes(&self) -> usize {
        self.journal.snapshot_left_bytes()
    }

    /// Whether everything executed is durable and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.journal.is_idle() && self.waiting.is_empty() && self.undurable.is_empty()
    }

    /// The limit is part of the log, since it decides what requests do.
    fn limit_data(&mut self, data_bytes_max: usize) {
        if self.state.store.data_bytes_max() != data_bytes_max {
            self.state.store.set_data_bytes_max(data_bytes_max);
            self.note(&Op::Limit(data_bytes_max as u64), Stands::Nothing);
        }
    }

    fn run(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        self.ticket_last = request.ticket;
        let may_write = request.kind.writes();
        let changed = if may_write && request.payload.len() > self.request_bytes_max {
            self.state.refuse("ERR the request is larger than the log takes");
            self.state.is_noted = false;
            false
        } else {
            self.state.answer(request.payload, may_write)
        };
        if may_write {
            let (session, seq) = (request.session, request.seq);
            self.keep_late_error(request);
            let op = if changed {
                Op::Apply { session, seq, payload: request.payload }
            } else {
                Op::Position { session, seq }
            };
            self.note(&op, Stands::Ticket(request.ticket));
            if let Some(record) = self.sessions.get_mut(&session) {
                record.position = seq;
            }
        }
        let early_allowed = !self.state.store.is_nearly_full();
        let flags = ResponseFlags::NONE.with_if(early_allowed, ResponseFlags::EARLY_ALLOWED);
        let answer = &self.state.reply;
        if self.state.is_noted {
            // No key here has a time to live, and nobody writes but in sessions.
            replies.lives(request.ticket, u64::MAX);
        }
        replies.reply(request.ticket, is_error(answer), |out| write_response(out, flags, answer));
    }

    /// An early update that was refused becomes a dead letter, before its place is taken: its client will
    /// not see the reply.
    fn keep_late_error(&mut self, request: &Execution<'_>) {
        let is_late = request.kind == RequestKind::Update && is_early(request.payload);
        if !is_late || !is_error(&self.state.reply) {
            return;
        }
        let (session, seq) = (request.session, request.seq);
        if let Err(error) = self.letters.late_error(session, seq, request.payload, &self.state.reply) {
            self.broken.get_or_insert(error.to_string());
        }
    }

    fn note(&mut self, op: &Op<'_>, stands: Stands) {
        let number = self.journal.append(op);
        self.undurable.push_back((number, stands));
    }

    fn run_waiting(&mut self, replies: &mut Replies) {
        while !self.journal.is_stalled() {
            let Some(Waiting { ticket, session, seq, kind, payload, is_replayed }) = self.waiting.pop_front()
            else {
                return;
            };
            self.run(&Execution { ticket, session, seq, kind, payload: &payload, is_replayed }, replies);
        }
    }

    fn report_durable(&mut self, replies: &mut Replies) {
        let durable = self.journal.durable();
        while self.undurable.front().is_some_and(|(number, _)| *number <= durable) {
            let Some((_, stands)) = self.undurable.pop_front() else { break };
            match stands {
                Stands::Nothing | Stands::Ticket(_) => {}
                Stands::Recorded(session) => replies.session_recorded(session),
                Stands::Deleted(session) => replies.session_deleted(session),
            }
        }
        let first = self.undurable.iter().find_map(|(_, stands)| match stands {
            Stands::Ticket(ticket) => Some(*ticket),
            Stands::Nothing | Stands::Recorded(_) | Stands::Deleted(_) => None,
        });
        let stable = first.map_or(self.ticket_last, |ticket| ticket - 1);
        if stable > self.ticket_stable {
            self.ticket_stable = stable;
            replies.stable(stable);
        }
    }

    /// Writes the state out, between two requests: they wait in proportion to the data, which its limit
    /// bounds. Handing it to the log goes by slices.
    fn take_snapshot(&mut self) {
        let mut bytes = Vec::with_capacity(self.state.store.data_bytes());
        snapshot::write(&self.state.store, &self.sessions, &mut bytes);
        self.journal.take_snapshot(bytes);
    }

    fn advance(&mut self, replies: &mut Replies) -> Result<(), JournalError> {
        self.journal.pump()?;
        while !self.waiting.is_empty() && !self.journal.is_stalled() {
            self.run_waiting(replies);
            self.journal.pump()?;
        }
        if self.journal.wants_snapshot() {
            self.take_snapshot();
            self.journal.pump()?;
        }
        self.report_durable(replies);
        self.room.look_at(&self.state.store);
        if let Some(line) = self.letters.next_line(now_monotonic()) {
            self.room.pass_on(&line);
        }
        Ok(())
    }
}

impl<D: PersistenceDomain> Handler for KvService<D> {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        if self.waiting.is_empty() && !self.journal.is_stalled() {
            return self.run(request, replies);
        }
        // How many can wait is bounded by the sessions' credits.
        let Execution { ticket, session, seq, kind, payload, is_replayed } = *request;
        let payload = payload.to_vec();
        self.waiting.push_back(Waiting { ticket, session, seq, kind, payload, is_replayed });
    }

    fn poll(&mut self, _wants_stable: bool, replies: &mut Replies) {
        if self.broken.is_some() {
            return;
        }
        if let Err(error) = self.advance(replies) {
            self.broken = Some(error.to_string());
        }
    }

    fn watches(&self, out: &mut Vec<Watch>) {
        out.extend(self.journal.completion_fd().map(|fd| Watch {
            fd,
            generation: 0,
            readable: true,
            writable: false,
        }));
    }

    fn broken(&self) -> Option<String> {
        self.broken.clone()
    }

    fn write_metrics(&self, text: &mut MetricsText) {
        text.gauge("scotfree_kv_keys", "Keys.", self.state.store.len());
        text.gauge("scotfree_kv_data_bytes", "What the data takes.", self.state.store.data_bytes());
        let help = "What the data may take.";
        text.gauge("scotfree_kv_data_bytes_max", help, self.state.store.data_bytes_max());
        let help = "Requests that wait for the log.";
        text.gauge("scotfree_kv_waiting", help, self.waiting.len());
        text.gauge("scotfree_kv_log_bytes", "What the requests in the log take.", self.journal.ops_bytes());
        let help = "What of a snapshot the log has not been given yet.";
        text.gauge("scotfree_kv_snapshot_left_bytes", help, self.snapshot_left_bytes());
        let help = "Commands refused because the data may not take more.";
        text.counter("scotfree_kv_refused_total", help, self.state.store.refused_count());
        text.counter("scotfree_kv_snapshots_total", "Snapshots taken.", self.journal.snapshots_taken());
        let help = "Early answers are allowed: the data takes less than nine tenths of what it may.";
        text.gauge("scotfree_kv_early_allowed", help, u8::from(!self.state.store.is_nearly_full()));
        let help = "Updates refused after their clients had been answered early.";
        text.counter("scotfree_kv_late_errors_total", help, self.letters.late_errors());
        let help =
            "Updates never applied, or refused after an early answer; all are in the dead-letter file.";
        text.counter("scotfree_kv_dead_letters_total", help, self.letters.count());
    }

    fn next_poll(&self) -> Option<Nanos> {
        self.journal.next_pump()
    }
}

impl<D: PersistenceDomain> Service for KvService<D> {
    fn record_session(&mut self, record: &RecoveredSession, _replies: &mut Replies) {
        self.sessions.insert(record.session, *record);
        self.note(&Op::Start(*record), Stands::Recorded(record.session));
    }

    fn delete_session(&mut self, session: SessionId, _replies: &mut Replies) {
        self.sessions.remove(&session);
        self.note(&Op::End(session), Stands::Deleted(session));
    }

    fn dead_letter(&mut self, letter: &DeadLetter<'_>) {
        if let Err(error) = self.letters.write(letter) {
            self.broken.get_or_insert(error.to_string());
        }
    }
}

impl State {
    fn new(options: &KvOptions) -> State {
        let store = Store::new(options.index, 0);
        State {
            store,
            devices: options.devices,
            vouches: options.vouches,
            reader: CommandReader::default(),
            reply: Vec::new(),
            is_noted: false,
        }
    }

    /// Executes a request; its reply is in `self.reply`. Whether it may have changed the map.
    fn answer(&mut self, bytes: &[u8], may_write: bool) -> bool {
        self.reply.clear();
        self.is_noted = false;
        let request = match Request::parse(bytes, &mut self.reader) {
            Ok(request) => request,
            Err(error) => {
                self.refuse(&format!("ERR scotfree: {error}"));
                return false;
            }
        };
        if request.has(RequestFlags::DESCRIBE) {
            let description = Description { cached: self.vouches, ..description(&self.store, self.devices) };
            write_bulk(&mut self.reply, description.to_text().as_bytes());
            return false;
        }
        if request.has(RequestFlags::TRANSACTION) {
            write_header(&mut self.reply, request.command_count);
        } else if request.command_count == 0 {
            // A connection says that it needs nothing more.
            write_simple(&mut self.reply, "OK");
        }
        let is_get = self.run_commands(bytes, &request, may_write);
        self.is_noted = self.vouches && !may_write && is_get && self.shows_noted(&request);
        // A single command that is refused has changed nothing.
        may_write && request.command_count > 0 && !is_error(&self.reply)
    }

    /// Whether the reply is a value, alone, and whoever asked for it takes a note.
    fn shows_noted(&self, request: &Request) -> bool {
        let is_alone = request.command_count == 1 && !request.has(RequestFlags::TRANSACTION);
        let is_value = matches!(self.reply[..], [b'$', b'0'..=b'9', ..]);
        request.has(RequestFlags::NOTED) && is_alone && is_value
    }

    fn refuse(&mut self, text: &str) {
        self.reply.clear();
        write_error(&mut self.reply, text);
    }

    /// Whether the last command was a GET.
    fn run_commands(&mut self, bytes: &[u8], request: &Request, may_write: bool) -> bool {
        let mut is_get = false;
        let (db, is_resp3) = (request.head.db, request.has(RequestFlags::RESP3));
        let mut at = REQUEST_HEAD_BYTES;
        while let Ok(Some((args, next))) = self.reader.read(bytes, at) {
            at = next;
            let arguments: Vec<&[u8]> = args.iter().collect();
            is_get = arguments.len() == 2 && arguments[0].eq_ignore_ascii_case(b"GET");
            self.store.run(&Call { arguments: &arguments, db, is_resp3, may_write }, &mut self.reply);
        }
        is_get
    }
}

/// What a client's sidecar has to know of this service.
fn description(store: &Store, devices: u32) -> Description {
    Description {
        time_ms: (now_realtime().0 / 1_000_000) as i64,
        version: format!("scot-kv-{}", env!("CARGO_PKG_VERSION")),
        databases: DATABASES,
        // None is: positions lie in the log.
        reserved_db: u16::MAX,
        auth_required: false,
        writes_refused: None,
        early_allowed: !store.is_nearly_full(),
        packs: false,
        devices: Some(devices),
        commands: commands().collect(),
        ..Description::default()
    }
}

fn rebuild(recovered: &Recovered, state: &mut State, sessions: &mut Sessions) -> Result<(), JournalError> {
    let damaged = |what: &str| JournalError::Damaged(what.to_owned());
    if let Some(snapshot) = &recovered.snapshot {
        snapshot::read(snapshot, &mut state.store, sessions)
            .ok_or_else(|| damaged("its snapshot is not whole"))?;
    }
    for record in &recovered.ops {
        match Op::read(record).ok_or_else(|| damaged("an op cannot be read"))? {
            Op::Start(record) => drop(sessions.insert(record.session, record)),
            Op::End(session) => drop(sessions.remove(&session)),
            Op::Limit(bytes) => state.store.set_data_bytes_max(bytes as usize),
            Op::Position { session, seq } => advance(sessions, session, seq)?,
            Op::Apply { session, seq, payload } => {
                state.answer(payload, true);
                advance(sessions, session, seq)?;
            }
        }
    }
    Ok(())
}

/// Moves a session's position forward; backward, or without a session, is damage.
fn advance(sessions: &mut Sessions, session: SessionId, seq: SeqNum) -> Result<(), JournalError> {
    let record = sessions.get_mut(&session).filter(|record| record.position < seq);
    let record = record.ok_or_else(|| {
        JournalError::Damaged(format!("request {seq} of session {session} is out of its order"))
    })?;
    record.position = seq;
    Ok(())
}

/// A request for one command, for clients that are no sidecar.
pub fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    write_request(&mut out, RequestFlags::NONE, &[arguments]);
    out
}
