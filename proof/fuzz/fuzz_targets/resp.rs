//! Commands of Redis clients.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wakeful_services::fuzzing::resp(data));
