//! Handlers that need a Tokio runtime: with Tokio as each loop's guest, and with one beside them.

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use common::{GUARD, raw, read_all, router, server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_http::timeout::TimeoutLayer;
use wakeful_http::{Running, Server};

fn ask(running: &Running, path: &str) -> String {
    let mut stream = raw(running);
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    read_all(stream)
}

/// Echoes what each connection sends, on threads of its own.
fn echo() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    addr
}

async fn by_a_tokio_socket(State(echo): State<SocketAddr>) -> Vec<u8> {
    let mut stream = tokio::net::TcpStream::connect(echo).await.unwrap();
    stream.write_all(b"echoed").await.unwrap();
    let mut buf = [0; 6];
    stream.read_exact(&mut buf).await.unwrap();
    buf.to_vec()
}

async fn by_a_timeout() -> String {
    let short = Duration::from_millis(5);
    let never = tokio::time::timeout(short, std::future::pending::<()>()).await;
    let at_once = tokio::time::timeout(GUARD, async { 1 }).await;
    format!("{} {}", never.is_err(), at_once.is_ok())
}

async fn by_a_task() -> String {
    let here = thread::current().id();
    let there = tokio::spawn(async { thread::current().id() }).await.unwrap();
    let blocking = tokio::task::spawn_blocking(|| 21 * 2).await.unwrap();
    format!("{} {blocking}", here == there)
}

fn app() -> Router {
    Router::new()
        .route("/net", get(by_a_tokio_socket))
        .with_state(echo())
        .route("/timeout", get(by_a_timeout))
        .route("/task", get(by_a_task))
        .merge(router().layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            Duration::from_millis(100),
        )))
}

fn serves_what_needs_tokio(server: Server, on_the_same_thread: bool) {
    let running = server.start(app()).unwrap();
    for _ in 0..10 {
        assert!(ask(&running, "/net").ends_with("echoed"));
        assert!(ask(&running, "/timeout").ends_with("true true"));
        assert!(ask(&running, "/task").ends_with(&format!("{on_the_same_thread} 42")));
        assert!(ask(&running, "/").ends_with("hello"));
    }
    let answer = ask(&running, "/never");
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    running.shutdown(GUARD).unwrap();
}

#[test]
fn handlers_and_layers_that_need_tokio_work_where_it_is_a_guest() {
    serves_what_needs_tokio(server().tokio(), true);
}

#[test]
fn handlers_and_layers_that_need_tokio_work_where_it_runs_beside_the_loops() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    serves_what_needs_tokio(server().tokio_handle(runtime.handle().clone()), false);
}

#[test]
fn a_runtime_that_nobody_runs_is_refused_at_the_start() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = server().tokio_handle(runtime.handle().clone()).start(app()).unwrap_err();
    assert!(error.to_string().contains("new_multi_thread"), "{error}");
}

#[test]
fn a_drain_waits_for_requests_that_wait_for_tokio() {
    let (began, begins) = mpsc::channel();
    let app = Router::new().route(
        "/",
        get(move || {
            began.send(()).unwrap();
            async {
                let slow = tokio::spawn(tokio::time::sleep(Duration::from_millis(50)));
                slow.await.unwrap();
                "in the end"
            }
        }),
    );
    let running = server().tokio().start(app).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    begins.recv_timeout(GUARD).unwrap();
    running.shutdown(GUARD).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("in the end"), "{answer}");
}
