//! tonic's messages by Scotfree's codec: what `scotfree-tonic-build` generates calls it.
//!
//! Invariant: the bytes of a message are Protobuf's, so that either side of a call may have another codec.

use bytes::Buf;
use bytes::BufMut;
pub use scotfree_transform as transform;
pub use scotfree_transform::{Limits, Message, Owned};
use std::cell::RefCell;
use std::marker::PhantomData;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::Status;

/// Sends `T` and receives `U`: plain structs, or messages as their slots ([`Message`]).
#[derive(Debug)]
pub struct ScotfreeCodec<T, U> {
    of: PhantomData<fn(T) -> U>,
}

impl<T, U> Default for ScotfreeCodec<T, U> {
    fn default() -> Self {
        ScotfreeCodec { of: PhantomData }
    }
}

impl<T: Owned, U: Owned> Codec for ScotfreeCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = Sending<T>;
    type Decoder = Receiving<U>;

    fn encoder(&mut self) -> Sending<T> {
        Sending(PhantomData)
    }

    fn decoder(&mut self) -> Receiving<U> {
        Receiving { limits: Limits::default(), of: PhantomData }
    }
}

/// Encodes.
#[derive(Debug)]
pub struct Sending<T>(PhantomData<fn(T)>);

/// What a thread keeps to encode the next message into: more than this is given back.
const KEPT_MAX: usize = 256 << 10;

thread_local! {
    // A message is written as a whole before tonic's buffer is asked for room, and a call has an encoder of its own.
    static OUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<T: Owned> Encoder for Sending<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        OUT.with_borrow_mut(|out| {
            out.clear();
            item.encode(out);
            to.reserve(out.len());
            to.put_slice(out);
            if out.capacity() > KEPT_MAX {
                *out = Vec::new();
            }
        });
        Ok(())
    }
}

/// Decodes.
#[derive(Debug)]
pub struct Receiving<U> {
    limits: Limits,
    of: PhantomData<fn() -> U>,
}

impl<U: Owned> Decoder for Receiving<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = from.remaining();
        let decoded = if from.chunk().len() == bytes {
            let decoded = U::decode(from.chunk(), &self.limits);
            from.advance(bytes);
            decoded
        } else {
            U::decode(&from.copy_to_bytes(bytes), &self.limits)
        };
        // As tonic answers where another codec refuses a message.
        decoded.map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
