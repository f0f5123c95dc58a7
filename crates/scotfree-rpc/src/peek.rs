//! A look at the few fields of a packet that the stamps need, without parsing it a second time.
//!
//! Invariant: the offsets are those of the layout table; what is seen is believed for stamps only.

use scotfree_core::{SeqNum, SessionId};
use scotfree_wire::layout::HEADER;
use scotfree_wire::{Kind, HEADER_BYTES};

const KIND: usize = offset("kind");
const SESSION: usize = offset("session");
const SEQ_NUM: usize = offset("seq_num");
const FRAGMENT_INDEX: usize = offset("fragment_index");
const FRAGMENT_COUNT: usize = offset("fragment_count");

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peek {
    pub session: SessionId,
    pub seq: SeqNum,
    pub is_fragment: bool,
    pub is_last_fragment: bool,
}

/// Looks at a packet, if it may be a request.
pub(crate) fn peek_request(bytes: &[u8]) -> Option<Peek> {
    let kind = *bytes.get(KIND)?;
    let is_request = kind == Kind::Update as u8 || kind == Kind::Read as u8 || kind == Kind::Bypass as u8;
    is_request.then(|| peek(bytes)).flatten()
}

/// Looks at a packet, if it may be a response.
pub(crate) fn peek_response(bytes: &[u8]) -> Option<Peek> {
    (*bytes.get(KIND)? == Kind::Response as u8).then(|| peek(bytes)).flatten()
}

fn peek(bytes: &[u8]) -> Option<Peek> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let index = u16::from_le_bytes(field(header, FRAGMENT_INDEX));
    let count = u16::from_le_bytes(field(header, FRAGMENT_COUNT));
    Some(Peek {
        session: SessionId(u64::from_le_bytes(field(header, SESSION))),
        seq: SeqNum(u64::from_le_bytes(field(header, SEQ_NUM))),
        is_fragment: count > 1,
        is_last_fragment: u32::from(index) + 1 == u32::from(count),
    })
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[offset..offset + N]);
    bytes
}

/// Where the layout table puts a field; without one of this name the build fails.
const fn offset(name: &str) -> usize {
    let mut index = 0;
    while index < HEADER.fields.len() {
        if is_same(HEADER.fields[index].name.as_bytes(), name.as_bytes()) {
            return HEADER.fields[index].offset;
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
    use scotfree_core::Epoch;
    use scotfree_wire::{emit, Header, Key, Packet, ResponseTail, Stamp, Tail};

    #[test]
    fn a_peek_sees_what_parsing_finds() {
        for (kind, tail) in [
            (Kind::Update, Tail::Stamp(Stamp::default())),
            (Kind::Read, Tail::Stamp(Stamp::default())),
            (Kind::Bypass, Tail::Stamp(Stamp::default())),
            (Kind::Response, Tail::Response(ResponseTail::default())),
            (Kind::ServerAck, Tail::Empty),
        ] {
            let mut header = Header::new(kind, SessionId(0x0102_0304_0506_0708), Epoch(9));
            header.seq_num = SeqNum(0x1112_1314_1516_1718);
            (header.fragment_index, header.fragment_count) = (2, 3);
            let mut bytes = Vec::new();
            emit(&header, &tail, b"payload", &Key::from_bytes([1; 16]), &mut bytes);
            let packet = Packet::parse(&bytes).expect("our own packet");
            let expected = Peek {
                session: packet.session(),
                seq: packet.seq_num(),
                is_fragment: true,
                is_last_fragment: true,
            };
            assert_eq!(peek_request(&bytes), kind.is_request().then_some(expected));
            assert_eq!(peek_response(&bytes), (kind == Kind::Response).then_some(expected));
            assert_eq!(peek_request(&bytes[..HEADER_BYTES - 1]), None);
        }
        assert_eq!(peek_request(b""), None);
    }
}
