//! What the core's words come to: times, places, codes and names.

use scotfree_core::{Boundaries, Boundary, Effect, Effects, Nanos, Stage, StageSet, StampSource, Token};
use std::collections::BTreeSet;
use std::net::SocketAddr;

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
