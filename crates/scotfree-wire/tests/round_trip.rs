//! What is written is what is read, for packets of every kind, and there is one way to write each.

mod common;

use common::{any_record, any_sample, Further, KEY, STAMP_KEY};
use proptest::prelude::*;
use scotfree_wire::{
    emit_extended, emit_stamp, CloseReason, Flags, Kind, ManifestRecord, Packet, Tail, MANIFEST_RECORD_BYTES,
};
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn a_packet_is_read_as_it_was_written(sample in any_sample()) {
        let bytes = sample.bytes();
        let packet = Packet::parse(&bytes).expect("what emit writes is a packet");
        prop_assert_eq!(packet.header(), &sample.header);
        prop_assert_eq!(packet.tail(), &sample.tail);
        prop_assert_eq!(packet.payload(), &sample.payload[..]);
        let said = packet.extensions();
        prop_assert_eq!(said.further_keys().collect::<Vec<_>>(), &sample.further.keys[..]);
        prop_assert_eq!((said.identity(), said.object()), (sample.further.identity, sample.further.object));
        prop_assert_eq!(said.set(), sample.further.extensions().set());
        prop_assert_eq!(packet.bytes(), &bytes[..]);
        prop_assert_eq!(packet.verify(&KEY), Ok(()));
        if let (true, Tail::Stamp(stamp)) = (packet.kind().is_request(), sample.tail) {
            prop_assert_eq!(packet.verified_stamp(&STAMP_KEY), Ok(stamp));
        }
    }

    #[test]
    fn packets_are_appended(first in any_sample(), second in any_sample()) {
        let mut out = first.bytes();
        let start = out.len();
        emit_extended(&second.header, &second.tail, &second.further.extensions(), &second.payload, &KEY, &mut out);
        prop_assert!(Packet::parse(&out[..start]).is_ok_and(|packet| packet.verify(&KEY).is_ok()));
        prop_assert!(Packet::parse(&out[start..]).is_ok_and(|packet| packet.verify(&KEY).is_ok()));
    }

    /// Whatever parses, if written again, has the same bytes but for the codes: no two packets mean
    /// the same, so nothing can hide in one.
    #[test]
    fn there_is_one_way_to_write_a_packet(
        sample in any_sample(), at in any::<prop::sample::Index>(), value in any::<u8>(),
    ) {
        let mut bytes = sample.bytes();
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(packet) = Packet::parse(&bytes) {
            let mut again = Vec::new();
            let view = packet.extensions();
            let further = Further {
                keys: view.further_keys().collect(),
                identity: view.identity(),
                object: view.object(),
            };
            let (header, tail) = (packet.header(), packet.tail());
            emit_extended(header, tail, &further.extensions(), packet.payload(), &KEY, &mut again);
            let stamp_code = if packet.kind().is_request() { 88..96 } else { 0..0 };
            for (at, (left, right)) in bytes.iter().zip(&again).enumerate() {
                prop_assert!(left == right || (56..64).contains(&at) || stamp_code.contains(&at), "byte {at}");
            }
        }
    }

    #[test]
    fn a_manifest_record_is_read_as_it_was_written(record in any_record()) {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        prop_assert_eq!(bytes.len(), MANIFEST_RECORD_BYTES);
        prop_assert_eq!(ManifestRecord::read(&bytes), Ok(record));
    }

    #[test]
    fn a_stamp_leaves_the_request_authentic(sample in any_sample(), stamp in common::any_stamp()) {
        let mut bytes = sample.bytes();
        let stamped = emit_stamp(&mut bytes, &stamp, &STAMP_KEY);
        prop_assert_eq!(stamped.is_ok(), sample.header.kind.is_request());
        let packet = Packet::parse(&bytes).expect("a stamped packet is a packet");
        prop_assert_eq!(packet.verify(&KEY), Ok(()));
        if stamped.is_ok() {
            prop_assert_eq!(packet.verified_stamp(&STAMP_KEY), Ok(stamp));
        }
    }
}

#[test]
fn codes_of_kinds_are_dense() {
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, index + 1);
        assert_eq!(Kind::from_code(kind as u8), Some(kind));
    }
    assert_eq!(Kind::from_code(0), None);
    assert_eq!(Kind::from_code(Kind::ALL.len() as u8 + 1), None);
}

#[test]
fn every_flag_has_its_own_bit_and_name() {
    let bits = Flags::ALL.into_iter().map(|(_, flag)| flag);
    assert!(bits.clone().all(|flag| flag.0.is_power_of_two()));
    assert_eq!(bits.fold(Flags::NONE, Flags::with), Flags(511));
    let names: BTreeSet<&str> = Flags::ALL.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), Flags::ALL.len());
}

#[test]
fn codes_of_reasons_are_dense_and_their_names_differ() {
    let names: BTreeSet<&str> = CloseReason::ALL.into_iter().map(CloseReason::name).collect();
    assert_eq!(names.len(), CloseReason::ALL.len());
    assert!(CloseReason::ALL.into_iter().enumerate().all(|(index, reason)| reason as usize == index + 1));
}
