//! libFuzzer's door to the target `proxy_peers`; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scotfree_fuzz::proxy::peers(data));
