//! Scripts of packets: sessions, requests in and out of order, what the server says, and damage.

use crate::sides::{MachineSide, CLIENTS, CONTROL, SERVER};
use proptest::collection::vec;
use proptest::prelude::*;
use remedy_toy::ANSWERED;
use scotfree_core::{BootEpoch, DeviceId, Durability, Epoch, KeyHash, Nanos, OrderNumber, SeqNum, SessionId};
use scotfree_device::PortNumber;
use scotfree_wire::{
    emit, emit_stamp, fragments, AcceptTail, CloseReason, CloseTail, ClusterKey, Direction, Flags, Header,
    HeartbeatTail, Key, KeyEpoch, Kind, LeaseTail, RangeTail, SessionKeys, Stamp, StampKind, Tail,
};
use std::net::SocketAddr;

/// A packet on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub port: PortNumber,
    pub bytes: Vec<u8>,
}

/// The clients' port, and, since stations do not matter here, the server's.
pub const PORT: PortNumber = PortNumber(0);
const OTHER_PORT: PortNumber = PortNumber(1);

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Its session's client.
    Client,
    /// Another address.
    OtherAddress,
    /// Its session's client, by another port.
    OtherPort,
}

/// What happens next.
#[derive(Debug, Clone)]
pub enum Step {
    /// The server accepts a session.
    Accept { session: u8, window: u32 },
    /// The server grants a lease, for the device's incarnation or a later one.
    Lease { raise: bool, refused: bool },
    /// A request, placed from what the device expects next.
    Request { session: u8, kind: u8, ahead: i8, asked: u8, bytes: u16, early: bool, from: From, stamp: u8 },
    /// A request of several fragments, of which some are left out.
    Fragments { session: u8, ahead: i8, bytes: u16, missing: Option<u8> },
    /// What is stable, counted back from what the device expects next, in one of the ways to say it.
    Stable { session: u8, behind: u8, way: u8, epoch: u8 },
    /// A response, passing.
    Response { session: u8, stamped_by: u64 },
    /// The server asks for the place of a run.
    Drain { session: u8, behind: i8, length: u8 },
    /// The server asks what is held.
    Poll { epoch: u8 },
    /// The server asks for entries again.
    Retransmit { session: Option<u8>, first: u8, length: u8 },
    /// The server ends a session.
    Expire { session: u8 },
    /// The cluster's key has a new epoch, and the old one or not.
    Key { retire: bool },
    /// The packet of another step, with one bit flipped or cut short.
    Damaged { of: Box<Step>, flip: u16, cut: Option<u16> },
}

pub const EPOCH: Epoch = Epoch(1);

pub fn cluster() -> ClusterKey {
    ClusterKey::from_bytes([3; 32])
}

/// The key after a rotation; all packets here are of the first epoch.
pub fn rotated(retire: bool) -> ClusterKey {
    let secrets = [(KeyEpoch(0), [3; 32]), (KeyEpoch(1), [4; 32])];
    ClusterKey::from_epochs(secrets[usize::from(retire)..].to_vec()).expect("they grow")
}

fn nonce(session: u8) -> [u8; 16] {
    [session; 16]
}

fn id(session: u8) -> SessionId {
    SessionId(u64::from(session) + 1)
}

pub fn client_of(session: u8) -> SocketAddr {
    CLIENTS[usize::from(session) % CLIENTS.len()]
}

fn keys(session: u8) -> SessionKeys {
    cluster().session(&nonce(session), &[9; 16], id(session), EPOCH)
}

fn packet(header: &Header, tail: &Tail, payload: &[u8], key: &Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit(header, tail, payload, key, &mut bytes);
    bytes
}

fn payload(bytes: u16) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect()
}

/// The two largest places are no places.
fn place(next: SeqNum, ahead: i8) -> u64 {
    next.0.saturating_add_signed(i64::from(ahead)).max(1)
}

impl Step {
    /// The next update of a session, to be kept in memory.
    pub fn update(session: u8) -> Step {
        let (kind, ahead, asked, bytes, early, stamp) = (0, 0, 1, 64, false, 0);
        Step::Request { session, kind, ahead, asked, bytes, early, from: From::Client, stamp }
    }

    /// The next read of a session, of the toy's key if its bytes are a multiple of four.
    pub fn read(session: u8, bytes: u16) -> Step {
        let (kind, ahead, asked, early, stamp) = (2, 0, 0, false, 0);
        Step::Request { session, kind, ahead, asked, bytes, early, from: From::Client, stamp }
    }

    pub fn packets(&self, machine: &MachineSide) -> Vec<Sent> {
        match self {
            Step::Key { .. } => vec![],
            Step::Request { session, kind, ahead, asked, bytes, early, from, stamp } => {
                let kind = [Kind::Update, Kind::Update, Kind::Read, Kind::Bypass][usize::from(*kind) % 4];
                let mut header = Header::new(kind, id(*session), EPOCH);
                header.seq_num = SeqNum(place(machine.next(id(*session)), *ahead));
                header.asked = Durability::from_code(*asked % 4).expect("0 to 3 are codes");
                // Some of a key whose reads another function answers, if their client has all before them.
                header.key_hash = KeyHash(if bytes % 4 == 0 { ANSWERED.0 } else { u64::from(*bytes) << 7 });
                header.completed = SeqNum(if bytes % 16 == 0 { 0 } else { header.seq_num.0 - 1 });
                header.flags = if *early && kind == Kind::Update { Flags::EARLY } else { Flags::NONE };
                header.device_acks_asked = 1;
                let tail = Tail::Stamp(Stamp::default());
                let mut bytes = packet(&header, &tail, &payload(*bytes), &keys(*session).client_to_server);
                write_stamp(&mut bytes, &header, *stamp);
                let address = client_of(session + u8::from(*from == From::OtherAddress));
                let port = if *from == From::OtherPort { OTHER_PORT } else { PORT };
                vec![Sent { from: address, to: SERVER, port, bytes }]
            }
            Step::Fragments { session, ahead, bytes, missing } => {
                let mut header = Header::new(Kind::Update, id(*session), EPOCH);
                header.seq_num = SeqNum(place(machine.next(id(*session)), *ahead));
                header.asked = Durability::Ram;
                let whole = payload(*bytes);
                let parts = fragments(&header, &whole).expect("a payload of a request's size");
                let key = keys(*session).client_to_server;
                let tail = Tail::Stamp(Stamp::default());
                let all = parts.enumerate().filter(|(at, _)| *missing != Some(*at as u8));
                let sent = |(_, (header, part)): (usize, (Header, &[u8]))| Sent {
                    from: client_of(*session),
                    to: SERVER,
                    port: PORT,
                    bytes: packet(&header, &tail, part, &key),
                };
                all.map(sent).collect()
            }
            Step::Damaged { of, flip, cut } => {
                of.packets(machine).into_iter().map(|sent| spoil(sent, *flip, *cut)).collect()
            }
            of_server => vec![of_server.of_server(machine)],
        }
    }

    fn of_server(&self, machine: &MachineSide) -> Sent {
        let from_server = cluster().control(Direction::ServerToDevice);
        let control = |header: &Header, tail: &Tail| Sent {
            from: SERVER,
            to: CONTROL,
            port: PORT,
            bytes: packet(header, tail, &[], &from_server),
        };
        match self {
            Step::Accept { session, window } => {
                let tail = AcceptTail {
                    client_nonce: nonce(*session),
                    server_nonce: [9; 16],
                    window: *window,
                    expiry_ms: 1_000,
                };
                let header = Header::new(Kind::SessionAccept, id(*session), EPOCH);
                let key = cluster().control(Direction::Handshake);
                Sent {
                    from: SERVER,
                    to: client_of(*session),
                    port: PORT,
                    bytes: packet(&header, &Tail::Accept(tail), &[], &key),
                }
            }
            Step::Lease { raise, refused } => {
                let tail = LeaseTail {
                    asked_at: Nanos(1),
                    duration: if *refused { Nanos(0) } else { Nanos(u64::MAX / 4) },
                    device: DeviceId(1),
                    boot_epoch: BootEpoch(machine.boot_epoch().0 + u32::from(*raise)),
                };
                control(&Header::new(Kind::Lease, SessionId(0), machine.server_epoch()), &Tail::Lease(tail))
            }
            Step::Stable { session, behind, way, epoch } => stable(machine, *session, *behind, *way, *epoch),
            Step::Response { session, stamped_by } => {
                let header = Header::new(Kind::Response, id(*session), EPOCH);
                let key = keys(*session).server_to_client;
                let tail = Tail::Response(scotfree_wire::ResponseTail::default());
                let mut bytes = packet(&header, &tail, b"reply", &key);
                bytes[64 + 32..64 + 40].copy_from_slice(&stamped_by.to_le_bytes());
                Sent { from: SERVER, to: client_of(*session), port: PORT, bytes }
            }
            Step::Drain { session, behind, length } => {
                let mut header = Header::new(Kind::Drain, id(*session), machine.server_epoch());
                header.seq_num = SeqNum(place(machine.next(id(*session)), -*behind));
                header.completed = SeqNum(header.seq_num.0 + u64::from(*length));
                header.flags = Flags::WRITES;
                header.key_hash = KeyHash(header.completed.0);
                control(&header, &Tail::Stamp(Stamp::default()))
            }
            Step::Poll { epoch } => {
                let epoch = Epoch(machine.server_epoch().0.saturating_add(u32::from(*epoch)).max(1) - 1);
                control(&Header::new(Kind::RecoveryPoll, SessionId(0), epoch), &Tail::Empty)
            }
            Step::Retransmit { session, first, length } => {
                let session_id = session.map_or(SessionId(0), id);
                let header = Header::new(Kind::Retransmit, session_id, machine.server_epoch());
                let first = u64::from(*first) + 1;
                let boot_epoch = if session.is_some() { BootEpoch(0) } else { machine.boot_epoch() };
                control(
                    &header,
                    &Tail::Range(RangeTail { first, last: first + u64::from(*length), boot_epoch }),
                )
            }
            Step::Expire { session } => {
                let header = Header::new(Kind::SessionClose, id(*session), machine.server_epoch());
                control(&header, &Tail::Close(CloseTail { reason: CloseReason::Expire }))
            }
            Step::Request { .. } | Step::Fragments { .. } | Step::Key { .. } | Step::Damaged { .. } => {
                unreachable!("not the server's")
            }
        }
    }
}

fn stable(machine: &MachineSide, session: u8, behind: u8, way: u8, epoch: u8) -> Sent {
    let stable = SeqNum(machine.next(id(session)).0.saturating_sub(u64::from(behind)));
    let epoch = Epoch(machine.server_epoch().0.saturating_add(u32::from(epoch)).max(1) - 1);
    let key = keys(session).server_to_client;
    let client = client_of(session);
    let mut header = Header::new(Kind::ServerAck, id(session), epoch);
    header.seq_num = stable;
    match way % 3 {
        0 => Sent { from: SERVER, to: client, port: PORT, bytes: packet(&header, &Tail::Empty, &[], &key) },
        1 => {
            let tail = HeartbeatTail { highest: SeqNum(0), stable };
            let header = Header::new(Kind::Heartbeat, id(session), epoch);
            Sent {
                from: SERVER,
                to: client,
                port: PORT,
                bytes: packet(&header, &Tail::Heartbeat(tail), &[7; 32], &key),
            }
        }
        _ => {
            let key = cluster().control(Direction::ServerToDevice);
            Sent { from: SERVER, to: CONTROL, port: PORT, bytes: packet(&header, &Tail::Empty, &[], &key) }
        }
    }
}

/// What the head of the chain has written; the head itself writes over it.
fn write_stamp(packet: &mut [u8], header: &Header, stamp: u8) {
    let number = header.session.0 * 10_000 + header.seq_num.0;
    let kind = match stamp {
        0 => return,
        1 => StampKind::Barrier,
        _ => StampKind::Order,
    };
    let stamped = Stamp {
        kind,
        device: DeviceId(7),
        boot_epoch: BootEpoch(if stamp == 2 { 9 } else { 3 }),
        number: OrderNumber(number),
        previous_write: SeqNum(header.seq_num.0.saturating_sub(2)),
    };
    // One that is not the head's.
    let direction = if stamp == 3 { Direction::Handshake } else { Direction::Stamp };
    emit_stamp(packet, &stamped, &cluster().control(direction)).expect("it is a request");
}

fn spoil(mut sent: Sent, flip: u16, cut: Option<u16>) -> Sent {
    // The mark stays, or it were no packet of ours.
    if sent.bytes.len() > 4 {
        let at = 4 + usize::from(flip >> 3) % (sent.bytes.len() - 4);
        sent.bytes[at] ^= 1 << (flip & 7);
    }
    if let Some(cut) = cut {
        sent.bytes.truncate(4 + usize::from(cut) % sent.bytes.len().max(5));
    }
    sent
}

fn request() -> impl Strategy<Value = Step> {
    let ahead = prop_oneof![10 => Just(0_i8), 3 => -6..0_i8, 1 => 1..4_i8];
    let asked = prop_oneof![8 => Just(1_u8), 1 => 0..4_u8];
    let bytes = prop_oneof![6 => 0..200_u16, 1 => 0..=1_356_u16];
    let from =
        prop_oneof![60 => Just(From::Client), 1 => Just(From::OtherAddress), 2 => Just(From::OtherPort)];
    // None, a barrier, a later incarnation's, a forged one; mostly an order number.
    let stamp = prop_oneof![2 => 0..4_u8, 12 => Just(4_u8)];
    (0..4_u8, 0..4_u8, ahead, asked, bytes, any::<bool>(), from, stamp).prop_map(
        |(session, kind, ahead, asked, bytes, early, from, stamp)| Step::Request {
            session,
            kind,
            ahead,
            asked,
            bytes,
            early,
            from,
            stamp,
        },
    )
}

fn from_server() -> impl Strategy<Value = Step> {
    let window = prop_oneof![Just(4_u32), Just(8), Just(16), Just(0), Just(1_000_000)];
    prop_oneof![
        3 => (0..4_u8, window).prop_map(|(session, window)| Step::Accept { session, window }),
        2 => (0..20_u8, 0..8_u8)
            .prop_map(|(raise, refused)| Step::Lease { raise: raise == 0, refused: refused == 0 }),
        9 => (0..4_u8, 0..12_u8, 0..3_u8, prop_oneof![9 => Just(1_u8), 1 => 0..3_u8])
            .prop_map(|(session, behind, way, epoch)| Step::Stable { session, behind, way, epoch }),
        3 => (0..4_u8, 0..4_u64).prop_map(|(session, stamped_by)| Step::Response { session, stamped_by }),
        2 => (0..4_u8, -3..6_i8, 0..4_u8).prop_map(|(session, behind, length)| Step::Drain { session, behind, length }),
        1 => (0..3_u8).prop_map(|epoch| Step::Poll { epoch }),
        2 => (proptest::option::of(0..4_u8), 0..40_u8, 0..20_u8)
            .prop_map(|(session, first, length)| Step::Retransmit { session, first, length }),
        1 => (0..12_u8).prop_map(|session| Step::Expire { session: session % 4 }),
    ]
}

fn whole() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => request(),
        8 => from_server(),
        1 => (0..4_u8, -1..2_i8, 1_400..6_000_u16, proptest::option::of(0..4_u8))
            .prop_map(|(session, ahead, bytes, missing)| Step::Fragments { session, ahead, bytes, missing }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let damaged = (whole(), any::<u16>(), proptest::option::of(any::<u16>()))
        .prop_map(|(of, flip, cut)| Step::Damaged { of: Box::new(of), flip, cut });
    let key = (0..4_u8).prop_map(|which| Step::Key { retire: which == 0 });
    prop_oneof![240 => whole(), 20 => damaged, 1 => key]
}

/// A script that begins with a lease and sessions, so that most of it meets a device at work.
pub fn script(steps_max: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..steps_max).prop_map(|steps| {
        let accepts =
            (0..3_u8).map(|session| Step::Accept { session, window: [4, 8, 16][usize::from(session)] });
        let lease = Step::Lease { raise: false, refused: false };
        accepts.chain([lease]).chain(steps).collect()
    })
}
