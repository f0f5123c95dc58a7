//! Why a packet was refused; each reason has a counter.

/// How many reasons there are.
pub const WIRE_ERROR_COUNT: usize = 14;

/// Why a packet was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum WireError {
    /// Shorter than its header, its tail or its stated payload.
    #[error("truncated packet")]
    Truncated,
    /// Longer than stated, or than any packet may be.
    #[error("oversized packet")]
    Oversized,
    /// Not one of ours.
    #[error("wrong magic")]
    WrongMagic,
    /// Of another version of the protocol.
    #[error("wrong version")]
    WrongVersion,
    /// A kind that this version does not know.
    #[error("unknown kind")]
    UnknownKind,
    /// A field holds a value that it must not.
    #[error("invalid field")]
    InvalidField,
    /// The packet's authentication code does not fit.
    #[error("bad packet authentication code")]
    BadMac,
    /// The stamp's authentication code does not fit.
    #[error("bad stamp authentication code")]
    BadStampMac,
    /// Fragments of one request contradict each other or are too many.
    #[error("inconsistent fragments")]
    BadFragment,
    /// Authentic, but not from where its session's client lives.
    #[error("not from its session's client")]
    Elsewhere,
    /// Made under an epoch of the cluster's key that is not accepted: not yet, or no longer.
    #[error("unknown epoch of the cluster key")]
    UnknownKeyEpoch,
    /// An extension of a type that this version does not know.
    #[error("unknown extension")]
    UnknownExtension,
    /// An extension that goes past the packet, out of order, twice, or of a size that its type has not.
    #[error("malformed extension")]
    BadExtension,
    /// An extension that whoever gets it has not offered to take.
    #[error("an extension that was not offered to be taken")]
    ExtensionNotOffered,
}

impl WireError {
    /// All reasons, in the order of their counters.
    pub const ALL: [WireError; WIRE_ERROR_COUNT] = [
        WireError::Truncated,
        WireError::Oversized,
        WireError::WrongMagic,
        WireError::WrongVersion,
        WireError::UnknownKind,
        WireError::InvalidField,
        WireError::BadMac,
        WireError::BadStampMac,
        WireError::BadFragment,
        WireError::Elsewhere,
        WireError::UnknownKeyEpoch,
        WireError::UnknownExtension,
        WireError::BadExtension,
        WireError::ExtensionNotOffered,
    ];

    /// The reason's name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            WireError::Truncated => "truncated",
            WireError::Oversized => "oversized",
            WireError::WrongMagic => "wrong_magic",
            WireError::WrongVersion => "wrong_version",
            WireError::UnknownKind => "unknown_kind",
            WireError::InvalidField => "invalid_field",
            WireError::BadMac => "bad_mac",
            WireError::BadStampMac => "bad_stamp_mac",
            WireError::BadFragment => "bad_fragment",
            WireError::Elsewhere => "elsewhere",
            WireError::UnknownKeyEpoch => "unknown_key_epoch",
            WireError::UnknownExtension => "unknown_extension",
            WireError::BadExtension => "bad_extension",
            WireError::ExtensionNotOffered => "extension_not_offered",
        }
    }
}
