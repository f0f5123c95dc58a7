//! What a service says of its state, so that it can be kept at several members alike: [`State`], and the
//! [`Results`] by which a request that comes again is known.
//!
//! Invariant: what an operation does and answers follows from the state and the operation alone; two states to
//! which the same operations were applied in the same order are alike.
#![forbid(unsafe_code)]

mod results;
mod state;

pub use results::{request_of, Known, Results, ResultsLimits};
pub use state::{Applied, DamagedSnapshot, Facts, Installed, Mark, Placed, State, Touches, Version};
