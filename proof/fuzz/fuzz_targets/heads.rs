//! Heads of requests that a proxy sends on.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wakeful_services::fuzzing::heads(data));
