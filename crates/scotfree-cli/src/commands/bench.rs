//! The command `scot bench`: what is measured beside others' libraries, at once.
//!
//! Invariant: with `--json` standard output has one JSON object and nothing else.

mod ring;

use crate::cli::{Bench, BenchCodec};
use crate::failure::Failure;
use crate::out;
use scotfree_io::stderr;
use scotfree_lab::codec::{all_shapes, is_shape, render, rows, Program};
use serde_json::json;

/// So many rounds say little more than that it works.
const QUICK_ROUNDS: u32 = 5;

pub fn run(command: &Bench) -> Result<(), Failure> {
    match command {
        Bench::Codec(flags) => codec(flags),
        Bench::Ring(flags) => ring::run(flags),
    }
}

fn codec(flags: &BenchCodec) -> Result<(), Failure> {
    if let Some(word) = flags.shapes.iter().find(|word| !is_shape(word)) {
        let there_are = all_shapes().join(", ");
        return Err(Failure::usage(format!("there are no messages `{word}`; there are: {there_are}")));
    }
    let shapes = if flags.shapes.is_empty() { all_shapes() } else { flags.shapes.clone() };
    let rounds = if flags.quick { QUICK_ROUNDS } else { flags.rounds };
    let program = Program::build(&flags.repository)?;
    let mut count = 0;
    let lines = program.measure(&shapes, rounds, |shape| {
        count += 1;
        stderr::line(format_args!("{count} of {}: {shape}", shapes.len()));
    })?;
    let rows = rows(&lines);
    if flags.json {
        out::json(&json!({ "rounds": rounds, "rows": rows }));
    } else {
        out::text(render(&rows));
    }
    Ok(())
}
