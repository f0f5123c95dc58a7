//! Members of the view whose sign of life is not there: which of them may be answering reads all the same.
//!
//! Invariant: a member that was left out answers nobody, even if etcd ended its lease before its time.
//!
//! # Why a key that is gone is not enough
//! A leader of etcd that was stuck, and does not know yet that there is another one, may end leases which the new
//! leader has prolonged, and may say of a lease that it is prolonged although it is over (etcd-io/etcd#15247).
//! So a key may be gone while its member counts on its lease still. Two rules make up for it:
//!
//! 1. A prolonged lease counts only after a look that was made behind it and shows the key. Looks go through a
//!    majority, so the key was there after the lease was asked for. Hence a member answers at most for one lease, by
//!    its own careful count, after its key is gone, whatever became of its lease.
//! 2. So whoever sees the key gone waits for one lease from when that was seen first. It need not if etcd's term is
//!    still the one that the member had seen before it asked for the lease: the lease was granted in this term then,
//!    since terms only grow; a leader of an earlier term learns that it leads no more before it learns of grants of
//!    the later one, so it can neither prolong nor end this lease. Only this term's leader could, and it keeps what
//!    it has promised.
//!
//! The second part is the common case, and costs nothing: a member that sees a new term moves its key to a lease
//! that it asks for anew. Only who dies between a change of etcd's leader and the next look costs a second lease.

use super::seen::Seen;
use remedy_replicate::{Member, MemberId};
use scotfree_core::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// What was seen of one life of a member that the view names.
#[derive(Debug, Clone, Copy)]
struct Sighting {
    boot: u32,
    /// The term that it had seen before it asked for its lease; 0 if its key was never seen.
    term: u64,
    ttl: Nanos,
    /// Until when it may be answering, if its key is gone.
    gone_until: Option<Nanos>,
}

/// What was seen of all members of the view.
#[derive(Debug, Default)]
pub(super) struct Absent {
    members: BTreeMap<MemberId, Sighting>,
}

impl Absent {
    /// Takes what a look has shown; `ttl` is the lease of a member that was never seen.
    pub(super) fn look(&mut self, now: Nanos, seen: &Seen, ttl: Nanos) {
        let named = seen.view.as_ref().map_or(&[][..], |view| &view.members);
        self.members.retain(|id, sighting| {
            named.iter().any(|member| member.id == *id && member.boot == sighting.boot)
        });
        for member in named {
            self.look_at(now, member, seen, ttl);
        }
    }

    fn look_at(&mut self, now: Nanos, member: &Member, seen: &Seen, ttl: Nanos) {
        let unknown = Sighting { boot: member.boot, term: 0, ttl, gone_until: None };
        let sighting = self.members.entry(member.id).or_insert(unknown);
        if let Some(key) = seen.lives.get(&member.id).filter(|_| seen.is_alive(member)) {
            let ttl = Nanos::from_secs(key.live.lease_seconds);
            *sighting = Sighting { term: key.live.term, ttl, ..unknown };
        } else if sighting.gone_until.is_none() {
            let is_over = sighting.term != 0 && sighting.term == seen.term;
            sighting.gone_until = Some(if is_over { now } else { now.plus(sighting.ttl) });
        }
    }

    /// Those whose key is gone and who may be answering.
    pub(super) fn lingering(&self, now: Nanos) -> BTreeSet<MemberId> {
        let lingers = |sighting: &Sighting| sighting.gone_until.is_some_and(|until| now < until);
        self.members.iter().filter(|(_, sighting)| lingers(sighting)).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::etcd::seen::LiveKey;
    use crate::form::Live;
    use remedy_replicate::{Standing, View};

    const TTL: Nanos = Nanos::from_secs(2);

    /// A view of member 3 in life 1, whose key is there in a life and a term, while etcd is in one.
    fn seen(key: Option<(u32, u64)>, term: u64) -> Seen {
        let address = "10.0.0.3:1".parse().unwrap();
        let live = |boot, term| Live {
            boot,
            peers: address,
            clients: address,
            applied: 0,
            fingerprint: 0,
            lease_seconds: 2,
            founded: None,
            term,
        };
        let members = vec![live(1, 0).member(MemberId(3), Standing::Full)];
        let key =
            key.map(|(boot, term)| (MemberId(3), LiveKey { live: live(boot, term), lease: 1, made: 1 }));
        let view = Some(View { epoch: 1, founded: 1, members });
        Seen { view, lives: key.into_iter().collect(), term, ..Seen::default() }
    }

    fn lingers(absent: &Absent, now: Nanos) -> bool {
        absent.lingering(now).contains(&MemberId(3))
    }

    #[test]
    fn a_lease_of_the_present_term_is_over_when_its_key_is_gone() {
        let mut absent = Absent::default();
        absent.look(Nanos(1), &seen(Some((1, 5)), 5), TTL);
        assert!(!lingers(&absent, Nanos(1)));
        absent.look(Nanos(2), &seen(None, 5), TTL);
        assert!(!lingers(&absent, Nanos(2)));
    }

    #[test]
    fn a_lease_of_an_earlier_term_is_waited_for_from_when_its_key_was_first_gone() {
        for before in [seen(Some((1, 5)), 6), seen(None, 6), seen(Some((1, 0)), 6)] {
            let mut absent = Absent::default();
            absent.look(Nanos(1), &before, TTL);
            for at in [2, 3] {
                absent.look(Nanos(at), &seen(None, 6), TTL);
            }
            let first_gone = if before.lives.is_empty() { Nanos(1) } else { Nanos(2) };
            let end = first_gone.plus(TTL);
            assert!(lingers(&absent, end.since(Nanos(1))) && !lingers(&absent, end));
        }
    }

    #[test]
    fn a_key_that_comes_back_or_another_life_begins_anew() {
        let mut absent = Absent::default();
        absent.look(Nanos(1), &seen(None, 6), TTL);
        absent.look(Nanos(2), &seen(Some((1, 6)), 6), TTL);
        assert!(!lingers(&absent, Nanos(2)));
        absent.look(Nanos(3), &seen(Some((9, 6)), 7), TTL);
        assert!(lingers(&absent, Nanos(3)), "the life that the view names is gone");
        absent.look(Nanos(4), &Seen::default(), TTL);
        assert!(!lingers(&absent, Nanos(4)), "no view names it");
    }
}
