//! How a function is made: a remedy hands out one constant, and a list of them is all that a shell knows of remedies.

use crate::function::Function;
use scotfree_core::{Durability, Nanos};
use scotfree_session::Planted;

/// What a configuration tells functions; each takes what concerns it.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// What the persistence domains can give.
    pub media: Durability,
    /// How long a log's entry may stay without `ServerAck` before it is sent to the server again.
    pub reforward_after: Nanos,
    /// A safety rule switched off, for tests.
    pub planted: Planted,
}

impl Default for Settings {
    /// For a device with memory only.
    fn default() -> Settings {
        Settings { media: Durability::Ram, reforward_after: Nanos::from_millis(400), planted: Planted::NONE }
    }
}

/// A function that can be made.
#[derive(Debug, Clone, Copy)]
pub struct Maker {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Makes it.
    pub make: fn(&Settings) -> Box<dyn Function>,
}
