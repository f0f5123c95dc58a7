//! What is sent when: the total order, kept on however many lanes.
//!
//! Invariant: a transaction with writes is alone on its way. Items outside transactions share one lane at
//! a time; before another lane is used, the last one has answered everything.

use super::item::{Answer, LaneCommand};
use super::lives::{vouch_alone, vouch_in_batch};
use super::{
    judge, Back, BackEvent, BackEvents, Batch, Execute, Expected, Item, LaneId, LaneState, Nature, Purpose,
    Rewrite,
};
use crate::codec::{error_reply, write_bulk};
use crate::description::Description;
use crate::expiry;
use crate::payload::{
    assemble, RequestFlags, RequestHead, RequestKind, RequestPayload, ResponseFlags, REQUEST_HEAD_BYTES,
};
use scotfree_core::{Nanos, SeqNum, SessionId};
use std::collections::BTreeMap;

/// A server reads 16 KiB at once; what comes beside the payloads (positions, questions for times to live) has room.
const REPLAY_BYTES_MAX: usize = 8 << 10;

impl Back {
    /// Decides how a request is done. A write counts as queued from here on.
    pub(super) fn admit(&mut self, request: &Execute<'_>) -> Item {
        let assembled = self.assembled(request);
        let payload = match &assembled {
            Assembled::Whole(whole) => whole.as_slice(),
            Assembled::Missing | Assembled::NotNeeded => request.payload,
        };
        let parsed = RequestPayload::parse(payload);
        let nature = match &parsed {
            _ if matches!(assembled, Assembled::Missing) => {
                let text = "ERR scotfree: parts of this request are missing: too many bytes of such requests are under way, or \
                            the server was restarted";
                Nature::Refused(error_reply(text), true)
            }
            Err(error) => Nature::Refused(error_reply(&format!("ERR scotfree: {error}")), true),
            Ok(parsed) => judge(&self.description, request.kind, parsed, payload),
        };
        if let Ok(parsed) = &parsed {
            let sets = parsed.all(payload).any(expiry::may_set);
            self.expiry_seen |= sets;
            self.place.may_expire |= sets;
        }
        Item {
            ticket: Some(request.ticket),
            session: request.session,
            seq: request.seq,
            writes: request.kind != RequestKind::Read,
            nature,
            payload: payload.to_vec(),
            answers: answers_of(parsed.as_ref().ok()),
            request: parsed.unwrap_or_default(),
            lives_ms: None,
            tries: 0,
            is_replayed: request.is_replayed,
            is_counted: false,
        }
    }

    /// Puts a request that came in parts together. Parts are taken in the order of the session, and that is
    /// the order in which requests come here.
    fn assembled(&mut self, request: &Execute<'_>) -> Assembled {
        let Ok(head) = RequestHead::parse(request.payload) else { return Assembled::NotNeeded };
        let owner = (request.session, head.connection);
        if head.flags.has(RequestFlags::PART) {
            let part = request.payload.get(REQUEST_HEAD_BYTES..).unwrap_or_default();
            self.parts.keep(owner, part, self.config.parts_bytes_max);
        }
        if !head.flags.has(RequestFlags::ASSEMBLED) {
            return Assembled::NotNeeded;
        }
        assemble(&self.parts.take_request(owner), request.payload)
            .map_or(Assembled::Missing, Assembled::Whole)
    }

    /// Sends from the queue until something has to be waited for.
    pub(super) fn pump(&mut self, now: Nanos, events: &mut BackEvents) {
        while self.batch.is_none() && !self.solo && self.recovery.is_none() {
            if !self.step(now, events) {
                break;
            }
        }
    }

    /// Deals with the first item; false if nothing can be done now.
    fn step(&mut self, now: Nanos, events: &mut BackEvents) -> bool {
        if self.flush_is_due() {
            // In order, since a later item's position implies an earlier one's.
            self.queue.push_front(Item::own(SessionId(0), Nature::Flush));
        }
        let Some(head) = self.queue.front() else { return false };
        match &head.nature {
            Nature::Refused(..) | Nature::Describe | Nature::Part => {
                // Its place in the session is behind what is on its way.
                if head.writes && !self.direct.is_empty() {
                    return false;
                }
                self.answer_here(now, events);
                true
            }
            Nature::Ask => self.move_aside(),
            Nature::Rest => {
                self.rests.extend(self.queue.pop_front());
                true
            }
            Nature::Release => self.release(events),
            _ if self.is_applied(head) => self.refuse_applied(events),
            // A server keeps what it has answered on a connection while that one's script runs.
            Nature::Batched { .. } | Nature::Direct { .. }
                if head.runs_script() && !self.direct.is_empty() =>
            {
                false
            }
            Nature::Direct { .. } | Nature::Hello(_) | Nature::OnLane(_) => self.send_direct(events),
            Nature::Solo | Nature::Bare => self.send_solo(events),
            Nature::Batched { .. } | Nature::Record(_) | Nature::Delete | Nature::Flush => {
                self.send_batch(events)
            }
        }
    }

    /// Whether positions should be stored without an effect to go with.
    fn flush_is_due(&self) -> bool {
        // The next transaction stores them anyway.
        let is_next = self.queue.front().is_some_and(|item| {
            matches!(item.nature, Nature::Flush | Nature::Batched { .. } | Nature::Record(_) | Nature::Delete)
        });
        (self.rewrite == Rewrite::Now || self.unmarked.is_some()) && !is_next
    }

    /// Whether a write was executed before; then its reply is gone.
    fn is_applied(&self, item: &Item) -> bool {
        let marker = self.markers.sessions.get(&item.session);
        item.writes
            && item.ticket.is_some()
            && !item.is_counted
            && marker.is_none_or(|marker| item.seq <= marker.position)
    }

    fn refuse_applied(&mut self, events: &mut BackEvents) -> bool {
        let Some(item) = self.queue.pop_front() else { return false };
        self.counters.refused += 1;
        self.singly = self.singly.saturating_sub(1);
        if !self.markers.sessions.contains_key(&item.session) {
            let reason = "its marker is missing, so it is unknown what was applied".to_owned();
            events.push(BackEvent::SessionFailed { session: item.session, reason });
        }
        let text = "ERR scotfree: this request was applied before, and its reply is gone";
        self.reply(&Item { writes: false, ..item }, &error_reply(text), ResponseFlags::CLOSE, events);
        true
    }

    fn answer_here(&mut self, now: Nanos, events: &mut BackEvents) {
        let Some(item) = self.queue.pop_front() else { return };
        let (reply, flags) = match &item.nature {
            Nature::Refused(reply, close) => {
                self.counters.refused += 1;
                (reply.clone(), ResponseFlags::NONE.with_if(*close, ResponseFlags::CLOSE))
            }
            Nature::Part => (b"+OK\r\n".to_vec(), ResponseFlags::NONE),
            _ => (self.told(now), ResponseFlags::NONE),
        };
        self.consume(&item);
        self.reply(&item, &reply, flags, events);
    }

    /// What clients are told of the server now.
    pub fn describe(&self, now: Nanos) -> Description {
        let early_allowed = self.health.is_well();
        let time_ms = self.server_time_ms(now);
        Description { time_ms, early_allowed, ..self.description.clone() }
    }

    /// The description as a reply.
    fn told(&self, now: Nanos) -> Vec<u8> {
        let mut reply = Vec::new();
        write_bulk(&mut reply, self.describe(now).to_text().as_bytes());
        reply
    }

    fn release(&mut self, events: &mut BackEvents) -> bool {
        if !self.direct.is_empty() {
            return false;
        }
        let Some(item) = self.queue.pop_front() else { return false };
        self.parts.forget_connection(item.owner());
        if let Some(lane) = item.private().and_then(|key| self.privates.get(&key).copied()) {
            self.close(lane, events);
        }
        self.reply(&item, b"+OK\r\n", ResponseFlags::NONE, events);
        true
    }

    fn send_direct(&mut self, events: &mut BackEvents) -> bool {
        let direct_max = if self.singly > 0 { 1 } else { self.config.direct_max };
        if self.direct.len() >= direct_max {
            return false;
        }
        let Some(id) = self.lane_of_head(events) else { return self.head_is_lost() };
        let vouching = self.vouching();
        let (Some(lane), Some(mut item)) = (self.lanes.get_mut(id), self.queue.pop_front()) else {
            return false;
        };
        vouch_alone(vouching, &self.description, &mut item, lane);
        if item.nature == Nature::OnLane(LaneCommand::Watch) {
            lane.watches = true;
        }
        for command in item.open_commands() {
            if let Nature::Hello(resp) = item.nature {
                lane.resp = resp;
            } else {
                lane.enter(item.db(command), item.request.head.resp());
            }
            lane.output.extend_from_slice(item.request.bytes(&item.payload, command));
            lane.expected.push_back(Expected::Direct);
        }
        self.singly = self.singly.saturating_sub(1);
        self.direct.push_back(item);
        self.active = Some(id);
        true
    }

    /// A write that does not go into a transaction; its marker follows with the next one.
    fn send_solo(&mut self, events: &mut BackEvents) -> bool {
        if !self.direct.is_empty() {
            return false;
        }
        let sent = self.send_direct(events);
        self.solo = sent && !self.direct.is_empty();
        sent
    }

    fn send_batch(&mut self, events: &mut BackEvents) -> bool {
        let Some(id) = self.lane_of_head(events) else { return self.head_is_lost() };
        let mut items = self.take_batch();
        let vouching = self.vouching();
        for item in &mut items {
            vouch_in_batch(vouching, item);
        }
        let before = self.advance(&items);
        if items.iter().any(Item::configures) {
            // From here on "appendfsync always" may no longer hold, until the server is asked again.
            self.stability.set_method(self.cautious_method.clone());
            self.health.next_at = Nanos(0);
            self.health.is_fresh = false;
            self.health.is_in_doubt = true;
        }
        let Some(lane) = self.lanes.get_mut(id) else { return false };
        self.counters.batches += 1;
        self.counters.batched_items += items.len() as u64;
        // A server that takes no writes would refuse reads for the markers that are behind.
        let is_apart = self.health.refused.is_some() && items.iter().all(Item::is_read);
        let none_late = BTreeMap::new();
        let late = if is_apart { &none_late } else { &self.late };
        let rewrites = self.rewrite != Rewrite::No && !is_apart;
        let mut batch = Batch::send(items, lane, &self.markers, late, rewrites, &self.place);
        batch.positions_before = before;
        self.rewrite = if is_apart { self.rewrite } else { Rewrite::No };
        self.batch = Some(batch);
        self.active = Some(id);
        true
    }

    /// Moves the sessions' positions to where the items will bring them; returns where they were.
    fn advance(&mut self, items: &[Item]) -> BTreeMap<SessionId, SeqNum> {
        let mut before = BTreeMap::new();
        for item in items.iter().filter(|item| item.writes) {
            if let Some(marker) = self.markers.sessions.get_mut(&item.session) {
                before.entry(item.session).or_insert(marker.position);
                marker.position = marker.position.max(item.seq);
            }
        }
        before
    }

    /// The items from the first on that can share a transaction with it.
    fn take_batch(&mut self) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::new();
        let mut bytes = 0;
        // One transaction speaks one version of the protocol.
        let mut resp = None;
        // Whether there is a read among them, and a script.
        let mut shared = (false, false);
        while let Some(item) = self.queue.front() {
            let fits = items.first().is_none_or(|first| {
                items.len() < self.config.batch_items_max
                    && bytes + item.payload.len() <= bytes_max(first, self.config.batch_bytes_max)
                    && self.singly == 0
                    && may_share(first, item)
                    && (item.ticket.is_none() || resp.is_none_or(|resp| resp == item.request.head.resp()))
            });
            if !fits || !items.is_empty() && self.is_applied(item) {
                break;
            }
            // A script may take too long: a read that shares its transaction, or is still on its way before it,
            // would be answered only then.
            let is_read = item.is_read();
            let is_script = item.runs_script();
            let (has_read, has_script) = shared;
            let has_read = has_read || !self.direct.is_empty();
            if !items.is_empty() && (is_script && has_read || is_read && has_script) {
                break;
            }
            shared = (has_read || is_read, has_script || is_script);
            bytes += item.payload.len();
            resp = resp.or(item.ticket.map(|_| item.request.head.resp()));
            items.extend(self.queue.pop_front());
        }
        self.singly = self.singly.saturating_sub(1);
        items
    }

    /// The lane of the first item, if it is ready and the order allows to use it now.
    fn lane_of_head(&mut self, events: &mut BackEvents) -> Option<LaneId> {
        let item = self.queue.front()?;
        let id = match item.private() {
            None => self.shared?,
            Some((session, connection)) => self.private_lane(session, connection, events)?,
        };
        let is_busy = !self.direct.is_empty() && self.active != Some(id);
        let is_ready = self.lanes.get(id).is_some_and(|lane| lane.state == LaneState::Ready);
        (is_ready && !is_busy).then_some(id)
    }

    fn private_lane(
        &mut self,
        session: SessionId,
        connection: u32,
        events: &mut BackEvents,
    ) -> Option<LaneId> {
        let item = self.queue.front()?;
        let known = self.privates.get(&(session, connection)).copied();
        if let Some((id, lane)) = known.and_then(|id| Some((id, self.lanes.get(id)?))) {
            let connecting = lane.state != LaneState::Ready;
            let keeps_user = lane.has_user || !item.has(RequestFlags::USER);
            let keeps_watch = lane.watches || !item.has(RequestFlags::WATCHED);
            if connecting || keeps_user && keeps_watch {
                return Some(id);
            }
        }
        // State that is lost cannot be made up for: a watch has failed, a user has to come again.
        if item.has(RequestFlags::WATCHED) {
            let reply: &[u8] = if item.request.head.resp() == 3 { b"_\r\n" } else { b"*-1\r\n" };
            self.answer_lost(reply.to_vec(), false);
        } else if item.has(RequestFlags::USER) {
            let text =
                "ERR scotfree: the server has closed the connection on which this client had authenticated \
                        itself: it was restarted, or the user was deleted; reconnect and authenticate again";
            self.answer_lost(error_reply(text), true);
        } else if item.nature == Nature::OnLane(LaneCommand::Unwatch) {
            self.answer_lost(b"+OK\r\n".to_vec(), false);
        } else if known.is_some() {
            return known;
        } else if self.privates.len() >= self.config.private_lanes_max && !self.evict(events) {
            let text = format!(
                "ERR scotfree: {} client connections have a connection to the server of their own, which is \
                 private_lanes_max",
                self.privates.len()
            );
            self.answer_lost(error_reply(&text), false);
        } else {
            let id = self.open(Purpose::Private { session, connection }, events);
            self.privates.insert((session, connection), id);
            return Some(id);
        }
        None
    }

    /// Whether the first item can go on without a lane.
    fn head_is_lost(&self) -> bool {
        self.queue.front().is_some_and(|item| matches!(item.nature, Nature::Refused(..)))
    }

    /// The first item is answered without the server, when its turn comes.
    fn answer_lost(&mut self, reply: Vec<u8>, close: bool) {
        if let Some(item) = self.queue.front_mut() {
            item.nature = Nature::Refused(reply, close);
        }
    }

    /// Closes a lane that holds no state.
    fn evict(&mut self, events: &mut BackEvents) -> bool {
        let idle = self.privates.values().copied().find(|id| {
            self.lanes.get(*id).is_some_and(|lane| {
                lane.expected.is_empty() && lane.state == LaneState::Ready && !lane.has_user && !lane.watches
            })
        });
        if let Some(id) = idle {
            self.close(id, events);
        }
        idle.is_some()
    }

    /// A request has taken its place in its session although nothing was stored with it.
    pub(super) fn consume(&mut self, item: &Item) {
        if !item.writes {
            return;
        }
        if let Some(marker) = self.markers.sessions.get_mut(&item.session) {
            marker.position = marker.position.max(item.seq);
            self.late.insert(item.session, marker.position);
            self.unmarked = self.unmarked.max(item.ticket);
        }
    }
}

/// Room for what the parts of a pack are answered.
fn answers_of(request: Option<&RequestPayload>) -> Vec<Option<Answer>> {
    let pack = request.filter(|request| request.head.flags.has(RequestFlags::PACK));
    pack.map_or_else(Vec::new, |pack| vec![None; pack.len()])
}

/// A request that may have come in parts.
enum Assembled {
    NotNeeded,
    Missing,
    Whole(Vec<u8>),
}

/// The size at which no more items are added to a transaction that begins with this one. What is executed anew
/// comes in transactions that a server reads at once: between their commands nobody changes a right, see
/// [`Back::on_overtaken`].
fn bytes_max(first: &Item, usual: usize) -> usize {
    if first.is_replayed {
        usual.min(REPLAY_BYTES_MAX)
    } else {
        usual
    }
}

/// Whether two items can be in one transaction.
fn may_share(first: &Item, item: &Item) -> bool {
    let batched =
        matches!(item.nature, Nature::Batched { alone: false } | Nature::Record(_) | Nature::Delete)
            || item.nature == Nature::Direct { inert: false } && !item.writes;
    batched
        && first.nature != Nature::Batched { alone: true }
        && item.private() == first.private()
        && (item.ticket.is_none()
            || first.ticket.is_none()
            || item.request.head.resp() == first.request.head.resp())
        && !item.has(RequestFlags::WATCHED)
        && !first.has(RequestFlags::WATCHED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_executed_anew_comes_in_transactions_that_are_read_at_once() {
        let fresh = Item::own(SessionId(1), Nature::Flush);
        let replayed = Item { is_replayed: true, ..fresh.clone() };
        assert_eq!(bytes_max(&fresh, 1 << 20), 1 << 20);
        assert_eq!(bytes_max(&replayed, 1 << 20), REPLAY_BYTES_MAX);
        assert_eq!(bytes_max(&replayed, 100), 100);
    }
}
