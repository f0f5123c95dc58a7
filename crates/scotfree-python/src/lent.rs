//! A column that Python lends: read where it lies.
//!
//! Invariant: only buffers that their owner says are read-only are lent, for else another thread of Python could
//! write into them while a kernel runs without the interpreter's lock.
#![allow(unsafe_code)]

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A read-only buffer of one dimension without gaps.
pub struct Lent<T: Element>(PyBuffer<T>);

impl<T: Element> Lent<T> {
    /// Its elements.
    pub fn slice(&self) -> &[T] {
        if self.0.item_count() == 0 {
            return &[];
        }
        // SAFETY: The buffer is held as long as `self` and has `item_count` elements of T without gaps, aligned:
        // pyo3 checked type and alignment, `extract` the rest. Its owner says that nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<T>(), self.0.item_count()) }
    }
}

impl<'a, 'py, T: Element> FromPyObject<'a, 'py> for Lent<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<T>::get(&object)?;
        if !buffer.readonly() {
            return Err(PyValueError::new_err("a column can be written to; lend it read-only"));
        }
        if buffer.dimensions() != 1 || !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("a column has gaps or more than one dimension"));
        }
        Ok(Self(buffer))
    }
}
