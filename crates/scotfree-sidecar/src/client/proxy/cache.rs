//! Reads that the proxy answers without the Redis: the rules of scotfree-cache over the one order of places.
//!
//! Invariant: what is answered is what the Redis would answer at the read's place, if nobody writes it but through this
//! proxy; where others may, what it would have answered no longer than the bound before (docs/design/cache.md, "In the
//! proxy", has the rules P1 to P10).

mod doubts;
#[cfg(test)]
mod tests;
mod words;

use super::tracking::Told;
use crate::client::fronts::Waiting;
use doubts::Doubts;
use scotfree_cache::{
    Asked, Cache, Cause, Kept, Limits, Logged, Look, Planted, Read, Redis, Reply, RequestName, Scope,
    WholeRead,
};
use scotfree_core::{
    BootEpoch, KeyHash, Nanos, OrderKey, OrderNumber, SeqNum, ServerIndex, SessionId, SessionName,
};
use scotfree_resp::front::PassedBy;
use scotfree_rpc::metrics::{DurationHistogram, MetricKind, MetricsText};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
pub(super) use words::{question, said, touched, Offered, Words};

/// How long a write through a tunnel whose client is gone is taken to be under way: the Redis may have received it.
const ORPHAN_WAIT: Nanos = Nanos::from_secs(60);
/// The largest reply that is kept, and what part of all bytes at most.
const VALUE_BYTES_MAX: usize = 256 << 10;
const VALUE_SHARE: usize = 8;
/// How many reads of a key pass without a question behind one whose answer was not kept: a key with a time to live, one
/// that is missing, a large value.
const DOUBTFUL_READS: u8 = 250;
/// As few bytes as a cache may have.
pub const BYTES_MIN: u64 = 64 << 10;
/// What an entry is taken to have at least.
const ENTRY_BYTES_LEAST: u64 = 128;

/// By what the rules know requests that have a place, and what goes past the order.
const PLACED: SessionName = SessionName { server: ServerIndex(0), id: SessionId(0) };
const PASSING_BY: SessionName = SessionName { server: ServerIndex(0), id: SessionId(1) };

/// And what waits past the order.
const WAITING: SessionName = SessionName { server: ServerIndex(0), id: SessionId(2) };
/// And what the Redis tells of.
const TOLD: SessionName = SessionName { server: ServerIndex(0), id: SessionId(3) };

/// What tells a read from all others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    /// The number of its database.
    pub database: u16,
    /// That of the key alone: whatever changes the key, changes what all its reads are answered.
    pub hash: KeyHash,
    /// The command, whole.
    pub bytes: &'a [u8],
}

impl Key<'_> {
    fn is_of_get(&self) -> bool {
        self.bytes.first() == Some(&WholeRead::OF_GET)
    }
}

/// Of which keys a request may change what is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Touched {
    Nothing,
    /// These, of which there is at least one.
    Keys(Vec<KeyHash>),
    Anything,
}

/// What the Redis has answered, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said<'a> {
    /// This, whole, and it is no error.
    Reply(&'a [u8]),
    Nothing,
}

impl<'a> Said<'a> {
    /// The write was taken.
    const DONE: Said<'static> = Said::Reply(b"+OK\r\n");
    /// The key has no time to live.
    const LASTS: Said<'static> = Said::Reply(b":-1\r\n");

    /// The reply, if it may be kept. A GET's is kept if it is a value: nothing else is written alike in both versions of
    /// the protocol.
    fn kept(self, is_get: bool) -> Option<&'a [u8]> {
        match self {
            Said::Reply(reply @ [b'$', digit, ..]) if is_get && digit.is_ascii_digit() => Some(reply),
            Said::Reply(reply) if !is_get => Some(reply),
            Said::Reply(_) | Said::Nothing => None,
        }
    }
}

/// What a reply is awaited for.
#[derive(Debug)]
enum Awaited {
    /// A read, whose reply this question vouches for.
    Read { question: u64, is_get: bool },
    /// The question whether the read's key has a time to live, and what the read was answered.
    Question { read: u64, hash: KeyHash, value: Option<Vec<u8>> },
    /// A write that replaces what is known.
    Overwrite,
}

/// A rule that is switched off, for tests of the tests.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// P3: a reply fills although something before it has no answer.
    FillBeforeAll,
    /// P4: a value is served before the Redis has taken its write.
    ServeUnanswered,
    /// P4: a value stays although its write was refused.
    KeepRefused,
    /// P5: a key with a time to live is kept.
    KeepMortal,
    /// P6: what goes through tunnels is not noticed.
    IgnoreTunnels,
    /// P7: what was known outlives the loss of the Redis.
    KeepAcrossLoss,
    /// P7: and that of a session.
    KeepAcrossFailure,
    /// P2: a write that is not logged changes nothing.
    IgnoreBypasses,
    /// P2: a write drops what GET is answered and leaves what other reads of the key are.
    StaleGetAlone,
    /// P6: what blocks is not noticed.
    IgnoreWaiting,
    /// P10: what is known is served although the Redis may not have told of what others have written.
    ServeUntold,
    /// P10: what the Redis tells is not noticed.
    IgnoreTold,
    /// P10: what was known outlives the loss of who tells.
    KeepUntold,
}

#[cfg(test)]
type Faulty = Option<Fault>;

/// What is known of others who write past this proxy (P10).
#[derive(Debug)]
struct Others {
    /// For how long what is answered may have been another already.
    bound: Nanos,
    /// The Redis tells of all writes.
    is_told: bool,
    /// It has told of all that was executed before this time.
    told_until: Option<Nanos>,
    /// How often it has told of something.
    told: u64,
    /// In which databases something is read: the Redis names keys without.
    databases: BTreeSet<u16>,
    /// How long before each answer that time was.
    ages: DurationHistogram,
    age_max: Nanos,
}

impl Others {
    /// For how long others may have written what has not been told; none if that is not known.
    fn age(&self, now: Nanos) -> Option<Nanos> {
        self.told_until.filter(|_| self.is_told).map(|until| now.since(until))
    }

    fn note_hit(&mut self, now: Nanos) {
        if let Some(age) = self.age(now) {
            self.ages.record(age);
            self.age_max = self.age_max.max(age);
        }
    }

    fn write_metrics(&self, text: &mut MetricsText) {
        let seconds = |time: Nanos| time.0 as f64 / 1e9;
        let help = "By how much an answer may be older than what others have written, at most";
        text.gauge("scotfree_cache_stale_bound_seconds", help, seconds(self.bound));
        let help = "By how much the oldest answer may have been older than what others had written";
        text.gauge("scotfree_cache_stale_max_seconds", help, seconds(self.age_max));
        let name = "scotfree_cache_stale_seconds";
        let help = "By how much each answer may have been older than what others had written, at most";
        text.family(MetricKind::Histogram, name, help);
        text.histogram(name, &[], &self.ages, None);
    }
}

/// What the proxy knows of values.
#[derive(Debug)]
pub(super) struct ReadCache {
    rules: Cache,
    /// The Redis is there and is what it was, and tells what it is to tell.
    is_answering: bool,
    /// If others may write.
    others: Option<Others>,
    now: Nanos,
    /// By their places.
    awaited: BTreeMap<u64, Awaited>,
    doubts: Doubts,
    value_bytes_max: usize,
    /// What went past the order, as known last, and when what nobody answers is taken for over.
    passed_by: PassedBy,
    orphaned: u64,
    orphans: VecDeque<(Nanos, u64)>,
    /// Of how much of it that is so.
    orphaned_over: u64,
    /// A write past the order is under way: its name.
    passing: Option<u64>,
    /// What waits past the order and will have no answer: when it is taken for over.
    waiting_orphans: VecDeque<(Nanos, u64)>,
    #[cfg(test)]
    fault: Faulty,
}

impl ReadCache {
    /// One that knows nothing and takes so many bytes at most.
    pub fn new(bytes_max: u64) -> ReadCache {
        ReadCache::with(limits(bytes_max), Planted::NONE)
    }

    fn with(limits: Limits, planted: Planted) -> ReadCache {
        ReadCache {
            value_bytes_max: limits.value_bytes_max,
            rules: Cache::new(limits, planted),
            is_answering: true,
            others: None,
            now: Nanos(0),
            awaited: BTreeMap::new(),
            doubts: Doubts::new(DOUBTFUL_READS),
            passed_by: PassedBy::default(),
            orphaned: 0,
            orphans: VecDeque::new(),
            orphaned_over: 0,
            passing: None,
            waiting_orphans: VecDeque::new(),
            #[cfg(test)]
            fault: None,
        }
    }

    /// Others may write past this proxy: what is answered may be older than what is there by so much.
    pub fn allow_others(&mut self, bound: Nanos) {
        self.is_answering = false;
        self.others = Some(Others {
            bound,
            is_told: false,
            told_until: None,
            told: 0,
            databases: BTreeSet::new(),
            ages: DurationHistogram::default(),
            age_max: Nanos(0),
        });
    }

    /// What time it is; if others may write, no read may be looked up by an earlier one.
    pub fn know_time(&mut self, now: Nanos) {
        self.now = now;
    }

    /// What a read that is given its place now is answered, if that is known.
    pub fn look(&mut self, key: Key<'_>) -> Option<&[u8]> {
        let read = self.read(SeqNum(0), key, None);
        match self.rules.on_read(self.now, &read) {
            Look::Hit(slot) => {
                if let Some(others) = &mut self.others {
                    others.note_hit(self.now);
                }
                Some(self.rules.value(slot))
            }
            // P4.
            Look::Unsure(_) => {
                self.rules.on_unsure();
                None
            }
            Look::Miss(_) => None,
        }
    }

    /// A read has come that nothing here answers.
    pub fn on_unoffered(&mut self) {
        self.rules.on_unoffered();
    }

    /// Whether the Redis has told, not too long ago, of what others had written (P10).
    fn is_told(&self) -> bool {
        #[cfg(test)]
        if self.fault == Some(Fault::ServeUntold) {
            return true;
        }
        self.others.as_ref().is_none_or(|others| others.age(self.now).is_some_and(|age| age <= others.bound))
    }

    /// A read as the rules know it: one of its key, whatever it asks.
    fn read<'a>(&self, place: SeqNum, key: Key<'a>, barrier: Option<OrderKey>) -> Read<'a> {
        let key_hash = key.hash;
        #[cfg(test)]
        let key_hash = match self.fault {
            // In the same bucket.
            Some(Fault::StaleGetAlone) if !key.is_of_get() => KeyHash(key_hash.0 ^ 1 << 40),
            _ => key_hash,
        };
        Read {
            name: placed(place.0),
            key_hash,
            key: key.bytes,
            barrier,
            answerable: self.is_answering && self.is_told(),
            // The front puts answers in their order.
            has_elders: false,
        }
    }

    /// A read goes to the Redis from this place. Everything before `first` is dealt with. True if it is to be asked,
    /// from the next place, whether its key has a time to live.
    pub fn passed(&mut self, place: SeqNum, key: Key<'_>, first: SeqNum) -> bool {
        self.forget_before(first);
        if let Some(others) = &mut self.others {
            others.databases.insert(key.database);
        }
        // What is not asked about is not awaited either: the rules count it and note nothing.
        let may_be_kept = self.is_answering && !self.doubts.take(key.hash);
        let read = self.read(place, key, may_be_kept.then(|| order(place)));
        self.rules.on_read_passed(self.now, &read, first);
        may_be_kept && self.rules.awaits(read.name)
    }

    /// It is asked at this place; none if it could not be.
    pub fn asked(&mut self, read: SeqNum, key: Key<'_>, question: Option<SeqNum>) {
        let (hash, is_get) = (key.hash, key.is_of_get());
        match question {
            Some(SeqNum(question)) => {
                // Until the answer is kept, or the key is written.
                self.doubts.begin(hash);
                self.awaited.insert(read.0, Awaited::Read { question, is_get });
                self.awaited.insert(question, Awaited::Question { read: read.0, hash, value: None });
            }
            None => self.give_up(read.0),
        }
    }

    /// A request that changes this has its place (P1, P2). `overwrite`: whatever was there, its key is answered this
    /// from then on.
    pub fn written(
        &mut self,
        place: SeqNum,
        touched: &Touched,
        overwrite: Option<(Key<'_>, &[u8])>,
        first: SeqNum,
    ) {
        self.forget_before(first);
        let scope = match touched {
            Touched::Nothing => return,
            Touched::Anything => Scope::All,
            Touched::Keys(keys) => match keys.split_first() {
                Some((first, further)) => Scope::Keys(*first, further),
                None => Scope::All,
            },
        };
        if let Touched::Keys(keys) = touched {
            for hash in keys {
                self.doubts.end(*hash);
            }
        }
        // P8: who may write a key may not thereby read it.
        let overwrite = overwrite.filter(|(key, _)| self.rules.knows(key.hash, key.bytes));
        let write = Logged {
            name: placed(place.0),
            order: order(place),
            scope,
            overwrite: overwrite.map(|(key, value)| (key.bytes, value)),
        };
        self.rules.on_logged(&write);
        if overwrite.is_some() {
            self.awaited.insert(place.0, Awaited::Overwrite);
            #[cfg(test)]
            if self.fault == Some(Fault::ServeUnanswered) {
                self.rules.on_durable(placed(place.0));
            }
        }
    }

    /// The Redis has answered what has this place; `after_all`: and everything before it.
    pub fn replied(&mut self, place: SeqNum, said: Said<'_>, after_all: bool) {
        if self.awaited.is_empty() {
            return;
        }
        #[cfg(test)]
        let after_all = after_all || self.fault == Some(Fault::FillBeforeAll);
        match self.awaited.remove(&place.0) {
            None => {}
            Some(Awaited::Read { question, is_get }) => {
                match (said.kept(is_get), self.awaited.get_mut(&question)) {
                    (Some(found), Some(Awaited::Question { value, .. }))
                        if after_all && found.len() <= self.value_bytes_max =>
                    {
                        *value = Some(found.to_vec());
                    }
                    _ => {
                        self.awaited.remove(&question);
                        self.give_up(place.0);
                    }
                }
            }
            Some(Awaited::Question { read, hash, value }) => {
                #[cfg(test)]
                let said = if self.fault == Some(Fault::KeepMortal) { Said::LASTS } else { said };
                match value.filter(|_| after_all && said == Said::LASTS) {
                    Some(value) => {
                        self.doubts.end(hash);
                        let kept = Kept { value: &value, lives: Nanos::MAX };
                        self.rules.on_reply(self.now, placed(read), &Reply::Kept(kept));
                    }
                    None => self.give_up(read),
                }
            }
            Some(Awaited::Overwrite) => self.overwritten(place, said == Said::DONE && after_all),
        }
    }

    /// A write that replaces a value is answered; `is_done`: it was taken, and nothing before it can follow it (P3,
    /// P4).
    fn overwritten(&mut self, place: SeqNum, is_done: bool) {
        #[cfg(test)]
        let is_done = is_done || self.fault == Some(Fault::KeepRefused);
        if is_done {
            self.rules.on_durable(placed(place.0));
        } else {
            self.rules.on_reply(self.now, placed(place.0), &Reply::Failed);
        }
    }

    /// What a read is answered is not kept.
    fn give_up(&mut self, read: u64) {
        self.rules.on_reply(self.now, placed(read), &Reply::Passing);
    }

    /// Of what is dealt with nothing more is awaited: what had no answer is never executed.
    fn forget_before(&mut self, first: SeqNum) {
        while let Some(entry) = self.awaited.first_entry().filter(|entry| *entry.key() < first.0) {
            let place = SeqNum(*entry.key());
            match entry.remove() {
                Awaited::Overwrite => self.overwritten(place, false),
                Awaited::Read { .. } => self.give_up(place.0),
                Awaited::Question { .. } => {}
            }
        }
    }

    /// The Redis has told something of what is written, by whomever (P10).
    pub fn on_told(&mut self, told: Told<'_>) {
        let Some(others) = &mut self.others else { return };
        match told {
            Told::Begun => others.is_told = true,
            Told::Until(time) => others.told_until = Some(time),
            Told::Lost => {
                (others.is_told, others.told_until) = (false, None);
                self.set_answering(self.is_answering);
            }
            Told::Everything => self.written_by_others(&Scope::All),
            Told::Key(key) => {
                let hashes: Vec<KeyHash> =
                    others.databases.iter().map(|database| KeyHash::of(*database, key)).collect();
                if let Some((first, further)) = hashes.split_first() {
                    self.written_by_others(&Scope::Keys(*first, further));
                }
            }
        }
    }

    /// To the rules it is a write past the order that is over when it is heard of: only what is placed from now on fills.
    fn written_by_others(&mut self, scope: &Scope<'_>) {
        #[cfg(test)]
        if self.fault == Some(Fault::IgnoreTold) {
            return;
        }
        let Some(others) = &mut self.others else { return };
        others.told += 1;
        let name = (TOLD, SeqNum(others.told));
        if let Scope::Keys(first, further) = *scope {
            for hash in std::iter::once(&first).chain(further) {
                self.doubts.end(*hash);
            }
        }
        self.rules.on_unlogged(name, scope);
        self.rules.on_reply(self.now, name, &Reply::Passing);
    }

    /// What has gone past the order so far, and how much of it nobody will answer (P6).
    pub fn know_passing(&mut self, now: Nanos, (passed_by, orphaned): (PassedBy, u64)) {
        self.now = now;
        while let Some((_, number)) = self.waiting_orphans.front().copied().filter(|(due, _)| *due <= now) {
            self.waiting_orphans.pop_front();
            self.end_waiting(number);
        }
        let more = orphaned - std::mem::replace(&mut self.orphaned, orphaned);
        if more > 0 {
            self.orphans.push_back((now.plus(ORPHAN_WAIT), more));
        }
        while let Some((_, count)) = self.orphans.front().copied().filter(|(due, _)| *due <= now) {
            self.orphans.pop_front();
            self.orphaned_over += count;
        }
        #[cfg(test)]
        if self.fault == Some(Fault::IgnoreTunnels) {
            return;
        }
        let before = std::mem::replace(&mut self.passed_by, passed_by);
        if passed_by.begun > before.begun && self.passing.is_none() {
            self.passing = Some(passed_by.begun);
            self.rules.on_unlogged((PASSING_BY, SeqNum(passed_by.begun)), &Scope::All);
        }
        let is_over = passed_by.ended + self.orphaned_over >= passed_by.begun;
        if let Some(name) = self.passing.take_if(|_| is_over) {
            self.rules.on_reply(now, (PASSING_BY, SeqNum(name)), &Reply::Passing);
        }
    }

    /// What has become of what waits past the order: until its answer it may change its keys at any time (P6).
    pub fn know_waiting(&mut self, waiting: Waiting) {
        #[cfg(test)]
        if self.fault == Some(Fault::IgnoreWaiting) {
            return;
        }
        match waiting {
            Waiting::Begun { number, keys } => {
                let keys = keys.unwrap_or_default();
                let scope = keys.split_first().map_or(Scope::All, |(first, more)| Scope::Keys(*first, more));
                self.rules.on_unlogged((WAITING, SeqNum(number)), &scope);
            }
            Waiting::Ended { number } => self.end_waiting(number),
            Waiting::Orphaned { number } => {
                self.waiting_orphans.push_back((self.now.plus(ORPHAN_WAIT), number));
            }
        }
    }

    fn end_waiting(&mut self, number: u64) {
        self.rules.on_reply(self.now, (WAITING, SeqNum(number)), &Reply::Passing);
    }

    /// Whether the Redis is there and does what it has to. While it does not, nothing is answered, and of what was
    /// known nothing is afterwards (P7).
    pub fn set_answering(&mut self, is_answering: bool) {
        let is_answering = is_answering && self.others.as_ref().is_none_or(|others| others.is_told);
        let was_answering = std::mem::replace(&mut self.is_answering, is_answering);
        #[cfg(test)]
        if self.fault == Some(Fault::KeepUntold) && self.others.as_ref().is_some_and(|others| !others.is_told)
        {
            return;
        }
        if was_answering && !is_answering {
            self.forget();
        }
    }

    /// The Redis is lost: another may have less than what was answered. Or it has refused a session, and what became of
    /// that one's writes is not known.
    pub fn forget(&mut self) {
        #[cfg(test)]
        if self.fault == Some(Fault::KeepAcrossLoss) {
            return;
        }
        self.awaited.clear();
        self.rules.reset(Cause::Epoch);
    }

    /// What an operator is answered, as of this server.
    pub fn answer(&mut self, now: Nanos, server: ServerIndex, asked: &Asked) -> String {
        let mut text = asked.of_all(now, &Redis, std::iter::once((server, &mut self.rules)));
        if let Asked::Why(database, key) = asked {
            self.say_more_of(KeyHash::of(*database, key), &mut text);
        }
        text
    }

    /// What only a proxy knows of why a key is not answered.
    fn say_more_of(&self, hash: KeyHash, text: &mut String) {
        let left = self.doubts.left(hash);
        if left > 0 {
            let _ = writeln!(
                text,
                "its last reply was not kept: it has a time to live, or there is no such key, or it is too large, or no \
                 string (`ls` names replies of other commands); so {left} more reads of it pass before it is asked again, \
                 unless it is written"
            );
        }
        if self.is_answering && !self.is_told() && left == 0 {
            text.push_str(
                "nobody has read of late, so what others write was not asked for: one read goes to the Redis first, those \
                 behind it are answered if it is kept\n",
            );
        }
        if !self.is_answering {
            let is_untold = self.others.as_ref().is_some_and(|others| !others.is_told);
            text.push_str(if is_untold {
                "nothing is answered at present: the Redis does not tell what others write; the alarm says why\n"
            } else {
                "nothing is answered at present: the Redis is away, or not as it has to be; the alarm says why\n"
            });
        }
    }

    /// What it has counted and holds.
    pub fn write_metrics(&self, text: &mut MetricsText) {
        text.gauge("scotfree_cache_bytes", "What is known of values, in bytes", self.rules.bytes());
        text.gauge("scotfree_cache_entries", "Values that are known", self.rules.len());
        let held_up = u8::from(self.passing.is_some() || !self.is_answering);
        let help = "1: nothing is answered at present: a tunnel writes, or the Redis is not as it should be";
        text.gauge("scotfree_cache_held_up", help, held_up);
        if let Some(others) = &self.others {
            others.write_metrics(text);
        }
        let mut family = "";
        self.rules.counters().each(&mut |count| {
            if std::mem::replace(&mut family, count.name) != count.name {
                text.family(MetricKind::Counter, count.name, count.help);
            }
            let label = count.labels.split_once('=').map(|(name, text)| (name, text.trim_matches('"')));
            text.sample(count.name, label.as_slice(), count.value);
        });
    }
}

/// How much there may be of everything.
fn limits(bytes_max: u64) -> Limits {
    let bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let entries = (bytes_max / ENTRY_BYTES_LEAST).clamp(1, 1 << 24);
    Limits {
        bytes_max: bytes,
        entries_max: entries as usize,
        value_bytes_max: VALUE_BYTES_MAX.min(bytes / VALUE_SHARE),
        // Nobody but the Redis answers here.
        needs_word: false,
        ..Limits::default()
    }
}

fn placed(place: u64) -> RequestName {
    (PLACED, SeqNum(place))
}

fn order(place: SeqNum) -> OrderKey {
    (BootEpoch(0), OrderNumber(place.0))
}
