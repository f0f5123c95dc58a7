//! The descriptor by which a side that sleeps is woken.

use rustix::event::{eventfd, EventfdFlags};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// An eventfd, of this process or of another.
#[derive(Debug)]
pub(crate) struct Bell(File);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub(crate) fn of(fd: OwnedFd) -> Bell {
        Bell(File::from(fd))
    }

    /// Wakes whoever waits on it. One that is rung as often as it can be is rung.
    pub(crate) fn ring(&self) -> io::Result<()> {
        match (&self.0).write(&1_u64.to_ne_bytes()) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes it silent again.
    pub(crate) fn hush(&self) -> io::Result<()> {
        match (&self.0).read(&mut [0; 8]) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
