//! OTLP's decoders as Python's classes: bytes in, columns out as Arrow's buffers.
//!
//! Invariant: a column is a name, values, validity (none where all are valid), and a dictionary if values are codes.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use scotfree_study::otlp;

/// A dictionary's offsets and text.
type Dictionary<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);
/// Name, values, validity, dictionary.
type Column<'py> = (String, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>, Option<Dictionary<'py>>);
/// Reason, first record, count, whether kept.
type Trouble = (String, u64, u64, bool);
/// A message, how many values were wrong, why the text broke off and whether that is because it ends early.
type Transcoded<'py> = (Bound<'py, PyBytes>, u64, Option<(String, bool)>);
type Pairs = Vec<(String, String)>;

/// Reads trace messages of one input.
#[pyclass]
pub struct SpanDecoder {
    decoder: otlp::SpanDecoder,
}

#[pymethods]
impl SpanDecoder {
    /// The attribute table, by the kinds of its values; what marks hedges; keys that give an error's type, by whose
    /// words it is in; and those words.
    #[new]
    fn new(
        integers: Pairs,
        floats: Pairs,
        texts: Pairs,
        hedges: Pairs,
        errors: [Vec<String>; 3],
        grpc: Vec<String>,
        http: Vec<(i64, String)>,
    ) -> PyResult<Self> {
        let table =
            otlp::AttributeTable::new(&otlp::Pairs { integers, floats, texts, hedges, errors, grpc, http })
                .map_err(PyValueError::new_err)?;
        Ok(SpanDecoder { decoder: otlp::SpanDecoder::new(table) })
    }

    /// Begins a message.
    fn start(&mut self, message: &[u8]) {
        self.decoder.start(message.len());
    }

    /// Reads on in the message that was begun, until there are so many rows. True at its end.
    fn decode(&mut self, py: Python<'_>, message: &[u8], rows_max: usize) -> bool {
        py.detach(|| self.decoder.decode(message, rows_max))
    }

    /// A record that cannot even be read has its number, too.
    fn skip_record(&mut self) {
        self.decoder.skip_record();
    }

    /// Records met so far, rows or not.
    #[getter]
    fn records(&self) -> u64 {
        self.decoder.records()
    }

    /// Rows that `take` would give.
    #[getter]
    fn rows(&self) -> usize {
        self.decoder.rows()
    }

    /// What was wrong since the last time.
    fn troubles(&mut self) -> Vec<Trouble> {
        let troubles = self.decoder.take_troubles().into_iter();
        troubles.map(|(reason, trouble)| (reason, trouble.record, trouble.count, trouble.is_kept)).collect()
    }

    /// The rows since the last time, and how many they are.
    fn take<'py>(&mut self, py: Python<'py>) -> (usize, Vec<Column<'py>>) {
        let taken = self.decoder.take();
        let plain = |name: &str, bytes: &[u8]| (name.to_owned(), PyBytes::new(py, bytes), None, None);
        let mut columns = vec![
            plain("trace_id", &taken.trace_ids),
            plain("span_id", &little(&taken.span_ids)),
            numbers(py, "parent_id", &taken.parent_ids),
            plain("kind", &taken.kinds.iter().map(|kind| *kind as u8).collect::<Vec<u8>>()),
            plain("start_ns", &little(&taken.starts_ns)),
            plain("duration_ns", &little(&taken.durations_ns)),
            texts(py, "name", &taken.names),
            texts(py, "status", &taken.statuses),
            plain("record", &little(&taken.records)),
        ];
        let hedges = PyBytes::new(py, taken.hedges.bytes());
        columns.push(("is_hedge".to_owned(), hedges.clone(), Some(hedges), None));
        columns.extend(taken.integers.iter().map(|(name, column)| numbers(py, name, column)));
        columns.extend(taken.floats.iter().map(|(name, column)| numbers(py, name, column)));
        columns.extend(taken.texts.iter().map(|(name, column)| texts(py, name, column)));
        (taken.rows(), columns)
    }
}

/// Reads metric messages of one input.
#[pyclass]
pub struct MetricDecoder {
    decoder: otlp::MetricDecoder,
}

#[pymethods]
impl MetricDecoder {
    /// Which attribute is which label.
    #[new]
    fn new(texts: Pairs) -> PyResult<Self> {
        let pairs = otlp::Pairs { texts, ..otlp::Pairs::default() };
        let table = otlp::AttributeTable::new(&pairs).map_err(PyValueError::new_err)?;
        Ok(MetricDecoder { decoder: otlp::MetricDecoder::new(table) })
    }

    /// Reads a message.
    fn read(&mut self, py: Python<'_>, message: &[u8]) {
        py.detach(|| self.decoder.read(message));
    }

    /// A record that cannot even be read has its number, too.
    fn skip_record(&mut self) {
        self.decoder.skip_record();
    }

    /// Points met so far.
    #[getter]
    fn records(&self) -> u64 {
        self.decoder.records()
    }

    /// Rows that `take` would give.
    #[getter]
    fn rows(&self) -> usize {
        self.decoder.rows()
    }

    /// What was wrong since the last time.
    fn troubles(&mut self) -> Vec<Trouble> {
        let troubles = self.decoder.take_troubles().into_iter();
        troubles.map(|(reason, trouble)| (reason, trouble.record, trouble.count, trouble.is_kept)).collect()
    }

    /// The rows since the last time: how many they are, how many points only began a counter, the columns.
    fn take<'py>(&mut self, py: Python<'py>) -> (usize, u64, Vec<Column<'py>>) {
        let rows = self.decoder.rows();
        let (taken, firsts) = self.decoder.take();
        let plain = |name: &str, bytes: &[u8]| (name.to_owned(), PyBytes::new(py, bytes), None, None);
        let mut columns = vec![
            texts(py, "series", &taken.names),
            plain("ts_ns", &little(&taken.times_ns)),
            plain("value", &little(&taken.values)),
        ];
        columns.extend(taken.texts.iter().map(|(name, column)| texts(py, name, column)));
        (rows, firsts, columns)
    }
}

/// What a message carries, told by its beginning: "traces", "metrics" or nothing that is read.
#[pyfunction]
pub fn signal(head: &[u8]) -> Option<&'static str> {
    otlp::signal(head).map(|signal| match signal {
        otlp::Signal::Traces => "traces",
        otlp::Signal::Metrics => "metrics",
    })
}

/// A text of JSON objects as protobuf: the message of its whole records, how many values were of a wrong kind, and
/// why it could not be read on, with whether that is because it ends early.
#[pyfunction]
pub fn from_json<'py>(py: Python<'py>, text: &[u8], signal: &str) -> PyResult<Transcoded<'py>> {
    let signal = match signal {
        "traces" => otlp::Signal::Traces,
        "metrics" => otlp::Signal::Metrics,
        other => return Err(PyValueError::new_err(format!("{other} is no signal"))),
    };
    let found = py.detach(|| otlp::from_json(text, signal));
    let broken = found.broken.map(|broken| match broken {
        otlp::Broken::EndsEarly => ("ends early".to_owned(), true),
        otlp::Broken::NotJson(why) => (why, false),
    });
    Ok((PyBytes::new(py, &found.message), found.wrong, broken))
}

/// A number in the byte order of Arrow's buffers.
trait Little {
    fn bytes(self) -> [u8; 8];
}

impl Little for i64 {
    fn bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }
}

impl Little for f64 {
    fn bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }
}

fn little<T: Little + Copy>(values: &[T]) -> Vec<u8> {
    values.iter().flat_map(|value| value.bytes()).collect()
}

fn little_codes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn validity<'py>(py: Python<'py>, valid: &otlp::Bitmap) -> Option<Bound<'py, PyBytes>> {
    (valid.zeros() > 0).then(|| PyBytes::new(py, valid.bytes()))
}

fn numbers<'py, T: Little + Copy>(py: Python<'py>, name: &str, column: &otlp::Column<T>) -> Column<'py> {
    (name.to_owned(), PyBytes::new(py, &little(&column.values)), validity(py, &column.valid), None)
}

fn texts<'py>(py: Python<'py>, name: &str, column: &otlp::Texts) -> Column<'py> {
    let codes = PyBytes::new(py, &little_codes(&column.codes));
    let offsets = PyBytes::new(py, &little_codes(&column.offsets));
    let dictionary = (offsets, PyBytes::new(py, column.text.as_bytes()));
    (name.to_owned(), codes, validity(py, &column.valid), Some(dictionary))
}
