//! In-network persistence (`PMNet`, thesis chapter 3): a device on the path logs updates and
//! acknowledges them before the server has seen them.
//!
//! Invariant: [`Persist`] is a function of the device, without I/O. The rules that it keeps are cited by number where
//! they are enforced; docs/design/persist-machines.md explains the decisions behind them. An update is
//! acknowledged only after its record is durable at the level asked for (rule 4), and its record is erased only
//! after the server has said that it is stable (rule 6).
#![forbid(unsafe_code)]

mod config;
mod fast;
mod function;
mod index;
mod log;
mod record;
mod remedy;
mod replay;

pub use config::{PersistConfig, PersistCounters};
pub use fast::{FastEntry, FastSession, FastSide, Mishaps, SessionView, SlotView};
pub use log::Persist;
pub use remedy::ENTRY;

use scotfree_device::{DeviceConfig, Maker, Pipeline};

/// Persist, as a list of functions names it.
pub const MAKER: Maker = Maker::plain("persist", |settings| {
    Box::new(Persist::new(PersistConfig {
        media: settings.media,
        reforward_after: settings.reforward_after,
        planted: settings.planted,
        ..PersistConfig::default()
    }))
});

/// A device that has persist alone.
pub fn device(config: DeviceConfig, persist: PersistConfig) -> Pipeline {
    Pipeline::new(config, vec![Box::new(Persist::new(persist))]).expect("one function is in order")
}

/// What a device's persist has counted.
pub fn counters(device: &Pipeline) -> PersistCounters {
    device.function::<Persist>().map(|persist| *persist.counters()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    mod fast;
    mod limits;
    mod servers;
}
