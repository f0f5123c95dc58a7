//! Waiting for a server that was lost, in a thread of its own: a start may block for as long as the server takes.
//!
//! Invariant: one result, behind which the thread ends; whoever no longer wants it ends the thread.

use crate::notices::Notices;
use crate::server::{say_once, Recovered, RedisService, RedisServiceConfig, SidecarError, RETRY_INTERVAL};
use scotfree_io::Waker;
use scotfree_rpc::{Stop, Watch};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::thread::JoinHandle;

/// What came of it; none if the wait was ended.
pub(super) type Started = Result<Option<(RedisService, Recovered)>, SidecarError>;

/// A start under way.
pub(super) struct Starting {
    waker: Arc<Waker>,
    result: Receiver<Started>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Starting {
    /// Tries until the server can be used, or never will be.
    pub fn begin(config: RedisServiceConfig, notices: Notices) -> io::Result<Starting> {
        let (sender, result) = channel();
        let waker = Arc::new(Waker::new()?);
        let stop = Stop::new()?;
        let (wakes, ends) = (Arc::clone(&waker), stop.clone());
        let work = move || {
            // Nobody may be left who wants it.
            let _ = sender.send(start(&config, &notices, &ends));
            wakes.wake();
        };
        let thread = std::thread::Builder::new().name("scotfree-start".to_owned()).spawn(work)?;
        Ok(Starting { waker, result, stop, thread: Some(thread) })
    }

    /// What came of it, if it is over.
    pub fn result(&self) -> Option<Started> {
        self.waker.drain();
        self.result.try_recv().ok()
    }

    /// What is readable when it is over.
    pub fn watch(&self) -> Watch {
        Watch { fd: self.waker.as_raw_fd(), generation: u64::MAX - 2, readable: true, writable: false }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tries until the server can be used, or never will be, and says for what it waits.
pub(super) fn start(config: &RedisServiceConfig, notices: &Notices, stop: &Stop) -> Started {
    let mut said = String::new();
    loop {
        match RedisService::start(config, stop) {
            Err(error) if error.is_passing() && stop.is_stopped() => return Ok(None),
            Err(error) if error.is_passing() => {
                say_once(notices, &mut said, error.to_string());
                std::thread::sleep(RETRY_INTERVAL);
            }
            other => return other,
        }
    }
}
