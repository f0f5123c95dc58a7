//! The server's event loop: drives the server machine with a [`Service`] behind a transport.
//!
//! Invariant: requests reach the service in the machine's order, one at a time; a reply leaves only
//! when the machine sends it. After a stop nothing more is received, and the loop ends when all that
//! was executed is answered and stable, or after [`ServerOptions::drain_time_max`].

mod exclusions;
mod late_stamps;
mod stop;
mod stopwatch;
mod waits;

pub use exclusions::{exclusion_notice, Exclusions};
pub use stop::Stop;

use crate::metrics::{Health, MetricKind, MetricsBoard, MetricsText, PublishTimes};
use crate::outbox::{flush, next_own, Flushed};
use crate::peek::{peek_stamped, peek_traced, Peek};
use crate::probes::{Arrivals, ProbeOptions, RealTime, Stamped, TransmitTable, UsualDelay};
use crate::refusals::Refusals;
use crate::server_metrics::ServerMetrics;
use crate::service::{DeadLetter, Execution, Replies, Report, Service};
use crate::shared_key::{KeyWatch, SharedKey};
use late_stamps::LateStamps;
use scotfree_core::{ByteRange, Effects, Machine, Nanos, SeqNum, SessionId, Token};
use scotfree_io::{now_monotonic, RxBurst, Spin, Transport};
use scotfree_session::{RecoveredSession, RequestKind, Server, ServerConfig, ServerOwn};
use scotfree_wire::{Answerer, LateStamp, ResponseTail, PACKET_BYTES_MAX};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;
use stopwatch::Stopwatch;
use waits::{Ready, Waits};

const RX_BURST_MAX: usize = 64;
const RX_BURSTS_PER_TURN_MAX: usize = 4;
const TRANSMIT_STAMPS_MAX: usize = 1_024;
/// How many requests' arrivals are remembered; a table in which the newer wins.
const ARRIVALS_MAX: usize = 16_384;
/// A stalled transport may leave so many effects unsent; beyond, all are dropped and counted.
const UNSENT_MAX: usize = 65_536;
/// Replies of a batch wait for each other for at most so long: the reply of a slow handler leaves before
/// the next handler starts.
const REPLY_WAIT_MAX: Nanos = Nanos::from_micros(50);

/// What a server runtime is told at its start, beyond its machine's configuration.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// Stamps. A server yields no records: its stamps travel with the responses.
    pub probes: ProbeOptions,
    /// How long a stop waits for stability.
    pub drain_time_max: Nanos,
    /// Whether to look for events before sleeping.
    pub spin: Spin,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            probes: ProbeOptions::default(),
            drain_time_max: Nanos::from_secs(5),
            spin: Spin::Never,
        }
    }
}

/// What was counted by the runtime itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerRuntimeCounters {
    /// Datagrams received.
    pub received: u64,
    /// Replies that the service gave.
    pub replies: u64,
    /// Of these, refusals.
    pub replies_failed: u64,
    /// Reports of the service about tickets it does not have.
    pub reports_refused: u64,
    /// Times when a stalled transport made us drop what was unsent.
    pub unsent_dropped: u64,
}

/// An execution that has no reply yet, or whose predecessors have none.
#[derive(Debug, Clone, Copy)]
struct Flight {
    session: SessionId,
    kind: RequestKind,
    /// When its burst or turn began, in monotonic time.
    begun: Nanos,
    received: Stamped,
    started: Nanos,
    replied: bool,
}

/// A server machine, its service and its transport.
pub struct ServerRuntime<T, S> {
    transport: T,
    service: S,
    machine: Server,
    options: ServerOptions,
    effects: Effects<ServerOwn>,
    processed: usize,
    sent: usize,
    replies: Replies,
    flights: VecDeque<Flight>,
    /// The ticket of the first flight.
    first_ticket: u64,
    real_time: RealTime,
    /// The request that arrives at this moment, until it is executed.
    arriving: Option<(Peek, Stamped)>,
    arrivals: Arrivals,
    /// From a request's arrival until the runtime has it.
    receive_stack: UsualDelay,
    transmit: TransmitTable<(SessionId, SeqNum)>,
    transmit_stamps: Vec<(u32, Nanos)>,
    late: LateStamps,
    rx: Option<RxBurst>,
    /// When the turn began, or in it the last replies were sent.
    sent_at: Nanos,
    /// When the devices were first asked.
    started_at: Nanos,
    /// How long it took until what they held was executed.
    recovered_after: Option<Nanos>,
    draining: bool,
    refusals: Refusals,
    waits: Waits,
    ready: Ready,
    key: Option<KeyWatch>,
    exclusions: Exclusions,
    /// So many of them are obeyed.
    excluded_count: usize,
    stopwatch: Stopwatch,
    counters: ServerRuntimeCounters,
}

impl<T: Transport, S: Service> ServerRuntime<T, S> {
    /// Starts a server: with devices it first recovers what they hold. `recovered` is what the service
    /// found in its storage.
    pub fn new(
        transport: T,
        service: S,
        config: ServerConfig,
        recovered: &[RecoveredSession],
        options: ServerOptions,
    ) -> Self {
        let probes = options.probes.for_transport(transport.stamps());
        let mut runtime = ServerRuntime {
            transport,
            service,
            machine: Server::new(config, recovered),
            options: ServerOptions { probes, ..options },
            effects: Effects::new(),
            processed: 0,
            sent: 0,
            replies: Replies::new(),
            flights: VecDeque::new(),
            first_ticket: 1,
            real_time: RealTime::compared(),
            arriving: None,
            arrivals: Arrivals::new(ARRIVALS_MAX),
            receive_stack: UsualDelay::default(),
            transmit: TransmitTable::new(TRANSMIT_STAMPS_MAX),
            transmit_stamps: Vec::new(),
            late: LateStamps::default(),
            rx: Some(RxBurst::new(RX_BURST_MAX, PACKET_BYTES_MAX)),
            sent_at: Nanos(0),
            started_at: now_monotonic(),
            recovered_after: None,
            draining: false,
            refusals: Refusals::default(),
            waits: Waits::spinning(options.spin),
            ready: Ready::UNKNOWN,
            key: None,
            exclusions: Exclusions::default(),
            excluded_count: 0,
            stopwatch: Stopwatch::default(),
            counters: ServerRuntimeCounters::default(),
        };
        runtime.machine.start(runtime.started_at, &mut runtime.effects);
        runtime
    }

    /// Turns until somebody asks to stop, then drains. Publishes metrics on `board`, if there is one.
    /// Whether everything was drained.
    pub fn run(&mut self, stop: &Stop, board: Option<&MetricsBoard>) -> io::Result<bool> {
        self.wake_on(stop.poll_fd())?;
        let mut text = MetricsText::new();
        let mut publishing = PublishTimes::default();
        while !stop.is_stopped() {
            self.turn()?;
            if let Some(board) = board.filter(|_| publishing.is_due(now_monotonic(), self.health())) {
                self.publish(board, &mut text);
            }
            self.wait(board.map(|_| Duration::from_nanos(publishing.next().since(now_monotonic()).0)))?;
        }
        let drained = self.drain();
        if let Some(board) = board {
            self.publish(board, &mut text);
        }
        drained
    }

    /// Publishes metrics and health.
    pub fn publish(&self, board: &MetricsBoard, text: &mut MetricsText) {
        text.clear();
        self.metrics().write(text);
        self.write_events(text);
        self.service.write_metrics(text);
        board.publish(text, self.health());
    }

    fn write_events(&self, text: &mut MetricsText) {
        let events = self.transport.events();
        if events.is_empty() {
            return;
        }
        let name = "scotfree_transport_events_total";
        text.family(
            MetricKind::Counter,
            name,
            "What has happened at the transport that takes the place of UDP.",
        );
        for (event, count) in events {
            text.sample(name, &[("event", event)], count);
        }
    }

    /// Whether requests are executed, and if not why.
    pub fn health(&self) -> Health {
        match (self.draining, self.machine.is_serving()) {
            (true, _) => Health::NotServing("draining"),
            (false, false) => Health::NotServing("recovering: waiting for the devices"),
            (false, true) => self.service.not_serving().map_or(Health::Serving, Health::NotServing),
        }
    }

    /// A line for the log about packets that were refused; few come, however many packets do.
    pub fn next_refusal(&mut self) -> Option<String> {
        self.refusals.next_line()
    }

    /// Receives nothing more, and waits until all that was executed is answered and stable; false if
    /// that took longer than [`ServerOptions::drain_time_max`].
    pub fn drain(&mut self) -> io::Result<bool> {
        self.draining = true;
        self.machine.drain();
        self.waits.forget_wakes()?;
        let deadline = now_monotonic().plus(self.options.drain_time_max);
        loop {
            self.turn()?;
            if self.machine.is_drained() && !self.wants_write() {
                return Ok(true);
            }
            let left = deadline.since(now_monotonic());
            if left == Nanos(0) {
                return Ok(false);
            }
            self.wait(Some(Duration::from_nanos(left.0)))?;
        }
    }

    /// Receives, executes, fires timers and sends, without blocking longer than the service does.
    pub fn turn(&mut self) -> io::Result<()> {
        self.collect_transmit_stamps();
        let ready = std::mem::replace(&mut self.ready, Ready::UNKNOWN);
        if !self.draining && ready.transport {
            for _ in 0..RX_BURSTS_PER_TURN_MAX {
                if self.receive_burst()? < RX_BURST_MAX {
                    break;
                }
            }
        }
        let now = now_monotonic();
        self.stopwatch.begun = now;
        let (machine, effects) = (&mut self.machine, &mut self.effects);
        self.late.tell(now, |session, stamps| machine.late_stamps(session, stamps, effects));
        if let Some(key) = self.key.as_mut().and_then(KeyWatch::look) {
            self.machine.set_cluster_key(now, key, &mut self.effects);
        }
        while let Some(device) = self.exclusions.next(self.excluded_count) {
            self.excluded_count += 1;
            self.machine.exclude(now, device, &mut self.effects);
        }
        if self.machine.next_timer().is_some_and(|at| at <= now) {
            self.machine.on_timer(now, &mut self.effects);
        }
        self.process()?;
        self.service.hear(ready.service);
        self.service.poll(self.machine.wants_stable(), &mut self.replies);
        if let Some(why) = self.service.broken() {
            return Err(io::Error::other(why));
        }
        self.absorb();
        self.process()?;
        self.note_recovery();
        self.flush()
    }

    /// The machine has what devices held executed in the turn in which it begins to serve.
    fn note_recovery(&mut self) {
        if self.recovered_after.is_none() && self.machine.is_serving() {
            self.recovered_after = Some(now_monotonic().since(self.started_at));
        }
    }

    /// Waits until there is something to do, at most `timeout`; follow it by [`ServerRuntime::turn`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let now = now_monotonic();
        let timers = [self.machine.next_timer(), self.service.next_poll(), self.late.due_at()];
        let timer = timers.into_iter().flatten().min().map(|at| Duration::from_nanos(at.since(now).0));
        let timeout = match (timeout, timer) {
            (Some(timeout), Some(timer)) => Some(timeout.min(timer)),
            (timeout, timer) => timeout.or(timer),
        };
        let receives = !self.draining;
        let stalled = self.wants_write();
        let in_flight = self.machine.in_flight();
        self.ready =
            self.waits.wait(in_flight, &mut self.transport, receives, stalled, &self.service, timeout)?;
        Ok(())
    }

    /// Lets [`ServerRuntime::wait`] return when `fd` is readable too, until the server drains.
    pub fn wake_on(&mut self, fd: RawFd) -> io::Result<()> {
        self.waits.add(fd)
    }

    /// Goes on without the devices that are on this list, or will be (rules 10 and 13).
    pub fn obey(&mut self, exclusions: Exclusions) {
        self.exclusions = exclusions;
        self.excluded_count = 0;
    }

    /// Follows the rotations of this key.
    pub fn follow_key(&mut self, key: SharedKey) {
        self.key = Some(KeyWatch::new(key));
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The service, to be told something; the next turn carries out what it reports.
    pub fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// Ends the server and gives its service back.
    pub fn into_service(self) -> S {
        self.service
    }

    /// The machine, to be asked.
    pub fn machine(&self) -> &Server {
        &self.machine
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// A snapshot of what an operator wants to know.
    pub fn metrics(&self) -> ServerMetrics {
        ServerMetrics {
            runtime: self.counters,
            machine: *self.machine.counters(),
            session_count: self.machine.session_count() as u64,
            buffer_bytes: self.machine.buffer_bytes() as u64,
            executing_count: self.flights.len() as u64,
            unstable_count: self.machine.ticket_last() - self.machine.ticket_stable(),
            is_serving: self.machine.is_serving() && !self.draining,
            recovered_after: self.recovered_after,
            durations: self.stopwatch.counted(),
        }
    }

    // ---- inside a turn

    fn wants_write(&self) -> bool {
        self.sent != self.effects.len()
    }

    fn receive_burst(&mut self) -> io::Result<usize> {
        let mut rx = self.rx.take().expect("the burst is put back below");
        let count = self.transport.rx_burst(&mut rx);
        let handled = if matches!(count, Ok(1..)) { self.on_burst(&rx) } else { Ok(()) };
        self.rx = Some(rx);
        handled.and(count)
    }

    fn on_burst(&mut self, rx: &RxBurst) -> io::Result<()> {
        let now = now_monotonic();
        self.real_time.keep_up(now);
        let stamp = self.real_time.at(now);
        let local = self.transport.local_address();
        self.counters.received += rx.len() as u64;
        self.sent_at = now;
        self.stopwatch.begun = now;
        for packet in rx.iter() {
            self.arriving = self.look_at(packet.bytes, packet.received_at, stamp);
            self.machine.on_message(now, packet.from, local, packet.bytes, &mut self.effects);
            self.refusals.look(now, packet.from, packet.bytes.len(), &self.machine.counters().refused);
            self.process()?;
            // What was not executed at once is remembered until it is.
            if let Some((peek, stamped)) = self.arriving.take() {
                self.arrivals.note(peek.session, peek.seq, peek.is_fragment, stamped);
            }
        }
        Ok(())
    }

    fn look_at(&mut self, bytes: &[u8], received_at: Option<Nanos>, stamp: Nanos) -> Option<(Peek, Stamped)> {
        if !self.options.probes.stamps {
            return None;
        }
        peek_traced(bytes).map(|peek| (peek, self.receive_stack.arrival(received_at, stamp)))
    }

    /// When a request that is executed now reached this host.
    fn arrival(&mut self, session: SessionId, seq: SeqNum) -> Stamped {
        match self.arriving.take_if(|(peek, _)| (peek.session, peek.seq) == (session, seq)) {
            Some((_, stamped)) => stamped,
            None if self.options.probes.stamps => self.arrivals.take(session, seq),
            None => Stamped::default(),
        }
    }

    /// Carries out the machine's wishes, all that are new; packets wait for [`Self::flush`].
    fn process(&mut self) -> io::Result<()> {
        while let Some(own) = next_own(&self.effects, &mut self.processed) {
            match own {
                ServerOwn::Execute { ticket, session, seq, kind, is_replayed, identity, payload } => {
                    let request =
                        Execution { ticket, session, seq, kind, payload: &[], is_replayed, identity };
                    self.execute(&request, payload)?;
                }
                ServerOwn::RecordSession { record } => {
                    self.service.record_session(&record, &mut self.replies);
                    self.absorb();
                }
                ServerOwn::DeleteSession { session } => {
                    self.service.delete_session(session, &mut self.replies);
                    self.absorb();
                }
                ServerOwn::DeadLetter { session, seq, reason, payload } => {
                    let payload = self.effects.bytes(payload);
                    self.service.dead_letter(&DeadLetter { session, seq, reason, payload });
                }
            }
        }
        Ok(())
    }

    /// Hands a request to the service, with this payload.
    fn execute(&mut self, request: &Execution<'_>, payload: ByteRange) -> io::Result<()> {
        let Execution { ticket, session, seq, kind, .. } = *request;
        let received = self.arrival(session, seq);
        let started = if received.is_some() { self.real_time.at(now_monotonic()) } else { Nanos(0) };
        if self.flights.is_empty() {
            self.first_ticket = ticket;
        }
        debug_assert_eq!(ticket, self.first_ticket + self.flights.len() as u64, "tickets are contiguous");
        self.stopwatch.begin(ticket, kind);
        let begun = self.stopwatch.begun;
        self.flights.push_back(Flight { session, kind, begun, received, started, replied: false });
        let payload = self.effects.bytes(payload);
        self.service.execute(&Execution { payload, ..*request }, &mut self.replies);
        if self.replies.is_empty() {
            return Ok(());
        }
        let ended = now_monotonic();
        self.absorb_at(ended);
        if ended.since(self.sent_at) > REPLY_WAIT_MAX {
            // Sends without forgetting: effects behind the cursor are still to be carried out.
            self.send_unsent()?;
            self.sent_at = ended;
        }
        Ok(())
    }

    fn absorb(&mut self) {
        if !self.replies.is_empty() {
            self.absorb_at(now_monotonic());
        }
    }

    /// Tells the machine what the service has reported. Where a report does not say when the handler
    /// ended, it was `now`.
    fn absorb_at(&mut self, now: Nanos) {
        let dequeued = self.real_time.at(now);
        let mut index = 0;
        while let Some(report) = self.replies.report(index) {
            index += 1;
            match report {
                Report::Reply { ticket, start, end, failed, ended } => {
                    let ended = if ended == Nanos(0) { dequeued } else { ended };
                    let Some(times) = self.land(now, ticket, ended, dequeued) else {
                        self.counters.reports_refused += 1;
                        continue;
                    };
                    self.counters.replies += 1;
                    self.counters.replies_failed += u64::from(failed);
                    let reply = self.replies.bytes(start, end);
                    self.machine.on_executed(now, ticket, reply, failed, times, &mut self.effects);
                }
                Report::Independent { ticket } => self.machine.on_independent(ticket),
                Report::Lives { ticket, remaining_ms } => self.machine.on_lives(ticket, remaining_ms),
                Report::Stable { ticket } => {
                    self.stopwatch.settle(now, ticket);
                    self.machine.on_persisted(now, Token(ticket), &mut self.effects);
                }
                Report::StableAsAnswered => {
                    let answered = self.first_ticket - 1;
                    if answered > self.machine.ticket_stable() {
                        self.stopwatch.settle(now, answered);
                        self.machine.on_persisted(now, Token(answered), &mut self.effects);
                    }
                }
                Report::SessionRecorded(session) => {
                    self.machine.on_session_recorded(now, session, &mut self.effects);
                }
                Report::SessionDeleted(session) => {
                    self.machine.on_session_deleted(now, session, &mut self.effects);
                }
                Report::SessionRefused(session) => {
                    self.machine.refuse_session(now, session, &mut self.effects);
                }
                Report::SessionFailed(session) => {
                    self.machine.fail_session(now, session, &mut self.effects);
                    self.give_up_flights(now, session);
                }
            }
        }
        self.replies.clear();
    }

    /// No reply will come for what a failed session has under way.
    fn give_up_flights(&mut self, now: Nanos, session: SessionId) {
        for index in 0..self.flights.len() {
            let flight = &mut self.flights[index];
            if flight.session == session && !flight.replied {
                flight.replied = true;
                let ticket = self.first_ticket + index as u64;
                let times = ResponseTail::default();
                self.machine.on_executed(now, ticket, &[], true, times, &mut self.effects);
            }
        }
        self.forget_landed();
    }

    fn forget_landed(&mut self) {
        while self.flights.front().is_some_and(|flight| flight.replied) {
            self.flights.pop_front();
            self.first_ticket += 1;
        }
    }

    /// The stamps of an execution that has its reply `now`; `None` if there is no such execution.
    fn land(&mut self, now: Nanos, ticket: u64, ended: Nanos, dequeued: Nanos) -> Option<ResponseTail> {
        let index = ticket.checked_sub(self.first_ticket)? as usize;
        let flight = self.flights.get_mut(index).filter(|flight| !flight.replied)?;
        flight.replied = true;
        self.stopwatch.reply(now, flight.begun, flight.kind);
        let times = ResponseTail {
            received: flight.received.at,
            started: flight.started,
            ended,
            dequeued,
            received_by: flight.received.source,
            answered_by: Answerer::SERVER,
        };
        self.forget_landed();
        Some(if times.started == Nanos(0) { ResponseTail::default() } else { times })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_unsent()?;
        let unsent = self.effects.len() - self.sent;
        if unsent > UNSENT_MAX {
            self.counters.unsent_dropped += 1;
        }
        if (unsent == 0 || unsent > UNSENT_MAX) && self.processed == self.effects.len() {
            self.effects.clear();
            self.processed = 0;
            self.sent = 0;
        }
        Ok(())
    }

    fn send_unsent(&mut self) -> io::Result<()> {
        if !self.wants_write() {
            return Ok(());
        }
        let probes = self.options.probes;
        let transmit = &mut self.transmit;
        let mut asked = false;
        let flushed = flush(&self.effects, self.sent, &mut self.transport, |_, bytes| {
            let peek = peek_stamped(bytes).filter(|peek| peek.is_last_fragment)?;
            let sampled = probes.samples_transmit(peek.seq);
            asked |= sampled;
            sampled.then(|| transmit.ask((peek.session, peek.seq)))
        })?;
        self.sent = match flushed {
            Flushed::All => self.effects.len(),
            Flushed::UpTo(next) => next,
        };
        // Most kernels have stamped by now: what is fetched here wakes nobody later.
        if asked {
            self.collect_transmit_stamps();
        }
        Ok(())
    }

    fn collect_transmit_stamps(&mut self) {
        if !self.transmit.is_waiting() {
            return;
        }
        let mut stamps = std::mem::take(&mut self.transmit_stamps);
        self.transport.tx_stamps(&mut stamps);
        for (key, at) in stamps.drain(..) {
            if let Some((session, seq)) = self.transmit.answered(key) {
                self.late.push(self.sent_at, session, LateStamp { seq, sent: at });
            }
        }
        self.transmit_stamps = stamps;
    }
}
