//! What may be answered: the rules of keys and entries.
//!
//! Invariant: an entry that is served is the newest value of its key. It shows either the newest logged write, and no
//! other write of the key has passed since, or the reply of a read that the server had to execute behind all writes
//! that had passed. docs/design/cache.md has the rules K1 to K12.

mod asked;
mod shown;

pub use asked::{Listed, Why};

use crate::counters::{CacheCounters, Missed, Refused};
use crate::fault::{CacheFault, Planted};
use crate::shelf::{Shelf, Slot};
use crate::track::{Bucket, Place, Track};
use scotfree_core::{KeyHash, Nanos, OrderKey, SeqNum, SessionName};
use std::collections::{BTreeMap, VecDeque};

/// A request: its session, and its place there.
pub type RequestName = (SessionName, SeqNum);

/// How much there may be of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes of keys, values and what an entry costs beside them.
    pub bytes_max: usize,
    /// Entries.
    pub entries_max: usize,
    /// Bytes of a key; reads of longer ones are not answered.
    pub key_bytes_max: usize,
    /// Bytes of a reply; longer ones are not kept.
    pub value_bytes_max: usize,
    /// Writes under way at once; with one more the cache is off until the device starts again.
    pub under_way_max: usize,
    /// Reads whose replies may fill; those beyond fill nothing.
    pub reads_max: usize,
    /// Buckets of key hashes, a power of two.
    pub bucket_count: usize,
    /// How often a bucket must have been read before a reply is kept; with 2 and more the key itself twice of late.
    pub admit_reads: u8,
    /// How long before the end of its life a value is served no more.
    pub deadline_margin: Nanos,
    /// How long a write under way whose session has ended is taken for one.
    pub orphan_wait: Nanos,
    /// Whether nothing is served before the server, of its present epoch, has vouched for a reply (K13).
    pub needs_word: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes_max: 64 << 20,
            entries_max: 1 << 18,
            key_bytes_max: 512,
            value_bytes_max: 1_300,
            under_way_max: 1 << 16,
            reads_max: 1 << 14,
            bucket_count: 1 << 16,
            admit_reads: 2,
            deadline_margin: Nanos::from_millis(1),
            orphan_wait: Nanos::from_secs(600),
            needs_word: true,
        }
    }
}

/// Which keys a write touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// The header's, and those of the extension.
    Keys(KeyHash, &'a [KeyHash]),
    /// It cannot be told.
    All,
}

/// A read of one key.
#[derive(Debug, Clone, Copy)]
pub struct Read<'a> {
    /// Which request it is.
    pub name: RequestName,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// What tells its answer from all others.
    pub key: &'a [u8],
    /// Behind which logged writes the server executes it; none if that is left to the server.
    pub barrier: Option<OrderKey>,
    /// Whether it may be answered here.
    pub answerable: bool,
    /// Its caller may wait for something that it asked before.
    pub has_elders: bool,
}

/// A write that has a place in the order.
#[derive(Debug, Clone, Copy)]
pub struct Logged<'a> {
    /// Which request it is.
    pub name: RequestName,
    /// Its place in the order.
    pub order: OrderKey,
    /// What it touches.
    pub scope: Scope<'a>,
    /// If whatever was there makes no difference: the key, and what its read is answered from then on.
    pub overwrite: Option<(&'a [u8], &'a [u8])>,
}

/// A reply that may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept<'a> {
    /// Its payload.
    pub value: &'a [u8],
    /// How long it is true from when the read passed, if nobody writes.
    pub lives: Nanos,
}

/// What a reply says to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// It may be kept.
    Kept(Kept<'a>),
    /// It is nothing that is kept.
    Passing,
    /// The request was refused.
    Failed,
}

/// What a reply was one to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyTo {
    /// A write that was under way.
    Write,
    /// A read that could fill, and whether it has.
    Read(Result<(), Refused>),
    /// A logged write, or nothing that the cache has noted.
    Other,
}

/// What a read is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The value of this slot.
    Hit(Slot),
    /// A value of which it is not known whether this write, which it shows, can still be lost.
    Unsure(RequestName),
    /// Nothing.
    Miss(Missed),
}

/// Why everything that was known is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The lease has lapsed: others may have written past the device.
    Lapse,
    /// The server, or the device, is another incarnation.
    Epoch,
    /// A write has been answered that was never seen.
    Unseen,
    /// It cannot answer any more: there is no room to remember what is under way, or the path is another.
    Overflow,
}

/// A value that is known.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Entry {
    key_hash: KeyHash,
    key: Box<[u8]>,
    value: Box<[u8]>,
    /// It is true as of this place in the order: of the write that it shows, or the barrier of the read that it answered.
    as_of: OrderKey,
    state: State,
    deadline: Nanos,
    generation: u64,
    /// The next of its bucket.
    next: Option<Slot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    /// It shows a write that the server has not said to be stable.
    Pending { by: RequestName, durable: bool },
    /// The server has said it.
    Persisted,
}

impl Entry {
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    #[cfg(test)]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    #[cfg(test)]
    pub(crate) fn for_tests(key_hash: KeyHash, key: &[u8], value: &[u8]) -> Entry {
        Entry {
            key_hash,
            key: key.into(),
            value: value.into(),
            as_of: OrderKey::default(),
            state: State::Persisted,
            deadline: Nanos::MAX,
            generation: 0,
            next: None,
        }
    }
}

/// A read that was passed on.
#[derive(Debug, Clone, Hash)]
struct NotedRead {
    key_hash: KeyHash,
    key: Box<[u8]>,
    barrier: OrderKey,
    /// Its number among all that passes.
    passage: u64,
    passed_at: Nanos,
}

/// What is known of one server's data.
#[derive(Debug, Clone, Hash)]
pub struct Cache {
    limits: Limits,
    planted: Planted,
    buckets: Vec<Bucket>,
    /// What writes to unknown keys have done to all.
    all: Track,
    shelf: Shelf,
    /// Entries of former ones are dead.
    generation: u64,
    /// How often a value was forgotten that no write has made stale.
    forgotten: u64,
    /// How many requests have passed.
    passage: u64,
    under_way: BTreeMap<RequestName, Place>,
    reads: BTreeMap<RequestName, NotedRead>,
    /// Which entries show writes that are not stable.
    pending: BTreeMap<RequestName, Slot>,
    /// The newest logged write, until it is known that the server has executed it, and with it all before.
    unexecuted: Option<(OrderKey, RequestName)>,
    /// Sessions that ended with writes under way: when these are taken for over, and up to which.
    orphans: VecDeque<(Nanos, SessionName, SeqNum)>,
    /// Of the planted fault C4 alone: what was logged.
    logged: BTreeMap<RequestName, Place>,
    is_off: bool,
    /// The server has vouched for a reply.
    has_word: bool,
    counters: CacheCounters,
}

impl Cache {
    /// One that knows nothing.
    pub fn new(limits: Limits, planted: Planted) -> Cache {
        assert!(limits.bucket_count.is_power_of_two(), "a bucket is found by the low bits of a hash");
        Cache {
            limits,
            planted,
            buckets: vec![Bucket::default(); limits.bucket_count],
            all: Track::default(),
            shelf: Shelf::new(limits.bytes_max, limits.entries_max),
            generation: 0,
            forgotten: 0,
            passage: 0,
            under_way: BTreeMap::new(),
            reads: BTreeMap::new(),
            pending: BTreeMap::new(),
            unexecuted: None,
            orphans: VecDeque::new(),
            logged: BTreeMap::new(),
            is_off: false,
            has_word: false,
            counters: CacheCounters::default(),
        }
    }

    /// What it has counted.
    pub fn counters(&self) -> &CacheCounters {
        &self.counters
    }

    /// How many bytes its entries take.
    pub fn bytes(&self) -> usize {
        self.shelf.bytes()
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.shelf.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it answers nothing any more.
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// How many writes are under way.
    pub fn under_way_count(&self) -> usize {
        self.under_way.len()
    }

    /// Whether a write of this session before this place is under way.
    pub fn has_elder_under_way(&self, (session, seq): RequestName) -> bool {
        self.under_way.range((session, SeqNum(0))..(session, seq)).next().is_some()
    }

    /// Whether anything is known of a key, whether or not it may be said.
    pub fn knows(&mut self, key_hash: KeyHash, key: &[u8]) -> bool {
        let at = self.bucket_of(key_hash);
        self.find(at, key_hash, key).is_some()
    }

    /// Whether the reply to a read may fill.
    pub fn awaits(&self, read: RequestName) -> bool {
        self.reads.contains_key(&read)
    }

    /// The key of a read whose reply may fill.
    pub fn awaited(&self, read: RequestName) -> Option<(KeyHash, &[u8])> {
        self.reads.get(&read).map(|noted| (noted.key_hash, &noted.key[..]))
    }

    /// The value of a slot that was just found.
    pub fn value(&self, slot: Slot) -> &[u8] {
        &self.shelf.get(slot).value
    }

    // ---- reads

    /// What a read at its place would be answered with.
    pub fn on_read(&mut self, now: Nanos, read: &Read<'_>) -> Look {
        self.release_orphans(now);
        let look = self.look(now, read);
        match look {
            Look::Hit(slot) => {
                self.shelf.mark(slot);
                let at = self.bucket_of(read.key_hash);
                self.buckets[at].track.count_read(read.key_hash, self.limits.admit_reads);
                self.counters.hits += 1;
            }
            Look::Miss(missed) => self.counters.misses[missed as usize] += 1,
            Look::Unsure(_) => {}
        }
        look
    }

    fn look(&mut self, now: Nanos, read: &Read<'_>) -> Look {
        if self.is_off {
            return Look::Miss(Missed::Off);
        }
        // K5.
        if !read.answerable && !self.planted.is(CacheFault::ServeWithoutLease) {
            return Look::Miss(Missed::NotAnswerable);
        }
        // K14.
        if read.has_elders && !self.planted.is(CacheFault::ServeBeforeElders) {
            return Look::Miss(Missed::Elders);
        }
        // K13.
        if self.limits.needs_word && !self.has_word {
            return Look::Miss(Missed::NoWord);
        }
        let at = self.bucket_of(read.key_hash);
        // K2.
        if self.is_written(at) {
            return Look::Miss(Missed::UnderWay);
        }
        let Some(slot) = self.find(at, read.key_hash, read.key) else { return Look::Miss(Missed::Absent) };
        let Entry { state, deadline, .. } = *self.shelf.get(slot);
        // K7.
        if deadline <= now && !self.planted.is(CacheFault::IgnoreDeadline) {
            self.drop_entry(slot);
            return Look::Miss(Missed::Expired);
        }
        // K7: by its own clock the server may let it go before it executes what has passed and was told already.
        let may_go_first = deadline != Nanos::MAX && self.unexecuted.is_some();
        if may_go_first && !self.planted.is(CacheFault::OutliveUnexecuted) {
            return Look::Miss(Missed::Unexecuted);
        }
        match state {
            // K6.
            State::Pending { by, durable: false } if !self.planted.is(CacheFault::ServeBeforeDurable) => {
                Look::Unsure(by)
            }
            State::Pending { .. } | State::Persisted => Look::Hit(slot),
        }
    }

    /// A value was not served since what it shows could still be lost.
    pub fn on_unsure(&mut self) {
        self.counters.misses[Missed::NotDurable as usize] += 1;
    }

    /// Reads have passed that nothing here answers.
    pub fn on_unoffered(&mut self) {
        self.counters.unoffered += 1;
    }

    /// A read was passed on for the first time. Of its session nothing before `window_first` is waited for any more.
    pub fn on_read_passed(&mut self, now: Nanos, read: &Read<'_>, window_first: SeqNum) {
        self.passage += 1;
        let at = self.bucket_of(read.key_hash);
        self.buckets[at].track.count_read(read.key_hash, self.limits.admit_reads);
        let (session, _) = read.name;
        while let Some((&old, _)) = self.reads.range((session, SeqNum(0))..(session, window_first)).next() {
            self.reads.remove(&old);
        }
        // K4: without a barrier it may be executed anywhere.
        let Some(barrier) = read.barrier else { return };
        if self.is_off || !self.admits(at, read.key_hash) {
            return;
        }
        if read.key.len() > self.limits.key_bytes_max {
            return self.count_refused(Refused::Size);
        }
        if self.reads.len() >= self.limits.reads_max {
            return self.count_refused(Refused::ManyReads);
        }
        let noted = NotedRead {
            key_hash: read.key_hash,
            key: read.key.into(),
            barrier,
            passage: self.passage,
            passed_at: now,
        };
        self.reads.entry(read.name).or_insert(noted);
    }

    fn admits(&self, at: usize, key_hash: KeyHash) -> bool {
        self.buckets[at].track.is_worth_it(key_hash, self.limits.admit_reads)
    }

    // ---- writes

    /// A write with a place in the order passes. One that passes again changes nothing unless its place is another.
    pub fn on_logged(&mut self, write: &Logged<'_>) {
        self.passage += 1;
        if self.unexecuted.is_none_or(|(newest, _)| newest < write.order) {
            self.unexecuted = Some((write.order, write.name));
        }
        let place = self.place_of(&write.scope);
        if self.planted.is(CacheFault::ForgetVersion) {
            self.logged.insert(write.name, place.clone());
        }
        match write.scope {
            Scope::Keys(first, further) => {
                let before = self.buckets[self.bucket_of(first)].track.version;
                self.each_track(&place, |track| {
                    track.raise(write.order);
                    track.count_write();
                });
                for key_hash in self.keys(first, further) {
                    self.make_stale(key_hash, write);
                }
                // K1: the newest, and nothing before it can take it back.
                if write.order > before && further.is_empty() {
                    self.make_pending(first, write);
                }
            }
            // K8.
            Scope::All if write.order > self.all.version => {
                self.all.raise(write.order);
                self.forget_entries();
            }
            Scope::All => {}
        }
    }

    /// Which keys a write is one of.
    fn keys<'k>(&self, first: KeyHash, further: &'k [KeyHash]) -> impl Iterator<Item = KeyHash> + 'k {
        let further = if self.planted.is(CacheFault::IgnoreFurtherKeys) { &[] } else { further };
        std::iter::once(first).chain(further.iter().copied())
    }

    /// A logged write makes stale what is true as of an earlier place (K1). What is stale is not kept: the version says
    /// what may fill.
    fn make_stale(&mut self, key_hash: KeyHash, write: &Logged<'_>) {
        if !self.planted.is(CacheFault::ServeStale) {
            self.drop_key(key_hash, |entry| entry.as_of < write.order);
        }
    }

    fn make_pending(&mut self, key_hash: KeyHash, write: &Logged<'_>) {
        let Some((key, value)) = write.overwrite else { return };
        let at = self.bucket_of(key_hash);
        // K2: which of the two the server executes first is open.
        let is_written = self.is_written(at) && !self.planted.is(CacheFault::PendingBesideUnderWay);
        // K6: with an elder of its session it can still be given up.
        let is_unsafe = self.has_elder_under_way(write.name) && !self.planted.is(CacheFault::ServeOverUnsafe);
        let is_newest = write.order >= self.all.version.max(self.buckets[at].track.version);
        let fits = key.len() <= self.limits.key_bytes_max && value.len() <= self.limits.value_bytes_max;
        if self.is_off || is_written || is_unsafe || !is_newest || !fits || !self.admits(at, key_hash) {
            return;
        }
        let state = State::Pending { by: write.name, durable: false };
        if let Some(slot) = self.put(at, (key_hash, key), value, write.order, state, Nanos::MAX) {
            self.pending.insert(write.name, slot);
            self.counters.overwrites += 1;
        }
    }

    /// A write without a place in the order passes, or one whose place is not known here.
    pub fn on_unlogged(&mut self, name: RequestName, scope: &Scope<'_>) {
        self.passage += 1;
        if self.is_off || self.under_way.contains_key(&name) {
            return;
        }
        if self.under_way.len() >= self.limits.under_way_max {
            return self.turn_off();
        }
        let place = self.place_of(scope);
        self.each_track(&place, |track| {
            track.under_way += 1;
            track.count_write();
        });
        match *scope {
            Scope::Keys(first, further) => {
                self.keys(first, further).for_each(|key_hash| self.drop_key(key_hash, |_| true));
            }
            Scope::All => self.forget_entries(),
        }
        self.under_way.insert(name, place);
    }

    /// From now on nothing is answered, and nothing kept.
    pub fn turn_off(&mut self) {
        self.is_off = true;
        self.reset(Cause::Overflow);
    }

    /// A reply passes on its way to the client.
    pub fn on_reply(&mut self, now: Nanos, name: RequestName, reply: &Reply<'_>) -> ReplyTo {
        self.release_orphans(now);
        self.has_word |= matches!(reply, Reply::Kept(_));
        let barrier = self.reads.get(&name).map(|noted| noted.barrier);
        self.note_executed(|(newest, by)| by == name || barrier.is_some_and(|barrier| newest <= barrier));
        if let Some(place) = self.under_way.remove(&name) {
            self.end_write(&place);
            return ReplyTo::Write;
        }
        if let Some(noted) = self.reads.remove(&name) {
            let filled = self.fill(now, &noted, reply);
            match filled {
                Ok(()) => self.counters.fills += 1,
                Err(refused) => self.count_refused(refused),
            }
            return ReplyTo::Read(filled);
        }
        // What was logged and refused by the store after all has changed nothing.
        if *reply == Reply::Failed {
            if let Some(slot) = self.pending.get(&name).copied() {
                self.drop_entry(slot);
            }
        }
        ReplyTo::Other
    }

    /// The server executes logged writes in their order, and a read behind all up to its barrier.
    fn note_executed(&mut self, covers: impl FnOnce((OrderKey, RequestName)) -> bool) {
        if self.unexecuted.is_some_and(covers) {
            self.unexecuted = None;
        }
    }

    /// A write is executed: what passes from now on comes after it, what has passed may not (K3).
    fn end_write(&mut self, place: &Place) {
        let floor = if self.planted.is(CacheFault::NoFloor) { 0 } else { self.passage };
        self.each_track(place, |track| {
            track.under_way -= 1;
            track.floor = track.floor.max(floor);
        });
    }

    fn fill(&mut self, now: Nanos, noted: &NotedRead, reply: &Reply<'_>) -> Result<(), Refused> {
        let Reply::Kept(Kept { value, lives }) = *reply else { return Err(Refused::NotKept) };
        let at = self.bucket_of(noted.key_hash);
        self.may_fill(at, noted)?;
        if value.len() > self.limits.value_bytes_max {
            return Err(Refused::Size);
        }
        // K7: a life that does not end has no deadline.
        let deadline = match lives {
            Nanos::MAX => Nanos::MAX,
            lives => Nanos(noted.passed_at.plus(lives).since(self.limits.deadline_margin).0),
        };
        if deadline <= now && !self.planted.is(CacheFault::IgnoreDeadline) {
            return Err(Refused::Expired);
        }
        let key = (noted.key_hash, &noted.key[..]);
        self.put(at, key, value, noted.barrier, State::Persisted, deadline).map(|_| ()).ok_or(Refused::Size)
    }

    /// Whether a read has seen every write that counts.
    fn may_fill(&self, at: usize, noted: &NotedRead) -> Result<(), Refused> {
        // K2.
        if self.is_off || self.is_written(at) && !self.planted.is(CacheFault::FillBesideUnderWay) {
            return Err(Refused::UnderWay);
        }
        let tracks = [&self.buckets[at].track, &self.all];
        // K3.
        if tracks.iter().any(|track| noted.passage <= track.floor) {
            return Err(Refused::Floor);
        }
        // K4.
        let is_below = tracks.iter().any(|track| noted.barrier < track.version);
        if is_below && !self.planted.is(CacheFault::FillBelowVersion) {
            return Err(Refused::Version);
        }
        Ok(())
    }

    // ---- what becomes of writes

    /// A logged write can be lost no more, nor can an earlier one of its session (K6).
    pub fn on_durable(&mut self, name: RequestName) {
        let Some(slot) = self.pending.get(&name) else { return };
        self.shelf.get_mut(*slot).state = State::Pending { by: name, durable: true };
    }

    /// Everything of a session up to here is stable at the server.
    pub fn on_stable(&mut self, session: SessionName, through: SeqNum) {
        let range = (session, SeqNum(0))..=(session, through);
        self.note_executed(|(_, by)| range.contains(&by));
        while let Some((&name, _)) = self.under_way.range(range.clone()).next() {
            if let Some(place) = self.under_way.remove(&name) {
                self.end_write(&place);
            }
        }
        while let Some((&name, &slot)) = self.pending.range(range.clone()).next() {
            self.pending.remove(&name);
            self.shelf.get_mut(slot).state = State::Persisted;
        }
        // T6 as published: whatever else is under way is forgotten.
        while let Some((&name, _)) = self.logged.range(range.clone()).next() {
            if let Some(place) = self.logged.remove(&name) {
                self.each_track(&place, |track| track.version = OrderKey::default());
            }
        }
    }

    /// A session is known here again: what of it is under way ends by replies and stability.
    pub fn on_opened(&mut self, session: SessionName) {
        self.orphans.retain(|(_, orphan, _)| *orphan != session);
    }

    /// A session is gone here. Its writes that are under way may still be executed.
    pub fn on_ended(&mut self, now: Nanos, session: SessionName) {
        let range = (session, SeqNum(0))..=(session, SeqNum(u64::MAX));
        while let Some((&name, _)) = self.reads.range(range.clone()).next() {
            self.reads.remove(&name);
        }
        while let Some((_, &slot)) = self.pending.range(range.clone()).next() {
            self.drop_entry(slot);
        }
        if let Some((&(_, last), _)) = self.under_way.range(range).next_back() {
            self.orphans.push_back((now.plus(self.limits.orphan_wait), session, last));
        }
    }

    fn release_orphans(&mut self, now: Nanos) {
        while let Some(&(due, session, last)) = self.orphans.front().filter(|(due, ..)| *due <= now) {
            debug_assert!(due <= now, "the first is the next");
            self.orphans.pop_front();
            while let Some((&name, _)) = self.under_way.range((session, SeqNum(0))..=(session, last)).next() {
                if let Some(place) = self.under_way.remove(&name) {
                    self.end_write(&place);
                }
            }
        }
    }

    /// Forgets every value (K5). What is under way stays so.
    pub fn reset(&mut self, cause: Cause) {
        let kept = match cause {
            Cause::Epoch => self.planted.is(CacheFault::KeepAcrossEpoch),
            Cause::Lapse => {
                self.planted.is(CacheFault::ServeWithoutLease) || self.planted.is(CacheFault::KeepAcrossEpoch)
            }
            Cause::Unseen | Cause::Overflow => false,
        };
        if kept {
            return;
        }
        self.has_word &= cause != Cause::Epoch;
        self.counters.resets += u64::from(!self.is_empty() || !self.reads.is_empty());
        self.reads.clear();
        self.all.floor = self.all.floor.max(self.passage);
        self.forget_entries();
    }

    // ---- entries

    /// All entries are dead from now on, and go when they are met or when there is no room.
    fn forget_entries(&mut self) {
        self.generation += 1;
        self.forgotten += 1;
        self.pending.clear();
    }

    fn bucket_of(&self, key_hash: KeyHash) -> usize {
        key_hash.0 as usize & (self.limits.bucket_count - 1)
    }

    fn place_of(&self, scope: &Scope<'_>) -> Place {
        let Scope::Keys(first, further) = *scope else { return Place::All };
        let mut buckets: Vec<usize> =
            self.keys(first, further).map(|key_hash| self.bucket_of(key_hash)).collect();
        // The first stays the first.
        buckets[1..].sort_unstable();
        buckets.dedup();
        let first = buckets[0];
        let mut is_first = true;
        buckets.retain(|at| std::mem::take(&mut is_first) || *at != first);
        Place::Buckets(buckets)
    }

    fn each_track(&mut self, place: &Place, mut change: impl FnMut(&mut Track)) {
        match place {
            Place::All => change(&mut self.all),
            Place::Buckets(buckets) => {
                for at in buckets {
                    change(&mut self.buckets[*at].track);
                }
            }
        }
    }

    fn is_written(&self, at: usize) -> bool {
        self.all.under_way > 0 || self.buckets[at].track.under_way > 0
    }

    /// The entry of a key (K9).
    fn find(&mut self, at: usize, key_hash: KeyHash, key: &[u8]) -> Option<Slot> {
        let by_hash = self.planted.is(CacheFault::CompareHashOnly);
        let is_it = |entry: &Entry| entry.key_hash == key_hash && (by_hash || *entry.key == *key);
        self.find_where(at, is_it)
    }

    fn find_where(&mut self, at: usize, is_it: impl Fn(&Entry) -> bool) -> Option<Slot> {
        let mut next = self.buckets[at].first;
        while let Some(slot) = next {
            let entry = self.shelf.get(slot);
            next = entry.next;
            if entry.generation != self.generation {
                self.drop_entry(slot);
            } else if is_it(entry) {
                return Some(slot);
            }
        }
        None
    }

    fn drop_key(&mut self, key_hash: KeyHash, is_dropped: impl Fn(&Entry) -> bool) {
        let at = self.bucket_of(key_hash);
        while let Some(slot) = self.find_where(at, |entry| entry.key_hash == key_hash && is_dropped(entry)) {
            self.counters.made_stale += 1;
            self.drop_entry(slot);
        }
    }

    fn drop_entry(&mut self, slot: Slot) {
        let entry = self.shelf.remove(slot);
        let at = self.bucket_of(entry.key_hash);
        if self.buckets[at].first == Some(slot) {
            self.buckets[at].first = entry.next;
        } else {
            let mut before = self.buckets[at].first;
            while let Some(other) = before.filter(|other| self.shelf.get(*other).next != Some(slot)) {
                before = self.shelf.get(other).next;
            }
            let before = before.expect("an entry is in the chain of its bucket");
            self.shelf.get_mut(before).next = entry.next;
        }
        if let State::Pending { by, .. } = entry.state {
            // Of a dead entry's write a newer one may show.
            if self.pending.get(&by) == Some(&slot) {
                self.pending.remove(&by);
            }
        }
    }

    /// Keeps a value in the place of what was known of its key, and makes room for it (K10).
    fn put(
        &mut self,
        at: usize,
        (key_hash, key): (KeyHash, &[u8]),
        value: &[u8],
        as_of: OrderKey,
        state: State,
        deadline: Nanos,
    ) -> Option<Slot> {
        let bytes = key.len() + value.len();
        if !self.shelf.could_hold(bytes) {
            return None;
        }
        if let Some(old) = self.find(at, key_hash, key) {
            self.drop_entry(old);
        }
        while let Some(victim) = self.shelf.victim(bytes) {
            self.counters.evicted += 1;
            self.drop_entry(victim);
        }
        let (key, value, generation) = (key.into(), value.into(), self.generation);
        let next = self.buckets[at].first;
        let entry = Entry { key_hash, key, value, as_of, state, deadline, generation, next };
        let slot = self.shelf.insert(entry);
        self.buckets[at].first = Some(slot);
        Some(slot)
    }

    fn count_refused(&mut self, refused: Refused) {
        self.counters.refused[refused as usize] += 1;
    }
}

#[cfg(test)]
mod tests;
