//! The internet checksum (RFC 1071).
//!
//! Invariant: the parts of one sum have even lengths, but for the last; a header that contains its own
//! right checksum sums to zero.

/// A sum in the making.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds the 16-bit words of `bytes`. At most the last part of a sum may be odd.
    #[must_use]
    pub fn add(self, bytes: &[u8]) -> Sum {
        // Words of 32 bits give the same sum once folded, since 2^16 counts as 1.
        let chunks = bytes.chunks_exact(4);
        let mut last = [0; 4];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        let words =
            chunks.map(|chunk| u64::from(u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]])));
        Sum(self.0 + words.sum::<u64>() + u64::from(u32::from_be_bytes(last)))
    }

    /// Adds one word.
    #[must_use]
    pub fn add_word(self, word: u16) -> Sum {
        Sum(self.0 + u64::from(word))
    }

    /// The checksum: what makes the sum zero when put into the header.
    pub fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn it_agrees_with_the_plain_sum_at_every_length() {
        let bytes: Vec<u8> = (0..200_u32).map(|index| ((index * 7_919) >> 3) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(Sum::default().add(&bytes[..length]).finish(), plain(&bytes[..length]));
        }
        let ones = vec![0xFF; 65_534];
        assert_eq!(Sum::default().add(&ones).finish(), plain(&ones));
    }

    #[test]
    fn parts_sum_as_the_whole() {
        let bytes: Vec<u8> = (0..101).collect();
        let parts = Sum::default().add(&bytes[..30]).add(&bytes[30..32]).add(&bytes[32..]);
        assert_eq!(parts.finish(), plain(&bytes));
        assert_eq!(Sum::default().add_word(0x1234).finish(), plain(&[0x12, 0x34]));
    }
}
