//! How an item lies in its slot.
//!
//! ```text
//!  0        4       5       6        8           16          24        32
//!  | expire | key   | flags | value  | meta      | newer     | key     | key, value ...
//!  | u32    | bytes |       | bytes  | u64       | older     | value   |
//!                                      if shards   if shards   if one is
//!                                      keep it     evict       long
//! ```
//!
//! Invariant: a live slot's first word says where its key and value lie; a slot without the live flag is free.

/// Never expires.
pub(crate) const NEVER: u32 = 0;

const LIVE: u8 = 1;
const LONG: u8 = 2;
const VISITED: u8 = 4;
const KIND_SHIFT: u32 = 4;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes.
    String,
    /// Fields with values.
    Hash,
}

impl Kind {
    fn of(number: u8) -> Kind {
        match number {
            0 => Kind::String,
            1 => Kind::Hash,
            _ => unreachable!("a live item has a kind that was written"),
        }
    }

    fn number(self) -> u8 {
        match self {
            Kind::String => 0,
            Kind::Hash => 1,
        }
    }
}

/// Which words the items of a shard have beyond the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// A word for versions, or for replication (E7).
    pub has_meta: bool,
    /// Links of the order in which items are evicted.
    pub has_links: bool,
}

impl Layout {
    /// Where the word for versions is.
    pub const META_AT: usize = 8;

    /// Where the links are.
    pub fn links_at(self) -> usize {
        8 + 8 * usize::from(self.has_meta)
    }

    fn head_bytes(self) -> usize {
        8 + 8 * usize::from(self.has_meta) + 8 * usize::from(self.has_links)
    }

    fn is_long(key_bytes: usize, value_bytes: usize) -> bool {
        key_bytes > usize::from(u8::MAX) || value_bytes > usize::from(u16::MAX)
    }

    /// What an item takes.
    pub fn item_bytes(self, key_bytes: usize, value_bytes: usize) -> usize {
        let lengths = 8 * usize::from(Layout::is_long(key_bytes, value_bytes));
        self.head_bytes() + lengths + key_bytes + value_bytes
    }

    /// Where its lengths are, if they are long.
    fn lengths_at(self) -> usize {
        self.head_bytes()
    }
}

/// An item's first word, and where its parts lie, from the beginning of its slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    word: u64,
    pub key_at: usize,
    pub key_bytes: usize,
    pub value_bytes: usize,
}

impl Head {
    /// From the first word, and, if it is long, the word of the lengths.
    #[inline(always)]
    pub fn read(layout: Layout, word: u64, lengths: impl FnOnce(usize) -> u64) -> Head {
        let (key_at, key_bytes, value_bytes) = if flags(word) & LONG == 0 {
            (layout.head_bytes(), (word >> 32) as usize & 0xff, (word >> 48) as usize)
        } else {
            let lengths = lengths(layout.lengths_at());
            (layout.head_bytes() + 8, lengths as u32 as usize, (lengths >> 32) as usize)
        };
        Head { word, key_at, key_bytes, value_bytes }
    }

    /// Of a new item.
    #[inline(always)]
    pub fn new(layout: Layout, kind: Kind, expire_s: u32, key_bytes: usize, value_bytes: usize) -> Head {
        let is_long = Layout::is_long(key_bytes, value_bytes);
        let flags = LIVE | if is_long { LONG } else { 0 } | kind.number() << KIND_SHIFT;
        let short = |length: usize, shift: u32| if is_long { 0 } else { (length as u64) << shift };
        let word =
            u64::from(expire_s) | short(key_bytes, 32) | u64::from(flags) << 40 | short(value_bytes, 48);
        let key_at = layout.head_bytes() + 8 * usize::from(is_long);
        Head { word, key_at, key_bytes, value_bytes }
    }

    /// The first word.
    pub fn word(&self) -> u64 {
        self.word
    }

    /// The word of the lengths and where it stands, if there is one.
    pub fn lengths(&self, layout: Layout) -> Option<(usize, u64)> {
        let word = self.key_bytes as u64 | (self.value_bytes as u64) << 32;
        self.is_long().then(|| (layout.lengths_at(), word))
    }

    fn is_long(&self) -> bool {
        flags(self.word) & LONG != 0
    }

    /// Where the value lies.
    #[inline(always)]
    pub fn value_at(&self) -> usize {
        self.key_at + self.key_bytes
    }

    /// When it expires; 0 for never.
    #[inline(always)]
    pub fn expire_s(&self) -> u32 {
        self.word as u32
    }

    /// What its value is.
    pub fn kind(&self) -> Kind {
        Kind::of(flags(self.word) >> KIND_SHIFT)
    }

    /// Whether its value is bytes.
    #[inline(always)]
    pub fn is_string(&self) -> bool {
        flags(self.word) >> KIND_SHIFT == 0
    }

    /// Whether it was read since the hand of eviction passed.
    pub fn is_visited(&self) -> bool {
        flags(self.word) & VISITED != 0
    }
}

/// The same with another time of expiry.
pub(crate) fn with_expiry(word: u64, expire_s: u32) -> u64 {
    word & !u64::from(u32::MAX) | u64::from(expire_s)
}

/// The same, visited or not.
pub(crate) fn with_visited(word: u64, is_visited: bool) -> u64 {
    word & !(u64::from(VISITED) << 40) | u64::from(is_visited) << 42
}

/// Whether the slot holds an item.
pub(crate) fn is_live(word: u64) -> bool {
    flags(word) & LIVE != 0
}

/// Whether something that expires then has expired. The one place that says so (E4).
#[inline(always)]
pub(crate) fn is_expired(expire_s: u32, now_s: u32) -> bool {
    expire_s != NEVER && expire_s <= now_s
}

fn flags(word: u64) -> u8 {
    (word >> 40) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_back() {
        for (has_meta, has_links) in [(false, false), (true, false), (false, true), (true, true)] {
            let layout = Layout { has_meta, has_links };
            for (key, value) in [(1, 0), (255, 65_535), (256, 0), (0, 65_536), (65_535, 512 << 20)] {
                let head = Head::new(layout, Kind::Hash, 77, key, value);
                let lengths = head.lengths(layout);
                assert_eq!(lengths.is_some(), key > 255 || value > 65_535);
                let read = Head::read(layout, head.word(), |at| {
                    assert_eq!(Some(at), lengths.map(|(at, _)| at));
                    lengths.map(|(_, word)| word).expect("asked for only where it is")
                });
                assert_eq!((read.key_bytes, read.value_bytes, read.key_at), (key, value, head.key_at));
                assert_eq!(read.value_at() + value, layout.item_bytes(key, value));
                assert_eq!((read.kind(), read.expire_s()), (Kind::Hash, 77));
                assert!(is_live(read.word()) && !read.is_visited());
                let visited = with_visited(read.word(), true);
                assert!(Head::read(layout, visited, |_| 0).is_visited());
                assert_eq!(with_visited(visited, false), read.word());
                assert_eq!(with_expiry(read.word(), 9) as u32, 9);
            }
        }
        assert!(!is_live(0) && !is_expired(NEVER, 5) && is_expired(5, 5) && !is_expired(6, 5));
    }
}
