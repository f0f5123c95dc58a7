//! The plane in the kernel where it was left out of the build.
//!
//! Invariant: there are no programs, so what would run them cannot be made.

use crate::config::{SwitchConfig, XdpConfig};
use crate::daemon::StartError;
use crate::plane_user::UserPlane;
use scotfree_core::BootEpoch;
use scotfree_device::Pipeline;

/// The programs, if there were any.
pub(crate) enum Loaded {}

impl Loaded {
    pub(crate) fn load(_config: &SwitchConfig, _xdp: &XdpConfig) -> Result<Loaded, StartError> {
        Err(StartError::Config(
            "this scot was built without the plane in the kernel; build it where clang (14 or newer) and libbpf's headers \
             are, or give --plane user"
                .to_owned(),
        ))
    }

    pub(crate) fn alive(&self) -> BootEpoch {
        match *self {}
    }

    pub(crate) fn slot_count(&self) -> u32 {
        match *self {}
    }

    pub(crate) fn is_retired(&self) -> bool {
        match *self {}
    }

    pub(crate) fn unreachable(&self, _ports: &[(String, u32)]) -> Vec<String> {
        match *self {}
    }

    pub(crate) fn attach(
        self,
        _config: &SwitchConfig,
        _device: Pipeline,
        _common: impl FnOnce(Pipeline) -> UserPlane,
    ) -> Result<UserPlane, StartError> {
        match self {}
    }
}

/// Which program takes a port's frames; what looks for it is left out, too.
pub(crate) fn attached_program(_ifindex: u32) -> Option<u32> {
    None
}
