//! Entries sent to the server: when it asks for them, and when they stay without its word (rules 5 and 10).

use crate::index::OrderPlace;
use crate::log::Persist;
use scotfree_core::{Nanos, OrderNumber, SeqNum, ServerIndex, SessionId};
use scotfree_device::{Base, DeviceEffects, Region};
use scotfree_session::{backoff, send_whole, Fault, Route};
use scotfree_wire::{Flags, Header, Kind, RangeTail, Stamp, StampKind, Tail};

impl Persist {
    /// Replays a session's entries in a range and says how far it came and how many there were.
    pub(crate) fn replay_range(
        &mut self,
        base: &Base,
        server: ServerIndex,
        id: SessionId,
        range: RangeTail,
        effects: &mut DeviceEffects,
    ) {
        let most = self.config.replay_burst_max.max(1) as usize;
        // Among the entries themselves: reads, which no log keeps, can part them by any distance.
        let region = base.find(server, id);
        let session = region.and_then(|region| base.session(region));
        let held = session.into_iter().flat_map(|session| {
            let from_first = session.held_from(SeqNum(range.first));
            from_first.take_while(|seq| seq.0 <= range.last).take(most)
        });
        let held: Vec<SeqNum> = held.collect();
        for seq in &held {
            if let Some(region) = region {
                self.replay(base, region, *seq, effects);
            }
        }
        let covered = held.last().filter(|_| held.len() == most).map_or(range.last, |last| last.0);
        // The range answered begins at `previous_write`; `number` counts the entries in it.
        let stamp = Stamp {
            kind: StampKind::Barrier,
            device: base.device(),
            boot_epoch: base.boot_epoch(),
            number: OrderNumber(held.len() as u64),
            previous_write: SeqNum(range.first),
        };
        send_void(base, server, (id, SeqNum(covered)), stamp, effects);
    }

    /// Replays entries by order number; says of each that is not there that it never will be.
    pub(crate) fn replay_orders(
        &mut self,
        base: &Base,
        server: ServerIndex,
        range: RangeTail,
        effects: &mut DeviceEffects,
    ) {
        let last =
            range.last.min(range.first.saturating_add(u64::from(self.config.replay_burst_max.max(1)) - 1));
        for number in range.first..=last {
            let place = OrderPlace { server, boot_epoch: range.boot_epoch, number: OrderNumber(number) };
            match self.live.get(&place).copied() {
                Some((region, seq)) => {
                    self.replay(base, region, seq, effects);
                }
                // Of an older incarnation's numbers other devices may hold what this one lost.
                None if range.boot_epoch == base.boot_epoch() && number <= base.order_current(server).0 => {
                    let stamp = Stamp {
                        kind: StampKind::Order,
                        device: base.device(),
                        boot_epoch: range.boot_epoch,
                        number: OrderNumber(number),
                        previous_write: SeqNum(0),
                    };
                    send_void(base, server, (SessionId(0), SeqNum(0)), stamp, effects);
                }
                None => {}
            }
        }
    }

    /// Sends one entry to the server; `false` if there is none.
    fn replay(&mut self, base: &Base, region: Region, seq: SeqNum, effects: &mut DeviceEffects) -> bool {
        let Some(session) = base.session(region) else { return false };
        let Some((slot, noted)) = self.entry(region, session, seq) else { return false };
        let mut header = Header::new(Kind::Replay, session.name.id, session.epoch);
        header.seq_num = seq;
        header.key_hash = slot.key_hash;
        header.asked = slot.asked;
        header.flags = if slot.early { Flags::EARLY } else { Flags::NONE };
        let elsewhere = self.planted(Fault::ReplayElsewhere);
        let server = if elsewhere { ServerIndex(0) } else { session.name.server };
        let route = Route { from: session.client, to: base.server_address(server) };
        let tail = Tail::Stamp(noted.stamp);
        send_whole(effects, route, &header, &tail, &slot.payload, &base.to_server_key())
            .expect("an update's payload was a request's");
        self.counters.replays += 1;
        true
    }

    /// Sends entries that stay without `ServerAck` to the server again, with backoff (rule 5).
    pub(crate) fn reforward_aged(&mut self, now: Nanos, base: &Base, effects: &mut DeviceEffects) {
        for _ in 0..self.config.replay_burst_max {
            self.prune_aged();
            let Some((_, name, seq, region)) = self.aged.first().filter(|(due, ..)| *due <= now) else {
                return;
            };
            self.aged.pop();
            let (first, most) = (self.config.reforward_after, self.config.reforward_wait_max);
            let Some(place) = base.session(region).map(|session| session.place(seq)) else { continue };
            let Some(slot) = self.slot_mut(region, place) else { continue };
            slot.reforward_tries += 1;
            let due = now.plus(backoff(first, most, slot.reforward_tries));
            slot.due = Some((seq, due));
            self.aged.push((due, name, seq, region));
            if !self.planted(Fault::LoseLastRequest) && self.replay(base, region, seq, effects) {
                self.counters.reforwarded += 1;
            }
        }
    }
}

/// Says that no (further) entry is there.
fn send_void(
    base: &Base,
    server: ServerIndex,
    (id, seq): (SessionId, SeqNum),
    stamp: Stamp,
    effects: &mut DeviceEffects,
) {
    let mut header = Header::new(Kind::Replay, id, base.server_epoch(server));
    header.seq_num = seq;
    header.flags = Flags::VOID;
    base.send_to_server(server, &header, &Tail::Stamp(stamp), &[], effects);
}
