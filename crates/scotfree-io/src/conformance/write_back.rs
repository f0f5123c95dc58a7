//! Persistent memory behind a cache that writes back when it likes, in memory of this process.
//!
//! Invariant: at a loss of power each aligned word of a line holds what it held at some moment since the
//! line was last flushed and fenced; nothing else is promised, as by processors.

use super::faults::Random;
use crate::slot_memory::{SlotMemory, LINE_BYTES};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What reaches the medium in one piece.
const WORD_BYTES: usize = 8;
type Line = [u8; LINE_BYTES];

/// A mistake in the use of the cache, planted to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePlant {
    /// Content is written and not flushed.
    ContentNotFlushed,
    /// Words that are stored are not flushed.
    WordsNotFlushed,
    /// Of each two fences the first, or the second, is left out.
    FenceLeftOut {
        /// Whether it is the second.
        is_second: bool,
    },
}

/// A piece of persistent memory that outlives the domains which are opened on it.
#[derive(Clone, Default)]
pub struct CachedMedium {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The memory while no domain has it.
    idle: Option<Contents>,
    step_count: u64,
    fence_count: u64,
    plant: Option<CachePlant>,
    /// The step from which on whoever uses the memory is dead.
    death: Option<u64>,
}

/// What the processor sees, and what the medium may hold.
struct Contents {
    seen: Vec<u8>,
    /// For each line that may not be on the medium as it is seen: what it was since it last was there.
    unsettled: BTreeMap<usize, Unsettled>,
}

struct Unsettled {
    history: Vec<Line>,
    /// Up to where in the history a flush was started that the next fence waits for.
    flushed: usize,
}

impl CachedMedium {
    /// Ends the user's life after so many further steps: what it does from then on is not done.
    pub fn plan_death(&self, steps: u64) {
        let mut state = self.lock();
        state.death = Some(state.step_count + steps);
    }

    /// Whether the planned end has come.
    pub fn is_dead(&self) -> bool {
        let state = self.lock();
        state.death.is_some_and(|death| state.step_count >= death)
    }

    /// Plants a mistake, which counts from now.
    pub fn plant(&self, plant: CachePlant) {
        let mut state = self.lock();
        (state.plant, state.fence_count) = (Some(plant), 0);
    }

    /// How many operations have been made on the memory.
    pub fn step_count(&self) -> u64 {
        self.lock().step_count
    }

    /// What the processor sees while no domain is open; none before the first use.
    pub fn content(&self) -> Option<Vec<u8>> {
        self.lock().idle.as_ref().map(|contents| contents.seen.clone())
    }

    /// Empties the caches while no domain is open; `seed` chooses what they had written back.
    pub fn lose_power(&self, seed: u64) {
        let mut state = self.lock();
        state.idle = state.idle.take().map(|contents| Contents::settled(contents.on_medium(seed)));
    }

    /// Forgets all, so that the next domain begins with content of its choice.
    pub fn forget(&self) {
        self.lock().idle = None;
    }

    /// The memory for a domain, which begins with `first` if it was not used before. Whoever uses it now
    /// is alive.
    pub fn map(&self, first: impl FnOnce() -> Vec<u8>) -> Box<dyn SlotMemory> {
        let contents = self.lock().idle.take().unwrap_or_else(|| Contents::settled(first()));
        Box::new(CachedMemory { contents, medium: self.clone() })
    }

    /// Takes back a planned end, for the next user.
    pub fn revive(&self) {
        self.lock().death = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn settled(seen: Vec<u8>) -> Contents {
        Contents { seen, unsettled: BTreeMap::new() }
    }

    fn line(&self, line: usize) -> Line {
        let mut out = [0; LINE_BYTES];
        let rest = &self.seen[line * LINE_BYTES..];
        let length = rest.len().min(LINE_BYTES);
        out[..length].copy_from_slice(&rest[..length]);
        out
    }

    fn change(&mut self, offset: usize, bytes: &[u8]) {
        let lines = lines(&(offset..offset + bytes.len()));
        for line in lines.clone() {
            let before = self.line(line);
            self.unsettled.entry(line).or_insert(Unsettled { history: vec![before], flushed: 0 });
        }
        self.seen[offset..offset + bytes.len()].copy_from_slice(bytes);
        for line in lines {
            let now = self.line(line);
            self.unsettled.entry(line).and_modify(|unsettled| unsettled.history.push(now));
        }
    }

    fn start_flush(&mut self, range: &Range<usize>) {
        for line in lines(range) {
            self.unsettled
                .entry(line)
                .and_modify(|unsettled| unsettled.flushed = unsettled.history.len() - 1);
        }
    }

    fn finish_flushes(&mut self) {
        for unsettled in self.unsettled.values_mut() {
            unsettled.history.drain(..unsettled.flushed);
            unsettled.flushed = 0;
        }
        self.unsettled.retain(|_, unsettled| unsettled.history.len() > 1);
    }

    /// What a loss of power leaves.
    fn on_medium(&self, seed: u64) -> Vec<u8> {
        let mut random = Random::new(seed);
        let mut left = self.seen.clone();
        for (line, unsettled) in &self.unsettled {
            let torn = torn(&unsettled.history, &mut random);
            let rest = &mut left[line * LINE_BYTES..];
            let length = rest.len().min(LINE_BYTES);
            rest[..length].copy_from_slice(&torn[..length]);
        }
        left
    }
}

/// One state of the history, or each word from one of two of them.
fn torn(history: &[Line], random: &mut Random) -> Line {
    let mut pick = || history[random.below(history.len() as u64) as usize];
    let (mut line, other) = (pick(), pick());
    let words = line.chunks_exact_mut(WORD_BYTES).zip(other.chunks_exact(WORD_BYTES));
    let choice = if random.below(2) == 0 { 0 } else { random.next() };
    for (index, (word, other)) in words.enumerate() {
        if choice >> index & 1 == 1 {
            word.copy_from_slice(other);
        }
    }
    line
}

fn lines(range: &Range<usize>) -> Range<usize> {
    range.start / LINE_BYTES..range.end.div_ceil(LINE_BYTES)
}

struct CachedMemory {
    contents: Contents,
    medium: CachedMedium,
}

impl CachedMemory {
    /// Makes an operation, unless its maker is dead.
    fn step(&mut self, make: impl FnOnce(&mut Contents, &mut State)) {
        let mut state = self.medium.lock();
        let is_alive = state.death.is_none_or(|death| state.step_count < death);
        state.step_count += 1;
        if is_alive {
            make(&mut self.contents, &mut state);
        }
    }
}

impl SlotMemory for CachedMemory {
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.contents.seen[range]
    }

    fn write(&mut self, offset: usize, content: &[u8]) {
        // Line by line, since the end may come in the middle.
        let mut done = 0;
        while done < content.len() {
            let start = offset + done;
            let length = (LINE_BYTES - start % LINE_BYTES).min(content.len() - done);
            self.step(|contents, state| {
                contents.change(start, &content[done..done + length]);
                if state.plant != Some(CachePlant::ContentNotFlushed) {
                    contents.start_flush(&(start..start + length));
                }
            });
            done += length;
        }
    }

    fn store(&mut self, offset: usize, word: u32) {
        self.step(|contents, _| contents.change(offset, &word.to_le_bytes()));
    }

    fn write_back(&mut self, range: Range<usize>) {
        self.step(|contents, state| {
            if state.plant != Some(CachePlant::WordsNotFlushed) {
                contents.start_flush(&range);
            }
        });
    }

    fn fence(&mut self) {
        self.step(|contents, state| {
            state.fence_count += 1;
            let is_second = state.fence_count % 2 == 0;
            if state.plant != Some(CachePlant::FenceLeftOut { is_second }) {
                contents.finish_flushes();
            }
        });
    }
}

impl Drop for CachedMemory {
    fn drop(&mut self) {
        let contents = std::mem::replace(&mut self.contents, Contents::settled(Vec::new()));
        self.medium.lock().idle = Some(contents);
    }
}
