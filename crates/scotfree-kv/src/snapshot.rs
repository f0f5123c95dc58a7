//! The whole state as one stream of bytes, by which the log of requests is made short again.
//!
//! Stream: how much the data may take (8), then entries, each a tag (1 byte) and: 1 session: as an op's start record; 2 string: key, value;
//! 3 list: key, count (4), elements. Keys, values and elements are length (4) and bytes. Then tag 0.
//!
//! Invariant: reading a written stream gives the same state; a stream that is not whole is an error.

use crate::op::{take, Op};
use crate::store::{Store, Value};
use scotfree_core::SessionId;
use scotfree_session::RecoveredSession;
use std::collections::{BTreeMap, VecDeque};

/// The size of a session's entry behind its tag: an op's start record.
const SESSION_BYTES: usize = 53;

/// The sessions of a service, by their names.
pub type Sessions = BTreeMap<SessionId, RecoveredSession>;

/// Writes the state.
pub fn write(store: &Store, sessions: &Sessions, out: &mut Vec<u8>) {
    out.extend_from_slice(&(store.data_bytes_max() as u64).to_le_bytes());
    for record in sessions.values() {
        out.push(1);
        Op::Start(*record).write(out);
    }
    for (key, value) in store.iter() {
        match value {
            Value::Text(text) => {
                out.push(2);
                blob(key, out);
                blob(text, out);
            }
            Value::List(elements) => {
                out.push(3);
                blob(key, out);
                out.extend_from_slice(&(elements.len() as u32).to_le_bytes());
                for element in elements {
                    blob(element, out);
                }
            }
        }
    }
    out.push(0);
}

/// Reads the state into an empty one; `None` if the stream is damaged.
pub fn read(bytes: &[u8], store: &mut Store, sessions: &mut Sessions) -> Option<()> {
    let (data_bytes_max, mut bytes) = take::<8>(bytes)?;
    store.set_data_bytes_max(u64::from_le_bytes(data_bytes_max) as usize);
    loop {
        let (tag, rest) = bytes.split_first()?;
        bytes = match tag {
            0 => return rest.is_empty().then_some(()),
            1 => {
                let (record, rest) = rest.split_at_checked(SESSION_BYTES)?;
                let Some(Op::Start(record)) = Op::read(record) else { return None };
                sessions.insert(record.session, record);
                rest
            }
            2 => {
                let (key, rest) = read_blob(rest)?;
                let (text, rest) = read_blob(rest)?;
                store.insert(key.to_vec(), Value::Text(text.to_vec()));
                rest
            }
            3 => read_list(rest, store)?,
            _ => return None,
        }
    }
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

fn blob(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn read_blob(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = take::<4>(bytes)?;
    rest.split_at_checked(u32::from_le_bytes(length) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::IndexKind;
    use scotfree_core::{Epoch, SeqNum};

    #[test]
    fn a_state_is_read_back_and_a_cut_stream_is_not() {
        let mut store = Store::new(IndexKind::Hash, 1 << 20);
        store.insert(b"text".to_vec(), Value::Text(b"value".to_vec()));
        store.insert(b"".to_vec(), Value::Text(Vec::new()));
        store.insert(b"list".to_vec(), Value::List([b"a".to_vec(), Vec::new()].into()));
        let record = RecoveredSession {
            session: SessionId(1),
            epoch: Epoch(2),
            client_nonce: [3; 16],
            server_nonce: [4; 16],
            position: SeqNum(5),
        };
        let sessions = Sessions::from([(record.session, record)]);
        let mut bytes = Vec::new();
        write(&store, &sessions, &mut bytes);
        for index in IndexKind::ALL {
            let (mut read_store, mut read_sessions) = (Store::new(index, 0), Sessions::new());
            assert_eq!(read(&bytes, &mut read_store, &mut read_sessions), Some(()));
            assert_eq!((content(&read_store), &read_sessions), (content(&store), &sessions), "{index:?}");
        }
        for length in 0..bytes.len() {
            let mut store = Store::new(IndexKind::Hash, 1 << 20);
            assert_eq!(read(&bytes[..length], &mut store, &mut Sessions::new()), None);
        }
    }

    fn content(store: &Store) -> (BTreeMap<&[u8], &Value>, usize, usize) {
        (store.iter().collect(), store.data_bytes(), store.data_bytes_max())
    }
}
