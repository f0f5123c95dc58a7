//! libFuzzer's door to the target `resp_request`; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scotfree_fuzz::resp::request(data));
