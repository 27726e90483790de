//! Files while the blocking pool is full. A program of its own, because the pool is the process's.
#![cfg(feature = "files")]

mod common;

use std::io::Write;
use std::sync::{Arc, mpsc};

use common::{GUARD, raw, read_all, server};
use wakeful_http::Refusal;
use wakeful_http::files::ServeDir;

/// Twice the number of the pool's threads: further work waits.
const BLOCKERS: usize = 1000;

#[test]
fn beyond_the_limit_requests_are_refused_and_those_that_wait_are_answered() {
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("a"), "content").unwrap();
    let (hold, held) = mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    for _ in 0..BLOCKERS {
        let held = held.clone();
        // Until `hold` is dropped; the lock makes the others wait behind the first.
        wakeful::task::spawn_blocking(move || drop(held.lock().map(|held| held.recv()))).detach();
    }
    let running = server().start(ServeDir::new(tree.path()).unwrap().max_jobs(2)).unwrap();
    let ask = || {
        let mut stream = raw(&running);
        stream.write_all(b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        stream
    };
    // Which of them come first is the loops' business.
    let mut waiting: Vec<_> = (0..8).map(|_| ask()).collect();
    let mut refused = 0;
    // The refused ones are answered at once, while the pool does nothing.
    let mut still_waiting = Vec::new();
    common::until("all but those that may wait are refused", || {
        for stream in std::mem::take(&mut waiting) {
            stream.set_nonblocking(true).unwrap();
            let is_answered = stream.peek(&mut [0; 1]).is_ok();
            stream.set_nonblocking(false).unwrap();
            if is_answered {
                let answer = read_all(stream);
                assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
                assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
                refused += 1;
            } else {
                still_waiting.push(stream);
            }
        }
        waiting.append(&mut still_waiting);
        waiting.len() <= 2
    });
    assert_eq!((waiting.len(), refused), (2, 6));
    assert_eq!(running.http_counts().refused(Refusal::FileJobs), 6);
    drop(hold);
    for stream in waiting {
        let answer = read_all(stream);
        assert!(answer.ends_with("content"), "{answer}");
    }
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}
