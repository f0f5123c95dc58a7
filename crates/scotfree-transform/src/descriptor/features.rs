//! What of a field follows from its file's syntax or edition, and from what is said nearer to it.

use super::read::{each, Value};
use crate::error::DecodeError;

/// `FeatureSet`'s numbers; 0 where nothing is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Features {
    presence: u64,
    enums: u64,
    repeated: u64,
    utf8: u64,
    messages: u64,
}

const EXPLICIT: u64 = 1;
const IMPLICIT: u64 = 2;
const REQUIRED: u64 = 3;
const OPEN: u64 = 1;
const CLOSED: u64 = 2;
const PACKED: u64 = 1;
const EXPANDED: u64 = 2;
const VERIFIED: u64 = 2;
const UNVERIFIED: u64 = 3;
const LENGTH_PREFIXED: u64 = 1;
const DELIMITED: u64 = 2;

impl Features {
    /// Those that a file begins with.
    pub(super) fn of_edition(syntax: &str, edition: u64) -> Features {
        let proto3 = Features {
            presence: IMPLICIT,
            enums: OPEN,
            repeated: PACKED,
            utf8: VERIFIED,
            messages: LENGTH_PREFIXED,
        };
        match (syntax, edition) {
            ("proto3", _) => proto3,
            ("editions", _) => Features { presence: EXPLICIT, ..proto3 },
            _ => Features {
                presence: EXPLICIT,
                enums: CLOSED,
                repeated: EXPANDED,
                utf8: UNVERIFIED,
                messages: LENGTH_PREFIXED,
            },
        }
    }

    /// Those of a message of options, whose field `number` they are.
    pub(super) fn in_options(options: &[u8], number: u32) -> Result<Features, DecodeError> {
        let mut all = Features::default();
        each(options, |field| match field {
            (of, Value::Bytes(bytes)) if of == number => each(bytes, |feature| {
                match feature {
                    (1, Value::Number(value)) => all.presence = value,
                    (2, Value::Number(value)) => all.enums = value,
                    (3, Value::Number(value)) => all.repeated = value,
                    (4, Value::Number(value)) => all.utf8 = value,
                    (5, Value::Number(value)) => all.messages = value,
                    _ => {}
                }
                Ok(())
            }),
            _ => Ok(()),
        })?;
        Ok(all)
    }

    /// These, where `nearer` says nothing else.
    pub(super) fn with(self, nearer: Features) -> Features {
        let said = |own: u64, nearer: u64| if nearer == 0 { own } else { nearer };
        Features {
            presence: said(self.presence, nearer.presence),
            enums: said(self.enums, nearer.enums),
            repeated: said(self.repeated, nearer.repeated),
            utf8: said(self.utf8, nearer.utf8),
            messages: said(self.messages, nearer.messages),
        }
    }

    pub(super) fn is_implicit(self) -> bool {
        self.presence == IMPLICIT
    }

    pub(super) fn is_required(self) -> bool {
        self.presence == REQUIRED
    }

    pub(super) fn is_closed(self) -> bool {
        self.enums == CLOSED
    }

    pub(super) fn is_packed(self) -> bool {
        self.repeated == PACKED
    }

    pub(super) fn is_verified(self) -> bool {
        self.utf8 == VERIFIED
    }

    pub(super) fn is_delimited(self) -> bool {
        self.messages == DELIMITED
    }
}
