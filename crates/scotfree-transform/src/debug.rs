//! Messages as text, for logs and for tests that fail: the fields that are there, by their names.
//!
//! Invariant: of what is no UTF-8, bytes are shown; nothing is refused.

use crate::dynamic::Scalar;
use crate::message::{Message, Type, Value, View};
use crate::raw::read::Slots;
use crate::schema::{Field, Kind};
use std::fmt::{Debug, Formatter, Result};

impl<T: Type> Debug for Message<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.slots().fmt(f)
    }
}

impl<T: Type> Debug for Slots<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.view().fmt(f)
    }
}

impl Debug for View<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let schema = self.schema();
        let mut shown = f.debug_struct(&schema.name);
        for (field, name) in schema.fields.iter().zip(&*schema.names) {
            if !self.has(field) {
                continue;
            }
            if field.shape.is_many() {
                shown.field(name, &Many(*self, field));
            } else if let Some(value) = self.get(field) {
                shown.field(name, &One(field.kind, value));
            }
        }
        if self.unknown().next().is_some() {
            shown.finish_non_exhaustive()
        } else {
            shown.finish()
        }
    }
}

/// The values of a field of many.
struct Many<'m>(View<'m>, &'m Field);

impl Debug for Many<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Many(view, field) = self;
        f.debug_list()
            .entries((0..view.count(field)).map(|at| One(field.kind, view.element(field, at))))
            .finish()
    }
}

/// A value of a field of this kind.
struct One<'m>(Kind, Value<'m>);

impl Debug for One<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match (self.1, Scalar::of(self.0, self.1)) {
            (Value::Message(view), _) => view.fmt(f),
            (Value::Bytes(bytes), _) if self.0 == Kind::String => String::from_utf8_lossy(bytes).fmt(f),
            (Value::Bytes(bytes), _) => bytes.fmt(f),
            (_, Some(Scalar::Bool(value))) => value.fmt(f),
            (_, Some(Scalar::Signed(value))) => value.fmt(f),
            (_, Some(Scalar::Unsigned(value))) => value.fmt(f),
            // As a double it would have digits that nobody wrote.
            (_, Some(Scalar::Float(value))) if self.0 == Kind::Float => (value as f32).fmt(f),
            (_, Some(Scalar::Float(value))) => value.fmt(f),
            (Value::Number(bits), _) => bits.fmt(f),
        }
    }
}
