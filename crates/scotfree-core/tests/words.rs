//! What the core's words come to: times, places, codes and names.

use scotfree_core::{
    Boundaries, Boundary, Durability, Effect, Effects, Nanos, OrderNumber, SeqNum, SessionId, Stage,
    StageSet, StageTimes, StampSource, Token,
};
use std::collections::BTreeSet;
use std::net::SocketAddr;

#[test]
fn spans_are_counted_in_nanoseconds_and_places_follow_each_other() {
    assert_eq!(Nanos::from_micros(3), Nanos(3_000));
    assert_eq!(Nanos::from_millis(3), Nanos(3_000_000));
    assert_eq!(Nanos::from_secs(3), Nanos(3_000_000_000));
    assert_eq!((Nanos(7).plus(Nanos(4)), Nanos(7).since(Nanos(4))), (Nanos(11), Nanos(3)));
    assert_eq!((SeqNum(7).next(), OrderNumber(7).next()), (SeqNum(8), OrderNumber(8)));
    assert_eq!(SeqNum(u64::MAX).next(), SeqNum(u64::MAX));
    assert_eq!(SessionId(12).to_string(), "12");
}

#[test]
fn durability_is_a_set_of_domains() {
    use Durability::{Disk, None, Ram, RamAndDisk};
    assert_eq!(
        [None, Ram, Disk, RamAndDisk].map(|each| each.to_string()),
        ["none", "ram", "disk", "ram+disk"]
    );
    assert_eq!([None, Ram, Disk, RamAndDisk].map(Durability::code), [0, 1, 2, 3]);
    for (left, right, with, without, satisfies) in [
        (None, Ram, Ram, None, false),
        (Ram, Ram, Ram, None, true),
        (Ram, Disk, RamAndDisk, Ram, false),
        (RamAndDisk, Ram, RamAndDisk, Disk, true),
        (Ram, RamAndDisk, RamAndDisk, None, false),
        (Disk, None, Disk, Disk, true),
    ] {
        let found = (left.with(right), left.without(right), left.satisfies(right));
        assert_eq!(found, (with, without, satisfies), "{left} and {right}");
    }
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
fn times_are_of_the_stage_that_they_were_set_for() {
    let mut times = StageTimes::default();
    for (at, stage) in Stage::ALL.into_iter().enumerate() {
        times.set(stage, Nanos(1 << at));
    }
    assert_eq!((times.get(Stage::RequestWire), times.total()), (Nanos(4), Nanos(511)));
    assert_eq!(times.of(StageSet::of(&[Stage::RequestStack, Stage::ResponseWire])), Nanos(2 + 128));
    assert_eq!((times.tax(), times.of(StageSet::EMPTY)), (Nanos(511 - 16), Nanos(0)));
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
