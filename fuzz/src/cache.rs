//! What a cache understands of requests and responses of Redis.
//!
//! Invariant: it never takes two reads for the same one, and a value that it would answer is what some payload says.

use scotfree_cache::{Language, Redis};
use scotfree_resp::payload::{write_request, write_response, RequestFlags, ResponseFlags};
use scotfree_wire::ObjectNote;

/// Reads the input as a request, and as a response that its server vouches for.
pub fn language(data: &[u8]) {
    request(data);
    let mut value = Vec::new();
    let note = ObjectNote { value_bytes: 1, remaining_ms: u64::MAX };
    if Redis.lives(data, Some(note), &mut value).is_some() {
        assert!(data.len() > 2 && value[2..] == data[2..], "another answer than the server's");
    }
    value.clear();
    assert!(Redis.lives(data, None, &mut value).is_none() && value.is_empty(), "nobody has vouched for it");
}

fn request(data: &[u8]) {
    let (mut form, mut written, mut value) = (Vec::new(), Vec::new(), Vec::new());
    let is_read = Redis.read(data, &mut form);
    let overwrites = Redis.overwrite(data, &mut written, &mut value);
    assert!(!(is_read && overwrites), "a read that writes");
    // What it says of itself is there before it is used for anything.
    let _ = (Redis.names(data), Redis.caller(data));
    if is_read {
        let (database, key, _) = Redis.shown(&form).expect("it shows what it has found");
        let mut named = Vec::new();
        Redis.named(database, key, &mut named);
        let (_, shown, _) = Redis.shown(&named).expect("a key is shown as it is named");
        assert_eq!(shown, key);
    }
    if overwrites {
        let (database, key, _) = Redis.shown(&written).expect("it is a key's read");
        let mut named = Vec::new();
        Redis.named(database, key, &mut named);
        assert_eq!(named, written, "what is set is read by another name");
    }
    // Whatever tells a read from others is shown, or is none.
    if let Some((_, key, _)) = Redis.shown(data) {
        assert!(key.len() <= data.len());
    }
}

/// Requests and responses to start from.
pub fn language_seeds() -> Vec<Vec<u8>> {
    let noted = RequestFlags::NOTED;
    let mut seeds = Vec::new();
    for (flags, words) in [
        (noted, &["GET", "k"][..]),
        (noted.with(RequestFlags::RESP3), &["HGETALL", "hash"]),
        (noted, &["GETRANGE", "k", "0", "3"]),
        (RequestFlags::EARLY, &["SET", "k", "value"]),
        (RequestFlags::NONE, &["MSET", "a", "1", "b", "2"]),
        (RequestFlags::TRANSACTION, &["INCR", "n"]),
    ] {
        let mut seed = Vec::new();
        write_request(&mut seed, flags, &[words]);
        seeds.push(seed);
    }
    for reply in [&b"$5\r\nvalue\r\n"[..], b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b":1\r\n", b"-ERR no\r\n"] {
        let mut seed = Vec::new();
        write_response(&mut seed, ResponseFlags::NONE, reply);
        seeds.push(seed);
    }
    seeds
}
