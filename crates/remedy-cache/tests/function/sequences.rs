//! Packets in an order of chance, true ones, old ones and damaged ones, before a model of the server.
//!
//! The model executes what was passed on by order numbers and barriers, when chance says, and answers when chance says.
//! Whatever the device answers has to be what the server holds when everything that has passed is executed, and no write
//! of that key may be left of which the order does not say when. `SEQUENCE_SEEDS=n` tries another number of seeds,
//! `SEED=n` one.

use crate::bench::{answered, command, key_hash, response, value, Bench, Outcome, FOR_EVER, LEASE, SERVER};
use remedy_cache::{CacheFault, Limits, Planted};
use scotfree_core::{Durability, KeyHash, SeqNum};
use scotfree_session::by_hand::{address, client_address, header, session_keys};
use scotfree_wire::{emit_extended, Extensions, Flags, Kind, Packet, Stamp, StampKind, Tail};
use std::collections::BTreeMap;

const KEYS: [&str; 3] = ["a", "b", "c"];
const SESSIONS: [u64; 3] = [1, 2, 3];
const STEPS: usize = 600;
/// Less than the window, in which the server has room.
const OUTSTANDING_MAX: usize = 5;

/// Numbers that look drawn by lot (`SplitMix64`).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[derive(Debug, Clone)]
enum Op {
    Get(usize),
    Set(usize, u64),
    Append(usize),
    /// Two keys, not logged.
    SetTwo([usize; 2], u64),
}

impl Op {
    fn line(&self) -> String {
        match self {
            Op::Get(key) => format!("GET {}", KEYS[*key]),
            Op::Set(key, number) => format!("SET {} {number}", KEYS[*key]),
            Op::Append(key) => format!("APPEND {} x", KEYS[*key]),
            Op::SetTwo([one, two], number) => format!("MSET {} {number} {} {number}", KEYS[*one], KEYS[*two]),
        }
    }

    fn keys(&self) -> Vec<usize> {
        match self {
            Op::Get(key) | Op::Set(key, _) | Op::Append(key) => vec![*key],
            Op::SetTwo(keys, _) => keys.to_vec(),
        }
    }

    fn apply(&self, values: &mut [String]) {
        match self {
            Op::Get(_) => {}
            Op::Set(key, number) => values[*key] = number.to_string(),
            Op::Append(key) => values[*key].push('x'),
            Op::SetTwo(keys, number) => keys.iter().for_each(|key| values[*key] = number.to_string()),
        }
    }
}

/// A request that was passed on and is not executed.
#[derive(Debug, Clone)]
struct Waiting {
    of: (u64, u64),
    op: Op,
    stamp: Stamp,
}

struct Play {
    bench: Bench,
    chance: Chance,
    values: Vec<String>,
    number: u64,
    /// The last order number executed.
    executed: u64,
    waiting: Vec<Waiting>,
    /// The requests of each session that are not known to be stable, and whether they are executed.
    unstable: BTreeMap<u64, BTreeMap<u64, bool>>,
    next: BTreeMap<u64, u64>,
    /// Responses that have not passed, and those that have.
    under_way: Vec<Vec<u8>>,
    passed: Vec<Vec<u8>>,
    requests: Vec<Vec<u8>>,
    hits: u64,
}

impl Play {
    fn new(seed: u64, planted: Planted) -> Play {
        let limits = Limits { admit_reads: 0, bucket_count: 4, needs_word: false, ..Limits::default() };
        let mut bench = Bench::with(limits, planted, |_| {});
        bench.receive(SERVER, client_address(), &scotfree_session::by_hand::accept(3, 16));
        Play {
            bench,
            chance: Chance(seed),
            values: vec!["0".to_owned(); KEYS.len()],
            number: 0,
            executed: 0,
            waiting: Vec::new(),
            unstable: BTreeMap::new(),
            next: BTreeMap::new(),
            under_way: Vec::new(),
            passed: Vec::new(),
            requests: Vec::new(),
            hits: 0,
        }
    }

    fn step(&mut self) -> Result<(), String> {
        match self.chance.below(100) {
            0..30 => return self.ask(),
            30..56 => self.execute(),
            56..80 => self.answer(),
            80..82 => self.replay(),
            82..84 => self.damage(),
            84..86 => self.ask_again(),
            86..90 => self.make_durable(),
            90..99 => self.make_stable(),
            _ if self.chance.percent(20) => self.lapse(),
            _ => {}
        }
        Ok(())
    }

    // ---- clients

    fn draw(&mut self) -> (Kind, Flags, Op) {
        self.number += 1;
        let (key, number) = (self.chance.below(KEYS.len()), self.number);
        match self.chance.below(20) {
            0..14 => (Kind::Read, Flags::NONE, Op::Get(key)),
            14..17 => (Kind::Update, Flags::EARLY, Op::Set(key, number)),
            17 => (Kind::Update, Flags::NONE, Op::Append(key)),
            18 => (Kind::Bypass, Flags::NONE, Op::Set(key, number)),
            _ => (Kind::Bypass, Flags::NONE, Op::SetTwo([key, (key + 1) % KEYS.len()], number)),
        }
    }

    fn ask(&mut self) -> Result<(), String> {
        let session = SESSIONS[self.chance.below(SESSIONS.len())];
        if self.unstable.get(&session).map_or(0, BTreeMap::len) >= OUTSTANDING_MAX {
            return Ok(());
        }
        let seq = *self.next.entry(session).and_modify(|next| *next += 1).or_insert(1);
        let (kind, flags, op) = self.draw();
        let bytes = self.request(kind, flags, (session, seq), &op);
        let outcome = self.bench.receive(1, address(SERVER), &bytes);
        self.requests.push(bytes);
        self.unstable.entry(session).or_default().insert(seq, false);
        match outcome {
            Some(Outcome::PassedOn) => {
                let packet = Packet::parse(&self.bench.passed_on).expect("ours");
                let Tail::Stamp(stamp) = packet.tail() else { panic!("a request has a stamp") };
                self.waiting.push(Waiting { of: (session, seq), op, stamp: *stamp });
                Ok(())
            }
            Some(hit) => {
                self.unstable.entry(session).or_default().insert(seq, true);
                self.judge(&op, &hit)
            }
            None => Err(format!("{op:?} went nowhere")),
        }
    }

    fn request(&mut self, kind: Kind, flags: Flags, (session, seq): (u64, u64), op: &Op) -> Vec<u8> {
        let mut header = header(kind, session, seq);
        let hashes: Vec<KeyHash> = op.keys().iter().map(|key| key_hash(KEYS[*key])).collect();
        (header.flags, header.completed, header.asked) = (flags, SeqNum(seq - 1), Durability::Ram);
        header.key_hash = hashes[0];
        // Sometimes nobody says which keys there are.
        let further_keys = if self.chance.percent(70) { &hashes[1..] } else { &[] };
        let extensions = Extensions { further_keys, ..Extensions::NONE };
        let (mut bytes, client) = (Vec::new(), session_keys(session).client_to_server);
        let stamp = Tail::Stamp(Stamp::default());
        emit_extended(&header, &stamp, &extensions, &command(&op.line()), &client, &mut bytes);
        bytes
    }

    /// What was answered is what the server holds in the end.
    fn judge(&mut self, op: &Op, hit: &Outcome) -> Result<(), String> {
        let Op::Get(key) = *op else { return Err(format!("{op:?} was answered")) };
        self.hits += 1;
        let mut values = self.values.clone();
        let (mut logged, others): (Vec<_>, Vec<_>) =
            self.waiting.iter().partition(|waiting| waiting.stamp.kind == StampKind::Order);
        logged.sort_by_key(|waiting| waiting.stamp.number);
        for waiting in &logged {
            waiting.op.apply(&mut values);
        }
        let writes =
            |waiting: &&&Waiting| !matches!(waiting.op, Op::Get(_)) && waiting.op.keys().contains(&key);
        if let Some(beside) = others.iter().find(writes) {
            return Err(format!("{op:?} is answered beside {beside:?}"));
        }
        if *hit == answered(&values[key]) {
            return Ok(());
        }
        Err(format!("{op:?} is answered {hit:?} and is {}", values[key]))
    }

    // ---- the server

    fn may_be_executed(&self, waiting: &Waiting) -> bool {
        let in_order = match waiting.stamp.kind {
            StampKind::Order => waiting.stamp.number.0 == self.executed + 1,
            StampKind::Barrier => waiting.stamp.number.0 <= self.executed,
            StampKind::None => true,
        };
        let is_next = |other: &Waiting| other.of.0 != waiting.of.0 || other.of.1 >= waiting.of.1;
        in_order && self.waiting.iter().all(is_next)
    }

    fn execute(&mut self) {
        let able: Vec<usize> =
            (0..self.waiting.len()).filter(|at| self.may_be_executed(&self.waiting[*at])).collect();
        if able.is_empty() {
            return;
        }
        let Waiting { of, op, stamp } = self.waiting.remove(able[self.chance.below(able.len())]);
        self.executed += u64::from(stamp.kind == StampKind::Order);
        op.apply(&mut self.values);
        let bytes = match op {
            Op::Get(key) => response(of, &value(&self.values[key]), FOR_EVER),
            _ => response(of, b"\x01\x00+OK\r\n", None),
        };
        self.under_way.push(bytes);
        self.unstable.entry(of.0).or_default().insert(of.1, true);
    }

    fn answer(&mut self) {
        if !self.under_way.is_empty() {
            let at = self.chance.below(self.under_way.len());
            let bytes = self.under_way.swap_remove(at);
            self.bench.receive(SERVER, client_address(), &bytes);
            self.passed.push(bytes);
        }
    }

    fn make_stable(&mut self) {
        let session = SESSIONS[self.chance.below(SESSIONS.len())];
        let unstable = self.unstable.entry(session).or_default();
        let stable = unstable.iter().take_while(|(_, executed)| **executed).last().map(|(seq, _)| *seq);
        if let Some(stable) = stable {
            *unstable = unstable.split_off(&(stable + 1));
            self.bench.stable(session, stable);
        }
    }

    fn make_durable(&mut self) {
        let logged = self.waiting.iter().filter(|waiting| waiting.stamp.kind == StampKind::Order);
        let names: Vec<(u64, u64)> = logged.map(|waiting| waiting.of).collect();
        for (session, seq) in names {
            self.bench.durable(session, seq);
        }
    }

    // ---- what is not as it should be

    /// A response that has passed passes again.
    fn replay(&mut self) {
        if !self.passed.is_empty() {
            let bytes = self.passed[self.chance.below(self.passed.len())].clone();
            self.bench.receive(SERVER, client_address(), &bytes);
        }
    }

    /// A response is damaged, or bears what nobody has said.
    fn damage(&mut self) {
        if let Some(mut bytes) = self.under_way.last().cloned() {
            let (at, bit) = (self.chance.below(bytes.len()), self.chance.below(8));
            bytes[at] ^= 1 << bit;
            self.bench.receive(SERVER, client_address(), &bytes);
        }
    }

    /// A request comes again; what it is answered then is no answer to anything new.
    fn ask_again(&mut self) {
        if !self.requests.is_empty() {
            let bytes = self.requests[self.chance.below(self.requests.len())].clone();
            self.bench.receive(1, address(SERVER), &bytes);
        }
    }

    /// The lease ends, somebody writes past the device, and it has another.
    fn lapse(&mut self) {
        self.number += 1;
        let key = self.chance.below(KEYS.len());
        self.bench.now = self.bench.now.plus(LEASE);
        Op::Set(key, self.number).apply(&mut self.values);
        self.bench.lease(SERVER, LEASE);
    }
}

/// How many reads were answered, or what was wrong.
fn play(seed: u64, planted: Planted) -> Result<u64, String> {
    let mut play = Play::new(seed, planted);
    for step in 0..STEPS {
        play.step().map_err(|wrong| format!("seed {seed}, step {step}: {wrong}"))?;
    }
    Ok(play.hits)
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("SEED") {
        return seed..seed + 1;
    }
    0..number("SEQUENCE_SEEDS").unwrap_or(default)
}

#[test]
fn whatever_passes_in_whatever_order_what_is_answered_is_what_the_server_holds() {
    let seeds = seeds(1_000);
    let hits: Result<Vec<u64>, String> = seeds.clone().map(|seed| play(seed, Planted::NONE)).collect();
    let hits: u64 = hits.unwrap_or_else(|wrong| panic!("{wrong}")).iter().sum();
    assert!(hits > 10 * (seeds.end - seeds.start), "{hits} hits");
}

#[test]
fn sequences_find_which_rule_is_off() {
    let faults = [
        CacheFault::ServeStale,
        CacheFault::FillBelowVersion,
        CacheFault::FillBesideUnderWay,
        CacheFault::ForgetVersion,
        CacheFault::IgnoreFurtherKeys,
        CacheFault::PendingBesideUnderWay,
        CacheFault::NoFloor,
    ];
    for fault in faults {
        let found = (0..2_000).find_map(|seed| play(seed, Planted::some(fault)).err());
        println!("{fault:?}: {}", found.unwrap_or_else(|| panic!("{fault:?} is not found")));
    }
}
