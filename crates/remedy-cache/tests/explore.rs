//! One key, all that can happen: every interleaving of one write with three reads and of two with two; of three with
//! two, but for when slots are durable and when the word of stability comes. Wires keep no order, and the server
//! executes by order numbers and barriers.
//!
//! A history is right if there is one order of the writes (the server's) in which every read shows the newest write
//! before it: no write that was complete before the read began is missing, no read shows less than one that ended
//! before it began, and none shows what began after it ended. What is shown must not be able to vanish.

use remedy_cache::{Cache, CacheFault, Kept, Limits, Logged, Look, Planted, Read, Reply, Scope};
use scotfree_core::{BootEpoch, KeyHash, Nanos, OrderKey, OrderNumber, SeqNum, ServerIndex, SessionId};
use scotfree_device::SessionName;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

const NOW: Nanos = Nanos(1);
const KEY: (KeyHash, &[u8]) = (KeyHash(7), b"key");

/// What a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Logged; its value is known.
    Set,
    /// Logged; its result only the server knows.
    Increment,
    /// Not logged.
    Unlogged,
}

use Kind::{Increment, Set, Unlogged};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)] // Independent facts of one write.
struct Write {
    /// Its place in the order, or its barrier.
    number: u64,
    sent: bool,
    durable: bool,
    executed: bool,
    replied: bool,
    acknowledged: bool,
    /// Its caller was told.
    complete: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Reading {
    barrier: u64,
    sent: bool,
    executed: bool,
    complete: bool,
    /// The write that it shows, from 1; 0 if none.
    shows: usize,
    /// What was complete when it began: bits.
    writes_before: u8,
    reads_before: u8,
    /// What had not begun when it ended.
    writes_after: u8,
}

#[derive(Debug, Clone, Hash)]
struct World {
    cache: Cache,
    kinds: Vec<Kind>,
    writes: Vec<Write>,
    reads: Vec<Reading>,
    numbers: u64,
    /// The server's order.
    executed: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    PassWrite(usize),
    PassRead(usize),
    Durable(usize),
    ExecuteWrite(usize),
    ExecuteRead(usize),
    ReplyToWrite(usize),
    ReplyToRead(usize),
    Acknowledge(usize),
}

fn name(id: usize) -> (SessionName, SeqNum) {
    (SessionName { server: ServerIndex(0), id: SessionId(id as u64 + 1) }, SeqNum(1))
}

fn order(number: u64) -> OrderKey {
    (BootEpoch(1), OrderNumber(number))
}

fn bits(flags: impl Iterator<Item = bool>) -> u8 {
    flags.enumerate().fold(0, |bits, (at, flag)| bits | u8::from(flag) << at)
}

impl World {
    fn new(kinds: &[Kind], planted: Planted) -> World {
        let limits = Limits { bucket_count: 1, admit_reads: 0, needs_word: false, ..Limits::default() };
        World {
            cache: Cache::new(limits, planted),
            kinds: kinds.to_vec(),
            writes: vec![Write::default(); kinds.len()],
            // One read fills and one is answered; a third can show that time has gone backward.
            reads: vec![Reading::default(); if kinds.len() == 1 { 3 } else { 2 }],
            numbers: 0,
            executed: Vec::new(),
        }
    }

    /// With three writes a slot is durable at once, and the word of stability comes with the reply: apart they would be
    /// too many.
    fn is_long(&self) -> bool {
        self.kinds.len() > 2
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if let Some(next) = self.writes.iter().position(|write| !write.sent) {
            steps.push(Step::PassWrite(next));
        }
        if let Some(next) = self.reads.iter().position(|read| !read.sent) {
            steps.push(Step::PassRead(next));
        }
        for (at, write) in self.writes.iter().enumerate().filter(|(_, write)| write.sent) {
            let logged = self.kinds[at] != Unlogged;
            let number = write.number;
            if logged && !write.durable {
                steps.push(Step::Durable(at));
            }
            if !write.executed && self.has_executed(if logged { number - 1 } else { number }) {
                steps.push(Step::ExecuteWrite(at));
            }
            if write.executed && !write.replied {
                steps.push(Step::ReplyToWrite(at));
            }
            if write.executed && !write.acknowledged && !self.is_long() {
                steps.push(Step::Acknowledge(at));
            }
        }
        for (at, read) in self.reads.iter().enumerate().filter(|(_, read)| read.sent && !read.complete) {
            if read.executed {
                steps.push(Step::ReplyToRead(at));
            } else if self.has_executed(read.barrier) {
                steps.push(Step::ExecuteRead(at));
            }
        }
        steps
    }

    /// Whether the server has executed all logged writes up to this number.
    fn has_executed(&self, number: u64) -> bool {
        let is_before = |at: &usize| self.kinds[*at] != Unlogged && self.writes[*at].number <= number;
        (0..self.writes.len())
            .filter(|at| self.writes[*at].sent)
            .filter(is_before)
            .all(|at| self.writes[at].executed)
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::PassWrite(at) => self.pass_write(at),
            Step::PassRead(at) => return self.pass_read(at),
            Step::Durable(at) => self.make_durable(at),
            Step::ExecuteWrite(at) => {
                self.writes[at].executed = true;
                self.executed.push(at + 1);
            }
            Step::ExecuteRead(at) => {
                self.reads[at].executed = true;
                self.reads[at].shows = self.executed.last().copied().unwrap_or(0);
            }
            Step::ReplyToWrite(at) => {
                (self.writes[at].replied, self.writes[at].complete) = (true, true);
                self.cache.on_reply(NOW, name(at), &Reply::Passing);
                if self.is_long() {
                    return self.take(Step::Acknowledge(at));
                }
            }
            Step::ReplyToRead(at) => {
                let value = [self.reads[at].shows as u8];
                let kept = Kept { value: &value, lives: Nanos::MAX };
                self.cache.on_reply(NOW, name(10 + at), &Reply::Kept(kept));
                self.end_read(at);
            }
            Step::Acknowledge(at) => {
                self.writes[at].acknowledged = true;
                let (session, seq) = name(at);
                self.cache.on_stable(session, seq);
            }
        }
        Ok(())
    }

    fn pass_write(&mut self, at: usize) {
        self.writes[at].sent = true;
        let scope = Scope::Keys(KEY.0, &[]);
        self.numbers += u64::from(self.kinds[at] != Unlogged);
        self.writes[at].number = self.numbers;
        let value = [at as u8 + 1];
        let overwrite = (self.kinds[at] == Set).then_some((KEY.1, &value[..]));
        match self.kinds[at] {
            Set | Increment => {
                let write = Logged { name: name(at), order: order(self.numbers), scope, overwrite };
                self.cache.on_logged(&write);
                if self.is_long() {
                    self.make_durable(at);
                }
            }
            Unlogged => self.cache.on_unlogged(name(at), &scope),
        }
    }

    fn make_durable(&mut self, at: usize) {
        (self.writes[at].durable, self.writes[at].complete) = (true, true);
        self.cache.on_durable(name(at));
    }

    fn pass_read(&mut self, at: usize) -> Result<(), String> {
        let read = &mut self.reads[at];
        (read.sent, read.barrier) = (true, self.numbers);
        read.writes_before = bits(self.writes.iter().map(|write| write.complete));
        self.reads[at].reads_before = bits(self.reads.iter().map(|read| read.complete));
        let barrier = Some(order(self.numbers));
        let read = Read {
            name: name(10 + at),
            key_hash: KEY.0,
            key: KEY.1,
            barrier,
            answerable: true,
            has_elders: false,
        };
        let Look::Hit(slot) = self.cache.on_read(NOW, &read) else {
            self.cache.on_read_passed(NOW, &read, SeqNum(0));
            return Ok(());
        };
        let shows = usize::from(self.cache.value(slot)[0]);
        self.reads[at].shows = shows;
        self.end_read(at);
        let kept = shows
            .checked_sub(1)
            .is_none_or(|write| self.writes[write].durable || self.writes[write].executed);
        kept.then_some(()).ok_or_else(|| format!("write {shows} is shown and can still vanish"))
    }

    fn end_read(&mut self, at: usize) {
        self.reads[at].complete = true;
        self.reads[at].writes_after = bits(self.writes.iter().map(|write| !write.sent));
    }

    /// All is over: does the server's order explain what was shown?
    fn judge(&self) -> Result<(), String> {
        let place = |write: usize| {
            self.executed.iter().position(|executed| *executed == write).map_or(0, |at| at + 1)
        };
        let is_in = |bits: u8, at: usize| bits & (1 << at) != 0;
        for (at, read) in self.reads.iter().enumerate() {
            let shown = place(read.shows);
            for write in 0..self.writes.len() {
                if is_in(read.writes_before, write) && place(write + 1) > shown {
                    return Err(format!(
                        "read {at} shows {}, and {} was complete before",
                        read.shows,
                        write + 1
                    ));
                }
                if is_in(read.writes_after, write) && place(write + 1) <= shown {
                    return Err(format!(
                        "read {at} shows {}, behind {} which came later",
                        read.shows,
                        write + 1
                    ));
                }
            }
            let earlier = (0..self.reads.len()).filter(|other| is_in(read.reads_before, *other));
            if let Some(newer) =
                earlier.map(|other| self.reads[other].shows).find(|seen| place(*seen) > shown)
            {
                return Err(format!("read {at} shows {}, and {newer} was seen before", read.shows));
            }
        }
        Ok(())
    }
}

/// What an exploration has come to.
#[derive(Debug, Default)]
struct Explored {
    seen: BTreeSet<u64>,
    hits: usize,
    ends: usize,
}

impl Explored {
    fn explore(&mut self, world: &World, path: &mut Vec<Step>) -> Result<(), String> {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        if !self.seen.insert(hasher.finish()) {
            return Ok(());
        }
        let steps = world.steps();
        if steps.is_empty() {
            self.ends += 1;
            return world.judge().map_err(|why| format!("{:?}: {why}: {path:?}", world.kinds));
        }
        for step in steps {
            let mut next = world.clone();
            path.push(step);
            next.take(step).map_err(|why| format!("{:?}: {why}: {path:?}", world.kinds))?;
            self.hits += usize::from(matches!(step, Step::PassRead(at) if next.reads[at].complete));
            self.explore(&next, path)?;
            path.pop();
        }
        Ok(())
    }
}

/// All sequences of one to `length_max` writes.
fn sequences(length_max: usize) -> Vec<Vec<Kind>> {
    let mut all: Vec<Vec<Kind>> = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..length_max {
        let longer: Vec<Vec<Kind>> = all[begin..]
            .iter()
            .flat_map(|shorter| [Set, Increment, Unlogged].map(|kind| [&shorter[..], &[kind]].concat()))
            .collect();
        begin = all.len();
        all.extend(longer);
    }
    all.split_off(1)
}

fn explore_all(length_max: usize, planted: Planted) -> Result<Explored, String> {
    let mut total = Explored::default();
    for kinds in sequences(length_max) {
        let mut explored = Explored::default();
        explored.explore(&World::new(&kinds, planted), &mut Vec::new())?;
        total.hits += explored.hits;
        total.ends += explored.ends;
    }
    Ok(total)
}

/// What one key can show.
const OF_ONE_KEY: [CacheFault; 7] = [
    CacheFault::ServeStale,
    CacheFault::FillBelowVersion,
    CacheFault::FillBesideUnderWay,
    CacheFault::ForgetVersion,
    CacheFault::ServeBeforeDurable,
    CacheFault::PendingBesideUnderWay,
    CacheFault::NoFloor,
];

#[test]
fn whatever_happens_to_one_key_every_answer_is_one_that_the_server_could_have_given() {
    assert_eq!(sequences(3).len(), 39);
    let explored = explore_all(3, Planted::NONE).expect("the rules hold");
    println!("{} ends, {} answers", explored.ends, explored.hits);
    assert!(
        explored.ends > 10_000 && explored.hits > 10_000,
        "{} ends, {} answers",
        explored.ends,
        explored.hits
    );
}

#[test]
fn every_planted_fault_that_one_key_can_show_is_found() {
    for fault in OF_ONE_KEY {
        let found = explore_all(3, Planted::some(fault)).expect_err(&format!("{fault:?} is not found"));
        println!("{fault:?}: {found}");
    }
}
