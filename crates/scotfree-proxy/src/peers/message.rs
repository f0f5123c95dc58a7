//! What a proxy and a peer say to each other: one byte for what it is, then its fields, little-endian.
//!
//! Invariant: whatever the bytes, reading ends in a message or an error, without a copy.

use scotfree_core::SeqNum;

/// The largest record that is kept.
pub const RECORD_BYTES_MAX: usize = 2 << 20;

/// What a peer holds of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// The incarnation of the Redis that the proxy stood before when it began or resumed the log.
    pub epoch: u32,
    /// The last place in the log's records.
    pub stored: u64,
    /// Records up to this place were given up.
    pub trimmed: u64,
}

/// What a proxy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToKeeper<'a> {
    /// It wants all records; [`FromKeeper::Record`]s and [`FromKeeper::End`] follow.
    Read,
    /// The log begins anew, empty, before this incarnation of the Redis.
    Begin(u32),
    /// The log goes on as it is, before this incarnation.
    Resume(u32),
    /// A record, and the place of its last update.
    Append(SeqNum, &'a [u8]),
    /// Records up to this place are needed no longer.
    Trim(SeqNum),
    /// The log is needed no longer.
    Drop,
}

/// What a peer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromKeeper<'a> {
    /// What it holds of the log: said first, and when a log was begun or resumed.
    State(Option<Held>),
    /// How far it is, as [`Held::stored`] and [`Held::trimmed`].
    Stored(u64, u64),
    /// A record.
    Record(&'a [u8]),
    /// That was all.
    End,
    /// It does not do that; the connection is of no use any more.
    Refused(&'a str),
}

/// What is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of kind {0} cannot be read")]
pub struct MessageError(u8);

impl ToKeeper<'_> {
    /// Appends its bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            ToKeeper::Read => out.push(1),
            ToKeeper::Begin(epoch) => write_words(out, 2, &[u64::from(*epoch)]),
            ToKeeper::Resume(epoch) => write_words(out, 3, &[u64::from(*epoch)]),
            ToKeeper::Append(last, record) => {
                write_words(out, 4, &[last.0]);
                out.extend_from_slice(record);
            }
            ToKeeper::Trim(through) => write_words(out, 5, &[through.0]),
            ToKeeper::Drop => out.push(6),
        }
    }

    /// Reads one.
    pub fn read(bytes: &[u8]) -> Result<ToKeeper<'_>, MessageError> {
        let (kind, rest) = bytes.split_first().ok_or(MessageError(0))?;
        let unread = MessageError(*kind);
        let epoch = |word: u64| u32::try_from(word).map_err(|_| unread);
        match (kind, read_word(rest)) {
            (1, _) if rest.is_empty() => Ok(ToKeeper::Read),
            (2, Some((word, []))) => epoch(word).map(ToKeeper::Begin),
            (3, Some((word, []))) => epoch(word).map(ToKeeper::Resume),
            (4, Some((last, record))) => Ok(ToKeeper::Append(SeqNum(last), record)),
            (5, Some((through, []))) => Ok(ToKeeper::Trim(SeqNum(through))),
            (6, _) if rest.is_empty() => Ok(ToKeeper::Drop),
            _ => Err(unread),
        }
    }
}

impl FromKeeper<'_> {
    /// Appends its bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            FromKeeper::State(None) => out.push(1),
            FromKeeper::State(Some(held)) => {
                write_words(out, 2, &[u64::from(held.epoch), held.stored, held.trimmed]);
            }
            FromKeeper::Stored(stored, trimmed) => write_words(out, 3, &[*stored, *trimmed]),
            FromKeeper::Record(record) => {
                out.push(4);
                out.extend_from_slice(record);
            }
            FromKeeper::End => out.push(5),
            FromKeeper::Refused(text) => {
                out.push(6);
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    /// Reads one.
    pub fn read(bytes: &[u8]) -> Result<FromKeeper<'_>, MessageError> {
        let (kind, rest) = bytes.split_first().ok_or(MessageError(0))?;
        let unread = MessageError(*kind);
        match kind {
            1 if rest.is_empty() => Ok(FromKeeper::State(None)),
            2 => {
                let [epoch, stored, trimmed] = read_words(rest).ok_or(unread)?;
                let epoch = u32::try_from(epoch).map_err(|_| unread)?;
                Ok(FromKeeper::State(Some(Held { epoch, stored, trimmed })))
            }
            3 => read_words(rest).map(|[stored, trimmed]| FromKeeper::Stored(stored, trimmed)).ok_or(unread),
            4 => Ok(FromKeeper::Record(rest)),
            5 if rest.is_empty() => Ok(FromKeeper::End),
            6 => std::str::from_utf8(rest).map(FromKeeper::Refused).map_err(|_| unread),
            _ => Err(unread),
        }
    }
}

fn write_words(out: &mut Vec<u8>, kind: u8, words: &[u64]) {
    out.push(kind);
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn read_word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk().map(|(word, rest)| (u64::from_le_bytes(*word), rest))
}

/// So many words, and nothing behind them.
fn read_words<const COUNT: usize>(bytes: &[u8]) -> Option<[u64; COUNT]> {
    let mut words = [0; COUNT];
    let mut rest = bytes;
    for word in &mut words {
        (*word, rest) = read_word(rest)?;
    }
    rest.is_empty().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let held = Held { epoch: 7, stored: 1 << 40, trimmed: 3 };
        for message in [
            ToKeeper::Read,
            ToKeeper::Begin(u32::MAX),
            ToKeeper::Resume(2),
            ToKeeper::Append(SeqNum(9), b"record"),
            ToKeeper::Trim(SeqNum(8)),
            ToKeeper::Drop,
        ] {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            assert_eq!(ToKeeper::read(&bytes), Ok(message));
        }
        for message in [
            FromKeeper::State(None),
            FromKeeper::State(Some(held)),
            FromKeeper::Stored(5, 4),
            FromKeeper::Record(b"record"),
            FromKeeper::End,
            FromKeeper::Refused("no room"),
        ] {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            assert_eq!(FromKeeper::read(&bytes), Ok(message));
        }
    }

    #[test]
    fn what_is_too_long_too_short_or_unknown_is_refused() {
        for bytes in [&[][..], &[1, 0], &[2], &[2, 0, 0, 0, 0, 1, 0, 0, 0], &[4, 1], &[9]] {
            assert!(ToKeeper::read(bytes).is_err(), "{bytes:?}");
        }
        for bytes in [&[][..], &[1, 0], &[2, 0], &[3; 18], &[5, 5], &[6, 0xff], &[0]] {
            assert!(FromKeeper::read(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let again = |write: &dyn Fn(&mut Vec<u8>)| {
                let mut out = Vec::new();
                write(&mut out);
                out
            };
            if let Ok(message) = ToKeeper::read(&bytes) {
                prop_assert_eq!(again(&|out| message.write(out)), &bytes[..]);
            }
            if let Ok(message) = FromKeeper::read(&bytes) {
                prop_assert_eq!(again(&|out| message.write(out)), &bytes[..]);
            }
        }
    }
}
