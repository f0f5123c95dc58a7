//! What requests and replies of a Redis say to the cache.
//!
//! Invariant: what is not known for certain is said to change anything, to be no read, and to be no value.

use super::{Key, Said, Touched};
use scotfree_cache::{Language, Redis, WholeRead};
use scotfree_core::KeyHash;
use scotfree_resp::classes::{classify, key_hash, keys, lookup, Class};
use scotfree_resp::codec::{is_error, write_words, Args};
use scotfree_resp::payload::{
    parse_response, CommandReader, RequestFlags, RequestHead, ResponseFlags, REQUEST_HEAD_BYTES,
    RESPONSE_HEAD_BYTES,
};
use scotfree_session::RequestKind;

/// Requests that change no reply that is kept: they write no keys, or of a stream only what its groups have read.
const OF_NO_REPLY: [&str; 3] = ["PUBLISH", "SPUBLISH", "XREADGROUP"];
/// Writes whose keys stand behind their number.
const OF_COUNTED_KEYS: [&str; 2] = ["LMPOP", "ZMPOP"];
/// Longer reads are the Redis' own: what tells them from others would be longer than the rules keep.
const READ_BYTES_MAX: usize = 1_024;
/// Of the form of a GET: its database.
const DATABASE_BYTES: usize = 2;

/// Writes that touch more than the keys at their places.
const OF_MORE_KEYS: [&str; 4] = ["SORT", "COPY", "MOVE", "MIGRATE"];

/// What a request was found to be; the memory is used again.
#[derive(Debug, Default)]
pub(in super::super) struct Words {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// A read that may be answered here, and its key's hash.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Offered<'p> {
    pub read: WholeRead<'p>,
    hash: KeyHash,
}

impl Words {
    /// What this request reads, if it is a read that may be answered here: not of a user of its own (P8), for then its
    /// flags say so; and, where `fields_expire`, nothing that tells of a hash (P9).
    pub fn read<'p>(
        &mut self,
        kind: RequestKind,
        payload: &'p [u8],
        fields_expire: bool,
    ) -> Option<Offered<'p>> {
        if kind != RequestKind::Read || payload.len() > READ_BYTES_MAX {
            return None;
        }
        self.key.clear();
        let read = Redis.whole_read(payload, &mut self.key)?;
        let may_be_kept = !(fields_expire && read.command.tells_of_hashes);
        may_be_kept.then(|| Offered { read, hash: key_hash(read.database, Some(read.key)) })
    }

    /// What tells the read that was looked at last from all others.
    pub fn key(&self, of: &Offered<'_>) -> Key<'_> {
        Key { database: of.read.database, hash: of.hash, bytes: &self.key }
    }

    /// What a key's GETs are answered from this write on, if it is a plain SET.
    pub fn overwrite(&mut self, kind: RequestKind, payload: &[u8]) -> Option<(Key<'_>, &[u8])> {
        self.key.clear();
        self.value.clear();
        let is_plain =
            kind == RequestKind::Update && Redis.overwrite(payload, &mut self.key, &mut self.value);
        is_plain.then(|| (key_of_get(&self.key), &self.value[RESPONSE_HEAD_BYTES..]))
    }
}

fn key_of_get(bytes: &[u8]) -> Key<'_> {
    let (head, name) = bytes.split_at(1 + DATABASE_BYTES);
    let db = u16::from_le_bytes([head[1], head[2]]);
    Key { database: db, hash: key_hash(db, Some(name)), bytes }
}

/// The request that asks how long the key of a read lives.
pub(in super::super) fn question(read: &WholeRead<'_>) -> Vec<u8> {
    let mut payload = Vec::with_capacity(REQUEST_HEAD_BYTES + 32 + read.key.len());
    RequestHead { db: read.database, ..RequestHead::default() }.write(&mut payload);
    write_words(&mut payload, &[b"PTTL", read.key]);
    payload
}

/// What a response says.
pub(in super::super) fn said(response: &[u8], failed: bool) -> Said<'_> {
    let allowed = [ResponseFlags::NONE, ResponseFlags::EARLY_ALLOWED];
    match parse_response(response) {
        Ok((flags, reply)) if !failed && allowed.contains(&flags) && !is_error(reply) => Said::Reply(reply),
        _ => Said::Nothing,
    }
}

/// Of which keys a request may change what is kept (P2).
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
        _ if OF_NO_REPLY.contains(&name) => Touched::Nothing,
        _ if OF_MORE_KEYS.contains(&name) || name.starts_with("GEORADIUS") => Touched::Anything,
        _ if row.first_key > 0 || OF_COUNTED_KEYS.contains(&name) => of_keys(),
        _ => Touched::Anything,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scotfree_cache::{ReadCommand, READS};
    use scotfree_resp::classes::{rows, Flags, Row};
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
            ("LMPOP 2 a b LEFT", of(&["a", "b"])),
            ("ZMPOP 1 z MIN", of(&["z"])),
            ("LMOVE a b LEFT LEFT", of(&["a", "b"])),
            ("XGROUP CREATE s g 0 MKSTREAM", of(&["s"])),
            ("XREADGROUP GROUP g c STREAMS s >", Touched::Nothing),
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
    fn only_reads_of_the_table_and_a_logged_plain_set_without_a_user_of_their_own_are_known() {
        let mut words = Words::default();
        let none = RequestFlags::NONE;
        let user = RequestFlags::PRIVATE.with(RequestFlags::USER);
        let resp3 = RequestFlags::RESP3;
        let mut read = |payload: &[u8], fields_expire| {
            let found = words.read(RequestKind::Read, payload, fields_expire);
            found.map(|offered| words.key(&offered)).map(|key| (key.hash, key.bytes.to_vec()))
        };
        let of_key = key_hash(0, Some(b"k"));
        let get = read(&payload(none, &["GET k"]), true);
        assert_eq!(get, Some((of_key, b"\0\0\0k".to_vec())));
        assert_eq!(read(&payload(resp3, &["get k"]), true), get, "a value is the same in both versions");
        for line in ["HGETALL k", "ZRANGE k 0 -1", "EXISTS k", "TYPE k"] {
            let [two, three] = [none, resp3].map(|flags| read(&payload(flags, &[line]), false));
            assert!(two.is_some() && two != three && two.map(|(hash, _)| hash) == Some(of_key), "{line}");
        }
        for line in ["HGET k f", "HLEN k", "EXISTS k", "TYPE k", "PEXPIRETIME k"] {
            assert_eq!(read(&payload(none, &[line]), true), None, "{line}: its fields' times go by");
        }
        for payload in [
            payload(user, &["GET k"]),
            payload(user, &["LLEN k"]),
            payload(none, &["GET k", "GET k"]),
            payload(none, &["MGET k l"]),
            payload(none, &["PFCOUNT k"]),
            payload(none, &[&format!("HGET k {}", "f".repeat(READ_BYTES_MAX))]),
        ] {
            assert_eq!(read(&payload, false), None);
        }
        assert!(words.read(RequestKind::Update, &payload(none, &["GET k"]), false).is_none());
        let set = payload(RequestFlags::EARLY, &["SET k v"]);
        let found = words
            .overwrite(RequestKind::Update, &set)
            .map(|(key, value)| (key.bytes.to_vec(), value.to_vec()));
        assert_eq!(found, Some((b"\0\0\0k".to_vec(), b"$1\r\nv\r\n".to_vec())));
        assert!(words.overwrite(RequestKind::Bypass, &set).is_none());
        assert!(words.overwrite(RequestKind::Update, &payload(none, &["SET k v NX"])).is_none());
    }

    #[test]
    fn the_table_of_whole_reads_holds_reads_of_one_key_alone() {
        for read in &READS {
            let row = rows().iter().find(|row| row.command == read.name).expect(read.name);
            assert_eq!((row.class, row.first_key), (Class::Read, 1), "{}", read.name);
            assert_eq!(row.last_key == -1, read.takes_keys, "{}", read.name);
            assert!(row.last_key.abs() == 1 && row.flags.has(Flags::READONLY), "{}", read.name);
        }
        let tells_of_hashes =
            |row: &&Row| row.group == "hash" && ReadCommand::named(row.command.as_bytes()).is_some();
        let of_hashes: Vec<_> =
            rows().iter().filter(tells_of_hashes).map(|row| row.command.as_str()).collect();
        assert_eq!(of_hashes.len(), 8);
        assert!(READS.iter().all(|read| read.tells_of_hashes || !of_hashes.contains(&read.name)));
    }

    #[test]
    fn a_question_is_one_for_the_time_to_live_in_the_same_database() {
        let mut request = payload(RequestFlags::NONE, &["HGET k f"]);
        request[4] = 3;
        let mut words = Words::default();
        let offered = words.read(RequestKind::Read, &request, false).expect("it may be kept");
        let asked = question(&offered.read);
        assert_eq!(RequestHead::parse(&asked).map(|head| head.db), Ok(3));
        assert!(asked.ends_with(b"*2\r\n$4\r\nPTTL\r\n$1\r\nk\r\n"));
    }

    #[test]
    fn a_response_says_something_only_if_it_is_whole_and_no_error() {
        assert_eq!(said(b"\x01\x01$1\r\nv\r\n", false), Said::Reply(b"$1\r\nv\r\n"));
        assert_eq!(said(b"\x01\x00+OK\r\n", false), Said::DONE);
        assert_eq!(said(b"\x01\x00:-1\r\n", false), Said::LASTS);
        for other in [&b"\x01\x08$1\r\nv\r\n"[..], b"\x01\x04+OK\r\n", b"\x01\x00-ERR no\r\n", b""] {
            assert_eq!(said(other, false), Said::Nothing, "{other:?}");
        }
        assert_eq!(said(b"\x01\x00+OK\r\n", true), Said::Nothing);
    }
}
