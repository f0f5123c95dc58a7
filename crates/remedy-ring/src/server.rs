//! The server's side of all its clients' rings.
//!
//! Invariant: rings are served in turns of a quota (B6); a ring that is broken, or whose client is gone, is looked at no
//! more, and no other is the worse for it.

use crate::doorbell::Doorbell;
use crate::fault::{is_planted, Fault};
use crate::memory::Memory;
use crate::reader::{Broken, Reader};
use crate::shape::Shape;
use crate::tracker::{Ready, Seen};
use crate::words::Ordering;
use crate::writer::{Refused, Writer};
use std::collections::VecDeque;

/// How clients say that they have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// By a pointer for each ring: one plain store, which a write from another machine can be as well.
    Pointers,
    /// By a pointer, and a mark that 64 rings share: two plain stores, and the server looks at the marks alone.
    Marks,
    /// By a bit in the summary: one step that only processors of the same machine can do.
    Summary,
}

/// What says that a request's room may be written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// The answers: requests and responses belong together, and nothing else has to be told.
    ByAnswers,
    /// A word that says how far the server has read: of datagrams that have no answer.
    ByHead,
}

/// A request that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The ring that it came by.
    pub ring: usize,
    /// What its response has to name.
    pub index: u32,
    start: usize,
    end: usize,
}

/// Requests that were taken together, and rings that turned out to be broken.
#[derive(Debug, Default)]
pub struct Burst {
    requests: Vec<Request>,
    bytes: Vec<u8>,
    broken: Vec<(usize, Broken)>,
}

impl Burst {
    /// Of nothing.
    pub fn new() -> Burst {
        Burst::default()
    }

    /// The requests in the order in which they were taken, each with its bytes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Request, &[u8])> {
        self.requests.iter().map(|request| (*request, &self.bytes[request.start..request.end]))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Rings that are served no more, and why.
    pub fn broken(&self) -> &[(usize, Broken)] {
        &self.broken
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.bytes.clear();
        self.broken.clear();
    }
}

#[derive(Debug)]
struct Served {
    requests: Reader,
    responses: Writer,
}

#[cfg(feature = "planted-faults")]
fn break_rules(served: &mut Served, planted: Option<Fault>) {
    if let Some(fault) = planted {
        served.requests.plant(fault);
        served.responses.plant(fault);
    }
}

#[cfg(not(feature = "planted-faults"))]
fn break_rules(_served: &mut Served, _planted: Option<Fault>) {}

/// All rings of a server.
#[derive(Debug)]
pub struct RingServer {
    shape: Shape,
    notify: Notify,
    room: Room,
    quota: usize,
    rings: Vec<Option<Served>>,
    /// Rings that are not open, the one that was closed longest ago first: who still writes to a ring that was closed
    /// under him is in the way of nobody for as long as possible.
    closed: VecDeque<usize>,
    ready: Ready,
    seen: Seen,
    planted: Option<Fault>,
}

impl RingServer {
    /// Of so many rings, none of which is open, that are visited for up to `quota` requests at a time.
    pub fn new(rings: usize, shape: Shape, (notify, room): (Notify, Room), quota: usize) -> RingServer {
        assert!(quota > 0, "a visit takes at least one request");
        let (all, closed) = ((0..rings).map(|_| None).collect(), (0..rings).collect());
        let (ready, seen) = (Ready::new(rings), Seen::new(rings));
        RingServer { shape, notify, room, quota, rings: all, closed, ready, seen, planted: None }
    }

    /// Breaks a rule, in what is opened from now on, for a test that has to find it.
    #[cfg(feature = "planted-faults")]
    pub fn plant(&mut self, fault: Fault) {
        self.planted = Some(fault);
    }

    /// Serves a ring from now on, and makes its memory that of a ring which nobody has used. Nobody else may write
    /// there at that moment.
    pub fn open(&mut self, memory: &impl Memory, ring: usize) {
        memory.forget(ring);
        memory.pointers()[ring].store(0, Ordering::Relaxed);
        memory.responses_read(ring).store(0, Ordering::Relaxed);
        memory.requests_read(ring).store(0, Ordering::Relaxed);
        memory.client_sleeps(ring).store(0, Ordering::Relaxed);
        let (requests, responses) = (Reader::new(self.shape), Writer::new(self.shape));
        let mut served = Served { requests, responses };
        break_rules(&mut served, self.planted);
        if self.rings[ring].replace(served).is_none() {
            self.closed.retain(|closed| *closed != ring);
        }
        self.seen.forget(ring);
        self.ready.use_ring(ring, true);
    }

    /// Serves it no longer: its client is gone.
    pub fn close(&mut self, ring: usize) {
        if self.rings[ring].take().is_some() {
            self.closed.push_back(ring);
        }
        self.ready.use_ring(ring, false);
    }

    /// The ring that was closed longest ago, or was never open, if there is one.
    pub fn closed(&self) -> Option<usize> {
        self.closed.front().copied()
    }

    /// Has a ring visited that nobody may announce any more; whether a request lies in it.
    pub fn look_into(&mut self, memory: &impl Memory, ring: usize) -> bool {
        let Some(served) = &self.rings[ring] else { return false };
        let has_some = served.requests.is_ready(memory.requests(ring));
        if has_some {
            self.ready.add(ring / u64::BITS as usize, 1 << (ring % u64::BITS as usize));
        }
        has_some
    }

    /// How many rings are open.
    pub fn open_count(&self) -> usize {
        self.rings.len() - self.closed.len()
    }

    /// Looks for rings that have something; whether any has.
    pub fn look(&mut self, memory: &impl Memory) -> bool {
        match self.notify {
            Notify::Pointers => self.seen.look(memory.pointers(), &mut self.ready),
            Notify::Marks => {
                self.seen.look_where_marked(memory.marks(), memory.pointers(), &mut self.ready, self.planted)
            }
            Notify::Summary => self.ready.take(memory.summary()),
        };
        !self.ready.is_empty()
    }

    /// The same, at the pointers themselves where there are marks: a mark may be on its way still.
    fn look_closely(&mut self, memory: &impl Memory) -> bool {
        if self.notify == Notify::Marks {
            self.seen.look(memory.pointers(), &mut self.ready);
        }
        self.look(memory)
    }

    /// Replaces the content of `burst` by requests, at most `count_max`, of rings in turn; as many as there are in one
    /// round.
    pub fn take(&mut self, memory: &impl Memory, count_max: usize, burst: &mut Burst) {
        burst.clear();
        let mut first = None;
        while burst.len() < count_max {
            let Some(ring) = self.ready.turn() else { return };
            if first == Some(ring) {
                return self.ready.put_back(ring);
            }
            first.get_or_insert(ring);
            let quota = self.quota.min(count_max - burst.len());
            self.visit(memory, ring, quota, burst);
        }
    }

    fn visit(&mut self, memory: &impl Memory, ring: usize, quota: usize, burst: &mut Burst) {
        let quota = if is_planted(self.planted, Fault::NoQuota) { usize::MAX } else { quota };
        let Some(served) = &mut self.rings[ring] else { return self.ready.is_empty_now(ring) };
        let (before, requests) = (served.requests.head(), memory.requests(ring));
        for _ in 0..quota {
            let start = burst.bytes.len();
            match served.requests.read(requests, &mut burst.bytes) {
                Ok(Some(message)) => {
                    let end = burst.bytes.len();
                    burst.requests.push(Request { ring, index: message.index, start, end });
                }
                Ok(None) => {
                    self.ready.is_empty_now(ring);
                    break;
                }
                Err(broken) => {
                    burst.broken.push((ring, broken));
                    return self.close(ring);
                }
            }
        }
        if self.room == Room::ByHead && served.requests.head() != before {
            memory.requests_read(ring).store(served.requests.head(), Ordering::Release);
        }
    }

    /// Writes the response to a request; whether the client has to be woken. A ring that is no longer open takes it and
    /// nobody reads it.
    pub fn answer(
        &mut self,
        memory: &impl Memory,
        ring: usize,
        index: u32,
        response: &[u8],
    ) -> Result<bool, Refused> {
        let Some(served) = &mut self.rings[ring] else { return Ok(false) };
        if served.responses.room() < self.shape.entries_of(response.len()) {
            served.responses.free_until(memory.responses_read(ring).load(Ordering::Acquire));
        }
        served.responses.write(memory.responses(ring), index, response)?;
        Ok(Doorbell::at(memory.client_sleeps(ring)).wakes_alone())
    }

    /// Says that the server is about to sleep, and looks once more: whether it may.
    pub fn may_sleep(&mut self, memory: &impl Memory) -> bool {
        let doorbell = Doorbell::at(memory.server_sleeps());
        doorbell.about_to_sleep();
        let may_sleep = is_planted(self.planted, Fault::SleepAtOnce) || !self.look_closely(memory);
        if !may_sleep {
            doorbell.awake();
        }
        may_sleep
    }

    /// The server is awake again.
    pub fn awake(&self, memory: &impl Memory) {
        Doorbell::at(memory.server_sleeps()).awake();
    }
}
