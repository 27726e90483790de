//! What the log says of upgrades that nobody takes up. A process of its own, because the log is the
//! process's.

#[path = "../../wakeful/tests/logged/mod.rs"]
mod logged;

mod common;

use std::io::Write;

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use common::*;
use hyper::StatusCode;
use hyper::upgrade::OnUpgrade;

const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\n\
                       upgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// As axum's own `WebSocketUpgrade` does: it takes hyper's extension, and refuses without it.
async fn of_hyper(mut request: Request) -> StatusCode {
    match request.extensions_mut().remove::<OnUpgrade>() {
        Some(_) => StatusCode::SWITCHING_PROTOCOLS,
        None => StatusCode::UPGRADE_REQUIRED,
    }
}

async fn takes_nothing() -> StatusCode {
    StatusCode::SWITCHING_PROTOCOLS
}

#[test]
fn an_upgrade_that_nobody_takes_up_is_logged_with_what_to_use() {
    logged::from_now_on(tracing::Level::ERROR);
    let app = Router::new().route("/", any(of_hyper)).route("/101", any(takes_nothing));
    let running = server().start(app).unwrap();
    for (path, status, what) in
        [("/", "426", "a handler answered 426"), ("/101", "500", "a handler answered 101")]
    {
        // At most one line comes in a second, whatever it is about.
        until("it is logged", || {
            let mut stream = raw(&running);
            stream.write_all(UPGRADE.replace("GET /", &format!("GET {path}")).as_bytes()).unwrap();
            let answer = read_all(stream);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
            let hints = ["`wakeful_http::upgrade::on`", "`wakeful_http::ws::WebSocketUpgrade`"];
            logged::count(&[what, hints[0], hints[1]]) > 0
        });
    }
}
