//! What holds however members fail, and what is done about one that does.

use super::super::choice::Policy;
use super::super::dispatch::Fault;
use super::super::requests::NUMBERS_MAX;
use super::super::GivenUp;
use super::world::{member, End, Mood, World};
use scotfree_core::Nanos;
use scotfree_session::RequestKind;

const SEEDS: u64 = 60;

/// Whether a rule is broken in any of the worlds, and what was first.
fn first_broken(planted: Option<Fault>) -> Option<String> {
    (0..SEEDS).find_map(|seed| World::of_chance(seed, planted).broken.into_iter().next())
}

#[test]
fn each_request_ends_once_and_keeps_its_identity_whatever_members_do() {
    assert_eq!(first_broken(None), None);
    let (mut again, mut refused, mut late, mut given_up) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let counters = World::of_chance(seed, None).group.counters();
        again += counters.sent_again;
        refused += counters.refused;
        late += counters.late;
        given_up += counters.given_up;
    }
    assert!(
        again > 100 && refused > 100 && late > 100 && given_up > 10,
        "{again} {refused} {late} {given_up}"
    );
}

#[test]
fn a_second_identity_is_noticed() {
    let broken = first_broken(Some(Fault::DrawIdentityAnew)).expect("it is noticed");
    assert!(broken.contains(" is ") && broken.contains(" and "), "{broken}");
}

#[test]
fn a_second_end_is_noticed() {
    let broken = first_broken(Some(Fault::CompleteTwice)).expect("it is noticed");
    assert!(broken.contains("ends twice"), "{broken}");
}

#[test]
fn a_write_without_an_identity_that_is_repeated_is_noticed() {
    let broken = first_broken(Some(Fault::RepeatAnonymous)).expect("it is noticed");
    assert!(broken.contains("bears no identity"), "{broken}");
}

/// Ten seconds of writes that are for member 1, which says nothing any more; how many went to it, and how many had no
/// answer at their end.
fn with_a_dead_member(planted: Option<Fault>) -> (u64, usize) {
    let mut world = World::new(3, Policy::Member(1), |_| {});
    (world.group.planted, world.window) = (planted, 10_000);
    world.pass(Nanos::from_millis(100));
    world.submit(RequestKind::Update);
    world.pass(Nanos::from_millis(100));
    assert_eq!(world.ends.values().collect::<Vec<_>>(), [&End::Answered(1)]);
    world.servers[1].mood = Mood::Silent;
    world.servers[1].sent = 0;
    for _ in 0..1_000 {
        world.submit(RequestKind::Update);
        world.pass(Nanos::from_millis(10));
    }
    world.pass(Nanos::from_secs(11));
    let without = world.ends.values().filter(|end| matches!(end, End::GivenUp(_))).count();
    (world.servers[1].sent, without)
}

#[test]
fn a_dead_member_is_sent_nothing_once_it_is_known_and_all_is_answered_by_others() {
    let (sent, without) = with_a_dead_member(None);
    assert!((1..=25).contains(&sent), "{sent}");
    assert_eq!(without, 0);
}

#[test]
fn that_a_dead_member_is_chosen_for_ever_is_noticed() {
    let (sent, _) = with_a_dead_member(Some(Fault::ChooseTheDead));
    assert!(sent > 500, "{sent}");
}

#[test]
fn a_member_that_comes_back_is_tried_by_one_request_and_then_has_all_of_them() {
    let mut world = World::new(3, Policy::Member(1), |_| {});
    world.pass(Nanos::from_millis(100));
    world.servers[1].mood = Mood::Silent;
    for _ in 0..10 {
        world.submit(RequestKind::Update);
    }
    world.pass(Nanos::from_secs(3));
    world.servers[1].mood = Mood::Serves;
    world.pass(Nanos::from_secs(2));
    world.servers[1].sent = 0;
    let numbers: Vec<u64> =
        (0..3).map(|_| world.submit(RequestKind::Update).expect("there is room")).collect();
    assert_eq!(world.servers[1].sent, 1, "the others do not wait for whether it answers");
    world.pass(Nanos::from_millis(10));
    let of = |world: &World, number: u64| world.ends[&number] == End::Answered(1);
    assert_eq!(numbers.iter().filter(|number| of(&world, **number)).count(), 1);
    let later = world.submit(RequestKind::Update).expect("there is room");
    world.pass(Nanos::from_millis(10));
    assert!(of(&world, later));
}

#[test]
fn a_member_that_refuses_rests_and_what_it_refused_is_answered_by_another_at_once() {
    let mut world = World::new(5, Policy::Sticky, |_| {});
    world.pass(Nanos::from_millis(100));
    let first = world.submit(RequestKind::Read).expect("there is room");
    world.pass(Nanos::from_millis(10));
    let End::Answered(sticky) = world.ends[&first] else { panic!("{:?}", world.ends) };
    world.servers[usize::from(sticky)].mood = Mood::Refuses;
    let second = world.submit(RequestKind::Read).expect("there is room");
    world.pass(Nanos::from_millis(10));
    assert!(matches!(world.ends[&second], End::Answered(member) if member != sticky), "{:?}", world.ends);
    assert_eq!(world.group.counters().lost, 0, "its session stays");
}

#[test]
fn where_nobody_serves_a_request_is_given_up_in_time_and_as_what_it_is() {
    for (mood, why) in [(Mood::Refuses, GivenUp::NotExecuted), (Mood::Silent, GivenUp::UnknownOutcome)] {
        let mut world = World::new(5, Policy::Random, |_| {});
        world.pass(Nanos::from_millis(100));
        world.servers.iter_mut().for_each(|server| server.mood = mood);
        let number = world.submit(RequestKind::Update).expect("there is room");
        world.pass(Nanos::from_millis(9_990));
        assert_eq!(world.ends.get(&number), None);
        world.pass(Nanos::from_millis(20));
        assert_eq!(world.ends.get(&number), Some(&End::GivenUp(why)));
        let sent: u64 = world.servers.iter().map(|server| server.sent).sum();
        assert!((1..=40).contains(&sent), "{sent} of a refused request");
    }
}

#[test]
fn what_a_member_had_that_has_left_is_answered_by_one_that_stays() {
    let mut world = World::new(5, Policy::Member(2), |_| {});
    world.pass(Nanos::from_millis(100));
    world.servers[2].mood = Mood::Silent;
    let number = world.submit(RequestKind::Update).expect("there is room");
    world.pass(Nanos::from_millis(5));
    world.group.set_members(world.now, &[member(0), member(1)]);
    world.pass(Nanos::from_millis(10));
    assert!(matches!(world.ends[&number], End::Answered(0 | 1)), "{:?}", world.ends);
    world.group.set_members(world.now, &[member(0), member(1), member(2)]);
    world.servers[2].mood = Mood::Serves;
    world.pass(Nanos::from_millis(10));
    let back = world.submit(RequestKind::Update).expect("there is room");
    world.pass(Nanos::from_millis(10));
    assert_eq!(world.ends[&back], End::Answered(2));
}

#[test]
fn a_session_that_is_full_is_sent_nothing_more() {
    let mut world = World::new(5, Policy::Member(0), |_| {});
    world.window = 4;
    world.pass(Nanos::from_millis(100));
    world.submit(RequestKind::Update);
    world.pass(Nanos::from_millis(10));
    world.servers[0].sent = 0;
    for _ in 0..10 {
        world.submit(RequestKind::Update);
    }
    assert_eq!((world.servers[0].sent, world.servers[1].sent), (4, 0), "it has not failed");
    world.pass(Nanos::from_millis(20));
    assert_eq!(world.servers[0].sent, 10);
}

#[test]
fn numbers_of_unanswered_requests_are_no_further_apart_than_servers_remember() {
    let patient = Nanos::from_secs(60);
    let mut world = World::new(5, Policy::Random, |options| {
        (options.timeout_min, options.timeout_max) = (patient, patient);
    });
    world.pass(Nanos::from_millis(100));
    (0..20).for_each(|_| {
        world.submit(RequestKind::Update);
        world.pass(Nanos::from_millis(10));
    });
    world.servers[0].mood = Mood::Silent;
    let mut last = 0;
    while world.group.has_number() {
        for _ in 0..60 {
            last = world.submit(RequestKind::Update).unwrap_or(last);
        }
        world.step();
    }
    let oldest = (1..=last).find(|number| !world.ends.contains_key(number)).expect("some have no end");
    assert_eq!(last - oldest, NUMBERS_MAX as u64 - 1);
    world.servers[0].mood = Mood::Serves;
    world.pass(Nanos::from_millis(10));
    assert!(world.group.has_number());
}
