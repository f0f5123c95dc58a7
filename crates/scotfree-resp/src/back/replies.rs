//! What the server's replies lead to.
//!
//! Invariant: each reply belongs to the command that is first among those sent on its lane. A reply that
//! cannot be that command's breaks the lane.

use super::batch::{BatchError, Done, Outcome};
use super::health::{is_of_state, passing, takes_writes_again, waiting, way_in};
use super::item::{Answer, LaneCommand};
use super::lane::Run;
use super::lives::say_life;
use super::markers::{foreign_epoch, integer_reply};
use super::refusals::inner;
use super::start::BUSY_RETRY;
use super::{
    early_obstacle, Back, BackEvent, BackEvents, Batch, Expected, Health, HeldReply, Info, Item, Kept,
    LaneId, LaneState, LateError, Method, Nature, Past, Phase, Progress, Purpose, Refusing, Rewrite,
    Stability, Start, StartReport, StopReason, Waiter,
};
use crate::codec::{drop_room, error_reply, is_error, text_of, write_header, SHARED_KEPT_BYTES_MAX};
use crate::payload::{pack, write_part, write_response, RequestFlags, ResponseFlags};
use scotfree_core::{Nanos, SessionId};
use std::ops::Range;

/// The bytes by which the rest of a reply is asked for.
const NAME_BYTES: usize = 8;

/// The rest of a part's reply is named by its pack's ticket and, above these bits, its place in it.
const PART_NAME_SHIFT: u32 = 48;

impl Back {
    /// Takes one reply; an error says why the lane cannot be trusted any more.
    pub(super) fn on_reply(
        &mut self,
        id: LaneId,
        now: Nanos,
        reply: &[u8],
        events: &mut BackEvents,
    ) -> Result<(), String> {
        let is_first_greeting = self.control == Some(id) && self.is_idle();
        let lane = self.lanes.get_mut(id).ok_or("the lane is closed")?;
        if reply.first() == Some(&b'>') {
            // A message that nobody asked for belongs to no command.
            return Ok(());
        }
        let expected = lane.expected.pop_front().ok_or("the server sent a reply that nothing asked for")?;
        if let Some(what) = passing(reply).filter(|_| is_first_greeting) {
            self.on_busy_greeting(what, now, events);
            return Ok(());
        }
        match expected {
            Expected::Ok | Expected::Epoch if is_error(reply) => self.on_refused(id, &line(reply), events),
            Expected::Ok | Expected::Ignored => Ok(()),
            Expected::Run => {
                let run_id = Info::parse(reply).get("run_id").to_owned();
                lane.run = if !run_id.is_empty() && run_id == self.run_id { Run::Same } else { Run::Unknown };
                Ok(())
            }
            Expected::Epoch => {
                let run = lane.run;
                self.on_stored_epoch(reply, run, events);
                Ok(())
            }
            Expected::ClientId => {
                lane.client_id = integer_reply(reply).ok_or("CLIENT ID answered no number")?;
                lane.state = LaneState::Ready;
                self.on_ready(id, now, events);
                Ok(())
            }
            Expected::Queued => {
                self.batch.as_mut().ok_or("a reply for a transaction that is over")?.on_queued(reply);
                Ok(())
            }
            Expected::Multi => {
                self.on_multi(id, now, reply, events);
                Ok(())
            }
            Expected::Exec => self.on_exec(now, reply, events),
            Expected::Direct => self.on_direct(id, now, reply, events),
            Expected::Life => {
                self.on_life(reply);
                Ok(())
            }
            Expected::Step => self.on_step(id, now, reply, events),
            Expected::Trial => {
                self.health.refusals.on_trial(!is_error(reply));
                Ok(())
            }
            Expected::Aside => {
                self.on_aside(reply, events);
                Ok(())
            }
            Expected::Recovery => {
                self.on_recovery(reply, events);
                self.pump(now, events);
                Ok(())
            }
        }
    }

    /// A new lane has asked for the epoch. A successor would have a higher one, and leave no server without.
    fn on_stored_epoch(&mut self, reply: &[u8], run: Run, events: &mut BackEvents) {
        let text = text_of(reply);
        let found = text.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        if text.is_none() && run == Run::Same {
            self.write_markers_anew(events);
        } else if found != Some(self.markers.epoch) {
            self.stop(foreign_epoch(found, self.markers.epoch), events);
        }
    }

    /// The markers are gone, and the server is in the run in which they were there: somebody has deleted them, or the
    /// server has evicted them. What they said is known here.
    fn write_markers_anew(&mut self, events: &mut BackEvents) {
        let is_under_way = self.batch.as_ref().is_some_and(|batch| batch.rewrites);
        if self.rewrite != Rewrite::Now && !is_under_way {
            self.counters.markers_rewritten += 1;
            events.push(BackEvent::MarkersGone);
        }
        self.rewrite = Rewrite::Now;
    }

    /// What to do about a server that does not let the sidecar in, if that is why the start has ended.
    pub(super) fn refused_greeting(&self, reply: &str) -> Option<String> {
        if !matches!(self.phase, Phase::Idle) {
            return None;
        }
        let user = self.config.credentials.as_ref().map_or("default", |(user, _)| user);
        way_in(reply, user).map(|next| format!("it answers `{reply}`; {next}"))
    }

    /// The server has no time even for a greeting: it is greeted again, until it has.
    fn on_busy_greeting(&mut self, what: &str, now: Nanos, events: &mut BackEvents) {
        if !std::mem::replace(&mut self.busy_said, true) {
            events.push(BackEvent::Waits(waiting(what)));
        }
        self.greet_at = Some(now.plus(BUSY_RETRY));
    }

    fn on_ready(&mut self, id: LaneId, now: Nanos, events: &mut BackEvents) {
        self.on_let_in(id, events);
        match (&self.phase, self.purpose(id)) {
            (Phase::Idle, Some(Purpose::Control)) => {
                self.greet_at = None;
                self.busy_said = false;
                if let Some(lane) = self.lanes.get_mut(id) {
                    self.phase = Phase::Starting(Box::new(Start::begin(lane)));
                }
            }
            (Phase::Settling(_), _) => self.probe_if_due(now, events),
            (Phase::Running, _) => self.pump(now, events),
            _ => {}
        }
    }

    fn on_step(
        &mut self,
        id: LaneId,
        now: Nanos,
        reply: &[u8],
        events: &mut BackEvents,
    ) -> Result<(), String> {
        if self.probe == Some(id) {
            return self.on_probe(now, reply, events);
        }
        if !matches!(self.phase, Phase::Starting(_)) {
            self.on_health(now, reply, events);
            return Ok(());
        }
        let (Phase::Starting(start), Some(lane)) = (&mut self.phase, self.lanes.get_mut(id)) else {
            return Ok(());
        };
        let progress = start.on_reply(now, reply, lane, &self.config);
        self.on_progress(progress, now, events);
        Ok(())
    }

    /// A step of the start has led to something.
    pub(super) fn on_progress(&mut self, progress: Progress, now: Nanos, events: &mut BackEvents) {
        match progress {
            Progress::Going => {}
            Progress::Waits(what) => events.push(BackEvent::Waits(what)),
            Progress::Read(files) => events.push(BackEvent::ReadEnding(files)),
            Progress::Done => self.on_read(now, events),
            Progress::Refused(reasons) => self.stop(StopReason::Refused(reasons), events),
            Progress::Unwilling(reasons) => self.stop(StopReason::Unwilling(reasons), events),
            Progress::Foreign(reason) => self.stop(reason, events),
        }
    }

    /// The markers are read: what is left is to make the epoch stable.
    fn on_read(&mut self, now: Nanos, events: &mut BackEvents) {
        let Phase::Starting(start) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let start = *start;
        let method = Method::of(&start.info, &start.settings, self.config.same_host);
        self.stability = Stability::new(method.clone(), self.config.stable_interval);
        self.cautious_method = match method {
            Method::Never => Method::Never,
            _ => Method::cautious(&start.info, &start.settings, self.config.same_host),
        };
        self.place.db = start.description.reserved_db;
        self.place.databases = start.description.databases;
        start.info.get("run_id").clone_into(&mut self.run_id);
        self.health = Health {
            past: Past::of(&start.info),
            next_at: now.plus(self.config.health_interval),
            ..Health::default()
        };
        self.place.may_expire = start.info.has_expiring_keys(self.place.db);
        self.expiry_seen = false;
        self.health.obstacle = early_obstacle(&start.info).unwrap_or_default();
        self.description = start.description;
        self.told_at = start.told_at;
        self.markers = start.markers;
        self.kept = Kept::of(&self.markers);
        let sessions =
            self.markers.sessions.iter().map(|(session, marker)| (*session, marker.clone())).collect();
        let report = StartReport { epoch: self.markers.epoch, sessions, method, killed: start.killed };
        self.phase = Phase::Settling(Box::new(report));
        self.shared = Some(self.open(Purpose::Shared, events));
        self.probe = Some(self.open(Purpose::Probe, events));
        let effect = self.stability.effect();
        self.waiters.push_back((effect, Waiter::Start));
        self.report_stable(events);
    }

    /// The server has taken a client's MULTI, or has not: then it was sent nothing else.
    fn on_multi(&mut self, id: LaneId, now: Nanos, reply: &[u8], events: &mut BackEvents) {
        if !is_error(reply) {
            let rest = self.batch.as_mut().and_then(|batch| batch.rest.take());
            if let (Some((bytes, expected)), Some(lane)) = (rest, self.lanes.get_mut(id)) {
                lane.may_multi = true;
                lane.output.extend_from_slice(&bytes);
                lane.expected.extend(expected);
            }
            return;
        }
        self.refuse_unmarked(reply, events);
        self.pump(now, events);
    }

    /// A client's transaction was not executed, since its user may not do what its marker is stored by. That concerns
    /// its writes: a read that only shared the transaction needs neither marker nor MULTI.
    fn refuse_unmarked(&mut self, error: &[u8], events: &mut BackEvents) {
        let Some(batch) = self.batch.take() else { return };
        self.restore(&batch);
        self.forget_watch(&batch);
        let is_right = error.starts_with(b"-NOPERM");
        let error = if is_right { no_permission(&self.config.marker_key) } else { error.to_vec() };
        let mut reads = Vec::new();
        for item in batch.items {
            self.consume(&item);
            if item.is_transaction() {
                self.reply(&item, &error, ResponseFlags::NONE, events);
            } else if item.is_read() {
                reads.push(Item { nature: Nature::Direct { inert: false }, ..item });
            } else {
                let errors = vec![error.as_slice(); item.open_commands().count()];
                self.reply_to_all(&item, &errors, events);
            }
        }
        reads.into_iter().rev().for_each(|item| self.queue.push_front(item));
    }

    fn on_exec(&mut self, now: Nanos, reply: &[u8], events: &mut BackEvents) -> Result<(), String> {
        let Some(batch) = self.batch.take() else { return Err("EXEC answered twice".to_owned()) };
        self.health.busy = None;
        match batch.settle(reply) {
            Ok(Outcome::Done(done)) => match first_overtaken(&batch, &done) {
                Some(first) => self.on_overtaken(batch, &done, first, events),
                None => self.on_done(&batch, &done, batch.items.len(), events),
            },
            Ok(Outcome::Unwatched) => self.on_unwatched(batch, reply, events),
            Ok(Outcome::Aborted(reason)) => self.on_aborted(batch, &reason, events),
            Err(BatchError::Marker(error)) => {
                self.stop(StopReason::Markers(error), events);
                return Ok(());
            }
            Err(error @ BatchError::Nonsense) => {
                self.batch = Some(batch);
                return Err(error.to_string());
            }
        }
        if !matches!(self.phase, Phase::Stopped) {
            self.pump(now, events);
            self.probe_if_due(now, events);
        }
        Ok(())
    }

    /// The first `count` items of a transaction are over.
    fn on_done(&mut self, batch: &Batch, done: &Done<'_>, count: usize, events: &mut BackEvents) {
        if done.lost {
            self.write_markers_anew(events);
        }
        for session in batch.marks.keys() {
            self.late.remove(session);
        }
        if batch.writes() {
            self.health.refusals.on_executed();
        }
        let unmarked = if self.late.is_empty() { self.unmarked.take() } else { None };
        let over = &batch.items[..count];
        let last = over.iter().filter_map(|item| item.ticket).max().max(unmarked);
        let effect = if batch.writes() { self.stability.effect() } else { self.stability.done() };
        // Who has an owner knows more; what was executed in part may be set back.
        if self.config.owner.is_none() && count == batch.items.len() {
            self.kept.note(&batch.marks, effect, self.stability.stable());
        }
        for (index, item) in over.iter().enumerate() {
            if done.volatile.contains(&index) && effect > self.stability.stable() {
                // A replay after the key's time would answer something else, so this is said when no
                // replay can happen any more; and so is everything computed from it.
                self.hold_until = Some(effect);
            }
            match item.nature {
                Nature::Record(_) => self.waiters.push_back((effect, Waiter::Recorded(item.session))),
                Nature::Delete => self.waiters.push_back((effect, Waiter::Deleted(item.session))),
                Nature::Flush => {}
                _ => self.reply_to_all(item, done.replies_to(index), events),
            }
        }
        if let Some(ticket) = last {
            self.waiters.push_back((effect, Waiter::Ticket(ticket)));
        }
        self.forget_watch(batch);
        self.report_stable(events);
    }

    /// A right was taken away between the commands of a transaction and its EXEC: from `first` on something that
    /// may have been acknowledged was refused inside it, and its position was stored all the same. That is mended
    /// before anything else is executed.
    ///
    /// Where no write from there on was executed, the positions are set back, alone, and all of it is executed
    /// anew: it is executed, or refused with nothing stored, which ends this machine (rule 11). Where some of them
    /// were, no position says so, and none may be set back, or these would be executed twice: what was refused is
    /// executed at once behind its position, and refused again it is over, with a letter.
    ///
    /// What a crash does: one of the server before the transaction is synced takes effects and positions alike.
    /// One of this process, or of the server when only the transaction is synced, between its EXEC and the next
    /// one (a round trip) leaves positions that speak of what was not executed. Redis has no transaction that says
    /// both, so such transactions are kept so small that they are read at once, and this is only met with a single
    /// request that is larger, or a server on another host.
    fn on_overtaken(&mut self, mut batch: Batch, done: &Done<'_>, first: usize, events: &mut BackEvents) {
        let is_executed = |index: usize| batch.items[index].writes && !is_overtaken(&batch, done, index);
        if (first..batch.items.len()).any(is_executed) {
            return self.retry_overtaken(batch, done, events);
        }
        for (session, position) in &batch.positions_before {
            let is_of = |item: &&Item| item.writes && item.session == *session;
            let last = batch.items[..first].iter().filter(is_of).map(|item| item.seq).max();
            if let Some(marker) = self.markers.sessions.get_mut(session) {
                marker.position = last.unwrap_or(*position).max(*position);
            }
        }
        self.on_done(&batch, done, first, events);
        let again = batch.items.split_off(first);
        // Singly, so that the positions go alone as well.
        self.singly += again.len() + 1;
        again.into_iter().rev().for_each(|item| self.queue.push_front(item));
        self.queue.push_front(Item { is_replayed: true, ..Item::own(SessionId(0), Nature::Flush) });
        self.rewrite = Rewrite::Now;
    }

    /// Executes at once, behind its position, what was refused inside a transaction that has executed what is
    /// behind it.
    fn retry_overtaken(&mut self, mut batch: Batch, done: &Done<'_>, events: &mut BackEvents) {
        let overtaken: Vec<bool> =
            (0..batch.items.len()).map(|index| is_overtaken(&batch, done, index)).collect();
        let mut again = Vec::new();
        for (item, is_overtaken) in batch.items.iter_mut().zip(overtaken) {
            if is_overtaken {
                again.push(Item { is_replayed: false, is_counted: true, ..item.clone() });
                // Here it has no answer yet.
                (item.ticket, item.nature) = (None, Nature::Flush);
            }
        }
        self.on_done(&batch, done, batch.items.len(), events);
        self.singly += again.len();
        again.into_iter().rev().for_each(|item| self.queue.push_front(item));
    }

    /// EXEC was refused because a watched key had changed: nothing was executed.
    fn on_unwatched(&mut self, batch: Batch, reply: &[u8], events: &mut BackEvents) {
        self.restore(&batch);
        self.forget_watch(&batch);
        for item in batch.items {
            self.consume(&item);
            self.reply(&item, reply, ResponseFlags::NONE, events);
        }
    }

    fn on_aborted(&mut self, batch: Batch, reason: &[u8], events: &mut BackEvents) {
        self.counters.aborted += 1;
        self.restore(&batch);
        if batch.items.len() == 1 {
            self.on_single_aborted(batch, reason, events);
            return;
        }
        // One of them was refused, or all were: run singly, each meets its own fate.
        self.singly += batch.items.len();
        for item in batch.items.into_iter().rev() {
            self.queue.push_front(item);
        }
    }

    fn on_single_aborted(&mut self, batch: Batch, reason: &[u8], events: &mut BackEvents) {
        let refused: Vec<(usize, Vec<u8>)> =
            batch.refusals_of(0).map(|(command, error)| (command, error.to_vec())).collect();
        let batch_refusal = batch.refusals.first().map(|(_, error)| error.clone());
        self.forget_watch(&batch);
        let Some(item) = batch.items.into_iter().next() else { return };
        // The first of several refusals may be of a command that is refused whenever it is asked.
        let said = batch.refusals.iter().map(|(_, error)| error.clone()).chain([inner(reason)]);
        if let Some(error) = said.into_iter().find(|error| is_no_answer(&item, error)) {
            return self.stop(self.refuses_replay(&error), events);
        }
        match item.nature {
            Nature::Flush => {
                if item.is_replayed {
                    // The positions cannot be set back, so what is refused again is over, with a letter.
                    let overtaken = self.queue.iter_mut().take(self.singly);
                    overtaken
                        .filter(|item| item.is_replayed)
                        .for_each(|item| (item.is_replayed, item.is_counted) = (false, true));
                }
                return self.give_up_markers(events);
            }
            Nature::Record(_) | Nature::Delete => {
                // The first refusal says why; EXEC's answer only that there was one.
                let error = batch_refusal.unwrap_or_else(|| inner(reason));
                self.learn(&item, &error, events);
                let error = line(&error);
                self.markers.sessions.remove(&item.session);
                events.push(marker_not_stored(&item, error));
                return;
            }
            _ => {}
        }
        if item.is_pack() && !refused.is_empty() {
            return self.on_parts_refused(item, refused, events);
        }
        let refusal = refused.into_iter().next().map(|(_, error)| error);
        // If no command was refused, it was what stores the marker, or EXEC itself.
        let other = batch_refusal.unwrap_or_else(|| inner(reason));
        let cause = Refusing::of(&other);
        let takes_no_marker =
            refusal.is_none() && matches!(cause, Some(Refusing::NoReplicas | Refusing::Files));
        let of_marker = || match cause {
            Some(Refusing::Right) => no_permission(&self.config.marker_key),
            _ if takes_no_marker => other.clone(),
            _ => inner(reason),
        };
        let error = refusal.unwrap_or_else(of_marker);
        if takes_no_marker && !item.is_transaction() {
            // A setting that ends that state, a script, a message: no write to the server, so nothing refuses it.
            self.run_bare(item);
        } else if item.is_transaction() {
            let text = abort_text(&error, reason);
            self.consume(&item);
            self.reply(&item, &text, ResponseFlags::NONE, events);
        } else if error.starts_with(b"-OOM") && !item.open_commands().any(|command| item.may_grow(command)) {
            self.run_bare(item);
        } else {
            self.consume(&item);
            let errors = vec![error.as_slice(); item.open_commands().count()];
            self.reply_to_all(&item, &errors, events);
        }
    }

    /// Runs next what the server takes although it takes no marker now.
    fn run_bare(&mut self, item: Item) {
        self.counters.bare += 1;
        self.queue.push_front(Item { nature: Nature::Bare, ..item });
    }

    /// The server takes no writes although it was let begin: what only the log holds is executed when it does.
    fn refuses_replay(&self, error: &[u8]) -> StopReason {
        if let Some(what) = passing(error) {
            return StopReason::Lost(format!("what the log holds is executed anew when it can be: {what}"));
        }
        let user = self.config.credentials.as_ref().map_or("default", |(user, _)| user);
        let (said, next) = (line(error), takes_writes_again(error, user));
        StopReason::Unwilling(vec![format!(
            "it refuses what the log holds and has to be executed anew: {said}; nothing was given up; {next}"
        )])
    }

    /// Nothing of a pack was executed, since the server refuses some of its parts: they have their answers, and the
    /// others are run without them. Where memory is used up it refuses whatever is inside MULTI: then those that
    /// need none run without a marker, and no others.
    fn on_parts_refused(&mut self, mut item: Item, refused: Vec<(usize, Vec<u8>)>, events: &mut BackEvents) {
        let (memory, others): (Vec<_>, Vec<_>) =
            refused.into_iter().partition(|(_, error)| error.starts_with(b"-OOM"));
        for (command, error) in others {
            item.answers[command] = Some(Answer::plain(&error));
        }
        let is_full = !memory.is_empty();
        if let Some((_, error)) = memory.into_iter().next() {
            let growing: Vec<usize> =
                item.open_commands().filter(|command| item.may_grow(*command)).collect();
            for command in growing {
                item.answers[command] = Some(Answer::plain(&error));
            }
        }
        if item.open_commands().next().is_none() {
            self.consume(&item);
            self.reply_to_all(&item, &[], events);
        } else if is_full {
            self.run_bare(item);
        } else {
            self.queue.push_front(item);
        }
    }

    /// The markers that are behind cannot be stored now: what they stand for is as durable as the server
    /// alone makes it. They go with the next transaction that succeeds.
    fn give_up_markers(&mut self, events: &mut BackEvents) {
        if let Some(ticket) = self.unmarked.take() {
            self.waiters.push_back((self.stability.done(), Waiter::Ticket(ticket)));
            self.report_stable(events);
        }
    }

    /// Takes back what a transaction that was not executed had done to the table of markers.
    pub(super) fn restore(&mut self, batch: &Batch) {
        for (session, position) in &batch.positions_before {
            if let Some(marker) = self.markers.sessions.get_mut(session) {
                marker.position = *position;
            }
        }
        if batch.rewrites {
            self.rewrite = Rewrite::WithNext;
        }
        if let Some(lane) = self.active.and_then(|id| self.lanes.get_mut(id)) {
            lane.db = batch.db_before;
        }
    }

    fn forget_watch(&mut self, batch: &Batch) {
        if !batch.items.iter().any(|item| item.has(RequestFlags::WATCHED)) {
            return;
        }
        if let Some(lane) = self.active.and_then(|id| self.lanes.get_mut(id)) {
            lane.watches = false;
        }
    }

    fn on_direct(
        &mut self,
        id: LaneId,
        now: Nanos,
        reply: &[u8],
        events: &mut BackEvents,
    ) -> Result<(), String> {
        let asked = self.direct.front_mut().ok_or("a reply for a command that is over")?;
        let flags = ResponseFlags::NONE.with_if(asked.nature == Nature::Bare, ResponseFlags::DURABILITY_NONE);
        if asked.is_pack() && !asked.answer_next(Answer { reply: reply.to_vec(), flags }) {
            return Ok(());
        }
        let Some(item) = self.direct.pop_front() else { return Ok(()) };
        if is_no_answer(&item, reply) {
            self.stop(self.refuses_replay(reply), events);
            return Ok(());
        }
        match item.nature {
            Nature::OnLane(command) => self.on_lane_command(id, command, reply),
            Nature::Solo | Nature::Bare => {
                self.solo = false;
                self.stability.effect();
                if item.flushes_all() {
                    self.rewrite = Rewrite::Now;
                }
            }
            _ => {}
        }
        self.consume(&item);
        if item.is_pack() {
            self.reply_to_all(&item, &[], events);
        } else {
            self.reply(&item, reply, flags, events);
        }
        if item.has(RequestFlags::RELEASE) && self.direct.is_empty() {
            self.close(id, events);
        }
        self.pump(now, events);
        Ok(())
    }

    fn on_lane_command(&mut self, id: LaneId, command: LaneCommand, reply: &[u8]) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        match command {
            LaneCommand::Auth { user } if !is_error(reply) => lane.has_user = user,
            LaneCommand::Watch => lane.watches = lane.watches || !is_error(reply),
            LaneCommand::Unwatch => lane.watches = false,
            LaneCommand::Auth { .. } | LaneCommand::Ask => {}
        }
    }

    /// A request is over, with this to all that it asked.
    pub(super) fn reply(&mut self, item: &Item, reply: &[u8], flags: ResponseFlags, events: &mut BackEvents) {
        let Some(ticket) = item.ticket else { return };
        let failed = is_error(reply);
        if failed && item.is_pack() {
            (0..item.request.len())
                .for_each(|command| self.note_error(item, command..command + 1, reply, events));
        } else if failed {
            self.note_error(item, 0..item.request.len(), reply, events);
        }
        let flags = self.with_word_of_early(flags);
        say_life(item, reply, events);
        let mut response = std::mem::take(&mut self.scratch);
        response.clear();
        self.write_reply(item, ticket, reply, flags, &mut response);
        self.respond(ticket, failed, response, events);
    }

    /// A request is over, with these replies to its commands; of a pack, to those that have no answer yet.
    pub(super) fn reply_to_all(&mut self, item: &Item, replies: &[&[u8]], events: &mut BackEvents) {
        if item.is_pack() {
            return self.reply_to_parts(item, replies, ResponseFlags::NONE, events);
        }
        if let ([reply], false) = (replies, item.is_transaction()) {
            return self.reply(item, reply, ResponseFlags::NONE, events);
        }
        let mut whole = Vec::new();
        if item.is_transaction() {
            write_header(&mut whole, item.request.len());
        }
        for reply in replies {
            whole.extend_from_slice(reply);
        }
        self.reply(item, &whole, ResponseFlags::NONE, events);
    }

    /// A pack is over: what its parts were answered before, and `replies`, with `flags`, for the others.
    pub(super) fn reply_to_parts(
        &mut self,
        item: &Item,
        replies: &[&[u8]],
        flags: ResponseFlags,
        events: &mut BackEvents,
    ) {
        let Some(ticket) = item.ticket else { return };
        let mut fresh = replies.iter().copied();
        let mut response = std::mem::take(&mut self.scratch);
        response.clear();
        let is_bare = |answer: &Answer| answer.flags.has(ResponseFlags::DURABILITY_NONE);
        let is_bare = item.answers.iter().flatten().any(is_bare);
        let of_pack = ResponseFlags::NONE.with_if(is_bare, ResponseFlags::DURABILITY_NONE);
        pack::write_pack_response(&mut response, self.with_word_of_early(of_pack));
        let names_and_heads = pack::response_bytes(item.answers.len()) + item.answers.len() * NAME_BYTES;
        let refusals = self.room_of_refusals(item, replies);
        let mut room = self.config.reply_bytes_max.saturating_sub(names_and_heads + refusals);
        let mut failed = false;
        for (command, known) in item.answers.iter().enumerate() {
            let (reply, flags) = match known {
                Some(answer) => (answer.reply.as_slice(), answer.flags),
                None => (fresh.next().unwrap_or_default(), flags),
            };
            if is_error(reply) {
                failed = true;
                self.note_error(item, command..command + 1, reply, events);
            }
            let flags = self.with_word_of_early(flags);
            let owner = (item.session, item.request.part(command).connection);
            let name = ticket | (command as u64 + 1) << PART_NAME_SHIFT;
            pack::write_response_part(&mut response, |out| {
                room -= self.write_within(room, (item, owner), name, (reply, flags), out);
            });
        }
        self.counters.packed += item.answers.len() as u64;
        self.respond(ticket, failed, response, events);
    }

    /// Writes a reply, or what it is asked for by if there is no room for it; returns how much room it took.
    fn write_within(
        &mut self,
        room: usize,
        (item, owner): (&Item, (SessionId, u32)),
        name: u64,
        (reply, flags): (&[u8], ResponseFlags),
        out: &mut Vec<u8>,
    ) -> usize {
        if reply.len() <= room {
            write_response(out, flags, reply);
            return reply.len();
        }
        let bytes_max = self.config.parts_bytes_max;
        if self.parts.keep_reply(owner, name, reply, 0, bytes_max) {
            write_part(out, flags, name, &[]);
        } else {
            write_response(out, flags, &self.too_large(item, reply));
        }
        0
    }

    /// What an error says of the server. A script says what it likes, and a client's user may have fewer rights than
    /// who is answered early.
    fn learn(&mut self, item: &Item, error: &[u8], events: &mut BackEvents) {
        let Some(cause) = Refusing::of(error) else { return };
        let is_own = match cause {
            Refusing::Right => item.has(RequestFlags::EARLY),
            Refusing::LockedOut => item.private().is_none(),
            _ => true,
        };
        let is_record = matches!(item.nature, Nature::Record(_));
        if is_own && (item.writes || is_record) && !item.runs_script() {
            self.learn_refusal(cause, error, events);
        }
    }

    /// Commands are answered with an error. If the answer was given early, it turned out to be wrong.
    fn note_error(&mut self, item: &Item, commands: Range<usize>, reply: &[u8], events: &mut BackEvents) {
        self.learn(item, &inner(reply), events);
        if item.has(RequestFlags::EARLY) || item.is_counted {
            self.counters.late_errors += 1;
            let commands = commands.map(|command| item.words(command)).collect();
            let (session, seq, error) = (item.session, item.seq, line(reply));
            events.push(BackEvent::LateError(LateError { session, seq, error, commands }));
        }
    }

    pub(super) fn with_word_of_early(&self, flags: ResponseFlags) -> ResponseFlags {
        flags.with_if(self.health.is_well(), ResponseFlags::EARLY_ALLOWED)
    }

    /// Gives a response out, or keeps it until it can be.
    fn respond(&mut self, ticket: u64, failed: bool, mut response: Vec<u8>, events: &mut BackEvents) {
        self.counters.executed += 1;
        if let Some(effect) = self.hold_until {
            self.counters.held += 1;
            self.held.push_back(HeldReply { ticket, failed, response });
            self.waiters.push_back((effect, Waiter::Held));
            return;
        }
        push_reply(ticket, failed, &response, events);
        response.clear();
        drop_room(&mut response, SHARED_KEPT_BYTES_MAX);
        self.scratch = response;
    }

    /// Writes a reply, or the first part of one that is too large.
    pub(super) fn write_reply(
        &mut self,
        item: &Item,
        ticket: u64,
        reply: &[u8],
        flags: ResponseFlags,
        out: &mut Vec<u8>,
    ) {
        let (part_max, bytes_max) = (self.config.reply_bytes_max, self.config.parts_bytes_max);
        if reply.len() <= part_max || item.nature == Nature::Rest {
            return write_response(out, flags, reply);
        }
        if self.parts.keep_reply(item.owner(), ticket, reply, part_max, bytes_max) {
            return write_part(out, flags, ticket, &reply[..part_max]);
        }
        write_response(out, flags, &self.too_large(item, reply));
    }

    fn release_held(&mut self, events: &mut BackEvents) {
        let Some(HeldReply { ticket, failed, response }) = self.held.pop_front() else { return };
        push_reply(ticket, failed, &response, events);
    }

    /// Somebody waits for effects to be stable.
    pub(super) fn somebody_waits(&self) -> bool {
        self.wants_stable || self.waiters.iter().any(|(_, waiter)| !matches!(waiter, Waiter::Ticket(_)))
    }

    pub(super) fn report_stable(&mut self, events: &mut BackEvents) {
        let mut stable = None;
        while let Some((effect, waiter)) = self.waiters.front().copied() {
            if effect > self.stability.stable() {
                break;
            }
            self.waiters.pop_front();
            match waiter {
                Waiter::Ticket(ticket) => stable = stable.max(Some(ticket)),
                Waiter::Recorded(session) => events.push(BackEvent::SessionRecorded(session)),
                Waiter::Deleted(session) => events.push(BackEvent::SessionDeleted(session)),
                Waiter::Held => self.release_held(events),
                Waiter::Start => self.started(events),
            }
        }
        if self.hold_until.is_some_and(|effect| effect <= self.stability.stable()) {
            self.hold_until = None;
        }
        if let Some(ticket) = stable {
            events.push(BackEvent::Stable { ticket });
        }
    }

    fn started(&mut self, events: &mut BackEvents) {
        if let Phase::Settling(report) = std::mem::replace(&mut self.phase, Phase::Running) {
            events.push(BackEvent::Started(report));
            let reason = self.health.obstacle.clone();
            events.push(BackEvent::Early { allowed: reason.is_empty(), reason });
        }
    }
}

/// Whether an error says of a write that is executed anew only that the server takes none at present.
fn is_no_answer(item: &Item, error: &[u8]) -> bool {
    item.is_replayed && item.nature != Nature::Flush && is_of_state(error)
}

/// Whether all that an item asked was refused inside a transaction for what the server is now.
fn is_overtaken(batch: &Batch, done: &Done<'_>, index: usize) -> bool {
    let replies = done.replies_to(index);
    batch.items[index].is_replayed && !replies.is_empty() && replies.iter().all(|reply| is_of_state(reply))
}

/// The first item of a transaction of which that is so.
fn first_overtaken(batch: &Batch, done: &Done<'_>) -> Option<usize> {
    (0..batch.items.len()).find(|index| is_overtaken(batch, done, *index))
}

/// What EXEC is answered whose transaction the server has refused to us: clients were told QUEUED, so the server's
/// state, or the right that is missing, is said as Redis says it at EXEC.
fn abort_text(error: &[u8], reason: &[u8]) -> Vec<u8> {
    let of_its_own =
        ["-OOM", "-MISCONF", "-NOREPLICAS", "-READONLY", "-MASTERDOWN", "-LOADING", "-BUSY", "-NOPERM"];
    let text = line(error);
    if of_its_own.iter().any(|code| error.starts_with(code.as_bytes())) {
        error_reply(&format!("EXECABORT Transaction discarded because of: {text}"))
    } else if reason.starts_with(b"-EXECABORT") {
        reason.to_vec()
    } else {
        b"-EXECABORT Transaction discarded because of previous errors.\r\n".to_vec()
    }
}

pub(super) fn push_reply(ticket: u64, failed: bool, response: &[u8], events: &mut BackEvents) {
    let start = events.bytes.len();
    events.bytes.extend_from_slice(response);
    events.push(BackEvent::Reply { ticket, failed, response: start..events.bytes.len() });
}

/// The first line of a reply, without its type.
pub(super) fn line(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply.get(1..).unwrap_or_default());
    text.lines().next().unwrap_or_default().to_owned()
}

fn marker_not_stored(item: &Item, error: String) -> BackEvent {
    let session = item.session;
    if matches!(item.nature, Nature::Record(_)) && error.starts_with("OOM") {
        return BackEvent::SessionRefused { session, error };
    }
    BackEvent::SessionFailed { session, reason: format!("its marker cannot be stored: {error}") }
}

/// What a user of its own is told whose writes cannot be marked.
fn no_permission(marker_key: &str) -> Vec<u8> {
    error_reply(&format!(
        "NOPERM scotfree: this user may not store its marker, so its writes, scripts and transactions cannot run \
         exactly once; if it is to write, run: ACL SETUSER <user> +multi +exec +select +hset ~{marker_key}"
    ))
}
