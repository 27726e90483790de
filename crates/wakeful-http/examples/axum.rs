//! The README's service.
//!
//! ```console
//! $ cargo run --release -p wakeful-http --example axum
//! $ curl 127.0.0.1:8080/you
//! $ curl --json '{"text": "buy milk"}' 127.0.0.1:8080/notes
//! ```

use axum::extract::Path;
use axum::routing::{get, post};
use axum::{Json, Router, debug_handler};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wakeful_http::{Peer, Server, layers::TimeoutLayer};

#[derive(Deserialize, Serialize)]
struct Note {
    text: String,
}

#[debug_handler]
async fn greet(Path(name): Path<String>, peer: Peer) -> String {
    wakeful::time::sleep(Duration::from_millis(1)).await;
    format!("hello, {name} at {}\n", peer.addr)
}

fn main() -> std::io::Result<()> {
    let app = Router::new()
        .route("/{name}", get(greet))
        .route("/notes", post(async |Json(note): Json<Note>| Json(note)))
        .layer(TimeoutLayer::new(Duration::from_secs(5)));
    Server::bind("127.0.0.1:8080")?.serve(app)
}
