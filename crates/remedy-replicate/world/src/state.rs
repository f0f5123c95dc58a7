//! The state of a member of this world: numbers by key, and a storage that is behind.
//!
//! Invariant: what storage holds is the state after some write, with everything before it.

use crate::device::is_owed;
use crate::model::Op;
use scotfree_core::{SeqNum, SessionId};
use scotfree_state::{
    request_of, Applied, DamagedSnapshot, Facts, Installed, Mark, Placed, Results, ResultsLimits, State,
    Touches, Version,
};
use std::collections::{BTreeMap, VecDeque};

/// All that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The last write applied, in the order of a chain.
    pub mark: Mark,
    /// How many writes were installed.
    pub installed: u64,
    /// The numbers.
    pub numbers: BTreeMap<u8, u64>,
    /// Their versions, where keys are ordered each by itself.
    pub versions: BTreeMap<u8, Version>,
    /// What writes were answered.
    pub results: Results,
    /// Of each session behind a device, by the first byte of its name, its writes as they were executed.
    pub sessions: BTreeMap<u8, Vec<u64>>,
}

impl Kept {
    /// Nothing.
    pub fn new() -> Kept {
        Kept {
            mark: Mark(0),
            installed: 0,
            numbers: BTreeMap::new(),
            versions: BTreeMap::new(),
            results: Results::new(ResultsLimits::default()),
            sessions: BTreeMap::new(),
        }
    }
}

impl Kept {
    /// How many writes it was made by.
    pub fn progress(&self) -> u64 {
        self.mark.0 + self.installed
    }
}

impl Default for Kept {
    fn default() -> Self {
        Kept::new()
    }
}

/// How many writes storage may lack before nothing new is begun.
const STORING_MAX: usize = 6;

/// A state whose storage is told by the world when it has gone on.
#[derive(Debug)]
pub(crate) struct SimState {
    pub(crate) kept: Kept,
    /// What storage holds.
    pub(crate) stored: Kept,
    /// What it has been given, by number.
    storing: VecDeque<(u64, Kept)>,
    number: u64,
    stable: u64,
}

impl SimState {
    pub(crate) fn open(stored: Kept) -> SimState {
        SimState { kept: stored.clone(), stored, storing: VecDeque::new(), number: 0, stable: 0 }
    }

    /// Whether storage has something to do.
    pub(crate) fn wants_storing(&self) -> Option<u64> {
        self.storing.back().map(|(number, _)| *number)
    }

    /// Storage has what it was given up to this number.
    pub(crate) fn note_stored(&mut self, through: u64) {
        while self.storing.front().is_some_and(|(number, _)| *number <= through) {
            let Some((number, kept)) = self.storing.pop_front() else { return };
            (self.stable, self.stored) = (number, kept);
        }
    }

    fn store(&mut self) -> u64 {
        self.number += 1;
        self.storing.push_back((self.number, self.kept.clone()));
        self.number
    }
}

pub(crate) fn reply_bytes(reply: &[u64]) -> Vec<u8> {
    reply.iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub(crate) fn read_reply(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
}

impl State for SimState {
    fn facts(&mut self, op: &[u8]) -> Facts {
        let op = Op::read(op).expect("clients send operations");
        let keys = op.keys();
        let touches = if keys.len() == 1 { Touches::One(keys) } else { Touches::Several };
        Facts { touches, is_blind: matches!(op, Op::Set(..)) }
    }

    fn query(&mut self, op: &[u8], reply: &mut Vec<u8>) -> bool {
        let op = Op::read(op).expect("clients send operations");
        assert!(op.is_read());
        reply.extend(reply_bytes(&op.run(&mut self.kept.numbers)));
        false
    }

    fn apply(&mut self, placed: &Placed<'_>, reply: &mut Vec<u8>) -> Applied {
        assert_eq!(placed.mark.0, self.kept.mark.0 + 1, "marks grow by one");
        let op = Op::read(placed.op).expect("clients send operations");
        let (answer, has_room) = op.try_run(&mut self.kept.numbers);
        let answer = reply_bytes(&answer);
        if is_owed(&placed.identity) {
            let (name, place) = request_of(&placed.identity);
            self.kept.sessions.entry(name[0]).or_default().push(place);
        }
        self.kept.mark = placed.mark;
        self.kept.results.note(&placed.identity, placed.at_ms, &answer);
        reply.extend(answer);
        Applied { number: self.store(), is_refused: !has_room }
    }

    fn mark(&self) -> Mark {
        self.kept.mark
    }

    fn progress(&self) -> u64 {
        self.kept.progress()
    }

    fn stable(&self) -> u64 {
        self.stable
    }

    fn has_room(&self) -> bool {
        self.storing.len() < STORING_MAX
    }

    fn results(&self) -> &Results {
        &self.kept.results
    }

    fn version(&self, key: &[u8]) -> Version {
        self.kept.versions.get(&key[0]).copied().unwrap_or_default()
    }

    fn try_write(&mut self, op: &[u8], reply: &mut Vec<u8>, value: &mut Vec<u8>) -> (bool, bool) {
        let op = Op::read(op).expect("clients send operations");
        let mut numbers = self.kept.numbers.clone();
        let (answer, has_room) = op.try_run(&mut numbers);
        reply.extend(reply_bytes(&answer));
        let number = numbers.get(&op.keys()[0]);
        value.extend(number.iter().flat_map(|number| number.to_le_bytes()));
        (number.is_some(), !has_room)
    }

    fn value(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        let number = self.kept.numbers.get(&key[0]);
        out.extend(number.iter().flat_map(|number| number.to_le_bytes()));
        number.is_some()
    }

    fn install(&mut self, installed: &Installed<'_>) -> Applied {
        let key = installed.key[0];
        if installed.version > self.version(&[key]) {
            self.kept.versions.insert(key, installed.version);
            match installed.value {
                Some(value) => drop(self.kept.numbers.insert(key, read_reply(value)[0])),
                None => drop(self.kept.numbers.remove(&key)),
            }
        }
        self.kept.installed += 1;
        self.kept.results.note(&installed.identity, installed.at_ms, installed.reply);
        Applied { number: self.store(), is_refused: false }
    }

    fn write_snapshot(&self, out: &mut Vec<u8>) {
        out.extend(self.kept.mark.0.to_le_bytes());
        out.extend(self.kept.installed.to_le_bytes());
        for numbers in [self.kept.numbers.len(), self.kept.versions.len()] {
            out.push(numbers as u8);
        }
        for (key, number) in &self.kept.numbers {
            out.push(*key);
            out.extend(number.to_le_bytes());
        }
        for (key, version) in &self.kept.versions {
            out.push(*key);
            out.extend(version.counter.to_le_bytes());
            out.extend(version.member.to_le_bytes());
        }
        out.push(self.kept.sessions.len() as u8);
        for (name, places) in &self.kept.sessions {
            out.extend([*name, places.len() as u8]);
            out.extend(places.iter().flat_map(|place| place.to_le_bytes()));
        }
        self.kept.results.write(out);
    }

    fn read_snapshot(&mut self, bytes: &[u8]) -> Result<Applied, DamagedSnapshot> {
        self.kept = read_kept(bytes).ok_or_else(|| DamagedSnapshot("it is cut".to_owned()))?;
        Ok(Applied { number: self.store(), is_refused: false })
    }

    fn take_place(&mut self, _session: SessionId, _seq: SeqNum) -> Applied {
        Applied { number: self.store(), is_refused: false }
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

fn read_kept(bytes: &[u8]) -> Option<Kept> {
    let (mark, rest) = bytes.split_first_chunk::<8>()?;
    let (installed, rest) = rest.split_first_chunk::<8>()?;
    let (counts, mut rest) = rest.split_first_chunk::<2>()?;
    let (mark, installed) = (Mark(u64::from_le_bytes(*mark)), u64::from_le_bytes(*installed));
    let mut kept = Kept { mark, installed, ..Kept::new() };
    for _ in 0..counts[0] {
        let (entry, after) = rest.split_first_chunk::<9>()?;
        kept.numbers.insert(entry[0], u64::from_le_bytes(entry[1..].try_into().ok()?));
        rest = after;
    }
    for _ in 0..counts[1] {
        let (entry, after) = rest.split_first_chunk::<11>()?;
        let counter = u64::from_le_bytes(entry[1..9].try_into().ok()?);
        kept.versions
            .insert(entry[0], Version { counter, member: u16::from_le_bytes([entry[9], entry[10]]) });
        rest = after;
    }
    let (count, mut rest) = rest.split_first()?;
    for _ in 0..*count {
        let (&[name, length], after) = rest.split_first_chunk::<2>()?;
        let (places, after) = after.split_at_checked(usize::from(length) * 8)?;
        kept.sessions.insert(name, read_reply(places));
        rest = after;
    }
    let (results, rest) = Results::read(ResultsLimits::default(), rest)?;
    kept.results = results;
    rest.is_empty().then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_that_is_behind_has_no_room() {
        let mut state = SimState::open(Kept::new());
        for number in 1..=STORING_MAX as u64 {
            assert!(state.has_room());
            state.take_place(SessionId(1), SeqNum(number));
        }
        assert!(!state.has_room());
        state.note_stored(1);
        assert!(state.has_room());
    }
}
