//! Who has a file locked, as the kernel lists it.
//!
//! Invariant: a process is named only if the kernel names it for this very file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// The process that has the file locked as a whole, if it is to be seen from here.
pub(super) fn holder_of(file: &File) -> Option<u32> {
    let status = file.metadata().ok()?;
    let (major, minor) = (libc::major(status.dev()), libc::minor(status.dev()));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, &format!("{major:02x}:{minor:02x}:{}", status.ino()))
}

/// A line: number, kind, manner, mode, process, file, range. One that waits has an arrow before its kind, and a process
/// of another namespace is 0.
fn holder_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, found, ..] = words[..] else { return None };
        pid.parse().ok().filter(|pid| *pid != 0 && found == file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_holds_this_file_is_named() {
        let locks = "1: POSIX  ADVISORY  WRITE 9 00:1c:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 11 00:1c:78 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 00:1c:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 00:1c:77 0 EOF\n";
        assert_eq!(holder_in(locks, "00:1c:77"), Some(13));
        assert_eq!(holder_in(locks, "00:1c:7"), None);
        assert_eq!(holder_in(&locks.replace(" 13 ", " 0 "), "00:1c:77"), None);
    }
}
