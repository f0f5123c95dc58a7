//! Packets made by hand, for the tests of what speaks with sessions.

use scotfree_core::{
    BootEpoch, DeviceId, Durability, Effect, Effects, Epoch, Nanos, OrderNumber, SeqNum, SessionId,
};
use scotfree_wire::{
    emit, fragments, AcceptTail, ClusterKey, Direction, Header, Kind, SessionKeys, Stamp, StampKind, Tail,
};
use std::net::SocketAddr;

/// The time of what is made by hand.
pub const NOW: Nanos = Nanos::from_secs(1);

/// A host's address, by its last byte.
pub fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 51_000))
}

/// The client's.
pub fn client_address() -> SocketAddr {
    address(1)
}

/// The server's.
pub fn server_address() -> SocketAddr {
    address(2)
}

/// The device's.
pub fn device_address() -> SocketAddr {
    address(254)
}

/// The secret that they share.
pub fn cluster() -> ClusterKey {
    ClusterKey::from_bytes([3; 32])
}

/// The keys of session `id`.
pub fn session_keys(id: u64) -> SessionKeys {
    cluster().session(&nonce(id), &[9; 16], SessionId(id), Epoch(1))
}

/// The client's nonce of session `id`.
pub fn nonce(id: u64) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&id.to_le_bytes());
    nonce
}

/// A packet.
pub fn packet(header: &Header, tail: &Tail, payload: &[u8], key: &scotfree_wire::Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit(header, tail, payload, key, &mut bytes);
    bytes
}

/// The header of a packet of session `id`.
pub fn header(kind: Kind, id: u64, seq: u64) -> Header {
    let mut header = Header::new(kind, SessionId(id), Epoch(1));
    header.seq_num = SeqNum(seq);
    header
}

/// The acceptance of session `id`.
pub fn accept(id: u64, window: u32) -> Vec<u8> {
    let tail = AcceptTail { client_nonce: nonce(id), server_nonce: [9; 16], window, expiry_ms: 1_000 };
    packet(
        &header(Kind::SessionAccept, id, 0),
        &Tail::Accept(tail),
        &[],
        &cluster().control(Direction::Handshake),
    )
}

/// An update of session `id`, in as many packets as it needs.
pub fn update(id: u64, seq: u64, payload: &[u8]) -> Vec<Vec<u8>> {
    let mut header = header(Kind::Update, id, seq);
    header.asked = Durability::Ram;
    let parts = fragments(&header, payload).expect("a payload of a request's size");
    let key = session_keys(id).client_to_server;
    parts.map(|(header, part)| packet(&header, &Tail::Stamp(Stamp::default()), part, &key)).collect()
}

/// What a machine sent, and how many effects of its own it wished for.
pub fn sent<Own>(effects: &mut Effects<Own>) -> Vec<Vec<u8>> {
    let packets = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send { bytes, .. } => Some(effects.bytes(*bytes).to_vec()),
            _ => None,
        })
        .collect();
    effects.clear();
    packets
}

/// The stamp of a logged update.
pub fn order(boot_epoch: u32, number: u64, previous_write: u64) -> Stamp {
    Stamp {
        kind: StampKind::Order,
        device: DeviceId(1),
        boot_epoch: BootEpoch(boot_epoch),
        number: OrderNumber(number),
        previous_write: SeqNum(previous_write),
    }
}

/// The stamp of what is not logged.
pub fn barrier(boot_epoch: u32, number: u64, previous_write: u64) -> Stamp {
    Stamp { kind: StampKind::Barrier, ..order(boot_epoch, number, previous_write) }
}
