//! What the lists that were read say by themselves: who appended what, in which order, and whether that can be.
//!
//! Invariant: of each list, every read is the beginning of the longest one.

use super::{Anomaly, AnomalyKind, Ended, Step, Transaction};
use crate::model::Key;
use std::collections::{BTreeMap, BTreeSet};

/// Where a value came from.
#[derive(Debug, Clone, Copy)]
struct Append {
    by: usize,
    /// How many values the same transaction had appended to the list before.
    place: usize,
    /// Nothing was appended to the list behind it by the same transaction.
    is_last: bool,
    is_read: bool,
}

/// The lists of a history.
pub(super) struct Lists {
    appends: BTreeMap<(Key, u64), Append>,
    /// Who read the longest list of each key, and the list.
    longest: BTreeMap<Key, (usize, Vec<u64>)>,
    /// Which transactions are known to have happened.
    happened: Vec<bool>,
}

impl Lists {
    /// Reads all lists.
    pub fn read(history: &[Transaction]) -> Result<Lists, Anomaly> {
        let happened = history.iter().map(|one| matches!(one.ended, Ended::Committed { .. })).collect();
        let mut lists = Lists { appends: appends_of(history), longest: BTreeMap::new(), happened };
        for (index, transaction) in history.iter().enumerate() {
            for (key, values) in transaction.reads() {
                lists.look_at_values(history, index, key, values)?;
            }
        }
        for (index, transaction) in history.iter().enumerate() {
            lists.look_at_own(index, transaction)?;
            for (key, values) in transaction.reads() {
                lists.look_at_end(index, key, values)?;
                lists.take(index, key, values)?;
            }
        }
        lists.orders().try_for_each(|(key, values)| lists.look_at_places(key, values))?;
        Ok(lists)
    }

    /// Who appended a value that was read.
    pub fn writer(&self, key: Key, value: u64) -> usize {
        self.appends[&(key, value)].by
    }

    /// The longest list of each key that was read.
    pub fn orders(&self) -> impl Iterator<Item = (Key, &[u64])> + '_ {
        self.longest.iter().map(|(key, (_, values))| (*key, values.as_slice()))
    }

    /// The longest list of a key.
    pub fn order(&self, key: Key) -> &[u64] {
        self.longest.get(&key).map_or(&[], |(_, values)| values)
    }

    /// Whether a transaction is known to have happened: its client knows, or somebody has read what it appended.
    pub fn has_happened(&self, transaction: usize) -> bool {
        self.happened[transaction]
    }

    /// Who appended to each list what nobody has read: what nobody has read yet comes behind all that was.
    pub fn unread(&self) -> BTreeMap<Key, BTreeSet<usize>> {
        let mut unread: BTreeMap<Key, BTreeSet<usize>> = BTreeMap::new();
        for ((key, _), append) in &self.appends {
            if !append.is_read && self.happened[append.by] {
                unread.entry(*key).or_default().insert(append.by);
            }
        }
        unread
    }

    /// Each value was appended once, and by a transaction that was not aborted.
    fn look_at_values(
        &mut self,
        history: &[Transaction],
        reader: usize,
        key: Key,
        values: &[u64],
    ) -> Result<(), Anomaly> {
        let mut seen = BTreeSet::new();
        for value in values {
            let Some(append) = self.appends.get_mut(&(key, *value)) else {
                return Err(shown(AnomalyKind::Unwritten, key, &[reader]));
            };
            if history[append.by].ended == Ended::Aborted {
                return Err(shown(AnomalyKind::AbortedRead, key, &[append.by, reader]));
            }
            if !seen.insert(*value) {
                return Err(shown(AnomalyKind::Doubled, key, &[append.by, reader]));
            }
            append.is_read = true;
            self.happened[append.by] = true;
        }
        Ok(())
    }

    /// A transaction sees what it appended, behind all else, and nothing new from others between two reads.
    fn look_at_own(&self, index: usize, transaction: &Transaction) -> Result<(), Anomaly> {
        if !matches!(transaction.ended, Ended::Committed { .. }) {
            return Ok(());
        }
        let mut views: BTreeMap<Key, View<'_>> = BTreeMap::new();
        for step in &transaction.steps {
            match step {
                Step::Append { key, value } => views.entry(*key).or_default().own.push(*value),
                Step::Read { key, values } => {
                    let view = views.entry(*key).or_default();
                    if !view.fits(values, |value| self.writer(*key, value) == index) {
                        return Err(shown(AnomalyKind::Internal, *key, &[index]));
                    }
                    *view = View { base: Some(values), own: Vec::new() };
                }
            }
        }
        Ok(())
    }

    /// A list does not end in the middle of another transaction's appends.
    fn look_at_end(&self, reader: usize, key: Key, values: &[u64]) -> Result<(), Anomaly> {
        let Some(last) = values.last().map(|value| self.appends[&(key, *value)]) else { return Ok(()) };
        if last.by != reader && !last.is_last {
            return Err(shown(AnomalyKind::IntermediateRead, key, &[last.by, reader]));
        }
        Ok(())
    }

    /// What one transaction appended stands in its order, without holes.
    fn look_at_places(&self, key: Key, values: &[u64]) -> Result<(), Anomaly> {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for value in values {
            let Append { by, place, .. } = self.appends[&(key, *value)];
            let count = counts.entry(by).or_default();
            if *count != place {
                return Err(shown(AnomalyKind::Reordered, key, &[by, self.longest[&key].0]));
            }
            *count += 1;
        }
        Ok(())
    }

    /// Of two lists one is the beginning of the other.
    fn take(&mut self, reader: usize, key: Key, values: &[u64]) -> Result<(), Anomaly> {
        let (longest_reader, longest) = self.longest.entry(key).or_insert_with(|| (reader, Vec::new()));
        let common = longest.len().min(values.len());
        if longest[..common] != values[..common] {
            return Err(shown(AnomalyKind::Incompatible, key, &[*longest_reader, reader]));
        }
        if values.len() > longest.len() {
            (*longest_reader, *longest) = (reader, values.to_vec());
        }
        Ok(())
    }
}

/// What a transaction knows of a list: what it read last, and what it has appended since.
#[derive(Default)]
struct View<'h> {
    base: Option<&'h [u64]>,
    own: Vec<u64>,
}

impl View<'_> {
    fn fits(&self, values: &[u64], is_own: impl Fn(u64) -> bool) -> bool {
        let Some(before) = values.strip_suffix(self.own.as_slice()) else { return false };
        self.base.map_or_else(|| !before.iter().any(|value| is_own(*value)), |base| before == base)
    }
}

fn appends_of(history: &[Transaction]) -> BTreeMap<(Key, u64), Append> {
    let mut appends = BTreeMap::new();
    for (by, transaction) in history.iter().enumerate() {
        let mut ends: BTreeMap<Key, (usize, u64)> = BTreeMap::new();
        for (key, value) in transaction.appends() {
            let place = ends.get(&key).map_or(0, |(count, _)| *count);
            let before = appends.insert((key, value), Append { by, place, is_last: false, is_read: false });
            assert!(before.is_none(), "{value} is appended to the list {} twice", key.0);
            ends.insert(key, (place + 1, value));
        }
        for (key, (_, value)) in ends {
            appends.entry((key, value)).and_modify(|append| append.is_last = true);
        }
    }
    appends
}

fn shown(kind: AnomalyKind, key: Key, transactions: &[usize]) -> Anomaly {
    let mut transactions = transactions.to_vec();
    transactions.dedup();
    Anomaly { kind, needs_time: false, transactions, links: Vec::new(), key: Some(key) }
}
