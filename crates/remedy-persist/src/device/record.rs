//! Log records: an entry carries all that is needed to replay it and to rebuild its session.
//!
//! Layout, little-endian: version 1, type 1 (1 session, 2 entry), client address 18 (ip as IPv6 16,
//! port 2), session 8, epoch 4, window 4, client nonce 16, server nonce 16, region 4; an entry goes
//! on with seq 8, asked 1, early 1, stamp kind 1, zero 1, device 2, zero 2, boot epoch 4, number 8,
//! previous write 8, key hash 8, payload.

use super::slots::{Keeper, Session, Slot, DISK_TOKEN_BIT};
use super::Device;
use scotfree_core::{
    BootEpoch, DeviceId, Durability, Epoch, KeyHash, Nanos, OrderNumber, SeqNum, SessionId, Token,
};
use scotfree_session::Fault;
use scotfree_wire::{Stamp, StampKind};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const RECORD_VERSION: u8 = 1;
const TYPE_SESSION: u8 = 1;
const TYPE_ENTRY: u8 = 2;

/// Why a record was not restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreError {
    /// Of a version that this build does not know.
    Version(u8),
    /// Shorter than its type requires, or with a value that it must not hold.
    Malformed,
    /// It does not fit this device's `sessions_max` and `window_max`.
    Layout,
}

impl std::fmt::Display for RestoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RestoreError::Version(version) => write!(f, "log record of version {version}, this build reads {RECORD_VERSION}"),
            RestoreError::Malformed => f.write_str("malformed log record"),
            RestoreError::Layout => {
                f.write_str("log record outside this device's sessions_max and window_max; start with those it was written with")
            }
        }
    }
}

impl std::error::Error for RestoreError {}

pub(super) fn write_session(id: SessionId, session: &Session, out: &mut Vec<u8>) {
    write_head(TYPE_SESSION, id, session, out);
}

pub(super) fn write_entry(id: SessionId, session: &Session, slot: &Slot, out: &mut Vec<u8>) {
    write_head(TYPE_ENTRY, id, session, out);
    out.extend_from_slice(&slot.seq.0.to_le_bytes());
    let kind = match slot.stamp.kind {
        StampKind::None => 0,
        StampKind::Order => 1,
        StampKind::Barrier => 2,
    };
    out.extend_from_slice(&[slot.asked.code(), u8::from(slot.early), kind, 0]);
    out.extend_from_slice(&slot.stamp.device.0.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&slot.stamp.boot_epoch.0.to_le_bytes());
    out.extend_from_slice(&slot.stamp.number.0.to_le_bytes());
    out.extend_from_slice(&slot.stamp.previous_write.0.to_le_bytes());
    out.extend_from_slice(&slot.key_hash.0.to_le_bytes());
    out.extend_from_slice(&slot.payload);
}

fn write_head(record_type: u8, id: SessionId, session: &Session, out: &mut Vec<u8>) {
    out.extend_from_slice(&[RECORD_VERSION, record_type]);
    let ip = match session.client.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&session.client.port().to_le_bytes());
    out.extend_from_slice(&id.0.to_le_bytes());
    out.extend_from_slice(&session.epoch.0.to_le_bytes());
    out.extend_from_slice(&session.window.to_le_bytes());
    out.extend_from_slice(&session.client_nonce);
    out.extend_from_slice(&session.server_nonce);
    out.extend_from_slice(&session.region.to_le_bytes());
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(RestoreError::Malformed)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u64(&mut self) -> Result<u64, RestoreError> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, RestoreError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, RestoreError> {
        self.take().map(u16::from_le_bytes)
    }
}

impl Device {
    /// Takes over one record of the log, before the first packet (rule 12).
    pub fn restore(&mut self, now: Nanos, token: Token, record: &[u8]) -> Result<(), RestoreError> {
        if self.planted(Fault::ForgetLogOnRestart) {
            return Ok(());
        }
        let mut reader = Reader(record);
        let [version, record_type] = reader.take()?;
        if version != RECORD_VERSION {
            return Err(RestoreError::Version(version));
        }
        let id = self.restore_session(now, token, &mut reader)?;
        match record_type {
            TYPE_SESSION => Ok(()),
            TYPE_ENTRY => self.restore_entry(now, id, token, &mut reader),
            _ => Err(RestoreError::Malformed),
        }
    }

    fn restore_session(
        &mut self,
        now: Nanos,
        token: Token,
        reader: &mut Reader<'_>,
    ) -> Result<SessionId, RestoreError> {
        let ip = Ipv6Addr::from(reader.take::<16>()?).to_canonical();
        let client = SocketAddr::new(ip, reader.u16()?);
        let id = SessionId(reader.u64()?);
        let epoch = Epoch(reader.u32()?);
        let window = reader.u32()?;
        let (client_nonce, server_nonce) = (reader.take()?, reader.take()?);
        let region = reader.u32()?;
        if let Some(session) = self.sessions.get(&id) {
            return if session.region == region { Ok(id) } else { Err(RestoreError::Layout) };
        }
        let free = self.regions_free.iter().position(|free| *free == region).ok_or(RestoreError::Layout)?;
        if window == 0 || window > self.config.window_max {
            return Err(RestoreError::Layout);
        }
        self.regions_free.remove(free);
        let session = Session {
            epoch,
            keys: self.config.cluster_key.session(&client_nonce, &server_nonce, id, epoch),
            client_nonce,
            server_nonce,
            client,
            port: None,
            window,
            region,
            record_domain: token.0 & DISK_TOKEN_BIT,
            next: SeqNum(1),
            passing: BTreeMap::new(),
            last_write: SeqNum(0),
            stable: SeqNum(0),
            closing: false,
            live: BTreeSet::new(),
            heard_at: now,
            confirmed: false,
            slots: vec![Slot::default(); window as usize],
        };
        self.sessions.insert(id, session);
        Ok(id)
    }

    fn restore_entry(
        &mut self,
        now: Nanos,
        id: SessionId,
        token: Token,
        reader: &mut Reader<'_>,
    ) -> Result<(), RestoreError> {
        let seq = SeqNum(reader.u64()?);
        let [asked, early, kind, _] = reader.take()?;
        let asked = Durability::from_code(asked).ok_or(RestoreError::Malformed)?;
        let device = DeviceId(reader.u16()?);
        reader.u16()?;
        let stamp = Stamp {
            kind: if kind == 1 { StampKind::Order } else { return Err(RestoreError::Malformed) },
            device,
            boot_epoch: BootEpoch(reader.u32()?),
            number: OrderNumber(reader.u64()?),
            previous_write: SeqNum(reader.u64()?),
        };
        let key_hash = KeyHash(reader.u64()?);
        let reached = if token.0 & DISK_TOKEN_BIT == 0 { Durability::Ram } else { Durability::Disk };
        let due = now.plus(self.config.reforward_after);
        let Some(session) = self.sessions.get_mut(&id) else { return Err(RestoreError::Layout) };
        let place = session.place(seq);
        let slot = &mut session.slots[place];
        if slot.logged && slot.seq == seq {
            // The same entry in both domains.
            slot.persisted = slot.persisted.with(reached);
            return Ok(());
        }
        if slot.logged && slot.seq > seq {
            // An older record of the slot, whose erasure was not durable yet: it was stable.
            return Ok(());
        }
        session.next = session.next.max(seq.next());
        session.last_write = session.last_write.max(seq);
        let entry = Slot {
            seq,
            stamp,
            logged: true,
            keeper: Keeper::Machine,
            asked,
            persisted: reached,
            writing: Durability::None,
            // It may have been acknowledged: who counts what is endangered must assume so.
            acknowledged: true,
            early: early == 1,
            key_hash,
            logged_at: now,
            reforward_at: due,
            reforward_tries: 0,
            payload: reader.0.to_vec(),
        };
        self.put_entry(id, entry);
        self.boot_seen = self.boot_seen.max(stamp.boot_epoch);
        Ok(())
    }
}
