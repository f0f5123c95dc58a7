//! What is sent when, and what shares a request.
//!
//! Invariant: a connection's requests are sent in their order. Nobody waits for a timer: what waits is sent as soon
//! as its session has fewer than [`super::super::Pacing::departures_max`] departures of its kind under way, all of it together, so what
//! comes meanwhile makes the next departure larger. Connections lead requests in turn, so one that sends much holds
//! nobody up. A connection that others would have to wait for gets a session of its own.

use super::super::{as_read, ended};
use super::{
    has_enough, lengthy_left, Asker, Connection, ConnectionKey, Counted, Flight, Fronts, Line, NOBODY,
    REPLIES_BYTES_MAX,
};
use scotfree_core::{KeyHash, Nanos};
use scotfree_resp::front::FrontRequest;
use scotfree_resp::payload::pack::PackBuilder;
use scotfree_rpc::{CallLabel, SessionHandle, SessionOptions, StartError, Upstream};
use scotfree_session::{Mode, Request, RequestKind, SubmitError};
use scotfree_wire::{FURTHER_KEYS_MAX, PAYLOAD_BYTES_MAX};
use std::collections::{BTreeSet, VecDeque};

/// How many requests one connection alone may have outstanding: a device keeps as many slots for its session.
const OWN_WINDOW: u32 = 512;

/// How many connections are asked for requests that could share one.
const COMPANIONS_MAX: usize = 64;

/// Whether a connection's first request may be sent now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    Later,
    /// In a session of the connection's own.
    Elsewhere,
    /// It has none to send.
    Never,
}

/// Why nothing more is sent in a session now, or this request never.
enum Unsent {
    NotNow,
    Refused(String),
}

impl Fronts {
    /// Sends what may be sent now; `now` in real time.
    pub fn submit(&mut self, now: Nanos, upstream: &mut impl Upstream) {
        for key in std::mem::take(&mut self.orphans) {
            let Some(connection) = self.connections.get(&key) else { continue };
            let error = connection.refusal.clone().unwrap_or_else(|| ended::OVER.to_owned());
            self.refuse(now, &[(key, connection.waiting.len())], &error);
        }
        self.skip_large();
        // Credit comes back with stability, which completes nothing: who waits for it asks every turn.
        let mut due = self.sessions.due(self.pacing.departures_max);
        while let Some(session) = due.pop() {
            due.extend(self.depart(now, session, upstream));
        }
        self.say_farewells(upstream);
    }

    /// Sends all that a session's connections wait to send, as far as it has credit. Those sessions are returned
    /// that some of the connections have moved to.
    fn depart(
        &mut self,
        now: Nanos,
        handle: SessionHandle,
        upstream: &mut impl Upstream,
    ) -> Vec<SessionHandle> {
        let departures_max = self.pacing.departures_max;
        let Some(session) = self.sessions.get_mut(handle) else { return Vec::new() };
        session.begin_departure();
        let may_depart = [false, true].map(|is_early| session.may_depart(is_early, departures_max));
        let is_own = session.is_own;
        let ready = session.take_ready();
        let first = session.served.map_or(ConnectionKey(0), |key| ConnectionKey(key.0 + 1));
        let mut queue: VecDeque<ConnectionKey> =
            ready.range(first..).chain(ready.range(..first)).copied().collect();
        let (mut left, mut moved, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(leader) = queue.front().copied() {
            let reads = self.sessions.get_mut(handle).map_or(0, |session| session.reads);
            match self.turn_of(leader, is_own, reads, may_depart) {
                Turn::Now if self.admits_large(leader) => {}
                turn => {
                    queue.pop_front();
                    match turn {
                        Turn::Elsewhere => moved.extend(self.move_out(now, leader, upstream)),
                        Turn::Later | Turn::Now => left.push(leader),
                        Turn::Never => {}
                    }
                    continue;
                }
            }
            self.gather(&queue, &mut taken);
            match self.send(handle, &taken, upstream) {
                Ok(()) => {}
                Err(Unsent::NotNow) => break,
                Err(Unsent::Refused(error)) => self.refuse(now, &taken, &error),
            }
            self.requeue(&mut queue, &taken);
        }
        left.extend(queue);
        if let Some(session) = self.sessions.get_mut(handle) {
            for key in left {
                let first = self.connections.get(&key).and_then(|connection| connection.waiting.front());
                match first {
                    Some(first) if first.fetches() => session.want_at_once(key),
                    first => session.want(key, first.is_some_and(|first| first.early.is_some())),
                }
            }
        }
        moved
    }

    /// Whether a connection's first request is sent now; `reads` are under way, and `may_depart` says it of covered and
    /// early ones.
    fn turn_of(&self, key: ConnectionKey, is_own: bool, reads: usize, may_depart: [bool; 2]) -> Turn {
        let Some(connection) = self.connections.get(&key) else { return Turn::Never };
        match connection.waiting.front() {
            None => Turn::Never,
            // The room that it makes is what others may wait for.
            Some(first) if first.fetches() => Turn::Now,
            Some(first) if !is_own && first.is_apart() && connection.under_way == 0 => Turn::Elsewhere,
            Some(first) if !is_own && first.is_apart() => Turn::Later,
            Some(first) if !is_own && first.kind == RequestKind::Read && reads >= self.pacing.reads_max => {
                Turn::Later
            }
            // Whoever does not read is asked nothing more of the server.
            Some(_) if connection.front.is_full() => Turn::Later,
            Some(first) if first.lengthy && has_enough(connection, first.kind) => Turn::Later,
            Some(first) if may_depart[usize::from(first.early.is_some())] => Turn::Now,
            Some(_) => Turn::Later,
        }
    }

    /// What to count for a connection's first request among large replies.
    fn counted(&self, key: ConnectionKey) -> Counted {
        self.counted_of(key, 1)
    }

    /// What to count for so many of a connection's first requests.
    fn counted_of(&self, key: ConnectionKey, count: usize) -> Counted {
        let Some(connection) = self.connections.get(&key) else { return Counted::default() };
        // What it fetches is counted already.
        let mut lengthy =
            connection.waiting.iter().take(count).filter(|request| request.lengthy && !request.fetches());
        let Some(first) = lengthy.next() else { return Counted::default() };
        let usual = connection.was_answered.then_some(connection.reply_bytes_usual);
        let each = self.large.counted(usual, first.kind != RequestKind::Read);
        Counted { bytes: each.bytes * (1 + lengthy.count()), ..each }
    }

    /// Whether a connection's first request may be sent as far as it is about a large reply: others would wait for it.
    fn admits_large(&mut self, key: ConnectionKey) -> bool {
        let counted = self.counted(key);
        self.large.admits(key, counted)
    }

    /// Passes over those whose turn it would be to ask for a large reply, and that cannot or need not.
    fn skip_large(&mut self) {
        let may_ask = |fronts: &Fronts, key: ConnectionKey, line: Line| {
            let may = |connection: &Connection| {
                let enough = |first: &FrontRequest| has_enough(connection, first.kind);
                !connection.front.is_full() && !connection.waiting.front().is_some_and(enough)
            };
            let counted = fronts.counted(key);
            fronts.connections.get(&key).is_some_and(may) && counted.bytes > 0 && counted.line() == line
        };
        while let Some((key, _)) = self.large.next().find(|(key, line)| !may_ask(self, *key, *line)) {
            self.large.leave(key);
        }
    }

    /// Gives a connection a session of its own, from its first request that others should not wait for: one whose
    /// answer waits for storage, or that depends on a state at the server that is the connection's alone. Nothing
    /// of it is under way.
    fn move_out(
        &mut self,
        now: Nanos,
        key: ConnectionKey,
        upstream: &mut impl Upstream,
    ) -> Option<SessionHandle> {
        let begun = self.sessions.find_idle().map_or_else(|| self.begin_own(upstream), Ok);
        let connection = self.connections.get_mut(&key)?;
        match begun {
            Ok(session) => {
                let is_early = connection.waiting.front().is_some_and(|first| first.early.is_some());
                let left = std::mem::replace(&mut connection.session, session);
                self.sessions.leave(left, key);
                self.sessions.join(session, key);
                self.sessions.get_mut(session)?.want(key, is_early);
                Some(session)
            }
            Err(error) => {
                let text = format!("ERR scotfree: the command needs a session of its own, and {error}");
                let waiting = connection.waiting.len();
                self.refuse(now, &[(key, waiting)], &text);
                None
            }
        }
    }

    fn begin_own(&mut self, upstream: &mut impl Upstream) -> Result<SessionHandle, StartError> {
        let options = self.coverage.options();
        let window_asked = options.window_asked.min(OWN_WINDOW);
        let begun = upstream.start_session(SessionOptions { window_asked, ..options })?;
        self.sessions.insert(begun, true);
        Ok(begun)
    }

    /// Who has nothing more to send leaves the queue, and who has led goes to its end.
    fn requeue(&self, queue: &mut VecDeque<ConnectionKey>, taken: &[(ConnectionKey, usize)]) {
        let leader = queue.pop_front();
        let is_done = |key: &ConnectionKey| {
            self.connections.get(key).is_none_or(|connection| connection.waiting.is_empty())
        };
        if taken.len() == 1 {
            return queue.extend(leader.filter(|key| !is_done(key)));
        }
        let companions: BTreeSet<ConnectionKey> = taken.iter().skip(1).map(|(key, _)| *key).collect();
        for at in (0..queue.len().min(COMPANIONS_MAX)).rev() {
            if companions.contains(&queue[at]) && is_done(&queue[at]) {
                queue.remove(at);
            }
        }
        queue.extend(leader.filter(|key| !is_done(key)));
    }

    /// How many of whose first requests are to be sent together: those of the first in the queue, and what of the
    /// next may share a packet with them; they become `taken`. Several are packed.
    fn gather(&mut self, queue: &VecDeque<ConnectionKey>, taken: &mut Vec<(ConnectionKey, usize)>) {
        self.pack.clear();
        taken.clear();
        self.gather_sharers(queue, taken);
        if taken.is_empty() {
            taken.push((queue[0], 1));
        }
    }

    /// Leaves it empty if the first one goes alone.
    fn gather_sharers(&mut self, queue: &VecDeque<ConnectionKey>, taken: &mut Vec<(ConnectionKey, usize)>) {
        let first = self.connections.get(&queue[0]).and_then(|connection| connection.waiting.front());
        let Some(first) =
            first.filter(|first| first.shares && self.pacing.packs && self.told.description.packs)
        else {
            return;
        };
        let (kind, mut expected) = (first.kind, 0);
        for key in queue.iter().take(COMPANIONS_MAX) {
            let Some(connection) = self.connections.get(key) else { continue };
            // So many replies as have room for themselves; the first is asked for in any case.
            let room = REPLIES_BYTES_MAX.saturating_sub(expected) / connection.reply_bytes_usual.max(1);
            let left = lengthy_left(connection, kind);
            let is_large = kind != RequestKind::Read && self.is_taken_for_large(connection);
            let most = match () {
                // Behind others' writes it has not had its turn.
                () if is_large => 0,
                () if taken.is_empty() && first.lengthy => room.clamp(1, left.max(1)),
                () => room.min(left),
            };
            let (count, lengthy) = add_first(&mut self.pack, first, &connection.waiting, most);
            expected += lengthy * connection.reply_bytes_usual;
            if count > 0 {
                taken.push((*key, count));
            } else if taken.is_empty() {
                // It fills a packet by itself.
                return;
            }
        }
    }

    /// Whether what a connection may be answered at length is taken for large.
    fn is_taken_for_large(&self, connection: &Connection) -> bool {
        let usual = connection.was_answered.then_some(connection.reply_bytes_usual);
        self.large.counted(usual, true).bytes > 0
    }

    /// Sends what was gathered as one request.
    fn send(
        &mut self,
        handle: SessionHandle,
        taken: &[(ConnectionKey, usize)],
        upstream: &mut impl Upstream,
    ) -> Result<(), Unsent> {
        let count: usize = taken.iter().map(|(_, count)| count).sum();
        let Some(leader) = self.connections.get(&taken[0].0) else { return Ok(()) };
        let Some(first) = leader.waiting.front() else { return Ok(()) };
        let mut names = self.names_of(taken);
        // A pack is of no one key, unless all its keys are named.
        let (method, key_hash, payload) = if count == 1 {
            (first.method, first.key_hash, first.payload.as_slice())
        } else {
            let first_name = names.first().copied().unwrap_or(KeyHash(0));
            (self.shared_method(first.method, taken), first_name, self.pack.payload())
        };
        let named = match (count, names.len()) {
            (_, 0) => &[],
            // Its header may name a key that it only reads.
            (1, ..=FURTHER_KEYS_MAX) if first.is_transaction() => &names[..],
            (1, _) if first.is_transaction() => &[],
            // That a single command's first key is its only one, whoever sees it pass knows.
            (1, 1) => &[],
            (_, 1) => {
                names.push(names[0]);
                &names[1..]
            }
            _ => &names[1..],
        };
        let label = CallLabel { called: first.called, ..CallLabel::new(method) };
        let kind = first.kind;
        let leaders = self.counted(taken[0].0);
        // Who shares it has small replies, or the first one has so little that they fit.
        let bytes = taken.iter().map(|(key, count)| self.counted_of(*key, *count).bytes).sum();
        let counted = Counted { bytes, ..leaders };
        let asked = Request {
            kind,
            mode: if first.early.is_some() { Mode::Early } else { Mode::Covered },
            fixed_reply: first.early.is_some(),
            relaxed: false,
            traced: false,
            key_hash,
            payload,
        };
        let seq = match upstream.submit_naming(handle, asked, named, label) {
            Ok(seq) => seq,
            Err(SubmitError::NotOpen | SubmitError::WindowFull) => return Err(Unsent::NotNow),
            Err(SubmitError::TooLarge) => {
                return Err(Unsent::Refused("ERR scotfree: the request is too large".to_owned()))
            }
            Err(SubmitError::Closed) => return Err(Unsent::Refused(ended::OVER.to_owned())),
        };
        if count > 1 {
            self.packs += 1;
            self.packed += count as u64;
        }
        let (first, others) = self.take(taken);
        if let Some(session) = self.sessions.get_mut(handle) {
            session.served = Some(taken[0].0);
            if let Some(first) = first {
                session.set_out(seq, Flight::new(first, others, kind).counted_for(counted));
                self.large.begin(counted);
            }
        }
        Ok(())
    }

    /// All keys that what was gathered writes, each once; none if somebody does not say, or if they are too many.
    fn names_of(&self, taken: &[(ConnectionKey, usize)]) -> Vec<KeyHash> {
        let mut names = Vec::new();
        for (key, count) in taken {
            let waiting = self.connections.get(key).map(|connection| connection.waiting.iter().take(*count));
            for request in waiting.into_iter().flatten() {
                if request.names.is_empty() {
                    return Vec::new();
                }
                for name in &request.names {
                    if !names.contains(name) {
                        names.push(*name);
                    }
                    if names.len() > 1 + FURTHER_KEYS_MAX {
                        return Vec::new();
                    }
                }
            }
        }
        names
    }

    /// Takes what was gathered from those who wait; who asked what first, and who else.
    fn take(&mut self, taken: &[(ConnectionKey, usize)]) -> (Option<Asker>, Vec<Asker>) {
        let (mut first, mut others) = (None, Vec::new());
        for (key, count) in taken {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            // It may be read again.
            self.touched.insert(*key);
            connection.under_way += *count;
            for request in connection.waiting.drain(..*count) {
                connection.lengthy += usize::from(request.lengthy);
                let FrontRequest { id, early, called, lengthy, .. } = request;
                let asker = Asker { connection: *key, id, early, called, lengthy };
                match first {
                    None => first = Some(asker),
                    Some(_) => others.push(asker),
                }
            }
        }
        (first, others)
    }

    /// What was gathered cannot be sent.
    fn refuse(&mut self, now: Nanos, taken: &[(ConnectionKey, usize)], error: &str) {
        let now_ms = self.server_time_ms(now);
        let (first, others) = self.take(taken);
        for asker in first.into_iter().chain(others) {
            let mut actions = Vec::new();
            if let Some(connection) = self.connections.get_mut(&asker.connection) {
                connection.front.on_refusal(now_ms, asker.id, error, &mut actions);
            }
            self.act(asker.connection, actions);
        }
    }

    /// What is said in traces of commands that share a request.
    fn shared_method(&self, first: &'static str, taken: &[(ConnectionKey, usize)]) -> &'static str {
        let all_the_same = taken.iter().all(|(key, count)| {
            let waiting = self.connections.get(key).map(|connection| connection.waiting.iter().take(*count));
            waiting.into_iter().flatten().all(|request| request.method == first)
        });
        if all_the_same {
            first
        } else {
            "pack"
        }
    }

    /// Lets the server's sidecar forget connections that are gone, and ends sessions that nobody will use.
    fn say_farewells(&mut self, upstream: &mut impl Upstream) {
        for (handle, farewell) in std::mem::take(&mut self.released) {
            let Some(session) = self.sessions.get_mut(handle) else { continue };
            let label = CallLabel::new(farewell.method);
            match upstream.submit(handle, as_read(&farewell.payload), label) {
                Ok(seq) => {
                    session.begin_departure();
                    let first =
                        Asker { connection: NOBODY, id: 0, early: None, called: Nanos(0), lengthy: false };
                    session.set_out(seq, Flight::new(first, Vec::new(), RequestKind::Read));
                }
                Err(SubmitError::WindowFull) => self.released.push((handle, farewell)),
                // It has nothing to forget.
                Err(SubmitError::NotOpen | SubmitError::TooLarge | SubmitError::Closed) => {}
            }
        }
        for session in self.sessions.take_outdated() {
            upstream.end_session(session);
        }
    }
}

/// Packs as many of the first requests as may share a packet with `leader`, of those that may be answered at length
/// `most` at most; how many these are, and how many of them may.
fn add_first(
    pack: &mut PackBuilder,
    leader: &FrontRequest,
    waiting: &VecDeque<FrontRequest>,
    most: usize,
) -> (usize, usize) {
    let mut lengthy = 0;
    let may_share = |request: &&FrontRequest| {
        request.shares && request.kind == leader.kind && request.early.is_some() == leader.early.is_some()
    };
    let count = waiting
        .iter()
        .take_while(may_share)
        .take_while(|request| {
            let fits = !(request.lengthy && lengthy == most) && pack.add(&request.payload, PAYLOAD_BYTES_MAX);
            lengthy += usize::from(fits && request.lengthy);
            fits
        })
        .count();
    (count, lengthy)
}
