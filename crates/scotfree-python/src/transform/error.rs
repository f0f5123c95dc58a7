//! What is wrong with a value or with bytes, as Python's exceptions: the path to the field, what was given, what is
//! expected.

use super::Schema;
use pyo3::create_exception;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use scotfree_transform::{dynamic, DecodeError as Refused};

create_exception!(scotfree.transform, SchemaError, PyValueError, "Bytes that are no set of descriptors.");
create_exception!(scotfree.transform, DecodeError, PyValueError, "Bytes that are no message of the type.");
create_exception!(
    scotfree.transform,
    FieldTypeError,
    PyTypeError,
    "A value of a type that the field does not take."
);
create_exception!(scotfree.transform, FieldValueError, PyValueError, "A value that the field does not take.");

/// Names and values are shown up to so many characters.
const SHOWN_MAX: usize = 80;

/// A value that a field does not take.
pub enum Wrong {
    /// Its own words are to be told.
    Field(Box<WrongField>),
    /// What Python raised meanwhile.
    Raised(PyErr),
}

/// See above; the path grows from its end.
pub struct WrongField {
    path: String,
    given: String,
    expected: String,
    is_type: bool,
}

impl From<PyErr> for Wrong {
    fn from(error: PyErr) -> Wrong {
        Wrong::Raised(error)
    }
}

impl Wrong {
    /// A value of a type that is not the field's.
    pub fn of_type(given: &Bound<'_, PyAny>, expected: impl Into<String>) -> Wrong {
        let name = given.get_type().qualname();
        let name = name.map_or_else(|_| "something".to_owned(), |name| name.to_string());
        Wrong::new(name, expected.into(), true)
    }

    /// A value beyond what the field takes.
    pub fn of_value(given: &Bound<'_, PyAny>, expected: impl Into<String>) -> Wrong {
        Wrong::new(shown(given), expected.into(), false)
    }

    /// The same in words.
    pub fn value(given: impl Into<String>, expected: impl Into<String>) -> Wrong {
        Wrong::new(given.into(), expected.into(), false)
    }

    fn new(given: String, expected: String, is_type: bool) -> Wrong {
        Wrong::Field(Box::new(WrongField { path: String::new(), given, expected, is_type }))
    }

    /// The same, seen from the message or the list that the field is in.
    pub fn within(mut self, step: &str) -> Wrong {
        if let Wrong::Field(field) = &mut self {
            let dot = if field.path.is_empty() || field.path.starts_with('[') { "" } else { "." };
            field.path = format!("{step}{dot}{}", field.path);
        }
        self
    }

    /// As the exception.
    pub fn raised(self, py: Python<'_>) -> PyErr {
        let WrongField { path, given, expected, is_type } = match self {
            Wrong::Field(field) => *field,
            Wrong::Raised(error) => return error,
        };
        let place = if path.is_empty() { "the message" } else { &path };
        let text = format!("{place}: {given} was given; expected {expected}");
        let error = if is_type { FieldTypeError::new_err(text) } else { FieldValueError::new_err(text) };
        with(py, error, &[("path", &path), ("given", &given), ("expected", &expected)])
    }
}

/// A value in Python's words, not longer than is read at a glance.
pub fn shown(value: &Bound<'_, PyAny>) -> String {
    let text =
        value.repr().map_or_else(|_| "something".to_owned(), |text| text.to_string_lossy().into_owned());
    let mut letters = text.chars();
    let head: String = letters.by_ref().take(SHOWN_MAX).collect();
    head + if letters.next().is_some() { "…" } else { "" }
}

/// Why bytes are no message, and in which field.
pub fn refused_bytes(py: Python<'_>, schema: &Schema, index: u16, input: &[u8], why: Refused) -> PyErr {
    let types = &schema.loaded.types;
    let (at, path) = match why.at() {
        Some(at) => (Some(at), dynamic::path_at(types, index, input, at)),
        None => (None, String::new()),
    };
    let name = &types.types[index as usize].name;
    let place = if path.is_empty() { String::new() } else { format!(", {path}") };
    let error = DecodeError::new_err(format!("{name}{place}: {why}"));
    let error = with(py, error, &[("path", &path)]);
    // Setting an attribute of our own exception does not fail.
    let _ = error.value(py).setattr("at", at);
    error
}

fn with(py: Python<'_>, error: PyErr, attributes: &[(&str, &String)]) -> PyErr {
    for (name, value) in attributes {
        // As above.
        let _ = error.value(py).setattr(*name, *value);
    }
    error
}

/// The same with a line more below it.
pub fn note(py: Python<'_>, error: PyErr, line: &str) -> PyErr {
    // An exception that takes no notes is told without.
    let _ = error.value(py).call_method1("add_note", (line,));
    error
}
