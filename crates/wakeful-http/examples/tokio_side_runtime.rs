//! A handler that needs a tokio runtime: give it one on the side, and await its work from the loop.
//!
//! Try `curl 127.0.0.1:8080/`. The handler runs on a wakeful loop; what it hands over runs on
//! tokio's thread, where tokio's timers, sockets and `spawn` work; the answer comes back through a
//! waker.

use std::time::Duration;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::runtime::{Builder, Handle};

/// Stands for a database driver, or any other crate that calls `tokio::time`, `tokio::net` or
/// `tokio::spawn`.
async fn needs_tokio() -> &'static str {
    tokio::time::sleep(Duration::from_millis(1)).await;
    "answered by way of tokio\n"
}

async fn handler(State(tokio): State<Handle>) -> Result<&'static str, StatusCode> {
    // `Handle::spawn` may be called anywhere, and its JoinHandle awaited anywhere.
    tokio.spawn(needs_tokio()).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn main() -> std::io::Result<()> {
    // One worker is enough for a driver's timers and sockets; it lives as long as `runtime`.
    // (tokio's features `rt-multi-thread`, `net`, `time`.)
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let app = Router::new().route("/", get(handler)).with_state(runtime.handle().clone());
    wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
}
