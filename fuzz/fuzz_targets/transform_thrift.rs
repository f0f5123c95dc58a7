//! libFuzzer's door to the target `transform_thrift`; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scotfree_fuzz::thrift::thrift(data));
