//! Expiry by absolute time: when it is set, and the sweeper, which finds what nobody reads.
//!
//! Invariant: nothing that has expired is read (E4), whether or not the sweeper has come by. A bucket's word says a
//! time not later than the first expiry in it.

use super::execute::expire_at;
use super::{Found, Shard, Target};
use crate::item::is_expired;
use crate::op::{ExpireIf, Expiry};
use crate::reply::{Outcome, Replies, Reply};

impl Shard {
    pub(super) fn expire(
        &mut self,
        now_s: u32,
        target: &Target<'_>,
        expiry: Expiry,
        condition: ExpireIf,
        out: &mut Replies,
    ) {
        let Some(found) = target.found else { return out.push(Reply::of(Outcome::Absent)) };
        let at = expire_at(now_s, expiry, Some(&found));
        if !may_change(condition, found.head.expire_s(), at) {
            return out.push(Reply::of(Outcome::Unmet));
        }
        self.set_expiry(target.hash, &found, at);
        out.push(Reply::of(Outcome::Done));
    }

    /// Has a key expire then; `None` for at once.
    pub(super) fn set_expiry(&mut self, hash: u64, found: &Found, at: Option<u32>) {
        let Some(at) = at else { return self.remove(hash, found) };
        self.items.set_expiry(found.place, at);
        self.index.note_expiry(hash, at);
    }

    /// Removes what has expired from the next buckets, `buckets_max` at most. How many keys.
    ///
    /// A bucket in which nothing can have expired costs a look at its line and none at items.
    pub fn sweep(&mut self, now_s: u32, buckets_max: u64) -> u64 {
        let before = self.expired_count;
        for _ in 0..buckets_max.min(self.index.buckets()) {
            if self.swept >= self.index.buckets() {
                self.swept = 0;
            }
            self.index.prefetch_bucket(self.swept + 8);
            let earliest = self.index.earliest(self.swept);
            if is_expired(earliest, now_s) {
                self.sweep_bucket(now_s, self.swept);
            }
            self.swept += 1;
        }
        self.expired_count - before
    }

    fn sweep_bucket(&mut self, now_s: u32, bucket: u64) {
        let mut places = std::mem::take(&mut self.sweeping);
        self.index.for_each_of(bucket, |place| {
            self.items.prefetch(place);
            places.push(place);
        });
        let mut earliest = 0;
        for place in places.drain(..) {
            let head = self.items.head(place);
            let expire_s = head.expire_s();
            if is_expired(expire_s, now_s) {
                let hash = self.hash.of(self.items.key(place, &head));
                let (spot, place, ()) = self
                    .index
                    .find(hash, |at| (at == place).then_some(()))
                    .expect("the bucket has named the place");
                self.remove_expired(hash, &Found { spot, place, head });
            } else if expire_s != 0 && (earliest == 0 || expire_s < earliest) {
                earliest = expire_s;
            }
        }
        self.index.set_earliest(bucket, earliest);
        self.sweeping = places;
    }
}

/// Whether an expiry may be changed; never is 0, and later than any other.
fn may_change(condition: ExpireIf, before: u32, after: Option<u32>) -> bool {
    let rank = |at: u32| if at == 0 { u64::MAX } else { u64::from(at) };
    let after = after.map_or(0, rank); // what is past is earlier than all
    match condition {
        ExpireIf::Always => true,
        ExpireIf::None => before == 0,
        ExpireIf::Some => before != 0,
        ExpireIf::Later => after > rank(before),
        ExpireIf::Earlier => after < rank(before),
    }
}
