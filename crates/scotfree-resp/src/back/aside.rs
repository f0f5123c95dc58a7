//! What is asked of the server beside the order: whether it would queue a command inside MULTI, and whatever clients
//! ask while a script takes so long that the server answers nothing but BUSY.
//!
//! Invariant: nothing of it has changed data, or says anything of them, so it may overtake what came before it.

use super::lane::{Expected, LaneState};
use super::replies::{line, push_reply};
use super::{Back, BackEvent, BackEvents, Item, Nature};
use crate::codec::{error_reply, is_error};
use crate::payload::{RequestFlags, ResponseFlags};
use scotfree_core::SessionId;
use std::collections::{BTreeSet, VecDeque};

/// How far the first question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    #[default]
    Waiting,
    /// MULTI is sent. Were it refused, the command behind it would run.
    Multi,
    Sent,
}

/// Questions, of which the first is on its way.
#[derive(Debug, Default)]
pub(super) struct Aside {
    items: VecDeque<Item>,
    step: Step,
}

impl Aside {
    /// Whether its lane is inside MULTI, where nothing else may be said.
    pub fn is_in_multi(&self) -> bool {
        self.step == Step::Multi
    }

    pub fn ask(&mut self, item: Item) {
        self.items.push_back(item);
    }
}

impl Back {
    /// Sends what need not wait for its turn, and answers what the server would only say BUSY to.
    pub(super) fn pass_by(&mut self, events: &mut BackEvents) {
        self.pass_busy(events);
        self.send_aside();
    }

    /// The first item needs no turn.
    pub(super) fn move_aside(&mut self) -> bool {
        self.aside.items.extend(self.queue.pop_front());
        true
    }

    fn send_aside(&mut self) {
        let Some(item) = self.aside.items.front().filter(|_| self.aside.step == Step::Waiting) else {
            return;
        };
        let Some(lane) = self.control.and_then(|id| self.lanes.get_mut(id)) else { return };
        if lane.state != LaneState::Ready {
            return;
        }
        if item.nature == Nature::Ask {
            lane.say(&[b"MULTI"], Expected::Aside);
            self.aside.step = Step::Multi;
            return;
        }
        // What else is said on this lane is read as RESP2.
        lane.speak(item.request.head.resp());
        lane.output.extend_from_slice(item.request.bytes(&item.payload, 0));
        lane.expected.push_back(Expected::Aside);
        lane.speak(2);
        self.aside.step = Step::Sent;
    }

    pub(super) fn on_aside(&mut self, reply: &[u8], events: &mut BackEvents) {
        let lane = self.control.and_then(|id| self.lanes.get_mut(id));
        if let (Step::Multi, Some(lane), Some(item), false) =
            (self.aside.step, lane, self.aside.items.front(), is_error(reply))
        {
            lane.output.extend_from_slice(item.request.bytes(&item.payload, 0));
            lane.expected.push_back(Expected::Aside);
            lane.say(&[b"DISCARD"], Expected::Ignored);
            self.aside.step = Step::Sent;
            return;
        }
        self.aside.step = Step::Waiting;
        if let Some(item) = self.aside.items.pop_front() {
            self.answer_aside(&item, reply, events);
        }
        self.send_aside();
    }

    /// While a script takes too long, a read that would have to wait for its turn is answered as Redis answers it:
    /// with BUSY, or with what it answers in spite of that. Writes wait: a device or a log may hold them already.
    fn pass_busy(&mut self, events: &mut BackEvents) {
        let Some(busy) = self.health.busy.clone().filter(|_| self.batch.is_some() && self.singly == 0) else {
            return;
        };
        let batched = self.batch.iter().flat_map(|batch| &batch.items);
        let mut writers: BTreeSet<(SessionId, u32)> = batched.flat_map(owners).collect();
        for item in std::mem::take(&mut self.queue) {
            let is_behind = owners(&item).any(|owner| writers.contains(&owner));
            if !may_pass(&item) || is_behind {
                writers.extend(owners(&item));
                self.queue.push_back(item);
            } else if answers_in_spite(&item) {
                self.aside.ask(item);
            } else {
                self.answer_busy(&item, &busy, events);
            }
        }
    }

    fn answer_busy(&mut self, item: &Item, busy: &[u8], events: &mut BackEvents) {
        let Some(ticket) = item.ticket else { return };
        events.push(BackEvent::Independent { ticket });
        let held = self.hold_until.take();
        if item.is_transaction() {
            let text = format!("EXECABORT Transaction discarded because of: {}", line(busy));
            self.reply(item, &error_reply(&text), ResponseFlags::NONE, events);
        } else {
            let all = vec![busy; item.open_commands().count()];
            self.reply_to_all(item, &all, events);
        }
        self.hold_until = held;
    }

    /// At once, also where other replies are held: it depends on none of them.
    fn answer_aside(&mut self, item: &Item, reply: &[u8], events: &mut BackEvents) {
        let Some(ticket) = item.ticket else { return };
        let mut response = Vec::new();
        let flags = self.with_word_of_early(ResponseFlags::NONE);
        self.write_reply(item, ticket, reply, flags, &mut response);
        self.counters.executed += 1;
        events.push(BackEvent::Independent { ticket });
        push_reply(ticket, is_error(reply), &response, events);
    }
}

/// The client connections whose commands an item carries.
fn owners(item: &Item) -> impl Iterator<Item = (SessionId, u32)> + '_ {
    let parts = (0..item.request.len().max(1)).map(|command| item.request.part(command).connection);
    parts.map(|connection| (item.session, connection))
}

/// Whether an item only reads, and leaves nothing that its connection goes on with.
fn may_pass(item: &Item) -> bool {
    let reads = item.is_read() && !item.has(RequestFlags::WATCHED);
    reads && matches!(item.nature, Nature::Direct { .. } | Nature::Batched { .. })
}

/// Whether an item ends a pause: it may be what a transaction that is under way waits for.
pub(super) fn is_unpause(item: &Item) -> bool {
    let is_plain = matches!(item.nature, Nature::Direct { inert: false }) && !item.is_pack();
    is_plain && item.private().is_none() && {
        let args = item.request.args(&item.payload, 0);
        args.is(0, "CLIENT") && args.is(1, "UNPAUSE")
    }
}

/// Whether the server answers a command also while a script keeps it busy, without a look at any data.
fn answers_in_spite(item: &Item) -> bool {
    let args = item.request.args(&item.payload, 0);
    let is = |name: &str, sub: &str| args.is(0, name) && args.is(1, sub) && args.len() == 2;
    let plain = !item.is_pack() && !item.is_transaction() && item.private().is_none();
    plain && (is("SCRIPT", "KILL") || is("FUNCTION", "KILL") || is("FUNCTION", "STATS"))
}
