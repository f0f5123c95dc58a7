//! Clients: what they ask, and what they are told.
//!
//! Invariant: every request made and every completion told goes through the model.

use super::Packet;
use super::{client_address, server_address, Alarm, Event, Incarnation, World};
use crate::app::{Op, Reply};
use crate::model::{Invariant, Model, Sent, Violation};
use crate::place::Place;
use crate::scenario::{Repair, Scenario, Work};
use crate::trace::{Deed, Happening, Loss, Sight};
use scotfree_core::{Effect, Effects, KeyHash, Machine, Nanos, SeqNum};
use scotfree_session::{
    Client, ClientConfig, ClientOwn, ClosedReason, CompletedBy, Completion, Mode, Request, RequestKind,
};
use scotfree_sim::clock::Clock;
use scotfree_sim::rng::{PerMillion, Rng};
use scotfree_sim::{Protocol, Travel};
use scotfree_wire::{CloseReason, Extensions};
use std::net::SocketAddr;

/// Sizes of requests and replies of more than one packet.
const LARGE_BYTES: usize = 3_000;
/// Sizes of the others.
const SMALL_BYTES: usize = 48;

pub(super) struct ClientNode {
    machine: Option<Client>,
    incarnation: Incarnation,
    clock: Clock,
    alarm: Alarm,
    port: u16,
    /// Which server it has its sessions with.
    server: usize,
    /// Its session, once it is open.
    session: Option<usize>,
    /// It would have made a request, had there been room.
    waits_for_room: bool,
    /// How many requests it will still make.
    left: usize,
    /// Reads of the auditor that are still to be made.
    audits: Vec<Op>,
    /// A request of which the next sendings vanish, and how many of them.
    swallowed: Option<(SeqNum, u32)>,
    /// Its last update, as it was on the wire.
    recorded: Vec<u8>,
}

impl ClientNode {
    pub(super) fn new(index: usize, scenario: &Scenario, rng: &mut Rng) -> ClientNode {
        ClientNode {
            machine: None,
            incarnation: Incarnation::default(),
            clock: super::draw_clock(rng, scenario.drift_ppm_max),
            alarm: Alarm::NONE,
            port: 40_000,
            server: scenario.server_of(index),
            session: None,
            waits_for_room: false,
            left: if index < scenario.client_count { scenario.work.requests_per_client } else { 0 },
            audits: Vec::new(),
            swallowed: None,
            recorded: Vec::new(),
        }
    }

    pub(super) fn record(&mut self, update: &[u8]) {
        self.recorded.clear();
        self.recorded.extend_from_slice(update);
    }

    pub(super) fn recorded(&self) -> &[u8] {
        &self.recorded
    }

    pub(super) fn is_alive(&self) -> bool {
        self.machine.is_some()
    }

    pub(super) fn server(&self) -> usize {
        self.server
    }

    pub(super) fn address(&self, index: usize) -> SocketAddr {
        client_address(index, self.port)
    }

    /// Nothing is being waited for.
    pub(super) fn is_idle(&self) -> bool {
        let settled =
            |machine: &Client| machine.is_closed() || (machine.is_open() && machine.outstanding() == 0);
        self.machine.as_ref().is_none_or(settled) && self.audits.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.machine.as_ref().is_none_or(Client::is_closed)
    }

    pub(super) fn machine(&self) -> Option<&Client> {
        self.machine.as_ref()
    }

    pub(super) fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }
}

impl World {
    /// The model of the server that a client has its sessions with.
    pub(super) fn model_of(&self, client: usize) -> &Model {
        &self.servers[self.clients[client].server].model
    }

    fn model_of_mut(&mut self, client: usize) -> &mut Model {
        &mut self.servers[self.clients[client].server].model
    }

    /// A client begins a new session.
    pub(super) fn open_client(&mut self, client: usize) {
        self.retire_client(client);
        let (seed, nonce) = (self.engine.chance.work.draw(), self.engine.chance.work.bytes());
        let node = &mut self.clients[client];
        // Sometimes under the address of its predecessor, whose packets may still be under way.
        node.port += u16::from(self.engine.chance.work.chance(PerMillion::percent(50)));
        let mut config = ClientConfig::new(
            client_address(client, node.port),
            server_address(node.server),
            self.keys.clients.key(),
            nonce,
            seed,
        );
        configure(&mut config, &self.scenario);
        config.planted = self.planted();
        let node = &mut self.clients[client];
        node.machine = Some(Client::new(config));
        node.incarnation = node.incarnation.next();
        node.session = None;
        node.swallowed = None;
        node.waits_for_room = false;
        self.with_client(client, Client::open);
    }

    /// Takes what a client that is no more has counted.
    pub(super) fn retire_client(&mut self, client: usize) {
        let Some(machine) = self.clients[client].machine.take() else { return };
        let counters = machine.counters();
        self.engine.report.retransmitted += counters.retransmitted;
        self.engine.report.busy += counters.busy;
        self.engine.report.packets_refused += counters.refused.iter().sum::<u64>();
        let model = self.model_of(client);
        let incomplete = self.clients[client].session.map_or(0, |session| model.incomplete_of(session));
        self.engine.report.outcome_unknown += incomplete;
    }

    pub(super) fn arrive_at_client(&mut self, client: usize, packet: Packet) {
        let here = Place::Client(client);
        if !self.clients[client].is_alive() || packet.to != client_address(client, self.clients[client].port)
        {
            return self.end(here, packet, Loss::Down);
        }
        self.note(here, Happening::Arrived { sight: packet.sight });
        self.with_client(client, |machine, now, effects| {
            machine.on_message(now, packet.from, packet.to, &packet.bytes, effects);
        });
        self.engine.packets.recycle(packet.bytes);
    }

    pub(super) fn wake_client(&mut self, client: usize) {
        if self.clients[client].alarm.rings(self.engine.now) {
            self.with_client(client, Client::on_timer);
        }
    }

    /// Lets a client do something and carries out what it wishes for.
    pub(super) fn with_client<R>(
        &mut self,
        client: usize,
        act: impl FnOnce(&mut Client, Nanos, &mut Effects<ClientOwn>) -> R,
    ) -> Option<R> {
        let mut effects = std::mem::take(&mut self.buffers.client);
        let node = &mut self.clients[client];
        let now = node.clock.read(self.engine.now);
        let result = node.machine.as_mut().map(|machine| act(machine, now, &mut effects));
        for effect in effects.iter() {
            match effect {
                Effect::Send { from, to, bytes } => {
                    self.send(Place::Client(client), *from, *to, effects.bytes(*bytes));
                }
                Effect::Own(own) => self.client_says(client, own, &effects),
                Effect::Persist { .. } | Effect::Erase { .. } => unreachable!("a client keeps no log"),
            }
        }
        effects.clear();
        self.buffers.client = effects;
        self.rewind_client(client);
        if self.clients[client].waits_for_room && self.has_room(client) {
            self.clients[client].waits_for_room = false;
            self.work_later(client);
        }
        result
    }

    /// Sets the alarm for what the machine wants next.
    pub(super) fn rewind_client(&mut self, client: usize) {
        let node = &mut self.clients[client];
        if let Some(at) = node.machine.as_ref().and_then(Client::next_timer) {
            let at = node.clock.when(at).max(self.engine.now);
            node.alarm.set(Place::Client(client), at, &mut self.engine.queue);
        }
    }

    fn client_says(&mut self, client: usize, own: &ClientOwn, effects: &Effects<ClientOwn>) {
        match own {
            ClientOwn::Opened { session, .. } => match self.model_of_mut(client).opened(*session) {
                Ok(session) => {
                    let node = &mut self.clients[client];
                    node.session = Some(session);
                    let incarnation = node.incarnation;
                    self.engine.after(Nanos(0), Event::Work(client, incarnation));
                }
                Err(violation) => self.must(Err(violation)),
            },
            ClientOwn::Complete(completion) => self.complete(client, completion, effects),
            ClientOwn::Closed { reason } => self.client_closed(client, *reason),
            ClientOwn::LateStamp(_) => {}
        }
    }

    fn complete(&mut self, client: usize, completion: &Completion, effects: &Effects<ClientOwn>) {
        self.note(Place::Client(client), Happening::Did(Deed::Completed { seq: completion.seq }));
        let Some(session) = self.clients[client].session else { return };
        let bytes = completion.reply.map(|range| effects.bytes(range));
        let reply = bytes.map(|bytes| Reply::decode(completion.failed, bytes));
        if reply == Some(None) {
            let detail = format!("{} was answered with bytes that no reply has", completion.seq);
            return self.must(Err(Violation::new(Invariant::ReplyKept, detail)));
        }
        let by = completion.answered_by;
        let server = &mut self.servers[self.clients[client].server];
        let verdict = server.model.completed(session, completion.seq, by, reply.flatten(), &server.storage);
        self.must(verdict);
        self.engine.report.completed += 1;
        if client < self.scenario.client_count {
            self.engine.report.work_ns = self.engine.now.0;
        }
        let model = &self.servers[self.clients[client].server].model;
        if let Some(call) = model.call_of(session, completion.seq) {
            self.engine.report.completed_reads += u64::from(!model.sent(call).0.writes());
        }
        self.engine.report.completed_early += u64::from(matches!(by, CompletedBy::Device(_)));
        self.engine.report.overtook += u64::from(model.has_elders(session, completion.seq));
        self.engine.report.completed_by_function += u64::from(matches!(by, CompletedBy::Function(_)));
        self.note_recovery_time();
    }

    fn client_closed(&mut self, client: usize, reason: ClosedReason) {
        self.note(Place::Client(client), Happening::Note(closing_words(reason), 0));
        if reason == ClosedReason::Finished {
            return;
        }
        self.engine.report.sessions_ended += 1;
        self.must(self.may_close(client, reason));
        if self.is_faulty() {
            // It begins again, a little later.
            self.engine.comes_back(Nanos::from_millis(1), Place::Client(client));
        }
    }

    /// Whether what has gone wrong so far explains that a session ended against its client's will.
    fn may_close(&self, client: usize, reason: ClosedReason) -> Result<(), Violation> {
        let short = self.scenario.expiry < self.scenario.calm_at.plus(Nanos::from_millis(500));
        let explained = match reason {
            ClosedReason::Finished
            | ClosedReason::Server(CloseReason::ServerFailed | CloseReason::NoRoom | CloseReason::NoMemory) => {
                true
            }
            // The reply went with a crash, gave way to others, or a clock that was set made the server
            // lose its patience with a read that was lost again and again.
            ClosedReason::Server(CloseReason::ReplyGone) => {
                self.engine.report.server_crashes > 0
                    || self.replies_are_scarce()
                    || self.answers_may_be_gone()
                    || self.engine.report.clock_jumps > 0
            }
            ClosedReason::Server(
                CloseReason::UnknownSession | CloseReason::Expire | CloseReason::ByClient,
            ) => short || self.some_session_failed() || self.some_key_was_removed(),
            ClosedReason::KeyRemoved => self.some_key_was_removed(),
            ClosedReason::Unreachable => self.servers[self.clients[client].server].is_lost(),
        };
        if explained {
            Ok(())
        } else {
            Err(Violation::new(Invariant::SessionKept, format!("a session ended: {reason:?}")))
        }
    }

    // ---- what clients ask

    pub(super) fn work(&mut self, client: usize, incarnation: Incarnation) {
        if self.clients[client].incarnation != incarnation {
            return;
        }
        if self.clients[client].audits.is_empty() {
            self.make_requests(client);
        } else {
            self.audit(client);
        }
    }

    fn make_requests(&mut self, client: usize) {
        if !self.is_faulty() || self.clients[client].left == 0 {
            return;
        }
        let wanted = self.engine.chance.work.between(1, self.scenario.work.burst_max);
        let made = (0..wanted).take_while(|_| self.make_request(client)).count() as u64;
        if made == wanted {
            self.work_later(client);
        } else {
            self.clients[client].waits_for_room = true;
        }
    }

    fn work_later(&mut self, client: usize) {
        let work = self.scenario.work;
        let pause = self.engine.chance.work.span(work.think_min, work.think_max);
        self.engine.after(pause, Event::Work(client, self.clients[client].incarnation));
    }

    fn has_room(&self, client: usize) -> bool {
        let node = &self.clients[client];
        let outstanding_max = self.scenario.work.outstanding_max;
        let room = |machine: &Client| {
            machine.is_open() && machine.credit() > 0 && machine.outstanding() < outstanding_max
        };
        node.left > 0 && node.machine.as_ref().is_some_and(room)
    }

    /// Whether one could be made.
    fn make_request(&mut self, client: usize) -> bool {
        if !self.has_room(client) {
            return false;
        }
        self.clients[client].left -= 1;
        let op = self.draw_op(client);
        let early = op.fixed_reply().is_some() && self.engine.chance.work.chance(self.scenario.work.early);
        let bypass = if matches!(op, Op::Swap { .. }) {
            !self.draws_of(|work| work.pairs_logged)
        } else {
            self.engine.chance.work.chance(self.scenario.work.bypasses)
        };
        let kind = match (op.writes(), bypass) {
            (false, _) => RequestKind::Read,
            (true, true) => RequestKind::Bypass,
            (true, false) => RequestKind::Update,
        };
        let mode = if early && kind == RequestKind::Update { Mode::Early } else { Mode::Covered };
        let large = self.engine.chance.work.chance(self.scenario.work.large);
        let relaxed = kind == RequestKind::Read && self.engine.chance.work.chance(self.scenario.work.relaxed);
        let size = |large: bool| if large { LARGE_BYTES } else { SMALL_BYTES };
        let large_reply = large && kind == RequestKind::Read;
        let sent =
            Sent { kind, mode, payload_bytes: size(large && !large_reply), reply_bytes: size(large_reply) };
        self.submit(client, op, relaxed, sent);
        true
    }

    /// Whether chance wants what a world may be without; where it is, chance is not asked.
    fn draws_of(&mut self, what: impl Fn(&Work) -> PerMillion) -> bool {
        let wanted = what(&self.scenario.work);
        wanted != PerMillion::NEVER && self.engine.chance.work.chance(wanted)
    }

    fn draw_op(&mut self, client: usize) -> Op {
        let token = self.model_of(client).next_token();
        if self.draws_of(|work| work.known) {
            return Op::Known;
        }
        let rng = &mut self.engine.chance.work;
        let work = &self.scenario.work;
        let cell = rng.index(work.cell_count) as u8;
        let other = (usize::from(cell) + 1 + rng.index(work.cell_count - 1)) % work.cell_count;
        let cells = [cell, other as u8];
        if rng.chance(work.reads) {
            return rng.pick(&[Op::Get { cell }, Op::Get { cell }, Op::GetTwo { cells }]);
        }
        if rng.chance(work.bypasses) && rng.chance(PerMillion::percent(50))
            || self.draws_of(|work| work.pairs)
        {
            return Op::Swap { cells, token };
        }
        if self.draws_of(|work| work.living) {
            let lives_ms = self.engine.chance.work.between(3, 20) as u8;
            return Op::SetFor { cell, token, lives_ms };
        }
        let (rng, work) = (&mut self.engine.chance.work, &self.scenario.work);
        let lengthens = if work.answerable { Op::Set { cell, token } } else { Op::Append { cell, token } };
        rng.pick(&[Op::Set { cell, token }, Op::Set { cell, token }, lengthens])
    }

    fn submit(&mut self, client: usize, op: Op, relaxed: bool, sent: Sent) {
        let mut payload = Vec::with_capacity(sent.payload_bytes);
        op.encode(sent.payload_bytes, &mut payload);
        let Some(session) = self.clients[client].session else { return };
        let seq = SeqNum(self.model_of(client).requests_of(session) as u64 + 1);
        // Invoked before it is sent: what is sent may be seen at once.
        let verdict = self.model_of_mut(client).invoked(session, seq, op, relaxed, sent);
        self.must(verdict);
        self.note(Place::Client(client), Happening::Did(Deed::Invoked { seq, op }));
        self.engine.report.invoked += 1;
        if self.engine.chance.work.chance(self.scenario.work.swallowed) && self.is_faulty() {
            self.clients[client].swallowed = Some((seq, self.engine.chance.work.between(1, 2) as u32));
        }
        let request = Request {
            kind: sent.kind,
            mode: sent.mode,
            fixed_reply: op.fixed_reply().is_some(),
            relaxed,
            traced: false,
            key_hash: self.key_hash(op.cells()[0]),
            payload: &payload,
        };
        let further = [self.key_hash(op.cells()[1])];
        let names_both = matches!(op, Op::Swap { .. }) && self.scenario.work.answerable;
        let extensions = Extensions { further_keys: &further, ..Extensions::NONE };
        let taken = self.with_client(client, |machine, now, effects| {
            if names_both && machine.takes(payload.len(), &extensions) {
                let taken = machine.submit_extended(now, request, &extensions, effects);
                return taken.map_err(|error| format!("{error:?}"));
            }
            machine.submit(now, request, effects).map_err(|error| format!("{error:?}"))
        });
        self.check_submission(taken.as_ref(), seq);
    }

    /// What requests name a cell by. A device answers nothing that has no name.
    fn key_hash(&self, cell: u8) -> KeyHash {
        let (work, cell) = (&self.scenario.work, u64::from(cell));
        KeyHash(if work.answerable { 1 + cell % work.hash_count } else { cell })
    }

    fn check_submission(&mut self, taken: Option<&Result<SeqNum, String>>, seq: SeqNum) {
        if taken != Some(&Ok(seq)) {
            let detail = format!("a request that had credit and should be {seq} was answered {taken:?}");
            self.must(Err(Violation::new(Invariant::Bounded, detail)));
        }
    }

    /// Whether this sending vanishes because chance wants its request to be found by other means.
    pub(super) fn is_swallowed(&mut self, at: Place, sight: &Sight) -> bool {
        let Place::Client(client) = at else { return false };
        let is_request = sight.kind.is_some_and(scotfree_wire::Kind::is_request);
        match &mut self.clients[client].swallowed {
            Some((seq, left)) if is_request && *seq == sight.seq && *left > 0 => {
                // A sending may have several parts; it counts with its last.
                *left -= u32::from(sight.fragment.0 + 1 == sight.fragment.1);
                true
            }
            _ => false,
        }
    }

    // ---- the audit

    /// The auditors open a session with each server to read every cell.
    pub(super) fn begin_audit(&mut self) {
        let cell_count = self.scenario.work.cell_count as u8;
        for auditor in self.scenario.client_count..self.clients.len() {
            if !self.is_given_up(auditor) {
                self.clients[auditor].audits = (0..cell_count).map(|cell| Op::Get { cell }).collect();
                self.open_client(auditor);
            }
        }
    }

    fn audit(&mut self, client: usize) {
        let credit = self.clients[client].machine.as_ref().map_or(0, Client::credit);
        for _ in 0..credit {
            let Some(op) = self.clients[client].audits.pop() else { return };
            let sent = Sent {
                kind: RequestKind::Read,
                mode: Mode::Covered,
                payload_bytes: 0,
                reply_bytes: SMALL_BYTES,
            };
            self.submit(client, op, false, sent);
        }
        let incarnation = self.clients[client].incarnation;
        self.engine.after(Nanos::from_millis(1), Event::Work(client, incarnation));
    }
}

fn configure(config: &mut ClientConfig, scenario: &Scenario) {
    let unless = |wanted: bool, interval: Nanos| if wanted { interval } else { Nanos::MAX };
    let retransmits = scenario.repairs_by(Repair::ClientRetransmission);
    let beats = scenario.repairs_by(Repair::ClientHeartbeat);
    config.window_asked = scenario.window;
    config.asked = scenario.asked;
    config.device_acks_asked = scenario.device_acks;
    config.early_overtakes = scenario.early_overtakes;
    config.rto_min = unless(retransmits, Nanos::from_millis(1));
    config.rto_max = unless(retransmits, Nanos::from_millis(40));
    config.stable_retry = unless(retransmits, Nanos::from_millis(60));
    config.heartbeat_interval = unless(beats, Nanos::from_millis(10));
    config.idle_interval = unless(beats, Nanos::from_millis(15));
    config.open_tries_max = 60;
}

fn closing_words(reason: ClosedReason) -> &'static str {
    match reason {
        ClosedReason::Finished => "is done",
        ClosedReason::Unreachable => "gives up opening",
        ClosedReason::KeyRemoved => "has no key any more",
        ClosedReason::Server(CloseReason::ByClient) => "is told: closed by you",
        ClosedReason::Server(CloseReason::UnknownSession) => "is told: unknown session",
        ClosedReason::Server(CloseReason::ReplyGone) => "is told: reply gone",
        ClosedReason::Server(CloseReason::ServerFailed) => "is told: server failed",
        ClosedReason::Server(CloseReason::Expire) => "is told: expired",
        ClosedReason::Server(CloseReason::NoRoom) => "is told: no room",
        ClosedReason::Server(CloseReason::NoMemory) => "is told: no memory",
    }
}
