//! What requests and replies of a Redis say to the cache.
//!
//! Invariant: what is not known for certain is said to change anything, to be no read, and to be no value.

use super::{Key, Said, Touched};
use scotfree_cache::{Language, Redis};
use scotfree_core::KeyHash;
use scotfree_resp::classes::{classify, key_hash, keys, lookup, Class};
use scotfree_resp::codec::{write_words, Args};
use scotfree_resp::payload::{
    parse_response, CommandReader, RequestFlags, RequestHead, ResponseFlags, REQUEST_HEAD_BYTES,
    RESPONSE_HEAD_BYTES,
};
use scotfree_session::RequestKind;

/// How a name in the key of a read begins: with its database.
const DATABASE_BYTES: usize = 2;

/// Writes that never change a value that GET is answered with: they write keys of other types, or none.
const OF_OTHER_TYPES: [&str; 5] = ["PUBLISH", "SPUBLISH", "XREADGROUP", "LMPOP", "ZMPOP"];
/// Writes that touch more than the keys at their places.
const OF_MORE_KEYS: [&str; 4] = ["SORT", "COPY", "MOVE", "MIGRATE"];

/// What a request was found to be; the memory is used again.
#[derive(Debug, Default)]
pub(in super::super) struct Words {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Words {
    /// The key that this request reads, if it is a read that may be answered here: not of a user of its own (P8), for
    /// then its flags say so.
    pub fn read(&mut self, kind: RequestKind, payload: &[u8]) -> Option<Key<'_>> {
        self.key.clear();
        let is_read = kind == RequestKind::Read && Redis.get(payload, &mut self.key);
        is_read.then(|| key_of(&self.key))
    }

    /// What a key's reads are answered from this write on, if it is a plain SET.
    pub fn overwrite(&mut self, kind: RequestKind, payload: &[u8]) -> Option<(Key<'_>, &[u8])> {
        self.key.clear();
        self.value.clear();
        let is_plain =
            kind == RequestKind::Update && Redis.overwrite(payload, &mut self.key, &mut self.value);
        is_plain.then(|| (key_of(&self.key), &self.value[RESPONSE_HEAD_BYTES..]))
    }
}

fn key_of(bytes: &[u8]) -> Key<'_> {
    let (db, name) = bytes.split_at(DATABASE_BYTES);
    let db = u16::from_le_bytes([db[0], db[1]]);
    Key { hash: key_hash(db, Some(name)), bytes }
}

/// The request that asks how long the key of a read lives.
pub(in super::super) fn question(key: Key<'_>) -> Vec<u8> {
    let (db, name) = key.bytes.split_at(DATABASE_BYTES);
    let db = u16::from_le_bytes([db[0], db[1]]);
    let mut payload = Vec::with_capacity(REQUEST_HEAD_BYTES + 32 + name.len());
    RequestHead { db, ..RequestHead::default() }.write(&mut payload);
    write_words(&mut payload, &[b"PTTL", name]);
    payload
}

/// What a response says.
pub(in super::super) fn said(response: &[u8], failed: bool) -> Said<'_> {
    let allowed = [ResponseFlags::NONE, ResponseFlags::EARLY_ALLOWED];
    match parse_response(response) {
        Ok((flags, reply)) if !failed && allowed.contains(&flags) => match reply {
            b"+OK\r\n" => Said::Done,
            b":-1\r\n" => Said::Lasts,
            [b'$', digit, ..] if digit.is_ascii_digit() => Said::Value(reply),
            _ => Said::Other,
        },
        _ => Said::Other,
    }
}

/// Of which keys a request may change what a GET is answered (P2).
pub(in super::super) fn touched(kind: RequestKind, payload: &[u8], reader: &mut CommandReader) -> Touched {
    let Ok(head) = RequestHead::parse(payload) else { return Touched::Anything };
    let has = |flags| head.flags.has(flags);
    let is_read = kind == RequestKind::Read;
    match () {
        // Bytes that are kept, questions, and what lets go of a connection.
        () if is_read && (has(RequestFlags::PART) || has(RequestFlags::REST)) => return Touched::Nothing,
        () if is_read && (has(RequestFlags::DESCRIBE) || has(RequestFlags::ASK)) => return Touched::Nothing,
        () if head.flags.is_partial() || has(RequestFlags::PACK) => return Touched::Anything,
        () => {}
    }
    let mut all = Vec::new();
    let mut at = REQUEST_HEAD_BYTES;
    loop {
        match reader.read(payload, at) {
            Ok(None) => break,
            Ok(Some((args, next))) => {
                at = next;
                match touched_by(is_read, head.db, args) {
                    Touched::Nothing => {}
                    Touched::Keys(keys) => all.extend(keys),
                    Touched::Anything => return Touched::Anything,
                }
            }
            Err(_) => return Touched::Anything,
        }
    }
    if all.is_empty() {
        Touched::Nothing
    } else {
        Touched::Keys(all)
    }
}

fn touched_by(is_read: bool, db: u16, args: Args<'_>) -> Touched {
    // What the table does not know may have come with a module since.
    let Some(row) = lookup(args) else { return Touched::Anything };
    let name = row.command.as_str();
    let hashes = || -> Vec<KeyHash> { keys(args).map(|key| key_hash(db, Some(key))).collect() };
    let of_keys = || Some(hashes()).filter(|keys| !keys.is_empty()).map_or(Touched::Anything, Touched::Keys);
    match classify(args).class {
        // It keeps what it has counted in the value.
        Class::Read if name == "PFCOUNT" => of_keys(),
        Class::Read => Touched::Nothing,
        Class::Control if is_read => Touched::Nothing,
        Class::Control | Class::Tunnel => Touched::Anything,
        _ if is_read => Touched::Anything,
        _ if OF_OTHER_TYPES.contains(&name) => Touched::Nothing,
        _ if OF_MORE_KEYS.contains(&name) || name.starts_with("GEORADIUS") => Touched::Anything,
        _ if row.first_key > 0 => of_keys(),
        _ => Touched::Anything,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_resp::payload::write_request;

    fn payload(flags: RequestFlags, lines: &[&str]) -> Vec<u8> {
        let commands: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
        let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
        let mut payload = Vec::new();
        write_request(&mut payload, flags, &commands);
        payload
    }

    fn touched_by(kind: RequestKind, lines: &[&str]) -> Touched {
        touched(kind, &payload(RequestFlags::NONE, lines), &mut CommandReader::default())
    }

    fn of(names: &[&str]) -> Touched {
        Touched::Keys(names.iter().map(|name| key_hash(0, Some(name.as_bytes()))).collect())
    }

    #[test]
    fn a_write_touches_the_keys_at_their_places_and_whatever_is_doubtful_anything() {
        for (line, expected) in [
            ("SET k v", of(&["k"])),
            ("INCR k", of(&["k"])),
            ("PEXPIREAT k 5", of(&["k"])),
            ("MSET a 1 b 2", of(&["a", "b"])),
            ("DEL a b", of(&["a", "b"])),
            ("RENAME a b", of(&["a", "b"])),
            ("BITOP AND d a b", of(&["d", "a", "b"])),
            ("ZUNIONSTORE d 2 a b", of(&["d"])),
            ("RESTORE k 0 x", of(&["k"])),
            ("SPOP k", of(&["k"])),
            ("PUBLISH c m", Touched::Nothing),
        ] {
            assert_eq!(touched_by(RequestKind::Bypass, &[line]), expected, "{line}");
        }
        for line in [
            "FLUSHALL",
            "FLUSHDB",
            "SWAPDB 0 1",
            "MOVE k 1",
            "COPY a b DB 1",
            "MIGRATE h 1 k 0 9",
            "SORT l STORE d",
            "GEORADIUS g 0 0 1 m STORE d",
            "EVAL x 1 k",
            "FCALL f 1 k",
            "DEBUG RELOAD",
            "ACL SETUSER u",
            "NOSUCH k",
            "SET",
        ] {
            assert_eq!(touched_by(RequestKind::Bypass, &[line]), Touched::Anything, "{line}");
        }
    }

    #[test]
    fn a_read_touches_nothing_unless_it_writes_beside_or_is_unknown() {
        for line in ["GET k", "MGET a b", "PTTL k", "SCAN 0", "EVAL_RO x 1 k", "OBJECT ENCODING k"] {
            assert_eq!(touched_by(RequestKind::Read, &[line]), Touched::Nothing, "{line}");
        }
        assert_eq!(touched_by(RequestKind::Read, &["PFCOUNT a b"]), of(&["a", "b"]));
        assert_eq!(touched_by(RequestKind::Read, &["NEW.COMMAND k"]), Touched::Anything);
        assert_eq!(touched_by(RequestKind::Read, &["SET k v"]), Touched::Anything, "as a read it is refused");
    }

    #[test]
    fn a_transaction_touches_what_its_commands_do_and_in_another_database_anything() {
        let transaction = |lines: &[&str]| touched_by(RequestKind::Update, lines);
        assert_eq!(transaction(&["SET a 1", "GET c", "INCR b"]), of(&["a", "b"]));
        assert_eq!(transaction(&["SET a 1", "SELECT 3", "INCR b"]), Touched::Anything);
        assert_eq!(transaction(&["SET a 1", "BLPOP l 0"]), Touched::Anything);
        assert_eq!(touched_by(RequestKind::Read, &["GET a", "GET b"]), Touched::Nothing);
    }

    #[test]
    fn of_large_requests_the_parts_touch_nothing_and_the_whole_anything() {
        let of = |kind, flags| touched(kind, &payload(flags, &["SET k v"]), &mut CommandReader::default());
        assert_eq!(of(RequestKind::Read, RequestFlags::PART), Touched::Nothing);
        assert_eq!(of(RequestKind::Bypass, RequestFlags::ASSEMBLED), Touched::Anything);
        assert_eq!(of(RequestKind::Read, RequestFlags::ASSEMBLED), Touched::Anything);
        assert_eq!(touched(RequestKind::Read, &[], &mut CommandReader::default()), Touched::Anything);
    }

    #[test]
    fn only_a_plain_get_and_a_logged_plain_set_without_a_user_of_their_own_are_known() {
        let mut words = Words::default();
        let none = RequestFlags::NONE;
        let user = RequestFlags::PRIVATE.with(RequestFlags::USER);
        let resp3 = RequestFlags::RESP3;
        let plain = payload(none, &["GET k"]);
        assert_eq!(words.read(RequestKind::Read, &plain).map(|key| key.bytes), Some(&b"\0\0k"[..]));
        assert!(words.read(RequestKind::Read, &payload(resp3, &["get k"])).is_some());
        assert!(words.read(RequestKind::Read, &payload(user, &["GET k"])).is_none());
        assert!(words.read(RequestKind::Read, &payload(none, &["GET k", "GET k"])).is_none());
        let set = payload(RequestFlags::EARLY, &["SET k v"]);
        let found = words.overwrite(RequestKind::Update, &set).map(|(_, value)| value.to_vec());
        assert_eq!(found, Some(b"$1\r\nv\r\n".to_vec()));
        assert!(words.overwrite(RequestKind::Bypass, &set).is_none());
        assert!(words.overwrite(RequestKind::Update, &payload(none, &["SET k v NX"])).is_none());
    }

    #[test]
    fn a_question_is_one_for_the_time_to_live_in_the_same_database() {
        let key = Key { hash: KeyHash(0), bytes: b"\x03\x00k" };
        let asked = question(key);
        assert_eq!(RequestHead::parse(&asked).map(|head| head.db), Ok(3));
        assert!(asked.ends_with(b"*2\r\n$4\r\nPTTL\r\n$1\r\nk\r\n"));
    }

    #[test]
    fn a_response_says_a_value_only_if_it_is_whole_and_no_error() {
        assert_eq!(said(b"\x01\x01$1\r\nv\r\n", false), Said::Value(b"$1\r\nv\r\n"));
        assert_eq!(said(b"\x01\x00+OK\r\n", false), Said::Done);
        assert_eq!(said(b"\x01\x00:-1\r\n", false), Said::Lasts);
        for other in [
            &b"\x01\x08$1\r\nv\r\n"[..],
            b"\x01\x04+OK\r\n",
            b"\x01\x00$-1\r\n",
            b"\x01\x00_\r\n",
            b"\x01\x00:5\r\n",
            b"",
        ] {
            assert_eq!(said(other, false), Said::Other, "{other:?}");
        }
        assert_eq!(said(b"\x01\x00+OK\r\n", true), Said::Other);
    }
}
