//! What a server sends on one connection, replies and pushes alike.
//!
//! Invariant: each comes whole, once, and in its place; a push is no part of the reply behind it.

use super::{drop_room, Limits, ReplyError, ReplyScanner, KEPT_BYTES_MAX};

/// Everything that a server sends on one connection, message by message.
#[derive(Debug)]
pub struct Frames {
    limits: Limits,
    buffer: Vec<u8>,
    start: usize,
    /// How many bytes were given out last.
    given: usize,
    scanner: ReplyScanner,
    /// The first one is a push.
    is_push: bool,
}

impl Default for Frames {
    /// With lines of any length: what MONITOR tells is one.
    fn default() -> Frames {
        let limits = Limits::default();
        Frames::new(Limits { line_bytes_max: limits.reply_bytes_max, ..limits })
    }
}

impl Frames {
    /// None yet.
    pub fn new(limits: Limits) -> Frames {
        let scanner = ReplyScanner::default();
        Frames { limits, buffer: Vec::new(), start: 0, given: 0, scanner, is_push: false }
    }

    /// More has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.start += std::mem::take(&mut self.given);
        self.buffer.drain(..self.start);
        self.start = 0;
        drop_room(&mut self.buffer, KEPT_BYTES_MAX);
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, if it is all there.
    ///
    /// # Errors
    /// What has come is no RESP, or longer than the limits allow; nothing can be read behind it.
    pub fn pop(&mut self) -> Result<Option<&[u8]>, ReplyError> {
        self.start += std::mem::take(&mut self.given);
        // A push counts for no reply and would be whole only with the next one; as an array it is one.
        if self.buffer.get(self.start) == Some(&b'>') {
            (self.is_push, self.buffer[self.start]) = (true, b'*');
        }
        let Some(length) = self.scanner.advance(&self.buffer[self.start..], &self.limits)? else {
            return Ok(None);
        };
        if std::mem::take(&mut self.is_push) {
            self.buffer[self.start] = b'>';
        }
        self.scanner.reset();
        self.given = length;
        Ok(Some(&self.buffer[self.start..self.start + length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_and_pushes_come_one_by_one_however_the_bytes_are_cut() {
        let messages: [&[u8]; 5] =
            [b"+OK\r\n", b">2\r\n$1\r\na\r\n*1\r\n$1\r\nk\r\n", b">1\r\n_\r\n", b"+PONG\r\n", b"*0\r\n"];
        let all = messages.concat();
        for piece in 1..=all.len() {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for bytes in all.chunks(piece) {
                frames.push(bytes);
                while let Some(message) = frames.pop().expect("it is RESP") {
                    found.push(message.to_vec());
                }
            }
            assert_eq!(found, messages, "in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_too_long_or_no_resp_is_said_to_be() {
        let mut frames = Frames::new(Limits { reply_bytes_max: 8, ..Limits::default() });
        frames.push(b">1\r\n$9\r\n123456789\r\n");
        assert_eq!(frames.pop(), Err(ReplyError::TooLong));
        let mut frames = Frames::default();
        frames.push(b"no\r\n");
        assert_eq!(frames.pop(), Err(ReplyError::UnknownType(b'n')));
    }
}
