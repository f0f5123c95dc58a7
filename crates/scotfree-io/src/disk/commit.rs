//! The writes of a disk log, by its commit thread or by its owner: everything submitted while one write is in
//! flight goes into the next write, and each write waits for the medium.
//!
//! Invariant: one group is in flight at a time; its tokens are reported after its write has returned
//! without error; after the first failed write nothing is written or reported any more.

use super::layout::{Ring, State};
use super::patience::Patience;
use super::queue::{Due, Failure, Place, Queue, Round};
use crate::clock::now_monotonic;
use crate::domain::DomainError;
use crate::storage::Storage;
use crate::sys::event;
use crate::sys::processor::{go_first, stay_on};
use scotfree_core::Token;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The file below a commit thread.
pub struct Medium {
    /// What holds the log.
    pub storage: Arc<dyn Storage>,
    /// The size of its ring.
    pub log_bytes: u64,
    /// The salt of its checksums.
    pub salt: u64,
    /// How it is called in messages.
    pub name: String,
}

impl Medium {
    /// The ring of the log.
    pub fn ring(&self) -> Ring<'_> {
        Ring { storage: self.storage.as_ref(), log_bytes: self.log_bytes }
    }
}

/// What the owner and the thread share.
pub struct Commit {
    medium: Medium,
    queue: Mutex<Queue>,
    /// Told when the thread has something to do.
    work: Condvar,
    /// Told when a write has ended.
    written: Condvar,
    /// Set when there is something to report, so that asking costs no lock.
    reported: AtomicBool,
    eventfd: OwnedFd,
}

impl Commit {
    /// Starts the thread on a log that ends at `end` and whose last written state is `state`.
    pub fn start(
        medium: Medium,
        end: Place,
        state: &State,
        patience: Patience,
        processor: Option<usize>,
    ) -> Result<(Arc<Commit>, JoinHandle<()>), DomainError> {
        let eventfd =
            event::eventfd().map_err(|error| DomainError::io("making an eventfd for completions", error))?;
        let commit = Arc::new(Commit {
            medium,
            queue: Mutex::new(Queue::new(end, state, patience)),
            work: Condvar::new(),
            written: Condvar::new(),
            reported: AtomicBool::new(false),
            eventfd,
        });
        let shared = Arc::clone(&commit);
        let thread = std::thread::Builder::new()
            .name("log-commit".to_owned())
            .spawn(move || {
                // Where it may not be used, another does.
                let _ = processor.map(stay_on);
                // Where it may not, it takes its turn.
                let _ = go_first();
                shared.run();
            })
            .map_err(|error| DomainError::io("starting the commit thread", error))?;
        Ok((commit, thread))
    }

    /// The file below.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// The queue. Who writes holds it only to swap buffers, never while it writes.
    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code that holds the lock can panic half way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread write what waits.
    pub fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let asleep = queue.due != Due::ByThread && !queue.is_writing();
        queue.due = Due::ByThread;
        drop(queue);
        if asleep {
            self.work.notify_one();
        }
    }

    /// Has what is due written: by the calling thread, if the medium was quick of late, and by the commit thread
    /// otherwise. Whether it is written.
    pub fn write_due(&self) -> bool {
        let queue = self.queue();
        if queue.due == Due::No || queue.has_failed() {
            return false;
        }
        if queue.is_writing() || !queue.owner_may_wait() {
            self.wake(queue);
            return false;
        }
        drop(self.write(queue));
        true
    }

    /// Appends what is to be reported; an error if there is nothing left and the log has failed.
    pub fn take_done(&self, out: &mut Vec<Token>) -> Result<(), DomainError> {
        // Acquire: pairs with the thread's Release, which follows its push under the lock.
        if !self.reported.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut queue = self.queue();
        if queue.done.is_empty() {
            return queue.check();
        }
        out.append(&mut queue.done);
        // After a failure the descriptor stays readable: the error is still to be fetched.
        if !queue.has_failed() {
            self.reported.store(false, Ordering::Release);
            event::eventfd_clear(&self.eventfd);
        }
        Ok(())
    }

    /// Has what is due written by the thread.
    pub fn write_due_by_thread(&self) {
        let queue = self.queue();
        if queue.due != Due::No && !queue.has_failed() {
            self.wake(queue);
        }
    }

    /// Blocks until everything that waits is written.
    pub fn wait_idle(&self) -> Result<(), DomainError> {
        self.wake(self.queue());
        let mut queue = self.queue();
        while !queue.has_failed() && !queue.is_idle() {
            queue = self.written.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.check()
    }

    /// Has the thread write what waits and end.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.closing = true;
        self.wake(queue);
    }

    /// Readable while there is something to report.
    pub fn eventfd(&self) -> &OwnedFd {
        &self.eventfd
    }

    fn run(&self) {
        loop {
            let queue = self.await_work();
            if queue.has_failed() {
                return;
            }
            let closing = queue.closing;
            let failed = self.write(queue).has_failed();
            if closing || failed {
                return;
            }
        }
    }

    /// Sleeps until there is work. Spinning first was measured and lost: with 20 us of it an
    /// acknowledgement took 1.3 bare writes on two cores, without 1.1, since the spinner holds up the
    /// owner and the interrupts of the medium.
    fn await_work(&self) -> MutexGuard<'_, Queue> {
        let mut queue = self.queue();
        while queue.due != Due::ByThread {
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue
    }

    /// Writes everything that waits, on the calling thread.
    fn write(&self, mut queue: MutexGuard<'_, Queue>) -> MutexGuard<'_, Queue> {
        let mut round = queue.begin_round();
        drop(queue);
        let began = now_monotonic();
        let result = self.write_records(&mut round).and_then(|()| self.write_state(&round));
        let took = now_monotonic().since(began);
        let mut queue = self.queue();
        if queue.end_round(round, result, took) {
            self.report();
        }
        self.written.notify_all();
        queue
    }

    fn write_records(&self, round: &mut Round) -> Result<(), Failure> {
        if !round.group.bytes.is_empty() {
            let written = self.medium.ring().write(round.group.first.position, &round.group.bytes);
            written.map_err(|error| self.failure("writing records", &error))?;
        }
        let mut queue = self.queue();
        if queue.note_records(round) {
            self.report();
        }
        Ok(())
    }

    fn write_state(&self, round: &Round) -> Result<(), Failure> {
        let Some(generation) = round.generation else { return Ok(()) };
        let state = State {
            generation,
            start_position: round.start.position,
            start_sequence: round.start.sequence,
            known_sequence: round.end.sequence,
        };
        let written = state.write(self.medium.storage.as_ref(), self.medium.salt);
        written.map_err(|error| self.failure("writing the state", &error))
    }

    fn failure(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::new(format!("{doing} of {}", self.medium.name), error)
    }

    /// Says that there is something to report; the queue is locked.
    fn report(&self) {
        self.reported.store(true, Ordering::Release);
        event::eventfd_set(&self.eventfd);
    }
}
