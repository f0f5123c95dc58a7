//! Full members that were started again: what their storage held may be behind what others have answered since, so
//! they begin without a valid key.
//!
//! One whose view has a full member that holds the group's state takes it from there. If none does, all were down,
//! and who is ahead goes on with what it has. Each key is ordered by itself, so that of two members each may be ahead
//! in some of them; but a write is answered when the storages of all full members have it, so any of them holds all
//! that was answered, if it is of the same history. Which one it is only has to be the same for all: the one with the
//! latest history, of these the one that was made by most writes, and of these the first in the view. (Where an
//! answer waits for memory alone it is lost if all are lost.)
//!
//! Invariant: in one view at most one member goes on with what its storage held: only when all full members have told
//! that they do not know either, and while they do not, what they hold does not change.

use crate::fault::HermesFault;
use crate::hermes::message::{write_claim, Claim, CLAIM, CONFIRMED};
use crate::hermes::Hermes;
use crate::replica::ReplicaOwn;
use crate::view::{MemberId, View};
use scotfree_core::{Effects, Nanos};
use scotfree_state::State;
use std::collections::BTreeMap;

/// What a full member that was started again has heard of the others.
#[derive(Debug, Clone, Hash, Default)]
pub(crate) struct Confirming {
    /// Those that do not know either, and what they hold.
    claims: BTreeMap<MemberId, Claim>,
    /// One that has the state.
    pub giver: Option<MemberId>,
}

impl<S: State> Hermes<S> {
    /// Whether another full member may hold what this one lacks.
    pub(super) fn must_confirm(&self) -> bool {
        let others = self.other_full();
        !self.is_confirmed && !others.is_empty() && !self.plants(HermesFault::RestoredTakenForValid)
    }

    fn other_full(&self) -> Vec<MemberId> {
        let full = self.desk.view().into_iter().flat_map(View::full);
        full.map(|member| member.id).filter(|id| *id != self.desk.config.id).collect()
    }

    pub(super) fn begin_to_confirm(&mut self, now: Nanos) {
        self.begin_to_take(now, Some(Confirming::default()));
    }

    fn claim(&self) -> Claim {
        Claim { lineage: self.lineage.unwrap_or(0), progress: self.state.progress() }
    }

    pub(super) fn tell_claim(&mut self, effects: &mut Effects<ReplicaOwn>) {
        let claim = self.claim();
        for to in self.other_full() {
            self.desk.tell(to, CLAIM, 16, effects, |out| write_claim(claim, out));
        }
    }

    pub(super) fn on_claim(&mut self, from: MemberId, claim: Claim, effects: &mut Effects<ReplicaOwn>) {
        if !self.desk.is_full() {
            return;
        }
        if self.has_state() {
            return self.desk.tell(from, CONFIRMED, 0, effects, |_| {});
        }
        let confirming = self.joining.as_mut().and_then(|joining| joining.confirming.as_mut());
        if let Some(confirming) = confirming.filter(|confirming| confirming.giver.is_none()) {
            confirming.claims.insert(from, claim);
            self.go_on_if_ahead(effects);
        }
    }

    /// Nobody has the state: goes on with what it has if all are to do so with that.
    fn go_on_if_ahead(&mut self, effects: &mut Effects<ReplicaOwn>) {
        if self.ahead() != Some(self.desk.config.id) {
            return;
        }
        self.joining = None;
        self.begin_to_settle();
        for to in self.other_full() {
            self.desk.tell(to, CONFIRMED, 0, effects, |_| {});
        }
    }

    /// Who is ahead, if all have said what they hold.
    fn ahead(&self) -> Option<MemberId> {
        let claims = &self.joining.as_ref()?.confirming.as_ref()?.claims;
        let is_told = self.other_full().iter().all(|id| claims.contains_key(id));
        let (view, mine) = (self.desk.view().filter(|_| is_told)?, self.claim());
        let claim_of = |id| claims.get(&id).copied().unwrap_or(mine);
        // Of equal ones the last that it comes to: the first in the view.
        view.full().rev().max_by_key(|member| claim_of(member.id)).map(|member| member.id)
    }

    /// Another has the state: it gives it.
    pub(super) fn on_confirmed(&mut self, now: Nanos, from: MemberId, effects: &mut Effects<ReplicaOwn>) {
        let Some(joining) = self.joining.as_mut() else { return };
        let Some(confirming) = joining.confirming.as_mut().filter(|confirming| confirming.giver.is_none())
        else {
            return;
        };
        confirming.giver = Some(from);
        joining.retry.restart(now, Nanos(0));
        self.forget_lineage();
        self.go_on_joining(now, effects);
    }
}
