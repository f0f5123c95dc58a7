//! Places and stamps: what comes before what (rules 1 and 2).
//!
//! Invariant: a request has one stamp while that is noted, and what reached the server unstamped gets its place by the
//! server's question, once.

use crate::base::Base;
use crate::effects::DeviceEffects;
use crate::sessions::{Region, SessionName};
use scotfree_core::{OrderNumber, SeqNum, ServerIndex};
use scotfree_session::Fault;
use scotfree_wire::{Flags, Header, Kind, Packet, Stamp, StampKind, Tail};
use std::ops::RangeInclusive;

impl Base {
    fn stamp(&self, kind: StampKind, number: OrderNumber) -> Stamp {
        Stamp {
            kind,
            device: self.config.device,
            boot_epoch: self.config.boot_epoch,
            number,
            previous_write: SeqNum(0),
        }
    }

    /// Gives the next request of a session its stamp.
    pub(crate) fn pass(&mut self, region: Region, seq: SeqNum, writes: bool, logged: bool) -> Stamp {
        let Some(session) = self.sessions.get_mut(region) else { return Stamp::default() };
        let name = session.name;
        let previous_write = session.last_write;
        session.next = session.next.max(seq.next());
        if !session.passing.is_empty() {
            session.passing.remove(&seq);
        }
        if writes {
            session.last_write = session.last_write.max(seq);
        }
        self.touch_session(name);
        let stamp = if logged {
            let order = if self.planted(Fault::ShareOrder) { ServerIndex(0) } else { name.server };
            let number = self.sequencer.next(order);
            self.stamp(StampKind::Order, number)
        } else {
            self.stamp(StampKind::Barrier, self.sequencer.current(name.server))
        };
        Stamp { previous_write, ..stamp }
    }

    /// Remembers the stamp of a request that is not logged.
    pub(crate) fn note_stamp(&mut self, region: Region, seq: SeqNum, stamp: Stamp) {
        let Some(session) = self.sessions.get_mut(region) else { return };
        session.note(seq, stamp);
        let name = session.name;
        self.touch_slot(name, seq);
    }

    /// The place of a run of requests that passed here and whose stamps are forgotten: after
    /// everything, but before what their own session has in a log behind them.
    fn barrier_of_past(&self, region: Region, run: RangeInclusive<SeqNum>) -> Stamp {
        let Some(session) = self.sessions.get(region) else { return Stamp::default() };
        // Which of them wrote is forgotten too: none may be executed over a gap before it.
        let guess = self.planted(Fault::PlaceOverGap);
        let previous_write = if guess { SeqNum(run.start().0 - 1) } else { *run.end() };
        let mut stamp = self.stamp(StampKind::Barrier, self.sequencer.current(session.name.server));
        stamp.previous_write = previous_write;
        let later = session.held_from(run.end().next()).next().and_then(|later| session.noted(later));
        if let Some(later) = later {
            stamp.boot_epoch = later.stamp.boot_epoch;
            stamp.number = OrderNumber(later.stamp.number.0 - 1);
        }
        stamp
    }

    /// Answers with the stamp of a request that reached the server unstamped. If it never passed
    /// here, the question is its passage: it will not be logged later under another place. How far the run goes
    /// that has got its place so.
    pub(crate) fn on_drain(
        &mut self,
        server: ServerIndex,
        packet: &Packet<'_>,
        effects: &mut DeviceEffects,
    ) -> Option<RangeInclusive<SeqNum>> {
        if !self.config.head {
            return None;
        }
        let (id, first) = (packet.session(), packet.seq_num());
        let known_as = if self.planted(Fault::PlaceOfAnother) { ServerIndex(0) } else { server };
        let region = self.sessions.find(SessionName { server: known_as, id });
        let noted = region.and_then(|region| self.sessions.get(region)?.noted(first).copied());
        let asked_last = packet.header().run_last();
        let (stamp, last) = match (noted, region) {
            (Some(noted), _) => (noted.stamp, first),
            (None, Some(region)) => {
                self.place_run(region, first, asked_last, packet.header().run_last_write())
            }
            // A session that is not known here: its requests pass unlogged, after all that is logged.
            (None, None) => {
                let last = asked_last.max(first);
                let stamp = self.stamp(StampKind::Barrier, self.sequencer.current(server));
                (Stamp { previous_write: last, ..stamp }, last)
            }
        };
        let mut header = Header::new(Kind::Drain, id, self.server_epoch(server));
        header.seq_num = first;
        header.set_run_last(last);
        header.flags = if region.is_some() { Flags::NONE } else { Flags::VOID };
        self.send_to_server(server, &header, &Tail::Stamp(stamp), &[], effects);
        // One that is noted has passed here.
        noted.is_none().then_some(first..=last)
    }

    /// Gives a run of requests that reached the server unstamped their common place; the second
    /// value says how far the run goes. `last_write` is the session's last write up to its end.
    fn place_run(
        &mut self,
        region: Region,
        first: SeqNum,
        last: SeqNum,
        last_write: SeqNum,
    ) -> (Stamp, SeqNum) {
        let Some(session) = self.sessions.get(region) else { return (Stamp::default(), first) };
        let name = session.name;
        let last = last.0.clamp(first.0, first.0.saturating_add(u64::from(session.window)));
        let stamped = (first.0 + 1..=last).find(|seq| session.noted(SeqNum(*seq)).is_some());
        let last = SeqNum(stamped.map_or(last, |stamped| stamped - 1));
        if last < session.next {
            return (self.barrier_of_past(region, first..=last), last);
        }
        // What passed here unstamped before this question goes the same way: else the next request
        // would always be one that has passed already.
        let (mut reached, mut last_write) = (last, last_write.min(last));
        while let Some(writes) = session.passing.get(&reached.next()) {
            reached = reached.next();
            last_write = if *writes { reached } else { last_write };
        }
        // None of the run may be executed over a gap before it.
        let stamp = Stamp { previous_write: last, ..self.pass(region, reached, false, false) };
        if let Some(session) = self.sessions.get_mut(region) {
            session.last_write = session.last_write.max(last_write);
            session.forget_passed();
        }
        for seq in first.0..=last.0 {
            self.note_stamp(region, SeqNum(seq), stamp);
            self.fragments[usize::from(name.server.0)].forget(name.id, SeqNum(seq));
        }
        (stamp, last)
    }
}
