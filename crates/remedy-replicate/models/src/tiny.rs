//! The state of a member of a model: a few numbers, all of it in memory.
//!
//! Invariant: what is here is all that what follows depends on, so that its hash tells two states apart.

use crate::number::{Ask, Number};
use scotfree_core::{SeqNum, SessionId};
use scotfree_state::{
    request_of, Applied, DamagedSnapshot, Facts, Installed, Known, Mark, Placed, Results, ResultsLimits,
    State, Touches, Version,
};
use scotfree_wire::Identity;
use stateright::semantics::SequentialSpec;
use std::collections::BTreeMap;

/// A request: its client, and its place among that client's requests.
pub(crate) type Request = ([u8; 16], u64);

/// Numbers by key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tiny {
    numbers: BTreeMap<u8, Number>,
    versions: BTreeMap<u8, Version>,
    /// What was applied, where there is one order.
    applied: Vec<Request>,
    results: Results,
    /// How many writes it has taken.
    number: u64,
}

impl Default for Tiny {
    fn default() -> Self {
        Tiny {
            numbers: BTreeMap::new(),
            versions: BTreeMap::new(),
            applied: Vec::new(),
            results: Results::new(ResultsLimits::default()),
            number: 0,
        }
    }
}

impl Tiny {
    pub(crate) fn applied(&self) -> &[Request] {
        &self.applied
    }

    pub(crate) fn numbers(&self) -> &BTreeMap<u8, Number> {
        &self.numbers
    }

    pub(crate) fn versions(&self) -> &BTreeMap<u8, Version> {
        &self.versions
    }

    /// Whether a request's answer is here.
    pub(crate) fn has_answer(&self, (client, number): Request) -> bool {
        matches!(self.results.look(&Identity { client, number }, 0), Known::Answered(_))
    }

    fn take(&mut self) -> Applied {
        self.number += 1;
        Applied { number: self.number, is_refused: false }
    }

    fn run(&self, ask: Ask) -> (Number, u8) {
        let mut number = self.numbers.get(&ask.key()).copied().unwrap_or_default();
        let reply = number.invoke(&ask);
        (number, reply)
    }
}

impl State for Tiny {
    fn facts(&mut self, op: &[u8]) -> Facts {
        let ask = Ask::read(op);
        Facts { touches: Touches::One(vec![ask.key()]), is_blind: matches!(ask, Ask::Set(..)) }
    }

    fn query(&mut self, op: &[u8], reply: &mut Vec<u8>) -> bool {
        reply.push(self.run(Ask::read(op)).1);
        false
    }

    fn apply(&mut self, placed: &Placed<'_>, reply: &mut Vec<u8>) -> Applied {
        let ask = Ask::read(placed.op);
        let (number, answer) = self.run(ask);
        self.numbers.insert(ask.key(), number);
        self.applied.push(request_of(&placed.identity));
        self.results.note(&placed.identity, placed.at_ms, &[answer]);
        reply.push(answer);
        self.take()
    }

    fn take_place(&mut self, _session: SessionId, _seq: SeqNum) -> Applied {
        self.take()
    }

    fn mark(&self) -> Mark {
        Mark(self.applied.len() as u64)
    }

    fn progress(&self) -> u64 {
        self.applied.len() as u64 + self.versions.values().map(|version| version.counter).sum::<u64>()
    }

    fn stable(&self) -> u64 {
        self.number
    }

    fn has_room(&self) -> bool {
        true
    }

    fn results(&self) -> &Results {
        &self.results
    }

    fn version(&self, key: &[u8]) -> Version {
        self.versions.get(&key[0]).copied().unwrap_or_default()
    }

    fn try_write(&mut self, op: &[u8], reply: &mut Vec<u8>, value: &mut Vec<u8>) -> (bool, bool) {
        let (number, answer) = self.run(Ask::read(op));
        reply.push(answer);
        value.push(number.0);
        (true, false)
    }

    fn value(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        let number = self.numbers.get(&key[0]);
        out.extend(number.map(|number| number.0));
        number.is_some()
    }

    fn install(&mut self, installed: &Installed<'_>) -> Applied {
        let key = installed.key[0];
        if installed.version > self.version(&[key]) {
            self.versions.insert(key, installed.version);
            match installed.value {
                Some(value) => drop(self.numbers.insert(key, Number(value[0]))),
                None => drop(self.numbers.remove(&key)),
            }
        }
        self.results.note(&installed.identity, installed.at_ms, installed.reply);
        self.take()
    }

    fn write_snapshot(&self, out: &mut Vec<u8>) {
        out.extend([self.numbers.len(), self.versions.len(), self.applied.len()].map(|count| count as u8));
        for (key, number) in &self.numbers {
            out.extend([*key, number.0]);
        }
        for (key, version) in &self.versions {
            out.push(*key);
            out.extend(version.counter.to_le_bytes());
            out.extend(version.member.to_le_bytes());
        }
        for (client, count) in &self.applied {
            out.extend(client);
            out.extend(count.to_le_bytes());
        }
        self.results.write(out);
    }

    fn read_snapshot(&mut self, bytes: &[u8]) -> Result<Applied, DamagedSnapshot> {
        let taken = read(bytes).ok_or_else(|| DamagedSnapshot("it is cut".to_owned()))?;
        *self = Tiny { number: self.number, ..taken };
        Ok(self.take())
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

fn read(bytes: &[u8]) -> Option<Tiny> {
    let (&[numbers, versions, applied], mut rest) = bytes.split_first_chunk::<3>()?;
    let mut tiny = Tiny::default();
    for _ in 0..numbers {
        let (&[key, number], after) = rest.split_first_chunk::<2>()?;
        tiny.numbers.insert(key, Number(number));
        rest = after;
    }
    for _ in 0..versions {
        let (entry, after) = rest.split_first_chunk::<11>()?;
        let counter = u64::from_le_bytes(entry[1..9].try_into().ok()?);
        let version = Version { counter, member: u16::from_le_bytes([entry[9], entry[10]]) };
        tiny.versions.insert(entry[0], version);
        rest = after;
    }
    for _ in 0..applied {
        let (entry, after) = rest.split_first_chunk::<24>()?;
        tiny.applied.push((entry[..16].try_into().ok()?, u64::from_le_bytes(entry[16..].try_into().ok()?)));
        rest = after;
    }
    (tiny.results, rest) = Results::read(ResultsLimits::default(), rest)?;
    rest.is_empty().then_some(tiny)
}
