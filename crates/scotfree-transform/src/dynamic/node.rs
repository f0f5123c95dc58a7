//! A message that owns what it refers to, with names for the messages within it.
//!
//! Invariant: a node names a message of the last decoding or clearing; an older one is refused.

use super::edit::begin;
use super::{Editor, Misfit};
use crate::arena::{Arena, Offset};
use crate::descriptor::Loaded;
use crate::error::{DecodeError, Exhausted};
use crate::limits::Limits;
use crate::message::{Value, View};
use crate::protobuf;
use crate::protobuf::decode::decode_into;
use std::sync::Arc;

/// A message within a [`Dynamic`], or that itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node(u64);

impl Node {
    /// The message itself, whatever is decoded.
    pub const ROOT: Node = Node(0);

    /// As a number, for languages that have nothing else.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The reverse: any number may be given, and one that no node has is refused where it is used.
    pub fn from_number(number: u64) -> Node {
        Node(number)
    }
}

/// What a node stands for.
#[derive(Debug, Clone, Copy)]
struct Place {
    index: u16,
    slots: Offset,
    depth_left: u16,
}

/// A message of a type of a loaded set. It is used again for message after message.
pub struct Dynamic {
    of: Arc<Loaded>,
    arena: Arena,
    limits: Limits,
    /// The first is the message itself.
    places: Vec<Place>,
    /// Which decoding or clearing it was.
    turn: u32,
}

impl Dynamic {
    /// An empty one of the type at this place.
    pub fn new(of: Arc<Loaded>, index: u16, limits: Limits) -> Result<Self, Misfit> {
        let root = Place { index, slots: 0, depth_left: limits.depth_max.saturating_sub(1) };
        let mut message = Dynamic { of, arena: Arena::new(), limits, places: vec![root], turn: 0 };
        message.clear()?;
        Ok(message)
    }

    /// Empties it.
    pub fn clear(&mut self) -> Result<(), Misfit> {
        self.turn = self.turn.wrapping_add(1);
        self.places.truncate(1);
        let (index, depth_max) = (self.places[0].index, self.limits.depth_max);
        self.places[0].slots = begin(&self.of.types, index, &mut self.arena, depth_max)?.slots;
        Ok(())
    }

    /// Decodes a copy of the bytes. It is empty where that is an error.
    pub fn decode(&mut self, input: &[u8]) -> Result<(), DecodeError> {
        self.turn = self.turn.wrapping_add(1);
        self.places.truncate(1);
        self.arena.reset();
        let decoded = self.decoded(input);
        match decoded {
            Ok(slots) => self.places[0].slots = slots,
            // Of slots there is room for one message, at least.
            Err(_) => self.clear().map_err(|_| Exhausted)?,
        }
        decoded.map(drop)
    }

    fn decoded(&mut self, input: &[u8]) -> Result<Offset, DecodeError> {
        let Arena { memory, input: copy, .. } = &mut self.arena;
        // Before it is copied.
        protobuf::decode::begin(input.len(), memory, &self.limits)?;
        protobuf::copy(input, copy);
        let index = self.places[0].index;
        let decoded = decode_into(&self.of.types, index, &copy[..input.len()], memory, &self.limits);
        memory.limit = i32::MAX as u32;
        decoded
    }

    /// Whether bytes lie in it, so that they are gone when it changes.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        let lie_in = |of: &Vec<u8>| of.as_ptr_range().contains(&bytes.as_ptr());
        lie_in(&self.arena.memory.bytes) || lie_in(&self.arena.input)
    }

    /// The set that its type is of.
    pub fn loaded(&self) -> &Arc<Loaded> {
        &self.of
    }

    /// A node's type.
    pub fn index(&self, node: Node) -> Result<u16, Misfit> {
        self.place(node).map(|place| place.index)
    }

    /// To be read.
    pub fn view(&self, node: Node) -> Result<View<'_>, Misfit> {
        let Place { index, slots, .. } = self.place(node)?;
        let types = &self.of.types;
        let schema = &types.types[index as usize];
        Ok(View { types, schema, memory: &self.arena.memory.bytes, input: &self.arena.input, slots })
    }

    /// To be filled or changed.
    pub fn edit(&mut self, node: Node) -> Result<Editor<'_>, Misfit> {
        let Place { index, slots, depth_left } = self.place(node)?;
        let types = &self.of.types;
        let schema = &types.types[index as usize];
        Ok(Editor {
            types,
            schema,
            memory: &mut self.arena.memory,
            input: &self.arena.input,
            slots,
            depth_left,
        })
    }

    /// The message of a field, of many the one at `index`, if it is there.
    pub fn find(&mut self, node: Node, field: usize, index: usize) -> Result<Node, Misfit> {
        let (place, view) = (self.place(node)?, self.view(node)?);
        let of = view.schema().fields.get(field).ok_or(Misfit::NoField)?;
        let value = if of.shape.is_many() {
            (index < view.count(of)).then(|| view.element(of, index)).ok_or(Misfit::NoElement)?
        } else {
            view.get(of).ok_or(Misfit::Absent)?
        };
        let Value::Message(View { slots, .. }) = value else { return Err(Misfit::Kind) };
        let depth_left = place.depth_left.saturating_sub(1);
        self.named(Place { index: of.sub, slots, depth_left })
    }

    /// The message of a field of one, an empty one if it was not there.
    pub fn within(&mut self, node: Node, field: usize) -> Result<Node, Misfit> {
        let index = self.sub(node, field)?;
        let Editor { slots, depth_left, .. } = self.edit(node)?.message(field)?;
        self.named(Place { index, slots, depth_left })
    }

    /// An empty message behind those of a field of many.
    pub fn push(&mut self, node: Node, field: usize) -> Result<Node, Misfit> {
        let index = self.sub(node, field)?;
        let Editor { slots, depth_left, .. } = self.edit(node)?.push_message(field)?;
        self.named(Place { index, slots, depth_left })
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Misfit> {
        protobuf::table::encode(self.view(Node::ROOT)?, out);
        Ok(())
    }

    /// The type of messages within a field.
    fn sub(&self, node: Node, field: usize) -> Result<u16, Misfit> {
        self.view(node)?.schema().fields.get(field).map(|field| field.sub).ok_or(Misfit::NoField)
    }

    fn named(&mut self, place: Place) -> Result<Node, Misfit> {
        let number = u32::try_from(self.places.len()).map_err(|_| Misfit::Range)?;
        self.places.push(place);
        Ok(Node(u64::from(self.turn) << 32 | u64::from(number)))
    }

    fn place(&self, node: Node) -> Result<Place, Misfit> {
        let (turn, number) = ((node.0 >> 32) as u32, node.0 as u32);
        if node != Node::ROOT && (turn != self.turn || number == 0) {
            return Err(Misfit::Stale);
        }
        self.places.get(number as usize).copied().ok_or(Misfit::Stale)
    }
}
