//! The log: a session has as many slots as its window, so there is no hash, no collision and no shared full log
//! (rule 3).
//!
//! Invariant: a slot is logged into only when what it held is stable and its last write has ended.

use crate::config::{PersistConfig, PersistCounters};
use crate::index::{Aged, Due, OrderIndex, OrderPlace};
use scotfree_core::{Durability, Epoch, KeyHash, Nanos, SeqNum, ServerIndex, SessionId, Token};
use scotfree_device::{Base, DeviceEffects, Noted, Passing, Region, SessionBase, DISK_TOKEN_BIT};
use scotfree_session::Fault;
use scotfree_wire::{emit, Flags, Header, Kind, Stamp, Tail};

/// What stands in a slot beside the stamp, which the directory keeps: of an entry the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot {
    /// The entry that lives here, and when it is to be sent to the server again.
    pub(crate) due: Option<(SeqNum, Nanos)>,
    /// The last entry here whose memory was the fast path's log.
    pub(crate) fast: Option<SeqNum>,
    pub(crate) asked: Durability,
    pub(crate) persisted: Durability,
    /// The domains that have not completed the last write of this slot: no other is begun before.
    pub(crate) writing: Durability,
    pub(crate) acknowledged: bool,
    pub(crate) early: bool,
    pub(crate) key_hash: KeyHash,
    pub(crate) logged_at: Nanos,
    pub(crate) reforward_tries: u32,
    pub(crate) payload: Vec<u8>,
}

/// The slots of one region.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The domain that keeps the session's record.
    pub(crate) record_domain: u64,
    pub(crate) slots: Vec<Slot>,
}

impl Log {
    /// Begins for a session with this window; the memory of former ones is used again.
    pub(crate) fn begin(&mut self, window: u32, record_domain: u64) {
        self.record_domain = record_domain;
        for slot in &mut self.slots {
            let mut payload = std::mem::take(&mut slot.payload);
            payload.clear();
            *slot = Slot { payload, ..Slot::default() };
        }
        self.slots.resize_with(window as usize, Slot::default);
    }
}

/// In-network persistence as a function of the device.
#[derive(Debug)]
pub struct Persist {
    pub(crate) config: PersistConfig,
    /// By region.
    pub(crate) logs: Vec<Log>,
    pub(crate) live: OrderIndex,
    pub(crate) aged: Aged,
    pub(crate) token_first: u64,
    pub(crate) window_max: u64,
    pub(crate) sessions_max: u64,
    pub(crate) counters: PersistCounters,
}

impl Persist {
    /// With an empty log.
    pub fn new(config: PersistConfig) -> Persist {
        Persist {
            config,
            logs: Vec::new(),
            live: OrderIndex::default(),
            aged: Aged::default(),
            token_first: 0,
            window_max: 0,
            sessions_max: 0,
            counters: PersistCounters::default(),
        }
    }

    /// What it has counted.
    pub fn counters(&self) -> &PersistCounters {
        &self.counters
    }

    /// What the persistence domains can give.
    pub fn media(&self) -> Durability {
        self.config.media
    }

    pub(crate) fn planted(&self, fault: Fault) -> bool {
        self.config.planted.is(fault)
    }

    // ---- tokens: slots first, then one session record per region

    fn slot_token(&self, region: Region, place: usize) -> u64 {
        self.token_first + u64::from(region.0) * self.window_max + place as u64
    }

    fn session_token(&self, region: Region) -> u64 {
        self.token_first + self.sessions_max * self.window_max + u64::from(region.0)
    }

    fn slot_of_token(&self, token: Token) -> Option<(Region, usize)> {
        let number = (token.0 & !DISK_TOKEN_BIT).checked_sub(self.token_first)?;
        let region = number / self.window_max;
        (region < self.sessions_max).then(|| (Region(region as u32), (number % self.window_max) as usize))
    }

    /// The domain bits in which a request that asked for `asked` is kept.
    fn domains(asked: Durability) -> impl Iterator<Item = (u64, Durability)> {
        [(0, Durability::Ram), (DISK_TOKEN_BIT, Durability::Disk)]
            .into_iter()
            .filter(move |(_, domain)| asked.satisfies(*domain))
    }

    /// Where a new session's record is kept.
    pub(crate) fn session_domain(&self) -> u64 {
        if self.config.media.satisfies(Durability::Disk) {
            DISK_TOKEN_BIT
        } else {
            0
        }
    }

    // ---- slots

    pub(crate) fn slot(&self, region: Region, place: usize) -> Option<&Slot> {
        self.logs.get(region.0 as usize)?.slots.get(place)
    }

    pub(crate) fn slot_mut(&mut self, region: Region, place: usize) -> Option<&mut Slot> {
        self.logs.get_mut(region.0 as usize)?.slots.get_mut(place)
    }

    /// The slot and the stamp of a request that the log holds.
    pub(crate) fn entry<'a>(
        &'a self,
        region: Region,
        session: &'a SessionBase,
        seq: SeqNum,
    ) -> Option<(&'a Slot, &'a Noted)> {
        let noted = session.noted(seq).filter(|noted| noted.held)?;
        Some((self.slot(region, session.place(seq))?, noted))
    }

    // ---- logging

    /// Whether an update of this session could be logged at `seq`.
    pub(crate) fn can_log(&self, base: &Base, region: Region, seq: SeqNum, asked: Durability) -> bool {
        let Some(session) = base.session(region) else { return false };
        let place = session.place(seq);
        let Some(slot) = self.slot(region, place) else { return false };
        let free = !session.noted_at(place).held && slot.writing == Durability::None
            || self.planted(Fault::OverwriteSlot);
        let told = base.config().server(session.name.server).logged || self.planted(Fault::LogUntold);
        let wanted = told && asked != Durability::None;
        free && !session.closing && wanted && self.config.media.satisfies(asked)
    }

    /// Writes an update into its slot and asks the domains to keep it.
    pub(crate) fn log(
        &mut self,
        now: Nanos,
        base: &mut Base,
        (region, stamp): (Region, Stamp),
        passing: &Passing<'_>,
        effects: &mut DeviceEffects,
    ) {
        let (header, seq) = (passing.header, passing.seq());
        let Some(session) = base.session(region) else { return };
        let (name, place) = (session.name, session.place(seq));
        let due = now.plus(self.config.reforward_after);
        let Some(slot) = self.slot_mut(region, place) else { return };
        slot.fast = None;
        slot.asked = header.asked;
        slot.persisted = Durability::None;
        slot.writing = header.asked;
        slot.acknowledged = false;
        slot.early = header.flags.has(Flags::EARLY);
        slot.key_hash = header.key_hash;
        slot.logged_at = now;
        slot.reforward_tries = 0;
        slot.payload.clear();
        slot.payload.extend_from_slice(passing.payload);
        self.put_entry(base, region, (seq, stamp), due);
        self.counters.logged += 1;
        base.touch_slot(name, seq);
        self.write_entry(base, region, seq, header.asked, effects);
        if self.planted(Fault::AckBeforePersisted) {
            self.acknowledge(now, base, region, seq, true, effects);
        }
    }

    /// The entry in a slot lives from now on. One that the slot still held was stable, or a planted fault writes
    /// over it.
    pub(crate) fn put_entry(
        &mut self,
        base: &mut Base,
        region: Region,
        (seq, stamp): (SeqNum, Stamp),
        due: Nanos,
    ) {
        let displaced = base.hold(region, seq, stamp);
        let Some(session) = base.session(region) else { return };
        let (name, place) = (session.name, session.place(seq));
        if let Some(old) = displaced {
            self.live.remove(&OrderPlace::of(name.server, &old.stamp));
        }
        if let Some(slot) = self.slot_mut(region, place) {
            slot.due = Some((seq, due));
        }
        self.live.insert(OrderPlace::of(name.server, &stamp), (region, seq));
        self.aged.push((due, name, seq, region));
        if displaced.is_some() {
            self.prune_aged();
        }
    }

    pub(crate) fn prune_aged(&mut self) {
        let logs = &self.logs;
        let lives = |(due, _, seq, region): &Due| {
            let Some(log) = logs.get(region.0 as usize).filter(|log| !log.slots.is_empty()) else {
                return false;
            };
            log.slots[(seq.0 % log.slots.len() as u64) as usize].due == Some((*seq, *due))
        };
        self.aged.prune(self.live.len(), lives);
    }

    /// Asks the domains of `durability` to keep an entry.
    pub(crate) fn write_entry(
        &self,
        base: &Base,
        region: Region,
        seq: SeqNum,
        durability: Durability,
        effects: &mut DeviceEffects,
    ) {
        let Some(session) = base.session(region) else { return };
        let place = session.place(seq);
        let (number, noted) = (self.slot_token(region, place), session.noted_at(place));
        let Some(slot) = self.slot(region, place) else { return };
        for (domain, _) in Persist::domains(durability) {
            effects.persist(Token(domain | number), |out| {
                crate::record::write_entry(region, session, &noted, slot, out);
            });
        }
    }

    /// A domain has completed a record.
    pub(crate) fn on_record_persisted(
        &mut self,
        now: Nanos,
        base: &mut Base,
        token: Token,
        effects: &mut DeviceEffects,
    ) {
        let Some((region, place, noted)) = self.end_write(base, token) else { return };
        if !noted.held {
            return;
        }
        let Some(slot) = self.slot_mut(region, place) else { return };
        slot.persisted = slot.persisted.with(domain_of(token));
        if slot.persisted.satisfies(slot.asked) {
            base.note_durable(region, noted.seq);
        }
        self.acknowledge(now, base, region, noted.seq, false, effects);
    }

    /// The write under `token` is over, one way or the other: which slot it was, and what is noted there.
    pub(crate) fn end_write(&mut self, base: &mut Base, token: Token) -> Option<(Region, usize, Noted)> {
        let (region, place) = self.slot_of_token(token)?;
        let session = base.session(region)?;
        let (name, noted) = (session.name, session.noted_at(place));
        let slot = self.slot_mut(region, place)?;
        slot.writing = slot.writing.without(domain_of(token));
        base.touch_slot(name, noted.seq);
        Some((region, place, noted))
    }

    /// Only a planted fault of rule 4 takes one server's lease for another's.
    fn takes_any_lease(&self, now: Nanos, base: &Base) -> bool {
        let mut servers = (0..base.server_count()).map(|server| ServerIndex(server as u8));
        self.planted(Fault::LeaseOfAnother) && servers.any(|server| base.has_lease(server, now))
    }

    /// Sends a `PersistAck` if the entry has reached what was asked for (rule 4).
    pub(crate) fn acknowledge(
        &mut self,
        now: Nanos,
        base: &mut Base,
        region: Region,
        seq: SeqNum,
        regardless: bool,
        effects: &mut DeviceEffects,
    ) {
        let Some(session) = base.session(region).filter(|session| !session.revoked) else { return };
        let Some((slot, noted)) = self.entry(region, session, seq) else { return };
        if session.closing || !(slot.persisted.satisfies(slot.asked) || regardless) {
            return;
        }
        let name = session.name;
        let leased = base.has_lease(name.server, now) || self.takes_any_lease(now, base);
        if !leased && !self.planted(Fault::AckWithoutLease) {
            self.counters.without_lease += 1;
            return;
        }
        let granted = if regardless { slot.asked } else { slot.persisted };
        let stamp = Stamp { device: base.device(), boot_epoch: base.boot_epoch(), ..noted.stamp };
        let header = persist_ack_header(name.id, session.epoch, seq, granted, slot.key_hash);
        let (key, client) = (&session.keys.device_to_client, session.client);
        effects.send(base.server_address(name.server), client, |out| {
            emit(&header, &Tail::Stamp(stamp), &[], key, out);
        });
        let place = session.place(seq);
        if let Some(slot) = self.slot_mut(region, place) {
            slot.acknowledged = true;
        }
        base.touch_slot(name, seq);
        self.counters.persist_acks += 1;
    }

    // ---- freeing

    /// Everything of the session up to `stable` is stable: its slots are free (rule 6). How many entries that were.
    pub(crate) fn release(
        &mut self,
        base: &mut Base,
        region: Region,
        stable: SeqNum,
        effects: &mut DeviceEffects,
    ) -> u64 {
        let mut freed = 0;
        while let Some(seq) = base.session(region).and_then(|session| session.held().next()) {
            if seq > stable {
                break;
            }
            freed += u64::from(self.free_entry(base, region, seq, effects));
        }
        if freed > 0 {
            self.prune_aged();
        }
        freed
    }

    /// Whether there was such an entry.
    fn free_entry(
        &mut self,
        base: &mut Base,
        region: Region,
        seq: SeqNum,
        effects: &mut DeviceEffects,
    ) -> bool {
        let Some(session) = base.session(region) else { return false };
        let (name, place) = (session.name, session.place(seq));
        let stamp = session.noted_at(place).stamp;
        assert!(base.let_go(region, seq), "what is listed as held is held");
        self.live.remove(&OrderPlace::of(name.server, &stamp));
        let number = self.slot_token(region, place);
        let Some(slot) = self.slot_mut(region, place) else { return false };
        slot.due = None;
        let is_fast = slot.fast == Some(seq);
        let own = if is_fast { slot.asked.without(Durability::Ram) } else { slot.asked };
        for (domain, _) in Persist::domains(own) {
            effects.erase(Token(domain | number));
        }
        true
    }

    /// Keeps the session itself, so that a restart finds it even when it has no entries.
    pub(crate) fn keep_session(&self, base: &Base, region: Region, effects: &mut DeviceEffects) {
        let (Some(session), Some(log)) = (base.session(region), self.logs.get(region.0 as usize)) else {
            return;
        };
        let token = Token(log.record_domain | self.session_token(region));
        effects.persist(token, |out| crate::record::write_session(region, session, out));
    }

    pub(crate) fn erase_session_record(&self, region: Region, effects: &mut DeviceEffects) {
        if let Some(log) = self.logs.get(region.0 as usize) {
            effects.erase(Token(log.record_domain | self.session_token(region)));
        }
    }
}

fn persist_ack_header(
    id: SessionId,
    epoch: Epoch,
    seq: SeqNum,
    granted: Durability,
    key_hash: KeyHash,
) -> Header {
    let mut header = Header::new(Kind::PersistAck, id, epoch);
    header.seq_num = seq;
    header.granted = granted;
    header.key_hash = key_hash;
    header
}

pub(crate) fn domain_of(token: Token) -> Durability {
    if token.0 & DISK_TOKEN_BIT == 0 {
        Durability::Ram
    } else {
        Durability::Disk
    }
}
