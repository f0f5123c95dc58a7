//! Requests on their way to a server: admission, stamps, the functions, and on (rules 1, 3, 5 and 7).
//!
//! Invariant: an update is answered by nobody but the function that acknowledges; what is passed on is passed on after
//! the last function has seen it.

use crate::answers::Answered;
use crate::base::Base;
use crate::effects::{forward, DeviceEffects, DeviceOwn};
use crate::function::{Passing, Place, SessionChange, Verdict, Way};
use crate::origin::Origin;
use crate::pipeline::Pipeline;
use crate::sessions::{Region, SessionName};
use scotfree_core::{Durability, Nanos, ServerIndex};
use scotfree_session::Fault;
use scotfree_wire::{
    emit, emit_stamp, fragments, Family, Flags, Header, Kind, Packet, Stamp, StampKind, Tail, WireError,
    RESPONSE_BYTES_MAX,
};
use std::net::SocketAddr;

/// A request that has come in, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'p> {
    pub(crate) packet: &'p Packet<'p>,
    pub(crate) origin: Origin,
    pub(crate) to: SocketAddr,
    pub(crate) server: ServerIndex,
}

impl<'p> Request<'p> {
    /// It on its way through, as the packet says by itself.
    fn passing(&self, session: Option<Region>, place: Place) -> Passing<'p> {
        Passing {
            packet: self.packet,
            header: self.packet.header(),
            payload: self.packet.payload(),
            origin: self.origin,
            to: self.to,
            way: Way::ToServer(self.server),
            session,
            roomless: false,
            place,
            stamp: None,
            answerable: false,
            granted: Durability::None,
            depends: None,
        }
    }
}

/// What the functions have made of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    PassesOn,
    Ends,
}

impl Pipeline {
    pub(crate) fn on_request(
        &mut self,
        now: Nanos,
        request: &Request<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        let packet = request.packet;
        let name = SessionName { server: request.server, id: packet.session() };
        let Some(region) = self.base.sessions.find(name) else {
            self.base.counters.requests += 1;
            self.base.counters.unadmitted += 1;
            return self.pass_unplaced(now, request, None, effects);
        };
        if self.base.hear_client(now, region, request)? {
            self.tell(now, region, SessionChange::Moved, effects);
        }
        if !self.base.config.head {
            return self.on_request_as_follower(now, region, request, effects);
        }
        let next = self.base.next_of(region);
        if packet.seq_num() < next {
            return self.on_duplicate(now, region, request, effects);
        }
        let is_next = packet.seq_num() == next || self.base.planted(Fault::AdmitOutOfOrder);
        if is_next && self.base.is_accepted(request.server) {
            return self.on_next(now, region, request, effects);
        }
        self.base.note_passing(region, packet);
        self.base.counters.requests += 1;
        self.base.counters.unadmitted += 1;
        self.pass_unplaced(now, request, Some(region), effects)
    }

    /// Passes a request on that gets no place here.
    fn pass_unplaced(
        &mut self,
        now: Nanos,
        request: &Request<'_>,
        region: Option<Region>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        let mut passing = request.passing(region, Place::None);
        if self.see(now, &mut passing, effects)? == Fate::PassesOn {
            forward(effects, request.packet.bytes());
        }
        Ok(())
    }

    /// The next request of its session: admitted once it is complete.
    fn on_next(
        &mut self,
        now: Nanos,
        region: Region,
        request: &Request<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        let packet = request.packet;
        if packet.header().fragment_count == 1 {
            let mut passing = request.passing(Some(region), Place::Next);
            return self.admit(now, region, &mut passing, Some(packet.bytes()), effects);
        }
        if self.base.planted(Fault::AckFirstFragment) {
            self.base.acknowledge_unlogged(region, packet, effects);
        }
        // The stamp must be on every fragment, so they wait here for each other.
        if let Some(whole) = self.base.fragments[usize::from(request.server.0)].offer(packet)? {
            let mut passing = request.passing(Some(region), Place::Next);
            (passing.header, passing.payload) = (&whole.header, &whole.payload);
            self.admit(now, region, &mut passing, None, effects)?;
        }
        Ok(())
    }

    /// Admits a request: gives it its stamp, shows it to the functions, and passes it on.
    fn admit(
        &mut self,
        now: Nanos,
        region: Region,
        passing: &mut Passing<'_>,
        whole: Option<&[u8]>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        let (seq, kind) = (passing.seq(), passing.kind());
        self.base.counters.requests += 1;
        self.base.counters.admitted += 1;
        let logged = kind == Kind::Update
            && self.functions.iter().any(|function| function.asks_order(&self.base, passing));
        let stamp = self.base.pass(region, seq, kind != Kind::Read, logged);
        if !logged {
            self.base.note_stamp(region, seq, stamp);
        }
        passing.stamp = Some(stamp);
        passing.answerable = self.base.may_answer(now, passing);
        if self.see(now, passing, effects)? == Fate::Ends {
            return Ok(());
        }
        self.base.pass_over_answered(region, passing.header.completed, effects);
        match whole {
            Some(bytes) => self.base.forward_stamped(bytes, &stamp, effects),
            None => self.base.forward_fragments(region, passing, &stamp, effects),
        }
        Ok(())
    }

    /// Shows a packet to the functions, in their order.
    fn see(
        &mut self,
        now: Nanos,
        passing: &mut Passing<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<Fate, WireError> {
        for at in 0..self.functions.len() {
            match self.functions[at].on_packet(now, &mut self.base, passing, effects) {
                Verdict::Next => {}
                Verdict::Refuse(error) => return Err(error),
                verdict @ (Verdict::Answer(_) | Verdict::Absorb) => {
                    let by = self.functions[at].family();
                    if self.base.withhold_or_answer(passing, verdict, by, effects) {
                        return Ok(Fate::Ends);
                    }
                }
            }
        }
        Ok(Fate::PassesOn)
    }

    /// A request seen before: the same stamp, the same acknowledgement or answer, and on to the server.
    fn on_duplicate(
        &mut self,
        now: Nanos,
        region: Region,
        request: &Request<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        let packet = request.packet;
        self.base.counters.requests += 1;
        self.base.counters.duplicate += 1;
        if self.base.planted(Fault::MiscountDuplicates) {
            self.base.counters.admitted += 1;
        }
        if self.base.answers_again(region, packet, effects) {
            return Ok(());
        }
        let seq = packet.seq_num();
        let stamp = self.base.session(region).and_then(|session| session.noted(seq)).map(|noted| noted.stamp);
        let mut passing = Passing { stamp, ..request.passing(Some(region), Place::Seen) };
        if self.see(now, &mut passing, effects)? == Fate::Ends || self.base.planted(Fault::LoseLastRequest) {
            return Ok(());
        }
        match stamp {
            Some(_) if self.base.planted(Fault::RestampDuplicate) => {
                let logged = packet.kind() == Kind::Update;
                let stamp = self.base.pass(region, seq, logged, logged);
                self.base.forward_stamped(packet.bytes(), &stamp, effects);
            }
            Some(stamp) => self.base.forward_stamped(packet.bytes(), &stamp, effects),
            None => forward(effects, packet.bytes()),
        }
        Ok(())
    }

    /// Behind the head: what it has stamped goes by under its stamp (rule 13).
    fn on_request_as_follower(
        &mut self,
        now: Nanos,
        region: Region,
        request: &Request<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<(), WireError> {
        let packet = request.packet;
        self.base.counters.requests += 1;
        let Ok(stamp) = self.base.keys.stamp.verified_stamp(packet) else {
            self.base.counters.bad += 1;
            return Err(WireError::BadStampMac);
        };
        self.base.boot_seen = self.base.boot_seen.max(stamp.boot_epoch);
        let seq = packet.seq_num();
        let is_done =
            self.base.session(region).is_some_and(|session| session.is_held(seq) || seq <= session.stable);
        if stamp.kind == StampKind::None {
            self.base.counters.unadmitted += 1;
            return self.pass_unplaced(now, request, Some(region), effects);
        }
        let is_answered = self.base.answers_again(region, packet, effects);
        if is_done || is_answered {
            self.base.counters.duplicate += 1;
        }
        if is_answered {
            return Ok(());
        }
        let mut passing = Passing { stamp: Some(stamp), ..request.passing(Some(region), Place::Seen) };
        if is_done {
            if self.see(now, &mut passing, effects)? == Fate::PassesOn {
                forward(effects, packet.bytes());
            }
            return Ok(());
        }
        // An incomplete set is counted when it is complete.
        self.base.counters.requests -= 1;
        let whole = self.base.fragments[usize::from(request.server.0)].offer(packet);
        let Ok(Some(whole)) = &whole else {
            forward(effects, packet.bytes());
            return whole.map(|_| ());
        };
        // Behind the head an update may come late and is logged; a read that comes late, or again, is as one seen before.
        let is_late = packet.kind() == Kind::Read && seq < self.base.next_of(region);
        self.base.follow(region, packet, &stamp);
        (passing.header, passing.payload) = (&whole.header, &whole.payload);
        passing.place = if is_late { Place::Seen } else { Place::Next };
        passing.answerable = !is_late && self.base.may_answer(now, &passing);
        if self.see(now, &mut passing, effects)? == Fate::PassesOn {
            self.base.pass_over_answered(region, whole.header.completed, effects);
            forward(effects, packet.bytes());
        }
        Ok(())
    }
}

impl Base {
    pub(crate) fn next_of(&self, region: Region) -> scotfree_core::SeqNum {
        self.sessions.get(region).map_or(scotfree_core::SeqNum(0), |session| session.next)
    }

    /// Checks who a request is from. Whether its client has moved.
    fn hear_client(&mut self, now: Nanos, region: Region, request: &Request<'_>) -> Result<bool, WireError> {
        let (packet, origin) = (request.packet, &request.origin);
        let follow = self.planted(Fault::FollowClient);
        let Some(session) = self.sessions.get_mut(region) else { return Err(WireError::BadMac) };
        let heard = if packet.verify(&session.keys.client_to_server).is_err() {
            Err(WireError::BadMac)
        } else if !session.may_come_from(origin) && !follow {
            Err(WireError::Elsewhere)
        } else if session.revoked {
            Err(WireError::UnknownKeyEpoch)
        } else {
            Ok(())
        };
        if let Err(error) = heard {
            self.counters.requests += 1;
            self.counters.bad += 1;
            return Err(error);
        }
        let moved = session.client != origin.address;
        session.client = origin.address;
        session.heard_at = now;
        session.confirmed = true;
        // A recording is never the next: it binds no session to where it was played.
        let binds = session.port.is_none() && origin.port.is_some() && packet.seq_num() == session.next;
        if binds {
            session.port = origin.port;
        }
        let (name, has_answers) = (session.name, !session.answers.is_empty());
        if binds || moved {
            self.touch_session(name);
        }
        if has_answers {
            self.forget_answers(region, packet.header().completed);
        }
        Ok(moved)
    }

    /// A request passes that is not the next.
    fn note_passing(&mut self, region: Region, packet: &Packet<'_>) {
        if let Some(session) = self.sessions.get_mut(region) {
            if session.passing.len() < session.window as usize {
                session.passing.insert(packet.seq_num(), packet.kind() != Kind::Read);
            }
        }
    }

    /// What the head has admitted, behind it.
    fn follow(&mut self, region: Region, packet: &Packet<'_>, stamp: &Stamp) {
        self.counters.requests += 1;
        self.counters.admitted += 1;
        let seq = packet.seq_num();
        let Some(session) = self.sessions.get_mut(region) else { return };
        session.next = session.next.max(seq.next());
        // What went by unstamped, or before this device knew the session, the head knows.
        session.last_write = session.last_write.max(stamp.previous_write);
        if packet.kind() != Kind::Read {
            session.last_write = session.last_write.max(seq);
        }
        let name = session.name;
        self.touch_session(name);
    }

    /// Only a read at its place is answered here, and only while the device may speak for the server.
    fn may_answer(&self, now: Nanos, passing: &Passing<'_>) -> bool {
        let Way::ToServer(server) = passing.way else { return false };
        let closing =
            passing.session.and_then(|region| self.session(region)).is_none_or(|session| session.closing);
        passing.kind() == Kind::Read && !passing.is_filler() && !closing && self.has_lease(server, now)
    }

    /// Carries out a verdict by which a request is not passed on; whether that was possible.
    fn withhold_or_answer(
        &mut self,
        passing: &Passing<'_>,
        verdict: Verdict,
        by: Family,
        effects: &mut DeviceEffects,
    ) -> bool {
        let may = passing.answerable || self.planted(Fault::AbsorbWrite);
        assert!(may, "only a read at its place is answered or absorbed, not {:?}", passing.header);
        let Some(region) = passing.session else { return false };
        let completed = passing.header.completed;
        let Verdict::Answer(bytes) = verdict else {
            self.withhold(region, passing.seq(), completed, effects);
            return true;
        };
        let size = effects.bytes(bytes).len();
        let (seq, key_hash, depends) = (passing.seq(), passing.header.key_hash, passing.depends);
        let answered = Answered { seq, key_hash, by, depends, bytes };
        if size > RESPONSE_BYTES_MAX {
            return false;
        }
        if !self.answer_room.has(size) {
            return self.answer_unkept(region, &answered, completed, effects);
        }
        self.withhold(region, seq, completed, effects);
        self.answer(region, answered, effects);
        true
    }

    /// Answers a read again that was answered here; whether it was.
    fn answers_again(&self, region: Region, packet: &Packet<'_>, effects: &mut DeviceEffects) -> bool {
        let Some(session) = self.sessions.get(region).filter(|session| !session.answers.is_empty()) else {
            return false;
        };
        let asks = packet.kind() == Kind::Read && !packet.flags().has(Flags::SKIP) && !session.closing;
        asks && self.send_answer(region, packet.seq_num(), effects)
    }

    fn forward_stamped(&self, packet: &[u8], stamp: &Stamp, effects: &mut DeviceEffects) {
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
        region: Region,
        passing: &Passing<'_>,
        stamp: &Stamp,
        effects: &mut DeviceEffects,
    ) {
        let Some(session) = self.sessions.get(region) else { return };
        let tail = Tail::Stamp(Stamp::default());
        let mut packet = Vec::new();
        let parts = fragments(passing.header, passing.payload).expect("the payload came in these fragments");
        for (header, part) in parts {
            packet.clear();
            emit(&header, &tail, part, &session.keys.client_to_server, &mut packet);
            self.forward_stamped(&packet, stamp, effects);
        }
    }

    /// Only the planted fault of rule 7 does this.
    fn acknowledge_unlogged(&mut self, region: Region, packet: &Packet<'_>, effects: &mut DeviceEffects) {
        let Some(session) = self.sessions.get(region) else { return };
        let mut header: Header = *packet.header();
        header.kind = Kind::PersistAck;
        header.granted = if header.asked == Durability::None { Durability::Ram } else { header.asked };
        header.fragment_index = 0;
        header.fragment_count = 1;
        let stamp =
            Stamp { device: self.config.device, boot_epoch: self.config.boot_epoch, ..Stamp::default() };
        let stamp = Stamp { kind: StampKind::Barrier, ..stamp };
        let from = self.server_address(session.name.server);
        effects.send(from, session.client, |out| {
            emit(&header, &Tail::Stamp(stamp), &[], &session.keys.device_to_client, out);
        });
    }
}
