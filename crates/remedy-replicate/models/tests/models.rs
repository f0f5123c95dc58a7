//! Small groups of all protocols in every order of events; and safety rules switched off, which must be seen.
//!
//! Each model is exhausted, or bounded by so many steps, breadth first: it says which. `MODEL_STEPS=n` is another
//! bound, with longer requests. Rules that no small group shows within the bound are left to the worlds.

use remedy_replicate::{Fault, HermesFault, Planted};
use remedy_replicate_models::{Action, Ask, Budget, Group, Models, Protocol, Script, Setup};
use stateright::{Checker, HasDiscoveries, Model, Path};

/// How many steps a model takes at most, if that is said.
fn steps_stated() -> Option<usize> {
    std::env::var("MODEL_STEPS").ok().and_then(|steps| steps.parse().ok())
}

const STEPS: usize = 130_000;

fn script(member: usize, asks: &[Ask]) -> Script {
    Script { member, asks: asks.to_vec() }
}

/// Two keys: each client reads what the other writes.
fn two_keys() -> Vec<Script> {
    vec![script(0, &[Ask::Incr(0), Ask::Get(1)]), script(2, &[Ask::Set(1, 7), Ask::Get(0)])]
}

/// One key that two clients write at once.
fn one_key() -> Vec<Script> {
    vec![script(0, &[Ask::Incr(0)]), script(2, &[Ask::Set(0, 7), Ask::Get(0)])]
}

/// Two blind writes of one key at once.
fn ties() -> Vec<Script> {
    vec![script(0, &[Ask::Set(0, 5)]), script(1, &[Ask::Set(0, 7), Ask::Get(0)])]
}

/// A model without faults.
fn plain(protocol: Protocol, clients: Vec<Script>) -> Setup {
    let clients = if steps_stated().is_some() { two_keys() } else { clients };
    let (budget, planted) = (Budget::default(), Planted::default());
    Setup { protocol, clients, budget, joins: false, may_fail: Vec::new(), planted }
}

/// Messages are lost and come twice.
fn lossy(protocol: Protocol) -> Setup {
    let budget = Budget { losses: 1, copies: 1, ..Budget::default() };
    Setup { budget, ..plain(protocol, two_keys()) }
}

/// Timers fire before what they wait for has had time to come.
fn hasty(protocol: Protocol) -> Setup {
    let budget = Budget { timers: 1, losses: 1, ..Budget::default() };
    Setup { budget, ..plain(protocol, one_key()) }
}

/// Requests come again, by way of other members.
fn again(protocol: Protocol) -> Setup {
    let budget = Budget { moves: 1, late: 1, ..Budget::default() };
    Setup { budget, ..plain(protocol, ties()) }
}

/// A request comes again when it has had its answer, and somebody reads.
fn repeated(protocol: Protocol) -> Setup {
    let budget = Budget { late: 1, ..Budget::default() };
    let clients = vec![script(0, &[Ask::Incr(0)]), script(2, &[Ask::Get(0)])];
    Setup { budget, ..plain(protocol, clients) }
}

/// The last member joins.
fn joins(protocol: Protocol) -> Setup {
    let clients = vec![script(0, &[Ask::Set(0, 5)]), script(2, &[Ask::Get(0)])];
    Setup { joins: true, ..plain(protocol, clients) }
}

/// A member dies.
fn dies(protocol: Protocol, member: usize) -> Setup {
    let budget = Budget { crashes: 1, ..Budget::default() };
    Setup { budget, may_fail: vec![member - 1], ..plain(protocol, one_key()) }
}

/// A member's lease ends, and the group goes on without it; it does not know.
fn left_out(protocol: Protocol, member: usize) -> Setup {
    let budget = Budget { expiries: 1, ..Budget::default() };
    Setup { budget, may_fail: vec![member - 1], ..plain(protocol, one_key()) }
}

fn told(model: &Models, path: Path<Group, Action>) -> String {
    let steps = path.into_vec().into_iter().filter_map(|(group, action)| Some(model.tell(&group, action?)));
    steps.collect::<Vec<_>>().join("\n")
}

/// Every order of events keeps every promise, as far as the bound.
fn explore(name: &str, setup: Setup) {
    let bound = steps_stated().unwrap_or(STEPS);
    let protocol = setup.protocol;
    let checker = Models(setup).checker().target_state_count(bound).spawn_bfs().join();
    let (steps, groups, depth) = (checker.state_count(), checker.unique_state_count(), checker.max_depth());
    let end = if steps < bound { "exhausted" } else { "bounded" };
    println!("{protocol:?}, {name}: {end}, {groups} groups, {steps} steps, up to {depth} behind each other");
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        panic!("{protocol:?}, {name}: not so: {property}\n{}", told(checker.model(), path));
    }
}

fn explore_all(protocol: Protocol) {
    explore("messages are lost and come twice", lossy(protocol));
    explore("timers fire early", hasty(protocol));
    explore("requests come again", again(protocol));
    explore("a member joins", joins(protocol));
    for member in 1..=3 {
        explore(&format!("member {member} dies"), dies(protocol, member));
        explore(&format!("member {member} is left out"), left_out(protocol, member));
    }
}

#[test]
fn a_chain_keeps_every_promise_in_every_order() {
    explore_all(Protocol::Chain);
}

#[test]
fn craq_keeps_every_promise_in_every_order() {
    explore_all(Protocol::Craq);
}

#[test]
fn hermes_keeps_every_promise_in_every_order() {
    explore_all(Protocol::Hermes);
}

/// What is not so with a rule switched off, if anything is found.
fn found(fault: Fault, setup: Setup) -> Option<&'static str> {
    let model = Models(Setup { planted: Planted(Some(fault)), ..setup });
    let bound = steps_stated().unwrap_or(2 * STEPS);
    let checker = model.checker().target_state_count(bound).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let (property, path) = checker.discoveries().into_iter().next()?;
    let (steps, length) = (checker.state_count(), path.into_actions().len());
    println!("{fault:?}: after {steps} steps, on a path of {length}: not so: {property}");
    Some(property)
}

fn assert_found(faults: Vec<(Fault, Setup)>) {
    let mut missed = Vec::new();
    for (fault, setup) in faults {
        if found(fault, setup).is_none() {
            println!("{fault:?} is not found");
            missed.push(fault);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn mistakes_of_a_chain_are_found() {
    let chain = Protocol::Chain;
    assert_found(vec![
        (Fault::LeaseIgnored, left_out(chain, 3)),
        (Fault::OlderEpochTaken, dies(chain, 1)),
        (Fault::CommittedBeforeTail, lossy(chain)),
        (Fault::IdentityForgotten, again(chain)),
        (Fault::OrderedNotSearched, again(chain)),
        (Fault::JoinerNotCounted, joins(chain)),
        (Fault::AnyoneAnswers, lossy(chain)),
        (Fault::SentListDropped, dies(chain, 2)),
        (Fault::GapTaken, lossy(chain)),
        (Fault::HeadForgetsReceived, dies(chain, 1)),
        (Fault::SubmitsDropped, dies(chain, 1)),
    ]);
}

#[test]
fn mistakes_of_craq_are_found() {
    let craq = Protocol::Craq;
    assert_found(vec![
        (Fault::DirtyAnswered, lossy(craq)),
        (Fault::CommittedBeforeTail, lossy(craq)),
        (Fault::LeaseIgnored, left_out(craq, 3)),
        (Fault::JoinerAnswers, joins(craq)),
    ]);
}

#[test]
fn mistakes_of_hermes_are_found() {
    let hermes = Protocol::Hermes;
    let faults = vec![
        (HermesFault::AckShort, lossy(hermes)),
        (HermesFault::NotInstalled, again(hermes)),
        (HermesFault::IdentityForgotten, repeated(hermes)),
        (HermesFault::AnyoneCoordinates, again(hermes)),
        (HermesFault::JoinerAnswers, joins(hermes)),
    ];
    assert_found(faults.into_iter().map(|(fault, setup)| (Fault::Hermes(fault), setup)).collect());
}
