//! `codec-peers`: nanoseconds a message, in turns.

use codec_peers::*;
use prost::Message;
use scotfree_transform::generated::Type;
use scotfree_transform::{protobuf, Arena, CpuPath, Limits};
use std::hint::black_box;
use std::time::Instant;

const MESSAGES: u64 = 512;
const ROUNDS: usize = 61;

macro_rules! class {
    ($name:ident, $fill:ident, $theirs:ident, $ours:ident, $absent:expr) => {{
        let drawn: Vec<_> =
            (0..MESSAGES).map(|seed| $fill(&mut Drawn::new(seed * 77 + 5, $absent))).collect();
        let wires: Vec<Vec<u8>> = drawn.iter().map(Message::encode_to_vec).collect();
        let bytes = wires.iter().map(Vec::len).sum::<usize>() / wires.len();
        type Ours = messages::classes::$name;
        let limits = Limits::default();
        let mut arenas: Vec<Arena> = wires.iter().map(|_| Arena::new()).collect();
        let views: Vec<_> = wires
            .iter()
            .zip(&mut arenas)
            .map(|(wire, arena)| protobuf::decode::<Ours>(wire, arena, &limits).unwrap())
            .collect();
        for ((view, message), wire) in views.iter().zip(&drawn).zip(&wires) {
            assert_eq!($ours(*view), $theirs(message));
            for path in CpuPath::all() {
                let mut out = Vec::new();
                protobuf::encode_on::<Ours>(path, view.slots(), &mut out);
                assert_eq!(&out, wire);
            }
        }
        let mut arena = Arena::new();
        let mut out = Vec::with_capacity(1 << 16);
        let mut times: Vec<(String, Vec<f64>)> = Vec::new();
        for round in 0..ROUNDS {
            let mut at = 0;
            let mut time = |name: &str, work: &mut dyn FnMut() -> u64| {
                let begun = Instant::now();
                black_box(work());
                let ns = begun.elapsed().as_nanos() as f64 / MESSAGES as f64;
                if round == 0 {
                    times.push((name.to_owned(), Vec::new()));
                }
                times[at].1.push(ns);
                at += 1;
            };
            time("prost encode", &mut || {
                drawn
                    .iter()
                    .map(|m| {
                        out.clear();
                        m.encode(&mut out).unwrap();
                        out.len() as u64
                    })
                    .sum()
            });
            for path in CpuPath::all() {
                time(&format!("ours encode {path:?}"), &mut || {
                    views
                        .iter()
                        .map(|m| {
                            out.clear();
                            protobuf::encode_on::<Ours>(path, m.slots(), &mut out);
                            out.len() as u64
                        })
                        .sum()
                });
            }
            time("prost decode", &mut || {
                wires
                    .iter()
                    .map(|w| $theirs(&prost_messages::$name::decode(&w[..]).unwrap()))
                    .fold(0, u64::wrapping_add)
            });
            for path in CpuPath::all() {
                time(&format!("ours decode {path:?}"), &mut || {
                    wires
                        .iter()
                        .map(|w| {
                            arena.reset();
                            $ours(protobuf::decode_on::<Ours>(path, w, &mut arena, &limits).unwrap())
                        })
                        .fold(0, u64::wrapping_add)
                });
            }
            time("ours read", &mut || views.iter().map(|m| $ours(*m)).fold(0, u64::wrapping_add));
            time("prost read", &mut || drawn.iter().map(|m| $theirs(m)).fold(0, u64::wrapping_add));
            for path in CpuPath::all() {
                time(&format!("ours decode only {path:?}"), &mut || {
                    wires
                        .iter()
                        .map(|w| {
                            arena.reset();
                            u64::from(protobuf::decode_on::<Ours>(path, w, &mut arena, &limits).is_ok())
                        })
                        .fold(0, u64::wrapping_add)
                });
            }
            let types = Ours::types();
            time("table decode", &mut || {
                wires
                    .iter()
                    .map(|w| {
                        arena.reset();
                        u64::from(protobuf::table::decode(types, Ours::INDEX, w, &mut arena, &limits).is_ok())
                    })
                    .sum()
            });
        }
        println!("{} {bytes} B, {}% absent", stringify!($name), $absent);
        let median = |list: &[f64]| {
            let mut list = list.to_vec();
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        let of = |what: &str| median(&times.iter().find(|(name, _)| name == what).unwrap().1);
        for (name, list) in &times {
            let peer = of(if name.contains("encode") { "prost encode" } else { "prost decode" });
            println!("  {name:28} {:7.1} ns  {:.2}x", median(list), peer / median(list));
        }
    }};
}

fn main() {
    for absent in [0, 10, 60, 95] {
        class!(Flat, fill_flat, theirs_flat, ours_flat, absent);
        class!(Mixed, fill_mixed, theirs_mixed, ours_mixed, absent);
        class!(Nested, fill_nested, theirs_nested, ours_nested, absent);
    }
}
