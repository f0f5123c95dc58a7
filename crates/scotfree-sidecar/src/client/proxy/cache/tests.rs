//! The cache beside a commit queue and a Redis of chance: whatever is answered here is what that Redis would answer at
//! the read's place, and each rule that is switched off is found.

mod others;

use super::*;
use others::Others;
use scotfree_cache::CacheFault;
use scotfree_proxy::{Access, CommitQueue, Found, Outcome, QueueConfig, Submission};
use scotfree_session::RequestKind;
use std::collections::BTreeMap;

const SESSION: SessionId = SessionId(7);
const QUESTIONS: SessionId = SessionId(8);
const KEYS: u8 = 3;
/// A key that shares its hash with the first.
const TWIN: u8 = 2;

/// The same for every run of a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    fn is(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// What a value of the model is, and whether its key has a time to live.
type Value = (u64, bool);
type Data = BTreeMap<u8, Value>;

#[derive(Debug, Clone, Copy)]
enum Op {
    Get(u8),
    /// Another read of the key, whose reply says more than the value.
    Other(u8),
    Question(u8),
    /// A plain SET.
    Set(u8, u64),
    /// SET with a time to live.
    SetMortal(u8, u64),
    /// An unlogged write of one key.
    Script(u8, u64),
    /// A write of two keys.
    Both(u8, u8, u64),
    Flush,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    op: Op,
    is_refused: bool,
    /// It is executed behind the next one: something of the Redis' state refused it at first.
    is_late: bool,
}

fn apply(data: &mut Data, request: Request) {
    if request.is_refused {
        return;
    }
    match request.op {
        Op::Get(_) | Op::Other(_) | Op::Question(_) => {}
        Op::Set(key, value) | Op::Script(key, value) => _ = data.insert(key, (value, false)),
        Op::SetMortal(key, value) => _ = data.insert(key, (value, true)),
        Op::Both(one, other, value) => {
            data.insert(one, (value, false));
            data.insert(other, (value, false));
        }
        Op::Flush => data.clear(),
    }
}

/// The reads of the model's keys; their hashes.
fn read_of(key: u8, is_get: bool) -> [u8; 2] {
    [if is_get { WholeRead::OF_GET } else { 2 }, b'a' + key]
}

/// The name of a key, of twins the same: by that alone the hash is made. The first two are of different buckets.
fn name_of(key: u8) -> [u8; 1] {
    [b'b' + if key == TWIN { 0 } else { key }]
}

fn hash(key: u8) -> KeyHash {
    KeyHash::of(0, &name_of(key))
}

fn key_of(key: u8, bytes: &[u8]) -> Key<'_> {
    Key { database: 0, hash: hash(key), bytes }
}

fn bulk(value: u64) -> Vec<u8> {
    let text = value.to_string();
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// What a read is answered.
fn reply_of(found: Option<u64>, is_get: bool) -> Vec<u8> {
    match found {
        Some(value) if is_get => bulk(value),
        None if is_get => b"$-1\r\n".to_vec(),
        found => format!("*1\r\n:{}\r\n", found.map_or(-1, |value| value as i64)).into_bytes(),
    }
}

struct World {
    chance: Chance,
    cache: ReadCache,
    queue: CommitQueue,
    data: Data,
    /// Requests by their places, as long as they are not executed.
    waiting: BTreeMap<u64, Request>,
    /// What was executed and is not answered yet.
    replies: VecDeque<(u64, Vec<u8>, bool)>,
    /// Writes through tunnels: to be executed, and to be answered.
    tunnel_asked: VecDeque<(u8, u64)>,
    tunnel_done: u64,
    passed_by: PassedBy,
    /// What waits to take a value away, whether it has, and what the cache has not been told of it.
    waiters: VecDeque<(u64, u8, bool)>,
    waiters_begun: u64,
    notes: VecDeque<Waiting>,
    now: Nanos,
    written: u64,
    hits: u64,
    session: SessionId,
    /// Those who write past the proxy, in worlds that have some; these have no tunnels.
    others: Option<Others>,
}

impl World {
    fn new(seed: u64, fault: Option<Fault>, planted: Planted) -> World {
        let limits = Limits {
            bucket_count: 2,
            admit_reads: 1,
            entries_max: 2,
            deadline_margin: Nanos(0),
            ..limits(1 << 20)
        };
        let mut cache = ReadCache::with(limits, planted);
        cache.fault = fault;
        cache.doubts.reads = 1;
        let (mut queue, _) = CommitQueue::recover(QueueConfig::default(), &Found::default()).expect("new");
        queue.open_session(SESSION);
        queue.open_session(QUESTIONS);
        World {
            chance: Chance(seed),
            cache,
            queue,
            data: Data::new(),
            waiting: BTreeMap::new(),
            replies: VecDeque::new(),
            tunnel_asked: VecDeque::new(),
            tunnel_done: 0,
            passed_by: PassedBy::default(),
            waiters: VecDeque::new(),
            waiters_begun: 0,
            notes: VecDeque::new(),
            now: Nanos(0),
            written: 0,
            hits: 0,
            session: SESSION,
            others: None,
        }
    }

    /// What a key's read is answered if it is executed behind everything that has its place.
    fn truth(&self, key: u8) -> Option<u64> {
        let mut data = self.data.clone();
        self.waiting.values().for_each(|request| apply(&mut data, *request));
        data.get(&key).map(|(value, _)| *value)
    }

    fn submit(&mut self, kind: RequestKind, session: SessionId) -> SeqNum {
        let submission = Submission { session, kind, early: false, access: Access::None, payload: b"" };
        self.queue.submit(&submission).expect("the window is wide")
    }

    fn read(&mut self, key: u8, is_get: bool) -> Result<(), String> {
        let bytes = read_of(key, is_get);
        let of = key_of(key, &bytes);
        if let Some(others) = &mut self.others {
            others.machine.want(self.now);
            self.cache.know_time(self.now);
        }
        if let Some(found) = self.cache.look(of).map(<[u8]>::to_vec) {
            self.hits += 1;
            let truth = reply_of(self.truth(key), is_get);
            let place = self.submit(RequestKind::Read, self.session);
            self.queue.answer(place, &found);
            let text = String::from_utf8_lossy;
            let was_true = self.others.as_ref().is_some_and(|others| {
                others.were(self.now, key).any(|before| reply_of(before, is_get) == found)
            });
            let is_true = truth == found || was_true;
            let told = || format!("key {key} at {place}: {:?} for {:?}", text(&found), text(&truth));
            return is_true.then_some(()).ok_or_else(told);
        }
        let place = self.submit(RequestKind::Read, self.session);
        let op = if is_get { Op::Get(key) } else { Op::Other(key) };
        self.waiting.insert(place.0, Request { op, is_refused: false, is_late: false });
        if self.cache.passed(place, of, self.queue.first()) {
            let asked = self.submit(RequestKind::Read, QUESTIONS);
            self.waiting
                .insert(asked.0, Request { op: Op::Question(key), is_refused: false, is_late: false });
            self.cache.asked(place, of, Some(asked));
        }
        Ok(())
    }

    fn write(&mut self) {
        self.written += 1;
        let value = self.written;
        let key = self.chance.below(u64::from(KEYS)) as u8;
        let other = self.chance.below(u64::from(KEYS)) as u8;
        let (op, kind) = match self.chance.below(12) {
            0..=5 => (Op::Set(key, value), RequestKind::Update),
            6 | 7 => (Op::SetMortal(key, value), RequestKind::Update),
            8 | 9 => (Op::Script(key, value), RequestKind::Bypass),
            10 => (Op::Both(key, other, value), RequestKind::Update),
            _ => (Op::Flush, RequestKind::Bypass),
        };
        let place = self.submit(kind, self.session);
        let request = Request { op, is_refused: self.chance.is(8), is_late: self.chance.is(8) };
        self.waiting.insert(place.0, request);
        let bytes = read_of(key, true);
        let reply = bulk(value);
        let of = key_of(key, &bytes);
        let (touched, overwrite) = match op {
            Op::Set(..) => (Touched::Keys(vec![hash(key)]), Some((of, &reply[..]))),
            Op::Both(..) => (Touched::Keys(vec![hash(key), hash(other)]), None),
            Op::Flush => (Touched::Anything, None),
            _ => (Touched::Keys(vec![hash(key)]), None),
        };
        if let Some(others) = &mut self.others {
            others.forget(match op {
                Op::Flush => None,
                Op::Both(one, other, _) => Some([one, other]),
                _ => Some([key, key]),
            });
        }
        if kind == RequestKind::Bypass && self.cache.fault == Some(Fault::IgnoreBypasses) {
            return;
        }
        self.cache.written(place, &touched, overwrite, self.queue.first());
    }

    /// The Redis executes the next request, in the order of places but for what is late.
    fn execute(&mut self) {
        let mut waiting = self.waiting.iter().map(|(place, request)| (*place, *request));
        let Some((place, request)) = waiting.next() else { return };
        let next = waiting.next();
        match next {
            // Two at most change their places, as in one transaction.
            Some((behind, other)) if request.is_late => {
                self.run(behind, other);
                self.run(place, request);
            }
            _ => self.run(place, request),
        }
    }

    fn run(&mut self, place: u64, request: Request) {
        self.waiting.remove(&place);
        apply(&mut self.data, request);
        self.note_change(request);
        let reply = match request.op {
            _ if request.is_refused => b"-ERR refused\r\n".to_vec(),
            Op::Get(key) => reply_of(self.data.get(&key).map(|(value, _)| *value), true),
            Op::Other(key) => reply_of(self.data.get(&key).map(|(value, _)| *value), false),
            Op::Question(key) => match self.data.get(&key) {
                None => b":-2\r\n".to_vec(),
                Some((_, true)) => b":5000\r\n".to_vec(),
                Some((_, false)) => b":-1\r\n".to_vec(),
            },
            _ => b"+OK\r\n".to_vec(),
        };
        self.replies.push_back((place, reply, request.is_refused));
    }

    fn hear(&mut self) {
        let Some((place, reply, failed)) = self.replies.pop_front() else { return };
        let response = [&[1, 0][..], &reply].concat();
        let after_all = self.queue.is_answered_before(SeqNum(place));
        self.cache.replied(SeqNum(place), said(&response, failed), after_all);
        let outcome = if failed { Outcome::Refused } else { Outcome::Executed };
        self.queue.on_reply(SeqNum(place), &response, outcome);
    }

    fn settle(&mut self) {
        while self.queue.next_run().is_some() {}
        while let Some((last, _)) = self.queue.next_record() {
            self.queue.record_taken();
            self.queue.on_logged(last);
        }
        let stable = SeqNum(self.queue.first().0 + self.queue.len() as u64);
        self.queue.on_stable(stable);
        while self.queue.next_completion().is_some() {}
    }

    /// A key's time is over: it is gone, unseen.
    fn expire(&mut self) {
        let mortal = self.data.iter().find(|(_, (_, is_mortal))| *is_mortal).map(|(key, _)| *key);
        if let Some(key) = mortal {
            self.data.remove(&key);
            self.tell(key);
        }
    }

    fn tunnel(&mut self) {
        match self.chance.below(3) {
            0 => {
                self.written += 1;
                let key = self.chance.below(u64::from(KEYS)) as u8;
                self.tunnel_asked.push_back((key, self.written));
                self.passed_by.begun += 1;
            }
            1 => {
                if let Some((key, value)) = self.tunnel_asked.pop_front() {
                    self.data.insert(key, (value, false));
                    self.tunnel_done += 1;
                }
            }
            _ => self.passed_by.ended = self.tunnel_done,
        }
    }

    /// Something waits, past the order, to take a value away; does; and is answered.
    fn wait(&mut self) {
        match self.chance.below(3) {
            0 => {
                self.waiters_begun += 1;
                let (number, key) = (self.waiters_begun, self.chance.below(u64::from(KEYS)) as u8);
                self.waiters.push_back((number, key, false));
                self.notes.push_back(Waiting::Begun { number, keys: Some(vec![hash(key)]) });
            }
            1 => {
                if let Some((_, key, is_done)) = self.waiters.front_mut().filter(|waiter| !waiter.2) {
                    self.data.remove(key);
                    *is_done = true;
                }
            }
            _ => {
                if let Some((number, ..)) = self.waiters.front().copied().filter(|waiter| waiter.2) {
                    self.waiters.pop_front();
                    self.notes.push_back(Waiting::Ended { number });
                }
            }
        }
    }

    fn know_passing(&mut self) {
        if self.others.is_some() {
            self.cache.set_answering(true);
        }
        self.cache.know_passing(self.now, (self.passed_by, 0));
        self.notes.drain(..).for_each(|note| self.cache.know_waiting(note));
    }

    /// The Redis is lost, and another comes: with what was stable, which is everything but what nobody was answered.
    fn lose(&mut self) {
        self.cache.set_answering(false);
        self.lose_teller();
        // What went past the order and has no answer may be gone, or there.
        while let Some((key, value)) = self.tunnel_asked.pop_front() {
            if self.chance.is(2) {
                self.data.insert(key, (value, false));
            }
            self.tunnel_done += 1;
        }
        // What was answered and is not logged may be gone: here it is another's data altogether.
        for (value, _) in self.data.values_mut() {
            *value += 1_000_000;
        }
        while !self.waiting.is_empty() {
            self.execute();
        }
        while !self.replies.is_empty() {
            self.hear();
        }
        self.passed_by.ended = self.tunnel_done;
    }

    /// The Redis refuses a session from now on: what it has under way is answered to nobody, and never executed.
    fn fail_session(&mut self) {
        self.queue.fail_session(self.session);
        // It counts as answered, and what the Redis does late it may do now.
        if self.cache.fault != Some(Fault::KeepAcrossFailure) {
            self.cache.forget();
        }
        self.waiting.retain(|_, request| matches!(request.op, Op::Question(_)));
        self.session = SessionId(self.session.0 + 2);
        self.queue.open_session(self.session);
    }

    fn step(&mut self) -> Result<(), String> {
        match self.chance.below(40) {
            0..=16 => {
                let key = self.chance.below(u64::from(KEYS)) as u8;
                self.know_passing();
                let is_get = !self.chance.is(3);
                self.read(key, is_get)?;
            }
            17 | 18 => {
                self.know_passing();
                self.write();
            }
            19..=26 => (0..=self.chance.below(6)).for_each(|_| self.execute()),
            27..=34 => (0..=self.chance.below(6)).for_each(|_| self.hear()),
            35 if self.others.is_some() => self.write_past(),
            35 if self.chance.is(2) => self.tunnel(),
            35 => self.wait(),
            36 => self.expire(),
            37 if self.chance.is(16) => {
                self.lose();
                self.cache.set_answering(true);
            }
            38 if self.chance.is(4) => self.fail_session(),
            _ => self.settle(),
        }
        if self.others.is_some() {
            (0..self.chance.below(5)).for_each(|_| self.step_of_others());
        }
        self.now = self.now.plus(Nanos::from_millis(1));
        Ok(())
    }
}

/// How many reads were answered here, or what was answered wrongly.
fn run(seed: u64, fault: Option<Fault>, planted: Planted) -> Result<u64, String> {
    play(World::new(seed, fault, planted), seed)
}

fn play(mut world: World, seed: u64) -> Result<u64, String> {
    for _ in 0..400 {
        world.step().map_err(|what| format!("seed {seed}: {what}"))?;
    }
    Ok(world.hits)
}

fn is_found(fault: Option<Fault>, planted: Planted) -> bool {
    (0..20_000).any(|seed| run(seed, fault, planted).is_err())
}

#[test]
fn what_is_answered_is_what_the_redis_would_answer_at_its_place() {
    let hits: u64 = (0..4_000).map(|seed| run(seed, None, Planted::NONE).expect("never stale")).sum();
    assert!(hits > 10_000, "{hits}: something is answered");
}

#[test]
fn every_rule_that_is_left_out_is_found() {
    for fault in [
        Fault::FillBeforeAll,
        Fault::ServeUnanswered,
        Fault::KeepRefused,
        Fault::KeepMortal,
        Fault::IgnoreTunnels,
        Fault::KeepAcrossLoss,
        Fault::KeepAcrossFailure,
        Fault::IgnoreBypasses,
        Fault::StaleGetAlone,
        Fault::IgnoreWaiting,
    ] {
        assert!(is_found(Some(fault), Planted::NONE), "{fault:?}");
    }
    for planted in [
        CacheFault::ServeStale,
        CacheFault::FillBelowVersion,
        CacheFault::FillBesideUnderWay,
        CacheFault::NoFloor,
        CacheFault::IgnoreFurtherKeys,
        CacheFault::CompareHashOnly,
        CacheFault::KeepAcrossEpoch,
        CacheFault::ServeBeforeDurable,
    ] {
        assert!(is_found(None, Planted::some(planted)), "{planted:?}");
    }
}

#[test]
fn a_write_through_a_tunnel_whose_client_is_gone_is_waited_for_and_then_over() {
    let mut cache = ReadCache::with(Limits { admit_reads: 0, ..limits(1 << 20) }, Planted::NONE);
    let key = Key { database: 0, hash: KeyHash(1), bytes: b"\0\0\0k" };
    let mut place = 1;
    let mut fills = |cache: &mut ReadCache| {
        let (read, asked) = (SeqNum(place), SeqNum(place + 1));
        place += 2;
        if cache.passed(read, key, read) {
            cache.asked(read, key, Some(asked));
        }
        cache.replied(read, Said::Reply(b"$1\r\nv\r\n"), true);
        cache.replied(asked, Said::LASTS, true);
        cache.look(key).is_some()
    };
    assert!(fills(&mut cache));
    let begun = PassedBy { begun: 1, ..PassedBy::default() };
    cache.know_passing(Nanos(5), (begun, 0));
    assert!(cache.look(key).is_none() && !fills(&mut cache), "it may be executed at any time");
    cache.know_passing(Nanos(6), (begun, 1));
    assert!(!fills(&mut cache), "the Redis may have it still");
    cache.know_passing(Nanos(6).plus(ORPHAN_WAIT), (begun, 1));
    assert!(cache.look(key).is_none() && fills(&mut cache));
    let both = PassedBy { begun: 2, ended: 1, ..PassedBy::default() };
    cache.know_passing(Nanos(7).plus(ORPHAN_WAIT), (both, 1));
    assert!(
        cache.look(key).is_none() && fills(&mut cache),
        "what begins and ends between two looks is noticed"
    );
}

#[test]
fn a_set_replaces_only_what_a_read_has_put_there() {
    let mut cache = ReadCache::with(Limits { admit_reads: 0, ..limits(1 << 20) }, Planted::NONE);
    let key = Key { database: 0, hash: KeyHash(1), bytes: b"\0\0\0k" };
    let touched = Touched::Keys(vec![key.hash]);
    cache.written(SeqNum(1), &touched, Some((key, b"$1\r\n1\r\n")), SeqNum(1));
    cache.replied(SeqNum(1), Said::DONE, true);
    assert_eq!(cache.look(key), None, "who may write it may have no right to read it");
    assert!(cache.passed(SeqNum(2), key, SeqNum(1)));
    cache.asked(SeqNum(2), key, Some(SeqNum(3)));
    cache.replied(SeqNum(2), Said::Reply(b"$1\r\n1\r\n"), true);
    cache.replied(SeqNum(3), Said::LASTS, true);
    assert_eq!(cache.look(key), Some(&b"$1\r\n1\r\n"[..]));
    cache.written(SeqNum(4), &touched, Some((key, b"$1\r\n2\r\n")), SeqNum(4));
    assert_eq!(cache.look(key), None, "the Redis has not taken it");
    cache.replied(SeqNum(4), Said::DONE, true);
    assert_eq!(cache.look(key), Some(&b"$1\r\n2\r\n"[..]));
}

#[test]
fn of_a_key_that_is_not_kept_few_reads_are_asked_about_until_it_is_written() {
    let mut cache = ReadCache::with(Limits { admit_reads: 0, ..limits(1 << 20) }, Planted::NONE);
    let key = Key { database: 0, hash: KeyHash(1), bytes: b"\0\0\0k" };
    let mut place = 0;
    let mut is_asked = |cache: &mut ReadCache| {
        place += 2;
        let read = SeqNum(place);
        let asks = cache.passed(read, key, read);
        if asks {
            cache.asked(read, key, Some(SeqNum(place + 1)));
            cache.replied(read, Said::Reply(b"$1\r\nv\r\n"), true);
            cache.replied(SeqNum(place + 1), Said::Nothing, true);
        }
        asks
    };
    let asked = (0..10 * (u32::from(DOUBTFUL_READS) + 1)).filter(|_| is_asked(&mut cache)).count();
    assert_eq!(asked, 10);
    cache.written(SeqNum(100_000), &Touched::Keys(vec![key.hash]), None, SeqNum(100_000));
    assert!(is_asked(&mut cache), "it may be another now");
}

#[test]
fn what_is_dealt_with_is_awaited_no_more() {
    let mut cache = ReadCache::with(Limits { admit_reads: 0, ..limits(1 << 20) }, Planted::NONE);
    cache.doubts.reads = 0;
    let key = Key { database: 0, hash: KeyHash(1), bytes: b"\0\0\0k" };
    for place in (1..1_000).step_by(2) {
        assert!(cache.passed(SeqNum(place), key, SeqNum(place)));
        cache.asked(SeqNum(place), key, Some(SeqNum(place + 1)));
    }
    assert_eq!(cache.awaited.len(), 2);
}

#[test]
fn a_reply_of_another_read_than_get_is_kept_whatever_it_is_and_gone_with_its_key_s_next_write() {
    let mut cache = ReadCache::with(Limits { admit_reads: 0, ..limits(1 << 20) }, Planted::NONE);
    let hash = KeyHash(1);
    let get = Key { database: 0, hash, bytes: b"\0\0\0k" };
    let others = [&b"\x02 one"[..], b"\x02 two", b"\x03 one"].map(|bytes| Key { database: 0, hash, bytes });
    let mut place = 0;
    let mut learn = |cache: &mut ReadCache, key, reply| {
        place += 2;
        if cache.passed(SeqNum(place), key, SeqNum(place)) {
            cache.asked(SeqNum(place), key, Some(SeqNum(place + 1)));
        }
        cache.replied(SeqNum(place), Said::Reply(reply), true);
        cache.replied(SeqNum(place + 1), Said::LASTS, true);
    };
    for null in [&b"$-1\r\n"[..], b"_\r\n"] {
        learn(&mut cache, get, null);
        assert_eq!(cache.look(get), None, "it is written otherwise in the other version");
        cache.doubts.end_all();
    }
    let replies = [&b"_\r\n"[..], b"%0\r\n", b":5\r\n"];
    learn(&mut cache, get, b"$1\r\nv\r\n");
    for (key, reply) in others.into_iter().zip(replies) {
        learn(&mut cache, key, reply);
    }
    assert_eq!(
        others.map(|key| cache.look(key).map(<[u8]>::to_vec)),
        replies.map(|reply| Some(reply.to_vec()))
    );
    let overwrite = Some((get, &b"$1\r\nw\r\n"[..]));
    cache.written(SeqNum(100), &Touched::Keys(vec![hash]), overwrite, SeqNum(100));
    cache.replied(SeqNum(100), Said::DONE, true);
    assert_eq!(cache.look(get), Some(&b"$1\r\nw\r\n"[..]));
    assert!(others.iter().all(|key| cache.look(*key).is_none()), "a SET says nothing of them");
}
