//! A decoded message as a dictionary.
//!
//! Invariant: what `write` makes of the dictionary is an equal message, unknown fields too unless they were not wanted.

use super::Schema;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};
use scotfree_transform::dynamic::Scalar;
use scotfree_transform::{Field, Kind, Shape, Utf8, Value, View};

/// The key of fields that the schema does not know: a name that no field has.
pub const UNKNOWN_FIELDS: &str = "";

/// How messages are read.
#[derive(Clone, Copy)]
pub struct Reading<'py, 's> {
    pub schema: &'s Schema,
    pub py: Python<'py>,
    pub with_defaults: bool,
    pub enum_numbers: bool,
    pub unknown_fields: bool,
}

impl<'py> Reading<'py, '_> {
    /// A message of the type at this place.
    pub fn dict(self, index: u16, view: View<'_>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(self.py);
        for (field, name) in view.schema().fields.iter().zip(&self.schema.names[index as usize]) {
            let value = if view.has(field) { self.field(view, field)? } else { None };
            let value = match value {
                None if self.with_defaults => self.default(field)?,
                value => value,
            };
            if let Some(value) = value {
                dict.set_item(name, value)?;
            }
        }
        if self.unknown_fields {
            let unknown: Vec<u8> = view.unknown().flatten().copied().collect();
            if !unknown.is_empty() {
                dict.set_item(UNKNOWN_FIELDS, PyBytes::new(self.py, &unknown))?;
            }
        }
        Ok(dict)
    }

    /// A field that is there.
    fn field(self, view: View<'_>, field: &Field) -> PyResult<Option<Bound<'py, PyAny>>> {
        match field.shape {
            Shape::Implicit | Shape::Explicit | Shape::Required => {
                view.get(field).map(|value| self.value(field, value)).transpose()
            }
            Shape::Map => Ok(Some(self.map(view, field)?.into_any())),
            Shape::Repeated | Shape::Packed => Ok(Some(self.list(view, field)?.into_any())),
        }
    }

    fn list(self, view: View<'_>, field: &Field) -> PyResult<Bound<'py, PyList>> {
        let mut values = Vec::with_capacity(view.count(field));
        for index in 0..view.count(field) {
            values.push(self.value(field, view.element(field, index))?);
        }
        PyList::new(self.py, values)
    }

    fn map(self, view: View<'_>, field: &Field) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(self.py);
        for index in 0..view.count(field) {
            let Value::Message(entry) = view.element(field, index) else { continue };
            let [key, value] = &*entry.schema().fields else { continue };
            dict.set_item(self.entry_part(entry, key)?, self.entry_part(entry, value)?)?;
        }
        Ok(dict)
    }

    /// A map entry's key or value, zero or empty where it is not there.
    fn entry_part(self, entry: View<'_>, field: &Field) -> PyResult<Bound<'py, PyAny>> {
        match (entry.get(field), Scalar::zero(field.kind)) {
            (Some(value), _) => self.value(field, value),
            (None, Some(zero)) => self.scalar(field, zero),
            (None, None) if self.with_defaults => Ok(self.empty(field.sub)?.into_any()),
            (None, None) => Ok(PyDict::new(self.py).into_any()),
        }
    }

    /// An empty message with its defaults.
    fn empty(self, index: u16) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(self.py);
        let fields = self.schema.loaded.types.types[index as usize].fields.iter();
        for (field, name) in fields.zip(&self.schema.names[index as usize]) {
            if let Some(default) = self.default(field)? {
                dict.set_item(name, default)?;
            }
        }
        Ok(dict)
    }

    /// What stands for a field that is not there: nothing, where its absence says something.
    fn default(self, field: &Field) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match field.shape {
            Shape::Map => Some(PyDict::new(self.py).into_any()),
            Shape::Repeated | Shape::Packed => Some(PyList::empty(self.py).into_any()),
            Shape::Implicit => Scalar::zero(field.kind).map(|zero| self.scalar(field, zero)).transpose()?,
            Shape::Explicit | Shape::Required => None,
        })
    }

    fn value(self, field: &Field, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
        match (value, field.kind) {
            (Value::Message(message), _) => Ok(self.dict(field.sub, message)?.into_any()),
            (Value::Bytes(bytes), kind) => self.bytes(kind, field.utf8, bytes),
            (number, kind) => match Scalar::of(kind, number) {
                Some(scalar) => self.scalar(field, scalar),
                None => Ok(self.py.None().into_bound(self.py)),
            },
        }
    }

    fn scalar(self, field: &Field, scalar: Scalar<'_>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        Ok(match scalar {
            Scalar::Bool(is_true) => PyBool::new(py, is_true).to_owned().into_any(),
            Scalar::Float(value) => PyFloat::new(py, value).into_any(),
            Scalar::Unsigned(value) => PyInt::new(py, value).into_any(),
            Scalar::Bytes(bytes) => return self.bytes(field.kind, field.utf8, bytes),
            Scalar::Signed(value) => match self.name(field, value) {
                Some(name) => name.bind(py).clone().into_any(),
                None => PyInt::new(py, value).into_any(),
            },
        })
    }

    /// The name of an enumeration's number, if it has one and it is wanted.
    fn name(self, field: &Field, number: i64) -> Option<&'py Py<PyString>>
    where
        Self: 'py,
    {
        let is_enum = matches!(field.kind, Kind::Enum | Kind::ClosedEnum);
        let names = (is_enum && !self.enum_numbers).then(|| &self.schema.enums[field.sub as usize])?;
        names.by_number.get(&(number as i32))
    }

    /// A string or bytes. A string that nobody has looked at may be none: its bytes are kept as lone surrogates are,
    /// of which `write` makes the same bytes.
    fn bytes(self, kind: Kind, utf8: Utf8, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let raw = || PyBytes::new(self.py, bytes);
        if kind != Kind::String {
            return Ok(raw().into_any());
        }
        match (std::str::from_utf8(bytes), utf8) {
            (Ok(text), _) => Ok(PyString::new(self.py, text).into_any()),
            (Err(_), Utf8::Checked | Utf8::Unchecked) => {
                Ok(PyString::from_encoded_object(&raw(), Some(c"utf-8"), Some(c"surrogateescape"))?
                    .into_any())
            }
        }
    }
}
