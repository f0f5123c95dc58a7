//! Small groups in every order of events: the machines themselves, cloned at every step, under the checker of
//! stateright.
//!
//! The simulator of `remedy-replicate-world` tries many long runs at random; here few members and requests are tried
//! in all orders, with messages that overtake each other, are lost and come twice, and one member that fails or joins.
//!
//! Invariant: two groups that are taken for the same go on alike: what is left out of a group's fingerprint is times
//! (every timer that waits may fire) and what is counted.
#![forbid(unsafe_code)]

mod client;
mod group;
mod model;
mod number;
mod setup;
mod tiny;

pub use group::Group;
pub use model::{Action, Models};
pub use number::{Ask, Number};
pub use setup::{Budget, Protocol, Script, Setup};
pub use tiny::Tiny;
