//! What ends with a process, however it ends: its children and its locks; and what does not end it.
//!
//! Invariant: the kernel keeps these promises, so the first two hold after SIGKILL, too.

use crate::sys;
use std::fs::File;
use std::io;
use std::process::Command;

/// Has the command's process ended by SIGKILL when the thread that starts it ends: start it from one that
/// lives as long as its process. A program that takes other rights when it begins (set-user-ID, file
/// capabilities) is let off by the kernel.
pub fn end_with_starter(command: &mut Command) {
    sys::child::end_with_starter(command);
}

/// From now on a write beyond the limit on the size of files (`ulimit -f`) is an error, as a full disk is, and
/// not the end of the process.
pub fn outlive_file_limits() {
    sys::event::ignore_file_limits();
}

/// Takes the exclusive lock of a file or folder until it is closed; false if somebody else has it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    sys::file::try_lock(file)
}
