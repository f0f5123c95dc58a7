//! The membership of this world: it hears members' keep-alives, and writes views.
//!
//! Invariant: as the one on etcd: a view without a member is written only when its lease is over (G7); a member that
//! was started again joins anew.

use remedy_replicate::{Member, MemberId, Standing, View};
use scotfree_core::Nanos;

/// What the membership knows of a member.
#[derive(Debug, Clone, Copy)]
struct Alive {
    boot: u32,
    until: Nanos,
    progress: u64,
}

/// Views and leases.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) view: View,
    alive: Vec<Option<Alive>>,
    lease: Nanos,
    /// A total restart waits until the others have had time to come.
    alone_since: Option<Nanos>,
    /// The lives that an operator knows of.
    stated_boots: Vec<u32>,
}

impl Membership {
    pub(crate) fn new(view: View, lease: Nanos) -> Membership {
        let first = |member: &Member| Some(Alive { boot: member.boot, until: lease, progress: 0 });
        let alive = view.members.iter().map(first).collect();
        let stated_boots = view.members.iter().map(|_| 1).collect();
        Membership { view, alive, lease, alone_since: None, stated_boots }
    }

    /// A member's keep-alive has come; whether its lease begins or goes on.
    pub(crate) fn hear(&mut self, now: Nanos, index: usize, boot: u32, progress: u64) -> bool {
        let held_by_other = self.alive[index].is_some_and(|alive| alive.boot != boot && alive.until > now);
        if !held_by_other {
            self.alive[index] = Some(Alive { boot, until: now.plus(self.lease), progress });
        }
        !held_by_other
    }

    fn lives(&self, now: Nanos, member: &Member) -> bool {
        let alive = self.alive[usize::from(member.id.0) - 1];
        alive.is_some_and(|alive| alive.until > now && alive.boot == member.boot)
    }

    /// An operator looks after the view: all are full members of a new one when one was started again. Whether there
    /// is one.
    pub(crate) fn look_stated(&mut self) -> bool {
        let boots: Vec<u32> = self.alive.iter().map(|alive| alive.map_or(0, |alive| alive.boot)).collect();
        let is_new = boots != self.stated_boots;
        if is_new {
            self.view.epoch += 1;
            self.stated_boots = boots;
        }
        is_new
    }

    /// Looks whether the view is still right; whether there is a new one.
    pub(crate) fn look(&mut self, now: Nanos, members: &[Member]) -> bool {
        let mut next = self.view.clone();
        let full_lives = next.full().any(|member| self.lives(now, member));
        if full_lives {
            self.alone_since = None;
            next.members.retain(|member| self.lives(now, member));
        } else if !self.begin_anew(now, members, &mut next) {
            return false;
        }
        for (member, alive) in members.iter().zip(&self.alive) {
            let here = alive.filter(|alive| alive.until > now);
            let (Some(alive), None) = (here, next.member(member.id)) else { continue };
            next.members.push(Member { boot: alive.boot, standing: Standing::Joining, ..*member });
        }
        let changed = next.members != self.view.members;
        if changed {
            next.epoch += 1;
            self.view = next;
        }
        changed
    }

    /// No full member is left: the one that has most is the first of a new view, after a while in which others may
    /// have come.
    fn begin_anew(&mut self, now: Nanos, members: &[Member], next: &mut View) -> bool {
        let since = *self.alone_since.get_or_insert(now);
        let was_full = |member: &&Member| self.view.full().any(|full| full.id == member.id);
        let here = |member: &&Member| {
            self.alive[usize::from(member.id.0) - 1].is_some_and(|alive| alive.until > now)
        };
        let most =
            members.iter().filter(was_full).filter(here).max_by_key(|member| {
                self.alive[usize::from(member.id.0) - 1].map_or(0, |alive| alive.progress)
            });
        let (Some(most), true) = (most, now.since(since) >= self.lease) else { return false };
        let boot = self.alive[usize::from(most.id.0) - 1].map_or(0, |alive| alive.boot);
        next.founded = next.epoch + 1;
        next.members = vec![Member { boot, standing: Standing::Full, ..*most }];
        self.alone_since = None;
        true
    }

    /// A joiner has the state.
    pub(crate) fn promote(&mut self, member: MemberId, epoch: u64) -> bool {
        let index = self.view.members.iter().position(|other| other.id == member);
        let Some(index) = index.filter(|_| epoch == self.view.epoch) else { return false };
        // Full members stand before those that join.
        let first_joining = self.view.full().count();
        if self.view.members[index].standing == Standing::Full || index != first_joining {
            return false;
        }
        self.view.members[index].standing = Standing::Full;
        self.view.epoch += 1;
        true
    }
}
