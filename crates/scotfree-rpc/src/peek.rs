//! A look at the few fields of a packet that the stamps need, without parsing it a second time.
//!
//! Invariant: the offsets are those of the layout table; what is seen is believed for stamps only.

use scotfree_core::{SeqNum, SessionId};
use scotfree_wire::layout::{Layout, HEADER, RESPONSE};
use scotfree_wire::{Flags, Kind, HEADER_BYTES};

const KIND: usize = offset(&HEADER, "kind");
const FLAGS: usize = offset(&HEADER, "flags");
const SESSION: usize = offset(&HEADER, "session");
const SEQ_NUM: usize = offset(&HEADER, "seq_num");
const FRAGMENT_INDEX: usize = offset(&HEADER, "fragment_index");
const FRAGMENT_COUNT: usize = offset(&HEADER, "fragment_count");
const DEQUEUED: usize = HEADER_BYTES + offset(&RESPONSE, "dequeued_ns");

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peek {
    pub session: SessionId,
    pub seq: SeqNum,
    pub is_fragment: bool,
    pub is_last_fragment: bool,
}

/// Looks at a packet, if it may be a request whose client asks for stamps.
pub(crate) fn peek_traced(bytes: &[u8]) -> Option<Peek> {
    if !Flags(u16::from_le_bytes(field(bytes, FLAGS)?)).has(Flags::TRACED) {
        return None;
    }
    let kind = *bytes.get(KIND)?;
    let is_request = kind == Kind::Update as u8 || kind == Kind::Read as u8 || kind == Kind::Bypass as u8;
    is_request.then(|| peek(bytes)).flatten()
}

/// Looks at a packet, if it may be a response with stamps.
pub(crate) fn peek_stamped(bytes: &[u8]) -> Option<Peek> {
    let is_stamped = *bytes.get(KIND)? == Kind::Response as u8 && field(bytes, DEQUEUED)? != [0; 8];
    is_stamped.then(|| peek(bytes)).flatten()
}

fn peek(bytes: &[u8]) -> Option<Peek> {
    let index = u16::from_le_bytes(field(bytes, FRAGMENT_INDEX)?);
    let count = u16::from_le_bytes(field(bytes, FRAGMENT_COUNT)?);
    Some(Peek {
        session: SessionId(u64::from_le_bytes(field(bytes, SESSION)?)),
        seq: SeqNum(u64::from_le_bytes(field(bytes, SEQ_NUM)?)),
        is_fragment: count > 1,
        is_last_fragment: u32::from(index) + 1 == u32::from(count),
    })
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// Where the layout table puts a field; without one of this name the build fails.
const fn offset(layout: &Layout, name: &str) -> usize {
    let mut index = 0;
    while index < layout.fields.len() {
        if is_same(layout.fields[index].name.as_bytes(), name.as_bytes()) {
            return layout.fields[index].offset;
        }
        index += 1;
    }
    panic!("the layout table has no such field");
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_core::{Epoch, Nanos, StampSource};
    use scotfree_wire::{emit, Header, Key, Packet, ResponseTail, Stamp, Tail};

    const STAMPED: ResponseTail = ResponseTail {
        received: Nanos(1),
        started: Nanos(2),
        ended: Nanos(3),
        dequeued: Nanos(4),
        received_by: StampSource::Kernel,
        answered_by: scotfree_wire::Answerer::SERVER,
    };

    fn packet(kind: Kind, flags: Flags, tail: &Tail) -> Vec<u8> {
        let mut header = Header::new(kind, SessionId(0x0102_0304_0506_0708), Epoch(9));
        header.flags = flags;
        header.seq_num = SeqNum(0x1112_1314_1516_1718);
        (header.fragment_index, header.fragment_count) = (2, 3);
        let mut bytes = Vec::new();
        emit(&header, tail, b"payload", &Key::from_bytes([1; 16]), &mut bytes);
        bytes
    }

    #[test]
    fn a_peek_sees_what_parsing_finds() {
        for (kind, tail) in [
            (Kind::Update, Tail::Stamp(Stamp::default())),
            (Kind::Read, Tail::Stamp(Stamp::default())),
            (Kind::Bypass, Tail::Stamp(Stamp::default())),
            (Kind::Response, Tail::Response(STAMPED)),
            (Kind::ServerAck, Tail::Empty),
        ] {
            let bytes = packet(kind, Flags::TRACED, &tail);
            let parsed = Packet::parse(&bytes).expect("our own packet");
            let expected = Peek {
                session: parsed.session(),
                seq: parsed.seq_num(),
                is_fragment: true,
                is_last_fragment: true,
            };
            assert_eq!(peek_traced(&bytes), kind.is_request().then_some(expected));
            assert_eq!(peek_stamped(&bytes), (kind == Kind::Response).then_some(expected));
        }
    }

    #[test]
    fn what_nobody_asked_for_and_what_is_too_short_is_not_looked_at() {
        let stamp = Tail::Stamp(Stamp::default());
        assert_eq!(peek_traced(&packet(Kind::Update, Flags::AGAIN, &stamp)), None);
        let unstamped = Tail::Response(ResponseTail::default());
        assert_eq!(peek_stamped(&packet(Kind::Response, Flags::NONE, &unstamped)), None);
        let traced = packet(Kind::Update, Flags::TRACED, &stamp);
        let stamped = packet(Kind::Response, Flags::NONE, &Tail::Response(STAMPED));
        for length in 0..=DEQUEUED {
            assert_eq!(peek_stamped(&stamped[..length]), None);
            assert_eq!(peek_traced(&traced[..length.min(FRAGMENT_COUNT)]), None);
        }
    }
}
