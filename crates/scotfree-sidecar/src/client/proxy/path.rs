//! What is between the clients and the server in a proxy: the queue, its log, and the service, in one thread.
//!
//! Invariant: what the queue says is carried out in the turn in which it says it; a server that is lost is waited for
//! in another thread, and the log goes on.

use super::asked::Questions;
use super::cache::{question, said, touched, Offered, ReadCache, Words};
use super::log::{LogName, ProxyLog};
use super::starting::Starting;
use super::tracking::{Link, Told};
use crate::client::fronts::Fronts;
use crate::server::RedisService;
use scotfree_core::{DeviceId, Epoch, Nanos, SeqNum, SessionId};
use scotfree_io::now_monotonic;
use scotfree_proxy::{Access, Answered, CommitQueue, Completion, Lost, Outcome, Submission, Unsubmitted};
use scotfree_resp::classes::{key_hash, touches, Touches};
use scotfree_resp::payload::{
    parse_response, write_response, CommandReader, RequestFlags, RequestHead, ResponseFlags,
    REQUEST_HEAD_BYTES,
};
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{
    CallLabel, ClientEvent, CompletedBy, DeadLetter, Execution, Handler, Replies, Reply, Report, Service,
    SessionHandle, SessionOptions, StartError, Upstream, Watch,
};
use scotfree_session::{
    ClosedReason, DeadLetterReason, Mode, RecoveredSession, Request, RequestKind, SubmitError,
};
use scotfree_wire::CloseReason;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the sessions of proxies are known by at the server, in the place of a server's nonce.
pub(super) const PROXY_MARK: [u8; 16] = *b"scotfree proxy 1";
/// How many sessions there may be.
const SESSIONS_MAX: usize = 16_384;

/// What is to be told to the fronts.
enum Event {
    Opened(SessionHandle, SessionId),
    Completed(Completion),
    Closed(SessionHandle, CloseReason, u64),
}

/// Sessions as the fronts name them, and as the server does.
#[derive(Default)]
struct Names {
    by_handle: BTreeMap<SessionHandle, SessionId>,
    by_id: BTreeMap<SessionId, SessionHandle>,
    /// Those whose record is being stored.
    opening: BTreeSet<SessionId>,
    /// Those whose connection has a state at the server that is lost with it: until this request is answered, or for as
    /// long as nothing ends it.
    with_state: BTreeMap<SessionId, Option<SeqNum>>,
    begun: u64,
}

/// What a request makes of the state that its connection has at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing.
    Untouched,
    /// It depends on it until it is answered.
    Touched,
    /// There is one from now on: a watch, a user.
    Kept,
    /// There is none once it is answered.
    Ended,
}

impl Names {
    fn note_state(&mut self, session: SessionId, state: State, seq: SeqNum) {
        let kept = self.with_state.get(&session) == Some(&None);
        match state {
            State::Untouched => {}
            State::Touched if kept => {}
            State::Touched | State::Ended => _ = self.with_state.insert(session, Some(seq)),
            State::Kept => _ = self.with_state.insert(session, None),
        }
    }

    fn remove(&mut self, session: SessionId) -> Option<SessionHandle> {
        self.opening.remove(&session);
        self.with_state.remove(&session);
        let handle = self.by_id.remove(&session)?;
        self.by_handle.remove(&handle);
        Some(handle)
    }
}

/// The way from the fronts to the server and back.
pub(super) struct ProxyPath {
    pub queue: CommitQueue,
    pub log: ProxyLog,
    server: Server,
    name: LogName,
    /// What the numbers of this run's sessions begin at.
    session_base: u64,
    names: Names,
    replies: Replies,
    events: VecDeque<Event>,
    /// The reply that was passed on last.
    told: Vec<u8>,
    reader: CommandReader,
    /// What is answered without the server, if anything is.
    cache: Option<Box<Caching>>,
    pub server_losses: u64,
    /// Nothing more comes before everything is stable.
    pub settles: bool,
    /// Whether the server was told last that somebody waits for its storage.
    wants_stable: bool,
}

/// The cache, and what is used with it.
struct Caching {
    known: ReadCache,
    /// By which the Redis tells of writes, if others may write.
    link: Option<Link>,
    words: Words,
    /// The response that was found last.
    response: Vec<u8>,
    /// In whose name times to live are asked for: a session that the server knows nothing of, since it only reads.
    session: SessionId,
    /// The server's hashes may have fields with times to live of their own.
    fields_expire: bool,
}

/// The server, or who waits for it.
enum Server {
    There(Box<RedisService>),
    Away(Starting),
}

impl ProxyPath {
    /// A path whose server is there.
    pub fn new(queue: CommitQueue, log: ProxyLog, service: RedisService, session_base: u64) -> ProxyPath {
        ProxyPath {
            queue,
            name: log.meta().name,
            log,
            server: Server::There(Box::new(service)),
            session_base,
            names: Names::default(),
            replies: Replies::new(),
            events: VecDeque::new(),
            told: Vec::new(),
            reader: CommandReader::default(),
            cache: None,
            server_losses: 0,
            settles: false,
            wants_stable: false,
        }
    }

    /// From now on reads of what is known are answered here. Everything that the log held is executed.
    /// With a `link` others may write past this proxy, and answers may be older by no more than its bound.
    pub fn begin_cache(&mut self, bytes_max: u64, link: Option<Link>) {
        // Sessions of clients are numbered from the next one on.
        let session = SessionId(self.session_base);
        self.queue.open_session(session);
        let mut known = ReadCache::new(bytes_max);
        if let Some(link) = &link {
            known.allow_others(link.bound());
        }
        self.cache = Some(Box::new(Caching {
            known,
            link,
            words: Words::default(),
            response: Vec::new(),
            session,
            fields_expire: self.service().is_none_or(fields_expire),
        }));
    }

    /// From now on no read is answered here: nobody is served any more.
    pub fn end_cache(&mut self) {
        self.cache = None;
    }

    /// Answers what an operator has asked of the cache.
    pub fn answer(&mut self, questions: &Questions) {
        let none = "this proxy has no cache; it has one if it is started with --cache SIZE";
        questions.answer(|asked| match &mut self.cache {
            Some(cache) => Ok(cache.known.answer(now_monotonic(), questions.server(), asked)),
            None => Err(none.to_owned()),
        });
    }

    /// Appends what the cache has counted and holds, if there is one.
    pub fn write_cache_metrics(&self, text: &mut MetricsText) {
        let Some(cache) = &self.cache else { return };
        cache.known.write_metrics(text);
        if let Some(link) = &cache.link {
            link.write_metrics(text);
        }
    }

    /// What clients have done past the order so far, and others past the proxy; to be told before anything is submitted.
    pub fn know_passing(&mut self, fronts: &mut Fronts) {
        let Some(cache) = &mut self.cache else { return };
        let is_well = match &self.server {
            Server::There(service) => service.writes_allowed(),
            Server::Away(_) => false,
        };
        let now = now_monotonic();
        let Caching { known, link, .. } = &mut **cache;
        if let Some(link) = link {
            let is_there = matches!(self.server, Server::There(_));
            link.turn(now, is_there, &mut |told: Told<'_>| known.on_told(told));
        }
        cache.known.set_answering(is_well);
        cache.known.know_passing(now, fronts.passed_by());
        fronts.take_waiting().for_each(|waiting| cache.known.know_waiting(waiting));
    }

    /// What a request reads, if the cache may answer that.
    fn offered<'p>(&mut self, kind: RequestKind, payload: &'p [u8]) -> Option<Offered<'p>> {
        let cache = self.cache.as_mut()?;
        let read = cache.words.read(kind, payload, cache.fields_expire);
        if read.is_none() && kind == RequestKind::Read {
            cache.known.on_unoffered();
        }
        read
    }

    /// Whether the answer to the read that was looked at last is known; then it is the cache's response.
    fn is_known(&mut self, read: &Offered<'_>) -> bool {
        let early = matches!(&self.server, Server::There(service) if service.word_of_early() == Some(true));
        let Some(cache) = &mut self.cache else { return false };
        if let Some(link) = &mut cache.link {
            let now = now_monotonic();
            link.want(now);
            cache.known.know_time(now);
        }
        let Some(value) = cache.known.look(cache.words.key(read)) else { return false };
        cache.response.clear();
        let flags = ResponseFlags::NONE.with_if(early, ResponseFlags::EARLY_ALLOWED);
        write_response(&mut cache.response, flags, value);
        true
    }

    /// A request goes to the server from this place; if the cache may answer it, it was the last that was looked at.
    fn pass(&mut self, kind: RequestKind, payload: &[u8], offered: Option<&Offered<'_>>, place: SeqNum) {
        let first = self.queue.first();
        let Some(cache) = &mut self.cache else { return };
        if let Some(offered) = offered {
            let key = cache.words.key(offered);
            if cache.known.passed(place, key, first) {
                let payload = question(&offered.read);
                let (session, access) = (cache.session, Access::None);
                let question =
                    Submission { session, kind: RequestKind::Read, early: false, access, payload: &payload };
                cache.known.asked(place, key, self.queue.submit(&question).ok());
            }
            return;
        }
        let touched = touched(kind, payload, &mut self.reader);
        let overwrite = cache.words.overwrite(kind, payload);
        cache.known.written(place, &touched, overwrite, first);
    }

    /// The server, if it is there.
    pub fn service(&self) -> Option<&RedisService> {
        match &self.server {
            Server::There(service) => Some(service),
            Server::Away(_) => None,
        }
    }

    /// Why the server serves no longer, if that has just come out.
    pub fn broken(&self) -> Option<String> {
        self.service().and_then(Handler::broken)
    }

    /// Gives the lost server up: its successor is awaited.
    pub fn lose_server(&mut self, starting: Starting) {
        self.server_losses += 1;
        self.queue.set_server_away(true);
        if let Some(cache) = &mut self.cache {
            let Caching { known, link, .. } = &mut **cache;
            known.set_answering(false);
            if let Some(link) = link {
                link.close(&mut |told: Told<'_>| known.on_told(told));
            }
        }
        self.server = Server::Away(starting);
        // What these connections had at the server is lost with it, or may have been what has ended it.
        let with_state = std::mem::take(&mut self.names.with_state);
        let mut over: BTreeSet<SessionId> = with_state.into_keys().collect();
        over.extend(self.queue.in_doubt());
        for session in over {
            let unknown = self.queue.abandon_session(session);
            if let Some(handle) = self.names.remove(session) {
                self.events.push_back(Event::Closed(handle, CloseReason::ServerFailed, unknown));
            }
        }
    }

    /// Who waits for the server.
    pub fn starting(&self) -> Option<&Starting> {
        match &self.server {
            Server::There(_) => None,
            Server::Away(starting) => Some(starting),
        }
    }

    /// The server is there again, and the positions of this log's sessions are these.
    pub fn regain_server(&mut self, service: RedisService, positions: &BTreeMap<SessionId, SeqNum>) {
        if let Some(cache) = &mut self.cache {
            cache.fields_expire = fields_expire(&service);
        }
        self.server = Server::There(Box::new(service));
        let unknown: Vec<SessionId> = self
            .names
            .by_id
            .keys()
            .copied()
            .filter(|session| !positions.contains_key(session) && !self.names.opening.contains(session))
            .collect();
        for session in unknown {
            self.fail(session, CloseReason::UnknownSession);
        }
        self.queue.set_server_away(false);
        let lost = self.queue.begin_again(positions);
        self.bury(&lost);
        for session in self.names.opening.clone() {
            self.record(session);
        }
    }

    /// Keeps updates that are never executed where an operator finds them.
    pub fn bury(&mut self, lost: &[Lost]) {
        let Server::There(service) = &mut self.server else { return };
        let reason = DeadLetterReason::BehindGap;
        service.bury(lost.iter().map(|Lost { session, seq, payload }| DeadLetter {
            session: *session,
            seq: *seq,
            reason,
            payload,
        }));
    }

    /// Logs, executes, and takes what has come of it; `now` in real time.
    pub fn turn(&mut self, now: Nanos) {
        self.log.take_from(now, &mut self.queue);
        self.queue.set_log_open(!self.log.lags() && !self.log.is_full());
        if self.queue.runs_wait_for_log_alone() {
            // Nobody waits for the server, and beside it the medium is slower.
            self.log.write(true);
            self.execute();
        } else {
            self.execute();
            if self.log.write(!self.queue.has_read_lately()) {
                // The server has worked meanwhile.
                self.poll();
            }
        }
        self.absorb();
        let (names, server, events) = (&mut self.names, &mut self.server, &mut self.events);
        self.log.tell(&mut self.queue, &mut |session| forget(session, names, server, events));
        while let Some(completion) = self.queue.next_completion() {
            if self.names.with_state.get(&completion.session) == Some(&Some(completion.seq)) {
                self.names.with_state.remove(&completion.session);
            }
            self.events.push_back(Event::Completed(completion));
        }
    }

    fn execute(&mut self) {
        let Server::There(service) = &mut self.server else { return };
        while let Some(run) = self.queue.next_run() {
            let execution = Execution {
                ticket: run.seq.0,
                session: run.session,
                seq: run.seq,
                kind: run.kind,
                payload: run.payload,
                is_replayed: run.is_replayed,
                identity: None,
            };
            service.execute(&execution, &mut self.replies);
        }
        self.poll();
    }

    fn poll(&mut self) {
        self.wants_stable = self.waits_for_storage();
        if let Server::There(service) = &mut self.server {
            service.poll(self.wants_stable, &mut self.replies);
        }
    }

    /// Whether somebody waits for the server's storage.
    fn waits_for_storage(&self) -> bool {
        self.queue.wants_stable()
            || !self.names.opening.is_empty()
            || self.log.lags() && !self.queue.is_settled()
            || self.settles
    }

    fn absorb(&mut self) {
        let mut index = 0;
        while let Some(report) = self.replies.report(index) {
            index += 1;
            match report {
                Report::Reply { ticket, start, end, failed, .. } => {
                    let bytes = self.replies.bytes(start, end);
                    if let Some(cache) = &mut self.cache {
                        let after_all = self.queue.is_answered_before(SeqNum(ticket));
                        cache.known.replied(SeqNum(ticket), said(bytes, failed), after_all);
                    }
                    self.queue.on_reply(SeqNum(ticket), bytes, outcome_of(bytes, failed));
                }
                Report::Independent { ticket } => self.queue.on_independent(SeqNum(ticket)),
                Report::Stable { ticket } => self.queue.on_stable(SeqNum(ticket)),
                Report::SessionRecorded(session) => self.opened(session),
                Report::SessionFailed(session) => self.fail(session, CloseReason::ServerFailed),
                Report::SessionRefused(session) => self.fail(session, CloseReason::NoMemory),
                // There is no device on the way.
                Report::Lives { .. } | Report::StableAsAnswered | Report::SessionDeleted(_) => {}
            }
        }
        self.replies.clear();
    }

    fn opened(&mut self, session: SessionId) {
        if !self.names.opening.remove(&session) {
            return;
        }
        if let Some(handle) = self.names.by_id.get(&session) {
            self.queue.open_session(session);
            self.events.push_back(Event::Opened(*handle, session));
        }
    }

    fn fail(&mut self, session: SessionId, reason: CloseReason) {
        let (unknown, lost) = self.queue.fail_session(session);
        if let Some(cache) = &mut self.cache {
            // What became of its writes nobody says any more.
            cache.known.forget();
        }
        if let (Server::There(service), false) = (&self.server, lost.is_empty()) {
            service.alarm(&format!(
                "{} updates of session {session} that may have been acknowledged are not executed, since the Redis server no \
                 longer says how far the session was; they are in the file of dead letters: look what of it is missing there",
                lost.len()
            ));
        }
        self.bury(&lost);
        if let Some(handle) = self.names.remove(session) {
            self.events.push_back(Event::Closed(handle, reason, unknown));
        }
    }

    fn record(&mut self, session: SessionId) {
        let Server::There(service) = &mut self.server else { return };
        let record = RecoveredSession {
            session,
            epoch: Epoch(1),
            client_nonce: self.name,
            server_nonce: PROXY_MARK,
            position: SeqNum(0),
        };
        service.record_session(&record, &mut self.replies);
    }

    // ---- waiting

    /// Whether another turn would find something to do.
    pub fn has_work(&self) -> bool {
        // Who begins to wait for storage when the server has answered is not left to the next look at it.
        let waits_anew = !self.wants_stable && self.waits_for_storage();
        !self.events.is_empty() || self.service().is_some() && (self.queue.has_runs() || waits_anew)
    }

    /// Whether whatever is asked now would wait for what the log and the server have under way.
    pub fn is_busy(&self) -> bool {
        self.queue.is_logging() && self.service().is_some_and(RedisService::is_busy)
    }

    /// Appends what the path waits for.
    pub fn watches(&self, out: &mut Vec<Watch>) {
        match &self.server {
            Server::There(service) => service.watches(out),
            Server::Away(starting) => out.push(starting.watch()),
        }
        self.log.watches(out);
        if let Some(link) = self.link() {
            link.watches(out);
        }
    }

    fn link(&self) -> Option<&Link> {
        self.cache.as_ref()?.link.as_ref()
    }

    /// When to turn again even if nothing happens.
    pub fn next_turn(&self) -> Option<Nanos> {
        let full = self.log.is_full().then(|| now_monotonic().plus(Nanos::from_millis(1)));
        let tells = self.link().filter(|_| self.service().is_some());
        let tells = tells.and_then(|link| link.next_turn(now_monotonic()));
        [full, self.log.next_turn(), self.service().and_then(Handler::next_poll), tells]
            .into_iter()
            .flatten()
            .min()
    }

    /// What a request makes of the state that its connection has at the server.
    fn state_of(&mut self, head: RequestHead, payload: &[u8]) -> State {
        let has = |flags| head.flags.has(flags);
        match () {
            () if head.flags.is_partial() => State::Touched,
            () if !has(RequestFlags::PRIVATE) => State::Untouched,
            () if has(RequestFlags::RELEASE) => State::Ended,
            () if has(RequestFlags::USER) => State::Kept,
            () if has(RequestFlags::WATCHED) => State::Ended,
            () => match self.reader.read(payload, REQUEST_HEAD_BYTES) {
                Ok(Some((args, _))) if args.is(0, "UNWATCH") => State::Ended,
                Ok(Some((args, _))) if args.is(0, "CLIENT") => State::Touched,
                _ => State::Kept,
            },
        }
    }

    fn access(&mut self, kind: RequestKind, head: RequestHead, payload: &[u8]) -> Access {
        let has = |flags| head.flags.has(flags);
        if kind == RequestKind::Read && (has(RequestFlags::DESCRIBE) || has(RequestFlags::PART)) {
            return Access::None;
        }
        if has(RequestFlags::TRANSACTION) || head.flags.is_partial() {
            return Access::Any;
        }
        match self.reader.read(payload, REQUEST_HEAD_BYTES) {
            Ok(Some((args, _))) => match touches(args) {
                Touches::Nothing => Access::None,
                Touches::Key(key) => Access::Key(key_hash(head.db, Some(key))),
                Touches::Anything => Access::Any,
            },
            // A connection that is gone.
            Ok(None) => Access::None,
            Err(_) => Access::Any,
        }
    }
}

/// Whether fields of hashes may have times to live of their own; so if the server does not say what commands it has.
fn fields_expire(service: &RedisService) -> bool {
    let commands = service.describe().commands;
    !commands.contains_key(&b"hget"[..]) || commands.contains_key(&b"hpexpire"[..])
}

/// An error of the Redis' own is a refusal, unless it is the answer to what was executed without a marker; one behind
/// which a connection is closed says that nobody knows.
fn outcome_of(response: &[u8], failed: bool) -> Outcome {
    match (failed, parse_response(response)) {
        (true, Ok((flags, _))) if flags.has(ResponseFlags::CLOSE) => Outcome::Unknown,
        (failed, Ok((flags, _))) if flags.has(ResponseFlags::DURABILITY_NONE) => Outcome::Unmarked { failed },
        (false, _) => Outcome::Executed,
        (true, Ok(_)) => Outcome::Refused,
        (true, Err(_)) => Outcome::Unknown,
    }
}

/// The server may forget a session.
fn forget(session: SessionId, names: &mut Names, server: &mut Server, events: &mut VecDeque<Event>) {
    if let Server::There(service) = server {
        service.delete_session(session, &mut Replies::new());
    }
    if let Some(handle) = names.remove(session) {
        events.push_back(Event::Closed(handle, CloseReason::ByClient, 0));
    }
}

impl Upstream for ProxyPath {
    fn start_session(&mut self, _options: SessionOptions) -> Result<SessionHandle, StartError> {
        if self.names.by_id.len() >= SESSIONS_MAX {
            return Err(StartError::TooMany { sessions_max: SESSIONS_MAX });
        }
        self.names.begun += 1;
        let handle = SessionHandle::numbered(self.names.begun);
        let session = SessionId(self.session_base.wrapping_add(self.names.begun));
        self.names.by_handle.insert(handle, session);
        self.names.by_id.insert(session, handle);
        self.names.opening.insert(session);
        self.record(session);
        Ok(handle)
    }

    fn end_session(&mut self, session: SessionHandle) {
        if let Some(session) = self.names.by_handle.get(&session) {
            self.queue.end_session(*session);
        }
    }

    fn submit(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        _label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        let session = *self.names.by_handle.get(&session).ok_or(SubmitError::Closed)?;
        if self.names.opening.contains(&session) {
            return Err(SubmitError::NotOpen);
        }
        let head = RequestHead::parse(request.payload).ok();
        let access = head.map_or(Access::Any, |head| self.access(request.kind, head, request.payload));
        let state = head.map_or(State::Untouched, |head| self.state_of(head, request.payload));
        let Request { kind, mode, payload, .. } = request;
        let submission = Submission { session, kind, early: mode == Mode::Early, access, payload };
        let offered = self.offered(kind, payload);
        let is_known = offered.as_ref().is_some_and(|read| self.is_known(read));
        let seq = self.queue.submit(&submission).map_err(|error| match error {
            Unsubmitted::NoSession => SubmitError::Closed,
            Unsubmitted::WindowFull => SubmitError::WindowFull,
        })?;
        match &self.cache {
            Some(cache) if is_known => self.queue.answer(seq, &cache.response),
            Some(_) => self.pass(kind, payload, offered.as_ref(), seq),
            None => {}
        }
        self.names.note_state(session, state, seq);
        Ok(seq)
    }

    fn next_event(&mut self) -> Option<ClientEvent<'_>> {
        loop {
            match self.events.pop_front()? {
                Event::Opened(session, id) => {
                    return Some(ClientEvent::Opened { session, id, window: u32::MAX });
                }
                Event::Closed(session, reason, unknown_count) => {
                    let reason = ClosedReason::Server(reason);
                    return Some(ClientEvent::Closed { session, reason, unknown_count });
                }
                Event::Completed(completion) => {
                    let Some(session) = self.names.by_id.get(&completion.session).copied() else { continue };
                    let seq = completion.seq;
                    let (answered_by, bytes, failed) = match completion.answered {
                        Answered::ByLog => (CompletedBy::Device(DeviceId(0)), None, false),
                        Answered::Gone => (CompletedBy::ServerAck, None, false),
                        Answered::ByServer(bytes, failed) => {
                            self.told = bytes;
                            (CompletedBy::Server, Some(self.told.as_slice()), failed)
                        }
                    };
                    let reply = Reply { seq, answered_by, bytes, failed, recorded: None };
                    return Some(ClientEvent::Completed { session, reply });
                }
            }
        }
    }
}
