//! Looks at the server: what is stable, and whether the promises can still be kept.
//!
//! Invariant: both kinds of questions go on lanes of their own, so they never wait behind a client's
//! command, and one of each kind is under way at a time.

use super::default_user::DefaultUser;
use super::health::{
    early_obstacle, evicts, never_syncs, no_master, passing, waiting, way_in, Info, Settings, NEVER_SYNCS,
};
use super::lane::{Expected, LaneState};
use super::markers::integer_reply;
use super::refusals::said_by_info;
use super::replies::line;
use super::stability::{Ask, Method};
use super::start::time_ms;
use super::{Back, BackEvent, BackEvents, Batch, Item, Phase, Refused, Refusing, StopReason};
use crate::codec::is_error;
use crate::expiry;
use scotfree_core::Nanos;

/// A time that does not come: the year 3000.
const PROBE_DEADLINE_MS: &[u8] = b"32503680000000";

impl Back {
    pub(super) fn probe_is_ready(&self) -> bool {
        let lane = self.probe.and_then(|id| self.lanes.get(id));
        lane.is_some_and(|lane| lane.state == LaneState::Ready)
    }

    pub(super) fn probe_if_due(&mut self, now: Nanos, events: &mut BackEvents) {
        if !self.probe_is_ready() || self.description.writes_refused.is_some() {
            return;
        }
        if let Some(ask) = self.stability.next(now, self.somebody_waits()) {
            self.ask(ask, events);
        }
        // With "always" and without a file there is nothing to ask.
        self.report_stable(events);
    }

    /// What probes write.
    fn probe_key(&self) -> Vec<u8> {
        [self.place.key.as_slice(), b":probe"].concat()
    }

    fn ask(&mut self, ask: Ask, events: &mut BackEvents) {
        let key = self.probe_key();
        let Some(lane) = self.probe.and_then(|id| self.lanes.get_mut(id)) else { return };
        match ask {
            Ask::Info => lane.say(&[b"INFO", b"persistence"], Expected::Step),
            Ask::WaitAof => {
                // WAITAOF waits for what its own connection has written, so that has to be something; and
                // not in the hash of markers, which may be a successor's already.
                lane.enter(self.place.db, 2);
                lane.say(&[b"SET", &key, b"1"], Expected::Ignored);
                // With memory used up SET is refused; this is not, if there was a key before.
                lane.say(&[b"PEXPIREAT", &key, PROBE_DEADLINE_MS], Expected::Step);
                self.probe_wrote = false;
                lane.say(&[b"WAITAOF", b"1", b"0", b"0"], Expected::Step);
            }
            Ask::Sync(files) => events.push(BackEvent::Sync(files)),
        }
    }

    pub(super) fn on_probe(
        &mut self,
        now: Nanos,
        reply: &[u8],
        events: &mut BackEvents,
    ) -> Result<(), String> {
        if is_error(reply) {
            self.stability.failed(now);
        } else if let Some(changed) = integer_reply(reply) {
            self.probe_wrote = changed == 1;
        } else if reply.first() == Some(&b'*') {
            let synced = crate::codec::elements(reply)
                .next()
                .and_then(integer_reply)
                .ok_or("WAITAOF answered nonsense")?;
            if synced >= 1 && self.probe_wrote {
                self.stability.on_synced(now);
            } else {
                self.stability.failed(now);
            }
            self.report_stable(events);
        } else if let Some(ask) = self.stability.on_info(now, &Info::parse(reply)) {
            self.ask(ask, events);
        }
        Ok(())
    }

    /// Asks how the server is, if it is time.
    pub(super) fn check_health_if_due(&mut self, now: Nanos) {
        let due = matches!(self.phase, Phase::Running)
            && self.health.replies.is_none()
            && !self.aside.is_in_multi()
            && now >= self.health.next_at;
        let expects_expiry = due && self.expects_expiry();
        let Some(lane) = self.control.filter(|_| due).and_then(|id| self.lanes.get_mut(id)) else { return };
        if lane.state != LaneState::Ready {
            return;
        }
        self.health.replies = Some(0);
        self.health.is_spoiled = false;
        self.health.batches = self.counters.batches;
        let configures = |batch: &Batch| batch.items.iter().any(Item::configures);
        self.health.is_fresh = !self.batch.as_ref().is_some_and(configures);
        self.health.settings = Settings::default();
        self.health.error = None;
        // Whatever sets a time to live from here on may be missing in the answer, and what waits for its turn.
        self.expiry_seen = expects_expiry;
        lane.say(&[b"INFO"], Expected::Step);
        lane.say(&[b"TIME"], Expected::Step);
        lane.say(&[b"ACL", b"GETUSER", b"default"], Expected::Step);
        for name in Settings::NAMES {
            lane.say(&[b"CONFIG", b"GET", name.as_bytes()], Expected::Step);
        }
        self.health.refusals.begin_round(now);
        self.try_write();
    }

    /// Whether something that waits, or is under way, may give a key a time to live.
    fn expects_expiry(&self) -> bool {
        let batched = self.batch.iter().flat_map(|batch| &batch.items);
        let mut items = self.queue.iter().chain(&self.direct).chain(batched);
        items.any(|item| item.request.all(&item.payload).any(expiry::may_set))
    }

    /// After a refusal a write is tried each time, since nobody else may write where this is said not to serve. It
    /// changes nothing but what a probe has written, and has the lane of probes: while the server holds writes up
    /// (CLIENT PAUSE) the other one is needed.
    fn try_write(&mut self) {
        if !self.health.refusals.wants_trial() || !self.probe_is_ready() {
            return;
        }
        let key = self.probe_key();
        let Some(lane) = self.probe.and_then(|id| self.lanes.get_mut(id)) else { return };
        if !lane.expected.contains(&Expected::Trial) {
            lane.enter(self.place.db, 2);
            lane.say(&[b"SET", &key, b"1", b"XX"], Expected::Trial);
        }
    }

    /// A write was refused for a state of the server's: it would refuse what is answered early from now on, too.
    pub(super) fn learn_refusal(&mut self, cause: Refusing, error: &[u8], events: &mut BackEvents) {
        self.health.refusals.add(cause, error);
        if cause == Refusing::Replica {
            // Before it is a master again, and perhaps has other data.
            self.health.next_at = Nanos(0);
        }
        if let Some(obstacle) = self.health.refusals.obstacle().filter(|_| self.health.obstacle.is_empty()) {
            self.set_obstacle(obstacle, events);
        }
        if self.health.refused.is_none() {
            self.set_refused(self.health.refusals.refused().cloned(), events);
        }
    }

    fn set_refused(&mut self, refused: Option<Refused>, events: &mut BackEvents) {
        let cause = |refused: &Option<Refused>| refused.as_ref().map(|refused| refused.cause);
        if cause(&refused) != cause(&self.health.refused) {
            self.health.refused.clone_from(&refused);
            events.push(BackEvent::Refuses { refused });
        }
    }

    pub(super) fn on_health(&mut self, now: Nanos, reply: &[u8], events: &mut BackEvents) {
        let Some(count) = self.health.replies else { return };
        if is_error(reply) && !DefaultUser::is_unknown(reply) {
            self.health.error.get_or_insert_with(|| reply.to_vec());
        }
        if reply.starts_with(b"-BUSY ") {
            self.health.is_spoiled = true;
            // A later transaction may be none that takes long.
            if self.batch.is_some() && self.health.batches == self.counters.batches {
                self.health.busy = Some(reply.to_vec());
            }
        }
        match count {
            0 => self.health.info = Info::parse(reply),
            1 if !is_error(reply) => {
                self.description.time_ms = time_ms(reply);
                self.told_at = now;
            }
            1 => {}
            2 => self.health.default_user = Some(DefaultUser::of(reply)),
            _ => self.health.settings.add(reply),
        }
        self.health.replies = Some(count + 1);
        if count + 1 == 3 + Settings::NAMES.len() {
            self.health.replies = None;
            let pause = if self.health.is_fresh { self.config.health_interval } else { Nanos(0) };
            self.health.next_at = now.plus(pause);
            let error = self.health.error.take();
            if self.health.is_spoiled {
                if let Some(error) = error {
                    self.on_unknown_health(&error, events);
                }
                return self.pass_by(events);
            }
            match error {
                None => self.judge_health(now, events),
                Some(error) => self.on_unknown_health(&error, events),
            }
            if matches!(self.phase, Phase::Running) {
                self.try_opening(events);
            }
        }
    }

    /// The server did not say how it is. While it is only busy nothing of what it has said changes, since nobody can
    /// change it; otherwise nothing is known to last.
    fn on_unknown_health(&mut self, error: &[u8], events: &mut BackEvents) {
        let obstacle = if let Some(what) = passing(error) {
            if !std::mem::replace(&mut self.busy_said, true) {
                events.push(BackEvent::Waits(waiting(what)));
            }
            what.to_owned()
        } else {
            let reason = self.why_unknown(error);
            self.stability.set_method(self.cautious_method.clone());
            self.refuse_writes(Some(reason.clone()), events);
            reason
        };
        self.set_obstacle(obstacle, events);
    }

    fn why_unknown(&self, error: &[u8]) -> String {
        let user = self.config.credentials.as_ref().map_or("default", |(user, _)| user);
        let said = line(error);
        let next = way_in(&said, user).map(|next| format!("; {next}")).unwrap_or_default();
        format!("the server does not say how it is (INFO, CONFIG GET, ACL GETUSER): {said}{next}")
    }

    fn set_obstacle(&mut self, obstacle: String, events: &mut BackEvents) {
        if obstacle != self.health.obstacle {
            events.push(BackEvent::Early { allowed: obstacle.is_empty(), reason: obstacle.clone() });
            self.health.obstacle = obstacle;
        }
    }

    fn refuse_writes(&mut self, refused: Option<String>, events: &mut BackEvents) {
        if self.description.writes_refused != refused {
            self.description.writes_refused.clone_from(&refused);
            events.push(BackEvent::Writes { refused });
        }
    }

    fn judge_health(&mut self, now: Nanos, events: &mut BackEvents) {
        self.busy_said = false;
        let info = std::mem::take(&mut self.health.info);
        if let Some(reason) = no_master(&info) {
            // What it holds from now on is its master's.
            return self.stop(StopReason::Unwilling(vec![reason]), events);
        }
        if !self.health.past.is_still(&info) {
            return self.stop(StopReason::Lost(ANOTHER_PAST.to_owned()), events);
        }
        let method = Method::of(&info, &self.health.settings, self.config.same_host);
        self.judge_writes(&info, &method, events);
        self.health.is_in_doubt &= !self.health.is_fresh;
        let knows = self.health.is_fresh && self.description.writes_refused.is_none();
        self.stability.set_method(if knows { method } else { self.cautious_method.clone() });
        self.place.may_expire = self.expiry_seen || info.has_expiring_keys(self.place.db);
        let refused = said_by_info(&info, &self.health.settings);
        self.health.refusals.end_round(now);
        let of_server =
            || refused.as_ref().map(|refused| format!("the server refuses writes: {}", refused.text));
        let obstacle = early_obstacle(&info).or_else(of_server).or_else(|| self.health.refusals.obstacle());
        self.set_obstacle(obstacle.unwrap_or_default(), events);
        self.set_refused(refused.or_else(|| self.health.refusals.refused().cloned()), events);
        self.probe_if_due(now, events);
    }

    /// Without append-only files nothing becomes stable any more: what has come is executed and stays in the devices'
    /// logs, and clients are told to ask for no more. Files that are begun anew hold all of that once they are
    /// complete. The same where what is written may be gone again: evicted, or left out of what a restart loads.
    fn judge_writes(&mut self, info: &Info, method: &Method, events: &mut BackEvents) {
        let was_refused = self.description.writes_refused.is_some();
        // What is asked in one breath is not answered in one: the server may have been told to begin in between.
        let is_complete = info.get("aof_enabled") == "1"
            && info.get("aof_rewrite_in_progress") != "1"
            && info.get("aof_rewrite_scheduled") != "1"
            && info.get("aof_last_bgrewrite_status") != "err";
        let refused = match method {
            Method::Never if !self.config.allow_unstable => Some(NO_FILES.to_owned()),
            _ if !self.config.same_host && never_syncs(&self.health.settings) => Some(NEVER_SYNCS.to_owned()),
            _ => {
                let restart =
                    || self.health.default_user.and_then(|user| user.obstacle(&self.health.settings));
                let files = (was_refused && !is_complete).then(|| INCOMPLETE_FILES.to_owned());
                evicts(&self.health.settings).or_else(restart).or(files)
            }
        };
        self.refuse_writes(refused, events);
    }
}

const ANOTHER_PAST: &str =
    "it has followed another server since it was begun with (REPLICAOF), so its data may be other ones; it is begun with \
     anew";
const NO_FILES: &str =
    "the server no longer keeps an append-only file, so no write would last; run there: redis-cli CONFIG SET appendonly yes";
const INCOMPLETE_FILES: &str = "the server is still writing its append-only files anew";
