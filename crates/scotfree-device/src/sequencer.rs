//! The order of logged updates: one counter for each server, since each executes an order of its own.
//!
//! Invariant: a number is given once in a boot epoch, and every number given is a logged update's.

use scotfree_core::{OrderNumber, ServerIndex};
use std::fmt::Debug;

/// Where order numbers come from: with a fast path, from a counter that it shares.
pub trait OrderCounter: Debug + Send {
    /// The last number given.
    fn current(&self) -> OrderNumber;
    /// Gives the next.
    fn next(&mut self) -> OrderNumber;
    /// Begins anew, with a new boot epoch.
    fn restart(&mut self);
}

/// A counter of the machine's own.
#[derive(Debug, Default)]
struct OwnCounter(OrderNumber);

impl OrderCounter for OwnCounter {
    fn current(&self) -> OrderNumber {
        self.0
    }

    fn next(&mut self) -> OrderNumber {
        self.0 = self.0.next();
        self.0
    }

    fn restart(&mut self) {
        self.0 = OrderNumber(0);
    }
}

/// The counters of all servers.
#[derive(Debug)]
pub struct Sequencer(Vec<Box<dyn OrderCounter>>);

impl Sequencer {
    pub(crate) fn new(server_count: usize) -> Sequencer {
        Sequencer(
            (0..server_count).map(|_| Box::new(OwnCounter::default()) as Box<dyn OrderCounter>).collect(),
        )
    }

    /// The last number given in a server's order.
    pub fn current(&self, server: ServerIndex) -> OrderNumber {
        self.0[usize::from(server.0)].current()
    }

    pub(crate) fn next(&mut self, server: ServerIndex) -> OrderNumber {
        self.0[usize::from(server.0)].next()
    }

    pub(crate) fn restart(&mut self) {
        self.0.iter_mut().for_each(|counter| counter.restart());
    }

    /// Counts a server's order with `counter` from now on, which somebody else counts with too.
    pub fn share(&mut self, server: ServerIndex, counter: Box<dyn OrderCounter>) {
        self.0[usize::from(server.0)] = counter;
    }
}
