//! An axum service as it was written for Tokio, on wakeful's loops: the handlers use `tokio::time`,
//! `tokio::net`, `tokio::spawn` and a layer of tower-http that needs Tokio's timers.
//!
//! Try `curl 127.0.0.1:8080/` and `curl -i 127.0.0.1:8080/slow`. Each loop's thread has a Tokio
//! runtime of its own (feature `tokio`), and all of a request runs on that one thread.

use std::time::Duration;

use axum::{Router, http::StatusCode, routing::get};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_http::timeout::TimeoutLayer;

/// Stands for a backend, and for the driver of one.
async fn ask_a_backend() -> std::io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        stream.write_all(b"answered by way of tokio\n").await
    });
    let mut answer = String::new();
    TcpStream::connect(addr).await?.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn handler() -> Result<String, StatusCode> {
    let asked = tokio::time::timeout(Duration::from_secs(1), ask_a_backend()).await;
    asked.map_err(|_| StatusCode::GATEWAY_TIMEOUT)?.map_err(|_| StatusCode::BAD_GATEWAY)
}

async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_secs(3600)).await;
    "nobody waits for this"
}

fn main() -> std::io::Result<()> {
    let limit = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(1));
    let app = Router::new().route("/", get(handler)).route("/slow", get(slow)).layer(limit);
    // With `tokio::net::TcpListener` and `axum::serve` these were the two lines for it.
    wakeful_http::Server::bind("127.0.0.1:8080")?.tokio().serve(app)
}
