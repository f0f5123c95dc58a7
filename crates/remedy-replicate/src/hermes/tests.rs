//! Rules of Hermes that few orders of events show: each in the one that does.

use super::*;
use crate::replica::StableWhen;
use crate::toy::{config, identity, view, Group, Said, Toy};
use scotfree_state::Known;
use scotfree_wire::Identity;

const LONG: Nanos = Nanos::from_millis(400);

fn group(ids: &[u8], stable_when: StableWhen) -> Group<Hermes<Toy>> {
    Group::new(ids, |id| Hermes::new(config(id, stable_when), Toy::new()))
}

/// All take a view, and what they tell each other at its beginning.
fn begin(group: &mut Group<Hermes<Toy>>, view: &View) {
    let ids: Vec<u8> = view.members.iter().map(|member| member.id.0).collect();
    group.take_view(&ids, view);
    group.wait(&ids, Nanos(0));
    group.carry_all(&ids);
}

fn knows(group: &Group<Hermes<Toy>>, id: u8, identity: &Identity) -> bool {
    matches!(group.members[&id].state().results().look(identity, 0), Known::Answered(_))
}

/// G1: a follower that has a write whose key is not valid answers when all have it.
#[test]
fn a_key_that_is_not_valid_is_not_read() {
    let mut group = group(&[1, 2, 3], StableWhen::InMemory);
    begin(&mut group, &view(1, &[1, 2, 3], &[]));
    group.write(1, 1, identity(1, 1), &[b'S', 7, 5]);
    group.carry(1, 2);
    group.read(2, 2, 7);
    group.read(3, 3, 7);
    assert_eq!(group.said(2), []);
    assert_eq!(group.said(3)[0], Said::Answer(3, Vec::new()));
    group.carry_all(&[1, 2, 3]);
    assert_eq!(group.said(2)[0], Said::Answer(2, vec![5]));
}

/// Member 1 has two writes of one key, of which the first is overtaken; members 2 and 3, which coordinated them,
/// have told nobody else, and member 2 has begun another.
fn overtaken_at_one_member(order: [u8; 2]) -> Group<Hermes<Toy>> {
    let mut group = group(&[1, 2, 3, 4], StableWhen::InMemory);
    begin(&mut group, &view(1, &[1, 2, 3, 4], &[]));
    group.write(2, 1, identity(2, 1), &[b'S', 7, 1]);
    group.write(3, 2, identity(3, 2), &[b'S', 7, 2]);
    for from in order {
        group.carry(from, 1);
    }
    group.write(2, 3, identity(2, 3), &[b'S', 8, 3]);
    group.carry(2, 1);
    for from in [2, 3] {
        group.lose(from, 4);
    }
    group
}

/// G6: whoever made it may ask for it again, wherever that is.
#[test]
fn what_was_overtaken_is_told_in_a_new_view() {
    for order in [[2, 3], [3, 2]] {
        let mut group = overtaken_at_one_member(order);
        begin(&mut group, &view(2, &[1, 4], &[]));
        assert_eq!(group.members[&4].state().number(7), Some(2));
        assert!(knows(&group, 4, &identity(2, 1)), "in the order {order:?}");
    }
}

/// G6: who knows the first only would answer for it though nothing of it is left.
#[test]
fn what_was_overtaken_is_told_behind_what_overtook_it() {
    let mut group = overtaken_at_one_member([2, 3]);
    group.take_view(&[1, 4], &view(2, &[1, 4], &[]));
    group.carry(1, 4);
    assert_eq!(group.members[&4].state().number(7), Some(2));
    assert!(!knows(&group, 4, &identity(2, 1)));
    group.carry_all(&[1, 4]);
    assert!(knows(&group, 4, &identity(2, 1)));
}

/// Member 1 has writes of one key that members 2 and 3 have told nobody else, and is about to give the joiner 5 the
/// state.
fn a_joiner_of_writes_under_way() -> Group<Hermes<Toy>> {
    let mut group = group(&[1, 2, 3, 4, 5], StableWhen::InMemory);
    begin(&mut group, &view(1, &[1, 2, 3, 4], &[]));
    group.take_view(&[1, 2, 3, 4, 5], &view(2, &[1, 2, 3, 4], &[5]));
    group.wait(&[1, 2, 3, 4, 5], Nanos(0));
    group.lose(5, 1);
    group.carry_all(&[1, 2, 3, 4, 5]);
    group.write(2, 1, identity(2, 1), &[b'S', 7, 1]);
    group.write(3, 2, identity(3, 2), &[b'S', 7, 2]);
    for from in [2, 3] {
        group.carry(from, 1);
        for to in [4, 5] {
            group.lose(from, to);
        }
    }
    group.wait(&[5], LONG);
    group.carry_all(&[1, 5]);
    assert_eq!(group.members[&5].state().number(7), Some(2));
    group
}

/// G6: what was overtaken where the state comes from is told though that member is lost.
#[test]
fn a_joiner_tells_what_was_overtaken_at_the_member_that_gave_it_the_state() {
    let mut group = a_joiner_of_writes_under_way();
    begin(&mut group, &view(3, &[4, 5], &[]));
    assert_eq!(group.members[&4].state().number(7), Some(2));
    assert!(knows(&group, 4, &identity(2, 1)));
}

/// G8: a key that was not valid where the state comes from is read when all have what it holds.
#[test]
fn what_was_not_valid_at_the_giver_is_not_valid_at_the_joiner() {
    let mut group = a_joiner_of_writes_under_way();
    group.take_view(&[1, 4, 5], &view(3, &[1, 4, 5], &[]));
    group.read(5, 3, 7);
    assert_eq!(group.said(5), []);
    group.carry_all(&[1, 4, 5]);
    assert_eq!(group.said(5)[0], Said::Answer(3, vec![2]));
}

/// G8: a member waits for a joiner once it has heard it, with what is under way too; and the state that the joiner takes
/// is made when all have.
#[test]
fn a_joiner_counts_where_it_is_heard_and_takes_the_state_when_it_counts_everywhere() {
    let mut group = group(&[1, 2, 3], StableWhen::InMemory);
    begin(&mut group, &view(1, &[1, 2], &[]));
    group.take_view(&[1, 2, 3], &view(2, &[1, 2], &[3]));
    group.wait(&[1, 2, 3], Nanos(0));
    group.lose(3, 2);
    group.carry_all(&[1, 2, 3]);
    group.write(2, 1, identity(2, 1), &[b'S', 7, 1]);
    group.carry_all(&[1, 2]);
    assert!(matches!(group.said(2)[0], Said::Answer(1, _)), "without the joiner");
    assert_eq!(group.members[&3].state().number(7), None);
    group.write(2, 2, identity(2, 2), &[b'S', 7, 2]);
    group.wait(&[3], LONG);
    group.carry(3, 2);
    group.carry_all(&[2, 3]);
    group.lose(2, 1);
    group.carry_all(&[1, 3]);
    assert_eq!(group.members[&1].state().number(7), Some(1), "the state was made without what is under way");
    assert_eq!(group.members[&3].state().number(7), Some(2));
}

/// G8: who still takes for stable what the joiner has not stored could answer it, and the joiner be the only one
/// left.
#[test]
fn a_joiner_is_ready_when_all_wait_for_its_storage() {
    let mut group = group(&[1, 2, 3], StableWhen::Stored);
    begin(&mut group, &view(1, &[1, 2], &[]));
    group.take_view(&[1, 2, 3], &view(2, &[1, 2], &[3]));
    group.wait(&[1, 2, 3], Nanos(0));
    group.carry_all(&[1, 2, 3]);
    for _ in 0..5 {
        group.wait(&[1, 2, 3], LONG);
        group.carry_all(&[1, 3]);
        group.store(3, u64::MAX);
        group.lose(3, 2);
    }
    assert_eq!(group.said(1), []);
    group.wait(&[1, 2, 3], LONG);
    group.carry_all(&[1, 2, 3]);
    group.wait(&[3], LONG);
    group.carry_all(&[1, 2, 3]);
    assert_eq!(group.said(1).last(), Some(&Said::Promote(3)));
}

/// The storages of two members go on by so many writes.
fn store(group: &mut Group<Hermes<Toy>>, count: u64) {
    for id in [1, 2] {
        group.store(id, count);
    }
}

/// What a read shows may still be lost if only an older write of the key is stored by all.
#[test]
fn a_read_is_stable_with_the_write_that_it_shows() {
    let mut group = group(&[1, 2], StableWhen::Stored);
    begin(&mut group, &view(1, &[1, 2], &[]));
    store(&mut group, u64::MAX);
    for (ticket, number) in [(1, 5), (2, 6)] {
        group.write(1, ticket, identity(1, ticket), &[b'S', 7, number]);
        group.carry_all(&[1, 2]);
    }
    group.read(2, 3, 7);
    assert_eq!(group.said(2), [Said::Answer(3, vec![6])]);
    for is_second in [false, true] {
        store(&mut group, 1);
        group.carry_all(&[1, 2]);
        assert_eq!(group.said(2), if is_second { vec![Said::Stable(3)] } else { vec![] });
    }
}
