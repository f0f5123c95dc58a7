//! System calls behind safe functions.
//!
//! Invariant: every pointer given to the kernel is made from a live borrow in the same function that
//! makes the call, so none outlives what it points to.
#![allow(unsafe_code)]

pub mod address;
pub mod batch;
pub mod child;
pub mod clock;
pub mod control;
pub mod event;
pub mod file;
pub mod flush;
pub mod map;
pub mod namespace;
pub mod processor;
pub mod socket;
pub mod words;

use std::io;

/// The result of a system call that reports failure as -1.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
