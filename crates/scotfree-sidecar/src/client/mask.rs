//! What clients that track keys or listen to events of keys are not told: that the sidecar's own markers have changed.
//!
//! Invariant: whatever is no message about keys passes as it is, and in its place.

use scotfree_resp::codec::{elements, text_of, write_header, Args, Limits, ReplyScanner};

/// What the keys of markers begin with.
const MARKERS: &[u8] = b"scotfree:markers";
/// By which channel keys are named to clients of RESP2.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// What the channels of events begin with: of a key's, and of an event's with the key as the message.
const OF_KEY: &[u8] = b"__keyspace@";
const OF_EVENT: &[u8] = b"__keyevent@";
/// Longer replies are no messages about a few keys.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// The replies of a server to a client that may track keys.
#[derive(Debug, Default)]
pub(super) struct Mask {
    buffer: Vec<u8>,
    scanner: ReplyScanner,
    /// The first reply is a push.
    is_push: bool,
}

impl Mask {
    /// Passes on what is whole; false if these are no replies, or too long, after which all is to pass as it is.
    pub fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let limits = Limits { reply_bytes_max: REPLY_BYTES_MAX, ..Limits::default() };
        self.buffer.extend_from_slice(bytes);
        loop {
            // A push counts for no reply and would be whole only with the next one; as an array it is one.
            if self.buffer.first() == Some(&b'>') {
                (self.is_push, self.buffer[0]) = (true, b'*');
            }
            let length = self.scanner.advance(&self.buffer, &limits);
            if let (true, Some(first)) =
                (self.is_push && !matches!(length, Ok(None)), self.buffer.first_mut())
            {
                (self.is_push, *first) = (false, b'>');
            }
            match length {
                Ok(Some(length)) => {
                    without_markers(&self.buffer[..length], out);
                    self.buffer.drain(..length);
                    self.scanner.reset();
                }
                Ok(None) => return true,
                Err(_) => {
                    out.append(&mut self.buffer);
                    return false;
                }
            }
        }
    }
}

/// Whether what a client asks may lead to messages about keys.
pub(super) fn leads_to_messages(args: Args<'_>) -> bool {
    let tracks = args.is(0, "CLIENT") && args.is(1, "TRACKING");
    let names = |channel: &[u8]| channel == CHANNEL || channel.starts_with(b"__key");
    // What begins otherwise matches no such channel.
    let may_match = |pattern: &[u8]| pattern.first().is_some_and(|first| b"_*?[\\".contains(first));
    tracks
        || args.is(0, "SUBSCRIBE") && args.iter().any(names)
        || args.is(0, "PSUBSCRIBE") && args.iter().skip(1).any(may_match)
}

/// Whether a reply's texts are an event of a marker.
fn is_event_of_markers(texts: &[&[u8]]) -> bool {
    let (channel, message) = match texts {
        [b"message", channel, message] | [b"pmessage", _, channel, message] => (*channel, *message),
        _ => return false,
    };
    if channel.starts_with(OF_EVENT) {
        return message.starts_with(MARKERS);
    }
    let key = channel.windows(3).position(|window| window == b"__:").map(|at| &channel[at + 3..]);
    channel.starts_with(OF_KEY) && key.is_some_and(|key| key.starts_with(MARKERS))
}

fn without_markers(reply: &[u8], out: &mut Vec<u8>) {
    let names_markers = reply.windows(MARKERS.len()).any(|window| window == MARKERS);
    let parts: Vec<&[u8]> = if names_markers { elements(reply).collect() } else { Vec::new() };
    let texts: Vec<&[u8]> = parts.iter().filter_map(|part| text_of(part)).collect();
    if is_event_of_markers(&texts) {
        return;
    }
    let is_message = texts == [&b"invalidate"[..]] || texts == [&b"message"[..], CHANNEL];
    let Some((keys, before)) = parts.split_last().filter(|_| is_message) else {
        return out.extend_from_slice(reply);
    };
    let others: Vec<&[u8]> =
        elements(keys).filter(|key| !text_of(key).is_some_and(|key| key.starts_with(MARKERS))).collect();
    if others.is_empty() {
        return;
    }
    let line = reply.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    out.extend_from_slice(&reply[..line]);
    out.extend_from_slice(&before.concat());
    write_header(out, others.len());
    out.extend_from_slice(&others.concat());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(pieces: &[&str]) -> (String, bool) {
        let (mut mask, mut out) = (Mask::default(), Vec::new());
        let all_fine = pieces.iter().all(|piece| mask.pass(piece.as_bytes(), &mut out));
        (String::from_utf8(out).expect("text"), all_fine)
    }

    #[test]
    fn markers_are_in_no_message_about_keys_and_everything_else_passes() {
        let own = "$16\r\nscotfree:markers\r\n";
        let push = |keys: &str, count: usize| format!(">2\r\n$10\r\ninvalidate\r\n*{count}\r\n{keys}");
        let message = |keys: &str, count: usize| {
            format!("*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*{count}\r\n{keys}")
        };
        assert_eq!(passed(&[&push(own, 1), "+OK\r\n", &message(own, 1)]), ("+OK\r\n".to_owned(), true));
        let mixed = format!("$1\r\na\r\n{own}$1\r\nb\r\n");
        let rest = "$1\r\na\r\n$1\r\nb\r\n";
        assert_eq!(passed(&[&push(&mixed, 3)]).0, push(rest, 2));
        assert_eq!(passed(&[&message(&mixed, 3)]).0, message(rest, 2));
        for other in [own.to_owned(), format!("*1\r\n{own}"), ">2\r\n$10\r\ninvalidate\r\n_\r\n".to_owned()] {
            let (first, second) = other.split_at(7);
            assert_eq!(passed(&[first, second]).0, other);
        }
    }

    #[test]
    fn markers_are_in_no_event_of_keys_and_all_other_events_pass() {
        let reply = |head: &str, words: &[&str]| {
            let words: Vec<String> =
                words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
            format!("{head}{}\r\n{}", words.len(), words.concat())
        };
        let (space, event) = ("__keyspace@15__:scotfree:markers", "__keyevent@15__:hset");
        for head in ["*", ">"] {
            let of_markers = [
                reply(head, &["pmessage", "*", space, "hset"]),
                reply(head, &["message", space, "hset"]),
                reply(head, &["pmessage", "__key*", event, "scotfree:markers"]),
                reply(head, &["message", event, "scotfree:markers:probe"]),
            ];
            let others = [
                reply(head, &["pmessage", "*", "__keyspace@0__:k:scotfree:markers", "hset"]),
                reply(head, &["message", "__keyevent@0__:hset", "k"]),
                reply(head, &["message", "scotfree:markers", "scotfree:markers"]),
            ];
            for event in of_markers {
                assert_eq!(passed(&[&event, "+OK\r\n"]).0, "+OK\r\n", "{event}");
            }
            for event in others {
                assert_eq!(passed(&[&event]).0, event);
            }
        }
    }

    #[test]
    fn who_may_be_sent_events_of_keys_is_known_by_the_pattern() {
        let leads = |line: &str| {
            let command = scotfree_resp::codec::Command::new(line.split(' '));
            leads_to_messages(command.args())
        };
        for line in
            ["PSUBSCRIBE news.* *", "psubscribe __keyevent@0__:*", "PSUBSCRIBE [_]_k*", "PSUBSCRIBE ?*"]
        {
            assert!(leads(line), "{line}");
        }
        assert!(leads("SUBSCRIBE __keyspace@0__:k") && leads("SUBSCRIBE a __redis__:invalidate"));
        for line in ["PSUBSCRIBE news.*", "SUBSCRIBE *", "SUBSCRIBE news", "GET __keyspace"] {
            assert!(!leads(line), "{line}");
        }
    }

    #[test]
    fn what_is_no_reply_passes_as_it_is() {
        assert_eq!(passed(&["+OK\r\n", "junk\r\n"]), ("+OK\r\njunk\r\n".to_owned(), false));
    }
}
