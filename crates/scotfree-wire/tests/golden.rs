//! The golden vectors both ways: the files are what the code writes, and the code reads from the
//! files what was meant. `cargo run -p xtask -- golden` makes them anew; a difference is a change of
//! the protocol.

use scotfree_wire::golden::{decode, vectors, PACKET_KEY, STAMP_KEY};
use scotfree_wire::{Kind, Packet, Tail};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn file(name: &str) -> String {
    let path = folder().join(format!("{name}.hex"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn what_is_written_is_the_file() {
    for vector in vectors() {
        let file = decode(&file(vector.name)).expect("a vector's file is well formed");
        assert_eq!(vector.bytes(), file, "{}", vector.name);
    }
}

#[test]
fn what_is_read_from_the_file_is_what_was_meant() {
    for vector in vectors() {
        let bytes = decode(&file(vector.name)).expect("a vector's file is well formed");
        let packet = Packet::parse(&bytes).expect("a vector is a packet");
        assert_eq!(packet.header(), &vector.header, "{}", vector.name);
        assert_eq!(packet.tail(), &vector.tail, "{}", vector.name);
        assert_eq!(packet.payload(), vector.payload, "{}", vector.name);
        let said = packet.extensions();
        assert_eq!(
            said.further_keys().collect::<Vec<_>>(),
            vector.extensions.further_keys,
            "{}",
            vector.name
        );
        assert_eq!((said.identity(), said.object()), (vector.extensions.identity, vector.extensions.object));
        assert_eq!(packet.verify(&PACKET_KEY), Ok(()), "{}", vector.name);
        if let (true, Tail::Stamp(stamp)) = (packet.kind().is_request(), vector.tail) {
            assert_eq!(packet.verified_stamp(&STAMP_KEY), Ok(stamp), "{}", vector.name);
        }
    }
}

#[test]
fn the_annotations_are_true() {
    for vector in vectors() {
        assert_eq!(vector.render(), file(vector.name), "{}", vector.name);
    }
}

#[test]
fn every_kind_has_a_file_and_every_file_a_vector() {
    let entries = std::fs::read_dir(folder()).expect("the vectors' folder");
    let files: BTreeSet<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    let named: BTreeSet<String> = vectors().iter().map(|vector| format!("{}.hex", vector.name)).collect();
    assert_eq!(files, named);
    for kind in Kind::ALL {
        let own =
            vectors().into_iter().find(|vector| vector.name == kind.name()).expect("a vector of its name");
        assert_eq!(own.header.kind, kind);
    }
}

#[test]
fn a_damaged_file_is_refused_with_its_line() {
    assert_eq!(decode("# a comment\n\n   0 magic 53434f54 # SCOT\n"), Ok(b"SCOT".to_vec()));
    assert_eq!(decode("0 magic 5343\n4 version 01"), Err("line 2: the offset is 2 and not 4".into()));
    assert_eq!(decode("0 magic 534"), Err("line 1: `534` is not hex".into()));
    assert_eq!(decode("0 magic 5x"), Err("line 1: `5x` is not hex".into()));
}
