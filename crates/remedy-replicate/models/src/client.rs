//! A client: one request after the other, under the same identity wherever it goes.
//!
//! Invariant: a request is in the history once, from when it was asked to its first answer.

use crate::number::{Ask, Number};
use crate::setup::Script;
use scotfree_wire::Identity;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
use std::collections::BTreeMap;

/// What clients saw of a key.
type Seen = LinearizabilityTester<u8, Number>;

/// How far a client is.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Client {
    /// How many requests it has begun.
    pub begun: usize,
    /// The member that it waits for.
    pub waits_for: Option<usize>,
    /// That member has said no, or lost what it was asked.
    pub is_declined: bool,
    /// Where it asks next.
    pub member: usize,
}

impl Client {
    pub(crate) fn new(script: &Script) -> Client {
        Client { begun: 0, waits_for: None, is_declined: false, member: script.member }
    }

    /// The request that it waits for, or had answered last.
    pub(crate) fn ask(&self, script: &Script) -> Ask {
        script.asks[self.begun - 1]
    }

    pub(crate) fn is_done(&self, script: &Script) -> bool {
        self.waits_for.is_none() && self.begun == script.asks.len()
    }
}

/// The identity of a client's request.
pub(crate) fn identity(client: usize, begun: usize, script: &Script) -> Identity {
    let home = script.member as u64 + 1;
    Identity { client: [client as u8 + 1; 16], number: home << 56 | begun as u64 }
}

/// What a request is called at a member.
pub(crate) fn ticket(client: usize, begun: usize) -> u64 {
    (client as u64) << 8 | begun as u64
}

/// What clients saw, of each key by itself.
#[derive(Debug, Clone, Hash, Default)]
pub(crate) struct History {
    keys: BTreeMap<u8, Seen>,
    is_broken: bool,
}

impl History {
    pub(crate) fn asked(&mut self, client: usize, ask: Ask) {
        let seen = self.keys.entry(ask.key()).or_default();
        seen.on_invoke(client as u8, ask).expect("a client asks one thing at a time");
    }

    pub(crate) fn answered(&mut self, client: usize, ask: Ask, reply: u8) {
        let seen = self.keys.entry(ask.key()).or_default();
        seen.on_return(client as u8, reply).expect("what is answered was asked");
        self.is_broken |= !seen.is_consistent();
    }

    /// Whether some order explains all of it. An answer alone can break that.
    pub(crate) fn is_linearizable(&self) -> bool {
        !self.is_broken
    }
}
