//! Plain structs as bytes, for the system calls that carry them.
//!
//! Invariant: only types whose every bit pattern is a value, and that have no padding, are [`Plain`].

use crate::skeleton::types;

/// A type that is nothing but its bytes.
///
/// # Safety
/// Every bit pattern is a value of it, and it has no padding.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers and arrays of them; the C side asserts its sizes and names its reserve.
unsafe impl Plain for types::scot_session {}
// SAFETY: as above.
unsafe impl Plain for types::scot_counters {}
// SAFETY: as above.
unsafe impl Plain for types::scot_session_name {}
// SAFETY: as above.
unsafe impl Plain for types::scot_station_key {}
// SAFETY: as above.
unsafe impl Plain for types::scot_station {}
// SAFETY: as above.
unsafe impl Plain for types::bpf_devmap_val {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

/// The bytes of a value.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: the value is as long as its type, has no padding, and lives as long as the borrow.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The value that begins at the first of `bytes`; `None` if there are too few.
pub(crate) fn value_of<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, and every pattern of them is a value.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}
