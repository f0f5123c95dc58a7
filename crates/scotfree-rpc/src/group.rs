//! A client of a group of servers that share one state: each request is sent to one of them, and to another if that one
//! does not answer.
//!
//! A [`GroupClient`] has two sessions with each member, over one [`ClientRuntime`], and is used as that is: submit, then
//! [`GroupClient::turn`] and [`GroupClient::next_event`], in a loop of its own ([`GroupClient::wait`]) or in another
//! ([`GroupClient::poll_fd`], [`GroupClient::next_timer`]). Which member a request goes to, a [`Policy`] says, one for
//! reads and one for writes. Reads have sessions of their own because a session is answered in its order: a write that
//! waits until the group has noticed that a member is lost holds up no read.
//!
//! *When a member fails.* It has failed when its session ends, or when it has requests and answers none of them in its
//! time-out: four deviations above what it usually takes, within [`GroupOptions::timeout_min`] and
//! [`GroupOptions::timeout_max`], twice as long after each failure. Then its session is abandoned, what it had goes to
//! others, and after a while ([`GroupOptions::retry_first`], doubled up to [`GroupOptions::retry_max`]) it is tried
//! again: by opening a session, then by one request. A member that answers that it does not serve
//! ([`GroupOptions::is_not_serving`]) keeps its session and rests as long. Where no other member serves, a silent one is
//! waited for.
//!
//! *Once.* A write bears an identity: the client's 16 random bytes and a number. The number's lowest 40 bits count the
//! client's writes, from 1; the highest 8 are the member to which the write was sent first, the 16 between are the low
//! ones of that member's epoch. Wherever the write is sent again, its identity is the same, so the group executes it
//! once. Reads bear none. A write that does not fit one packet beside its identity, or is for a server that takes none,
//! goes without: that is sent again only if a member has refused it, and otherwise given up.
//!
//! Devices on the way are asked for nothing: their logs keep no identities, and would give back a write that may have
//! been executed elsewhere.
//!
//! *Order.* Requests go different ways: what is submitted while another has no answer may be executed before it.
//!
//! Invariant: every submitted request ends in exactly one [`GroupEvent`]: answered, or given up, after
//! [`GroupOptions::give_up_after`] at the latest, with the word whether it may have been executed.

mod choice;
mod dispatch;
mod member;
mod requests;
#[cfg(test)]
mod tests;

pub use choice::Policy;
pub use member::GroupMember;

use crate::client::{ClientEvent, ClientRuntime, SessionOptions};
use crate::probes::CallLabel;
use dispatch::{Dispatch, Landed, Step};
use requests::{Kept, NUMBERS_MAX};
use scotfree_core::{KeyHash, Nanos, Tier};
use scotfree_io::{now_monotonic, Transport};
use scotfree_session::{Mode, Request, RequestKind};
use scotfree_wire::REQUEST_BYTES_MAX;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// How many members a group may have.
pub const GROUP_MEMBERS_MAX: usize = 16;
/// How many buffers of payloads and replies are kept, and of which size at most.
const SPARE_BUFFERS_MAX: usize = 1_024;
const SPARE_BYTES_MAX: usize = 16 << 10;

/// What a group's client is told at its start.
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// The members.
    pub members: Vec<GroupMember>,
    /// Names this client for ever: 16 random bytes that no other client has, and none before it had.
    pub client: [u8; 16],
    /// From what choices and the jitter of waits follow.
    pub seed: u64,
    /// To which members reads are sent.
    pub reads: Policy,
    /// To which members writes are sent.
    pub writes: Policy,
    /// How many requests may have no end that was taken, at most 4,096: servers remember so many answers of a client.
    pub outstanding_max: usize,
    /// After this long without an answer a request is given up.
    pub give_up_after: Nanos,
    /// A member is not taken for lost before it has been silent so long.
    pub timeout_min: Nanos,
    /// It is, however slow it usually is, after this long.
    pub timeout_max: Nanos,
    /// How long a member that has failed is left alone the first time.
    pub retry_first: Nanos,
    /// How long at most.
    pub retry_max: Nanos,
    /// Whether a reply says that the member does not serve now, and has not executed the request.
    pub is_not_serving: fn(&[u8]) -> bool,
    /// How often the opening of a session is tried before the member counts as failed.
    pub open_tries_max: u32,
}

impl GroupOptions {
    /// Defaults: each request to any member, and no reply that says that a member does not serve.
    pub fn new(members: Vec<GroupMember>, client: [u8; 16], seed: u64) -> GroupOptions {
        GroupOptions {
            members,
            client,
            seed,
            reads: Policy::Random,
            writes: Policy::Random,
            outstanding_max: 1_024,
            give_up_after: Nanos::from_secs(10),
            timeout_min: Nanos::from_millis(200),
            timeout_max: Nanos::from_secs(2),
            retry_first: Nanos::from_millis(20),
            retry_max: Nanos::from_secs(1),
            is_not_serving: |_| false,
            open_tries_max: 8,
        }
    }
}

/// Why a group cannot have these members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// There is none.
    #[error("a group has at least one member")]
    NoMembers,
    /// There are more than [`GROUP_MEMBERS_MAX`].
    #[error("{0} members are more than the {GROUP_MEMBERS_MAX} that a group may have")]
    TooMany(usize),
    /// Two have one name.
    #[error("two members of the group have the name {0}")]
    Twice(u8),
}

/// Why a request was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupSubmitError {
    /// As many have no end that was taken as may, or the oldest of its kind is 4,096 behind: take events.
    #[error("as many requests are outstanding as may be")]
    Full,
    /// The payload is larger than any request may be.
    #[error("the request is larger than any may be")]
    TooLarge,
    /// The client has given all its numbers: go on with another client.
    #[error("the client has no number left for another request")]
    UsedUp,
}

/// Names a request of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestNumber {
    /// Whether it is a write.
    pub writes: bool,
    /// Its place among the client's reads, or among its writes, from 1.
    pub count: u64,
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GivenUp {
    /// Nobody has executed it, nor will.
    NotExecuted,
    /// It may have been executed, or may be still.
    UnknownOutcome,
}

/// What has become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupEvent<'a> {
    /// It has its answer.
    Answered {
        /// Which.
        number: RequestNumber,
        /// Of which member.
        member: u8,
        /// The reply.
        bytes: &'a [u8],
        /// The application refused the request.
        failed: bool,
    },
    /// It will have none.
    GivenUp {
        /// Which.
        number: RequestNumber,
        /// Whether it may have been executed.
        why: GivenUp,
    },
}

/// What a group's client has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupCounters {
    /// Requests answered.
    pub answered: u64,
    /// Requests given up.
    pub given_up: u64,
    /// Times a request was sent again, to another member or the same.
    pub sent_again: u64,
    /// Answers that a member does not serve.
    pub refused: u64,
    /// Answers to what had come to its end, or was no longer expected of that member.
    pub late: u64,
    /// Times the session with a member ended, whoever ended it.
    pub lost: u64,
}

impl GroupCounters {
    /// Both together.
    fn with(self, other: GroupCounters) -> GroupCounters {
        GroupCounters {
            answered: self.answered + other.answered,
            given_up: self.given_up + other.given_up,
            sent_again: self.sent_again + other.sent_again,
            refused: self.refused + other.refused,
            late: self.late + other.late,
            lost: self.lost + other.lost,
        }
    }
}

/// An event that was not taken yet, with the buffer of its reply.
#[derive(Debug)]
enum Event {
    Answered { number: RequestNumber, member: u8, bytes: Vec<u8>, failed: bool },
    GivenUp { number: RequestNumber, why: GivenUp },
}

/// A client of a group.
pub struct GroupClient<T> {
    runtime: ClientRuntime<T>,
    reads: Dispatch,
    writes: Dispatch,
    options: GroupOptions,
    events: VecDeque<Event>,
    /// The reply handed over last, and buffers for payloads and the next ones.
    handed_over: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl<T: Transport> GroupClient<T> {
    /// A client whose sessions, with all members, open with the first turns. The runtime has no other sessions.
    pub fn new(runtime: ClientRuntime<T>, options: GroupOptions) -> Result<GroupClient<T>, GroupError> {
        check(&options.members)?;
        let options =
            GroupOptions { outstanding_max: options.outstanding_max.clamp(1, NUMBERS_MAX), ..options };
        let (now, seed) = (now_monotonic(), options.seed);
        Ok(GroupClient {
            runtime,
            reads: Dispatch::new(now, &options, options.reads, seed),
            writes: Dispatch::new(now, &options, options.writes, seed.wrapping_add(1 << 32)),
            options,
            events: VecDeque::new(),
            handed_over: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Takes a request. It leaves with the next [`GroupClient::turn`], as soon as a member serves.
    pub fn submit(
        &mut self,
        kind: RequestKind,
        payload: &[u8],
        label: CallLabel,
    ) -> Result<RequestNumber, GroupSubmitError> {
        self.submit_keyed(kind, KeyHash(0), payload, label)
    }

    /// As [`GroupClient::submit`], of a request that is named by this key.
    pub fn submit_keyed(
        &mut self,
        kind: RequestKind,
        key_hash: KeyHash,
        payload: &[u8],
        label: CallLabel,
    ) -> Result<RequestNumber, GroupSubmitError> {
        let writes = kind.writes();
        self.check_room(writes, payload.len())?;
        let payload = self.buffer_of(payload);
        let kept = Kept { kind, key_hash, label, payload };
        let lane = if writes { &mut self.writes } else { &mut self.reads };
        let count = lane.submit(now_monotonic(), kept);
        send_waiting(&mut self.runtime, lane);
        Ok(RequestNumber { writes, count })
    }

    fn check_room(&self, writes: bool, payload_bytes: usize) -> Result<(), GroupSubmitError> {
        let lane = if writes { &self.writes } else { &self.reads };
        if payload_bytes > REQUEST_BYTES_MAX {
            return Err(GroupSubmitError::TooLarge);
        }
        if lane.is_used_up() {
            return Err(GroupSubmitError::UsedUp);
        }
        let has_room = self.outstanding() < self.options.outstanding_max && lane.has_number();
        has_room.then_some(()).ok_or(GroupSubmitError::Full)
    }

    /// The group's members from now on. What those have that are no longer in it is sent to others.
    pub fn set_members(&mut self, members: &[GroupMember]) -> Result<(), GroupError> {
        check(members)?;
        let now = now_monotonic();
        self.lanes().for_each(|lane| lane.set_members(now, members));
        self.options.members = members.to_vec();
        Ok(())
    }

    // ---- the loop

    /// Receives, fires timers, sends what is due and what waits, without blocking. Then take the events.
    pub fn turn(&mut self) -> io::Result<()> {
        self.runtime.turn()?;
        self.take_events();
        let now = now_monotonic();
        let GroupClient { runtime, reads, writes, options, events, .. } = self;
        for (lane, are_writes) in [(reads, false), (writes, true)] {
            lane.on_timer(now);
            carry_out(runtime, lane, are_writes, options, events)?;
            send_waiting(runtime, lane);
        }
        self.runtime.flush()
    }

    /// Sends what was submitted.
    pub fn flush(&mut self) -> io::Result<()> {
        self.runtime.flush()
    }

    /// Waits until there is something to do, at most `timeout`; follow it by [`GroupClient::turn`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let now = now_monotonic();
        let timer = self.lane_timer().map(|at| Duration::from_nanos(at.since(now).0));
        self.runtime.wait(match (timeout, timer) {
            (Some(timeout), Some(timer)) => Some(timeout.min(timer)),
            (timeout, timer) => timeout.or(timer),
        })
    }

    /// Says that the caller is about to sleep on [`GroupClient::poll_fd`]; false if it is to turn at once.
    pub fn may_sleep(&mut self) -> bool {
        self.runtime.may_sleep()
    }

    /// What to watch in another loop: readable or in error means [`GroupClient::turn`]. Before each sleep on it ask
    /// [`GroupClient::may_sleep`].
    pub fn poll_fd(&self) -> Option<RawFd> {
        self.runtime.poll_fd()
    }

    /// Whether the transport was full: watch for writability too.
    pub fn wants_write(&self) -> bool {
        self.runtime.wants_write()
    }

    /// When to call [`GroupClient::turn`] next even if nothing arrives, in monotonic time.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.runtime.next_timer().into_iter().chain(self.lane_timer()).min()
    }

    fn lane_timer(&self) -> Option<Nanos> {
        self.reads.next_timer().into_iter().chain(self.writes.next_timer()).min()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<GroupEvent<'_>> {
        match self.events.pop_front()? {
            Event::Answered { number, member, bytes, failed } => {
                let previous = std::mem::replace(&mut self.handed_over, bytes);
                recycle(&mut self.spare, previous);
                Some(GroupEvent::Answered { number, member, bytes: &self.handed_over, failed })
            }
            Event::GivenUp { number, why } => Some(GroupEvent::GivenUp { number, why }),
        }
    }

    /// Ends the sessions with all members, and waits for that at most so long. What has no answer has an unknown outcome.
    pub fn end(mut self, patience: Duration) -> io::Result<()> {
        let members = self.reads.members().iter().chain(self.writes.members());
        let sessions: Vec<_> = members.filter_map(|member| member.session).collect();
        for session in &sessions {
            self.runtime.end_session(*session);
        }
        let deadline = now_monotonic().plus(Nanos(patience.as_nanos() as u64));
        while sessions.iter().any(|session| self.runtime.is_alive(*session)) {
            self.runtime.turn()?;
            while self.runtime.next_event().is_some() {}
            let left = deadline.since(now_monotonic());
            if left == Nanos(0) {
                break;
            }
            if sessions.iter().any(|session| self.runtime.is_alive(*session)) {
                self.runtime.wait(Some(Duration::from_nanos(left.0)))?;
            }
        }
        Ok(())
    }

    // ---- what is known

    /// How many requests have no end that was taken.
    pub fn outstanding(&self) -> usize {
        self.reads.unanswered() + self.writes.unanswered() + self.events.len()
    }

    /// The members that take requests of this kind now.
    pub fn serving(&self, kind: RequestKind) -> impl Iterator<Item = GroupMember> + '_ {
        let lane = if kind.writes() { &self.writes } else { &self.reads };
        lane.members().iter().filter(|member| member.serves()).map(member::Member::named)
    }

    /// What was counted.
    pub fn counters(&self) -> GroupCounters {
        self.reads.counters().with(self.writes.counters())
    }

    /// The runtime of the sessions.
    pub fn runtime(&self) -> &ClientRuntime<T> {
        &self.runtime
    }

    // ---- inside a turn

    fn lanes(&mut self) -> impl Iterator<Item = &mut Dispatch> {
        [&mut self.reads, &mut self.writes].into_iter()
    }

    fn take_events(&mut self) {
        let now = now_monotonic();
        let GroupClient { runtime, reads, writes, options, events, spare, .. } = self;
        while let Some(event) = runtime.next_event() {
            let (ClientEvent::Opened { session, .. }
            | ClientEvent::Completed { session, .. }
            | ClientEvent::Closed { session, .. }) = event;
            let are_writes = writes.has_session(session);
            let lane = if are_writes { &mut *writes } else { &mut *reads };
            match event {
                ClientEvent::Opened { .. } => {
                    let epoch = runtime.server_epoch(session);
                    lane.on_opened(session, epoch.unwrap_or_default());
                }
                ClientEvent::Completed { reply, .. } => {
                    let reply_bytes = reply.bytes.unwrap_or_default();
                    let refused = (options.is_not_serving)(reply_bytes);
                    let landed = lane.on_answer(now, session, reply.seq, refused);
                    let Landed::Answer { number, member, entry } = landed else { continue };
                    recycle(spare, entry.kept.payload);
                    let mut bytes = spare.pop().unwrap_or_default();
                    bytes.extend_from_slice(reply_bytes);
                    let number = RequestNumber { writes: are_writes, count: number };
                    events.push_back(Event::Answered { number, member, bytes, failed: reply.failed });
                }
                ClientEvent::Closed { .. } => lane.on_closed(now, session),
            }
        }
    }

    fn buffer_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(bytes);
        buffer
    }
}

fn carry_out<T: Transport>(
    runtime: &mut ClientRuntime<T>,
    lane: &mut Dispatch,
    writes: bool,
    options: &GroupOptions,
    events: &mut VecDeque<Event>,
) -> io::Result<()> {
    while let Some(step) = lane.next_step() {
        match step {
            Step::Open { member, address } => {
                let options = SessionOptions {
                    server: Some(address),
                    window_asked: options.outstanding_max as u32,
                    tier: Tier::NONE,
                    open_tries_max: options.open_tries_max,
                    early_overtakes: false,
                };
                let session = runtime.start_session(options).map_err(io::Error::other)?;
                lane.on_opening(member, session);
            }
            // A server that lives may forget at once what it has no more to do with.
            Step::Abandon(session) if runtime.kept(session) == 0 => runtime.end_session(session),
            Step::Abandon(session) => runtime.abandon_session(session),
            Step::GiveUp { number: count, why } => {
                events.push_back(Event::GivenUp { number: RequestNumber { writes, count }, why });
            }
        }
    }
    Ok(())
}

fn send_waiting<T: Transport>(runtime: &mut ClientRuntime<T>, lane: &mut Dispatch) {
    let now = now_monotonic();
    while let Some(sending) = lane.next_sending(|session| runtime.credit(session)) {
        let Some(Kept { kind, key_hash, label, payload }) = lane.kept(sending.number) else { return };
        let request = Request {
            kind: *kind,
            mode: Mode::Covered,
            fixed_reply: false,
            relaxed: false,
            traced: false,
            key_hash: *key_hash,
            payload,
        };
        let session = sending.session;
        let has_identity = runtime.takes_identity(session, payload.len());
        let taken = match sending.identity {
            Some(identity) => runtime.submit_identified(session, request, identity, *label),
            None => runtime.submit(session, request, *label),
        };
        // It waits on; what is wrong with the session will be said.
        let Ok(seq) = taken else { return };
        lane.on_sent(now, &sending, seq, has_identity);
    }
}

fn recycle(spare: &mut Vec<Vec<u8>>, mut buffer: Vec<u8>) {
    if spare.len() < SPARE_BUFFERS_MAX && (1..=SPARE_BYTES_MAX).contains(&buffer.capacity()) {
        buffer.clear();
        spare.push(buffer);
    }
}

fn check(members: &[GroupMember]) -> Result<(), GroupError> {
    match members.len() {
        0 => return Err(GroupError::NoMembers),
        1..=GROUP_MEMBERS_MAX => {}
        count => return Err(GroupError::TooMany(count)),
    }
    let twice =
        |(at, member): &(usize, &GroupMember)| members[..*at].iter().any(|other| other.id == member.id);
    let found = members.iter().enumerate().find(twice);
    found.map_or(Ok(()), |(_, member)| Err(GroupError::Twice(member.id)))
}
