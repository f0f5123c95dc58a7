//! The descriptors of a service in a loop's poller.
//!
//! Invariant: what the poller watches is what was wanted at the last [`Watched::follow`].

use crate::service::Watch;
use scotfree_io::{Interest, Poller};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::RawFd;

/// What is watched now, all of it under one key.
#[derive(Debug, Default)]
pub struct Watched {
    known: Vec<Watch>,
    wanted: Vec<Watch>,
}

impl Watched {
    /// Watches what `want` appends, and nothing else that was watched before.
    pub fn follow(
        &mut self,
        poller: &Poller,
        key: u64,
        want: impl FnOnce(&mut Vec<Watch>),
    ) -> io::Result<()> {
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        want(&mut wanted);
        // So it is in most turns.
        if wanted == self.known {
            self.wanted = wanted;
            return Ok(());
        }
        let known = std::mem::take(&mut self.known);
        let fds: BTreeSet<RawFd> = wanted.iter().map(|wanted| wanted.fd).collect();
        for gone in known.iter().filter(|known| !fds.contains(&known.fd)) {
            // It was closed, most likely: then the poller has forgotten it already.
            let _ = poller.remove(gone.fd);
        }
        let before: BTreeSet<&Watch> = known.iter().collect();
        for changed in wanted.iter().filter(|wanted| !before.contains(wanted)) {
            let interest = match (changed.readable, changed.writable) {
                (true, true) => Interest::ReadWrite,
                (false, true) => Interest::Write,
                (true | false, false) => Interest::Read,
            };
            watch(poller, changed.fd, key, interest)?;
        }
        self.known = wanted;
        self.wanted = known;
        Ok(())
    }
}

/// Watches a descriptor, whether or not it is watched already.
pub(crate) fn watch(poller: &Poller, fd: RawFd, key: u64, interest: Interest) -> io::Result<()> {
    match poller.modify(fd, key, interest) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => poller.add(fd, key, interest),
        other => other,
    }
}
