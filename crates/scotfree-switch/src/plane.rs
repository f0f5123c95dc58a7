//! What the daemon's loop needs of a plane, whichever it is.
//!
//! Invariant: a plane differs from another only in how frames come in; the rest is [`UserPlane`].

use crate::metrics::MetricsText;
use crate::notice::Notices;
use crate::plane_user::UserPlane;
use scotfree_core::Nanos;
use std::io;
use std::os::fd::RawFd;

/// A plane.
pub(crate) trait Plane {
    /// What every plane has: ports to send by, and what lies between them.
    fn common(&mut self) -> &mut UserPlane;

    /// The same, to be looked at.
    fn common_ref(&self) -> &UserPlane;

    /// Descriptors that are readable when something has come.
    fn fds(&self) -> Vec<RawFd>;

    /// Takes a burst of what has come by the descriptor at `index`.
    fn receive(&mut self, now: Nanos, index: usize, notices: &mut Notices) -> io::Result<()>;

    /// Whether there may be more there than the last burst held.
    fn has_more(&self, index: usize) -> bool;

    /// A line of JSON for each of the last packets that were sampled; a plane that samples none gives nothing.
    fn events(&self) -> String {
        String::new()
    }

    /// How many slots the log has that programs in the kernel write; none if there are no such.
    fn kernel_slots(&self) -> Option<u32> {
        None
    }

    /// Adds what only this plane counts.
    fn metrics(&mut self, text: &mut MetricsText);
}

impl Plane for UserPlane {
    fn common(&mut self) -> &mut UserPlane {
        self
    }

    fn common_ref(&self) -> &UserPlane {
        self
    }

    fn fds(&self) -> Vec<RawFd> {
        self.port_fds()
    }

    fn receive(&mut self, now: Nanos, index: usize, notices: &mut Notices) -> io::Result<()> {
        UserPlane::receive(self, now, index, notices)
    }

    fn has_more(&self, index: usize) -> bool {
        UserPlane::has_more(self, index)
    }

    fn metrics(&mut self, text: &mut MetricsText) {
        text.plane("user");
    }
}
