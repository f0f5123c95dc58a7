//! Messages are called as their file says, those of other packages by the names of these.
#![allow(clippy::unwrap_used)]

use scotfree_tonic::{Limits, Owned};

#[allow(missing_docs)]
mod clock {
    tonic::include_proto!("clock");
}

#[test]
fn messages_of_other_packages_have_names() {
    let now = clock::Type { at: Some(clock::google::protobuf::Timestamp { seconds: 5, nanos: 6 }) };
    let mut bytes = Vec::new();
    now.encode(&mut bytes);
    assert_eq!(clock::Type::decode(&bytes, &Limits::default()).unwrap(), now);
    let asked = clock::Field { kind: clock::Kind::Steady.into() };
    assert_eq!(asked.kind(), clock::Kind::Steady);
}
