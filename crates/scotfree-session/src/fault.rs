//! Planted faults: each switches one safety rule off, so that the simulator can show that it would
//! notice. Without the feature `planted-faults` there is nothing to switch.

/// A safety rule that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Rule 1: the device admits requests that are not the next of their session.
    AdmitOutOfOrder,
    /// Rule 1: a retransmission gets a stamp of its own.
    RestampDuplicate,
    /// Rule 2: the server executes updates as they come.
    IgnoreOrder,
    /// Rule 2: the server executes reads without waiting for their barrier.
    IgnoreBarrier,
    /// Rule 2: the server executes unstamped requests without asking for their place.
    SkipDrain,
    /// Rule 2: of a run whose stamps it has forgotten, the head says what came before its first.
    PlaceOverGap,
    /// Rule 3: the device logs over an entry that is not stable.
    OverwriteSlot,
    /// Rule 4: the device acknowledges before its domain has completed.
    AckBeforePersisted,
    /// Rule 4: the device acknowledges without a lease.
    AckWithoutLease,
    /// Rule 5: the device neither forwards duplicates nor re-forwards aged entries.
    LoseLastRequest,
    /// Rule 6: the server says stable when it means applied.
    StableWhenApplied,
    /// Rule 7: the device acknowledges the first fragment of a set.
    AckFirstFragment,
    /// Rule 8: the client completes a covered update on the response alone.
    CompleteWithoutAck,
    /// Rule 8: the client completes an early update although an earlier write of its session may still be lost.
    OvertakeUnsafe,
    /// Rule 8: the server sends replies that depend on unlogged, unstable writes.
    ReplyBeforeStable,
    /// Rule 9: the client forgets an update when it completes.
    ForgetBeforeStable,
    /// Rule 9: the server executes again what was retried after its reply was dropped.
    ExecuteAgain,
    /// Rule 9: the server answers a session that has failed.
    AnswerFailed,
    /// Rule 10: the server serves before the replays have arrived.
    ServeBeforeReplay,
    /// Rule 10: the server starts from no session's position.
    ForgetPosition,
    /// Rule 10: the server hands on what devices have replayed as if it had just come.
    ReplayAsFresh,
    /// Rule 11: the server deletes a session before the devices have confirmed that they are empty.
    DeleteBeforeEmpty,
    /// Rule 11: the server applies replays of sessions that it does not know.
    ApplyUnknownSession,
    /// Rule 12: the device obeys servers of past epochs.
    ObeyPastEpoch,
    /// Rule 12: the device forwards before it has rebuilt its tables.
    ForgetLogOnRestart,
    /// Rule 13: a restarted server excludes a device whose lease an earlier incarnation granted.
    ForgetLeases,
    /// Rule 13: the client counts the same device twice.
    CountDeviceTwice,
    /// Rule 14: the device does not check who sent a `ServerAck`.
    TrustAnyone,
    /// Rule 14: the device takes a session's requests from anywhere, and answers there.
    FollowClient,
    /// Rule 14: the device goes on with sessions whose epoch was taken out of the cluster's key.
    HearRemovedKey,
    /// Rule 15: duplicates are counted as admitted.
    MiscountDuplicates,
    /// Rule 16: the device lets a function absorb an update.
    AbsorbWrite,
    /// Rule 16: the device does not tell the server what to pass over.
    StallBehindAnswered,
    /// Rule 2: the device counts one order for all of its servers.
    ShareOrder,
    /// Rule 2: asked for a place, the device looks among the first server's sessions.
    PlaceOfAnother,
    /// Rule 4: the device acknowledges as long as any of its servers has granted it a lease.
    LeaseOfAnother,
    /// Rule 4: the device logs and acknowledges also for servers whose updates are not to be logged.
    LogUntold,
    /// Rule 5: the device sends every entry to the first of its servers again.
    ReplayElsewhere,
}

impl Fault {
    /// Those that need a function which answers, to be seen.
    pub const OF_ANSWERS: [Fault; 2] = [Fault::AbsorbWrite, Fault::StallBehindAnswered];

    /// Those that need several servers behind a device, to be seen.
    pub const OF_SERVERS: [Fault; 5] = [
        Fault::ShareOrder,
        Fault::PlaceOfAnother,
        Fault::LeaseOfAnother,
        Fault::LogUntold,
        Fault::ReplayElsewhere,
    ];

    /// All others.
    pub const ALL: [Fault; 31] = [
        Fault::AdmitOutOfOrder,
        Fault::RestampDuplicate,
        Fault::IgnoreOrder,
        Fault::IgnoreBarrier,
        Fault::SkipDrain,
        Fault::PlaceOverGap,
        Fault::OverwriteSlot,
        Fault::AckBeforePersisted,
        Fault::AckWithoutLease,
        Fault::LoseLastRequest,
        Fault::StableWhenApplied,
        Fault::AckFirstFragment,
        Fault::CompleteWithoutAck,
        Fault::OvertakeUnsafe,
        Fault::ReplyBeforeStable,
        Fault::ForgetBeforeStable,
        Fault::ExecuteAgain,
        Fault::AnswerFailed,
        Fault::ServeBeforeReplay,
        Fault::ForgetPosition,
        Fault::ReplayAsFresh,
        Fault::DeleteBeforeEmpty,
        Fault::ApplyUnknownSession,
        Fault::ObeyPastEpoch,
        Fault::ForgetLogOnRestart,
        Fault::ForgetLeases,
        Fault::CountDeviceTwice,
        Fault::TrustAnyone,
        Fault::FollowClient,
        Fault::HearRemovedKey,
        Fault::MiscountDuplicates,
    ];
}

/// The fault that a machine carries; a build without the feature carries none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Planted(#[cfg(feature = "planted-faults")] Option<Fault>);

impl Planted {
    /// No fault.
    pub const NONE: Planted = Planted(
        #[cfg(feature = "planted-faults")]
        None,
    );

    /// This fault.
    #[cfg(feature = "planted-faults")]
    pub const fn some(fault: Fault) -> Planted {
        Planted(Some(fault))
    }

    /// Whether `fault` is the one.
    #[cfg(feature = "planted-faults")]
    pub fn is(self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }

    /// Whether `fault` is the one.
    #[cfg(not(feature = "planted-faults"))]
    #[allow(clippy::unused_self)]
    pub const fn is(self, _fault: Fault) -> bool {
        false
    }
}
