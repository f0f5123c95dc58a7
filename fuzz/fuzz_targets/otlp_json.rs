//! libFuzzer's door to the target `otlp_json`; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scotfree_fuzz::otlp::json(data));
