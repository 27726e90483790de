//! Backends that answer before they have the whole body of a request.

use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::common::*;
use crate::upgrades::{exactly, head};

const POST: &str = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";

/// A client that sends another request behind this one would lose it.
#[test]
fn an_answer_before_the_bodys_end_says_that_the_connection_closes() {
    for status in ["413 Too Large", "200 OK"] {
        let head_of_answer = format!("HTTP/1.1 {status}\r\ncontent-length: 3\r\n\r\n");
        let (head_has_come, goes_on) = channel();
        let goes_on = Mutex::new(goes_on);
        let backend = Backend::start(move |_, stream| {
            let _ = stream.read(&mut [0; 1000]);
            stream.write_all(head_of_answer.as_bytes()).unwrap();
            goes_on.lock().unwrap().recv().unwrap();
            stream.write_all(b"hm!").unwrap();
            // It reads on, so that no reset overtakes its answer.
            while stream.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {}
        });
        let proxy = proxy(&[backend.addr], |settings| settings.request_buffer(1000));
        let mut stream = connect(addr(&proxy));
        stream.write_all(POST.as_bytes()).unwrap();
        stream.write_all(&[b'x'; 2000]).unwrap();
        let answer = head(&mut stream).to_lowercase();
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        head_has_come.send(()).unwrap();
        exactly(&mut stream, "hm!");
        assert_eq!(read_all(&mut stream), "");
    }
}

/// The connection to the backend holds the body for longer than the request itself.
#[test]
fn a_504_before_the_bodys_end_says_that_the_connection_closes() {
    let (done, is_done) = channel::<()>();
    let is_done = Mutex::new(is_done);
    let backend = Backend::start(move |_, _| {
        let _ = is_done.lock().unwrap().recv();
    });
    let proxy = proxy(&[backend.addr], |settings| {
        settings.request_buffer(1000).upstream_timeout(Duration::from_millis(50))
    });
    let mut stream = connect(addr(&proxy));
    let mut writer = stream.try_clone().unwrap();
    let head = POST.replace("100000", "10000000000");
    let writing = thread::spawn(move || {
        writer.write_all(head.as_bytes()).unwrap();
        // More than all kernels on the way take.
        while writer.write_all(&[b'x'; 64 << 10]).is_ok() {}
    });
    let answer = self::head(&mut stream).to_lowercase();
    assert_status(&answer.to_uppercase(), 504);
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    drop((proxy, done, stream));
    writing.join().unwrap();
}

#[test]
fn an_answer_behind_the_bodys_end_keeps_the_connection() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings.request_buffer(1000));
    let mut stream = connect(addr(&proxy));
    let chunked = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunks = format!("fa0\r\n{}\r\n", "x".repeat(4000)).repeat(4);
    let small = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx".to_owned();
    let large = format!("{POST}{}", "x".repeat(100_000));
    for request in [small, large, format!("{chunked}{chunks}0\r\n\r\n")] {
        stream.write_all(request.as_bytes()).unwrap();
        let answer = head(&mut stream).to_lowercase();
        assert!(!answer.contains("connection: close"), "{answer}");
        let length = answer.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        stream.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
    }
}
