//! The other side of Protobuf's conformance runner: bytes of a message come in, are decoded and encoded, and go back.
//!
//! Invariant: each request has one response; what is not asked of this codec (other formats than the binary one) is
//! skipped, and never answered otherwise.

use crate::testee::testee::{Request, RequestRef, Response};
use scotfree_transform::descriptor::Loaded;
use scotfree_transform::{protobuf, Arena, Limits, Message};
use std::io::{ErrorKind, Read, Result, Write};

/// The runner's number of the binary format.
const BINARY: i32 = 1;
/// The type of the first request: which tests will fail is asked. None, which is an empty message.
const FAILURES: &str = "conformance.FailureSet";

/// Answers until the runner ends. Both directions have a length of four bytes before each message.
pub fn serve(types: &Loaded, mut from: impl Read, mut to: impl Write) -> Result<()> {
    while let Some(request) = next(&mut from)? {
        let mut bytes = Vec::new();
        response(types, &request).encode(&mut bytes);
        to.write_all(&(bytes.len() as u32).to_le_bytes())?;
        to.write_all(&bytes)?;
        to.flush()?;
    }
    Ok(())
}

/// The next request's bytes; none, if the runner has closed its end between two.
fn next(from: &mut impl Read) -> Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

fn response(types: &Loaded, request: &[u8]) -> Message<Response> {
    let mut response = Message::<Response>::new();
    let mut edit = response.edit();
    match Message::<Request>::decode(request, &Limits::default()) {
        Err(error) => edit.set_runtime_error(&error.to_string()),
        Ok(request) => match answer(types, request.get()) {
            Answer::Bytes(bytes) => edit.set_protobuf(&bytes),
            Answer::ParseError(reason) => edit.set_parse_error(&reason),
            Answer::Skipped(reason) => edit.set_skipped(&reason),
        },
    }
    .expect("an answer is shorter than an arena's limit");
    response
}

enum Answer {
    Bytes(Vec<u8>),
    ParseError(String),
    Skipped(String),
}

fn answer(types: &Loaded, request: RequestRef<'_>) -> Answer {
    if request.r#type() == FAILURES {
        return Answer::Bytes(Vec::new());
    }
    let Some(bytes) = request.protobuf().filter(|_| request.output() == BINARY) else {
        return Answer::Skipped("the binary format is the one that there is".to_owned());
    };
    let Some(&index) = types.by_name.get(&format!(".{}", request.r#type())) else {
        return Answer::Skipped(format!("there is no type {}", request.r#type()));
    };
    let (mut arena, mut out) = (Arena::new(), Vec::new());
    match protobuf::table::decode(&types.types, index, bytes, &mut arena, &Limits::default()) {
        Ok(view) => {
            protobuf::table::encode(view, &mut out);
            Answer::Bytes(out)
        }
        Err(error) => Answer::ParseError(error.to_string()),
    }
}
