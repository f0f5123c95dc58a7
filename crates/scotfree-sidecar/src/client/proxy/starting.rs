//! Waiting for a server that was lost, in a thread of its own: a start may block for as long as the server takes.
//!
//! Invariant: one result, behind which the thread ends; whoever no longer wants it ends the thread.

use super::refused;
use crate::notices::Notices;
use crate::server::{say_once, Recovered, RedisService, RedisServiceConfig, SidecarError, RETRY_INTERVAL};
use scotfree_io::Waker;
use scotfree_rpc::{Stop, Watch};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// What came of it; none if the wait was ended.
pub(super) type Started = Result<Option<(RedisService, Recovered)>, SidecarError>;

/// How health speaks of a server that refuses what it is asked; none of one that does not.
type Refusal = Arc<Mutex<Option<&'static str>>>;

/// A start under way.
pub(super) struct Starting {
    waker: Arc<Waker>,
    result: Receiver<Started>,
    stop: Stop,
    refusal: Refusal,
    thread: Option<JoinHandle<()>>,
}

impl Starting {
    /// Tries until the server can be used, or is another one. `said` is what the operator was told of it last: if it
    /// was something, it is not tried again at once.
    pub fn begin(config: RedisServiceConfig, notices: Notices, said: String) -> io::Result<Starting> {
        let (sender, result) = channel();
        let waker = Arc::new(Waker::new()?);
        let stop = Stop::new()?;
        let (wakes, ends) = (Arc::clone(&waker), stop.clone());
        let refusal = Refusal::new(Mutex::new((!said.is_empty()).then(|| refused::text(&said))));
        let refuses = Refusal::clone(&refusal);
        let work = move || {
            // Nobody may be left who wants it.
            let _ = sender.send(start_again(&config, &notices, &ends, said, &refuses));
            wakes.wake();
        };
        let thread = std::thread::Builder::new().name("scotfree-start".to_owned()).spawn(work)?;
        Ok(Starting { waker, result, stop, refusal, thread: Some(thread) })
    }

    /// How health speaks of a server that is there, and refuses what it is asked.
    pub fn refusal(&self) -> Option<&'static str> {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Tries until a server that was served can be used again, or is another one. One that refuses what it is asked is
/// waited for as one that is away: its password was changed, it is a replica now, or has no room.
fn start_again(
    config: &RedisServiceConfig,
    notices: &Notices,
    stop: &Stop,
    mut said: String,
    refusal: &Refusal,
) -> Started {
    if !said.is_empty() {
        std::thread::sleep(RETRY_INTERVAL);
    }
    let mut config = config.clone();
    loop {
        let error = match RedisService::start(&config, stop) {
            Err(error) if error.is_passing() || error.is_unwilling() => error,
            other => return other,
        };
        if stop.is_stopped() {
            return Ok(None);
        }
        may_have_counted(&mut config);
        let text = error.to_string();
        *refusal.lock().unwrap_or_else(PoisonError::into_inner) =
            error.is_unwilling().then(|| refused::text(&text));
        say_once(notices, &mut said, text);
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Tries until the server can be used, or never will be, and says for what it waits.
pub(super) fn start(config: &RedisServiceConfig, notices: &Notices, stop: &Stop) -> Started {
    let (mut config, mut said) = (config.clone(), String::new());
    loop {
        match RedisService::start(&config, stop) {
            Err(error) if error.is_passing() && stop.is_stopped() => return Ok(None),
            Err(error) if error.is_passing() => {
                may_have_counted(&mut config);
                say_once(notices, &mut said, error.to_string());
                std::thread::sleep(RETRY_INTERVAL);
            }
            other => return other,
        }
    }
}

/// A start that did not come to its end may have come that far.
fn may_have_counted(config: &mut RedisServiceConfig) {
    if let Some(owner) = &mut config.back.owner {
        owner.may_have_counted = true;
    }
}
