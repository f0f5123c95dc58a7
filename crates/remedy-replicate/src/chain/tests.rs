//! Rules of the chain that few orders of events show: each in the one that does.

use super::*;
use crate::toy::{config, identity, view, Group, Said, Toy};

fn chains(ids: &[u8], reads_at: ReadsAt) -> Group<Chain<Toy>> {
    Group::new(ids, |id| Chain::new(config(id, StableWhen::InMemory), reads_at, Toy::new()))
}

/// Three members that know each other.
fn three(reads_at: ReadsAt) -> Group<Chain<Toy>> {
    let mut group = chains(&[1, 2, 3], reads_at);
    begin(&mut group, &view(1, &[1, 2, 3], &[]));
    group
}

/// All take a view, and what they tell each other at its beginning.
fn begin(group: &mut Group<Chain<Toy>>, view: &View) {
    let ids: Vec<u8> = view.members.iter().map(|member| member.id.0).collect();
    group.take_view(&ids, view);
    group.wait(&ids, Nanos(0));
    group.carry_all(&ids);
}

/// A chain of three in which a write is committed, and the head knows it from the tail alone.
fn one_write_of_which_the_middle_said_nothing() -> Group<Chain<Toy>> {
    let mut group = three(ReadsAt::Anyone);
    group.write(1, 1, identity(1, 1), &[b'S', 7, 1]);
    group.carry(1, 2);
    group.carry(2, 3);
    group.lose(2, 1);
    group.carry(3, 1);
    assert_eq!(group.said(1), [Said::Answer(1, Vec::new()), Said::Stable(1)]);
    group.carry(3, 2);
    group.lose(2, 1);
    group
}

/// G10: what is committed is with the next member, but what that has said of it may be lost; so it is sent again,
/// and what comes behind it, too.
#[test]
fn what_the_next_member_has_not_spoken_of_is_kept() {
    let mut group = one_write_of_which_the_middle_said_nothing();
    group.write(1, 2, identity(1, 2), &[b'S', 7, 2]);
    group.carry_all(&[1, 2, 3]);
    assert_eq!(group.said(1), [Said::Answer(2, Vec::new()), Said::Stable(2)]);
}

/// G10: nor is it dropped in a new view before the next member has spoken: one that was started again, of which an
/// operator's view says that it is full, may lack it.
#[test]
fn nothing_is_dropped_before_a_full_successor_has_spoken() {
    let mut group = one_write_of_which_the_middle_said_nothing();
    let again = Chain::new(config(2, StableWhen::InMemory), ReadsAt::Anyone, Toy::new());
    group.members.insert(2, again);
    begin(&mut group, &view(2, &[1, 2, 3], &[]));
    assert_eq!(group.members[&2].state().number(7), Some(1));
}

/// G8: what a new tail has, an earlier one may have committed and answered; it knows when it hears from its
/// predecessor, and before that nobody becomes full behind it.
#[test]
fn nobody_becomes_full_behind_a_tail_that_has_not_heard_from_its_predecessor() {
    let mut group = three(ReadsAt::Anyone);
    group.write(1, 1, identity(1, 1), &[b'S', 7, 1]);
    group.carry(1, 2);
    let next = view(2, &[1, 2], &[3]);
    group.take_view(&[2, 3], &next);
    group.wait(&[3], Nanos(0));
    group.carry_all(&[2, 3]);
    assert_eq!(group.said(2), []);
    group.take_view(&[1], &next);
    group.wait(&[2, 3], Nanos::from_millis(200));
    group.carry_all(&[1, 2, 3]);
    assert_eq!(group.said(2).last(), Some(&Said::Promote(3)));
    assert_eq!(group.members[&3].state().number(7), Some(1));
}

/// A member that dies between taking a state and storing it holds what it held before, of whatever history.
#[test]
fn a_state_that_was_taken_is_of_its_history_when_it_is_stored() {
    let mut group = chains(&[1, 2], ReadsAt::Anyone);
    group.take_view(&[1], &view(1, &[1], &[]));
    group.write(1, 1, identity(1, 1), &[b'S', 7, 1]);
    begin(&mut group, &view(2, &[1], &[2]));
    assert_eq!(group.members[&2].state().number(7), Some(1));
    assert_eq!(group.members[&2].lineage(), None);
    group.store(2, u64::MAX);
    assert_eq!(group.members[&2].lineage(), Some(1));
}

/// G1: neither for its own clients nor for others'.
#[test]
fn a_tail_without_a_lease_answers_nobody() {
    for reads_at in [ReadsAt::Tail, ReadsAt::Anyone] {
        let mut group = three(reads_at);
        group.write(1, 1, identity(1, 1), &[b'S', 7, 1]);
        group.carry(1, 2);
        group.read(2, 2, 7);
        group.act(3, |tail, now, _| tail.on_lease(now));
        group.carry(2, 3);
        group.lose(3, 1);
        group.carry(3, 2);
        group.act(3, |tail, _, _| tail.on_lease(Nanos(u64::MAX)));
        let answered = |said: &Said| matches!(said, Said::Answer(2, _));
        assert!(!group.said(2).iter().any(answered), "{reads_at:?}");
        group.wait(&[2], Nanos::from_millis(200));
        group.carry_all(&[2, 3]);
        assert!(group.said(2).iter().any(answered), "{reads_at:?}");
    }
}

/// Of two writes of one member whose first was lost the head takes none before that has come again.
#[test]
fn a_members_writes_are_ordered_as_it_has_sent_them() {
    let mut group = three(ReadsAt::Anyone);
    group.write(2, 1, identity(2, 1), &[b'S', 7, 1]);
    group.lose(2, 1);
    group.write(2, 2, identity(2, 2), &[b'S', 7, 2]);
    group.carry_all(&[1, 2, 3]);
    assert_eq!(group.members[&1].received(), 0);
    group.wait(&[2], Nanos::from_millis(200));
    group.carry_all(&[1, 2, 3]);
    assert_eq!(group.members[&1].state().number(7), Some(2));
}

/// Members 1 and 2, whose tail has asked for member 3 to be full and gets another write; member 3 has it, and what it
/// says of that is on its way.
fn a_joiner_that_counts() -> Group<Chain<Toy>> {
    let mut group = chains(&[1, 2, 3], ReadsAt::Anyone);
    begin(&mut group, &view(1, &[1, 2], &[]));
    begin(&mut group, &view(2, &[1, 2], &[3]));
    // It asks for the state, and says that it has it.
    for _ in 0..2 {
        group.wait(&[3], Nanos::from_millis(200));
        group.carry_all(&[2, 3]);
    }
    assert!(group.said(2).contains(&Said::Promote(3)));
    group.write(1, 1, identity(1, 1), &[b'S', 7, 1]);
    group.carry(1, 2);
    group.carry(2, 3);
    group
}

/// G8: the view in which the joiner is the tail may be there already.
#[test]
fn nothing_is_committed_without_a_joiner_that_counts() {
    let mut group = a_joiner_that_counts();
    assert_eq!(group.members[&2].applied(), 0);
    group.carry(3, 2);
    assert_eq!(group.members[&2].applied(), 1);
}

/// G3: the tail of before may not know of the view, and still answer reads.
#[test]
fn a_new_tail_commits_when_it_has_heard_from_its_predecessor() {
    let mut group = a_joiner_that_counts();
    let next = view(3, &[1, 2, 3], &[]);
    group.take_view(&[3], &next);
    group.read(2, 2, 7);
    assert_eq!(group.said(2), [Said::Answer(2, Vec::new()), Said::Stable(2)]);
    assert_eq!((group.members[&3].received(), group.members[&3].applied()), (1, 0));
    group.take_view(&[1, 2], &next);
    group.wait(&[2, 3], Nanos::from_millis(200));
    group.carry_all(&[1, 2, 3]);
    assert_eq!(group.members[&3].applied(), 1);
}
