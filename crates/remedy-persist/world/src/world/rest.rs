//! How a run ends: the faults stop, and step by step everything must come to rest within a bound.
//!
//! Invariant: a phase ends when what it waits for is true, and breaks [`Invariant::Progress`] when
//! that takes longer than the scenario allows.

use super::{Event, World};
use crate::model::{Invariant, Violation};
use scotfree_core::Nanos;
use scotfree_session::Client;
use scotfree_sim::Protocol;

/// What the world waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Clients make requests, and things go wrong.
    Faulty,
    /// Everything outstanding completes.
    Settle,
    /// An auditor reads every cell.
    Audit,
    /// Every session is closed.
    Close,
    /// Sessions of the dead expire, and every log is empty.
    Empty,
    /// Nothing is left to do.
    Rest,
}

impl World {
    pub(super) fn is_faulty(&self) -> bool {
        self.phase == Phase::Faulty
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_began = self.engine.now;
        let patience = match phase {
            Phase::Empty => self.scenario.recovery_max.plus(Nanos(2 * self.scenario.expiry.0)),
            Phase::Faulty | Phase::Settle | Phase::Audit | Phase::Close | Phase::Rest => {
                self.scenario.recovery_max
            }
        };
        self.engine.after(patience, Event::Deadline(phase));
    }

    /// Goes on to the next phase if this one has what it waits for.
    pub(super) fn advance_phase(&mut self) {
        match self.phase {
            Phase::Settle if self.is_settled() => {
                self.enter(Phase::Audit);
                self.begin_audit();
            }
            Phase::Audit if self.is_settled() => {
                self.enter(Phase::Close);
                (0..self.clients.len()).for_each(|client| {
                    self.with_client(client, Client::close);
                });
            }
            Phase::Close if self.clients.iter().all(super::ClientNode::is_closed) => self.enter(Phase::Empty),
            Phase::Empty if self.is_empty() => self.phase = Phase::Rest,
            Phase::Faulty | Phase::Settle | Phase::Audit | Phase::Close | Phase::Empty | Phase::Rest => {}
        }
    }

    fn is_settled(&self) -> bool {
        let devices_up = self.devices.iter().all(|node| node.is_alive() || node.is_lost());
        devices_up && self.server.is_serving() && self.clients.iter().all(super::ClientNode::is_idle)
    }

    fn is_empty(&self) -> bool {
        let no_session = self.server.machine().is_some_and(|machine| machine.session_count() == 0);
        let live = self.devices.iter().filter_map(super::DeviceNode::machine);
        no_session && live.map(|machine| machine.entries().count()).all(|count| count == 0)
    }

    /// How long the last completion was after the faults stopped.
    pub(super) fn note_recovery_time(&mut self) {
        if self.phase == Phase::Settle {
            self.engine.report.tally.recovery_max =
                self.engine.report.tally.recovery_max.max(self.engine.now.since(self.phase_began));
        }
    }

    pub(super) fn deadline(&mut self, phase: Phase) {
        if self.phase == phase {
            let invariant = if phase == Phase::Empty { Invariant::LogsEmpty } else { Invariant::Progress };
            let detail = format!("{phase:?} takes too long: {}", self.what_is_left());
            self.must(Err(Violation::new(invariant, detail)));
        }
    }

    fn what_is_left(&self) -> String {
        let mut left = Vec::new();
        for (index, node) in
            self.clients.iter().enumerate().filter(|(_, node)| !node.is_idle() || !node.is_closed())
        {
            let machine = node.machine();
            let outstanding = machine.map_or(0, Client::outstanding);
            let (open, closed) = (machine.is_some_and(Client::is_open), node.is_closed());
            left.push(format!("client {index} (open {open}, closed {closed}) waits for {outstanding}"));
        }
        for (index, node) in self.devices.iter().enumerate() {
            let entries = node.machine().map_or(0, |machine| machine.entries().count());
            left.push(format!("device {index} (alive {}) holds {entries}", node.is_alive()));
        }
        let sessions = self.server.machine().map(scotfree_session::Server::session_count);
        left.push(format!("the server (serving {}) has {sessions:?} sessions", self.server.is_serving()));
        left.join("; ")
    }

    pub(super) fn collect_counters(&mut self) {
        (0..self.clients.len()).for_each(|client| self.retire_client(client));
        (0..self.devices.len()).for_each(|device| self.retire_device(device));
        self.retire_server();
    }
}
