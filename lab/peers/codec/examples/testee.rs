//! `testee FOLDER FILE...`: answers Protobuf's conformance runner with the types of .proto files.

use codec_peers::conformance::serve;
use scotfree_transform::descriptor::{read, types_of};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let folder = words.next().ok_or("usage: testee FOLDER FILE...")?;
    let set = protox::compile(words, [folder])?;
    let types = types_of(&read(&protox::prost::Message::encode_to_vec(&set))?)?;
    serve(&types, std::io::stdin().lock(), std::io::stdout().lock())?;
    Ok(())
}
