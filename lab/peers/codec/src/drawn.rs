//! Random values, for messages and for the .proto files of build.rs.

/// Random values: the same for the same seed.
pub struct Drawn {
    state: u64,
    /// Of a hundred fields, so many are absent.
    pub absent: u64,
}

impl Drawn {
    pub fn new(seed: u64, absent: u64) -> Self {
        Drawn { state: seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15) | 1, absent }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 32) % bound
    }

    /// A number of a random length: most are short, as numbers are.
    pub fn number(&mut self) -> u64 {
        let bits = 1 + self.below(35);
        self.next() >> (64 - bits)
    }

    pub fn text(&mut self) -> String {
        let letters = 4 + self.below(28);
        (0..letters).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    pub fn is_there(&mut self) -> bool {
        self.below(100) >= self.absent
    }
}
