//! docs/getting-started.md. The program with a pool is in `from_tokio.rs`.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use wakeful::log::{LossyWriter, report_panics};
use wakeful_http::Server;

async fn greet(Path(name): Path<String>) -> String {
    format!("hello, {name}\n")
}

fn main() -> io::Result<()> {
    let log = LossyWriter::new(io::stderr());
    report_panics(&log);
    let _flush = log.flush_on_drop(Duration::from_secs(1));
    tracing_subscriber::fmt().with_writer(move || log.clone()).init();

    let app = Router::new().route("/{name}", get(greet));
    Server::bind("127.0.0.1:8080")?.serve(app)
}
