//! libFuzzer's door to the target `retrieval_snapshot`; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scotfree_fuzz::snapshot::snapshot(data));
