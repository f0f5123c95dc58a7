//! A warehouse's lock: a key that only one can set while it is not there.
//!
//! Invariant: it is given back behind all that was written under it, on the same connection, and the next
//! holder has it only when that has been executed.

use super::{Release, TpccClient};
use crate::transactions::{Failure, Store};
use scotfree_stage::resp::Reply;

/// A holder that dies keeps the others waiting so long.
const TIME_TO_LIVE_MS: &str = "30000";
const DELETE_OWN: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A lock that is held.
#[derive(Debug)]
pub(super) struct Lock {
    key: String,
    token: String,
}

impl Lock {
    /// Who holds it: another each time.
    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

impl TpccClient {
    /// Asks for a warehouse's lock until it is free.
    pub(super) fn lock(&mut self, warehouse: u32, store: &mut Store) -> Result<Lock, Failure> {
        let key = self.tpcc.of_warehouse("lock", warehouse);
        self.locks_taken += 1;
        let token = format!("{}-{}", self.number, self.locks_taken);
        while store.call(&["SET", &key, &token, "NX", "PX", TIME_TO_LIVE_MS])? == Reply::Null {
            self.locks_refused += 1;
        }
        Ok(Lock { key, token })
    }

    /// Gives it back, behind what was pushed before, and waits for all of that.
    pub(super) fn unlock(&mut self, lock: &Lock, store: &mut Store) -> Result<(), Failure> {
        match self.tpcc.release {
            Release::Delete => store.push(&["DEL", &lock.key])?,
            Release::Script => store.push(&["EVAL", DELETE_OWN, "1", &lock.key, &lock.token])?,
        }
        let released = store.replies()?.pop();
        self.findings.compare("the count of locks given back", &released, &Some(Reply::Integer(1)));
        Ok(())
    }
}
