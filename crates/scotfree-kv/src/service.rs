//! The service: executes requests on the map, and answers for what is stable.
//!
//! Invariant: every request that may write leaves one op, with its session's position in it; replies
//! are given at once, stability is reported when the op is durable. Requests are executed in order,
//! also when the log cannot keep up: then all of them wait.

use crate::executor::Executor;
use crate::index::IndexKind;
use crate::journal::{Journal, JournalError, JournalLimits};
use crate::kept::Kept;
use crate::letters::Letters;
use crate::op::Op;
use crate::request::is_early;
use crate::room::RoomWatch;
use crate::snapshot::{self, Sessions};
use crate::store::Store;
use scotfree_core::{Epoch, Nanos, SeqNum, SessionId};
use scotfree_io::{now_monotonic, PersistenceDomain, ScanReport};
use scotfree_resp::payload::{write_request, RequestFlags};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{DeadLetter, Execution, Handler, Replies, Service, Watch};
use scotfree_session::{RecoveredSession, RequestKind};
use scotfree_state::ResultsLimits;
use scotfree_wire::{Identity, REQUEST_BYTES_MAX};
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
    /// What a member of a group remembers of answers; without a group there are none.
    pub results: ResultsLimits,
    /// Where updates go that were never applied or were refused after an early answer, and how large that file may grow.
    pub dead_letters: PathBuf,
    /// See [`KvOptions::dead_letters`].
    pub dead_letters_bytes_max: u64,
}

impl KvOptions {
    /// Bounds that fit a log of `log_bytes`, behind so many devices. Half of it may be live: two snapshots, each with an
    /// eighth for data and a sixteenth for results, and the ops.
    pub fn for_log(log_bytes: u64, devices: u32, dead_letters: PathBuf) -> KvOptions {
        // A record takes at most an eighth of a log.
        let record_bytes_max = (log_bytes / 8).saturating_sub(128);
        KvOptions {
            index: IndexKind::default(),
            devices,
            vouches: false,
            data_bytes_max: (log_bytes / 8) as usize,
            request_bytes_max: record_bytes_max.min(REQUEST_BYTES_MAX as u64) as usize,
            results: results_within(log_bytes / 16),
            limits: JournalLimits {
                chunk_bytes_max: record_bytes_max.min(32 << 10) as usize,
                ops_bytes_max: log_bytes / 8,
                backlog_bytes_max: 8 << 20,
                full_time_max: Nanos::from_secs(10),
                gather_time: Nanos(0),
            },
            dead_letters,
            dead_letters_bytes_max: 64 << 20,
        }
    }
}

/// Bounds within which all results fit into so many bytes.
fn results_within(bytes_max: u64) -> ResultsLimits {
    let bytes_max = bytes_max as usize;
    // At least half is for answers, whoever makes them.
    let clients_max = (bytes_max / 2 / RESULTS_CLIENT_BYTES).clamp(1, 16_384);
    let bytes_per_client_max = (bytes_max / 8).min(64 << 10);
    ResultsLimits { clients_max, bytes_per_client_max, bytes_max, ..ResultsLimits::default() }
}

/// What a client takes beside its answers.
const RESULTS_CLIENT_BYTES: usize = 36;

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
pub struct KvService<D: PersistenceDomain> {
    pub(crate) kept: Kept,
    pub(crate) executor: Executor,
    journal: Journal<D>,
    /// What each op that is not durable stands for.
    undurable: VecDeque<(u64, Stands)>,
    /// The last request executed, and the last one reported as stable.
    ticket_last: u64,
    ticket_stable: u64,
    /// How many writes of a group there were since the log was opened, and how many of them are durable.
    pub(crate) write_count: u64,
    pub(crate) write_stable: u64,
    /// Requests that wait for the log.
    waiting: VecDeque<Waiting>,
    letters: Letters,
    broken: Option<String>,
    room: RoomWatch,
}

/// What happens when an op is durable.
pub(crate) enum Stands {
    Nothing,
    Ticket(u64),
    Write(u64),
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
    identity: Option<Identity>,
}

impl<D: PersistenceDomain> KvService<D> {
    /// Rebuilds the state from what the domain holds.
    pub fn open(domain: D, options: &KvOptions) -> Result<(KvService<D>, KvRecovery), JournalError> {
        let (journal, recovered) = Journal::open(domain, options.limits)?;
        let mut executor = Executor::new(options);
        let mut kept = Kept::new(Store::new(options.index, 0), options.results);
        kept.recover(&recovered, &mut executor)?;
        let recovery = KvRecovery {
            epoch: Epoch(recovered.epoch),
            sessions: kept.sessions.values().copied().collect(),
            key_count: kept.store.len(),
            op_count: recovered.ops.len(),
            report: recovered.report,
        };
        let refused_before = kept.store.refused_count();
        let mut service = KvService {
            kept,
            executor,
            journal,
            undurable: VecDeque::new(),
            ticket_last: 0,
            ticket_stable: 0,
            write_count: 0,
            write_stable: 0,
            waiting: VecDeque::new(),
            letters: Letters::new(&options.dead_letters, options.dead_letters_bytes_max),
            broken: None,
            room: RoomWatch::new(refused_before),
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
        &self.kept.store
    }

    /// The sessions with their positions.
    pub fn sessions(&self) -> &Sessions {
        &self.kept.sessions
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
        if self.kept.store.data_bytes_max() != data_bytes_max {
            self.kept.store.set_data_bytes_max(data_bytes_max);
            self.note(&Op::Limit(data_bytes_max as u64), Stands::Nothing);
        }
    }

    fn run(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        self.ticket_last = request.ticket;
        let may_write = request.kind.writes();
        let changed = if may_write {
            self.executor.write(&mut self.kept.store, request.payload)
        } else {
            self.executor.answer(&mut self.kept.store, request.payload, false)
        };
        if may_write {
            self.note_executed(request, changed);
        }
        if self.executor.is_noted() {
            // No key here has a time to live, and nobody writes but in sessions.
            replies.lives(request.ticket, u64::MAX);
        }
        let (executor, store) = (&self.executor, &self.kept.store);
        replies.reply(request.ticket, executor.is_refused(), |out| executor.write_response(store, out));
    }

    /// A request that may have written takes its place.
    fn note_executed(&mut self, request: &Execution<'_>, changed: bool) {
        let (session, seq) = (request.session, request.seq);
        if request.kind == RequestKind::Update && is_early(request.payload) {
            self.keep_late_error(session, seq, request.payload);
        }
        let op = if changed {
            self.kept.leave_group();
            Op::Apply { session, seq, payload: request.payload }
        } else {
            Op::Position { session, seq }
        };
        self.note(&op, Stands::Ticket(request.ticket));
        self.kept.move_position(session, seq);
    }

    /// An early update that was refused becomes a dead letter, before its place is taken: its client will
    /// not see the reply.
    pub(crate) fn keep_late_error(&mut self, session: SessionId, seq: SeqNum, payload: &[u8]) {
        if !self.executor.is_refused() {
            return;
        }
        if let Err(error) = self.letters.late_error(session, seq, payload, self.executor.reply()) {
            self.broken.get_or_insert(error.to_string());
        }
    }

    /// Notes a write of a group; its number.
    pub(crate) fn note_write(&mut self, op: &Op<'_>) -> u64 {
        self.write_count += 1;
        self.note(op, Stands::Write(self.write_count));
        self.write_count
    }

    /// How much of a member's snapshot one record takes.
    pub(crate) fn part_bytes_max(&self) -> usize {
        self.journal.chunk_bytes_max()
    }

    /// Whether a request would be executed at once.
    pub(crate) fn takes_requests(&self) -> bool {
        self.waiting.is_empty() && !self.journal.is_stalled()
    }

    pub(crate) fn note(&mut self, op: &Op<'_>, stands: Stands) {
        let number = self.journal.append(op);
        self.undurable.push_back((number, stands));
    }

    fn run_waiting(&mut self, replies: &mut Replies) {
        while !self.journal.is_stalled() {
            let Some(waiting) = self.waiting.pop_front() else { return };
            let Waiting { ticket, session, seq, kind, payload, is_replayed, identity } = waiting;
            let payload = &payload;
            let request = Execution { ticket, session, seq, kind, payload, is_replayed, identity };
            self.run(&request, replies);
        }
    }

    fn report_durable(&mut self, replies: &mut Replies) {
        let durable = self.journal.durable();
        while self.undurable.front().is_some_and(|(number, _)| *number <= durable) {
            let Some((_, stands)) = self.undurable.pop_front() else { break };
            match stands {
                Stands::Nothing | Stands::Ticket(_) => {}
                Stands::Write(number) => self.write_stable = number,
                Stands::Recorded(session) => replies.session_recorded(session),
                Stands::Deleted(session) => replies.session_deleted(session),
            }
        }
        let first = self.undurable.iter().find_map(|(_, stands)| match stands {
            Stands::Ticket(ticket) => Some(*ticket),
            Stands::Nothing | Stands::Write(_) | Stands::Recorded(_) | Stands::Deleted(_) => None,
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
        let mut bytes = Vec::with_capacity(self.kept.store.data_bytes());
        snapshot::write(&self.kept, &mut bytes);
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
        self.journal.write()?;
        self.report_durable(replies);
        self.room.look_at(&self.kept.store);
        if let Some(line) = self.letters.next_line(now_monotonic()) {
            self.room.pass_on(&line);
        }
        Ok(())
    }
}

impl<D: PersistenceDomain> Handler for KvService<D> {
    fn execute(&mut self, request: &Execution<'_>, replies: &mut Replies) {
        if self.takes_requests() {
            return self.run(request, replies);
        }
        // How many can wait is bounded by the sessions' credits.
        let Execution { ticket, session, seq, kind, payload, is_replayed, identity } = *request;
        let payload = payload.to_vec();
        self.waiting.push_back(Waiting { ticket, session, seq, kind, payload, is_replayed, identity });
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
        text.gauge("scotfree_kv_keys", "Keys.", self.kept.store.len());
        let help = "Keys that hold nothing any more and whose versions a group keeps.";
        text.gauge("scotfree_kv_tombstones", help, self.kept.store.tombstone_count());
        text.gauge("scotfree_kv_data_bytes", "What the data takes.", self.kept.store.data_bytes());
        let help = "What the data may take.";
        text.gauge("scotfree_kv_data_bytes_max", help, self.kept.store.data_bytes_max());
        let help = "Requests that wait for the log.";
        text.gauge("scotfree_kv_waiting", help, self.waiting.len());
        text.gauge("scotfree_kv_log_bytes", "What the requests in the log take.", self.journal.ops_bytes());
        let help = "What of a snapshot the log has not been given yet.";
        text.gauge("scotfree_kv_snapshot_left_bytes", help, self.snapshot_left_bytes());
        let help = "Commands refused because the data may not take more.";
        text.counter("scotfree_kv_refused_total", help, self.kept.store.refused_count());
        text.counter("scotfree_kv_snapshots_total", "Snapshots taken.", self.journal.snapshots_taken());
        let help = "Early answers are allowed: the data takes less than nine tenths of what it may.";
        text.gauge("scotfree_kv_early_allowed", help, u8::from(!self.kept.store.is_nearly_full()));
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
        self.kept.sessions.insert(record.session, *record);
        self.note(&Op::Start(*record), Stands::Recorded(record.session));
    }

    fn delete_session(&mut self, session: SessionId, _replies: &mut Replies) {
        self.kept.sessions.remove(&session);
        self.note(&Op::End(session), Stands::Deleted(session));
    }

    fn dead_letter(&mut self, letter: &DeadLetter<'_>) {
        if let Err(error) = self.letters.write(letter) {
            self.broken.get_or_insert(error.to_string());
        }
    }
}

/// A request for one command, for clients that are no sidecar.
pub fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    write_request(&mut out, RequestFlags::NONE, &[arguments]);
    out
}
