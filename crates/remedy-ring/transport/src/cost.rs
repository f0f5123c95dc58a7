//! What rings cost on this machine: for `scot bench ring` and for experiments.
//!
//! Invariant: what is timed is what the runtimes use, over real shared memory, each side on a processor of its own.

use crate::region::Region;
use remedy_ring::{Burst, Memory as _, Notify, Ready, RingClient, RingServer, Room, Seen, Shape};
use scotfree_core::Nanos;
use scotfree_io::{now_monotonic, processor, Cost};
use std::hint::{black_box, spin_loop};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

const QUOTA: usize = 32;
const BURST_MAX: usize = 64;

/// The largest number of rings that is required to be cheap.
const RINGS: usize = 4_096;

/// What rings cost beside what they carry.
pub fn costs(count: usize) -> io::Result<Vec<Cost>> {
    let round_trips = |rings, used| -> io::Result<f64> {
        let mut times = RoundTrips { rings, used, notify: Notify::Marks, bytes: 64, count }.measure()?;
        times.sort_unstable();
        Ok(times.get(times.len() / 2).map_or(0.0, |time| time.0 as f64 / 1_000.0))
    };
    let one = round_trips(1, 1)?;
    let idle = idle_look_ps(RINGS, Notify::Marks, count as u64)? as f64 / 1_000.0;
    let (of_many, drawn) = (round_trips(RINGS, 1)?, round_trips(RINGS, RINGS)?);
    let cost = |what, value, unit, required| Cost { what, value, unit, required };
    Ok(vec![
        cost("64 B there and back by a ring, both looking, p50", one, "us", Some(0.5)),
        cost("a look at 4,096 rings of which none has anything", idle, "ns", Some(150.0)),
        cost(
            "64 B there and back by one ring of 4,096, over that by the only one",
            of_many / one,
            "x",
            Some(1.8),
        ),
        cost("the same by another of 4,096 each time, whose entries no cache has", drawn, "us", None),
    ])
}

/// Messages that go there and back, one at a time.
#[derive(Debug, Clone, Copy)]
pub struct RoundTrips {
    /// How many rings the server looks at.
    pub rings: usize,
    /// How clients say that they have written.
    pub notify: Notify,
    /// How many of them messages go by.
    pub used: usize,
    /// The bytes of a message, each way.
    pub bytes: usize,
    /// How many are timed.
    pub count: usize,
}

impl RoundTrips {
    /// Times them; each goes by another of the last rings, drawn, if several are used. Both sides look all the time, on
    /// the first two processors.
    pub fn measure(&self) -> io::Result<Vec<Nanos>> {
        let shape = Shape::new(16, 128).expect("such rings there are");
        let region = Region::create(self.rings, shape)?;
        let how = (self.notify, Room::ByAnswers);
        let mut server = RingServer::new(self.rings, shape, how, QUOTA);
        (0..self.rings).for_each(|ring| server.open(&region, ring));
        let mut clients: Vec<RingClient> =
            (0..self.rings).map(|ring| RingClient::new(ring, shape, how)).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            // Threads of their own, so that the caller stays on no processor; and nobody asks a server that has none.
            let (say, hear) = mpsc::channel();
            let (server, clients, region, is_over) = (&mut server, &mut clients, &region, &is_over);
            let serving = scope.spawn(move || serve(server, region, is_over, &say));
            let asking = scope.spawn(move || match hear.recv() {
                Ok(()) => processor::stay_on(0).and_then(|()| self.ask(clients, region)),
                Err(_) => Ok(Vec::new()),
            });
            let asked = asking.join().expect("the client ends");
            is_over.store(true, Ordering::Relaxed);
            serving.join().expect("the server ends")?;
            asked
        })
    }

    fn ask(&self, clients: &mut [RingClient], region: &Region) -> io::Result<Vec<Nanos>> {
        let (message, mut answer) = (vec![7; self.bytes], Vec::with_capacity(self.bytes));
        let mut times = Vec::with_capacity(self.count);
        let mut drawn = 1_u64;
        // The first thousand are for caches and for the other thread to begin.
        for nth in 0..self.count + 1_000 {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let client = &mut clients[self.rings - 1 - (drawn >> 33) as usize % self.used];
            let began = now_monotonic();
            client.ask(region, &message).map_err(io::Error::other)?;
            client.tell(region);
            answer.clear();
            while client.take(region, &mut answer).map_err(io::Error::other)?.is_none() {
                spin_loop();
            }
            if nth >= 1_000 {
                times.push(now_monotonic().since(began));
            }
        }
        Ok(times)
    }
}

fn serve(
    server: &mut RingServer,
    region: &Region,
    is_over: &AtomicBool,
    is_there: &mpsc::Sender<()>,
) -> io::Result<()> {
    processor::stay_on(1)?;
    is_there.send(()).map_err(io::Error::other)?;
    let mut burst = Burst::new();
    while !is_over.load(Ordering::Relaxed) {
        if !server.look(region) {
            spin_loop();
            continue;
        }
        server.take(region, BURST_MAX, &mut burst);
        for (request, bytes) in burst.iter() {
            server.answer(region, request.ring, request.index, bytes).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

/// How long a look at so many rings takes of which none has anything, in picoseconds.
pub fn idle_look_ps(rings: usize, notify: Notify, looks: u64) -> io::Result<u64> {
    let region = Region::create(rings, Shape::new(2, 64).expect("such rings there are"))?;
    let (mut ready, mut seen) = (Ready::new(rings), Seen::new(rings));
    (0..rings).for_each(|ring| ready.use_ring(ring, true));
    let mut look = || match notify {
        Notify::Pointers => seen.look(region.pointers(), &mut ready),
        Notify::Marks => seen.look_where_marked(region.marks(), region.pointers(), &mut ready, None),
        Notify::Summary => ready.take(region.summary()),
    };
    (0..1_000).for_each(|_| assert_eq!(black_box(look()), 0));
    let began = now_monotonic();
    (0..looks).for_each(|_| assert_eq!(black_box(look()), 0));
    Ok(now_monotonic().since(began).0 * 1_000 / looks)
}
