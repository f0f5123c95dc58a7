//! What the programs tell of packets that have passed: notes in a ring of the cache's own, which wakes nobody.
//!
//! Invariant: a note is believed only if its number was the expected one before and after it was copied. What was written
//! over before it was taken is lost, and that is said.

use crate::table::{Words, KEY_BYTES_MAX};
use scotfree_cache::WholeRead;
use scotfree_core::{BootEpoch, DeviceId, KeyHash, Nanos, OrderNumber, SeqNum, ServerIndex, SessionId};
use scotfree_device::Place;
use scotfree_wire::{Flags, Kind, Kinds, Stamp, StampKind};
use scotfree_xdp::types::{cache_head, cache_note};
use scotfree_xdp::{Kernel, KernelError};
use std::mem::offset_of;
use std::sync::atomic::{fence, Ordering};

/// How many notes the ring holds.
pub(crate) const NOTES: u64 = 16_384;
/// So near to being written over a note is not taken any more: who writes it may have begun long ago.
const MARGIN: u64 = 64;
/// How often a note that is being written is looked at again: a program writes one in less than a microsecond.
const LOOKS_MAX: u32 = 1_000_000;
const WHAT_UNSEEN: u8 = 2;
const SCOT_FLAG_RELAXED: u16 = 8;
const SCOT_FLAG_SKIP: u16 = 2;
const SCOT_FLAG_AGAIN: u16 = 128;

/// A note.
#[derive(Debug, Clone)]
pub(crate) enum Note {
    /// A request has passed.
    Request(Noted),
    /// A response to what never passed here.
    Unseen(ServerIndex),
}

/// What is told of a request.
#[derive(Debug, Clone)]
pub(crate) struct Noted {
    pub(crate) server: ServerIndex,
    pub(crate) session: SessionId,
    pub(crate) seq: SeqNum,
    pub(crate) kind: Kind,
    pub(crate) flags: Flags,
    pub(crate) completed: SeqNum,
    pub(crate) place: Place,
    pub(crate) stamp: Stamp,
    pub(crate) passed_at: Nanos,
    pub(crate) key_hash: KeyHash,
    /// Of a write how often programs have answered its key since they said it last.
    pub(crate) reads: u64,
    /// Database and key of a read that may be answered, if its reply may be kept.
    pub(crate) read: Option<Vec<u8>>,
    /// Of a read that may be answered: its reply is not kept.
    pub(crate) is_unkept: bool,
}

/// What became of the notes that had been begun when they were looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All were taken.
    All,
    /// Some are lost; none of them is left.
    Lost,
}

/// The ring.
pub(crate) struct Notes {
    head: Words,
    ring: Words,
    taken: u64,
}

impl Notes {
    pub(crate) fn open(kernel: &Kernel) -> Result<Notes, KernelError> {
        let head = Words::open(kernel, "cache_heads", size_of::<cache_head>())?;
        let ring = Words::open(kernel, "cache_notes", NOTES as usize * size_of::<cache_note>())?;
        let taken = head.word(offset_of!(cache_head, notes)).load(Ordering::SeqCst);
        Ok(Notes { head, ring, taken })
    }

    /// Takes all notes that have been begun so far.
    pub(crate) fn take(&mut self, mut each: impl FnMut(&Note)) -> Taken {
        let begun = self.head.word(offset_of!(cache_head, notes)).load(Ordering::SeqCst);
        let mut outcome = Taken::All;
        while self.taken < begun {
            let is_left = begun - self.taken <= NOTES - MARGIN;
            let Some(note) = is_left.then(|| self.note(self.taken)).flatten() else {
                outcome = Taken::Lost;
                self.taken = begun;
                break;
            };
            self.taken += 1;
            if let Some(note) = note.read() {
                each(&note);
            } else {
                outcome = Taken::Lost;
            }
        }
        self.head.word(offset_of!(cache_head, taken)).store(self.taken, Ordering::SeqCst);
        outcome
    }

    /// The note of this number, once it is whole; none if another has been written over it.
    fn note(&self, number: u64) -> Option<Copied> {
        let place = (number % NOTES) as usize * size_of::<cache_note>();
        let found = self.ring.word(place + offset_of!(cache_note, number));
        let mut looks = 0;
        while found.load(Ordering::Acquire) != number + 1 {
            looks += 1;
            if looks == LOOKS_MAX {
                return None;
            }
            std::hint::spin_loop();
        }
        let mut bytes = Vec::with_capacity(size_of::<cache_note>());
        self.ring.read(place, offset_of!(cache_note, key), &mut bytes);
        let key_bytes = Copied(bytes).short(offset_of!(cache_note, key_bytes));
        let mut bytes = Vec::with_capacity(size_of::<cache_note>());
        let key_bytes = usize::from(key_bytes).min(KEY_BYTES_MAX);
        self.ring.read(place, offset_of!(cache_note, key) + key_bytes, &mut bytes);
        fence(Ordering::Acquire);
        (found.load(Ordering::Acquire) == number + 1).then_some(Copied(bytes))
    }
}

/// A note's bytes.
struct Copied(Vec<u8>);

impl Copied {
    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn half(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn short(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.0[at..at + 2].try_into().expect("two bytes"))
    }

    fn read(&self) -> Option<Note> {
        let (byte, long) = (|at: usize| self.0[at], |at| self.long(at));
        let server = ServerIndex(byte(offset_of!(cache_note, server)));
        if byte(offset_of!(cache_note, what)) == WHAT_UNSEEN {
            return Some(Note::Unseen(server));
        }
        let stamp_kind = byte(offset_of!(cache_note, stamp_kind));
        let stamp = Stamp {
            kind: StampKind::ALL.into_iter().find(|kind| kind.code() == stamp_kind)?,
            device: DeviceId(0),
            boot_epoch: BootEpoch(self.half(offset_of!(cache_note, boot_epoch))),
            number: OrderNumber(long(offset_of!(cache_note, order))),
            previous_write: SeqNum(0),
        };
        let kind_code = byte(offset_of!(cache_note, kind));
        let kinds = [Kind::Update, Kind::Read, Kind::Bypass];
        let key = &self.0[offset_of!(cache_note, key)..];
        let database = self.short(offset_of!(cache_note, database));
        let form = || {
            let mut form = Vec::new();
            WholeRead::write_form_of_get(database, key, &mut form);
            form
        };
        Some(Note::Request(Noted {
            server,
            session: SessionId(long(offset_of!(cache_note, session))),
            seq: SeqNum(long(offset_of!(cache_note, seq_num))),
            kind: kinds.into_iter().find(|kind| kind.code() == kind_code)?,
            flags: flags_of(self.short(offset_of!(cache_note, flags))),
            completed: SeqNum(long(offset_of!(cache_note, completed))),
            place: match byte(offset_of!(cache_note, place)) {
                1 => Place::Next,
                2 => Place::Seen,
                _ => Place::None,
            },
            stamp,
            passed_at: Nanos(long(offset_of!(cache_note, now))),
            key_hash: KeyHash(long(offset_of!(cache_note, key_hash))),
            reads: long(offset_of!(cache_note, reads)),
            read: (!key.is_empty()).then(form),
            is_unkept: byte(offset_of!(cache_note, unkept)) != 0,
        }))
    }
}

/// Those flags of a header that matter here.
fn flags_of(bits: u16) -> Flags {
    let known =
        [(SCOT_FLAG_AGAIN, Flags::AGAIN), (SCOT_FLAG_RELAXED, Flags::RELAXED), (SCOT_FLAG_SKIP, Flags::SKIP)];
    known.into_iter().filter(|(bit, _)| bits & bit != 0).fold(Flags::NONE, |all, (_, flag)| all.with(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_those_of_the_wire() {
        let header = include_str!("../../../../bpf/include/scotfree_wire.h");
        let flags = [("AGAIN", SCOT_FLAG_AGAIN), ("RELAXED", SCOT_FLAG_RELAXED), ("SKIP", SCOT_FLAG_SKIP)];
        for (name, bit) in flags {
            assert!(header.contains(&format!("#define SCOT_FLAG_{name} 0x{bit:04x}u")), "{name}");
        }
        let all = flags_of(u16::MAX);
        assert!(all.has(Flags::AGAIN) && all.has(Flags::RELAXED) && !flags_of(0).has(Flags::AGAIN));
    }
}
