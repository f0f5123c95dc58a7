//! What is decoded: bytes as they lie somewhere, or bytes that others follow.
//!
//! Invariant: behind a padded message there are at least `Padded::BEHIND` bytes of the same buffer. Whatever they are, a
//! message is decoded as without them.

/// A message behind which bytes may be read, so that a short one need not be copied to be decoded.
///
/// ```
/// use scotfree_transform::Padded;
/// // Of a buffer with room behind what was received, as a receive buffer mostly has it:
/// let received = [8, 1];
/// let mut buffer = [0; 4096];
/// buffer[..2].copy_from_slice(&received);
/// assert_eq!(Padded::within(&buffer, 2).unwrap().message(), received);
/// // Of a vector, which grows by what has to follow:
/// let mut vector = received.to_vec();
/// assert_eq!(Padded::of(&mut vector).message(), received);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Padded<'a> {
    whole: &'a [u8],
    bytes: usize,
}

impl<'a> Padded<'a> {
    /// So many bytes follow a message: as many as are looked at ahead at once.
    pub const BEHIND: usize = 96;

    /// The first bytes of a buffer; none, if too few follow.
    #[inline]
    pub fn within(buffer: &'a [u8], bytes: usize) -> Option<Self> {
        let follow = buffer.len().checked_sub(bytes)?;
        (follow >= Self::BEHIND).then_some(Padded { whole: buffer, bytes })
    }

    /// All bytes of a vector, behind which others are put; only where it has no capacity for these it moves.
    pub fn of(message: &'a mut Vec<u8>) -> Self {
        let bytes = message.len();
        message.resize(bytes + Self::BEHIND, 0);
        Padded { whole: message, bytes }
    }

    /// The message.
    #[inline]
    pub fn message(self) -> &'a [u8] {
        &self.whole[..self.bytes]
    }

    /// The buffer that it begins, and how many bytes it has.
    #[inline(always)]
    pub(crate) fn parts(self) -> (&'a [u8], usize) {
        (self.whole, self.bytes)
    }
}

/// One or the other.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// It is read where it lies.
    Padded(Padded<'a>),
    /// A short one is copied, so that bytes follow it.
    Slice(&'a [u8]),
}

impl<'a> Input<'a> {
    /// The message.
    pub fn message(self) -> &'a [u8] {
        match self {
            Input::Padded(padded) => padded.message(),
            Input::Slice(bytes) => bytes,
        }
    }
}

impl<'a> From<Padded<'a>> for Input<'a> {
    fn from(padded: Padded<'a>) -> Self {
        Input::Padded(padded)
    }
}

impl<'a> From<&'a [u8]> for Input<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Input::Slice(bytes)
    }
}
