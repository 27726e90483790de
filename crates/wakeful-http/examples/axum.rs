//! The README's service. Try `curl 127.0.0.1:8080/you`, also with `--http2-prior-knowledge`.

use axum::{Router, extract::Path, routing::get};
use std::time::Duration;

async fn greet(Path(name): Path<String>) -> String {
    wakeful::time::sleep(Duration::from_millis(1)).await;
    format!("hello, {name}\n")
}

fn main() -> std::io::Result<()> {
    let app = Router::new().route("/", get(|| async { "hello\n" })).route("/{name}", get(greet));
    wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
}
