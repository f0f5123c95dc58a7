//! What can happen to a group, and what must hold whatever does.
//!
//! Invariant: once nothing else can happen all timers fire, and faults are over: so each path ends, and at its end
//! whatever was asked must be answered. The checker does not see that something never happens on a path that goes in
//! a circle; here is none, since rounds are counted.

use crate::group::Group;
use crate::setup::{Setup, MEMBERS, ROUNDS};
use remedy_replicate::read_head;
use stateright::{Model, Property};

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client asks the next thing.
    Begin(usize),
    /// A client goes to the next member with what it waits for.
    GoElsewhere(usize),
    /// A client's first request comes again, by way of a member.
    ComeLate(usize, usize),
    /// A message arrives: which of those on their way.
    Deliver(usize),
    /// It arrives, and will once more.
    DeliverTwice(usize),
    /// It does not.
    Lose(usize),
    /// A member's timers fire.
    Fire(usize),
    /// A member dies.
    Crash(usize),
    /// A member's lease ends.
    Expire(usize),
    /// The membership writes a view without a member.
    Exclude(usize),
    /// A member hears of the newest view.
    View(usize),
    /// Nothing else can happen: all timers fire.
    Rest,
}

/// A model: all that can happen in a setup.
#[derive(Debug, Clone)]
pub struct Models(pub Setup);

impl Models {
    /// What a step is, with who has sent what arrives.
    pub fn tell(&self, before: &Group, action: Action) -> String {
        let of = match action {
            Action::Deliver(index) | Action::DeliverTwice(index) | Action::Lose(index) => Some(index),
            _ => None,
        };
        let packet = of.and_then(|index| before.network().nth(index));
        match packet.and_then(|packet| read_head(&packet.bytes)) {
            Some(head) => format!("{action:?}: from {} to {} in epoch {}", head.from, head.to, head.epoch),
            None => format!("{action:?}"),
        }
    }

    fn of_clients(&self, group: &Group, actions: &mut Vec<Action>) {
        for at in 0..self.0.clients.len() {
            if group.next_ask(&self.0, at).is_some() {
                actions.push(Action::Begin(at));
            }
            let waits = group.clients()[at].waits_for.is_some();
            if group.is_forsaken(at) || (waits && group.left().moves > 0) {
                actions.push(Action::GoElsewhere(at));
            }
            let is_write = !self.0.clients[at].asks[0].is_read();
            if group.left().late > 0
                && is_write
                && group.clients()[at].begun > 0
                && !group.is_waiting_first(at)
            {
                actions.extend(group.alive().map(|member| Action::ComeLate(at, member)));
            }
        }
    }

    fn of_network(group: &Group, actions: &mut Vec<Action>) {
        for index in 0..group.network().count() {
            actions.push(Action::Deliver(index));
            if group.left().copies > 0 {
                actions.push(Action::DeliverTwice(index));
            }
            if group.left().losses > 0 {
                actions.push(Action::Lose(index));
            }
        }
    }

    fn of_members(group: &Group, actions: &mut Vec<Action>) {
        actions.extend((0..MEMBERS).filter(|index| group.is_behind(*index)).map(Action::View));
        actions.extend((0..MEMBERS).filter(|index| group.may_exclude(*index)).map(Action::Exclude));
        let may_fire =
            |index: &usize| group.is_due(*index) || (group.left().timers > 0 && group.has_timer(*index));
        actions.extend(group.alive().filter(may_fire).map(Action::Fire));
    }

    /// Faults that begin something new: they matter while somebody waits for an answer or will.
    fn of_failures(&self, group: &Group, actions: &mut Vec<Action>) {
        if self.is_answered(group) {
            return;
        }
        let may_fail = self.0.may_fail.iter().copied();
        if group.left().crashes > 0 {
            actions.extend(may_fail.clone().map(Action::Crash));
        }
        if group.left().expiries > 0 {
            actions.extend(may_fail.map(Action::Expire));
        }
    }

    fn is_answered(&self, group: &Group) -> bool {
        group.clients().iter().zip(&self.0.clients).all(|(client, script)| client.is_done(script))
    }

    /// Whether nothing is on its way, and nobody has anything to hear or to do.
    fn is_at_rest(&self, group: &Group) -> bool {
        let mut actions = Vec::new();
        self.of_clients(group, &mut actions);
        Models::of_members(group, &mut actions);
        let is_due = |action: &Action| match action {
            Action::Begin(_) | Action::View(_) | Action::Exclude(_) => true,
            Action::GoElsewhere(at) => group.is_forsaken(*at),
            Action::Fire(index) => group.is_due(*index),
            _ => false,
        };
        group.network().next().is_none() && !actions.iter().any(is_due)
    }

    /// All has come to its end: what was asked is answered, and full members hold the same.
    fn is_complete(&self, group: &Group) -> bool {
        self.is_answered(group) && are_alike(group)
    }
}

fn are_alike(group: &Group) -> bool {
    let mut states = group.full().map(|index| group.state(index));
    let Some(first) = states.next() else { return true };
    let of =
        |state: &crate::Tiny| (state.numbers().clone(), state.versions().clone(), state.applied().to_vec());
    let first = of(first);
    states.all(|state| of(state) == first)
}

impl Model for Models {
    type State = Group;
    type Action = Action;

    fn init_states(&self) -> Vec<Group> {
        vec![Group::new(&self.0)]
    }

    fn actions(&self, group: &Group, actions: &mut Vec<Action>) {
        self.of_clients(group, actions);
        Models::of_network(group, actions);
        Models::of_members(group, actions);
        self.of_failures(group, actions);
        if self.is_at_rest(group) && group.rounds() < ROUNDS && !self.is_complete(group) {
            actions.push(Action::Rest);
        }
    }

    fn next_state(&self, before: &Group, action: Action) -> Option<Group> {
        let (mut group, setup) = (before.clone(), &self.0);
        match action {
            Action::Begin(at) => group.begin(setup, at),
            Action::GoElsewhere(at) => group.go_elsewhere(setup, at),
            Action::ComeLate(at, member) => group.come_late(setup, at, member),
            Action::Deliver(index) => group.deliver(setup, index, false),
            Action::DeliverTwice(index) => group.deliver(setup, index, true),
            Action::Lose(index) => group.lose(index),
            Action::Fire(index) => group.fire_one(setup, index),
            Action::Crash(index) => group.crash(index),
            Action::Expire(index) => group.expire(setup, index),
            Action::Exclude(index) => group.exclude(index),
            Action::View(index) => group.take_view(setup, index),
            Action::Rest => group.rest(setup),
        }
        Some(group)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("some order of all requests explains what clients saw", |_, group: &Group| {
                group.history().is_linearizable()
            }),
            Property::always(
                "what is applied at one member is applied alike at others",
                |_, group: &Group| agree(group),
            ),
            Property::always("a request is executed once", |_, group: &Group| {
                (0..MEMBERS).all(|index| are_distinct(group.state(index).applied()))
            }),
            Property::always("an answered write is at every full member", |_, group: &Group| {
                group.full().all(|index| group.has_all_answered(index))
            }),
            Property::eventually(
                "once faults are over all is answered, and alike everywhere",
                |model: &Models, group| model.is_complete(group),
            ),
        ]
    }
}

fn are_distinct<T: PartialEq>(list: &[T]) -> bool {
    list.iter().enumerate().all(|(at, one)| !list[..at].contains(one))
}

/// One order of what is applied, and one number for each version of a key; also at members that were left out.
fn agree(group: &Group) -> bool {
    let pairs = (0..MEMBERS).flat_map(|one| (0..one).map(move |other| (one, other)));
    pairs.map(|(one, other)| (group.state(one), group.state(other))).all(|(one, other)| {
        let have_one_order = one.applied().iter().zip(other.applied()).all(|(one, other)| one == other);
        let is_same = |key: &u8| {
            let is_one_version = one.versions().get(key) == other.versions().get(key);
            !is_one_version || one.numbers().get(key) == other.numbers().get(key)
        };
        have_one_order && one.versions().keys().all(is_same)
    })
}
