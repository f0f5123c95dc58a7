//! Size classes of slots: by 8 bytes to 128, then by a quarter, whole pages above 8 KiB, and last a segment's eighth
//! to its whole.
//!
//! Invariant: the slot of a class holds what the class is for, and is at most a quarter (or 15 bytes) larger than it
//! must be, where it is not a large share of a segment; its size is a multiple of 8.

use crate::memory::{PAGE_BYTES, SEGMENT_BYTES};

/// The largest of the classes that go by 8 bytes.
const FINE_BYTES_MAX: usize = 128;
/// What is larger takes whole pages.
const SMALL_BYTES_MAX: usize = 8 << 10;
/// The smallest slot: a header of 8 bytes and a key.
const SLOT_BYTES_MIN: usize = 16;
/// No segment of that number.
const CLASSES_MAX: usize = 64;

const TABLE: ([u32; CLASSES_MAX], usize) = sizes();
/// How many classes there are.
pub(crate) const CLASS_COUNT: usize = TABLE.1;
/// By eighths of the size, for small ones.
const SMALL: [u8; SMALL_BYTES_MAX / 8 + 1] = small();

const fn sizes() -> ([u32; CLASSES_MAX], usize) {
    let mut sizes = [0; CLASSES_MAX];
    let (mut count, mut size) = (0, SLOT_BYTES_MIN);
    while size <= SEGMENT_BYTES / 8 {
        sizes[count] = size as u32;
        count += 1;
        size = next(size);
    }
    let mut parts = 8;
    while parts > 0 {
        let size = (SEGMENT_BYTES / parts) / PAGE_BYTES * PAGE_BYTES;
        if size as u32 > sizes[count - 1] {
            sizes[count] = size as u32;
            count += 1;
        }
        parts -= 1;
    }
    (sizes, count)
}

const fn next(size: usize) -> usize {
    if size < FINE_BYTES_MAX {
        return size + 8;
    }
    let next = size + size / 4;
    if next <= SMALL_BYTES_MAX {
        next / 8 * 8
    } else if size < SMALL_BYTES_MAX {
        SMALL_BYTES_MAX
    } else {
        next.next_multiple_of(PAGE_BYTES)
    }
}

const fn small() -> [u8; SMALL_BYTES_MAX / 8 + 1] {
    let mut classes = [0; SMALL_BYTES_MAX / 8 + 1];
    let (mut eighths, mut class) = (0, 0);
    while eighths < classes.len() {
        while (TABLE.0[class as usize] as usize) < eighths * 8 {
            class += 1;
        }
        classes[eighths] = class;
        eighths += 1;
    }
    classes
}

/// A size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(pub u8);

impl Class {
    /// The class for `bytes`; none if a segment is too small for them.
    #[inline(always)]
    pub fn of(bytes: usize) -> Option<Class> {
        if bytes <= SMALL_BYTES_MAX {
            return Some(Class(SMALL[bytes.div_ceil(8)]));
        }
        Class::of_large(bytes)
    }

    fn of_large(bytes: usize) -> Option<Class> {
        let sizes = &TABLE.0[..CLASS_COUNT];
        let class = sizes.partition_point(|size| (*size as usize) < bytes);
        (class < CLASS_COUNT).then_some(Class(class as u8))
    }

    /// How large its slots are.
    #[inline(always)]
    pub fn slot_bytes(self) -> usize {
        TABLE.0[usize::from(self.0)] as usize
    }

    /// How many slots a segment has.
    pub fn slots(self) -> u32 {
        (SEGMENT_BYTES / self.slot_bytes()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_what_they_are_for_and_little_more() {
        for bytes in 1..=SEGMENT_BYTES {
            let class = Class::of(bytes).expect("not more than a segment");
            let slot = class.slot_bytes();
            assert!(slot >= bytes && slot.is_multiple_of(8), "{bytes} in {slot}");
            assert!(class.0 == 0 || Class(class.0 - 1).slot_bytes() < bytes, "{bytes}: a smaller one does");
            if bytes > SMALL_BYTES_MAX {
                assert_eq!(slot % PAGE_BYTES, 0, "{bytes} in {slot}");
            } else {
                assert!(slot <= (bytes + 15).max(bytes * 5 / 4 + 8), "{bytes} in {slot}");
            }
        }
        assert_eq!(Class::of(SEGMENT_BYTES + 1), None);
        assert_eq!(Class(CLASS_COUNT as u8 - 1).slots(), 1);
        assert_eq!(
            [24, 64, 72, 80].map(|size| Class::of(size).map(Class::slot_bytes)),
            [24, 64, 72, 80].map(Some)
        );
    }
}
