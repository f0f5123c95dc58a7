//! What waits to be written to a disk log, and what waits to be reported.
//!
//! Invariant: places follow one another without gaps, whoever writes the groups.

use super::layout::{RecordHeader, State};
use super::patience::Patience;
use crate::domain::DomainError;
use scotfree_core::{Nanos, Token};
use std::io;

/// A place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its position.
    pub position: u64,
    /// The sequence of the record there.
    pub sequence: u64,
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
    pub(super) done: Vec<Token>,
    pub(super) due: Due,
    writing: bool,
    pub(super) closing: bool,
    failure: Option<Failure>,
    patience: Patience,
    /// The memory of the last write, for the next.
    spare: Group,
    /// Of the last state on the medium.
    generation: u64,
}

/// Whether what waits is to be written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It may wait for company.
    No,
    /// When the owner asks for it.
    WhenAsked,
    /// By the thread.
    ByThread,
}

/// What one write brings to the medium.
pub(super) struct Round {
    pub(super) group: Group,
    /// Where the log ends then.
    pub(super) end: Place,
    /// Where it starts then.
    pub(super) start: Place,
    /// The state to be written behind the records, if one is.
    pub(super) generation: Option<u64>,
}

/// The records of one write.
pub(super) struct Group {
    pub(super) first: Place,
    next_sequence: u64,
    pub(super) bytes: Vec<u8>,
    /// Completed when the records are durable.
    pub(super) tokens: Vec<Token>,
    /// Completed when also the state after them is.
    flushes: Vec<Token>,
}

/// A failed write, kept to be reported again and again.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    doing: String,
    errno: Option<i32>,
    text: String,
}

impl Failure {
    pub(super) fn new(doing: String, error: &io::Error) -> Failure {
        Failure { doing, errno: error.raw_os_error(), text: error.to_string() }
    }

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
    /// The queue of a log that ends at `end` and whose last state on the medium is `state`.
    pub fn new(end: Place, state: &State, patience: Patience) -> Queue {
        Queue {
            filling: Group::new(end),
            start_wanted: None,
            start_durable: Place { position: state.start_position, sequence: state.start_sequence },
            sequence_durable: end.sequence,
            done: Vec::new(),
            due: Due::No,
            writing: false,
            closing: false,
            failure: None,
            patience,
            spare: Group::new(end),
            generation: state.generation,
        }
    }

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

    /// Has what waits written when the owner next asks for it.
    pub fn note_due(&mut self) {
        if self.due == Due::No {
            self.due = Due::WhenAsked;
        }
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

    /// Whether everything is written.
    pub fn is_idle(&self) -> bool {
        !self.writing && self.filling.bytes.is_empty() && self.filling.flushes.is_empty()
    }

    /// Whether a write is in flight.
    pub fn is_writing(&self) -> bool {
        self.writing
    }

    /// Whether a write has failed.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether the owner may wait for the medium itself.
    pub fn owner_may_wait(&self) -> bool {
        self.patience.is_enough()
    }

    // ---- the writes

    /// Takes everything that waits.
    pub(super) fn begin_round(&mut self) -> Round {
        assert!(!self.writing, "one group is in flight at a time");
        (self.writing, self.due) = (true, Due::No);
        let end = self.filling.end();
        let mut group = std::mem::replace(&mut self.spare, Group::new(end));
        std::mem::swap(&mut group, &mut self.filling);
        self.filling.restart(end);
        let moved = self.start_wanted.take();
        let generation = (moved.is_some() || self.closing).then_some(self.generation + 1);
        Round { group, end, start: moved.unwrap_or(self.start_durable), generation }
    }

    /// The records of a round are on the medium; whether that completes something.
    pub(super) fn note_records(&mut self, round: &mut Round) -> bool {
        self.sequence_durable = round.end.sequence;
        self.complete_all(&mut round.group.tokens)
    }

    /// A round is over, after so long; whether there is something to report.
    pub(super) fn end_round(&mut self, mut round: Round, result: Result<(), Failure>, took: Nanos) -> bool {
        self.writing = false;
        self.patience.learn(took);
        let news = match result {
            Ok(()) => {
                self.start_durable = round.start;
                self.generation = round.generation.unwrap_or(self.generation);
                self.complete_all(&mut round.group.flushes)
            }
            Err(failure) => {
                self.failure = Some(failure);
                true
            }
        };
        self.spare = round.group;
        news
    }

    fn complete_all(&mut self, tokens: &mut Vec<Token>) -> bool {
        let news = self.done.is_empty() && !tokens.is_empty();
        self.done.append(tokens);
        news
    }
}
