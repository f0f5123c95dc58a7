//! What stands before the persist device and deals with most packets by itself.
//!
//! Invariant: the device sees a message, a timer or a promotion only after the fast path has told it what it
//! needs for that, and the fast path goes on only after it has been told what came of it.

use crate::bridge::PortIndex;
use remedy_persist::{Device, DeviceCounters, DeviceOwn, Mishaps};
use scotfree_core::{Effects, Nanos, SessionId};
use std::net::IpAddr;

/// Before what the device is brought up to date.
#[derive(Debug, Clone, Copy)]
pub enum Before<'a> {
    /// It is to see this message.
    Message(&'a [u8]),
    /// Its timers are to run.
    Timer,
    /// It is to become the head of its chain.
    Promotion,
    /// It is to take the cluster's key anew.
    NewKey,
    /// The fast path has logged an entry of this session that is to go to disk.
    Entry(SessionId),
    /// It is to be looked at.
    Look,
}

/// A fast path before the device. Errors are in words for the operator.
pub trait FastPath {
    /// Brings the device up to date.
    fn before(
        &mut self,
        now: Nanos,
        what: Before<'_>,
        device: &mut Device,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), String>;

    /// Takes over what the device has decided.
    fn after(&mut self, device: &mut Device) -> Result<(), String>;

    /// When the device should be brought up to date without another reason.
    fn next_timer(&self) -> Nanos;

    /// A host was heard behind a port.
    fn heard(&mut self, host: IpAddr, port: PortIndex) -> Result<(), String>;

    /// What went wrong between the device and the fast path.
    fn mishaps(&self) -> Mishaps;

    /// Whether its log outlives this process still.
    fn is_kept(&self) -> bool;

    /// The ports by which what it sends leaves for nobody.
    fn unreachable(&self) -> Vec<String>;

    /// What the fast path has counted by itself, under the device's names.
    fn counters(&self) -> Result<DeviceCounters, String>;
}

/// Why a port is unreachable for programs, and what to do.
pub(crate) fn why_unreachable(port: &str) -> String {
    format!(
        "port {port} takes no frames from programs: what the device sends there vanishes. Of a veth the other end must \
         receive by NAPI; while it is up: ethtool -K OTHER_END gro off; ethtool -K OTHER_END gro on"
    )
}
