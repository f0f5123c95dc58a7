//! Many messages at once (Optimus Prime, 6.2.2: as one is at its end, the next one has begun).
//!
//! Invariant: each message is decoded as it would be alone, within limits that are its own; one that is refused leaves
//! nothing in the arena, and says nothing of those beside it.

use super::encode::with_length;
use super::wire::Bytes;
use super::{copy_to, encode_on, straight, COPIED_MAX};
use crate::arena::{Arena, Offset};
use crate::error::DecodeError;
use crate::input::Input;
use crate::limits::Limits;
use crate::message::Type;
use crate::raw::path::chosen;
use crate::raw::read::Slots;
use std::marker::PhantomData;

/// Where one message of a batch lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root {
    slots: Offset,
    /// Where its copy begins in the arena, if there is one.
    copied: Option<usize>,
}

/// Messages that were decoded together, or why they were not; each at its input's place.
pub struct Batch<'m, T: Type> {
    inputs: &'m [Input<'m>],
    arena: &'m Arena,
    of: PhantomData<fn() -> T>,
}

impl<'m, T: Type> Batch<'m, T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// One of them. Panics, if there are not so many.
    pub fn get(&self, index: usize) -> Result<T::Ref<'m>, DecodeError> {
        self.slots(index).map(T::reader)
    }

    /// All, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<T::Ref<'m>, DecodeError>> + use<'m, '_, T> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The same as its slots.
    #[doc(hidden)]
    pub fn slots(&self, index: usize) -> Result<Slots<'m, T>, DecodeError> {
        let Root { slots, copied } = self.arena.roots[index]?;
        let input = match (copied, self.inputs[index]) {
            (Some(at), _) => &self.arena.input[at..],
            (None, Input::Padded(padded)) => padded.parts().0,
            (None, Input::Slice(bytes)) => bytes,
        };
        Ok(Slots::new(&self.arena.memory.bytes, input, slots))
    }
}

/// Decodes messages of one type into one arena; from the second batch of a size on nothing is asked of the heap.
///
/// The limits are those of each message.
pub fn decode_batch<'m, T: Type>(
    inputs: &'m [Input<'m>],
    arena: &'m mut Arena,
    limits: &Limits,
) -> Batch<'m, T> {
    let mut copied_bytes = 0;
    arena.roots.clear();
    for &input in inputs {
        let used = arena.memory.used;
        let root = one::<T>(input, arena, &mut copied_bytes, limits);
        if root.is_err() {
            arena.memory.used = used;
        }
        arena.roots.push(root);
    }
    Batch { inputs, arena, of: PhantomData }
}

fn one<T: Type>(
    input: Input<'_>,
    arena: &mut Arena,
    copied_bytes: &mut usize,
    limits: &Limits,
) -> Result<Root, DecodeError> {
    let (whole, bytes, copied) = match input {
        Input::Padded(padded) => {
            let (whole, bytes) = padded.parts();
            (whole, bytes, None)
        }
        Input::Slice(slice) if slice.len() > COPIED_MAX => (slice, slice.len(), None),
        Input::Slice(slice) => {
            let at = *copied_bytes;
            copy_to(slice, &mut arena.input, at);
            *copied_bytes = at + slice.len();
            (&arena.input[at..], slice.len(), Some(at))
        }
    };
    let slots = straight::<T>(chosen(), whole, bytes, &mut arena.memory, limits)?;
    Ok(Root { slots, copied })
}

/// Appends a message behind its length, as streams of messages have them.
pub fn encode_delimited<T: Type>(message: Slots<'_, T>, out: &mut Vec<u8>) {
    let path = chosen();
    with_length(out, |out| encode_on(path, message, out));
}

/// Appends messages, each behind its length.
pub fn encode_batch<'m, T: Type>(messages: impl IntoIterator<Item = Slots<'m, T>>, out: &mut Vec<u8>) {
    messages.into_iter().for_each(|message| encode_delimited(message, out));
}

/// Messages that stand each behind its length; the last one is an error, if it is cut.
pub fn delimited(stream: &[u8]) -> impl Iterator<Item = Result<&[u8], DecodeError>> {
    let mut bytes = Bytes { input: stream, at: 0 };
    std::iter::from_fn(move || {
        let left = bytes.at < stream.len();
        left.then(|| match bytes.length(stream.len()) {
            Ok(until) => {
                let message = &stream[bytes.at..until];
                bytes.at = until;
                Ok(message)
            }
            Err(error) => {
                bytes.at = stream.len();
                Err(error)
            }
        })
    })
}
