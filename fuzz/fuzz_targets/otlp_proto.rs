//! libFuzzer's door to the target `otlp_proto`; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scotfree_fuzz::otlp::proto(data));
