use std::{env, io};

use tokio::signal;

#[tokio::main]
async fn main() -> io::Result<()> {
    let addr = env::var("ADDR").unwrap_or("127.0.0.1:3000".into());
    let app = graceful::router();
    let listener = tokio::net::TcpListener::bind(addr).await?;
    axum::serve(listener, app).with_graceful_shutdown(terminated()).await
}

async fn terminated() {
    let mut term = signal::unix::signal(signal::unix::SignalKind::terminate()).expect("a handler");
    tokio::select! {
        _ = signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
}
