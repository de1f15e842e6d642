#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dwell_fuzz::codec::mix(bytes));
