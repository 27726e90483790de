//! The exchange on a connection: one request without a body, one answer, and the end.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::counts::{self, Counts};

/// The longest valid request, in bytes.
pub const LONGEST_REQUEST: usize = 1024;

/// The most CPU time that a request may use, in microseconds.
const MOST_CPU_TIME: u64 = 100_000;

/// Returns whether the request is complete.
pub fn is_complete(request: &[u8]) -> bool {
    request.ends_with(b"\r\n\r\n")
}

/// Returns the answer. `/counts` gets the counters. `/cpu/N` gets its answer after N microseconds
/// of CPU time, as from `wakeful serve http`. Any other path gets 11 bytes.
pub fn answer(request: &[u8], counts: &[Counts]) -> Vec<u8> {
    let path =
        request.strip_prefix(b"GET ").and_then(|rest| rest.split(|byte| *byte == b' ').next());
    let path = path.and_then(|path| std::str::from_utf8(path).ok()).unwrap_or_default();
    let us: Option<u64> = path.strip_prefix("/cpu/").and_then(|number| number.parse().ok());
    let body = match us {
        Some(us) => {
            compute_for(Duration::from_micros(MOST_CPU_TIME.min(us)));
            format!("used {us} µs of CPU time\n")
        }
        None if path == "/counts" => counts::json(counts),
        None => "hello world".to_owned(),
    };
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// Does the same work as `/cpu/N` of `wakeful serve http`: it computes until this thread has used
/// that much CPU time.
fn compute_for(time: Duration) {
    let start = thread_cpu_time();
    let mut number = 1_u64;
    while thread_cpu_time().saturating_sub(start) < time {
        // Reading the clock is a system call. These steps take a fraction of a microsecond.
        for _ in 0..256 {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

fn thread_cpu_time() -> Duration {
    // It is never negative.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
