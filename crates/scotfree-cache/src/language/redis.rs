//! Redis, as sidecars put it into requests and responses.
//!
//! Request: version (1 byte), 0 (1), flags (2), database (2), connection (4), then the command as an array of RESP.
//! Response: version (1), flags (1), then the reply.
//!
//! Invariant: one command in a request, of those listed here, by the flags listed here; anything else is not known.

mod reads;

pub use reads::{ReadCommand, READS};

use super::{Language, Names};
use scotfree_core::{KeyHash, Nanos};
use scotfree_wire::ObjectNote;

const VERSION: u8 = 1;
/// The caller has its answer already.
const EARLY: u16 = 1;
/// It is of several callers.
const PACK: u16 = 2_048;
/// The caller takes a note of how long a value is true, and an answer that was given before.
const NOTED: u16 = 8_192;
/// Of a response: early answers are allowed.
const EARLY_ALLOWED: u8 = 1;
/// Of a response: it says nothing of early answers.
const AGAIN: u8 = 32;
/// The reply is to be RESP3.
const RESP3: u16 = 128;
const REQUEST_HEAD_BYTES: usize = 10;
const FLAGS: std::ops::Range<usize> = 2..4;
const DATABASE: std::ops::Range<usize> = 4..6;
const ARGUMENTS_MAX: usize = 64;

/// Writes that touch their first argument alone, in any form of theirs.
const OF_ONE_KEY: [&[u8]; 47] = [
    b"APPEND",
    b"DECR",
    b"DECRBY",
    b"EXPIRE",
    b"EXPIREAT",
    b"GETDEL",
    b"GETEX",
    b"GETSET",
    b"HDEL",
    b"HINCRBY",
    b"HINCRBYFLOAT",
    b"HMSET",
    b"HSET",
    b"HSETNX",
    b"INCR",
    b"INCRBY",
    b"INCRBYFLOAT",
    b"LINSERT",
    b"LPOP",
    b"LPUSH",
    b"LPUSHX",
    b"LREM",
    b"LSET",
    b"LTRIM",
    b"PERSIST",
    b"PEXPIRE",
    b"PEXPIREAT",
    b"PFADD",
    b"PSETEX",
    b"RPOP",
    b"RPUSH",
    b"RPUSHX",
    b"SADD",
    b"SET",
    b"SETBIT",
    b"SETEX",
    b"SETNX",
    b"SETRANGE",
    b"SPOP",
    b"SREM",
    b"XADD",
    b"XDEL",
    b"XTRIM",
    b"ZADD",
    b"ZINCRBY",
    b"ZREM",
    b"RESTORE",
];
/// Those that touch all their arguments; here with one.
const OF_EACH_ARGUMENT: [&[u8]; 2] = [b"DEL", b"UNLINK"];

/// Redis' commands and replies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Redis;

impl Redis {
    /// The read that a request is, if it is one of [`READS`] and no other key's; then what tells it from all other
    /// reads is appended to `form`. Other spellings of the same arguments are other reads.
    pub fn whole_read<'p>(self, payload: &'p [u8], form: &mut Vec<u8>) -> Option<WholeRead<'p>> {
        let command = command(payload)?;
        // How many there have to be the server says.
        let [Some(name), Some(key), ..] = command.first else { return None };
        let of = ReadCommand::named(name)?;
        let is_alone = command.count == 2;
        if of.takes_keys && !is_alone {
            return None;
        }
        let read = WholeRead { command: of, database: flags_of(&payload[DATABASE]), key };
        match of.name {
            "GET" if is_alone => WholeRead::write_form_of_get(read.database, key, form),
            _ => read.write_form(flags_of(&payload[FLAGS]) & RESP3 != 0, command.behind_key(), form),
        }
        Some(read)
    }
}

/// A read of one key, whose whole reply may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeRead<'p> {
    /// Which command it is.
    pub command: &'static ReadCommand,
    /// The number of the key's database.
    pub database: u16,
    /// The key that it reads.
    pub key: &'p [u8],
}

impl WholeRead<'_> {
    /// How the form of a GET begins, and no other's; database and key follow. A value is written alike in both versions
    /// of the protocol.
    pub const OF_GET: u8 = 0;

    /// Appends the form of a GET of this key.
    pub fn write_form_of_get(database: u16, key: &[u8], form: &mut Vec<u8>) {
        form.push(WholeRead::OF_GET);
        form.extend_from_slice(&database.to_le_bytes());
        form.extend_from_slice(key);
    }

    /// Database and key of a form, and the command's name unless it is a GET's; none if it is no form.
    pub fn shown(form: &[u8]) -> Option<(u16, &[u8], &str)> {
        let (kind, rest) = form.split_first()?;
        let (database, rest) = rest.split_first_chunk()?;
        let database = u16::from_le_bytes(*database);
        if *kind == WholeRead::OF_GET {
            return Some((database, rest, ""));
        }
        let (name, rest) = part(rest)?;
        let (key, _) = part(rest)?;
        Some((database, key, std::str::from_utf8(name).ok()?))
    }

    /// Every part says where it ends, so that no two commands have one form.
    fn write_form<'a>(&self, is_resp3: bool, further: impl Iterator<Item = &'a [u8]>, form: &mut Vec<u8>) {
        form.push(if is_resp3 { 3 } else { 2 });
        form.extend_from_slice(&self.database.to_le_bytes());
        write_part(self.command.name.as_bytes(), form);
        write_part(self.key, form);
        further.for_each(|part| write_part(part, form));
    }
}

fn write_part(part: &[u8], form: &mut Vec<u8>) {
    form.extend_from_slice(&(part.len() as u32).to_le_bytes());
    form.extend_from_slice(part);
}

/// The first part of a form, and what is behind it.
fn part(form: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = form.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

impl Language for Redis {
    /// A connection, unless several share the request.
    fn caller(&self, payload: &[u8]) -> Option<u32> {
        let head = payload.first_chunk::<REQUEST_HEAD_BYTES>()?;
        let is_known = head[..2] == [VERSION, 0] && flags_of(&head[FLAGS]) & PACK == 0;
        is_known.then(|| u32::from_le_bytes([head[6], head[7], head[8], head[9]]))
    }

    /// One whose caller takes what was answered before: which of them are, it decides. Its reply is the same for every
    /// connection that speaks its version of RESP.
    fn read(&self, payload: &[u8], key: &mut Vec<u8>) -> bool {
        let is_noted = payload.get(FLAGS).is_some_and(|flags| flags_of(flags) & NOTED != 0);
        is_noted && self.whole_read(payload, key).is_some()
    }

    /// A SET without options. What it is followed by is not known: then it keeps a life of its own.
    fn overwrite(&self, payload: &[u8], key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool {
        let Some(command) = command(payload).filter(|command| command.count == 3) else { return false };
        let [Some(name), Some(of), Some(set)] = command.first else { return false };
        if !name.eq_ignore_ascii_case(b"SET") {
            return false;
        }
        WholeRead::write_form_of_get(flags_of(&payload[DATABASE]), of, key);
        value.extend_from_slice(&[VERSION, AGAIN, b'$']);
        value.extend_from_slice(set.len().to_string().as_bytes());
        value.extend_from_slice(b"\r\n");
        value.extend_from_slice(set);
        value.extend_from_slice(b"\r\n");
        true
    }

    fn names(&self, payload: &[u8]) -> Names {
        let Some(Command { count, first: [Some(command), ..], .. }) = command(payload) else {
            return Names::Some;
        };
        let is_one_of = |names: &[&[u8]]| names.iter().any(|name| command.eq_ignore_ascii_case(name));
        let one = is_one_of(&OF_ONE_KEY) || (count == 2 && is_one_of(&OF_EACH_ARGUMENT));
        if one {
            Names::All
        } else {
            Names::Some
        }
    }

    fn named(&self, database: u16, key: &[u8], read: &mut Vec<u8>) -> KeyHash {
        WholeRead::write_form_of_get(database, key, read);
        KeyHash::of(database, key)
    }

    fn shown<'r>(&self, read: &'r [u8]) -> Option<(u16, &'r [u8], &'r str)> {
        WholeRead::shown(read)
    }

    /// Whatever is no error and whose server says how long it is true: it does so of replies that may be kept alone.
    fn lives(&self, reply: &[u8], note: Option<ObjectNote>, value: &mut Vec<u8>) -> Option<Nanos> {
        let [VERSION, flags, said @ ..] = reply else { return None };
        let may_be_kept = flags & !EARLY_ALLOWED == 0 && !matches!(said, [] | [b'-' | b'!', ..]);
        let note = note.filter(|_| may_be_kept)?;
        value.extend_from_slice(&[VERSION, AGAIN]);
        value.extend_from_slice(said);
        Some(Nanos(note.remaining_ms.saturating_mul(1_000_000)))
    }
}

/// A command, all of whose arguments are there.
struct Command<'p> {
    /// How many arguments it has, its name among them.
    count: usize,
    /// Its first ones.
    first: [Option<&'p [u8]>; 3],
    /// They all, as they were written.
    written: &'p [u8],
}

impl<'p> Command<'p> {
    fn arguments(&self) -> impl Iterator<Item = &'p [u8]> + use<'p> {
        let mut rest = self.written;
        std::iter::from_fn(move || {
            let (argument, after) = argument(rest)?;
            rest = after;
            Some(argument)
        })
    }

    fn behind_key(&self) -> impl Iterator<Item = &'p [u8]> + use<'p> {
        self.arguments().skip(2)
    }
}

fn flags_of(bytes: &[u8]) -> u16 {
    bytes.try_into().map_or(u16::MAX, u16::from_le_bytes)
}

/// The only command of a payload, if there is one and its flags change nothing.
fn command(payload: &[u8]) -> Option<Command<'_>> {
    let (head, rest) = payload.split_at_checked(REQUEST_HEAD_BYTES)?;
    if head[0] != VERSION || head[1] != 0 || flags_of(&head[FLAGS]) & !(EARLY | RESP3 | NOTED) != 0 {
        return None;
    }
    let (count, written) = number_after(b'*', rest)?;
    if !(1..=ARGUMENTS_MAX).contains(&count) {
        return None;
    }
    let mut first = [None; 3];
    let rest = (0..count).try_fold(written, |rest, at| {
        let (argument, after) = argument(rest)?;
        if let Some(place) = first.get_mut(at) {
            *place = Some(argument);
        }
        Some(after)
    })?;
    rest.is_empty().then_some(Command { count, first, written })
}

/// The first argument, and what follows it.
fn argument(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number_after(b'$', bytes)?;
    let (text, rest) = rest.split_at_checked(length)?;
    Some((text, rest.strip_prefix(b"\r\n")?))
}

/// The number behind a sign, and what follows its line.
fn number_after(sign: u8, bytes: &[u8]) -> Option<(usize, &[u8])> {
    let bytes = bytes.strip_prefix(&[sign])?;
    let mut digits = bytes.iter().take_while(|byte| byte.is_ascii_digit());
    let (count, number) = digits.try_fold((0, 0_usize), |(count, number), digit| {
        Some((count + 1, number.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?))
    })?;
    let rest = bytes[count..].strip_prefix(b"\r\n")?;
    (count > 0).then_some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(flags: u16, connection: u32, line: &str) -> Vec<u8> {
        let words: Vec<&str> = line.split(' ').collect();
        let mut payload = vec![VERSION, 0];
        payload.extend_from_slice(&flags.to_le_bytes());
        payload.extend_from_slice(&3_u16.to_le_bytes());
        payload.extend_from_slice(&connection.to_le_bytes());
        payload.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            payload.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        payload
    }

    fn read(payload: &[u8]) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        Redis.read(payload, &mut key).then_some(key)
    }

    #[test]
    fn an_operator_names_the_key_of_a_get() {
        let mut named = Vec::new();
        assert_eq!(Redis.named(3, b"k", &mut named), KeyHash::of(3, b"k"));
        assert_eq!(read(&payload(NOTED, 1, "GET k")).as_ref(), Some(&named));
        assert_eq!(Redis.shown(&named), Some((3, &b"k"[..], "")));
        let shown = |line: &str| {
            read(&payload(NOTED | RESP3, 1, line)).map(|form| {
                Redis.shown(&form).map(|(database, key, name)| (database, key.to_vec(), name.to_owned()))
            })
        };
        assert_eq!(shown("HGET hash field"), Some(Some((3, b"hash".to_vec(), "HGET".to_owned()))));
        for wrong in [&b"\x01"[..], b"", b"\x02\0\0", b"\x02\0\0\x09\0\0\0HLEN"] {
            assert_eq!(Redis.shown(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_get_is_told_by_database_and_key_whoever_asks() {
        let key = Some(b"\x00\x03\x00k".to_vec());
        assert_eq!(read(&payload(NOTED, 1, "GET k")), key);
        assert_eq!(read(&payload(NOTED | RESP3, 2, "get k")), key);
        for other in [
            payload(NOTED, 1, "TTL k"),
            payload(NOTED, 1, "MGET k l"),
            payload(NOTED | 2, 1, "GET k"),
            payload(0, 1, "HGET k f"),
            payload(0, 1, "GET k"),
            vec![],
            vec![1; 10],
        ] {
            assert_eq!(read(&other), None, "{other:?}");
        }
        assert_ne!(
            read(&payload(NOTED, 1, "HGET k f")),
            read(&payload(NOTED | RESP3, 1, "HGET k f")),
            "of what is read, each as it speaks"
        );
        let two =
            [payload(NOTED, 1, "GET k"), payload(0, 1, "GET k")[REQUEST_HEAD_BYTES..].to_vec()].concat();
        assert_eq!(read(&two), None, "two commands");
    }

    #[test]
    fn a_whole_read_is_told_by_database_command_key_and_protocol() {
        let form = |flags, line: &str| {
            let mut form = Vec::new();
            let payload = payload(flags, 1, line);
            let read = Redis.whole_read(&payload, &mut form)?;
            Some((read.command.name, read.database, read.key.to_vec(), form))
        };
        assert_eq!(form(RESP3, "get k"), Some(("GET", 3, b"k".to_vec(), b"\x00\x03\x00k".to_vec())));
        assert_eq!(form(0, "hGet k f"), form(0, "HGET k f"));
        let all = ["HGET k f", "HGET k g", "HGET l f", "HLEN k", "LRANGE k 0 1", "LRANGE k 01 1", "EXISTS k"];
        let mut forms: Vec<_> = [0, RESP3]
            .into_iter()
            .flat_map(|flags| all.map(|line| form(flags, line).expect("it is one").3))
            .collect();
        forms.sort_unstable();
        forms.dedup();
        assert_eq!(forms.len(), 2 * all.len());
        for other in ["SET k v", "TTL k", "EXISTS k l", "MGET k l", "GET", "NEW k"] {
            assert_eq!(form(0, other), None, "{other}");
        }
        assert_eq!(form(2, "HGET k f"), None, "in a transaction");
    }

    #[test]
    fn a_request_is_its_connection_s_unless_several_share_it() {
        assert_eq!(Redis.caller(&payload(EARLY, 70_000, "SET k v")), Some(70_000));
        assert_eq!(Redis.caller(&payload(PACK, 0, "SET k v")), None);
        assert_eq!((Redis.caller(&[1; 9]), Redis.caller(&[2; 40])), (None, None));
    }

    #[test]
    fn a_plain_set_says_what_its_key_is_answered() {
        let overwrite = |line: &str| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            Redis.overwrite(&payload(EARLY, 9, line), &mut key, &mut value).then_some((key, value))
        };
        assert_eq!(
            overwrite("set k value"),
            Some((b"\x00\x03\x00k".to_vec(), b"\x01\x20$5\r\nvalue\r\n".to_vec()))
        );
        for other in ["SET k v NX", "SET k v PXAT 5", "SETEX k 5 v", "GETSET k v", "APPEND k v"] {
            assert_eq!(overwrite(other), None, "{other}");
        }
    }

    #[test]
    fn only_commands_that_are_known_to_touch_one_key_name_all_they_touch() {
        for one in ["SET k v NX", "INCR k", "hset k a b c d", "DEL k", "SETEX k 5 v"] {
            assert_eq!(Redis.names(&payload(EARLY, 1, one)), Names::All, "{one}");
        }
        for some in ["DEL k l", "MSET k 1 l 2", "FLUSHALL", "EVAL x 1 k", "RENAME k l", "NEW k", "COPY k l"] {
            assert_eq!(Redis.names(&payload(0, 1, some)), Names::Some, "{some}");
        }
        assert_eq!(Redis.names(&payload(2, 1, "SET k v")), Names::Some, "a transaction");
    }

    #[test]
    fn a_reply_is_kept_if_it_is_a_value_and_its_server_vouches_for_it() {
        let note = |remaining_ms| Some(ObjectNote { value_bytes: 1, remaining_ms });
        let lives = |reply: &[u8], note| {
            let mut value = Vec::new();
            let lives = Redis.lives(reply, note, &mut value);
            lives.map(|lives| (lives, value))
        };
        let again = || b"\x01\x20$1\r\nv\r\n".to_vec();
        assert_eq!(lives(b"\x01\x00$1\r\nv\r\n", note(5)), Some((Nanos::from_millis(5), again())));
        assert_eq!(lives(b"\x01\x01$1\r\nv\r\n", note(u64::MAX)), Some((Nanos::MAX, again())));
        assert_eq!(lives(b"\x01\x00$1\r\nv\r\n", None), None);
        for other in
            [&b"\x01\x00-ERR\r\n"[..], b"\x01\x00!3\r\nERR\r\n", b"\x01\x02$1\r\nv\r\n", b"\x01\x00", b""]
        {
            assert_eq!(lives(other, note(5)), None, "{other:?}");
        }
    }

    /// The flags are the sidecars' own.
    #[test]
    fn a_request_and_a_response_are_read_as_sidecars_write_them() {
        use scotfree_resp::payload::{write_request, write_response, RequestFlags, ResponseFlags};
        for (ours, theirs) in [
            (NOTED, RequestFlags::NOTED),
            (EARLY, RequestFlags::EARLY),
            (RESP3, RequestFlags::RESP3),
            (PACK, RequestFlags::PACK),
        ] {
            let mut written = Vec::new();
            write_request(&mut written, theirs, &[&["GET", "k"]]);
            assert_eq!((flags_of(&written[FLAGS]), written.len()), (ours, payload(ours, 1, "GET k").len()));
        }
        for (ours, theirs) in [(EARLY_ALLOWED, ResponseFlags::EARLY_ALLOWED), (AGAIN, ResponseFlags::AGAIN)] {
            let mut written = Vec::new();
            write_response(&mut written, theirs, b"$1");
            assert_eq!(written, [VERSION, ours, b'$', b'1']);
        }
    }
}
