//! The programs in the kernel, as the path of a frame knows them: where hosts live, and what became of the programs.
//!
//! Invariant: what a function shares with its programs is the function's; here is only what belongs to none.

use crate::bridge::PortIndex;
use scotfree_device::DeviceCounters;
use std::net::IpAddr;

/// Programs in the kernel. Errors are in words for the operator.
pub trait Programs {
    /// A host was heard behind a port.
    fn heard(&mut self, host: IpAddr, port: PortIndex) -> Result<(), String>;

    /// Whether their log outlives this process still.
    fn is_kept(&self) -> bool;

    /// The ports by which what they send leaves for nobody.
    fn unreachable(&self) -> Vec<String>;

    /// What they have counted by themselves, under the device's names.
    fn counters(&self) -> Result<DeviceCounters, String>;
}

/// Why a port is unreachable for programs, and what to do.
pub(crate) fn why_unreachable(port: &str) -> String {
    format!(
        "port {port} takes no frames from programs: what the device sends there vanishes. Of a veth the other end must \
         receive by NAPI; while it is up: ethtool -K OTHER_END gro off; ethtool -K OTHER_END gro on"
    )
}
