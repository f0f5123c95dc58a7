//! Planted faults: each switches one rule of the codec off, so that tests can show that they would notice. Without the
//! feature `planted-faults` there is nothing to switch.
//!
//! Invariant: a fault is in the codec of the thread that planted it alone, and gone when its work is over.

/// A rule that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A number may end behind the message that it is in.
    SkipEndCheck,
    /// What was set to zero is absent, where somebody may ask whether it was set.
    DropPresenceOfZero,
    /// A length of two bytes is written as one.
    ShortLength,
    /// Of a number that comes twice the first counts.
    FirstWins,
    /// Fields that the schema does not know are lost.
    ForgetUnknown,
    /// A tag may take ten bytes.
    AcceptOverlongTag,
    /// The arena may hold 64 bytes more than its limit.
    ArenaBeyondLimit,
    /// The last byte of eight is not looked at whether it is UTF-8.
    SkipUtf8BlockEdge,
    /// Of entries of equal keys the first counts.
    MapFirstWins,
    /// Of a number of nine bytes a bit of the ninth is lost.
    LoseBitOfNinthByte,
    /// A text may say one byte more than there is (Thrift).
    TextBehindEnd,
    /// Behind what the table has read the line counts the id from the field that it has read itself (Thrift).
    StaleId,
}

impl Fault {
    /// Those of Thrift's straight line.
    pub const THRIFT: [Fault; 2] = [Fault::TextBehindEnd, Fault::StaleId];
    /// All others.
    pub const ALL: [Fault; 10] = [
        Fault::SkipEndCheck,
        Fault::DropPresenceOfZero,
        Fault::ShortLength,
        Fault::FirstWins,
        Fault::ForgetUnknown,
        Fault::AcceptOverlongTag,
        Fault::ArenaBeyondLimit,
        Fault::SkipUtf8BlockEdge,
        Fault::MapFirstWins,
        Fault::LoseBitOfNinthByte,
    ];
}

#[cfg(feature = "planted-faults")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Does work with this fault in the codec.
#[cfg(feature = "planted-faults")]
pub fn with<R>(fault: Fault, work: impl FnOnce() -> R) -> R {
    /// Takes the fault away, even where the work panics.
    struct Planted;
    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
    PLANTED.set(Some(fault));
    let _planted = Planted;
    work()
}

/// Whether `fault` is the one.
#[cfg(feature = "planted-faults")]
pub(crate) fn is(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Whether `fault` is the one.
#[cfg(not(feature = "planted-faults"))]
#[inline(always)]
pub(crate) const fn is(_fault: Fault) -> bool {
    false
}
