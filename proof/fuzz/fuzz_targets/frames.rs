//! Frames of the echo service.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wakeful_services::fuzzing::frames(data));
