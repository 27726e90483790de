//! The README's service.
//!
//! ```console
//! $ cargo run --release -p wakeful-http --example axum
//! $ curl 127.0.0.1:8080/you
//! $ curl '127.0.0.1:8080/notes?text=milk'
//! $ curl --data-urlencode 'text=buy milk' 127.0.0.1:8080/notes
//! ```

use axum::extract::{Form, Path, Query};
use axum::{Json, Router, debug_handler, routing::get};
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
    let echo = get(async |Query(note): Query<Note>| Json(note));
    let app = Router::new()
        .route("/{name}", get(greet))
        .route("/notes", echo.post(async |Form(note): Form<Note>| Json(note)))
        .layer(TimeoutLayer::new(Duration::from_secs(5)));
    Server::bind("127.0.0.1:8080")?.serve(app)
}
