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
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 9] = [
        Fault::ExecuteAgain,
        Fault::EarlyBeforeLogged,
        Fault::EarlyBeforeStable,
        Fault::CoveredBeforeLogged,
        Fault::AnswerBeforeLogged,
        Fault::AnswerBeforeStable,
        Fault::BypassBeforeStable,
        Fault::TrimWhenExecuted,
        Fault::ApplyBehindGap,
    ];
}
