//! Which view a member should write, by what it has seen.
//!
//! Invariant: a view that is decided leaves out only members whose sign of life, of the life that the old view
//! names, is gone (G7), keeps or makes at least one that has the state, and has the next epoch.

use super::request::{Guard, Swap};
use super::seen::{Seen, VIEW};
use crate::form::{json, Live, ViewForm};
use remedy_replicate::{Member, MemberId, Standing, View, MEMBERS_MAX};
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// What a member with a sign of life should do about the view.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing: it is as it should be.
    Keep,
    /// Write this one.
    Write(View),
    /// Nothing yet; what is waited for.
    Wait(String),
    /// This member cannot take part.
    Refuse(String),
}

/// Who decides, and what it knows beside what it has seen.
#[derive(Debug, Clone)]
pub(super) struct Decider {
    pub(super) id: MemberId,
    /// A member that has the whole state, and the epoch of the view in which it joined.
    pub(super) promoted: Option<(MemberId, u64)>,
    /// Whether it has seen for one lease that no member is left that has the state.
    pub(super) has_waited: bool,
    /// Whether it has been there for one lease. After etcd was away from all, the first that is back leaves the
    /// others that long to come back, too, instead of going on without them.
    pub(super) may_remove: bool,
    /// Members of the view whose key is gone, and who may be answering.
    pub(super) lingering: BTreeSet<MemberId>,
    /// The planted fault that a silent member counts as gone.
    pub(super) forgets_the_living: bool,
}

impl Decider {
    /// Decides; this member's sign of life must be in `seen`.
    pub(super) fn decide(&self, seen: &Seen) -> Decision {
        let Some(key) = seen.lives.get(&self.id) else { return Decision::Keep };
        let Some(view) = &seen.view else { return self.first_view(seen) };
        if view.full().any(|member| seen.is_alive(member)) {
            self.next_view(view, seen, &key.live)
        } else {
            self.after_all_were_down(view, seen)
        }
    }

    /// Without those that are gone, with this member. The others come by themselves.
    fn next_view(&self, view: &View, seen: &Seen, live: &Live) -> Decision {
        // G7: a sign of life is gone only when its lease is over at etcd, and one that went before its time is waited
        // for.
        let stays = |member: &&Member| self.counts_as_alive(member, seen);
        let mut members: Vec<Member> = view.members.iter().filter(stays).copied().collect();
        self.promote(&mut members, view, seen);
        if !members.iter().any(|member| member.id == self.id) {
            // G8: one that comes, or comes again, is given the state first.
            members.push(live.member(self.id, Standing::Joining));
        }
        if members == view.members {
            return Decision::Keep;
        }
        if members.len() > MEMBERS_MAX {
            return Decision::Wait(format!(
                "the group has {MEMBERS_MAX} members; one more waits for a place"
            ));
        }
        write(view.epoch + 1, view.founded, members)
    }

    fn counts_as_alive(&self, member: &Member, seen: &Seen) -> bool {
        let comes_back = !self.may_remove && !seen.lives.contains_key(&member.id);
        let is_forgotten = self.forgets_the_living && member.id != self.id;
        let lingers = self.lingering.contains(&member.id);
        (seen.is_alive(member) || comes_back || lingers) && !is_forgotten
    }

    /// Puts a member that has the whole state behind the others that have it.
    fn promote(&self, members: &mut Vec<Member>, view: &View, seen: &Seen) {
        let Some((id, _)) = self.promoted.filter(|(_, epoch)| *epoch == view.epoch) else { return };
        let joins = |member: &Member| member.id == id && member.standing == Standing::Joining;
        let Some(place) = members.iter().position(|member| joins(member) && seen.is_alive(member)) else {
            return;
        };
        let mut member = members.remove(place);
        member.standing = Standing::Full;
        let full = members.iter().filter(|other| other.standing == Standing::Full).count();
        members.insert(full, member);
    }

    /// All listed members, once all are there: a view names each one's life, which only it knows. Until then nobody
    /// has answered anybody, so waiting loses nothing.
    fn first_view(&self, seen: &Seen) -> Decision {
        let listed = seen.group.as_ref().map_or(&[][..], |group| &group.members);
        let ids: Vec<MemberId> = listed.iter().map(|listed| MemberId(listed.id)).collect();
        let missing: Vec<MemberId> = ids.iter().copied().filter(|id| !seen.lives.contains_key(id)).collect();
        if !missing.is_empty() {
            return Decision::Wait(format!(
                "the first view is written when all are there: {}",
                names(&missing)
            ));
        }
        if !ids.contains(&self.id) {
            return Decision::Wait(format!(
                "there is no view yet, and member {} is not of the first",
                self.id
            ));
        }
        let lives = || ids.iter().map(|id| (*id, &seen.lives[id].live));
        // Members that bring states do not bring the same one: then the one that is ahead has it, and what belongs to
        // a later history is ahead of all that belongs to an earlier one.
        let held = |live: &Live| (live.founded.filter(|_| live.applied > 0), live.applied);
        let most = lives().map(|(_, live)| held(live)).max().unwrap_or_default();
        let ahead = lives().find(|(_, live)| held(live) == most).map(|(id, _)| id);
        let are_empty = most.1 == 0;
        let standing = |id| if are_empty || ahead == Some(id) { Standing::Full } else { Standing::Joining };
        let mut members: Vec<Member> = lives().map(|(id, live)| live.member(id, standing(id))).collect();
        members.sort_by_key(|member| member.standing == Standing::Joining);
        // What they hold may be of a group that etcd has forgotten: this one is another.
        let founded = lives().filter_map(|(_, live)| live.founded).max().map_or(1, |latest| latest + 1);
        write(founded, founded, members)
    }

    /// No member that had the state is left in that life. Each of them kept all that was ever answered, in its
    /// storage; the one that is ahead goes on, alone, and the others join it. Only what stands in the view's own
    /// history counts: a member whose storage was lost, or that was being given the state of a group begun anew, may
    /// hold many writes and none of those that were answered.
    fn after_all_were_down(&self, view: &View, seen: &Seen) -> Decision {
        let ids: Vec<MemberId> = view.full().map(|member| member.id).collect();
        let back: Vec<(MemberId, &Live)> = view
            .full()
            .filter_map(|member| Some((member, &seen.lives.get(&member.id)?.live)))
            .filter(|(member, live)| live.boot != member.boot)
            .map(|(member, live)| (member.id, live))
            .collect();
        let are_all_back = back.len() == ids.len();
        // One that began the group anew and died before it heard of its own view says the history before.
        let began_alone = |live: &Live| ids.len() == 1 && live.founded.is_some();
        let is_of_view = |live: &Live| live.founded == Some(view.founded) || began_alone(live);
        let held = |live: &Live| is_of_view(live).then_some(live.applied);
        let most = back.iter().filter_map(|(_, live)| held(live)).max();
        let Some(most) = most else { return Decision::Wait(nobody_holds(&ids, are_all_back)) };
        let ahead = back.iter().find(|(_, live)| held(live) == Some(most));
        let may_begin = self.lingering.is_empty() && (are_all_back || self.has_waited);
        match ahead.map(|(id, _)| *id).filter(|ahead| *ahead != self.id) {
            Some(ahead) => {
                return Decision::Wait(format!(
                "all members that had the state were down; member {ahead} is ahead of this one, and goes on"
            ))
            }
            None if !may_begin => {
                let is_back = |id: &MemberId| back.iter().any(|(there, _)| there == id);
                let away: Vec<MemberId> = ids.iter().filter(|id| !is_back(id)).copied().collect();
                let until = match away.as_slice() {
                    [] => "earlier leases are over".to_owned(),
                    away => format!("{} came back, too, or have had a lease of time for it", names(away)),
                };
                return Decision::Wait(format!(
                    "all members that had the state were down; this one is ahead, and goes on when {until}"
                ));
            }
            None => {}
        }
        let mut members = vec![seen.lives[&self.id].live.member(self.id, Standing::Full)];
        // G7: those that join and live stay.
        members.extend(view.members.iter().filter(|member| member.id != self.id && seen.is_alive(member)));
        // What others hold from before may not be what this one holds.
        write(view.epoch + 1, view.epoch + 1, members)
    }
}

const IF_LOST: &str =
    "If all their logs are lost, scot group recover goes on with what another member holds; with \
                       nothing, make another group (scot group init, at another place)";

/// A log that is empty, or another's, is none that took part in the view: going on with it would lose what was
/// answered.
fn nobody_holds(ids: &[MemberId], are_all_back: bool) -> String {
    let had = names(ids);
    if are_all_back {
        format!(
            "{had} had the state, and came back without the log that held it: start one of them with its log and the \
             file .group beside it. {IF_LOST}"
        )
    } else {
        format!(
            "all members that had the state were down; one that has its log still goes on: of {had}. {IF_LOST}"
        )
    }
}

fn write(epoch: u64, founded: u64, members: Vec<Member>) -> Decision {
    let view = View { epoch, founded, members };
    match view.check() {
        Ok(()) => Decision::Write(view),
        Err(reason) => Decision::Refuse(format!("the view with this member would be none: {reason}")),
    }
}

/// The view in which one member alone has what the group is from then on; none if it has the state already.
pub(super) fn recovered(seen: &Seen, id: MemberId) -> Result<Option<View>, String> {
    let view = seen.view.as_ref().ok_or("no view was written yet: nothing can have been lost")?;
    if let Some(alive) = view.full().find(|member| seen.is_alive(member)) {
        let other = format!("member {} has the state and is alive: nothing is lost", alive.id);
        return if alive.id == id { Ok(None) } else { Err(other) };
    }
    let live = seen.lives.get(&id).map(|key| &key.live);
    let live = live.ok_or_else(|| format!("member {id} is not there: start it first, with its log"))?;
    if view.member(id).is_some_and(|named| named.boot == live.boot) {
        return Err(format!(
            "member {id} was being given the state: start it again, which tells what it holds by itself"
        ));
    }
    if live.founded.is_none() {
        return Err(format!("member {id} came without a log that took part: there is nothing to go on with"));
    }
    let holds = |member: &&Member| {
        seen.lives.get(&member.id).is_some_and(|key| key.live.founded == Some(view.founded))
    };
    if let Some(holder) = view.full().find(holds) {
        let holder = holder.id;
        return Err(format!("member {holder} is back with all that was answered, and goes on by itself"));
    }
    let epoch = view.epoch + 1;
    let next = View { epoch, founded: epoch, members: vec![live.member(id, Standing::Full)] };
    next.check().map(|()| Some(next))
}

/// How a view is written: only on the one that was seen, and only if nobody's sign of life came or went since. So
/// one that was left out because it was gone is gone still (G7), and one that gets the state's standing lives.
pub(super) fn swap(view: &View, seen: &Seen) -> Swap {
    let mut ids: Vec<MemberId> = view.members.iter().map(|member| member.id).collect();
    ids.extend(seen.view.iter().flat_map(|old| &old.members).map(|member| member.id));
    ids.sort_unstable();
    ids.dedup();
    let mut guards = vec![Guard::Written { key: VIEW.to_owned(), revision: seen.view_written }];
    guards.extend(ids.into_iter().map(|id| seen.guard(id)));
    Swap { guards, key: VIEW.to_owned(), value: json(&ViewForm::from(view)), lease: None }
}

/// "member 2", "members 1 and 2", "members 1, 2 and 3".
pub(super) fn names(ids: &[MemberId]) -> String {
    let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => "nobody".to_owned(),
        [one] => format!("member {one}"),
        [most @ .., last] => format!("members {} and {last}", most.join(", ")),
    }
}
