//! Planted faults: each switches one rule off, so that the simulated world can show that it would notice.

/// A rule that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Rule 1: what was executed before a crash is executed again.
    ExecuteAgain,
    /// Rule 2: an early update is answered before the log holds it.
    EarlyBeforeLogged,
    /// Rule 2: an early update is answered although an unlogged write of its session before it may be lost.
    EarlyBeforeStable,
    /// Rule 3: a covered update is answered when the server has answered.
    CoveredBeforeLogged,
    /// Rule 4: an answer leaves although a logged write that it may have seen can be lost.
    AnswerBeforeLogged,
    /// Rule 4: an answer leaves although an unlogged write that it may have seen can be lost.
    AnswerBeforeStable,
    /// Rule 5: a bypass is answered before it is stable.
    BypassBeforeStable,
    /// Rule 6: a record is trimmed when its updates are executed.
    TrimWhenExecuted,
    /// Rule 7: an update behind a lost write of its session is executed after a crash.
    ApplyBehindGap,
    /// Rule 9: what is logged on one peer counts as if every peer had it.
    OnePeerIsEnough,
    /// Rule 9: a peer that has come is not sent what was logged before.
    AttachWithoutThePast,
    /// Rule 9: a peer is relied upon before it has what was logged before.
    ListBeforeFilled,
    /// Rule 9: a lost peer is struck from the list while what it vouched for can be lost.
    StrikeBeforeStable,
    /// Rules 6 and 9: a session's marker leaves the server while a peer may still give its updates back.
    ForgetUntrimmed,
    /// Rule 9: after a restart the list is cleared before what a peer gave back is stable.
    LeaveBeforeStable,
    /// Rule 10: what the server has refused is executed after a crash.
    ForgetRefusals,
    /// Rule 11: a server that takes no writes answers by that what is executed anew.
    RefusedReplayCounts,
    /// Rule 12: a server that is there again is taken with less than it had called stable.
    TakeOlderData,
    /// Rule 13: a read is executed again although what its session wrote behind it was executed.
    ReadAgain,
    /// Rule 14: what was executed without a marker counts as if a position told of it.
    UnmarkedAgain,
    /// Rule 14: what was executed without a marker is answered before it is stable.
    UnmarkedBeforeStable,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 21] = [
        Fault::ExecuteAgain,
        Fault::EarlyBeforeLogged,
        Fault::EarlyBeforeStable,
        Fault::CoveredBeforeLogged,
        Fault::AnswerBeforeLogged,
        Fault::AnswerBeforeStable,
        Fault::BypassBeforeStable,
        Fault::TrimWhenExecuted,
        Fault::ApplyBehindGap,
        Fault::OnePeerIsEnough,
        Fault::AttachWithoutThePast,
        Fault::ListBeforeFilled,
        Fault::StrikeBeforeStable,
        Fault::ForgetUntrimmed,
        Fault::LeaveBeforeStable,
        Fault::ForgetRefusals,
        Fault::RefusedReplayCounts,
        Fault::TakeOlderData,
        Fault::ReadAgain,
        Fault::UnmarkedAgain,
        Fault::UnmarkedBeforeStable,
    ];
}
