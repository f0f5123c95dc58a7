//! In front of an unmodified Redis or Valkey: requests in one total order in, replies and stability out.
//!
//! Invariant: a write is executed once, in order, and its session's position becomes true with it. What
//! the server answers out of turn, or not at all, ends the sessions concerned; it is never guessed.

mod aside;
mod batch;
mod default_user;
mod ending;
mod health;
mod item;
mod kept;
mod lane;
mod lanes;
mod lives;
mod markers;
mod opening;
mod order;
mod parts;
mod recover;
mod refusals;
mod replies;
mod rewrite;
mod room;
mod stability;
mod start;
mod watch;

pub use ending::Ending;
pub use lane::{LaneId, Purpose};
pub use markers::Marker;
pub use opening::OPENINGS_MAX;
pub use refusals::{Refused, Refusing};
pub use stability::{AofFiles, Method};
pub use start::LANE_NAME_PREFIX;

use crate::codec::{drop_room, is_error, Limits, KEPT_BYTES_MAX, SHARED_KEPT_BYTES_MAX};
use crate::description::Description;
use crate::payload::RequestKind;
use aside::Aside;
use batch::{Batch, MarkerPlace};
use default_user::DefaultUser;
use health::{early_obstacle, Info, Past, Settings};
use item::{judge, Item, Nature};
use kept::Kept;
use lane::{Expected, Lane, LaneState};
use lanes::Lanes;
use markers::Markers;
use parts::Parts;
use recover::Recovery;
use refusals::Refusals;
use scotfree_core::{Nanos, SeqNum, SessionId};
use stability::Stability;
use start::{Progress, Start};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What the machine is told at its start.
#[derive(Debug, Clone)]
pub struct BackConfig {
    /// The user and password by which the sidecar authenticates itself at the server.
    pub credentials: Option<(String, String)>,
    /// The database of the markers; the server's last one if not given.
    pub reserved_db: Option<u16>,
    /// The key of the hash of markers.
    pub marker_key: String,
    /// The epoch of this process' last start, if there was one: any other since is another sidecar's.
    pub last_epoch: Option<u32>,
    /// Who alone stands before the server, and takes no other's place: the epoch is counted up only if it was this
    /// one that has counted last, or if it is new and nobody else has.
    pub owner: Option<Owner>,
    /// How far sessions were stable when a server before was lost ([`Back::kept`]); with less it is not begun with.
    pub kept: BTreeMap<SessionId, SeqNum>,
    /// Serve although nothing ever becomes stable.
    pub allow_unstable: bool,
    /// The server's files can be reached from here.
    pub same_host: bool,
    /// How often effects are made stable although nobody waits for it.
    pub stable_interval: Nanos,
    /// How often the server's state is looked at.
    pub health_interval: Nanos,
    /// The most items of one transaction.
    pub batch_items_max: usize,
    /// The size at which no more items are added to a transaction.
    pub batch_bytes_max: usize,
    /// The most items on their way outside transactions.
    pub direct_max: usize,
    /// The most lanes of clients' own; a client that needs one more gets an error.
    pub private_lanes_max: usize,
    /// The largest response; a larger reply is sent in parts.
    pub reply_bytes_max: usize,
    /// How many bytes of large requests one session may have in parts here, and as many of large replies.
    pub parts_bytes_max: usize,
    /// How long large replies that do not fit wait for a session that fetches none of those before them, and an
    /// eighth of how long they wait for one that does.
    pub room_wait_max: Nanos,
    /// How many devices stand before the server, for clients to be told.
    pub devices: Option<u32>,
    /// A device before the server answers reads again: with each value goes how long it is true, to clients that take
    /// that. Nobody may write the server's data in another way.
    pub vouches: bool,
    /// Bounds on what the server may send.
    pub limits: Limits,
}

impl Default for BackConfig {
    fn default() -> Self {
        BackConfig {
            credentials: None,
            reserved_db: None,
            marker_key: "scotfree:markers".to_owned(),
            last_epoch: None,
            owner: None,
            kept: BTreeMap::new(),
            allow_unstable: false,
            same_host: true,
            stable_interval: Nanos::from_millis(50),
            health_interval: Nanos::from_millis(250),
            batch_items_max: 128,
            batch_bytes_max: 256 << 10,
            direct_max: 256,
            private_lanes_max: 1_024,
            reply_bytes_max: (1 << 20) - 64,
            parts_bytes_max: 64 << 20,
            room_wait_max: Nanos::from_secs(1),
            devices: None,
            vouches: false,
            limits: Limits::default(),
        }
    }
}

/// Who counts the epoch up; see [`BackConfig::owner`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// By which it is told from others.
    pub name: [u8; 16],
    /// It takes the place of whoever stood there before.
    pub takes_over: bool,
    /// It has begun to count before and knows of no end: what has been counted under its name may be its own.
    pub may_have_counted: bool,
}

/// A request to be executed; they come in the order of execution.
#[derive(Debug, Clone, Copy)]
pub struct Execute<'a> {
    /// Names it; grows.
    pub ticket: u64,
    /// The session.
    pub session: SessionId,
    /// Its place in the session.
    pub seq: SeqNum,
    /// How the protocol treats it.
    pub kind: RequestKind,
    /// See [`crate::payload`].
    pub payload: &'a [u8],
    /// It is executed anew, and may have been acknowledged before: that the server takes no writes at present is no
    /// answer to it, and nothing behind it is executed before it is.
    pub is_replayed: bool,
}

/// What the start has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartReport {
    /// The server's new incarnation, stored durably.
    pub epoch: u32,
    /// The sessions and how far they are.
    pub sessions: Vec<(SessionId, Marker)>,
    /// How effects become stable.
    pub method: Method,
    /// How many connections of predecessors were ended.
    pub killed: usize,
}

/// An answer that was given early turned out to be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateError {
    /// Whose it was.
    pub session: SessionId,
    /// Its place.
    pub seq: SeqNum,
    /// What the server answered.
    pub error: String,
    /// The commands.
    pub commands: Vec<Vec<Vec<u8>>>,
}

/// Why the machine has stopped. A new one has to start from the beginning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// The server cannot be used as it is.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    /// The server does not do what it is asked to, for what it is now: it keeps us out, takes no writes, or is set up
    /// so that it cannot be used. Nothing says that it is another server.
    #[error("{}", .0.join("; "))]
    Unwilling(Vec<String>),
    /// Another sidecar has taken over.
    #[error("another sidecar or proxy has taken over this server; stop one of the two")]
    Fenced,
    /// The markers are gone, or older than what was stored.
    #[error(
        "its markers and its epoch are gone, or older than those that were stored ({}), so the server's data was lost or \
         replaced: it was started without its append-only files or from an old copy, or has evicted keys \
         (maxmemory-policy), or another server answers there; bring its data back, or start scot again to serve what is there now",
        epochs(*.found, *.last)
    )]
    Replaced {
        /// The epoch that was found; none if there was none.
        found: Option<u32>,
        /// The one that was expected.
        last: u32,
    },
    /// Another one stands, or stood last, before this server.
    #[error("another proxy's log stands before this server")]
    Owned,
    /// The server is gone, or is not one.
    #[error("the server is lost: {0}")]
    Lost(String),
    /// The markers cannot be trusted any more.
    #[error("the markers are damaged: {0}")]
    Markers(String),
}

/// What was found of an epoch, and what had been stored, for the operator.
fn epochs(found: Option<u32>, last: u32) -> String {
    match found {
        Some(found) => format!("found is epoch {found}, known is epoch {last}"),
        None => format!(
            "no epoch was found, known is epoch {last}; markers are in the last one of the server's `databases`, or in \
             that of --marker-db: where `databases` was changed, they are still in the former last one, 15 if there were \
             16, and --marker-db with its number finds them"
        ),
    }
}

impl StopReason {
    /// Whether starting again could help.
    pub fn is_passing(&self) -> bool {
        matches!(self, StopReason::Lost(_))
    }

    /// Whether it is the server's state, or how it is set up, that somebody can change while it is waited for.
    pub fn is_unwilling(&self) -> bool {
        matches!(self, StopReason::Unwilling(_))
    }
}

/// What the machine wants done or has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackEvent {
    /// Open a connection to the server and say so.
    Connect(LaneId),
    /// Close it; nothing more is to be said of it.
    Disconnect(LaneId),
    /// The server has work of its own to do before it can be used, which may take long; for the operator.
    Waits(String),
    /// Read how the append-only files end and say so.
    ReadEnding(AofFiles),
    /// Requests can be executed.
    Started(Box<StartReport>),
    /// A request is over.
    Reply {
        /// Which.
        ticket: u64,
        /// The server refused it.
        failed: bool,
        /// The response, in [`BackEvents::bytes`].
        response: Range<usize>,
    },
    /// What this ticket, a read, is answered next says nothing of any data.
    Independent {
        /// The ticket.
        ticket: u64,
    },
    /// What this ticket, a read, is answered next shows one value, which lives on if nobody writes it.
    Lives {
        /// The ticket.
        ticket: u64,
        /// So many milliseconds; `u64::MAX` if for ever.
        remaining_ms: u64,
    },
    /// Everything up to this ticket is stable.
    Stable {
        /// The ticket.
        ticket: u64,
    },
    /// A session's marker is stable.
    SessionRecorded(SessionId),
    /// A session's marker is gone for good.
    SessionDeleted(SessionId),
    /// A session can no longer be served.
    SessionFailed {
        /// Which.
        session: SessionId,
        /// Why.
        reason: String,
    },
    /// A session cannot be opened, since the server's memory is used up.
    SessionRefused {
        /// Which.
        session: SessionId,
        /// What the server answered.
        error: String,
    },
    /// Sync the append-only files and say so.
    Sync(AofFiles),
    /// To be kept where an operator finds it.
    LateError(LateError),
    /// Clients are told to ask for no writes, and why; or for writes again.
    Writes {
        /// Why not.
        refused: Option<String>,
    },
    /// The server refuses every write for a state of its own, and why; or takes writes again.
    Refuses {
        /// Why.
        refused: Option<Refused>,
    },
    /// The markers were gone though the server has run on, and are written anew.
    MarkersGone,
    /// Early answers are allowed, or no longer, and why not.
    Early {
        /// Whether they are.
        allowed: bool,
        /// Why not.
        reason: String,
    },
    /// The server lets the sidecar open new lanes, or no longer: why not, and what to do.
    Lanes {
        /// Whether it does.
        allowed: bool,
        /// Why not.
        reason: String,
    },
    /// The server answered what no server answers, so its connection is given up.
    Nonsense {
        /// What the connection is for.
        lane: &'static str,
        /// What it said, and what is wrong with it.
        said: String,
    },
    /// The end of this machine.
    Stopped(StopReason),
}

/// Events with the bytes they refer to; the shell reuses one.
#[derive(Debug, Default)]
pub struct BackEvents {
    list: Vec<BackEvent>,
    bytes: Vec<u8>,
}

impl BackEvents {
    /// No events.
    pub fn new() -> Self {
        Self::default()
    }

    /// The events in order.
    pub fn iter(&self) -> impl Iterator<Item = &BackEvent> {
        self.list.iter()
    }

    /// The bytes of a response.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets all, keeping the memory for what is usual.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        drop_room(&mut self.bytes, SHARED_KEPT_BYTES_MAX);
    }

    fn push(&mut self, event: BackEvent) {
        self.list.push(event);
    }
}

/// What the machine has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackCounters {
    /// Requests executed.
    pub executed: u64,
    /// Transactions sent.
    pub batches: u64,
    /// Items in them.
    pub batched_items: u64,
    /// Commands that came in packs.
    pub packed: u64,
    /// Transactions that the server refused, whose items then ran singly.
    pub aborted: u64,
    /// Requests that ran without marker, since the server's memory was used up or it took no writes otherwise.
    pub bare: u64,
    /// Replies held until they were stable, since a key's time to live may end before a replay.
    pub held: u64,
    /// Requests refused before they reached the server.
    pub refused: u64,
    /// Early answers that turned out to be wrong.
    pub late_errors: u64,
    /// Times when markers had vanished and were written anew.
    pub markers_rewritten: u64,
    /// Lanes that broke.
    pub lanes_broken: u64,
    /// Of these, because the server answered nonsense.
    pub nonsense: u64,
}

/// Who waits for an effect to be stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiter {
    Ticket(u64),
    Recorded(SessionId),
    Deleted(SessionId),
    /// The first of the replies that are held.
    Held,
    Start,
}

/// A reply that waits for stability.
#[derive(Debug)]
struct HeldReply {
    ticket: u64,
    failed: bool,
    response: Vec<u8>,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Starting(Box<Start>),
    /// The start's effect has to be stable, and the lanes ready.
    Settling(Box<StartReport>),
    Running,
    Stopped,
}

/// Whether the whole hash of markers has to be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rewrite {
    No,
    /// With the next transaction.
    WithNext,
    /// At once.
    Now,
}

/// The machine between the protocol's server and a Redis.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Independent facts, no states of one machine.
pub struct Back {
    config: BackConfig,
    phase: Phase,
    lanes: Lanes,
    next_lane: u32,
    control: Option<LaneId>,
    /// The server was too busy to be greeted on the control lane, and is greeted again at this time.
    greet_at: Option<Nanos>,
    /// That was said, or that it is busy while it runs.
    busy_said: bool,
    probe: Option<LaneId>,
    shared: Option<LaneId>,
    privates: BTreeMap<(SessionId, u32), LaneId>,
    /// By which words the server refused the last new lane; empty if it did not.
    shut_out: String,
    queue: VecDeque<Item>,
    /// Items on their way outside transactions, all on one lane.
    direct: VecDeque<Item>,
    /// One of them may write: nothing else may be on its way.
    solo: bool,
    active: Option<LaneId>,
    batch: Option<Batch>,
    /// So many of the first items in the queue have been in a refused transaction: they run singly.
    singly: usize,
    markers: Markers,
    kept: Kept,
    /// Positions that could not be stored with their effects.
    late: BTreeMap<SessionId, SeqNum>,
    /// The highest ticket among them that has to wait for its marker.
    unmarked: Option<u64>,
    rewrite: Rewrite,
    recovery: Option<Recovery>,
    /// The server's own name for its run, which changes when it is restarted.
    run_id: String,
    stability: Stability,
    /// How effects become stable whatever becomes of appendfsync.
    cautious_method: Method,
    waiters: VecDeque<(u64, Waiter)>,
    /// Replies that a crash could still contradict, in order.
    held: VecDeque<HeldReply>,
    /// Replies are held until this effect is stable.
    hold_until: Option<u64>,
    /// A command that may set a time to live came after the server was asked whether there are any.
    expiry_seen: bool,
    /// The probe under way has written something that WAITAOF waits for.
    probe_wrote: bool,
    /// What is asked beside the order.
    aside: Aside,
    parts: Parts,
    /// Requests for the next parts of large replies: they wait for nothing.
    rests: VecDeque<Item>,
    scratch: Vec<u8>,
    wants_stable: bool,
    health: Health,
    description: Description,
    told_at: Nanos,
    place: MarkerPlace,
    counters: BackCounters,
}

/// What is known of the server's state.
#[derive(Debug, Default)]
struct Health {
    past: Past,
    settings: Settings,
    next_at: Nanos,
    /// How many replies of the check under way have come.
    replies: Option<usize>,
    info: Info,
    /// What the user `default` may do.
    default_user: Option<DefaultUser>,
    /// What was answered in place of it, or of a setting.
    error: Option<Vec<u8>>,
    /// No command that changes settings has been on its way since the check under way began.
    is_fresh: bool,
    /// Settings were changed since, or are being changed.
    is_in_doubt: bool,
    /// What the server answers to whatever it is asked while a script takes too long: one of the present transaction.
    busy: Option<Vec<u8>>,
    /// The check under way was answered so, and says nothing else.
    is_spoiled: bool,
    /// How many transactions had been sent when it began.
    batches: u64,
    /// Why early answers are not allowed; empty if they are.
    obstacle: String,
    /// What was learnt from refused writes.
    refusals: Refusals,
    /// Why the server refuses every write, as it was said last.
    refused: Option<Refused>,
}

impl Health {
    /// Whether nothing is known, and nothing in doubt, for which the server would refuse a write.
    fn is_well(&self) -> bool {
        self.obstacle.is_empty() && !self.is_in_doubt
    }
}

impl Back {
    /// A machine that has not started.
    pub fn new(config: BackConfig) -> Back {
        let interval = config.stable_interval;
        let place = MarkerPlace {
            db: 0,
            key: config.marker_key.clone().into_bytes(),
            databases: 0,
            may_expire: true,
        };
        Back {
            config,
            phase: Phase::Idle,
            lanes: Lanes::default(),
            next_lane: 0,
            control: None,
            greet_at: None,
            busy_said: false,
            probe: None,
            shared: None,
            privates: BTreeMap::new(),
            shut_out: String::new(),
            queue: VecDeque::new(),
            direct: VecDeque::new(),
            solo: false,
            active: None,
            batch: None,
            singly: 0,
            markers: Markers::default(),
            kept: Kept::default(),
            late: BTreeMap::new(),
            unmarked: None,
            rewrite: Rewrite::No,
            recovery: None,
            run_id: String::new(),
            stability: Stability::new(Method::Never, interval),
            cautious_method: Method::Never,
            waiters: VecDeque::new(),
            held: VecDeque::new(),
            hold_until: None,
            expiry_seen: true,
            probe_wrote: false,
            aside: Aside::default(),
            parts: Parts::default(),
            rests: VecDeque::new(),
            scratch: Vec::new(),
            wants_stable: false,
            health: Health::default(),
            description: Description::default(),
            told_at: Nanos(0),
            place,
            counters: BackCounters::default(),
        }
    }

    /// Begins the start.
    pub fn start(&mut self, events: &mut BackEvents) {
        assert!(matches!(self.phase, Phase::Idle), "a machine starts once");
        self.control = Some(self.open(Purpose::Control, events));
    }

    /// A request is to be executed after all before it. It is sent by [`Back::flush`].
    pub fn execute(&mut self, request: &Execute<'_>) {
        let item = self.admit(request);
        if item.nature == Nature::Ask || aside::is_unpause(&item) {
            self.aside.ask(item);
        } else if item.nature == Nature::Rest {
            self.rests.push_back(item);
        } else {
            if item.nature == Nature::Release {
                self.parts.leave(item.owner());
            }
            self.queue.push_back(item);
        }
    }

    /// Stores a session's marker, then reports [`BackEvent::SessionRecorded`].
    pub fn record_session(&mut self, session: SessionId, opaque: &[u8]) {
        let marker = self.markers.sessions.entry(session).or_default();
        marker.opaque = opaque.to_vec();
        let seq = marker.position;
        let item = Item { seq, ..Item::own(session, Nature::Record(opaque.to_vec())) };
        self.queue.push_back(item);
    }

    /// Deletes a session's marker, then reports [`BackEvent::SessionDeleted`].
    pub fn delete_session(&mut self, session: SessionId) {
        self.parts.forget(session);
        self.markers.sessions.remove(&session);
        self.kept.forget(session);
        self.late.remove(&session);
        self.queue.push_back(Item::own(session, Nature::Delete));
    }

    /// Sends what can be sent. `wants_stable` says that somebody waits for stability.
    pub fn flush(&mut self, now: Nanos, wants_stable: bool, events: &mut BackEvents) {
        self.wants_stable = wants_stable;
        self.lanes.tidy();
        self.make_room(now, events);
        if matches!(self.phase, Phase::Running) {
            self.pump(now, events);
            self.pass_by(events);
        }
        self.probe_if_due(now, events);
    }

    /// The password may be another since; lanes that are connected from now on give it.
    pub fn set_password(&mut self, new: &str) {
        if let Some((_, password)) = &mut self.config.credentials {
            new.clone_into(password);
        }
    }

    /// A lane that was wished for is connected.
    pub fn on_connected(&mut self, lane: LaneId, _now: Nanos, _events: &mut BackEvents) {
        let credentials = self.config.credentials.clone();
        let key = self.config.marker_key.clone();
        let fenced_by_epoch = !matches!(self.phase, Phase::Idle | Phase::Starting(_));
        let reserved_db = self.place.db;
        let Some(lane) = self.lanes.get_mut(lane) else { return };
        lane.state = LaneState::Greeting;
        if let Some((user, password)) = credentials {
            lane.say(&[b"AUTH", user.as_bytes(), password.as_bytes()], Expected::Ok);
        }
        let name = format!("{LANE_NAME_PREFIX}{}", lane.purpose.name());
        lane.say(&[b"CLIENT", b"SETNAME", name.as_bytes()], Expected::Ok);
        if fenced_by_epoch {
            // See `start`: a lane that comes too late to be ended by a successor must find out itself.
            lane.say(&[b"INFO", b"server"], Expected::Run);
            lane.enter(reserved_db, 2);
            lane.say(&[b"HGET", key.as_bytes(), markers::EPOCH_FIELD], Expected::Epoch);
        }
        lane.say(&[b"CLIENT", b"ID"], Expected::ClientId);
    }

    /// The server sent bytes.
    pub fn on_bytes(&mut self, lane_id: LaneId, now: Nanos, bytes: &[u8], events: &mut BackEvents) {
        let Some(lane) = self.lanes.get_mut(lane_id) else { return };
        // The decoder lends out replies while the rest of the machine changes.
        let mut replies = std::mem::take(&mut lane.replies);
        replies.push(bytes);
        loop {
            let result = match replies.pop() {
                Ok(None) => break,
                Ok(Some(reply)) if self.has_to_wait(lane_id, now, reply) => {
                    replies.put_back();
                    break;
                }
                Ok(Some(reply)) => self.on_reply(lane_id, now, reply, events).inspect_err(|reason| {
                    // An error is no nonsense, even where it cannot be gone on from.
                    if !is_error(reply) {
                        self.on_nonsense(lane_id, reason, reply, events);
                    }
                }),
                Err(error) => {
                    let reason = error.to_string();
                    self.give_up_asked(lane_id);
                    self.on_nonsense(lane_id, &reason, replies.offending(), events);
                    Err(reason)
                }
            };
            if let Err(reason) = result {
                self.break_lane(lane_id, now, &reason, events);
            }
            if !self.lanes.contains(lane_id) {
                return;
            }
        }
        if let Some(lane) = self.lanes.get_mut(lane_id) {
            lane.replies = replies;
        }
    }

    /// A lane's connection is closed, or could not be opened.
    pub fn on_closed(&mut self, lane: LaneId, now: Nanos, reason: &str, events: &mut BackEvents) {
        if self.lanes.contains(lane) {
            self.break_lane(lane, now, reason, events);
        }
    }

    /// The append-only files were read.
    pub fn on_ending(&mut self, ending: Ending, now: Nanos, events: &mut BackEvents) {
        let lane = self.control.and_then(|id| self.lanes.get_mut(id));
        if let (Phase::Starting(start), Some(lane)) = (&mut self.phase, lane) {
            let progress = start.on_ending(ending, lane, &self.config);
            self.on_progress(progress, now, events);
        }
    }

    /// Whether the start waits for something that may take any time.
    pub fn waits(&self) -> bool {
        self.greet_at.is_some() || matches!(&self.phase, Phase::Starting(start) if start.waits())
    }

    fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// The files are synced, or could not be.
    pub fn on_synced(&mut self, now: Nanos, done: bool, events: &mut BackEvents) {
        if done {
            self.stability.on_synced(now);
            self.report_stable(events);
        } else {
            self.stability.failed(now);
        }
    }

    /// The time of [`Back::next_timer`] has come. Calling it early is harmless.
    pub fn on_timer(&mut self, now: Nanos, events: &mut BackEvents) {
        if let Some(control) = self.control.filter(|_| self.greet_at.is_some_and(|at| now >= at)) {
            if self.lanes.get(control).is_some_and(|lane| lane.expected.is_empty()) {
                self.greet_at = None;
                self.on_connected(control, now, events);
            }
        }
        if let (Phase::Starting(start), Some(control)) = (&mut self.phase, self.control) {
            if let Some(lane) = self.lanes.get_mut(control) {
                start.on_timer(now, lane);
            }
        }
        self.check_health_if_due(now);
        self.probe_if_due(now, events);
    }

    /// When to call [`Back::on_timer`] next.
    pub fn next_timer(&self) -> Option<Nanos> {
        let start = match &self.phase {
            Phase::Starting(start) => start.timer(),
            _ => None,
        };
        let running = matches!(self.phase, Phase::Running);
        let may_look = running && self.health.replies.is_none() && !self.aside.is_in_multi();
        let health = may_look.then_some(self.health.next_at);
        let probe = self.stability.timer(self.somebody_waits()).filter(|_| self.probe_is_ready());
        [start, health, probe, self.greet_at, self.room_timer()].into_iter().flatten().min()
    }

    /// The lanes that have bytes to send.
    pub fn sending_lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        let connected = |lane: &Lane| lane.state != LaneState::Connecting && !lane.output.is_empty();
        self.lanes.busy().filter(move |(_, lane)| connected(lane)).map(|(id, _)| id)
    }

    /// The lanes that have bytes to send, or expect or hold a reply, and perhaps others.
    pub fn busy_lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.lanes.busy().map(|(id, _)| id)
    }

    /// Whether a transaction with writes is under way, so that nothing else is sent to the server before its answer.
    pub fn has_transaction(&self) -> bool {
        self.batch.is_some()
    }

    /// The bytes to be sent on a lane.
    pub fn output(&self, lane: LaneId) -> &[u8] {
        self.lanes.get(lane).map_or(&[], |lane| &lane.output)
    }

    /// The first `count` bytes of a lane's output are sent.
    pub fn sent(&mut self, lane: LaneId, count: usize) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.output.drain(..count);
            drop_room(&mut lane.output, KEPT_BYTES_MAX);
        }
    }

    /// Whether a reply is expected on a lane.
    pub fn expects(&self, lane: LaneId) -> bool {
        self.lanes.get(lane).is_some_and(|lane| !lane.expected.is_empty())
    }

    /// Whether nothing more should be read from a lane, since its next reply waits for room.
    pub fn is_held(&self, lane: LaneId) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.waits.is_some())
    }

    /// Whether early answers are allowed at present.
    pub fn early_allowed(&self) -> bool {
        self.word_of_early() == Some(true)
    }

    /// Whether a server that is there allows them; none of one that is not, or is lost.
    pub fn word_of_early(&self) -> Option<bool> {
        matches!(self.phase, Phase::Running).then(|| self.health.is_well())
    }

    /// Why the server refuses every write for a state of its own, if it does.
    pub fn refused(&self) -> Option<&Refused> {
        self.health.refused.as_ref()
    }

    /// Whether the server owes an answer on any lane.
    pub fn expects_any(&self) -> bool {
        self.lanes.busy().any(|(_, lane)| lane.state != LaneState::Connecting && !lane.expected.is_empty())
    }

    /// How many requests wait or are on their way.
    pub fn backlog(&self) -> usize {
        self.queue.len() + self.direct.len() + self.batch.as_ref().map_or(0, |batch| batch.items.len())
    }

    /// What a lane is for.
    pub fn purpose(&self, lane: LaneId) -> Option<Purpose> {
        self.lanes.get(lane).map(|lane| lane.purpose)
    }

    /// What the server is known to be.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// How effects become stable.
    pub fn method(&self) -> &Method {
        self.stability.method()
    }

    /// How far each session is stable. Nothing is, where there are no append-only files.
    pub fn kept(&self) -> BTreeMap<SessionId, SeqNum> {
        match self.stability.method() {
            Method::Never => BTreeMap::new(),
            _ => self.kept.positions(&self.markers, self.stability.stable()),
        }
    }

    /// What the machine has counted.
    pub fn counters(&self) -> BackCounters {
        self.counters
    }

    fn open(&mut self, purpose: Purpose, events: &mut BackEvents) -> LaneId {
        let id = LaneId(self.next_lane);
        self.next_lane += 1;
        self.lanes.insert(id, Lane::new(purpose, self.config.limits));
        events.push(BackEvent::Connect(id));
        id
    }

    fn close(&mut self, id: LaneId, events: &mut BackEvents) {
        if let Some(lane) = self.lanes.remove(id) {
            if let Purpose::Private { session, connection } = lane.purpose {
                self.privates.remove(&(session, connection));
            }
            events.push(BackEvent::Disconnect(id));
        }
    }

    fn stop(&mut self, reason: StopReason, events: &mut BackEvents) {
        for lane in self.lanes.ids() {
            self.close(lane, events);
        }
        self.phase = Phase::Stopped;
        events.push(BackEvent::Stopped(reason));
    }

    /// The server's Unix time in milliseconds.
    fn server_time_ms(&self, now: Nanos) -> i64 {
        self.description.time_ms + (now.since(self.told_at).0 / 1_000_000) as i64
    }
}
