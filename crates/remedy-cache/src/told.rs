//! What programs say that answer reads in the function's place: they see packets first, and tell of those that it has to
//! know.
//!
//! Invariant: what is told is to the rules what the packet would have been, but that no read is answered behind its
//! passing and no write becomes a pending value: programs put in by themselves what they have shown and is overwritten.

use crate::function::{is_stable, order_of, ReadCache};
use scotfree_cache::{Cause, Logged, Names, Read, RequestName, Scope};
use scotfree_core::{KeyHash, Nanos, SeqNum, ServerIndex, SessionId, SessionName};
use scotfree_device::{Base, Place};
use scotfree_wire::{Flags, Kind, Packet, Stamp, StampKind};

/// A request that programs have let pass.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The server that it goes to.
    pub server: ServerIndex,
    /// Its session.
    pub session: SessionId,
    /// Its place there.
    pub seq: SeqNum,
    /// Its kind.
    pub kind: Kind,
    /// Its flags.
    pub flags: Flags,
    /// Everything up to here is complete at its client.
    pub completed: SeqNum,
    /// Whether it was the next.
    pub place: Place,
    /// The stamp under which it has passed.
    pub stamp: Stamp,
    /// When it has passed.
    pub passed_at: Nanos,
    /// Of a write the key that alone it touches, and of a read its own; 0 if there is none such.
    pub key_hash: KeyHash,
    /// Of a write how often its key was answered before.
    pub reads: u64,
    /// Of a read that may be answered what tells it from all others, if its reply may be kept.
    pub read: Option<&'a [u8]>,
    /// Of a read that may be answered: its reply is not kept, nor does it come here.
    pub is_unkept: bool,
}

impl ReadCache {
    /// A request has passed the programs.
    pub fn on_told(&mut self, base: &Base, told: &Told<'_>) {
        let session = SessionName { server: told.server, id: told.session };
        let region = base.find(told.server, told.session);
        if let Some(region) = region {
            let window = base.session(region).map_or(1, |session| session.window);
            self.seen[region.0 as usize].note(told.seq, window);
            self.elders[region.0 as usize].note(told.seq, None, told.completed);
        } else {
            self.note_roomless(base, session, told.seq);
        }
        let name = (session, told.seq);
        match told.kind {
            Kind::Read => self.on_read_told(base, name, told),
            _ => self.on_write_told(base, name, told),
        }
    }

    fn on_read_told(&mut self, base: &Base, name: RequestName, told: &Told<'_>) {
        if told.is_unkept {
            return self.cache_mut(told.server).on_unkept_read_told(told.key_hash);
        }
        let region = base.find(told.server, told.session);
        let (Some(region), Place::Next) = (region, told.place) else { return };
        let Some(key) = told.read else {
            if !told.flags.has(Flags::SKIP) {
                self.cache_mut(told.server).on_unoffered();
            }
            return;
        };
        let window = base.session(region).map_or(1, |session| session.window);
        // K4, as of a packet.
        let is_new = !told.flags.has(Flags::AGAIN) && self.seen[region.0 as usize].is_new(told.seq);
        let waits = told.stamp.kind != StampKind::None && !told.flags.has(Flags::RELAXED) && is_new;
        let barrier = waits.then_some((told.stamp.boot_epoch, told.stamp.number));
        let has_elders = told.completed.next() < told.seq;
        let read = Read { name, key_hash: told.key_hash, key, barrier, answerable: true, has_elders };
        let window_first = SeqNum(told.seq.0.saturating_sub(u64::from(window)));
        self.cache_mut(told.server).on_read_told(told.passed_at, &read, window_first);
    }

    fn on_write_told(&mut self, base: &Base, name: RequestName, told: &Told<'_>) {
        let scope = match told.key_hash {
            KeyHash(0) => Scope::All,
            key_hash => Scope::Keys(key_hash, &[]),
        };
        let cache = self.cache_mut(told.server);
        cache.count_reads(told.key_hash, told.reads);
        if let Some(order) = order_of(&told.stamp) {
            return cache.on_logged(&Logged { name, order, scope, overwrite: None });
        }
        cache.on_unlogged(name, &scope);
        // It may have become stable before it was told of: it was a write all the same.
        if is_stable(base, name) {
            cache.on_stable(name.0, name.1);
        }
    }

    /// Whether a reply is kept only of what was read of late.
    pub fn has_doorkeeper(&self) -> bool {
        self.limits.admit_reads > 1
    }

    /// A response has passed the programs to what never passed here.
    pub fn on_told_unseen(&mut self, server: ServerIndex) {
        self.cache_mut(server).reset(Cause::Unseen);
    }

    /// Everything of a session up to here is stable, as who keeps its places has found.
    pub fn on_told_stable(&mut self, session: SessionName, through: SeqNum) {
        self.cache_mut(session.server).on_stable(session, through);
    }

    /// The keys that a request touches, if it is known that it touches no others.
    pub fn keys_of(&self, packet: &Packet<'_>) -> Option<Vec<KeyHash>> {
        let header = packet.header();
        let further: Vec<KeyHash> = packet.extensions().further_keys().collect();
        let names_all = !further.is_empty() || self.language.names(packet.payload()) == Names::All;
        let is_known = header.fragment_count == 1 && header.key_hash != KeyHash(0) && names_all;
        is_known.then(|| std::iter::once(header.key_hash).chain(further).collect())
    }

    /// The key of a read whose reply may fill.
    pub fn awaited(&self, (session, seq): RequestName) -> Option<(KeyHash, &[u8])> {
        self.cache(session.server).awaited((session, seq))
    }

    /// What reads of a key are answered with as long as nothing passes that concerns it; none if there is nothing such,
    /// or if the server or the device are not known to be as they were (K5).
    pub fn lasting(
        &mut self,
        now: Nanos,
        base: &Base,
        server: ServerIndex,
        key_hash: KeyHash,
        key: &[u8],
    ) -> Option<&[u8]> {
        let known = &mut self.known[usize::from(server.0)];
        let is_as_it_was = (known.epoch, known.boot_epoch) == (base.heard_epoch(server), base.boot_epoch());
        let asker = SessionName { server, id: SessionId(0) };
        let answers = is_as_it_was && base.has_lease(server, now);
        answers.then(|| known.cache.lasting(now, asker, key_hash, key)).flatten()
    }

    /// Programs have answered so many reads of a key.
    pub fn mark(&mut self, server: ServerIndex, key_hash: KeyHash, key: &[u8], reads: u32) {
        self.cache_mut(server).mark(key_hash, key, reads.into());
    }

    /// Whether a write of this session is under way: it may be given up, and what follows it there with it (K6).
    pub fn has_under_way(&self, session: SessionName) -> bool {
        self.cache(session.server).has_elder_under_way((session, SeqNum(u64::MAX)))
    }

    /// How often something was forgotten that no write has made stale, or a session has ended whose logged writes programs
    /// may show.
    pub fn forgotten(&self) -> u64 {
        self.ended_unstable + self.known.iter().map(|known| known.cache.forgotten()).sum::<u64>()
    }
}
