//! Several keys, by chance: keys of one hash, writes to several and to all, values that expire, leases that lapse while
//! others write past the device, servers with other data, clients that die, devices that start again. What clients saw
//! decides alone.
//!
//! Of each key the server's changes are in one order, with the moment of each. A read is right if between its beginning
//! and its end the key had the value that it shows, and values shown never go back: not behind a write whose caller has
//! been told, not behind an earlier read. `CHANCE_SEEDS=n` tries another number of seeds, `SEED=n` one.

use remedy_cache::{
    Cache, CacheFault, Cause, Kept, Limits, Logged, Look, Planted, Read, Reply, RequestName, Scope,
};
use scotfree_core::{BootEpoch, KeyHash, Nanos, OrderKey, OrderNumber, SeqNum, ServerIndex, SessionId};
use scotfree_device::SessionName;

const KEYS: [(KeyHash, &[u8]); 5] = [
    (KeyHash(1), b"a"),
    (KeyHash(2), b"b"),
    // Of one hash with the first, and of one bucket with the second.
    (KeyHash(1), b"c"),
    (KeyHash(6), b"d"),
    (KeyHash(3), b"e"),
];
const STEPS: usize = 400;
/// What the server takes for gone.
const NOTHING: u64 = u64::MAX;

/// Numbers that look drawn by lot (`SplitMix64`).
struct Chance(u64);

impl Chance {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// What a key holds from a moment on.
#[derive(Debug, Clone, Copy)]
struct Change {
    value: u64,
    until: u64,
}

#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // Independent facts of one write.
struct Write {
    name: RequestName,
    keys: Vec<usize>,
    value: u64,
    /// When it ends to be true by itself.
    lives: Option<u64>,
    order: Option<OrderKey>,
    barrier: OrderKey,
    executed: bool,
    durable: bool,
    replied: bool,
    stable: bool,
    told: bool,
    /// Nobody will execute it any more.
    given_up: bool,
}

#[derive(Debug, Clone)]
struct Asked {
    name: RequestName,
    key: usize,
    barrier: OrderKey,
    /// The oldest change that it may show.
    oldest: usize,
    shows: Option<(usize, u64)>,
}

struct World {
    chance: Chance,
    cache: Cache,
    planted: Planted,
    now: u64,
    boot: u32,
    number: u64,
    leased: bool,
    /// Of each client its session and the next place there.
    sessions: [(u64, u64); 3],
    writes: Vec<Write>,
    asked: Vec<Asked>,
    /// Of each key, from the first.
    changes: Vec<Vec<Change>>,
    /// Of each key, the newest change that somebody knows of.
    known: Vec<usize>,
    values: u64,
    hits: u64,
}

impl World {
    fn new(seed: u64, planted: Planted) -> World {
        World {
            chance: Chance(seed),
            cache: new_cache(planted),
            planted,
            now: 1,
            boot: 1,
            number: 0,
            leased: true,
            sessions: [(1, 1), (2, 1), (3, 1)],
            writes: Vec::new(),
            asked: Vec::new(),
            changes: vec![vec![Change { value: 0, until: u64::MAX }]; KEYS.len()],
            known: vec![0; KEYS.len()],
            values: 0,
            hits: 0,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.now += self.chance.below(3) as u64;
            self.expire();
            match self.chance.below(100) {
                0..13 => self.pass_write(),
                13..42 => self.pass_read()?,
                42..56 => self.execute_writes(),
                56..70 => self.reply_to_read(),
                70..82 => self.reply_to_write(),
                82..90 => self.make_durable(),
                90..95 => self.make_stable(),
                95..97 => self.go_past()?,
                97..98 => self.switch_server(),
                98..99 => self.start_again(),
                _ => self.lose_client(),
            }
        }
        Ok(())
    }

    fn order(&self) -> OrderKey {
        (BootEpoch(self.boot), OrderNumber(self.number))
    }

    fn take_name(&mut self, client: usize) -> RequestName {
        let (session, seq) = &mut self.sessions[client];
        let name = (SessionName { server: ServerIndex(0), id: SessionId(*session) }, SeqNum(*seq));
        *seq += 1;
        name
    }

    // ---- the server's data

    fn newest(&self, key: usize) -> usize {
        self.changes[key].len() - 1
    }

    fn change(&mut self, key: usize, value: u64, lives: Option<u64>) {
        let until = lives.map_or(u64::MAX, |lives| self.now + lives);
        self.changes[key].push(Change { value, until });
    }

    fn expire(&mut self) {
        for key in 0..KEYS.len() {
            if self.changes[key].last().is_some_and(|change| change.until <= self.now) {
                self.change(key, NOTHING, None);
            }
        }
    }

    // ---- writes

    fn pass_write(&mut self) {
        let client = self.chance.below(3);
        let mut keys = vec![self.chance.below(KEYS.len())];
        let is_several = self.chance.percent(25);
        if is_several {
            keys.push((keys[0] + 1 + self.chance.below(KEYS.len() - 1)) % KEYS.len());
        }
        let is_logged = self.leased && self.chance.percent(70);
        let is_unknown = is_several && self.chance.percent(30);
        let lives = self.chance.percent(20).then(|| 1 + self.chance.below(20) as u64);
        let is_set = keys.len() == 1 && lives.is_none() && self.chance.percent(60);
        self.values += 1;
        self.number += u64::from(is_logged);
        let name = self.take_name(client);
        let order = is_logged.then(|| self.order());
        let further: Vec<KeyHash> = keys[1..].iter().map(|key| KEYS[*key].0).collect();
        let scope = if is_unknown { Scope::All } else { Scope::Keys(KEYS[keys[0]].0, &further) };
        let value = self.values.to_le_bytes();
        match order {
            Some(order) => {
                let overwrite = is_set.then_some((KEYS[keys[0]].1, &value[..]));
                self.cache.on_logged(&Logged { name, order, scope, overwrite });
            }
            None => self.cache.on_unlogged(name, &scope),
        }
        self.writes.push(Write {
            name,
            keys,
            value: self.values,
            lives,
            order,
            barrier: self.order(),
            executed: false,
            durable: false,
            replied: false,
            stable: false,
            told: false,
            given_up: false,
        });
    }

    fn is_over(write: &Write) -> bool {
        write.executed || write.given_up
    }

    /// Whether a session has come to this write, and every logged one before it is over.
    fn may_execute(&self, write: &Write) -> bool {
        let (session, seq) = write.name;
        let elders = self.writes.iter().filter(|other| other.name.0 == session && other.name.1 < seq);
        let before = |other: &&Write| match (other.order, write.order) {
            (Some(other), Some(own)) => other < own,
            (Some(other), None) => other <= write.barrier,
            (None, _) => false,
        };
        elders.chain(self.writes.iter().filter(before)).all(World::is_over)
    }

    fn pick(&mut self, is_one: impl Fn(&World, &Write) -> bool) -> Option<usize> {
        let some: Vec<usize> = (0..self.writes.len()).filter(|at| is_one(self, &self.writes[*at])).collect();
        (!some.is_empty()).then(|| some[self.chance.below(some.len())])
    }

    fn execute_writes(&mut self) {
        for _ in 0..=self.chance.below(3) {
            let ready = |world: &World, write: &Write| !World::is_over(write) && world.may_execute(write);
            let Some(at) = self.pick(ready) else { return };
            self.execute(at);
        }
    }

    fn execute(&mut self, at: usize) {
        self.writes[at].executed = true;
        let Write { keys, value, lives, .. } = self.writes[at].clone();
        for key in keys {
            self.change(key, value, lives);
        }
    }

    /// The caller of an executed write is told: whoever asks from now on must see it.
    fn know_told(&mut self) {
        for write in self.writes.iter().filter(|write| write.told && write.executed) {
            for &key in &write.keys {
                let place = self.changes[key].iter().position(|change| change.value == write.value);
                self.known[key] = self.known[key].max(place.expect("it is executed"));
            }
        }
    }

    fn reply_to_write(&mut self) {
        let Some(at) = self.pick(|_, write| write.executed && !write.replied) else { return };
        self.writes[at].replied = true;
        self.writes[at].told = true;
        self.cache.on_reply(Nanos(self.now), self.writes[at].name, &Reply::Passing);
    }

    /// Whether nothing can take a logged write back: it is durable, and so is what stands before it in its session.
    fn is_safe(&self, write: &Write) -> bool {
        let elders =
            self.writes.iter().filter(|other| other.name.0 == write.name.0 && other.name.1 < write.name.1);
        write.durable && !write.given_up && elders.into_iter().all(|elder| elder.durable || elder.stable)
    }

    /// A slot is durable. Who is safe then is told so, and served, as the function asks for.
    fn make_durable(&mut self) {
        let Some(at) = self.pick(|_, write| write.order.is_some() && !write.durable && !write.given_up)
        else {
            return;
        };
        self.writes[at].durable = true;
        for at in 0..self.writes.len() {
            let is_safe = self.is_safe(&self.writes[at]);
            let write = &mut self.writes[at];
            write.told |= is_safe;
            if is_safe || write.durable && self.planted.is(CacheFault::ServeOverUnsafe) {
                self.cache.on_durable(write.name);
            }
        }
    }

    /// A session's stability goes in its order.
    fn make_stable(&mut self) {
        let next = |world: &World, write: &Write| {
            let elders = world
                .writes
                .iter()
                .filter(|other| other.name.0 == write.name.0 && other.name.1 < write.name.1);
            write.executed && !write.stable && elders.into_iter().all(|elder| elder.stable || elder.given_up)
        };
        let Some(at) = self.pick(next) else { return };
        self.writes[at].stable = true;
        let (session, seq) = self.writes[at].name;
        self.cache.on_stable(session, seq);
    }

    // ---- reads

    /// The oldest change that a read which begins now may show. A write that was told and not executed has no place
    /// yet: what is shown must then be the write itself, or what comes behind it.
    fn untold_before(&self, key: usize) -> Option<&Write> {
        let newest = |write: &&Write| write.told && !World::is_over(write) && write.keys.contains(&key);
        self.writes.iter().filter(newest).max_by_key(|write| write.order)
    }

    fn pass_read(&mut self) -> Result<(), String> {
        let key = self.chance.below(KEYS.len());
        let client = self.chance.below(3);
        let name = self.take_name(client);
        self.know_told();
        let (key_hash, of) = KEYS[key];
        let barrier = self.order();
        let read = Read {
            name,
            key_hash,
            key: of,
            barrier: Some(barrier),
            answerable: self.leased,
            has_elders: false,
        };
        let now = Nanos(self.now);
        match self.cache.on_read(now, &read) {
            Look::Hit(slot) => {
                let value = u64::from_le_bytes(self.cache.value(slot).try_into().expect("eight bytes"));
                self.hits += 1;
                self.judge_hit(key, value)
            }
            Look::Unsure(_) | Look::Miss(_) => {
                self.cache.on_read_passed(now, &read, SeqNum(0));
                self.asked.push(Asked { name, key, barrier, oldest: self.known[key], shows: None });
                Ok(())
            }
        }
    }

    /// What was answered at once must be what the key holds now, or what a durable write will make it hold.
    fn judge_hit(&mut self, key: usize, value: u64) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("key {key} is answered with {value}, {what}"));
        let to_come = self.writes.iter().find(|write| write.value == value && !write.executed);
        if let Some(write) = to_come {
            if !write.keys.contains(&key) {
                return wrong("which is of another key");
            }
            if !self.is_safe(write) {
                return wrong("which can vanish");
            }
            let newer = self.untold_before(key).filter(|other| other.order > write.order);
            return newer.map_or(Ok(()), |newer| wrong(&format!("and {} was told", newer.value)));
        }
        if let Some(told) = self.untold_before(key) {
            return wrong(&format!("and {} was told", told.value));
        }
        // Nothing follows that could have been seen.
        let Some(place) = self.changes[key].iter().position(|change| change.value == value) else {
            return wrong("which it never held");
        };
        if place < self.known[key] || self.changes[key][place].until <= self.now {
            return wrong(&format!("which is {} changes old", self.newest(key) - place));
        }
        self.known[key] = place;
        Ok(())
    }

    fn reply_to_read(&mut self) {
        for at in 0..self.asked.len() {
            let Asked { key, barrier, shows, .. } = self.asked[at];
            let waits = self
                .writes
                .iter()
                .any(|write| write.order.is_some_and(|order| order <= barrier) && !World::is_over(write));
            if shows.is_none() && !waits && self.chance.percent(50) {
                let newest = self.newest(key);
                let change = self.changes[key][newest];
                let lives = if change.until == u64::MAX { u64::MAX } else { change.until - self.now };
                self.asked[at].shows = Some((newest, lives));
            }
        }
        let ready: Vec<usize> = (0..self.asked.len()).filter(|at| self.asked[*at].shows.is_some()).collect();
        if ready.is_empty() {
            return;
        }
        let at = ready[self.chance.below(ready.len())];
        let Asked { name, key, oldest, shows, .. } = self.asked.swap_remove(at);
        let Some((place, lives)) = shows else { return };
        let value = self.changes[key][place].value;
        assert!(place >= oldest, "the server is right");
        self.known[key] = self.known[key].max(place);
        let bytes = value.to_le_bytes();
        let kept = Kept { value: &bytes, lives: Nanos(lives) };
        let reply = if value == NOTHING { Reply::Passing } else { Reply::Kept(kept) };
        self.cache.on_reply(Nanos(self.now), name, &reply);
    }

    // ---- what goes wrong

    /// Without a lease others write past the device; it may read meanwhile.
    fn go_past(&mut self) -> Result<(), String> {
        self.leased = false;
        self.cache.reset(Cause::Lapse);
        for _ in 0..self.chance.below(3) {
            self.values += 1;
            let key = self.chance.below(KEYS.len());
            self.change(key, self.values, None);
            self.known[key] = self.newest(key);
            self.pass_read()?;
        }
        if self.chance.percent(70) {
            self.cache.reset(Cause::Lapse);
            self.leased = true;
        }
        Ok(())
    }

    /// The operator puts other data behind the device; the device hears of the epoch before anything is served.
    fn switch_server(&mut self) {
        self.asked.clear();
        self.cache.reset(Cause::Epoch);
        for key in 0..KEYS.len() {
            if self.chance.percent(50) {
                self.values += 1;
                self.change(key, self.values, None);
                self.known[key] = self.newest(key);
            }
        }
    }

    /// The device starts again. What is under way was seen by none of it: the server has nothing of that kind left.
    fn start_again(&mut self) {
        while let Some(at) = self.pick(|world, write| !World::is_over(write) && world.may_execute(write)) {
            self.execute(at);
        }
        self.cache = new_cache(self.planted);
        (self.boot, self.number) = (self.boot + 1, 0);
        self.asked.clear();
        self.writes.iter_mut().for_each(|write| (write.replied, write.told) = (true, true));
    }

    /// A client dies, and the first of its writes that is not over is lost with it, since it was not logged: what is
    /// behind that in its session is given up. The session ends.
    fn lose_client(&mut self) {
        let client = self.chance.below(3);
        let session = SessionName { server: ServerIndex(0), id: SessionId(self.sessions[client].0) };
        let is_lost = |write: &&Write| write.name.0 == session && !World::is_over(write);
        let Some(first) = self.writes.iter().find(is_lost).filter(|write| write.order.is_none()) else {
            return;
        };
        let seq = first.name.1;
        for write in self.writes.iter_mut().filter(|write| write.name.0 == session && write.name.1 >= seq) {
            write.given_up |= !write.executed;
        }
        self.asked.retain(|asked| asked.name.0 != session);
        self.cache.on_ended(Nanos(self.now), session);
        self.sessions[client] = (self.sessions[client].0 + 3, 1);
    }
}

/// With few buckets, little room, and a short wait for what died.
fn new_cache(planted: Planted) -> Cache {
    let limits =
        Limits { bucket_count: 4, admit_reads: 0, bytes_max: 900, needs_word: false, ..Limits::default() };
    Cache::new(Limits { deadline_margin: Nanos(0), orphan_wait: Nanos(10), ..limits }, planted)
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CHANCE_SEEDS").unwrap_or(3_000),
    }
}

fn first_failure(planted: Planted) -> Result<u64, String> {
    let mut hits = 0;
    for seed in seeds() {
        let mut world = World::new(seed, planted);
        world.run().map_err(|why| format!("seed {seed}: {why}"))?;
        hits += world.hits;
    }
    Ok(hits)
}

#[test]
fn whatever_happens_every_answer_is_what_the_key_holds() {
    let hits = first_failure(Planted::NONE).unwrap_or_else(|why| panic!("{why}"));
    println!("{hits} answers");
    assert!(hits > seeds().count() as u64 * 3, "{hits}");
}

#[test]
fn every_planted_fault_is_found() {
    // Here everybody asks one thing at a time, and nobody asks again: what breaks the order of one who does, whole worlds
    // show (crates/scotfree-sim/tests/cache).
    let of_worlds = [CacheFault::ServeBeforeElders, CacheFault::TakeOldForNew, CacheFault::OutliveUnexecuted];
    for fault in CacheFault::ALL.into_iter().filter(|fault| !of_worlds.contains(fault)) {
        let found = first_failure(Planted::some(fault)).expect_err(&format!("{fault:?} is not found"));
        println!("{fault:?}: {found}");
    }
}
