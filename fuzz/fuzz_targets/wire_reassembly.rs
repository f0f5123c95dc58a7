//! libFuzzer's door to the target `wire_reassembly`; its body is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scotfree_fuzz::wire::reassembly(data));
