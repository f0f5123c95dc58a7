//! The cache as a function of the device: what packets, sessions and epochs say to the rules.
//!
//! Invariant: nothing is decided here that the rules decide; here stands only what a packet is to them. Every packet
//! comes by [`Function::before`] first, so that a lapse of the lease or another epoch is seen before what it changes.

use crate::elders::Elders;
use crate::seen::Seen;
use scotfree_cache::{
    Asked, Cache, CacheCounters, CacheFault, Cause, Kept, Language, Limits, Logged, Look, Names, Planted,
    Read, Reply, ReplyTo, RequestName, Scope,
};
use scotfree_core::{BootEpoch, DeviceId, Epoch, KeyHash, Nanos, OrderKey, SeqNum, ServerIndex};
use scotfree_device::{
    Base, Before, Count, DeviceEffects, Function, Passing, Place, Region, SessionBase, SessionChange,
    SessionName, Verdict, Way, Word,
};
use scotfree_wire::{Family, Flags, Kind, Stamp, StampKind, Tail, FURTHER_KEYS_MAX};
use std::any::Any;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What is known of one server.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) cache: Cache,
    pub(crate) epoch: Epoch,
    pub(crate) boot_epoch: BootEpoch,
}

/// Reads answered by the device.
#[derive(Debug)]
pub struct ReadCache {
    pub(crate) limits: Limits,
    planted: Planted,
    pub(crate) language: Box<dyn Language>,
    /// By server.
    pub(crate) known: Vec<Known>,
    /// By region: the requests that have passed.
    pub(crate) seen: Vec<Seen>,
    /// The same of sessions that there is no room for.
    pub(crate) seen_roomless: BTreeMap<SessionName, Seen>,
    /// By region: those that callers may wait for.
    pub(crate) elders: Vec<Elders>,
    /// Memory of what a payload says.
    key: Vec<u8>,
    value: Vec<u8>,
    /// Another device on the path, by which it is off.
    other: Option<DeviceId>,
    /// How many sessions have ended with a write that was not stable.
    pub(crate) ended_unstable: u64,
    /// The operator knows that it is off.
    told_off: bool,
}

impl ReadCache {
    /// One that knows nothing. The limits are those of all servers together.
    pub fn new(limits: Limits, language: Box<dyn Language>, planted: Planted) -> ReadCache {
        let (key, value) = (Vec::new(), Vec::new());
        ReadCache {
            limits,
            planted,
            language,
            known: Vec::new(),
            seen: Vec::new(),
            seen_roomless: BTreeMap::new(),
            elders: Vec::new(),
            key,
            value,
            other: None,
            ended_unstable: 0,
            told_off: false,
        }
    }

    /// What it has counted, of all servers.
    pub fn counters(&self) -> CacheCounters {
        let counters = self.known.iter().map(|known| *known.cache.counters());
        counters.fold(CacheCounters::default(), |sum, counters| sum.plus(&counters))
    }

    /// What is known of a server's data.
    pub fn cache(&self, server: ServerIndex) -> &Cache {
        &self.known[usize::from(server.0)].cache
    }

    pub(crate) fn cache_mut(&mut self, server: ServerIndex) -> &mut Cache {
        &mut self.known[usize::from(server.0)].cache
    }

    /// Of every server's data, since a key is not told whose it is.
    fn answer(&mut self, now: Nanos, asked: &Asked) -> String {
        let language = &self.language;
        let caches =
            self.known.iter_mut().enumerate().map(|(at, known)| (ServerIndex(at as u8), &mut known.cache));
        asked.of_all(now, language.as_ref(), caches)
    }

    fn why_off(&self) -> String {
        match self.other {
            Some(other) => format!(
                "the cache is off: device {other} stands on the path as well, and a cache needs to be in the only device; \
                 take `cache` out of [switch] functions, or the other device off the path, and restart this one"
            ),
            None => format!(
                "the cache is off: more than {} writes were under way at once whose replies it has not seen; restart the \
                 device, and give it room for all sessions (sessions_max)",
                self.limits.under_way_max
            ),
        }
    }

    // ---- requests

    fn on_read(
        &mut self,
        now: Nanos,
        base: &Base,
        region: Region,
        passing: &mut Passing<'_>,
        effects: &mut DeviceEffects,
    ) -> Verdict {
        let (Some(session), Some(stamp)) = (base.session(region), passing.stamp) else {
            return Verdict::Next;
        };
        let key_hash = passing.header.key_hash;
        self.key.clear();
        if passing.kind() != Kind::Read || passing.is_filler() {
            return Verdict::Next;
        }
        if key_hash == KeyHash(0) || !self.language.read(passing.payload, &mut self.key) {
            self.cache_mut(session.name.server).on_unoffered();
            return Verdict::Next;
        }
        // K4: a relaxed read waits for no barrier, and one that was sent before may have been executed before it had this
        // one.
        let is_relaxed = passing.header.flags.has(Flags::RELAXED);
        let waits = stamp.kind != StampKind::None && !is_relaxed && self.is_new(passing);
        let barrier = waits.then_some((stamp.boot_epoch, stamp.number));
        let name = (session.name, passing.seq());
        let caller = self.language.caller(passing.payload);
        let (answerable, completed) = (passing.answerable, passing.header.completed);
        let has_elders = self.elders[region.0 as usize].are_waited_for(caller, completed, passing.seq());
        let read = Read { name, key_hash, key: &self.key, barrier, answerable, has_elders };
        let known = &mut self.known[usize::from(session.name.server.0)];
        let look = match known.cache.on_read(now, &read) {
            // K6: a function stands before the log, and asks it when it matters.
            Look::Unsure(by)
                if is_safe(base, &known.cache, by) || self.planted.is(CacheFault::ServeOverUnsafe) =>
            {
                known.cache.on_durable(by);
                known.cache.on_read(now, &read)
            }
            look => look,
        };
        match look {
            Look::Hit(slot) => {
                Verdict::Answer(effects.append(|out| out.extend_from_slice(known.cache.value(slot))))
            }
            look => {
                if matches!(look, Look::Unsure(_)) {
                    known.cache.on_unsure();
                }
                let window_first = SeqNum(passing.seq().0.saturating_sub(u64::from(session.window)));
                known.cache.on_read_passed(now, &read, window_first);
                Verdict::Next
            }
        }
    }

    /// Whether a request was not sent before, neither again nor before this device began: the server may have executed
    /// what was.
    fn is_new(&self, passing: &Passing<'_>) -> bool {
        let seen = passing.session.map(|region| &self.seen[region.0 as usize]);
        !passing.header.flags.has(Flags::AGAIN) && seen.is_some_and(|seen| seen.is_new(passing.seq()))
    }

    /// A request of somebody passes (K14). Of a part of one it is not known whose it is.
    fn note_elder(&mut self, region: Region, passing: &Passing<'_>) {
        let is_whole = passing.place == Place::Next || passing.header.fragment_count == 1;
        let caller = self.language.caller(passing.payload).filter(|_| is_whole);
        self.elders[region.0 as usize].note(passing.seq(), caller, passing.header.completed);
    }

    /// A write passes, at its place or not.
    fn on_write(&mut self, base: &Base, server: ServerIndex, passing: &Passing<'_>) {
        let session = SessionName { server, id: passing.header.session };
        let name = (session, passing.seq());
        let mut further = [KeyHash(0); FURTHER_KEYS_MAX];
        let scope = self.scope(passing, &mut further);
        match passing.stamp.and_then(|stamp| order_of(&stamp)) {
            Some(order) => {
                let is_new = self.is_new(passing) || self.planted.is(CacheFault::TakeOldForNew);
                let (key, value) = (&mut self.key, &mut self.value);
                key.clear();
                value.clear();
                // K1: one that was executed before it had this place is not the newest, whatever its place.
                let overwrites = passing.place == Place::Next
                    && is_new
                    && passing.header.flags.has(Flags::EARLY)
                    && self.language.overwrite(passing.payload, key, value);
                let overwrite = overwrites.then_some((&key[..], &value[..]));
                let known = &mut self.known[usize::from(server.0)];
                known.cache.on_logged(&Logged { name, order, scope, overwrite });
            }
            None if !is_stable(base, name) => self.cache_mut(server).on_unlogged(name, &scope),
            None => {}
        }
    }

    /// What a write touches (K8). Of a part of a request it cannot be told.
    fn scope<'f>(&self, passing: &Passing<'_>, further: &'f mut [KeyHash; FURTHER_KEYS_MAX]) -> Scope<'f> {
        let is_whole = passing.place == Place::Next || passing.header.fragment_count == 1;
        let keys = passing.packet.extensions().further_keys();
        let count = keys.len();
        further.iter_mut().zip(keys).for_each(|(place, key)| *place = key);
        let names_all = count > 0 || is_whole && self.language.names(passing.payload) == Names::All;
        if passing.header.key_hash == KeyHash(0) || !names_all {
            return Scope::All;
        }
        Scope::Keys(passing.header.key_hash, &further[..count])
    }

    // ---- what servers say

    fn on_response(&mut self, now: Nanos, base: &Base, server: ServerIndex, passing: &Passing<'_>) {
        let header = passing.header;
        let name = (SessionName { server, id: header.session }, header.seq_num);
        let Some(session) = passing.session.and_then(|region| base.session(region)) else {
            return self.on_roomless_response(now, base, name, passing);
        };
        let known = &mut self.known[usize::from(server.0)];
        let is_whole = header.fragment_count == 1;
        if header.fragment_index + 1 < header.fragment_count {
            return;
        }
        self.value.clear();
        let (note, value) = (passing.packet.extensions().object(), &mut self.value);
        let lives = is_whole.then(|| self.language.lives(passing.payload, note, value)).flatten();
        let reply = match lives {
            _ if header.flags.has(Flags::FAILED) => Reply::Failed,
            Some(lives) => Reply::Kept(Kept { value: &self.value, lives }),
            None => Reply::Passing,
        };
        let region = passing.session.map_or(0, |region| region.0 as usize);
        let was_seen = self.seen[region].has(name.1, session.window);
        if known.cache.on_reply(now, name, &reply) == ReplyTo::Other && !was_seen {
            known.cache.reset(Cause::Unseen);
        }
    }

    /// A response to a session that there is no room for ends a write; whoever cannot be believed ends nothing.
    fn on_roomless_response(&mut self, now: Nanos, base: &Base, name: RequestName, passing: &Passing<'_>) {
        let header = passing.header;
        let window = base.roomless_window(name.0).filter(|_| passing.roomless);
        let seen = self.seen_roomless.get(&name.0).zip(window);
        let was_seen = seen.is_some_and(|(seen, window)| seen.has(name.1, window));
        let known = &mut self.known[usize::from(name.0.server.0)];
        if !was_seen {
            return known.cache.reset(Cause::Unseen);
        }
        if header.fragment_index + 1 < header.fragment_count {
            return;
        }
        let reply = if header.flags.has(Flags::FAILED) { Reply::Failed } else { Reply::Passing };
        known.cache.on_reply(now, name, &reply);
    }

    /// A request passes of a session that there is no room for.
    pub(crate) fn note_roomless(&mut self, base: &Base, session: SessionName, seq: SeqNum) {
        if let Some(window) = base.roomless_window(session) {
            self.seen_roomless.entry(session).or_default().note(seq, window);
        }
    }

    /// A device between this one and the server has acknowledged something: it would know of writes that this one does
    /// not, and lose what this one takes for durable (K11).
    fn hear_of_another(&mut self, base: &Base, server: ServerIndex, passing: &Passing<'_>) {
        let Tail::Stamp(stamp) = passing.packet.tail() else { return };
        let session = base.find(server, passing.header.session).and_then(|region| base.session(region));
        let is_authentic =
            session.is_some_and(|session| passing.packet.verify(&session.keys.device_to_client).is_ok());
        if is_authentic && stamp.device != base.device() && self.other.is_none() {
            self.other = Some(stamp.device);
            self.known.iter_mut().for_each(|known| known.cache.turn_off());
        }
    }

    /// Whether the server and the device are as they were, and the lease has not lapsed (K5).
    fn look_around(&mut self, now: Nanos, base: &Base, server: ServerIndex) {
        let (epoch, boot_epoch) = (base.heard_epoch(server), base.boot_epoch());
        let known = &mut self.known[usize::from(server.0)];
        if (known.epoch, known.boot_epoch) != (epoch, boot_epoch) {
            (known.epoch, known.boot_epoch) = (epoch, boot_epoch);
            known.cache.reset(Cause::Epoch);
        }
        if !base.has_lease(server, now) {
            known.cache.reset(Cause::Lapse);
        }
    }
}

/// The place of a logged write in the order.
pub(crate) fn order_of(stamp: &Stamp) -> Option<OrderKey> {
    (stamp.kind == StampKind::Order).then_some((stamp.boot_epoch, stamp.number))
}

fn session_of(base: &Base, (name, _): RequestName) -> Option<&SessionBase> {
    base.session(base.find(name.server, name.id)?)
}

/// Whether the server has everything of this session up to this place.
pub(crate) fn is_stable(base: &Base, name: RequestName) -> bool {
    session_of(base, name).is_some_and(|session| name.1 <= session.stable)
}

/// Whether a logged write can be lost no more: it is durable here, and so is every write before it in its session that
/// the server could still miss; else it would be given up behind the gap (K6).
fn is_safe(base: &Base, cache: &Cache, name: RequestName) -> bool {
    let Some(session) = session_of(base, name) else { return false };
    let mut at = name.1;
    while at > session.stable {
        let noted = session.noted(at).filter(|noted| noted.held && noted.durable);
        let Some(noted) = noted.filter(|noted| noted.stamp.previous_write < at) else { return false };
        at = noted.stamp.previous_write;
    }
    !cache.has_elder_under_way(name)
}

impl Function for ReadCache {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn family(&self) -> Family {
        Family::Cache
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn hears_servers(&self) -> bool {
        true
    }

    fn begin(&mut self, base: &mut Base, _token_first: u64) {
        let count = base.server_count();
        let share = Limits {
            bytes_max: self.limits.bytes_max / count,
            entries_max: self.limits.entries_max / count,
            ..self.limits
        };
        self.known = (0..count)
            .map(|_| Known {
                cache: Cache::new(share, self.planted),
                epoch: Epoch(0),
                boot_epoch: base.boot_epoch(),
            })
            .collect();
        self.seen.resize_with(base.config().sessions_max as usize, Seen::default);
        self.elders.resize_with(base.config().sessions_max as usize, Elders::default);
    }

    fn before(
        &mut self,
        now: Nanos,
        base: &mut Base,
        what: &Before<'_>,
        _effects: &mut DeviceEffects,
    ) -> Result<(), String> {
        match what {
            Before::Packet(_, server) => self.look_around(now, base, *server),
            Before::Timer | Before::Promotion | Before::NewKey | Before::Entry(..) | Before::Look => {
                (0..base.server_count())
                    .for_each(|server| self.look_around(now, base, ServerIndex(server as u8)));
            }
        }
        Ok(())
    }

    fn on_packet(
        &mut self,
        now: Nanos,
        base: &mut Base,
        passing: &mut Passing<'_>,
        effects: &mut DeviceEffects,
    ) -> Verdict {
        if let (Way::ToServer(_), Some(region)) = (passing.way, passing.session) {
            if let Some(session) = base.session(region).filter(|_| passing.kind().is_request()) {
                self.seen[region.0 as usize].note(passing.seq(), session.window);
            }
        }
        if let (Way::ToServer(server), None, true) =
            (passing.way, passing.session, passing.kind().is_request())
        {
            let session = SessionName { server, id: passing.header.session };
            self.note_roomless(base, session, passing.seq());
        }
        match passing.way {
            Way::ToServer(server) => match (passing.kind(), passing.place, passing.session) {
                (Kind::Update | Kind::Bypass, _, session) => {
                    if let Some(region) = session {
                        self.note_elder(region, passing);
                    }
                    self.on_write(base, server, passing);
                }
                (Kind::Read, Place::Next, Some(region)) => {
                    let verdict = self.on_read(now, base, region, passing, effects);
                    self.note_elder(region, passing);
                    return verdict;
                }
                (Kind::Read, _, Some(region)) => self.note_elder(region, passing),
                _ => {}
            },
            Way::ToClient(server) if passing.kind() == Kind::Response => {
                self.on_response(now, base, server, passing);
            }
            Way::ToClient(server) if passing.kind() == Kind::PersistAck => {
                self.hear_of_another(base, server, passing);
            }
            Way::ToClient(_) => {}
        }
        Verdict::Next
    }

    fn on_session(
        &mut self,
        now: Nanos,
        base: &mut Base,
        region: Region,
        change: SessionChange,
        _effects: &mut DeviceEffects,
    ) {
        let Some(session) = base.session(region) else { return };
        let name = session.name;
        self.ended_unstable +=
            u64::from(change == SessionChange::Ending && session.last_write > session.stable);
        if change == SessionChange::Opened {
            self.seen[region.0 as usize] = Seen::opened();
            self.elders[region.0 as usize] = Elders::default();
            self.seen_roomless.remove(&name);
        }
        let cache = self.cache_mut(name.server);
        match change {
            SessionChange::Opened => cache.on_opened(name),
            SessionChange::Stable(through) => cache.on_stable(name, through),
            SessionChange::Ending => cache.on_ended(now, name),
            SessionChange::Moved
            | SessionChange::Rekeyed
            | SessionChange::Revoked
            | SessionChange::Closing
            | SessionChange::Ended => {}
        }
    }

    fn on_roomless_ended(&mut self, now: Nanos, _base: &mut Base, session: SessionName) {
        self.seen_roomless.remove(&session);
        self.cache_mut(session.server).on_ended(now, session);
    }

    /// They came around the device: what they write is not known (K8).
    fn on_placed(
        &mut self,
        _now: Nanos,
        base: &mut Base,
        session: SessionName,
        run: RangeInclusive<SeqNum>,
        last_write: SeqNum,
    ) {
        if let Some(region) = base.find(session.server, session.id) {
            self.elders[region.0 as usize].note(*run.end(), None, SeqNum(0));
        }
        let end = last_write.min(*run.end());
        for seq in (run.start().0..=end.0).map(SeqNum) {
            if !is_stable(base, (session, seq)) {
                self.cache_mut(session.server).on_unlogged((session, seq), &Scope::All);
            }
        }
    }

    fn ask(&mut self, now: Nanos, _base: &mut Base, question: &str) -> Result<String, String> {
        let asked = Asked::parse(question)?;
        Ok(self.answer(now, &asked))
    }

    fn check(&mut self, tell: &mut dyn FnMut(Word)) {
        let is_off = self.known.iter().any(|known| known.cache.is_off());
        if is_off && !std::mem::replace(&mut self.told_off, true) {
            tell(Word::Alarm(self.why_off()));
        }
    }

    fn counters(&self, out: &mut dyn FnMut(Count)) {
        self.counters().each(out);
        let sum = |what: fn(&Cache) -> usize| self.known.iter().map(|known| what(&known.cache) as u64).sum();
        for (name, help, value) in [
            ("scotfree_cache_entries", "Values kept.", sum(Cache::len)),
            ("scotfree_cache_bytes", "Bytes that they take.", sum(Cache::bytes)),
            (
                "scotfree_cache_under_way",
                "Writes under way that are not logged.",
                sum(Cache::under_way_count),
            ),
            (
                "scotfree_cache_off",
                "Whether it answers nothing any more.",
                sum(|cache| cache.is_off().into()),
            ),
        ] {
            out(Count { name, help, labels: "", value });
        }
    }
}
