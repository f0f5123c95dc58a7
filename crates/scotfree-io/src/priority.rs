//! Real-time priority for processes that are measured: whatever else the machine does waits for them.
//!
//! Invariant: nobody but the process that is started, and those that it starts, gets another priority; the kernel's
//! limits on real-time work stay as they are.

use crate::sys;
use std::io;
use std::process::Command;
use std::thread;

/// Who besides a process has its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heirs {
    /// Every thread and process that it starts.
    All,
    /// Nobody: what it starts has the normal priority.
    None,
}

/// Has the command's process begin at the lowest real-time priority.
pub fn begin_at_real_time(command: &mut Command, heirs: Heirs) {
    sys::child::begin_at_real_time(command, heirs == Heirs::All);
}

/// Whether this process may start others at a real-time priority; an error says why not. A thread of its own is
/// asked, so that all others stay as they are.
pub fn try_real_time() -> io::Result<()> {
    let tried = thread::spawn(|| sys::child::be_at_real_time(true)).join();
    tried.expect("a system call does not panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_begins_at_the_priority_it_was_given_and_its_heirs_as_said() {
        if let Err(error) = try_real_time() {
            eprintln!("skipped: {error}");
            return;
        }
        // Field 41 of proc(5) is the policy: 1 is first come, first served, 0 is normal.
        let script = "cut -d ' ' -f 41 /proc/$$/stat; sh -c 'cut -d \" \" -f 41 /proc/$$/stat'";
        for (heirs, policies) in [(Heirs::All, "1\n1\n"), (Heirs::None, "1\n0\n")] {
            let mut command = Command::new("sh");
            begin_at_real_time(command.args(["-c", script]), heirs);
            let output = command.output().expect("sh starts");
            assert_eq!(String::from_utf8_lossy(&output.stdout), policies, "{heirs:?}");
        }
    }
}
