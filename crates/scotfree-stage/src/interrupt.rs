//! Ctrl-C and its kin while experiments run.
//!
//! Invariant: when a signal has come, every lab that was announced here is removed, and no experiment
//! takes another step.

use crate::netns::CleanupHandle;
use crate::trouble::Trouble;
use scotfree_io::{stderr, Interest, Poller, Signals, Waker};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

const SIGNAL_KEY: u64 = 0;
const WAKER_KEY: u64 = 1;

/// Watches for signals until it is dropped.
pub struct Interrupt {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    has_come: AtomicBool,
    is_over: AtomicBool,
    waker: Waker,
    labs: Mutex<Vec<CleanupHandle>>,
}

impl Interrupt {
    /// Takes the process's signals over.
    pub fn watch() -> Result<Interrupt, Trouble> {
        let broke = |error: std::io::Error| {
            Trouble::new("watch for Ctrl-C", error, "run one experiment at a time in a process")
        };
        let signals = Signals::install().map_err(broke)?;
        let mut poller = Poller::new(2).map_err(broke)?;
        let shared = Arc::new(Shared {
            has_come: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            waker: Waker::new().map_err(broke)?,
            labs: Mutex::default(),
        });
        poller.add(signals.as_raw_fd(), SIGNAL_KEY, Interest::Read).map_err(broke)?;
        poller.add(shared.waker.as_raw_fd(), WAKER_KEY, Interest::Read).map_err(broke)?;
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || for_thread.watch(&signals, &mut poller));
        Ok(Interrupt { shared, thread: Some(thread) })
    }

    /// Whether a signal has come.
    pub fn has_come(&self) -> bool {
        self.shared.has_come.load(Ordering::Acquire)
    }

    /// An error if a signal has come.
    pub fn check(&self) -> Result<(), Trouble> {
        if self.has_come() {
            return Err(Trouble::new("go on", "a signal has come", "start the run again"));
        }
        Ok(())
    }

    /// A lab is to be removed when a signal comes; one that is removed already may be named, too.
    pub fn removes(&self, lab: CleanupHandle) {
        lock(&self.shared.labs).push(lab);
        if self.has_come() {
            self.shared.clean_up();
        }
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the watching thread does not panic");
        }
    }
}

impl Shared {
    fn watch(&self, signals: &Signals, poller: &mut Poller) {
        while !self.is_over.load(Ordering::Acquire) {
            if poller.wait(None).is_err() {
                return;
            }
            if signals.next_signal().is_some() {
                self.has_come.store(true, Ordering::Release);
                self.clean_up();
            }
        }
    }

    fn clean_up(&self) {
        for lab in lock(&self.labs).drain(..) {
            if let Err(trouble) = lab.cleanup() {
                stderr::line(trouble);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A list of handles is whole whatever happened to who held it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
