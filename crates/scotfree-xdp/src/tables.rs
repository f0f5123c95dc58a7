//! The tables of sessions, stations and counters, by system calls.
//!
//! Invariant: a session's entry is read and written under its lock.

use crate::plain::{bytes_of, value_of};
use crate::shared::{Endpoint, KeyWords};
use crate::skeleton::types;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use scotfree_core::{Epoch, Nanos, SeqNum, SessionId};
use scotfree_wire::Nonce;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// How many words of a session's entry are the keeper's of its places (`SCOT_SESSION_ROOM`).
pub const SESSION_ROOM: usize = 4;

/// What the programs know of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionEntry {
    /// Its place in the tables.
    pub index: u32,
    /// Its name; 0 is nobody's.
    pub id: SessionId,
    /// The only `seq_num` that is admitted.
    pub next: SeqNum,
    /// The last write admitted.
    pub last_write: SeqNum,
    /// When its client last spoke under its keys.
    pub heard_at: Nanos,
    /// What the keeper of its places keeps of it.
    pub room: [u64; SESSION_ROOM],
    /// Its client.
    pub client: SocketAddr,
    /// Its credit, which is the number of its places.
    pub window: u32,
    /// The first of its places.
    pub slot_first: u32,
    /// Its server's place among the servers.
    pub server: u32,
    /// The port that its requests come in by; 0 if that is not known.
    pub client_ifindex: u32,
    /// That port's place among the ports.
    pub client_port: u8,
    /// The epoch in which it was opened.
    pub epoch: Epoch,
    /// Nothing new is logged or acknowledged.
    pub closing: bool,
    /// Its client has spoken under its keys.
    pub confirmed: bool,
    /// Authenticates its requests.
    pub client_to_server: KeyWords,
    /// Authenticates what the server says.
    pub server_to_client: KeyWords,
    /// Authenticates acknowledgements.
    pub device_to_client: KeyWords,
    /// The client's nonce.
    pub client_nonce: Nonce,
    /// The server's nonce.
    pub server_nonce: Nonce,
}

fn plain_key(KeyWords([low, high]): KeyWords) -> types::scot_key {
    types::scot_key { low, high }
}

fn key_of(plain: types::scot_key) -> KeyWords {
    KeyWords([plain.low, plain.high])
}

impl SessionEntry {
    fn name(&self) -> types::scot_session_name {
        types::scot_session_name { id: self.id.0, server: self.server, zero: 0 }
    }

    fn to_plain(self) -> types::scot_session {
        types::scot_session {
            index: self.index,
            id: self.id.0,
            next: self.next.0,
            last_write: self.last_write.0,
            heard_at: self.heard_at.0,
            room: self.room,
            server: self.server,
            client_port: self.client_port,
            client: Endpoint(self.client).to_plain(),
            window: self.window,
            slot_first: self.slot_first,
            client_ifindex: self.client_ifindex,
            epoch: self.epoch.0,
            closing: u8::from(self.closing),
            confirmed: u8::from(self.confirmed),
            client_to_server: plain_key(self.client_to_server),
            server_to_client: plain_key(self.server_to_client),
            device_to_client: plain_key(self.device_to_client),
            client_nonce: self.client_nonce,
            server_nonce: self.server_nonce,
            ..types::scot_session::default()
        }
    }

    fn from_plain(plain: &types::scot_session) -> SessionEntry {
        SessionEntry {
            index: plain.index,
            id: SessionId(plain.id),
            next: SeqNum(plain.next),
            last_write: SeqNum(plain.last_write),
            heard_at: Nanos(plain.heard_at),
            room: plain.room,
            server: plain.server,
            client_port: plain.client_port,
            client: Endpoint::from_plain(&plain.client).0,
            window: plain.window,
            slot_first: plain.slot_first,
            client_ifindex: plain.client_ifindex,
            epoch: Epoch(plain.epoch),
            closing: plain.closing != 0,
            confirmed: plain.confirmed != 0,
            client_to_server: key_of(plain.client_to_server),
            server_to_client: key_of(plain.server_to_client),
            device_to_client: key_of(plain.device_to_client),
            client_nonce: plain.client_nonce,
            server_nonce: plain.server_nonce,
        }
    }
}

/// A station's name: its address and its virtual network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationName {
    /// Its address.
    pub mac: [u8; 6],
    /// Its virtual network.
    pub vlan: u16,
}

/// Where a station lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Station {
    /// Behind which port.
    pub ifindex: u32,
    /// When it was last heard.
    pub last_seen: Nanos,
}

/// What the programs counted, summed over the processors.
pub type Counters = types::scot_counters;

/// The tables.
pub(crate) struct Tables {
    pub(crate) sessions: MapHandle,
    pub(crate) index: MapHandle,
    pub(crate) stations: MapHandle,
    pub(crate) counters: MapHandle,
}

impl Tables {
    pub(crate) fn session(&self, index: u32) -> libbpf_rs::Result<Option<SessionEntry>> {
        let bytes = self.sessions.lookup(bytes_of(&index), MapFlags::LOCK)?;
        let plain: Option<types::scot_session> = bytes.and_then(|bytes| value_of(&bytes));
        Ok(plain.filter(|plain| plain.id != 0).map(|plain| SessionEntry::from_plain(&plain)))
    }

    pub(crate) fn set_session(&self, session: &SessionEntry) -> libbpf_rs::Result<()> {
        self.sessions.update(bytes_of(&session.index), bytes_of(&session.to_plain()), MapFlags::LOCK)
    }

    /// Makes a session known by its name, after it has been written.
    pub(crate) fn publish(&self, session: &SessionEntry) -> libbpf_rs::Result<()> {
        self.index.update(bytes_of(&session.name()), bytes_of(&session.index), MapFlags::ANY)
    }

    /// Forgets a session: by its name first, so that no program finds an empty entry by it.
    pub(crate) fn remove(&self, session: &SessionEntry) -> libbpf_rs::Result<()> {
        // One that is not there was removed before.
        let _ = self.index.delete(bytes_of(&session.name()));
        let nobody = types::scot_session { index: session.index, ..types::scot_session::default() };
        self.sessions.update(bytes_of(&session.index), bytes_of(&nobody), MapFlags::LOCK)
    }

    pub(crate) fn counters(&self) -> libbpf_rs::Result<Counters> {
        counters_of(&self.counters)
    }
}

pub(crate) fn counters_of(table: &MapHandle) -> libbpf_rs::Result<Counters> {
    let bytes: Vec<u8> = sums_of(table)?.into_iter().flat_map(u64::to_ne_bytes).collect();
    Ok(value_of(&bytes).expect("the table holds such a struct"))
}

/// What a table of counters holds, summed over the processors. Every field counts, so every word does.
pub(crate) fn sums_of(table: &MapHandle) -> libbpf_rs::Result<Vec<u64>> {
    let processors = table.lookup_percpu(bytes_of(&0_u32), MapFlags::ANY)?.unwrap_or_default();
    let mut sums = vec![0; table.value_size() as usize / size_of::<u64>()];
    for counted in &processors {
        for (sum, at) in sums.iter_mut().zip((0..).step_by(size_of::<u64>())) {
            *sum += value_of::<u64>(&counted[at..]).expect("the word lies in the table");
        }
    }
    Ok(sums)
}

/// What one function counted, by the names of its counters.
pub type FunctionCounters = BTreeMap<&'static str, u64>;
