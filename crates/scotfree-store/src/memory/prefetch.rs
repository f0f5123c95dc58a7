//! A hint to the processor that a line will be read.
//!
//! Invariant: a hint changes nothing that a program can see.
#![allow(unsafe_code)]

use std::ptr::NonNull;

/// Has the line at `at` be fetched.
#[inline(always)]
pub(super) fn prefetch(at: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: a prefetch never faults, whatever the address; every x86-64 has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.as_ptr().cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
