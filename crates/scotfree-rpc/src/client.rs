//! The client's event loop: many sessions over one transport, requests and completions in bursts.
//!
//! Usable in three ways: embedded in another loop ([`ClientRuntime::turn`] when
//! [`ClientRuntime::poll_fd`] is ready or [`ClientRuntime::next_timer`] has come), with its own
//! waiting ([`ClientRuntime::wait`]), and one call at a time ([`ClientRuntime::call`]).
//!
//! Invariant: every submitted request ends in exactly one [`ClientEvent::Completed`], or is counted as
//! unknown by the [`ClientEvent::Closed`] of its session. After warm-up no request allocates.

mod blocking;
mod event;
mod stamps;

pub use event::{CallError, ClientEvent, ClientRuntimeCounters, ClientTotals, Recorded, Reply, StartError};

pub(crate) use blocking::Patience;

use crate::outbox::{flush, next_own, Flushed};
use crate::probes::{Call, CallLabel, ProbeOptions, RealTime, Recorder, Stamped, TransmitTable};
use crate::refusals::Refusals;
use crate::shared_key::{KeyWatch, SharedKey};
use scotfree_core::{Effects, Epoch, KeyHash, Machine, Nanos, SeqNum, SessionId, Tier};
use scotfree_io::{now_monotonic, Interest, Poller, RxBurst, Spin, Transport};
use scotfree_session::{
    Client, ClientConfig, ClientCounters, ClientOwn, ClosedReason, Completion, ExtendedError, Request,
    SubmitError,
};
use scotfree_trace::CallRecord;
use scotfree_wire::{ClusterKey, Extensions, Identity, Key, Kind, Nonce, Packet, Tail, PACKET_BYTES_MAX};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// How many datagrams are received at once, and how many such bursts a turn takes at most.
const RX_BURST_MAX: usize = 64;
const RX_BURSTS_PER_TURN_MAX: usize = 4;
/// How many openings of sessions are under way at once; further ones wait for one of them to end. A server
/// keeps only so many sessions whose client has not spoken.
const OPENINGS_MAX: usize = 32;
/// How many transmit stamps may be awaited.
const TRANSMIT_STAMPS_MAX: usize = 1_024;
/// How many reply buffers are kept for the next replies.
const SPARE_BUFFERS_MAX: usize = 1_024;
/// A stalled transport may leave so many effects unsent; beyond, all are dropped and counted, as the
/// network could have lost them too.
const UNSENT_MAX: usize = 65_536;

/// What a client runtime is told at its start.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The server's address.
    pub server: SocketAddr,
    /// The secret that the cluster shares.
    pub cluster_key: ClusterKey,
    /// How many sessions may exist at once; a further one is refused.
    pub sessions_max: usize,
    /// How many events may wait to be taken; beyond, the transport is not read.
    pub events_max: usize,
    /// Stamps and records.
    pub probes: ProbeOptions,
}

impl ClientOptions {
    /// Defaults.
    pub fn new(server: SocketAddr, cluster_key: ClusterKey) -> ClientOptions {
        ClientOptions {
            server,
            cluster_key,
            sessions_max: 4_096,
            events_max: 16_384,
            probes: ProbeOptions::default(),
        }
    }
}

/// What one session asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// How many requests it would like to have outstanding.
    pub window_asked: u32,
    /// What devices must give before an update is acknowledged.
    pub tier: Tier,
    /// Whether an early update completes before its elders, as soon as none of their writes can be lost; otherwise all
    /// complete in session order.
    pub early_overtakes: bool,
    /// How often the opening is tried before the session is given up.
    pub open_tries_max: u32,
    /// With which server; the runtime's, if none is named.
    pub server: Option<SocketAddr>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            window_asked: 1_024,
            tier: Tier::RAM,
            early_overtakes: false,
            open_tries_max: 40,
            server: None,
        }
    }
}

/// Names a session of one runtime; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionHandle {
    slot: u32,
    generation: u32,
}

impl SessionHandle {
    /// A handle of another [`crate::Upstream`] than a runtime, by that one's own numbers.
    pub const fn numbered(number: u64) -> SessionHandle {
        SessionHandle { slot: number as u32, generation: (number >> 32) as u32 }
    }
}

struct Slot {
    client: Client,
    /// Whose session it is: those of two servers may bear the same id.
    server: SocketAddr,
    generation: u32,
    id: Option<SessionId>,
    /// The earliest timer of this slot in the heap.
    armed: Nanos,
    /// The calls from the first that is not complete on, in session order; that one is at `first_call`.
    calls: VecDeque<Option<Call>>,
    first_call: SeqNum,
}

impl Slot {
    /// Whether this is the server's session of this name, which has not ended.
    fn is_named(&self, server: SocketAddr, id: SessionId) -> bool {
        self.id == Some(id) && self.server == server && !self.client.is_closed()
    }

    fn call(&mut self, seq: SeqNum) -> Option<&mut Call> {
        let index = seq.0.checked_sub(self.first_call.0)? as usize;
        self.calls.get_mut(index)?.as_mut()
    }

    /// Takes a call that is complete: early ones overtake others.
    fn take_call(&mut self, seq: SeqNum) -> Option<Call> {
        let index = seq.0.checked_sub(self.first_call.0)? as usize;
        let call = self.calls.get_mut(index)?.take();
        while let Some(None) = self.calls.front() {
            self.calls.pop_front();
            self.first_call = self.first_call.next();
        }
        call
    }

    fn handle(&self, slot: usize) -> SessionHandle {
        SessionHandle { slot: slot as u32, generation: self.generation }
    }
}

#[derive(Debug)]
struct Event {
    slot: usize,
    session: SessionHandle,
    what: What,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all events are completions, which must not allocate")]
enum What {
    Opened { id: SessionId, window: u32 },
    Completed { completion: Completion, reply: Option<Vec<u8>>, call: Call, completing: Stamped },
    Closed { reason: ClosedReason, unknown_count: u64 },
}

/// A call whose packets wait to be sent.
#[derive(Debug, Clone, Copy)]
struct Fresh {
    slot: usize,
    seq: SeqNum,
    /// The index of the effect that is its last packet.
    effect: usize,
}

/// Many sessions over one transport.
pub struct ClientRuntime<T> {
    transport: T,
    options: ClientOptions,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    generation_next: u32,
    by_id: HashMap<(SocketAddr, SessionId), usize>,
    /// The slot that the last packet was for: most often the next is too.
    last_addressee: usize,
    opening: HashMap<Nonce, usize>,
    /// Of these, the ones that wait to be sent.
    opening_later: VecDeque<SessionHandle>,
    timers: BinaryHeap<Reverse<(Nanos, usize)>>,
    effects: Effects<ClientOwn>,
    /// How many effects were looked at, and sent.
    processed: usize,
    sent: usize,
    events: VecDeque<Event>,
    /// The reply handed over last, and buffers for the next ones.
    handed_over: Vec<u8>,
    spare: Vec<Vec<u8>>,
    recorder: Recorder,
    /// Under which keys are hashed in records.
    trace_keys: Key,
    real_time: RealTime,
    /// Calls to be stamped with the next flush, then those of them whose transmit stamp is wanted.
    fresh: VecDeque<Fresh>,
    fresh_stamped: usize,
    transmit: TransmitTable<(usize, SeqNum)>,
    transmit_stamps: Vec<(u32, Nanos)>,
    rx: Option<RxBurst>,
    poller: Option<Poller>,
    refusals: Refusals,
    key: Option<KeyWatch>,
    counters: ClientRuntimeCounters,
}

impl<T: Transport> ClientRuntime<T> {
    /// A runtime without sessions.
    pub fn new(transport: T, options: ClientOptions) -> Self {
        let probes = options.probes.for_transport(transport.stamps());
        let options = ClientOptions { probes, ..options };
        ClientRuntime {
            transport,
            slots: Vec::new(),
            free: Vec::new(),
            generation_next: 0,
            by_id: HashMap::new(),
            last_addressee: 0,
            opening: HashMap::new(),
            opening_later: VecDeque::new(),
            timers: BinaryHeap::new(),
            effects: Effects::new(),
            processed: 0,
            sent: 0,
            events: VecDeque::new(),
            handed_over: Vec::new(),
            spare: Vec::new(),
            trace_keys: options.cluster_key.trace_keys(),
            recorder: Recorder::new(options.probes),
            real_time: RealTime::compared(),
            fresh: VecDeque::new(),
            fresh_stamped: 0,
            transmit: TransmitTable::new(TRANSMIT_STAMPS_MAX),
            transmit_stamps: Vec::new(),
            rx: Some(RxBurst::new(RX_BURST_MAX, PACKET_BYTES_MAX)),
            poller: None,
            refusals: Refusals::default(),
            key: None,
            counters: ClientRuntimeCounters::default(),
            options,
        }
    }

    // ---- sessions

    /// Starts a session; [`ClientEvent::Opened`] or [`ClientEvent::Closed`] says what came of it.
    pub fn start_session(&mut self, options: SessionOptions) -> Result<SessionHandle, StartError> {
        let mut random = [0; 24];
        getrandom::fill(&mut random).map_err(StartError::Random)?;
        let mut nonce = Nonce::default();
        nonce.copy_from_slice(&random[..16]);
        let mut seed = [0; 8];
        seed.copy_from_slice(&random[16..]);
        let mut config = ClientConfig::new(
            self.transport.local_address(),
            options.server.unwrap_or(self.options.server),
            self.options.cluster_key.clone(),
            nonce,
            u64::from_le_bytes(seed),
        );
        config.window_asked = options.window_asked;
        config.asked = options.tier.durability();
        config.device_acks_asked = options.tier.device_count();
        config.early_overtakes = options.early_overtakes;
        config.open_tries_max = options.open_tries_max;
        self.start_configured(config)
    }

    /// As [`ClientRuntime::start_session`], with every setting of the machine in the caller's hand.
    pub fn start_configured(&mut self, config: ClientConfig) -> Result<SessionHandle, StartError> {
        let sessions_max = self.options.sessions_max;
        if self.slots.len() - self.free.len() >= sessions_max {
            return Err(StartError::TooMany { sessions_max });
        }
        let generation = self.generation_next;
        self.generation_next = generation.wrapping_add(1);
        let nonce = config.client_nonce;
        let entry = Slot {
            server: config.server,
            client: Client::new(config),
            generation,
            id: None,
            armed: Nanos::MAX,
            calls: VecDeque::new(),
            first_call: SeqNum(1),
        };
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        let handle = entry.handle(slot);
        self.opening.insert(nonce, slot);
        self.slots[slot] = Some(entry);
        self.counters.sessions_started += 1;
        self.opening_later.push_back(handle);
        self.open_next();
        Ok(handle)
    }

    fn open_next(&mut self) {
        while self.opening.len() - self.opening_later.len() < OPENINGS_MAX {
            let Some(session) = self.opening_later.pop_front() else { return };
            self.step(session.slot as usize, Client::open);
        }
    }

    /// Follows the rotations of this key.
    pub fn follow_key(&mut self, key: SharedKey) {
        self.key = Some(KeyWatch::new(key));
    }

    /// New sessions are opened under the newest epoch; those whose epoch is gone end.
    fn set_cluster_key(&mut self, key: &ClusterKey) {
        self.trace_keys = key.trace_keys();
        self.options.cluster_key = key.clone();
        let slots = (0..self.slots.len()).filter(|slot| self.slots[*slot].is_some()).collect::<Vec<_>>();
        for slot in slots {
            self.step(slot, |client, _, effects| client.set_cluster_key(key.clone(), effects));
        }
    }

    /// Ends a session once all its updates are stable; [`ClientEvent::Closed`] says when.
    pub fn end_session(&mut self, session: SessionHandle) {
        if self.slot(session).is_some() {
            let slot = session.slot as usize;
            self.step(slot, Client::close);
        }
    }

    /// Ends a session at once, whatever is not complete or not stable: [`ClientEvent::Closed`] follows, and nothing of
    /// it is sent any more. For a server that is believed to be lost.
    pub fn abandon_session(&mut self, session: SessionHandle) {
        if self.slot(session).is_some() {
            self.step(session.slot as usize, |client, _, effects| client.abandon(effects));
        }
    }

    /// The epoch that the session's server was in when it was opened, once it is open.
    pub fn server_epoch(&self, session: SessionHandle) -> Option<Epoch> {
        self.slot(session)?.client.server_epoch()
    }

    /// The session's name in the cluster, once it is open.
    pub fn session_id(&self, session: SessionHandle) -> Option<SessionId> {
        self.slot(session)?.id
    }

    /// Whether the session is opening, open or closing: no [`ClientEvent::Closed`] was taken for it.
    pub fn is_alive(&self, session: SessionHandle) -> bool {
        self.slot(session).is_some()
    }

    /// How many more requests the session would take now.
    pub fn credit(&self, session: SessionHandle) -> u32 {
        self.slot(session).filter(|slot| slot.client.is_open()).map_or(0, |slot| slot.client.credit())
    }

    /// How many requests of the session are not complete.
    pub fn outstanding(&self, session: SessionHandle) -> usize {
        self.slot(session).map_or(0, |slot| slot.client.outstanding())
    }

    /// How many requests of the session are not complete, or not known to be stable.
    pub fn kept(&self, session: SessionHandle) -> usize {
        self.slot(session).map_or(0, |slot| slot.client.kept())
    }

    /// The session's machine's counters, while it lives.
    pub fn session_counters(&self, session: SessionHandle) -> Option<&ClientCounters> {
        self.slot(session).map(|slot| slot.client.counters())
    }

    // ---- requests

    /// Takes a request. It leaves with the next [`ClientRuntime::turn`] or [`ClientRuntime::flush`],
    /// together with all others taken until then.
    pub fn submit(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        self.submit_naming(session, request, &[], label)
    }

    /// As [`ClientRuntime::submit`], of a request that touches these keys beside the one that it is named by, and no
    /// others. To a server that takes no such word, and where it does not fit the request's packet, it goes without.
    pub fn submit_naming(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        further_keys: &[KeyHash],
        label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        let extensions = Extensions { further_keys, ..Extensions::NONE };
        let fits = self.takes(session, request.payload.len(), &extensions);
        self.submit_extended(session, request, if fits { &extensions } else { &Extensions::NONE }, label)
    }

    /// As [`ClientRuntime::submit`], of a request that bears this identity if [`ClientRuntime::takes_identity`], and
    /// none otherwise.
    pub fn submit_identified(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        identity: Identity,
        label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        let extensions = Extensions { identity: Some(identity), ..Extensions::NONE };
        let fits = self.takes(session, request.payload.len(), &extensions);
        self.submit_extended(session, request, if fits { &extensions } else { &Extensions::NONE }, label)
    }

    /// Whether the session's server takes identities, and one packet has room for one beside so many bytes.
    pub fn takes_identity(&self, session: SessionHandle, payload_bytes: usize) -> bool {
        let identity = Some(Identity { client: [0; 16], number: 0 });
        self.takes(session, payload_bytes, &Extensions { identity, ..Extensions::NONE })
    }

    fn takes(&self, session: SessionHandle, payload_bytes: usize, extensions: &Extensions<'_>) -> bool {
        self.slot(session).is_some_and(|slot| slot.client.takes(payload_bytes, extensions))
    }

    /// Takes a request with extensions that fit its packet and that the server takes.
    fn submit_extended(
        &mut self,
        session: SessionHandle,
        request: Request<'_>,
        extensions: &Extensions<'_>,
        mut label: CallLabel,
    ) -> Result<SeqNum, SubmitError> {
        if self.slot(session).is_none() {
            return Err(SubmitError::Closed);
        }
        let now = now_monotonic();
        self.real_time.keep_up(now);
        let slot = session.slot as usize;
        let (bytes, effects) = (request.payload.len(), self.effects.len());
        let entry = self.slots[slot].as_mut().expect("the handle was looked up just now");
        let next = SeqNum(entry.first_call.0 + entry.calls.len() as u64);
        let key = self.options.probes.recorded_key(request.key_hash, &self.trace_keys);
        let traced = self.options.probes.stamps_call(next, key);
        let request = Request { traced, ..request };
        let taken = match entry.client.submit_extended(now, request, extensions, &mut self.effects) {
            Ok(seq) => Ok(seq),
            Err(ExtendedError::Submit(error)) => Err(error),
            Err(ExtendedError::NotOffered) => unreachable!("what is not offered was left out"),
        };
        if let Ok(seq) = taken {
            debug_assert_eq!(seq, next);
            if traced && label.called == Nanos(0) {
                label.called = self.real_time.at(now);
            }
            entry.calls.push_back(Some(Call { key, ..Call::new(label, bytes, traced) }));
            if traced && self.effects.len() > effects {
                self.fresh.push_back(Fresh { slot, seq, effect: self.effects.len() - 1 });
            }
        }
        self.process(slot, Stamped::default());
        taken
    }

    // ---- the loop

    /// Receives, fires timers and sends, without blocking. Then take the events.
    pub fn turn(&mut self) -> io::Result<()> {
        self.collect_transmit_stamps();
        if let Some(key) = self.key.as_mut().and_then(KeyWatch::look) {
            self.set_cluster_key(&key);
        }
        let mut looked = None;
        for _ in 0..RX_BURSTS_PER_TURN_MAX {
            if self.events.len() >= self.options.events_max || self.receive_burst(&mut looked)? < RX_BURST_MAX
            {
                break;
            }
        }
        self.fire_timers(looked.unwrap_or_else(now_monotonic));
        self.open_next();
        self.flush()
    }

    /// Sends what was submitted.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.sent == self.effects.len() {
            return Ok(());
        }
        self.stamp_dequeued();
        let (fresh, transmit, mut asked) = (&mut self.fresh, &mut self.transmit, false);
        let flushed = flush(&self.effects, self.sent, &mut self.transport, |index, _| {
            while fresh.front().is_some_and(|fresh| fresh.effect < index) {
                fresh.pop_front();
            }
            let wanted = *fresh.front().filter(|fresh| fresh.effect == index)?;
            asked = true;
            Some(transmit.ask((wanted.slot, wanted.seq)))
        })?;
        // Most kernels have stamped by now: what is fetched here wakes nobody later.
        if asked {
            self.collect_transmit_stamps();
        }
        self.fresh_stamped = self.fresh.len();
        match flushed {
            Flushed::All => self.forget_effects(),
            Flushed::UpTo(next) => self.sent = next,
        }
        if self.effects.len() - self.sent > UNSENT_MAX {
            self.counters.unsent_dropped += 1;
            self.forget_effects();
        }
        Ok(())
    }

    fn forget_effects(&mut self) {
        self.fresh.clear();
        self.fresh_stamped = 0;
        self.effects.clear();
        self.processed = 0;
        self.sent = 0;
    }

    /// How [`ClientRuntime::wait`] looks before it sleeps.
    pub fn spin(&mut self, spin: Spin) -> io::Result<()> {
        if let Some(fd) = self.transport.poll_fd() {
            let mut poller = Poller::new(4)?;
            poller.add(fd, 0, Interest::Read)?;
            poller.spin(spin);
            self.poller = Some(poller);
        }
        Ok(())
    }

    /// Waits until there is something to do, at most `timeout`; follow it by [`ClientRuntime::turn`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timer = self.next_timer().map(|at| Duration::from_nanos(at.since(now_monotonic()).0));
        let timeout = match (timeout, timer) {
            (Some(timeout), Some(timer)) => Some(timeout.min(timer)),
            (timeout, timer) => timeout.or(timer),
        };
        let Some(fd) = self.transport.poll_fd() else {
            // A transport that cannot be polled is looked at in short turns.
            std::thread::park_timeout(timeout.unwrap_or_default().min(Duration::from_micros(50)));
            return Ok(());
        };
        if self.poller.is_none() {
            let poller = Poller::new(4)?;
            poller.add(fd, 0, Interest::Read)?;
            self.poller = Some(poller);
        }
        let stalled = self.wants_write();
        let poller = self.poller.as_mut().expect("it was made just now");
        if stalled {
            poller.modify(fd, 0, Interest::ReadWrite)?;
        }
        poller.wait_for(&mut self.transport, timeout, true)?;
        if stalled {
            poller.modify(fd, 0, Interest::Read)?;
        }
        Ok(())
    }

    /// Says that the caller is about to sleep on [`ClientRuntime::poll_fd`]; false if it is to turn at once, since
    /// something has come of which that does not tell.
    pub fn may_sleep(&mut self) -> bool {
        self.transport.may_sleep()
    }

    /// What to watch in another loop: readable or in error means [`ClientRuntime::turn`]. Before each sleep on it ask
    /// [`ClientRuntime::may_sleep`].
    pub fn poll_fd(&self) -> Option<RawFd> {
        self.transport.poll_fd()
    }

    /// Whether the transport was full: watch for writability too.
    pub fn wants_write(&self) -> bool {
        self.sent != self.effects.len()
    }

    /// When to call [`ClientRuntime::turn`] next even if nothing arrives, in monotonic time.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The next event. Taking it is the caller's resumption: the last stamp of its call.
    pub fn next_event(&mut self) -> Option<ClientEvent<'_>> {
        let event = self.events.pop_front()?;
        Some(self.hand_over(event))
    }

    /// A finished record of a call; hand it to a trace writer.
    pub fn next_record(&mut self) -> Option<CallRecord> {
        self.recorder.take()
    }

    /// A finished record, also of calls that still wait for late stamps: for the end of a run.
    pub fn last_record(&mut self) -> Option<CallRecord> {
        self.recorder.take_any()
    }

    /// What was counted.
    pub fn counters(&self) -> ClientRuntimeCounters {
        ClientRuntimeCounters { records_dropped: self.recorder.dropped(), ..self.counters }
    }

    /// The counters of all sessions, ended ones included.
    pub fn totals(&self) -> ClientTotals {
        let mut totals = self.counters.ended;
        for slot in self.slots.iter().flatten().filter(|slot| !slot.client.is_closed()) {
            totals.add(slot.client.counters());
        }
        totals
    }

    /// A line for the log about packets that were refused; few come, however many packets do.
    pub fn next_refusal(&mut self) -> Option<String> {
        self.refusals.next_line()
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    // ---- inside a turn

    fn slot(&self, session: SessionHandle) -> Option<&Slot> {
        let slot = self.slots.get(session.slot as usize)?.as_ref()?;
        (slot.generation == session.generation).then_some(slot)
    }

    /// Takes a burst in; if one came, `looked` is when.
    fn receive_burst(&mut self, looked: &mut Option<Nanos>) -> io::Result<usize> {
        let mut rx = self.rx.take().expect("the burst is put back below");
        let count = self.transport.rx_burst(&mut rx);
        if matches!(count, Ok(1..)) {
            let now = *looked.insert(now_monotonic());
            self.real_time.keep_up(now);
            let stamp = self.real_time.at(now);
            let local = self.transport.local_address();
            for packet in rx.iter() {
                let arrived = self.recorder.receive_stack.arrival(packet.received_at, stamp);
                self.on_packet(now, packet.from, local, packet.bytes, arrived);
            }
            self.counters.received += rx.len() as u64;
        }
        self.rx = Some(rx);
        count
    }

    fn on_packet(&mut self, now: Nanos, from: SocketAddr, to: SocketAddr, bytes: &[u8], arrived: Stamped) {
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                self.counters.refused[error as usize] += 1;
                return self.refusals.look(now, from, bytes.len(), &self.counters.refused);
            }
        };
        let Some(slot) = self.addressee(from, &packet) else {
            self.counters.unclaimed += 1;
            return;
        };
        self.last_addressee = slot;
        let Some(entry) = self.slots[slot].as_mut() else { return };
        if let Some(call) = entry.call(packet.seq_num()) {
            match packet.kind() {
                Kind::Response => call.response = arrived,
                Kind::PersistAck => call.device_ack = arrived,
                _ => {}
            }
        }
        let before = entry.client.counters().refused;
        entry.client.on_message(now, from, to, bytes, &mut self.effects);
        let after = entry.client.counters().refused;
        if before != after {
            let grown = after.iter().zip(before).map(|(after, before)| after - before);
            self.counters.refused.iter_mut().zip(grown).for_each(|(all, grown)| *all += grown);
            self.refusals.look(now, from, bytes.len(), &self.counters.refused);
        }
        self.process(slot, arrived);
    }

    /// The session that a packet is for. What answers an opening names the opening's nonce.
    fn addressee(&self, from: SocketAddr, packet: &Packet<'_>) -> Option<usize> {
        let opening = match packet.tail() {
            Tail::Accept(accept) => self.opening.get(&accept.client_nonce),
            Tail::Close(_) => {
                Nonce::try_from(packet.payload()).ok().and_then(|nonce| self.opening.get(&nonce))
            }
            _ => None,
        };
        // A server that speaks from another of its addresses is believed to be the runtime's; keys tell.
        let of = |server| self.by_id.get(&(server, packet.session()));
        let last = self.slots.get(self.last_addressee).and_then(Option::as_ref);
        if opening.is_none() && last.is_some_and(|slot| slot.is_named(from, packet.session())) {
            return Some(self.last_addressee);
        }
        opening.or_else(|| of(from)).or_else(|| of(self.options.server)).copied()
    }

    fn fire_timers(&mut self, now: Nanos) {
        self.recorder.settle(self.real_time.at(now));
        while let Some(Reverse((at, slot))) =
            self.timers.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            self.timers.pop();
            let Some(entry) = self.slots[slot].as_mut() else { continue };
            if entry.armed != at {
                continue;
            }
            entry.armed = Nanos::MAX;
            entry.client.on_timer(now, &mut self.effects);
            self.process(slot, Stamped::default());
        }
    }

    fn step(&mut self, slot: usize, act: impl FnOnce(&mut Client, Nanos, &mut Effects<ClientOwn>)) {
        let now = now_monotonic();
        if let Some(entry) = self.slots[slot].as_mut() {
            act(&mut entry.client, now, &mut self.effects);
        }
        self.process(slot, Stamped::default());
    }

    /// Looks at the effects of the session in `slot`, all that are new.
    fn process(&mut self, slot: usize, completing: Stamped) {
        while let Some(own) = next_own(&self.effects, &mut self.processed) {
            self.on_own(slot, own, completing);
        }
        self.arm(slot);
    }

    fn arm(&mut self, slot: usize) {
        let Some(entry) = self.slots[slot].as_mut() else { return };
        let Some(at) = entry.client.next_timer() else { return };
        if at < entry.armed {
            entry.armed = at;
            self.timers.push(Reverse((at, slot)));
        }
    }

    fn on_own(&mut self, slot: usize, own: ClientOwn, completing: Stamped) {
        match own {
            ClientOwn::Opened { session, window } => self.on_opened(slot, session, window),
            ClientOwn::Complete(completion) => self.on_complete(slot, completion, completing),
            ClientOwn::Closed { reason } => self.on_closed(slot, reason),
            ClientOwn::LateStamp(stamp) => self.on_late_stamp(slot, stamp.seq, stamp.sent),
        }
    }

    fn on_opened(&mut self, slot: usize, id: SessionId, window: u32) {
        let Some(entry) = self.slots[slot].as_mut() else { return };
        self.opening.remove(entry.client.client_nonce());
        entry.id = Some(id);
        self.by_id.insert((entry.server, id), slot);
        let session = entry.handle(slot);
        self.events.push_back(Event { slot, session, what: What::Opened { id, window } });
    }

    fn on_complete(&mut self, slot: usize, completion: Completion, completing: Stamped) {
        let Some(entry) = self.slots[slot].as_mut() else { return };
        let Some(call) = entry.take_call(completion.seq) else { return };
        let session = entry.handle(slot);
        let reply = completion.reply.map(|range| {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.extend_from_slice(self.effects.bytes(range));
            bytes
        });
        let what = What::Completed { completion, reply, call, completing };
        self.events.push_back(Event { slot, session, what });
    }

    fn on_closed(&mut self, slot: usize, reason: ClosedReason) {
        let Some(entry) = self.slots[slot].as_mut() else { return };
        self.opening.remove(entry.client.client_nonce());
        if let Some(id) = entry.id {
            self.by_id.remove(&(entry.server, id));
        }
        let unknown_count = entry.calls.iter().flatten().count() as u64;
        entry.calls.clear();
        self.counters.sessions_ended += 1;
        self.counters.ended.add(entry.client.counters());
        let session = entry.handle(slot);
        self.opening_later.retain(|later| *later != session);
        self.events.push_back(Event { slot, session, what: What::Closed { reason, unknown_count } });
    }

    fn hand_over(&mut self, event: Event) -> ClientEvent<'_> {
        let Event { slot, session, what } = event;
        match what {
            What::Opened { id, window } => ClientEvent::Opened { session, id, window },
            What::Completed { completion, reply, call, completing } => {
                let recorded = self.recorder.wants(completion.seq, &call).then(|| {
                    let resumed = self.real_time.at(now_monotonic());
                    let ending =
                        stamps::ending(&completion, reply.as_ref().map_or(0, Vec::len), completing, resumed);
                    self.recorder.finish(slot, &call, &ending)
                });
                let bytes = reply.map(|reply| self.keep_handed_over(reply));
                let Completion { seq, answered_by, failed, .. } = completion;
                ClientEvent::Completed { session, reply: Reply { seq, answered_by, bytes, failed, recorded } }
            }
            What::Closed { reason, unknown_count } => {
                self.slots[slot] = None;
                self.free.push(slot);
                ClientEvent::Closed { session, reason, unknown_count }
            }
        }
    }

    fn keep_handed_over(&mut self, reply: Vec<u8>) -> &[u8] {
        let mut previous = std::mem::replace(&mut self.handed_over, reply);
        if self.spare.len() < SPARE_BUFFERS_MAX {
            previous.clear();
            self.spare.push(previous);
        }
        &self.handed_over
    }
}
