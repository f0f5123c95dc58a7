//! Which view is written, case by case.
#![allow(clippy::unwrap_used)]

use super::super::seen::LiveKey;
use super::*;
use crate::form::{Group, Listed};
use std::net::SocketAddr;

fn address(id: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, id], 7_000))
}

fn live(boot: u32, id: u8, applied: u64) -> Live {
    Live {
        boot,
        peers: address(id),
        clients: address(id),
        applied,
        fingerprint: 0,
        lease_seconds: 1,
        founded: (applied > 0).then_some(3),
        term: 1,
    }
}

/// Members by number, life and how many writes they have applied.
fn lives(members: &[(u8, u32, u64)]) -> Seen {
    let listed = |id: u8| Listed { id, peers: address(id), clients: address(id) };
    let members_listed = [1, 2, 3].map(listed).to_vec();
    let group = Group {
        name: "g".to_owned(),
        protocol: "chain".to_owned(),
        lease_ms: 1_000,
        fingerprint: None,
        members: members_listed,
    };
    let keys = members.iter().map(|(id, boot, applied)| {
        let key = LiveKey { live: live(*boot, *id, *applied), lease: 1, made: i64::from(*id) };
        (MemberId(*id), key)
    });
    Seen { group: Some(group), lives: keys.collect(), ..Seen::default() }
}

/// A view of epoch 5; a negative life is that of one who joins.
fn view(members: &[(u8, i32)]) -> View {
    let member = |(id, boot): &(u8, i32)| {
        let standing = if *boot < 0 { Standing::Joining } else { Standing::Full };
        live(boot.unsigned_abs(), *id, 0).member(MemberId(*id), standing)
    };
    View { epoch: 5, founded: 3, members: members.iter().map(member).collect() }
}

fn decider(id: u8) -> Decider {
    Decider {
        id: MemberId(id),
        promoted: None,
        has_waited: false,
        may_remove: true,
        lingering: BTreeSet::new(),
        forgets_the_living: false,
    }
}

/// What the decision writes, as [`view`] takes it.
fn written(decision: Decision) -> Vec<(u8, i32)> {
    let Decision::Write(view) = decision else { panic!("nothing is written: {decision:?}") };
    let sign = |member: &Member| if member.standing == Standing::Full { 1 } else { -1 };
    view.members.iter().map(|member| (member.id.0, member.boot as i32 * sign(member))).collect()
}

fn seen(members: &[(u8, i32)], alive: &[(u8, u32, u64)]) -> Seen {
    Seen { view: Some(view(members)), view_written: 9, ..lives(alive) }
}

#[test]
fn the_first_view_is_written_when_all_listed_are_there() {
    let waits = decider(1).decide(&lives(&[(1, 1, 0), (3, 1, 0)]));
    assert!(matches!(&waits, Decision::Wait(text) if text.contains("member 2")), "{waits:?}");
    assert_eq!(
        written(decider(2).decide(&lives(&[(1, 4, 0), (2, 1, 0), (3, 2, 0)]))),
        [(1, 4), (2, 1), (3, 2)]
    );
    let stranger = decider(4).decide(&lives(&[(1, 1, 0), (2, 1, 0), (3, 1, 0), (4, 1, 0)]));
    assert!(matches!(stranger, Decision::Wait(_)));
}

#[test]
fn members_that_bring_states_to_the_first_view_join_the_one_that_is_ahead() {
    let seen = lives(&[(1, 1, 3), (2, 1, 8), (3, 1, 8)]);
    assert_eq!(written(decider(1).decide(&seen)), [(2, 1), (1, -1), (3, -1)]);
}

#[test]
fn one_that_is_gone_is_left_out_and_the_living_never() {
    let all = [(1, 1), (2, 1), (3, 1)];
    assert_eq!(written(decider(1).decide(&seen(&all, &[(1, 1, 0), (3, 1, 0)]))), [(1, 1), (3, 1)]);
    assert_eq!(decider(1).decide(&seen(&all, &[(1, 1, 0), (2, 1, 0), (3, 1, 0)])), Decision::Keep);
    let fresh = Decider { may_remove: false, ..decider(1) };
    assert_eq!(fresh.decide(&seen(&all, &[(1, 1, 0), (3, 1, 0)])), Decision::Keep);
}

#[test]
fn one_that_may_be_answering_stays_until_it_cannot() {
    let all = [(1, 1), (2, 1), (3, 1)];
    let lingering = |id: u8, by| Decider { lingering: BTreeSet::from([MemberId(id)]), ..decider(by) };
    assert_eq!(lingering(2, 1).decide(&seen(&all, &[(1, 1, 0), (3, 1, 0)])), Decision::Keep);
    // In a new life, too: the one before may be a process that was stopped and goes on.
    assert_eq!(lingering(1, 1).decide(&seen(&all, &[(1, 2, 0), (2, 1, 0), (3, 1, 0)])), Decision::Keep);
    let both = seen(&[(1, 1), (2, 1)], &[(1, 2, 8), (2, 2, 7)]);
    assert!(matches!(lingering(2, 1).decide(&both), Decision::Wait(_)));
}

#[test]
fn the_last_that_has_the_state_is_never_left_out() {
    let decision = decider(2).decide(&seen(&[(1, 1), (2, -1)], &[(2, 1, 0)]));
    assert!(matches!(&decision, Decision::Wait(text) if text.contains("member 1")), "{decision:?}");
}

#[test]
fn one_in_a_new_life_joins_behind_the_others() {
    let seen = seen(&[(1, 1), (2, 1), (3, 1)], &[(1, 2, 9), (2, 1, 0), (3, 1, 0)]);
    assert_eq!(written(decider(1).decide(&seen)), [(2, 1), (3, 1), (1, -2)]);
    let fresh = Decider { may_remove: false, ..decider(1) };
    assert_eq!(written(fresh.decide(&seen)), [(2, 1), (3, 1), (1, -2)]);
}

#[test]
fn a_life_is_another_one_whichever_number_is_larger() {
    let joined = seen(&[(1, 3), (2, 1)], &[(1, 2, 0), (2, 1, 0)]);
    assert_eq!(written(decider(1).decide(&joined)), [(2, 1), (1, -2)]);
    let all_were_down = seen(&[(1, 3), (2, 3)], &[(1, 2, 7), (2, 2, 8)]);
    assert_eq!(written(decider(2).decide(&all_were_down)), [(2, 2)]);
}

#[test]
fn a_joiner_with_the_whole_state_stands_behind_those_that_have_it() {
    let alive = [(1, 1, 0), (2, 1, 0), (3, 1, 0)];
    let seen = seen(&[(1, 1), (2, -1), (3, -1)], &alive);
    let promoting = |id, epoch| Decider { promoted: Some((MemberId(id), epoch)), ..decider(1) };
    assert_eq!(written(promoting(3, 5).decide(&seen)), [(1, 1), (3, 1), (2, -1)]);
    assert_eq!(promoting(3, 4).decide(&seen), Decision::Keep);
    assert_eq!(promoting(1, 5).decide(&seen), Decision::Keep);
}

#[test]
fn after_all_were_down_the_one_that_is_ahead_goes_on_alone() {
    let all = [(1, 1), (2, 1), (3, -1)];
    let both = seen(&all, &[(1, 2, 7), (2, 2, 8), (3, 2, 99)]);
    assert!(matches!(decider(1).decide(&both), Decision::Wait(_)));
    assert!(matches!(decider(3).decide(&both), Decision::Wait(_)), "a joiner may lack what was answered");
    assert_eq!(written(decider(2).decide(&both)), [(2, 2)]);
    let tie = seen(&all, &[(1, 2, 8), (2, 2, 8)]);
    assert!(matches!(decider(2).decide(&tie), Decision::Wait(_)));
    assert_eq!(written(decider(1).decide(&tie)), [(1, 2)]);
    let one = seen(&all, &[(1, 2, 1), (3, 1, 0)]);
    assert!(matches!(decider(1).decide(&one), Decision::Wait(_)));
    let waited = Decider { has_waited: true, ..decider(1) };
    assert_eq!(written(waited.decide(&one)), [(1, 2), (3, -1)], "who joins and lives stays");
}

#[test]
fn only_what_stands_in_the_views_history_counts_after_all_were_down() {
    let mut of_others = seen(&[(1, 1), (2, 1)], &[(1, 2, 70), (2, 2, 8)]);
    let founded = |seen: &mut Seen, id: u8, epoch| {
        seen.lives.get_mut(&MemberId(id)).unwrap().live.founded = epoch;
    };
    for elsewhere in [Some(2), None] {
        founded(&mut of_others, 1, elsewhere);
        assert!(matches!(decider(1).decide(&of_others), Decision::Wait(_)), "{elsewhere:?}");
        assert_eq!(written(decider(2).decide(&of_others)), [(2, 2)]);
    }
    // Neither holds what was answered: nobody goes on, however long that lasts.
    founded(&mut of_others, 2, Some(2));
    for id in [1, 2] {
        let waited = Decider { has_waited: true, ..decider(id) };
        assert!(matches!(waited.decide(&of_others), Decision::Wait(_)), "{id}");
    }
    // The storage of one was lost; the other has not come yet.
    let emptied = seen(&[(1, 1), (2, 1)], &[(1, 2, 0)]);
    let waited = Decider { has_waited: true, ..decider(1) };
    assert!(matches!(waited.decide(&emptied), Decision::Wait(_)));
    // It has begun the group anew, and died before it heard of that.
    let mut alone = seen(&[(1, 1)], &[(1, 2, 70)]);
    founded(&mut alone, 1, Some(2));
    assert_eq!(written(decider(1).decide(&alone)), [(1, 2)]);
    // Nothing was ever written, and the logs are those that took part.
    let mut empty = seen(&[(1, 1), (2, 1)], &[(1, 2, 0), (2, 2, 0)]);
    for id in [1, 2] {
        founded(&mut empty, id, Some(3));
    }
    assert_eq!(written(decider(1).decide(&empty)), [(1, 2)]);
    // Empty logs in the place of those that took part: nobody goes on without what was answered.
    for id in [1, 2] {
        founded(&mut empty, id, None);
    }
    for id in [1, 2] {
        let waited = Decider { has_waited: true, ..decider(id) };
        let Decision::Wait(why) = waited.decide(&empty) else { panic!("{id}") };
        assert!(why.contains("without the log"), "{why}");
    }
}

#[test]
fn an_operator_goes_on_with_one_that_lacks_something_only_if_nobody_has_it_all() {
    let recover = |seen: &Seen, id| recovered(seen, MemberId(id));
    let refused = |seen: &Seen, id, why: &str| {
        let said = recover(seen, id).unwrap_err();
        assert!(said.contains(why), "{said}");
    };
    let mut lost = seen(&[(1, 1), (2, 1)], &[(3, 4, 70)]);
    let next = recover(&lost, 3).unwrap().unwrap();
    assert_eq!((next.epoch, next.founded), (6, 6));
    assert_eq!(written(Decision::Write(next)), [(3, 4)]);
    refused(&lost, 2, "is not there");
    lost.lives.get_mut(&MemberId(3)).unwrap().live.founded = None;
    refused(&lost, 3, "without a log");
    refused(&seen(&[(1, 1), (2, 1), (3, -4)], &[(3, 4, 70)]), 3, "was being given the state");
    refused(&seen(&[(1, 1), (2, 1)], &[(2, 3, 9), (3, 4, 70)]), 3, "member 2 is back");
    refused(&seen(&[(1, 1), (2, 1)], &[(2, 1, 9), (3, 4, 70)]), 3, "member 2 has the state");
    assert_eq!(recover(&seen(&[(1, 1), (3, 4)], &[(3, 4, 70)]), 3), Ok(None));
    refused(&lives(&[(3, 4, 70)]), 3, "no view");
}

#[test]
fn what_belongs_to_a_later_history_begins_the_first_view() {
    let mut seen = lives(&[(1, 1, 90), (2, 1, 4), (3, 1, 0)]);
    seen.lives.get_mut(&MemberId(2)).unwrap().live.founded = Some(7);
    assert_eq!(written(decider(1).decide(&seen)), [(2, 1), (1, -1), (3, -1)]);
}

#[test]
fn only_a_group_that_begins_anew_is_founded_anew() {
    let founded = |decision| {
        let Decision::Write(view) = decision else { panic!("nothing is written: {decision:?}") };
        (view.epoch, view.founded)
    };
    let all = [(1, 1), (2, 1), (3, 1)];
    assert_eq!(founded(decider(1).decide(&seen(&all, &[(1, 1, 0), (3, 1, 0)]))), (6, 3));
    assert_eq!(founded(decider(1).decide(&seen(&all, &[(1, 2, 1), (2, 2, 0), (3, 2, 0)]))), (6, 6));
    assert_eq!(founded(decider(1).decide(&lives(&[(1, 1, 0), (2, 1, 0), (3, 1, 0)]))), (1, 1));
    let mut with_histories = lives(&[(1, 1, 4), (2, 1, 5), (3, 1, 5)]);
    with_histories.lives.get_mut(&MemberId(3)).unwrap().live.founded = Some(8);
    assert_eq!(founded(decider(2).decide(&with_histories)), (9, 9), "etcd has lost what the members have");
}

#[test]
fn a_view_is_written_only_if_nobody_came_or_went_since() {
    let seen = seen(&[(1, 1), (2, 1)], &[(1, 1, 0)]);
    let next = view(&[(1, 1)]);
    let guards = swap(&next, &seen).guards;
    let made = |id, revision| Guard::Made { key: format!("live/{id}"), revision };
    assert_eq!(guards, [Guard::Written { key: "view".to_owned(), revision: 9 }, made(1, 1), made(2, 0)]);
}
