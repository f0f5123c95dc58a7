//! The ring by which the programs pass frames and notes up to the daemon.
//!
//! Invariant: a record that is shorter than it says is skipped, never read beyond.

use crate::events::Event;
use crate::plain::value_of;
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use scotfree_core::{SeqNum, ServerIndex, SessionId};
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::rc::Rc;

/// One record of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upcall<'a> {
    /// A frame that is the daemon's to handle.
    Frame {
        /// The port it came in by.
        ifindex: u32,
        /// Its bytes.
        frame: &'a [u8],
    },
    /// A frame that was bridged; it tells who lives where.
    Notice {
        /// The port it came in by.
        ifindex: u32,
        /// Its bytes.
        frame: &'a [u8],
    },
    /// An entry that waits for the daemon's disk.
    Entry {
        /// The server of its session.
        server: ServerIndex,
        /// Its session.
        session: SessionId,
        /// Its place there.
        seq: SeqNum,
    },
    /// What became of one packet.
    Event(Event),
}

/// The layout of `struct scot_upcall` and `struct scot_entry_note`: type 4, ifindex 4 or of an entry its server,
/// session 8, `seq_num` 8; of a frame: bytes 4, zero 4, the frame. The C side asserts the offsets.
const NOTE_BYTES: usize = 24;
const FRAME_AT: usize = 32;
const TYPE_FRAME: u32 = 1;
const TYPE_NOTICE: u32 = 2;
const TYPE_ENTRY: u32 = 3;
const TYPE_EVENT: u32 = 4;

impl Upcall<'_> {
    fn read(record: &[u8]) -> Option<Upcall<'_>> {
        let word = |at: usize| value_of::<u32>(record.get(at..)?);
        let long = |at: usize| value_of::<u64>(record.get(at..)?);
        if record.len() < NOTE_BYTES {
            return None;
        }
        let (kind, ifindex) = (word(0)?, word(4)?);
        if kind == TYPE_ENTRY {
            let server = ServerIndex(u8::try_from(ifindex).ok()?);
            return Some(Upcall::Entry { server, session: SessionId(long(8)?), seq: SeqNum(long(16)?) });
        }
        if kind == TYPE_EVENT {
            return Event::read(record).map(Upcall::Event);
        }
        let frame = record.get(FRAME_AT..)?.get(..word(NOTE_BYTES)? as usize)?;
        match kind {
            TYPE_FRAME => Some(Upcall::Frame { ifindex, frame }),
            TYPE_NOTICE => Some(Upcall::Notice { ifindex, frame }),
            _ => None,
        }
    }
}

/// Records taken off the ring, one after the other in one piece of memory.
#[derive(Default)]
struct Taken {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// The daemon's end of the ring.
pub struct Upcalls {
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Taken>>,
}

/// How many records one turn takes off the ring.
pub const UPCALLS_BURST_MAX: usize = 64;

impl Upcalls {
    pub(crate) fn open(table: &dyn MapCore) -> libbpf_rs::Result<Upcalls> {
        let taken = Rc::new(RefCell::new(Taken::default()));
        let filled = Rc::clone(&taken);
        let mut builder = RingBufferBuilder::new();
        builder.add(table, move |record: &[u8]| {
            let mut taken = filled.borrow_mut();
            taken.bytes.extend_from_slice(record);
            let end = taken.bytes.len();
            taken.ends.push(end);
            0
        })?;
        Ok(Upcalls { ring: builder.build()?, taken })
    }

    /// A descriptor that is readable when records wait.
    pub fn fd(&self) -> RawFd {
        self.ring.epoll_fd()
    }

    /// Takes a burst off the ring and shows each record; how many there were.
    pub fn take(&mut self, mut each: impl FnMut(Upcall<'_>)) -> usize {
        // Fewer than none means that a callback failed, which this one does not.
        self.ring.consume_raw_n(UPCALLS_BURST_MAX);
        let mut taken = self.taken.borrow_mut();
        let mut start = 0;
        for end in &taken.ends {
            if let Some(upcall) = Upcall::read(&taken.bytes[start..*end]) {
                each(upcall);
            }
            start = *end;
        }
        let count = taken.ends.len();
        taken.bytes.clear();
        taken.ends.clear();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, frame_bytes: u32, frame: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&7_u32.to_ne_bytes());
        bytes.extend_from_slice(&5_u64.to_ne_bytes());
        bytes.extend_from_slice(&9_u64.to_ne_bytes());
        bytes.extend_from_slice(&frame_bytes.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(frame);
        bytes
    }

    #[test]
    fn records_are_read_as_they_are_written() {
        let frame = record(TYPE_FRAME, 3, b"abc and reserve");
        assert_eq!(Upcall::read(&frame), Some(Upcall::Frame { ifindex: 7, frame: b"abc" }));
        let notice = record(TYPE_NOTICE, 2, b"abc");
        assert_eq!(Upcall::read(&notice), Some(Upcall::Notice { ifindex: 7, frame: b"ab" }));
        let note = &record(TYPE_ENTRY, 0, b"")[..NOTE_BYTES];
        let (server, session, seq) = (ServerIndex(7), SessionId(5), SeqNum(9));
        assert_eq!(Upcall::read(note), Some(Upcall::Entry { server, session, seq }));
    }

    #[test]
    fn a_record_that_is_shorter_than_it_says_is_skipped() {
        assert_eq!(Upcall::read(&record(TYPE_FRAME, 4, b"abc")), None);
        assert_eq!(Upcall::read(&record(TYPE_FRAME, 3, b"abc")[..30]), None);
        assert_eq!(Upcall::read(&record(9, 3, b"abc")), None);
        assert_eq!(Upcall::read(&[]), None);
    }
}
