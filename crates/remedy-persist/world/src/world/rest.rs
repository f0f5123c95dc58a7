//! How a run ends: the faults stop, and step by step everything must come to rest within a bound.
//!
//! Invariant: a phase ends when what it waits for is true, and breaks [`Invariant::Progress`] when
//! that takes longer than the scenario allows.

use super::{Event, ServerNode, World};
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
        let servers_up = self.servers.iter().all(|node| node.is_serving() || node.is_lost());
        devices_up && servers_up && self.clients.iter().all(super::ClientNode::is_idle)
    }

    fn is_empty(&self) -> bool {
        let has_ended =
            |node: &ServerNode| node.machine().is_some_and(|machine| machine.session_count() == 0);
        let all_ended = self.servers.iter().all(|node| node.is_lost() || has_ended(node));
        all_ended && (0..self.devices.len()).all(|device| self.entry_count(device) == 0)
    }

    /// How many entries of servers that are there a device holds.
    fn entry_count(&self, device: usize) -> usize {
        self.devices[device].entry_count(|server| self.servers[server].is_lost())
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
            let entries = self.entry_count(index);
            left.push(format!("device {index} (alive {}) holds {entries}", node.is_alive()));
        }
        for (index, node) in self.servers.iter().enumerate() {
            let sessions = node.machine().map(scotfree_session::Server::session_count);
            left.push(format!("server {index} (serving {}) has {sessions:?} sessions", node.is_serving()));
        }
        left.join("; ")
    }

    pub(super) fn collect_counters(&mut self) {
        (0..self.clients.len()).for_each(|client| self.retire_client(client));
        (0..self.devices.len()).for_each(|device| self.retire_device(device));
        (0..self.servers.len()).for_each(|server| self.retire_server(server));
    }
}
