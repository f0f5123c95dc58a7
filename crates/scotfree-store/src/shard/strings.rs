//! Strings: read, set, lengthened, cut.
//!
//! Invariant: a value of another kind is never read as a string; it is overwritten by a plain set alone.

use super::execute::expire_at;
use super::{Found, New, Shard, Target, VALUE_BYTES_MAX};
use crate::item::Kind;
use crate::op::{Condition, Expiry, Set};
use crate::reply::{Outcome, Replies, Reply};
use std::ops::Range;

impl Shard {
    pub(super) fn get(&mut self, target: &Target<'_>, out: &mut Replies) {
        match Shard::of_kind(target, Kind::String) {
            Ok(Some(found)) => self.reply_value(&found, out),
            Ok(None) => out.push(Reply::of(Outcome::Absent)),
            Err(outcome) => out.push(Reply::of(outcome)),
        }
    }

    /// The string that is there, or else the reply.
    fn string(target: &Target<'_>, out: &mut Replies) -> Option<Found> {
        let found = Shard::of_kind(target, Kind::String).and_then(|found| found.ok_or(Outcome::Absent));
        found.map_err(|outcome| out.push(Reply::of(outcome))).ok()
    }

    pub(super) fn get_expire(&mut self, now_s: u32, target: &Target<'_>, expiry: Expiry, out: &mut Replies) {
        let Some(found) = Shard::string(target, out) else { return };
        self.reply_value(&found, out);
        self.set_expiry(target.hash, &found, expire_at(now_s, expiry, Some(&found)));
    }

    pub(super) fn get_delete(&mut self, target: &Target<'_>, out: &mut Replies) {
        let Some(found) = Shard::string(target, out) else { return };
        self.reply_value(&found, out);
        self.remove(target.hash, &found);
    }

    pub(super) fn length(target: &Target<'_>, out: &mut Replies) {
        if let Some(found) = Shard::string(target, out) {
            out.push(Reply::number(found.head.value_bytes as i64));
        }
    }

    pub(super) fn get_range(&mut self, target: &Target<'_>, from: i64, to: i64, out: &mut Replies) {
        let Some(found) = Shard::string(target, out) else { return };
        self.touch(found.place);
        let value = self.items.value(found.place, &found.head);
        out.push_value(Reply::of(Outcome::Done), &value[range(from, to, value.len())]);
    }

    pub(super) fn set(&mut self, now_s: u32, target: &Target<'_>, set: &Set<'_>, out: &mut Replies) {
        let old = if set.returns_old { Shard::of_kind(target, Kind::String) } else { Ok(None) };
        // The old value is copied before it is overwritten: the reply is made first and completed afterwards.
        match old {
            Ok(Some(old)) => out.push_value(Reply::of(Outcome::Done), self.items.value(old.place, &old.head)),
            Ok(None) => out.push(Reply::of(Outcome::Done)),
            Err(outcome) => return out.push(Reply::of(outcome)),
        }
        let done = self.check(target, set.condition).and_then(|()| self.set_value(now_s, target, set));
        match done {
            Ok(version) => out.complete(Outcome::Done, version),
            Err(outcome) => out.complete(outcome, 0),
        }
    }

    fn set_value(&mut self, now_s: u32, target: &Target<'_>, set: &Set<'_>) -> Result<u64, Outcome> {
        if let Some(expire_s) = expire_at(now_s, set.expiry, target.found.as_ref()) {
            return self.write(target, &New { value: set.value, kind: Kind::String, expire_s, slack: 0 });
        }
        if let Some(found) = target.found {
            self.remove(target.hash, &found);
        }
        Ok(0)
    }

    pub(super) fn append(
        &mut self,
        target: &Target<'_>,
        bytes: &[u8],
        condition: Condition,
        out: &mut Replies,
    ) {
        let at = |length| length..length + bytes.len();
        out.push(self.check(target, condition).map_or_else(Reply::of, |()| self.splice(target, at, bytes)));
    }

    pub(super) fn set_range(&mut self, target: &Target<'_>, from: usize, bytes: &[u8], out: &mut Replies) {
        let at =
            |length| if bytes.is_empty() { length..length } else { from..from.saturating_add(bytes.len()) };
        let reply = if bytes.is_empty() && target.found.is_none() {
            Reply::number(0) // nothing is written, so no key comes to be
        } else {
            self.splice(target, at, bytes)
        };
        out.push(reply);
    }

    /// Overwrites a range of a string, which is lengthened as need be. Its new length.
    fn splice(&mut self, target: &Target<'_>, at: impl FnOnce(usize) -> Range<usize>, bytes: &[u8]) -> Reply {
        let found = match Shard::of_kind(target, Kind::String) {
            Ok(found) => found,
            Err(outcome) => return Reply::of(outcome),
        };
        let before = found.map_or(0, |found| found.head.value_bytes);
        let at = at(before);
        let after = before.max(at.end);
        if after > VALUE_BYTES_MAX {
            return Reply::of(Outcome::TooLong);
        }
        if let Some(version) = found.and_then(|found| self.splice_in_place(&found, at.clone(), after, bytes))
        {
            return Reply { version, ..Reply::number(after as i64) };
        }
        // What grows once will grow again: values with segments of their own get a quarter more.
        let slack = if after > crate::memory::SEGMENT_BYTES / 2 { after / 4 } else { 0 };
        let written = self.with_scratch(|shard, scratch| {
            if let Some(found) = found {
                scratch.extend_from_slice(shard.items.value(found.place, &found.head));
            }
            scratch.resize(after, 0);
            scratch[at].copy_from_slice(bytes);
            shard.rewrite(target, Kind::String, scratch, slack)
        });
        written.map_or_else(Reply::of, |version| Reply { version, ..Reply::number(after as i64) })
    }

    fn splice_in_place(
        &mut self,
        found: &Found,
        at: Range<usize>,
        after: usize,
        bytes: &[u8],
    ) -> Option<u64> {
        let head = self.items.lengthen(found.place, &found.head, after)?;
        self.items.value_mut(found.place, &head)[at].copy_from_slice(bytes);
        Some(self.note_change(found.place))
    }

    /// A value was changed where it is: its version now.
    #[inline(always)]
    pub(super) fn note_change(&mut self, place: super::Place) -> u64 {
        self.version += u64::from(self.items.layout().has_meta);
        self.items.set_meta(place, self.version);
        self.touch(place);
        self.version
    }

    pub(super) fn prepend(
        &mut self,
        target: &Target<'_>,
        bytes: &[u8],
        condition: Condition,
        out: &mut Replies,
    ) {
        let found = self.check(target, condition).and_then(|()| Shard::of_kind(target, Kind::String));
        let written = found.and_then(|found| {
            self.with_scratch(|shard, scratch| {
                scratch.extend_from_slice(bytes);
                if let Some(found) = found {
                    scratch.extend_from_slice(shard.items.value(found.place, &found.head));
                }
                let version = shard.rewrite(target, Kind::String, scratch, 0)?;
                Ok(Reply { version, ..Reply::number(scratch.len() as i64) })
            })
        });
        out.push(written.unwrap_or_else(Reply::of));
    }

    /// Lends the buffer in which values are put together, empty.
    pub(super) fn with_scratch<T>(&mut self, make: impl FnOnce(&mut Shard, &mut Vec<u8>) -> T) -> T {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let made = make(self, &mut scratch);
        self.scratch = scratch;
        self.scratch.shrink_to(SCRATCH_BYTES_MAX);
        made
    }
}

/// How much memory the buffer keeps from one operation to the next.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// The range that Redis means by two numbers, inclusive, from the end if negative.
fn range(from: i64, to: i64, length: usize) -> Range<usize> {
    let length = length as i64;
    let from_begin = |at: i64| if at < 0 { (at + length).max(0) } else { at };
    let is_empty = from < 0 && to < 0 && from > to;
    let (from, to) = (from_begin(from), from_begin(to).min(length - 1));
    if is_empty || from > to || length == 0 {
        return 0..0;
    }
    from as usize..to as usize + 1
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_are_as_redis_means_them() {
        for (from, to, expected) in [
            (0, -1, 0..5),
            (0, 0, 0..1),
            (1, 3, 1..4),
            (-3, -1, 2..5),
            (-100, 1, 0..2),
            (3, 100, 3..5),
            (3, 2, 0..0),
            (5, 9, 0..0),
            (-1, -3, 0..0),
            (i64::MIN, i64::MAX, 0..5),
        ] {
            assert_eq!(range(from, to, 5), expected, "{from} {to}");
        }
        assert_eq!(range(0, -1, 0), 0..0);
    }
}
