//! FNV-1a, 64 bits: for names that are short and nobody's attack.
//!
//! Invariant: equal bytes give equal hashes on every machine and in every version; some stand on the wire and in files.

/// A hash of what was added so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fnv1a(u64);

impl Fnv1a {
    /// Of nothing.
    pub const EMPTY: Fnv1a = Fnv1a(0xcbf2_9ce4_8422_2325);

    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        Fnv1a::EMPTY.and(bytes).value()
    }

    /// With these bytes behind what was added.
    #[must_use]
    pub fn and(self, bytes: &[u8]) -> Fnv1a {
        let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Fnv1a(bytes.iter().fold(self.0, add))
    }

    /// The hash.
    pub const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_function() {
        // Test vectors of the function's authors.
        assert_eq!(Fnv1a::of(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fnv1a::of(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Fnv1a::of(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(Fnv1a::EMPTY.and(b"foo").and(b"bar").value(), Fnv1a::of(b"foobar"));
    }
}
