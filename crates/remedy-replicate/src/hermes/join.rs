//! A member that joins is given the state by the first full one, while it takes every write already (G8). So is a
//! full one that was started again, by one that was not.
//!
//! A joiner greets the full members first. One that does not hear it, since nothing passes between the two, goes on
//! without it.
//!
//! Invariant: a joiner asks for the state only when all full members of its view count it, and is given one that was
//! made since. It acknowledges only what it keeps: what comes before the state is kept aside, and taken behind it. So
//! what is committed by a member that counts it, it has from there, and what was committed before is in the state.
//! What was not valid at the member that gave the state is not valid here.

use crate::datagram::blob;
use crate::datagram::{Reader, Refusal};
use crate::desk::Retry;
use crate::fault::HermesFault;
use crate::hermes::confirm::Confirming;
use crate::hermes::keys::Overtaken;
use crate::hermes::message::{
    read_made, read_source, write_ack, write_made, write_source, Invalidate, Made, Source, ACK, COUNTED,
    GREETING, HEARD, JOINED, READY,
};
use crate::hermes::Hermes;
use crate::replica::{ReplicaOwn, StableWhen};
use crate::transfer::{write_piece, write_want, Giving, Piece, Taking, Want, PIECE, WANT};
use crate::view::{MemberId, Standing};
use scotfree_core::{Effects, Nanos};
use scotfree_state::State;
use std::collections::{BTreeMap, BTreeSet};

/// A member that has not the state, or as a joiner not yet for all others.
#[derive(Debug, Clone, Hash, Default)]
pub(crate) struct Joining {
    /// The full members that count this one: nothing is committed by them without it.
    heard_by: BTreeSet<MemberId>,
    /// The state, until it is whole.
    taking: Option<Taking>,
    /// Writes that came before it.
    early: BTreeMap<Source, Invalidate>,
    early_bytes: usize,
    /// Who waits for this member's storage before anything is stable.
    counted_by: BTreeSet<MemberId>,
    /// What storage has to have before this member may be full.
    through: Option<u64>,
    /// Of a full member: what it has to know before it is one.
    pub confirming: Option<Confirming>,
    pub retry: Retry,
}

/// What a snapshot says beside the state.
#[derive(Debug, Default)]
struct Beside {
    unsure: Vec<(Box<[u8]>, Source, Made)>,
    overtaken: Vec<(Source, Overtaken)>,
}

impl<S: State> Hermes<S> {
    /// Whether this member has the state of its group.
    pub(super) fn has_state(&self) -> bool {
        self.joining.as_ref().is_none_or(|joining| joining.taking.is_none())
    }

    pub(super) fn begin_to_join(&mut self, now: Nanos) {
        self.begin_to_take(now, None);
        self.forget_lineage();
    }

    /// What is stored is about to be replaced.
    pub(super) fn forget_lineage(&mut self) {
        (self.lineage, self.taken_at) = (None, None);
    }

    pub(super) fn begin_to_take(&mut self, now: Nanos, confirming: Option<Confirming>) {
        let taking = Some(Taking::default());
        let mut joining = Joining { taking, confirming, ..Joining::default() };
        joining.retry.restart(now, Nanos(0));
        (self.joining, self.is_confirmed) = (Some(joining), false);
    }

    /// Who gives the state; nobody yet if it is not known who has it.
    fn giver(&self) -> Option<MemberId> {
        if let Some(confirming) = self.joining.as_ref().and_then(|joining| joining.confirming.as_ref()) {
            return confirming.giver;
        }
        self.desk.view().and_then(|view| view.full().next()).map(|member| member.id)
    }

    /// Keeps a write for when the state is here.
    pub(super) fn keep_early(
        &mut self,
        from: MemberId,
        invalidate: Invalidate,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        let (max, round) = (self.desk.config.limits.kept_bytes_max, invalidate.round);
        let drops = self.plants(HermesFault::EarlyDropped);
        let Some(joining) = self.joining.as_mut() else { return };
        let source = (from, round);
        if !joining.early.contains_key(&source) {
            let bytes = invalidate.bytes();
            if !joining.early.is_empty() && joining.early_bytes + bytes > max {
                return;
            }
            joining.early_bytes += bytes;
            if !drops {
                joining.early.insert(source, invalidate);
            }
        }
        self.desk.tell(from, ACK, 9, effects, |out| write_ack(round, false, out));
    }

    // ---- as the joiner

    /// Asks for what is missing, or says that nothing is.
    pub(super) fn go_on_joining(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        let (max, giver) = (self.desk.config.limits.retry_max, self.giver());
        let Some(joining) = self.joining.as_mut().filter(|joining| joining.retry.at().is_some()) else {
            return;
        };
        if !joining.retry.is_due(now, max) {
            return;
        }
        let Some(giver) = giver else { return self.tell_claim(effects) };
        let want = joining.taking.as_mut().map(Taking::want);
        let is_early = want.is_some() && self.plants(HermesFault::StateBeforeCounted);
        if self.greet(effects) && !is_early {
            return;
        }
        match want {
            Some(want) => self.desk.tell(giver, WANT, 24, effects, |out| write_want(want, out)),
            None => self.go_on_ready(giver, effects),
        }
    }

    /// Greets the full members that do not count it yet; whether there are any.
    fn greet(&mut self, effects: &mut Effects<ReplicaOwn>) -> bool {
        let Some(joining) = self.joining.as_ref().filter(|_| !self.desk.is_full()) else { return false };
        let deaf: Vec<MemberId> =
            self.others.iter().copied().filter(|id| !joining.heard_by.contains(id)).collect();
        for to in &deaf {
            self.desk.tell(*to, GREETING, 0, effects, |_| {});
        }
        !deaf.is_empty()
    }

    pub(super) fn on_greeting(&mut self, from: MemberId, effects: &mut Effects<ReplicaOwn>) {
        if self.is_joiner(from) && self.desk.is_full() {
            self.count_joiner(from);
            self.desk.tell(from, HEARD, 0, effects, |_| {});
        }
    }

    pub(super) fn on_heard(&mut self, now: Nanos, from: MemberId, effects: &mut Effects<ReplicaOwn>) {
        let Some(joining) = self.joining.as_mut() else { return };
        let is_news = joining.heard_by.insert(from);
        if is_news && self.others.iter().all(|id| joining.heard_by.contains(id)) {
            joining.retry.restart(now, Nanos(0));
            self.go_on_joining(now, effects);
        }
    }

    /// Once all others wait for its storage, and that has what could be stable without it, it may be full.
    fn go_on_ready(&mut self, giver: MemberId, effects: &mut Effects<ReplicaOwn>) {
        let Some(joining) = self.joining.as_ref() else { return };
        let is_stored = joining.through.is_some_and(|through| through <= self.state.stable());
        if is_stored || self.desk.config.stable_when == StableWhen::InMemory {
            return self.desk.tell(giver, READY, 0, effects, |_| {});
        }
        for to in self.others.iter().filter(|id| !joining.counted_by.contains(id)) {
            self.desk.tell(*to, JOINED, 0, effects, |_| {});
        }
    }

    pub(super) fn on_joined(&mut self, from: MemberId, effects: &mut Effects<ReplicaOwn>) {
        if self.is_joiner(from) {
            self.count_storage(from);
            self.desk.tell(from, COUNTED, 0, effects, |_| {});
        }
    }

    /// What was stable before the sender counted this member it has acknowledged before, so it is in its state.
    pub(super) fn on_counted(&mut self, now: Nanos, from: MemberId, effects: &mut Effects<ReplicaOwn>) {
        let Some(joining) = self.joining.as_mut().filter(|joining| joining.taking.is_none()) else { return };
        joining.counted_by.insert(from);
        let is_counted = self.others.iter().all(|id| joining.counted_by.contains(id));
        if is_counted && joining.through.is_none() {
            joining.through = Some(self.last_number);
            joining.retry.restart(now, Nanos(0));
            self.go_on_joining(now, effects);
        }
    }

    pub(super) fn on_piece(
        &mut self,
        now: Nanos,
        from: MemberId,
        piece: &Piece<'_>,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        let (giver, retry_min) = (self.giver(), self.desk.config.limits.retry_min);
        let Some(joining) = self.joining.as_mut().filter(|_| Some(from) == giver) else { return };
        let Some(taking) = joining.taking.as_mut() else { return };
        let wants_more = taking.take(piece);
        if let Some(bytes) = taking.whole().map(<[u8]>::to_vec) {
            return self.take_state(now, &bytes);
        }
        if wants_more {
            let want = taking.want();
            self.desk.tell(from, WANT, 24, effects, |out| write_want(want, out));
        }
        joining.retry.restart(now, retry_min);
    }

    fn take_state(&mut self, now: Nanos, bytes: &[u8]) {
        let taken = read_snapshot(bytes)
            .ok()
            .and_then(|(beside, rest)| Some((beside, self.state.read_snapshot(rest).ok()?.number)));
        let Some((beside, number)) = taken else {
            self.desk.damaged();
            let confirming = self.joining.take().and_then(|joining| joining.confirming);
            return self.begin_to_take(now, confirming);
        };
        (self.last_number, self.taken_at) = (number, Some(number));
        self.lineage = self.desk.view().map(|view| view.founded);
        self.desk.counters.snapshots_taken += 1;
        let Joining { early, heard_by, .. } = self.joining.take().unwrap_or_default();
        self.is_confirmed = true;
        if !self.desk.is_full() {
            let mut joining = Joining { heard_by, ..Joining::default() };
            joining.retry.restart(now, Nanos(0));
            self.joining = Some(joining);
        }
        if !self.plants(HermesFault::GivenTakenForValid) {
            for (key, source, made) in beside.unsure {
                let version = self.state.version(&key);
                self.mark_unsure(now, &key, version, made, source, None);
            }
        }
        self.overtaken.extend(beside.overtaken);
        for ((from, _), invalidate) in early {
            self.follow(now, from, invalidate);
        }
    }

    // ---- as the member that gives

    pub(super) fn on_want(&mut self, from: MemberId, want: Want, effects: &mut Effects<ReplicaOwn>) {
        if !self.desk.is_full() || !self.has_state() {
            return;
        }
        // What was made for another one may be from before all count this one.
        let whose = if self.plants(HermesFault::GivenToSeveral) { MemberId(0) } else { from };
        if !self.giving.contains_key(&whose) {
            let mut bytes = Vec::new();
            self.write_snapshot(&mut bytes);
            self.desk.counters.snapshots_given += 1;
            self.giving.insert(whose, Giving { mark: self.desk.epoch(), bytes });
        }
        let Some(giving) = self.giving.get(&whose) else { return };
        for piece in giving.pieces(want) {
            self.desk.tell(from, PIECE, piece.bytes.len() + 28, effects, |out| write_piece(&piece, out));
        }
    }

    fn is_joiner(&self, id: MemberId) -> bool {
        let member = self.desk.view().and_then(|view| view.member(id));
        member.is_some_and(|member| member.standing == Standing::Joining)
    }

    pub(super) fn on_ready(&mut self, from: MemberId, effects: &mut Effects<ReplicaOwn>) {
        if self.is_joiner(from) && self.desk.is_full() {
            effects.own(ReplicaOwn::Promote { member: from, epoch: self.desk.epoch() });
        }
    }

    /// Keys that are not valid here, what was overtaken, and the state.
    fn write_snapshot(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.keys.len() as u32).to_le_bytes());
        for (key, unsure) in &self.keys {
            blob(key, out);
            write_source(unsure.source, out);
            write_made(&unsure.made, out);
        }
        out.extend_from_slice(&(self.overtaken.len() as u32).to_le_bytes());
        for (source, Overtaken { key, made }) in &self.overtaken {
            blob(key, out);
            write_source(*source, out);
            write_made(made, out);
        }
        let mut state = Vec::new();
        self.state.write_snapshot(&mut state);
        blob(&state, out);
    }
}

fn read_snapshot(bytes: &[u8]) -> Result<(Beside, &[u8]), Refusal> {
    let mut reader = Reader::of(bytes);
    let mut beside = Beside::default();
    for _ in 0..reader.u32()? {
        let key = reader.blob()?.into();
        beside.unsure.push((key, read_source(&mut reader)?, read_made(&mut reader)?));
    }
    for _ in 0..reader.u32()? {
        let key = reader.blob()?.into();
        let source = read_source(&mut reader)?;
        beside.overtaken.push((source, Overtaken { key, made: read_made(&mut reader)? }));
    }
    let state = reader.blob()?;
    reader.end().map(|()| (beside, state))
}
