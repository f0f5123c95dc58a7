//! The machine in a simulated world: a server that loses what it has not synced, a log that loses what it has not
//! written, or copies of it in the memory of peers, clients that believe what they are told. Crashes of the proxy, of
//! the server, of the host and of peers at any moment.
//!
//! Checked: what a client was told stays true (its write is there once, what it saw is the beginning of what is there
//! in the end), and of what a session wrote a beginning is there, without gaps.

#[path = "world/peers.rs"]
mod peers;

use peers::Peers;
use scotfree_core::{KeyHash, SeqNum, SessionId};
use scotfree_proxy::{
    Access, Answered, CommitQueue, Fault, Found, LoggedUpdate, Outcome, QueueConfig, RecordReader, Run,
    Submission,
};
use scotfree_session::RequestKind;
use scotfree_sim::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const KEYS: u64 = 3;
const STEPS: usize = 300;
/// What the world does by chance, and how often.
const WEIGHTS: [(Step, u64); 17] = [
    (Step::Submit, 40),
    (Step::Run, 30),
    (Step::Answer, 30),
    (Step::Record, 15),
    (Step::Write, 15),
    (Step::Sync, 4),
    (Step::Stable, 4),
    (Step::Tell, 30),
    (Step::Trim, 10),
    (Step::EndSession, 1),
    (Step::LaneBreaks, 1),
    (Step::Refuse, 2),
    (Step::LogFails, 0),
    (Step::ServerCrash, 1),
    (Step::ProxyCrash, 1),
    (Step::HostCrash, 1),
    (Step::OldCopy, 1),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Submit,
    Run,
    Answer,
    Record,
    Write,
    Sync,
    Stable,
    Tell,
    Trim,
    EndSession,
    LaneBreaks,
    Refuse,
    LogFails,
    ServerCrash,
    ProxyCrash,
    HostCrash,
    OldCopy,
}

/// What an operation writes or reads.
#[derive(Debug, Clone, Copy)]
struct Operation {
    id: u64,
    kind: RequestKind,
    key: u64,
    /// It sees all keys, and says so.
    any: bool,
}

/// Whether a server that takes no marker executes it nevertheless: of the writes that the log does not answer.
const fn is_bare(id: u64) -> bool {
    id.is_multiple_of(4)
}

impl Operation {
    fn payload(self) -> Vec<u8> {
        let kind = match self.kind {
            RequestKind::Read => 0,
            RequestKind::Update => 1,
            RequestKind::Bypass => 2,
        };
        [self.id, kind, self.key, u64::from(self.any)].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn parse(payload: &[u8]) -> Operation {
        let word = |at: usize| u64::from_le_bytes(payload[at * 8..at * 8 + 8].try_into().expect("eight"));
        let kind = [RequestKind::Read, RequestKind::Update, RequestKind::Bypass][word(1) as usize];
        Operation { id: word(0), kind, key: word(2), any: word(3) == 1 }
    }
}

/// What somebody saw: keys, and what had been appended to each.
type Saw = Vec<(u64, Vec<u64>)>;

/// The server's data: what was appended to each key, and the sessions' positions.
#[derive(Debug, Clone, Default)]
struct Data {
    lists: BTreeMap<u64, Vec<u64>>,
    positions: BTreeMap<SessionId, SeqNum>,
}

impl Data {
    fn execute(&mut self, session: SessionId, seq: SeqNum, operation: Operation) -> Saw {
        if operation.kind != RequestKind::Read {
            self.lists.entry(operation.key).or_default().push(operation.id);
            self.positions.insert(session, seq);
        }
        let of = |key: u64| (key, self.lists.get(&key).cloned().unwrap_or_default());
        if operation.any {
            (0..KEYS).map(of).collect()
        } else {
            vec![of(operation.key)]
        }
    }
}

/// What the server is asked, and whether it is executed anew and may have been acknowledged before.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    session: SessionId,
    seq: SeqNum,
    operation: Operation,
    is_replayed: bool,
}

impl Waiting {
    fn of(run: &Run<'_>) -> Waiting {
        let Run { session, seq, payload, is_replayed, .. } = *run;
        Waiting { session, seq, operation: Operation::parse(payload), is_replayed }
    }
}

#[derive(Debug, Default)]
struct Server {
    data: Data,
    /// What a crash of the host leaves, and what it may leave besides: all states since.
    synced: Data,
    since: Vec<Data>,
    executed: u64,
    synced_through: u64,
    waiting: VecDeque<Waiting>,
    replies: VecDeque<(SeqNum, Saw, Outcome)>,
    /// It takes no write, and no marker: it has no replicas, or no room.
    refuses: bool,
}

/// One change of the log.
#[derive(Debug, Clone)]
enum Change {
    Record(u64, Vec<u8>),
    Erase(u64),
}

#[derive(Debug, Default)]
struct Log {
    changes: Vec<Change>,
    written: usize,
    reported: usize,
    has_failed: bool,
}

impl Log {
    fn records(&self) -> BTreeMap<u64, Vec<u8>> {
        let mut records = BTreeMap::new();
        for change in &self.changes {
            match change {
                Change::Record(name, bytes) => drop(records.insert(*name, bytes.clone())),
                Change::Erase(name) => drop(records.remove(name)),
            }
        }
        records
    }
}

/// What a client was told.
#[derive(Debug)]
struct Told {
    id: u64,
    writes: bool,
    saw: Saw,
}

struct World {
    rng: Rng,
    fault: Option<Fault>,
    queue: CommitQueue,
    log: Log,
    /// They hold the log, and there is none on disk.
    peers: Option<Peers>,
    server: Server,
    /// What the server had synced once, kept by somebody.
    copy: Option<Data>,
    /// The sessions of which a lane broke.
    broken: BTreeSet<SessionId>,
    operations: BTreeMap<u64, Operation>,
    /// Whose each is.
    asked: BTreeMap<u64, SessionId>,
    next_id: u64,
    next_session: u64,
    /// The sessions that take requests.
    sessions: Vec<SessionId>,
    /// The writes of each session, in order.
    written: BTreeMap<SessionId, Vec<u64>>,
    told: Vec<Told>,
    /// Writes that were answered with an error.
    refused: BTreeSet<u64>,
    /// Writes that a server which refuses all of them has not done, whether anybody was told or not.
    not_done: BTreeSet<u64>,
    /// Writes that are answered with an error whether they were done or not.
    unknown: BTreeSet<u64>,
    /// What the server has executed, be it lost since or not.
    done: BTreeSet<u64>,
    /// What was executed without a marker. Where the proxy or the server was lost before it was answered, it may be there
    /// once, twice, or not at all.
    bare: BTreeSet<u64>,
    /// Updates that were given up: a write before them seemed to be lost. Another copy of the log may say later that it
    /// was refused, so what is behind them may be there.
    given_up: BTreeSet<u64>,
    /// Which operation has which place now.
    at: BTreeMap<SeqNum, u64>,
    waiting_count: usize,
    failures: Vec<String>,
}

impl World {
    /// Every third world has its log on disk, the others have one or two peers.
    fn new(seed: u64, fault: Option<Fault>) -> World {
        let peers = (!seed.is_multiple_of(3)).then(|| Peers::new((seed % 3) as usize, fault));
        let mut world = World {
            rng: Rng::new(seed, 0),
            fault,
            peers,
            queue: queue(fault, &Found::default()),
            log: Log::default(),
            server: Server::default(),
            copy: None,
            broken: BTreeSet::new(),
            operations: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_id: 1,
            next_session: 1,
            sessions: Vec::new(),
            written: BTreeMap::new(),
            told: Vec::new(),
            refused: BTreeSet::new(),
            not_done: BTreeSet::new(),
            unknown: BTreeSet::new(),
            done: BTreeSet::new(),
            bare: BTreeSet::new(),
            given_up: BTreeSet::new(),
            at: BTreeMap::new(),
            waiting_count: 0,
            failures: Vec::new(),
        };
        world.open_sessions();
        world
    }

    fn run(mut self) -> Vec<String> {
        // In some worlds the log breaks.
        let log_fails = self.rng.below(8) == 0;
        for _ in 0..STEPS {
            let step = self.draw_step(log_fails);
            if std::env::var_os("TRACE").is_some() {
                let last = self.at.last_key_value().map(|(seq, id)| (seq.0, self.operations[id]));
                let (server, log) = (&self.server, self.log.records());
                eprintln!(
                    "last {last:?}, positions {:?}, data {:?}, executed {} synced {}, log {:?} written {}; {step:?}",
                    server.data.positions, server.data.lists, server.executed, server.synced_through, log.keys(),
                    self.log.written,
                );
            }
            self.step(step);
        }
        self.rest();
        self.check();
        self.failures
    }

    fn draw_step(&mut self, log_fails: bool) -> Step {
        let failures = if self.peers.is_some() { 3 } else { u64::from(log_fails) };
        let weight = |(step, weight): (Step, u64)| if step == Step::LogFails { failures } else { weight };
        let total: u64 = WEIGHTS.iter().copied().map(weight).sum();
        let mut drawn = self.rng.below(total);
        for entry in WEIGHTS {
            match drawn.checked_sub(weight(entry)) {
                Some(left) => drawn = left,
                None => return entry.0,
            }
        }
        Step::Tell
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit => self.submit(),
            Step::Run => self.run_one(),
            Step::Answer => self.answer(),
            Step::Record => self.record(),
            Step::Write => self.write(),
            Step::Sync => self.sync(),
            Step::Stable => self.queue.on_stable(SeqNum(self.server.synced_through)),
            Step::Tell => self.tell(),
            Step::Trim => self.trim(),
            Step::EndSession => self.end_session(),
            Step::LaneBreaks => self.break_lane(),
            Step::Refuse => self.server.refuses ^= true,
            Step::LogFails => self.fail_log(),
            Step::ServerCrash => self.crash_server(),
            Step::OldCopy => self.use_copy(),
            // Nothing protects from the loss of all copies.
            Step::ProxyCrash | Step::HostCrash
                if self.peers.as_ref().is_some_and(|peers| !peers.can_restart()) => {}
            Step::ProxyCrash => self.crash_proxy(),
            Step::HostCrash => {
                self.lose_unwritten();
                self.lose_unsynced();
                self.restart_proxy();
            }
        }
    }

    // ---- clients

    fn open_sessions(&mut self) {
        self.sessions.clear();
        while self.sessions.len() < 3 {
            self.open_session();
        }
    }

    fn open_session(&mut self) {
        let session = SessionId(self.next_session);
        self.next_session += 1;
        // Its marker is stored, and stable, before it is used.
        self.server.data.positions.insert(session, SeqNum(0));
        self.sync();
        self.queue.open_session(session);
        self.sessions.push(session);
    }

    fn submit(&mut self) {
        let session = self.sessions[self.rng.below(self.sessions.len() as u64) as usize];
        let kind = [RequestKind::Read, RequestKind::Update, RequestKind::Update, RequestKind::Bypass];
        let kind = kind[self.rng.below(4) as usize];
        let (key, any) = (self.rng.below(KEYS), self.rng.below(4) == 0);
        let operation = Operation { id: self.next_id, kind, key, any };
        let access = if any { Access::Any } else { Access::Key(KeyHash(key + 1)) };
        let early = self.rng.below(2) == 0 && !is_bare(self.next_id);
        let payload = operation.payload();
        let submission = Submission { session, kind, early, access, payload: &payload };
        let is_behind = self.queue.has_runs();
        if let Ok(seq) = self.queue.submit(&submission) {
            self.next_id += 1;
            self.at.insert(seq, operation.id);
            self.operations.insert(operation.id, operation);
            self.asked.insert(operation.id, session);
            self.waiting_count += 1;
            if kind != RequestKind::Read {
                self.written.entry(session).or_default().push(operation.id);
            } else if !any && !is_behind && self.rng.below(2) == 0 {
                self.answer_known(seq, key);
            }
        }
    }

    /// A read is answered without the server by who has followed its key: what the server has, if it has answered all
    /// writes of the key.
    fn answer_known(&mut self, read: SeqNum, key: u64) {
        let is_of_key = |operation: &Operation| operation.kind != RequestKind::Read && operation.key == key;
        let is_open = |seq: &SeqNum| {
            let operation = self.at.get(seq).and_then(|id| self.operations.get(id));
            operation.is_none_or(is_of_key)
        };
        let server = &self.server;
        let is_waited_for = server.waiting.iter().any(|waiting| is_of_key(&waiting.operation));
        let waits = is_waited_for || server.replies.iter().any(|(seq, ..)| is_open(seq));
        if !waits {
            let list = server.data.lists.get(&key).cloned().unwrap_or_default();
            self.queue.answer(read, &encode(&[(key, list)]));
        }
    }

    fn tell(&mut self) {
        let Some(completion) = self.queue.next_completion() else { return };
        self.waiting_count -= 1;
        let Some(operation) = self.at.get(&completion.seq).and_then(|id| self.operations.get(id)) else {
            return self.failures.push(format!("an answer to nobody: {completion:?}"));
        };
        let saw = match completion.answered {
            Answered::ByLog => Vec::new(),
            Answered::ByServer(bytes, failed) => {
                if failed && !self.unknown.contains(&operation.id) {
                    self.refused.insert(operation.id);
                }
                decode(&bytes)
            }
            // Nobody is told what came of it.
            Answered::Gone => return,
        };
        // An early one that is refused is in the dead letters.
        let is_refused =
            [&self.refused, &self.not_done, &self.unknown].iter().any(|ids| ids.contains(&operation.id));
        let writes = operation.kind != RequestKind::Read && !is_refused;
        self.told.push(Told { id: operation.id, writes, saw });
    }

    fn end_session(&mut self) {
        let index = self.rng.below(self.sessions.len() as u64) as usize;
        self.queue.end_session(self.sessions[index]);
        self.copy = None;
        self.replace_session(index);
    }

    /// A lane of a client's own broke, and is ended before anything else is done: what was on it was executed or not,
    /// and is answered with an error.
    fn break_lane(&mut self) {
        let Some(Waiting { session, seq, operation, .. }) = self.server.waiting.front().copied() else {
            return;
        };
        if operation.kind != RequestKind::Bypass || self.server.refuses {
            return;
        }
        self.broken.insert(session);
        if self.rng.below(2) == 0 {
            self.execute();
            self.server.replies.pop_back();
            self.unknown.insert(operation.id);
        } else {
            self.server.waiting.pop_front();
            self.written.get_mut(&session).expect("it wrote").retain(|id| *id != operation.id);
            self.refused.insert(operation.id);
            // It has taken its place, and storage holds it before it is called stable.
            self.server.data.positions.insert(session, seq);
            self.server.since.push(self.server.data.clone());
            self.server.executed = self.server.executed.max(seq.0);
        }
        self.server.replies.push_back((seq, Vec::new(), Outcome::Unknown));
    }

    fn replace_session(&mut self, index: usize) {
        self.copy = None;
        self.sessions.remove(index);
        self.open_session();
    }

    // ---- the server

    fn run_one(&mut self) {
        if self.rng.below(2) == 0 {
            if let Some(run) = self.queue.next_run() {
                self.server.waiting.push_back(Waiting::of(&run));
            }
        } else if !self.execute() {
            // What it lacks is executed when it takes writes again, and begun with anew.
            self.leave_server();
            self.meet_server();
        }
    }

    /// False if the server refuses what is executed anew: nothing behind it is executed.
    fn execute(&mut self) -> bool {
        let server = &mut self.server;
        let Some(Waiting { session, seq, operation, is_replayed }) = server.waiting.pop_front() else {
            return true;
        };
        let is_refused = server.refuses && operation.kind != RequestKind::Read;
        if is_refused && is_replayed {
            return false;
        }
        server.executed = server.executed.max(seq.0);
        if is_refused && is_bare(operation.id) {
            let position = server.data.positions.get(&session).copied();
            let saw = server.data.execute(session, seq, operation);
            position.map(|position| server.data.positions.insert(session, position));
            server.since.push(server.data.clone());
            server.replies.push_back((seq, saw, Outcome::Unmarked { failed: false }));
            self.done.insert(operation.id);
            self.bare.insert(operation.id);
            return true;
        }
        if is_refused {
            // Of what it had done before, and somebody was told of, it is no excuse.
            let is_told = || self.told.iter().any(|told| told.id == operation.id);
            if !self.done.contains(&operation.id) || !is_told() {
                self.not_done.insert(operation.id);
            }
            server.replies.push_back((seq, Vec::new(), Outcome::Refused));
            return true;
        }
        self.done.insert(operation.id);
        let saw = server.data.execute(session, seq, operation);
        server.since.push(server.data.clone());
        server.replies.push_back((seq, saw, Outcome::Executed));
        true
    }

    fn answer(&mut self) {
        let Some((seq, saw, outcome)) = self.server.replies.pop_front() else { return };
        self.queue.on_reply(seq, &encode(&saw), outcome);
    }

    fn sync(&mut self) {
        let server = &mut self.server;
        server.synced = server.data.clone();
        server.since.clear();
        server.synced_through = server.executed;
    }

    /// Nobody was told yet what came of these, and no position says it.
    fn doubt_bare(&mut self) {
        let told: BTreeSet<u64> = self.told.iter().map(|told| told.id).collect();
        self.unknown.extend(self.bare.difference(&told));
    }

    /// Of what the server has not synced, a beginning is left.
    fn lose_unsynced(&mut self) {
        self.doubt_bare();
        let server = &mut self.server;
        let left = self.rng.below(server.since.len() as u64 + 1) as usize;
        let data = if left == 0 { server.synced.clone() } else { server.since[left - 1].clone() };
        // A server that begins makes stable what it has.
        self.server = Server { synced: data.clone(), data, ..Server::default() };
    }

    fn crash_server(&mut self) {
        self.lose_unsynced();
        self.meet_server();
    }

    /// A copy of what the server has synced is made, or the server is started from the one that there is. If that is
    /// refused, what it had is put back.
    fn use_copy(&mut self) {
        if !self.bare.is_empty() {
            // No position tells whether a copy has them.
            self.copy = None;
            return;
        }
        let Some(copy) = self.copy.take() else {
            self.copy = Some(self.server.synced.clone());
            return;
        };
        // Of sessions that it may forget, or of which a write has an unknown outcome, nobody knows what it had.
        let is_certain =
            |session: &SessionId| self.sessions.contains(session) && !self.broken.contains(session);
        let others = |data: &Data| {
            let others = data.positions.iter().filter(|(session, _)| !is_certain(session));
            others.map(|(session, seq)| (*session, *seq)).collect::<Vec<_>>()
        };
        if others(&copy) != others(&self.server.synced) {
            return;
        }
        if self.queue.lacking(&copy.positions).is_some() {
            return self.crash_server();
        }
        self.server = Server { synced: copy.clone(), data: copy, ..Server::default() };
        self.meet_server();
    }

    /// The server is given up with what it has, which it makes stable when it is begun with anew.
    fn leave_server(&mut self) {
        self.doubt_bare();
        let data = self.server.data.clone();
        self.server = Server { synced: data.clone(), data, ..Server::default() };
    }

    /// It is there again.
    fn meet_server(&mut self) {
        for session in self.queue.in_doubt() {
            self.waiting_count -= self.queue.abandon_session(session) as usize;
            if let Some(index) = self.sessions.iter().position(|used| *used == session) {
                self.replace_session(index);
            }
        }
        if let Some(lacking) = self.queue.lacking(&self.server.data.positions) {
            self.failures
                .push(format!("nothing that was stable is missing, and it is said to be: {lacking:?}"));
        }
        let lost = self.queue.begin_again(&self.server.data.positions);
        self.expect_untold(lost.iter().map(|lost| Operation::parse(&lost.payload).id));
    }

    // ---- the log

    fn fail_log(&mut self) {
        let Some(peers) = &mut self.peers else {
            self.log.has_failed = true;
            return;
        };
        peers.fail(&mut self.rng);
        // What goes wrong together is what copies are for.
        if self.rng.below(3) == 0 {
            self.step(Step::HostCrash);
        }
    }

    fn record(&mut self) {
        if let Some(peers) = &mut self.peers {
            return peers.record(&mut self.queue);
        }
        if self.log.has_failed {
            return;
        }
        let Some((name, bytes)) = self.queue.next_record() else { return };
        self.log.changes.push(Change::Record(name.0, bytes.to_vec()));
        self.queue.record_taken();
    }

    fn write(&mut self) {
        if let Some(peers) = &mut self.peers {
            for _ in 0..self.rng.below(12) {
                peers.step(&mut self.queue, &mut self.rng);
            }
            return;
        }
        if self.log.has_failed {
            return;
        }
        self.log.written = self.log.changes.len();
        while self.log.reported < self.log.written {
            if let Change::Record(name, _) = &self.log.changes[self.log.reported] {
                self.queue.on_logged(SeqNum(*name));
            }
            self.log.reported += 1;
        }
    }

    fn trim(&mut self) {
        if let Some(peers) = &mut self.peers {
            let forgotten = peers.trim(&mut self.queue);
            for session in &forgotten {
                self.server.data.positions.remove(session);
                self.server.since.push(self.server.data.clone());
            }
            // The moment in which a peer that was not trimmed would show.
            if !forgotten.is_empty() && self.rng.below(4) == 0 {
                self.step(Step::ProxyCrash);
            }
            return;
        }
        while let Some(name) = self.queue.next_trim() {
            if !self.log.has_failed {
                self.log.changes.push(Change::Erase(name.0));
            }
        }
        // The server forgets a session when what was trimmed cannot be found in the log any more.
        if let Some(session) = self.queue.next_ended() {
            if !self.log.has_failed {
                self.log.written = self.log.changes.len();
                self.server.data.positions.remove(&session);
                self.server.since.push(self.server.data.clone());
            }
        }
    }

    fn lose_unwritten(&mut self) {
        let most = self.log.changes.len() - self.log.written;
        let left = self.log.written + self.rng.below(most as u64 + 1) as usize;
        self.log.changes.truncate(left);
    }

    // ---- the proxy

    fn crash_proxy(&mut self) {
        // What was on its way to the server is executed as far as it had come.
        for _ in 0..self.rng.below(self.server.waiting.len() as u64 + 1) {
            if !self.execute() {
                break;
            }
        }
        self.leave_server();
        self.restart_proxy();
    }

    fn restart_proxy(&mut self) {
        self.copy = None;
        self.log.written = self.log.changes.len();
        self.log.reported = self.log.written;
        let records = match &mut self.peers {
            Some(peers) => peers.restart(&mut self.rng),
            None => self.log.records(),
        };
        let (mut updates, mut places) = (Vec::new(), Vec::new());
        for bytes in records.values() {
            let from = updates.len();
            for update in RecordReader::new(bytes).expect("our version") {
                updates.push(update.expect("whole"));
            }
            places.push((updates[from].seq, updates[updates.len() - 1].seq));
        }
        let positions = self.server.data.positions.clone();
        let found = Found { records: places, updates, positions };
        let (queue, lost) = CommitQueue::recover(config(self.fault), &found).expect("no gaps");
        self.expect_untold(lost.iter().map(|lost| Operation::parse(&lost.payload).id));
        self.queue = queue;
        self.at.clear();
        self.waiting_count = 0;
        // Nobody is served before what the log holds is executed.
        while let Some(run) = self.queue.next_run() {
            self.server.waiting.push_back(Waiting::of(&run));
        }
        while !self.server.waiting.is_empty() {
            self.server.refuses ^= self.rng.below(16) == 0;
            if !self.execute() {
                // The start ends, and is tried again; the server's host may be lost meanwhile.
                if self.rng.below(2) == 0 {
                    self.lose_unsynced();
                } else {
                    self.leave_server();
                }
                return self.restart_proxy();
            }
            self.answer();
        }
        // A server that takes no marker takes no session either.
        self.server.refuses = false;
        if self.peers.is_some() && !self.leave_peers() {
            return self.restart_proxy();
        }
        self.open_sessions();
    }

    /// Peers are relied on until what they gave back is stable; false if the host is lost before.
    fn leave_peers(&mut self) -> bool {
        let is_settled = self.queue.is_settled();
        if !is_settled {
            if self.rng.below(4) == 0 {
                self.lose_unsynced();
                return false;
            }
            self.sync();
            self.queue.on_stable(SeqNum(self.server.synced_through));
        }
        if let Some(peers) = &mut self.peers {
            peers.forget_all();
        }
        if is_settled && self.rng.below(4) == 0 {
            self.lose_unsynced();
            return false;
        }
        true
    }

    fn expect_untold(&mut self, lost: impl Iterator<Item = u64>) {
        let lost: BTreeSet<u64> = lost.collect();
        for told in self.told.iter().filter(|told| lost.contains(&told.id)) {
            self.failures.push(format!("{} was answered and is given up", told.id));
        }
        self.given_up.extend(lost);
    }

    // ---- the end

    /// Nothing more goes wrong.
    fn rest(&mut self) {
        self.log.has_failed = false;
        self.server.refuses = false;
        for _ in 0..20 * STEPS {
            for step in
                [Step::Run, Step::Run, Step::Answer, Step::Record, Step::Write, Step::Tell, Step::Trim]
            {
                self.step(step);
            }
            if self.server.waiting.is_empty() && self.server.replies.is_empty() {
                self.sync();
                self.step(Step::Stable);
            }
            if self.waiting_count == 0 && self.queue.is_empty() {
                let left = self.queue.counters().under_way();
                if left > 0 {
                    self.failures.push(format!("{left} seem to be waited for"));
                }
                return;
            }
        }
        self.failures.push(format!("{} wait for ever: {:?}", self.waiting_count, self.queue));
    }

    fn check(&mut self) {
        let lists = &self.server.data.lists;
        let mut count: BTreeMap<u64, usize> = BTreeMap::new();
        for id in lists.values().flatten() {
            *count.entry(*id).or_default() += 1;
        }
        let may_be_twice = |id: &u64| self.bare.contains(id) && self.unknown.contains(id);
        let twice = count.iter().filter(|(id, count)| **count > 1 && !may_be_twice(id));
        self.failures.extend(twice.map(|(id, _)| format!("{id} was executed twice")));
        let again = self.refused.iter().filter(|id| self.not_done.contains(id) && count.contains_key(id));
        self.failures.extend(again.map(|id| format!("{id} was refused and is there")));
        for told in &self.told {
            if told.writes && !self.not_done.contains(&told.id) && !count.contains_key(&told.id) {
                self.failures.push(format!("{} was answered and is lost", told.id));
            }
            for (key, saw) in &told.saw {
                let is = lists.get(key).map_or(&[][..], Vec::as_slice);
                if !is.starts_with(saw) {
                    self.failures.push(format!("{} saw {saw:?} of {key}, and {is:?} is there", told.id));
                }
            }
        }
        self.check_own_writes(&count);
        for (session, written) in &self.written {
            let others = [&self.not_done, &self.unknown, &self.given_up];
            let done = |id: &&u64| others.iter().all(|ids| !ids.contains(id));
            let written: Vec<u64> = written.iter().filter(done).copied().collect();
            let mut pairs = written.windows(2).map(|pair| (pair[0], pair[1]));
            if let Some((first, then)) =
                pairs.find(|(first, then)| !count.contains_key(first) && count.contains_key(then))
            {
                self.failures
                    .push(format!("of session {session} {then} is there, and {first} before it is not"));
            }
        }
    }
}

impl World {
    /// What somebody saw holds of his own writes those before, and none of those behind.
    fn check_own_writes(&mut self, count: &BTreeMap<u64, usize>) {
        let unsure = [&self.refused, &self.not_done, &self.unknown, &self.given_up];
        let whose: BTreeMap<u64, SessionId> =
            self.asked.iter().map(|(id, session)| (*id, *session)).collect();
        for told in &self.told {
            let is_own = |id: &&u64| whose[*id] == whose[&told.id];
            for (key, saw) in &told.saw {
                let before =
                    |id: &&u64| **id < told.id && self.operations[*id].key == *key && count.contains_key(*id);
                let written = self.written.get(&whose[&told.id]).into_iter().flatten();
                let missing: Vec<_> = written
                    .filter(before)
                    .filter(|id| unsure.iter().all(|ids| !ids.contains(id)) && !saw.contains(id))
                    .collect();
                let is_certain = |id: &&u64| !(self.bare.contains(id) && self.unknown.contains(id));
                let behind = saw.iter().filter(is_own).filter(|id| **id > told.id);
                let behind: Vec<_> = behind.filter(is_certain).collect();
                if !missing.is_empty() || !behind.is_empty() {
                    self.failures.push(format!(
                        "{} saw {saw:?} of {key}: {behind:?} of its session were asked for behind it, and {missing:?} \
                         before it",
                        told.id
                    ));
                }
            }
        }
    }
}

fn encode(saw: &[(u64, Vec<u64>)]) -> Vec<u8> {
    let words =
        saw.iter().flat_map(|(key, ids)| [*key, ids.len() as u64].into_iter().chain(ids.iter().copied()));
    words.flat_map(u64::to_le_bytes).collect()
}

fn decode(bytes: &[u8]) -> Saw {
    let mut words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
    let mut saw = Vec::new();
    while let Some(key) = words.next() {
        let count = words.next().expect("a count") as usize;
        saw.push((key, words.by_ref().take(count).collect()));
    }
    saw
}

fn config(fault: Option<Fault>) -> QueueConfig {
    QueueConfig { window_max: 40, record_bytes_max: 300, fault, ..QueueConfig::default() }
}

fn queue(fault: Option<Fault>, found: &Found<'_>) -> CommitQueue {
    CommitQueue::recover(config(fault), found).expect("no gaps").0
}

fn seeds() -> std::ops::Range<u64> {
    if let Ok(seed) = std::env::var("SEED").unwrap_or_default().parse() {
        return seed..seed + 1;
    }
    let count = std::env::var("SEEDS").ok().and_then(|count| count.parse().ok());
    0..count.unwrap_or(if cfg!(debug_assertions) { 20_000 } else { 200_000 })
}

#[test]
fn what_anybody_was_told_stays_true() {
    let mut told = 0;
    for seed in seeds() {
        let failures = World::new(seed, None).run();
        told += 1;
        assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
    }
    assert!(told > 0);
}

#[test]
fn a_rule_that_is_switched_off_is_noticed() {
    for fault in Fault::ALL {
        let found = (0..8_000).find(|seed| !World::new(*seed, Some(fault)).run().is_empty());
        println!("{fault:?}: seed {found:?}");
        assert!(found.is_some(), "nobody notices {fault:?}");
    }
}

#[test]
fn an_answer_waits_for_no_write_of_another_key() {
    let mut queue = queue(None, &Found::default());
    queue.open_session(SessionId(1));
    let mut submit = |kind, key: u64| {
        let access = Access::Key(KeyHash(key));
        let submission = Submission { session: SessionId(1), kind, early: false, access, payload: b"x" };
        queue.submit(&submission).expect("there is room")
    };
    let write = submit(RequestKind::Update, 1);
    let (same, other) = (submit(RequestKind::Read, 1), submit(RequestKind::Read, 2));
    for seq in [write, same, other] {
        queue.next_run().expect("it is to be executed");
        queue.on_reply(seq, b"y", Outcome::Executed);
    }
    assert_eq!(answered(&mut queue), [other]);
    let (name, _) = queue.next_record().expect("the write");
    queue.record_taken();
    queue.on_logged(name);
    assert_eq!(answered(&mut queue), [write, same]);
}

#[test]
fn a_refusal_waits_for_the_log_to_know_it_unless_the_log_takes_nothing() {
    for is_open in [true, false] {
        let mut queue = queue(None, &Found::default());
        queue.open_session(SessionId(1));
        let (kind, access) = (RequestKind::Update, Access::Key(KeyHash(1)));
        let submission = Submission { session: SessionId(1), kind, early: false, access, payload: b"x" };
        let write = queue.submit(&submission).expect("there is room");
        let (name, _) = queue.next_record().expect("the write");
        queue.record_taken();
        queue.on_logged(name);
        queue.next_run().expect("it is to be executed");
        queue.on_reply(write, b"-NOREPLICAS", Outcome::Refused);
        assert_eq!(answered(&mut queue), [], "the log does not know it");
        if is_open {
            let (name, _) = queue.next_record().expect("the note");
            queue.record_taken();
            queue.on_logged(name);
        } else {
            queue.set_log_open(false);
        }
        assert_eq!(answered(&mut queue), [write]);
    }
}

#[test]
fn a_read_whose_answer_is_known_is_not_executed_and_waits_for_what_it_may_have_seen() {
    let mut queue = queue(None, &Found::default());
    let session = SessionId(1);
    queue.open_session(session);
    let access = Access::Key(KeyHash(1));
    let submit = |queue: &mut CommitQueue, kind| {
        let submission = Submission { session, kind, early: false, access, payload: b"asked" };
        queue.submit(&submission).expect("the window is open")
    };
    let write = submit(&mut queue, RequestKind::Update);
    let read = submit(&mut queue, RequestKind::Read);
    assert!(queue.is_answered_before(write) && !queue.is_answered_before(read));
    queue.answer(read, b"known");
    assert_eq!(queue.next_run().map(|run| run.seq), Some(write));
    assert_eq!(queue.next_run(), None, "the read is none");
    queue.on_reply(write, b"+OK", Outcome::Executed);
    assert!(queue.is_answered_before(read));
    assert_eq!(queue.next_completion(), None, "the log holds nothing yet");
    let (record, _) = queue.next_record().expect("the write is logged");
    queue.record_taken();
    queue.on_logged(record);
    assert_eq!(answered(&mut queue), [write, read]);
    assert_eq!((queue.counters().known, queue.counters().completed), (1, 2));
}

fn answered(queue: &mut CommitQueue) -> Vec<SeqNum> {
    let mut answered: Vec<SeqNum> =
        std::iter::from_fn(|| queue.next_completion()).map(|told| told.seq).collect();
    answered.sort_unstable();
    answered
}

#[test]
fn a_log_whose_updates_are_too_far_apart_is_refused() {
    let update =
        |seq| LoggedUpdate { seq: SeqNum(seq), session: SessionId(1), behind: SeqNum(0), payload: b"x" };
    let found = Found { updates: vec![update(1), update(1 << 40)], ..Found::default() };
    let torn = CommitQueue::recover(QueueConfig::default(), &found).expect_err("it is damaged");
    assert!(torn.to_string().contains("1099511627776"), "{torn}");
}
