//! A family of packets that this crate does not know, as a remedy writes one in its own folder.

use scotfree_core::{Epoch, SessionId};
use scotfree_wire::{emit, Family, Header, Key, Kind, Kinds, Packet, Tail, WireError, HEADER_BYTES};

const KEY: Key = Key::from_bytes([4; 16]);

/// What a function that counts says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    Ask,
    Tell,
}

/// The tail of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CountTail {
    count: u64,
}

impl Kinds for Count {
    type Tail = CountTail;

    const FAMILY: Family = Family::Trial;

    fn from_code(code: u8) -> Option<Count> {
        [Count::Ask, Count::Tell].into_iter().find(|kind| kind.code() == code)
    }

    fn code(self) -> u8 {
        match self {
            Count::Ask => 240,
            Count::Tell => 241,
        }
    }

    fn tail_bytes(self) -> usize {
        8
    }

    fn write_tail(tail: &CountTail, out: &mut Vec<u8>) {
        out.extend_from_slice(&tail.count.to_le_bytes());
    }

    fn read_tail(self, bytes: &[u8]) -> Result<CountTail, WireError> {
        let count = u64::from_le_bytes(bytes.try_into().map_err(|_| WireError::Truncated)?);
        if self == Count::Ask && count != 0 {
            return Err(WireError::InvalidField);
        }
        Ok(CountTail { count })
    }
}

fn written(kind: Count, count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&Header::new(kind, SessionId(0), Epoch(2)), &CountTail { count }, b"seven", &KEY, &mut out);
    out
}

#[test]
fn a_family_of_ones_own_is_written_and_read() {
    let bytes = written(Count::Tell, 7);
    assert_eq!(Family::of_packet(&bytes), Some(Family::Trial));
    let packet = Packet::<Count>::parse_kinds(&bytes).expect("it is whole");
    assert_eq!((packet.kind(), packet.tail().count, packet.payload()), (Count::Tell, 7, &b"seven"[..]));
    assert_eq!(packet.verify(&KEY), Ok(()));
    assert_eq!(packet.verify(&Key::from_bytes([5; 16])), Err(WireError::BadMac));
    assert_eq!(
        Packet::<Count>::parse_kinds(&written(Count::Ask, 1)).map(|_| ()),
        Err(WireError::InvalidField)
    );
}

#[test]
fn nobody_knows_anothers_kinds() {
    assert_eq!(Packet::parse(&written(Count::Tell, 7)).map(|_| ()), Err(WireError::UnknownKind));
    let mut lease = Vec::new();
    emit(&Header::new(Kind::ServerAck, SessionId(0), Epoch(2)), &Tail::Empty, b"", &KEY, &mut lease);
    assert_eq!(Packet::<Count>::parse_kinds(&lease).map(|_| ()), Err(WireError::UnknownKind));
}

#[test]
fn it_bears_no_extensions_unless_it_says_so_and_no_bit_can_be_flipped() {
    let whole = written(Count::Tell, 7);
    let mut bytes = whole.clone();
    bytes[11] = 1;
    assert_eq!(Packet::<Count>::parse_kinds(&bytes).map(|_| ()), Err(WireError::InvalidField));
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let taken = Packet::<Count>::parse_kinds(&bytes).and_then(|packet| packet.verify(&KEY));
        assert!(taken.is_err(), "bit {bit} of {}", HEADER_BYTES * 8);
    }
}
