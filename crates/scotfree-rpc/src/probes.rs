//! The stamps of calls in flight, and how they become records (design.md section 2).
//!
//! Invariant: boundaries are stamped by the runtimes and joined here; every table has a fixed size,
//! and a stamp that finds no room or comes too late is lost, never attributed to another call.

mod tables;

pub(crate) use tables::{Arrivals, TransmitTable};

use crate::client::Recorded;
use scotfree_core::{Boundaries, Boundary, KeyHash, Nanos, SeqNum, StampSource};
use scotfree_io::{now_monotonic, now_realtime, Stamps};
use scotfree_session::{CompletedBy, RequestKind};
use scotfree_trace::{CallRecord, Ids, RecordedKey, Sources, SpanId};
use scotfree_wire::{Answerer, Key, ResponseTail};
use std::borrow::Cow;
use std::collections::VecDeque;

/// Real time from monotonic time, so that one reading of a clock serves timers and stamps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RealTime {
    offset_ns: u64,
    compared_at: Nanos,
}

/// How old a comparison of the clocks may be.
const COMPARISON_AGE_MAX: Nanos = Nanos::from_millis(1);

impl RealTime {
    /// After a first comparison.
    pub(crate) fn compared() -> RealTime {
        let mut real_time = RealTime::default();
        real_time.compare(now_monotonic());
        real_time
    }

    /// Compares the two clocks, now that the monotonic one says `now`, if that is due. Between two
    /// comparisons only a step of real time can part them.
    pub(crate) fn keep_up(&mut self, now: Nanos) {
        if now.since(self.compared_at) >= COMPARISON_AGE_MAX {
            self.compare(now);
        }
    }

    fn compare(&mut self, now: Nanos) {
        self.offset_ns = now_realtime().0.wrapping_sub(now_monotonic().0);
        self.compared_at = now;
    }

    /// The real time at a monotonic time.
    pub(crate) fn at(self, monotonic: Nanos) -> Nanos {
        Nanos(monotonic.0.wrapping_add(self.offset_ns))
    }
}

/// How calls are stamped and recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Stamp calls at all: a client those of which something is kept, a server those of which a client
    /// says so.
    pub stamps: bool,
    /// Yield a record of one in so many calls; 0 for none.
    pub record_every: u32,
    /// Yield records of all calls whose key is one in so many instead, with its hash; 0 for not. What a cache would
    /// answer follows from these (SHARDS, Waldspurger et al., FAST 2015).
    pub record_keys_every: u32,
    /// Ask the kernel of one in so many calls when the packet left; 0 for never. The stamps of the others are
    /// the library's, moved by the delay last seen, and marked as derived. Client and server sample
    /// the same calls when they agree on this number.
    pub transmit_stamp_every: u32,
    /// How many finished records wait to be taken; the oldest makes room.
    pub records_max: usize,
    /// How long a sampled record waits for stamps that travel behind the call.
    pub late_stamp_wait: Nanos,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        ProbeOptions {
            stamps: true,
            record_every: 1,
            record_keys_every: 0,
            transmit_stamp_every: 64,
            records_max: 8_192,
            late_stamp_wait: Nanos::from_millis(250),
        }
    }
}

impl ProbeOptions {
    /// No stamps, no records.
    pub const OFF: ProbeOptions = ProbeOptions {
        stamps: false,
        record_every: 0,
        record_keys_every: 0,
        transmit_stamp_every: 0,
        records_max: 0,
        late_stamp_wait: Nanos(0),
    };

    /// The same, without asking a transport for stamps that it cannot give.
    pub(crate) fn for_transport(self, stamps: Stamps) -> ProbeOptions {
        match stamps {
            Stamps::None => ProbeOptions { transmit_stamp_every: 0, ..self },
            Stamps::Software | Stamps::Hardware => self,
        }
    }

    /// Whether the packet of the call at `seq` is one whose transmit stamp is asked of the kernel.
    pub(crate) fn samples_transmit(&self, seq: SeqNum) -> bool {
        self.stamps && is_every(self.transmit_stamp_every, seq)
    }

    /// Whether the call at `seq` is stamped: one that is recorded, or that shows how long the others take to
    /// leave. Its client decides, and tells the server by a flag of the request.
    pub(crate) fn stamps_call(&self, seq: SeqNum, key: Option<RecordedKey>) -> bool {
        self.records(seq, key) || self.samples_transmit(seq)
    }

    fn records(&self, seq: SeqNum, key: Option<RecordedKey>) -> bool {
        let is_chosen =
            if self.record_keys_every == 0 { is_every(self.record_every, seq) } else { key.is_some() };
        self.stamps && is_chosen
    }

    /// What a record says of a key; nothing if it is not one of those chosen.
    pub(crate) fn recorded_key(&self, key: KeyHash, secret: &Key) -> Option<RecordedKey> {
        let one_in = self.record_keys_every;
        if one_in == 0 {
            return None;
        }
        let hash = secret.mac(&[&key.0.to_le_bytes()]) >> 1;
        hash.is_multiple_of(u64::from(one_in)).then_some(RecordedKey { hash, one_in })
    }
}

fn is_every(every: u32, seq: SeqNum) -> bool {
    every != 0 && seq.0.is_multiple_of(u64::from(every))
}

/// What the caller says of a call beyond its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLabel {
    /// What is called, for the trace.
    pub method: &'static str,
    /// When it was called, in real time; zero for "now".
    pub called: Nanos,
    /// The call that caused this one.
    pub parent: Option<SpanId>,
}

impl CallLabel {
    /// A call made now.
    pub const fn new(method: &'static str) -> CallLabel {
        CallLabel { method, called: Nanos(0), parent: None }
    }

    /// A call made now that has no better name than its kind.
    pub const fn of_kind(kind: RequestKind) -> CallLabel {
        CallLabel::new(match kind {
            RequestKind::Update => "update",
            RequestKind::Read => "read",
            RequestKind::Bypass => "bypass",
        })
    }
}

/// A stamp and who made it; time zero means "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamped {
    pub at: Nanos,
    pub source: StampSource,
}

impl Stamped {
    pub(crate) fn kernel(at: Nanos) -> Stamped {
        Stamped { at, source: StampSource::Kernel }
    }

    pub(crate) fn lib(at: Nanos) -> Stamped {
        Stamped { at, source: StampSource::Lib }
    }

    pub(crate) fn is_some(self) -> bool {
        self.at != Nanos(0)
    }
}

/// One call in flight at its client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub label: CallLabel,
    pub key: Option<RecordedKey>,
    pub request_bytes: u32,
    pub traced: bool,
    pub dequeued: Nanos,
    pub sent: Stamped,
    /// When the last packet of its response arrived.
    pub response: Stamped,
    /// When the last acknowledgement of a device arrived.
    pub device_ack: Stamped,
    /// When the response left the server host, if the kernel there has said so already.
    pub response_sent: Nanos,
}

impl Call {
    pub(crate) fn new(label: CallLabel, request_bytes: usize, traced: bool) -> Call {
        Call {
            label,
            key: None,
            request_bytes: request_bytes as u32,
            traced,
            dequeued: Nanos(0),
            sent: Stamped::default(),
            response: Stamped::default(),
            device_ack: Stamped::default(),
            response_sent: Nanos(0),
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub seq: SeqNum,
    pub answered_by: CompletedBy,
    pub failed: bool,
    pub reply_bytes: usize,
    pub times: ResponseTail,
    /// When the packet that completed it arrived.
    pub completing: Stamped,
    pub resumed: Nanos,
}

/// The usual time between two stamps, from samples; for calls of which only one was taken.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UsualDelay {
    delay_ns: Option<u64>,
}

impl UsualDelay {
    pub(crate) fn observe(&mut self, from: Nanos, to: Nanos) {
        let seen = to.since(from).0;
        // An eighth of each new sample, as TCP smooths round trips.
        self.delay_ns = Some(self.delay_ns.map_or(seen, |usual| usual - usual / 8 + seen / 8));
    }

    /// The stamp that probably would have followed `from`: not later than `limit`, where the next
    /// stamp of the same clock was taken.
    fn derive(self, from: Nanos, limit: Nanos) -> Option<Stamped> {
        let at = from.plus(Nanos(self.delay_ns?));
        let at = if limit >= from { at.min(limit) } else { at };
        Some(Stamped { at, source: StampSource::Derived })
    }

    /// When a packet arrived that the library took at `taken`: the kernel's stamp, if it has made one,
    /// else what it probably would have been.
    pub(crate) fn arrival(&mut self, kernel: Option<Nanos>, taken: Nanos) -> Stamped {
        if let Some(at) = kernel {
            self.observe(at, taken);
            return Stamped::kernel(at);
        }
        let Some(delay) = self.delay_ns else { return Stamped::lib(taken) };
        Stamped { at: Nanos(taken.0.saturating_sub(delay)), source: StampSource::Derived }
    }
}

/// Turns calls into records.
#[derive(Debug)]
pub(crate) struct Recorder {
    options: ProbeOptions,
    ids: Ids,
    /// From dequeuing to leaving: at the client, and at the servers.
    pub request_stack: UsualDelay,
    pub response_stack: UsualDelay,
    /// From the arrival of an answer until the client has it.
    pub receive_stack: UsualDelay,
    ready: VecDeque<CallRecord>,
    settling: VecDeque<Settling>,
    dropped: u64,
}

/// A record that waits for late stamps.
#[derive(Debug)]
struct Settling {
    slot: usize,
    seq: SeqNum,
    until: Nanos,
    record: CallRecord,
}

impl Recorder {
    pub(crate) fn new(options: ProbeOptions) -> Recorder {
        Recorder {
            options,
            ids: Ids::random(),
            request_stack: UsualDelay::default(),
            response_stack: UsualDelay::default(),
            receive_stack: UsualDelay::default(),
            ready: VecDeque::new(),
            settling: VecDeque::new(),
            dropped: 0,
        }
    }

    /// How many records were dropped because nobody took them.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the end of a call is to be recorded.
    pub(crate) fn wants(&self, seq: SeqNum, call: &Call) -> bool {
        call.traced && self.options.records(seq, call.key)
    }

    /// Records the end of a traced call of the session in `slot`; what its record is known by.
    pub(crate) fn finish(&mut self, slot: usize, call: &Call, ending: &Ending) -> Recorded {
        let record = self.record(call, ending);
        let recorded = Recorded { trace_id: record.trace_id, span_id: record.span_id };
        if self.options.samples_transmit(ending.seq) && lacks_stamps(&record) {
            let until = ending.resumed.plus(self.options.late_stamp_wait);
            if self.settling.len() >= self.options.records_max.max(1) {
                self.settle_first();
            }
            self.settling.push_back(Settling { slot, seq: ending.seq, until, record });
        } else {
            self.push(record);
        }
        recorded
    }

    /// A finished record.
    pub(crate) fn take(&mut self) -> Option<CallRecord> {
        self.ready.pop_front()
    }

    /// Finishes the records that have waited for late stamps until `now`, in real time.
    pub(crate) fn settle(&mut self, now: Nanos) {
        while self.settling.front().is_some_and(|settling| settling.until <= now) {
            self.settle_first();
        }
    }

    /// All records, whatever they still wait for.
    pub(crate) fn take_any(&mut self) -> Option<CallRecord> {
        self.settle(Nanos::MAX);
        self.take()
    }

    /// A stamp that came after its call had ended.
    pub(crate) fn late(&mut self, slot: usize, seq: SeqNum, boundary: Boundary, at: Nanos) {
        let wanted = |settling: &Settling| settling.slot == slot && settling.seq == seq;
        let Some(index) = self.settling.iter().position(wanted) else { return };
        let settling = &mut self.settling[index];
        let boundaries = &mut settling.record.boundaries;
        // An absent neighbour means that this part of the call was not the server's or not measured.
        let Some(before) = boundaries.at(previous(boundary)) else { return };
        boundaries.stamp(boundary, at);
        settling.record.sources.set(boundary, StampSource::Kernel);
        match boundary {
            Boundary::RequestSent => self.request_stack.observe(before, at),
            Boundary::ResponseSent => self.response_stack.observe(before, at),
            _ => {}
        }
        if !lacks_stamps(&self.settling[index].record) {
            if let Some(settled) = self.settling.remove(index) {
                self.push(settled.record);
            }
        }
    }

    fn settle_first(&mut self) {
        if let Some(settling) = self.settling.pop_front() {
            self.push(settling.record);
        }
    }

    fn push(&mut self, record: CallRecord) {
        if self.ready.len() >= self.options.records_max {
            self.dropped += 1;
            if self.ready.pop_front().is_none() {
                return;
            }
        }
        self.ready.push_back(record);
    }

    fn record(&mut self, call: &Call, ending: &Ending) -> CallRecord {
        let mut joined = Joined::default();
        joined.stamp(Boundary::Called, Stamped::lib(call.label.called));
        joined.stamp(Boundary::RequestDequeued, Stamped::lib(call.dequeued));
        joined.stamp(Boundary::RequestSent, self.request_sent(call, &ending.times));
        if ending.answered_by == CompletedBy::Server {
            self.join_server(&mut joined, &ending.times, call);
            joined.stamp(Boundary::ResponseReceived, call.response);
        } else {
            joined.stamp(Boundary::ResponseReceived, answer_arrival(call, ending));
        }
        joined.stamp(Boundary::Resumed, Stamped::lib(ending.resumed));
        CallRecord {
            trace_id: self.ids.trace_id(),
            span_id: self.ids.span_id(),
            parent_span_id: call.label.parent,
            method: Cow::Borrowed(call.label.method),
            start_unix_ns: call.label.called.0,
            boundaries: joined.boundaries,
            sources: joined.sources,
            clock_bound_ns: None,
            answered_by: match ending.answered_by {
                CompletedBy::Device(device) => scotfree_trace::AnsweredBy::Device(device),
                CompletedBy::Function(Answerer { function, device }) => {
                    scotfree_trace::AnsweredBy::Function(device, function.name())
                }
                CompletedBy::Server | CompletedBy::ServerAck => scotfree_trace::AnsweredBy::Server,
            },
            key: call.key,
            request_bytes: u64::from(call.request_bytes),
            response_bytes: ending.reply_bytes as u64,
            cpu_ns: None,
            error: ending.failed.then_some(Cow::Borrowed("refused by the application")),
        }
    }

    fn request_sent(&self, call: &Call, times: &ResponseTail) -> Stamped {
        let limit = if times.received == Nanos(0) { call.response.at } else { times.received };
        // A server that said Busy makes requests leave at another moment, which nobody stamps.
        if call.sent.source == StampSource::Kernel || call.dequeued == Nanos(0) {
            return call.sent;
        }
        self.request_stack.derive(call.dequeued, limit).unwrap_or(call.sent)
    }

    fn join_server(&mut self, joined: &mut Joined, times: &ResponseTail, call: &Call) {
        let received = Stamped { at: times.received, source: times.received_by };
        joined.stamp(Boundary::RequestReceived, received);
        joined.stamp(Boundary::HandlerStarted, Stamped::lib(times.started));
        joined.stamp(Boundary::HandlerEnded, Stamped::lib(times.ended));
        joined.stamp(Boundary::ResponseDequeued, Stamped::lib(times.dequeued));
        if times.dequeued == Nanos(0) {
            return;
        }
        if call.response_sent != Nanos(0) {
            self.response_stack.observe(times.dequeued, call.response_sent);
            joined.stamp(Boundary::ResponseSent, Stamped::kernel(call.response_sent));
        } else if let Some(sent) = self.response_stack.derive(times.dequeued, call.response.at) {
            joined.stamp(Boundary::ResponseSent, sent);
        }
    }
}

/// Whether a transmit stamp may still come.
fn lacks_stamps(record: &CallRecord) -> bool {
    let of_kernel = |boundary| record.sources.get(boundary) == StampSource::Kernel;
    let by_server = record.boundaries.at(Boundary::ResponseDequeued).is_some();
    !of_kernel(Boundary::RequestSent) || by_server && !of_kernel(Boundary::ResponseSent)
}

/// When the packet came that answered a call without the server's response.
fn answer_arrival(call: &Call, ending: &Ending) -> Stamped {
    match ending.answered_by {
        CompletedBy::Device(_) if call.device_ack.is_some() => call.device_ack,
        CompletedBy::Function(_) => call.response,
        CompletedBy::Device(_) | CompletedBy::Server | CompletedBy::ServerAck => ending.completing,
    }
}

fn previous(boundary: Boundary) -> Boundary {
    match boundary {
        Boundary::Called | Boundary::RequestDequeued => Boundary::Called,
        Boundary::RequestSent => Boundary::RequestDequeued,
        Boundary::RequestReceived => Boundary::RequestSent,
        Boundary::HandlerStarted => Boundary::RequestReceived,
        Boundary::HandlerEnded => Boundary::HandlerStarted,
        Boundary::ResponseDequeued => Boundary::HandlerEnded,
        Boundary::ResponseSent => Boundary::ResponseDequeued,
        Boundary::ResponseReceived => Boundary::ResponseSent,
        Boundary::Resumed => Boundary::ResponseReceived,
    }
}

#[derive(Debug, Default)]
struct Joined {
    boundaries: Boundaries,
    sources: Sources,
}

impl Joined {
    fn stamp(&mut self, boundary: Boundary, stamped: Stamped) {
        if stamped.is_some() {
            self.boundaries.stamp(boundary, stamped.at);
            self.sources.set(boundary, stamped.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_core::{DeviceId, Stage};

    const EVERY: ProbeOptions = ProbeOptions {
        stamps: true,
        record_every: 1,
        record_keys_every: 0,
        transmit_stamp_every: 2,
        records_max: 4,
        late_stamp_wait: Nanos(100),
    };

    #[test]
    fn of_one_key_in_so_many_every_call_is_recorded_and_of_the_others_none() {
        let options = ProbeOptions { record_keys_every: 4, record_every: 0, ..EVERY };
        let secret = Key::from_bytes([7; 16]);
        let recorder = Recorder::new(options);
        let mut chosen = 0;
        for key in (0..4_000).map(KeyHash) {
            let recorded = options.recorded_key(key, &secret);
            assert!(recorded.is_none_or(|known| known.hash != key.0 && known.one_in == 4), "{recorded:?}");
            assert_eq!(recorded, options.recorded_key(key, &secret));
            // An odd place, at which no transmit stamp is asked for.
            let seq = SeqNum(key.0 * 2 + 1);
            assert_eq!(options.stamps_call(seq, recorded), recorded.is_some());
            let call = Call { key: recorded, ..Call::new(CallLabel::new("GET"), 9, recorded.is_some()) };
            assert_eq!(recorder.wants(seq, &call), recorded.is_some());
            chosen += usize::from(recorded.is_some());
        }
        assert!((900..1_100).contains(&chosen), "{chosen} of 4,000 keys");
        assert_eq!(EVERY.recorded_key(KeyHash(1), &secret), None, "not unless that is asked for");
    }

    #[test]
    fn nine_stages_come_from_both_sides() {
        let mut recorder = Recorder::new(EVERY);
        recorder.finish(0, &call(), &ending(1, CompletedBy::Server));
        let record = recorder.take().expect("a record without late stamps is ready at once");
        let (times, moved) = record.boundaries.stages();
        assert_eq!(moved, Nanos(0));
        assert_eq!(times.total(), Nanos(90));
        assert_eq!(times.get(Stage::ServerApp), Nanos(10));
        assert_eq!(&record.source_letters(), b"lllklll-kl");
    }

    #[test]
    fn what_a_device_answers_has_no_server_stages() {
        let mut recorder = Recorder::new(EVERY);
        let ending = ending(1, CompletedBy::Device(DeviceId(3)));
        recorder.finish(0, &Call { device_ack: Stamped::kernel(Nanos(150)), ..call() }, &ending);
        let record = recorder.take().expect("a record");
        assert_eq!(record.answered_by.to_string(), "device:3");
        assert_eq!(&record.source_letters(), b"lll-----kl");
        assert_eq!(record.boundaries.at(Boundary::ResponseReceived), Some(Nanos(150)));
    }

    #[test]
    fn a_sampled_call_waits_for_its_stamps_and_teaches_the_others() {
        let mut recorder = Recorder::new(EVERY);
        recorder.finish(7, &call(), &ending(2, CompletedBy::Server));
        recorder.settle(Nanos(200));
        assert_eq!(recorder.take(), None);
        recorder.late(6, SeqNum(2), Boundary::RequestSent, Nanos(1));
        recorder.late(7, SeqNum(2), Boundary::RequestSent, Nanos(115));
        recorder.late(7, SeqNum(2), Boundary::ResponseSent, Nanos(166));
        let sampled = recorder.take().expect("its stamps are in");
        assert_eq!(&sampled.source_letters(), b"llkklllkkl");
        assert_eq!(sampled.boundaries.at(Boundary::RequestSent), Some(Nanos(115)));
        recorder.finish(7, &call(), &ending(3, CompletedBy::Server));
        let derived = recorder.take().expect("a record");
        assert_eq!(&derived.source_letters(), b"lldkllldkl");
        assert_eq!(derived.boundaries.at(Boundary::ResponseSent), Some(Nanos(166)));
    }

    #[test]
    fn records_that_nobody_takes_are_bounded() {
        let mut recorder = Recorder::new(EVERY);
        for seq in 1..=20 {
            recorder.finish(0, &call(), &ending(seq, CompletedBy::Server));
        }
        assert!(recorder.settling.len() <= 4 && recorder.ready.len() <= 4);
        let mut taken = 0;
        while recorder.take_any().is_some() {
            taken += 1;
        }
        assert_eq!(taken + recorder.dropped(), 20);
    }

    #[test]
    fn an_arrival_without_stamp_is_taken_to_be_as_late_as_those_with_one() {
        let mut delay = UsualDelay::default();
        assert_eq!(delay.arrival(None, Nanos(50)), Stamped::lib(Nanos(50)));
        assert_eq!(delay.arrival(Some(Nanos(60)), Nanos(90)), Stamped::kernel(Nanos(60)));
        let derived = delay.arrival(None, Nanos(100));
        assert_eq!(derived, Stamped { at: Nanos(70), source: StampSource::Derived });
    }

    fn call() -> Call {
        Call {
            label: CallLabel { method: "SET", called: Nanos(100), parent: None },
            key: None,
            request_bytes: 64,
            traced: true,
            dequeued: Nanos(110),
            sent: Stamped::lib(Nanos(110)),
            response: Stamped::kernel(Nanos(180)),
            device_ack: Stamped::default(),
            response_sent: Nanos(0),
        }
    }

    fn ending(seq: u64, answered_by: CompletedBy) -> Ending {
        Ending {
            seq: SeqNum(seq),
            answered_by,
            failed: false,
            reply_bytes: 5,
            times: ResponseTail {
                received: Nanos(130),
                started: Nanos(140),
                ended: Nanos(150),
                dequeued: Nanos(160),
                received_by: StampSource::Kernel,
                answered_by: Answerer::SERVER,
            },
            completing: Stamped::kernel(Nanos(180)),
            resumed: Nanos(190),
        }
    }
}
