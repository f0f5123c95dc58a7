//! `codec-heap [SHAPE[:ABSENT]]...`: how often each arm asks the heap for a message once it has grown, a line of JSON each.
//!
//! A program of its own: an allocator that counts would slow down what is measured in codec-peers.

use codec_peers::bench::{with, SHAPES};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The system's, which counts what is asked of it.
struct Counting;

static ASKED: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is the system's allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.fetch_add(1, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let all = SHAPES.map(str::to_owned);
    for shape in if words.is_empty() { &all[..] } else { &words } {
        let (name, absent) = shape.split_once(':').unwrap_or((shape, "10"));
        with(name, absent.parse().unwrap_or(10), &mut |bench| {
            let messages = bench.messages;
            for arm in bench.arms() {
                // The first time that it did its work, arenas and vectors have grown.
                let before = ASKED.load(Relaxed);
                assert_eq!((arm.run)(), arm.expected);
                let asked = (ASKED.load(Relaxed) - before) as f64 / messages as f64;
                let (work, arm) = (arm.work.name(), arm.name);
                println!(r#"{{"shape":"{shape}","work":"{work}","arm":"{arm}","allocations":{asked:?}}}"#);
            }
        });
    }
}
