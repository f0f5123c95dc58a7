//! How another thread ends a server's loop.
//!
//! Invariant: a stop is seen at the latest when the loop next waits.

use scotfree_io::Waker;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Asks a running loop to end, from any thread; clones ask the same loop.
#[derive(Clone)]
pub struct Stop(Arc<StopInner>);

struct StopInner {
    stopped: AtomicBool,
    waker: Waker,
}

impl Stop {
    /// A stop that nobody has asked for yet.
    pub fn new() -> io::Result<Stop> {
        Ok(Stop(Arc::new(StopInner { stopped: AtomicBool::new(false), waker: Waker::new()? })))
    }

    /// Asks.
    pub fn stop(&self) {
        // Release: whoever sees the flag sees what was done before the stop.
        self.0.stopped.store(true, Ordering::Release);
        self.0.waker.wake();
    }

    /// Whether somebody has asked.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Readable from the stop on.
    pub fn poll_fd(&self) -> RawFd {
        self.0.waker.as_raw_fd()
    }
}
