//! The fields of plain structs.
//!
//! Invariant: each of these asks for the room that it writes to, so that nobody else has to.

use super::{Writer, LENGTH_BYTES_MAX, NUMBER_BYTES_MAX};
use crate::owned::Plain;
use crate::raw::path::Path;
use crate::schema::Kind;
use crate::slots::SLACK;

/// A tag, which is a constant, as its bytes in a word, and how many they are.
const fn bytes_of(tag: u32) -> (u64, usize) {
    let (mut word, mut bytes, mut left) = (0, 0, tag as u64);
    while left >= 0x80 {
        word |= (left & 0x7f | 0x80) << (8 * bytes);
        left >>= 7;
        bytes += 1;
    }
    (word | left << (8 * bytes), bytes + 1)
}

impl Writer<'_> {
    /// Appends a tag, for which there is room.
    #[inline(always)]
    fn tag<const TAG: u32>(&mut self) {
        let (word, bytes) = const { bytes_of(TAG) };
        self.word(self.at, word);
        self.at += bytes;
    }

    /// A number, by its bits in a slot, if it is there; without a branch on it.
    #[inline(always)]
    #[must_use]
    pub fn plain_number<const TAG: u32, P: Path>(
        mut self,
        path: P,
        kind: Kind,
        bits: u64,
        is_there: bool,
    ) -> Self {
        self.room(NUMBER_BYTES_MAX);
        let at = self.at;
        self.tag::<TAG>();
        self.bare(path, kind, bits);
        self.at = if is_there { self.at } else { at };
        self
    }

    /// Many numbers, each behind its tag.
    #[inline(always)]
    #[must_use]
    pub fn plain_numbers<const TAG: u32, P: Path>(
        mut self,
        path: P,
        kind: Kind,
        many: impl Iterator<Item = u64>,
    ) -> Self {
        for bits in many {
            self = self.plain_number::<TAG, P>(path, kind, bits, true);
        }
        self
    }

    /// Many numbers behind one tag; nothing, if there are none.
    #[inline(always)]
    #[must_use]
    pub fn plain_packed<const TAG: u32, P: Path>(
        mut self,
        path: P,
        kind: Kind,
        many: impl ExactSizeIterator<Item = u64>,
    ) -> Self {
        if many.len() == 0 {
            return self;
        }
        let from = self.plain_begin::<TAG>();
        for bits in many {
            self.room(NUMBER_BYTES_MAX);
            self.bare(path, kind, bits);
        }
        self.end(from)
    }

    /// A string or bytes.
    #[inline(always)]
    #[must_use]
    pub fn plain_text<const TAG: u32, P: Path>(mut self, path: P, text: &[u8]) -> Self {
        self.room(NUMBER_BYTES_MAX + LENGTH_BYTES_MAX + SLACK + text.len());
        self.tag::<TAG>();
        let length = text.len() as u64;
        self.at += if length < 0x80 {
            self.word(self.at, length);
            1
        } else {
            self.varint(path, self.at, length)
        };
        self.words_copied(text);
        self
    }

    /// Appends bytes, for which there is room: up to 16 of them as words that overlap, since a call that copies takes
    /// longer than they do.
    #[inline(always)]
    fn words_copied(&mut self, text: &[u8]) {
        match text.len() {
            8..=16 => {
                let (first, last) = (word(&text[..8]), word(&text[text.len() - 8..]));
                self.word(self.at, first);
                self.word(self.at + text.len() - 8, last);
                self.at += text.len();
            }
            4..=7 => {
                let (first, last) = (half(&text[..4]), half(&text[text.len() - 4..]));
                self.word(self.at, first | last << (8 * (text.len() - 4)));
                self.at += text.len();
            }
            length => self.copy(text, 0, length),
        }
    }

    /// A message, behind its length.
    #[inline(always)]
    #[must_use]
    pub fn plain_message<const TAG: u32, P: Path>(mut self, path: P, message: &impl Plain) -> Self {
        let from = self.plain_begin::<TAG>();
        self.plain(path, message).end(from)
    }

    /// An entry of a map, whose fields `entry` writes.
    #[inline(always)]
    #[must_use]
    pub fn plain_entry<const TAG: u32>(mut self, entry: impl FnOnce(Self) -> Self) -> Self {
        let from = self.plain_begin::<TAG>();
        entry(self).end(from)
    }

    /// A group, between its tags.
    #[inline(always)]
    #[must_use]
    pub fn plain_group<const BEGIN: u32, const END: u32, P: Path>(
        mut self,
        path: P,
        message: &impl Plain,
    ) -> Self {
        self.room(NUMBER_BYTES_MAX);
        self.tag::<BEGIN>();
        let mut writer = self.plain(path, message);
        writer.room(NUMBER_BYTES_MAX);
        writer.tag::<END>();
        writer
    }

    /// The fields of a struct.
    #[inline(always)]
    #[must_use]
    pub(crate) fn plain<P: Path>(self, path: P, message: &impl Plain) -> Self {
        let (out, at) = self.parts();
        let at = path.written(message, out, at);
        Writer::new(out, at)
    }

    /// A tag, and a byte for a length: where what has it begins.
    #[inline(always)]
    fn plain_begin<const TAG: u32>(&mut self) -> usize {
        self.room(NUMBER_BYTES_MAX);
        self.tag::<TAG>();
        self.at += 1;
        self.at
    }
}

/// Eight bytes.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    crate::slots::number::<8>(bytes)
}

/// Four bytes.
#[inline(always)]
fn half(bytes: &[u8]) -> u64 {
    crate::slots::number::<4>(bytes)
}
