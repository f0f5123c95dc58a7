//! The shape of a protocol role without I/O.

use crate::{Effects, Nanos, Token};
use std::net::SocketAddr;

/// A protocol role. Time, messages and completions come in as arguments; what should happen goes
/// out as effects. The same machine runs in the simulator and in the shells.
pub trait Machine {
    /// Effects that only this machine's shell can carry out.
    type Own;

    /// A packet arrived. Bad packets are counted and dropped, never a panic.
    ///
    /// `to` is the address it was sent to: a device sees messages that are not meant for it.
    fn on_message(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        to: SocketAddr,
        message: &[u8],
        effects: &mut Effects<Self::Own>,
    );

    /// What was wished for under `token` is durable.
    fn on_persisted(&mut self, now: Nanos, token: Token, effects: &mut Effects<Self::Own>);

    /// The time of [`Machine::next_timer`] has come. Calling it early is harmless.
    fn on_timer(&mut self, now: Nanos, effects: &mut Effects<Self::Own>);

    /// When to call [`Machine::on_timer`] next; `None` if nothing is pending.
    fn next_timer(&self) -> Option<Nanos>;
}
