//! Eight bytes of an input at once.

use super::path::Path;
use crate::planted::{self, Fault};
use crate::protobuf::wire::Wire;

/// The low bytes of a word, by how many.
pub(crate) const MASKS: [u64; 9] = [
    0,
    0xff,
    0xffff,
    0xff_ffff,
    0xffff_ffff,
    0xff_ffff_ffff,
    0xffff_ffff_ffff,
    0xff_ffff_ffff_ffff,
    u64::MAX,
];

/// The tag of a field as its bytes in a word, and how many they are.
pub(crate) const fn tag_of(number: u32, wire: Wire) -> (u64, usize) {
    let mut left = (number as u64) << 3 | wire.code();
    let (mut word, mut bytes) = (0, 0);
    while left >= 0x80 {
        word |= (left & 0x7f | 0x80) << (8 * bytes);
        left >>= 7;
        bytes += 1;
    }
    (word | left << (8 * bytes), bytes + 1)
}

/// The eight bytes at `at`.
///
/// # Safety
///
/// They are within the input.
#[inline(always)]
pub(super) unsafe fn word_within(input: &[u8], at: usize) -> u64 {
    debug_assert!(at + 8 <= input.len());
    // SAFETY: the caller says so.
    u64::from_le(unsafe { input.as_ptr().add(at).cast::<u64>().read_unaligned() })
}

/// So many bytes at `at`.
///
/// # Safety
///
/// They are within the input.
#[inline(always)]
pub(super) unsafe fn bytes_within<const N: usize>(input: &[u8], at: usize) -> &[u8; N] {
    debug_assert!(at + N <= input.len());
    // SAFETY: the caller says so.
    unsafe { &*input.as_ptr().add(at).cast() }
}

/// Asks for the beginning of an input that is not to be copied: decoding goes from field to field, and would wait for
/// each cache line by itself.
#[inline(always)]
pub(crate) fn prefetch(input: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in input.chunks(LINE_BYTES).take(LINES) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: every x86-64 has it, and it changes nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = input;
}

/// A cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
/// Of what is longer the processor itself has seen by then where it goes on.
#[cfg(target_arch = "x86_64")]
const LINES: usize = 8;

/// The eight bytes at `at`; behind the input's end they are zero.
#[inline(always)]
pub(crate) fn word_at(input: &[u8], at: usize) -> u64 {
    match input.get(at..at.wrapping_add(8)) {
        Some(bytes) => u64::from_le_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
        ]),
        None => word_at_end(input, at),
    }
}

#[inline(never)]
pub(crate) fn word_at_end(input: &[u8], at: usize) -> u64 {
    let rest = input.get(at..).unwrap_or(&[]);
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(word)
}

/// The bit of each byte of a varint that says whether another follows.
pub(super) const STOPS: u64 = 0x8080_8080_8080_8080;

/// The number that begins in `body`, of which `known` bytes are the input's, and how many bytes it has; none, if it has
/// more than ten. `at` is where it begins.
#[inline(always)]
pub(crate) fn varint<P: Path>(
    path: P,
    body: u64,
    known: usize,
    input: &[u8],
    at: usize,
    is_short: bool,
) -> Option<(u64, usize)> {
    if is_short && body & 0x80 == 0 {
        return Some((body & 0x7f, 1));
    }
    let stops = !body & STOPS;
    let bytes = stops.trailing_zeros() as usize / 8 + 1;
    if bytes > known {
        return long_varint(input, at);
    }
    Some((path.gathered(body & (stops ^ stops.wrapping_sub(1))), bytes))
}

/// The same as `varint` of what is longer than a word; in registers, which an `Option` of both would not be.
#[inline(always)]
pub(crate) fn long_varint(input: &[u8], at: usize) -> Option<(u64, usize)> {
    let (value, bytes) = long_or_none(input, at);
    (bytes != 0).then_some((value, bytes))
}

#[cold]
#[inline(never)]
fn long_or_none(input: &[u8], at: usize) -> (u64, usize) {
    any_varint(input, at).unwrap_or((0, 0))
}

fn any_varint(input: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (count, &byte) in input.get(at..)?.iter().take(10).enumerate() {
        let byte = if planted::is(Fault::LoseBitOfNinthByte) && count == 8 { byte & 0xbf } else { byte };
        value |= u64::from(byte & 0x7f).checked_shl(7 * count as u32)?;
        if byte < 0x80 {
            return Some((value, count + 1));
        }
    }
    None
}
