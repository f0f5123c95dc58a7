//! The commit thread of a disk log: everything submitted while one write is in flight goes into the
//! next write, and each write waits for the medium.
//!
//! Invariant: one group is in flight at a time; its tokens are reported after its write has returned
//! without error; after the first failed write nothing is written or reported any more.

use super::layout::{RecordHeader, Ring, State};
use crate::domain::DomainError;
use crate::storage::Storage;
use crate::sys::event;
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

/// A place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its position.
    pub position: u64,
    /// The sequence of the record there.
    pub sequence: u64,
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

/// What waits for the thread, and what waits for the owner.
pub struct Queue {
    /// What the next write takes.
    filling: Group,
    /// If set, the next state to be written after that.
    start_wanted: Option<Place>,
    /// Where the log on the medium starts: space before is free.
    start_durable: Place,
    /// Records below this sequence are on the medium.
    sequence_durable: u64,
    /// Tokens to report.
    done: Vec<Token>,
    wanted: bool,
    writing: bool,
    closing: bool,
    failure: Option<Failure>,
}

/// The records of one write.
struct Group {
    first: Place,
    next_sequence: u64,
    bytes: Vec<u8>,
    /// Completed when the records are durable.
    tokens: Vec<Token>,
    /// Completed when also the state after them is.
    flushes: Vec<Token>,
}

/// A failed write, kept to be reported again and again.
#[derive(Debug, Clone)]
struct Failure {
    doing: String,
    errno: Option<i32>,
    text: String,
}

impl Failure {
    fn error(&self) -> DomainError {
        let source = match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(self.text.clone()),
        };
        DomainError::io(self.doing.clone(), source)
    }
}

impl Group {
    fn new(first: Place) -> Group {
        Group {
            first,
            next_sequence: first.sequence,
            bytes: Vec::new(),
            tokens: Vec::new(),
            flushes: Vec::new(),
        }
    }

    fn end(&self) -> Place {
        Place { position: self.first.position + self.bytes.len() as u64, sequence: self.next_sequence }
    }

    fn restart(&mut self, first: Place) {
        self.first = first;
        self.next_sequence = first.sequence;
        self.bytes.clear();
        self.tokens.clear();
        self.flushes.clear();
    }
}

impl Queue {
    /// Appends a record to the next write and says where it will lie. `header` has the wrong sequence
    /// and group, which are known only here.
    pub fn append(&mut self, mut header: RecordHeader, content: &[u8], salt: u64) -> Place {
        let place = self.filling.end();
        header.sequence = place.sequence;
        header.group = self.filling.first.sequence;
        header.encode(salt, content, &mut self.filling.bytes);
        self.filling.next_sequence += 1;
        place
    }

    /// Reports `token` when everything appended so far is durable.
    pub fn complete(&mut self, token: Token) {
        self.filling.tokens.push(token);
    }

    /// Reports `token` when everything appended, and the start asked for, so far is durable.
    pub fn complete_flush(&mut self, token: Token) {
        self.filling.flushes.push(token);
    }

    /// Lets the log on the medium start at `start` once everything appended so far is durable.
    pub fn move_start(&mut self, start: Place) {
        self.start_wanted = Some(start);
    }

    /// Where the next record will lie.
    pub fn end(&self) -> Place {
        self.filling.end()
    }

    /// Where the log on the medium starts.
    pub fn start_durable(&self) -> Place {
        self.start_durable
    }

    /// The records below this sequence are on the medium.
    pub fn sequence_durable(&self) -> u64 {
        self.sequence_durable
    }

    /// How many bytes wait for the next write.
    pub fn waiting_bytes(&self) -> usize {
        self.filling.bytes.len()
    }

    /// The failure, if there was one.
    pub fn check(&self) -> Result<(), DomainError> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.error()))
    }

    fn is_idle(&self) -> bool {
        !self.writing && self.filling.bytes.is_empty() && self.filling.flushes.is_empty()
    }
}

impl Commit {
    /// Starts the thread on a log that ends at `end` and whose last written state is `state`.
    pub fn start(
        medium: Medium,
        end: Place,
        state: State,
    ) -> Result<(Arc<Commit>, JoinHandle<()>), DomainError> {
        let start_durable = Place { position: state.start_position, sequence: state.start_sequence };
        let eventfd =
            event::eventfd().map_err(|error| DomainError::io("making an eventfd for completions", error))?;
        let commit = Arc::new(Commit {
            medium,
            queue: Mutex::new(Queue {
                filling: Group::new(end),
                start_wanted: None,
                start_durable,
                sequence_durable: end.sequence,
                done: Vec::new(),
                wanted: false,
                writing: false,
                closing: false,
                failure: None,
            }),
            work: Condvar::new(),
            written: Condvar::new(),
            reported: AtomicBool::new(false),
            eventfd,
        });
        let shared = Arc::clone(&commit);
        let thread = std::thread::Builder::new()
            .name("log-commit".to_owned())
            .spawn(move || shared.run(state.generation))
            .map_err(|error| DomainError::io("starting the commit thread", error))?;
        Ok((commit, thread))
    }

    /// The file below.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// The queue. The thread holds it only to swap buffers, never while it writes.
    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code that holds the lock can panic half way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread write what waits.
    pub fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let asleep = !queue.wanted && !queue.writing;
        queue.wanted = true;
        drop(queue);
        if asleep {
            self.work.notify_one();
        }
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
        if queue.failure.is_none() {
            self.reported.store(false, Ordering::Release);
            event::eventfd_clear(&self.eventfd);
        }
        Ok(())
    }

    /// Blocks until everything that waits is written.
    pub fn wait_idle(&self) -> Result<(), DomainError> {
        self.wake(self.queue());
        let mut queue = self.queue();
        while queue.failure.is_none() && !queue.is_idle() {
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

    fn run(&self, mut generation: u64) {
        let mut group = Group::new(Place { position: 0, sequence: 0 });
        loop {
            let mut queue = self.await_work();
            if queue.failure.is_some() {
                return;
            }
            queue.wanted = false;
            let end = queue.filling.end();
            std::mem::swap(&mut group, &mut queue.filling);
            queue.filling.restart(end);
            queue.writing = true;
            let closing = queue.closing;
            let start_moved = queue.start_wanted.take();
            let start = start_moved.unwrap_or(queue.start_durable);
            drop(queue);

            let mut result = self.write_group(&group);
            if result.is_ok() {
                self.report_written(&mut group.tokens, end);
                if start_moved.is_some() || closing {
                    generation += 1;
                    result = self.write_state(generation, start, end);
                }
            }
            let ended = self.report_state(&mut group.flushes, start, result);
            if closing || ended {
                return;
            }
        }
    }

    /// Sleeps until there is work. Spinning first was measured and lost: with 20 us of it an
    /// acknowledgement took 1.3 bare writes on two cores, without 1.1, since the spinner holds up the
    /// owner and the interrupts of the medium.
    fn await_work(&self) -> MutexGuard<'_, Queue> {
        let mut queue = self.queue();
        while !queue.wanted {
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue
    }

    fn write_group(&self, group: &Group) -> Result<(), Failure> {
        if group.bytes.is_empty() {
            return Ok(());
        }
        let ring = self.medium.ring();
        ring.write(group.first.position, &group.bytes)
            .map_err(|error| self.failure("writing records", &error))
    }

    fn write_state(&self, generation: u64, start: Place, end: Place) -> Result<(), Failure> {
        let state = State {
            generation,
            start_position: start.position,
            start_sequence: start.sequence,
            known_sequence: end.sequence,
        };
        let written = state.write(self.medium.storage.as_ref(), self.medium.salt);
        written.map_err(|error| self.failure("writing the state", &error))
    }

    fn failure(&self, doing: &str, error: &io::Error) -> Failure {
        Failure {
            doing: format!("{doing} of {}", self.medium.name),
            errno: error.raw_os_error(),
            text: error.to_string(),
        }
    }

    fn report_written(&self, tokens: &mut Vec<Token>, end: Place) {
        let mut queue = self.queue();
        queue.sequence_durable = end.sequence;
        self.report(&mut queue, tokens);
    }

    /// Ends one round; true if it failed.
    fn report_state(&self, flushes: &mut Vec<Token>, start: Place, result: Result<(), Failure>) -> bool {
        let mut queue = self.queue();
        queue.writing = false;
        match result {
            Ok(()) => {
                queue.start_durable = start;
                self.report(&mut queue, flushes);
            }
            Err(failure) => {
                queue.failure = Some(failure);
                self.reported.store(true, Ordering::Release);
                event::eventfd_set(&self.eventfd);
            }
        }
        self.written.notify_all();
        queue.failure.is_some()
    }

    fn report(&self, queue: &mut Queue, tokens: &mut Vec<Token>) {
        if tokens.is_empty() {
            return;
        }
        let was_empty = queue.done.is_empty();
        queue.done.append(tokens);
        if was_empty {
            self.reported.store(true, Ordering::Release);
            event::eventfd_set(&self.eventfd);
        }
    }
}
