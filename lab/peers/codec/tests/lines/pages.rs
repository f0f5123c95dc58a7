//! Inputs between pages that may not be touched.

use crate::draw::drawn;
use crate::fenced::{Fenced, PAGE, PAGES};
use codec_peers::structs::{again, BOTH};
use codec_peers::thrift_messages::every::thrift::{All, Usual};
use codec_peers::thrift_messages::social::Post;
use scotfree_transform::generated::Type;

/// Every struct, and each of its last prefixes, so that each field in turn is the one at the fence.
fn all<T: Type>() {
    let mut fenced = Fenced::new();
    for protocol in BOTH {
        for bytes in (0..40).map(|seed| drawn::<T>(protocol, seed)).filter(|bytes| bytes.len() < PAGES * PAGE)
        {
            for end in bytes.len().saturating_sub(200)..=bytes.len() {
                let at_end = again::<T>(protocol, fenced.at_end(&bytes[..end]));
                assert_eq!(at_end, again::<T>(protocol, fenced.at_start(&bytes[..end])));
            }
        }
    }
}

#[test]
fn no_field_is_read_beyond_its_input() {
    all::<All>();
    all::<Usual>();
    all::<Post>();
}
