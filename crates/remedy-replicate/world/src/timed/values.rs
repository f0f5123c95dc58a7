//! The state of a member in simulated time: values by key, in memory only.
//!
//! Invariant: a key that nobody has set holds zeros, as many as every value has bytes.

use scotfree_core::{SeqNum, SessionId};
use scotfree_state::{
    Applied, DamagedSnapshot, Facts, Installed, Mark, Placed, Results, ResultsLimits, State, Touches, Version,
};
use std::collections::BTreeMap;

/// The size of what precedes an operation's value: which one it is, and its key.
const HEAD_BYTES: usize = 1 + KEY_BYTES;
const KEY_BYTES: usize = 8;
const GET: u8 = 0;
const SET: u8 = 1;

/// What a SET is answered.
const DONE: &[u8] = b"+OK";

/// The bytes of a read.
pub(super) fn get(key: u64) -> Vec<u8> {
    [&[GET], &key.to_le_bytes()[..]].concat()
}

/// The bytes of a write.
pub(super) fn set(key: u64, value_bytes: usize) -> Vec<u8> {
    let mut op = [&[SET], &key.to_le_bytes()[..]].concat();
    op.resize(HEAD_BYTES + value_bytes, 1);
    op
}

fn split(op: &[u8]) -> (&[u8], &[u8]) {
    (&op[1..HEAD_BYTES], &op[HEAD_BYTES..])
}

/// Values by key, with their versions.
#[derive(Debug)]
pub(super) struct Values {
    value_bytes: usize,
    by_key: BTreeMap<Vec<u8>, (Version, Vec<u8>)>,
    mark: Mark,
    taken: u64,
    results: Results,
}

impl Values {
    pub(super) fn new(value_bytes: usize) -> Values {
        let results = Results::new(ResultsLimits::default());
        Values { value_bytes, by_key: BTreeMap::new(), mark: Mark(0), taken: 0, results }
    }

    fn put(&mut self, key: &[u8], version: Version, value: &[u8]) {
        self.by_key.insert(key.to_vec(), (version, value.to_vec()));
    }

    fn applied(&mut self) -> Applied {
        self.taken += 1;
        Applied { number: self.taken, is_refused: false }
    }
}

impl State for Values {
    fn facts(&mut self, op: &[u8]) -> Facts {
        Facts { touches: Touches::One(split(op).0.to_vec()), is_blind: op[0] == SET }
    }

    fn query(&mut self, op: &[u8], reply: &mut Vec<u8>) -> bool {
        self.value(split(op).0, reply);
        false
    }

    fn apply(&mut self, placed: &Placed<'_>, reply: &mut Vec<u8>) -> Applied {
        let (key, value) = split(placed.op);
        self.put(key, Version::default(), value);
        self.mark = placed.mark;
        self.results.note(&placed.identity, placed.at_ms, DONE);
        reply.extend(DONE);
        self.applied()
    }

    fn take_place(&mut self, _session: SessionId, _seq: SeqNum) -> Applied {
        self.applied()
    }

    fn mark(&self) -> Mark {
        self.mark
    }

    fn progress(&self) -> u64 {
        self.taken
    }

    /// All of it lies where it is to lie.
    fn stable(&self) -> u64 {
        self.taken
    }

    fn has_room(&self) -> bool {
        true
    }

    fn results(&self) -> &Results {
        &self.results
    }

    fn version(&self, key: &[u8]) -> Version {
        self.by_key.get(key).map_or(Version::default(), |(version, _)| *version)
    }

    fn try_write(&mut self, op: &[u8], reply: &mut Vec<u8>, value: &mut Vec<u8>) -> (bool, bool) {
        reply.extend(DONE);
        value.extend(split(op).1);
        (true, false)
    }

    fn value(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        match self.by_key.get(key) {
            Some((_, value)) => out.extend(value),
            None => out.resize(out.len() + self.value_bytes, 0),
        }
        true
    }

    fn install(&mut self, installed: &Installed<'_>) -> Applied {
        if let Some(value) = installed.value.filter(|_| installed.version > self.version(installed.key)) {
            self.put(installed.key, installed.version, value);
        }
        self.results.note(&installed.identity, installed.at_ms, installed.reply);
        self.applied()
    }

    /// A member of Hermes begins with what another has; that is before anybody has written.
    fn write_snapshot(&self, out: &mut Vec<u8>) {
        assert!(self.by_key.is_empty(), "nobody joins in simulated time");
        out.push(0);
    }

    fn read_snapshot(&mut self, _bytes: &[u8]) -> Result<Applied, DamagedSnapshot> {
        Ok(self.applied())
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}
