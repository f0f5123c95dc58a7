//! Planted faults: each switches one rule off, so that tests can show that they would notice. Without the feature
//! `planted-faults` there is nothing to switch.

/// A rule that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheFault {
    /// C1, rule K1: an entry that a logged write has made stale is served.
    ServeStale,
    /// C2, rule K4: a reply fills whatever the barrier of its read.
    FillBelowVersion,
    /// C3, rule K2: a reply fills beside a write under way.
    FillBesideUnderWay,
    /// C4, rule K1: as published (T6), the first acknowledgement forgets that others are to come.
    ForgetVersion,
    /// C5, rule K5: what is known is served without a lease, and outlives its lapse.
    ServeWithoutLease,
    /// C6, rule K8: a write is taken for one of its first key alone.
    IgnoreFurtherKeys,
    /// C7, rule K7: what has expired is served.
    IgnoreDeadline,
    /// C8, rule K6: a pending value is served before it is durable.
    ServeBeforeDurable,
    /// C9, rule K5: what is known outlives the server's epoch, and the lapse of the lease that comes with another one.
    KeepAcrossEpoch,
    /// C10, rule K9: two keys are the same if their hashes are.
    CompareHashOnly,
    /// C11, rule K2: a value becomes pending beside a write under way.
    PendingBesideUnderWay,
    /// C12, rule K3: a read that passed before a write's reply fills after it.
    NoFloor,
    /// Rule K14: a read is answered although its caller waits for an earlier one.
    ServeBeforeElders,
    /// Rule K6: a value is served although an earlier write of its session may still be lost.
    ServeOverUnsafe,
    /// Rule K1: a write that may have been executed before it had its place is taken for the newest.
    TakeOldForNew,
    /// Rule K7: what lives for a while is served although a logged write that has passed may not be executed.
    OutliveUnexecuted,
}

impl CacheFault {
    /// All of them.
    pub const ALL: [CacheFault; 16] = [
        CacheFault::ServeStale,
        CacheFault::FillBelowVersion,
        CacheFault::FillBesideUnderWay,
        CacheFault::ForgetVersion,
        CacheFault::ServeWithoutLease,
        CacheFault::IgnoreFurtherKeys,
        CacheFault::IgnoreDeadline,
        CacheFault::ServeBeforeDurable,
        CacheFault::KeepAcrossEpoch,
        CacheFault::CompareHashOnly,
        CacheFault::PendingBesideUnderWay,
        CacheFault::NoFloor,
        CacheFault::ServeBeforeElders,
        CacheFault::ServeOverUnsafe,
        CacheFault::TakeOldForNew,
        CacheFault::OutliveUnexecuted,
    ];
}

/// The fault that a cache carries; a build without the feature carries none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Planted(#[cfg(feature = "planted-faults")] Option<CacheFault>);

impl Planted {
    /// No fault.
    pub const NONE: Planted = Planted(
        #[cfg(feature = "planted-faults")]
        None,
    );

    /// This fault.
    #[cfg(feature = "planted-faults")]
    pub const fn some(fault: CacheFault) -> Planted {
        Planted(Some(fault))
    }

    /// Whether `fault` is the one.
    #[cfg(feature = "planted-faults")]
    pub fn is(self, fault: CacheFault) -> bool {
        self.0 == Some(fault)
    }

    /// Whether `fault` is the one.
    #[cfg(not(feature = "planted-faults"))]
    #[allow(clippy::unused_self)]
    pub const fn is(self, _fault: CacheFault) -> bool {
        false
    }
}
