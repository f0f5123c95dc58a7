//! The tables of sessions, stations and counters, by system calls.
//!
//! Invariant: a session's entry is read and written under its lock.

use crate::plain::{bytes_of, value_of};
use crate::shared::{Endpoint, KeyWords};
use crate::skeleton::types;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use scotfree_core::{Epoch, Nanos, SeqNum, SessionId};
use scotfree_wire::Nonce;
use std::net::SocketAddr;

/// What the programs know of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Its place in the tables.
    pub index: u32,
    /// Its name; 0 is nobody's.
    pub id: SessionId,
    /// The only `seq_num` that is admitted.
    pub next: SeqNum,
    /// The last write admitted.
    pub last_write: SeqNum,
    /// Everything up to here is stable.
    pub stable: SeqNum,
    /// When its client last spoke under its keys.
    pub heard_at: Nanos,
    /// Entries logged so far.
    pub logged: u64,
    /// Of these, up to `stable`.
    pub freed: u64,
    /// Up to here entries were logged out of the order of their `seq_num`.
    pub disorder_until: SeqNum,
    /// Its client.
    pub client: SocketAddr,
    /// Its credit, which is the number of its slots.
    pub window: u32,
    /// The first of its slots.
    pub slot_first: u32,
    /// The port that its requests come in by; 0 if that is not known.
    pub client_ifindex: u32,
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

impl Session {
    fn to_plain(self) -> types::scot_session {
        types::scot_session {
            index: self.index,
            id: self.id.0,
            next: self.next.0,
            last_write: self.last_write.0,
            stable: self.stable.0,
            heard_at: self.heard_at.0,
            logged: self.logged,
            freed: self.freed,
            disorder_until: self.disorder_until.0,
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

    fn from_plain(plain: &types::scot_session) -> Session {
        Session {
            index: plain.index,
            id: SessionId(plain.id),
            next: SeqNum(plain.next),
            last_write: SeqNum(plain.last_write),
            stable: SeqNum(plain.stable),
            heard_at: Nanos(plain.heard_at),
            logged: plain.logged,
            freed: plain.freed,
            disorder_until: SeqNum(plain.disorder_until),
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
    pub(crate) fn session(&self, index: u32) -> libbpf_rs::Result<Option<Session>> {
        let bytes = self.sessions.lookup(bytes_of(&index), MapFlags::LOCK)?;
        let plain: Option<types::scot_session> = bytes.and_then(|bytes| value_of(&bytes));
        Ok(plain.filter(|plain| plain.id != 0).map(|plain| Session::from_plain(&plain)))
    }

    pub(crate) fn set_session(&self, session: &Session) -> libbpf_rs::Result<()> {
        self.sessions.update(bytes_of(&session.index), bytes_of(&session.to_plain()), MapFlags::LOCK)
    }

    /// Makes a session known by its name, after it has been written.
    pub(crate) fn publish(&self, session: &Session) -> libbpf_rs::Result<()> {
        self.index.update(bytes_of(&session.id.0), bytes_of(&session.index), MapFlags::ANY)
    }

    /// Forgets a session: by its name first, so that no program finds an empty entry by it.
    pub(crate) fn remove(&self, session: &Session) -> libbpf_rs::Result<()> {
        // One that is not there was removed before.
        let _ = self.index.delete(bytes_of(&session.id.0));
        let nobody = types::scot_session { index: session.index, ..types::scot_session::default() };
        self.sessions.update(bytes_of(&session.index), bytes_of(&nobody), MapFlags::LOCK)
    }

    pub(crate) fn counters(&self) -> libbpf_rs::Result<Counters> {
        counters_of(&self.counters)
    }
}

pub(crate) fn counters_of(table: &MapHandle) -> libbpf_rs::Result<Counters> {
    let processors = table.lookup_percpu(bytes_of(&0_u32), MapFlags::ANY)?.unwrap_or_default();
    let mut sum = Counters::default();
    for counted in processors.iter().filter_map(|bytes| value_of::<Counters>(bytes)) {
        sum.add(&counted);
    }
    Ok(sum)
}

impl Counters {
    const WORDS: usize = size_of::<Counters>() / size_of::<u64>();

    fn add(&mut self, other: &Counters) {
        // Every field counts, so every word does.
        let (mut sum, more) = (self.words(), other.words());
        for (word, more) in sum.iter_mut().zip(more) {
            *word += more;
        }
        let bytes: Vec<u8> = sum.iter().flat_map(|word| word.to_ne_bytes()).collect();
        *self = value_of(&bytes).expect("as many bytes as words");
    }

    fn words(&self) -> [u64; Counters::WORDS] {
        let bytes = bytes_of(self);
        core::array::from_fn(|at| value_of(&bytes[at * 8..]).expect("the word lies in the struct"))
    }
}
