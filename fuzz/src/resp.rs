//! The targets of scotfree-resp: RESP in both directions, and what the sidecars say to each other.
//!
//! Invariant: what comes out of a stream does not depend on how its bytes are cut, and whatever comes
//! out can be judged without a panic.

use scotfree_resp::classes::{classify, first_key, key_hash, keys, lookup};
use scotfree_resp::codec::{
    elements, is_error, text_of, write_command, Args, Command, Limits, ProtocolError, ReplyDecoder,
    ReplyError, RequestDecoder,
};
use scotfree_resp::payload::pack::{unpack, PackBuilder};
use scotfree_resp::payload::{parse_response, PartHead, RequestFlags, RequestHead, RequestPayload};
use scotfree_resp::{expiry, guard};

/// Small enough that inputs reach every limit.
const LIMITS: Limits = Limits {
    bulk_bytes_max: 512,
    argument_count_max: 64,
    whole_bytes_max: 1_024,
    line_bytes_max: 256,
    depth_max: 8,
    reply_bytes_max: 2048,
};
/// A time for relative expiry, in milliseconds.
const NOW_MS: i64 = 1_700_000_000_000;
const RESERVED_DB: u16 = 15;

/// Commands of many kinds, as arrays and in lines.
pub fn request_seeds() -> Vec<Vec<u8>> {
    let lines: [&str; 12] = [
        "PING",
        "SET colour blue",
        "SET colour blue EX 10 NX GET",
        "SETEX colour 10 blue",
        "GETEX colour PXAT 1700000000001",
        "MSET a 1 b 2 c 3",
        "EVAL return(1) 2 a b c",
        "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
        "ZUNIONSTORE out 2 a b WEIGHTS 1 2",
        "SORT list BY w_* LIMIT 0 5 STORE out",
        "MULTI",
        "CLIENT REPLY SKIP",
    ];
    let mut seeds: Vec<Vec<u8>> = lines.iter().map(|line| array(line)).collect();
    seeds.push(lines.iter().flat_map(|line| array(line)).collect());
    seeds.push(b"set \"a\\x41\\n\" 'it\\'s'\r\nget a\n".to_vec());
    seeds
}

fn array(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_command(&mut bytes, Command::new(line.split(' ')).args());
    bytes
}

/// Reads the input as the requests of a client.
pub fn request(data: &[u8]) {
    for authenticated in [true, false] {
        let (commands, error) = requests(data.chunks(usize::MAX), authenticated);
        for size in [1, 7] {
            let cut = requests(data.chunks(size), authenticated);
            assert_eq!((&commands, &error), (&cut.0, &cut.1), "requests depend on how the bytes are cut");
        }
        for command in &commands {
            check_command(command.args());
        }
    }
}

fn requests<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    authenticated: bool,
) -> (Vec<Command>, Option<ProtocolError>) {
    let mut decoder = RequestDecoder::new(LIMITS);
    let mut commands = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.pop(authenticated) {
                Ok(Some(args)) => commands.push(Command::from(args)),
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

/// Judges a command in every way that the sidecar does, and reads it again from its own writing.
fn check_command(args: Args<'_>) {
    assert!(!args.is_empty(), "an empty request came out");
    let _ = classify(args);
    let _ = keys(args).count();
    let _ = key_hash(0, first_key(lookup(args), args));
    let _ = expiry::make_absolute(args, NOW_MS);
    let _ = expiry::is_valid(args);
    let _ = guard::refusal(args, RESERVED_DB);
    let mut bytes = Vec::new();
    write_command(&mut bytes, args);
    let (again, error) = requests(std::iter::once(&bytes[..]), true);
    assert!(error.is_none() && again == [Command::from(args)], "a command is not read as it was written");
    check_in_payload(args, &bytes);
}

fn check_in_payload(args: Args<'_>, command: &[u8]) {
    let mut payload = Vec::new();
    RequestHead { flags: RequestFlags::NONE, db: 3, connection: 4 }.write(&mut payload);
    payload.extend_from_slice(command);
    let parsed = RequestPayload::parse(&payload).expect("a command makes a payload");
    assert!(parsed.args(&payload, 0).iter().eq(args.iter()), "a payload changes its command");
}

/// Replies of every type.
pub fn reply_seeds() -> Vec<Vec<u8>> {
    let replies: [&[u8]; 12] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-5\r\n",
        b"$-1\r\n",
        b"$5\r\nhello\r\n",
        b"*3\r\n:1\r\n*1\r\n$0\r\n\r\n*-1\r\n",
        b"_\r\n#t\r\n,1.5\r\n(123456789012345678901\r\n",
        b"!3\r\nERR\r\n",
        b"=5\r\ntxt:a\r\n",
        b"%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",
        b">2\r\n+invalidate\r\n*0\r\n",
        b"|1\r\n+ttl\r\n:9\r\n*2\r\n:1\r\n|1\r\n+a\r\n+b\r\n:2\r\n",
    ];
    let mut seeds: Vec<Vec<u8>> = replies.iter().map(|reply| reply.to_vec()).collect();
    seeds.push(replies.concat());
    seeds
}

/// Reads the input as the replies of a server.
pub fn reply(data: &[u8]) {
    let (whole, error) = replies(data.chunks(usize::MAX));
    for size in [1, 7] {
        let cut = replies(data.chunks(size));
        assert_eq!((&whole, &error), (&cut.0, &cut.1), "replies depend on how the bytes are cut");
    }
    assert!(data.starts_with(&whole.concat()), "replies are not the bytes that came");
    for reply in &whole {
        check_reply(reply);
    }
    // These are asked of replies only, yet must not fall over other bytes.
    check_reply(data);
}

fn replies<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<ReplyError>) {
    let mut decoder = ReplyDecoder::new(LIMITS);
    let mut replies = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.pop() {
                Ok(Some(reply)) => replies.push(reply.to_vec()),
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
    }
    (replies, None)
}

fn check_reply(reply: &[u8]) {
    let inside: usize = elements(reply).map(<[u8]>::len).sum();
    assert!(inside <= reply.len(), "a reply's elements are longer than itself");
    let _ = (text_of(reply), is_error(reply));
}

/// Payloads of single commands, of a transaction and of a response.
pub fn payload_seeds() -> Vec<Vec<u8>> {
    let payload = |flags: RequestFlags, lines: &[&str]| {
        let mut bytes = Vec::new();
        RequestHead { flags, db: 3, connection: 4 }.write(&mut bytes);
        for line in lines {
            bytes.extend(array(line));
        }
        bytes
    };
    vec![
        payload(RequestFlags::NONE, &["SET colour blue"]),
        payload(RequestFlags::TRANSACTION.with(RequestFlags::RESP3), &["SET k v", "GET k"]),
        payload(RequestFlags::DESCRIBE, &[]),
        pack_of([&payload(RequestFlags::EARLY, &["SET k v"]), &payload(RequestFlags::EARLY, &["SET l w"])]),
        b"\x01\x11\x04\0\0\0\x01\0:1\x05\0\0\0\x01\0+OK".to_vec(),
        b"\x01\x01+OK\r\n".to_vec(),
    ]
}

/// One request of several.
fn pack_of<'a>(requests: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let mut pack = PackBuilder::default();
    for request in requests {
        assert!(pack.add(request, usize::MAX), "a part cannot be packed again");
    }
    pack.payload().to_vec()
}

/// The parts of a pack make the same pack.
fn check_parts(parsed: &RequestPayload, data: &[u8]) {
    let part = |index| {
        let PartHead { db, connection } = parsed.part(index);
        let flags = parsed.head.flags.without(RequestFlags::PACK);
        let mut request = Vec::new();
        RequestHead { flags, db, connection }.write(&mut request);
        request.extend_from_slice(parsed.bytes(data, index));
        request
    };
    let parts: Vec<Vec<u8>> = (0..parsed.len()).map(part).collect();
    assert_eq!(pack_of(&parts), data, "a pack has bytes that belong to no part");
}

/// Reads the input as what one sidecar says to the other.
pub fn payload(data: &[u8]) {
    let _ = parse_response(data);
    for count in 0..3 {
        let parts = unpack(data, count).map_or(count, |parts| parts.len());
        assert_eq!(parts, count, "a part has no response");
    }
    let Ok(parsed) = RequestPayload::parse(data) else { return };
    if parsed.head.flags.is_partial() {
        // The bytes belong to a whole that is assembled from several payloads.
        return;
    }
    if parsed.head.flags.has(RequestFlags::PACK) {
        return check_parts(&parsed, data);
    }
    let mut again = Vec::new();
    parsed.head.write(&mut again);
    for index in 0..parsed.len() {
        assert!(!parsed.args(data, index).is_empty(), "a payload has an empty command");
        again.extend_from_slice(parsed.bytes(data, index));
    }
    assert_eq!(parsed.all(data).count(), parsed.len());
    assert_eq!(again, data, "a payload has bytes that belong to nothing");
}
