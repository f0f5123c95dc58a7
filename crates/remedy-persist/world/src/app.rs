//! The application that the simulated server runs: cells with a register and a list.
//!
//! Invariant: every write carries a token of its own and replies show tokens, so that a reply tells
//! which writes its request has seen and in which order.

/// The largest length of a list; an append to a full list is refused, as an application does.
pub const LIST_LENGTH_MAX: u64 = 40;
/// The cell that no write touches: what it holds, a function of a device may know as well as the server.
pub const KNOWN_CELL: u8 = 7;
/// The first bytes of an encoded operation: code, two cells, how long it lives, token.
const OP_BYTES: usize = 12;
const WORDS_MAX: usize = 8;

/// A write's token: the index of its call plus one; 0 where nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WriteToken(pub u64);

/// What a request asks the application to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Overwrite a register. Its reply is known in advance.
    Set {
        /// Which.
        cell: u8,
        /// With what.
        token: WriteToken,
    },
    /// Overwrite a register with what lives for a while. Its reply is known in advance.
    SetFor {
        /// Which.
        cell: u8,
        /// With what.
        token: WriteToken,
        /// For how many milliseconds from when it is first executed.
        lives_ms: u8,
    },
    /// Of the server's own: what a register held has lived out, if it is still there.
    Expire {
        /// Which.
        cell: u8,
        /// What it held.
        token: WriteToken,
    },
    /// Lengthen a list. The reply says how long it is now.
    Append {
        /// Which.
        cell: u8,
        /// By what.
        token: WriteToken,
    },
    /// Exchange two registers; answers what they held.
    Swap {
        /// The two.
        cells: [u8; 2],
        /// The write's name.
        token: WriteToken,
    },
    /// Read one cell.
    Get {
        /// Which.
        cell: u8,
    },
    /// Read two cells at one instant.
    GetTwo {
        /// Which.
        cells: [u8; 2],
    },
    /// Read what no write changes.
    Known,
}

impl Op {
    /// Whether the operation may change anything.
    pub fn writes(&self) -> bool {
        match self {
            Op::Set { .. } | Op::SetFor { .. } | Op::Expire { .. } | Op::Append { .. } | Op::Swap { .. } => {
                true
            }
            Op::Get { .. } | Op::GetTwo { .. } | Op::Known => false,
        }
    }

    /// The reply, where it does not depend on the state.
    pub fn fixed_reply(&self) -> Option<Reply> {
        matches!(self, Op::Set { .. } | Op::SetFor { .. }).then_some(Reply::DONE)
    }

    /// The only reply that there is to it, if it reads what no write changes.
    pub fn known_reply(&self) -> Option<Reply> {
        matches!(self, Op::Known).then_some(Reply::KNOWN)
    }

    /// The cells that it names; the second is the first again where there is one only.
    pub fn cells(&self) -> [u8; 2] {
        match *self {
            Op::Set { cell, .. }
            | Op::SetFor { cell, .. }
            | Op::Expire { cell, .. }
            | Op::Append { cell, .. }
            | Op::Get { cell } => [cell, cell],
            Op::Swap { cells, .. } | Op::GetTwo { cells } => cells,
            Op::Known => [KNOWN_CELL; 2],
        }
    }

    /// The bytes of the request, `payload_bytes` or a little more; what follows the operation is a
    /// pattern that shows a fragment in the wrong place.
    pub fn encode(&self, payload_bytes: usize, out: &mut Vec<u8>) {
        let (code, token) = match *self {
            Op::Set { token, .. } => (1, token.0),
            Op::Append { token, .. } => (2, token.0),
            Op::Swap { token, .. } => (3, token.0),
            Op::Get { .. } => (4, 0),
            Op::GetTwo { .. } => (5, 0),
            Op::Known => (6, 0),
            Op::SetFor { token, .. } => (7, token.0),
            Op::Expire { token, .. } => (8, token.0),
        };
        let [first, second] = self.cells();
        let lives_ms = if let Op::SetFor { lives_ms, .. } = *self { lives_ms } else { 0 };
        out.extend_from_slice(&[code, first, second, lives_ms]);
        out.extend_from_slice(&u64::to_le_bytes(token));
        pad(token ^ u64::from(code), payload_bytes.saturating_sub(OP_BYTES), out);
    }
}

/// Appends `count` bytes of the pattern that `seed` names.
fn pad(seed: u64, count: usize, out: &mut Vec<u8>) {
    out.extend((0..count).map(|at| (at as u64).wrapping_mul(31).wrapping_add(seed) as u8));
}

/// What the application answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The application refused.
    pub failed: bool,
    words: [u64; WORDS_MAX],
    word_count: u8,
}

impl Reply {
    /// Done, and nothing to say.
    pub const DONE: Reply = Reply { failed: false, words: [0; WORDS_MAX], word_count: 0 };

    /// Not done, for a state of the server's own.
    pub const REFUSED: Reply = Reply { failed: true, words: [0; WORDS_MAX], word_count: 0 };

    /// What the cell holds that no write touches.
    pub const KNOWN: Reply = Reply { failed: false, words: [7, 0, 0, 0, 0, 0, 0, 0], word_count: 1 };

    fn of(failed: bool, said: &[u64]) -> Reply {
        let mut words = [0; WORDS_MAX];
        words[..said.len()].copy_from_slice(said);
        Reply { failed, words, word_count: said.len() as u8 }
    }

    /// What it says.
    pub fn words(&self) -> &[u64] {
        &self.words[..usize::from(self.word_count)]
    }

    /// Whether a register that this reply to `op` shows holds nothing.
    pub fn shows_nothing(&self, op: &Op) -> bool {
        let registers: &[usize] = match op {
            Op::Swap { .. } => &[0, 1],
            Op::GetTwo { .. } => &[0, 4],
            _ => &[0],
        };
        registers.iter().any(|at| self.words().get(*at) == Some(&0))
    }

    /// The writes that whoever gets this reply to `op` has seen.
    pub fn seen(&self, op: &Op) -> impl Iterator<Item = WriteToken> + '_ {
        let tokens: &[usize] = match op {
            Op::Set { .. } | Op::SetFor { .. } | Op::Expire { .. } | Op::Append { .. } | Op::Known => &[],
            Op::Swap { .. } => &[0, 1],
            Op::Get { .. } => &[0, 3],
            Op::GetTwo { .. } => &[0, 3, 4, 7],
        };
        let shown = self.words();
        tokens
            .iter()
            .filter_map(|at| shown.get(*at))
            .filter(|token| **token != 0)
            .map(|token| WriteToken(*token))
    }

    /// The bytes of the response, at least `reply_bytes`.
    pub fn encode(&self, reply_bytes: usize, out: &mut Vec<u8>) {
        out.push(self.word_count);
        for word in self.words() {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let said_bytes = 1 + 8 * self.words().len();
        pad(self.words.iter().fold(7, |sum, word| sum ^ word), reply_bytes.saturating_sub(said_bytes), out);
    }

    /// The reply of a response; `None` if no reply has these bytes.
    pub fn decode(failed: bool, bytes: &[u8]) -> Option<Reply> {
        let (count, said) = bytes.split_first()?;
        let said = said.get(..8 * usize::from(*count)).filter(|said| said.len() <= 8 * WORDS_MAX)?;
        let words: Vec<u64> = said
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight have eight bytes")))
            .collect();
        let reply = Reply::of(failed, &words);
        let mut again = Vec::with_capacity(bytes.len());
        reply.encode(bytes.len(), &mut again);
        (again == bytes).then_some(reply)
    }
}

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Cell {
    register: WriteToken,
    list_length: u64,
    /// Over all entries in order: two lists with one hash are one list.
    list_hash: u64,
    list_last: WriteToken,
}

impl Cell {
    fn words(&self) -> [u64; 4] {
        [self.register.0, self.list_length, self.list_hash, self.list_last.0]
    }

    fn append(&mut self, token: WriteToken) -> Reply {
        if self.list_length == LIST_LENGTH_MAX {
            return Reply::of(true, &[self.list_length, self.list_hash]);
        }
        self.list_length += 1;
        self.list_hash = (self.list_hash ^ token.0).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        self.list_last = token;
        Reply::of(false, &[self.list_length, self.list_hash])
    }
}

/// The application's state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct App {
    cells: Vec<Cell>,
}

impl App {
    /// Empty cells.
    pub fn new(cell_count: usize) -> App {
        App { cells: vec![Cell::default(); cell_count] }
    }

    /// What the registers hold, by cell.
    pub fn registers(&self) -> impl Iterator<Item = WriteToken> + '_ {
        self.cells.iter().map(|cell| cell.register)
    }

    /// Does what `op` asks and answers.
    pub fn apply(&mut self, op: &Op) -> Reply {
        match *op {
            Op::Set { cell, token } | Op::SetFor { cell, token, .. } => {
                self.cells[usize::from(cell)].register = token;
                Reply::DONE
            }
            Op::Expire { cell, token } => {
                let register = &mut self.cells[usize::from(cell)].register;
                *register = if *register == token { WriteToken::default() } else { *register };
                Reply::DONE
            }
            Op::Append { cell, token } => self.cells[usize::from(cell)].append(token),
            Op::Swap { cells: [first, second], .. } => {
                let (first, second) = (usize::from(first), usize::from(second));
                let held = [self.cells[first].register, self.cells[second].register];
                self.cells[first].register = held[1];
                self.cells[second].register = held[0];
                Reply::of(false, &[held[0].0, held[1].0])
            }
            Op::Get { .. } | Op::GetTwo { .. } | Op::Known => self.look(op),
        }
    }

    /// What a read would be answered now.
    pub fn look(&self, op: &Op) -> Reply {
        if let Some(reply) = op.known_reply() {
            return reply;
        }
        let [first, second] = op.cells();
        let shown = self.cells[usize::from(first)].words();
        match op {
            Op::GetTwo { .. } => {
                let mut words = [0; 8];
                words[..4].copy_from_slice(&shown);
                words[4..].copy_from_slice(&self.cells[usize::from(second)].words());
                Reply::of(false, &words)
            }
            Op::Get { .. }
            | Op::Set { .. }
            | Op::SetFor { .. }
            | Op::Expire { .. }
            | Op::Append { .. }
            | Op::Swap { .. }
            | Op::Known => Reply::of(false, &shown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_show_which_writes_were_seen() {
        let mut app = App::new(2);
        assert_eq!(app.apply(&Op::Set { cell: 0, token: WriteToken(1) }), Reply::DONE);
        assert_eq!(app.apply(&Op::Append { cell: 1, token: WriteToken(2) }).words()[0], 1);
        assert_eq!(app.apply(&Op::Append { cell: 1, token: WriteToken(3) }).words()[0], 2);
        let op = Op::GetTwo { cells: [0, 1] };
        let seen: Vec<u64> = app.apply(&op).seen(&op).map(|token| token.0).collect();
        assert_eq!(seen, [1, 3]);
        let swap = Op::Swap { cells: [0, 1], token: WriteToken(4) };
        assert_eq!(app.apply(&swap).words(), [1, 0]);
        assert_eq!(app.look(&Op::Get { cell: 1 }).words()[0], 1);
    }

    #[test]
    fn what_has_lived_out_is_gone_unless_it_was_overwritten() {
        let mut app = App::new(1);
        let expires = |token| Op::Expire { cell: 0, token: WriteToken(token) };
        assert_eq!(app.apply(&Op::SetFor { cell: 0, token: WriteToken(1), lives_ms: 3 }), Reply::DONE);
        app.apply(&expires(2));
        assert!(app.registers().eq([WriteToken(1)]));
        app.apply(&expires(1));
        assert!(app.registers().eq([WriteToken(0)]));
    }

    #[test]
    fn a_full_list_refuses() {
        let mut app = App::new(1);
        for token in 0..LIST_LENGTH_MAX {
            assert!(!app.apply(&Op::Append { cell: 0, token: WriteToken(token + 1) }).failed);
        }
        let before = app.clone();
        assert!(app.apply(&Op::Append { cell: 0, token: WriteToken(99) }).failed);
        assert_eq!(app, before);
    }

    #[test]
    fn responses_round_trip_and_show_damage() {
        for reply_bytes in [0, 9, 3_000] {
            let reply = Reply::of(true, &[5, 6]);
            let mut bytes = Vec::new();
            reply.encode(reply_bytes, &mut bytes);
            assert_eq!(Reply::decode(true, &bytes), Some(reply));
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            assert_ne!(Reply::decode(true, &bytes), Some(reply));
        }
        assert_eq!(Reply::decode(false, &[]), None);
        assert_eq!(Reply::decode(false, &[200, 1]), None);
    }

    #[test]
    fn requests_differ_by_token_and_grow_by_their_pattern() {
        let encode = |token, bytes| {
            let mut out = Vec::new();
            Op::Set { cell: 1, token: WriteToken(token) }.encode(bytes, &mut out);
            out
        };
        assert_eq!(encode(1, 0).len(), OP_BYTES);
        assert_eq!(encode(1, 3_000).len(), 3_000);
        assert_ne!(encode(1, 64), encode(2, 64));
    }
}
