//! A whole packet: header, tail, payload. Parsing checks the structure; authenticity is a second
//! step, because only the role that holds the session knows its key.

use crate::error::WireError;
use crate::extension::{ExtensionView, Extensions, EXTENSION_WORD_BYTES};
use crate::family::Kinds;
use crate::header::{u64_at, Flags, Header, Kind, Sizes, HEADER_BYTES, MAC_OFFSET};
use crate::keys::Key;
use crate::tail::{Stamp, StampKind, Tail, STAMP_BYTES};
use scotfree_core::{Epoch, SeqNum, SessionId};

/// The largest packet: an Ethernet frame's 1500 bytes less IPv6 and UDP headers.
pub const PACKET_BYTES_MAX: usize = 1500 - 40 - 8;
/// The largest payload of one packet of a request.
pub const PAYLOAD_BYTES_MAX: usize = PACKET_BYTES_MAX - HEADER_BYTES - STAMP_BYTES;

/// A packet of a family, whose structure has been checked and whose authenticity has not.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a, K: Kinds = Kind> {
    bytes: &'a [u8],
    header: Header<K>,
    tail: K::Tail,
    extensions: ExtensionView<'a>,
    payload_at: usize,
}

impl<'a> Packet<'a> {
    /// Checks the structure of `bytes` as a packet of sessions and devices. One of another family is
    /// [`WireError::UnknownKind`].
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        Packet::parse_kinds(bytes)
    }

    /// The stamp, of the kinds that have room for one; otherwise an empty one.
    pub fn stamp(&self) -> Stamp {
        match self.tail {
            Tail::Stamp(stamp) => stamp,
            _ => Stamp::default(),
        }
    }

    /// A request's stamp, if it was made by someone who holds the stamp `key`; an empty stamp is
    /// authentic. (The stamps of other kinds are covered by the packet's own MAC.)
    pub fn verified_stamp(&self, key: &Key) -> Result<Stamp, WireError> {
        let stamp = self.stamp();
        if stamp.kind == StampKind::None {
            return Ok(stamp);
        }
        let stated = u64_at(self.bytes, HEADER_BYTES + STAMP_BYTES - 8);
        let fits = stated == stamp_mac(&stamp, self.header.session, self.header.seq_num, key);
        fits.then_some(stamp).ok_or(WireError::BadStampMac)
    }
}

impl<'a, K: Kinds> Packet<'a, K> {
    /// Checks the structure of `bytes` as a packet of the family of `K`.
    pub fn parse_kinds(bytes: &'a [u8]) -> Result<Packet<'a, K>, WireError> {
        let (header, sizes) = Header::<K>::read(bytes)?;
        let tail_end = HEADER_BYTES + header.kind.tail_bytes();
        let payload_at = tail_end + usize::from(sizes.extension_words) * EXTENSION_WORD_BYTES;
        // Saturating: a stated size of 4 GiB must not wrap where an address has 32 bits.
        let expected = payload_at.saturating_add(sizes.payload_bytes);
        if expected > PACKET_BYTES_MAX || bytes.len() > expected {
            return Err(WireError::Oversized);
        }
        if bytes.len() < expected {
            return Err(WireError::Truncated);
        }
        let tail = header.kind.read_tail(&bytes[HEADER_BYTES..tail_end])?;
        if sizes.extension_words > 0 && header.fragment_count > 1 {
            return Err(WireError::BadExtension);
        }
        let extensions = ExtensionView::read(&bytes[tail_end..payload_at])?;
        Ok(Packet { bytes, header, tail, extensions, payload_at })
    }

    /// The core header.
    pub fn header(&self) -> &Header<K> {
        &self.header
    }

    /// What the packet is.
    pub fn kind(&self) -> K {
        self.header.kind
    }

    /// The session it belongs to.
    pub fn session(&self) -> SessionId {
        self.header.session
    }

    /// Its `seq_num`.
    pub fn seq_num(&self) -> SeqNum {
        self.header.seq_num
    }

    /// Its epoch.
    pub fn epoch(&self) -> Epoch {
        self.header.epoch
    }

    /// Its flags.
    pub fn flags(&self) -> Flags {
        self.header.flags
    }

    /// Its tail.
    pub fn tail(&self) -> &K::Tail {
        &self.tail
    }

    /// The payload.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.payload_at..]
    }

    /// Its extensions.
    pub fn extensions(&self) -> ExtensionView<'a> {
        self.extensions
    }

    /// The whole packet.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the packet was made by someone who holds `key`.
    pub fn verify(&self, key: &Key) -> Result<(), WireError> {
        let fits = u64_at(self.bytes, MAC_OFFSET) == packet_mac(self.bytes, self.header.kind, key);
        fits.then_some(()).ok_or(WireError::BadMac)
    }
}

/// Appends a packet to `out`. The tail must be the one of the header's kind and the packet must fit
/// [`PACKET_BYTES_MAX`]: both are the caller's invariants.
pub fn emit<K: Kinds>(header: &Header<K>, tail: &K::Tail, payload: &[u8], key: &Key, out: &mut Vec<u8>) {
    emit_extended(header, tail, &Extensions::NONE, payload, key, out);
}

/// As [`emit`], with extensions, to a peer that has offered to take them; the packet is the only fragment of its
/// request.
pub fn emit_extended<K: Kinds>(
    header: &Header<K>,
    tail: &K::Tail,
    extensions: &Extensions<'_>,
    payload: &[u8],
    key: &Key,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let extension_words = (extensions.bytes() / EXTENSION_WORD_BYTES) as u8;
    assert!(extension_words == 0 || header.fragment_count == 1, "fragments bear no extensions");
    header.write(Sizes { extension_words, payload_bytes: payload.len() }, out);
    K::write_tail(tail, out);
    assert_eq!(out.len() - start, HEADER_BYTES + header.kind.tail_bytes(), "the tail is of another kind");
    extensions.write(out);
    out.extend_from_slice(payload);
    assert!(out.len() - start <= PACKET_BYTES_MAX, "the packet is larger than any may be");
    let mac = packet_mac(&out[start..], header.kind, key);
    out[start + MAC_OFFSET..start + MAC_OFFSET + 8].copy_from_slice(&mac.to_le_bytes());
}

/// Writes `stamp`, with its MAC, into a request; an empty stamp wipes what stood there. The packet's
/// own MAC does not cover the stamp and stays valid.
pub fn emit_stamp(packet: &mut [u8], stamp: &Stamp, key: &Key) -> Result<(), WireError> {
    let (session, seq_num) = {
        let parsed = Packet::parse(packet)?;
        if !parsed.kind().is_request() {
            return Err(WireError::InvalidField);
        }
        (parsed.session(), parsed.seq_num())
    };
    let room = &mut packet[HEADER_BYTES..HEADER_BYTES + STAMP_BYTES];
    if stamp.kind == StampKind::None {
        room.fill(0);
        return Ok(());
    }
    let mac = stamp_mac(stamp, session, seq_num, key);
    room[..24].copy_from_slice(&stamp.body());
    room[24..].copy_from_slice(&mac.to_le_bytes());
    Ok(())
}

fn packet_mac<K: Kinds>(bytes: &[u8], kind: K, key: &Key) -> u64 {
    // A device writes its stamp into the client's request, so the client's MAC leaves it out.
    let covered_from = if kind.is_request() { HEADER_BYTES + STAMP_BYTES } else { HEADER_BYTES };
    key.mac(&[&bytes[..MAC_OFFSET], &bytes[covered_from..]])
}

fn stamp_mac(stamp: &Stamp, session: SessionId, seq_num: SeqNum, key: &Key) -> u64 {
    key.mac(&[&stamp.body(), &session.0.to_le_bytes(), &seq_num.0.to_le_bytes()])
}
