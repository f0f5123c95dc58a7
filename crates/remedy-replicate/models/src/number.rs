//! What clients ask: numbers by key, each key an object by itself.
//!
//! Invariant: what is asked is read back from its bytes.

use stateright::semantics::SequentialSpec;

/// What is asked of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Sets it.
    Set(u8, u8),
    /// Adds one, and answers the sum.
    Incr(u8),
    /// Reads it.
    Get(u8),
}

impl Ask {
    /// The key.
    pub fn key(self) -> u8 {
        match self {
            Ask::Set(key, _) | Ask::Incr(key) | Ask::Get(key) => key,
        }
    }

    /// Whether it changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Ask::Get(_))
    }

    pub(crate) fn bytes(self) -> [u8; 3] {
        match self {
            Ask::Set(key, number) => [0, key, number],
            Ask::Incr(key) => [1, key, 0],
            Ask::Get(key) => [2, key, 0],
        }
    }

    pub(crate) fn read(bytes: &[u8]) -> Ask {
        match bytes {
            [0, key, number] => Ask::Set(*key, *number),
            [1, key, 0] => Ask::Incr(*key),
            [2, key, 0] => Ask::Get(*key),
            _ => panic!("clients ask nothing else: {bytes:?}"),
        }
    }
}

/// A number that is set, added to and read; 0 at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Number(pub u8);

impl SequentialSpec for Number {
    type Op = Ask;
    type Ret = u8;

    fn invoke(&mut self, op: &Ask) -> u8 {
        match op {
            Ask::Set(_, number) => {
                self.0 = *number;
                0
            }
            Ask::Incr(_) => {
                self.0 += 1;
                self.0
            }
            Ask::Get(_) => self.0,
        }
    }
}
