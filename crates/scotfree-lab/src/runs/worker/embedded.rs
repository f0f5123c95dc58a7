//! What calls of the embedded server carry, in the layout that the sidecars speak.
//!
//! Invariant: several commands are one transaction.

use crate::resp::{encode_command, read_reply, Reply};

/// The head of a request: its version, and its flags.
const VERSION: u8 = 1;
const EARLY: u8 = 1;
const TRANSACTION: u8 = 2;
/// What precedes a reply.
const REPLY_HEAD_BYTES: usize = 2;

/// Puts commands together, in the place of what `out` held. `is_early` says that their reply is known.
pub fn write_request<Word: AsRef<[u8]>>(commands: &[&[Word]], is_early: bool, out: &mut Vec<u8>) {
    out.clear();
    let flags = if is_early { EARLY } else { 0 } | if commands.len() > 1 { TRANSACTION } else { 0 };
    out.extend_from_slice(&[VERSION, 0, flags, 0, 0, 0, 0, 0, 0, 0]);
    for command in commands {
        encode_command(command, out);
    }
}

/// Takes a reply apart.
pub fn parse_reply(bytes: &[u8]) -> Result<Reply, String> {
    let mut text = bytes.get(REPLY_HEAD_BYTES..).unwrap_or_default();
    read_reply(&mut text).map_err(|error| error.to_string())
}
