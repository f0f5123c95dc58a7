//! What the kernel says of an interface that a program is to be attached to.
//!
//! Invariant: looking changes nothing.

use crate::kernel::AttachMode;
use libbpf_rs::libbpf_sys;
use libbpf_rs::query::ProgInfoIter;
use std::io;

/// An interface, as far as programs go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// What its driver offers to programs. Kernels before Linux 6.3 do not say; then it is nothing.
    pub features: Features,
    /// What is attached to it.
    pub program: Option<Attached>,
}

/// What a driver offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Programs run in the driver and may send frames out of other interfaces.
    pub native: bool,
    /// Programs of other interfaces may send frames out of this one.
    pub is_target: bool,
}

/// A program that is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Its number.
    pub id: u32,
    /// Its name, if this process may know it.
    pub name: Option<String>,
}

impl Attached {
    /// Whether it is a device's; none if its name is not to be known.
    pub fn is_ours(&self) -> Option<bool> {
        self.name.as_ref().map(|name| name.starts_with("scot_"))
    }
}

// NETDEV_XDP_ACT_* of linux/netdev.h.
const ACT_BASIC: u64 = 1 << 0;
const ACT_REDIRECT: u64 = 1 << 1;
const ACT_NDO_XMIT: u64 = 1 << 2;

fn query(ifindex: u32) -> io::Result<libbpf_sys::bpf_xdp_query_opts> {
    let mut answer = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..libbpf_sys::bpf_xdp_query_opts::default()
    };
    // SAFETY: the struct is whole, says its size and outlives the call.
    let result = unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &raw mut answer) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(answer)
}

/// The number of the program that is attached to an interface in a mode.
pub(crate) fn program_in(ifindex: u32, mode: AttachMode) -> io::Result<Option<u32>> {
    let answer = query(ifindex)?;
    let id = match mode {
        AttachMode::Native => answer.drv_prog_id,
        AttachMode::Generic => answer.skb_prog_id,
    };
    Ok((id != 0).then_some(id))
}

impl Interface {
    /// Asks the kernel.
    pub fn look(ifindex: u32) -> io::Result<Interface> {
        let answer = query(ifindex)?;
        let ids = [answer.prog_id, answer.drv_prog_id, answer.skb_prog_id, answer.hw_prog_id];
        let program = ids.into_iter().find(|id| *id != 0).map(|id| Attached { id, name: name_of(id) });
        Ok(Interface { features: features(answer.feature_flags), program })
    }
}

fn features(flags: u64) -> Features {
    let has = |wanted: u64| flags & wanted == wanted;
    Features { native: has(ACT_BASIC | ACT_REDIRECT), is_target: has(ACT_NDO_XMIT) }
}

fn name_of(program: u32) -> Option<String> {
    let found = ProgInfoIter::default().find(|info| info.id == program)?;
    Some(found.name.to_string_lossy().into_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_from_their_bits() {
        assert_eq!(features(0), Features { native: false, is_target: false });
        assert_eq!(features(3), Features { native: true, is_target: false });
        assert_eq!(features(7), Features { native: true, is_target: true });
        let basic = features(1);
        assert!(!basic.native, "frames could not leave by another port");
    }

    #[test]
    fn loopback_has_no_program() {
        let loopback = Interface::look(1).expect("every machine has it");
        assert_eq!(loopback.program, None);
        assert!(Interface::look(0x7fff_fff0).is_err(), "there is none of this number");
    }

    #[test]
    fn a_program_is_told_by_its_name() {
        let attached = |name: Option<&str>| Attached { id: 7, name: name.map(str::to_owned) };
        assert_eq!(attached(Some("scot_ingress")).is_ours(), Some(true));
        assert_eq!(attached(Some("xdp_filter")).is_ours(), Some(false));
        assert_eq!(attached(None).is_ours(), None);
    }
}
