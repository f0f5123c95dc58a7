//! Extensions of the core header: what only some requests and responses say, between tail and payload.
//!
//! Each is a word of eight bytes (type 1, words of the value 1, zero 6) and its value. They are sent only to a peer
//! that has offered to take them, in packets of one fragment.
//!
//! Invariant: there is one way to write a set of extensions: by growing type, each at most once.

use crate::error::WireError;
use crate::header::{array_at, u64_at};
use scotfree_core::KeyHash;

/// The size of a word.
pub const EXTENSION_WORD_BYTES: usize = 8;
/// How many further keys one packet names.
pub const FURTHER_KEYS_MAX: usize = 15;
/// The size of all extensions of a packet, at most.
pub const EXTENSION_BYTES_MAX: usize = EXTENSION_WORD_BYTES * (1 + FURTHER_KEYS_MAX + 1 + 3 + 1 + 2);

const TYPE_KEYS: u8 = 1;
const TYPE_IDENTITY: u8 = 2;
/// The type of what is known of an object.
pub const EXTENSION_OBJECT: u8 = 3;
/// How many words that says.
pub const EXTENSION_OBJECT_WORDS: usize = 2;

/// A set of types of extensions: what a peer takes, or what a packet bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtensionSet(pub u64);

impl ExtensionSet {
    /// None.
    pub const NONE: ExtensionSet = ExtensionSet(0);
    /// Further keys of the request.
    pub const KEYS: ExtensionSet = ExtensionSet(1);
    /// Who made the request, beyond its session.
    pub const IDENTITY: ExtensionSet = ExtensionSet(2);
    /// What is known of the object that the response holds.
    pub const OBJECT: ExtensionSet = ExtensionSet(4);
    /// All that this version knows.
    pub const ALL: ExtensionSet = ExtensionSet(7);

    /// Whether all of `other` are in it.
    pub const fn has(self, other: ExtensionSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: ExtensionSet) -> ExtensionSet {
        ExtensionSet(self.0 | other.0)
    }
}

/// Names a request wherever it is sent, so that a second try at another replica is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The client, drawn at random.
    pub client: [u8; 16],
    /// The request's number there.
    pub number: u64,
}

/// What is known of the object in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectNote {
    /// The size of its value.
    pub value_bytes: u64,
    /// How long it lives on, in milliseconds from when the response was made; `u64::MAX` if for ever.
    pub remaining_ms: u64,
}

/// Extensions to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extensions<'a> {
    /// The hashes of keys beside the header's, at most [`FURTHER_KEYS_MAX`].
    pub further_keys: &'a [KeyHash],
    /// Who made the request.
    pub identity: Option<Identity>,
    /// What is known of the object.
    pub object: Option<ObjectNote>,
}

impl Extensions<'_> {
    /// None.
    pub const NONE: Extensions<'static> = Extensions { further_keys: &[], identity: None, object: None };

    /// Which there are.
    pub fn set(&self) -> ExtensionSet {
        let one = |there: bool, one: ExtensionSet| if there { one } else { ExtensionSet::NONE };
        one(!self.further_keys.is_empty(), ExtensionSet::KEYS)
            .with(one(self.identity.is_some(), ExtensionSet::IDENTITY))
            .with(one(self.object.is_some(), ExtensionSet::OBJECT))
    }

    /// Their size, a multiple of a word.
    pub fn bytes(&self) -> usize {
        let head = |words: usize| if words == 0 { 0 } else { 1 + words };
        let words = head(self.further_keys.len())
            + head(self.identity.map_or(0, |_| 3))
            + head(self.object.map_or(0, |_| 2));
        words * EXTENSION_WORD_BYTES
    }

    /// Appends them.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        assert!(self.further_keys.len() <= FURTHER_KEYS_MAX, "no packet names more keys");
        if !self.further_keys.is_empty() {
            write_head(TYPE_KEYS, self.further_keys.len(), out);
            self.further_keys.iter().for_each(|key| out.extend_from_slice(&key.0.to_le_bytes()));
        }
        if let Some(identity) = &self.identity {
            write_head(TYPE_IDENTITY, 3, out);
            out.extend_from_slice(&identity.client);
            out.extend_from_slice(&identity.number.to_le_bytes());
        }
        if let Some(object) = &self.object {
            write_head(EXTENSION_OBJECT, EXTENSION_OBJECT_WORDS, out);
            out.extend_from_slice(&object.value_bytes.to_le_bytes());
            out.extend_from_slice(&object.remaining_ms.to_le_bytes());
        }
    }
}

fn write_head(kind: u8, words: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&[kind, words as u8, 0, 0, 0, 0, 0, 0]);
}

/// Extensions of a packet, whose structure has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtensionView<'a> {
    keys: &'a [u8],
    identity: Option<Identity>,
    object: Option<ObjectNote>,
}

impl<'a> ExtensionView<'a> {
    /// Reads all of `bytes`, a multiple of a word.
    pub(crate) fn read(mut bytes: &'a [u8]) -> Result<ExtensionView<'a>, WireError> {
        let mut view = ExtensionView::default();
        let mut last = 0;
        while !bytes.is_empty() {
            let (kind, value, rest) = read_one(bytes)?;
            if kind <= last {
                return Err(WireError::BadExtension);
            }
            view.take(kind, value)?;
            last = kind;
            bytes = rest;
        }
        Ok(view)
    }

    fn take(&mut self, kind: u8, value: &'a [u8]) -> Result<(), WireError> {
        let words = value.len() / EXTENSION_WORD_BYTES;
        match (kind, words) {
            (TYPE_KEYS, 1..=FURTHER_KEYS_MAX) => self.keys = value,
            (TYPE_IDENTITY, 3) => {
                self.identity = Some(Identity { client: array_at(value, 0), number: u64_at(value, 16) });
            }
            (EXTENSION_OBJECT, EXTENSION_OBJECT_WORDS) => {
                self.object =
                    Some(ObjectNote { value_bytes: u64_at(value, 0), remaining_ms: u64_at(value, 8) });
            }
            (TYPE_KEYS | TYPE_IDENTITY | EXTENSION_OBJECT, _) => return Err(WireError::BadExtension),
            _ => return Err(WireError::UnknownExtension),
        }
        Ok(())
    }

    /// Which there are.
    pub fn set(&self) -> ExtensionSet {
        let first = [KeyHash(0)];
        let further_keys: &[KeyHash] = if self.keys.is_empty() { &[] } else { &first };
        Extensions { further_keys, identity: self.identity, object: self.object }.set()
    }

    /// The hashes of further keys.
    pub fn further_keys(&self) -> impl ExactSizeIterator<Item = KeyHash> + 'a {
        self.keys.chunks_exact(EXTENSION_WORD_BYTES).map(|word| KeyHash(u64_at(word, 0)))
    }

    /// Who made the request.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// What is known of the object.
    pub fn object(&self) -> Option<ObjectNote> {
        self.object
    }
}

/// The first extension's type and value, and what follows.
fn read_one(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), WireError> {
    let (head, rest) = bytes.split_at_checked(EXTENSION_WORD_BYTES).ok_or(WireError::BadExtension)?;
    let value_bytes = usize::from(head[1]) * EXTENSION_WORD_BYTES;
    let (value, rest) = rest.split_at_checked(value_bytes).ok_or(WireError::BadExtension)?;
    let zero = head[2..].iter().all(|byte| *byte == 0);
    zero.then_some((head[0], value, rest)).ok_or(WireError::BadExtension)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [KeyHash; 2] = [KeyHash(7), KeyHash(u64::MAX)];

    fn all() -> Extensions<'static> {
        Extensions {
            further_keys: &KEYS,
            identity: Some(Identity { client: [9; 16], number: 3 }),
            object: Some(ObjectNote { value_bytes: 1 << 20, remaining_ms: u64::MAX }),
        }
    }

    fn written(extensions: &Extensions<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        extensions.write(&mut out);
        assert_eq!(out.len(), extensions.bytes());
        out
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = written(&all());
        let view = ExtensionView::read(&bytes).expect("they are whole");
        assert_eq!(view.further_keys().collect::<Vec<_>>(), KEYS);
        assert_eq!((view.identity(), view.object()), (all().identity, all().object));
        assert_eq!((view.set(), all().set()), (ExtensionSet::ALL, ExtensionSet::ALL));
        assert_eq!(ExtensionView::read(&[]), Ok(ExtensionView::default()));
        assert_eq!(ExtensionView::default().set(), ExtensionSet::NONE);
        assert!(
            written(&Extensions { further_keys: &[KeyHash(1); FURTHER_KEYS_MAX], ..all() }).len()
                == EXTENSION_BYTES_MAX
        );
    }

    #[test]
    fn what_nobody_writes_is_refused() {
        let whole = written(&all());
        let mut unknown = whole.clone();
        unknown[whole.len() - 24] = 4;
        assert_eq!(ExtensionView::read(&unknown), Err(WireError::UnknownExtension));
        let twice = [whole.clone(), whole.clone()].concat();
        assert_eq!(ExtensionView::read(&twice), Err(WireError::BadExtension), "out of order");
        let mut past = whole.clone();
        past[whole.len() - 23] = 3;
        assert_eq!(ExtensionView::read(&past), Err(WireError::BadExtension), "past the packet");
        let mut short = whole.clone();
        short[1] = 0;
        assert!(ExtensionView::read(&short).is_err(), "no key at all");
        let mut zero = whole;
        zero[5] = 1;
        assert_eq!(ExtensionView::read(&zero), Err(WireError::BadExtension), "a reserved byte");
    }
}
