//! What a device wishes for, beside what every machine does.

use scotfree_core::{BootEpoch, ByteRange, Effects, Epoch, ServerIndex, Token};

/// What only the device's shell can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceOwn {
    /// Pass the message just received on along its way, with these bytes instead of its own. A
    /// message for which this is not said goes no further.
    Forward {
        /// The packet.
        bytes: ByteRange,
    },
    /// Make these durable before carrying out anything that was wished for later.
    SetMeta {
        /// The incarnation of this device.
        boot_epoch: BootEpoch,
        /// Of which server the epoch is.
        server: ServerIndex,
        /// The largest epoch of that server that has polled it.
        server_epoch: Epoch,
    },
    /// Report `token` to `on_persisted` once all erasures wished for so far are durable.
    FlushErasures {
        /// What to report.
        token: Token,
    },
}

/// What a device wishes for.
pub type DeviceEffects = Effects<DeviceOwn>;

/// Passes the message just received on.
pub(crate) fn forward(effects: &mut DeviceEffects, bytes: &[u8]) {
    let bytes = effects.append(|out| out.extend_from_slice(bytes));
    effects.own(DeviceOwn::Forward { bytes });
}
