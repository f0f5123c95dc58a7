//! `codec-peers`: what each codec takes for the same messages, a line of JSON an arm and round.
//!
//! Invariant: all arms of a shape are in this one process on one processor, in turns.

use codec_peers::bench::{measure, pin, with, Bench, Round, SHAPES};
use serde_json::json;

const USAGE: &str = "codec-peers time [SHAPE[:ABSENT]]... [--rounds N]
codec-peers once SHAPE[:ABSENT] encode|decode ARM TIMES
codec-peers list

time prints a line of JSON for each arm and round; once does the work of one arm so often, for a tool that counts
instructions. ABSENT says how many of a hundred fields are, of the shapes flat, mixed and nested: 10 if nothing is said.";

const ROUNDS: u32 = 31;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => SHAPES.iter().for_each(|shape| println!("{shape}")),
        ["once", shape, way, arm, times] => once(shape, way, arm, number(times)),
        ["time", ref shapes @ .., "--rounds", rounds] => time(shapes, number(rounds)),
        ["time", ref shapes @ ..] => time(shapes, ROUNDS.into()),
        _ => wrong(),
    }
}

fn time(shapes: &[&str], rounds: u64) {
    pin();
    let all: Vec<&str> = if shapes.is_empty() { SHAPES.to_vec() } else { shapes.to_vec() };
    for shape in all {
        let (name, absent) = shape_of(shape);
        with(name, absent, &mut |bench| {
            let (bytes, messages, items) = (bench.bytes, bench.messages, bench.items);
            measure(bench, rounds as u32, &mut |Round { arm, work, round, ns }| {
                println!(
                    "{}",
                    json!({
                        "shape": name, "absent": absent, "work": work.name(), "arm": arm, "round": round, "ns": ns,
                        "bytes": bytes as f64 / messages as f64, "items": items as f64 / messages as f64,
                    })
                );
            });
        });
    }
}

fn once(shape: &str, way: &str, arm: &str, times: u64) {
    let (name, absent) = shape_of(shape);
    with(name, absent, &mut |bench: &mut Bench<'_>| {
        let (bytes, messages) = (bench.bytes, bench.messages);
        let found = bench.arms().iter_mut().find(|one| one.name == arm && one.work.name() == way);
        let Some(found) = found else { wrong() };
        for _ in 0..times {
            assert_eq!(std::hint::black_box((found.run)()), found.expected);
        }
        println!("{}", json!({ "bytes": bytes, "messages": messages }));
    });
}

fn shape_of(word: &str) -> (&str, u64) {
    let (name, absent) = word.split_once(':').map_or((word, 10), |(name, absent)| (name, number(absent)));
    if !SHAPES.contains(&name) || absent > 100 {
        wrong();
    }
    (name, absent)
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| wrong())
}

fn wrong() -> ! {
    eprintln!("{USAGE}");
    std::process::exit(2);
}
