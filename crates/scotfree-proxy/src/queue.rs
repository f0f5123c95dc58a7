//! The machine of a proxy: gives requests their places, says what is to be logged and executed, and who may be told
//! what came of it.
//!
//! Invariant: nobody is told anything that a crash of the proxy, of the server, of both or of the host could
//! contradict (rules 1 to 13, docs/design/proxy.md). Requests are executed in the order of their places, each once.

use crate::fault::Fault;
use crate::record::{LoggedUpdate, RecordWriter};
use crate::writes::Writes;
use scotfree_core::{KeyHash, SeqNum, SessionId};
use scotfree_session::RequestKind;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many places may be missing between two updates of a log.
const GAP_MAX: u64 = 1 << 24;
/// Behind how many requests without a read reads are no longer expected.
const READ_LATELY: u64 = 256;

/// What the machine is told at its start.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// How many requests there may be that are not dealt with: executed, answered, and stable if they write.
    pub window_max: usize,
    /// How many bytes these may have.
    pub window_bytes_max: usize,
    /// Behind how many requests that a server which is there has not answered no further early update is taken: who
    /// waits for an answer waits for all of them.
    pub early_ahead_max: usize,
    /// Behind how many bytes a record of the log takes no further update.
    pub record_bytes_max: usize,
    /// A rule that is switched off, for tests.
    pub fault: Option<Fault>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig {
            window_max: 1 << 16,
            window_bytes_max: 64 << 20,
            early_ahead_max: 2_048,
            record_bytes_max: 256 << 10,
            fault: None,
        }
    }
}

/// What of the data a request touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// One key.
    Key(KeyHash),
    /// Several keys, or unknown ones.
    Any,
}

impl Access {
    /// Whether both may touch the same.
    fn meets(self, other: Access) -> bool {
        match (self, other) {
            (Access::None, _) | (_, Access::None) => false,
            (Access::Any, _) | (_, Access::Any) => true,
            (Access::Key(one), Access::Key(another)) => one == another,
        }
    }
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Submission<'a> {
    /// Whose.
    pub session: SessionId,
    /// What kind.
    pub kind: RequestKind,
    /// Whether the log's word is its answer.
    pub early: bool,
    /// What it touches.
    pub access: Access,
    /// What is to be executed.
    pub payload: &'a [u8],
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsubmitted {
    /// The session is not there, or is ending.
    #[error("the session is over")]
    NoSession,
    /// As many requests are under way as may be.
    #[error("the window is full")]
    WindowFull,
}

/// A request to be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// Whose.
    pub session: SessionId,
    /// Its place.
    pub seq: SeqNum,
    /// What kind.
    pub kind: RequestKind,
    /// What is to be executed.
    pub payload: &'a [u8],
    /// It may have been acknowledged before the server began: that the server takes no writes at present is no answer
    /// to it, and nothing behind it may be executed before it is (rule 11).
    pub is_replayed: bool,
}

/// What the server's reply says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed.
    Executed,
    /// It was executed, and no position says so: the server takes no marker at present. What it was answered may be an
    /// error.
    Unmarked {
        /// Whether it is one.
        failed: bool,
    },
    /// It was refused, and did nothing.
    Refused,
    /// An error, behind which it may have been executed or not.
    Unknown,
}

impl Outcome {
    /// Whether the server's reply is an error.
    pub const fn failed(self) -> bool {
        match self {
            Outcome::Executed => false,
            Outcome::Unmarked { failed } => failed,
            Outcome::Refused | Outcome::Unknown => true,
        }
    }
}

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// The log holds it: the answer is known in advance.
    ByLog,
    /// The server: this is its reply, and whether it refused the request.
    ByServer(Vec<u8>, bool),
    /// It was executed before a crash, and its reply is gone.
    Gone,
}

/// A request that may be answered now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Whose.
    pub session: SessionId,
    /// Its place.
    pub seq: SeqNum,
    /// What it is answered.
    pub answered: Answered,
}

/// What was found at the start: the log's records and how far the server is.
#[derive(Debug, Clone, Default)]
pub struct Found<'a> {
    /// The first and the last place in each of the log's records, in order. By the last a record is called.
    pub records: Vec<(SeqNum, SeqNum)>,
    /// All updates in them, in order.
    pub updates: Vec<LoggedUpdate<'a>>,
    /// The sessions that the server knows of this log, and their positions.
    pub positions: BTreeMap<SessionId, SeqNum>,
}

/// An update that is never executed: a write of its session before it was lost, so it was answered to nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Whose.
    pub session: SessionId,
    /// Its place.
    pub seq: SeqNum,
    /// What is not executed.
    pub payload: Vec<u8>,
}

/// A session of which a server that is there again has less than what a server before it had called stable: its data
/// is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacking {
    /// Whose.
    pub session: SessionId,
    /// Its last write that was stable.
    pub kept: SeqNum,
    /// Up to where it is there; 0 if the server does not know it.
    pub found: SeqNum,
}

/// The log's updates are further apart than any requests that were under way together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("between the updates {before} and {behind} of the log, more are missing than can be: it is damaged, or another server answers")]
pub struct Torn {
    before: u64,
    behind: u64,
}

/// What has been counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounters {
    /// Requests taken.
    pub submitted: u64,
    /// Answered.
    pub completed: u64,
    /// Of these, by the log alone.
    pub completed_early: u64,
    /// Answers that waited for the log or for storage after the server had given them.
    pub held: u64,
    /// Updates handed to the log.
    pub logged: u64,
    /// Records of the log that held them.
    pub records: u64,
    /// Executed after a crash.
    pub replayed: u64,
    /// Never executed, since a write before them was lost.
    pub lost: u64,
    /// Reads whose answer was known without the server.
    pub known: u64,
    /// Those that nobody is told of, since their session is over.
    pub untold: u64,
}

impl QueueCounters {
    /// How many requests somebody waits for.
    pub fn under_way(&self) -> u64 {
        self.submitted.saturating_sub(self.completed + self.untold)
    }
}

#[derive(Debug)]
enum Reply {
    None,
    Given { bytes: Vec<u8>, failed: bool },
    Gone,
}

/// A request that is not dealt with.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Independent facts, no states of one machine.
struct Entry {
    session: SessionId,
    kind: RequestKind,
    access: Access,
    early: bool,
    /// It is still to be executed.
    waits: bool,
    /// Nobody waits for it any more.
    is_complete: bool,
    /// That was said.
    is_told: bool,
    /// It is never executed: it concerns nobody any more.
    is_dropped: bool,
    /// It is executed anew, and may have been acknowledged before.
    is_replayed: bool,
    /// The server says that it has executed it, and the session's position will say so.
    is_executed: bool,
    /// It was executed, and no position says so.
    is_unmarked: bool,
    /// The last unlogged write of its session before it.
    behind: u64,
    /// What has to be logged, or stable, before the server's answer may leave.
    needs_safe: u64,
    /// What has to be stable before it may be answered.
    needs_stable: u64,
    /// It was refused, or no position will tell of it, and a note says that it is not to be executed.
    is_noted: bool,
    /// The last note that the log must hold before the server's answer may leave: it may have seen that something was
    /// refused.
    needs_note: u64,
    /// It is such a note: nothing is to be done, and `behind` is what was refused.
    is_note: bool,
    reply: Reply,
    payload: Vec<u8>,
}

impl Entry {
    fn of_log(session: SessionId, behind: u64, payload: &[u8]) -> Entry {
        Entry {
            session,
            kind: RequestKind::Update,
            access: Access::Any,
            early: false,
            waits: true,
            is_complete: true,
            is_told: true,
            is_dropped: false,
            is_replayed: false,
            is_executed: false,
            is_unmarked: false,
            behind,
            needs_safe: 0,
            needs_stable: 0,
            is_noted: false,
            needs_note: 0,
            is_note: false,
            reply: Reply::None,
            payload: payload.to_vec(),
        }
    }

    /// A place at which nothing is to be done.
    fn nothing() -> Entry {
        Entry { kind: RequestKind::Read, is_dropped: true, ..Entry::of_log(SessionId(0), 0, &[]) }
    }

    /// A note that what had this place was refused, and what its session's last unlogged write before it was.
    fn note_of(session: SessionId, refused: u64, behind: u64) -> Entry {
        let entry = Entry::of_log(session, refused, &behind.to_le_bytes());
        Entry { waits: false, is_note: true, reply: Reply::Gone, ..entry }
    }

    fn is_answered(&self) -> bool {
        !matches!(self.reply, Reply::None)
    }

    /// Whether a planted fault has it answered before it is safe, or before what it needs is stable.
    fn ignored_by(&self, fault: Option<Fault>) -> (bool, bool) {
        match fault {
            Some(Fault::EarlyBeforeLogged) => (self.early, false),
            Some(Fault::EarlyBeforeStable) => (false, self.early),
            Some(Fault::CoveredBeforeLogged) => (!self.early && self.kind == RequestKind::Update, false),
            Some(Fault::AnswerBeforeLogged) => (self.kind == RequestKind::Read, false),
            Some(Fault::AnswerBeforeStable) => (false, self.kind != RequestKind::Bypass && !self.early),
            Some(Fault::BypassBeforeStable) => (false, self.kind == RequestKind::Bypass),
            _ => (false, false),
        }
    }
}

/// What becomes of a request when the server has begun again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is executed, perhaps again: what it did is lost, or it never did anything.
    Run,
    /// It was executed, and is not to be again.
    Done,
    /// It is never executed.
    Drop,
    /// It is never executed, and an operator is told.
    Lose,
}

#[derive(Debug, Default)]
struct Session {
    /// Its last write that the log does not hold.
    unlogged: u64,
    /// Its last write.
    written: u64,
    /// How many of its requests nobody was told of.
    open: u64,
    /// The last write that the server has executed and called stable, of those that are forgotten here.
    kept: u64,
    /// What the server has of it is not known for certain.
    is_in_doubt: bool,
}

/// The machine.
#[derive(Debug)]
pub struct CommitQueue {
    config: QueueConfig,
    sessions: BTreeMap<SessionId, Session>,
    /// Those of them that take nothing more.
    ending: BTreeSet<SessionId>,
    entries: VecDeque<Entry>,
    entries_bytes: usize,
    /// The place of the first entry.
    first: u64,
    /// The next to be handed to the log, and to the server.
    log_next: u64,
    run_next: u64,
    record: RecordWriter,
    /// Every update up to here is in the log, and everything up to here stable.
    logged: u64,
    stable: u64,
    /// How far the server was when it began last.
    positions: BTreeMap<SessionId, SeqNum>,
    /// The updates of which only the log knows yet, and the writes of which it never will.
    unsafe_writes: Writes,
    unlogged_writes: Writes,
    /// Those that were executed without a marker.
    unmarked_writes: Writes,
    /// Who waits for the log, or for storage, having been answered by the server: until when.
    held_until_safe: BTreeSet<(u64, u64)>,
    held_until_stable: BTreeSet<(u64, u64)>,
    held_until_noted: BTreeSet<(u64, u64)>,
    /// The writes that the server has refused, as long as an update behind one of them may be in the log, and the last
    /// unlogged one of its session before each.
    refused: BTreeMap<u64, u64>,
    /// The notes that the log does not hold yet, and what they say to have been refused.
    unlogged_notes: VecDeque<(u64, u64)>,
    /// Up to where the server's storage holds everything.
    stable_said: u64,
    /// The log takes nothing at present.
    is_log_closed: bool,
    ready: VecDeque<u64>,
    /// Everything before it is answered by the server.
    answered_next: u64,
    /// The server was lost, and is not there again.
    is_server_away: bool,
    /// The last read.
    read_last: u64,
    /// The first and last places of the records that were handed over and are not trimmed.
    records: VecDeque<(SeqNum, SeqNum)>,
    counters: QueueCounters,
}

impl CommitQueue {
    /// A machine that goes on where an earlier one was: with what its log holds and how far the server is. Updates
    /// that can never be executed are returned.
    pub fn recover(config: QueueConfig, found: &Found<'_>) -> Result<(CommitQueue, Vec<Lost>), Torn> {
        let last = found.updates.last().map_or(0, |update| update.seq.0);
        let applied = highest(&found.positions);
        let first = applied + 1;
        let mut queue = CommitQueue {
            config,
            sessions: BTreeMap::new(),
            ending: BTreeSet::new(),
            entries: VecDeque::new(),
            entries_bytes: 0,
            first,
            log_next: 0,
            run_next: first,
            record: RecordWriter::default(),
            logged: last,
            stable: 0,
            positions: BTreeMap::new(),
            unsafe_writes: Writes::default(),
            unlogged_writes: Writes::default(),
            unmarked_writes: Writes::default(),
            held_until_safe: BTreeSet::new(),
            held_until_stable: BTreeSet::new(),
            held_until_noted: BTreeSet::new(),
            refused: found.updates.iter().filter_map(refusal).collect(),
            unlogged_notes: VecDeque::new(),
            stable_said: 0,
            is_log_closed: false,
            ready: VecDeque::new(),
            answered_next: 0,
            is_server_away: false,
            read_last: 0,
            records: found.records.iter().copied().collect(),
            counters: QueueCounters::default(),
        };
        for (session, position) in &found.positions {
            let state = Session { written: position.0, ..Session::default() };
            queue.sessions.insert(*session, state);
            queue.ending.insert(*session);
        }
        let planted = queue.config.fault == Some(Fault::ExecuteAgain);
        for update in found.updates.iter().filter(|update| update.seq.0 > applied || planted) {
            queue.remember(update)?;
        }
        queue.log_next = queue.next();
        let lost = queue.begin_again(&found.positions);
        Ok((queue, lost))
    }

    /// A session is there from now on.
    pub fn open_session(&mut self, session: SessionId) {
        self.sessions.insert(session, Session::default());
    }

    /// Takes a request and gives it its place.
    pub fn submit(&mut self, submission: &Submission<'_>) -> Result<SeqNum, Unsubmitted> {
        let Submission { session, kind, early, access, payload } = *submission;
        let is_full = self.entries.len() >= self.config.window_max
            || self.entries_bytes + payload.len() > self.config.window_bytes_max && !self.entries.is_empty();
        if !self.sessions.contains_key(&session) || self.ending.contains(&session) {
            return Err(Unsubmitted::NoSession);
        }
        if is_full || early && !self.is_server_away && self.ahead() >= self.config.early_ahead_max {
            return Err(Unsubmitted::WindowFull);
        }
        let state = self.sessions.get_mut(&session).ok_or(Unsubmitted::NoSession)?;
        let seq = self.first + self.entries.len() as u64;
        let behind = state.unlogged;
        state.open += 1;
        let seen = (self.unsafe_writes.seen_by(access), self.unlogged_writes.seen_by(access));
        let early = early && kind == RequestKind::Update;
        let (mut needs_safe, mut needs_stable) = seen;
        match kind {
            RequestKind::Read => self.read_last = seq,
            RequestKind::Update => {
                // Its own record, and no gap before it: after a crash it is executed only behind no lost write.
                needs_safe = seq;
                // What an early one is answered says nothing of any other.
                needs_stable = if early { behind } else { needs_stable.max(behind) };
                state.written = seq;
                self.unsafe_writes.note(access, seq);
                if behind > self.stable {
                    // It is lost with what is before it.
                    self.unlogged_writes.note(access, behind);
                }
            }
            RequestKind::Bypass => {
                needs_stable = seq;
                state.unlogged = seq;
                state.written = seq;
                self.unlogged_writes.note(access, seq);
            }
        }
        self.counters.submitted += 1;
        self.entries_bytes += payload.len();
        self.entries.push_back(Entry {
            kind,
            access,
            early,
            is_complete: false,
            is_told: false,
            needs_safe,
            needs_stable,
            ..Entry::of_log(session, behind, payload)
        });
        Ok(SeqNum(seq))
    }

    /// What a read is answered is known already: it is not executed, and answered when what it may have seen is safe,
    /// as if the server had answered.
    pub fn answer(&mut self, seq: SeqNum, bytes: &[u8]) {
        let Some(index) = self.index(seq.0) else { return };
        let entry = &mut self.entries[index];
        debug_assert!(entry.kind == RequestKind::Read, "what a write is answered only the server knows");
        entry.waits = false;
        self.counters.known += 1;
        self.on_reply(seq, bytes, Outcome::Executed);
    }

    /// Whether everything before this place has its answer.
    pub fn is_answered_before(&mut self, seq: SeqNum) -> bool {
        self.follow_answers();
        self.answered_next >= seq.0
    }

    /// The first place that is not dealt with.
    pub fn first(&self) -> SeqNum {
        SeqNum(self.first)
    }

    /// The server was lost, or is there again.
    pub fn set_server_away(&mut self, is_away: bool) {
        self.is_server_away = is_away;
    }

    /// How many requests there are from the first on that the server has not answered.
    fn ahead(&mut self) -> usize {
        self.follow_answers();
        (self.next() - self.answered_next) as usize
    }

    fn follow_answers(&mut self) {
        self.answered_next = self.answered_next.max(self.first);
        while self.index(self.answered_next).is_some_and(|index| self.entries[index].is_answered()) {
            self.answered_next += 1;
        }
    }

    // ---- what is to be done

    /// The next request to be executed.
    pub fn next_run(&mut self) -> Option<Run<'_>> {
        // What was forgotten was executed, or never will be.
        self.run_next = self.run_next.max(self.first);
        loop {
            let seq = self.run_next;
            let index = self.index(seq)?;
            self.run_next += 1;
            if self.entries[index].waits {
                let entry = &mut self.entries[index];
                entry.waits = false;
                let (session, kind, is_replayed) = (entry.session, entry.kind, entry.is_replayed);
                return Some(Run { session, seq: SeqNum(seq), kind, payload: &entry.payload, is_replayed });
            }
        }
    }

    /// The next record for the log, and the place of its last update, by which it is called. The same until it is
    /// taken.
    pub fn next_record(&mut self) -> Option<(SeqNum, &[u8])> {
        if self.record.bytes().is_empty() {
            self.fill_record();
        }
        (!self.record.bytes().is_empty()).then(|| (self.record.last(), self.record.bytes()))
    }

    /// The log has taken the last [`CommitQueue::next_record`].
    pub fn record_taken(&mut self) {
        self.records.push_back((self.record.first(), self.record.last()));
        self.counters.records += 1;
        self.record.clear();
    }

    /// The updates behind a place that were handed to the log and are not stable: what a log lacks that is so far, and
    /// is not sent later. As records that end where they have ended before, with the place of each one's last update:
    /// a session's marker must not leave the server while one that straddles its last write is there (rule 6).
    pub fn unstable_records(&self, behind: SeqNum, each: &mut dyn FnMut(SeqNum, &[u8])) {
        let mut from = self.first.max(self.stable + 1).max(behind.0 + 1);
        for (_, last) in &self.records {
            let mut record = RecordWriter::default();
            for seq in from..=last.0 {
                let Some(entry) = self.index(seq).map(|index| &self.entries[index]) else { continue };
                if entry.kind == RequestKind::Update && !entry.is_dropped {
                    let (session, behind) = (entry.session, SeqNum(entry.behind));
                    record.add(&LoggedUpdate { seq: SeqNum(seq), session, behind, payload: &entry.payload });
                }
            }
            if !record.bytes().is_empty() {
                each(*last, record.bytes());
            }
            from = from.max(last.0 + 1);
        }
    }

    /// Whether all that was found at the start is executed and stable.
    pub fn is_settled(&self) -> bool {
        self.config.fault == Some(Fault::LeaveBeforeStable) || self.stable + 1 >= self.next()
    }

    /// Everything up to here is stable.
    pub fn stable(&self) -> SeqNum {
        SeqNum(self.stable)
    }

    /// The next record that the log may forget.
    pub fn next_trim(&mut self) -> Option<SeqNum> {
        let through = match self.config.fault {
            Some(Fault::TrimWhenExecuted) => self.run_next - 1,
            _ => self.stable,
        };
        let (_, oldest) = self.records.front().copied().filter(|(_, last)| last.0 <= through)?;
        self.records.pop_front();
        Some(oldest)
    }

    /// The next request that may be answered.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let seq = self.ready.pop_front()?;
        let index = self.index(seq)?;
        let entry = &mut self.entries[index];
        let session = entry.session;
        entry.is_told = true;
        let answered = match &mut entry.reply {
            Reply::None => Answered::ByLog,
            // The same as it was promised; and it may have seen what can be lost.
            Reply::Given { failed: false, .. } if entry.early => Answered::ByLog,
            Reply::Given { bytes, failed } => Answered::ByServer(std::mem::take(bytes), *failed),
            Reply::Gone => Answered::Gone,
        };
        self.counters.completed += 1;
        self.counters.completed_early += u64::from(answered == Answered::ByLog);
        self.forget_dealt_with();
        Some(Completion { session, seq: SeqNum(seq), answered })
    }

    // ---- what has happened

    /// The log holds the record of this name, and all before it.
    pub fn on_logged(&mut self, through: SeqNum) {
        let before = self.safe();
        self.logged = self.logged.max(through.0);
        if !self.unlogged_notes.is_empty() {
            self.on_noted();
        }
        self.on_safe(before);
    }

    /// Whether the log takes records at present. While it does not, nobody waits for notes, or a log that is full, which
    /// waits for what is stable, would wait for itself: what the server refuses then may be executed after a crash.
    pub fn set_log_open(&mut self, is_open: bool) {
        let was_closed = std::mem::replace(&mut self.is_log_closed, !is_open);
        if self.is_log_closed && !was_closed {
            self.on_noted();
        }
    }

    /// Notes are logged, or are not waited for.
    fn on_noted(&mut self) {
        while self.unlogged_notes.front().is_some_and(|(note, _)| self.is_noted(*note)) {
            self.unlogged_notes.pop_front();
        }
        let before = self.safe();
        self.stable = self.stable.max(self.known_stable());
        self.settle(before);
        while let Some((note, seq)) =
            self.held_until_noted.first().copied().filter(|(note, _)| self.is_noted(*note))
        {
            self.held_until_noted.remove(&(note, seq));
            self.complete_or_hold(seq);
        }
        self.forget_dealt_with();
    }

    /// Whether the log holds a note, or is not waited for.
    fn is_noted(&self, note: u64) -> bool {
        note <= self.logged || self.is_log_closed
    }

    /// What the server is about to answer to a read says nothing of any data, so it waits for no write. Of a write
    /// this is not believed.
    pub fn on_independent(&mut self, seq: SeqNum) {
        let Some(index) = self.index(seq.0) else { return };
        let entry = &mut self.entries[index];
        if entry.kind == RequestKind::Read {
            (entry.needs_safe, entry.needs_stable) = (0, 0);
        }
    }

    /// The server has answered.
    pub fn on_reply(&mut self, seq: SeqNum, bytes: &[u8], outcome: Outcome) {
        let Some(index) = self.index(seq.0) else { return };
        let entry = &mut self.entries[index];
        if entry.is_answered() {
            return;
        }
        entry.is_executed = outcome == Outcome::Executed;
        if !entry.early && self.config.fault != Some(Fault::UnmarkedBeforeStable) {
            // Whatever the server answers from now on may have seen them.
            entry.needs_stable = entry.needs_stable.max(self.unmarked_writes.seen_by(entry.access));
        }
        entry.reply = if entry.is_complete {
            // The log's word is its answer, also if nobody was told yet.
            Reply::Given { bytes: Vec::new(), failed: false }
        } else {
            Reply::Given { bytes: bytes.to_vec(), failed: outcome.failed() }
        };
        match outcome {
            _ if entry.kind == RequestKind::Read => {}
            Outcome::Unmarked { .. } => self.on_unmarked(index),
            Outcome::Refused => self.note_refusal(index),
            Outcome::Executed | Outcome::Unknown => {}
        }
        let last = self.unlogged_notes.back();
        self.entries[index].needs_note = last.map_or(0, |(note, _)| *note);
        if self.entries[index].is_complete {
            self.forget_dealt_with();
        } else {
            self.complete_or_hold(seq.0);
        }
        if self.stable < self.stable_said {
            self.follow_stable();
        }
    }

    /// What is stable: of what has no reply it is not known yet whether it was refused, and a refusal is not stable before
    /// the log knows of it, since a server that refuses stores no marker either.
    fn known_stable(&mut self) -> u64 {
        self.follow_answers();
        let refused = self.unlogged_notes.iter().map(|(_, refused)| refused - 1);
        refused.min().unwrap_or(u64::MAX).min(self.answered_next - 1).min(self.stable_said)
    }

    /// The server has refused a write: it has done nothing, and a server that refuses may have stored no marker either.
    /// Before anybody is told, the log is: after a crash it would be executed, and who was told has asked again (rule 10).
    fn note_refusal(&mut self, index: usize) {
        if self.config.fault == Some(Fault::ForgetRefusals) {
            return;
        }
        let (seq, note) = (self.first + index as u64, self.next());
        // An older note may have left the log when this one is read.
        let behind = self.unrefused(self.entries[index].behind);
        let entry = &mut self.entries[index];
        entry.is_noted = true;
        let session = entry.session;
        // What comes now is behind no gap.
        if let Some(state) = self.sessions.get_mut(&session).filter(|state| state.unlogged == seq) {
            state.unlogged = behind;
        }
        self.refused.insert(seq, behind);
        self.entries_bytes += size_of::<u64>();
        if !self.is_log_closed {
            self.unlogged_notes.push_back((note, seq));
        }
        self.entries.push_back(Entry::note_of(session, seq, behind));
    }

    /// The server has executed a write without a marker. After a crash of the proxy it would be executed again, so the log
    /// is told, as of a refusal; after one of the server it may be gone, so nobody is told of it, or anything that may
    /// have seen it, before it is stable (rule 14).
    fn on_unmarked(&mut self, index: usize) {
        let seq = self.first + index as u64;
        let entry = &mut self.entries[index];
        if entry.early && entry.is_complete || self.config.fault == Some(Fault::UnmarkedAgain) {
            // What was promised is kept by executing it until a position says that it was.
            entry.is_executed = self.config.fault == Some(Fault::UnmarkedAgain);
            return;
        }
        entry.is_unmarked = true;
        entry.needs_stable = seq;
        let access = entry.access;
        self.unmarked_writes.note(access, seq);
        self.note_refusal(index);
    }

    /// Everything executed up to here is on stable storage.
    pub fn on_stable(&mut self, through: SeqNum) {
        // What was not executed cannot be stable.
        self.stable_said = self.stable_said.max(through.0.min(self.run_next.saturating_sub(1)));
        self.follow_stable();
    }

    fn follow_stable(&mut self) {
        let through = self.known_stable();
        if through > self.stable {
            let before = self.safe();
            self.stable = through;
            self.settle(before);
            self.forget_dealt_with();
        }
    }

    /// The server refuses a session from now on: nobody is told anything of what it has under way. How many requests
    /// these are, and which answered updates will never be executed.
    pub fn fail_session(&mut self, session: SessionId) -> (u64, Vec<Lost>) {
        let Some(state) = self.sessions.get_mut(&session) else { return (0, Vec::new()) };
        let open = std::mem::take(&mut state.open);
        state.is_in_doubt = true;
        self.counters.untold += open;
        self.ending.insert(session);
        let mut lost = Vec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if entry.session != session || entry.is_answered() && entry.is_complete {
                continue;
            }
            if entry.is_complete && entry.kind == RequestKind::Update {
                let seq = SeqNum(self.first + index as u64);
                lost.push(Lost { session, seq, payload: entry.payload.clone() });
            }
            (entry.is_complete, entry.is_told) = (true, true);
            if !entry.is_answered() {
                (entry.waits, entry.is_dropped, entry.reply) = (false, true, Reply::Gone);
            }
        }
        self.counters.lost += lost.len() as u64;
        let before = self.safe();
        self.settle(before);
        self.forget_dealt_with();
        (open, lost)
    }

    /// Nobody is told anything more of a session. What of it was answered is executed nevertheless; other updates as
    /// after a crash, and what else it has under way not at all. How many requests these are.
    pub fn abandon_session(&mut self, session: SessionId) -> u64 {
        let Some(state) = self.sessions.get_mut(&session) else { return 0 };
        let open = std::mem::take(&mut state.open);
        self.counters.untold += open;
        self.ending.insert(session);
        for entry in self.entries.iter_mut().filter(|entry| entry.session == session && !entry.is_complete) {
            (entry.is_complete, entry.is_told) = (true, true);
            if entry.kind != RequestKind::Update && !entry.is_answered() {
                (entry.waits, entry.is_dropped, entry.reply) = (false, true, Reply::Gone);
            }
        }
        let before = self.safe();
        self.settle(before);
        self.forget_dealt_with();
        open
    }

    /// A session takes nothing more.
    pub fn end_session(&mut self, session: SessionId) {
        if self.sessions.contains_key(&session) {
            self.ending.insert(session);
        }
    }

    /// A session that is ending, of which everything is stable and nothing in the log any more. When what was trimmed
    /// so far can be found in the log no more, the server may forget it.
    pub fn next_ended(&mut self) -> Option<SessionId> {
        let being_made = (!self.record.bytes().is_empty()).then(|| self.record.first());
        let oldest =
            self.records.front().map(|(first, _)| *first).or(being_made).map_or(u64::MAX, |seq| seq.0);
        let stable = self.stable;
        let is_over = |state: &Session| state.open == 0 && state.written <= stable && state.written < oldest;
        let mut ending = self.ending.iter().copied();
        let session = ending.find(|session| self.sessions.get(session).is_some_and(is_over))?;
        self.ending.remove(&session);
        self.sessions.remove(&session);
        Some(session)
    }

    /// The sessions of which the lost server has had a bypass that it has not answered, which is not executed again, since
    /// what it was may have been the server's end; or which has executed something without a marker that nobody was
    /// told of yet. They are to be abandoned before [`CommitQueue::begin_again`].
    pub fn in_doubt(&self) -> BTreeSet<SessionId> {
        let is_in_doubt = |entry: &&Entry| {
            let is_unanswered = entry.kind == RequestKind::Bypass && !entry.waits && !entry.is_answered();
            (is_unanswered || entry.is_unmarked) && !entry.is_complete
        };
        self.entries.iter().filter(is_in_doubt).map(|entry| entry.session).collect()
    }

    /// What a server that is there again with these positions lacks of what was called stable, if anything: its data is
    /// older, and it must not be begun with again (rule 12). Sessions that it was allowed to forget do not count.
    pub fn lacking(&self, positions: &BTreeMap<SessionId, SeqNum>) -> Option<Lacking> {
        if self.config.fault == Some(Fault::TakeOlderData) {
            return None;
        }
        let mut kept: BTreeMap<SessionId, u64> = BTreeMap::new();
        for (entry, seq) in self.entries.iter().zip(self.first..=self.stable) {
            if entry.kind != RequestKind::Read && entry.is_executed {
                kept.insert(entry.session, seq);
            }
        }
        let number =
            |of: &BTreeMap<SessionId, SeqNum>, session| of.get(session).map_or(0, |seq: &SeqNum| seq.0);
        let certain = self.sessions.iter().filter(|(_, state)| !state.is_in_doubt);
        let lacking = certain.map(|(session, state)| {
            let here = kept.get(session).copied().unwrap_or(0);
            let kept = SeqNum(here.max(state.kept).max(number(&self.positions, session)));
            Lacking { session: *session, kept, found: SeqNum(number(positions, session)) }
        });
        lacking.filter(|lacking| lacking.found < lacking.kept).max_by_key(|lacking| lacking.kept)
    }

    /// The server was lost and is there again; these are the positions that it has now. What it has not executed is
    /// to be executed anew. Those are returned that never will be.
    pub fn begin_again(&mut self, positions: &BTreeMap<SessionId, SeqNum>) -> Vec<Lost> {
        // Requests are executed in the order of their places, so what is before the last one was executed, or was
        // never to be. What was stable still is, also of sessions that the server has forgotten since.
        let applied = highest(positions).max(self.stable);
        self.positions.clone_from(positions);
        self.held_until_safe.clear();
        self.held_until_stable.clear();
        let mut lost = Vec::new();
        let counts_refusals = self.config.fault == Some(Fault::RefusedReplayCounts);
        for index in 0..self.entries.len() {
            let seq = self.first + index as u64;
            let fate = self.fate(index, seq <= applied);
            let entry = &mut self.entries[index];
            entry.waits = fate == Fate::Run;
            // It is there or not, and stays so.
            entry.is_unmarked = false;
            match fate {
                Fate::Run => {
                    // What has no answer yet, by the log or by the server, was acknowledged to nobody.
                    let may_be_told = entry.is_complete || entry.early || entry.is_answered();
                    let is_update = entry.kind == RequestKind::Update;
                    entry.is_replayed |= is_update && may_be_told && !counts_refusals;
                    entry.reply = Reply::None;
                    entry.is_executed = false;
                    self.counters.replayed += u64::from(entry.kind != RequestKind::Read);
                }
                Fate::Done if entry.is_answered() => {}
                Fate::Done => entry.reply = Reply::Gone,
                Fate::Drop | Fate::Lose => {
                    (entry.reply, entry.is_dropped) = (Reply::Gone, true);
                    entry.is_executed = false;
                }
            }
            if fate == Fate::Lose {
                let payload = entry.payload.clone();
                lost.push(Lost { session: entry.session, seq: SeqNum(seq), payload });
            }
        }
        self.counters.lost += lost.len() as u64;
        (self.run_next, self.answered_next) = (self.first, self.first);
        // A server that has begun has made stable what it had executed.
        let before = self.safe();
        // What it said of what it had refused, or is to execute anew, says nothing any more.
        self.stable_said = self.stable.max(applied.min(self.next() - 1));
        self.stable = self.stable.max(self.known_stable());
        self.settle(before);
        for seq in self.first..self.next() {
            if self.index(seq).is_some_and(|index| !self.entries[index].early || seq <= self.safe()) {
                self.complete_or_hold(seq);
            }
        }
        self.forget_dealt_with();
        lost
    }

    /// What becomes of a request when the server has begun again; `was_applied`, if it writes.
    fn fate(&self, index: usize, was_applied: bool) -> Fate {
        let entry = &self.entries[index];
        let planted = |fault| self.config.fault == Some(fault);
        match entry.kind {
            RequestKind::Read if entry.is_complete => Fate::Done,
            // What is behind it is there by now, and it is not to see that; what it saw before is there still.
            RequestKind::Read
                if was_applied
                    && (entry.is_answered() || self.is_before_own_write(index))
                    && !planted(Fault::ReadAgain) =>
            {
                Fate::Done
            }
            RequestKind::Read => Fate::Run,
            _ if entry.is_note || entry.is_noted => Fate::Done,
            _ if entry.is_dropped => Fate::Drop,
            _ if was_applied && !planted(Fault::ExecuteAgain) => Fate::Done,
            // Of a session that has failed: who is answered otherwise was told when it was stable.
            RequestKind::Bypass if entry.is_complete => Fate::Drop,
            RequestKind::Update if entry.is_complete && self.is_behind_gap(entry) => Fate::Lose,
            RequestKind::Update | RequestKind::Bypass => Fate::Run,
        }
    }

    /// Whether a write of its session behind a read touches what it reads, and was executed.
    fn is_before_own_write(&self, index: usize) -> bool {
        let read = &self.entries[index];
        let position = self.positions.get(&read.session).map_or(0, |position| position.0);
        let executed = (position + 1).saturating_sub(self.first) as usize;
        self.entries.iter().take(executed).skip(index + 1).any(|entry| {
            entry.session == read.session
                && entry.kind != RequestKind::Read
                && !entry.is_dropped
                && (!entry.is_noted || entry.is_unmarked)
                && entry.access.meets(read.access)
        })
    }

    /// Whether an unlogged write of its session before it was lost: its session's own position says so, also after a
    /// second crash.
    fn is_behind_gap(&self, entry: &Entry) -> bool {
        let position = self.positions.get(&entry.session).map_or(0, |position| position.0);
        self.unrefused(entry.behind) > position && self.config.fault != Some(Fault::ApplyBehindGap)
    }

    /// The last unlogged write of a session that was not refused, of these and those before: what was refused did nothing,
    /// so nothing of it is lost.
    fn unrefused(&self, mut behind: u64) -> u64 {
        while let Some(before) = self.refused.get(&behind) {
            behind = *before;
        }
        behind
    }

    // ---- to be asked

    /// How many requests are not dealt with.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether everything is dealt with.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether everything that was to be executed has its answer.
    pub fn is_executed(&self) -> bool {
        self.entries.iter().all(Entry::is_answered)
    }

    /// Whether everything that is executed anew, and may have been acknowledged before, has been.
    pub fn is_replayed(&self) -> bool {
        self.entries.iter().all(|entry| !entry.is_replayed || entry.is_answered())
    }

    /// How many are still to be executed, or have no answer.
    pub fn unexecuted(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.is_answered()).count()
    }

    /// Whether something is to be executed.
    pub fn has_runs(&self) -> bool {
        self.run_next < self.next()
    }

    /// Whether the log has been handed something that it does not hold yet.
    pub fn is_logging(&self) -> bool {
        self.records.back().is_some_and(|(_, last)| last.0 > self.safe())
    }

    /// Whether of what is to be executed next nobody waits for the server's answer.
    pub fn runs_wait_for_log_alone(&self) -> bool {
        let from = self.run_next.max(self.first) - self.first;
        let mut waiting = self.entries.iter().skip(from as usize).peekable();
        waiting.peek().is_some() && waiting.all(|entry| entry.early)
    }

    /// Whether one of the last requests was a read: who reads should not wait while a log is written.
    pub fn has_read_lately(&self) -> bool {
        self.next() - self.read_last < READ_LATELY
    }

    /// Whether somebody waits for storage.
    pub fn wants_stable(&self) -> bool {
        !self.held_until_stable.is_empty()
            || self.entries.len() * 2 > self.config.window_max
            || self.entries_bytes * 2 > self.config.window_bytes_max
            || !self.ending.is_empty()
    }

    /// What was counted.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    // ---- inside

    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn index(&self, seq: u64) -> Option<usize> {
        let index = seq.checked_sub(self.first)? as usize;
        (index < self.entries.len()).then_some(index)
    }

    /// What cannot be lost: logged, or stable where the log lags behind.
    fn safe(&self) -> u64 {
        self.logged.max(self.stable)
    }

    /// An update that the log holds, and nobody waits for.
    fn remember(&mut self, update: &LoggedUpdate<'_>) -> Result<(), Torn> {
        if self.entries.is_empty() && self.config.fault == Some(Fault::ExecuteAgain) {
            (self.first, self.run_next) = (update.seq.0, update.seq.0);
        }
        let next = self.next();
        if update.seq.0 - next > GAP_MAX {
            return Err(Torn { before: next - 1, behind: update.seq.0 });
        }
        // Places of what the log does not hold.
        while self.next() < update.seq.0 {
            self.entries.push_back(Entry::nothing());
        }
        if refusal(update).is_some() || self.refused.contains_key(&update.seq.0) {
            self.entries.push_back(Entry::nothing());
            return Ok(());
        }
        let session = self.sessions.entry(update.session).or_default();
        session.written = update.seq.0;
        self.ending.insert(update.session);
        self.entries_bytes += update.payload.len();
        self.entries.push_back(Entry::of_log(update.session, update.behind.0, update.payload));
        Ok(())
    }

    fn fill_record(&mut self) {
        self.log_next = self.log_next.max(self.first);
        while let Some(index) = self.index(self.log_next) {
            let entry = &self.entries[index];
            let bytes = RecordWriter::cost(entry.payload.len());
            let is_large = self.record.bytes().len() + bytes > self.config.record_bytes_max;
            if is_large && !self.record.bytes().is_empty() {
                return;
            }
            let seq = self.log_next;
            self.log_next += 1;
            if entry.kind == RequestKind::Update && !entry.is_dropped && seq > self.safe() {
                self.counters.logged += 1;
                let (session, behind) = (entry.session, SeqNum(entry.behind));
                self.record.add(&LoggedUpdate { seq: SeqNum(seq), session, behind, payload: &entry.payload });
            }
        }
    }

    /// More is stable; what was safe `before` is known.
    fn settle(&mut self, before: u64) {
        // What is forgotten is dealt with; what is never executed, or writes nothing, is no reason to wait.
        self.stable = self.stable.max(self.first - 1);
        while let Some(index) = self.index(self.stable + 1) {
            let entry = &self.entries[index];
            // A note that the log holds, and what it says to have been refused, are as they will ever be. What was
            // executed without a marker is there, and can be lost.
            let is_passed = entry.is_note && self.is_noted(self.stable + 1)
                || entry.is_noted && !entry.is_unmarked && self.is_noted(entry.needs_note);
            if entry.kind != RequestKind::Read && !entry.is_dropped && !is_passed {
                break;
            }
            self.stable += 1;
        }
        self.unlogged_writes.settle(self.stable);
        self.unmarked_writes.settle(self.stable);
        self.on_safe(before);
        while let Some((until, seq)) = self.held_until_stable.first().copied() {
            if until > self.stable {
                break;
            }
            self.held_until_stable.pop_first();
            self.complete_or_hold(seq);
        }
    }

    /// More cannot be lost than `before`.
    fn on_safe(&mut self, before: u64) {
        let safe = self.safe();
        self.unsafe_writes.settle(safe);
        for seq in before.max(self.first.saturating_sub(1)) + 1..=safe {
            let Some(index) = self.index(seq) else { break };
            if self.entries[index].early && !self.entries[index].is_complete {
                self.complete_or_hold(seq);
            }
        }
        while let Some((until, seq)) =
            self.held_until_safe.first().copied().filter(|(until, _)| *until <= safe)
        {
            self.held_until_safe.remove(&(until, seq));
            self.complete_or_hold(seq);
        }
    }

    /// Answers a request if it may be, and remembers what it waits for if that is known.
    fn complete_or_hold(&mut self, seq: u64) {
        let safe = self.safe();
        let (fault, stable) = (self.config.fault, self.stable);
        let Some(index) = self.index(seq) else { return };
        let is_noted = self.is_noted(self.entries[index].needs_note);
        let entry = &mut self.entries[index];
        if entry.is_complete || !entry.early && !entry.is_answered() {
            return;
        }
        let (needs_safe, needs_stable, note) = (entry.needs_safe, entry.needs_stable, entry.needs_note);
        let (unlogged, unstable) = entry.ignored_by(fault);
        if !is_noted {
            self.held_until_noted.insert((note, seq));
        } else if needs_safe > safe && !unlogged {
            self.held_until_safe.insert((needs_safe, seq));
        } else if needs_stable > stable && !unstable {
            self.held_until_stable.insert((needs_stable, seq));
        } else {
            entry.is_complete = true;
            let session = entry.session;
            self.ready.push_back(seq);
            if let Some(state) = self.sessions.get_mut(&session) {
                state.open -= 1;
            }
            return;
        }
        self.counters.held += u64::from(self.entries[index].is_answered());
    }

    /// Forgets from the front what is answered, and stable if it wrote.
    fn forget_dealt_with(&mut self) {
        while let Some(entry) = self.entries.front() {
            let is_stable = entry.kind == RequestKind::Read || self.first <= self.stable;
            if !is_stable || !entry.is_told || !entry.is_answered() {
                return;
            }
            self.entries_bytes -= entry.payload.len();
            if entry.kind != RequestKind::Read && entry.is_executed {
                if let Some(state) = self.sessions.get_mut(&entry.session) {
                    state.kept = self.first;
                }
            }
            self.entries.pop_front();
            self.first += 1;
        }
        self.forget_refusals();
    }

    /// Those before which whatever may be behind them was dealt with.
    fn forget_refusals(&mut self) {
        let oldest = self.first.saturating_sub(2 * self.config.window_max as u64);
        while self.refused.first_key_value().is_some_and(|(refused, _)| *refused < oldest) {
            self.refused.pop_first();
        }
    }
}

/// What was refused, and the last unlogged write of its session before it, if what the log holds is a note of that: no
/// update is as short as a place.
fn refusal(update: &LoggedUpdate<'_>) -> Option<(u64, u64)> {
    let before = update.payload.try_into().ok().map(u64::from_le_bytes)?;
    Some((update.behind.0, before))
}

fn highest(positions: &BTreeMap<SessionId, SeqNum>) -> u64 {
    positions.values().map(|position| position.0).max().unwrap_or(0)
}
