//! Log records: an entry carries all that is needed to replay it and to rebuild its session.
//!
//! Layout, little-endian: version 1, type 1 (low four bits: 1 session, 2 entry; high four bits: the server's index),
//! client address 18 (ip as IPv6 16, port 2), session 8, epoch 4, window 4, client nonce 16, server nonce 16,
//! region 4; an entry goes on with seq 8, asked 1, early 1, stamp kind 1, zero 1, device 2, zero 2, boot epoch 4,
//! number 8, previous write 8, key hash 8, payload.

use crate::log::{domain_of, Persist, Slot};
use scotfree_core::{
    BootEpoch, DeviceId, Durability, Epoch, KeyHash, Nanos, OrderNumber, SeqNum, ServerIndex, SessionId,
    Token,
};
use scotfree_device::{
    Base, Noted, Region, RestoreError, Restored, SessionBase, SessionName, DISK_TOKEN_BIT,
};
use scotfree_wire::{Stamp, StampKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const RECORD_VERSION: u8 = 1;
const TYPE_SESSION: u8 = 1;
const TYPE_ENTRY: u8 = 2;
const TYPE_BITS: u8 = 0x0f;

pub(crate) fn write_session(region: Region, session: &SessionBase, out: &mut Vec<u8>) {
    write_head(TYPE_SESSION, region, session, out);
}

pub(crate) fn write_entry(
    region: Region,
    session: &SessionBase,
    noted: &Noted,
    slot: &Slot,
    out: &mut Vec<u8>,
) {
    write_head(TYPE_ENTRY, region, session, out);
    out.extend_from_slice(&noted.seq.0.to_le_bytes());
    let kind = match noted.stamp.kind {
        StampKind::None => 0,
        StampKind::Order => 1,
        StampKind::Barrier => 2,
    };
    out.extend_from_slice(&[slot.asked.code(), u8::from(slot.early), kind, 0]);
    out.extend_from_slice(&noted.stamp.device.0.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&noted.stamp.boot_epoch.0.to_le_bytes());
    out.extend_from_slice(&noted.stamp.number.0.to_le_bytes());
    out.extend_from_slice(&noted.stamp.previous_write.0.to_le_bytes());
    out.extend_from_slice(&slot.key_hash.0.to_le_bytes());
    out.extend_from_slice(&slot.payload);
}

fn write_head(record_type: u8, region: Region, session: &SessionBase, out: &mut Vec<u8>) {
    out.extend_from_slice(&[RECORD_VERSION, record_type | session.name.server.0 << 4]);
    let ip = match session.client.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&session.client.port().to_le_bytes());
    out.extend_from_slice(&session.name.id.0.to_le_bytes());
    out.extend_from_slice(&session.epoch.0.to_le_bytes());
    out.extend_from_slice(&session.window.to_le_bytes());
    out.extend_from_slice(&session.client_nonce);
    out.extend_from_slice(&session.server_nonce);
    out.extend_from_slice(&region.0.to_le_bytes());
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

impl Persist {
    /// Takes over one record of the log, before the first packet (rule 12).
    pub(crate) fn restore_record(
        &mut self,
        now: Nanos,
        base: &mut Base,
        token: Token,
        record: &[u8],
    ) -> Result<(), RestoreError> {
        let mut reader = Reader(record);
        let [version, record_type] = reader.take()?;
        if version != RECORD_VERSION {
            return Err(RestoreError::Version { found: version, known: RECORD_VERSION });
        }
        let server = ServerIndex(record_type >> 4);
        let region = self.restore_session(now, base, (token, server), &mut reader)?;
        match record_type & TYPE_BITS {
            TYPE_SESSION => Ok(()),
            TYPE_ENTRY => self.restore_entry(now, base, region, token, &mut reader),
            _ => Err(RestoreError::Malformed),
        }
    }

    fn restore_session(
        &mut self,
        now: Nanos,
        base: &mut Base,
        (token, server): (Token, ServerIndex),
        reader: &mut Reader<'_>,
    ) -> Result<Region, RestoreError> {
        let ip = Ipv6Addr::from(reader.take::<16>()?).to_canonical();
        let client = SocketAddr::new(ip, reader.u16()?);
        let name = SessionName { server, id: SessionId(reader.u64()?) };
        let epoch = Epoch(reader.u32()?);
        let window = reader.u32()?;
        let nonces = (reader.take()?, reader.take()?);
        let region = Region(reader.u32()?);
        let found = base.restore_session(now, region, name, (epoch, client, window), nonces)?;
        if found == Restored::New {
            self.logs[region.0 as usize].begin(window, token.0 & DISK_TOKEN_BIT);
        }
        Ok(region)
    }

    fn restore_entry(
        &mut self,
        now: Nanos,
        base: &mut Base,
        region: Region,
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
        let due = now.plus(self.config.reforward_after);
        let Some(session) = base.session(region) else { return Err(RestoreError::Layout) };
        let place = session.place(seq);
        let noted = session.noted_at(place);
        let Some(slot) = self.slot_mut(region, place) else { return Err(RestoreError::Layout) };
        if noted.held && noted.seq == seq {
            // The same entry in both domains.
            slot.persisted = slot.persisted.with(domain_of(token));
            return Ok(());
        }
        if noted.held && noted.seq > seq {
            // An older record of the slot, whose erasure was not durable yet: it was stable.
            return Ok(());
        }
        let mut payload = std::mem::take(&mut slot.payload);
        payload.clear();
        payload.extend_from_slice(reader.0);
        *slot = Slot {
            asked,
            persisted: domain_of(token),
            // It may have been acknowledged: who counts what is endangered must assume so.
            acknowledged: true,
            early: early == 1,
            key_hash,
            logged_at: now,
            payload,
            ..Slot::default()
        };
        base.advance(region, seq.next(), seq);
        self.put_entry(base, region, (seq, stamp), due);
        Ok(())
    }
}
