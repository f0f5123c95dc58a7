//! The proxy's side of its peers: which of them hold the log, what each is still to be sent, and on whom a restart may
//! rely.
//!
//! Invariant (rule 9): a peer is written to the durable list before its word counts, and struck from it only when
//! everything that was answered by its word is stable. An update is logged when every peer is on the list and has it.

use super::message::{Held, ToKeeper};
use crate::fault::Fault;
use crate::queue::CommitQueue;
use scotfree_core::SeqNum;
use std::collections::{BTreeMap, BTreeSet};

/// One life of a peer: its memory goes with it.
pub type Incarnation = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No connection.
    Away,
    /// The log was begun there: it counts when it is as far as this, and listed.
    Filling { through: u64 },
    /// It is listed.
    Counted,
}

#[derive(Debug, Clone, Copy)]
struct Peer {
    stage: Stage,
    incarnation: Incarnation,
    /// It has said that the log was begun.
    has_begun: bool,
    stored: u64,
    trimmed: u64,
}

/// How far a listed peer was when it was heard last.
#[derive(Debug, Clone, Copy, Default)]
struct Listed {
    trimmed: u64,
    /// It was lost when so much had been answered by its word.
    lost_at: Option<u64>,
}

/// All peers of a proxy.
#[derive(Debug)]
pub struct Copies {
    peers: Vec<Peer>,
    /// Those that are on the durable list.
    listed: BTreeMap<Incarnation, Listed>,
    epoch: u32,
    /// The last place that was reported as logged, and that was trimmed.
    logged: u64,
    trimmed: u64,
    fault: Option<Fault>,
}

/// Sends a message to the peer of this number.
pub type Send<'a> = dyn FnMut(usize, &ToKeeper<'_>) + 'a;

impl Copies {
    /// So many peers, none of which is there or on the list.
    pub fn new(count: usize, epoch: u32, fault: Option<Fault>) -> Copies {
        let nobody =
            Peer { stage: Stage::Away, incarnation: [0; 16], has_begun: false, stored: 0, trimmed: 0 };
        Copies { peers: vec![nobody; count], listed: BTreeMap::new(), epoch, logged: 0, trimmed: 0, fault }
    }

    /// The Redis is in another incarnation.
    pub fn set_epoch(&mut self, epoch: u32, send: &mut Send<'_>) {
        self.epoch = epoch;
        for (index, peer) in self.peers.iter().enumerate() {
            if peer.stage != Stage::Away {
                send(index, &ToKeeper::Resume(epoch));
            }
        }
    }

    /// A peer is there, and holds this of the log: it is sent what it lacks.
    pub fn attach(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        held: Option<Held>,
        queue: &CommitQueue,
        send: &mut Send<'_>,
    ) {
        let known = held.filter(|_| self.listed.contains_key(&incarnation));
        let (stored, trimmed) = known.map_or((0, 0), |held| (held.stored, held.trimmed));
        match known {
            Some(_) => send(index, &ToKeeper::Resume(self.epoch)),
            None => send(index, &ToKeeper::Begin(self.epoch)),
        }
        let mut through = 0;
        if self.fault != Some(Fault::AttachWithoutThePast) {
            queue.unstable_records(SeqNum(stored), &mut |last, record| {
                through = last.0;
                send(index, &ToKeeper::Append(last, record));
            });
        }
        // A trim may have been lost with the connection before.
        send(index, &ToKeeper::Trim(SeqNum(self.trimmed)));
        let stage = if known.is_some() { Stage::Counted } else { Stage::Filling { through } };
        self.peers[index] = Peer { stage, incarnation, has_begun: false, stored, trimmed };
        if let Some(listed) = self.listed.get_mut(&incarnation) {
            listed.lost_at = None;
        }
    }

    /// A connection is lost.
    pub fn lose(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.stage = Stage::Away;
        if let Some(listed) = self.listed.get_mut(&peer.incarnation) {
            listed.lost_at.get_or_insert(self.logged);
        }
    }

    /// A record is to be kept.
    pub fn append(&mut self, last: SeqNum, record: &[u8], send: &mut Send<'_>) {
        self.to_all(&ToKeeper::Append(last, record), send);
    }

    /// Records up to this place are needed no longer.
    pub fn trim(&mut self, through: SeqNum, send: &mut Send<'_>) {
        self.trimmed = self.trimmed.max(through.0);
        self.to_all(&ToKeeper::Trim(through), send);
    }

    fn to_all(&self, message: &ToKeeper<'_>, send: &mut Send<'_>) {
        for (index, peer) in self.peers.iter().enumerate() {
            if peer.stage != Stage::Away {
                send(index, message);
            }
        }
    }

    /// A peer has begun the log, or goes on with it.
    pub fn on_state(&mut self, index: usize, held: Held) {
        self.peers[index].has_begun = true;
        self.on_stored(index, held.stored, held.trimmed);
    }

    /// A peer has said how far it is.
    pub fn on_stored(&mut self, index: usize, stored: u64, trimmed: u64) {
        let peer = &mut self.peers[index];
        peer.stored = peer.stored.max(stored);
        peer.trimmed = peer.trimmed.max(trimmed);
        if let Some(listed) = self.listed.get_mut(&peer.incarnation) {
            listed.trimmed = listed.trimmed.max(trimmed);
        }
    }

    /// The list as it should be; none if it is so. It is to be made durable, and then [`Copies::listed`].
    pub fn wanted_list(&self, stable: SeqNum) -> Option<BTreeSet<Incarnation>> {
        let struck_early = self.fault == Some(Fault::StrikeBeforeStable);
        let stays = |listed: &Listed| listed.lost_at.is_none_or(|logged| logged > stable.0 && !struck_early);
        let mut wanted: BTreeSet<Incarnation> = self
            .listed
            .iter()
            .filter(|(_, listed)| stays(listed))
            .map(|(incarnation, _)| *incarnation)
            .collect();
        wanted.extend(self.peers.iter().filter(|peer| self.is_filled(peer)).map(|peer| peer.incarnation));
        (!wanted.iter().eq(self.listed.keys())).then_some(wanted)
    }

    fn is_filled(&self, peer: &Peer) -> bool {
        match peer.stage {
            Stage::Filling { through } => {
                peer.has_begun && peer.stored >= through || self.fault == Some(Fault::ListBeforeFilled)
            }
            Stage::Away | Stage::Counted => false,
        }
    }

    /// The list is durable: whoever is new on it counts.
    pub fn listed(&mut self, list: &BTreeSet<Incarnation>) {
        self.listed.retain(|incarnation, _| list.contains(incarnation));
        for peer in &mut self.peers {
            if matches!(peer.stage, Stage::Filling { .. }) && list.contains(&peer.incarnation) {
                peer.stage = Stage::Counted;
                let trimmed = peer.trimmed;
                self.listed.insert(peer.incarnation, Listed { trimmed, lost_at: None });
            }
        }
    }

    /// How far every peer has the log, if all count.
    pub fn logged(&mut self) -> Option<SeqNum> {
        let far = |peer: &Peer| match peer.stage {
            Stage::Counted => peer.stored,
            _ => 0,
        };
        let one_is_enough = self.fault == Some(Fault::OnePeerIsEnough);
        let stored = self.peers.iter().map(far);
        let logged = if one_is_enough { stored.max() } else { stored.reduce(u64::min) }
            .filter(|logged| *logged > 0)?;
        self.logged = self.logged.max(logged);
        Some(SeqNum(logged))
    }

    /// Up to which place peers were told to trim.
    pub fn trim_sent(&self) -> SeqNum {
        SeqNum(self.trimmed)
    }

    /// Up to which place a restart finds nothing, whomever it asks.
    pub fn trimmed(&self) -> SeqNum {
        if self.fault == Some(Fault::ForgetUntrimmed) {
            return SeqNum(u64::MAX);
        }
        let attached = self.peers.iter().filter(|peer| peer.stage != Stage::Away).map(|peer| peer.trimmed);
        let listed = self.listed.values().map(|listed| listed.trimmed);
        SeqNum(attached.chain(listed).min().unwrap_or(u64::MAX))
    }

    /// Whether this peer is attached already, under another address perhaps.
    pub fn is_attached(&self, incarnation: Incarnation) -> bool {
        self.peers.iter().any(|peer| peer.stage != Stage::Away && peer.incarnation == incarnation)
    }

    /// Whether every peer holds what it should.
    pub fn is_whole(&self) -> bool {
        self.peers.iter().all(|peer| peer.stage == Stage::Counted)
    }

    /// Whether this peer counts.
    pub fn counts(&self, index: usize) -> bool {
        self.peers[index].stage == Stage::Counted
    }
}
