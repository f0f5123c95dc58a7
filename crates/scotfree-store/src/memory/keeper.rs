//! A thread that prepares memory ahead of its owners, so that none of them waits for the system to zero a huge page.
//!
//! Invariant: it only asks the system for memory; it reads and writes nothing of anybody's.

use super::mapping::{Mapping, Pages};
use super::Region;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Who prepares memory.
pub(crate) struct Keeper {
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    mappings: Vec<Arc<Mapping>>,
    ahead: usize,
}

impl Keeper {
    /// Keeps `ahead` segments of each region ready.
    pub fn start(regions: [&mut Region; 3], ahead: usize) -> io::Result<Keeper> {
        let is_over = Arc::new(AtomicBool::new(false));
        let kept = regions.map(|region| {
            region.is_kept();
            region.mapping()
        });
        let mappings = kept.to_vec();
        let (theirs, until) = (mappings.clone(), Arc::clone(&is_over));
        let keep = move || {
            while !until.load(Ordering::Acquire) {
                if !prepare(&theirs, ahead) {
                    std::thread::park();
                }
            }
        };
        let thread = Builder::new().name("store-memory".to_owned()).spawn(keep)?;
        Ok(Keeper { thread: Some(thread), is_over, mappings, ahead })
    }

    /// Wakes the thread if it has something to do.
    pub fn look(&self) {
        let is_needed = self.mappings.iter().any(|mapping| mapping.lacking(self.ahead) > 0);
        if let Some(thread) = self.thread.as_ref().filter(|_| is_needed) {
            thread.thread().unpark();
        }
    }
}

/// Prepares one segment where one is lacking; whether there was one.
fn prepare(mappings: &[Arc<Mapping>], ahead: usize) -> bool {
    let most = mappings.iter().max_by_key(|mapping| mapping.lacking(ahead));
    let lacking = most.filter(|mapping| mapping.lacking(ahead) > 0);
    // A system that has no more memory says so to the owner as well: here nothing is left to do.
    lacking.is_some_and(|mapping| mapping.prepare(mapping.prepared() + 1, Pages::HugeNow).is_ok())
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SEGMENT_BYTES;
    use super::*;

    #[test]
    fn segments_are_ready_before_they_are_asked_for() {
        let [mut region, mut other, mut third] =
            std::array::from_fn(|_| Region::reserve(8 * SEGMENT_BYTES).expect("addresses"));
        let keeper = Keeper::start([&mut region, &mut other, &mut third], 2).expect("a thread");
        let is_ready = |region: &Region, count| {
            while region.mapping().prepared() < count {
                std::thread::yield_now();
            }
        };
        is_ready(&region, 2);
        for used in 1..=8 {
            assert!(region.commit());
            keeper.look();
            is_ready(&region, (used + 2).min(8));
        }
        assert!(!region.commit());
    }
}
