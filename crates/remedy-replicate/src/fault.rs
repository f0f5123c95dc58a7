//! Safety rules that a test can switch off, to show that the simulator finds it.
//!
//! Invariant: without the feature `planted-faults` none is ever off.

/// A rule that is broken, of chain replication and CRAQ if it says no other.
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
    /// What has lost its place is given up alone, and what came behind it is submitted before it.
    DisplacedOvertaken,
    /// Stability is told by this member's storage alone.
    StableHereOnly,
    /// One of Hermes.
    Hermes(HermesFault),
}

/// A rule of Hermes that is broken, beside [`Fault::LeaseIgnored`] and [`Fault::OlderEpochTaken`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HermesFault {
    /// G1: a key that is not valid is read.
    InvalidAnswered,
    /// G2: acknowledgements of an earlier view count.
    AcksKept,
    /// G3: a write is committed without the last acknowledgement.
    AckShort,
    /// G3: a write is acknowledged and not installed.
    NotInstalled,
    /// G4: of two writes of one count the first that comes stays, whosever it is.
    TieIgnored,
    /// G4: that an older write is everywhere makes a key valid.
    OlderMakesValid,
    /// G5: a stuck write is told anew as a newer one.
    ReplayedAsNew,
    /// G6: a request that comes again is executed again.
    IdentityForgotten,
    /// G6: every member coordinates what its clients ask.
    AnyoneCoordinates,
    /// G6: writes begin in a view before all of its members have told what they had from before.
    NotSettled,
    /// G6: what was overtaken before all had it is not noted by all in a new view.
    OvertakenForgotten,
    /// G8: a joiner answers before it has the state.
    JoinerAnswers,
    /// G8: nobody waits for a joiner's acknowledgement.
    JoinerNotCounted,
    /// G8: a joiner counts before it has greeted anybody.
    CountedUnheard,
    /// G8: what is under way when a joiner is counted is committed without it.
    OpenNotTold,
    /// G8: a joiner takes a state that was made before all full members count it.
    StateBeforeCounted,
    /// G8: a joiner is given a state that was made for another one before.
    GivenToSeveral,
    /// G8: a joiner forgets what came before the state.
    EarlyDropped,
    /// G8: a joiner takes for valid what was not at the member that gave it.
    GivenTakenForValid,
    /// G12: a write that has read its key takes a place behind others that it has not read.
    StepTooFar,
    /// Stability is told by this member's storage alone.
    StoredHereOnly,
    /// G8: a full member that was started again takes what its storage held for valid.
    RestoredTakenForValid,
    /// A write that the application refuses is told with what its key holds, as if it had set that.
    RefusedTold,
    /// What a refused write was answered is noted by nobody.
    RefusedForgotten,
}

impl HermesFault {
    /// All of them.
    pub const ALL: [HermesFault; 24] = [
        HermesFault::InvalidAnswered,
        HermesFault::AcksKept,
        HermesFault::AckShort,
        HermesFault::NotInstalled,
        HermesFault::TieIgnored,
        HermesFault::OlderMakesValid,
        HermesFault::ReplayedAsNew,
        HermesFault::IdentityForgotten,
        HermesFault::AnyoneCoordinates,
        HermesFault::NotSettled,
        HermesFault::OvertakenForgotten,
        HermesFault::JoinerAnswers,
        HermesFault::JoinerNotCounted,
        HermesFault::CountedUnheard,
        HermesFault::OpenNotTold,
        HermesFault::StateBeforeCounted,
        HermesFault::GivenToSeveral,
        HermesFault::EarlyDropped,
        HermesFault::GivenTakenForValid,
        HermesFault::StepTooFar,
        HermesFault::StoredHereOnly,
        HermesFault::RestoredTakenForValid,
        HermesFault::RefusedTold,
        HermesFault::RefusedForgotten,
    ];
}

impl Fault {
    /// All of chains.
    pub const ALL: [Fault; 16] = [
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
        Fault::DisplacedOvertaken,
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
