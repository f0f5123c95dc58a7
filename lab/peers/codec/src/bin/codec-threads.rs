//! `codec-threads [ROUNDS]`: a reply of many messages that one thread encodes, and that several encode a part each of
//! (the thesis, 3.3.1: threads do not pay). A line of JSON for each arm and round, in the form of codec-peers.
//!
//! The others wait for their part by looking at a number, so that they begin as soon as can be; each writes into a vector
//! of its own, and the first one puts them together. `-wall` is how long a reply takes, `-processor` the processor time
//! that all threads spend for it.
//!
//! Invariant: both arms come to the same bytes.
#![allow(clippy::unwrap_used)]

use codec_peers::messages::classes::{Mixed, MixedRef};
use codec_peers::{fill_mixed, Drawn};
use prost::Message as _;
use rustix::time::{clock_gettime, ClockId};
use scotfree_transform::{protobuf, Arena, Limits};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Instant;

/// Replies of a round, and messages in each: about as long as the thesis' Type 3, a microsecond and a half.
const REPLIES: usize = 256;
const MESSAGES: usize = 16;
/// As many threads as the thesis has, where there are so many processors.
const THREADS_MAX: usize = 4;
/// How often a thread looks before it lets others have the processor.
const LOOKS: u32 = 10_000;

fn main() {
    let rounds: u32 = std::env::args().nth(1).map_or(31, |word| word.parse().unwrap());
    let limits = Limits::default();
    let wires: Vec<Vec<u8>> = (0..(REPLIES * MESSAGES) as u64)
        .map(|seed| fill_mixed(&mut Drawn::new(seed * 77 + 5, 10)).encode_to_vec())
        .collect();
    let mut arenas: Vec<Arena> = wires.iter().map(|_| Arena::new()).collect();
    let messages: Vec<MixedRef<'_>> = wires
        .iter()
        .zip(&mut arenas)
        .map(|(wire, arena)| protobuf::decode::<Mixed>(wire, arena, &limits).unwrap())
        .collect();
    let replies: Vec<&[MixedRef<'_>]> = messages.chunks(MESSAGES).collect();
    let bytes = wires.iter().map(Vec::len).sum::<usize>() as f64 / REPLIES as f64;
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, THREADS_MAX);
    let expected = alone(&replies);
    for round in 0..=rounds {
        let (of_one, one) = measured(|_| alone(&replies));
        let (of_all, all) = measured(|others| scattered(&replies, threads, others));
        assert_eq!((of_one, of_all), (expected, expected), "both write the same");
        // The first warms caches and predictors.
        let Some(round) = round.checked_sub(1) else { continue };
        for (arm, ns) in [
            ("one-wall", one.0),
            ("one-processor", one.1),
            ("scattered-wall", all.0),
            ("scattered-processor", all.1),
        ] {
            println!(
                "{}",
                json!({
                    "shape": "threads", "absent": 10, "work": "encode", "arm": arm, "round": round, "ns": ns,
                    "bytes": bytes, "items": threads,
                })
            );
        }
    }
}

/// What work comes to, and how long it takes for each reply: as the clock has it, and of all processors. Other threads
/// say themselves what they spent, since the system counts it when they are gone.
fn measured(work: impl FnOnce(&AtomicU64) -> u64) -> (u64, (f64, f64)) {
    let others = AtomicU64::new(0);
    let (begun, spent) = (Instant::now(), spent_ns());
    let got = work(&others);
    let spent = spent_ns() - spent + others.into_inner();
    let each = |ns: f64| ns / REPLIES as f64;
    (got, (each(begun.elapsed().as_nanos() as f64), each(spent as f64)))
}

/// Processor time of this thread.
fn spent_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

fn encoded(messages: &[MixedRef<'_>], out: &mut Vec<u8>) {
    messages.iter().for_each(|message| protobuf::encode(message.slots(), out));
}

/// What is written, as a number that tells orders apart.
fn sum(out: &[u8]) -> u64 {
    let words = out.chunks(8).map(|part| part.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    words.fold(0, |sum: u64, word| sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(word))
}

/// Every reply by this thread.
fn alone(replies: &[&[MixedRef<'_>]]) -> u64 {
    let mut out = Vec::with_capacity(1 << 16);
    let mut all = 0_u64;
    for reply in replies {
        out.clear();
        encoded(reply, &mut out);
        all = all.wrapping_add(sum(&out[..out.len().min(64)]));
    }
    all.wrapping_add(sum(&out))
}

/// Where a thread is told of its part, and says that it is done.
#[derive(Default)]
struct Post {
    told: AtomicU64,
    done: AtomicU64,
    part: Mutex<Vec<u8>>,
}

/// Every reply by so many threads, of which this one is the first.
fn scattered(replies: &[&[MixedRef<'_>]], threads: usize, others: &AtomicU64) -> u64 {
    let posts: Vec<Post> = (1..threads).map(|_| Post::default()).collect();
    let parts = |reply: usize| replies[reply].chunks(MESSAGES.div_ceil(threads));
    std::thread::scope(|scope| {
        for (index, post) in posts.iter().enumerate() {
            scope.spawn(move || {
                for (reply, turn) in (0..replies.len()).zip(1..) {
                    await_turn(&post.told, turn);
                    let mut part = post.part.lock().unwrap();
                    part.clear();
                    encoded(parts(reply).nth(index + 1).unwrap_or(&[]), &mut part);
                    drop(part);
                    if turn == replies.len() as u64 {
                        others.fetch_add(spent_ns(), Ordering::Relaxed);
                    }
                    post.done.store(turn, Ordering::Release);
                }
            });
        }
        let mut out = Vec::with_capacity(1 << 16);
        let mut all = 0_u64;
        for (reply, turn) in (0..replies.len()).zip(1..) {
            posts.iter().for_each(|post| post.told.store(turn, Ordering::Release));
            out.clear();
            encoded(parts(reply).next().unwrap_or(&[]), &mut out);
            for post in &posts {
                await_turn(&post.done, turn);
                out.extend_from_slice(&post.part.lock().unwrap());
            }
            all = all.wrapping_add(sum(&out[..out.len().min(64)]));
        }
        all.wrapping_add(sum(&out))
    })
}

fn await_turn(number: &AtomicU64, turn: u64) {
    let mut looks = 0;
    while number.load(Ordering::Acquire) != turn {
        looks += 1;
        if looks % LOOKS == 0 {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}
