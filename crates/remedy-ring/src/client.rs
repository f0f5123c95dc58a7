//! The client's side of a pair of rings.
//!
//! Invariant: no request is written over one that has no answer (B3, B7), and every answer belongs to a request that
//! waits for it; answers come in any order.

use crate::credit::{Credit, Foreign};
use crate::doorbell::Doorbell;
use crate::memory::Memory;
use crate::reader::{Broken, Message, Reader};
use crate::server::{Notify, Room};
use crate::shape::Shape;
use crate::tracker::{announce, announce_marked, flag};
use crate::words::Ordering;
use crate::writer::{Refused, Writer};

/// The server, or whoever writes in its place, has written what it never would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientBroken {
    /// No response can look so.
    #[error("the ring of responses is broken: {0}")]
    Response(#[from] Broken),
    /// A response that nobody waits for.
    #[error("the ring of responses is broken: {0}")]
    Foreign(#[from] Foreign),
}

/// One client's pair of rings.
#[derive(Debug)]
pub struct RingClient {
    ring: usize,
    shape: Shape,
    notify: Notify,
    room: Room,
    requests: Writer,
    responses: Reader,
    credit: Credit,
}

impl RingClient {
    /// Of this ring, which nobody has used since the server opened it.
    pub fn new(ring: usize, shape: Shape, (notify, room): (Notify, Room)) -> RingClient {
        let credit = Credit::new(shape.entries());
        RingClient {
            ring,
            shape,
            notify,
            room,
            requests: Writer::new(shape),
            responses: Reader::new(shape),
            credit,
        }
    }

    /// Which it is.
    pub fn ring(&self) -> usize {
        self.ring
    }

    /// Breaks a rule, for a test that has to find it.
    #[cfg(feature = "planted-faults")]
    pub fn plant(&mut self, fault: crate::Fault) {
        self.requests.plant(fault);
        self.responses.plant(fault);
        self.credit.plant(fault);
    }

    /// Writes a request; its index, under which its response comes. Whether the server has to be woken then,
    /// [`RingClient::tell`] says, once for all that was written.
    pub fn ask(&mut self, memory: &impl Memory, request: &[u8]) -> Result<u32, Refused> {
        let (index, count) = (self.requests.tail(), self.shape.entries_of(request.len()));
        if self.room == Room::ByHead && self.requests.room() < count {
            self.requests.free_until(memory.requests_read(self.ring).load(Ordering::Acquire));
        }
        self.requests.write(memory.requests(self.ring), index, request)?;
        if self.room == Room::ByAnswers {
            self.credit.sent(index, count);
        }
        Ok(index)
    }

    /// Tells the server of all that was written since the last time; whether it has to be woken.
    pub fn tell(&self, memory: &impl Memory) -> bool {
        let (ring, tail) = (self.ring, self.requests.tail());
        let doorbell = Doorbell::at(memory.server_sleeps());
        match self.notify {
            Notify::Pointers => announce(memory.pointers(), ring, tail),
            Notify::Marks => {
                announce_marked(memory.pointers(), memory.marks(), ring, tail);
                // Who is about to sleep looks at the pointers, which lie before the fence.
                return doorbell.must_wake_behind_fence();
            }
            Notify::Summary => flag(memory.summary(), ring),
        }
        doorbell.must_wake()
    }

    /// Takes the next response and appends its bytes, if there is one; its index is that of the request.
    pub fn take(&mut self, memory: &impl Memory, out: &mut Vec<u8>) -> Result<Option<Message>, ClientBroken> {
        let Some(response) = self.responses.read(memory.responses(self.ring), out)? else { return Ok(None) };
        memory.responses_read(self.ring).store(self.responses.head(), Ordering::Release);
        if self.room == Room::ByAnswers {
            self.credit.answered(response.index)?;
            self.requests.free_until(self.credit.free_until());
        }
        Ok(Some(response))
    }

    /// Whether a response waits: what is looked at once more before sleeping.
    pub fn is_ready(&self, memory: &impl Memory) -> bool {
        self.responses.is_ready(memory.responses(self.ring))
    }

    /// How this client says that it sleeps.
    pub fn doorbell<'a>(&self, memory: &'a impl Memory) -> Doorbell<'a> {
        Doorbell::at(memory.client_sleeps(self.ring))
    }

    /// How many entries can be written now.
    pub fn room(&self) -> u32 {
        self.requests.room()
    }

    /// The requests that wait for their responses.
    pub fn credit(&self) -> &Credit {
        &self.credit
    }
}
