//! libFuzzer's door to the target `cache_language`; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scotfree_fuzz::cache::language(data));
