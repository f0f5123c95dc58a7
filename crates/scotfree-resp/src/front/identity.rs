//! What a connection is told about itself.
//!
//! Invariant: HELLO, CLIENT ID and CLIENT INFO name the client's own connection, always by the same number,
//! never one of ours to the server, of which some serve many clients.

use super::pending::Hook;
use crate::codec::write_bulk;

/// Which connection this is.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Tells it from others that share its session.
    pub number: u32,
    /// What it is told as its ID; larger than those of earlier connections.
    pub id: u64,
    /// The client's address.
    pub address: String,
    /// The address it has connected to.
    pub listener: String,
    begun_ms: Option<i64>,
}

/// What is true of the client's connection: fields of CLIENT INFO by name.
pub(super) type Words = Vec<(&'static str, Vec<u8>)>;

impl Identity {
    /// A connection by its number in its session and its ID.
    pub fn new(number: u32, id: u64) -> Identity {
        Identity { number, id, ..Identity::default() }
    }

    /// The first bytes came.
    pub(super) fn begin(&mut self, now_ms: i64) {
        self.begun_ms.get_or_insert(now_ms);
    }

    /// When the first bytes came, in milliseconds.
    pub(super) fn begun_ms(&self) -> Option<i64> {
        self.begun_ms
    }

    /// The reply that the client gets in place of the server's, if it is another.
    pub(super) fn replace(&self, hook: &Hook, reply: &[u8]) -> Option<Vec<u8>> {
        match hook {
            Hook::Hello => hello_with(reply, self.id),
            Hook::ClientInfo(words) => info_with(reply, words),
            Hook::None
            | Hook::Shutdown
            | Hook::Auth { .. }
            | Hook::AuthAgain { .. }
            | Hook::HelloAuth { .. }
            | Hook::Exec { .. }
            | Hook::Queue(_)
            | Hook::Clients(_)
            | Hook::AskExec(_)
            | Hook::Barrier
            | Hook::Aside
            | Hook::Tunnel(_) => None,
        }
    }
}

/// HELLO's reply with another ID.
fn hello_with(reply: &[u8], id: u64) -> Option<Vec<u8>> {
    let mark = b"$2\r\nid\r\n:";
    let at = reply.windows(mark.len()).position(|window| window == mark)? + mark.len();
    let digits = reply[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some([&reply[..at], id.to_string().as_bytes(), &reply[at + digits..]].concat())
}

/// CLIENT INFO's reply, a bulk or verbatim string of "name=value" words, with other values.
fn info_with(reply: &[u8], facts: &Words) -> Option<Vec<u8>> {
    let kind = *reply.first().filter(|kind| matches!(kind, b'$' | b'='))?;
    let start = reply.iter().position(|byte| *byte == b'\n')? + 1;
    let body = reply.get(start..)?.strip_suffix(b"\r\n")?;
    let (prefix, line) = if kind == b'=' { body.split_at_checked(4)? } else { (&b""[..], body) };
    let words: Vec<Vec<u8>> = line.split(|byte| *byte == b' ').map(|word| word_with(word, facts)).collect();
    let mut out = Vec::with_capacity(reply.len() + 64);
    write_bulk(&mut out, &[prefix, &words.join(&b' ')].concat());
    out[0] = kind;
    Some(out)
}

pub(super) fn word_with(word: &[u8], facts: &Words) -> Vec<u8> {
    let Some(equals) = word.iter().position(|byte| *byte == b'=') else { return word.to_vec() };
    let (name, value) = word.split_at(equals);
    let known = facts.iter().find(|(known, _)| known.as_bytes() == name);
    let Some((_, known)) = known else { return word.to_vec() };
    // The last word ends the line.
    let end: &[u8] = if value.ends_with(b"\n") { b"\n" } else { b"" };
    [name, b"=", known, end].concat()
}

#[cfg(test)]
mod tests {
    use super::super::clients::Facts;
    use super::*;

    #[test]
    fn the_clients_facts_take_the_place_of_ours() {
        let facts = Facts {
            id: 77,
            address: "10.0.0.1:5".to_owned(),
            begun_ms: 1_000,
            name: b"joe".to_vec(),
            db: 3,
            resp: 3,
            command: b"client|info".to_vec(),
            ..Facts::default()
        };
        let facts = facts.plain_words(4_500);
        let line = "id=5 addr=/s:0 name=scotfree age=9 flags=U db=15 cmd=client|info resp=2\n";
        let expected = "id=77 addr=10.0.0.1:5 name=joe age=3 flags=N db=3 cmd=client|info resp=3\n";
        let reply = |kind: char, prefix: &str, line: &str| {
            format!("{kind}{}\r\n{prefix}{line}\r\n", prefix.len() + line.len()).into_bytes()
        };
        for (kind, prefix) in [('$', ""), ('=', "txt:")] {
            let found = info_with(&reply(kind, prefix, line), &facts);
            assert_eq!(found, Some(reply(kind, prefix, expected)));
        }
        assert_eq!(info_with(b"-ERR no\r\n", &facts), None);
    }

    #[test]
    fn hello_gets_the_clients_number() {
        let reply = b"*4\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:12345\r\n";
        let expected = b"*4\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:7\r\n";
        assert_eq!(hello_with(reply, 7).as_deref(), Some(&expected[..]));
        assert_eq!(hello_with(b"-NOPROTO\r\n", 7), None);
    }
}
