//! The golden vectors' files.
//!
//! Invariant: the files are the vectors' text and nothing else, so making them twice changes nothing.

use crate::generated::Generated;
use scotfree_wire::golden::vectors;

/// The vectors' files.
pub fn files() -> Vec<Generated> {
    let file = |name| format!("crates/scotfree-wire/tests/golden/{name}.hex");
    vectors().iter().map(|vector| Generated { path: file(vector.name), text: vector.render() }).collect()
}
