//! Which plane the demonstration's device has.
//!
//! Invariant: one that was asked for by name is had or there is an error; where another takes its place, the
//! reason is said.

use scotfree_stage::kernel_plane::try_programs;
use scotfree_stage::process::Process;
use scotfree_stage::site::{Logs, Site};
use scotfree_stage::trouble::Trouble;

/// Which plane is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaneWish {
    /// The device's process.
    User,
    /// Programs in the kernel, or nothing.
    Xdp,
    /// Programs in the kernel where they can run, the device's process elsewhere.
    Auto,
}

/// The plane that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plane {
    /// Its name, as `scot switch --plane` has it.
    pub name: &'static str,
    /// Why it is not the kernel's, if nobody asked for that.
    pub reason: Option<String>,
}

impl Plane {
    pub const XDP: Plane = Plane { name: "xdp", reason: None };
    const USER: Plane = Plane { name: "user", reason: None };

    /// For the reader.
    pub fn describe(&self) -> String {
        if *self == Plane::XDP {
            return "device: scot switch --plane xdp: programs in the kernel (native XDP), log in the kernel's memory \
                    (ram:1: survives process crashes)"
                .to_owned();
        }
        let reason = self.reason.as_ref().map_or("as asked".to_owned(), |reason| format!("since {reason}"));
        format!("device: scot switch --plane user, {reason}; log in memory (ram:1: survives process crashes)")
    }
}

/// Starts the device with the plane that is wanted, or with the one that can be had.
pub(super) fn start(site: &Site<'_>, wish: PlaneWish) -> Result<(Process, Plane), Trouble> {
    start_with(site, wish, &[])
}

/// The same with further flags.
pub(super) fn start_with(
    site: &Site<'_>,
    wish: PlaneWish,
    more: &[&str],
) -> Result<(Process, Plane), Trouble> {
    let on = |plane: &str| site.start_switch_with(Logs::Ram, &[&["--plane", plane], more].concat());
    let user = |plane: Plane| Ok((on(plane.name)?, plane));
    if wish == PlaneWish::User {
        return user(Plane::USER);
    }
    match try_programs().and_then(|()| on(Plane::XDP.name)) {
        Ok(switch) => Ok((switch, Plane::XDP)),
        Err(trouble) if wish == PlaneWish::Xdp => Err(trouble),
        Err(trouble) => {
            site.remove_kept()?;
            user(Plane { reason: Some(trouble.problem), ..Plane::USER })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_that_took_another_s_place_says_why() {
        let reason = "the kernel takes no programs";
        let said = Plane { reason: Some(reason.into()), ..Plane::USER }.describe();
        assert!(said.contains("--plane user, since") && said.contains(reason), "{said}");
        assert!(Plane::USER.describe().contains("--plane user, as asked"));
        let kernel = Plane::XDP.describe();
        assert!(kernel.contains("--plane xdp") && !kernel.contains("since"), "{kernel}");
    }
}
