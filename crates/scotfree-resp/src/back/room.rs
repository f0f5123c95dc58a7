//! Room for large replies: one that does not fit beside those that are kept waits, and its lane with it, until
//! enough of them has been fetched.
//!
//! Invariant: the fetching waits for nothing, so it makes room whatever waits. All others wait as well, so a session
//! that fetches nothing is not waited for, whatever others fetch, and one that fetches little by little not for long.

use super::lane::{Expected, RoomWait};
use super::{Back, BackEvent, BackEvents, Item, LaneId};
use crate::codec::error_reply;
use crate::payload::{ResponseFlags, REQUEST_HEAD_BYTES};
use scotfree_core::{Nanos, SessionId};

/// No error of [`Back::too_large`] is longer.
const TOO_LARGE_BYTES_MAX: usize = 320;

/// So many times [`super::BackConfig::room_wait_max`] one reply waits for a session that goes on fetching.
const WAITS_MAX: u64 = 8;

impl Back {
    /// Whether the next reply of a lane is to be left there for now; from then on nothing more is read from it.
    pub(super) fn has_to_wait(&mut self, id: LaneId, now: Nanos, reply: &[u8]) -> bool {
        let wait = self.lanes.get(id).and_then(|lane| lane.waits);
        let since = wait.map_or(now, |wait| wait.since);
        let mut until: Option<Nanos> = None;
        for session in self.short_of_room(id, reply) {
            let late_at = self.late_at(session, since);
            if now >= late_at {
                self.parts.give_up_on(session);
            } else {
                until = Some(until.map_or(late_at, |until| until.min(late_at)));
            }
        }
        if let Some(lane) = self.lanes.get_mut(id) {
            lane.waits = until.map(|until| RoomWait { since, until });
        }
        until.is_some()
    }

    /// When a reply that waits since then waits for this session no longer.
    fn late_at(&self, session: SessionId, since: Nanos) -> Nanos {
        let wait = self.config.room_wait_max;
        let fetched_at = self.parts.fetched_at(session).map_or(since, |at| at.max(since));
        fetched_at.plus(wait).min(since.plus(Nanos(wait.0 * WAITS_MAX)))
    }

    /// The sessions that should fetch something before this reply is taken.
    fn short_of_room(&self, id: LaneId, reply: &[u8]) -> Vec<SessionId> {
        let expected = self.lanes.get(id).and_then(|lane| lane.expected.front());
        let (bytes, items) = match (expected, self.direct.front(), &self.batch) {
            (Some(Expected::Direct), Some(item), _) => {
                (reply.len() + answered_bytes(item), std::slice::from_ref(item))
            }
            (Some(Expected::Exec), _, Some(batch)) => (reply.len(), batch.items.as_slice()),
            _ => return Vec::new(),
        };
        if bytes <= self.config.reply_bytes_max {
            return Vec::new();
        }
        let sessions = items.iter().filter(|item| item.ticket.is_some()).map(|item| item.session);
        sessions
            .filter(|session| self.parts.has_to_wait(*session, bytes, self.config.parts_bytes_max))
            .collect()
    }

    /// Answers who fetches, and takes what waited for that.
    pub(super) fn make_room(&mut self, now: Nanos, events: &mut BackEvents) {
        while let Some(item) = self.rests.pop_front() {
            self.parts.note_fetch(item.session, now);
            self.answer_rest(&item, events);
        }
        let waiting: Vec<LaneId> =
            self.lanes.busy().filter(|(_, lane)| lane.waits.is_some()).map(|(id, _)| id).collect();
        for id in waiting {
            self.on_bytes(id, now, &[], events);
        }
    }

    /// When somebody is waited for no longer.
    pub(super) fn room_timer(&self) -> Option<Nanos> {
        self.lanes.busy().filter_map(|(_, lane)| lane.waits).map(|wait| wait.until).min()
    }

    /// Answers with the next part of a large reply, at once: its first part was held until all of it could be told.
    fn answer_rest(&mut self, item: &Item, events: &mut BackEvents) {
        let Some(ticket) = item.ticket else { return };
        events.push(BackEvent::Independent { ticket });
        let held = self.hold_until.take();
        let name = item.payload.get(REQUEST_HEAD_BYTES..).and_then(|name| name.try_into().ok());
        let name = name.map_or(0, u64::from_le_bytes);
        match self.parts.next_part(item.owner(), name, self.config.reply_bytes_max) {
            Some((part, true)) => {
                let mut named = name.to_le_bytes().to_vec();
                named.extend_from_slice(&part);
                self.reply(item, &named, ResponseFlags::NONE.with_if(true, ResponseFlags::MORE), events);
            }
            Some((part, false)) => self.reply(item, &part, ResponseFlags::NONE, events),
            None => {
                let text =
                    "ERR scotfree: the rest of this reply is forgotten, since the server was restarted";
                self.reply(item, &error_reply(text), ResponseFlags::CLOSE, events);
            }
        }
        self.hold_until = held;
    }

    /// What to set aside for such errors among what a pack is answered, so that they have room as well.
    pub(super) fn room_of_refusals(&self, item: &Item, replies: &[&[u8]]) -> usize {
        let known = item.answers.iter().flatten().map(|answer| answer.reply.len());
        let sizes = || known.clone().chain(replies.iter().map(|reply| reply.len()));
        let all = self.parts.held_of_replies(item.session) + sizes().sum::<usize>();
        if all <= self.config.parts_bytes_max {
            return 0;
        }
        TOO_LARGE_BYTES_MAX * sizes().filter(|bytes| *bytes > TOO_LARGE_BYTES_MAX).count()
    }

    /// The error in place of a reply that cannot be kept until it is fetched.
    pub(super) fn too_large(&self, item: &Item, reply: &[u8]) -> Vec<u8> {
        let (bytes, most) = (reply.len(), self.config.parts_bytes_max);
        let held = self.parts.held_of_replies(item.session);
        let whose = if item.is_transaction() { "replies of this transaction have" } else { "reply has" };
        let beside = match held {
            0 => String::new(),
            _ => format!(
                ", and with {held} of other replies that are not fetched yet it is {} that would be kept",
                held + bytes
            ),
        };
        error_reply(&format!(
            "ERR scotfree: the {whose} {bytes} bytes{beside}; {most} can be kept; ask for fewer large \
             values at once, or for a part of one (GETRANGE, LRANGE, HSCAN)"
        ))
    }
}

/// How many bytes are known already of what a pack is answered.
fn answered_bytes(item: &Item) -> usize {
    item.answers.iter().flatten().map(|answer| answer.reply.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::back::{BackConfig, BackEvents, Execute, LaneState, Phase, Purpose};
    use crate::codec::{write_command, Command};
    use crate::description::Description;
    use crate::payload::{parse_part, parse_response, RequestFlags, RequestHead, RequestKind};
    use scotfree_core::SeqNum;
    use std::collections::BTreeMap;

    const SESSION: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);
    const START: Nanos = Nanos::from_secs(5);

    /// A machine that serves, and what it was answered with.
    struct Bench {
        back: Back,
        lane: LaneId,
        events: BackEvents,
        now: Nanos,
        tickets: u64,
        answers: BTreeMap<u64, Vec<u8>>,
    }

    impl Bench {
        /// Of a reply 100 bytes go at once, and 1,000 are kept.
        fn new() -> Bench {
            let config = BackConfig { reply_bytes_max: 100, parts_bytes_max: 1_000, ..BackConfig::default() };
            let (mut back, mut events) = (Back::new(config), BackEvents::new());
            let lane = back.open(Purpose::Shared, &mut events);
            back.lanes.get_mut(lane).expect("it was opened").state = LaneState::Ready;
            back.shared = Some(lane);
            back.description = Description::of_table();
            back.phase = Phase::Running;
            events.clear();
            Bench { back, lane, events, now: START, tickets: 0, answers: BTreeMap::new() }
        }

        fn execute(&mut self, session: SessionId, connection: u32, flags: RequestFlags, rest: &[u8]) -> u64 {
            let mut payload = Vec::new();
            RequestHead { flags, db: 1, connection }.write(&mut payload);
            payload.extend_from_slice(rest);
            self.tickets += 1;
            let (ticket, kind, seq) = (self.tickets, RequestKind::Read, SeqNum(0));
            self.back.execute(&Execute { ticket, session, seq, kind, payload: &payload, is_replayed: false });
            self.turn();
            ticket
        }

        fn get(&mut self, session: SessionId, connection: u32) -> u64 {
            let mut command = Vec::new();
            write_command(&mut command, Command::new(["GET", "k"]).args());
            self.execute(session, connection, RequestFlags::NONE, &command)
        }

        /// Asks for one more part of a reply.
        fn fetch(&mut self, ticket: u64) -> u64 {
            self.execute(SESSION, 1, RequestFlags::REST, &ticket.to_le_bytes())
        }

        fn turn(&mut self) {
            self.back.flush(self.now, false, &mut self.events);
            for event in self.events.iter() {
                if let BackEvent::Reply { ticket, response, .. } = event {
                    self.answers.insert(*ticket, self.events.bytes(response.clone()).to_vec());
                }
            }
            self.events.clear();
        }

        /// The server answers with so many bytes.
        fn answer(&mut self, bytes: usize) {
            let reply = format!("${bytes}\r\n{}\r\n", "x".repeat(bytes));
            let (now, lane) = (self.now, self.lane);
            self.back.on_bytes(lane, now, reply.as_bytes(), &mut self.events);
            self.turn();
        }

        fn text(&self, ticket: u64) -> String {
            let (_, reply) = parse_response(&self.answers[&ticket]).expect("a response");
            String::from_utf8_lossy(reply).into_owned()
        }
    }

    /// With the server's word to SELECT heard.
    fn bench() -> Bench {
        let mut bench = Bench::new();
        let first = bench.get(OTHER, 1);
        bench.back.on_bytes(bench.lane, START, b"+OK\r\n", &mut bench.events);
        bench.answer(1);
        assert_eq!(bench.text(first), "$1\r\nx\r\n");
        bench
    }

    #[test]
    fn what_does_not_fit_waits_and_all_behind_it_until_enough_is_fetched() {
        let mut bench = bench();
        let asked: Vec<u64> = (0..3).map(|_| bench.get(SESSION, 1)).collect();
        let behind = bench.get(OTHER, 1);
        bench.answer(400);
        bench.answer(400);
        bench.answer(500);
        bench.answer(1);
        assert!(bench.back.is_held(bench.lane));
        let has_answered = |bench: &Bench, ticket| bench.answers.contains_key(&ticket);
        assert!(has_answered(&bench, asked[1]) && !has_answered(&bench, asked[2]));
        assert!(!has_answered(&bench, behind), "replies keep their order");
        // 300 of 400 bytes are left, and then the last 7.
        for _ in 0..3 {
            let part = bench.fetch(asked[0]);
            assert!(has_answered(&bench, part) && !has_answered(&bench, asked[2]));
        }
        bench.fetch(asked[0]);
        assert!(has_answered(&bench, asked[2]) && has_answered(&bench, behind));
        assert!(!bench.back.is_held(bench.lane));
        let (_, first) = parse_response(&bench.answers[&asked[2]]).expect("a response");
        assert!(parse_part(first).is_some_and(|(name, _)| name == asked[2]));
    }

    #[test]
    fn a_session_that_fetches_nothing_is_not_waited_for() {
        let mut bench = bench();
        let asked: Vec<u64> = (0..4).map(|_| bench.get(SESSION, 1)).collect();
        let behind = bench.get(OTHER, 1);
        for bytes in [600, 600, 700, 1] {
            bench.answer(bytes);
        }
        bench.answer(1);
        let late = bench.back.room_timer().expect("somebody is waited for");
        assert_eq!(late, START.plus(bench.back.config.room_wait_max));
        bench.now = Nanos(late.0 - 1);
        bench.turn();
        assert!(bench.back.is_held(bench.lane));
        bench.now = late;
        bench.turn();
        // The second one is an error after a while, the third one at once, and the others are answered.
        let said = bench.text(asked[1]);
        assert!(said.contains("the reply has 608 bytes, and with 608 of other replies"), "{said}");
        assert!(said.contains("it is 1216 that would be kept; 1000 can be kept"), "{said}");
        assert!(bench.text(asked[2]).contains("708 bytes"));
        // With the longest numbers there are at most 50 letters more.
        assert!(said.len() + 50 <= TOO_LARGE_BYTES_MAX, "{said}");
        assert_eq!([bench.text(asked[3]), bench.text(behind)], ["$1\r\nx\r\n", "$1\r\nx\r\n"]);
        // Who fetches again is waited for again.
        bench.fetch(asked[0]);
        bench.get(SESSION, 1);
        bench.answer(600);
        assert!(bench.back.is_held(bench.lane));
    }

    #[test]
    fn what_others_fetch_gives_nobody_more_time() {
        let mut bench = bench();
        let others = bench.get(OTHER, 1);
        let asked = [bench.get(SESSION, 1), bench.get(SESSION, 1)];
        for bytes in [900, 600, 600] {
            bench.answer(bytes);
        }
        let late = START.plus(bench.back.config.room_wait_max);
        bench.now = Nanos(late.0 - 1);
        bench.execute(OTHER, 1, RequestFlags::REST, &others.to_le_bytes());
        assert!(bench.back.is_held(bench.lane));
        assert_eq!(bench.back.room_timer(), Some(late));
        bench.now = late;
        bench.turn();
        assert!(!bench.back.is_held(bench.lane));
        assert!(bench.text(asked[1]).contains("the reply has 608 bytes"), "{}", bench.text(asked[1]));
    }

    #[test]
    fn who_fetches_little_by_little_is_not_waited_for_without_end() {
        let mut bench = bench();
        let asked = [bench.get(SESSION, 1), bench.get(SESSION, 1)];
        bench.answer(900);
        bench.answer(600);
        let wait = bench.back.config.room_wait_max;
        for fetched in 1..=WAITS_MAX {
            bench.now = START.plus(Nanos(fetched * wait.0 / 10 * 9));
            bench.fetch(asked[0]);
            assert!(bench.back.is_held(bench.lane), "it fetches, {fetched} times so far");
        }
        let late = START.plus(Nanos(wait.0 * WAITS_MAX));
        assert_eq!(bench.back.room_timer(), Some(late));
        bench.now = late;
        bench.turn();
        assert!(!bench.back.is_held(bench.lane));
        assert!(bench.text(asked[1]).contains("the reply has 608 bytes"), "{}", bench.text(asked[1]));
    }

    #[test]
    fn a_connection_that_is_gone_takes_no_room() {
        let mut bench = bench();
        let asked: Vec<u64> = (0..3).map(|_| bench.get(SESSION, 1)).collect();
        let others = bench.get(SESSION, 2);
        bench.answer(600);
        bench.answer(600);
        assert!(bench.back.is_held(bench.lane));
        let gone = bench.execute(SESSION, 1, RequestFlags::PRIVATE.with(RequestFlags::RELEASE), &[]);
        assert!(bench.answers.contains_key(&asked[1]), "nobody fetches it, so it is not kept");
        bench.answer(900);
        bench.answer(900);
        let (_, begun) = parse_response(&bench.answers[&others]).expect("a response");
        assert!(parse_part(begun).is_some_and(|(name, _)| name == others), "{}", bench.text(others));
        assert!(bench.answers.contains_key(&gone));
    }
}
