//! Persist as a function of the device: what it does with a packet, a session, a completion and a timer.

use crate::log::Persist;
use scotfree_core::{Durability, Nanos, SeqNum, ServerIndex, Token};
use scotfree_device::{
    Base, Count, DeviceEffects, Function, LogEntryView, Passing, Place, Region, RestoreError, SessionChange,
    Verdict, Way,
};
use scotfree_session::Fault;
use scotfree_wire::{Family, Kind, Packet, StampKind, Tail, WireError};
use std::any::Any;

impl Function for Persist {
    fn name(&self) -> &'static str {
        "persist"
    }

    fn family(&self) -> Family {
        Family::Session
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn acknowledges(&self) -> bool {
        true
    }

    fn begin(&mut self, base: &mut Base, token_first: u64) {
        self.token_first = token_first;
        self.window_max = u64::from(base.config().window_max);
        self.sessions_max = u64::from(base.config().sessions_max);
        self.logs.resize_with(self.sessions_max as usize, Default::default);
    }

    fn tokens_max(&self, base: &Base) -> u64 {
        let (windows, sessions) =
            (u64::from(base.config().window_max), u64::from(base.config().sessions_max));
        sessions * windows + sessions
    }

    fn asks_order(&self, base: &Base, passing: &Passing<'_>) -> bool {
        let (seq, asked) = (passing.seq(), passing.header.asked);
        passing.session.is_some_and(|region| self.can_log(base, region, seq, asked))
    }

    fn on_packet(
        &mut self,
        now: Nanos,
        base: &mut Base,
        passing: &mut Passing<'_>,
        effects: &mut DeviceEffects,
    ) -> Verdict {
        let (Way::ToServer(_), Some(region)) = (passing.way, passing.session) else { return Verdict::Next };
        match passing.place {
            Place::Next => self.on_next(now, base, region, passing, effects),
            // The head acknowledges a set of fragments by its first.
            Place::Seen if !base.is_head() || passing.header.fragment_index == 0 => {
                self.acknowledge(now, base, region, passing.seq(), false, effects);
            }
            Place::Seen | Place::None => {}
        }
        Verdict::Next
    }

    fn on_control(
        &mut self,
        _now: Nanos,
        base: &mut Base,
        server: ServerIndex,
        packet: &Packet<'_>,
        effects: &mut DeviceEffects,
    ) -> Result<bool, WireError> {
        let (Kind::Retransmit, Tail::Range(range)) = (packet.kind(), packet.tail()) else {
            return Ok(false);
        };
        if packet.session().0 == 0 {
            self.replay_orders(base, server, *range, effects);
        } else {
            self.replay_range(base, server, packet.session(), *range, effects);
        }
        Ok(true)
    }

    fn on_session(
        &mut self,
        _now: Nanos,
        base: &mut Base,
        region: Region,
        change: SessionChange,
        effects: &mut DeviceEffects,
    ) {
        match change {
            SessionChange::Opened => {
                let Some(window) = base.session(region).map(|session| session.window) else { return };
                let record_domain = self.session_domain();
                self.logs[region.0 as usize].begin(window, record_domain);
                self.keep_session(base, region, effects);
            }
            SessionChange::Stable(stable) => {
                self.counters.freed += self.release(base, region, stable, effects);
            }
            SessionChange::Ending => self.erase_session_record(region, effects),
            SessionChange::Moved
            | SessionChange::Rekeyed
            | SessionChange::Revoked
            | SessionChange::Closing
            | SessionChange::Ended => {}
        }
    }

    fn on_persisted(&mut self, now: Nanos, base: &mut Base, token: Token, effects: &mut DeviceEffects) {
        self.on_record_persisted(now, base, token, effects);
    }

    fn on_refused(&mut self, base: &mut Base, token: Token) {
        self.end_write(base, token);
    }

    fn set_media(&mut self, base: &mut Base, media: Durability) {
        self.config.media = media;
        // A domain that has failed completes nothing any more.
        let mut ended = Vec::new();
        for (region, session) in base.sessions().iter() {
            for (place, slot) in self.logs[region.0 as usize].slots.iter_mut().enumerate() {
                let before = slot.writing;
                for failed in [Durability::Ram, Durability::Disk] {
                    if !media.satisfies(failed) {
                        slot.writing = slot.writing.without(failed);
                    }
                }
                if slot.writing != before {
                    ended.push((session.name, session.noted_at(place).seq));
                }
            }
        }
        for (name, seq) in ended {
            base.touch_slot(name, seq);
        }
    }

    fn on_timer(&mut self, now: Nanos, base: &mut Base, effects: &mut DeviceEffects) {
        self.reforward_aged(now, base, effects);
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.aged.first().map(|(due, ..)| due)
    }

    fn restore(
        &mut self,
        now: Nanos,
        base: &mut Base,
        token: Token,
        record: &[u8],
    ) -> Result<(), RestoreError> {
        if self.planted(Fault::ForgetLogOnRestart) {
            return Ok(());
        }
        self.restore_record(now, base, token, record)
    }

    fn entries<'a>(&'a self, base: &'a Base, out: &mut dyn FnMut(LogEntryView<'a>)) {
        for (region, session) in base.sessions().iter() {
            for (slot, noted) in session.held().filter_map(|seq| self.entry(region, session, seq)) {
                out(LogEntryView {
                    session: session.name,
                    seq: noted.seq,
                    stamp: noted.stamp,
                    asked: slot.asked,
                    key_hash: slot.key_hash,
                    acknowledged: slot.acknowledged,
                    logged_at: slot.logged_at,
                    payload: &slot.payload,
                });
            }
        }
    }

    fn counters(&self, out: &mut dyn FnMut(Count)) {
        self.counters.each(out);
    }
}

impl Persist {
    /// An update at its place is logged if its stamp has a place in the order.
    fn on_next(
        &mut self,
        now: Nanos,
        base: &mut Base,
        region: Region,
        passing: &mut Passing<'_>,
        effects: &mut DeviceEffects,
    ) {
        let (Kind::Update, Some(stamp)) = (passing.kind(), passing.stamp) else { return };
        self.counters.admitted_updates += 1;
        let (seq, asked): (SeqNum, _) = (passing.seq(), passing.header.asked);
        if stamp.kind == StampKind::Order && self.can_log(base, region, seq, asked) {
            self.log(now, base, (region, stamp), passing, effects);
        } else {
            self.counters.ungranted += 1;
        }
    }
}
