//! The directory of sessions: whose they are, how far they have come, and the stamps of what passed.
//!
//! Invariant: a session has one region as long as it is here, and a region one session; what functions keep for
//! a session they number by its region. A place of its window that somebody's log holds keeps its stamp.

use crate::answers::Answers;
use crate::origin::PortNumber;
pub use scotfree_core::SessionName;
use scotfree_core::{Epoch, Nanos, SeqNum, ServerIndex, SessionId};
use scotfree_wire::{Nonce, SessionKeys, Stamp, StampKind};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// A session's place in the directory, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(pub u32);

/// The stamp of a request that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Noted {
    /// Its place in the session.
    pub seq: SeqNum,
    /// Its stamp.
    pub stamp: Stamp,
    /// Whether a function's log holds it.
    pub held: bool,
    /// Whether that log has made it as durable as was asked for.
    pub durable: bool,
}

/// What the device knows of one session.
#[derive(Debug)]
pub struct SessionBase {
    /// Its name.
    pub name: SessionName,
    /// The epoch in which it was opened.
    pub epoch: Epoch,
    /// Its client's nonce.
    pub client_nonce: Nonce,
    /// The server's nonce.
    pub server_nonce: Nonce,
    /// Its keys.
    pub keys: SessionKeys,
    /// The epoch of its keys was taken out of the cluster's.
    pub revoked: bool,
    /// Where its client was heard last.
    pub client: SocketAddr,
    /// The port that its requests come in by, once one has been the next.
    pub port: Option<PortNumber>,
    /// Its credit.
    pub window: u32,
    /// The only `seq_num` that is admitted.
    pub next: SeqNum,
    /// The last write admitted.
    pub last_write: SeqNum,
    /// Everything up to here is stable.
    pub stable: SeqNum,
    /// The server wants it gone: nothing new is logged or acknowledged.
    pub closing: bool,
    /// When its client last spoke.
    pub heard_at: Nanos,
    /// Its client has spoken under the session's keys.
    pub confirmed: bool,
    /// What went by without being admitted, and whether it writes; at most as many as the window.
    pub(crate) passing: BTreeMap<SeqNum, bool>,
    /// Which of its requests a function's log holds, in their order.
    pub(crate) held: VecDeque<SeqNum>,
    pub(crate) noted: Vec<Noted>,
    pub(crate) answers: Answers,
}

/// What a session begins with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    pub(crate) name: SessionName,
    pub(crate) epoch: Epoch,
    pub(crate) client_nonce: Nonce,
    pub(crate) server_nonce: Nonce,
    pub(crate) client: SocketAddr,
    pub(crate) window: u32,
}

impl SessionBase {
    pub(crate) fn new(now: Nanos, beginning: &Beginning, keys: SessionKeys, revoked: bool) -> SessionBase {
        let Beginning { name, epoch, client_nonce, server_nonce, client, window } = *beginning;
        SessionBase {
            name,
            epoch,
            client_nonce,
            server_nonce,
            keys,
            revoked,
            client,
            port: None,
            window,
            next: SeqNum(1),
            last_write: SeqNum(0),
            stable: SeqNum(0),
            closing: false,
            heard_at: now,
            confirmed: false,
            passing: BTreeMap::new(),
            held: VecDeque::new(),
            noted: vec![Noted::default(); window as usize],
            answers: Answers::default(),
        }
    }

    /// The place of a request in the session's window.
    pub fn place(&self, seq: SeqNum) -> usize {
        (seq.0 % u64::from(self.window)) as usize
    }

    /// What is noted of a request, if it still is.
    pub fn noted(&self, seq: SeqNum) -> Option<&Noted> {
        let noted = self.noted.get(self.place(seq))?;
        (noted.seq == seq && noted.stamp.kind != StampKind::None).then_some(noted)
    }

    /// What is noted at a place of the window, of whichever request.
    pub fn noted_at(&self, place: usize) -> Noted {
        self.noted.get(place).copied().unwrap_or_default()
    }

    /// Whether a function's log holds this request.
    pub fn is_held(&self, seq: SeqNum) -> bool {
        self.noted(seq).is_some_and(|noted| noted.held)
    }

    /// What functions' logs hold of it, in the order of the session.
    pub fn held(&self) -> impl DoubleEndedIterator<Item = SeqNum> + '_ {
        self.held.iter().copied()
    }

    /// What functions' logs hold of it from a place on.
    pub fn held_from(&self, first: SeqNum) -> impl Iterator<Item = SeqNum> + '_ {
        let start = self.held.partition_point(|seq| *seq < first);
        self.held.range(start..).copied()
    }

    /// How many requests functions' logs hold.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Writes down a request's stamp. A place that still holds a log's entry keeps it: the request is then
    /// stamped anew if it comes again.
    pub(crate) fn note(&mut self, seq: SeqNum, stamp: Stamp) {
        let place = self.place(seq);
        let noted = &mut self.noted[place];
        if !noted.held {
            *noted = Noted { seq, stamp, held: false, durable: false };
        }
    }

    /// A log holds a request from now on; what its place held before, if it held something.
    pub(crate) fn hold(&mut self, seq: SeqNum, stamp: Stamp) -> Option<Noted> {
        let place = self.place(seq);
        let old = std::mem::replace(&mut self.noted[place], Noted { seq, stamp, held: true, durable: false });
        let displaced = old.held.then_some(old);
        if let Some(old) = displaced {
            self.drop_held(old.seq);
        }
        let at = self.held.partition_point(|held| *held < seq);
        self.held.insert(at, seq);
        displaced
    }

    /// The log has made a request as durable as was asked for.
    pub(crate) fn note_durable(&mut self, seq: SeqNum) {
        let place = self.place(seq);
        if self.is_held(seq) {
            self.noted[place].durable = true;
        }
    }

    /// The log lets a request go; whether it held it.
    pub(crate) fn let_go(&mut self, seq: SeqNum) -> bool {
        if !self.is_held(seq) {
            return false;
        }
        let place = self.place(seq);
        self.noted[place].held = false;
        self.drop_held(seq);
        true
    }

    fn drop_held(&mut self, seq: SeqNum) {
        if let Ok(at) = self.held.binary_search(&seq) {
            self.held.remove(at);
        }
    }

    /// Forgets what passed unadmitted and cannot be the next any more.
    pub(crate) fn forget_passed(&mut self) {
        if !self.passing.is_empty() {
            self.passing = self.passing.split_off(&self.next);
        }
    }
}

/// All sessions.
#[derive(Debug)]
pub struct Sessions {
    by_name: BTreeMap<SessionName, Region>,
    regions: Vec<Option<SessionBase>>,
    free: Vec<Region>,
}

impl Sessions {
    pub(crate) fn new(sessions_max: u32) -> Sessions {
        Sessions {
            by_name: BTreeMap::new(),
            regions: (0..sessions_max).map(|_| None).collect(),
            free: (0..sessions_max).rev().map(Region).collect(),
        }
    }

    /// The region of a session.
    pub fn find(&self, name: SessionName) -> Option<Region> {
        self.by_name.get(&name).copied()
    }

    /// The session of a region.
    pub fn get(&self, region: Region) -> Option<&SessionBase> {
        self.regions.get(region.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, region: Region) -> Option<&mut SessionBase> {
        self.regions.get_mut(region.0 as usize)?.as_mut()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Whether a new one finds a place.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// All, by their names.
    pub fn iter(&self) -> impl Iterator<Item = (Region, &SessionBase)> {
        self.by_name.values().filter_map(|region| Some((*region, self.get(*region)?)))
    }

    /// Those of one server, by their ids.
    pub fn of(&self, server: ServerIndex) -> impl Iterator<Item = (Region, &SessionBase)> {
        let name = |id| SessionName { server, id: SessionId(id) };
        let range = self.by_name.range(name(0)..=name(u64::MAX));
        range.filter_map(|(_, region)| Some((*region, self.get(*region)?)))
    }

    pub(crate) fn free_region(&self) -> Option<Region> {
        self.free.last().copied()
    }

    pub(crate) fn is_free(&self, region: Region) -> bool {
        self.free.contains(&region)
    }

    pub(crate) fn insert(&mut self, region: Region, session: SessionBase) {
        if self.free.last() == Some(&region) {
            self.free.pop();
        } else {
            self.free.retain(|free| *free != region);
        }
        self.by_name.insert(session.name, region);
        self.regions[region.0 as usize] = Some(session);
    }

    pub(crate) fn remove(&mut self, name: SessionName) -> Option<(Region, SessionBase)> {
        let region = self.by_name.remove(&name)?;
        self.free.push(region);
        Some((region, self.regions[region.0 as usize].take()?))
    }
}
