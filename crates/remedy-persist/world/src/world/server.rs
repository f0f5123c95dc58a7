//! Servers, each with its application, its storage and its one thread, and the model that judges it.
//!
//! Invariant: requests are executed in the order in which the machine hands them out, and the
//! machine hears of stability only after the storage's watermark has moved.

use super::device::device_id;
use super::Packet;
use super::{device_address, server_address, Alarm, Event, Incarnation, World};
use crate::app::{App, Op, Reply, WriteToken};
use crate::model::Model;
use crate::place::Place;
use crate::scenario::{Repair, Scenario};
use crate::storage::{Record, Storage};
use crate::trace::{Deed, Happening, Loss};
use scotfree_core::{Effect, Effects, Epoch, Machine, Nanos, SeqNum, ServerIndex, SessionId, Token};
use scotfree_session::{Server, ServerConfig, ServerOwn};
use scotfree_sim::clock::Clock;
use scotfree_sim::rng::{PerMillion, Rng};
use scotfree_sim::{Protocol, Travel};
use scotfree_wire::ResponseTail;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many sessions the server takes: more than any scenario's clients open before they expire.
pub(super) const SESSIONS_MAX: usize = 64;

pub(super) struct ServerNode {
    machine: Option<Server>,
    incarnation: Incarnation,
    clock: Clock,
    alarm: Alarm,
    /// The last epoch used; durable.
    epoch: Epoch,
    pub(super) storage: Storage,
    /// What its clients were told and what must be true of its storage. Servers share no data, so that each is judged
    /// for itself.
    pub(super) model: Model,
    /// It will not come back, and its storage is gone with it.
    lost: bool,
    app: App,
    /// When what a call has set lives out, by the world's clock.
    ends: BTreeMap<usize, Nanos>,
    /// The calls by which it has, once it has.
    expiries: BTreeMap<usize, usize>,
    /// The application takes no writes until then; never before the first crash.
    refuses_until: Nanos,
    /// Writes that were not in storage at the last start, and that somebody may have been told of before.
    owed: BTreeSet<usize>,
    tasks: VecDeque<Task>,
    /// The last ticket executed.
    ticket: u64,
    sync: Option<Sync>,
    /// Session records that wait for a sync: the record's place, and the session.
    recording: VecDeque<(usize, SessionId)>,
    deleting: VecDeque<(usize, SessionId)>,
}

/// A request that waits for the application.
struct Task {
    ticket: u64,
    session: SessionId,
    seq: SeqNum,
    call: usize,
    is_replayed: bool,
}

/// What a sync in progress will have made stable.
#[derive(Clone, Copy)]
struct Sync {
    written: usize,
    ticket: u64,
}

impl ServerNode {
    pub(super) fn new(index: usize, scenario: &Scenario, rng: &mut Rng) -> ServerNode {
        ServerNode {
            machine: None,
            incarnation: Incarnation::default(),
            clock: super::draw_clock(rng, scenario.drift_ppm_max),
            alarm: Alarm::NONE,
            epoch: Epoch(0),
            storage: Storage::default(),
            model: Model::new(ServerIndex(index as u8), scenario.device_count, scenario.device_acks)
                .with_answers(scenario.work.answerable),
            lost: false,
            app: App::new(scenario.work.cell_count),
            ends: BTreeMap::new(),
            expiries: BTreeMap::new(),
            refuses_until: Nanos(0),
            owed: BTreeSet::new(),
            tasks: VecDeque::new(),
            ticket: 0,
            sync: None,
            recording: VecDeque::new(),
            deleting: VecDeque::new(),
        }
    }

    pub(super) fn machine(&self) -> Option<&Server> {
        self.machine.as_ref()
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub(super) fn is_serving(&self) -> bool {
        self.machine.as_ref().is_some_and(Server::is_serving)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    pub(super) fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// A write of its own goes to the storage.
    fn record_own(&mut self, call: usize) {
        self.model.own_write_done(call, self.storage.written());
        self.storage.append(Record::Write { session: SessionId(0), seq: SeqNum(1), call });
    }

    /// What a call has set lives from when it is first executed: anew after a crash, it does not live longer.
    fn count_life(&mut self, call: usize, op: &Op, now: Nanos) {
        if let Op::SetFor { lives_ms, .. } = op {
            self.ends.entry(call).or_insert(now.plus(Nanos::from_millis(u64::from(*lives_ms))));
        }
    }

    /// When what a cell holds lives out, and which call has set it. A value that was moved to another cell lives there
    /// for ever.
    fn end_of(&self, cell: usize) -> Option<(Nanos, usize)> {
        let token = self.app.registers().nth(cell)?;
        let call = usize::try_from(token.0).ok()?.checked_sub(1)?;
        let (op, _) = self.model.sent(call);
        let is_there = op.cells().map(usize::from) == [cell; 2];
        self.ends.get(&call).filter(|_| is_there).map(|end| (*end, call))
    }

    /// What has lived out goes before anything else is executed: a write of the server's own, made once and done again
    /// if a crash has taken it back.
    fn expire(&mut self, now: Nanos) {
        for cell in 0..self.app.registers().count() {
            let Some((_, of)) = self.end_of(cell).filter(|(end, _)| *end <= now) else { continue };
            let op = Op::Expire { cell: cell as u8, token: WriteToken(of as u64 + 1) };
            let since = self.model.invoked_at(of);
            let model = &mut self.model;
            let call = *self.expiries.entry(of).or_insert_with(|| model.own_write(op, since));
            self.app.apply(&op);
            self.record_own(call);
        }
    }

    /// How many milliseconds what a read of one cell shows lives on.
    fn lives_ms(&self, op: &Op, now: Nanos) -> Option<u64> {
        let Op::Get { cell } = op else { return None };
        let end = self.end_of(usize::from(*cell));
        Some(end.map_or(u64::MAX, |(end, _)| end.since(now).0 / 1_000_000))
    }
}

impl World {
    /// A server starts with what its storage holds.
    pub(super) fn start_server(&mut self, server: usize) {
        if self.servers[server].machine.is_some() || self.servers[server].lost {
            return;
        }
        self.change_while_away(server);
        let planted = self.planted();
        let devices = 0..self.devices.len();
        let devices = devices.map(|index| (device_id(index), device_address(index))).collect();
        let node = &mut self.servers[server];
        node.epoch = Epoch(node.epoch.0 + 1);
        node.incarnation = node.incarnation.next();
        let nonce_seed = self.engine.chance.service.bytes();
        let mut config = ServerConfig::new(
            server_address(server),
            self.keys.servers[server].key(),
            node.epoch,
            nonce_seed,
            devices,
        );
        configure(&mut config, &self.scenario);
        config.planted = planted;
        node.machine = Some(Server::new(config, &node.storage.sessions()));
        node.app = node.model.replay(&node.storage, self.scenario.work.cell_count);
        node.owed = node.model.owed();
        let refuses = self.scenario.service.refuses_after_crash;
        if node.incarnation != Incarnation::default().next() && node.refuses_until == Nanos(0) {
            node.refuses_until = self.engine.now.plus(refuses);
        }
        self.engine.after(self.scenario.service.sync_interval, Event::SyncDue(server, node.incarnation));
        self.with_server(server, Server::start);
        // The configuration names all devices; of those out of service the operator says so again.
        for device in
            (0..self.devices.len()).filter(|device| self.devices[*device].is_excluded()).collect::<Vec<_>>()
        {
            self.tell_of_exclusion(server, device);
        }
    }

    /// Before a restart somebody may have written to the storage. Nobody is told when.
    fn change_while_away(&mut self, server: usize) {
        let wanted = self.scenario.service.changed_while_away;
        let is_first = self.servers[server].incarnation == Incarnation::default();
        if is_first || wanted == PerMillion::NEVER || !self.engine.chance.service.chance(wanted) {
            return;
        }
        let cell = self.engine.chance.service.index(self.scenario.work.cell_count) as u8;
        let node = &mut self.servers[server];
        let token = node.model.next_token();
        let call = node.model.own_write(Op::Set { cell, token }, 0);
        node.record_own(call);
        node.storage.sync(node.storage.written());
        self.note(Place::Server(server), Happening::Note("finds a register overwritten", u64::from(cell)));
    }

    pub(super) fn arrive_at_server(&mut self, server: usize, packet: Packet) {
        if self.servers[server].machine.is_none() {
            return self.end(Place::Server(server), packet, Loss::Down);
        }
        self.note(Place::Server(server), Happening::Arrived { sight: packet.sight });
        self.with_server(server, |machine, now, effects| {
            machine.on_message(now, packet.from, packet.to, &packet.bytes, effects);
        });
        self.engine.packets.recycle(packet.bytes);
    }

    pub(super) fn wake_server(&mut self, server: usize) {
        if self.servers[server].alarm.rings(self.engine.now) {
            self.with_server(server, Server::on_timer);
        }
    }

    /// Lets the server do something and carries out what it wishes for.
    pub(super) fn with_server(
        &mut self,
        server: usize,
        act: impl FnOnce(&mut Server, Nanos, &mut Effects<ServerOwn>),
    ) {
        let mut effects = std::mem::take(&mut self.buffers.server);
        let now = self.servers[server].clock.read(self.engine.now);
        if let Some(machine) = self.servers[server].machine.as_mut() {
            act(machine, now, &mut effects);
        }
        for effect in effects.iter() {
            match effect {
                Effect::Send { from, to, bytes } => {
                    self.send(Place::Server(server), *from, *to, effects.bytes(*bytes));
                }
                Effect::Own(own) => self.server_says(server, own, &effects),
                Effect::Persist { .. } | Effect::Erase { .. } => {
                    unreachable!("a server's storage is its service's")
                }
            }
        }
        effects.clear();
        self.buffers.server = effects;
        self.check_server(server);
        self.sync_if_wanted(server);
        self.rewind_server(server);
    }

    fn server_says(&mut self, server: usize, own: &ServerOwn, effects: &Effects<ServerOwn>) {
        match own {
            ServerOwn::Execute { ticket, session, seq, kind, is_replayed, identity: _, payload } => {
                let (ticket, session, seq, is_replayed) = (*ticket, *session, *seq, *is_replayed);
                match self.servers[server].model.executing(session, seq, *kind, effects.bytes(*payload)) {
                    Ok(call) => self.begin_task(server, Task { ticket, session, seq, call, is_replayed }),
                    Err(violation) => self.must(Err(violation)),
                }
            }
            ServerOwn::RecordSession { record } => {
                let node = &mut self.servers[server];
                node.recording.push_back((node.storage.written(), record.session));
                node.storage.append(Record::Session(*record));
                self.sync_now(server);
            }
            ServerOwn::DeleteSession { session } => {
                let node = &mut self.servers[server];
                node.deleting.push_back((node.storage.written(), *session));
                node.storage.append(Record::Deleted(*session));
            }
            ServerOwn::DeadLetter { session, seq, .. } => {
                self.engine.report.dead_letters += 1;
                self.note(Place::Server(server), Happening::Note("puts a dead letter aside", seq.0));
                let verdict = self.servers[server].model.dead_letter(*session, *seq);
                self.must(verdict);
            }
        }
    }

    // ---- the application

    fn begin_task(&mut self, server: usize, task: Task) {
        self.servers[server].tasks.push_back(task);
        if self.servers[server].tasks.len() == 1 {
            self.begin_execution(server);
        }
    }

    fn begin_execution(&mut self, server: usize) {
        let times = &self.scenario.service;
        let time = self.engine.chance.service.span(times.execute_min, times.execute_max);
        self.engine.after(time, Event::Executed(server, self.servers[server].incarnation));
    }

    pub(super) fn executed(&mut self, server: usize, incarnation: Incarnation) {
        if self.servers[server].incarnation != incarnation {
            return;
        }
        let Some(task) = self.servers[server].tasks.pop_front() else { return };
        if self.servers[server].refuses_until > self.engine.now && self.is_write(server, &task) {
            return self.refuse(server, task);
        }
        if !self.servers[server].tasks.is_empty() {
            self.begin_execution(server);
        }
        let Task { ticket, session, seq, call, .. } = task;
        self.note(Place::Server(server), Happening::Did(Deed::Executed { session, seq, ticket }));
        let (op, sent) = self.servers[server].model.sent(call);
        let now = self.engine.now;
        self.servers[server].expire(now);
        let reply = self.servers[server].app.apply(&op);
        self.servers[server].count_life(call, &op, now);
        let lives_ms = self.servers[server].lives_ms(&op, now).filter(|_| self.scenario.work.answerable);
        let logged_at = op.writes().then(|| self.servers[server].storage.written());
        if op.writes() {
            self.servers[server].storage.append(Record::Write { session, seq, call });
        }
        self.servers[server].ticket = ticket;
        self.engine.report.executed += 1;
        let verdict = self.servers[server].model.executed(call, reply, logged_at);
        self.must(verdict);
        let mut bytes = Vec::with_capacity(sent.reply_bytes);
        reply.encode(sent.reply_bytes, &mut bytes);
        self.with_server(server, |machine, now, effects| {
            if let Some(lives_ms) = lives_ms {
                machine.on_lives(ticket, lives_ms);
            }
            machine.on_executed(now, ticket, &bytes, reply.failed, ResponseTail::default(), effects);
        });
    }

    fn is_write(&self, server: usize, task: &Task) -> bool {
        self.servers[server].model.sent(task.call).0.writes()
    }

    /// The application takes no writes. What is executed anew may have been acknowledged, so that ends the service
    /// until it is taken; what has just come waits.
    fn refuse(&mut self, server: usize, task: Task) {
        let left = self.servers[server].refuses_until.since(self.engine.now);
        self.note(Place::Server(server), Happening::Note("refuses a write", task.seq.0));
        self.engine.report.refused += 1;
        if task.is_replayed {
            return self.crash_server(server, left);
        }
        let node = &mut self.servers[server];
        if !node.owed.contains(&task.call) {
            node.tasks.push_front(task);
            return self.engine.after(left, Event::Executed(server, node.incarnation));
        }
        // Only a server that takes it for fresh answers it by the refusal, and goes on behind it.
        let verdict = node.model.executed(task.call, Reply::REFUSED, None);
        self.must(verdict);
        self.with_server(server, |machine, now, effects| {
            machine.on_executed(now, task.ticket, &[0], true, ResponseTail::default(), effects);
        });
        if !self.servers[server].tasks.is_empty() {
            self.begin_execution(server);
        }
    }

    // ---- the storage

    fn sync_if_wanted(&mut self, server: usize) {
        if self.servers[server].machine.as_ref().is_some_and(Server::wants_stable) {
            self.sync_now(server);
        }
    }

    fn sync_now(&mut self, server: usize) {
        let node = &mut self.servers[server];
        if node.sync.is_some() || node.storage.synced() == node.storage.written() {
            return;
        }
        node.sync = Some(Sync { written: node.storage.written(), ticket: node.ticket });
        let times = &self.scenario.service;
        let time = self.engine.chance.service.span(times.sync_min, times.sync_max);
        self.engine.after(time, Event::Synced(server, node.incarnation));
    }

    pub(super) fn sync_due(&mut self, server: usize, incarnation: Incarnation) {
        if self.servers[server].incarnation == incarnation {
            self.sync_now(server);
            self.engine.after(self.scenario.service.sync_interval, Event::SyncDue(server, incarnation));
        }
    }

    pub(super) fn synced(&mut self, server: usize, incarnation: Incarnation) {
        if self.servers[server].incarnation != incarnation {
            return;
        }
        let Some(Sync { written, ticket }) = self.servers[server].sync.take() else { return };
        self.servers[server].storage.sync(written);
        self.note(Place::Server(server), Happening::Did(Deed::Synced { written, ticket }));
        self.with_server(server, |machine, now, effects| machine.on_persisted(now, Token(ticket), effects));
        while let Some(session) = pop_before(&mut self.servers[server].recording, written) {
            self.with_server(server, |machine, now, effects| {
                machine.on_session_recorded(now, session, effects);
            });
        }
        while let Some(session) = pop_before(&mut self.servers[server].deleting, written) {
            self.servers[server].model.deleted(session);
            self.with_server(server, |machine, now, effects| {
                machine.on_session_deleted(now, session, effects);
            });
        }
        self.sync_if_wanted(server);
    }

    pub(super) fn rewind_server(&mut self, server: usize) {
        let node = &mut self.servers[server];
        if let Some(at) = node.machine.as_ref().and_then(Server::next_timer) {
            let at = node.clock.when(at).max(self.engine.now);
            node.alarm.set(Place::Server(server), at, &mut self.engine.queue);
        }
    }

    // ---- the end of a server

    /// The server dies; its storage is cut back.
    pub(super) fn stop_server(&mut self, server: usize) {
        self.retire_server(server);
        let node = &mut self.servers[server];
        node.incarnation = node.incarnation.next();
        node.alarm = Alarm::NONE;
        node.tasks.clear();
        node.recording.clear();
        node.deleting.clear();
        node.sync = None;
        node.ticket = 0;
        let lost = node.storage.crash(&mut self.engine.chance.service);
        let lost_writes = lost.iter().filter_map(|record| match record {
            Record::Write { call, .. } => Some(*call),
            Record::Session(_) | Record::Deleted(_) => None,
        });
        let lost_writes: Vec<usize> = lost_writes.collect();
        self.engine.report.taken_back += lost_writes.len() as u64;
        self.note(
            Place::Server(server),
            Happening::Note("crashes and loses writes", lost_writes.len() as u64),
        );
        let node = &mut self.servers[server];
        node.model.cut_back(lost_writes.into_iter(), &node.storage);
    }

    /// Takes what a server that is no more has counted.
    pub(super) fn retire_server(&mut self, server: usize) {
        let Some(machine) = self.servers[server].machine.take() else { return };
        let counters = machine.counters();
        self.engine.report.executed_from_log += counters.replayed;
        self.engine.report.orders_asked += counters.orders_asked;
        self.engine.report.drains_asked += counters.drains_asked;
        self.engine.report.gaps_asked += counters.gaps_asked;
        self.engine.report.replies_held += counters.replies_held;
        self.engine.report.expired += counters.expired;
        self.engine.report.packets_refused += counters.refused.iter().sum::<u64>();
    }
}

/// The next session whose record stands before `written`.
fn pop_before(waiting: &mut VecDeque<(usize, SessionId)>, written: usize) -> Option<SessionId> {
    let (at, session) = *waiting.front()?;
    (at < written).then(|| waiting.pop_front())?;
    Some(session)
}

fn configure(config: &mut ServerConfig, scenario: &Scenario) {
    config.window = scenario.window;
    config.sessions_max = SESSIONS_MAX;
    config.unconfirmed_max = SESSIONS_MAX / 4;
    config.lease = Nanos::from_millis(40);
    config.lease_max = config.lease;
    config.expiry = scenario.expiry;
    config.gap_grace = Nanos::from_millis(120);
    config.gap_ask_after = Nanos::from_millis(1);
    config.retry_interval = Nanos::from_millis(4);
    config.buffer_bytes_max = scenario.buffer_bytes_max;
    config.replies_bytes_max = scenario.replies_bytes_max;
    config.busy_backoff = Nanos::from_millis(2);
    if !scenario.repairs_by(Repair::ServerQuestions) {
        config.gap_ask_after = Nanos::MAX;
    }
}
