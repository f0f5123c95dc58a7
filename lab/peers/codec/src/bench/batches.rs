//! Messages one by one, and several at once into one arena (Optimus Prime, 6.2.2: contexts that share a Reader's time).
//!
//! Here the processor shares it: as one message's chain waits, the next one's begins, whether or not they are a batch.

use super::classes::drawn;
use super::{Bench, Work};
use crate::messages::classes::Mixed;
use crate::{fill_mixed, Read as _};
use scotfree_transform::{protobuf, Arena, Input, Limits};

/// 10 % of the fields are absent.
const ABSENT: u64 = 10;

pub(super) fn mixed(work: &mut dyn FnMut(&mut Bench<'_>)) {
    let wires = drawn(fill_mixed, ABSENT);
    let inputs: Vec<Input<'_>> = wires.iter().map(|wire| Input::from(&wire[..])).collect();
    let [ones, twos, fours] = [1, 2, 4].map(|size| inputs.chunks(size).collect::<Vec<_>>());
    let limits = Limits::default();
    let mut bench = Bench::new("batches", &wires);
    let mut arena = Arena::new();
    bench.arm("ours", Work::Decode, &wires, move |wire| {
        arena.reset();
        protobuf::decode::<Mixed>(wire, &mut arena, &limits).unwrap().sum()
    });
    for (name, batches) in [("ours-batch-1", &ones), ("ours-batch-2", &twos), ("ours-batch-4", &fours)] {
        let mut arena = Arena::new();
        bench.arm(name, Work::Decode, batches, move |&inputs| {
            arena.reset();
            let batch = protobuf::decode_batch::<Mixed>(inputs, &mut arena, &limits);
            batch.iter().map(|message| message.unwrap().sum()).fold(0, u64::wrapping_add)
        });
    }
    work(&mut bench);
}
