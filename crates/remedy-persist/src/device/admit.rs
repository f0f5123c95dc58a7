//! Requests on their way to the server: admission, stamps, logging (rules 1, 3, 5 and 7).

use super::slots::authentic;
use super::{forward, Device, DeviceOwn, Origin};
use scotfree_core::{Durability, Effects, Nanos, OrderNumber, SeqNum, SessionId};
use scotfree_session::Fault;
use scotfree_wire::{emit, emit_stamp, fragments, Header, Kind, Packet, Stamp, StampKind, Tail, WireError};
use std::ops::RangeInclusive;

impl Device {
    pub(super) fn on_request(
        &mut self,
        now: Nanos,
        origin: Origin,
        packet: &Packet<'_>,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), WireError> {
        let id = packet.session();
        let revoked = self.sessions.get(&id).is_some_and(|session| self.is_revoked(session));
        let Some(session) = self.sessions.get_mut(&id) else {
            self.counters.requests += 1;
            self.counters.unadmitted += 1;
            forward(effects, packet.bytes());
            return Ok(());
        };
        if !authentic(packet, session) {
            self.counters.requests += 1;
            self.counters.bad += 1;
            return Err(WireError::BadMac);
        }
        if !session.may_come_from(&origin) && !self.config.planted.is(Fault::FollowClient) {
            self.counters.requests += 1;
            self.counters.bad += 1;
            return Err(WireError::Elsewhere);
        }
        if revoked {
            self.counters.requests += 1;
            self.counters.bad += 1;
            return Err(WireError::UnknownKeyEpoch);
        }
        let moved = session.client != origin.address;
        session.client = origin.address;
        session.heard_at = now;
        session.confirmed = true;
        let next = session.next;
        // A recording is never the next: it binds no session to where it was played.
        let binds = session.port.is_none() && origin.port.is_some() && packet.seq_num() == next;
        if binds {
            session.port = origin.port;
        }
        if binds || moved {
            self.touch_session(id);
        }
        if !self.config.head {
            return self.on_request_as_follower(now, packet, effects);
        }
        if packet.seq_num() < next {
            self.on_duplicate(now, packet, effects);
            Ok(())
        } else if self.accepted && (packet.seq_num() == next || self.planted(Fault::AdmitOutOfOrder)) {
            self.on_next(now, packet, effects)
        } else {
            if let Some(session) = self.sessions.get_mut(&id) {
                if session.passing.len() < session.window as usize {
                    session.passing.insert(packet.seq_num(), packet.kind() != Kind::Read);
                }
            }
            self.counters.requests += 1;
            self.counters.unadmitted += 1;
            forward(effects, packet.bytes());
            Ok(())
        }
    }

    /// The next request of its session: admitted once it is complete.
    fn on_next(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), WireError> {
        if packet.header().fragment_count == 1 {
            self.admit(now, packet.header(), packet.payload(), Some(packet.bytes()), effects);
            return Ok(());
        }
        if self.planted(Fault::AckFirstFragment) {
            self.acknowledge_unlogged(packet, effects);
        }
        // The stamp must be on every fragment, so they wait here for each other.
        if let Some(whole) = self.fragments.offer(packet)? {
            self.admit(now, &whole.header, &whole.payload, None, effects);
        }
        Ok(())
    }

    /// Admits a request: gives it its stamp, logs it if it is an update, and passes it on.
    fn admit(
        &mut self,
        now: Nanos,
        header: &Header,
        payload: &[u8],
        whole: Option<&[u8]>,
        effects: &mut Effects<DeviceOwn>,
    ) {
        let (id, seq) = (header.session, header.seq_num);
        self.counters.requests += 1;
        self.counters.admitted += 1;
        let update = header.kind == Kind::Update;
        let logged = update && self.can_log(id, seq, header.asked);
        let stamp = self.pass(id, seq, header.kind != Kind::Read, logged);
        if update {
            self.counters.admitted_updates += 1;
            self.counters.ungranted += u64::from(!logged);
        }
        if logged {
            self.log(now, id, header, stamp, payload, effects);
        } else {
            self.note_stamp(id, seq, stamp);
        }
        match whole {
            Some(bytes) => self.forward_stamped(bytes, &stamp, effects),
            None => self.forward_fragments(header, payload, &stamp, effects),
        }
    }

    /// Gives the next request of a session its stamp.
    pub(super) fn pass(&mut self, id: SessionId, seq: SeqNum, writes: bool, logged: bool) -> Stamp {
        let number = if logged { self.order.next() } else { self.order.current() };
        self.touch_session(id);
        let mut stamp = Stamp {
            kind: if logged { StampKind::Order } else { StampKind::Barrier },
            device: self.config.device,
            boot_epoch: self.config.boot_epoch,
            number,
            previous_write: SeqNum(0),
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            stamp.previous_write = session.last_write;
            session.next = session.next.max(seq.next());
            session.passing.remove(&seq);
            if writes {
                session.last_write = session.last_write.max(seq);
            }
        }
        stamp
    }

    /// The place of a run of requests that passed here and whose stamps are forgotten: after
    /// everything, but before what their own session has in the log behind them.
    pub(super) fn barrier_of_past(&self, id: SessionId, run: RangeInclusive<SeqNum>) -> Stamp {
        let later = self.sessions.get(&id).and_then(|session| {
            let later = session.live.range(run.end().next()..).next()?;
            session.slot(*later)
        });
        // Which of them wrote is forgotten too: none may be executed over a gap before it.
        let guess = self.planted(Fault::PlaceOverGap);
        let previous_write = if guess { SeqNum(run.start().0 - 1) } else { *run.end() };
        let mut stamp = Stamp {
            kind: StampKind::Barrier,
            device: self.config.device,
            boot_epoch: self.config.boot_epoch,
            number: self.order.current(),
            previous_write,
        };
        if let Some(later) = later {
            stamp.boot_epoch = later.stamp.boot_epoch;
            stamp.number = OrderNumber(later.stamp.number.0 - 1);
        }
        stamp
    }

    /// Remembers the stamp of a request that is not logged. A slot that still holds a log entry
    /// keeps it: the request is then stamped anew if it comes again.
    pub(super) fn note_stamp(&mut self, id: SessionId, seq: SeqNum, stamp: Stamp) {
        self.absorb_stamp(id, seq, stamp);
        self.touch_slot(id, seq);
    }

    /// A request seen before: the same stamp, the same acknowledgement, and on to the server.
    fn on_duplicate(&mut self, now: Nanos, packet: &Packet<'_>, effects: &mut Effects<DeviceOwn>) {
        let (id, seq) = (packet.session(), packet.seq_num());
        self.counters.requests += 1;
        self.counters.duplicate += 1;
        if self.planted(Fault::MiscountDuplicates) {
            self.counters.admitted += 1;
        }
        let stamp = self.sessions.get(&id).and_then(|session| session.slot(seq)).map(|slot| slot.stamp);
        if packet.header().fragment_index == 0 {
            self.acknowledge(now, id, seq, false, effects);
        }
        if self.planted(Fault::LoseLastRequest) {
            return;
        }
        match stamp {
            Some(_) if self.planted(Fault::RestampDuplicate) => {
                let logged = packet.kind() == Kind::Update;
                let stamp = self.pass(id, seq, logged, logged);
                self.forward_stamped(packet.bytes(), &stamp, effects);
            }
            Some(stamp) => self.forward_stamped(packet.bytes(), &stamp, effects),
            None => forward(effects, packet.bytes()),
        }
    }

    /// Behind the head: what it has stamped is logged under its stamp (rule 13).
    fn on_request_as_follower(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), WireError> {
        self.counters.requests += 1;
        let Ok(stamp) = self.keys.stamp.verified_stamp(packet) else {
            self.counters.bad += 1;
            return Err(WireError::BadStampMac);
        };
        let (id, seq) = (packet.session(), packet.seq_num());
        self.boot_seen = self.boot_seen.max(stamp.boot_epoch);
        let held =
            self.sessions.get(&id).and_then(|session| session.slot(seq)).is_some_and(|slot| slot.logged);
        let stable = self.sessions.get(&id).is_some_and(|session| seq <= session.stable);
        forward(effects, packet.bytes());
        if stamp.kind == StampKind::None {
            self.counters.unadmitted += 1;
        } else if held || stable {
            self.counters.duplicate += 1;
            self.acknowledge(now, id, seq, false, effects);
        } else {
            return self.follow(now, packet, stamp, effects);
        }
        Ok(())
    }

    fn follow(
        &mut self,
        now: Nanos,
        packet: &Packet<'_>,
        stamp: Stamp,
        effects: &mut Effects<DeviceOwn>,
    ) -> Result<(), WireError> {
        let (id, seq) = (packet.session(), packet.seq_num());
        // An incomplete set is counted when it is complete.
        self.counters.requests -= 1;
        let Some(whole) = self.fragments.offer(packet)? else { return Ok(()) };
        self.counters.requests += 1;
        self.counters.admitted += 1;
        self.touch_session(id);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.next = session.next.max(seq.next());
            // What went by unstamped, or before this device knew the session, the head knows.
            session.last_write = session.last_write.max(stamp.previous_write);
            if packet.kind() != Kind::Read {
                session.last_write = session.last_write.max(seq);
            }
        }
        if packet.kind() == Kind::Update {
            self.counters.admitted_updates += 1;
            let logs = stamp.kind == StampKind::Order && self.can_log(id, seq, packet.header().asked);
            if logs {
                self.log(now, id, &whole.header, stamp, &whole.payload, effects);
            } else {
                self.counters.ungranted += 1;
            }
        }
        Ok(())
    }

    fn forward_stamped(&self, packet: &[u8], stamp: &Stamp, effects: &mut Effects<DeviceOwn>) {
        let key = self.keys.stamp.newest();
        let bytes = effects.append(|out| {
            let start = out.len();
            out.extend_from_slice(packet);
            emit_stamp(&mut out[start..], stamp, &key).expect("the packet has been parsed as a request");
        });
        effects.own(DeviceOwn::Forward { bytes });
    }

    fn forward_fragments(
        &self,
        header: &Header,
        payload: &[u8],
        stamp: &Stamp,
        effects: &mut Effects<DeviceOwn>,
    ) {
        let Some(session) = self.sessions.get(&header.session) else { return };
        let tail = Tail::Stamp(Stamp::default());
        let mut packet = Vec::new();
        for (header, part) in fragments(header, payload).expect("the payload came in these fragments") {
            packet.clear();
            emit(&header, &tail, part, &session.keys.client_to_server, &mut packet);
            self.forward_stamped(&packet, stamp, effects);
        }
    }

    /// Only the planted fault of rule 7 does this.
    fn acknowledge_unlogged(&mut self, packet: &Packet<'_>, effects: &mut Effects<DeviceOwn>) {
        let Some(session) = self.sessions.get(&packet.session()) else { return };
        let mut header = *packet.header();
        header.kind = Kind::PersistAck;
        header.granted = if header.asked == Durability::None { Durability::Ram } else { header.asked };
        header.fragment_index = 0;
        header.fragment_count = 1;
        let stamp =
            Stamp { device: self.config.device, boot_epoch: self.config.boot_epoch, ..Stamp::default() };
        let stamp = Stamp { kind: StampKind::Barrier, ..stamp };
        effects.send(self.config.server, session.client, |out| {
            emit(&header, &Tail::Stamp(stamp), &[], &session.keys.device_to_client, out);
        });
    }
}
