//! What deals with frames before the daemon does: nothing, or programs in the kernel.
//!
//! Invariant: no plane starts on ports whose frames the programs of another take.

use crate::config::{PlaneConfig, SwitchConfig, XdpConfig};
use crate::daemon::StartError;
use crate::plane::Plane;
use crate::plane_user::UserPlane;
use crate::plane_xdp::{attached_program, Loaded};
use crate::programs::why_unreachable;
use scotfree_core::BootEpoch;
use scotfree_device::Pipeline;

/// What deals with frames before the daemon does.
pub(crate) enum Offload {
    /// Nothing.
    None,
    /// Programs in the kernel.
    Xdp(Box<Loaded>),
}

impl Offload {
    pub(crate) fn load(config: &SwitchConfig, ports: &[(String, u32)]) -> Result<Offload, StartError> {
        match &config.plane {
            PlaneConfig::User => refuse_attached(config, ports).map(|()| Offload::None),
            PlaneConfig::Xdp(xdp) => Ok(Offload::Xdp(Box::new(Loaded::load(config, xdp)?))),
        }
    }

    /// The incarnation that has outlived its daemon; 0 if there is none.
    pub(crate) fn alive(&self) -> BootEpoch {
        match self {
            Offload::None => BootEpoch(0),
            Offload::Xdp(loaded) => loaded.alive(),
        }
    }

    /// What the operator should know at the start.
    pub(crate) fn notices(&self, config: &SwitchConfig, ports: &[(String, u32)]) -> Vec<String> {
        let Offload::Xdp(loaded) = self else { return Vec::new() };
        let retired = loaded.is_retired().then(|| {
            "the log was kept under an epoch of the cluster's key that the key file has no more: the sessions of that \
             epoch have ended, and what the log holds of them goes to the server"
                .to_owned()
        });
        let slots = loaded.slot_count();
        let narrow = config.lacks_slots(slots).map(|least| {
            format!(
                "the log in the kernel has {slots} slots, too few for a session's usual window of {least}: packets take \
                 the way through the daemon; give that log up and start with --slots {least} or more"
            )
        });
        let vanish = loaded.unreachable(ports).into_iter().map(|port| why_unreachable(&port));
        retired.into_iter().chain(narrow).chain(vanish).collect()
    }

    pub(crate) fn plane(
        self,
        config: &SwitchConfig,
        device: Pipeline,
        common: impl FnOnce(Pipeline) -> UserPlane,
    ) -> Result<Box<dyn Plane>, StartError> {
        match self {
            Offload::None => Ok(Box::new(common(device))),
            Offload::Xdp(loaded) => Ok(Box::new(loaded.attach(config, device, common)?)),
        }
    }
}

/// Frames that a program takes off a port reach no process: a plane of another daemon may have left one.
fn refuse_attached(config: &SwitchConfig, ports: &[(String, u32)]) -> Result<(), StartError> {
    for (name, ifindex) in ports {
        let Some(program) = attached_program(*ifindex) else { continue };
        let kept = XdpConfig::new(config.device).pin;
        return Err(StartError::Config(format!(
            "port {name}: the XDP program {program} is attached and takes its frames; if the kernel plane of this \
             device left it, start with --plane xdp, or give up its log: rm -r {} ; another's: ip link set dev {name} \
             xdp off",
            kept.display()
        )));
    }
    Ok(())
}
