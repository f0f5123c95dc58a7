//! Other network namespaces, and the offloads of an interface.
//!
//! Invariant: a thread that has entered another network namespace has been started for that.

use super::check;
use super::socket::interface_name;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

/// What the kernel reads of a request to set one offload.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    value: u32,
}

/// Does something on a thread of its own in the network namespace that an open file stands for.
pub fn within<T: Send>(namespace: &File, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let in_there = || {
        // SAFETY: takes integers only; the descriptor is open, since `namespace` is borrowed.
        check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
        act()
    };
    thread::scope(|scope| scope.spawn(in_there).join())
        .map_err(|_| io::Error::other("the thread panicked"))?
}

/// Sets one offload of an interface in this thread's network namespace by its command of the kernel's `ethtool.h`.
pub fn set_offload(fd: &OwnedFd, interface: &str, command: u32, value: u32) -> io::Result<()> {
    let mut asked = EthtoolValue { command, value };
    // SAFETY: ifreq is plain data, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = interface_name(interface)?;
    request.ifr_ifru.ifru_data = (&raw mut asked).cast();
    // SAFETY: the kernel reads one ifreq and, for every command that sets a value, the two numbers that it points to;
    // both live through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) }).map(drop)
}
