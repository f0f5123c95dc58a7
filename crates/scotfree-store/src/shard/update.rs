//! What no verb says: a closure makes a new value of the old one; several keys are set together.
//!
//! Invariant: a closure sees a value as it is and changes nothing by itself.

use super::execute::expire_at;
use super::{New, Shard, Target};
use crate::item::Kind;
use crate::op::{Change, Expiry, Old, Update};
use crate::reply::{Outcome, Replies, Reply};

impl Shard {
    /// Makes a new value of the old one, by itself. The reply of a write has the new value.
    pub fn update(&mut self, now_s: u32, key: &[u8], make: Update<'_>, out: &mut Replies) {
        let target = self.target(now_s, key);
        self.update_target(now_s, &target, make, out);
    }

    pub(super) fn update_target(
        &mut self,
        now_s: u32,
        target: &Target<'_>,
        make: Update<'_>,
        out: &mut Replies,
    ) {
        self.with_scratch(|shard, scratch| {
            let old = target.found.map(|found| Old {
                value: shard.items.value(found.place, &found.head),
                kind: found.head.kind(),
                expire_s: found.head.expire_s(),
                version: shard.items.meta(found.place),
            });
            let change = make(old, scratch);
            shard.apply(now_s, target, change, scratch, out);
        });
    }

    fn apply(&mut self, now_s: u32, target: &Target<'_>, change: Change, value: &[u8], out: &mut Replies) {
        match (change, target.found) {
            (Change::Keep, _) => out.push(Reply::of(Outcome::Done)),
            (Change::Refuse(number), _) => out.push(Reply { number, ..Reply::of(Outcome::Refused) }),
            (Change::Delete, None) => out.push(Reply::of(Outcome::Absent)),
            (Change::Delete, Some(found)) => {
                self.remove(target.hash, &found);
                out.push(Reply::of(Outcome::Done));
            }
            (Change::Write(kind, expiry), _) => self.apply_write(now_s, target, (kind, expiry), value, out),
        }
    }

    fn apply_write(
        &mut self,
        now_s: u32,
        target: &Target<'_>,
        (kind, expiry): (Kind, Expiry),
        value: &[u8],
        out: &mut Replies,
    ) {
        let written = match (expire_at(now_s, expiry, target.found.as_ref()), target.found) {
            (Some(expire_s), _) => self.write(target, &New { value, kind, expire_s, slack: 0 }),
            (None, Some(found)) => {
                self.remove(target.hash, &found);
                Ok(0)
            }
            (None, None) => Ok(0),
        };
        match written {
            Ok(version) => out.push_value(Reply { version, ..Reply::of(Outcome::Done) }, value),
            Err(outcome) => out.push(Reply::of(outcome)),
        }
    }

    /// Sets several keys if none of them is there (MSETNX): all, or none. Keys of one shard only.
    pub fn set_all_if_absent(&mut self, now_s: u32, pairs: &[(&[u8], &[u8])]) -> Outcome {
        let is_there = |shard: &mut Shard, key: &[u8]| shard.target(now_s, key).found.is_some();
        if pairs.iter().any(|(key, _)| is_there(self, key)) {
            return Outcome::Unmet;
        }
        for (index, (key, value)) in pairs.iter().enumerate() {
            let target = self.target(now_s, key); // a key may be named twice: the last value counts
            let new = New { value, kind: Kind::String, expire_s: 0, slack: 0 };
            if let Err(outcome) = self.write(&target, &new) {
                pairs[..index].iter().for_each(|(key, _)| self.forget(now_s, key));
                return outcome;
            }
        }
        Outcome::Done
    }

    fn forget(&mut self, now_s: u32, key: &[u8]) {
        let target = self.target(now_s, key);
        if let Some(found) = target.found {
            self.remove(target.hash, &found);
        }
    }

    /// Gives a key the word that replication keeps with it (E7), in a shard with versions. Whether the key is there.
    pub fn set_meta(&mut self, now_s: u32, key: &[u8], meta: u64) -> bool {
        let target = self.target(now_s, key);
        if let Some(found) = target.found {
            self.items.set_meta(found.place, meta);
        }
        target.found.is_some()
    }
}
