//! libFuzzer's door to the target `resp_reply`; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scotfree_fuzz::resp::reply(data));
