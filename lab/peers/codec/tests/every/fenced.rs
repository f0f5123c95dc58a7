//! Pages between two others that may not be touched: a byte read before the first or behind the last is a signal that ends
//! the test.

use rustix::mm::{mmap_anonymous, mprotect, munmap, MapFlags, MprotectFlags, ProtFlags};
use std::ffi::c_void;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// How many may be touched.
pub const PAGES: usize = 4;

/// Pages between two others without access.
pub struct Fenced {
    start: *mut c_void,
}

impl Fenced {
    pub fn new() -> Self {
        let bytes = (PAGES + 2) * PAGE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE) }
                .unwrap();
        // SAFETY: within the mapping, which nobody else has.
        unsafe {
            mprotect(
                start.cast::<u8>().add(PAGE).cast(),
                PAGES * PAGE,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .unwrap();
        Fenced { start }
    }

    fn inner(&mut self) -> &mut [u8] {
        // SAFETY: these pages may be read and written, and are zero at first.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast::<u8>().add(PAGE), PAGES * PAGE) }
    }

    /// A copy that ends where the second fence begins.
    pub fn at_end(&mut self, bytes: &[u8]) -> &[u8] {
        let inner = self.inner();
        let from = inner.len() - bytes.len();
        inner[from..].copy_from_slice(bytes);
        &inner[from..]
    }

    /// A copy that begins where the first fence ends.
    pub fn at_start(&mut self, bytes: &[u8]) -> &[u8] {
        let inner = self.inner();
        inner[..bytes.len()].copy_from_slice(bytes);
        &inner[..bytes.len()]
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping is its own.
        unsafe { munmap(self.start, (PAGES + 2) * PAGE) }.unwrap();
    }
}
