//! Messages between bytes and dictionaries, by descriptors: `scotfree.transform`.
//!
//! Invariant: an arena is taken for a call and given back behind it, so that what Python runs in between, a finalizer or
//! `__index__`, finds another one.

mod error;
mod read;
mod write;

pub use error::{DecodeError, FieldTypeError, FieldValueError, SchemaError};

use error::{refused_bytes, Wrong};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use read::Reading;
use scotfree_transform::descriptor::{self, Loaded};
use scotfree_transform::{dynamic, protobuf, Arena, Limits, View};
use std::cell::RefCell;
use std::collections::HashMap;

/// A message within another one takes 2 KiB of the stack, and a thread of Python may have as little as 1 MiB.
const DEPTH_MAX: u16 = 400;
/// From so many bytes on, other threads of Python run meanwhile; below, giving them the turn costs more than it brings.
const DETACHED_BYTES: usize = 16 << 10;
/// So many messages of a batch are decoded at once, each in an arena of its own.
const BATCH: usize = 64;
/// An arena that has grown beyond this is not kept for the next call.
const KEPT_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static SPARE: RefCell<Arena> = RefCell::default();
}

/// Does something with an arena.
fn with_arena<R>(work: impl FnOnce(&mut Arena) -> R) -> R {
    let mut arena = SPARE.take();
    arena.reset();
    let result = work(&mut arena);
    if arena.room_bytes() <= KEPT_BYTES_MAX {
        SPARE.set(arena);
    }
    result
}

/// The types of a set of descriptors.
#[pyclass(frozen, module = "scotfree.transform")]
pub struct Schema {
    loaded: Loaded,
    limits: Limits,
    by_name: HashMap<String, u16>,
    /// The names of each type's fields.
    names: Vec<Vec<Py<PyString>>>,
    enums: Vec<Names>,
}

/// An enumeration's names and numbers.
struct Names {
    by_number: HashMap<i32, Py<PyString>>,
    by_name: HashMap<String, i32>,
}

impl Names {
    fn new(py: Python<'_>, values: &[(String, i32)]) -> Names {
        let mut by_number = HashMap::new();
        for (name, number) in values {
            // Of two names of one number the first is its name.
            by_number.entry(*number).or_insert_with(|| PyString::intern(py, name).unbind());
        }
        Names { by_number, by_name: values.iter().cloned().collect() }
    }
}

#[pymethods]
impl Schema {
    #[new]
    #[pyo3(signature = (descriptors, *, depth_max=100, message_bytes_max=64 << 20, slots_bytes_max=256 << 20, unknown_fields_max=1 << 20))]
    fn new(
        py: Python<'_>,
        descriptors: PyBackedBytes,
        depth_max: u16,
        message_bytes_max: u32,
        slots_bytes_max: u32,
        unknown_fields_max: u32,
    ) -> PyResult<Self> {
        if depth_max == 0 || depth_max > DEPTH_MAX {
            return Err(PyValueError::new_err(format!(
                "depth_max is {depth_max}; expected 1 to {DEPTH_MAX}"
            )));
        }
        let limits = Limits { message_bytes_max, depth_max, slots_bytes_max, unknown_fields_max };
        let loaded = py
            .detach(|| descriptor::read(&descriptors).and_then(|files| descriptor::types_of(&files)))
            .map_err(|error| SchemaError::new_err(error.to_string()))?;
        let types = &loaded.types.types;
        if types.is_empty() {
            let why = "there are no types in it: expected a FileDescriptorSet, as protoc --descriptor_set_out writes it";
            return Err(SchemaError::new_err(why));
        }
        let interned = |names: &[std::borrow::Cow<'static, str>]| {
            names.iter().map(|name| PyString::intern(py, name).unbind()).collect()
        };
        Ok(Schema {
            limits,
            by_name: types.iter().zip(0..).map(|(of, index)| (of.name.to_string(), index)).collect(),
            names: types.iter().map(|of| interned(&of.names)).collect(),
            enums: loaded.enums.iter().map(|of| Names::new(py, &of.values)).collect(),
            loaded,
        })
    }

    /// The full names of its messages; entries of maps are none.
    fn types(&self) -> Vec<&str> {
        let all = self.loaded.types.types.iter().zip(&self.loaded.messages);
        all.filter(|(_, of)| !of.is_map_entry).map(|(of, _)| &*of.name).collect()
    }

    /// A message's bytes as a dictionary.
    #[pyo3(signature = (name, data, *, with_defaults=false, enum_numbers=false, unknown_fields=true))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        data: PyBackedBytes,
        with_defaults: bool,
        enum_numbers: bool,
        unknown_fields: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let index = self.index(name)?;
        let reading = Reading { schema: self, py, with_defaults, enum_numbers, unknown_fields };
        with_arena(|arena| {
            let view = if data.len() < DETACHED_BYTES {
                self.decoded(index, &data, arena)
            } else {
                py.detach(|| self.decoded(index, &data, arena))
            };
            reading.dict(index, view.map_err(|error| refused_bytes(py, self, index, &data, error))?)
        })
    }

    /// The same of many: other threads of Python run while bytes are decoded.
    #[pyo3(signature = (name, data, *, with_defaults=false, enum_numbers=false, unknown_fields=true))]
    fn decode_many<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        data: Vec<PyBackedBytes>,
        with_defaults: bool,
        enum_numbers: bool,
        unknown_fields: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let index = self.index(name)?;
        let reading = Reading { schema: self, py, with_defaults, enum_numbers, unknown_fields };
        let dicts = PyList::empty(py);
        let mut arenas = vec![Arena::new(); BATCH.min(data.len())];
        for inputs in data.chunks(BATCH) {
            arenas.iter_mut().for_each(Arena::reset);
            let views: Vec<_> = py.detach(|| {
                let pairs = arenas.iter_mut().zip(inputs);
                pairs.map(|(arena, input)| self.decoded(index, input, arena)).collect()
            });
            for (input, view) in inputs.iter().zip(views) {
                let view = view.map_err(|error| {
                    let refused = refused_bytes(py, self, index, input, error);
                    error::note(py, refused, &format!("message {} of the list", dicts.len()))
                })?;
                dicts.append(reading.dict(index, view)?)?;
            }
        }
        Ok(dicts)
    }

    /// A dictionary as a message's bytes.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        message: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let index = self.index(name)?;
        with_arena(|arena| self.encoded(py, index, message, arena))
    }

    /// The same of many.
    fn encode_many<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        messages: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let index = self.index(name)?;
        let all = PyList::empty(py);
        for message in &messages {
            let encoded = with_arena(|arena| self.encoded(py, index, message, arena));
            let place = || format!("message {} of the list", all.len());
            all.append(encoded.map_err(|error| error::note(py, error, &place()))?)?;
        }
        Ok(all)
    }

    fn __repr__(&self) -> String {
        format!("<scotfree.transform.Schema of {} types>", self.types().len())
    }
}

impl Schema {
    fn index(&self, name: &str) -> PyResult<u16> {
        let unknown = || PyKeyError::new_err(format!("there is no message {name:?} in these descriptors"));
        self.by_name.get(name.strip_prefix('.').unwrap_or(name)).copied().ok_or_else(unknown)
    }

    fn decoded<'m>(
        &'m self,
        index: u16,
        input: &'m [u8],
        arena: &'m mut Arena,
    ) -> Result<View<'m>, scotfree_transform::DecodeError> {
        protobuf::table::decode(&self.loaded.types, index, input, arena, &self.limits)
    }

    fn encoded<'py>(
        &self,
        py: Python<'py>,
        index: u16,
        message: &Bound<'py, PyAny>,
        arena: &mut Arena,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut editor = dynamic::begin(&self.loaded.types, index, arena, self.limits.depth_max)
            .map_err(|why| PyValueError::new_err(why.to_string()))?;
        write::fill(self, &mut editor, index, message).map_err(|wrong| wrong.raised(py))?;
        let view = editor.view();
        if let Some(path) = dynamic::missing(view) {
            return Err(Wrong::value("nothing", "a value, since it is required").within(&path).raised(py));
        }
        let mut bytes = Vec::new();
        if editor.used_bytes() < DETACHED_BYTES {
            protobuf::table::encode(view, &mut bytes);
        } else {
            py.detach(|| protobuf::table::encode(view, &mut bytes));
        }
        Ok(PyBytes::new(py, &bytes))
    }
}
