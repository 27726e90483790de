//! A handler that panics while nobody reads the log. A program of its own, because the panic hook
//! is the process's.

mod common;

use std::io::{self, Read, Write};
use std::time::Duration;

use axum::routing::get;
use common::{GUARD, raw, router, server};
use wakeful::log::{LossyWriter, report_panics};

#[test]
fn a_panic_in_a_handler_waits_for_no_log() {
    let (reader, mut writer) = io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let log = LossyWriter::new(writer);
    report_panics(&log);
    let app = router().route(
        "/panic",
        get(|| async {
            if true {
                panic!("on purpose")
            }
        }),
    );
    let running = server().start(app).unwrap();
    let ask = |path: &str| {
        let mut stream = raw(&running);
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    for _ in 0..100 {
        assert!(ask("/panic").starts_with("HTTP/1.1 500 "));
        assert!(ask("/").ends_with("hello"));
    }
    assert!(!log.flush_within(Duration::ZERO));
    running.shutdown(GUARD).unwrap();
    let reading = std::thread::spawn(move || io::read_to_string(reader).unwrap());
    assert!(log.flush_within(GUARD));
    // The hook has the last one.
    drop(std::panic::take_hook());
    drop(log);
    let text = reading.join().unwrap();
    assert!(text.contains("panicked at"), "{text}");
    assert!(text.contains("on purpose"), "{text}");
}
