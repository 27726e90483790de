//! The five lines. Try `curl 127.0.0.1:8080`.

use axum::{Router, routing::get};

fn main() -> std::io::Result<()> {
    let app = Router::new().route("/", get(|| async { "hello\n" }));
    wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
}
