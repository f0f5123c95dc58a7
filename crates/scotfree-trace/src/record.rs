//! One call as its client saw it: as stamped (`CallRecord`) and as read back (`MeasuredCall`).
//!
//! Invariant: a time that was not measured is absent, never zero, and every stamp knows who made it.

use scotfree_core::{
    Boundaries, Boundary, DeviceId, Nanos, Stage, StageSet, StageTimes, StampSource, BOUNDARY_COUNT,
};
use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::str::FromStr;

/// Names a trace: all calls that one root call caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Names a call in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// Makes trace and span ids; not a secret, only unlikely to repeat.
#[derive(Debug, Clone)]
pub struct Ids {
    state: u64,
}

impl Ids {
    /// Ids that follow from `seed`.
    pub fn from_seed(seed: u64) -> Ids {
        Ids { state: seed }
    }

    /// Ids that differ from run to run; the standard library's hash seed is the randomness.
    pub fn random() -> Ids {
        Ids::from_seed(std::collections::hash_map::RandomState::new().build_hasher().finish())
    }

    /// The id of a new trace.
    pub fn trace_id(&mut self) -> TraceId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_nonzero().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next_nonzero().to_be_bytes());
        TraceId(bytes)
    }

    /// The id of a new call.
    pub fn span_id(&mut self) -> SpanId {
        SpanId(self.next_nonzero().to_be_bytes())
    }

    // OTLP calls an id of zeros invalid. The mixing is SplitMix64's.
    fn next_nonzero(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).max(1)
    }
}

const fn bit(source: StampSource) -> u8 {
    1 << source.code()
}

const fn letter(source: StampSource) -> u8 {
    match source {
        StampSource::Lib => b'l',
        StampSource::Kernel => b'k',
        StampSource::Derived => b'd',
    }
}

/// The source of each boundary's stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sources([StampSource; BOUNDARY_COUNT]);

impl Sources {
    /// Every stamp made by the same source.
    pub const fn all(source: StampSource) -> Sources {
        Sources([source; BOUNDARY_COUNT])
    }

    /// Says who stamped `boundary`.
    pub fn set(&mut self, boundary: Boundary, source: StampSource) {
        self.0[boundary as usize] = source;
    }

    /// Who stamped `boundary`.
    pub fn get(&self, boundary: Boundary) -> StampSource {
        self.0[boundary as usize]
    }
}

/// A set of sources, written `lib,kernel,derived`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceSet(u8);

impl SourceSet {
    /// Adds a source.
    pub fn insert(&mut self, source: StampSource) {
        self.0 |= bit(source);
    }

    /// Whether `source` is in the set.
    pub fn contains(self, source: StampSource) -> bool {
        self.0 & bit(source) != 0
    }

    /// Whether more than one source is in the set.
    pub fn is_mixed(self) -> bool {
        self.0.count_ones() > 1
    }
}

impl fmt::Display for SourceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for source in StampSource::ALL.into_iter().filter(|source| self.contains(*source)) {
            write!(f, "{separator}{}", source.name())?;
            separator = ",";
        }
        Ok(())
    }
}

/// Who completed the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AnsweredBy {
    /// The server: the call has all nine stages.
    #[default]
    Server,
    /// The log of a device on the path: the stages behind it are absent.
    Device(DeviceId),
    /// Another function of a device, one of [`FUNCTIONS`]: the stages behind it are absent.
    Function(DeviceId, &'static str),
}

/// The functions of devices that answer in a server's place.
pub const FUNCTIONS: [&str; 4] = ["cache", "objects", "replicate", "trial"];

impl fmt::Display for AnsweredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnsweredBy::Server => f.write_str("server"),
            AnsweredBy::Device(id) => write!(f, "device:{id}"),
            AnsweredBy::Function(id, function) => write!(f, "device:{id}/{function}"),
        }
    }
}

impl FromStr for AnsweredBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "server" {
            return Ok(AnsweredBy::Server);
        }
        by_device(text).ok_or_else(|| {
            format!("`{text}` is neither `server` nor `device:<number>` nor `device:<number>/<function>`")
        })
    }
}

fn by_device(text: &str) -> Option<AnsweredBy> {
    let said = text.strip_prefix("device:")?;
    let Some((id, function)) = said.split_once('/') else {
        return said.parse().ok().map(|id| AnsweredBy::Device(DeviceId(id)));
    };
    let function = FUNCTIONS.into_iter().find(|known| *known == function)?;
    Some(AnsweredBy::Function(DeviceId(id.parse().ok()?), function))
}

/// What a record says of a request's key: enough to tell keys apart, and nothing of what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedKey {
    /// Its hash under a secret; 63 bits, since the integers of OTLP have a sign.
    pub hash: u64,
    /// One in so many keys is recorded, and of those every call.
    pub one_in: u32,
}

/// One call as stamped at its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecord {
    /// The trace it belongs to.
    pub trace_id: TraceId,
    /// The call itself.
    pub span_id: SpanId,
    /// The call that caused it, if one did.
    pub parent_span_id: Option<SpanId>,
    /// What was called.
    pub method: Cow<'static, str>,
    /// When the call was made, in wall time. The stamps below may be of any one clock.
    pub start_unix_ns: u64,
    /// The ten stamps.
    pub boundaries: Boundaries,
    /// Who made them.
    pub sources: Sources,
    /// By how much the clocks of client and server may differ, where that is known.
    pub clock_bound_ns: Option<u64>,
    /// Who completed the call.
    pub answered_by: AnsweredBy,
    /// Its key, where keys are recorded.
    pub key: Option<RecordedKey>,
    /// The request's payload.
    pub request_bytes: u64,
    /// The response's payload.
    pub response_bytes: u64,
    /// Processor time spent on the call, where it was measured.
    pub cpu_ns: Option<u64>,
    /// What went wrong.
    pub error: Option<Cow<'static, str>>,
}

impl CallRecord {
    /// Whether the call has a beginning and an end; without them it is no span.
    pub fn is_complete(&self) -> bool {
        self.boundaries.at(Boundary::Called).is_some() && self.boundaries.at(Boundary::Resumed).is_some()
    }

    /// The time from call to resumption.
    pub fn duration(&self) -> Nanos {
        let end = self.boundaries.at(Boundary::Resumed).unwrap_or_default();
        end.since(self.boundaries.at(Boundary::Called).unwrap_or(end))
    }

    /// The stages whose end was stamped, with their times; and the clock bound, which is at least the
    /// time by which a stamp of a foreign clock had to be moved.
    pub fn measured_stages(&self) -> (impl Iterator<Item = (Stage, Nanos)> + '_, Option<u64>) {
        let (times, moved) = self.boundaries.stages();
        let stages = Stage::ALL
            .into_iter()
            .filter(|stage| self.boundaries.at(Boundary::ALL[stage.index() + 1]).is_some())
            .map(move |stage| (stage, times.get(stage)));
        let bound =
            if moved == Nanos(0) { self.clock_bound_ns } else { self.clock_bound_ns.max(Some(moved.0)) };
        (stages, bound)
    }

    /// The sources of all stamps that were made.
    pub fn source_set(&self) -> SourceSet {
        let mut set = SourceSet::default();
        for boundary in Boundary::ALL.into_iter().filter(|boundary| self.boundaries.at(*boundary).is_some()) {
            set.insert(self.sources.get(boundary));
        }
        set
    }

    /// One letter for each boundary: `l`ib, `k`ernel, `d`erived or `-` for no stamp.
    pub fn source_letters(&self) -> [u8; BOUNDARY_COUNT] {
        Boundary::ALL.map(|boundary| match self.boundaries.at(boundary) {
            Some(_) => letter(self.sources.get(boundary)),
            None => b'-',
        })
    }
}

/// One call as read from a trace; an absent stage counts as zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredCall {
    /// What was called.
    pub method: String,
    /// When the call was made, in wall time.
    pub start_unix_ns: u64,
    /// The span's end minus its start.
    pub duration: Nanos,
    /// The nine stages.
    pub stages: StageTimes,
    /// Which of them were measured.
    pub measured: StageSet,
    /// Who made the stamps, as written.
    pub source: Option<String>,
    /// By how much the clocks may differ.
    pub clock_bound_ns: Option<u64>,
    /// Who completed the call.
    pub answered_by: AnsweredBy,
    /// The request's payload.
    pub request_bytes: Option<u64>,
    /// The response's payload.
    pub response_bytes: Option<u64>,
    /// Processor time spent on the call.
    pub cpu_ns: Option<u64>,
    /// What went wrong.
    pub error: Option<String>,
}

impl MeasuredCall {
    /// Whether the stages sum to the duration within max(1 us, 0.1 %), as design.md section 2 demands.
    pub fn sum_is_right(&self) -> bool {
        let tolerance_ns = (self.duration.0 / 1_000).max(1_000);
        self.stages.total().0.abs_diff(self.duration.0) <= tolerance_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_do_not_repeat_and_are_not_zero() {
        let mut ids = Ids::from_seed(0);
        let made: std::collections::BTreeSet<[u8; 8]> = (0..10_000).map(|_| ids.span_id().0).collect();
        assert_eq!(made.len(), 10_000);
        assert!(!made.contains(&[0; 8]));
        assert_ne!(Ids::random().trace_id(), Ids::random().trace_id());
    }

    #[test]
    fn answered_by_round_trips_and_refuses_nonsense() {
        for by in
            [AnsweredBy::Server, AnsweredBy::Device(DeviceId(7)), AnsweredBy::Function(DeviceId(7), "cache")]
        {
            assert_eq!(by.to_string().parse(), Ok(by));
        }
        assert!("device:".parse::<AnsweredBy>().is_err());
        assert!("device:70000".parse::<AnsweredBy>().is_err());
        assert!("device:7/nobody".parse::<AnsweredBy>().is_err());
    }

    #[test]
    fn a_stamp_that_had_to_be_moved_widens_the_clock_bound() {
        let mut boundaries = Boundaries::default();
        for (boundary, at) in Boundary::ALL.into_iter().zip([10, 11, 13, 5, 25, 41, 42, 45, 50, 60]) {
            boundaries.stamp(boundary, Nanos(at));
        }
        let record = CallRecord { boundaries, clock_bound_ns: Some(3), ..example() };
        assert_eq!(record.measured_stages().1, Some(8));
    }

    #[test]
    fn an_unstamped_stage_is_absent() {
        let mut boundaries = Boundaries::default();
        boundaries.stamp(Boundary::Called, Nanos(10));
        boundaries.stamp(Boundary::RequestSent, Nanos(12));
        boundaries.stamp(Boundary::Resumed, Nanos(20));
        let record = CallRecord { boundaries, ..example() };
        let stages: Vec<(Stage, Nanos)> = record.measured_stages().0.collect();
        assert_eq!(stages, [(Stage::RequestStack, Nanos(2)), (Stage::ClientRecvQueue, Nanos(8))]);
        assert_eq!(&record.source_letters(), b"l-l------l");
        assert_eq!(record.duration(), Nanos(10));
    }

    fn example() -> CallRecord {
        CallRecord {
            trace_id: TraceId([1; 16]),
            span_id: SpanId([2; 8]),
            parent_span_id: None,
            method: "SET".into(),
            start_unix_ns: 0,
            boundaries: Boundaries::default(),
            sources: Sources::all(StampSource::Lib),
            clock_bound_ns: None,
            answered_by: AnsweredBy::Server,
            key: None,
            request_bytes: 0,
            response_bytes: 0,
            cpu_ns: None,
            error: None,
        }
    }
}
