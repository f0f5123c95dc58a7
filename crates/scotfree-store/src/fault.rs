//! Planted faults: each switches one rule off, so that tests can show that they would notice. Without the feature
//! `planted-faults` there is nothing to switch.

/// A rule that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreFault {
    /// Rule E1: who owns a key depends on who asks.
    TwoOwners,
    /// Rule E2: a bucket is split without the entries that belong to the new one.
    SplitWithoutMoving,
    /// Rule E2: hash bits that a split has used up are used again.
    KeepUsedBits,
    /// Rule E3: an entry that finds its bucket full takes the place of another.
    OverwriteWhenFull,
    /// Rule E3: a write that finds no memory has already removed what was there.
    ForgetWhenFull,
    /// Rule E4: what has expired is read.
    IgnoreExpiry,
    /// Rule E4: the sweeper trusts a bucket that a later write has given something that expires sooner.
    KeepFirstExpiry,
    /// Operations of a batch are executed in order: what was seen in advance is taken for what is there.
    TrustProbe,
    /// Two keys are the same if their tags are.
    CompareTagOnly,
}

impl StoreFault {
    /// All of them.
    pub const ALL: [StoreFault; 9] = [
        StoreFault::TwoOwners,
        StoreFault::SplitWithoutMoving,
        StoreFault::KeepUsedBits,
        StoreFault::OverwriteWhenFull,
        StoreFault::ForgetWhenFull,
        StoreFault::IgnoreExpiry,
        StoreFault::KeepFirstExpiry,
        StoreFault::TrustProbe,
        StoreFault::CompareTagOnly,
    ];
}

/// The fault that a shard carries; a build without the feature carries none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Planted(#[cfg(feature = "planted-faults")] Option<StoreFault>);

impl Planted {
    /// No fault.
    pub const NONE: Planted = Planted(
        #[cfg(feature = "planted-faults")]
        None,
    );

    /// This fault.
    #[cfg(feature = "planted-faults")]
    pub const fn some(fault: StoreFault) -> Planted {
        Planted(Some(fault))
    }

    /// Whether `fault` is the one.
    #[cfg(feature = "planted-faults")]
    pub fn is(self, fault: StoreFault) -> bool {
        self.0 == Some(fault)
    }

    /// Whether `fault` is the one.
    #[cfg(not(feature = "planted-faults"))]
    #[allow(clippy::unused_self)]
    pub const fn is(self, _fault: StoreFault) -> bool {
        false
    }
}
