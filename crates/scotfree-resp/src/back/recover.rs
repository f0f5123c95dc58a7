//! What becomes of the work on a lane that broke while the server lives on.
//!
//! Invariant: before anything is tried again, the broken connection is ended at the server and the markers
//! are read, so it is known what was executed. What was executed and not answered is answered with its
//! fixed reply, or with an error if it has none; what was not is executed now, and so is what only reads,
//! unless its session has written since. A request whose own reply was nonsense is not asked again. If the
//! server is another one since, nothing is known and the machine stops.

use super::health::Info;
use super::markers::foreign_epoch;
use super::replies::line;
use super::start::read_markers;
use super::{
    Back, BackEvent, BackEvents, Batch, Expected, Item, LaneId, LaneState, Markers, Nature, Phase, Purpose,
    StopReason, Waiter,
};
use crate::codec::error_reply;
use crate::payload::ResponseFlags;
use scotfree_core::Nanos;
use std::collections::VecDeque;

/// How often an item is tried before it is answered with an error.
const TRIES_MAX: u8 = 3;

/// How much of what the server said is told.
const QUOTE_BYTES_MAX: usize = 64;

/// The shared lane broke; the server is being asked what was executed.
#[derive(Debug)]
pub(super) struct Recovery {
    reason: String,
    direct: VecDeque<Item>,
    batch: Option<Batch>,
    replies: Vec<Vec<u8>>,
}

/// The replies that a recovery waits for.
const REPLY_COUNT: usize = 3;

impl Back {
    /// A lane cannot be used any more.
    pub(super) fn break_lane(&mut self, id: LaneId, now: Nanos, reason: &str, events: &mut BackEvents) {
        self.counters.lanes_broken += 1;
        let (Some(purpose), Some(lane)) = (self.purpose(id), self.lanes.get(id)) else { return };
        let was_ready = lane.state == LaneState::Ready;
        let was_connected = lane.state != LaneState::Connecting;
        let client_id = lane.client_id;
        match purpose {
            Purpose::Private { session, connection } if !was_ready => {
                self.close(id, events);
                self.on_unopened((session, connection), reason);
            }
            Purpose::Private { .. } => self.break_private(id, reason, events),
            Purpose::Trial => self.close(id, events),
            Purpose::Shared if was_ready && self.recovery.is_none() && self.control_is_ready() => {
                self.close(id, events);
                self.recover(client_id, reason);
            }
            Purpose::Probe if was_ready => {
                self.close(id, events);
                self.stability.failed(now);
                self.probe = Some(self.open(Purpose::Probe, events));
            }
            Purpose::Control | Purpose::Shared | Purpose::Probe => {
                let text = if was_connected {
                    format!("its connection for {} broke: {reason}", purpose.name())
                } else {
                    reason.to_owned()
                };
                self.stop(StopReason::Lost(text), events);
            }
        }
    }

    /// The server answered what it cannot have meant.
    pub(super) fn on_nonsense(&mut self, id: LaneId, reason: &str, bytes: &[u8], events: &mut BackEvents) {
        let Some(purpose) = self.purpose(id) else { return };
        self.counters.nonsense += 1;
        if !matches!(self.phase, Phase::Running) {
            // A start that fails says why itself, and only once however often it is tried.
            return;
        }
        events
            .push(BackEvent::Nonsense { lane: purpose.name(), said: format!("{reason}: {}", quoted(bytes)) });
    }

    /// What the next reply belongs to is not tried again, unless it may have to be: whether a write was
    /// executed is for its marker to say.
    pub(super) fn give_up_asked(&mut self, id: LaneId) {
        let asked = match self.lanes.get(id).and_then(|lane| lane.expected.front()) {
            Some(Expected::Direct) => self.direct.front_mut(),
            Some(Expected::Queued | Expected::Exec) => self.batch.as_mut().and_then(Batch::only_item),
            _ => None,
        };
        if let Some(item) = asked.filter(|item| !item.writes) {
            item.tries = TRIES_MAX;
        }
    }

    fn control_is_ready(&self) -> bool {
        let lane = self.control.and_then(|id| self.lanes.get(id));
        lane.is_some_and(|lane| lane.state == LaneState::Ready)
    }

    /// Asks what was executed of what was on its way.
    fn recover(&mut self, client_id: i64, reason: &str) {
        self.shared = None;
        let on_shared = self.active.is_none_or(|active| !self.lanes.contains(active));
        let (direct, batch) = if on_shared {
            (std::mem::take(&mut self.direct), self.batch.take())
        } else {
            Default::default()
        };
        self.solo &= !on_shared;
        self.recovery = Some(Recovery { reason: reason.to_owned(), direct, batch, replies: Vec::new() });
        let Some(lane) = self.control.and_then(|id| self.lanes.get_mut(id)) else { return };
        let id = client_id.to_string();
        lane.say(&[b"CLIENT", b"KILL", b"ID", id.as_bytes()], Expected::Recovery);
        lane.say(&[b"INFO", b"server"], Expected::Recovery);
        lane.enter(self.place.db, 2);
        lane.say(&[b"HGETALL", &self.place.key], Expected::Recovery);
    }

    /// One of the answers came.
    pub(super) fn on_recovery(&mut self, reply: &[u8], events: &mut BackEvents) {
        let Some(recovery) = &mut self.recovery else { return };
        recovery.replies.push(reply.to_vec());
        if recovery.replies.len() < REPLY_COUNT {
            return;
        }
        let Some(recovery) = self.recovery.take() else { return };
        if Info::parse(&recovery.replies[1]).get("run_id") != self.run_id {
            return self.stop(StopReason::Lost("the server was restarted".to_owned()), events);
        }
        match read_markers(&recovery.replies[2]) {
            Ok(markers) if markers.epoch == self.markers.epoch => self.resume(recovery, &markers, events),
            Ok(found) => {
                self.stop(foreign_epoch(Some(found.epoch), self.markers.epoch), events);
            }
            Err(error) => self.stop(StopReason::Markers(error.to_string()), events),
        }
    }

    fn resume(&mut self, recovery: Recovery, markers: &Markers, events: &mut BackEvents) {
        let reason = format!("the connection to the server broke: {}", recovery.reason);
        let mut again = VecDeque::new();
        let batch = recovery.batch.map(|batch| (was_executed(&batch, markers), batch));
        let done = batch.as_ref().filter(|(executed, _)| *executed).map(|(_, batch)| batch);
        for item in recovery.direct {
            let outrun = done.is_some_and(|batch| writes_later(&batch.items, &item));
            if matches!(item.nature, Nature::Solo | Nature::Bare) {
                self.stability.effect();
                self.consume(&item);
                self.answer_gone(&item, &reason, events);
            } else if outrun {
                self.answer_gone(&item, &reason, events);
            } else {
                self.try_again(item, &reason, &mut again, events);
            }
        }
        match batch {
            Some((true, batch)) => self.settle_unanswered(&batch, &reason, &mut again, events),
            Some((false, batch)) => {
                self.restore(&batch);
                for item in batch.items {
                    self.try_again(item, &reason, &mut again, events);
                }
            }
            None => {}
        }
        // Singly, so that whatever broke the lane breaks it for itself.
        self.singly += again.len();
        for item in again.into_iter().rev() {
            self.queue.push_front(item);
        }
        self.shared = Some(self.open(Purpose::Shared, events));
    }

    fn try_again(
        &mut self,
        mut item: Item,
        reason: &str,
        again: &mut VecDeque<Item>,
        events: &mut BackEvents,
    ) {
        item.tries += 1;
        if item.tries < TRIES_MAX {
            again.push_back(item);
        } else {
            self.consume(&item);
            self.answer_gone(&item, reason, events);
        }
    }

    /// The transaction was executed, but nobody knows what it answered beyond what it always answers.
    fn settle_unanswered(
        &mut self,
        batch: &Batch,
        reason: &str,
        again: &mut VecDeque<Item>,
        events: &mut BackEvents,
    ) {
        let effect = self.stability.effect();
        for session in batch.marks.keys() {
            self.late.remove(session);
        }
        let unmarked = self.unmarked.take();
        let last = batch.items.iter().filter_map(|item| item.ticket).max().max(unmarked);
        for (index, item) in batch.items.iter().enumerate() {
            match item.nature {
                Nature::Record(_) => self.waiters.push_back((effect, Waiter::Recorded(item.session))),
                Nature::Delete => self.waiters.push_back((effect, Waiter::Deleted(item.session))),
                Nature::Flush => {}
                _ if !item.writes && !writes_later(&batch.items[index..], item) => {
                    self.try_again(item.clone(), reason, again, events);
                }
                _ => match item.fixed_replies() {
                    Some(replies) => self.reply_to_all(item, &replies, events),
                    None => self.answer_gone(item, reason, events),
                },
            }
        }
        self.waiters.extend(last.map(|ticket| (effect, Waiter::Ticket(ticket))));
    }

    fn answer_gone(&mut self, item: &Item, reason: &str, events: &mut BackEvents) {
        let text = format!("ERR scotfree: {reason}; whether the command ran can be seen in the data");
        let (error, flags) = (error_reply(&text), ResponseFlags::CLOSE);
        if item.is_pack() {
            let errors = vec![error.as_slice(); item.open_commands().count()];
            self.reply_to_parts(item, &errors, flags, events);
        } else {
            self.reply(item, &error, flags, events);
        }
    }

    /// What was on its way on a lane of a client's own has an unknown outcome.
    fn break_private(&mut self, id: LaneId, reason: &str, events: &mut BackEvents) {
        self.close(id, events);
        if self.active != Some(id) {
            return;
        }
        let mut lost: VecDeque<Item> = std::mem::take(&mut self.direct);
        lost.extend(self.batch.take().into_iter().flat_map(|batch| batch.items));
        self.solo = false;
        let reason = format!("the connection to the server broke: {}", line(&error_reply(reason)));
        for item in lost {
            if item.writes {
                let reason = format!("a write on a connection of its own has an unknown outcome: {reason}");
                events.push(BackEvent::SessionFailed { session: item.session, reason });
                self.markers.sessions.remove(&item.session);
            }
            self.answer_gone(&item, &reason, events);
        }
    }
}

/// Whether a read, were it repeated now, would see what its own session wrote after it.
fn writes_later(later: &[Item], read: &Item) -> bool {
    later.iter().any(|item| item.writes && item.session == read.session)
}

/// A transaction's positions are stored with its effects, so they tell whether it was executed. One that
/// has none changes nothing that could not be done again.
fn was_executed(batch: &Batch, markers: &Markers) -> bool {
    batch.marks.iter().any(|(session, position)| {
        markers.sessions.get(session).is_some_and(|marker| marker.position >= *position)
    })
}

/// What an operator is shown of what the server said.
fn quoted(bytes: &[u8]) -> String {
    let shown = bytes[..bytes.len().min(QUOTE_BYTES_MAX)].escape_ascii();
    let more = if bytes.len() > QUOTE_BYTES_MAX { " …" } else { "" };
    format!("`{shown}`{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_the_server_said_the_beginning_is_shown() {
        assert_eq!(quoted(b"HTTP/1.1 400\r\n"), r"`HTTP/1.1 400\r\n`");
        assert_eq!(quoted(&[b'x'; QUOTE_BYTES_MAX]), format!("`{}`", "x".repeat(QUOTE_BYTES_MAX)));
        assert_eq!(quoted(&[b'x'; QUOTE_BYTES_MAX + 1]), format!("`{}` …", "x".repeat(QUOTE_BYTES_MAX)));
    }
}
