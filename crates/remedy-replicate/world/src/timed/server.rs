//! A member on a core of its own: one thing after the other, as a server's loop does them.
//!
//! Invariant: what comes while the core is busy waits, and all of it is taken in the next turn, up to a burst; what a
//! turn answers to clients leaves before what it says to other members, and each datagram when its sending is paid for.

use crate::timed::values::Values;
use crate::timed::{Costs, MEMBERS_BURST_MAX, REQUESTS_BURST_MAX};
use remedy_replicate::{Replica, ReplicaOwn, Write};
use scotfree_core::{Effect, Effects, Nanos};
use scotfree_wire::Identity;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// What a client's packet has beside its payload: header, room for a stamp, MAC.
const PACKET_HEAD_BYTES: usize = 64 + 32 + 8;

/// A client's request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) client: usize,
    pub(super) identity: Identity,
    pub(super) writes: bool,
    pub(super) op: Vec<u8>,
}

/// What leaves a member, and when.
#[derive(Debug)]
pub(super) enum Leaves {
    Datagram { to: SocketAddr, bytes: Vec<u8> },
    Answer { client: usize },
}

#[derive(Debug)]
struct Ticket {
    client: usize,
    answer_bytes: Option<usize>,
    is_stable: bool,
}

/// A member with its core.
pub(super) struct Server {
    pub(super) machine: Box<dyn Replica<State = Values>>,
    costs: Costs,
    pub(super) requests: VecDeque<Request>,
    pub(super) datagrams: VecDeque<Vec<u8>>,
    /// A turn is under way or about to begin.
    pub(super) is_awake: bool,
    /// When it looks at its timers next.
    pub(super) alarm: Option<Nanos>,
    tickets: BTreeMap<u64, Ticket>,
    ticket: u64,
    /// Tickets that have become stable in this turn, in their order.
    due: Vec<u64>,
    /// How many writes storage was handed.
    stored: u64,
    /// How long the core was busy since it is measured.
    pub(super) busy: Nanos,
    /// How many datagrams of members it took since then.
    pub(super) taken: u64,
}

impl Server {
    pub(super) fn new(machine: Box<dyn Replica<State = Values>>, costs: Costs) -> Server {
        Server {
            machine,
            costs,
            requests: VecDeque::new(),
            datagrams: VecDeque::new(),
            is_awake: false,
            alarm: None,
            tickets: BTreeMap::new(),
            ticket: 0,
            due: Vec::new(),
            stored: 0,
            busy: Nanos(0),
            taken: 0,
        }
    }

    pub(super) fn has_work(&self, now: Nanos) -> bool {
        let is_due = self.machine.next_timer().is_some_and(|at| at <= now);
        is_due || !self.requests.is_empty() || !self.datagrams.is_empty()
    }

    /// One turn: what has come is taken, what follows from it leaves. When it is over.
    pub(super) fn turn(&mut self, begun: Nanos, leave: &mut impl FnMut(Nanos, Leaves)) -> Nanos {
        let mut now = begun.plus(self.costs.turn);
        self.take_requests(&mut now, leave);
        self.take_datagrams(&mut now, leave);
        if self.machine.next_timer().is_some_and(|at| at <= now) {
            self.act(&mut now, leave, |machine, now, effects| machine.on_timer(now, effects));
        }
        self.answer(&mut now, leave);
        self.act(&mut now, leave, |machine, now, effects| machine.flush(now, effects));
        self.store(&mut now);
        self.answer(&mut now, leave);
        self.busy = self.busy.plus(now.since(begun));
        now
    }

    fn take_requests(&mut self, now: &mut Nanos, leave: &mut impl FnMut(Nanos, Leaves)) {
        for _ in 0..REQUESTS_BURST_MAX {
            let Some(request) = self.requests.pop_front() else { return };
            *now = now.plus(self.costs.taking(request.op.len() + PACKET_HEAD_BYTES));
            *now = now.plus(self.costs.request);
            self.ticket += 1;
            let ticket = self.ticket;
            let begun = Ticket { client: request.client, answer_bytes: None, is_stable: false };
            self.tickets.insert(ticket, begun);
            self.act(now, leave, |machine, now, effects| {
                if request.writes {
                    let write = Write { ticket, identity: request.identity, session: None, op: &request.op };
                    machine.write(now, &write, effects);
                } else {
                    machine.read(now, ticket, &request.op, effects);
                }
            });
        }
    }

    fn take_datagrams(&mut self, now: &mut Nanos, leave: &mut impl FnMut(Nanos, Leaves)) {
        for _ in 0..MEMBERS_BURST_MAX {
            let Some(bytes) = self.datagrams.pop_front() else { return };
            *now = now.plus(self.costs.taking(bytes.len())).plus(self.costs.step);
            self.taken += 1;
            self.act(now, leave, |machine, now, effects| machine.on_message(now, &bytes, effects));
        }
    }

    /// Has the machine do something; what it wants sent leaves, one datagram after the other.
    pub(super) fn act(
        &mut self,
        now: &mut Nanos,
        leave: &mut impl FnMut(Nanos, Leaves),
        act: impl FnOnce(&mut dyn Replica<State = Values>, Nanos, &mut Effects<ReplicaOwn>),
    ) {
        let mut effects = Effects::new();
        let before = self.machine.counters().applied;
        act(self.machine.as_mut(), *now, &mut effects);
        let applied = self.machine.counters().applied - before;
        *now = now.plus(Nanos(self.costs.apply.0 * applied));
        let mut is_called = false;
        for effect in effects.iter() {
            match effect {
                Effect::Send { to, bytes, .. } => {
                    let bytes = effects.bytes(*bytes).to_vec();
                    *now = now.plus(self.costs.sending(bytes.len(), &mut is_called));
                    leave(*now, Leaves::Datagram { to: *to, bytes });
                }
                Effect::Own(own) => self.on_own(*own, &effects),
                Effect::Persist { .. } | Effect::Erase { .. } => unreachable!("the state stores"),
            }
        }
    }

    fn on_own(&mut self, own: ReplicaOwn, effects: &Effects<ReplicaOwn>) {
        let (ReplicaOwn::Answer { ticket, .. } | ReplicaOwn::Stable { ticket }) = own else {
            panic!("nothing fails in simulated time, but: {own:?}");
        };
        let Some(begun) = self.tickets.get_mut(&ticket) else { return };
        match own {
            ReplicaOwn::Answer { reply, .. } => begun.answer_bytes = Some(effects.bytes(reply).len()),
            _ => begun.is_stable = true,
        }
        if begun.is_stable && begun.answer_bytes.is_some() {
            self.due.push(ticket);
        }
    }

    /// What was applied is handed to storage when other members have what they wait for, and before clients do.
    fn store(&mut self, now: &mut Nanos) {
        let applied = self.machine.counters().applied;
        if applied > self.stored {
            *now = now.plus(self.costs.store);
        }
        self.stored = applied;
    }

    /// Lets out what is stable.
    fn answer(&mut self, now: &mut Nanos, leave: &mut impl FnMut(Nanos, Leaves)) {
        let mut is_called = false;
        for ticket in std::mem::take(&mut self.due) {
            let Some(Ticket { client, answer_bytes, .. }) = self.tickets.remove(&ticket) else { continue };
            let bytes = answer_bytes.unwrap_or(0) + PACKET_HEAD_BYTES;
            *now = now.plus(self.costs.sending(bytes, &mut is_called));
            leave(*now, Leaves::Answer { client });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Protocol;
    use crate::timed::figures::default_setup;
    use crate::timed::{machine, values, Setup};

    #[test]
    fn a_turn_takes_a_burst_at_most() {
        let setup = Setup { protocol: Protocol::Craq, ..default_setup(1) };
        let mut server = Server::new(machine(&setup, 0), setup.costs);
        let identity = Identity { client: [0; 16], number: 1 };
        let request = Request { client: 0, identity, writes: false, op: values::get(1) };
        server.requests.extend(vec![request; REQUESTS_BURST_MAX + 3]);
        server.datagrams.extend(vec![vec![0; 40]; MEMBERS_BURST_MAX + 5]);
        server.machine.on_lease(Nanos::MAX);
        let view = crate::timed::view(&Setup { member_count: 1, ..setup });
        server
            .act(&mut Nanos(0), &mut |_, _| {}, |machine, now, effects| machine.on_view(now, &view, effects));
        let mut answers = 0;
        server
            .turn(Nanos(0), &mut |_, leaves| answers += usize::from(matches!(leaves, Leaves::Answer { .. })));
        assert_eq!((server.requests.len(), server.datagrams.len(), answers), (3, 5, REQUESTS_BURST_MAX));
    }
}
