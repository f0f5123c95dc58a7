//! Sessions and their slots: a session is granted as many slots as its window, so there is no hash,
//! no collision and no shared full log (rule 3).

use super::{Device, DeviceOwn, PortNumber};
use scotfree_core::{Durability, Effects, Epoch, KeyHash, Nanos, OrderKey, SeqNum, SessionId, Token};
use scotfree_session::{backoff, send_whole, Fault, Route};
use scotfree_wire::{emit, Flags, Header, Key, Kind, Nonce, Packet, SessionKeys, Stamp, StampKind, Tail};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Set in tokens of the disk domain; tokens without it are of the ram domain.
pub const DISK_TOKEN_BIT: u64 = 1 << 63;

/// What the device knows of one session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) epoch: Epoch,
    pub(super) client_nonce: Nonce,
    pub(super) server_nonce: Nonce,
    pub(super) keys: SessionKeys,
    pub(super) client: SocketAddr,
    /// The port that its requests come in by, once one has been the next.
    pub(super) port: Option<PortNumber>,
    pub(super) window: u32,
    /// Its slots are `region * window_max ..`.
    pub(super) region: u32,
    /// The domain that keeps its record.
    pub(super) record_domain: u64,
    /// The only `seq_num` that is admitted.
    pub(super) next: SeqNum,
    /// What went by without being admitted, and whether it writes; at most as many as the window.
    pub(super) passing: BTreeMap<SeqNum, bool>,
    /// The last write admitted.
    pub(super) last_write: SeqNum,
    /// Everything up to here is stable.
    pub(super) stable: SeqNum,
    /// The server wants it gone: nothing new is logged or acknowledged.
    pub(super) closing: bool,
    /// Which of its requests are log entries.
    pub(super) live: BTreeSet<SeqNum>,
    pub(super) heard_at: Nanos,
    /// Its client has spoken under the session's keys.
    pub(super) confirmed: bool,
    pub(super) slots: Vec<Slot>,
}

/// Who keeps an entry in memory; on disk the machine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Keeper {
    /// The machine's domain.
    #[default]
    Machine,
    /// The fast path's log.
    FastPath,
}

/// What stands in a slot: the stamp of a request that passed, and of a logged one the request.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot {
    pub(super) seq: SeqNum,
    pub(super) stamp: Stamp,
    /// Whether this is a log entry that is not stable.
    pub(super) logged: bool,
    pub(super) keeper: Keeper,
    pub(super) asked: Durability,
    pub(super) persisted: Durability,
    /// The domains that have not completed the last write of this slot: no other is begun before.
    pub(super) writing: Durability,
    pub(super) acknowledged: bool,
    pub(super) early: bool,
    pub(super) key_hash: KeyHash,
    pub(super) logged_at: Nanos,
    pub(super) reforward_at: Nanos,
    pub(super) reforward_tries: u32,
    pub(super) payload: Vec<u8>,
}

impl Session {
    pub(super) fn place(&self, seq: SeqNum) -> usize {
        (seq.0 % u64::from(self.window)) as usize
    }

    /// The slot that holds `seq`, if one does.
    pub(super) fn slot(&self, seq: SeqNum) -> Option<&Slot> {
        self.slots.get(self.place(seq)).filter(|slot| slot.seq == seq && slot.stamp.kind != StampKind::None)
    }

    pub(super) fn slot_mut(&mut self, seq: SeqNum) -> Option<&mut Slot> {
        let place = self.place(seq);
        self.slots.get_mut(place).filter(|slot| slot.seq == seq && slot.stamp.kind != StampKind::None)
    }
}

pub(super) fn order_key(stamp: &Stamp) -> OrderKey {
    (stamp.boot_epoch, stamp.number)
}

impl Device {
    // ---- tokens: slots first, then one session record per region

    pub(super) fn slot_token(&self, region: u32, place: usize) -> u64 {
        u64::from(region) * u64::from(self.config.window_max) + place as u64
    }

    fn session_token(&self, region: u32) -> u64 {
        u64::from(self.config.sessions_max) * u64::from(self.config.window_max) + u64::from(region)
    }

    fn slot_of_token(&self, token: Token) -> Option<(u32, usize)> {
        let number = token.0 & !DISK_TOKEN_BIT;
        let window = u64::from(self.config.window_max);
        let region =
            u32::try_from(number / window).ok().filter(|region| *region < self.config.sessions_max)?;
        Some((region, (number % window) as usize))
    }

    /// The domain bits in which a request that asked for `asked` is kept.
    pub(super) fn domains(asked: Durability) -> impl Iterator<Item = (u64, Durability)> {
        [(0, Durability::Ram), (DISK_TOKEN_BIT, Durability::Disk)]
            .into_iter()
            .filter(move |(_, domain)| asked.satisfies(*domain))
    }

    /// Where a new session's record is kept.
    pub(super) fn session_domain(&self) -> u64 {
        if self.config.media.satisfies(Durability::Disk) {
            DISK_TOKEN_BIT
        } else {
            0
        }
    }

    // ---- logging

    /// Whether an update of this session could be logged at `seq`.
    pub(super) fn can_log(&self, id: SessionId, seq: SeqNum, asked: Durability) -> bool {
        let Some(session) = self.sessions.get(&id) else { return false };
        let slot = &session.slots[session.place(seq)];
        let free = !slot.logged && slot.writing == Durability::None || self.planted(Fault::OverwriteSlot);
        free && !session.closing && asked != Durability::None && self.config.media.satisfies(asked)
    }

    /// Writes an update into its slot and asks the domains to keep it.
    pub(super) fn log(
        &mut self,
        now: Nanos,
        id: SessionId,
        header: &Header,
        stamp: Stamp,
        payload: &[u8],
        effects: &mut Effects<DeviceOwn>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let place = session.place(header.seq_num);
        let mut bytes = std::mem::take(&mut session.slots[place].payload);
        bytes.clear();
        bytes.extend_from_slice(payload);
        let entry = Slot {
            seq: header.seq_num,
            stamp,
            logged: true,
            keeper: Keeper::Machine,
            asked: header.asked,
            persisted: Durability::None,
            writing: header.asked,
            acknowledged: false,
            early: header.flags.has(Flags::EARLY),
            key_hash: header.key_hash,
            logged_at: now,
            reforward_at: now.plus(self.config.reforward_after),
            reforward_tries: 0,
            payload: bytes,
        };
        self.put_entry(id, entry);
        self.counters.logged += 1;
        self.touch_slot(id, header.seq_num);
        self.write_entry(id, header.seq_num, header.asked, effects);
        if self.planted(Fault::AckBeforePersisted) {
            self.acknowledge(now, id, header.seq_num, true, effects);
        }
    }

    /// Puts an entry into its slot. One that the slot still holds was stable, or a planted fault writes over it.
    pub(super) fn put_entry(&mut self, id: SessionId, entry: Slot) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let place = session.place(entry.seq);
        let old = &session.slots[place];
        if old.logged {
            self.live.remove(&order_key(&old.stamp));
            self.aged.remove(&(old.reforward_at, id, old.seq));
            session.live.remove(&old.seq);
        }
        session.live.insert(entry.seq);
        self.live.insert(order_key(&entry.stamp), (id, entry.seq));
        self.aged.insert((entry.reforward_at, id, entry.seq));
        session.slots[place] = entry;
    }

    /// Asks the domains of `durability` to keep an entry.
    pub(super) fn write_entry(
        &self,
        id: SessionId,
        seq: SeqNum,
        durability: Durability,
        effects: &mut Effects<DeviceOwn>,
    ) {
        let Some(session) = self.sessions.get(&id) else { return };
        let place = session.place(seq);
        let (number, slot) = (self.slot_token(session.region, place), &session.slots[place]);
        for (domain, _) in Device::domains(durability) {
            effects.persist(Token(domain | number), |out| super::record::write_entry(id, session, slot, out));
        }
    }

    /// A domain has completed a record.
    pub(super) fn on_record_persisted(&mut self, now: Nanos, token: Token, effects: &mut Effects<DeviceOwn>) {
        let Some((id, seq)) = self.end_write(token) else { return };
        let slot = self.sessions.get_mut(&id).and_then(|session| session.slot_mut(seq));
        let Some(slot) = slot.filter(|slot| slot.logged) else { return };
        slot.persisted = slot.persisted.with(domain_of(token));
        self.acknowledge(now, id, seq, false, effects);
    }

    /// The write under `token` is over, one way or the other: whose it was.
    pub(super) fn end_write(&mut self, token: Token) -> Option<(SessionId, SeqNum)> {
        let (region, place) = self.slot_of_token(token)?;
        let (id, session) = self.sessions.iter_mut().find(|(_, session)| session.region == region)?;
        let slot = session.slots.get_mut(place)?;
        slot.writing = slot.writing.without(domain_of(token));
        let ended = (*id, slot.seq);
        self.touch_slot(ended.0, ended.1);
        Some(ended)
    }

    /// Sends a `PersistAck` if the entry has reached what was asked for (rule 4).
    pub(super) fn acknowledge(
        &mut self,
        now: Nanos,
        id: SessionId,
        seq: SeqNum,
        regardless: bool,
        effects: &mut Effects<DeviceOwn>,
    ) {
        let leased = self.has_lease(now) || self.planted(Fault::AckWithoutLease);
        if self.sessions.get(&id).is_some_and(|session| self.is_revoked(session)) {
            return;
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (keys, client, epoch, closing) = (session.keys, session.client, session.epoch, session.closing);
        let Some(slot) = session.slot_mut(seq).filter(|slot| slot.logged) else { return };
        if closing || !(slot.persisted.satisfies(slot.asked) || regardless) {
            return;
        }
        if !leased {
            self.counters.without_lease += 1;
            return;
        }
        slot.acknowledged = true;
        let granted = if regardless { slot.asked } else { slot.persisted };
        let stamp = Stamp { device: self.config.device, boot_epoch: self.config.boot_epoch, ..slot.stamp };
        let key_hash = slot.key_hash;
        self.touch_slot(id, seq);
        self.counters.persist_acks += 1;
        let header = persist_ack_header(id, epoch, seq, granted, key_hash);
        effects.send(self.config.server, client, |out| {
            emit(&header, &Tail::Stamp(stamp), &[], &keys.device_to_client, out);
        });
    }

    /// Everything of the session up to `stable` is stable: its slots are free (rule 6).
    pub(super) fn free(&mut self, id: SessionId, stable: SeqNum, effects: &mut Effects<DeviceOwn>) {
        if let Some(freed) = self.release(id, stable, effects) {
            self.touch_session(id);
            self.counters.freed += freed;
        }
    }

    /// Lets everything up to `stable` go, and says how many entries that were; `None` if that is known.
    pub(super) fn release(
        &mut self,
        id: SessionId,
        stable: SeqNum,
        effects: &mut Effects<DeviceOwn>,
    ) -> Option<u64> {
        let session = self.sessions.get_mut(&id).filter(|session| session.stable < stable)?;
        session.stable = stable;
        // A request that was stable before it passed here will not pass any more.
        session.next = session.next.max(stable.next());
        session.passing = session.passing.split_off(&session.next);
        let freed = {
            let kept = session.live.split_off(&stable.next());
            std::mem::replace(&mut session.live, kept)
        };
        Some(freed.into_iter().map(|seq| u64::from(self.free_entry(id, seq, effects))).sum())
    }

    /// Whether there was such an entry.
    fn free_entry(&mut self, id: SessionId, seq: SeqNum, effects: &mut Effects<DeviceOwn>) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let (place, region) = (session.place(seq), session.region);
        let Some(slot) = session.slot_mut(seq).filter(|slot| slot.logged) else { return false };
        slot.logged = false;
        let (stamp, due) = (slot.stamp, slot.reforward_at);
        let own = match slot.keeper {
            Keeper::Machine => slot.asked,
            Keeper::FastPath => slot.asked.without(Durability::Ram),
        };
        self.live.remove(&order_key(&stamp));
        self.aged.remove(&(due, id, seq));
        let number = self.slot_token(region, place);
        for (domain, _) in Device::domains(own) {
            effects.erase(Token(domain | number));
        }
        true
    }

    /// Keeps the session itself, so that a restart finds it even when it has no entries.
    pub(super) fn keep_session(&self, id: SessionId, effects: &mut Effects<DeviceOwn>) {
        let Some(session) = self.sessions.get(&id) else { return };
        let token = Token(session.record_domain | self.session_token(session.region));
        effects.persist(token, |out| super::record::write_session(id, session, out));
    }

    pub(super) fn erase_session_record(&self, id: SessionId, effects: &mut Effects<DeviceOwn>) {
        if let Some(session) = self.sessions.get(&id) {
            effects.erase(Token(session.record_domain | self.session_token(session.region)));
        }
    }

    /// Drops a session that holds no entries.
    pub(super) fn forget_session(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            assert!(session.live.is_empty(), "a session is forgotten only when its log is empty");
            self.regions_free.push(session.region);
            self.touch_session(id);
            self.fragments.forget_session(id);
        }
    }

    /// Sessions that have neither entries nor traffic are forgotten; if one lives after all, the
    /// server's next drain question teaches it again. Their region is free once the erasure of their
    /// record is durable.
    pub(super) fn forget_idle(&mut self, now: Nanos, effects: &mut Effects<DeviceOwn>) {
        let idle_max = self.config.idle_max;
        let idle: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| {
                session.live.is_empty() && !session.closing && now.since(session.heard_at) > idle_max
            })
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            self.on_expire(id, effects);
        }
        self.idle_check_at = now.plus(Nanos(idle_max.0 / 4 + 1));
    }

    /// Lets the oldest session whose client has not spoken give way, for there is no room for a new
    /// one: an acceptance of the past may have brought it. The new one finds room when it is taught
    /// again.
    pub(super) fn make_room(&mut self, effects: &mut Effects<DeviceOwn>) {
        if !self.flushing.is_empty() {
            return;
        }
        let silent = |session: &Session| !session.confirmed && !session.closing && session.live.is_empty();
        let oldest = self.sessions.iter().find(|(_, session)| silent(session)).map(|(id, _)| *id);
        if let Some(oldest) = oldest {
            self.on_expire(oldest, effects);
        }
    }

    // ---- replaying

    /// Sends one entry to the server; `false` if there is none.
    pub(super) fn replay(&mut self, id: SessionId, seq: SeqNum, effects: &mut Effects<DeviceOwn>) -> bool {
        let Some(session) = self.sessions.get(&id) else { return false };
        let Some(slot) = session.slot(seq).filter(|slot| slot.logged) else { return false };
        let mut header = Header::new(Kind::Replay, id, session.epoch);
        header.seq_num = seq;
        header.key_hash = slot.key_hash;
        header.asked = slot.asked;
        header.flags = if slot.early { Flags::EARLY } else { Flags::NONE };
        let route = Route { from: session.client, to: self.config.server };
        let tail = Tail::Stamp(slot.stamp);
        send_whole(effects, route, &header, &tail, &slot.payload, &self.keys.to_server)
            .expect("an update's payload was a request's");
        self.counters.replays += 1;
        true
    }

    /// Says that no (further) entry is there.
    pub(super) fn send_void(
        &self,
        id: SessionId,
        seq: SeqNum,
        stamp: Stamp,
        effects: &mut Effects<DeviceOwn>,
    ) {
        let mut header = Header::new(Kind::Replay, id, self.server_epoch);
        header.seq_num = seq;
        header.flags = Flags::VOID;
        let key: Key = self.keys.to_server;
        effects.send(self.config.address, self.config.server, |out| {
            emit(&header, &Tail::Stamp(stamp), &[], &key, out);
        });
    }

    /// Sends entries that stay without `ServerAck` to the server again, with backoff (rule 5).
    pub(super) fn reforward_aged(&mut self, now: Nanos, effects: &mut Effects<DeviceOwn>) {
        for _ in 0..self.config.replay_burst_max {
            let Some((due, id, seq)) = self.aged.first().copied().filter(|(due, _, _)| *due <= now) else {
                return;
            };
            self.aged.remove(&(due, id, seq));
            let (first, most) = (self.config.reforward_after, self.config.reforward_wait_max);
            let Some(slot) = self.sessions.get_mut(&id).and_then(|session| session.slot_mut(seq)) else {
                continue;
            };
            slot.reforward_tries += 1;
            slot.reforward_at = now.plus(backoff(first, most, slot.reforward_tries));
            self.aged.insert((slot.reforward_at, id, seq));
            if !self.planted(Fault::LoseLastRequest) && self.replay(id, seq, effects) {
                self.counters.reforwarded += 1;
            }
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

fn domain_of(token: Token) -> Durability {
    if token.0 & DISK_TOKEN_BIT == 0 {
        Durability::Ram
    } else {
        Durability::Disk
    }
}

/// Checks that a request was made by the client of its session.
pub(super) fn authentic(packet: &Packet<'_>, session: &Session) -> bool {
    packet.verify(&session.keys.client_to_server).is_ok()
}
