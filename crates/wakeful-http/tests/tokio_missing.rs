//! Handlers that need a Tokio runtime where there is none. A process of its own, because the log is
//! the process's.

#[path = "../../wakeful/tests/logged/mod.rs"]
mod logged;

mod common;

use std::io::Write;
use std::time::Duration;

use axum::routing::get;
use common::{is_served, raw, read_all, router, server};

#[test]
fn a_handler_for_want_of_a_tokio_runtime_is_answered_500_and_the_log_says_what_to_do() {
    logged::from_now_on(tracing::Level::ERROR);
    let sleeps = || tokio::time::sleep(Duration::from_millis(1));
    let spawns = async || drop(tokio::spawn(async {}));
    let connects = async || drop(tokio::net::TcpStream::connect("127.0.0.1:1").await);
    let app = router()
        .route("/sleep", get(sleeps))
        .route("/spawn", get(spawns))
        .route("/connect", get(connects));
    let running = server().start(app).unwrap();
    for path in ["/sleep", "/spawn", "/connect"] {
        let mut stream = raw(&running);
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let answer = read_all(stream);
        assert!(answer.starts_with("HTTP/1.1 500 "), "{path}: {answer}");
        assert!(!answer.contains("okio"), "{path}: {answer}");
        is_served(&running);
    }
    assert!(logged::count(&["`Server::tokio`", "`Server::tokio_handle`"]) >= 1);
}
