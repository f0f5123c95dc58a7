//! An etcd that is a table in memory, with leases by the world's time.
//!
//! Invariant: a lease ends no earlier than its time after it was asked for, by the clock of the leader that is asked,
//! and takes its keys with it. A leader of an earlier term ends leases when it likes, of those granted until its end.

use super::*;
use crate::form::ViewForm;

pub(super) struct Table {
    keys: BTreeMap<String, Entry>,
    leases: BTreeMap<i64, Lease>,
    /// All that were ever granted: in which term, and how long they are.
    granted: BTreeMap<i64, (u64, Nanos)>,
    term: u64,
    revision: i64,
    lease_last: i64,
    /// Of etcd's clock: parts of a million that it makes of one.
    pub(super) rate: u64,
}

struct Lease {
    ttl: Nanos,
    end: Nanos,
    /// How much later etcd looks.
    delay: Nanos,
}

pub(super) fn entry(key: &str, value: &str) -> Entry {
    Entry { key: key.to_owned(), value: value.to_owned(), made: 1, written: 1, lease: 0 }
}

impl Table {
    pub(super) fn new(group: &str) -> Table {
        let keys = BTreeMap::from([("group".to_owned(), entry("group", group))]);
        Table {
            keys,
            leases: BTreeMap::new(),
            granted: BTreeMap::new(),
            term: 1,
            revision: 1,
            lease_last: 0,
            rate: 1_000_000,
        }
    }

    pub(super) fn view(&self) -> Option<View> {
        let form: ViewForm = serde_json::from_str(&self.keys.get("view")?.value).unwrap();
        Some(form.view().unwrap())
    }

    /// The life whose sign is there.
    pub(super) fn boot(&self, id: MemberId) -> Option<u32> {
        let live: Live = serde_json::from_str(&self.keys.get(&live_key(id))?.value).unwrap();
        Some(live.boot)
    }

    /// `delay`: how much later than a new or prolonged lease's end etcd looks for it.
    pub(super) fn answer(&mut self, now: Nanos, request: &Request, delay: Nanos) -> Answer {
        match request {
            Request::Look => {
                let entries = self.keys.values().cloned().collect();
                Answer::Looked { entries, term: self.term }
            }
            Request::Grant { ttl_seconds } => {
                self.lease_last += 1;
                let ttl = Nanos::from_secs(*ttl_seconds);
                let lease = Lease { ttl, end: self.end(now, ttl), delay };
                self.leases.insert(self.lease_last, lease);
                self.granted.insert(self.lease_last, (self.term, ttl));
                Answer::Granted { lease: self.lease_last, ttl_seconds: *ttl_seconds }
            }
            Request::KeepAlive { lease } => self.keep_alive(now, *lease, delay),
            Request::Revoke { lease } => {
                self.leases.remove(lease);
                self.expire(now);
                Answer::Revoked
            }
            Request::Swap(swap) => self.swap(swap),
        }
    }

    fn end(&self, now: Nanos, ttl: Nanos) -> Nanos {
        now.plus(Clock { offset: 0, rate: self.rate }.world(ttl))
    }

    fn keep_alive(&mut self, now: Nanos, lease: i64, delay: Nanos) -> Answer {
        let ttl = self.leases.get(&lease).filter(|lease| now < lease.end).map(|lease| lease.ttl);
        let Some(ttl) = ttl else { return Answer::KeptAlive { ttl_seconds: 0 } };
        let end = self.end(now, ttl);
        self.leases.insert(lease, Lease { ttl, end, delay });
        Answer::KeptAlive { ttl_seconds: ttl.0 / 1_000_000_000 }
    }

    fn swap(&mut self, swap: &Swap) -> Answer {
        let lease = swap.lease.unwrap_or(0);
        if !swap.guards.iter().all(|guard| self.holds(guard)) {
            return Answer::Swapped(false);
        }
        if lease != 0 && !self.leases.contains_key(&lease) {
            return Answer::LeaseOver;
        }
        self.revision += 1;
        let (written, value) = (self.revision, swap.value.clone());
        let made = self.keys.get(&swap.key).map_or(written, |known| known.made);
        let entry = Entry { key: swap.key.clone(), value, made, written, lease };
        self.keys.insert(swap.key.clone(), entry);
        Answer::Swapped(true)
    }

    fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::Made { key, revision } => self.keys.get(key).map_or(0, |known| known.made) == *revision,
            Guard::Written { key, revision } => {
                self.keys.get(key).map_or(0, |known| known.written) == *revision
            }
        }
    }

    pub(super) fn next_end(&self) -> Option<Nanos> {
        self.leases.values().map(|lease| lease.end.plus(lease.delay)).min()
    }

    pub(super) fn expire(&mut self, now: Nanos) {
        self.leases.retain(|_, lease| now < lease.end.plus(lease.delay));
        let leases = &self.leases;
        self.keys.retain(|_, entry| entry.lease == 0 || leases.contains_key(&entry.lease));
    }

    /// What a leader of an earlier term says of a lease that it knows, whatever has become of it since.
    pub(super) fn keep_alive_by_stuck(&self, request: &Request) -> Option<Answer> {
        let Request::KeepAlive { lease } = request else { return None };
        let (_, ttl) = self.granted.get(lease).filter(|(term, _)| *term < self.term)?;
        Some(Answer::KeptAlive { ttl_seconds: ttl.0 / 1_000_000_000 })
    }

    /// Such a leader ends the leases that it knows: by its clock, which stood still, they are over.
    pub(super) fn revoke_of_earlier_terms(&mut self) {
        let (granted, term) = (&self.granted, self.term);
        self.leases.retain(|lease, _| granted.get(lease).is_some_and(|(of, _)| *of == term));
        let leases = &self.leases;
        self.keys.retain(|_, entry| entry.lease == 0 || leases.contains_key(&entry.lease));
    }

    /// What a new leader does.
    pub(super) fn begin_term(&mut self, now: Nanos) {
        self.term += 1;
        let rate = self.rate;
        for lease in self.leases.values_mut() {
            lease.end = lease.end.max(now.plus(Clock { offset: 0, rate }.world(lease.ttl)));
        }
    }
}
