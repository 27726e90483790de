//! Files of a directory, and an application of one page beside them: what is no file of it is the
//! page itself.

use std::path::Path;

use axum::Router;
use tower_http::services::{ServeDir, ServeFile};

pub fn router(root: &Path) -> Router {
    let page = ServeFile::new(root.join("index.html"));
    Router::new()
        .nest_service("/assets", ServeDir::new(root.join("assets")).precompressed_gzip())
        .route_service("/robots.txt", ServeFile::new(root.join("robots.txt")))
        .fallback_service(ServeDir::new(root.join("site")).fallback(page))
}
