//! The last value that a field may hold and the first that it may not, and what sets of flags and words of a
//! header with several readings say.

use scotfree_core::{DeviceId, Epoch, KeyHash, SeqNum, SessionId};
use scotfree_wire::{
    emit, emit_stamp, ClusterKey, Direction, ExtensionSet, Family, Flags, Header, Key, KeyEpoch, Kind,
    Packet, Stamp, StampKind, Tail, WireError, PACKET_BYTES_MAX, PAYLOAD_BYTES_MAX,
};

const KEY: Key = Key::from_bytes([7; 16]);

fn written(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let tail = if header.kind.has_stamp() { Tail::Stamp(Stamp::default()) } else { Tail::Empty };
    emit(header, &tail, payload, &KEY, &mut out);
    out
}

fn of(kind: Kind) -> Header {
    Header::new(kind, SessionId(1), Epoch(1))
}

#[test]
fn a_packet_fits_an_ethernet_frame_behind_the_headers_of_ipv6_and_udp() {
    assert_eq!((PACKET_BYTES_MAX + 40 + 8, PAYLOAD_BYTES_MAX + 64 + 32), (1_500, PACKET_BYTES_MAX));
    let request = Header { seq_num: SeqNum(1), ..of(Kind::Update) };
    let largest = written(&request, &[0; PAYLOAD_BYTES_MAX]);
    assert_eq!(largest.len(), PACKET_BYTES_MAX);
    assert!(Packet::parse(&largest).is_ok());
    let mut larger = largest;
    larger[44..48].copy_from_slice(&(PAYLOAD_BYTES_MAX as u32 + 1).to_le_bytes());
    larger.push(0);
    assert_eq!(Packet::parse(&larger).map(|_| ()), Err(WireError::Oversized));
}

#[test]
fn a_header_is_refused_from_the_first_value_on_that_no_field_may_hold() {
    let ack = of(Kind::ServerAck);
    let request = Header { seq_num: SeqNum(1), ..of(Kind::Update) };
    let last = u64::MAX - 2;
    for (header, valid) in [
        (Header { seq_num: SeqNum(last), ..ack }, true),
        (Header { seq_num: SeqNum(last + 1), ..ack }, false),
        (Header { completed: SeqNum(last), ..ack }, true),
        (Header { completed: SeqNum(last + 1), ..ack }, false),
        (Header { seq_num: SeqNum(0), ..ack }, true),
        (request, true),
        (Header { seq_num: SeqNum(0), ..request }, false),
        (Header { flags: Flags(511), ..ack }, true),
        (Header { flags: Flags(512), ..ack }, false),
        (Header { fragment_index: 1, fragment_count: 2, ..request }, true),
        (Header { fragment_index: 2, fragment_count: 2, ..request }, false),
        (Header { fragment_count: 0, ..request }, false),
    ] {
        let bytes = written(&header, b"");
        let read = Packet::parse(&bytes).map(|packet| *packet.header());
        assert_eq!(read, if valid { Ok(header) } else { Err(WireError::InvalidField) }, "{header:?}");
    }
}

/// What is cut short is not read past its end.
#[test]
fn every_packet_that_is_cut_short_is_truncated() {
    let whole = written(&Header { seq_num: SeqNum(1), ..of(Kind::Read) }, b"seven");
    for bytes in 0..whole.len() {
        assert_eq!(Packet::parse(&whole[..bytes]).map(|_| ()), Err(WireError::Truncated), "{bytes} bytes");
    }
}

#[test]
fn only_requests_and_responses_bear_extensions() {
    for kind in Kind::ALL {
        let mut bytes = written(&Header { seq_num: SeqNum(1), ..of(Kind::ServerAck) }, b"");
        bytes[5] = kind as u8;
        bytes.resize(64 + kind.tail_bytes(), 0);
        // A word of an unknown extension.
        bytes[11] = 1;
        bytes.extend_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0]);
        let refusal = Packet::parse(&bytes).map(|_| ()).expect_err("nobody knows it");
        let bears = matches!(kind, Kind::Update | Kind::Read | Kind::Bypass | Kind::Response);
        let expected = if bears { WireError::UnknownExtension } else { WireError::InvalidField };
        assert_eq!(refusal, expected, "{kind:?}");
    }
}

#[test]
fn a_set_has_what_was_put_into_it_and_nothing_else() {
    let (early, skip, void) = (Flags::EARLY, Flags::SKIP, Flags::VOID);
    let both = early.with(skip);
    assert_eq!(both.with(skip), both, "what is in it stays in it");
    for (set, other, has) in [
        (both, early, true),
        (both, both, true),
        (early, both, false),
        (both, void, false),
        (both, Flags::NONE, true),
        (Flags::NONE, early, false),
    ] {
        assert_eq!(set.has(other), has, "{set:?} {other:?}");
        // The sets of extensions keep the same rules.
        assert_eq!(ExtensionSet(set.0.into()).has(ExtensionSet(other.0.into())), has);
    }
    let (keys, object) = (ExtensionSet::KEYS, ExtensionSet::OBJECT);
    assert_eq!(keys.with(object).with(object), ExtensionSet(5));
    let all = keys.with(ExtensionSet::IDENTITY).with(object);
    assert_eq!((all, keys.with(object).has(ExtensionSet::IDENTITY)), (ExtensionSet::ALL, false));
}

#[test]
fn a_key_is_the_two_words_from_which_siphash_starts() {
    let bytes: [u8; 16] = core::array::from_fn(|index| index as u8);
    let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
    assert_eq!(Key::from_bytes(bytes).words(), words);
    assert_eq!(Key::from_words(words), Key::from_bytes(bytes));
}

#[test]
fn a_packet_and_its_stamp_are_authentic_under_any_epoch_that_is_held() {
    let made = |epochs: &[u32]| {
        let secrets = epochs.iter().map(|epoch| (KeyEpoch(*epoch), [*epoch as u8; 32]));
        ClusterKey::from_epochs(secrets.collect()).expect("they grow").controls(Direction::Stamp)
    };
    let stamp = Stamp { kind: StampKind::Order, device: DeviceId(3), ..Stamp::default() };
    let key = made(&[4]).newest();
    let header = Header { seq_num: SeqNum(1), ..of(Kind::Update) };
    let mut bytes = Vec::new();
    emit(&header, &Tail::Stamp(Stamp::default()), b"", &key, &mut bytes);
    emit_stamp(&mut bytes, &stamp, &key).expect("a request takes a stamp");
    let packet = Packet::parse(&bytes).expect("it is whole");
    for (epochs, held) in [(&[4][..], true), (&[2, 4, 6][..], true), (&[2, 6][..], false)] {
        let keys = made(epochs);
        assert_eq!(keys.verify(&packet), if held { Ok(KeyEpoch(4)) } else { Err(WireError::BadMac) });
        let expected = if held { Ok(stamp) } else { Err(WireError::BadStampMac) };
        assert_eq!(keys.verified_stamp(&packet), expected);
        assert_eq!((keys.all().count(), keys.of(KeyEpoch(4)).is_ok()), (epochs.len(), held));
    }
}

#[test]
fn a_code_belongs_to_the_family_whose_range_it_lies_in() {
    for (family, first, last) in [
        (Family::Session, 1, 31),
        (Family::Cache, 32, 47),
        (Family::Objects, 48, 63),
        (Family::Replicate, 64, 79),
        (Family::Trial, 240, 255),
    ] {
        assert_eq!((Family::of(first), Family::of(last)), (Some(family), Some(family)));
        assert_eq!((family.codes(), Family::from_code(family.code())), (first..=last, Some(family)));
        assert_eq!(family.code(), if family == Family::Session { 0 } else { first });
    }
    assert_eq!([0, 80, 239].map(Family::of), [None; 3]);
    // Metrics and records of calls know them by these.
    let names = ["session", "cache", "objects", "replicate", "trial"];
    assert_eq!(Family::ALL.map(Family::name), names);
    assert_eq!((Family::of_packet(&[1; 5]), Family::of_packet(&[1; 6])), (None, Some(Family::Session)));
}

#[test]
fn a_word_says_what_its_kind_says_there_and_nothing_else_of_the_header_changes() {
    type Write = fn(&mut Header);
    type Read = fn(&Header) -> u64;
    let cases: [(Kind, Write, Read, u64, u64); 5] = [
        (Kind::SessionOpen, |to| to.set_offered(ExtensionSet(5)), |of| of.offered().0, 5, 0),
        (Kind::Read, |to| to.set_skip_first(SeqNum(7)), |of| of.skip_first().0, 7, 0),
        (Kind::Drain, |to| to.set_run_last(SeqNum(8)), |of| of.run_last().0, 0, 8),
        (Kind::Drain, |to| to.set_run_last_write(SeqNum(9)), |of| of.run_last_write().0, 9, 0),
        (
            Kind::SessionClose,
            |to| to.set_confirming_device(DeviceId(6)),
            |of| of.confirming_device().0.into(),
            6,
            0,
        ),
    ];
    for (kind, write, read, key_hash, completed) in cases {
        let empty = Header::new(kind, SessionId(3), Epoch(2));
        let mut header = empty;
        write(&mut header);
        assert_eq!(read(&header), key_hash + completed, "{kind:?}");
        assert_eq!(header, Header { key_hash: KeyHash(key_hash), completed: SeqNum(completed), ..empty });
    }
}

#[test]
fn a_run_and_its_last_write_are_said_together() {
    let mut header = Header::new(Kind::Drain, SessionId(3), Epoch(2));
    header.set_run_last(SeqNum(20));
    header.set_run_last_write(SeqNum(18));
    assert_eq!((header.run_last(), header.run_last_write()), (SeqNum(20), SeqNum(18)));
}
