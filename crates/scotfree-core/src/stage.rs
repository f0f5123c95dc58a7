//! The nine stages of a remote procedure call and the ten boundaries between them (design.md
//! section 2). Boundaries are stamped in shells only; they are subtracted here and nowhere else.

use crate::Nanos;
use core::fmt;

/// How many stages a call has.
pub const STAGE_COUNT: usize = 9;
/// How many boundaries bound them.
pub const BOUNDARY_COUNT: usize = 10;

/// A stage of a remote procedure call, in the order in which a request passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// From the call until the sender takes the request off its queue.
    ClientSendQueue,
    /// Until the request leaves the client host.
    RequestStack,
    /// Until the request reaches the server host.
    RequestWire,
    /// Until the handler starts.
    ServerRecvQueue,
    /// Until the handler ends: the work the caller asked for.
    ServerApp,
    /// Until the sender takes the response off its queue.
    ServerSendQueue,
    /// Until the response leaves the server host.
    ResponseStack,
    /// Until the response reaches the client host.
    ResponseWire,
    /// Until the caller is resumed.
    ClientRecvQueue,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; STAGE_COUNT] = [
        Stage::ClientSendQueue,
        Stage::RequestStack,
        Stage::RequestWire,
        Stage::ServerRecvQueue,
        Stage::ServerApp,
        Stage::ServerSendQueue,
        Stage::ResponseStack,
        Stage::ResponseWire,
        Stage::ClientRecvQueue,
    ];

    /// The name used in code, traces, metrics and Python.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::ClientSendQueue => "client_send_queue",
            Stage::RequestStack => "request_stack",
            Stage::RequestWire => "request_wire",
            Stage::ServerRecvQueue => "server_recv_queue",
            Stage::ServerApp => "server_app",
            Stage::ServerSendQueue => "server_send_queue",
            Stage::ResponseStack => "response_stack",
            Stage::ResponseWire => "response_wire",
            Stage::ClientRecvQueue => "client_recv_queue",
        }
    }

    /// The position of this stage, from 0.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of stages, such as those that a remedy takes off the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageSet(u16);

impl StageSet {
    /// No stage.
    pub const EMPTY: StageSet = StageSet(0);

    /// The set of the stages given.
    pub const fn of(stages: &[Stage]) -> StageSet {
        let mut bits = 0;
        let mut at = 0;
        while at < stages.len() {
            bits |= 1 << stages[at] as u16;
            at += 1;
        }
        StageSet(bits)
    }

    /// The stages that are tax: all but the server's application.
    pub const fn tax() -> StageSet {
        StageSet(((1 << STAGE_COUNT) - 1) & !(1 << Stage::ServerApp as u16))
    }

    /// Whether `stage` is in the set.
    pub const fn contains(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u16) != 0
    }
}

/// Who made a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum StampSource {
    /// This library, in user space.
    #[default]
    Lib = 0,
    /// The kernel, when the packet passed it.
    Kernel = 1,
    /// Computed from other stamps.
    Derived = 2,
}

impl StampSource {
    /// All sources, in the order of their codes.
    pub const ALL: [StampSource; 3] = [StampSource::Lib, StampSource::Kernel, StampSource::Derived];

    /// The code in packets.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The source of a code.
    pub fn from_code(code: u64) -> Option<StampSource> {
        StampSource::ALL.into_iter().find(|source| u64::from(source.code()) == code)
    }

    /// The name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            StampSource::Lib => "lib",
            StampSource::Kernel => "kernel",
            StampSource::Derived => "derived",
        }
    }
}

/// A boundary between stages, in order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Boundary {
    /// The call is made.
    Called,
    /// The client's sender took the request off its queue.
    RequestDequeued,
    /// The request left the client host.
    RequestSent,
    /// The request reached the server host.
    RequestReceived,
    /// The handler started.
    HandlerStarted,
    /// The handler ended.
    HandlerEnded,
    /// The server's sender took the response off its queue.
    ResponseDequeued,
    /// The response left the server host.
    ResponseSent,
    /// The response reached the client host.
    ResponseReceived,
    /// The caller was resumed.
    Resumed,
}

impl Boundary {
    /// All of them, in order of time.
    pub const ALL: [Boundary; BOUNDARY_COUNT] = [
        Boundary::Called,
        Boundary::RequestDequeued,
        Boundary::RequestSent,
        Boundary::RequestReceived,
        Boundary::HandlerStarted,
        Boundary::HandlerEnded,
        Boundary::ResponseDequeued,
        Boundary::ResponseSent,
        Boundary::ResponseReceived,
        Boundary::Resumed,
    ];
}

/// The stamps of one call's boundaries; zero means "not stamped".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Boundaries([Nanos; BOUNDARY_COUNT]);

impl Boundaries {
    /// Records when `boundary` was passed.
    pub fn stamp(&mut self, boundary: Boundary, at: Nanos) {
        self.0[boundary as usize] = at;
    }

    /// When `boundary` was passed, if it was stamped.
    pub fn at(&self, boundary: Boundary) -> Option<Nanos> {
        let at = self.0[boundary as usize];
        (at != Nanos(0)).then_some(at)
    }

    /// The nine stages. An unstamped boundary takes the time of the nearest earlier stamped one, so
    /// its stage is zero and the sum stays the time from call to resumption. A stamp that lies
    /// outside its neighbours (clocks of two hosts) is clamped between the stamps around it; the
    /// second value says how much time was moved by that.
    pub fn stages(&self) -> (StageTimes, Nanos) {
        let end = self.0[BOUNDARY_COUNT - 1];
        let mut times = StageTimes::default();
        let mut moved = 0;
        let mut previous = self.0[0];
        for stage in Stage::ALL {
            let stamp = self.0[stage.index() + 1];
            let next = if stamp == Nanos(0) { previous } else { stamp.clamp(previous, end.max(previous)) };
            if stamp != Nanos(0) {
                moved += stamp.0.abs_diff(next.0);
            }
            times.set(stage, next.since(previous));
            previous = next;
        }
        (times, Nanos(moved))
    }
}

/// How long each stage of one call took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageTimes([Nanos; STAGE_COUNT]);

impl StageTimes {
    /// Sets the time of one stage.
    pub fn set(&mut self, stage: Stage, time: Nanos) {
        self.0[stage.index()] = time;
    }

    /// The time of one stage.
    pub fn get(&self, stage: Stage) -> Nanos {
        self.0[stage.index()]
    }

    /// The time of the whole call.
    pub fn total(&self) -> Nanos {
        Nanos(self.0.iter().map(|time| time.0).sum())
    }

    /// The time of the stages in `set`.
    pub fn of(&self, set: StageSet) -> Nanos {
        Nanos(Stage::ALL.iter().filter(|stage| set.contains(**stage)).map(|stage| self.get(*stage).0).sum())
    }

    /// The RPC latency tax: everything but the server's application.
    pub fn tax(&self) -> Nanos {
        self.of(StageSet::tax())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundaries(stamps: [u64; BOUNDARY_COUNT]) -> Boundaries {
        Boundaries(stamps.map(Nanos))
    }

    #[test]
    fn stages_sum_to_the_call() {
        let (times, moved) = boundaries([10, 11, 13, 17, 25, 41, 42, 45, 50, 60]).stages();
        assert_eq!(times.total(), Nanos(50));
        assert_eq!(times.get(Stage::ServerApp), Nanos(16));
        assert_eq!(times.tax(), Nanos(34));
        assert_eq!(moved, Nanos(0));
    }

    #[test]
    fn a_missing_boundary_makes_an_empty_stage_and_keeps_the_sum() {
        let (times, _) = boundaries([10, 11, 0, 0, 0, 0, 0, 0, 50, 60]).stages();
        assert_eq!(times.total(), Nanos(50));
        assert_eq!(times.get(Stage::ServerApp), Nanos(0));
        assert_eq!(times.get(Stage::ResponseWire), Nanos(39));
    }

    #[test]
    fn a_stamp_of_a_foreign_clock_is_clamped_and_reported() {
        let (times, moved) = boundaries([10, 11, 13, 5, 25, 41, 42, 45, 50, 60]).stages();
        assert_eq!(times.total(), Nanos(50));
        assert_eq!(times.get(Stage::RequestWire), Nanos(0));
        assert_eq!(moved, Nanos(8));
    }

    #[test]
    fn the_tax_is_all_but_the_application() {
        assert!(!StageSet::tax().contains(Stage::ServerApp));
        assert_eq!(Stage::ALL.iter().filter(|stage| StageSet::tax().contains(**stage)).count(), 8);
    }
}
