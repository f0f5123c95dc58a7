//! After warm-up, the client's runtime allocates nothing per request.

mod common;

use common::{client, update, TestServer};
use scotfree_rpc::{CallLabel, ClientEvent, NoopHandler, ProbeOptions, ServerOptions, Volatile};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

const LABEL: CallLabel = CallLabel::new("SET");

thread_local! {
    /// How often this thread has allocated.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the block came from the system's allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the block came from the system's allocator with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_client_does_not_allocate() {
    const CALLS: u64 = 20_000;
    let server = TestServer::start(Volatile(NoopHandler::new()), ServerOptions::default());
    for probes in [ProbeOptions::OFF, ProbeOptions::default()] {
        let (mut client, session) = client(server.address, probes);
        let mut run = |calls: u64| {
            let (mut submitted, mut completed) = (0, 0);
            let before = ALLOCATIONS.get();
            while completed < calls {
                while submitted < calls && submitted - completed < 64 {
                    client.submit(session, update(&[7; 100]), LABEL).expect("within the window");
                    submitted += 1;
                }
                client.turn().expect("the socket works");
                while let Some(event) = client.next_event() {
                    completed += u64::from(matches!(event, ClientEvent::Completed { .. }));
                }
                while client.next_record().is_some() {}
                client.wait(None).expect("the socket works");
            }
            ALLOCATIONS.get() - before
        };
        run(CALLS);
        let allocations = run(CALLS);
        // A burst larger than any before may still make buffers grow, and after a pause of the machine there
        // are retransmissions; but nothing is allocated for each call, nor for each of which a stamp is asked.
        assert!(allocations < CALLS / 128, "{allocations} allocations in {CALLS} calls with {probes:?}");
    }
}
