//! Texts: whether bytes are one.

use super::word::MASKS;
use crate::planted::{self, Fault};
use crate::slots::SLACK;

const HIGH: u64 = 0x8080_8080_8080_8080;

/// Whether the bytes of an input are UTF-8. Most are ASCII, and short: those are looked at without a branch on their
/// length, which no processor could foresee.
#[inline(always)]
pub(crate) fn is_utf8(input: &[u8], from: usize, until: usize) -> bool {
    let len = until - from;
    if len > SLACK || from + SLACK > input.len() {
        return is_utf8_of_any_length(&input[from..until]);
    }
    let mut seen = 0;
    for (index, word) in input[from..from + SLACK].chunks_exact(8).enumerate() {
        let word =
            u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
        let looked_at = if planted::is(Fault::SkipUtf8BlockEdge) { 7 } else { 8 };
        seen |= word & MASKS[len.saturating_sub(index * 8).min(looked_at)];
    }
    seen & HIGH == 0 || is_utf8_of_any_length(&input[from..until])
}

#[inline(never)]
fn is_utf8_of_any_length(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok()
}
