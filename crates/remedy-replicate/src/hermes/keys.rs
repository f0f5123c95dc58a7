//! Keys that are not plainly valid, as followers see them and as stuck writes leave them.
//!
//! The five states of the protocol are all here: a key that is not in the table is Valid; one in the table is
//! Invalid, and if a round of this member tells its version, in Write or Replay; a round whose version is not its
//! key's any more is in Trans.
//!
//! Invariant: what is in the table has the version that the state has; a key leaves it when all members have that
//! version, and never before (G4).

use crate::fault::HermesFault;
use crate::hermes::message::{write_ack, Content, Invalidate, Made, Source, Validate, ACK};
use crate::hermes::place::Place;
use crate::hermes::reads::Queued;
use crate::hermes::Hermes;
use crate::replica::{ReplicaOwn, StableWhen};
use crate::view::MemberId;
use scotfree_core::{Effects, Nanos};
use scotfree_state::{request_of, Installed, Known, State, Version};
use scotfree_wire::Identity;
use std::hash::{Hash, Hasher};

/// A key whose version may not be with all members.
#[derive(Debug, Clone)]
pub(crate) struct Unsure {
    pub version: Version,
    /// The write that made it.
    pub made: Made,
    /// Who has told it here.
    pub source: Source,
    /// All members have it, though not all storages.
    pub is_valid: bool,
    /// The round of this member that tells it.
    pub round: Option<u64>,
    due: Nanos,
}

/// All but when it is looked at again.
impl Hash for Unsure {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.version, &self.made, self.source, self.is_valid, self.round).hash(state);
    }
}

/// A write whose key has a later one, or that changes none.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Overtaken {
    pub key: Box<[u8]>,
    pub made: Made,
}

impl<S: State> Hermes<S> {
    /// Whether what is here of a key may be answered.
    pub(super) fn is_valid(&self, key: &[u8]) -> bool {
        self.keys.get(key).is_none_or(|unsure| unsure.is_valid)
    }

    /// Keeps a write in the state, and its answer under its identity.
    /// False if the value is none of the application's.
    pub(super) fn install(&mut self, key: &[u8], version: Version, content: &Content, made: &Made) -> bool {
        let value = match content {
            Content::Value(value) => Some(&value[..]),
            Content::Gone | Content::Note => None,
        };
        // A note is of a version that no key has, so that it changes none.
        let version = if *content == Content::Note { Version::default() } else { version };
        let session = self.requests.get(&request_of(&made.identity)).and_then(|waiting| waiting.session);
        let installed = Installed {
            key,
            version,
            value,
            identity: made.identity,
            at_ms: made.at_ms,
            reply: &made.reply,
            session,
        };
        let applied = self.state.install(&installed);
        if applied.is_refused {
            self.desk.damaged();
            return false;
        }
        self.last_number = applied.number;
        self.desk.counters.applied += 1;
        true
    }

    fn is_noted(&self, identity: &Identity) -> bool {
        matches!(self.state.results().look(identity, 0), Known::Answered(_) | Known::Forgotten)
    }

    // ---- as a follower

    pub(super) fn on_invalidate(
        &mut self,
        now: Nanos,
        from: MemberId,
        invalidate: Invalidate,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        if !self.has_state() {
            // What a full member acknowledged it must have, even if no other is left to give it the state.
            if !self.desk.is_full() {
                self.keep_early(from, invalidate, effects);
            }
            return;
        }
        if !self.state.has_room() {
            // It comes again: whoever tells it waits meanwhile, and begins nothing new once it has no window.
            return;
        }
        self.forget_done(from, invalidate.done_below);
        let round = invalidate.round;
        if !self.follow(now, from, invalidate) {
            return;
        }
        let is_stored = self.state.stable() >= self.last_number;
        if !is_stored && self.desk.config.stable_when == StableWhen::Stored {
            self.storing.push_back((self.last_number, from, round));
        }
        self.desk.tell(from, ACK, 9, effects, |out| write_ack(round, is_stored, out));
    }

    /// Installs what is newer, and notes whatever it is. False if it is damaged.
    pub(super) fn follow(&mut self, now: Nanos, from: MemberId, invalidate: Invalidate) -> bool {
        let Invalidate { round, key, version, content, made, .. } = invalidate;
        let here = self.state.version(&key);
        let is_note = content == Content::Note;
        let is_newer = !is_note && self.is_newer(version, here);
        let is_noted = self.is_noted(&made.identity);
        if self.plants(HermesFault::NotInstalled) && !self.is_valid(&key) {
            return true;
        }
        if (is_newer || !is_noted) && !self.install(&key, version, &content, &made) {
            return false;
        }
        if is_newer {
            self.mark_unsure(now, &key, version, made, (from, round), None);
        } else if (is_note || version != here) && !is_noted {
            self.overtaken.insert((from, round), Overtaken { key, made });
        }
        true
    }

    fn is_newer(&self, version: Version, here: Version) -> bool {
        let is_tied = Place::of(version).count == Place::of(here).count
            && Place::of(version).member != Place::of(here).member;
        version > here && !(is_tied && self.plants(HermesFault::TieIgnored))
    }

    pub(super) fn on_validate(
        &mut self,
        now: Nanos,
        from: MemberId,
        validate: &Validate<'_>,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        if !self.has_state() {
            return;
        }
        self.forget_done(from, validate.done_below);
        self.overtaken.remove(&(from, validate.round));
        let mut version = validate.version;
        if self.plants(HermesFault::OlderMakesValid) && version != Version::default() {
            version = self.state.version(validate.key);
        }
        self.key_committed(now, validate.key, version);
        if validate.is_stable {
            self.key_stable(now, validate.key, version, effects);
        }
    }

    /// What the sender has told and all members have need not be noted again.
    fn forget_done(&mut self, from: MemberId, done_below: u64) {
        let mut rest = self.overtaken.split_off(&(from, 0));
        self.overtaken.append(&mut rest.split_off(&(from, done_below)));
    }

    // ---- the table

    /// A key has a new version that may not be with all. What it had before may not either: that is kept apart.
    pub(super) fn mark_unsure(
        &mut self,
        now: Nanos,
        key: &[u8],
        version: Version,
        made: Made,
        source: Source,
        round: Option<u64>,
    ) {
        let due = now.plus(self.replay_after(self.queues.contains_key(key)));
        let unsure = Unsure { version, made, source, is_valid: false, round, due };
        if let Some(old) = self.keys.insert(key.into(), unsure) {
            self.stuck.remove(&(old.due, key.into()));
            if !old.is_valid && old.round.is_none() {
                self.overtaken.insert(old.source, Overtaken { key: key.into(), made: old.made });
            }
        }
        self.stuck.insert((due, key.into()));
    }

    /// Something waits for a key that is not valid.
    pub(super) fn wait_for_key(&mut self, now: Nanos, key: &[u8], queued: Queued) {
        self.queues.entry(key.into()).or_default().push_back(queued);
        let soon = now.plus(self.replay_after(true));
        if self.keys.get(key).is_some_and(|unsure| unsure.due > soon) {
            self.look_again(key, soon);
        }
    }

    /// Whoever made a write tells it again by itself, so others do it only if it takes longer than usual, and sooner
    /// if something waits. Members begin one after the other, so that mostly one does.
    fn replay_after(&self, is_awaited: bool) -> Nanos {
        let me = self.desk.config.id;
        let members = self.desk.view().map_or(&[][..], |view| &view.members);
        let place = members.iter().position(|member| member.id == me).unwrap_or(0) as u64;
        let limits = self.desk.config.limits;
        let first = if is_awaited { self.patience(limits.replay_after) } else { limits.retry_max };
        Nanos(first.0 * (1 + place))
    }

    /// All members have this version of a key.
    pub(super) fn key_committed(&mut self, now: Nanos, key: &[u8], version: Version) {
        let is_it = |unsure: &&mut Unsure| unsure.version == version && !unsure.is_valid;
        let Some(unsure) = self.keys.get_mut(key).filter(is_it) else { return };
        unsure.is_valid = true;
        self.ready_keys.push_back(key.into());
        let later = now.plus(self.desk.config.limits.retry_max);
        if self.desk.config.stable_when == StableWhen::InMemory {
            self.forget_key(key);
        } else {
            self.look_again(key, later);
        }
    }

    /// All storages have it.
    pub(super) fn key_stable(
        &mut self,
        now: Nanos,
        key: &[u8],
        version: Version,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        self.key_committed(now, key, version);
        if self.keys.get(key).is_some_and(|unsure| unsure.version == version) {
            self.forget_key(key);
        }
        let Some(reads) = self.unstable_reads.remove(key) else { return };
        let (stable, left): (Vec<_>, Vec<_>) = reads.into_iter().partition(|(of, _)| *of <= version);
        for (_, ticket) in stable {
            effects.own(ReplicaOwn::Stable { ticket });
        }
        if !left.is_empty() {
            self.unstable_reads.insert(key.into(), left);
        }
    }

    fn forget_key(&mut self, key: &[u8]) {
        if let Some(unsure) = self.keys.remove(key) {
            self.stuck.remove(&(unsure.due, key.into()));
        }
    }

    fn look_again(&mut self, key: &[u8], at: Nanos) {
        let Some(unsure) = self.keys.get_mut(key) else { return };
        self.stuck.remove(&(unsure.due, key.into()));
        unsure.due = at;
        self.stuck.insert((at, key.into()));
    }

    // ---- stuck writes

    pub(super) fn replay_stuck(&mut self, now: Nanos) {
        // A joiner counts no other joiner: what it tells would be committed without those.
        let may = self.desk.is_full() && self.has_state();
        while let Some((_, key)) = self.stuck.first().filter(|(due, _)| *due <= now).cloned() {
            self.look_again(&key, now.plus(self.desk.config.limits.retry_max));
            if may && self.keys.get(&key).is_some_and(|unsure| unsure.round.is_none()) {
                self.replay(&key);
            }
        }
    }

    /// G5: tells a write again as it is, whosever it was.
    pub(super) fn replay(&mut self, key: &[u8]) {
        let Some(unsure) = self.keys.get(key) else { return };
        let (mut version, made) = (unsure.version, unsure.made.clone());
        let mut value = Vec::new();
        let is_there = self.state.value(key, &mut value);
        let content = if is_there { Content::Value(value.into()) } else { Content::Gone };
        if self.plants(HermesFault::ReplayedAsNew) {
            version = Place::of(version).next(self.desk.config.id).unwrap_or_default().version();
            self.install(key, version, &content, &made);
        }
        let round = self.begin_round(key.into(), version, content, made);
        if let Some(unsure) = self.keys.get_mut(key) {
            (unsure.round, unsure.version) = (Some(round), version);
        }
    }
}
