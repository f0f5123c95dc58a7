//! What a child is told between its birth and its program.
//!
//! Invariant: what runs there calls nothing but system calls that are allowed between fork and exec.

use super::check;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel end the command's process by SIGKILL when the thread that starts it ends.
pub fn end_with_starter(command: &mut Command) {
    let parent = std::process::id();
    let before_exec = move || {
        // SAFETY: takes integers only.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        // SAFETY: takes nothing.
        let now = unsafe { libc::getppid() };
        if u32::try_from(now) == Ok(parent) {
            return Ok(());
        }
        // The parent has ended before the kernel was told, and will not end again.
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    };
    // SAFETY: the closure makes two system calls and allocates nothing; an error by number does not
    // allocate either.
    unsafe { command.pre_exec(before_exec) };
}
