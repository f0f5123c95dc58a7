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

/// The lowest of the real-time priorities: above everything that is normal, below the kernel's own threads.
const REAL_TIME_LOWEST: i32 = 1;

/// Has the command's process begin at a real-time priority, first come, first served; `heirs` says whether the
/// threads and processes that it starts have it, too.
pub fn begin_at_real_time(command: &mut Command, heirs: bool) {
    let before_exec = move || be_at_real_time(heirs);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(before_exec) };
}

/// Gives the calling thread a real-time priority.
pub fn be_at_real_time(heirs: bool) -> io::Result<()> {
    let policy = libc::SCHED_FIFO | if heirs { 0 } else { libc::SCHED_RESET_ON_FORK };
    let lowest = libc::sched_param { sched_priority: REAL_TIME_LOWEST };
    // SAFETY: the pointer is to `lowest`, which is read alone; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const lowest) }).map(drop)
}
