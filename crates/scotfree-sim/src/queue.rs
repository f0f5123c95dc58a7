//! What is going to happen, in order.
//!
//! Invariant: events come out by time, and those of one instant in the order in which they went in.

use scotfree_core::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of events.
#[derive(Debug)]
pub struct Queue<Event> {
    heap: BinaryHeap<Reverse<Entry<Event>>>,
    pushed_count: u64,
}

#[derive(Debug)]
struct Entry<Event> {
    at: Nanos,
    place: u64,
    event: Event,
}

impl<Event> Default for Queue<Event> {
    fn default() -> Self {
        Queue { heap: BinaryHeap::new(), pushed_count: 0 }
    }
}

impl<Event> Queue<Event> {
    /// Nothing is going to happen.
    pub fn new() -> Queue<Event> {
        Self::default()
    }

    /// `event` is going to happen at `at`.
    pub fn push(&mut self, at: Nanos, event: Event) {
        self.pushed_count += 1;
        self.heap.push(Reverse(Entry { at, place: self.pushed_count, event }));
    }

    /// What happens next, and when.
    pub fn pop(&mut self) -> Option<(Nanos, Event)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl<Event> PartialEq for Entry<Event> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl<Event> Eq for Entry<Event> {}

impl<Event> PartialOrd for Entry<Event> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<Event> Ord for Entry<Event> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.place).cmp(&(other.at, other.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_by_time_and_then_by_arrival() {
        let mut queue = Queue::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.push(Nanos(at), event);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcd");
    }
}
