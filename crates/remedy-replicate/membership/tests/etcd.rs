//! Members at a real etcd, which each test starts for itself: they come together, are left out, come back.
#![allow(clippy::unwrap_used)]

#[path = "etcd/support.rs"]
mod support;

use remedy_replicate::{MemberId, Standing};
use remedy_replicate_membership::{init, remove, status, view, Done, Endpoint, Group, MembershipEvent};
use scotfree_core::Nanos;
use scotfree_io::now_boottime;
use support::{group, Etcd, Slow, Watched, LEASE};

/// How much longer than a lease a silent member may still be in the view: etcd looks each half second for leases
/// that are over.
const LATE_MAX: Nanos = Nanos::from_secs(1);

#[test]
fn three_come_together_one_falls_silent_and_comes_back() {
    let Some(etcd) = Etcd::start() else { return };
    let endpoint = etcd.endpoint("three");
    assert_eq!(init(&endpoint, &group()), Ok(Done::Now));
    assert_eq!(init(&endpoint, &group()), Ok(Done::Before));
    let mut members = [1, 2, 3].map(|id| Watched::start(&endpoint, id, 1, 0));
    for member in &mut members {
        member.wait_until_serving();
    }
    assert_eq!(view(&endpoint).unwrap().unwrap().epoch, 1);
    // One that has just come does not leave others out: it leaves them a lease to come, too.
    members[0].wait_for(LEASE);

    let [mut first, mut second, mut third] = members;
    third.poll();
    let lease_end = third.until;
    let silent_since = now_boottime();
    drop(third);
    first.wait_for_view("without the silent one", |view| view.member(MemberId(3)).is_none());
    let now = now_boottime();
    assert!(
        now >= lease_end,
        "G7: it was left out {} us before its lease ended",
        lease_end.since(now).0 / 1_000
    );
    let (silent, late) = (now.since(silent_since).0 / 1_000_000, now.since(lease_end).0 / 1_000_000);
    println!("left out {silent} ms after its last word, {late} ms after its lease's end");
    assert!(now.since(silent_since) <= LEASE.plus(LATE_MAX), "after {silent} ms");
    second.wait_for_view("without the silent one", |view| view.epoch == 2);
    assert!(first.is_serving() && second.is_serving());

    let mut third = Watched::start(&endpoint, 3, 2, 0);
    third.wait_for_view("with it, joining", |view| standing(view, 3) == Some((2, Standing::Joining)));
    let epoch = third.view.as_ref().unwrap().epoch;
    third.promote(MemberId(3), epoch - 1);
    third.promote(MemberId(3), epoch);
    third.wait_until_serving();
    first.wait_for_view("with all three", |view| standing(view, 3) == Some((2, Standing::Full)));
    assert_eq!(first.view.as_ref().unwrap().epoch, 4);
}

#[test]
fn one_that_leaves_is_left_out_at_once() {
    let Some(etcd) = Etcd::start() else { return };
    let endpoint = etcd.endpoint("leaving");
    init(&endpoint, &Group { lease_ms: 6_000, members: group().members[..2].to_vec(), ..group() }).unwrap();
    let mut members = [1, 2].map(|id| Watched::start(&endpoint, id, 1, 0));
    members.iter_mut().for_each(Watched::wait_until_serving);
    members[0].wait_for(Nanos::from_secs(6));
    let [mut first, mut second] = members;
    second.poll();
    let lease_end = second.until;
    second.leave();
    first.wait_for_view("without the one that left", |view| view.member(MemberId(2)).is_none());
    assert!(now_boottime() < lease_end, "it was waited for");
    first.leave();
    let left = status(&endpoint).unwrap();
    assert!(left.members.iter().all(|member| member.live.is_none()), "{left:?}");
    assert!(left.view.unwrap().member(MemberId(1)).is_some(), "the last that has the state stays");
}

fn standing(view: &remedy_replicate::View, id: u8) -> Option<(u32, Standing)> {
    view.member(MemberId(id)).map(|member| (member.boot, member.standing))
}

#[test]
fn while_etcd_is_silent_leases_end_and_they_come_back_by_themselves() {
    let Some(mut etcd) = Etcd::start() else { return };
    let endpoint = etcd.endpoint("silent");
    init(&endpoint, &group()).unwrap();
    let mut members = [1, 2, 3].map(|id| Watched::start(&endpoint, id, 1, 0));
    members.iter_mut().for_each(Watched::wait_until_serving);

    etcd.stop();
    for member in &mut members {
        member.wait_for_text("the lease is over");
        assert!(!member.is_serving());
    }
    etcd.go_on();
    for member in &mut members {
        member.wait_until_serving();
        member.wait_for_text("its lease is held");
        assert_eq!(member.view.as_ref().unwrap().epoch, 1, "nobody was left out: all were away");
    }

    etcd.kill();
    for member in &mut members {
        member.wait_for_text("the lease is over");
        assert!(!member.is_serving());
    }
    etcd.start_again();
    for member in &mut members {
        member.wait_until_serving();
        assert_eq!(member.view.as_ref().unwrap().epoch, 1);
    }
}

#[test]
fn a_slow_etcd_is_borne_and_one_that_is_too_slow_ends_the_lease() {
    let Some(etcd) = Etcd::start() else { return };
    let slow = Slow::before(etcd.port());
    let endpoint = slow.endpoint("slow");
    let lease = Nanos::from_secs(3);
    let members = group().members[..1].to_vec();
    init(&endpoint, &Group { lease_ms: 3_000, members, ..group() }).unwrap();
    let mut member = Watched::start(&endpoint, 1, 1, 0);
    member.wait_until_serving();
    let first_end = member.until;
    slow.set_delay(Nanos::from_millis(100));
    member.wait_until("its lease to be prolonged again and again", |member| {
        assert!(member.is_serving(), "{:?}", member.texts);
        member.until > first_end.plus(lease)
    });

    slow.set_delay(Nanos(lease.0 / 2));
    member.wait_for_text("etcd has not answered");
    member.wait_for_text("the lease is over");
    assert!(!member.is_serving());
    slow.set_delay(Nanos(0));
    member.wait_until_serving();
    assert_eq!(member.view.as_ref().unwrap().epoch, 1, "nobody else could go on");
}

#[test]
fn the_later_of_two_members_of_one_id_is_refused() {
    let Some(etcd) = Etcd::start() else { return };
    let endpoint = etcd.endpoint("twice");
    init(&endpoint, &group()).unwrap();
    let mut members = [1, 2, 3].map(|id| Watched::start(&endpoint, id, 1, 0));
    members.iter_mut().for_each(Watched::wait_until_serving);
    let mut again = Watched::start(&endpoint, 2, 2, 0);
    let reason = again.wait_for_refusal();
    assert!(reason.contains("two members are number 2") && reason.contains("127.0.0.1:7002"), "{reason}");
    assert!(!again.is_serving());
    members[1].poll();
    assert!(members[1].is_serving());
    assert_eq!(view(&endpoint).unwrap().unwrap().epoch, 1);
}

#[test]
fn who_belongs_to_another_group_is_refused_with_both_values() {
    let Some(etcd) = Etcd::start() else { return };
    let endpoint = etcd.endpoint("foreign");
    let other = Group { protocol: "craq".to_owned(), ..group() };
    init(&endpoint, &other).unwrap();
    let reason = Watched::start(&endpoint, 1, 1, 0).wait_for_refusal();
    assert!(reason.contains("protocol is hermes here and craq at etcd"), "{reason}");
    // Nobody has come yet: it may be made otherwise; from then on it is what it is.
    assert_eq!([init(&endpoint, &group()), init(&endpoint, &group())], [Ok(Done::Now), Ok(Done::Before)]);
    let mut first = Watched::start(&endpoint, 1, 1, 0);
    first.wait_for_text("members 2 and 3");
    let refused = init(&endpoint, &other).unwrap_err();
    assert!(refused.contains("another group") && refused.contains("craq"), "{refused}");
    let reason = Watched::start_like(&endpoint, 2, 1, 0, 8).wait_for_refusal();
    assert!(reason.contains("at member 1: is --log-size the same"), "{reason}");
}

#[test]
fn after_all_were_down_the_one_that_is_ahead_goes_on() {
    let Some(etcd) = Etcd::start() else { return };
    let endpoint = etcd.endpoint("restart");
    init(&endpoint, &group()).unwrap();
    let mut members = [1, 2, 3].map(|id| Watched::start(&endpoint, id, 1, 0));
    members.iter_mut().for_each(Watched::wait_until_serving);
    drop(members);
    let mut first = Watched::start(&endpoint, 1, 2, 70);
    first.wait_for_text("this one is ahead, and goes on when members 2 and 3");
    let mut second = Watched::start(&endpoint, 2, 2, 71);
    second.wait_until_serving();
    let alone = |view: &remedy_replicate::View| standing(view, 2) == Some((2, Standing::Full));
    first.wait_for_view("that of the one that is ahead", alone);
    first.wait_for_view("with itself", |view| standing(view, 1) == Some((2, Standing::Joining)));
    assert!(!first.is_serving());
    assert_eq!(second.view.as_ref().unwrap().full().count(), 1);
}

#[test]
fn what_an_operator_asks_can_be_asked_again() {
    let Some(etcd) = Etcd::start() else { return };
    let endpoint = etcd.endpoint("operator");
    for refused in [view(&endpoint).err(), status(&endpoint).err(), remove(&endpoint, MemberId(1)).err()] {
        assert!(refused.as_ref().unwrap().contains("scot group init makes it"), "{refused:?}");
    }
    let short = init(&endpoint, &Group { lease_ms: 10, ..group() }).unwrap_err();
    assert!(short.contains("1000 to 60000"), "{short}");
    init(&endpoint, &group()).unwrap();
    assert_eq!(view(&endpoint), Ok(None));
    let mut members = [1, 2, 3].map(|id| Watched::start(&endpoint, id, 1, 5));
    members[0].wait_for_view("the first", |_| true);
    members[1].tell_progress(123);
    members[1].wait_until("its progress is shown", |_| {
        status(&endpoint).unwrap().members[1].live.as_ref().is_some_and(|live| live.applied == 123)
    });
    let shown = status(&endpoint).unwrap();
    assert_eq!((shown.group, shown.members.len()), (group(), 3));
    assert!(shown.members.iter().all(|member| member.lease_left_seconds.is_some()));
    let alive = remove(&endpoint, MemberId(3)).unwrap_err();
    assert!(alive.contains("member 3 is alive"), "{alive}");
    // All brought a state: one has it, the others join, and nobody is there to leave them out.
    assert_eq!(shown.view.unwrap().full().count(), 1);
    drop(members);
    Watched::wait_until_none_is_alive(&endpoint);
    assert_eq!(remove(&endpoint, MemberId(3)), Ok(Done::Now));
    assert_eq!(remove(&endpoint, MemberId(3)), Ok(Done::Before));
    let last = remove(&endpoint, MemberId(1)).unwrap_err();
    assert!(last.contains("the last one that has the state"), "{last}");
}

#[test]
fn a_server_that_does_not_answer_is_passed_over() {
    let Some(etcd) = Etcd::start() else { return };
    let endpoint = etcd.endpoint("turn");
    init(&endpoint, &Group { members: group().members[..1].to_vec(), ..group() }).unwrap();
    let mut hosts = vec!["http://127.0.0.1:1".to_owned()];
    hosts.extend(endpoint.hosts.clone());
    let several = Endpoint { hosts, ..endpoint };
    assert!(view(&several).is_ok());
    let mut member = Watched::start(&several, 1, 1, 0);
    member.wait_until_serving();
    assert!(!member.texts.iter().any(|text| matches!(text, MembershipEvent::Refused(_))));
}
