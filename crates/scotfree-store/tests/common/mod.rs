//! The reference: a map of the standard library that does, one by one, what a shard is asked to do.
#![allow(dead_code)] // each test uses a part

use scotfree_store::{
    fields, Change, Condition, ExpireIf, Expiry, Field, Kind, Old, Op, Options, Outcome, Planted, Replies,
    Seed, Set, Shard, Verb,
};
use std::collections::BTreeMap;

/// What a reply says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub outcome: Outcome,
    pub value: Option<Vec<u8>>,
    pub number: i64,
}

impl Answer {
    fn of(outcome: Outcome) -> Answer {
        Answer { outcome, value: None, number: 0 }
    }

    fn number(number: i64) -> Answer {
        Answer { number, ..Answer::of(Outcome::Done) }
    }

    fn value(value: &[u8]) -> Answer {
        Answer { value: Some(value.to_vec()), ..Answer::of(Outcome::Done) }
    }
}

/// The answers in `replies`. Packed fields are put in order, since that is nobody's business.
pub fn answers(replies: &Replies) -> Vec<Answer> {
    let answer = |(reply, value): (&scotfree_store::Reply, Option<&[u8]>)| Answer {
        outcome: reply.outcome,
        value: value.map(<[u8]>::to_vec),
        number: reply.number,
    };
    replies.iter().map(answer).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    String(Vec<u8>),
    /// In the order in which they came.
    Hash(Fields),
}

/// Fields with their values.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The reference.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub map: BTreeMap<Vec<u8>, (Value, u32)>,
    /// Until when what has expired is gone.
    expired_s: u32,
}

fn packed(all: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut bytes = (all.len() as u32).to_le_bytes().to_vec();
    for (field, value) in all {
        bytes.extend_from_slice(&(field.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&value.as_ref().map_or(u32::MAX, |value| value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(field);
        bytes.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    bytes
}

impl Model {
    pub fn expire(&mut self, now_s: u32) {
        if now_s != self.expired_s {
            self.map.retain(|_, (_, at)| *at == 0 || *at > now_s);
            self.expired_s = now_s;
        }
    }

    fn at(&self, now_s: u32, key: &[u8], expiry: Expiry) -> Option<u32> {
        match expiry {
            Expiry::Keep => Some(self.map.get(key).map_or(0, |(_, at)| *at)),
            Expiry::Never => Some(0),
            Expiry::At(at) => (at > now_s).then_some(at),
            Expiry::In(seconds) => (seconds > 0).then(|| now_s.saturating_add(seconds)),
        }
    }

    fn put(&mut self, key: &[u8], value: Value, at: Option<u32>) {
        match at {
            Some(at) => drop(self.map.insert(key.to_vec(), (value, at))),
            None => drop(self.map.remove(key)),
        }
    }

    fn check(&self, key: &[u8], condition: Condition) -> Result<(), Answer> {
        match (condition, self.map.contains_key(key)) {
            (Condition::IfPresent | Condition::IfVersion(_), false) => Err(Answer::of(Outcome::Absent)),
            (Condition::IfAbsent, true) => Err(Answer::of(Outcome::Unmet)),
            _ => Ok(()),
        }
    }

    fn string(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Answer> {
        match self.map.get(key) {
            None => Ok(None),
            Some((Value::String(text), _)) => Ok(Some(text.clone())),
            Some((Value::Hash(_), _)) => Err(Answer::of(Outcome::WrongKind)),
        }
    }

    fn there(&self, key: &[u8]) -> Result<Vec<u8>, Answer> {
        self.string(key)?.ok_or(Answer::of(Outcome::Absent))
    }

    fn fields(&self, key: &[u8]) -> Result<Option<Fields>, Answer> {
        match self.map.get(key) {
            None => Ok(None),
            Some((Value::Hash(fields), _)) => Ok(Some(fields.clone())),
            Some((Value::String(_), _)) => Err(Answer::of(Outcome::WrongKind)),
        }
    }

    fn there_fields(&self, key: &[u8]) -> Result<Fields, Answer> {
        self.fields(key)?.ok_or(Answer::of(Outcome::Absent))
    }

    /// Does one operation.
    pub fn run(&mut self, now_s: u32, op: &Op<'_>) -> Answer {
        self.expire(now_s);
        self.try_run(now_s, op).unwrap_or_else(|refused| refused)
    }

    #[allow(clippy::too_many_lines)]
    fn try_run(&mut self, now_s: u32, op: &Op<'_>) -> Result<Answer, Answer> {
        let key = op.key;
        Ok(match op.verb {
            Verb::Get => Answer::value(&self.there(key)?),
            Verb::GetExpire(expiry) => {
                let text = self.there(key)?;
                let at = self.at(now_s, key, expiry);
                self.put(key, Value::String(text.clone()), at);
                Answer::value(&text)
            }
            Verb::GetDelete => {
                let text = self.there(key)?;
                self.map.remove(key);
                Answer::value(&text)
            }
            Verb::GetRange(from, to) => {
                let text = self.there(key)?;
                let length = text.len() as i64;
                let real = |at: i64| if at < 0 { (at + length).max(0) } else { at };
                let is_empty = from < 0 && to < 0 && from > to;
                let (from, to) = (real(from), real(to).min(length - 1));
                let cut = if is_empty || from > to { &[][..] } else { &text[from as usize..=to as usize] };
                Answer::value(cut)
            }
            Verb::Exists => {
                self.map.get(key).ok_or(Answer::of(Outcome::Absent))?;
                Answer::of(Outcome::Done)
            }
            Verb::Length => Answer::number(self.there(key)?.len() as i64),
            Verb::Kind => match self.map.get(key) {
                None => Answer::of(Outcome::Absent),
                Some((Value::String(_), _)) => Answer::number(0),
                Some((Value::Hash(_), _)) => Answer::number(1),
            },
            Verb::Set(Set { value, expiry, condition, returns_old }) => {
                let old = if returns_old { self.string(key)? } else { None };
                if let Err(refused) = self.check(key, condition) {
                    return Err(Answer { value: old, ..refused });
                }
                let at = self.at(now_s, key, expiry);
                self.put(key, Value::String(value.to_vec()), at);
                Answer { value: old, ..Answer::of(Outcome::Done) }
            }
            Verb::Append(bytes, condition) => {
                self.check(key, condition)?;
                let mut text = self.string(key)?.unwrap_or_default();
                text.extend_from_slice(bytes);
                self.rewrite(key, Value::String(text.clone()));
                Answer::number(text.len() as i64)
            }
            Verb::Prepend(bytes, condition) => {
                self.check(key, condition)?;
                let text = [bytes, &self.string(key)?.unwrap_or_default()].concat();
                self.rewrite(key, Value::String(text.clone()));
                Answer::number(text.len() as i64)
            }
            Verb::SetRange(from, bytes) => {
                if bytes.is_empty() && !self.map.contains_key(key) {
                    return Ok(Answer::number(0));
                }
                let mut text = self.string(key)?.unwrap_or_default();
                if !bytes.is_empty() {
                    text.resize(text.len().max(from + bytes.len()), 0);
                    text[from..from + bytes.len()].copy_from_slice(bytes);
                }
                self.rewrite(key, Value::String(text.clone()));
                Answer::number(text.len() as i64)
            }
            Verb::Add(by) => {
                let sum = add(self.string(key)?.as_deref(), by)?;
                self.rewrite(key, Value::String(sum.to_string().into_bytes()));
                Answer::number(sum)
            }
            Verb::AddUnsigned(by) => self.unsigned(key, |number| number.wrapping_add(by))?,
            Verb::SubtractUnsigned(by) => self.unsigned(key, |number| number.saturating_sub(by))?,
            Verb::Delete(condition) => {
                self.check(key, condition)?;
                self.map.remove(key).ok_or(Answer::of(Outcome::Absent))?;
                Answer::of(Outcome::Done)
            }
            Verb::Expire(expiry, condition) => {
                let (value, before) = self.map.get(key).cloned().ok_or(Answer::of(Outcome::Absent))?;
                let after = self.at(now_s, key, expiry);
                let rank = |at: u32| if at == 0 { u64::MAX } else { u64::from(at) };
                let (old, new) = (rank(before), after.map_or(0, rank));
                let may = match condition {
                    ExpireIf::Always => true,
                    ExpireIf::None => before == 0,
                    ExpireIf::Some => before != 0,
                    ExpireIf::Later => new > old,
                    ExpireIf::Earlier => new < old,
                };
                if !may {
                    return Err(Answer::of(Outcome::Unmet));
                }
                self.put(key, value, after);
                Answer::of(Outcome::Done)
            }
            Verb::Ttl => match self.map.get(key) {
                None => Answer::of(Outcome::Absent),
                Some((_, 0)) => Answer::number(-1),
                Some((_, at)) => Answer::number(i64::from(*at) - i64::from(now_s)),
            },
            Verb::Update(make) => self.update(now_s, key, make),
            Verb::HashSet(set) => Answer::number(self.set_fields(key, set)?),
            Verb::HashSetNew(field) => {
                let all = self.fields(key)?.unwrap_or_default();
                if all.iter().any(|(name, _)| name == field.0) {
                    return Err(Answer::of(Outcome::Unmet));
                }
                Answer::number(self.set_fields(key, &[field])?)
            }
            Verb::HashGet(name) => {
                let all = self.there_fields(key)?;
                let value = all.iter().find(|(field, _)| field == name).ok_or(Answer::of(Outcome::Absent))?;
                Answer::value(&value.1)
            }
            Verb::HashGetMany(names) => {
                let all = self.there_fields(key)?;
                let of = |name: &&[u8]| {
                    let value = all.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone());
                    (name.to_vec(), value)
                };
                let found: Vec<_> = names.iter().map(of).collect();
                Answer { number: names.len() as i64, ..Answer::value(&packed(&found)) }
            }
            Verb::HashGetAll => {
                let all = self.there_fields(key)?;
                let some: Vec<_> =
                    all.iter().map(|(field, value)| (field.clone(), Some(value.clone()))).collect();
                Answer { number: all.len() as i64, ..Answer::value(&packed(&some)) }
            }
            Verb::HashExists(name) => {
                let all = self.there_fields(key)?;
                let is_there = all.iter().any(|(field, _)| field == name);
                Answer::of(if is_there { Outcome::Done } else { Outcome::Absent })
            }
            Verb::HashDelete(names) => {
                let mut all = self.there_fields(key)?;
                let before = all.len();
                all.retain(|(field, _)| !names.contains(&field.as_slice()));
                let removed = (before - all.len()) as i64;
                if all.is_empty() {
                    self.map.remove(key);
                } else {
                    self.rewrite(key, Value::Hash(all));
                }
                Answer::number(removed)
            }
            Verb::HashLength => Answer::number(self.there_fields(key)?.len() as i64),
            Verb::HashAdd(name, by) => {
                let all = self.fields(key)?.unwrap_or_default();
                let value = all.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_slice());
                let sum = add(value, by)?;
                self.set_fields(key, &[(name, sum.to_string().as_bytes())])?;
                Answer::number(sum)
            }
        })
    }

    fn rewrite(&mut self, key: &[u8], value: Value) {
        let at = self.map.get(key).map_or(0, |(_, at)| *at);
        self.put(key, value, Some(at));
    }

    fn unsigned(&mut self, key: &[u8], change: impl Fn(u64) -> u64) -> Result<Answer, Answer> {
        let text = self.there(key)?;
        let number = number::<u64>(&text).ok_or(Answer::of(Outcome::NotANumber))?;
        self.rewrite(key, Value::String(change(number).to_string().into_bytes()));
        Ok(Answer::number(change(number) as i64))
    }

    fn set_fields(&mut self, key: &[u8], set: &[Field<'_>]) -> Result<i64, Answer> {
        let mut all = self.fields(key)?.unwrap_or_default();
        let mut new = 0;
        for (name, value) in set {
            match all.iter_mut().find(|(field, _)| field == name) {
                Some(found) if found.1.len() == value.len() => found.1 = value.to_vec(),
                Some(_) => {
                    all.retain(|(field, _)| field != name);
                    all.push((name.to_vec(), value.to_vec()));
                }
                None => {
                    new += 1;
                    all.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        if !all.is_empty() {
            self.rewrite(key, Value::Hash(all));
        }
        Ok(new)
    }

    fn update(&mut self, now_s: u32, key: &[u8], make: scotfree_store::Update<'_>) -> Answer {
        let there = self.map.get(key).cloned();
        let bytes = there.as_ref().map(|(value, at)| match value {
            Value::String(text) => (text.clone(), Kind::String, *at),
            Value::Hash(all) => {
                let some: Vec<_> =
                    all.iter().map(|(field, value)| (field.clone(), Some(value.clone()))).collect();
                (packed(&some), Kind::Hash, *at)
            }
        });
        let old =
            bytes.as_ref().map(|(value, kind, at)| Old { value, kind: *kind, expire_s: *at, version: 0 });
        let mut new = Vec::new();
        match make(old, &mut new) {
            Change::Keep => Answer::of(Outcome::Done),
            Change::Refuse(number) => Answer { number, ..Answer::of(Outcome::Refused) },
            Change::Delete if there.is_none() => Answer::of(Outcome::Absent),
            Change::Delete => {
                self.map.remove(key);
                Answer::of(Outcome::Done)
            }
            Change::Write(kind, expiry) => {
                assert_eq!(kind, Kind::String, "these tests write strings");
                let at = self.at(now_s, key, expiry);
                self.put(key, Value::String(new.clone()), at);
                Answer::value(&new)
            }
        }
    }

    /// All that is there, as a shard stores it.
    pub fn stored(&self) -> BTreeMap<Vec<u8>, (Vec<u8>, u32)> {
        let bytes = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Hash(all) => packed(
                &all.iter().map(|(field, value)| (field.clone(), Some(value.clone()))).collect::<Vec<_>>(),
            ),
        };
        self.map.iter().map(|(key, (value, at))| (key.clone(), (bytes(value), *at))).collect()
    }
}

fn number<N: std::str::FromStr + ToString>(bytes: &[u8]) -> Option<N> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.parse::<N>().ok().filter(|number| number.to_string() == text)
}

fn add(value: Option<&[u8]>, by: i64) -> Result<i64, Answer> {
    let before = value.map_or(Some(0), number::<i64>).ok_or(Answer::of(Outcome::NotANumber))?;
    before.checked_add(by).ok_or(Answer::of(Outcome::Overflow))
}

/// All that a shard holds, by its walk over memory.
pub fn stored(shard: &Shard, now_s: u32) -> BTreeMap<Vec<u8>, (Vec<u8>, u32)> {
    let mut all = BTreeMap::new();
    shard.for_each(now_s, |stored| {
        let before = all.insert(stored.key.to_vec(), (stored.value.to_vec(), stored.expire_s));
        assert!(before.is_none(), "a key is stored once");
    });
    all
}

/// A shard of so many bytes.
pub fn shard(memory_max: usize) -> Shard {
    with(|options| options.memory_max = memory_max)
}

pub fn with(change: impl FnOnce(&mut Options)) -> Shard {
    let mut options = Options { memory_max: 64 << 20, ..Options::with_seed(Seed::fixed(7)) };
    change(&mut options);
    Shard::new(&options).expect("memory")
}

pub fn planted(fault: scotfree_store::StoreFault) -> Shard {
    with(|options| options.planted = Planted::some(fault))
}

/// Runs one operation by itself.
pub fn run(shard: &mut Shard, now_s: u32, op: &Op<'_>) -> Answer {
    let mut out = Replies::new();
    shard.run(now_s, op, &mut out);
    answers(&out).remove(0)
}

/// Numbers that look random.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// The fields of a packing, in order.
pub fn unpacked(bytes: &[u8]) -> Vec<(&[u8], Option<&[u8]>)> {
    fields::iter(bytes).collect()
}
