//! Requests and responses larger than one packet (rule 7): split where they are sent, put together
//! where a role needs the whole.
//!
//! Invariant: a [`Reassembly`] never holds more than its two limits, and what it hands out is, byte
//! for byte, one payload that its sender once split: fragments that contradict each other do not mix.

use crate::error::WireError;
use crate::header::{Flags, Header, Kind, HEADER_BYTES};
use crate::keys::Key;
use crate::packet::{emit, Packet, PACKET_BYTES_MAX};
use crate::tail::{StampKind, Tail};
use core::cmp::Ordering;
use scotfree_core::{Epoch, Nanos, SeqNum, SessionId};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The largest payload of a request. All its packets, as they arrived, fit a log record of 64 KiB.
pub const REQUEST_BYTES_MAX: usize = 48 * 1024;
/// The largest payload of a response, and of a device's manifest.
pub const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// How many words mark which fragments of the largest set have arrived.
const MARK_WORDS: usize = RESPONSE_BYTES_MAX.div_ceil(Kind::Response.payload_bytes_max()).div_ceil(64);

impl Kind {
    /// The largest payload that one packet of this kind has room for.
    pub const fn payload_bytes_max(self) -> usize {
        PACKET_BYTES_MAX - HEADER_BYTES - self.tail_bytes()
    }

    /// The largest payload over all fragments of a packet of this kind.
    pub const fn whole_bytes_max(self) -> usize {
        match self {
            Kind::Update | Kind::Read | Kind::Bypass | Kind::Replay => REQUEST_BYTES_MAX,
            Kind::Response | Kind::Manifest => RESPONSE_BYTES_MAX,
            Kind::SessionOpen
            | Kind::SessionAccept
            | Kind::SessionClose
            | Kind::PersistAck
            | Kind::ServerAck
            | Kind::Retransmit
            | Kind::RecoveryPoll
            | Kind::Heartbeat
            | Kind::Lease
            | Kind::Busy
            | Kind::Drain => self.payload_bytes_max(),
        }
    }
}

/// Splits `payload` into the headers and parts of its packets; all parts but the last are as large
/// as a packet allows. Too large a payload is [`WireError::Oversized`].
pub fn fragments<'p>(
    header: &Header,
    payload: &'p [u8],
) -> Result<impl ExactSizeIterator<Item = (Header, &'p [u8])>, WireError> {
    let header = *header;
    if payload.len() > header.kind.whole_bytes_max() {
        return Err(WireError::Oversized);
    }
    let part_bytes = header.kind.payload_bytes_max();
    let fragment_count = payload.len().div_ceil(part_bytes).max(1) as u16;
    Ok((0..fragment_count).map(move |fragment_index| {
        let start = usize::from(fragment_index) * part_bytes;
        let end = payload.len().min(start + part_bytes);
        (Header { fragment_index, fragment_count, ..header }, &payload[start..end])
    }))
}

/// Emits `payload` as as many packets as it needs, each with `tail`, and hands them to `each`.
pub fn emit_fragments(
    header: &Header,
    tail: &Tail,
    payload: &[u8],
    key: &Key,
    mut each: impl FnMut(&[u8]),
) -> Result<(), WireError> {
    let mut packet = Vec::with_capacity(PACKET_BYTES_MAX);
    for (header, part) in fragments(header, payload)? {
        packet.clear();
        emit(&header, tail, part, key, &mut packet);
        each(&packet);
    }
    Ok(())
}

/// A request or response whose fragments have all arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole<'p> {
    /// The header as if all had come in one packet. `completed` is the highest of the fragments'.
    pub header: Header,
    /// The tail of the last fragment that came; a stamp is not displaced by an empty one.
    pub tail: Tail,
    /// The payload: of a single packet its own bytes, else the assembled ones.
    pub payload: Cow<'p, [u8]>,
}

/// Puts fragments together.
///
/// A set is named by session, `seq_num` and kind, and begins with any of its fragments. Packets of
/// one `Reassembly` must come from one side: a server's requests, a client's responses, one
/// device's manifest.
#[derive(Debug)]
pub struct Reassembly {
    sets_max: usize,
    bytes_max: usize,
    bytes_reserved: usize,
    evicted_count: u64,
    begun_count: u64,
    sets: BTreeMap<SetKey, Set>,
    /// The sets in the order in which they were begun.
    ages: BTreeMap<u64, SetKey>,
}

type SetKey = (SessionId, SeqNum, Kind);

impl Reassembly {
    /// Holds at most `sets_max` incomplete sets and reserves at most `bytes_max` for their payloads.
    /// At a limit the oldest set gives way: its sender will send it again. A set that alone would
    /// exceed `bytes_max` is [`WireError::BadFragment`].
    pub fn new(sets_max: usize, bytes_max: usize) -> Reassembly {
        assert!(sets_max > 0, "a reassembly needs room for a set");
        Reassembly {
            sets_max,
            bytes_max,
            bytes_reserved: 0,
            evicted_count: 0,
            begun_count: 0,
            sets: BTreeMap::new(),
            ages: BTreeMap::new(),
        }
    }

    /// Takes a packet whose authenticity, and whose stamp's, the caller has checked, and gives the
    /// whole if it is complete with it. A packet that is a whole by itself passes without a copy and
    /// without a look at the sets. A fragment that came before changes nothing; one that contradicts
    /// its set is refused and leaves the set as it was; one of a newer server epoch, or of a response
    /// made later, begins the set anew.
    ///
    /// A completed set is forgotten: if all its fragments come again, it completes again, as a
    /// request that was sent again must.
    pub fn offer<'p>(&mut self, packet: &Packet<'p>) -> Result<Option<Whole<'p>>, WireError> {
        if packet.header().fragment_count == 1 {
            return Ok(Some(single(packet)));
        }
        check_size(packet)?;
        let key = (packet.session(), packet.seq_num(), packet.kind());
        if self.sets.get(&key).is_some_and(|set| set.edition < Edition::of(packet)) {
            self.remove(&key);
        }
        if !self.sets.contains_key(&key) {
            self.begin(key, packet)?;
        }
        let set = self.sets.get_mut(&key).expect("the set was found or begun");
        set.add(packet)?;
        if set.missing_count > 0 {
            return Ok(None);
        }
        Ok(self.remove(&key).map(Set::into_whole))
    }

    /// Forgets what has come of one request or response.
    pub fn forget(&mut self, session: SessionId, seq_num: SeqNum) {
        self.forget_between(session, seq_num, seq_num);
    }

    /// Forgets what has come of a session up to and with `seq_num`: it is no longer waited for.
    pub fn forget_through(&mut self, session: SessionId, seq_num: SeqNum) {
        self.forget_between(session, SeqNum(0), seq_num);
    }

    /// Forgets a session.
    pub fn forget_session(&mut self, session: SessionId) {
        self.forget_between(session, SeqNum(0), SeqNum(u64::MAX));
    }

    /// How many incomplete sets are held.
    pub fn set_count(&self) -> usize {
        self.sets.len()
    }

    /// How many bytes are reserved for their payloads.
    pub fn bytes_reserved(&self) -> usize {
        self.bytes_reserved
    }

    /// How many sets have given way at a limit since the start.
    pub fn evicted_count(&self) -> u64 {
        self.evicted_count
    }

    fn begin(&mut self, key: SetKey, packet: &Packet<'_>) -> Result<(), WireError> {
        let bytes = set_bytes(packet);
        if bytes > self.bytes_max {
            return Err(WireError::BadFragment);
        }
        while self.sets.len() >= self.sets_max || self.bytes_reserved + bytes > self.bytes_max {
            self.evict_oldest();
        }
        let age = self.begun_count;
        self.begun_count += 1;
        self.bytes_reserved += bytes;
        self.ages.insert(age, key);
        self.sets.insert(key, Set::new(age, packet));
        Ok(())
    }

    fn evict_oldest(&mut self) {
        let (_, key) = self.ages.pop_first().expect("a limit is reached only while there is a set");
        self.remove(&key);
        self.evicted_count += 1;
    }

    fn remove(&mut self, key: &SetKey) -> Option<Set> {
        let set = self.sets.remove(key)?;
        self.ages.remove(&set.age);
        self.bytes_reserved -= set.bytes_reserved;
        Some(set)
    }

    fn forget_between(&mut self, session: SessionId, first: SeqNum, last: SeqNum) {
        let [lowest, .., highest] = Kind::ALL;
        let range = (session, first, lowest)..=(session, last, highest);
        while let Some((&key, _)) = self.sets.range(range.clone()).next() {
            self.remove(&key);
        }
    }
}

fn single<'p>(packet: &Packet<'p>) -> Whole<'p> {
    Whole { header: *packet.header(), tail: *packet.tail(), payload: Cow::Borrowed(packet.payload()) }
}

/// Fragments are cut in one way only, so each part's size and place follow from its index.
fn check_size(packet: &Packet<'_>) -> Result<(), WireError> {
    let header = packet.header();
    let (part_bytes, whole_bytes_max) = (header.kind.payload_bytes_max(), header.kind.whole_bytes_max());
    let bytes_before_last = usize::from(header.fragment_count - 1) * part_bytes;
    let is_last = header.fragment_index + 1 == header.fragment_count;
    let fits = match packet.payload().len() {
        bytes if is_last => bytes > 0 && bytes_before_last + bytes <= whole_bytes_max,
        bytes => bytes == part_bytes && bytes_before_last < whole_bytes_max,
    };
    fits.then_some(()).ok_or(WireError::BadFragment)
}

/// What the payload of the packet's set can need at most.
fn set_bytes(packet: &Packet<'_>) -> usize {
    let kind = packet.kind();
    kind.whole_bytes_max().min(usize::from(packet.header().fragment_count) * kind.payload_bytes_max())
}

/// Which making of a response a fragment is from: a restarted server may answer anew, and a read
/// whose reply is gone is executed again. Requests never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edition {
    epoch: Epoch,
    ended: Nanos,
}

impl Edition {
    fn of(packet: &Packet<'_>) -> Edition {
        let ended = match packet.tail() {
            Tail::Response(tail) => tail.ended,
            _ => Nanos(0),
        };
        Edition { epoch: packet.epoch(), ended }
    }
}

#[derive(Debug)]
struct Set {
    age: u64,
    bytes_reserved: usize,
    edition: Edition,
    header: Header,
    tail: Tail,
    missing_count: u16,
    arrived: [u64; MARK_WORDS],
    payload: Vec<u8>,
}

impl Set {
    fn new(age: u64, packet: &Packet<'_>) -> Set {
        let bytes_reserved = set_bytes(packet);
        Set {
            age,
            bytes_reserved,
            edition: Edition::of(packet),
            header: *packet.header(),
            tail: *packet.tail(),
            missing_count: packet.header().fragment_count,
            arrived: [0; MARK_WORDS],
            payload: Vec::with_capacity(bytes_reserved),
        }
    }

    fn add(&mut self, packet: &Packet<'_>) -> Result<(), WireError> {
        let index = usize::from(packet.header().fragment_index);
        let start = index * packet.kind().payload_bytes_max();
        let (word, mark) = (index / 64, 1 << (index % 64));
        let came_before = self.arrived[word] & mark != 0;
        if !self.agrees_with(packet) || (came_before && !self.repeats(start, packet)) {
            return Err(WireError::BadFragment);
        }
        self.note(packet);
        if !came_before {
            self.place(start, packet.payload());
            self.arrived[word] |= mark;
            self.missing_count -= 1;
        }
        Ok(())
    }

    fn agrees_with(&self, packet: &Packet<'_>) -> bool {
        identity(&self.header) == identity(packet.header()) && self.edition == Edition::of(packet)
    }

    fn repeats(&self, start: usize, packet: &Packet<'_>) -> bool {
        let is_last = packet.header().fragment_index + 1 == self.header.fragment_count;
        let end = if is_last { self.payload.len() } else { start + packet.payload().len() };
        self.payload[start..end] == *packet.payload()
    }

    fn note(&mut self, packet: &Packet<'_>) {
        let header = packet.header();
        self.header.flags = self.header.flags.with(header.flags);
        self.header.completed = self.header.completed.max(header.completed);
        let is_empty_stamp = matches!(packet.tail(), Tail::Stamp(stamp) if stamp.kind == StampKind::None);
        if !is_empty_stamp {
            self.tail = *packet.tail();
        }
    }

    fn place(&mut self, start: usize, part: &[u8]) {
        match self.payload.len().cmp(&start) {
            Ordering::Equal => self.payload.extend_from_slice(part),
            Ordering::Less => {
                self.payload.resize(start, 0);
                self.payload.extend_from_slice(part);
            }
            Ordering::Greater => self.payload[start..start + part.len()].copy_from_slice(part),
        }
    }

    fn into_whole<'p>(self) -> Whole<'p> {
        let header = Header { fragment_index: 0, fragment_count: 1, ..self.header };
        Whole { header, tail: self.tail, payload: Cow::Owned(self.payload) }
    }
}

/// What all fragments of a set have in common: the header without what a fragment has of its own,
/// and without what may differ when it is sent again.
fn identity(header: &Header) -> Header {
    Header {
        flags: Flags(header.flags.0 & !Flags::AGAIN.0),
        completed: SeqNum(0),
        fragment_index: 0,
        ..*header
    }
}
