//! What the words mean that every crate speaks: sets, sums, spans, places, codes, and names that differ.

use scotfree_core::{
    Boundaries, Boundary, Durability, Effect, Effects, Nanos, OrderNumber, SeqNum, Stage, StageSet,
    StageTimes, StampSource, Tier, Token, STAGE_COUNT,
};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const DURABILITIES: [Durability; 4] =
    [Durability::None, Durability::Ram, Durability::Disk, Durability::RamAndDisk];

/// Whether it lies in the memory and on the storage of a device.
fn places(durability: Durability) -> [bool; 2] {
    match durability {
        Durability::None => [false, false],
        Durability::Ram => [true, false],
        Durability::Disk => [false, true],
        Durability::RamAndDisk => [true, true],
    }
}

#[test]
fn durabilities_are_sets_of_places() {
    let both = |one: [bool; 2], other: [bool; 2], of: fn(bool, bool) -> bool| {
        [of(one[0], other[0]), of(one[1], other[1])]
    };
    for one in DURABILITIES {
        for other in DURABILITIES {
            let (here, there) = (places(one), places(other));
            assert_eq!(places(one.with(other)), both(here, there, |one, other| one || other));
            assert_eq!(places(one.without(other)), both(here, there, |one, other| one && !other));
            assert_eq!(one.satisfies(other), both(here, there, |one, other| one || !other) == [true; 2]);
        }
        assert_eq!(Durability::from_code(one.code()), Some(one));
    }
    assert_eq!(DURABILITIES.map(|one| one.to_string()), ["none", "ram", "disk", "ram+disk"]);
}

#[test]
fn a_tier_says_what_was_put_into_it() {
    let tier = Tier::new(Durability::Disk, 3).expect("there is one such");
    assert_eq!((tier.durability(), tier.device_count()), (Durability::Disk, 3));
    for (text, durability, device_count) in [
        ("none", Durability::None, 0),
        ("disk", Durability::Disk, 1),
        ("ram:2+disk", Durability::RamAndDisk, 2),
    ] {
        let tier: Tier = text.parse().expect(text);
        assert_eq!((tier.durability(), tier.device_count()), (durability, device_count));
        assert_eq!(tier.to_string(), text);
    }
}

#[test]
fn a_set_of_stages_has_those_that_it_was_made_of() {
    let has = |set: StageSet| Stage::ALL.into_iter().filter(|stage| set.contains(*stage)).collect::<Vec<_>>();
    for count in 0..=STAGE_COUNT {
        assert_eq!(has(StageSet::of(&Stage::ALL[..count])), Stage::ALL[..count]);
        assert_eq!(has(StageSet::of(&Stage::ALL[count..])), Stage::ALL[count..]);
    }
    let tax: Vec<Stage> = Stage::ALL.into_iter().filter(|stage| *stage != Stage::ServerApp).collect();
    assert_eq!(StageSet::tax(), StageSet::of(&tax));
    assert_eq!(has(StageSet::EMPTY), []);
    assert_eq!(Stage::ALL.map(Stage::index), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn the_time_of_a_set_is_the_sum_of_its_stages() {
    let mut times = StageTimes::default();
    for stage in Stage::ALL {
        times.set(stage, Nanos(1 << stage.index()));
    }
    assert_eq!(times.total(), Nanos(511));
    for stage in Stage::ALL {
        assert_eq!(times.of(StageSet::of(&[stage])), times.get(stage));
    }
    assert_eq!(times.tax(), Nanos(511 - 16), "the fifth is the work that the caller asked for");
}

/// (stamps, what is moved of them, which stages take how long)
#[test]
fn stages_lie_between_the_stamps_of_their_boundaries() {
    for (stamps, moved, stages) in [
        ([10, 11, 13, 17, 25, 41, 42, 45, 50, 60], 0, [1, 2, 4, 8, 16, 1, 3, 5, 10]),
        // Not stamped: of no length, and the next one takes its time.
        ([10, 11, 0, 17, 25, 0, 0, 45, 50, 60], 0, [1, 0, 6, 8, 0, 0, 20, 5, 10]),
        // Two of a clock that is slow, one of a clock that is fast.
        ([10, 20, 17, 15, 25, 41, 42, 45, 63, 60], 3 + 5 + 3, [10, 0, 0, 5, 16, 1, 3, 15, 0]),
    ] {
        let mut boundaries = Boundaries::default();
        for (boundary, at) in Boundary::ALL.into_iter().zip(stamps) {
            boundaries.stamp(boundary, Nanos(at));
            assert_eq!(boundaries.at(boundary), (at > 0).then_some(Nanos(at)));
        }
        let (times, by) = boundaries.stages();
        assert_eq!(Stage::ALL.map(|stage| times.get(stage).0), stages, "{stamps:?}");
        assert_eq!((times.total(), by), (Nanos(50), Nanos(moved)));
    }
}

#[test]
fn names_differ_and_are_words() {
    let mut names: Vec<&str> = Stage::ALL.map(Stage::name).to_vec();
    names.extend(StampSource::ALL.map(StampSource::name));
    let different: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(different.len(), STAGE_COUNT + StampSource::ALL.len());
    assert!(names
        .iter()
        .all(|name| !name.is_empty() && !name.contains(|c: char| !c.is_ascii_lowercase() && c != '_')));
    assert_eq!(format!("[{:>11}]", Stage::ServerApp), "[ server_app]");
    assert_eq!(StampSource::ALL.map(StampSource::code), [0, 1, 2]);
    let of_codes = [0, 1, 2, 3].map(StampSource::from_code);
    assert_eq!(
        of_codes,
        [Some(StampSource::Lib), Some(StampSource::Kernel), Some(StampSource::Derived), None]
    );
}

#[test]
fn spans_and_places_count_up() {
    assert_eq!((Nanos::from_micros(3), Nanos::from_millis(3)), (Nanos(3_000), Nanos(3_000_000)));
    assert_eq!(Nanos::from_secs(3), Nanos(3_000_000_000));
    assert_eq!((Nanos(7).plus(Nanos(3)), Nanos(7).since(Nanos(3))), (Nanos(10), Nanos(4)));
    assert_eq!((SeqNum(7).next(), OrderNumber(7).next()), (SeqNum(8), OrderNumber(8)));
    assert_eq!(SeqNum(u64::MAX).next(), SeqNum(u64::MAX));
}

#[test]
fn a_buffer_of_effects_keeps_what_was_wished_for_in_order() {
    let here = "10.0.0.1:1".parse().expect("an address");
    let mut effects: Effects<u8> = Effects::new();
    assert!(effects.is_empty());
    effects.erase(Token(3));
    let apart = effects.append(|out| out.extend_from_slice(b"apart"));
    effects.send(here, here, |out| out.extend_from_slice(b"sent"));
    effects.own(9);
    assert_eq!((effects.bytes(apart), effects.len(), effects.is_empty()), (&b"apart"[..], 3, false));
    let kinds: Vec<&str> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Erase { token: Token(3) } => "erase",
            Effect::Send { bytes, .. } if effects.bytes(*bytes) == b"sent" => "send",
            Effect::Own(9) => "own",
            _ => "another",
        })
        .collect();
    assert_eq!(kinds, ["erase", "send", "own"]);
}

#[test]
fn wishes_are_carried_in_their_order_each_with_its_bytes() {
    let here: SocketAddr = "10.0.0.1:1".parse().expect("an address");
    let mut effects: Effects<u8> = Effects::new();
    assert!(effects.is_empty());
    let first = effects.append(|out| out.push(b'1'));
    effects.persist(Token(7), |out| out.extend_from_slice(b"two"));
    let range = effects.append(|out| out.extend_from_slice(b"more"));
    effects.erase(Token(8));
    effects.own(9);
    effects.send(here, here, |out| out.push(b'!'));
    assert_eq!((effects.len(), effects.is_empty(), effects.bytes(range)), (4, false, b"more".as_slice()));
    let texts: Vec<String> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Send { bytes, .. } => format!("send {}", effects.bytes(*bytes).len()),
            Effect::Persist { token, bytes } => {
                format!("persist {} {}", token.0, effects.bytes(*bytes).len())
            }
            Effect::Erase { token } => format!("erase {}", token.0),
            Effect::Own(own) => format!("own {own}"),
        })
        .collect();
    assert_eq!(texts, ["persist 7 3", "erase 8", "own 9", "send 1"]);
    effects.clear();
    assert!(effects.is_empty());
    let again = effects.append(|out| out.push(b'a'));
    assert_eq!((again, effects.bytes(again)), (first, b"a".as_slice()), "the bytes are forgotten too");
}

#[test]
fn stages_have_their_own_names_and_places() {
    let names: BTreeSet<&str> = Stage::ALL.into_iter().map(Stage::name).collect();
    assert_eq!(names.len(), Stage::ALL.len());
    for (index, stage) in Stage::ALL.into_iter().enumerate() {
        assert_eq!((stage.index(), stage.to_string()), (index, stage.name().to_owned()));
    }
    assert_eq!(format!("{:>11}", Stage::ServerApp), " server_app", "a table can be made of them");
    let both = StageSet::of(&[Stage::ClientSendQueue, Stage::ResponseWire]);
    for stage in Stage::ALL {
        let is_named = matches!(stage, Stage::ClientSendQueue | Stage::ResponseWire);
        assert_eq!(both.contains(stage), is_named, "{stage}");
        assert_eq!(StageSet::tax().contains(stage), stage != Stage::ServerApp, "{stage}");
        assert!(!StageSet::EMPTY.contains(stage));
    }
}

#[test]
fn a_boundary_that_was_not_stamped_is_not_there() {
    let mut boundaries = Boundaries::default();
    boundaries.stamp(Boundary::Called, Nanos(5));
    boundaries.stamp(Boundary::HandlerStarted, Nanos(30));
    boundaries.stamp(Boundary::Resumed, Nanos(40));
    assert_eq!(boundaries.at(Boundary::HandlerStarted), Some(Nanos(30)));
    assert_eq!(boundaries.at(Boundary::HandlerEnded), None);
    let (times, moved) = boundaries.stages();
    assert_eq!(
        (times.get(Stage::ServerRecvQueue), times.get(Stage::ClientRecvQueue)),
        (Nanos(25), Nanos(10))
    );
    assert_eq!((times.total(), moved), (Nanos(35), Nanos(0)));
    // Stamps before the call and after its end are moved to them, and both are told.
    boundaries.stamp(Boundary::RequestSent, Nanos(2));
    boundaries.stamp(Boundary::HandlerEnded, Nanos(47));
    let (times, moved) = boundaries.stages();
    assert_eq!((times.total(), times.get(Stage::ServerApp), moved), (Nanos(35), Nanos(10), Nanos(3 + 7)));
}

#[test]
fn sources_have_their_own_codes_and_names() {
    let names: BTreeSet<&str> = StampSource::ALL.into_iter().map(StampSource::name).collect();
    assert_eq!(names, BTreeSet::from(["lib", "kernel", "derived"]));
    for (code, source) in StampSource::ALL.into_iter().enumerate() {
        assert_eq!((usize::from(source.code()), StampSource::from_code(code as u64)), (code, Some(source)));
    }
    assert_eq!(StampSource::from_code(StampSource::ALL.len() as u64), None);
}
