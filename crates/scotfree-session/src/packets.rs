//! Sending what may need more than one packet.

use scotfree_core::Effects;
use scotfree_wire::{emit, fragments, Header, Key, Tail, WireError};
use std::net::SocketAddr;

/// Where packets come from and go to.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// In whose name they are sent.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
}

/// Sends `payload` in as many packets as it needs. Too large a payload is refused before anything
/// is sent.
pub fn send_whole<Own>(
    effects: &mut Effects<Own>,
    route: Route,
    header: &Header,
    tail: &Tail,
    payload: &[u8],
    key: &Key,
) -> Result<(), WireError> {
    for (header, part) in fragments(header, payload)? {
        effects.send(route.from, route.to, |out| emit(&header, tail, part, key, out));
    }
    Ok(())
}
