//! OTLP's messages by our codec, from bytes and to bytes, and nothing else: how large is that, how long is it compiled?

#[allow(missing_docs, dead_code)]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/otlp.rs"));
}

use messages::otlp::TracesData;
use scotfree_transform::{protobuf, Arena, Limits};
use std::io::{Read, Write};

const STAMP: Option<&str> = option_env!("CODEC_SIZE_STAMP");

fn main() {
    let (mut bytes, mut out, mut arena) = (Vec::new(), Vec::new(), Arena::new());
    std::io::stdin().read_to_end(&mut bytes).expect("it is read");
    let data = protobuf::decode::<TracesData>(&bytes, &mut arena, &Limits::default()).expect("it is OTLP");
    protobuf::encode::<TracesData>(data.slots(), &mut out);
    out.extend(STAMP.unwrap_or_default().bytes().take(0));
    std::io::stdout().write_all(&out).expect("it is written");
}
