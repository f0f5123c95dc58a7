//! A dictionary as a message.
//!
//! Invariant: a dictionary is asked by keys and never walked while other code of Python may run, so that whoever changes
//! it meanwhile changes at most what is encoded.

use super::error::{shown, Wrong};
use super::read::UNKNOWN_FIELDS;
use super::Schema;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use scotfree_transform::dynamic::{Editor, Misfit, Scalar};
use scotfree_transform::{Field, Kind, Shape, Utf8, NONE};

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

/// Fills a message of the type at `index`.
pub fn fill(
    schema: &Schema,
    editor: &mut Editor<'_>,
    index: u16,
    message: Object<'_, '_>,
) -> Result<(), Wrong> {
    let dict = message.cast::<PyDict>().map_err(|_| Wrong::of_type(message, "a dict"))?;
    let (of, names) = (editor.schema(), &schema.names[index as usize]);
    let mut known = 0;
    for (place, name) in names.iter().enumerate() {
        let Some(value) = dict.get_item(name)? else { continue };
        known += 1;
        // None says that a field is not there.
        if value.is_none() {
            continue;
        }
        field(schema, editor, place, &of.fields[place], &value)
            .map_err(|wrong| wrong.within(&of.names[place]))?;
    }
    if known < dict.len() {
        others(editor, dict)?;
    }
    Ok(())
}

/// What is in a dictionary beside fields: the unknown ones, or a key that is wrong.
fn others(editor: &mut Editor<'_>, dict: &Bound<'_, PyDict>) -> Result<(), Wrong> {
    let schema = editor.schema();
    for key in dict.keys() {
        let Ok(name) = key.extract::<String>() else {
            return Err(Wrong::of_type(&key, "a field's name as key"));
        };
        if name == UNKNOWN_FIELDS {
            let Some(value) = dict.get_item(&key)? else { continue };
            let bytes = value
                .cast::<PyBytes>()
                .map_err(|_| Wrong::of_type(&value, "unknown fields as bytes").within("\"\""))?;
            editor
                .keep_unknown(bytes.as_bytes())
                .map_err(|why| Wrong::of_value(&value, format!("unknown fields ({why})")).within("\"\""))?;
        } else if schema.named(&name).is_none() {
            let fields: Vec<&str> = schema.names.iter().take(FIELDS_SHOWN_MAX).map(|name| &**name).collect();
            let more = if schema.names.len() > FIELDS_SHOWN_MAX { ", …" } else { "" };
            let expected = format!("a field of {}: {}{more}", schema.name, fields.join(", "));
            return Err(Wrong::value(format!("the key {}", shown(&key)), expected));
        }
    }
    Ok(())
}

/// So many of a message's fields are named where a key is none of them.
const FIELDS_SHOWN_MAX: usize = 20;

fn field(
    schema: &Schema,
    editor: &mut Editor<'_>,
    place: usize,
    field: &Field,
    value: Object<'_, '_>,
) -> Result<(), Wrong> {
    match field.shape {
        Shape::Map => map(schema, editor, place, field, value),
        Shape::Repeated | Shape::Packed => list(schema, editor, place, field, value),
        Shape::Implicit | Shape::Explicit | Shape::Required => {
            if field.oneof != NONE && editor.has_member_beside(field) {
                let expected = "one field of a oneof, of which another one is given, too";
                return Err(Wrong::of_value(value, expected));
            }
            put(schema, editor, place, field, value, Put::Set)
        }
    }
}

/// Where a value goes: to its field, or behind those that are there.
#[derive(Clone, Copy)]
enum Put {
    Set,
    Push,
}

fn put(
    schema: &Schema,
    editor: &mut Editor<'_>,
    place: usize,
    field: &Field,
    value: Object<'_, '_>,
    how: Put,
) -> Result<(), Wrong> {
    if let Kind::Message | Kind::Group = field.kind {
        let within = match how {
            Put::Set => editor.message(place),
            Put::Push => editor.push_message(place),
        };
        let mut within = within.map_err(|why| misfit(field, value, why))?;
        return fill(schema, &mut within, field.sub, value);
    }
    scalar(schema, field, value, |scalar| match how {
        Put::Set => editor.set(place, scalar),
        Put::Push => editor.push(place, scalar),
    })
}

fn list(
    schema: &Schema,
    editor: &mut Editor<'_>,
    place: usize,
    field: &Field,
    values: Object<'_, '_>,
) -> Result<(), Wrong> {
    let mut next = |index: usize, value: PyResult<Bound<'_, PyAny>>| {
        put(schema, editor, place, field, &value?, Put::Push)
            .map_err(|wrong| wrong.within(&format!("[{index}]")))
    };
    if let Ok(list) = values.cast::<PyList>() {
        // Asked for its length each time: it may get shorter.
        let mut index = 0;
        while index < list.len() {
            next(index, list.get_item(index))?;
            index += 1;
        }
        return Ok(());
    }
    match values.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().enumerate().try_for_each(|(index, value)| next(index, Ok(value))),
        Err(_) => Err(Wrong::of_type(values, "a list or tuple")),
    }
}

fn map(
    schema: &Schema,
    editor: &mut Editor<'_>,
    place: usize,
    field: &Field,
    value: Object<'_, '_>,
) -> Result<(), Wrong> {
    let dict = value.cast::<PyDict>().map_err(|_| Wrong::of_type(value, "a dict"))?;
    for key in dict.keys() {
        let Some(value) = dict.get_item(&key)? else { continue };
        let mut entry = editor.push_message(place).map_err(|why| misfit(field, &value, why))?;
        let [of_key, of_value] = &*entry.schema().fields else { continue };
        let at = || format!("[{}]", shown(&key));
        put(schema, &mut entry, 0, of_key, &key, Put::Set)
            .map_err(|wrong| wrong.within("key").within(&at()))?;
        put(schema, &mut entry, 1, of_value, &value, Put::Set).map_err(|wrong| wrong.within(&at()))?;
    }
    Ok(())
}

/// Gives `take` the value as one of this field.
fn scalar(
    schema: &Schema,
    field: &Field,
    value: Object<'_, '_>,
    take: impl FnOnce(Scalar<'_>) -> Result<(), Misfit>,
) -> Result<(), Wrong> {
    let taken = match field.kind {
        Kind::String => return text(field, value, take),
        Kind::Bytes | Kind::Uuid => {
            if let Ok(bytes) = value.cast::<PyBytes>() {
                take(Scalar::Bytes(bytes.as_bytes()))
            } else if let Ok(bytes) = value.cast::<PyByteArray>() {
                take(Scalar::Bytes(&bytes.to_vec()))
            } else {
                Err(Misfit::Kind)
            }
        }
        Kind::Bool => match value.cast::<PyBool>() {
            Ok(is_true) => take(Scalar::Bool(is_true.is_true())),
            Err(_) => Err(Misfit::Kind),
        },
        Kind::Float | Kind::Double => take(float(field, value)?),
        Kind::Enum | Kind::ClosedEnum => take(number_of_enum(schema, field, value)?),
        _ => take(whole(field, value)?),
    };
    taken.map_err(|why| misfit(field, value, why))
}

fn text(
    field: &Field,
    value: Object<'_, '_>,
    take: impl FnOnce(Scalar<'_>) -> Result<(), Misfit>,
) -> Result<(), Wrong> {
    let text = value.cast::<PyString>().map_err(|_| misfit(field, value, Misfit::Kind))?;
    let taken = match (text.to_cow(), field.utf8) {
        (Ok(text), _) => take(Scalar::Bytes(text.as_bytes())),
        // As it was decoded: what is no UTF-8 stands as lone surrogates.
        (Err(_), Utf8::Unchecked) => match text.call_method1("encode", ("utf-8", "surrogateescape")) {
            Ok(bytes) => take(Scalar::Bytes(bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes())),
            Err(_) => Err(Misfit::NotUtf8),
        },
        (Err(_), Utf8::Checked) => Err(Misfit::NotUtf8),
    };
    taken.map_err(|why| misfit(field, value, why))
}

/// A number without a point, by `__index__`.
fn whole<'v>(field: &Field, value: Object<'_, '_>) -> Result<Scalar<'v>, Wrong> {
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Scalar::Signed(number));
    }
    value.extract::<u64>().map(Scalar::Unsigned).map_err(|error| raised(field, value, error))
}

fn float<'v>(field: &Field, value: Object<'_, '_>) -> Result<Scalar<'v>, Wrong> {
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(Scalar::Float(number.value()));
    }
    value.extract::<f64>().map(Scalar::Float).map_err(|error| raised(field, value, error))
}

fn number_of_enum<'v>(schema: &Schema, field: &Field, value: Object<'_, '_>) -> Result<Scalar<'v>, Wrong> {
    let Ok(name) = value.cast::<PyString>() else { return whole(field, value) };
    let names = &schema.enums[field.sub as usize].by_name;
    let number = name.to_cow().ok().and_then(|name| names.get(&*name).copied());
    number.map(|number| Scalar::Signed(number.into())).ok_or_else(|| misfit(field, value, Misfit::NotInEnum))
}

/// What Python raised of a number: that it is none, that it is too large, or what its own methods raised.
fn raised(field: &Field, value: Object<'_, '_>, error: PyErr) -> Wrong {
    let py = value.py();
    if error.is_instance_of::<PyOverflowError>(py) {
        misfit(field, value, Misfit::Range)
    } else if error.is_instance_of::<PyTypeError>(py) && !value.is_instance_of::<PyInt>() {
        misfit(field, value, Misfit::Kind)
    } else {
        Wrong::Raised(error)
    }
}

fn misfit(field: &Field, value: Object<'_, '_>, why: Misfit) -> Wrong {
    match why {
        Misfit::Kind => Wrong::of_type(value, expected(field.kind)),
        Misfit::Range => Wrong::of_value(value, expected(field.kind)),
        Misfit::NotInEnum => Wrong::of_value(value, "a name or number of its enumeration"),
        Misfit::NotUtf8 => Wrong::of_value(value, "a str without lone surrogates"),
        Misfit::TooDeep => {
            Wrong::value("a message", "messages that are not deeper in each other than depth_max")
        }
        why => Wrong::value("a value", why.to_string()),
    }
}

/// What a field takes, in Python's words.
fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "a bool",
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "an int of 32 bits",
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "an int of 64 bits",
        Kind::Uint32 | Kind::Fixed32 => "an int of 32 bits that is not negative",
        Kind::Uint64 | Kind::Fixed64 => "an int of 64 bits that is not negative",
        Kind::Float => "a float of 32 bits",
        Kind::Double => "a float",
        Kind::Enum | Kind::ClosedEnum => "a str or an int of 32 bits",
        Kind::String => "a str",
        Kind::Bytes => "bytes",
        Kind::Message | Kind::Group => "a dict",
        Kind::Int8 => "an int of 8 bits",
        Kind::Int16 => "an int of 16 bits",
        Kind::Uuid => "16 bytes",
    }
}
