//! Random values.
//!
//! Invariant: they are the same for the same seed.

/// What values are drawn from.
#[derive(Debug)]
pub struct Drawn {
    state: u64,
    /// Of a hundred fields, so many are absent.
    pub absent: u64,
}

impl Drawn {
    /// From a seed.
    pub fn new(seed: u64, absent: u64) -> Self {
        Drawn { state: seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15) | 1, absent }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One of 0 to `bound` - 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 32) % bound
    }

    /// A number of a random length: most are short, as numbers are. It may be zero.
    pub fn number(&mut self) -> u64 {
        let bits = 1 + self.below(35);
        self.next() >> (64 - bits)
    }

    /// One of at most so many bits, whose highest is set: what is there in a message is written.
    pub fn written(&mut self, bits_max: u64) -> u64 {
        let bits = 1 + self.below(bits_max);
        self.next() >> (64 - bits) | 1 << (bits - 1)
    }

    /// A text of 4 to 31 letters.
    pub fn text(&mut self) -> String {
        self.text_below(28)
    }

    /// One of 4 letters and less than so many more.
    pub fn text_below(&mut self, more: u64) -> String {
        let letters = 4 + self.below(more);
        (0..letters).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    /// Whether a field is.
    pub fn is_there(&mut self) -> bool {
        self.below(100) >= self.absent
    }
}
