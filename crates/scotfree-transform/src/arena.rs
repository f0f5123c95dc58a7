//! Room for the slots of messages, and for what they refer to.
//!
//! Invariant: what is allocated is zero, lies at a multiple of eight bytes, and stays where it is until the reset.

use crate::error::{DecodeError, Exhausted};
use crate::planted::{self, Fault};
use crate::protobuf::batch::Root;

/// Where something lies in an arena, in bytes; 0 is nowhere.
pub type Offset = u32;

/// Room that is used again for message after message: from the second on, nothing is asked of the heap.
///
/// A message borrows the arena that it lies in, so that no two threads decode into one:
///
/// ```compile_fail,E0499
/// use scotfree_transform::{protobuf::table, Arena, Limits, Types};
/// let (types, limits, mut arena) = (Types::default(), Limits::default(), Arena::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| table::decode(&types, 0, b"", &mut arena, &limits).is_ok());
///     scope.spawn(|| table::decode(&types, 0, b"", &mut arena, &limits).is_ok());
/// });
/// ```
#[derive(Debug, Clone, Default)]
pub struct Arena {
    pub(crate) memory: Memory,
    /// What inputs were copied to that had no room behind them, or that are to be kept.
    pub(crate) input: Vec<u8>,
    /// Where the messages of a batch lie, or why they do not.
    pub(crate) roots: Vec<Result<Root, DecodeError>>,
}

impl Arena {
    /// One that grows up to the limits of the messages that are decoded into it.
    pub fn new() -> Self {
        Arena::default()
    }

    /// Forgets what is in it; its room stays.
    pub fn reset(&mut self) {
        self.memory.used = 0;
    }

    /// How many bytes messages and what they refer to take in it, with the room for inputs.
    pub fn used_bytes(&self) -> usize {
        self.memory.used as usize + self.input.len()
    }

    /// How many bytes it has asked of the heap, whatever is in it.
    pub fn room_bytes(&self) -> usize {
        self.memory.bytes.capacity() + self.input.capacity()
    }
}

/// The part of slots.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// All of it was written once, so that growing is the only cost of what is not used yet.
    pub(crate) bytes: Vec<u8>,
    pub(crate) used: u32,
    /// More than that is refused.
    pub(crate) limit: u32,
}

/// The first bytes are nobody's, so that 0 is nowhere.
pub(crate) const FIRST: u32 = 8;
const ALIGNED: u32 = 8;
const BYTES_MIN: usize = 1024;

impl Memory {
    /// So many bytes, zero.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, bytes: u32) -> Result<Offset, Exhausted> {
        let at = self.used.max(FIRST);
        self.used = self.end(at, bytes)?;
        // Of a length that is known when this is compiled, for a type's slots: some stores, and no call. There is always
        // room; what follows if not is code that is there for the limit, too.
        let (first, bytes) = (at as usize, bytes.next_multiple_of(ALIGNED) as usize);
        self.bytes.get_mut(first..first + bytes).ok_or(Exhausted)?.fill(0);
        Ok(at)
    }

    /// Where so many bytes from `at` on would end, once there is room.
    #[inline(always)]
    fn end(&mut self, at: u32, bytes: u32) -> Result<u32, Exhausted> {
        let end = u64::from(at) + u64::from(bytes).next_multiple_of(u64::from(ALIGNED));
        if end > self.bytes.len() as u64 {
            self.grow(end)?;
        }
        Ok(end as u32)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, end: u64) -> Result<(), Exhausted> {
        let beyond = if planted::is(Fault::ArenaBeyondLimit) { 64 } else { 0 };
        if end > u64::from(self.limit) + beyond {
            return Err(Exhausted);
        }
        let room = (end as usize)
            .max(self.bytes.len() * 2)
            .max(BYTES_MIN)
            .min((self.limit as usize).max(end as usize));
        // Exactly, since a vector that grows as it likes takes up to twice what the limit says.
        self.bytes.reserve_exact(room - self.bytes.len());
        self.bytes.resize(room, 0);
        Ok(())
    }

    /// Makes room for an element behind the `count` that lie at `at`: where they begin then.
    ///
    /// How many there is room for follows from how many there are: a power of two, and at least four. So a slot needs
    /// not say it.
    #[inline(always)]
    pub(crate) fn room_for_one_more(
        &mut self,
        at: Offset,
        count: u32,
        size: u32,
    ) -> Result<Offset, Exhausted> {
        if count >= FEWEST && !count.is_power_of_two() || count > 0 && count < FEWEST {
            return Ok(at);
        }
        if count == 0 {
            // Of lengths that are known when this is compiled, for `allocate`.
            return match size {
                4 => self.allocate(FEWEST * 4),
                8 => self.allocate(FEWEST * 8),
                _ => self.allocate(FEWEST * size),
            };
        }
        self.room_for(at, count, u64::from(count) + 1, size)
    }

    /// Room for so many elements of what has none yet.
    #[inline(always)]
    pub(crate) fn room_for_new(&mut self, count: u32, size: u32) -> Result<Offset, Exhausted> {
        match count {
            0 => Ok(0),
            // Of a length that is known when this is compiled, for `allocate`.
            1..=FEWEST => self.allocate(FEWEST * size),
            _ => self.room_for(0, 0, count.into(), size),
        }
    }

    /// Makes room for so many elements in all.
    pub(crate) fn room_for(
        &mut self,
        at: Offset,
        count: u32,
        wanted: u64,
        size: u32,
    ) -> Result<Offset, Exhausted> {
        let (has, needs) = (capacity(count.into()), capacity(wanted));
        if needs <= has {
            return Ok(at);
        }
        let bytes = u32::try_from(needs * u64::from(size)).map_err(|_| Exhausted)?;
        let has_bytes = (has * u64::from(size)).next_multiple_of(ALIGNED.into()) as u32;
        if at != 0 && at + has_bytes == self.used {
            // The last of all: it grows where it lies.
            let end = self.end(at, bytes)?;
            self.bytes[self.used as usize..end as usize].fill(0);
            self.used = end;
            return Ok(at);
        }
        let moved = self.allocate(bytes)?;
        let from = at as usize;
        self.bytes.copy_within(from..from + count as usize * size as usize, moved as usize);
        Ok(moved)
    }
}

const FEWEST: u32 = 4;

/// For how many elements there is room where there are so many.
fn capacity(count: u64) -> u64 {
    if count == 0 {
        0
    } else {
        count.next_power_of_two().max(FEWEST.into())
    }
}
