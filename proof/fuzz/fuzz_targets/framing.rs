//! Where the requests of an HTTP/1 connection begin and end, beside hyper.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wakeful_http::fuzzing::framing(data));
