//! A member that joins is given the state by the one before it, and counts before it is full (G8).
//!
//! Invariant: a joiner is made full only when nothing can be committed without it any more.

use crate::chain::log::Log;
use crate::chain::message::Progress;
use crate::chain::Chain;
use crate::fault::Fault;
use crate::replica::ReplicaOwn;
use crate::transfer::{write_piece, write_want, Giving, Piece, Taking, Want, PIECE, WANT};
use crate::view::{MemberId, Standing};
use scotfree_core::{Effects, Nanos};
use scotfree_state::{Applied, State};

impl<S: State> Chain<S> {
    /// Takes the log behind what this member has, if that is known to be of the group; else the state first.
    pub(super) fn begin_to_join(&mut self, now: Nanos, founded: u64, effects: &mut Effects<ReplicaOwn>) {
        self.taking = None;
        if self.lineage != Some(founded) {
            self.forget_history(effects);
        }
        if self.lineage.is_none() {
            self.take_state(now);
        }
    }

    /// The group has begun anew without this member: what it has may be of no history of the group.
    fn forget_history(&mut self, effects: &mut Effects<ReplicaOwn>) {
        (self.lineage, self.taken_at) = (None, None);
        (self.known_committed, self.stable_all, self.stored) = (0, 0, 0);
        self.storing.clear();
        // Nothing that waits is to overtake what is lost.
        if !self.unstable.is_empty() && !self.desk.plants(Fault::DisplacedOvertaken) {
            self.give_up_all(effects);
        }
        for (_, ticket) in std::mem::take(&mut self.unstable) {
            effects.own(ReplicaOwn::Lost { ticket });
        }
    }

    fn take_state(&mut self, now: Nanos) {
        self.taking.get_or_insert_with(Taking::default);
        self.wanting.restart(now, Nanos(0));
    }

    /// What a joiner has: it may lack more than the log goes back, or have caught up.
    pub(super) fn on_joiner(&mut self, progress: &Progress, effects: &mut Effects<ReplicaOwn>) {
        let Some(next) = &self.successor else { return };
        let received = progress.received;
        if received + 1 < self.log.first() {
            let member = next.id;
            return self.offer_state(member, effects);
        }
        if self.giving.as_ref().is_some_and(|giving| received >= giving.mark) {
            self.giving = None;
        }
        // A tail that has not heard from its own predecessor may hold what an earlier tail has committed. And what
        // this member has said is stable must be so at the joiner, too.
        let has_all = received >= self.committed && progress.stable >= self.stable_from_here();
        let is_near = self.is_introduced && has_all;
        if self.tail == Some(self.desk.config.id) && is_near && self.giving.is_none() {
            // From here on nothing is committed that it does not have.
            let Some(next) = self.successor.as_mut() else { return };
            next.is_counted = !self.desk.config.planted.has(Fault::JoinerNotCounted);
            effects.own(ReplicaOwn::Promote { member: next.id, epoch: self.desk.epoch() });
        }
    }

    /// Without being asked: the log does not go back as far as the joiner needs.
    fn offer_state(&mut self, member: MemberId, effects: &mut Effects<ReplicaOwn>) {
        let any = Want { mark: crate::transfer::ANY, offset: 0, count: 1 };
        self.on_want(member, any, effects);
    }

    pub(super) fn on_want(&mut self, from: MemberId, want: Want, effects: &mut Effects<ReplicaOwn>) {
        let is_joiner =
            self.successor.as_ref().is_some_and(|next| next.id == from && next.standing == Standing::Joining);
        if !is_joiner || !self.is_introduced || self.taking.is_some() {
            return;
        }
        if self.giving.is_none() {
            let mut bytes = Vec::new();
            self.state.write_snapshot(&mut bytes);
            self.desk.counters.snapshots_given += 1;
            self.giving = Some(Giving { mark: self.log.applied(), bytes });
        }
        let Some(giving) = &self.giving else { return };
        for piece in giving.pieces(want) {
            self.desk.tell(from, PIECE, piece.bytes.len() + 28, effects, |out| write_piece(&piece, out));
        }
    }

    pub(super) fn on_piece(
        &mut self,
        now: Nanos,
        from: MemberId,
        piece: &Piece<'_>,
        effects: &mut Effects<ReplicaOwn>,
    ) {
        let is_joining = self.desk.myself().is_some_and(|member| member.standing == Standing::Joining);
        if Some(from) != self.predecessor
            || !is_joining
            || (self.lineage.is_some() && piece.mark <= self.log.last())
        {
            return;
        }
        let taking = self.taking.get_or_insert_with(Taking::default);
        let wants_more = taking.take(piece);
        let is_whole = taking.whole().is_some();
        if is_whole {
            self.finish_taking(now, effects);
        } else if wants_more {
            self.want(effects);
        }
        if !is_whole {
            self.wanting.restart(now, self.desk.config.limits.retry_min);
        }
    }

    fn finish_taking(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        let Some(taking) = self.taking.take() else { return };
        let Some(Ok(Applied { number, .. })) = taking.whole().map(|bytes| self.state.read_snapshot(bytes))
        else {
            self.desk.damaged();
            return self.take_state(now);
        };
        let applied = self.state.mark().0;
        self.log = Log::behind(applied);
        self.committed = applied;
        self.known_committed = applied;
        // All before the snapshot is stored when the state says that the snapshot is.
        self.storing.clear();
        self.storing.push_back((number, applied));
        self.lineage = self.desk.view().map(|view| view.founded);
        self.taken_at = Some(number);
        self.desk.counters.snapshots_taken += 1;
        self.wanting.stop();
        self.told_progress = None;
        self.hello.restart(now, Nanos(0));
        self.answer_known(now, effects);
    }

    fn want(&mut self, effects: &mut Effects<ReplicaOwn>) {
        let (Some(before), Some(taking)) = (self.predecessor, self.taking.as_mut()) else { return };
        let want = taking.want();
        self.desk.tell(before, WANT, 24, effects, |out| write_want(want, out));
    }

    pub(super) fn want_again(&mut self, now: Nanos, effects: &mut Effects<ReplicaOwn>) {
        if self.taking.is_none() {
            self.wanting.stop();
        } else if self.wanting.is_due(now, self.desk.config.limits.retry_max) {
            self.want(effects);
        }
    }
}
