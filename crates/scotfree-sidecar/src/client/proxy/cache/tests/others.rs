//! Others who write the Redis of chance past the proxy, and the connection by which that Redis tells of it: no answer
//! shows what was replaced longer than the bound before, and each rule that is switched off is found.

use super::super::super::tracking::Tracking;
use super::*;
use std::collections::BTreeSet;

const BOUND: Nanos = Nanos::from_millis(40);
const NOTHING_KNOWN: &[u8] = b">2\r\n$10\r\ninvalidate\r\n_\r\n";

/// Both ends of the connection: the machine, and what the Redis keeps for it.
pub(super) struct Others {
    pub machine: Tracking,
    /// The Redis tells of writes.
    is_tracked: bool,
    /// PINGs that it has not heard.
    pings: u64,
    /// A script runs: what else is asked in this turn of its loop is refused.
    is_busy: bool,
    /// What has changed in this turn.
    changed: BTreeSet<[u8; 1]>,
    /// What is to be sent at its end.
    buffered: Vec<Vec<u8>>,
    /// What is sent and not heard.
    wire: VecDeque<Vec<u8>>,
    /// Until then nothing moves on the connection.
    stalled_until: Nanos,
    /// When a key was written by others, and what was there before.
    replaced: Vec<(Nanos, u8, Option<u64>)>,
}

impl Others {
    fn new() -> Others {
        Others {
            machine: Tracking::new(BOUND),
            is_tracked: false,
            pings: 0,
            is_busy: false,
            changed: BTreeSet::new(),
            buffered: Vec::new(),
            wire: VecDeque::new(),
            stalled_until: Nanos(0),
            replaced: Vec::new(),
        }
    }

    /// What a key has been since the bound before this time.
    pub fn were(&self, now: Nanos, key: u8) -> impl Iterator<Item = Option<u64>> + '_ {
        let lately = self.replaced.iter().filter(move |(at, of, _)| *of == key && now.since(*at) <= BOUND);
        lately.map(|(_, _, before)| *before)
    }

    /// The proxy writes these, or all: nothing that was there before may be shown behind that.
    pub fn forget(&mut self, keys: Option<[u8; 2]>) {
        self.replaced.retain(|(_, of, _)| keys.is_some_and(|keys| !keys.contains(of)));
    }

    /// The end of a turn of the Redis' loop: only now it writes what has changed, behind what it has answered.
    fn end_turn(&mut self) {
        let mut push = format!(">2\r\n$10\r\ninvalidate\r\n*{}\r\n", self.changed.len()).into_bytes();
        for [name] in &self.changed {
            push.extend([b"$1\r\n", &[*name][..], b"\r\n"].concat());
        }
        if !std::mem::take(&mut self.changed).is_empty() {
            self.buffered.push(push);
        }
        self.wire.extend(self.buffered.drain(..));
        self.is_busy = false;
    }

    /// Scripts that take long let the Redis answer others within a turn.
    fn run_long(&mut self) {
        self.is_busy = true;
        self.wire.extend(self.buffered.drain(..));
    }

    fn answer_ping(&mut self) {
        if self.pings > 0 {
            self.pings -= 1;
            let answer: &[u8] = if self.is_busy { b"-BUSY a script runs\r\n" } else { b"+PONG\r\n" };
            self.buffered.push(answer.to_vec());
        }
    }

    /// From now on, which is within one turn, the Redis tells of writes.
    fn connect(&mut self) {
        self.machine.on_connected(None);
        self.machine.sent(self.machine.output().len());
        self.is_tracked = true;
        self.wire.push_back(b"%0\r\n+OK\r\n".to_vec());
    }

    fn disconnect(&mut self) {
        self.machine.close();
        (self.is_tracked, self.pings, self.is_busy) = (false, 0, false);
        self.changed.clear();
        self.buffered.clear();
        self.wire.clear();
    }
}

impl World {
    /// Something has changed a key, whoever did.
    pub(super) fn tell(&mut self, key: u8) {
        if let Some(others) = self.others.as_mut().filter(|others| others.is_tracked) {
            others.changed.insert(name_of(key));
        }
    }

    fn tell_all(&mut self) {
        if let Some(others) = self.others.as_mut().filter(|others| others.is_tracked) {
            others.buffered.push(NOTHING_KNOWN.to_vec());
        }
    }

    /// What the proxy writes is told as well.
    pub(super) fn note_change(&mut self, request: Request) {
        match request.op {
            _ if request.is_refused => {}
            Op::Get(_) | Op::Other(_) | Op::Question(_) => {}
            Op::Set(key, _) | Op::Script(key, _) | Op::SetMortal(key, _) => self.tell(key),
            Op::Both(one, other, _) => [one, other].into_iter().for_each(|key| self.tell(key)),
            Op::Flush => self.tell_all(),
        }
    }

    /// Somebody writes past the proxy.
    pub(super) fn write_past(&mut self) {
        let before: Vec<Option<u64>> = (0..KEYS).map(|key| self.truth(key)).collect();
        let key = self.chance.below(u64::from(KEYS)) as u8;
        self.written += 1;
        let kind = self.chance.below(8);
        match kind {
            0 => self.data.clear(),
            1 => _ = self.data.remove(&key),
            2 => _ = self.data.insert(key, (self.written, true)),
            _ => _ = self.data.insert(key, (self.written, false)),
        }
        let (now, is_all) = (self.now, kind == 0);
        let Some(others) = &mut self.others else { return };
        for (of, before) in (0..KEYS).zip(before) {
            if is_all || of == key {
                others.replaced.push((now, of, before));
            }
        }
        if is_all {
            self.tell_all();
        } else {
            self.tell(key);
        }
    }

    /// The connection by which the Redis tells is lost.
    pub(super) fn lose_teller(&mut self) {
        if let Some(others) = &mut self.others {
            others.disconnect();
            self.cache.on_told(Told::Lost);
        }
    }

    /// The connection, or the Redis' loop, goes on a little.
    pub(super) fn step_of_others(&mut self) {
        let (what, time) = (self.chance.below(200), Nanos::from_millis(self.chance.below(150)));
        let Some(others) = self.others.as_mut().filter(|others| others.stalled_until <= self.now) else {
            return;
        };
        match what {
            0 => self.lose_teller(),
            1..=3 => others.run_long(),
            4 => others.stalled_until = self.now.plus(time),
            5..=43 if !others.is_tracked => others.connect(),
            5..=43 => {
                others.machine.on_time(self.now);
                let sent = others.machine.output().len();
                others.pings += u64::from(sent > 0);
                others.machine.sent(sent);
            }
            44..=83 => others.answer_ping(),
            84..=123 => others.end_turn(),
            _ => {
                let Some(bytes) = others.wire.pop_front() else { return };
                let cache = &mut self.cache;
                others
                    .machine
                    .on_bytes(&bytes, &mut |told| cache.on_told(told))
                    .expect("it is what is awaited");
            }
        }
    }
}

fn world(seed: u64, fault: Option<Fault>, planted: Planted) -> World {
    let mut world = World::new(seed, fault, planted);
    world.cache.allow_others(BOUND);
    world.others = Some(Others::new());
    world
}

fn run(seed: u64, fault: Option<Fault>, planted: Planted) -> Result<u64, String> {
    play(world(seed, fault, planted), seed)
}

#[test]
fn nothing_is_answered_that_others_replaced_longer_than_the_bound_before() {
    let hits: u64 = (0..8_000).map(|seed| run(seed, None, Planted::NONE).expect("in time")).sum();
    assert!(hits > 10_000, "{hits}: something is answered");
}

#[test]
fn every_rule_of_others_that_is_left_out_is_found() {
    let is_found =
        |fault, planted: fn() -> Planted| (0..20_000).any(|seed| run(seed, fault, planted()).is_err());
    for fault in [Fault::ServeUntold, Fault::IgnoreTold, Fault::KeepUntold] {
        assert!(is_found(Some(fault), || Planted::NONE), "{fault:?}");
    }
    // There are no tunnels: only what the Redis tells makes a floor.
    assert!(is_found(None, || Planted::some(CacheFault::NoFloor)), "what is told makes no floor");
    let at_once = |seed| {
        let mut world = world(seed, None, Planted::NONE);
        world.others.as_mut().expect("there are some").machine.counts_at_once = true;
        play(world, seed).is_err()
    };
    assert!((0..20_000).any(at_once), "a PING counts when it is answered");
}

#[test]
fn a_key_that_others_write_is_forgotten_in_every_database_and_when_nobody_tells_all_are() {
    let mut cache = ReadCache::with(Limits { admit_reads: 0, ..limits(1 << 20) }, Planted::NONE);
    cache.allow_others(BOUND);
    let keys = [0, 3].map(|database| (database, KeyHash::of(database, b"k")));
    let keys = keys.map(|(database, hash)| Key {
        database,
        hash,
        bytes: if database == 0 { b"\0\0\0k" } else { b"\0\x03\0k" },
    });
    let mut place = 0;
    let mut learn = |cache: &mut ReadCache| {
        for key in keys {
            place += 2;
            if cache.passed(SeqNum(place), key, SeqNum(place)) {
                cache.asked(SeqNum(place), key, Some(SeqNum(place + 1)));
            }
            cache.replied(SeqNum(place), Said::Reply(b"$1\r\nv\r\n"), true);
            cache.replied(SeqNum(place + 1), Said::LASTS, true);
        }
    };
    let known = |cache: &mut ReadCache| keys.map(|key| cache.look(key).is_some());
    let begin = |cache: &mut ReadCache| {
        cache.on_told(Told::Begun);
        cache.set_answering(true);
        cache.on_told(Told::Until(Nanos::from_millis(7)));
        cache.know_time(Nanos::from_millis(47));
    };
    learn(&mut cache);
    begin(&mut cache);
    assert_eq!(known(&mut cache), [false; 2], "what was read before the Redis told of writes");
    learn(&mut cache);
    assert_eq!(known(&mut cache), [true; 2]);
    cache.know_time(Nanos::from_millis(48));
    assert_eq!(known(&mut cache), [false; 2], "it was long ago");
    cache.on_told(Told::Until(Nanos::from_millis(40)));
    assert_eq!(known(&mut cache), [true; 2], "it is known all the same");
    cache.on_told(Told::Key(b"l"));
    assert_eq!(known(&mut cache), [true; 2]);
    cache.on_told(Told::Key(b"k"));
    assert_eq!(known(&mut cache), [false; 2]);
    learn(&mut cache);
    assert_eq!(known(&mut cache), [true; 2]);
    cache.on_told(Told::Lost);
    begin(&mut cache);
    assert_eq!(known(&mut cache), [false; 2], "nobody has told of what was written meanwhile");
    let mut text = MetricsText::new();
    cache.write_metrics(&mut text);
    let text = text.as_str();
    assert!(text.contains("scotfree_cache_stale_max_seconds 0.04\n"), "{text}");
    assert!(text.contains("scotfree_cache_stale_seconds_count 8\n"), "{text}");
}
