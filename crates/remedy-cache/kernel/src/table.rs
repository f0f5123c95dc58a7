//! The tables of the cache's programs, in memory that both see.
//!
//! Invariant: a cell is written by who has made it odd, the daemon or a program, and is odd meanwhile. A value is shown
//! under the counts at which its bucket and all keys stood before the daemon had looked for notes: whatever has passed
//! since makes them others.

use crate::notes::Notes;
use scotfree_cache::WholeRead;
use scotfree_core::{BootEpoch, Epoch, KeyHash, SeqNum, ServerIndex};
use scotfree_xdp::types::{cache_bucket, cache_cell, cache_head, cache_session, cache_tags};
use scotfree_xdp::{Kernel, KernelError, Memory, SESSIONS_MAX};
use std::mem::offset_of;
use std::sync::atomic::{fence, AtomicU16, AtomicU32, AtomicU64, Ordering};

const BUCKETS: usize = 262_144;
const CELLS: usize = 16_384;
const WAYS: usize = 4;
/// How many reads of a session are told from each other.
const AWAITED: u64 = 1_024;
/// Bytes of the longest key that is shown.
pub(crate) const KEY_BYTES_MAX: usize = 256;
/// Bytes of the largest value that is shown.
pub(crate) const VALUE_BYTES_MAX: usize = 1_304;

/// A table's memory, by words.
pub(crate) struct Words(Memory);

impl Words {
    pub(crate) fn open(kernel: &Kernel, name: &str, bytes: usize) -> Result<Words, KernelError> {
        kernel.map_table(name, bytes).map(Words)
    }

    fn check(&self, at: usize, bytes: usize) {
        assert!(at.is_multiple_of(bytes) && at + bytes <= self.0.bytes(), "the word lies in the table");
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        self.check(at, 8);
        // SAFETY: the word is aligned and lies in the mapping, which lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.0.place().as_ptr().add(at).cast()) }
    }

    pub(crate) fn half(&self, at: usize) -> &AtomicU32 {
        self.check(at, 4);
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.0.place().as_ptr().add(at).cast()) }
    }

    pub(crate) fn short(&self, at: usize) -> &AtomicU16 {
        self.check(at, 2);
        // SAFETY: as above.
        unsafe { AtomicU16::from_ptr(self.0.place().as_ptr().add(at).cast()) }
    }

    /// Writes bytes, filled up with zeros to a whole word.
    fn write(&self, at: usize, bytes: &[u8]) {
        for (chunk, at) in bytes.chunks(8).zip((at..).step_by(8)) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(at).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// Appends so many bytes.
    pub(crate) fn read(&self, at: usize, bytes: usize, out: &mut Vec<u8>) {
        let end = out.len() + bytes;
        for at in (at..at + bytes).step_by(8) {
            out.extend_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
        }
        out.truncate(end);
    }
}

/// The name of a read: its server, and what tells it from others, which begins with the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) server: ServerIndex,
    pub(crate) key_hash: KeyHash,
    pub(crate) key: Vec<u8>,
}

/// The counts under which a value is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quiet {
    bucket: u64,
    all: u64,
}

/// The writes of a session that can be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lossy {
    count: u64,
    pub(crate) last: SeqNum,
}

/// In which incarnations a value is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incarnations {
    pub(crate) server: Epoch,
    pub(crate) device: BootEpoch,
}

/// The tables.
pub(crate) struct Table {
    head: Words,
    buckets: Words,
    cells: Words,
    tags: Words,
    sessions: Words,
    pub(crate) notes: Notes,
    /// Which of the cells that might hold a key gives way next.
    turn: usize,
    /// Which cell is looked at next for its mark.
    hand: usize,
}

impl Table {
    pub(crate) fn open(kernel: &Kernel) -> Result<Table, KernelError> {
        let open = |name, count: usize, bytes| Words::open(kernel, name, count * bytes);
        let table = Table {
            head: open("cache_heads", 1, size_of::<cache_head>())?,
            buckets: open("cache_buckets", BUCKETS, size_of::<cache_bucket>())?,
            cells: open("cache_cells", CELLS, size_of::<cache_cell>())?,
            tags: open("cache_tags", CELLS / WAYS, size_of::<cache_tags>())?,
            sessions: open("cache_sessions", SESSIONS_MAX, size_of::<cache_session>())?,
            notes: Notes::open(kernel)?,
            turn: 0,
            hand: 0,
        };
        (0..SESSIONS_MAX).for_each(|index| table.set_seen_from(index, SeqNum(u64::MAX)));
        Ok(table)
    }

    /// From now on the programs answer and tell; with a doorkeeper replies to what was not read of late are not the daemon's.
    pub(crate) fn turn_on(&self, doorkeeper: bool) {
        self.head.half(offset_of!(cache_head, doorkeeper)).store(doorkeeper.into(), Ordering::SeqCst);
        self.head.half(offset_of!(cache_head, on)).store(1, Ordering::SeqCst);
    }

    /// Another session has this place: what it has written up to `last` may be given up.
    pub(crate) fn begin_session(&self, index: usize, from: SeqNum, last: SeqNum) {
        self.set_seen_from(index, from);
        self.of_session(index, offset_of!(cache_session, pending)).store(0, Ordering::SeqCst);
        self.of_session(index, offset_of!(cache_session, last_lossy)).store(last.0, Ordering::SeqCst);
        self.of_session(index, offset_of!(cache_session, lossy)).fetch_add(1, Ordering::SeqCst);
    }

    /// From which place on all requests of a session have passed.
    pub(crate) fn set_seen_from(&self, index: usize, from: SeqNum) {
        self.of_session(index, offset_of!(cache_session, from)).store(from.0, Ordering::SeqCst);
    }

    /// The reply to this read may be kept.
    pub(crate) fn set_awaited(&self, index: usize, seq: SeqNum) {
        let word = (seq.0 / 64 % (AWAITED / 64)) as usize;
        let at = offset_of!(cache_session, awaited) + word * 8;
        self.of_session(index, at).fetch_or(1 << (seq.0 % 64), Ordering::SeqCst);
    }

    fn of_session(&self, index: usize, at: usize) -> &AtomicU64 {
        self.sessions.word(index * size_of::<cache_session>() + at)
    }

    /// A write of a session up to this place is not known to be in the log: given up, it takes with it what follows.
    pub(crate) fn count_lossy(&self, index: usize, last: SeqNum) {
        self.of_session(index, offset_of!(cache_session, last_lossy)).fetch_max(last.0, Ordering::SeqCst);
        self.of_session(index, offset_of!(cache_session, lossy)).fetch_add(1, Ordering::SeqCst);
        // What stands behind it may have been shown already.
        if self.of_session(index, offset_of!(cache_session, pending)).load(Ordering::SeqCst) > last.0 {
            self.doubt_all();
        }
    }

    /// How many such writes a session has had, and its last, if it is not known that the server has executed all of them.
    pub(crate) fn lossy(&self, index: usize) -> Option<Lossy> {
        let word = |at| self.of_session(index, at).load(Ordering::SeqCst);
        let count = word(offset_of!(cache_session, lossy));
        let last = SeqNum(word(offset_of!(cache_session, last_lossy)));
        (count != word(offset_of!(cache_session, safe))).then_some(Lossy { count, last })
    }

    /// The server has executed all that a session had had then.
    pub(crate) fn set_safe(&self, index: usize, lossy: Lossy) {
        self.of_session(index, offset_of!(cache_session, safe)).store(lossy.count, Ordering::SeqCst);
    }

    // ---- what is doubtful

    fn bucket(key_hash: KeyHash) -> usize {
        (key_hash.0 as usize & (BUCKETS - 1)) * size_of::<cache_bucket>()
    }

    /// The daemon handles something itself that concerns a key: what is shown of it is answered no more.
    pub(crate) fn doubt(&self, key_hash: KeyHash) {
        doubt(&self.buckets, Table::bucket(key_hash));
    }

    /// The same of all keys.
    pub(crate) fn doubt_all(&self) {
        doubt(&self.head, offset_of!(cache_head, all));
    }

    /// The counts of a key, if all that made it doubtful so far has left its note.
    pub(crate) fn quiet(&self, key_hash: KeyHash) -> Option<Quiet> {
        let bucket = quiet(&self.buckets, Table::bucket(key_hash))?;
        let all = quiet(&self.head, offset_of!(cache_head, all))?;
        Some(Quiet { bucket, all })
    }

    // ---- values

    fn cell(key_hash: KeyHash, way: usize) -> usize {
        (((key_hash.0 >> 16) as usize).wrapping_mul(WAYS).wrapping_add(way) & (CELLS - 1))
            * size_of::<cache_cell>()
    }

    /// Shows a value, as it was known to be at these counts; whether it fits, and no program is at its cell.
    pub(crate) fn show(&mut self, named: &Named, value: &[u8], quiet: Quiet, of: Incarnations) -> bool {
        // Programs know GETs alone.
        let Some((database, key, "")) = WholeRead::shown(&named.key) else { return false };
        if key.is_empty()
            || key.len() > KEY_BYTES_MAX
            || value.len() > VALUE_BYTES_MAX
            || named.key_hash == KeyHash(0)
        {
            return false;
        }
        let cell = self.place_for(named);
        let word = |at: usize| self.cells.word(cell + at);
        let half = |at: usize| self.cells.half(cell + at);
        let short = |at: usize| self.cells.short(cell + at);
        let written = word(offset_of!(cache_cell, written));
        let before = written.load(Ordering::SeqCst) & !1;
        if written.compare_exchange(before, before + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return false;
        }
        fence(Ordering::SeqCst);
        word(offset_of!(cache_cell, begun)).store(quiet.bucket, Ordering::Relaxed);
        word(offset_of!(cache_cell, all)).store(quiet.all, Ordering::Relaxed);
        word(offset_of!(cache_cell, key_hash)).store(named.key_hash.0, Ordering::Relaxed);
        word(offset_of!(cache_cell, order)).store(0, Ordering::Relaxed);
        half(offset_of!(cache_cell, server)).store(u32::from(named.server.0), Ordering::Relaxed);
        half(offset_of!(cache_cell, epoch)).store(of.server.0, Ordering::Relaxed);
        half(offset_of!(cache_cell, boot_epoch)).store(of.device.0, Ordering::Relaxed);
        half(offset_of!(cache_cell, hit)).store(0, Ordering::Relaxed);
        short(offset_of!(cache_cell, database)).store(database, Ordering::Relaxed);
        short(offset_of!(cache_cell, key_bytes)).store(key.len() as u16, Ordering::Relaxed);
        half(offset_of!(cache_cell, value_bytes)).store(value.len() as u32, Ordering::Relaxed);
        self.cells.write(cell + offset_of!(cache_cell, key), key);
        self.cells.write(cell + offset_of!(cache_cell, value), value);
        // Programs look here first.
        self.tags
            .half(cell / size_of::<cache_cell>() * size_of::<u32>())
            .store(tag(named.key_hash), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        written.store(before + 2, Ordering::SeqCst);
        true
    }

    /// Where a value is to lie: where its key has one, else where none is that is answered, else in turn, marks aside.
    fn place_for(&mut self, named: &Named) -> usize {
        let ways = (0..WAYS).map(|way| Table::cell(named.key_hash, way));
        let own = ways.clone().find(|cell| self.is_of(*cell, named));
        let dead = || ways.clone().find(|cell| !self.is_answered(*cell));
        let unwanted = || ways.clone().find(|cell| self.hit(*cell).load(Ordering::Relaxed) == 0);
        own.or_else(dead).or_else(unwanted).unwrap_or_else(|| {
            self.turn += 1;
            Table::cell(named.key_hash, self.turn % WAYS)
        })
    }

    fn is_of(&self, cell: usize, named: &Named) -> bool {
        self.key_hash(cell) == named.key_hash && self.server(cell) == named.server
    }

    fn key_hash(&self, cell: usize) -> KeyHash {
        KeyHash(self.cells.word(cell + offset_of!(cache_cell, key_hash)).load(Ordering::Relaxed))
    }

    fn server(&self, cell: usize) -> ServerIndex {
        ServerIndex(self.cells.half(cell + offset_of!(cache_cell, server)).load(Ordering::Relaxed) as u8)
    }

    fn hit(&self, cell: usize) -> &AtomicU32 {
        self.cells.half(cell + offset_of!(cache_cell, hit))
    }

    /// Whether the counts are still those at which it was shown.
    fn is_answered(&self, cell: usize) -> bool {
        let shown_at = |at| self.cells.word(cell + at).load(Ordering::Relaxed);
        let begun = |words: &Words, at: usize| {
            words.word(at + offset_of!(cache_bucket, begun)).load(Ordering::Relaxed)
        };
        let key_hash = self.key_hash(cell);
        key_hash != KeyHash(0)
            && shown_at(offset_of!(cache_cell, begun)) == begun(&self.buckets, Table::bucket(key_hash))
            && shown_at(offset_of!(cache_cell, all)) == begun(&self.head, offset_of!(cache_head, all))
    }

    /// Of the next `count` cells, those that were answered since they were looked at last, and how often.
    pub(crate) fn take_marks(&mut self, count: usize, mut each: impl FnMut(&Named, u32)) {
        for _ in 0..count {
            let cell = self.hand * size_of::<cache_cell>();
            self.hand = (self.hand + 1) % CELLS;
            if self.hit(cell).load(Ordering::Relaxed) == 0 {
                continue;
            }
            let hits = self.hit(cell).swap(0, Ordering::Relaxed);
            let short = |at| self.cells.short(cell + at).load(Ordering::Relaxed);
            let mut key = Vec::new();
            WholeRead::write_form_of_get(short(offset_of!(cache_cell, database)), b"", &mut key);
            let bytes = usize::from(short(offset_of!(cache_cell, key_bytes)));
            self.cells.read(cell + offset_of!(cache_cell, key), bytes.min(KEY_BYTES_MAX), &mut key);
            each(&Named { server: self.server(cell), key_hash: self.key_hash(cell), key }, hits);
        }
    }
}

/// What of a key's hash stands among the tags.
fn tag(key_hash: KeyHash) -> u32 {
    (key_hash.0 >> 32) as u32
}

fn doubt(words: &Words, at: usize) {
    words.word(at + offset_of!(cache_bucket, begun)).fetch_add(1, Ordering::SeqCst);
    words.word(at + offset_of!(cache_bucket, told)).fetch_add(1, Ordering::SeqCst);
}

/// How often it was doubtful, if each time has left its note. The second count is read first: what begins between is
/// found by the first.
fn quiet(words: &Words, at: usize) -> Option<u64> {
    let told = words.word(at + offset_of!(cache_bucket, told)).load(Ordering::SeqCst);
    let begun = words.word(at + offset_of!(cache_bucket, begun)).load(Ordering::SeqCst);
    (told == begun).then_some(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_of_the_programs() {
        let header = include_str!("../../bpf/cache.h");
        for (name, value) in [
            ("BUCKETS", BUCKETS),
            ("CELLS", CELLS),
            ("WAYS", WAYS),
            ("KEY_BYTES_MAX", KEY_BYTES_MAX),
            ("VALUE_BYTES_MAX", VALUE_BYTES_MAX),
            ("NOTES", crate::notes::NOTES as usize),
            ("AWAITED", AWAITED as usize),
        ] {
            assert!(header.contains(&format!("#define CACHE_{name} {value}u")), "{name}");
        }
    }
}
