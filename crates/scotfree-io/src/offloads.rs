//! Offloads of an interface: what its driver would do to packets that a device must see as they are.
//!
//! Invariant: the calling thread stays in its own network namespace.

use crate::sys::{namespace, socket};
use std::fs::File;
use std::io;
use std::path::Path;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// Checksums are filled in by the card, and on a cable of the kernel's own by nobody.
    TxChecksums,
    /// Long TCP segments are cut by the card; of its kinds those that a plain connection has.
    Tso,
    /// Long segments are cut late.
    Gso,
    /// What arrives is merged.
    Gro,
}

impl Offload {
    /// The command that sets it, in the kernel's `ethtool.h`.
    const fn command(self) -> u32 {
        match self {
            Offload::TxChecksums => 0x17,
            Offload::Tso => 0x1f,
            Offload::Gso => 0x24,
            Offload::Gro => 0x2c,
        }
    }
}

/// Switches offloads of an interface on or off, one after the other, in the network namespace that a file stands for.
pub fn set_in(namespace: &Path, interface: &str, settings: &[(Offload, bool)]) -> io::Result<()> {
    let namespace = File::open(namespace)?;
    namespace::within(&namespace, || {
        let fd = socket::open_control()?;
        settings.iter().try_for_each(|(offload, on)| {
            namespace::set_offload(&fd, interface, offload.command(), (*on).into())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_an_error() {
        let none = set_in(Path::new("/proc/self/ns/none"), "lo", &[]).expect_err("no such namespace");
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        let no_namespace =
            set_in(Path::new("/proc/self/status"), "lo", &[]).expect_err("a file of another kind");
        assert!(no_namespace.raw_os_error().is_some(), "{no_namespace}");
        // Who may not enter a namespace learns no more than that.
        let setting = [(Offload::Gro, false)];
        let error =
            set_in(Path::new("/proc/self/ns/net"), "scot-none", &setting).expect_err("no such interface");
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM)), "{error}");
    }
}
