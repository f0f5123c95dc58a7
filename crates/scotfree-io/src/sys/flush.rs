//! Getting bytes out of the processor's caches: flush instructions, streaming stores, the fence.
//!
//! Invariant: an instruction that CPUID does not announce is never executed, also where it would work.

use std::fmt;

/// How a cache line is written back, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushInstruction {
    /// Writes back and may keep the line in the cache.
    Clwb,
    /// Writes back and drops the line, in parallel with others.
    Clflushopt,
    /// Writes back and drops the line, one after the other.
    Clflush,
}

impl fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FlushInstruction::Clwb => "clwb",
            FlushInstruction::Clflushopt => "clflushopt",
            FlushInstruction::Clflush => "clflush",
        })
    }
}

/// A [`FlushInstruction`] that this processor has. Nobody else can make one, so holding one is the leave to
/// execute it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available(FlushInstruction);

impl Available {
    /// Which it is.
    pub fn instruction(self) -> FlushInstruction {
        self.0
    }
}

#[cfg(target_arch = "x86_64")]
mod processor {
    use super::{Available, FlushInstruction};
    use crate::slot_memory::LINE_BYTES;
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid, __cpuid_count, __get_cpuid_max, __m128i, _mm_clflush, _mm_loadu_si128, _mm_sfence,
        _mm_stream_si128,
    };

    const CLFLUSH: u32 = 1 << 19;
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;
    const STREAM_BYTES: usize = size_of::<__m128i>();

    /// All that CPUID announces, best first. Nothing where lines are of another size than ours.
    pub fn available() -> Vec<Available> {
        let basic = __cpuid(1);
        // Bits 8 to 15 are the size of a line in units of 8 bytes.
        let line_bytes = (basic.ebx >> 8 & 0xff) as usize * 8;
        if basic.edx & CLFLUSH == 0 || line_bytes != LINE_BYTES {
            return Vec::new();
        }
        let extended = if __get_cpuid_max(0).0 >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        [
            (CLWB, FlushInstruction::Clwb),
            (CLFLUSHOPT, FlushInstruction::Clflushopt),
            (0, FlushInstruction::Clflush),
        ]
        .into_iter()
        .filter(|(bit, _)| extended & bit == *bit)
        .map(|(_, instruction)| Available(instruction))
        .collect()
    }

    /// Starts to write back every line that `bytes` touches.
    pub fn write_back(bytes: &[u8], with: Available) {
        // A line begins before `bytes` if they do not begin with one; all of it belongs to one page.
        let first = bytes.as_ptr() as usize / LINE_BYTES * LINE_BYTES;
        let end = bytes.as_ptr() as usize + bytes.len();
        for line in (first..end).step_by(LINE_BYTES) {
            let line = line as *const u8;
            match with.0 {
                // SAFETY: CPUID announces it (`Available`), `line` lies in the page of a live borrow, and
                // no byte changes.
                FlushInstruction::Clwb => unsafe {
                    asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                },
                // SAFETY: as above.
                FlushInstruction::Clflushopt => unsafe {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                },
                // SAFETY: as above.
                FlushInstruction::Clflush => unsafe { _mm_clflush(line) },
            }
        }
    }

    /// Waits until the write-backs and streaming stores before it are accepted by the memory.
    pub fn store_fence() {
        // SAFETY: every processor of this architecture has it, and it touches no memory.
        unsafe { _mm_sfence() };
    }

    /// Copies past the caches, and waits until the memory has accepted it. `to` begins with a line and
    /// has whole lines.
    pub fn stream(to: &mut [u8], from: &[u8]) {
        assert!(to.len() == from.len() && to.len().is_multiple_of(LINE_BYTES), "whole lines are streamed");
        assert!((to.as_ptr() as usize).is_multiple_of(LINE_BYTES), "lines are streamed from their beginning");
        for (to, from) in to.chunks_exact_mut(STREAM_BYTES).zip(from.chunks_exact(STREAM_BYTES)) {
            // SAFETY: `from` is 16 bytes long, and the load asks no alignment.
            let piece = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
            // SAFETY: `to` is 16 bytes long, borrowed mutably, and aligned since lines are; the fence below
            // puts these stores in order before the borrow ends.
            unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), piece) };
        }
        store_fence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    use super::Available;

    /// None is known for this architecture.
    pub fn available() -> Vec<Available> {
        Vec::new()
    }

    pub fn write_back(_: &[u8], _: Available) {
        unreachable!("no instruction is available");
    }

    pub fn store_fence() {
        unreachable!("no instruction is available");
    }

    pub fn stream(to: &mut [u8], from: &[u8]) {
        to.copy_from_slice(from);
    }
}

pub use processor::{available, store_fence, stream, write_back};
