//! What operators read about backends: changes, and not each request that meets them. A process of
//! its own, because there is one log.

#[path = "proxy/common.rs"]
mod common;
#[path = "proxy/log.rs"]
mod log;

use std::io::Write;
use std::net::TcpListener;

use common::*;
use log::Log;

#[test]
fn a_backend_that_is_down_is_told_once_and_once_when_it_is_back() {
    let log = Log::start();

    // The only one stays in.
    let away = nowhere();
    let alone = proxy(&[away], |settings| settings);
    for _ in 0..100 {
        assert_status(&get(addr(&alone), "/"), 502);
    }
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["WARN", &away.to_string(), "is not excluded", "refused"] {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
    assert_eq!(alone.counts().backends()[0].failures(), 100);
    let back = Backend::on(TcpListener::bind(away).unwrap(), |this, stream| {
        while let Some(request) = this.read(stream) {
            answer(stream, &request);
        }
    });
    for _ in 0..10 {
        assert_status(&get(addr(&alone), "/"), 200);
    }
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("INFO") && lines[0].contains("is back"), "{lines:?}");

    // One of two is excluded, however often it is tried again.
    let away = nowhere();
    let two = proxy(&[away, back.addr], |settings| {
        settings.ejection(
            wakeful_services::proxy::Ejection::new().shortest(std::time::Duration::from_millis(1)),
        )
    });
    until("it was tried several times", || {
        assert_status(&get(addr(&two), "/"), 200);
        two.counts().backends()[0].ejections() >= 4
    });
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("is excluded for"), "{lines:?}");
    let returned = Backend::on(TcpListener::bind(away).unwrap(), |this, stream| {
        while let Some(request) = this.read(stream) {
            answer(stream, &request);
        }
    });
    until("it is asked again", || {
        assert_status(&get(addr(&two), "/"), 200);
        returned.requests().len() > 3
    });
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("INFO") && lines[0].contains("is back"), "{lines:?}");

    // The `Content-Length` of a 304 is that of the corresponding 200.
    let unchanged = Backend::on(TcpListener::bind("127.0.0.1:0").unwrap(), |this, stream| {
        while this.read(stream).is_some() {
            stream.write_all(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n").unwrap();
        }
    });
    let cached = proxy(&[unchanged.addr], |settings| settings);
    assert_status(&get(addr(&cached), "/"), 304);
    let lines = log.take_with("content-length");
    assert!(lines.is_empty(), "{lines:?}");
}
