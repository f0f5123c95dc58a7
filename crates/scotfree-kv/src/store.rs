//! The map and its commands: pure, so that a log of requests rebuilds it.
//!
//! Invariant: what a command does and answers follows from the map and the command alone. The data
//! never takes more than `data_bytes_max`, counted alike before and after a recovery; a key counts as long as it
//! has a value or a version.

use crate::index::{Index, IndexKind};
use crate::value::{Value, ELEMENT_BYTES};
use scotfree_resp::classes::Flags;
use scotfree_resp::codec::{
    parse_integer, write_bulk, write_error, write_header, write_integer, write_null, write_simple,
};
use scotfree_resp::description::CommandInfo;
use scotfree_state::Version;
use std::collections::{BTreeMap, VecDeque};

/// What an entry counts for beyond its bytes.
const ENTRY_BYTES: usize = 64;
/// How many databases there are.
pub const DATABASES: u16 = 16;

/// One command of the service.
struct Verb {
    name: &'static str,
    /// How many arguments with the name; at least as many if negative.
    arity: i32,
    writes: bool,
    /// May make the data larger.
    grows: bool,
    keys: Keys,
    run: fn(&mut Store, &Call<'_>, &mut Vec<u8>),
}

/// Which of a command's arguments are keys.
#[derive(Clone, Copy)]
enum Keys {
    None,
    First,
    All,
    EveryOther,
}

const VERBS: [Verb; 11] = [
    Verb { name: "append", arity: 3, writes: true, grows: true, keys: Keys::First, run: Store::append },
    Verb { name: "del", arity: -2, writes: true, grows: false, keys: Keys::All, run: Store::del },
    Verb { name: "get", arity: 2, writes: false, grows: false, keys: Keys::First, run: Store::get },
    Verb { name: "incr", arity: 2, writes: true, grows: true, keys: Keys::First, run: Store::incr },
    Verb { name: "lrange", arity: 4, writes: false, grows: false, keys: Keys::First, run: Store::lrange },
    Verb { name: "lpush", arity: -3, writes: true, grows: true, keys: Keys::First, run: Store::lpush },
    Verb { name: "mget", arity: -2, writes: false, grows: false, keys: Keys::All, run: Store::mget },
    Verb { name: "mset", arity: -3, writes: true, grows: true, keys: Keys::EveryOther, run: Store::mset },
    Verb {
        name: "ping",
        arity: -1,
        writes: false,
        grows: false,
        keys: Keys::None,
        run: |_, call, out| ping(call, out),
    },
    Verb { name: "rpush", arity: -3, writes: true, grows: true, keys: Keys::First, run: Store::rpush },
    Verb { name: "set", arity: 3, writes: true, grows: true, keys: Keys::First, run: Store::set },
];

/// A command with its surroundings.
pub struct Call<'a> {
    /// The name and the arguments.
    pub arguments: &'a [&'a [u8]],
    /// The database.
    pub db: u16,
    /// Whether replies are to be RESP3.
    pub is_resp3: bool,
    /// Whether the request that carries it may write.
    pub may_write: bool,
}

impl Call<'_> {
    /// The key of the map that the argument at `index` names.
    fn key(&self, index: usize) -> Vec<u8> {
        let mut key = Vec::with_capacity(2 + self.arguments[index].len());
        key.extend_from_slice(&self.db.to_be_bytes());
        key.extend_from_slice(self.arguments[index]);
        key
    }
}

/// The verb of a command that is well-formed, or with what it is refused whatever the map holds.
fn verb_of(call: &Call<'_>) -> Result<&'static Verb, String> {
    let name = call.arguments[0].to_ascii_lowercase();
    let Some(verb) = VERBS.iter().find(|verb| verb.name.as_bytes() == name) else {
        let name: String = String::from_utf8_lossy(call.arguments[0]).chars().take(128).collect();
        return Err(format!("ERR unknown command '{name}'"));
    };
    let count = call.arguments.len() as i32;
    if count != verb.arity && (verb.arity > 0 || count < -verb.arity) {
        return Err(format!("ERR wrong number of arguments for '{}' command", verb.name));
    }
    if call.db >= DATABASES {
        return Err("ERR DB index is out of range".to_owned());
    }
    Ok(verb)
}

/// The keys that a command touches: none if it is refused whatever they hold.
pub fn keys_of(call: &Call<'_>) -> Vec<Vec<u8>> {
    let Ok(verb) = verb_of(call) else { return Vec::new() };
    let every = |step| (1..call.arguments.len()).step_by(step).map(|index| call.key(index)).collect();
    match verb.keys {
        Keys::None => Vec::new(),
        Keys::First => vec![call.key(1)],
        Keys::All => every(1),
        Keys::EveryOther => every(2),
    }
}

/// Whether a command sets its one key, whatever that holds.
pub fn is_blind(call: &Call<'_>) -> bool {
    verb_of(call).is_ok_and(|verb| verb.name == "set")
}

/// The map.
#[derive(Debug)]
pub struct Store {
    index: IndexKind,
    entries: Box<dyn Index<Value>>,
    /// Of keys that other members of a group write as well; without a group there are none. Those of keys without a
    /// value are tombstones: late news of an older write must not bring the key back.
    versions: BTreeMap<Vec<u8>, Version>,
    tombstone_count: usize,
    data_bytes: usize,
    data_bytes_max: usize,
    refused_count: u64,
}

impl Store {
    /// An empty map whose data may take `data_bytes_max`; a command that could exceed it is refused.
    pub fn new(index: IndexKind, data_bytes_max: usize) -> Store {
        Store {
            index,
            entries: index.empty(),
            versions: BTreeMap::new(),
            tombstone_count: 0,
            data_bytes: 0,
            data_bytes_max,
            refused_count: 0,
        }
    }

    /// An empty map with the structure, the limit and the count of refusals of this one.
    #[must_use]
    pub fn empty_like(&self) -> Store {
        let empty = Store::new(self.index, self.data_bytes_max);
        Store { refused_count: self.refused_count, ..empty }
    }

    /// Runs one command and appends its reply.
    pub fn run(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        let verb = match verb_of(call) {
            Ok(verb) => verb,
            Err(problem) => return write_error(out, &problem),
        };
        if verb.writes && !call.may_write {
            return write_error(out, "ERR a request that is sent as a read may not write");
        }
        if verb.grows && self.would_be(call) > self.data_bytes_max {
            return self.refuse_to_grow(out);
        }
        (verb.run)(self, call, out);
    }

    /// Refuses what would make the data larger than it may be.
    pub fn refuse_to_grow(&mut self, out: &mut Vec<u8>) {
        self.refused_count += 1;
        let problem = format!(
            "OOM the data may take {} bytes, an eighth of the log: delete keys, or serve from a new file \
             with a larger --log-size",
            self.data_bytes_max
        );
        write_error(out, &problem);
    }

    /// How much the data could take after a command that grows it.
    fn would_be(&self, call: &Call<'_>) -> usize {
        let added: usize = call.arguments[1..].iter().map(|argument| argument.len() + ELEMENT_BYTES).sum();
        self.data_bytes + added + ENTRY_BYTES
    }

    /// What the data takes.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// What the data may take.
    pub fn data_bytes_max(&self) -> usize {
        self.data_bytes_max
    }

    /// Changes what the data may take. Data that takes more stays; it only does not grow.
    pub fn set_data_bytes_max(&mut self, data_bytes_max: usize) {
        self.data_bytes_max = data_bytes_max;
    }

    /// How many commands were refused because the data would have taken too much.
    pub fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// Whether the data is so near its limit that answers should not be promised in advance.
    pub fn is_nearly_full(&self) -> bool {
        self.data_bytes >= self.data_bytes_max / 10 * 9
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Value)> {
        self.entries.iter()
    }

    /// Puts an entry, as a recovery does.
    pub fn insert(&mut self, key: Vec<u8>, value: Value) {
        let key_bytes = key_bytes(&key);
        let has_version = self.versions.contains_key(&key);
        self.data_bytes += value.bytes();
        match self.entries.insert(key, value) {
            Some(old) => self.data_bytes -= old.bytes(),
            None if has_version => self.tombstone_count -= 1,
            None => self.data_bytes += key_bytes,
        }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Some(value) = self.entries.remove(key) else { return false };
        self.data_bytes -= value.bytes();
        if self.versions.contains_key(key) {
            self.tombstone_count += 1;
        } else {
            self.data_bytes -= key_bytes(key);
        }
        true
    }

    /// What a key holds.
    pub fn value(&self, key: &[u8]) -> Option<&Value> {
        self.entries.get(key)
    }

    /// Has a key hold this, or nothing.
    pub fn put(&mut self, key: &[u8], value: Option<Value>) {
        match value {
            Some(value) => self.insert(key.to_vec(), value),
            None => drop(self.remove(key)),
        }
    }

    /// The version of a key, if it has one.
    pub fn version_of(&self, key: &[u8]) -> Option<Version> {
        self.versions.get(key).copied()
    }

    /// Gives a key its version, whether or not it holds something.
    pub fn set_version(&mut self, key: &[u8], version: Version) {
        let is_first = self.versions.insert(key.to_vec(), version).is_none();
        if is_first && self.entries.get(key).is_none() {
            self.tombstone_count += 1;
            self.data_bytes += key_bytes(key);
        }
    }

    /// Whether a key that holds nothing may get a version.
    pub fn has_room_for_tombstone(&self, key: &[u8]) -> bool {
        self.versions.contains_key(key) || self.data_bytes + key_bytes(key) <= self.data_bytes_max
    }

    /// All versions, by their keys.
    pub fn versions(&self) -> impl Iterator<Item = (&[u8], Version)> {
        self.versions.iter().map(|(key, version)| (key.as_slice(), *version))
    }

    /// The versions of keys that hold nothing, by their keys.
    pub fn tombstones(&self) -> impl Iterator<Item = (&[u8], Version)> {
        self.versions().filter(|(key, _)| self.entries.get(key).is_none())
    }

    /// How many versions are of keys that hold nothing. They are kept for good, and count as data does.
    pub fn tombstone_count(&self) -> usize {
        self.tombstone_count
    }

    /// Forgets all versions.
    pub fn forget_versions(&mut self) {
        self.data_bytes -= self.tombstones().map(|(key, _)| key_bytes(key)).sum::<usize>();
        self.tombstone_count = 0;
        self.versions.clear();
    }

    fn set(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        self.insert(call.key(1), Value::Text(call.arguments[2].to_vec()));
        write_simple(out, "OK");
    }

    fn get(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        match self.entries.get(&call.key(1)) {
            Some(Value::Text(text)) => write_bulk(out, text),
            Some(Value::List(_)) => wrong_type(out),
            None => write_null(out, call.is_resp3),
        }
    }

    fn mget(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        write_header(out, call.arguments.len() - 1);
        for index in 1..call.arguments.len() {
            match self.entries.get(&call.key(index)) {
                Some(Value::Text(text)) => write_bulk(out, text),
                Some(Value::List(_)) | None => write_null(out, call.is_resp3),
            }
        }
    }

    fn del(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        let removed = (1..call.arguments.len()).filter(|index| self.remove(&call.key(*index))).count();
        write_integer(out, removed as i64);
    }

    fn incr(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        let key = call.key(1);
        let value = match self.entries.get(&key) {
            Some(Value::Text(text)) => parse_integer(text),
            Some(Value::List(_)) => return wrong_type(out),
            None => Some(0),
        };
        let Some(value) = value else {
            return write_error(out, "ERR value is not an integer or out of range");
        };
        let Some(next) = value.checked_add(1) else {
            return write_error(out, "ERR increment or decrement would overflow");
        };
        self.insert(key, Value::Text(next.to_string().into_bytes()));
        write_integer(out, next);
    }

    fn append(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        let (key, added) = (call.key(1), call.arguments[2]);
        match self.entries.get_mut(&key) {
            Some(Value::Text(text)) => {
                text.extend_from_slice(added);
                self.data_bytes += added.len();
                write_integer(out, text.len() as i64);
            }
            Some(Value::List(_)) => wrong_type(out),
            None => {
                self.insert(key, Value::Text(added.to_vec()));
                write_integer(out, added.len() as i64);
            }
        }
    }

    fn mset(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        if call.arguments.len().is_multiple_of(2) {
            return write_error(out, "ERR wrong number of arguments for 'mset' command");
        }
        for index in (1..call.arguments.len()).step_by(2) {
            self.insert(call.key(index), Value::Text(call.arguments[index + 1].to_vec()));
        }
        write_simple(out, "OK");
    }

    fn rpush(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        self.push(call, VecDeque::push_back, out);
    }

    fn lpush(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        self.push(call, VecDeque::push_front, out);
    }

    fn push(&mut self, call: &Call<'_>, push: fn(&mut VecDeque<Vec<u8>>, Vec<u8>), out: &mut Vec<u8>) {
        let key = call.key(1);
        if self.entries.get(&key).is_none() {
            self.insert(key.clone(), Value::List(VecDeque::new()));
        }
        let Some(Value::List(elements)) = self.entries.get_mut(&key) else {
            return wrong_type(out);
        };
        for element in &call.arguments[2..] {
            push(elements, element.to_vec());
            self.data_bytes += element.len() + ELEMENT_BYTES;
        }
        write_integer(out, elements.len() as i64);
    }

    fn lrange(&mut self, call: &Call<'_>, out: &mut Vec<u8>) {
        let bounds = (parse_integer(call.arguments[2]), parse_integer(call.arguments[3]));
        let (Some(first), Some(last)) = bounds else {
            return write_error(out, "ERR value is not an integer or out of range");
        };
        match self.entries.get(&call.key(1)) {
            Some(Value::List(elements)) => {
                let range = clamp_range(first, last, elements.len());
                write_header(out, range.len());
                elements.range(range).for_each(|element| write_bulk(out, element));
            }
            Some(Value::Text(_)) => wrong_type(out),
            None => write_header(out, 0),
        }
    }
}

/// What a key counts for, whatever it holds.
fn key_bytes(key: &[u8]) -> usize {
    key.len() + ENTRY_BYTES
}

fn ping(call: &Call<'_>, out: &mut Vec<u8>) {
    match call.arguments {
        [_] => write_simple(out, "PONG"),
        [_, text] => write_bulk(out, text),
        _ => write_error(out, "ERR wrong number of arguments for 'ping' command"),
    }
}

/// Commands that a client's sidecar answers by itself when the server has them: they need nothing of
/// this service but transactions.
const SIDECAR_VERBS: [(&str, i32); 10] = [
    ("multi", 1),
    ("exec", 1),
    ("discard", 1),
    ("select", 2),
    ("reset", 1),
    ("client|help", 2),
    ("client|reply", 3),
    ("client|setname", 3),
    ("client|getname", 2),
    ("client|setinfo", 4),
];

/// The commands, as a client's sidecar wants them described.
pub fn commands() -> impl Iterator<Item = (Vec<u8>, CommandInfo)> {
    let described =
        |(name, arity): (&str, i32), flags| (name.as_bytes().to_vec(), CommandInfo { arity, flags });
    let client = std::iter::once(&("client", -2));
    let sidecars = client.chain(&SIDECAR_VERBS).map(move |verb| described(*verb, Flags::default()));
    let own = VERBS.iter().map(move |verb| {
        let flags = match (verb.writes, verb.grows, verb.name) {
            (true, true, _) => Flags::WRITE.with(Flags::DENYOOM),
            (true, false, _) => Flags::WRITE,
            (false, _, "ping") => Flags::default(),
            (false, _, _) => Flags::READONLY,
        };
        described((verb.name, verb.arity), flags)
    });
    own.chain(sidecars)
}

fn wrong_type(out: &mut Vec<u8>) {
    write_error(out, "WRONGTYPE Operation against a key holding the wrong kind of value");
}

/// The elements from `first` to `last`, both included; negative ones count from the end.
fn clamp_range(first: i64, last: i64, length: usize) -> std::ops::Range<usize> {
    let length = length as i64;
    let from_end = |index: i64| if index < 0 { length.saturating_add(index) } else { index };
    let first = from_end(first).max(0);
    let last = from_end(last).min(length - 1);
    if first > last {
        0..0
    } else {
        first as usize..last as usize + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(store: &mut Store, line: &str) -> String {
        run_as(store, line, true, false)
    }

    fn run_as(store: &mut Store, line: &str, may_write: bool, is_resp3: bool) -> String {
        let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut out = Vec::new();
        store.run(&Call { arguments: &arguments, db: 0, is_resp3, may_write }, &mut out);
        String::from_utf8(out).expect("replies of these tests are text")
    }

    #[test]
    fn commands_answer_as_redis_does() {
        let mut store = Store::new(IndexKind::Hash, 1 << 20);
        for (line, reply) in [
            ("PING", "+PONG\r\n"),
            ("ping hello", "$5\r\nhello\r\n"),
            ("GET k", "$-1\r\n"),
            ("SET k v", "+OK\r\n"),
            ("get k", "$1\r\nv\r\n"),
            ("APPEND k w", ":2\r\n"),
            ("APPEND new xyz", ":3\r\n"),
            ("INCR k", "-ERR value is not an integer or out of range\r\n"),
            ("INCR n", ":1\r\n"),
            ("INCR n", ":2\r\n"),
            ("SET n 9223372036854775807", "+OK\r\n"),
            ("INCR n", "-ERR increment or decrement would overflow\r\n"),
            ("SET n 01", "+OK\r\n"),
            ("INCR n", "-ERR value is not an integer or out of range\r\n"),
            ("RPUSH l a b", ":2\r\n"),
            ("RPUSH l c", ":3\r\n"),
            ("LRANGE l 0 -1", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"),
            ("LPUSH m a b", ":2\r\n"),
            ("LRANGE m 0 -1", "*2\r\n$1\r\nb\r\n$1\r\na\r\n"),
            ("MSET x 1 y 2", "+OK\r\n"),
            ("MSET x 3 y", "-ERR wrong number of arguments for 'mset' command\r\n"),
            ("MGET x y", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n"),
            ("LRANGE l -2 1", "*1\r\n$1\r\nb\r\n"),
            ("LRANGE l 5 9", "*0\r\n"),
            ("LRANGE l -9223372036854775808 9223372036854775807", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"),
            ("LRANGE none 0 1", "*0\r\n"),
            ("LRANGE l x 1", "-ERR value is not an integer or out of range\r\n"),
            ("LRANGE k 0 1", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("GET l", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("RPUSH k a", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("MGET k none l", "*3\r\n$2\r\nvw\r\n$-1\r\n$-1\r\n"),
            ("DEL k none l", ":2\r\n"),
            ("DEL k", ":0\r\n"),
            ("NOSUCH a", "-ERR unknown command 'NOSUCH'\r\n"),
            ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
            ("SET k v EX 10", "-ERR wrong number of arguments for 'set' command\r\n"),
        ] {
            assert_eq!(run(&mut store, line), reply, "{line}");
        }
        assert_eq!(run_as(&mut store, "GET none", true, true), "_\r\n");
    }

    #[test]
    fn a_read_may_not_write() {
        let mut store = Store::new(IndexKind::Hash, 1 << 20);
        assert!(run_as(&mut store, "SET k v", false, false).starts_with("-ERR"));
        assert!(store.is_empty());
    }

    #[test]
    fn at_its_limit_the_store_refuses_to_grow_and_still_serves() {
        let mut store = Store::new(IndexKind::Hash, 1_000);
        run(&mut store, "SET other v");
        while !run(&mut store, "APPEND k 0123456789").starts_with("-OOM ") {}
        assert!(store.data_bytes() <= 1_000 && store.is_nearly_full() | (store.data_bytes() > 800));
        assert_eq!(run(&mut store, "GET other"), "$1\r\nv\r\n");
        assert_eq!(run(&mut store, "DEL k"), ":1\r\n");
        assert_eq!(run(&mut store, "SET k v"), "+OK\r\n");
    }

    #[test]
    fn the_count_of_bytes_is_that_of_a_rebuilt_store() {
        let mut store = Store::new(IndexKind::Hash, 1 << 20);
        for line in [
            "SET a 1",
            "APPEND a 23",
            "RPUSH l x yy zzz",
            "INCR n",
            "SET a 4",
            "DEL n",
            "SET b ",
            "RPUSH l q",
        ] {
            run(&mut store, line);
        }
        let mut rebuilt = Store::new(IndexKind::BTree, 1 << 20);
        store.iter().for_each(|(key, value)| rebuilt.insert(key.to_vec(), value.clone()));
        assert_eq!(store.data_bytes(), rebuilt.data_bytes());
        assert_eq!(store.len(), rebuilt.len());
    }

    #[test]
    fn a_key_counts_as_long_as_it_has_a_value_or_a_version() {
        let mut store = Store::new(IndexKind::Hash, 1 << 20);
        let key = Call { arguments: &[b"", b"k"], db: 0, is_resp3: false, may_write: true }.key(1);
        let version = Version { counter: 1, member: 2 };
        run(&mut store, "SET k v");
        let alone = store.data_bytes();
        store.set_version(&key, version);
        assert_eq!((store.data_bytes(), store.tombstone_count()), (alone, 0));
        run(&mut store, "DEL k");
        assert_eq!((store.data_bytes(), store.tombstone_count()), (alone - 1, 1));
        assert_eq!(store.tombstones().collect::<Vec<_>>(), [(&key[..], version)]);
        run(&mut store, "SET k v");
        assert_eq!((store.data_bytes(), store.tombstone_count()), (alone, 0));
        run(&mut store, "DEL k");
        store.forget_versions();
        assert_eq!((store.data_bytes(), store.tombstone_count(), store.version_of(&key)), (0, 0, None));
        store.set_version(&key, version);
        assert_eq!((store.data_bytes(), store.tombstone_count()), (alone - 1, 1));
    }

    #[test]
    fn keys_are_those_that_a_command_touches() {
        let keys = |line: &str, db| {
            let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let keys = keys_of(&Call { arguments: &arguments, db, is_resp3: false, may_write: false });
            keys.iter()
                .map(|key| String::from_utf8_lossy(&key[2..]).into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (line, touched) in [
            ("SET a b", "a"),
            ("set a", ""),
            ("DEL a b c", "a b c"),
            ("MSET a 1 b 2", "a b"),
            ("MGET a b", "a b"),
            ("LRANGE a 0 1", "a"),
            ("RPUSH a b c", "a"),
            ("PING a", ""),
            ("NOSUCH a", ""),
        ] {
            assert_eq!(keys(line, 0), touched, "{line}");
            assert_eq!(keys(line, DATABASES), "", "{line}");
        }
    }

    #[test]
    fn databases_are_apart() {
        let mut store = Store::new(IndexKind::Hash, 1 << 20);
        let mut out = Vec::new();
        let arguments: [&[u8]; 3] = [b"SET", b"k", b"one"];
        store.run(&Call { arguments: &arguments, db: 1, is_resp3: false, may_write: true }, &mut out);
        assert_eq!(run(&mut store, "GET k"), "$-1\r\n");
        out.clear();
        store.run(&Call { arguments: &arguments, db: 16, is_resp3: false, may_write: true }, &mut out);
        assert_eq!(out, b"-ERR DB index is out of range\r\n");
    }
}
