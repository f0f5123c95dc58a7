//! The server's sidecar as a [`Service`]: the machine of [`scotfree_resp::back`] with its sockets.
//!
//! Invariant: what the machine says is passed on in the order in which it says it. When the server is
//! lost, nothing more is answered and the loop around starts again from the beginning.

mod asked;
mod connector;
mod missing;
mod password;
mod run;
mod syncer;

pub use password::PasswordSource;
pub use run::{run, ServerSidecarConfig, SidecarError};
pub(crate) use run::{say_once, CANNOT_SYNC, RETRY_INTERVAL};

use crate::aof;
use crate::client::silence::Hearing;
use crate::dead_letters::{commands_of, DeadLetters, Letter};
use crate::notices::Notices;
use crate::redis::RedisServer;
use crate::seldom::Seldom;
use crate::stream::Stream;
use crate::tls;
use asked::Asked;
pub(crate) use connector::{Connector, NewStream};
use scotfree_core::{Epoch, Nanos, SeqNum, SessionId};
use scotfree_io::{now_monotonic, now_realtime, Interest, Poller};
use scotfree_resp::back::{
    Back, BackConfig, BackCounters, BackEvent, BackEvents, Execute, LaneId, Marker, Method, Refusing,
    StopReason,
};
use scotfree_resp::description::Description;
use scotfree_rpc::metrics::MetricsText;
use scotfree_rpc::{DeadLetter, Execution, Handler, Replies, Service, Stop, Watch};
use scotfree_session::{DeadLetterReason, RecoveredSession};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use syncer::{SyncError, Syncer};

const READ_BYTES: usize = 64 << 10;
/// How often lanes are read on which nothing is expected, to notice that they are closed.
const IDLE_READ_INTERVAL: Nanos = Nanos::from_millis(100);
/// The bytes of a session's record beside its position: epoch and both nonces.
const OPAQUE_BYTES: usize = 4 + 16 + 16;
/// What an operator who has just set a password has to know.
const OPEN_TO_ALL: &str = "; clients that give no password are served as before: start scot again with \
     --redis-password-file, and it is asked of them";

/// What the service is told at its start.
#[derive(Debug, Clone)]
pub struct RedisServiceConfig {
    /// The server, and how it is reached.
    pub redis: RedisServer,
    /// The machine's settings.
    pub back: BackConfig,
    /// Where the password is read again for each connection, since it may be another then; if given, the machine has
    /// the user's name.
    pub password: Option<PasswordSource>,
    /// Where letters go.
    pub dead_letters: PathBuf,
    /// How large that file may become.
    pub dead_letter_bytes_max: u64,
    /// Where to note how far the append-only files are synced, for tests that cut them back.
    pub synced_sizes: Option<PathBuf>,
    /// Where lines for the operator go.
    pub notices: Notices,
    /// How long the start may take, but for what depends on the amount of data.
    pub start_time_max: Duration,
    /// Call stable what is only applied: a promise broken on purpose, for the control of experiments that
    /// must find nothing lost without it.
    pub ack_when_applied: bool,
    /// Whether anybody may be answered early, so that it is good to know when that stops; shared by all clones.
    pub says_early: Arc<AtomicBool>,
}

impl RedisServiceConfig {
    /// Defaults for a server at `redis`.
    pub fn new(redis: impl Into<RedisServer>, dead_letters: PathBuf) -> RedisServiceConfig {
        RedisServiceConfig {
            redis: redis.into(),
            back: BackConfig::default(),
            password: None,
            dead_letters,
            dead_letter_bytes_max: 64 << 20,
            synced_sizes: None,
            notices: Notices::default(),
            start_time_max: Duration::from_secs(10),
            ack_when_applied: false,
            says_early: Arc::new(AtomicBool::new(true)),
        }
    }
}

/// What was found at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The server's new incarnation, stored durably.
    pub epoch: Epoch,
    /// The sessions and how far they are.
    pub sessions: Vec<RecoveredSession>,
    /// How effects become stable.
    pub method: Method,
    /// How many connections of predecessors were ended.
    pub killed: usize,
}

struct Socket {
    stream: Stream,
    generation: u64,
    /// The server has said something on it.
    has_spoken: bool,
}

/// How a lane is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    readable: bool,
    writable: bool,
}

impl Way {
    const USUAL: Way = Way { readable: true, writable: false };
}

/// Which lanes there are, as far as another one, or one less, makes a difference, and those watched in another way.
#[derive(Debug, Default, PartialEq, Eq)]
struct Change {
    opened: u64,
    count: usize,
    unusual: Vec<(LaneId, Way)>,
}

/// The watches of all lanes at a time.
#[derive(Default)]
struct LanesWatched {
    at: Change,
    watches: Vec<Watch>,
}

/// A Redis as a service.
pub struct RedisService {
    back: Back,
    redis: RedisServer,
    connector: Connector<LaneId>,
    sockets: BTreeMap<LaneId, Socket>,
    generation_next: u64,
    lanes_watched: LanesWatched,
    events: BackEvents,
    buffer: Vec<u8>,
    syncer: Syncer,
    sync_error: Option<SyncError>,
    dead_letters: DeadLetters,
    notices: Notices,
    idle_read_at: Nanos,
    started: Option<Recovered>,
    has_started: bool,
    stopped: Option<StopReason>,
    broken: Option<String>,
    /// Why a dead letter could not be written, if that is what broke.
    letters_trouble: Option<String>,
    /// What is reported in a turn, kept for its memory.
    fresh: Replies,
    /// How often something came from the server.
    heard: u64,
    failed_sessions: u64,
    /// Of which it was said: of each of its requests the server's side says so.
    failed: BTreeSet<SessionId>,
    /// Sessions that were never stored, so there is nothing to delete, which the server would refuse too.
    refused: BTreeSet<SessionId>,
    /// Updates of sessions that the server has never heard of.
    strangers: Seldom,
    /// Answers that are none.
    nonsense: Seldom,
    /// Times when the markers were gone.
    markers_gone: Seldom,
    ack_when_applied: bool,
    asked: Asked,
    says_early: Arc<AtomicBool>,
    /// What is executed anew and has no answer yet, by its tickets.
    replays: BTreeSet<u64>,
    /// Something that was executed anew has its answer.
    has_replayed: bool,
}

impl RedisService {
    /// Connects, has open transactions mended, ends predecessors' connections, reads the markers and stores
    /// a new epoch. Blocks until that is done, or somebody asks to stop.
    pub fn start(
        config: &RedisServiceConfig,
        stop: &Stop,
    ) -> Result<Option<(RedisService, Recovered)>, SidecarError> {
        config.redis.look_up_again();
        let (password, notices) = (config.password.clone(), config.notices.clone());
        let read_password = move || password.as_ref()?.read(&notices);
        let mut service = RedisService {
            back: Back::new(config.back.clone()),
            redis: config.redis.clone(),
            connector: Connector::start(config.redis.clone(), read_password)?,
            sockets: BTreeMap::new(),
            generation_next: 0,
            lanes_watched: LanesWatched::default(),
            events: BackEvents::new(),
            buffer: vec![0; READ_BYTES],
            syncer: Syncer::start(config.synced_sizes.clone())?,
            sync_error: None,
            dead_letters: DeadLetters::open(&config.dead_letters, config.dead_letter_bytes_max)
                .map_err(|error| SidecarError::DeadLetters { path: config.dead_letters.clone(), error })?,
            notices: config.notices.clone(),
            idle_read_at: Nanos(0),
            started: None,
            has_started: false,
            stopped: None,
            broken: None,
            letters_trouble: None,
            fresh: Replies::new(),
            heard: 0,
            failed_sessions: 0,
            failed: BTreeSet::new(),
            refused: BTreeSet::new(),
            strangers: Seldom::default(),
            nonsense: Seldom::default(),
            markers_gone: Seldom::default(),
            ack_when_applied: config.ack_when_applied,
            asked: Asked::default(),
            says_early: Arc::clone(&config.says_early),
            replays: BTreeSet::new(),
            has_replayed: false,
        };
        service.back.start(&mut service.events);
        let recovered = service.wait_for_start(config.start_time_max, stop)?;
        Ok(recovered.map(|recovered| (service, recovered)))
    }

    /// What the machine has counted.
    pub fn counters(&self) -> BackCounters {
        self.back.counters()
    }

    /// How effects become stable.
    pub fn method(&self) -> &Method {
        self.back.method()
    }

    /// The database of the markers.
    pub fn reserved_db(&self) -> u16 {
        self.back.description().reserved_db
    }

    /// What clients are told of the server now.
    pub fn describe(&self) -> Description {
        self.back.describe(now_monotonic())
    }

    /// Whether the server lets the sidecar open new connections.
    pub fn lanes_allowed(&self) -> bool {
        self.back.lanes_allowed()
    }

    /// Whether nothing more is sent to the server before it has answered what is under way.
    pub fn is_busy(&self) -> bool {
        self.back.has_transaction()
    }

    /// Whether writes are taken, as far as the server's state goes.
    pub fn writes_allowed(&self) -> bool {
        self.back.description().writes_refused.is_none()
    }

    /// Whether what the server's files hold can be known to last, as far as the last try went.
    pub fn can_sync(&self) -> bool {
        self.sync_error.is_none()
    }

    /// For what state of its own the server refuses every write, if it does.
    pub fn refusing(&self) -> Option<Refusing> {
        self.back.refused().map(|refused| refused.cause)
    }

    /// Whether the server allows early answers; none if it is lost: then they go on as they were.
    pub fn word_of_early(&self) -> Option<bool> {
        self.back.word_of_early()
    }

    /// Whether the server takes what is executed anew: it has taken some of it, which comes in order, or has been given
    /// none.
    pub(crate) fn takes_replays(&self) -> bool {
        self.has_replayed || self.replays.is_empty()
    }

    /// What is to be known of the server's answers.
    pub(crate) fn hearing(&self) -> Hearing {
        Hearing {
            received: self.heard,
            is_expected: self.back.expects_any(),
            waiting: self.back.backlog() as u64,
        }
    }

    /// What an operator should know of updates whose sessions the server does not have, if it is time.
    pub fn say_strangers(&mut self, now: Nanos) -> Option<String> {
        let count = self.strangers.due(now)?;
        Some(format!(
            "{count} updates of sessions that the Redis server does not know were replayed and not applied; they are \
             in the dead-letter file {}: the server has lost its data since, or another one is behind this sidecar; \
             bring the right data back and look at the letters (reason unknown_session)",
            self.dead_letters.path().display()
        ))
    }

    /// Why a dead letter could not be written, if that is why nothing is served any more.
    pub(crate) fn letters_trouble(&self) -> Option<&str> {
        self.letters_trouble.as_deref()
    }

    /// How far each session is stable.
    pub fn kept(&self) -> BTreeMap<SessionId, SeqNum> {
        self.back.kept()
    }

    /// Why the machine has stopped.
    pub fn stopped(&self) -> Option<&StopReason> {
        self.stopped.as_ref()
    }

    /// Appends the service's metrics.
    pub fn write_metrics(&self, text: &mut MetricsText) {
        let counters = self.back.counters();
        text.counter("scotfree_redis_executed_total", "Requests executed", counters.executed);
        text.counter("scotfree_redis_batches_total", "Transactions sent", counters.batches);
        text.counter(
            "scotfree_redis_batched_items_total",
            "Requests sent in transactions",
            counters.batched_items,
        );
        text.counter("scotfree_redis_packed_total", "Commands that shared a request", counters.packed);
        text.counter("scotfree_redis_aborted_total", "Transactions refused and run singly", counters.aborted);
        text.counter(
            "scotfree_redis_bare_total",
            "Writes run without marker, memory being used up",
            counters.bare,
        );
        text.counter(
            "scotfree_redis_refused_total",
            "Requests refused before the server was asked",
            counters.refused,
        );
        text.counter(
            "scotfree_redis_late_errors_total",
            "Early answers that turned out wrong",
            counters.late_errors,
        );
        text.counter(
            "scotfree_redis_markers_rewritten_total",
            "Times markers had vanished",
            counters.markers_rewritten,
        );
        text.counter(
            "scotfree_redis_nonsense_total",
            "Connections given up because the Redis server answered nonsense on them",
            counters.nonsense,
        );
        text.counter("scotfree_redis_failed_sessions_total", "Sessions given up", self.failed_sessions);
        text.counter(
            "scotfree_redis_dead_letters_total",
            "Dead letters written to the file: updates never applied (scotfree_server_dead_letters_total) and early \
             answers that turned out wrong (scotfree_redis_late_errors_total)",
            self.dead_letters.count(),
        );
        text.gauge("scotfree_redis_backlog", "Requests waiting or on their way", self.back.backlog());
        text.gauge(
            "scotfree_redis_early_allowed",
            "Early answers are allowed",
            u8::from(self.back.early_allowed()),
        );
        text.gauge(
            "scotfree_redis_connections_allowed",
            "The server lets new connections be opened",
            u8::from(self.back.lanes_allowed()),
        );
        self.asked.write_metrics(text);
    }

    fn wait_for_start(&mut self, time_max: Duration, stop: &Stop) -> Result<Option<Recovered>, SidecarError> {
        let mut replies = Replies::new();
        let time_max = Nanos(time_max.as_nanos() as u64);
        let mut deadline = now_monotonic().plus(time_max);
        while !stop.is_stopped() {
            self.poll(true, &mut replies);
            if let Some(recovered) = self.started.take() {
                self.has_started = true;
                return Ok(Some(recovered));
            }
            if let Some(reason) = self.stopped.take() {
                return Err(SidecarError::of_start(&self.redis, reason));
            }
            if let Some(error) = self.sync_error.take_if(|error| error.is_denied) {
                return Err(SidecarError::of_start(
                    &self.redis,
                    StopReason::Unwilling(vec![error.to_string()]),
                ));
            }
            let now = now_monotonic();
            if self.back.waits() {
                // How long that takes depends on the data, and the server answers meanwhile.
                deadline = now.plus(time_max);
            }
            if now >= deadline {
                return Err(SidecarError::NotStarted {
                    redis: self.redis.to_string(),
                    seconds: time_max.0 / 1_000_000_000,
                    sync_error: self.sync_error.take().map(|error| error.to_string()),
                });
            }
            self.wait(self.next_poll().map_or(deadline, |at| at.min(deadline)).since(now), stop)?;
        }
        Ok(None)
    }

    fn wait(&self, time: Nanos, stop: &Stop) -> Result<(), SidecarError> {
        let mut poller = Poller::new(16)?;
        poller.add(stop.poll_fd(), 0, Interest::Read)?;
        let mut watches = Vec::new();
        self.watches(&mut watches);
        for watch in watches {
            let interest = if watch.writable { Interest::ReadWrite } else { Interest::Read };
            poller.add(watch.fd, 0, interest)?;
        }
        poller.wait(Some(Duration::from_nanos(time.0)))?;
        Ok(())
    }

    fn read_lanes(&mut self, now: Nanos) {
        let read_all = now >= self.idle_read_at;
        if read_all {
            self.idle_read_at = now.plus(IDLE_READ_INTERVAL);
        }
        let lanes: Vec<LaneId> = if read_all {
            self.sockets.keys().copied().collect()
        } else {
            self.back.busy_lanes().filter(|lane| self.back.expects(*lane)).collect()
        };
        // What waits for room is left to the socket.
        for lane in lanes {
            if self.back.is_held(lane) {
                continue;
            }
            self.read_lane(lane, now);
        }
    }

    /// The lanes from which nothing more is read for now.
    fn held_lanes(&self) -> Vec<LaneId> {
        self.back.busy_lanes().filter(|lane| self.back.is_held(*lane)).collect()
    }

    /// What the lanes' watches depend on: only a lane that has something to do is watched in another way.
    fn change(&self) -> Change {
        let ways =
            self.back.busy_lanes().filter_map(|lane| Some((lane, self.way(lane, self.sockets.get(&lane)?))));
        let unusual = ways.filter(|(_, way)| *way != Way::USUAL).collect();
        Change { opened: self.generation_next, count: self.sockets.len(), unusual }
    }

    /// How a lane is watched.
    fn way(&self, lane: LaneId, socket: &Socket) -> Way {
        let writable = !self.back.output(lane).is_empty() || socket.stream.wants_write();
        Way { readable: !self.back.is_held(lane), writable }
    }

    fn watch_lanes(&self, out: &mut Vec<Watch>) {
        out.extend(self.sockets.iter().map(|(lane, socket)| {
            let Way { readable, writable } = self.way(*lane, socket);
            Watch { fd: socket.stream.as_raw_fd(), generation: socket.generation, readable, writable }
        }));
    }

    /// Keeps the watches for the turns in which nothing of them changes: there may be thousands.
    fn note_watches(&mut self) {
        let change = self.change();
        if change != self.lanes_watched.at {
            let mut watches = std::mem::take(&mut self.lanes_watched.watches);
            watches.clear();
            self.watch_lanes(&mut watches);
            self.lanes_watched = LanesWatched { at: change, watches };
        }
    }

    fn read_lane(&mut self, lane: LaneId, now: Nanos) {
        while let Some(socket) = self.sockets.get_mut(&lane) {
            match socket.stream.read(&mut self.buffer) {
                Ok(0) => return self.lose(lane, now, "the server closed it"),
                Ok(count) => {
                    self.heard += 1;
                    socket.has_spoken = true;
                    let may_have_more = count == self.buffer.len() || socket.stream.is_tls();
                    self.back.on_bytes(lane, now, &self.buffer[..count], &mut self.events);
                    if !may_have_more || self.back.is_held(lane) {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.lose_by(lane, now, &error),
            }
        }
    }

    fn write_lanes(&mut self, now: Nanos) {
        let lanes: Vec<LaneId> = self.back.sending_lanes().collect();
        for lane in lanes {
            let Some(socket) = self.sockets.get_mut(&lane) else { continue };
            match socket.stream.write(self.back.output(lane)) {
                Ok(count) => self.back.sent(lane, count),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => self.lose_by(lane, now, &error),
            }
        }
        self.flush_lanes(now);
    }

    /// Sends what TLS has taken and the socket had no room for.
    fn flush_lanes(&mut self, now: Nanos) {
        // Whoever has said something waits for the answer.
        for lane in self.back.busy_lanes().collect::<Vec<_>>() {
            let socket = self.sockets.get_mut(&lane).filter(|socket| socket.stream.wants_write());
            if let Some(error) = socket.and_then(|socket| socket.stream.flush().err()) {
                self.lose_by(lane, now, &error);
            }
        }
    }

    fn lose_by(&mut self, lane: LaneId, now: Nanos, error: &std::io::Error) {
        let next = tls::mend(error).map(|next| format!("; {next}")).unwrap_or_default();
        self.lose(lane, now, &format!("{error}{next}"));
    }

    fn lose(&mut self, lane: LaneId, now: Nanos, reason: &str) {
        let is_silent = |socket: &Socket| !socket.has_spoken && matches!(socket.stream, Stream::Tcp(_));
        let next = if self.sockets.remove(&lane).is_some_and(|socket| is_silent(&socket)) {
            // Who speaks TLS alone hears no greeting, and says nothing either.
            " before it said anything; is it a tls-port? (scot proxy --redis-tls)"
        } else {
            ""
        };
        self.back.on_closed(lane, now, &format!("{reason}{next}"), &mut self.events);
    }

    fn collect_syncs(&mut self, now: Nanos) {
        while let Some(result) = self.syncer.result() {
            self.back.on_synced(now, result == Ok(true), &mut self.events);
            let error = result.err();
            // A start that it keeps from going on ends with it.
            let is_new = error.is_some() && error != self.sync_error && self.has_started;
            if let Some(error) = error.as_ref().filter(|_| is_new) {
                self.notices.alarm(&format!(
                    "{error}; what is written is called stable no more until this has passed"
                ));
            }
            self.sync_error = error;
        }
    }

    fn handle_events(&mut self, now: Nanos, replies: &mut Replies) {
        let mut spare = BackEvents::new();
        while !self.events.is_empty() {
            std::mem::swap(&mut spare, &mut self.events);
            let ended = now_realtime();
            for event in spare.iter() {
                self.handle(now, ended, event, &spare, replies);
            }
            spare.clear();
        }
        self.events = spare;
    }

    fn handle(
        &mut self,
        now: Nanos,
        ended: Nanos,
        event: &BackEvent,
        events: &BackEvents,
        replies: &mut Replies,
    ) {
        match event {
            BackEvent::Connect(lane) => self.connector.connect(*lane),
            BackEvent::Disconnect(lane) => {
                self.sockets.remove(lane);
            }
            BackEvent::Waits(what) => self.notices.say(what),
            // Nothing is served yet, so nobody waits while the files are read.
            BackEvent::ReadEnding(files) => {
                self.back.on_ending(aof::ending(files), now, &mut self.events);
            }
            BackEvent::Started(report) => {
                let sessions: Option<Vec<RecoveredSession>> =
                    report.sessions.iter().map(|(session, marker)| recovered(*session, marker)).collect();
                match sessions {
                    Some(sessions) => {
                        self.started = Some(Recovered {
                            epoch: Epoch(report.epoch),
                            sessions,
                            method: report.method.clone(),
                            killed: report.killed,
                        });
                    }
                    None => {
                        self.stopped = Some(StopReason::Markers("a session's nonces are missing".to_owned()));
                    }
                }
            }
            BackEvent::Independent { ticket } => replies.independent(*ticket),
            BackEvent::Lives { ticket, remaining_ms } => replies.lives(*ticket, *remaining_ms),
            BackEvent::Reply { ticket, failed, response } => {
                self.asked.answer(now, *ticket);
                replies.reply_ended(*ticket, *failed, ended, |out| {
                    out.extend_from_slice(events.bytes(response.clone()));
                });
                self.has_replayed |= self.replays.remove(ticket);
                if self.ack_when_applied {
                    replies.stable(*ticket);
                }
            }
            // What was called stable too early is not called so again.
            BackEvent::Stable { .. } if self.ack_when_applied => {}
            BackEvent::Stable { ticket } => replies.stable(*ticket),
            BackEvent::SessionRecorded(session) => replies.session_recorded(*session),
            BackEvent::SessionDeleted(session) => {
                self.failed.remove(session);
                replies.session_deleted(*session);
            }
            BackEvent::SessionFailed { session, reason } => {
                if self.failed.insert(*session) {
                    self.notices.say(&format!("session {session} ends: {reason}"));
                    self.failed_sessions += 1;
                }
                replies.fail_session(*session);
            }
            BackEvent::SessionRefused { session, error } => {
                self.notices.say(&format!(
                    "session {session} cannot be opened, since its marker cannot be stored: {error}; free memory or \
                     raise maxmemory"
                ));
                self.failed_sessions += 1;
                self.refused.insert(*session);
                replies.refuse_session(*session);
            }
            BackEvent::Sync(files) => self.syncer.sync(files.clone()),
            BackEvent::LateError(error) => {
                let (session, seq) = (error.session, error.seq);
                let (time, reason) = (now_realtime(), "late_error");
                self.dead_letters.add(&Letter {
                    time,
                    session,
                    seq,
                    reason,
                    error: &error.error,
                    commands: &error.commands,
                });
            }
            BackEvent::Writes { refused: Some(reason) } => {
                self.notices.alarm(&format!("clients' writes are refused until this has passed: {reason}"));
            }
            BackEvent::Writes { refused: None } => self.notices.alarm("clients' writes are taken again"),
            BackEvent::Refuses { refused: Some(refused) } => self.notices.alarm(&format!(
                "the Redis server refuses every write by itself: {}; clients get its errors, and reads go on",
                refused.text
            )),
            BackEvent::Refuses { refused: None } => self.notices.alarm("the Redis server takes writes again"),
            BackEvent::MarkersGone => {
                self.markers_gone.happened(1);
                if let Some(count) = self.markers_gone.due(now) {
                    self.notices.alarm(&format!(
                        "the markers of what was executed were gone from database {} of the Redis server ({count} \
                         times), and are written anew: somebody has deleted them there (FLUSHALL, FLUSHDB, DEL), past scot, or \
                         the server has evicted them; what else was deleted is gone, answered or not",
                        self.reserved_db()
                    ));
                }
            }
            BackEvent::Early { allowed: true, .. } => {}
            // Who is answered by nobody early, or takes no writes at all, needs no word of it.
            BackEvent::Early { .. } if !self.says_early.load(Ordering::Relaxed) || !self.writes_allowed() => {
            }
            BackEvent::Early { allowed: false, reason } => {
                self.notices.say(&format!("early answers stop: {reason}"));
            }
            BackEvent::Lanes { allowed: true, .. } => {
                self.notices.say("the Redis server lets new connections be opened again");
            }
            BackEvent::Lanes { allowed: false, reason } => {
                // A password that the server has been given since is not asked of clients here.
                let open = if reason.contains("NOAUTH") { OPEN_TO_ALL } else { "" };
                self.notices.alarm(&format!(
                    "the Redis server lets no new connections be opened: {reason}; until then AUTH, WATCH and \
                     what else needs a connection of its own get errors, and the rest goes on{open}"
                ));
            }
            BackEvent::Nonsense { lane, said } => {
                self.nonsense.happened(1);
                if let Some(count) = self.nonsense.due(now) {
                    self.notices.alarm(&format!(
                        "the Redis server has answered nonsense ({count} times), now on the connection for {lane}: \
                         {said}; that connection is given up, the request whose answer it was ends with an error and \
                         the others go on; look for what stands between the sidecar and the server at {}, and at the \
                         server's log",
                        self.redis
                    ));
                }
            }
            BackEvent::Stopped(reason) => {
                self.broken = Some(reason.to_string());
                self.stopped = Some(reason.clone());
            }
        }
    }

    fn collect_connections(&mut self, now: Nanos) {
        while let Some((lane, result)) = self.connector.result() {
            if self.back.purpose(lane).is_none() {
                // It was given up meanwhile.
                continue;
            }
            match result {
                Ok(NewStream { stream, password }) => {
                    if let Some(password) = password {
                        self.back.set_password(&password);
                    }
                    let generation = self.generation_next;
                    self.generation_next += 1;
                    self.sockets.insert(lane, Socket { stream, generation, has_spoken: false });
                    self.back.on_connected(lane, now, &mut self.events);
                }
                Err(error) => {
                    let text = format!("connecting failed: {error}; {}", self.redis.mend(&error));
                    self.back.on_closed(lane, now, &text, &mut self.events);
                }
            }
        }
    }

    /// Says what an operator has to know.
    pub(crate) fn alarm(&self, text: &str) {
        self.notices.alarm(text);
    }

    /// Keeps updates that are never executed where an operator finds them.
    pub(crate) fn bury<'a>(&mut self, letters: impl Iterator<Item = DeadLetter<'a>>) {
        for letter in letters {
            let reason = match letter.reason {
                DeadLetterReason::UnknownSession => {
                    self.strangers.happened(1);
                    "unknown_session"
                }
                DeadLetterReason::BehindGap => "behind_gap",
            };
            let commands = commands_of(letter.payload);
            let (time, session, seq) = (now_realtime(), letter.session, letter.seq);
            self.dead_letters.add(&Letter { time, session, seq, reason, error: "", commands: &commands });
        }
        self.write_letters();
    }

    /// Writes the letters that have come together: before anybody is told what their updates were answered.
    fn write_letters(&mut self) {
        if let Err(error) = self.dead_letters.sync() {
            // A promise that was broken must not be forgotten as well.
            let next = "make room on the disk of that file, and see that it may be written";
            self.letters_trouble = Some(format!("{error}; {next}"));
            self.broken.clone_from(&self.letters_trouble);
        }
    }
}

impl Handler for RedisService {
    fn execute(&mut self, request: &Execution<'_>, _replies: &mut Replies) {
        let Execution { ticket, session, seq, kind, payload, is_replayed, .. } = *request;
        if is_replayed {
            self.replays.insert(ticket);
        } else {
            self.asked.ask(ticket, kind);
        }
        self.back.execute(&Execute { ticket, session, seq, kind, payload, is_replayed });
    }

    fn poll(&mut self, wants_stable: bool, replies: &mut Replies) {
        let now = now_monotonic();
        self.asked.send(now);
        self.collect_connections(now);
        self.read_lanes(now);
        self.collect_syncs(now);
        let held = self.held_lanes();
        if self.back.next_timer().is_some_and(|at| at <= now) {
            self.back.on_timer(now, &mut self.events);
        }
        self.back.flush(now, wants_stable, &mut self.events);
        // What came meanwhile, TLS may have taken from the socket, which then says nothing of it.
        for lane in held {
            if !self.back.is_held(lane) {
                self.read_lane(lane, now);
            }
        }
        let mut fresh = std::mem::take(&mut self.fresh);
        self.handle_events(now, &mut fresh);
        // Before the server is told that they count as executed.
        self.write_letters();
        if self.letters_trouble.is_none() {
            self.write_lanes(now);
            self.handle_events(now, &mut fresh);
            self.write_letters();
        }
        if self.letters_trouble.is_some() {
            // What was refused and has no letter has no answer: it is executed anew.
            fresh.clear();
        }
        replies.take_from(&mut fresh);
        fresh.clear();
        self.fresh = fresh;
        self.note_watches();
    }

    fn watches(&self, out: &mut Vec<Watch>) {
        if self.change() == self.lanes_watched.at {
            out.extend_from_slice(&self.lanes_watched.watches);
        } else {
            self.watch_lanes(out);
        }
        out.push(Watch { fd: self.syncer.fd(), generation: u64::MAX, readable: true, writable: false });
        out.push(Watch {
            fd: self.connector.fd(),
            generation: u64::MAX - 3,
            readable: true,
            writable: false,
        });
    }

    fn broken(&self) -> Option<String> {
        self.broken.clone()
    }

    fn next_poll(&self) -> Option<Nanos> {
        self.back.next_timer()
    }
}

impl Service for RedisService {
    fn record_session(&mut self, record: &RecoveredSession, _replies: &mut Replies) {
        let mut opaque = Vec::with_capacity(OPAQUE_BYTES);
        opaque.extend_from_slice(&record.epoch.0.to_le_bytes());
        opaque.extend_from_slice(&record.client_nonce);
        opaque.extend_from_slice(&record.server_nonce);
        self.back.record_session(record.session, &opaque);
    }

    fn delete_session(&mut self, session: SessionId, replies: &mut Replies) {
        if self.refused.remove(&session) {
            return replies.session_deleted(session);
        }
        self.back.delete_session(session);
    }

    fn dead_letter(&mut self, letter: &DeadLetter<'_>) {
        self.bury(std::iter::once(*letter));
    }
}

fn recovered(session: SessionId, marker: &Marker) -> Option<RecoveredSession> {
    let opaque: &[u8; OPAQUE_BYTES] = marker.opaque.as_slice().try_into().ok()?;
    Some(RecoveredSession {
        session,
        epoch: Epoch(u32::from_le_bytes(opaque[..4].try_into().ok()?)),
        client_nonce: opaque[4..20].try_into().ok()?,
        server_nonce: opaque[20..].try_into().ok()?,
        position: marker.position,
    })
}
