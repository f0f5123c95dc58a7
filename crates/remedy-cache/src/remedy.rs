//! What the remedy says of itself, and how its function is made.

use crate::function::ReadCache;
use scotfree_cache::{Limits, Planted, Redis};
use scotfree_core::{RemedyEntry, Stage, StageSet};
use scotfree_device::{Function, FunctionOption, Maker, Settings};
use scotfree_wire::PACKET_BYTES_MAX;

/// Reads answered by the device.
pub const ENTRY: RemedyEntry = RemedyEntry {
    name: "cache",
    about: "the device before a server answers reads of what it has seen pass",
    removes,
    preconditions: &[
        "the request is one of 24 reads of one key (GET, HGET, SMEMBERS, XRANGE …) that was read or set through the device, and its \
         connection waits for nothing else",
        "the device is the only one, on every way to the server, and holds its lease",
        "nobody writes the store in another way",
        "the server's sidecar vouches for its replies (cache_device)",
    ],
    covers: &[
        "crates/remedy-cache",
        "crates/scotfree-device",
        "crates/scotfree-io",
        "crates/scotfree-session",
        "crates/scotfree-switch",
        "crates/scotfree-wire",
    ],
};

/// The stages beyond the device fall away.
fn removes() -> StageSet {
    StageSet::of(&[Stage::ServerRecvQueue, Stage::ServerApp, Stage::ServerSendQueue, Stage::ResponseStack])
}

const BYTES_MAX: FunctionOption = FunctionOption {
    name: "bytes_max",
    about: "bytes of keys and values, and 128 for each of them",
    default: 64 << 20,
    range: (64 << 10, 64 << 30),
};
const ENTRIES_MAX: FunctionOption = FunctionOption {
    name: "entries_max",
    about: "values that it keeps",
    default: 1 << 18,
    range: (1, 1 << 28),
};
const VALUE_BYTES_MAX: FunctionOption = FunctionOption {
    name: "value_bytes_max",
    about: "bytes of a reply; longer ones are passed on and not kept",
    default: 1_300,
    range: (16, PACKET_BYTES_MAX as u64),
};
const ADMIT_READS: FunctionOption = FunctionOption {
    name: "admit_reads",
    about: "how often keys of one bucket were read before a reply is kept",
    default: 2,
    range: (0, 100),
};

/// How its function is made.
pub const MAKER: Maker = Maker {
    options: &[BYTES_MAX, ENTRIES_MAX, VALUE_BYTES_MAX, ADMIT_READS],
    obstacle,
    ..Maker::plain("cache", make)
};

/// K11: behind another device it would not know what that one has acknowledged.
fn obstacle(settings: &Settings) -> Option<String> {
    let text = "`cache` answers for the server, which only a device can that sees every request first and no other logs: \
                take it out of the list, or let this be the only device on the path (head = true)";
    (!settings.head).then(|| text.to_owned())
}

fn make(settings: &Settings) -> Box<dyn Function> {
    let option = |option: &FunctionOption| settings.option(ENTRY.name, option);
    let limits = Limits {
        bytes_max: option(&BYTES_MAX) as usize,
        entries_max: option(&ENTRIES_MAX) as usize,
        value_bytes_max: option(&VALUE_BYTES_MAX) as usize,
        admit_reads: option(&ADMIT_READS) as u8,
        ..Limits::default()
    };
    Box::new(ReadCache::new(limits, Box::new(Redis), Planted::NONE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_device::{check_settings, OptionValue};

    #[test]
    fn the_defaults_are_those_of_the_options() {
        let Limits { bytes_max, entries_max, value_bytes_max, admit_reads, .. } = Limits::default();
        let of_options =
            [&BYTES_MAX, &ENTRIES_MAX, &VALUE_BYTES_MAX, &ADMIT_READS].map(|option| option.default);
        assert_eq!(
            of_options,
            [bytes_max, entries_max, value_bytes_max, usize::from(admit_reads)].map(|limit| limit as u64)
        );
    }

    #[test]
    fn it_stands_in_the_head_alone_and_takes_its_own_options() {
        let option =
            |name: &str, value| OptionValue { function: "cache".to_owned(), name: name.to_owned(), value };
        let settings = |head, option| Settings { head, options: vec![option], ..Settings::default() };
        let check = |head, option| check_settings(&[MAKER], &settings(head, option));
        assert_eq!(check(true, option("bytes_max", 1 << 20)), Ok(()));
        let tail = check(false, option("bytes_max", 1 << 20)).expect_err("it follows another");
        assert!(tail.starts_with("functions: `cache` answers for the server"), "{tail}");
        let small = check(true, option("bytes_max", 1)).expect_err("nothing fits");
        assert!(small.contains("`cache.bytes_max` is 1; allowed are 65536 to"), "{small}");
    }
}
