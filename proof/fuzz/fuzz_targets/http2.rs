//! Frames of HTTP/2, as they go by beside h2.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wakeful_http::fuzzing::http2(data));
