//! What is said on a connection: one request without a body, one answer, the end.

use std::time::{Duration, Instant};

use crate::counts::{self, Counts};

/// A request that is longer is none.
pub const LONGEST_REQUEST: usize = 1024;

/// More work than this is not done for one request, microseconds.
const MOST_WORK: u64 = 10_000;

/// Whether the request is complete.
pub fn is_complete(request: &[u8]) -> bool {
    request.ends_with(b"\r\n\r\n")
}

/// Its answer: to `/counts` those, to everything else 11 bytes; to `/work/N` after so many
/// microseconds of the CPU.
pub fn answer(request: &[u8], counts: &[Counts]) -> Vec<u8> {
    let path =
        request.strip_prefix(b"GET ").and_then(|rest| rest.split(|byte| *byte == b' ').next());
    let path = path.and_then(|path| std::str::from_utf8(path).ok()).unwrap_or_default();
    if let Some(work) = path.strip_prefix("/work/").and_then(|number| number.parse().ok()) {
        work_for(Duration::from_micros(MOST_WORK.min(work)));
    }
    let body = if path == "/counts" { counts::json(counts) } else { "hello world".to_owned() };
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn work_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
