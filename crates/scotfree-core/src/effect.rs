//! What a machine wants done, collected in a buffer that its shell reuses.

use std::net::SocketAddr;

/// Names a persistence operation; the machine that chose it knows what it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A range of the bytes held by [`Effects`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    start: usize,
    end: usize,
}

/// One thing a machine wants done; `Own` is what only this machine's shell can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect<Own> {
    /// Send a packet.
    Send {
        /// The address it comes from; a device speaks in the name of the endpoints beside it.
        from: SocketAddr,
        /// The address it goes to.
        to: SocketAddr,
        /// The packet.
        bytes: ByteRange,
    },
    /// Make bytes durable, then report `token` to `on_persisted`.
    Persist {
        /// What to report.
        token: Token,
        /// The record.
        bytes: ByteRange,
    },
    /// Forget what was persisted under `token`.
    Erase {
        /// What was persisted.
        token: Token,
    },
    /// Something that only this machine's shell knows how to do.
    Own(Own),
}

/// The effects of one or more steps of a machine, with the bytes they refer to.
///
/// A shell creates one, drains it after each step and calls [`Effects::clear`]: after warm-up no
/// step allocates.
#[derive(Debug)]
pub struct Effects<Own> {
    list: Vec<Effect<Own>>,
    arena: Vec<u8>,
}

impl<Own> Default for Effects<Own> {
    fn default() -> Self {
        Effects { list: Vec::new(), arena: Vec::new() }
    }
}

impl<Own> Effects<Own> {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packet that `write` appends to the buffer it is given.
    pub fn send(&mut self, from: SocketAddr, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        let bytes = self.append(write);
        self.list.push(Effect::Send { from, to, bytes });
    }

    /// Adds a record to be made durable.
    pub fn persist(&mut self, token: Token, write: impl FnOnce(&mut Vec<u8>)) {
        let bytes = self.append(write);
        self.list.push(Effect::Persist { token, bytes });
    }

    /// Adds the wish to forget a record.
    pub fn erase(&mut self, token: Token) {
        self.list.push(Effect::Erase { token });
    }

    /// Adds an effect of the machine's own.
    pub fn own(&mut self, own: Own) {
        self.list.push(Effect::Own(own));
    }

    /// Stores bytes that an own effect refers to.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> ByteRange {
        let start = self.arena.len();
        write(&mut self.arena);
        assert!(self.arena.len() >= start, "an effect's writer may only append");
        ByteRange { start, end: self.arena.len() }
    }

    /// The bytes of a range.
    pub fn bytes(&self, range: ByteRange) -> &[u8] {
        &self.arena[range.start..range.end]
    }

    /// The effects in the order in which they were wished for.
    pub fn iter(&self) -> impl Iterator<Item = &Effect<Own>> {
        self.list.iter()
    }

    /// How many effects there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether nothing is wished for.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets all, keeping the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.arena.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_keep_their_bytes_and_order() {
        let here: SocketAddr = "10.0.0.1:1".parse().expect("an address");
        let mut effects: Effects<u8> = Effects::new();
        effects.send(here, here, |out| out.extend_from_slice(b"one"));
        effects.persist(Token(7), |out| out.extend_from_slice(b"two"));
        effects.own(9);
        let texts: Vec<&[u8]> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send { bytes, .. } | Effect::Persist { bytes, .. } => Some(effects.bytes(*bytes)),
                Effect::Erase { .. } | Effect::Own(_) => None,
            })
            .collect();
        assert_eq!(texts, [b"one", b"two"]);
        assert_eq!(effects.len(), 3);
        effects.clear();
        assert!(effects.is_empty());
    }
}
