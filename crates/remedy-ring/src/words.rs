//! The words that both sides see.
//!
//! Invariant: shared memory is touched by atomic accesses alone, payloads included, so that a peer that writes where
//! it should not spoils content and never this process. Orderings are the least that each place needs: a message is
//! published by a release, found by an acquire, and copied between them by relaxed words.

#[cfg(loom)]
pub use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// The bytes of a word.
pub const WORD_BYTES: usize = 8;

/// Copies bytes into words, the last filled up with zeros. There are words enough.
pub(crate) fn write(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<WORD_BYTES>();
    for (word, chunk) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; WORD_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_le_bytes(last), Ordering::Relaxed);
    }
}

/// Appends so many bytes out of words. There are words enough.
pub(crate) fn read(words: &[AtomicU64], count: usize, out: &mut Vec<u8>) {
    let whole = count / WORD_BYTES;
    out.reserve(count + WORD_BYTES);
    for word in &words[..whole] {
        out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    let rest = count % WORD_BYTES;
    if rest > 0 {
        out.extend_from_slice(&words[whole].load(Ordering::Relaxed).to_le_bytes()[..rest]);
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_come_out_as_they_went_in() {
        let words: Vec<AtomicU64> = (0..5).map(|_| AtomicU64::new(u64::MAX)).collect();
        let bytes: Vec<u8> = (1..=40).collect();
        for count in 0..=bytes.len() {
            write(&words, &bytes[..count]);
            let mut out = vec![0xff];
            read(&words, count, &mut out);
            assert_eq!(out[1..], bytes[..count]);
        }
    }
}
