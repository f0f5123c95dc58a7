//! Safety rules that a test can switch off, to see that it would find their absence.

/// A rule that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// B1: an entry is sealed before its content is there.
    SealFirst,
    /// B2: an entry counts whatever lap it is of.
    ForgetLap,
    /// B3: a message more than there is room for.
    OneTooMany,
    /// B4: a length is taken as the peer says it.
    TrustLength,
    /// B5: the sleeper does not look once more.
    SleepAtOnce,
    /// B6: a ring is served for as long as it has something.
    NoQuota,
    /// B9: a mark is cleared when what it stands for was looked at, and so may be one that came meanwhile.
    ClearLate,
    /// B7: room is counted by answers, not by the lowest unanswered.
    CountAnswers,
}

/// Whether the rule is switched off here.
#[cfg(feature = "planted-faults")]
pub(crate) fn is_planted(planted: Option<Fault>, fault: Fault) -> bool {
    planted == Some(fault)
}

/// Never: the rule cannot be switched off in this build.
#[cfg(not(feature = "planted-faults"))]
pub(crate) fn is_planted(_planted: Option<Fault>, _fault: Fault) -> bool {
    false
}
