//! What calls of the embedded server carry, in the layout that the sidecars speak.
//!
//! Invariant: several commands are one transaction.

use scotfree_resp::codec::{Limits, Reply};
use scotfree_resp::payload::{self, parse_response, RequestFlags};

/// Puts commands together, in the place of what `out` held. `is_early` says that their reply is known.
pub fn write_request<Word: AsRef<[u8]>>(commands: &[&[Word]], is_early: bool, out: &mut Vec<u8>) {
    out.clear();
    payload::write_request(out, RequestFlags::NONE.with_if(is_early, RequestFlags::EARLY), commands);
}

/// Takes a reply apart.
pub fn parse_reply(bytes: &[u8]) -> Result<Reply, String> {
    let (_, reply) = parse_response(bytes).map_err(|error| error.to_string())?;
    let reply = Reply::parse(reply, &Limits::default()).map_err(|error| error.to_string())?;
    reply.ok_or_else(|| "the reply is not all there".to_owned())
}
