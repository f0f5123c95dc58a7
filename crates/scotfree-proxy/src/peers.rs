//! Copies of a proxy's log in the memory of other hosts, its *peers*: what both ends know and say, without sockets.
//!
//! Invariant (rule 9, docs/design/proxy.md): each peer on the proxy's durable list holds every update that was answered
//! and is not stable, so any one of them is enough after a crash.

mod channel;
mod copies;
mod keeper;
mod message;

pub use channel::{Channel, ChannelError, Opened};
pub use copies::{Copies, Incarnation};
pub use keeper::{Keeper, KeeperConfig, KeeperCounters, LogName};
pub use message::{FromKeeper, Held, MessageError, ToKeeper, RECORD_BYTES_MAX};
