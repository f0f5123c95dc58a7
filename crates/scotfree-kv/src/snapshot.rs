//! The whole state as one stream of bytes, by which the log of requests is made short again, and which other members
//! of a group get.
//!
//! Stream: how much the data may take (8), then entries, each a tag (1 byte) and: 1 session: as an op's start record;
//! 2 string: key, value; 3 list: key, count (4), elements; 4 version of the key before: counter (8), member (2);
//! 5 version of a key without a value: key, counter (8), member (2); 6 mark (8); 7 results, as `Results` writes them;
//! 8 how many values were installed (8).
//! Keys, values and elements are length (4) and bytes. Then tag 0.
//!
//! Invariant: reading a written stream gives the same state; a stream that is not whole is an error. What members get
//! is equal if their states are.

use crate::kept::Kept;
use crate::op::{number, read_blob, read_version, take, write_blob, write_version, Op};
use crate::store::Store;
use crate::value::Value;
use scotfree_core::SessionId;
use scotfree_session::RecoveredSession;
use scotfree_state::{Mark, Results};
use std::collections::{BTreeMap, VecDeque};

/// The size of a session's entry behind its tag: an op's start record.
const SESSION_BYTES: usize = 53;

/// The sessions of a service, by their names.
pub type Sessions = BTreeMap<SessionId, RecoveredSession>;

/// Writes the state.
pub fn write(kept: &Kept, out: &mut Vec<u8>) {
    write_limit(&kept.store, out);
    for record in kept.sessions.values() {
        out.push(1);
        Op::Start(*record).write(out);
    }
    write_group(kept, out);
    kept.store.iter().for_each(|(key, value)| write_entry(&kept.store, key, value, out));
    write_end(&kept.store, out);
}

/// Writes the state for other members of a group: without sessions, and the keys in order.
pub fn write_for_members(kept: &Kept, out: &mut Vec<u8>) {
    write_limit(&kept.store, out);
    write_group(kept, out);
    let mut entries: Vec<(&[u8], &Value)> = kept.store.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    for (key, value) in entries {
        write_entry(&kept.store, key, value, out);
    }
    write_end(&kept.store, out);
}

fn write_limit(store: &Store, out: &mut Vec<u8>) {
    out.extend_from_slice(&(store.data_bytes_max() as u64).to_le_bytes());
}

fn write_group(kept: &Kept, out: &mut Vec<u8>) {
    if kept.mark != Mark::default() {
        out.push(6);
        out.extend_from_slice(&kept.mark.0.to_le_bytes());
    }
    if kept.installed > 0 {
        out.push(8);
        out.extend_from_slice(&kept.installed.to_le_bytes());
    }
    if kept.results.client_count() > 0 {
        out.push(7);
        kept.results.write(out);
    }
}

fn write_entry(store: &Store, key: &[u8], value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Text(text) => {
            out.push(2);
            write_blob(key, out);
            write_blob(text, out);
        }
        Value::List(elements) => {
            out.push(3);
            write_blob(key, out);
            out.extend_from_slice(&(elements.len() as u32).to_le_bytes());
            for element in elements {
                write_blob(element, out);
            }
        }
    }
    if let Some(version) = store.version_of(key) {
        out.push(4);
        write_version(version, out);
    }
}

fn write_end(store: &Store, out: &mut Vec<u8>) {
    for (key, version) in store.tombstones() {
        out.push(5);
        write_blob(key, out);
        write_version(version, out);
    }
    out.push(0);
}

/// Reads the state into an empty one; `None` if the stream is damaged.
pub fn read(bytes: &[u8], kept: &mut Kept) -> Option<()> {
    let (data_bytes_max, mut bytes) = number(bytes)?;
    kept.store.set_data_bytes_max(data_bytes_max as usize);
    let mut key_before = None;
    loop {
        let (tag, rest) = bytes.split_first()?;
        let key = matches!(tag, 2 | 3).then(|| read_blob(rest)).flatten().map(|(key, _)| key);
        bytes = match tag {
            0 => return rest.is_empty().then_some(()),
            1 => read_session(rest, &mut kept.sessions)?,
            2 => read_text(rest, &mut kept.store)?,
            3 => read_list(rest, &mut kept.store)?,
            4 => read_key_version(key_before?, rest, &mut kept.store)?,
            5 => {
                let (key, rest) = read_blob(rest)?;
                read_key_version(key, rest, &mut kept.store)?
            }
            6 => {
                let (mark, rest) = number(rest)?;
                kept.mark = Mark(mark);
                rest
            }
            8 => {
                let (installed, rest) = number(rest)?;
                kept.installed = installed;
                rest
            }
            7 => {
                let (results, rest) = Results::read(kept.results_limits, rest)?;
                kept.results = results;
                rest
            }
            _ => return None,
        };
        key_before = key;
    }
}

fn read_session<'a>(bytes: &'a [u8], sessions: &mut Sessions) -> Option<&'a [u8]> {
    let (record, rest) = bytes.split_at_checked(SESSION_BYTES)?;
    let Some(Op::Start(record)) = Op::read(record) else { return None };
    sessions.insert(record.session, record);
    Some(rest)
}

fn read_text<'a>(bytes: &'a [u8], store: &mut Store) -> Option<&'a [u8]> {
    let (key, rest) = read_blob(bytes)?;
    let (text, rest) = read_blob(rest)?;
    store.insert(key.to_vec(), Value::Text(text.to_vec()));
    Some(rest)
}

fn read_list<'a>(bytes: &'a [u8], store: &mut Store) -> Option<&'a [u8]> {
    let (key, rest) = read_blob(bytes)?;
    let (count, mut rest) = take::<4>(rest)?;
    let mut elements = VecDeque::new();
    for _ in 0..u32::from_le_bytes(count) {
        let (element, after) = read_blob(rest)?;
        elements.push_back(element.to_vec());
        rest = after;
    }
    store.insert(key.to_vec(), Value::List(elements));
    Some(rest)
}

fn read_key_version<'a>(key: &[u8], bytes: &'a [u8], store: &mut Store) -> Option<&'a [u8]> {
    let (version, rest) = read_version(bytes)?;
    store.set_version(key, version);
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::IndexKind;
    use scotfree_core::{Epoch, SeqNum};
    use scotfree_state::{ResultsLimits, Version};
    use scotfree_wire::Identity;

    fn empty(index: IndexKind) -> Kept {
        Kept::new(Store::new(index, 1 << 20), ResultsLimits::default())
    }

    fn plain() -> Kept {
        let mut kept = empty(IndexKind::Hash);
        kept.store.insert(b"text".to_vec(), Value::Text(b"value".to_vec()));
        kept.store.insert(b"".to_vec(), Value::Text(Vec::new()));
        kept.store.insert(b"list".to_vec(), Value::List([b"a".to_vec(), Vec::new()].into()));
        let record = RecoveredSession {
            session: SessionId(1),
            epoch: Epoch(2),
            client_nonce: [3; 16],
            server_nonce: [4; 16],
            position: SeqNum(5),
        };
        kept.sessions.insert(record.session, record);
        kept
    }

    fn member() -> Kept {
        let mut kept = plain();
        kept.mark = Mark(9);
        kept.results.note(&Identity { client: [7; 16], number: 1 }, 5, b"answer");
        kept.store.set_version(b"text", Version { counter: 3, member: 1 });
        kept.store.set_version(b"gone", Version { counter: 4, member: 2 });
        kept
    }

    #[test]
    fn a_state_is_read_back_and_a_cut_stream_is_not() {
        for kept in [plain(), member()] {
            let mut bytes = Vec::new();
            write(&kept, &mut bytes);
            for index in IndexKind::ALL {
                let mut read_back = empty(index);
                read_back.store.set_data_bytes_max(0);
                assert_eq!(read(&bytes, &mut read_back), Some(()));
                assert_eq!(content(&read_back), content(&kept), "{index:?}");
            }
            for length in 0..bytes.len() {
                assert_eq!(read(&bytes[..length], &mut empty(IndexKind::Hash)), None);
            }
        }
    }

    #[test]
    fn without_a_group_the_stream_is_what_it_was_before_there_were_groups() {
        let mut kept = empty(IndexKind::BTree);
        kept.store.insert(b"k".to_vec(), Value::Text(b"v".to_vec()));
        let mut bytes = Vec::new();
        write(&kept, &mut bytes);
        assert_eq!(bytes, [0, 0, 16, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, b'k', 1, 0, 0, 0, b'v', 0]);
    }

    #[test]
    fn members_get_equal_streams_of_equal_states_without_sessions() {
        let mut expected = Vec::new();
        write_for_members(&member(), &mut expected);
        for index in IndexKind::ALL {
            let mut stream = Vec::new();
            write(&member(), &mut stream);
            let mut kept = empty(index);
            assert_eq!(read(&stream, &mut kept), Some(()));
            kept.sessions.clear();
            let mut bytes = Vec::new();
            write_for_members(&kept, &mut bytes);
            assert_eq!(bytes, expected, "{index:?}");
        }
    }

    #[test]
    fn a_version_of_no_key_is_damage() {
        let stream = [&[0; 8][..], &[4], &[0; 10], &[0]].concat();
        assert_eq!(read(&stream, &mut empty(IndexKind::Hash)), None);
    }

    type Content<'a> =
        (BTreeMap<&'a [u8], &'a Value>, [usize; 3], Vec<(&'a [u8], Version)>, &'a Sessions, Mark, Vec<u8>);

    fn content(kept: &Kept) -> Content<'_> {
        let store = &kept.store;
        let counts = [store.data_bytes(), store.data_bytes_max(), store.tombstone_count()];
        let mut results = Vec::new();
        kept.results.write(&mut results);
        (store.iter().collect(), counts, store.versions().collect(), &kept.sessions, kept.mark, results)
    }
}
