//! Safety rules that a test can switch off, to show that the simulator finds it.
//!
//! Invariant: without the feature `planted-faults` none is ever off.

/// A rule of chain replication and CRAQ that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// G1: reads are answered without a lease.
    LeaseIgnored,
    /// G2: messages of an earlier view are taken.
    OlderEpochTaken,
    /// G3: a member that is not the tail takes what it has received for committed.
    CommittedBeforeTail,
    /// G6: a request that comes again is executed again.
    IdentityForgotten,
    /// G6: what is ordered and not applied is not looked through for a request that comes again.
    OrderedNotSearched,
    /// G8: a joiner answers before it has the state.
    JoinerAnswers,
    /// G8: a joiner is made full while the tail still commits without it.
    JoinerNotCounted,
    /// G9: every member answers reads of a chain.
    AnyoneAnswers,
    /// G10: what the successor lacks is not sent again after a change of the view.
    SentListDropped,
    /// G10: entries are taken with a gap before them.
    GapTaken,
    /// G11: a dirty read is answered at once.
    DirtyAnswered,
    /// A new tail commits before its predecessor is of its view.
    TailNotIntroduced,
    /// A new head goes on behind what is committed, not behind what it has received.
    HeadForgetsReceived,
    /// What waits is not submitted again to a new head.
    SubmitsDropped,
    /// Stability is told by this member's storage alone.
    StableHereOnly,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 15] = [
        Fault::LeaseIgnored,
        Fault::OlderEpochTaken,
        Fault::CommittedBeforeTail,
        Fault::IdentityForgotten,
        Fault::OrderedNotSearched,
        Fault::JoinerAnswers,
        Fault::JoinerNotCounted,
        Fault::AnyoneAnswers,
        Fault::SentListDropped,
        Fault::GapTaken,
        Fault::DirtyAnswered,
        Fault::TailNotIntroduced,
        Fault::HeadForgetsReceived,
        Fault::SubmitsDropped,
        Fault::StableHereOnly,
    ];
}

/// The rule that is off, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Planted(
    /// Which.
    #[cfg(feature = "planted-faults")]
    pub Option<Fault>,
);

impl Planted {
    /// Whether this rule is off.
    #[cfg(feature = "planted-faults")]
    pub fn has(self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }

    /// Whether this rule is off: never.
    #[cfg(not(feature = "planted-faults"))]
    pub fn has(self, _fault: Fault) -> bool {
        false
    }
}
