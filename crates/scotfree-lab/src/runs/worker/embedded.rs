//! What calls of the embedded server carry, in the layout that the sidecars speak.
//!
//! Invariant: several commands are one transaction.

use scotfree_resp::codec::{Limits, Reply};
use scotfree_resp::payload::{self, parse_response, RequestFlags, ResponseFlags};

/// Puts commands together, in the place of what `out` held. `is_early` says that their reply is known.
pub fn write_request<Word: AsRef<[u8]>>(commands: &[&[Word]], is_early: bool, out: &mut Vec<u8>) {
    out.clear();
    payload::write_request(out, RequestFlags::NONE.with_if(is_early, RequestFlags::EARLY), commands);
}

/// Puts a GET together, in the place of what `out` held. Whoever takes a note of its value may be answered by a cache.
pub fn write_get(key: &str, is_noted: bool, out: &mut Vec<u8>) {
    out.clear();
    let flags = RequestFlags::NONE.with_if(is_noted, RequestFlags::NOTED);
    payload::write_request(out, flags, &[&["GET", key]]);
}

/// Whether a cache has given again what a server said before.
pub fn is_again(bytes: &[u8]) -> bool {
    parse_response(bytes).is_ok_and(|(flags, _)| flags.has(ResponseFlags::AGAIN))
}

/// Takes a reply apart.
pub fn parse_reply(bytes: &[u8]) -> Result<Reply, String> {
    let (_, reply) = parse_response(bytes).map_err(|error| error.to_string())?;
    let reply = Reply::parse(reply, &Limits::default()).map_err(|error| error.to_string())?;
    reply.ok_or_else(|| "the reply is not all there".to_owned())
}
