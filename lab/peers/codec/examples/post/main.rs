//! A post of a social network by Thrift's two formats: Apache's crate, and ours by the straight line and by the table.
//!
//! `cargo run --release --example post`: nanoseconds of processor time a message, the median of rounds in which all take
//! turns, with every field read after it was decoded. A word behind `--` leaves those out whose name has it not.

#![allow(missing_docs)]

mod apache;

use apache::Post;
use codec_peers::structs::BOTH;
use codec_peers::thrift_messages::social;
use codec_peers::Drawn;
use scotfree_transform::generated::Type;
use scotfree_transform::thrift::{self, table, Protocol};
use scotfree_transform::{Arena, CpuPath, Limits};
use std::hint::black_box;

const MESSAGES: u64 = 512;
const ROUNDS: usize = 101;

/// A reader's sum over all fields, so that none is left out.
fn ours_sum(post: social::PostRef<'_>) -> u64 {
    let creator = post.creator().map_or(0, |one| number(one.user_id()) + text(one.username()));
    let numbers = [post.post_id(), post.req_id(), post.timestamp(), post.post_type().into()];
    creator
        + numbers.map(number).iter().sum::<u64>()
        + text(post.text())
        + post.user_mentions().map(|one| number(one.user_id()) + text(one.username())).sum::<u64>()
        + post.media().map(|one| number(one.media_id()) + text(one.media_type())).sum::<u64>()
        + post.urls().map(|one| text(one.shortened_url()) + text(one.expanded_url())).sum::<u64>()
}

fn number(number: i64) -> u64 {
    number as u64 >> 16
}

fn text(text: &str) -> u64 {
    text.len() as u64 + text.as_bytes().first().map_or(0, |&byte| u64::from(byte))
}

/// Nanoseconds that this thread has run.
fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What takes turns: its name, and its times.
struct Way<'w> {
    name: String,
    work: Box<dyn FnMut() -> u64 + 'w>,
    ns: Vec<f64>,
}

fn way<'w>(name: impl Into<String>, work: impl FnMut() -> u64 + 'w) -> Way<'w> {
    Way { name: name.into(), work: Box::new(work), ns: Vec::new() }
}

fn median(ns: &[f64]) -> f64 {
    let mut ns = ns.to_vec();
    ns.sort_by(f64::total_cmp);
    ns[ns.len() / 2]
}

fn compare(protocol: Protocol, posts: &[Post], wires: &[Vec<u8>]) {
    let limits = Limits::default();
    let mut arenas: Vec<Arena> = wires.iter().map(|_| Arena::new()).collect();
    let decoded: Vec<_> = wires
        .iter()
        .zip(&mut arenas)
        .map(|(wire, arena)| thrift::decode::<social::Post>(protocol, wire, arena, &limits).unwrap())
        .collect();
    for ((ours, theirs), wire) in decoded.iter().zip(posts).zip(wires) {
        assert_eq!(ours_sum(*ours), theirs.sum());
        let mut out = Vec::new();
        thrift::encode::<social::Post>(protocol, ours.slots(), &mut out);
        assert_eq!(&out, wire);
    }
    let decoded = &decoded;
    let mut ways = vec![way("Apache encode", {
        let mut out = Vec::with_capacity(1 << 12);
        move || posts.iter().map(|post| apache::encode(protocol, post, &mut out)).sum()
    })];
    for path in CpuPath::all() {
        let mut out = Vec::with_capacity(1 << 12);
        ways.push(way(format!("ours encode {path:?}"), move || {
            decoded
                .iter()
                .map(|post| {
                    out.clear();
                    thrift::encode_on::<social::Post>(path, protocol, post.slots(), &mut out);
                    out.len() as u64
                })
                .sum()
        }));
    }
    let mut out = Vec::with_capacity(1 << 12);
    ways.push(way("table encode", move || {
        decoded
            .iter()
            .map(|post| {
                out.clear();
                table::encode(protocol, post.slots().view(), &mut out);
                out.len() as u64
            })
            .sum()
    }));
    ways.push(way("Apache decode", move || {
        wires.iter().map(|wire| apache::decode(protocol, wire).sum()).fold(0, u64::wrapping_add)
    }));
    for path in CpuPath::all() {
        let mut arena = Arena::new();
        ways.push(way(format!("ours decode {path:?}"), move || {
            let sums = wires.iter().map(|wire| {
                arena.reset();
                let post = thrift::decode_on::<social::Post>(path, protocol, wire, &mut arena, &limits);
                ours_sum(post.unwrap())
            });
            sums.fold(0, u64::wrapping_add)
        }));
    }
    let mut arena = Arena::new();
    ways.push(way("table decode", move || {
        wires
            .iter()
            .map(|wire| {
                arena.reset();
                let (types, index) = (social::Post::types(), social::Post::INDEX);
                u64::from(table::decode(protocol, types, index, wire, &mut arena, &limits).is_ok())
            })
            .sum()
    }));
    let wanted = std::env::args().nth(1).unwrap_or_default();
    ways.retain(|way| way.name.contains(&wanted));
    for _ in 0..ROUNDS {
        for way in &mut ways {
            let begun = thread_ns();
            black_box((way.work)());
            way.ns.push((thread_ns() - begun) as f64 / MESSAGES as f64);
        }
    }
    let bytes = wires.iter().map(Vec::len).sum::<usize>() / wires.len();
    println!("{protocol:?}, {bytes} B");
    let of = |name: &str| ways.iter().find(|way| way.name == name).map_or(f64::NAN, |way| median(&way.ns));
    for way in &ways {
        let peer = of(if way.name.contains("encode") { "Apache encode" } else { "Apache decode" });
        let ns = median(&way.ns);
        println!("  {:24} {ns:7.1} ns  {:5.2} x", way.name, peer / ns);
    }
}

fn main() {
    let posts: Vec<Post> = (0..MESSAGES).map(|seed| Post::drawn(&mut Drawn::new(seed * 77 + 5, 0))).collect();
    for protocol in BOTH {
        let wires: Vec<Vec<u8>> = posts
            .iter()
            .map(|post| {
                let mut out = Vec::new();
                apache::encode(protocol, post, &mut out);
                out
            })
            .collect();
        compare(protocol, &posts, &wires);
    }
}
