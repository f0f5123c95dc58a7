//! Texts: whether bytes are one.

use super::path::Path;
use super::word::bytes_within;
use crate::planted::{self, Fault};
use crate::slots::SLACK;

/// Whether the bytes of an input are UTF-8. Most are ASCII, and short: those are looked at without a branch on their
/// length, which no processor could foresee.
#[inline(always)]
pub(crate) fn is_utf8<P: Path>(path: P, input: &[u8], from: usize, until: usize) -> bool {
    let ahead = input.get(from..).and_then(|rest| rest.first_chunk());
    is_utf8_of(path, input, (from, until), ahead)
}

/// The same where as many bytes as are looked at are known to be there.
///
/// # Safety
///
/// `SLACK` bytes from `from` on are within the input.
#[inline(always)]
pub(super) unsafe fn is_utf8_ahead<P: Path>(path: P, input: &[u8], from: usize, until: usize) -> bool {
    // SAFETY: the caller says so.
    let ahead = unsafe { bytes_within(input, from) };
    is_utf8_of(path, input, (from, until), Some(ahead))
}

/// The same of what begins with `ahead`, if there are as many bytes as are looked at. Its bounds are asked where it is not
/// short and ASCII.
#[inline(always)]
fn is_utf8_of<P: Path>(
    path: P,
    input: &[u8],
    (from, until): (usize, usize),
    ahead: Option<&[u8; SLACK]>,
) -> bool {
    let (len, text) = (until - from, || &input[from..until]);
    let is_ascii = if len > SLACK {
        path.is_long_ascii(text())
    } else {
        let looked_at = if planted::is(Fault::SkipUtf8BlockEdge) { len.min(7) } else { len };
        ahead.is_some_and(|ahead| path.is_ascii(ahead, looked_at))
    };
    is_ascii || is_utf8_of_any_length(text())
}

/// Whether all of a text of more than `SLACK` bytes are below 128: by as many at once, the last of them again.
#[inline(always)]
pub(super) fn is_long_ascii<P: Path>(path: P, text: &[u8]) -> bool {
    let is_ascii = |part: &[u8]| part.first_chunk().is_some_and(|part| path.is_ascii(part, SLACK));
    text.chunks_exact(SLACK).all(is_ascii) && text.last_chunk::<SLACK>().is_some_and(|last| is_ascii(last))
}

#[inline(never)]
fn is_utf8_of_any_length(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok()
}
