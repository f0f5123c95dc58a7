//! What each verb does.
//!
//! Invariant: each operation gets one reply, and one that is not `Done` has changed nothing.

use super::{Found, New, Shard, Target};
use crate::item::Kind;
use crate::op::{Condition, Expiry, Op, Verb};
use crate::reply::{Outcome, Replies, Reply};

impl Shard {
    /// All but what [`Shard::run_batch`] has done by itself.
    pub(super) fn execute_other(
        &mut self,
        now_s: u32,
        op: &Op<'_>,
        hash: u64,
        found: Option<Found>,
        out: &mut Replies,
    ) {
        let target = Target { hash, key: op.key, found };
        match op.verb {
            Verb::Set(set) => self.set(now_s, &target, &set, out),
            Verb::Get => self.get(&target, out),
            Verb::GetExpire(expiry) => self.get_expire(now_s, &target, expiry, out),
            Verb::GetDelete => self.get_delete(&target, out),
            Verb::GetRange(from, to) => self.get_range(&target, from, to, out),
            Verb::Exists => out.push(self.if_there(&target, |_, _| Reply::of(Outcome::Done))),
            Verb::Length => Shard::length(&target, out),
            Verb::Kind => {
                out.push(self.if_there(&target, |_, found| Reply::number(found.head.kind() as i64)));
            }
            Verb::Append(bytes, condition) => self.append(&target, bytes, condition, out),
            Verb::Prepend(bytes, condition) => self.prepend(&target, bytes, condition, out),
            Verb::SetRange(from, bytes) => self.set_range(&target, from, bytes, out),
            Verb::Add(by) => self.add(&target, by, out),
            Verb::AddUnsigned(by) => self.add_unsigned(&target, by, u64::wrapping_add, out),
            Verb::SubtractUnsigned(by) => self.add_unsigned(&target, by, u64::saturating_sub, out),
            Verb::Delete(condition) => self.delete(&target, condition, out),
            Verb::Expire(expiry, condition) => self.expire(now_s, &target, expiry, condition, out),
            Verb::Ttl => out.push(self.if_there(&target, |_, found| ttl(now_s, found))),
            Verb::Update(make) => self.update_target(now_s, &target, make, out),
            Verb::HashSet(fields) => self.hash_set(&target, fields, out),
            Verb::HashSetNew(field) => self.hash_set_new(&target, field, out),
            Verb::HashGet(field) => self.hash_get(&target, field, out),
            Verb::HashGetMany(fields) => self.hash_get_many(&target, fields, out),
            Verb::HashGetAll => self.hash_get_all(&target, out),
            Verb::HashExists(field) => self.hash_exists(&target, field, out),
            Verb::HashDelete(fields) => self.hash_delete(&target, fields, out),
            Verb::HashLength => self.hash_length(&target, out),
            Verb::HashAdd(field, by) => self.hash_add(&target, field, by, out),
        }
    }

    /// The reply of `of` where there is such a key.
    fn if_there(&self, target: &Target<'_>, of: impl FnOnce(&Shard, &Found) -> Reply) -> Reply {
        target.found.as_ref().map_or(Reply::of(Outcome::Absent), |found| of(self, found))
    }

    /// Whether the condition is met, or with what the operation is refused.
    pub(super) fn check(&self, target: &Target<'_>, condition: Condition) -> Result<(), Outcome> {
        match (condition, &target.found) {
            (Condition::IfVersion(_) | Condition::IfPresent, None) => Err(Outcome::Absent),
            (Condition::IfAbsent, Some(_)) => Err(Outcome::Unmet),
            (Condition::IfVersion(version), Some(found)) if self.items.meta(found.place) != version => {
                Err(Outcome::Unmet)
            }
            _ => Ok(()),
        }
    }

    /// What is there, if it is of that kind.
    pub(super) fn of_kind(target: &Target<'_>, kind: Kind) -> Result<Option<Found>, Outcome> {
        match target.found {
            Some(found) if found.head.kind() != kind => Err(Outcome::WrongKind),
            found => Ok(found),
        }
    }

    /// A value as it was, with another content.
    pub(super) fn rewrite(
        &mut self,
        target: &Target<'_>,
        kind: Kind,
        value: &[u8],
        slack: usize,
    ) -> Result<u64, Outcome> {
        let expire_s = target.found.map_or(0, |found| found.head.expire_s());
        self.write(target, &New { value, kind, expire_s, slack })
    }

    fn delete(&mut self, target: &Target<'_>, condition: Condition, out: &mut Replies) {
        if let Err(outcome) = self.check(target, condition) {
            return out.push(Reply::of(outcome));
        }
        let Some(found) = target.found else { return out.push(Reply::of(Outcome::Absent)) };
        self.remove(target.hash, &found);
        out.push(Reply::of(Outcome::Done));
    }
}

/// How long a key has, in seconds.
fn ttl(now_s: u32, found: &Found) -> Reply {
    match found.head.expire_s() {
        0 => Reply::number(-1),
        at => Reply::number(i64::from(at) - i64::from(now_s)),
    }
}

/// When something expires that was to expire so; `None` if that is past.
pub(super) fn expire_at(now_s: u32, expiry: Expiry, found: Option<&Found>) -> Option<u32> {
    match expiry {
        Expiry::Keep => Some(found.map_or(0, |found| found.head.expire_s())),
        Expiry::Never => Some(0),
        Expiry::At(at) => (at > now_s).then_some(at),
        Expiry::In(seconds) => (seconds > 0).then(|| now_s.saturating_add(seconds)),
    }
}
