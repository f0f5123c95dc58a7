//! The reference model: what the clients were told, what the server holds, and what must be true
//! of both after every step.
//!
//! Invariant: checks here cost a few comparisons per step; the whole history is checked once, when
//! the world has come to rest ([`Model::check_history`]).

use crate::app::{App, Op, Reply, WriteToken};
use crate::history::{Call, Contradiction, Order};
use crate::media::EntryName;
use crate::storage::Storage;
use scotfree_core::{BootEpoch, DeviceId, OrderNumber, SeqNum, ServerIndex, SessionId};
use scotfree_session::{CompletedBy, Mode, RequestKind};
use scotfree_wire::{Stamp, StampKind};
use std::collections::{BTreeMap, BTreeSet};

/// What must hold, one sentence each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Every completed write is in the server's state when the world has come to rest.
    Durability,
    /// No write is applied twice.
    ExactlyOnce,
    /// The requests of a session are executed in their order, without leaving out a write.
    SessionOrder,
    /// What was complete before a request was made is executed before it.
    RealTime,
    /// Every completed read can be placed at one instant of the final order.
    Linearizable,
    /// Some order explains what clients saw, whatever the server holds.
    Strict,
    /// A reply given is the reply that the surviving history gives.
    ReplyKept,
    /// A log entry is erased only when the server's storage holds its update durably.
    FreedBeforeStable,
    /// A device does nothing at the word of a server of a past epoch.
    PastEpoch,
    /// The server says "stable" only of what a crash cannot take back.
    StableClaim,
    /// A logged update keeps its place in a device's order, and orders agree with sessions.
    Stamped,
    /// A device logs only updates of servers whose updates are to be logged.
    LoggedAsTold,
    /// A device acknowledges only what its domains hold at the durability it names.
    PersistClaim,
    /// A device acknowledges only to its session's client.
    Bound,
    /// A device acknowledges only under a lease.
    Leased,
    /// A device acknowledges nothing of a session whose epoch was taken out of its key.
    RemovedKey,
    /// A request completes only when what it asked for is true.
    CompletionClaim,
    /// Completions come in session order, but that early updates wait only until no earlier write can be lost.
    CompletionOrder,
    /// Before a device passes a request on, the server can know what was answered before it.
    PassedOver,
    /// The server executes only what a client has sent, as it sent it.
    Authentic,
    /// Nothing that was completed is put aside as a dead letter.
    DeadLetter,
    /// No session is given up whose client lives and is heard.
    SessionKept,
    /// A session that has failed is answered no more.
    FailedIsSilent,
    /// When faults stop, everything outstanding completes within a bound.
    Progress,
    /// Every table and queue stays within its limit.
    Bounded,
    /// Counters add up (rule 15).
    Counters,
    /// When everything is stable and every session has ended, no log holds anything.
    LogsEmpty,
}

/// A broken invariant.
pub type Violation = scotfree_sim::Violation<Invariant>;

type Verdict = Result<(), Violation>;

/// Checks one thing; the detail is only written when it does not hold.
fn check(holds: bool, invariant: Invariant, detail: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Violation::new(invariant, detail()))
    }
}

/// What was promised, which depends on what has gone wrong so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// As a server alone: no write twice, none before an earlier one of its session.
    Alone,
    /// Each session for itself: no write twice, none left out. More logs were lost than the
    /// durability asked for survives.
    Sessions,
    /// Everything.
    Full,
}

/// A request as the world knows it.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// What kind.
    pub kind: RequestKind,
    /// What completes it.
    pub mode: Mode,
    /// The size of its payload.
    pub payload_bytes: usize,
    /// The size of its reply.
    pub reply_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Progress {
    sent: Sent,
    /// Where in the server's storage the write is now.
    logged_at: Option<usize>,
    /// Since when somebody relies on this write: it completed, or a completed request has seen it.
    relied_on_since: Option<u64>,
    /// The devices that have truly acknowledged it, one bit each.
    acks: u64,
    /// What the server computed last.
    answer: Option<Reply>,
    dead_letter: bool,
    /// Some device was asked to log it.
    logged: bool,
}

#[derive(Debug, Default)]
struct SessionModel {
    name: SessionId,
    /// Its calls; the one at `seq - 1` has that `seq`.
    calls: Vec<usize>,
    /// The last request executed in the present timeline.
    executed: u64,
    /// Its client was told that all requests up to this one are complete.
    completed: u64,
    /// The record is gone from storage.
    deleted: bool,
}

/// All that the checker knows of one server.
#[derive(Debug)]
pub struct Model {
    server: ServerIndex,
    calls: Vec<Call>,
    progress: Vec<Progress>,
    sessions: Vec<SessionModel>,
    by_name: BTreeMap<SessionId, usize>,
    /// Writes that somebody relies on and that the server's state does not hold now.
    missing: Vec<usize>,
    /// The order numbers given, by session and view.
    orders: BTreeMap<(SessionId, BootEpoch, DeviceId), BTreeMap<SeqNum, OrderNumber>>,
    moment: u64,
    promise: Promise,
    /// Functions of devices may answer reads.
    reads_answerable: bool,
    /// How many devices there are, and how many must acknowledge.
    device_count: usize,
    device_acks: u32,
}

impl Model {
    /// Nothing has happened.
    pub fn new(server: ServerIndex, device_count: usize, device_acks: u8) -> Model {
        Model {
            server,
            calls: Vec::new(),
            progress: Vec::new(),
            sessions: Vec::new(),
            by_name: BTreeMap::new(),
            missing: Vec::new(),
            orders: BTreeMap::new(),
            moment: 0,
            promise: Promise::Full,
            reads_answerable: false,
            device_count,
            device_acks: u32::from(device_acks),
        }
    }

    /// Functions of devices may answer reads.
    #[must_use]
    pub fn with_answers(self, reads_answerable: bool) -> Model {
        Model { reads_answerable, ..self }
    }

    /// From now on less is promised.
    pub fn weaken(&mut self, promise: Promise) {
        self.promise = self.promise.min(promise);
    }

    /// What is promised.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    // ---- what clients do and are told

    /// A client has a session.
    pub fn opened(&mut self, name: SessionId) -> Result<usize, Violation> {
        let index = self.sessions.len();
        self.sessions.push(SessionModel { name, ..SessionModel::default() });
        match self.by_name.insert(name, index) {
            None => Ok(index),
            Some(_) => Err(Violation::new(Invariant::Authentic, format!("session {name} was given twice"))),
        }
    }

    /// The token that the next call's write will have.
    pub fn next_token(&self) -> WriteToken {
        WriteToken(self.calls.len() as u64 + 1)
    }

    /// A client has made a request.
    pub fn invoked(&mut self, session: usize, seq: SeqNum, op: Op, relaxed: bool, sent: Sent) -> Verdict {
        let invoked = self.tick();
        let call = self.calls.len();
        self.calls.push(Call { session, seq: seq.0, op, relaxed, invoked, completed: None, reply: None });
        self.progress.push(Progress {
            sent,
            logged_at: None,
            relied_on_since: None,
            acks: 0,
            answer: None,
            dead_letter: false,
            logged: false,
        });
        self.sessions[session].calls.push(call);
        let place = self.sessions[session].calls.len() as u64;
        check(place == seq.0, Invariant::SessionOrder, || {
            format!("request {place} of a session became {seq}")
        })
    }

    /// A write of the server's own, that nobody has asked for and nobody is told of: it may have been done at any time
    /// after `since`, or never. Its call.
    pub fn own_write(&mut self, op: Op, since: u64) -> usize {
        let sent = Sent { kind: RequestKind::Bypass, mode: Mode::Covered, payload_bytes: 0, reply_bytes: 0 };
        let session = self.sessions.len();
        self.sessions.push(SessionModel::default());
        let verdict = self.invoked(session, SeqNum(1), op, false, sent);
        debug_assert!(verdict.is_ok(), "it is the first of its session");
        let call = self.calls.len() - 1;
        self.calls[call].invoked = since;
        call
    }

    /// The storage holds such a write at `logged_at`.
    pub fn own_write_done(&mut self, call: usize, logged_at: usize) {
        self.progress[call].logged_at = Some(logged_at);
    }

    /// When a call was made.
    pub fn invoked_at(&self, call: usize) -> u64 {
        self.calls[call].invoked
    }

    /// What a call asked for.
    pub fn sent(&self, call: usize) -> (Op, Sent) {
        (self.calls[call].op, self.progress[call].sent)
    }

    /// The call of a session's `seq`.
    pub fn call_of(&self, session: usize, seq: SeqNum) -> Option<usize> {
        let place = usize::try_from(seq.0).ok()?.checked_sub(1)?;
        self.sessions[session].calls.get(place).copied()
    }

    fn named(&self, name: SessionId, seq: SeqNum) -> Option<usize> {
        self.call_of(*self.by_name.get(&name)?, seq)
    }

    /// A client was told that a request is complete.
    pub fn completed(
        &mut self,
        session: usize,
        seq: SeqNum,
        by: CompletedBy,
        reply: Option<Reply>,
        storage: &Storage,
    ) -> Verdict {
        let Some(call) = self.call_of(session, seq) else {
            return Err(Violation::new(
                Invariant::CompletionOrder,
                format!("{seq} was completed and never sent"),
            ));
        };
        let moment = self.tick();
        self.check_completion_order(session, call, storage)?;
        self.check_completion_claim(call, by, storage)?;
        let reply = reply.or_else(|| self.calls[call].op.fixed_reply());
        self.calls[call].completed = Some(moment);
        self.calls[call].reply = reply;
        self.note_complete(session);
        self.check_told(call)?;
        self.rely_on_seen(call, moment);
        Ok(())
    }

    fn note_complete(&mut self, session: usize) {
        let SessionModel { calls, completed, .. } = &mut self.sessions[session];
        let is_complete = |call: &&usize| self.calls[**call].completed.is_some();
        *completed += calls[*completed as usize..].iter().take_while(is_complete).count() as u64;
    }

    /// Only an early update overtakes, and only what cannot be lost.
    fn check_completion_order(&self, session: usize, call: usize, storage: &Storage) -> Verdict {
        let twice = self.calls[call].completed.is_some();
        check(!twice, Invariant::CompletionOrder, || format!("{} completed twice", self.describe(call)))?;
        let progress = &self.progress[call];
        let may_overtake = progress.sent.mode == Mode::Early && progress.sent.kind == RequestKind::Update;
        let first = self.sessions[session].completed as usize;
        let elders = self.sessions[session].calls[first..].iter().take_while(|elder| **elder != call);
        for elder in elders.filter(|elder| self.calls[**elder].completed.is_none()) {
            let safe = !self.calls[*elder].op.writes() || self.is_safe(*elder, storage);
            let fine = may_overtake && (safe || self.promise < Promise::Full);
            check(fine, Invariant::CompletionOrder, || {
                format!("{} completed before {}", self.describe(call), self.describe(*elder))
            })?;
        }
        Ok(())
    }

    /// Durable where it was asked for: logged by enough devices, or stable.
    fn check_completion_claim(&self, call: usize, by: CompletedBy, storage: &Storage) -> Verdict {
        let progress = &self.progress[call];
        let early_by_device = progress.sent.mode == Mode::Early && progress.sent.kind == RequestKind::Update;
        check(!matches!(by, CompletedBy::Device(_)) || early_by_device, Invariant::CompletionClaim, || {
            format!("{} was completed by a device alone", self.describe(call))
        })?;
        let by_function = matches!(by, CompletedBy::Function(_));
        let op = self.calls[call].op;
        let is_known = op.known_reply().is_some() || self.reads_answerable && !op.writes();
        check(!by_function || is_known, Invariant::CompletionClaim, || {
            format!("{} was answered by {by:?}, which does not know the answer", self.describe(call))
        })?;
        let writes = self.calls[call].op.writes();
        let durable = !writes || self.device_count == 0 || self.is_safe(call, storage);
        check(durable || self.promise < Promise::Full, Invariant::CompletionClaim, || {
            let count = progress.acks.count_ones();
            format!("{} completed by {by:?} is not stable and {count} devices hold it", self.describe(call))
        })
    }

    fn is_safe(&self, call: usize, storage: &Storage) -> bool {
        let progress = &self.progress[call];
        let logged =
            progress.sent.kind == RequestKind::Update && progress.acks.count_ones() >= self.device_acks;
        logged || self.is_stable(call, storage)
    }

    fn is_stable(&self, call: usize, storage: &Storage) -> bool {
        self.progress[call].logged_at.is_some_and(|at| at < storage.synced())
    }

    /// What a client was told is what the server computed.
    fn check_told(&self, call: usize) -> Verdict {
        let (told, answer) = (self.calls[call].reply, self.progress[call].answer);
        let known = self.calls[call].op.known_reply();
        let fits = match (told, answer) {
            (None, _) => false,
            // Whoever answered: there is one reply only.
            (Some(_), _) if known.is_some() => told == known,
            // A function has answered it, perhaps: whether that fits in is decided at the end.
            (Some(_), None) if self.reads_answerable && !self.calls[call].op.writes() => true,
            // Completed before the server has seen it: the reply is known in advance.
            (Some(told), None) => self.calls[call].op.fixed_reply() == Some(told),
            // A read that is executed again after a crash may well be answered otherwise; whether
            // what was told fits in is decided at the end.
            (Some(told), Some(answer)) => !self.calls[call].op.writes() || told == answer,
        };
        check(fits || self.promise < Promise::Full, Invariant::ReplyKept, || {
            format!("{} was told {told:?}, the server computed {answer:?}", self.describe(call))
        })
    }

    /// Whoever was told relies on this write, and on those that the reply shows.
    fn rely_on_seen(&mut self, call: usize, moment: u64) {
        if self.calls[call].op.writes() {
            self.rely_on(call, moment);
        }
        let (op, relaxed) = (self.calls[call].op, self.calls[call].relaxed);
        let Some(reply) = self.calls[call].reply.filter(|_| !relaxed) else { return };
        for token in reply.seen(&op) {
            let seen = token.0 as usize - 1;
            if seen < self.calls.len() {
                self.rely_on(seen, moment);
            }
        }
    }

    fn rely_on(&mut self, write: usize, moment: u64) {
        let progress = &mut self.progress[write];
        if progress.relied_on_since.is_none() {
            progress.relied_on_since = Some(moment);
            if progress.logged_at.is_none() {
                self.missing.push(write);
            }
        }
    }

    // ---- what the server does

    /// The server hands a request to the application: which call it is.
    pub fn executing(
        &mut self,
        name: SessionId,
        seq: SeqNum,
        kind: RequestKind,
        payload: &[u8],
    ) -> Result<usize, Violation> {
        let Some(call) = self.named(name, seq) else {
            return Err(Violation::new(
                Invariant::Authentic,
                format!("{seq} of session {name} was never sent"),
            ));
        };
        let (op, sent) = self.sent(call);
        let mut expected = Vec::with_capacity(sent.payload_bytes);
        op.encode(sent.payload_bytes, &mut expected);
        check(kind == sent.kind && payload == expected, Invariant::Authentic, || {
            format!("{} is executed with other bytes or as another kind", self.describe(call))
        })?;
        Ok(call)
    }

    /// The application has done `call`, the server's storage holds it at `logged_at` if it writes.
    pub fn executed(&mut self, call: usize, reply: Reply, logged_at: Option<usize>) -> Verdict {
        self.check_once(call)?;
        self.check_session_order(call)?;
        self.check_real_time(call)?;
        self.progress[call].answer = Some(reply);
        if logged_at.is_some() {
            self.progress[call].logged_at = logged_at;
            self.missing.retain(|missing| *missing != call);
        }
        let session = self.calls[call].session;
        self.sessions[session].executed = self.calls[call].seq;
        if self.calls[call].completed.is_some() {
            self.check_told(call)?;
        }
        Ok(())
    }

    /// The writes that the server does not hold and that somebody may have been told of.
    pub fn owed(&self) -> BTreeSet<usize> {
        let progress = self.progress.iter().enumerate();
        let missing = progress.filter(|(_, progress)| progress.logged_at.is_none());
        missing
            .filter(|(_, progress)| progress.acks != 0 || progress.relied_on_since.is_some())
            .map(|(call, _)| call)
            .collect()
    }

    fn check_once(&self, call: usize) -> Verdict {
        let again = self.progress[call].logged_at.is_some();
        check(!again, Invariant::ExactlyOnce, || format!("{} is applied again", self.describe(call)))?;
        check(!self.progress[call].dead_letter, Invariant::ExactlyOnce, || {
            format!("{} is applied after it was put aside as a dead letter", self.describe(call))
        })
    }

    fn check_session_order(&self, call: usize) -> Verdict {
        let session = &self.sessions[self.calls[call].session];
        let seq = self.calls[call].seq;
        check(seq > session.executed, Invariant::SessionOrder, || {
            format!("{} is executed after {}", self.describe(call), session.executed)
        })?;
        let left_out = (session.executed + 1..seq)
            .map(|between| session.calls[between as usize - 1])
            .find(|between| self.calls[*between].op.writes());
        check(left_out.is_none() || self.promise == Promise::Alone, Invariant::SessionOrder, || {
            let left_out = left_out.map(|between| self.calls[between].seq);
            format!("{} is executed before the write {left_out:?}", self.describe(call))
        })
    }

    fn check_real_time(&self, call: usize) -> Verdict {
        if self.calls[call].relaxed || self.promise < Promise::Full {
            return Ok(());
        }
        let invoked = self.calls[call].invoked;
        let overtaken = self.missing.iter().find(|missing| {
            **missing != call && self.progress[**missing].relied_on_since.is_some_and(|since| since < invoked)
        });
        check(overtaken.is_none(), Invariant::RealTime, || {
            let overtaken = overtaken.map(|missing| self.describe(*missing)).unwrap_or_default();
            format!(
                "{} is executed before {overtaken}, which was complete or seen first",
                self.describe(call)
            )
        })
    }

    /// The server crashed and its storage lost these writes.
    pub fn cut_back(&mut self, lost_writes: impl Iterator<Item = usize>, storage: &Storage) {
        for call in lost_writes {
            self.progress[call].logged_at = None;
            if self.progress[call].relied_on_since.is_some() {
                self.missing.push(call);
            }
        }
        for session in &mut self.sessions {
            session.executed = 0;
        }
        for call in storage.writes() {
            let call = &self.calls[call];
            self.sessions[call.session].executed = call.seq;
        }
    }

    /// The server says that everything of a session up to `seq` is stable.
    pub fn claimed_stable(&self, name: SessionId, seq: SeqNum, storage: &Storage) -> Verdict {
        let Some(session) = self.by_name.get(&name).map(|index| &self.sessions[*index]) else {
            return Ok(());
        };
        if session.deleted || self.promise == Promise::Alone {
            return Ok(());
        }
        let claimed = session.calls.iter().take(seq.0 as usize);
        let unstable = claimed.rev().copied().find(|call| self.calls[*call].op.writes());
        // Sessions are executed in order: if the last write is stable, all are.
        let unstable =
            unstable.filter(|call| !self.is_stable(*call, storage) && !self.progress[*call].dead_letter);
        check(unstable.is_none(), Invariant::StableClaim, || {
            let unstable = unstable.map(|call| self.describe(call)).unwrap_or_default();
            format!("{unstable} is said to be stable and is not")
        })
    }

    /// The server has put an update aside.
    pub fn dead_letter(&mut self, name: SessionId, seq: SeqNum) -> Verdict {
        let Some(call) = self.named(name, seq) else { return Ok(()) };
        if self.progress[call].logged_at.is_some() {
            return Ok(());
        }
        self.progress[call].dead_letter = true;
        let completed = self.calls[call].completed.is_some();
        check(!completed || self.promise < Promise::Full, Invariant::DeadLetter, || {
            format!("{} was completed and is put aside", self.describe(call))
        })
    }

    /// The session's record is gone.
    pub fn deleted(&mut self, name: SessionId) {
        if let Some(index) = self.by_name.get(&name) {
            self.sessions[*index].deleted = true;
        }
    }

    // ---- what devices do

    /// A device has passed on an update with this stamp.
    pub fn stamped(&mut self, name: SessionId, seq: SeqNum, stamp: &Stamp) -> Verdict {
        // A straggler of a session that is no more may be taken for something new.
        let gone = self.by_name.get(&name).is_none_or(|index| self.sessions[*index].deleted);
        if stamp.kind != StampKind::Order || gone {
            return Ok(());
        }
        let view = (name, stamp.boot_epoch, stamp.device);
        let orders = self.orders.entry(view).or_default();
        let number = *orders.entry(seq).or_insert(stamp.number);
        let before = orders.range(..seq).next_back().filter(|(_, other)| **other >= number);
        let after = orders.range(seq.next()..).next().filter(|(_, other)| **other <= number);
        let fits = number == stamp.number && before.is_none() && after.is_none();
        check(fits, Invariant::Stamped, || {
            format!(
                "{name}:{seq} got order {} after {number}; its neighbours have {before:?}, {after:?}",
                stamp.number
            )
        })
    }

    /// A device keeps an update in its log.
    pub fn logged(&mut self, name: SessionId, seq: SeqNum) {
        if let Some(call) = self.named(name, seq) {
            self.progress[call].logged = true;
        }
    }

    /// A device has acknowledged an update that its domains hold.
    pub fn acknowledged(&mut self, name: SessionId, seq: SeqNum, device: DeviceId) {
        if let Some(call) = self.named(name, seq) {
            self.progress[call].acks |= 1 << device.0.min(63);
        }
    }

    /// A device erases a log entry.
    pub fn erased(&self, name: SessionId, seq: SeqNum, storage: &Storage) -> Verdict {
        let Some(index) = self.by_name.get(&name) else { return Ok(()) };
        let Some(call) = self.call_of(*index, seq) else { return Ok(()) };
        let may_go =
            self.is_stable(call, storage) || self.progress[call].dead_letter || self.sessions[*index].deleted;
        check(may_go, Invariant::FreedBeforeStable, || {
            format!("{} is erased and not stable", self.describe(call))
        })
    }

    // ---- what a loss would endanger

    /// The logged writes that the server holds and has not synced: where in its storage, and which
    /// entries of devices' logs they were.
    pub fn unsynced_logged(&self, storage: &Storage) -> Vec<(usize, EntryName)> {
        let unsynced = (0..self.calls.len()).filter_map(|call| {
            let at = self.progress[call].logged_at.filter(|at| *at >= storage.synced())?;
            self.progress[call].logged.then(|| (at, self.entry_name(call)))
        });
        let mut found: Vec<(usize, EntryName)> = unsynced.collect();
        found.sort_unstable();
        found
    }

    /// The logged writes that the server has executed once and that a crash has taken back.
    pub fn taken_back_and_logged(&self) -> Vec<EntryName> {
        let taken_back = |call: &usize| {
            let progress = &self.progress[*call];
            progress.logged
                && progress.answer.is_some()
                && progress.logged_at.is_none()
                && !progress.dead_letter
        };
        (0..self.calls.len()).filter(taken_back).map(|call| self.entry_name(call)).collect()
    }

    /// The writes that a device has acknowledged and that are not stable.
    pub fn acknowledged_unstable(&self, storage: &Storage) -> Vec<EntryName> {
        let endangered = |call: &usize| self.progress[*call].acks != 0 && !self.is_stable(*call, storage);
        (0..self.calls.len()).filter(endangered).map(|call| self.entry_name(call)).collect()
    }

    fn entry_name(&self, call: usize) -> EntryName {
        let Call { session, seq, .. } = self.calls[call];
        (self.server.0, self.sessions[session].name.0, seq)
    }

    /// How many requests a session has made.
    pub fn requests_of(&self, session: usize) -> usize {
        self.sessions[session].calls.len()
    }

    /// How many of them are not complete.
    pub fn incomplete_of(&self, session: usize) -> u64 {
        let SessionModel { calls, completed, .. } = &self.sessions[session];
        calls[*completed as usize..].iter().filter(|call| self.calls[**call].completed.is_none()).count()
            as u64
    }

    /// Whether requests of a session before this one are not complete.
    pub fn has_elders(&self, session: usize, seq: SeqNum) -> bool {
        self.sessions[session].completed < seq.0
    }

    /// The application's state after all writes that storage holds.
    pub fn replay(&self, storage: &Storage, cell_count: usize) -> App {
        let mut app = App::new(cell_count);
        for call in storage.writes() {
            app.apply(&self.calls[call].op);
        }
        app
    }

    // ---- the end

    /// Whether what the clients saw follows from what the server's storage holds.
    pub fn check_history(&self, storage: &Storage, cell_count: usize) -> Verdict {
        let writes: Vec<usize> = storage.writes().collect();
        let order = Order { calls: &self.calls, writes: &writes, cell_count };
        let verdict = match self.promise {
            Promise::Full => order.check(),
            Promise::Sessions | Promise::Alone => order.check_sessions_only(),
        };
        verdict.map_err(|contradiction| self.violation(contradiction))
    }

    fn violation(&self, contradiction: Contradiction) -> Violation {
        let tell = |invariant, call: usize, what: &str| {
            Violation::new(invariant, format!("{} {what}", self.describe(call)))
        };
        match contradiction {
            Contradiction::Lost(call) => tell(Invariant::Durability, call, "was completed and is lost"),
            Contradiction::Twice(call) => tell(Invariant::ExactlyOnce, call, "is held twice"),
            Contradiction::SessionOrder(first, second) => {
                tell(Invariant::SessionOrder, first, &format!("stands before {}", self.describe(second)))
            }
            Contradiction::RealTime(first, second) => tell(
                Invariant::RealTime,
                first,
                &format!("stands before the older {}", self.describe(second)),
            ),
            Contradiction::Reply(call) => {
                tell(Invariant::ReplyKept, call, &format!("was told {:?}", self.calls[call].reply))
            }
            Contradiction::Read(call) => {
                let told = self.calls[call].reply;
                tell(Invariant::Linearizable, call, &format!("was told {told:?}, which no instant explains"))
            }
        }
    }

    /// All calls, for tests of the checker and for tables.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// A call in words.
    pub fn describe(&self, call: usize) -> String {
        let Call { session, seq, op, .. } = self.calls[call];
        let name = self.sessions[session].name.0;
        let Sent { kind, mode, .. } = self.progress[call].sent;
        format!("{kind:?} {name:x}:{seq} {op:?} ({mode:?})")
    }
}
