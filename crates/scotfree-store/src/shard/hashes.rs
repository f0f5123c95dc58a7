//! Hashes: the fields of a key, packed into one value.
//!
//! Invariant: a hash without fields is no key.

use super::numbers::{parse, Decimal};
use super::{Shard, Target, VALUE_BYTES_MAX};
use crate::fields::{self, FIELD_BYTES_MAX};
use crate::item::Kind;
use crate::op::Field;
use crate::reply::{Outcome, Replies, Reply};

impl Shard {
    /// The packed fields that are there.
    fn packed(&self, target: &Target<'_>) -> Result<Option<&[u8]>, Outcome> {
        let found = Shard::of_kind(target, Kind::Hash)?;
        Ok(found.map(|found| self.items.value(found.place, &found.head)))
    }

    /// Replies from the packed fields, or with why there are none.
    fn reply_of_fields(
        &mut self,
        target: &Target<'_>,
        out: &mut Replies,
        reply: impl FnOnce(&[u8], &mut Replies),
    ) {
        if let Some(found) = target.found {
            self.touch(found.place);
        }
        match self.packed(target) {
            Ok(Some(packed)) => reply(packed, out),
            Ok(None) => out.push(Reply::of(Outcome::Absent)),
            Err(outcome) => out.push(Reply::of(outcome)),
        }
    }

    pub(super) fn hash_get(&mut self, target: &Target<'_>, field: &[u8], out: &mut Replies) {
        self.reply_of_fields(target, out, |packed, out| match fields::value(packed, field) {
            Some(value) => out.push_value(Reply::of(Outcome::Done), value),
            None => out.push(Reply::of(Outcome::Absent)),
        });
    }

    pub(super) fn hash_get_many(&mut self, target: &Target<'_>, names: &[&[u8]], out: &mut Replies) {
        self.reply_of_fields(target, out, |packed, out| {
            out.push_written(Reply::number(names.len() as i64), |out| {
                let begin = out.len();
                fields::begin(out);
                for name in names {
                    fields::push(out, begin, name, fields::value(packed, name));
                }
            });
        });
    }

    pub(super) fn hash_get_all(&mut self, target: &Target<'_>, out: &mut Replies) {
        self.reply_of_fields(target, out, |packed, out| {
            out.push_value(Reply::number(fields::count(packed) as i64), packed);
        });
    }

    pub(super) fn hash_exists(&mut self, target: &Target<'_>, field: &[u8], out: &mut Replies) {
        self.reply_of_fields(target, out, |packed, out| {
            let is_there = fields::find(packed, field).is_some();
            out.push(Reply::of(if is_there { Outcome::Done } else { Outcome::Absent }));
        });
    }

    pub(super) fn hash_length(&mut self, target: &Target<'_>, out: &mut Replies) {
        self.reply_of_fields(target, out, |packed, out| {
            out.push(Reply::number(fields::count(packed) as i64));
        });
    }

    pub(super) fn hash_set(&mut self, target: &Target<'_>, set: &[Field<'_>], out: &mut Replies) {
        out.push(self.set_fields(target, set).unwrap_or_else(Reply::of));
    }

    pub(super) fn hash_set_new(&mut self, target: &Target<'_>, field: Field<'_>, out: &mut Replies) {
        let is_there = self
            .packed(target)
            .map(|packed| packed.is_some_and(|packed| fields::find(packed, field.0).is_some()));
        let set = match is_there {
            Ok(true) => Err(Outcome::Unmet),
            Ok(false) => self.set_fields(target, &[field]),
            Err(outcome) => Err(outcome),
        };
        out.push(set.unwrap_or_else(Reply::of));
    }

    pub(super) fn hash_delete(&mut self, target: &Target<'_>, names: &[&[u8]], out: &mut Replies) {
        let removed = match target.found {
            None => Err(Outcome::Absent),
            Some(_) => self.change_fields(target, |packed| fields::remove(packed, names)),
        };
        out.push(removed.unwrap_or_else(Reply::of));
    }

    pub(super) fn hash_add(&mut self, target: &Target<'_>, field: &[u8], by: i64, out: &mut Replies) {
        let sum = self.packed(target).and_then(|packed| {
            let value = packed.and_then(|packed| fields::value(packed, field));
            value.map_or(Ok(0), parse::<i64>)?.checked_add(by).ok_or(Outcome::Overflow)
        });
        let added = sum.and_then(|sum| {
            let reply = self.set_fields(target, &[(field, Decimal::of(sum).bytes())])?;
            Ok(Reply { number: sum, ..reply })
        });
        out.push(added.unwrap_or_else(Reply::of));
    }

    fn set_fields(&mut self, target: &Target<'_>, set: &[Field<'_>]) -> Result<Reply, Outcome> {
        if let Some(reply) = self.set_field_in_place(target, set) {
            return Ok(reply);
        }
        let added: usize = set.iter().map(|(field, value)| field.len() + value.len() + 8).sum();
        let is_too_long = set.iter().any(|(field, _)| field.len() > FIELD_BYTES_MAX);
        if is_too_long || added > VALUE_BYTES_MAX {
            return Err(Outcome::TooLong);
        }
        self.change_fields(target, |packed| fields::set(packed, set))
    }

    /// One field gets a value of the length that it has.
    fn set_field_in_place(&mut self, target: &Target<'_>, set: &[Field<'_>]) -> Option<Reply> {
        let [(field, value)] = set else { return None };
        let found = target.found.filter(|found| found.head.kind() == Kind::Hash)?;
        let there = fields::find(self.items.value(found.place, &found.head), field)?.value;
        if there.len() != value.len() {
            return None;
        }
        self.items.value_mut(found.place, &found.head)[there].copy_from_slice(value);
        let version = self.note_change(found.place);
        Some(Reply { version, ..Reply::number(0) })
    }

    /// Has the packed fields changed; the reply counts what `change` says.
    fn change_fields(
        &mut self,
        target: &Target<'_>,
        change: impl FnOnce(&mut Vec<u8>) -> usize,
    ) -> Result<Reply, Outcome> {
        self.with_scratch(|shard, scratch| {
            match shard.packed(target)? {
                Some(packed) => scratch.extend_from_slice(packed),
                None => fields::begin(scratch),
            }
            let changed = change(scratch);
            let version = match target.found {
                Some(found) if fields::count(scratch) == 0 => {
                    shard.remove(target.hash, &found);
                    0
                }
                None if fields::count(scratch) == 0 => 0,
                _ => shard.rewrite(target, Kind::Hash, scratch, 0)?,
            };
            Ok(Reply { version, ..Reply::number(changed as i64) })
        })
    }
}
