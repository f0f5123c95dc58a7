//! What a model is made of: who asks what, and how much may go wrong.
//!
//! Invariant: a setup is finite: every client has a last request, and everything that goes wrong a budget.

use crate::number::Ask;
use remedy_replicate::Planted;

/// The protocol of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Chain replication.
    Chain,
    /// CRAQ.
    Craq,
    /// Hermes.
    Hermes,
}

/// A client: one request after the other.
#[derive(Debug, Clone)]
pub struct Script {
    /// The member that it asks first, from 0.
    pub member: usize,
    /// What it asks.
    pub asks: Vec<Ask>,
}

/// How often what goes wrong, until the group first comes to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    /// A member dies.
    pub crashes: u8,
    /// A member's lease ends, and it goes on without knowing.
    pub expiries: u8,
    /// A message is lost.
    pub losses: u8,
    /// A message comes once more.
    pub copies: u8,
    /// A timer fires though what it waits for is under way.
    pub timers: u8,
    /// A client goes to the next member with what it has asked.
    pub moves: u8,
    /// What a client has asked before comes again by another way.
    pub late: u8,
}

/// A model.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The protocol.
    pub protocol: Protocol,
    /// The clients.
    pub clients: Vec<Script>,
    /// What goes wrong.
    pub budget: Budget,
    /// The last of the three members has nothing and joins; else it is full.
    pub joins: bool,
    /// The members that may fail, from 0.
    pub may_fail: Vec<usize>,
    /// A safety rule switched off.
    pub planted: Planted,
}

/// How many members there are.
pub const MEMBERS: usize = 3;
/// How often all timers fire, once nothing else can happen, before a request must be answered.
pub(crate) const ROUNDS: u8 = 8;
