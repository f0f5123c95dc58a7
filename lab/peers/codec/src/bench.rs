//! What is measured: messages of a shape, and what each codec does with all of them.
//!
//! Invariant: an arm encodes all messages, or decodes them and reads every field; what it comes to is compared with
//! prost's (for Thrift: Apache's) before anything is measured, and after each round.

mod batches;
mod classes;
mod messages;
mod otlp;
mod rounds;
mod shapes;
mod thrift;

pub use rounds::{measure, pin, Round};

/// Messages of a shape: as many as no predictor of branches remembers.
pub const MESSAGES: u64 = 512;

/// What an arm does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// From what the codec's users hold to bytes.
    Encode,
    /// From bytes, and every field read.
    Decode,
}

impl Work {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Work::Encode => "encode",
            Work::Decode => "decode",
        }
    }
}

/// What one codec does with all messages of a shape.
pub struct Arm<'a> {
    /// The codec, and what of it.
    pub name: &'static str,
    /// Which way.
    pub work: Work,
    /// Does it, and returns what came of it.
    pub run: Box<dyn FnMut() -> u64 + 'a>,
    /// What must come of it.
    pub expected: u64,
}

/// Arms over messages of one shape.
pub struct Bench<'a> {
    /// Of which shape.
    pub shape: String,
    /// How many messages an arm does at once.
    pub messages: u64,
    /// Bytes of all of them, encoded.
    pub bytes: u64,
    /// Things in them that are counted instead, such as spans; messages if nothing is.
    pub items: u64,
    arms: Vec<Arm<'a>>,
    expected: [Option<u64>; 2],
}

impl<'a> Bench<'a> {
    fn new(shape: &str, wires: &[Vec<u8>]) -> Self {
        let bytes = wires.iter().map(|wire| wire.len() as u64).sum();
        let messages = wires.len() as u64;
        Bench {
            shape: shape.to_owned(),
            messages,
            bytes,
            items: messages,
            arms: Vec::new(),
            expected: [None; 2],
        }
    }

    /// An arm that does this with each of its inputs. The first of each way says what the others must come to.
    fn arm<X>(
        &mut self,
        name: &'static str,
        work: Work,
        inputs: &'a [X],
        mut one: impl FnMut(&'a X) -> u64 + 'a,
    ) {
        let mut run = move || inputs.iter().map(&mut one).fold(0, u64::wrapping_add);
        let got = run();
        let expected = *self.expected[work as usize].get_or_insert(got);
        assert_eq!(got, expected, "{} {} of {}", name, work.name(), self.shape);
        self.arms.push(Arm { name, work, run: Box::new(run), expected });
    }

    /// Its arms.
    pub fn arms(&mut self) -> &mut [Arm<'a>] {
        &mut self.arms
    }
}

/// What is measured by one name.
pub const SHAPES: [&str; 12] = [
    "flat",
    "mixed",
    "nested",
    "packed",
    "maps",
    "bytes",
    "shuffled",
    "unknown",
    "otlp",
    "batches",
    "thrift-binary",
    "thrift-compact",
];

/// Makes the messages of a shape, and has the arms over them worked with. `absent` is of the three classes.
pub fn with(shape: &str, absent: u64, work: &mut dyn FnMut(&mut Bench<'_>)) {
    match shape {
        "flat" => classes::flat(absent, work),
        "mixed" => classes::mixed(absent, work),
        "nested" => classes::nested(absent, work),
        "packed" => shapes::packed(work),
        "maps" => shapes::maps(work),
        "bytes" => shapes::bytes(work),
        "shuffled" => shapes::shuffled(work),
        "unknown" => shapes::unknown(work),
        "otlp" => otlp::spans(work),
        "batches" => batches::mixed(work),
        "thrift-binary" => thrift::binary(work),
        "thrift-compact" => thrift::compact(work),
        other => panic!("there is no shape `{other}`; there are: {}", SHAPES.join(", ")),
    }
}
